/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "support.h"
#include "workspace/pattern.h"
#include "workspace/view.h"

/* Patterns mean the same as in the spec: a star stays within one part, two cross parts, a folder means its
 * content. */
Test(pattern, matches_parts_and_folders)
{
	static const struct {
		const char *pattern, *path;
		bool matches;
	} rows[] = {
		{"a", "a", true},
		{"a", "a/b", true},
		{"a", "ab", false},
		{"a/b", "a", false},
		{"*.c", "x.c", true},
		{"*.c", "d/x.c", false},
		{"**/*.c", "x.c", true},
		{"**/*.c", "a/b/x.c", true},
		{"**/*.c", "a/b/x.h", false},
		{"dist/**", "dist", false},
		{"dist/**", "dist/a/b", true},
		{"a/**/b", "a/b", true},
		{"a/**/b", "a/x/y/b/c", true},
		{"a/**/b", "a/x/y", false},
		{"**/a/b", "a/a/b", true},
		{"**/x/**", "a/x", false},
		{"**/x/**", "a/x/y", true},
		{"?", "\xff", true},
		{"[a-c]*", "bz", true},
		{"[!a-c]*", "bz", false},
		{"[]]", "]", true},
		{"\\*", "*", true},
		{"\\*", "x", false},
		{"**", "anything/at/all", true},
		{".env", ".env", true},
		{"*", ".env", true},
		{"dist/", "dist/x", true},
		{"a*b*c", "axxbyyc", true},
		{"a*b*c", "axxbyy", false},
		{"-", "-", true},
	};

	for (size_t i = 0; i < ELEMENTSOF(rows); i++)
		cr_expect_eq(pattern_match(rows[i].pattern, rows[i].path), rows[i].matches, "%s against %s",
			rows[i].pattern, rows[i].path);
}

/* What could reach outside of the workspace, or is not closed, is no pattern. */
Test(pattern, knows_what_is_none)
{
	static const char *const bad[] = {
		"", "/a", "a//b", "..", "a/../b", "./a", "a/.", "[a", "a/[", "x[!]"};
	static const char *const good[] = {
		"a", "a/", "**", "a/**/b", "[a]", "[!a]", "\\[", "..a", "a..", "...", "[]]"};

	for (size_t i = 0; i < ELEMENTSOF(bad); i++)
		cr_expect_not(pattern_is_valid(bad[i]), "%s", bad[i]);
	for (size_t i = 0; i < ELEMENTSOF(good); i++)
		cr_expect(pattern_is_valid(good[i]), "%s", good[i]);
}

/* A pattern of many stars against a long name must not take exponential time. */
Test(pattern, stays_fast, .timeout = 5)
{
	char path[4001], pattern[] = "*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b";
	char parts[8001] = "", doubles[] = "**/a/**/a/**/a/**/a/**/a/**/a/**/a/**/b";

	memset(path, 'a', sizeof(path) - 1);
	path[sizeof(path) - 1] = 0;
	cr_expect_not(pattern_match(pattern, path));
	for (size_t i = 0; i + 2 < sizeof(parts); i += 2)
		memcpy(parts + i, "a/", 3);
	parts[strlen(parts) - 1] = 0;
	cr_expect_not(pattern_match(doubles, parts));
}

static struct scene scene;
static int low = -EBADF, mid = -EBADF, top = -EBADF;
static struct view_layer layers[3];
static const struct view all = {layers, 3};

static void set_up(void)
{
	cr_assert_eq(scene_begin(&scene), 0);
	low = make_root(&scene, "low");
	mid = make_root(&scene, "mid");
	top = make_root(&scene, "top");
	cr_assert(low >= 0 && mid >= 0 && top >= 0);
	layers[0] = (struct view_layer){top, VIEW_USER};
	layers[1] = (struct view_layer){mid, VIEW_USER};
	layers[2] = (struct view_layer){low, VIEW_PLAIN};
}

static void tear_down(void)
{
	fd_close(low);
	fd_close(mid);
	fd_close(top);
	scene_end(&scene);
}

static bool shows(const char *path)
{
	struct view_dir dir;
	struct view_entry entry;
	const char *name;
	int r = view_find(&all, path, &dir, &entry, &name);

	if (r < 0)
		return false;
	view_dir_clear(&dir);
	return entry.st.st_mode != 0;
}

/* Names come from the newest layer that knows them; a whiteout hides; folders merge. */
Test(view, merges_layers, .init = set_up, .fini = tear_down)
{
	put(low, "d/low", "l");
	put(low, "d/gone", "l");
	put(low, "d/both", "low");
	put(mid, "d/mid", "m");
	put(mid, "d/both", "middle");
	put_whiteout(mid, "d/gone");
	put(top, "d/top", "t");
	cr_expect(shows("d/low"));
	cr_expect(shows("d/mid"));
	cr_expect(shows("d/top"));
	cr_expect(shows("d/both"));
	cr_expect_not(shows("d/gone"));
	put(top, "d/gone", "again");
	cr_expect(shows("d/gone"));
}

