/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "base/fd.h"
#include "base/path.h"

static char base[64];
static int base_fd = -EBADF, root_fd = -EBADF;

static void put_file(int dir_fd, const char *name, const char *text)
{
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	cr_assert_geq(fd, 0);
	cr_assert_eq(fd_write_all(fd, text, strlen(text)), 0);
	close(fd);
}

/* A root with good and hostile names, and a secret beside it. */
static void set_up(void)
{
	static const char *const links[][2] = {
		{ "b", "root/a/to-b" },
		{ "../top", "root/a/up-inside" },
		{ "../../secret", "root/a/up-outside" },
		{ "/secret", "root/abs-outside" },
		{ "/top", "root/abs-inside" },
		{ "../../../../../top", "root/far-up" },
		{ "loop2", "root/loop1" },
		{ "loop1", "root/loop2" },
		{ "missing", "root/dangling" },
		{ "/proc/self/root/top", "root/by-proc" },
		{ "a/b", "root/dir-link" },
		{ "dir-link/file", "root/chain" },
		{ "..", "root/parent" },
		{ "/", "root/slash" },
		{ "a/../top", "root/dotted" },
		{ ".", "root/here" },
	};

	strcpy(base, "/tmp/abox-path-XXXXXX");
	cr_assert_not_null(mkdtemp(base));
	base_fd = open(base, O_PATH | O_DIRECTORY | O_CLOEXEC);
	cr_assert_eq(mkdirat(base_fd, "root", 0755), 0);
	cr_assert_eq(mkdirat(base_fd, "root/a", 0755), 0);
	cr_assert_eq(mkdirat(base_fd, "root/a/b", 0755), 0);
	put_file(base_fd, "secret", "secret");
	put_file(base_fd, "root/top", "top");
	put_file(base_fd, "root/a/b/file", "file");
	cr_assert_eq(mkfifoat(base_fd, "root/fifo", 0644), 0);
	for (size_t i = 0; i < ELEMENTSOF(links); i++)
		cr_assert_eq(symlinkat(links[i][0], base_fd, links[i][1]), 0);
	root_fd = openat(base_fd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	cr_assert_geq(root_fd, 0);
}

static void tear_down(void)
{
	int tmp_fd = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);

	cr_expect_eq(path_remove_tree(tmp_fd, base + 5), 0);
	close(tmp_fd);
	close(root_fd);
	close(base_fd);
}

TestSuite(path, .init = set_up, .fini = tear_down, .timeout = 60);

static bool same_file(int a, int b)
{
	struct stat x, y;

	return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino &&
		x.st_mode == y.st_mode;
}

static const char *const attack_paths[] = {
	"top",
	"a/b/file",
	"a/b",
	"a/b/",
	"a//b///file",
	"./a/./b/./file",
	"a/b/.",
	".",
	"./",
	"/",
	"//",
	"",
	"missing",
	"missing/x",
	"top/",
	"top/x",
	"top/.",
	"..",
	"../secret",
	"a/..",
	"a/../top",
	"a/b/../../top",
	"a/../../secret",
	"a/b/../../../secret",
	"/top",
	"/a/b/file",
	"/../top",
	"/..",
	"/../../etc/passwd",
	"/etc/passwd",
	"/secret",
	"a/to-b",
	"a/to-b/",
	"a/to-b/file",
	"a/up-inside",
	"a/up-outside",
	"abs-outside",
	"abs-inside",
	"far-up",
	"loop1",
	"loop1/x",
	"dangling",
	"dangling/x",
	"by-proc",
	"dir-link",
	"dir-link/",
	"dir-link/file",
	"dir-link/../b/file",
	"chain",
	"parent",
	"parent/",
	"parent/root",
	"parent/secret",
	"parent/top",
	"slash",
	"slash/top",
	"slash/secret",
	"dotted",
	"here/here/here/top",
	"fifo",
	"fifo/",
	"fifo/x",
	"a/b/../b/../b/../b/file",
	"../root/top",
	"a/../..",
	"a/./../top",
	"...",
	".../x",
	"a/b/file/..",
};

static const int open_ways[] = {
	O_RDONLY,
	O_PATH,
	O_PATH | O_NOFOLLOW,
	O_PATH | O_DIRECTORY,
	O_PATH | O_NOFOLLOW | O_DIRECTORY,
	O_RDONLY | O_NOFOLLOW,
	O_RDONLY | O_DIRECTORY,
	O_WRONLY,
	O_RDWR,
	O_WRONLY | O_CREAT,
	O_WRONLY | O_CREAT | O_EXCL,
	O_WRONLY | O_CREAT | O_NOFOLLOW,
};

/* What an open has made is removed again, so that the other way finds things as they were. */
static void forget_created(int fd, int open_flags)
{
	if (fd < 0 || !(open_flags & O_CREAT))
		return;
	unlinkat(root_fd, "...", 0);
	unlinkat(root_fd, "missing", 0);
}

/* The walk answers as openat2 does, for every path, way of opening and set of flags: the same file or the
 * same errno. */
Test(path, walk_agrees_with_openat2)
{
	int n_opened = 0, n_outside = 0;

	for (size_t i = 0; i < ELEMENTSOF(attack_paths); i++)
		for (size_t j = 0; j < ELEMENTSOF(open_ways); j++)
			for (int flags = 0; flags < PATH_FORCE_WALK; flags++) {
				const char *path = attack_paths[i];
				int kernel, walk;

				kernel = path_open_under(root_fd, path, open_ways[j], 0600, flags);
				forget_created(kernel, open_ways[j]);
				walk = path_open_under(
					root_fd, path, open_ways[j], 0600, flags | PATH_FORCE_WALK);
				forget_created(walk, open_ways[j]);
				if (kernel < 0 || walk < 0)
					cr_expect_eq(kernel, walk,
						"%s, open %o, flags %d: openat2 %d, walk %d", path,
						open_ways[j], flags, kernel, walk);
				else if (!(open_ways[j] & O_CREAT))
					cr_expect(same_file(kernel, walk), "%s, open %o, flags %d", path,
						open_ways[j], flags);
				n_opened += walk >= 0;
				n_outside += walk == -EXDEV;
				if (walk >= 0)
					cr_expect_eq(fcntl(walk, F_GETFD), FD_CLOEXEC);
				fd_close(kernel);
				fd_close(walk);
			}
	/* Positive control: the table has both. */
	cr_assert_gt(n_opened, 500);
	cr_assert_gt(n_outside, 500);
}

/* Nothing outside of the root opens, whichever way: the secret stays unread. */
Test(path, never_leads_outside)
{
	_cleanup_(fd_closep) int secret = openat(base_fd, "secret", O_PATH | O_CLOEXEC);

	cr_assert_geq(secret, 0);
	for (size_t i = 0; i < ELEMENTSOF(attack_paths); i++)
		for (int flags = 0; flags < 2 * PATH_FORCE_WALK; flags++) {
			int fd = path_open_under(root_fd, attack_paths[i], O_RDONLY, 0, flags);

			if (fd >= 0)
				cr_expect_not(same_file(fd, secret), "%s, flags %d", attack_paths[i], flags);
			fd_close(fd);
		}
}

/* Magic links of /proc are refused by both ways, also when the root is "/" and the target would be inside. */
Test(path, refuses_magic_links)
{
	_cleanup_(fd_closep) int slash_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	static const char *const paths[] = { "proc/self/root/etc", "proc/self/cwd", "proc/self/exe",
		"proc/self/fd/0" };

	for (size_t i = 0; i < ELEMENTSOF(paths); i++)
		for (int force = 0; force < 2; force++) {
			int fd = path_open_under(slash_fd, paths[i], O_RDONLY, 0,
				PATH_FOLLOW | PATH_IN_ROOT | (force ? PATH_FORCE_WALK : 0));

			cr_expect_eq(fd, -ELOOP, "%s: %d", paths[i], fd);
			fd_close(fd);
		}
}

/* PATH_NO_XDEV stops at a mount point, and only then. */
Test(path, stops_at_mounts_when_asked)
{
	_cleanup_(fd_closep) int slash_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	for (int force = 0; force < 2; force++) {
		int way = force ? PATH_FORCE_WALK : 0, fd;

		cr_expect_eq(
			path_open_under(slash_fd, "proc/version", O_RDONLY, 0, PATH_NO_XDEV | way), -EXDEV);
		fd = path_open_under(slash_fd, "proc/version", O_RDONLY, 0, way);
		cr_expect_geq(fd, 0);
		fd_close(fd);
		fd = path_open_under(slash_fd, "etc/passwd", O_RDONLY, 0, PATH_NO_XDEV | way);
		cr_expect_geq(fd, 0);
		fd_close(fd);
	}
}