/* An opaque folder hides the one below, and so does a file in between, for good. */
Test(view, opaque_and_files_cut_off, .init = set_up, .fini = tear_down)
{
	put(low, "d/old", "l");
	put_opaque(mid, "d");
	put(mid, "d/new", "m");
	put(top, "d/newest", "t");
	cr_expect_not(shows("d/old"));
	cr_expect(shows("d/new"));
	cr_expect(shows("d/newest"));
	put(low, "e/old", "l");
	put(mid, "e", "a file");
	put(top, "e/new", "t");
	cr_expect_not(shows("e/old"));
	cr_expect(shows("e/new"));
}

/* A mark of the other flavour means nothing, in a folder of the host no mark does, nor does a name like
 * `.wh.x`. */
Test(view, marks_of_others_mean_nothing, .init = set_up, .fini = tear_down)
{
	put(low, "d/old", "l");
	put_opaque(mid, "d");
	put(top, ".wh.d", "no deletion");
	put(top, ".wh..wh..opq", "no mark");
	layers[1].flavour = VIEW_TRUSTED;
	cr_expect(shows("d/old"));
	layers[1].flavour = VIEW_PLAIN;
	cr_expect(shows("d/old"));
	cr_expect(shows(".wh.d"));
	layers[1].flavour = VIEW_USER; /* the control: the same mark counts where it should */
	cr_expect_not(shows("d/old"));
}

/* A moved folder goes on under its old name below, by name and by path, and never out of the layer. */
Test(view, follows_moved_folders, .init = set_up, .fini = tear_down)
{
	int fd;

	put(low, "a/b/file", "l");
	put(low, "c/other", "l");
	put_dir(top, "moved");
	put_dir(top, "x/renamed");
	fd = openat(top, "moved", O_RDONLY);
	cr_assert_eq(fsetxattr(fd, "user.overlay.redirect", "/a/b", 4, 0), 0);
	cr_expect(shows("moved/file"));
	cr_assert_eq(fsetxattr(fd, "user.overlay.redirect", "c", 1, 0), 0);
	cr_expect(shows("moved/other"));
	cr_assert_eq(fsetxattr(fd, "user.overlay.redirect", "/../low/a", 9, 0), 0);
	cr_expect_not(shows("moved/b"));
	cr_assert_eq(fsetxattr(fd, "user.overlay.redirect", "../low", 6, 0), 0);
	cr_expect_not(shows("moved/a"));
	close(fd);
}

/* 2,000 levels and three layers need no more descriptors than a flat tree, and the walk comes back up. */
Test(view, walks_deep_trees, .init = set_up, .fini = tear_down, .timeout = 60)
{
	int roots[] = {low, mid, top};
	struct view_walk *walk;
	struct view_step step;
	size_t deepest = 0, n = 0;
	int r;

	for (size_t i = 0; i < 3; i++) {
		int fd = openat(roots[i], ".", O_RDONLY | O_DIRECTORY);

		for (int level = 0; level < 2000; level++) {
			int next;

			cr_assert_eq(mkdirat(fd, "d", 0755), 0);
			if (level % 100 == 0) {
				int file = openat(fd, i == 0 ? "z" : "y", O_WRONLY | O_CREAT, 0644);

				close(file);
			}
			next = openat(fd, "d", O_RDONLY | O_DIRECTORY);
			close(fd);
			fd = next;
		}
		close(fd);
	}
	cr_assert_eq(view_walk_new(&all, NULL, &walk), 0);
	while ((r = view_walk_next(walk, &step, NULL)) > 0) {
		deepest = MAX(deepest, strlen(step.path));
		n++;
	}
	view_walk_free(walk);
	cr_expect_eq(r, 0, "%d", r);
	cr_expect_eq(deepest, 2000 * 2 - 1);
	cr_expect_eq(n, 2000 + 2 * 20);
}

struct overlay_run {
	uint64_t seed;
	bool userns;
	int rounds;
};

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), r;

	if (fd < 0)
		return -errno;
	r = fd_write_all(fd, text, strlen(text));
	close(fd);
	return r;
}

static void random_path(uint64_t *state, char *ret)
{
	int parts = 1 + (int)(random_next(state) % 4);

	ret[0] = 0;
	for (int i = 0; i < parts; i++) {
		char part[8];

		snprintf(part, sizeof(part), "%s%c", i ? "/" : "", 'a' + (int)(random_next(state) % 4));
		strcat(ret, part);
	}
}

/* One random deed below dir_fd; failures are part of the game. */
static void random_deed(int dir_fd, uint64_t *state)
{
	char path[32], other[32];

	random_path(state, path);
	random_path(state, other);
	switch (random_next(state) % 10) {
	case 0:
	case 1:
	case 2:
		put(dir_fd, path, other);
		break;
	case 3:
	case 4:
		put_dir(dir_fd, path);
		break;
	case 5:
		unlinkat(dir_fd, path, 0);
		break;
	case 6: {
		char command[256];

		snprintf(command, sizeof(command), "rm -rf /proc/self/fd/%d/%s", dir_fd, path);
		if (system(command) < 0)
			return;
		break;
	}
	case 7:
		renameat(dir_fd, path, dir_fd, other);
		break;
	case 8:
		symlinkat(other, dir_fd, path);
		break;
	default:
		fchmodat(dir_fd, path, 0700 + random_next(state) % 64, 0);
		break;
	}
}