static void *swap_names(void *argument)
{
	atomic_bool *stop = argument;

	/* a/b is a directory, then a link to the outside, and moves to where `..` leads out. */
	while (!*stop) {
		syscall(SYS_renameat2, base_fd, "root/a/b", base_fd, "evil", 2 /* RENAME_EXCHANGE */);
		syscall(SYS_renameat2, base_fd, "root/a/b", base_fd, "evil", 2);
		renameat(base_fd, "root/a/b", base_fd, "moved");
		renameat(base_fd, "moved", base_fd, "root/a/b");
	}
	return NULL;
}

/* While another thread swaps a directory for a link and moves it out of the root, nothing outside ever opens.
 */
Test(path, survives_renames)
{
	_cleanup_(fd_closep) int secret = openat(base_fd, "secret", O_PATH | O_CLOEXEC);
	static const char *const paths[] = { "a/b/file", "a/b/../../top", "a/b/../../secret", "a/b/secret",
		"a/to-b/../../secret" };
	atomic_bool stop = false;
	int n_opened = 0;
	pthread_t thread;

	cr_assert_eq(symlinkat("..", base_fd, "evil"), 0);
	cr_assert_eq(pthread_create(&thread, NULL, swap_names, &stop), 0);
	for (int round = 0; round < 1000; round++)
		for (size_t i = 0; i < ELEMENTSOF(paths); i++)
			for (int force = 0; force < 2; force++) {
				int fd = path_open_under(root_fd, paths[i], O_RDONLY, 0,
					PATH_FOLLOW | PATH_IN_ROOT | (force ? PATH_FORCE_WALK : 0));

				if (fd >= 0)
					cr_expect_not(same_file(fd, secret), "%s got out", paths[i]);
				n_opened += fd >= 0;
				fd_close(fd);
			}
	stop = true;
	pthread_join(thread, NULL);
	cr_assert_gt(n_opened, 0);
}

/* A fifo without a writer does not block the caller. */
Test(path, does_not_block_on_a_fifo)
{
	for (int force = 0; force < 2; force++) {
		_cleanup_(fd_closep) int fd =
			path_open_under(root_fd, "fifo", O_RDONLY, 0, force ? PATH_FORCE_WALK : 0);

		cr_assert_geq(fd, 0);
	}
}

/* Directories are made below the root, through links that stay inside, and never outside. */
Test(path, makes_directories_below_the_root)
{
	for (int force = 0; force < 2; force++) {
		int way = force ? PATH_FORCE_WALK : 0;
		char name[64];
		int fd;

		snprintf(name, sizeof(name), "a/new%d/x/y", force);
		fd = path_make_dirs_under(root_fd, name, 0755, way);
		cr_expect_geq(fd, 0);
		fd_close(fd);
		fd = path_make_dirs_under(root_fd, name, 0755, way);	/* again: fine */
		cr_expect_geq(fd, 0);
		fd_close(fd);
		snprintf(name, sizeof(name), "dir-link/in%d", force);
		cr_expect_eq(path_make_dirs_under(root_fd, name, 0755, way), -ELOOP);
		fd = path_make_dirs_under(root_fd, name, 0755, way | PATH_FOLLOW);
		cr_expect_geq(fd, 0);
		fd_close(fd);
		snprintf(name, sizeof(name), "a/b/in%d", force);
		cr_expect_eq(faccessat(root_fd, name, F_OK, 0), 0);
		cr_expect_eq(path_make_dirs_under(root_fd, "parent/evil", 0755, way | PATH_FOLLOW), -EXDEV);
		cr_expect_eq(path_make_dirs_under(root_fd, "../evil", 0755, way), -EXDEV);
		cr_expect_eq(path_make_dirs_under(root_fd, "top/evil", 0755, way), -ENOTDIR);
		cr_expect_eq(faccessat(base_fd, "evil", F_OK, 0), -1);
	}
}

/* The lexical functions: what is normal, and what becomes normal. */
Test(path, lexical)
{
	static const char *const normal[] = { "/", "/a", "/a/b", "/.a", "/..a", "/a..", NULL };
	static const char *const odd[] = { "", "a", "//", "/a/", "/a//b", "/./a", "/a/.", "/../a", "/a/..",
		NULL };
	static const char *const pairs[][2] = {
		{ "//", "/" },
		{ "/a/", "/a" },
		{ "/a//b/.", "/a/b" },
		{ "/./a/./b", "/a/b" },
		{ "/", "/" },
		{ "/...", "/..." },
	};
	char *path;

	for (size_t i = 0; normal[i]; i++)
		cr_expect(path_is_normal(normal[i]), "%s", normal[i]);
	for (size_t i = 0; odd[i]; i++)
		cr_expect_not(path_is_normal(odd[i]), "%s", odd[i]);
	for (size_t i = 0; i < ELEMENTSOF(pairs); i++) {
		cr_assert_eq(path_normalize(pairs[i][0], &path), 0);
		cr_expect_str_eq(path, pairs[i][1]);
		free(path);
	}
	cr_expect_eq(path_normalize("a/b", &path), ABOX_E_INVALID);
	cr_expect_eq(path_normalize("/a/../b", &path), ABOX_E_INVALID);
	cr_expect(path_is_under("/a/b", "/a"));
	cr_expect(path_is_under("/a", "/a"));
	cr_expect(path_is_under("/a", "/"));
	cr_expect_not(path_is_under("/ab", "/a"));
	cr_expect_not(path_is_under("/", "/a"));
	cr_assert_eq(path_join("/a/", "/b", &path), 0);
	cr_expect_str_eq(path, "/a/b");
	free(path);
	cr_assert_eq(path_join("/", "b", &path), 0);
	cr_expect_str_eq(path, "/b");
	free(path);
}

/* A chain of 20,000 directories goes away with few descriptors. In memory where there is such a folder: on a disk that
 * others keep busy each of them can take 10 ms to make or remove, and that is not what is asked here. */
Test(path, removes_a_deep_tree)
{
	char memory[] = "/dev/shm/deep-XXXXXX";
	bool in_memory = mkdtemp(memory) != NULL;
	int root = in_memory ? open(memory, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : dup(base_fd);
	int fd = dup(root), free_fd;

	cr_assert_geq(fd, 0);
	cr_assert_eq(mkdirat(fd, "deep", 0700), 0);
	for (int i = 0; i < 20000; i++) {
		int next;

		next = openat(fd, i ? "d" : "deep", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		cr_assert_geq(next, 0);
		close(fd);
		fd = next;
		cr_assert_eq(mkdirat(fd, "d", 0700), 0);
		if (i % 300 == 0)
			put_file(fd, "file", "x");
	}
	close(fd);
	free_fd = dup(root);	/* none may stay open */
	close(free_fd);
	cr_assert_eq(path_remove_tree(root, "deep"), 0);
	cr_assert_eq(faccessat(root, "deep", F_OK, AT_SYMLINK_NOFOLLOW), -1);
	fd = dup(root);
	cr_expect_eq(fd, free_fd);
	close(fd);
	close(root);
	if (in_memory)
		cr_expect_eq(rmdir(memory), 0);
}

/* Locked modes, links, fifos, odd names are removed; what links point to stays. */
Test(path, removes_odd_things_only_inside)
{
	cr_assert_eq(mkdirat(base_fd, "odd", 0700), 0);
	cr_assert_eq(mkdirat(base_fd, "odd/locked", 0700), 0);
	put_file(base_fd, "odd/locked/file", "x");
	put_file(base_fd, "odd/new\nline", "x");
	cr_assert_eq(symlinkat("../secret", base_fd, "odd/link"), 0);
	cr_assert_eq(symlinkat("../root", base_fd, "odd/dirlink"), 0);
	cr_assert_eq(mkfifoat(base_fd, "odd/fifo", 0), 0);
	cr_assert_eq(fchmodat(base_fd, "odd/locked", 0, 0), 0);
	cr_assert_eq(path_remove_tree(base_fd, "odd"), 0);
	cr_assert_eq(faccessat(base_fd, "odd", F_OK, AT_SYMLINK_NOFOLLOW), -1);
	cr_assert_eq(faccessat(base_fd, "secret", F_OK, 0), 0);
	cr_assert_eq(faccessat(base_fd, "root/top", F_OK, 0), 0);
	cr_assert_eq(path_remove_tree(base_fd, "odd"), -ENOENT);
	cr_assert_eq(path_remove_tree(base_fd, "root/a"), -EINVAL);
	cr_assert_eq(path_remove_tree(base_fd, ".."), -EINVAL);
}