static int mount_overlay(const struct overlay_run *run, int layers_below)
{
	char options[1024] = "", part[64];

	for (int i = layers_below - 1; i >= 0; i--) {
		snprintf(part, sizeof(part), "%s%d", options[0] ? ":" : "lowerdir=", i);
		strcat(options, part);
	}
	snprintf(part, sizeof(part), ",upperdir=%d,workdir=work%d", layers_below, layers_below);
	strcat(options, part);
	strcat(options, run->userns ? ",userxattr" : ",redirect_dir=on");
	return mount("overlay", "merged", "overlay", 0, options) < 0 ? -errno : 0;
}

/* Stacks of random deeds through real mounts; after each the view must list what the mount shows. */
static int overlay_child(int report_fd, void *data)
{
	const struct overlay_run *run = data;
	struct view_layer stack[8];
	uint64_t state = run->seed;
	uid_t uid = getuid();
	gid_t gid = getgid();
	char name[16], map[64];

	if (unshare(CLONE_NEWNS | (run->userns ? CLONE_NEWUSER : 0)) < 0)
		return dprintf(report_fd, "unshare: %s\n", strerror(errno));
	if (run->userns) {
		snprintf(map, sizeof(map), "0 %u 1", uid);
		if (write_file("/proc/self/setgroups", "deny") < 0 ||
			write_file("/proc/self/uid_map", map) < 0)
			return dprintf(report_fd, "uid map\n");
		snprintf(map, sizeof(map), "0 %u 1", gid);
		if (write_file("/proc/self/gid_map", map) < 0)
			return dprintf(report_fd, "gid map\n");
	}
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || chdir(scene.path) < 0 ||
		mkdir("merged", 0755) < 0)
		return dprintf(report_fd, "private: %s\n", strerror(errno));
	for (int layer = 0; layer <= 5; layer++) {
		_cleanup_(freep) char *mounted = NULL, *seen = NULL;
		int root_fd, r;

		snprintf(name, sizeof(name), "%d", layer);
		if (mkdir(name, 0755) < 0)
			return dprintf(report_fd, "mkdir: %s\n", strerror(errno));
		memmove(stack + 1, stack, (size_t)layer * sizeof(*stack));
		stack[0] = (struct view_layer){
			open(name, O_PATH | O_DIRECTORY | O_CLOEXEC), layer == 0    ? VIEW_PLAIN
								      : run->userns ? VIEW_USER
										    : VIEW_TRUSTED};
		if (layer > 0) {
			snprintf(name, sizeof(name), "work%d", layer);
			if (mkdir(name, 0755) < 0)
				return dprintf(report_fd, "mkdir: %s\n", strerror(errno));
			r = mount_overlay(run, layer);
			if (r < 0)
				return dprintf(report_fd, "mount: %s\n", strerror(-r));
		}
		root_fd = open(layer ? "merged" : "0", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		for (int i = 0; i < run->rounds; i++)
			random_deed(root_fd, &state);
		mounted = list_tree(root_fd);
		close(root_fd);
		if (layer > 0 && umount("merged") < 0)
			return dprintf(report_fd, "umount: %s\n", strerror(errno));
		seen = list_view(&(struct view){stack, (size_t)layer + 1});
		if (!mounted || !seen || strcmp(mounted, seen) != 0)
			return dprintf(report_fd, "seed %llu, layer %d:\nmounted:\n%s\nseen:\n%s\n",
				(unsigned long long)run->seed, layer, mounted, seen);
	}
	return 0;
}

static void compare_with_kernel(bool userns)
{
	static char complaint[65536];
	uint64_t seed = getenv("ABOX_TEST_SEED") ? strtoull(getenv("ABOX_TEST_SEED"), NULL, 0) : 1;
	int n = getenv("ABOX_TEST_LONG") ? 200 : 12;

	for (int i = 0; i < n; i++) {
		struct overlay_run run = {seed + (uint64_t)i, userns, 60};
		int r;

		cr_assert_eq(scene_begin(&scene), 0);
		r = in_child(overlay_child, &run, complaint, sizeof(complaint));
		scene_end(&scene);
		cr_assert_eq(r, 0, "%s", complaint);
	}
}

/* The merged tree is that of a real mount: opaque folders, whiteouts and moved folders as the kernel writes
 * them. */
Test(view, shows_what_root_mounts, .timeout = 300)
{
	if (geteuid() != 0)
		cr_skip("needs root: trusted.overlay marks");
	compare_with_kernel(false);
}

/* The same with the marks of a plain user's mounts. */
Test(view, shows_what_a_user_namespace_mounts, .timeout = 300)
{
	compare_with_kernel(true);
}
