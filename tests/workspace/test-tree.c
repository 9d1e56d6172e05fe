/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "scene.h"
#include "workspace/tree.h"

TestSuite(tree, .timeout = 300);

struct pair {
	int from_fd;
	int to_fd;
	struct tree_copy copy;
};

static int pair_open(struct scene *scene, struct pair *pair)
{
	if (put_folder(scene->root_fd, "from") < 0 || put_folder(scene->root_fd, "to") < 0)
		return -1;
	*pair = (struct pair){0};
	pair->from_fd = openat(scene->root_fd, "from", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	pair->to_fd = openat(scene->root_fd, "to", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	pair->copy.flavour = geteuid() == 0 ? LAYER_TRUSTED : LAYER_USER;
	layer_ids_of_process(geteuid(), getegid(), &pair->copy.ids);
	return pair->from_fd < 0 || pair->to_fd < 0 ? -1 : 0;
}

static bool same_text(int a_fd, int b_fd)
{
	char *a = tree_text(a_fd), *b = tree_text(b_fd);
	bool same = a && b && strcmp(a, b) == 0;

	if (!same)
		fprintf(stderr, "--- is\n%s--- should be\n%s---\n", b ? b : "", a ? a : "");
	free(a);
	free(b);
	return same;
}

static void names_body(struct scene *scene)
{
	static const char *const names[] = {"\xff\xfe", "new\nline", "tab\t", "\x1b[31m", "-rf", "*",
		".wh.foo", ".wh..wh..opq", " ", "\\", "a:b,c"};
	char longest[NAME_MAX + 1];
	abox_error *error = NULL;
	struct pair pair;

	CHECK(scene, pair_open(scene, &pair) == 0);
	memset(longest, 'x', NAME_MAX);
	longest[NAME_MAX] = 0;
	for (size_t i = 0; i < ELEMENTSOF(names); i++)
		CHECK(scene, put_file(pair.from_fd, names[i], names[i]) == 0);
	CHECK(scene, put_file(pair.from_fd, longest, "long") == 0);
	CHECK(scene, symlinkat("b", pair.from_fd, "a") == 0 && symlinkat("a", pair.from_fd, "b") == 0);
	CHECK(scene, symlinkat("/etc/shadow", pair.from_fd, "out") == 0);
	CHECK(scene, mkfifoat(pair.from_fd, "README.md", 0644) == 0);
	CALL(scene, tree_copy(pair.from_fd, pair.to_fd, &pair.copy, &error));
	CHECK(scene, pair.copy.n_lost == 0 && same_text(pair.from_fd, pair.to_fd));
}

/* T2-6, T2-9: names of any bytes, links in a circle and out of the tree, and a fifo come along and nothing
 * blocks. */
Test(tree, copies_odd_names)
{
	scene_play(names_body, 30);
}

static void deep_body(struct scene *scene)
{
	struct tree_seal seal;
	abox_error *error = NULL;
	struct pair pair;
	int fd, to_fd, n = 0;

	CHECK(scene, pair_open(scene, &pair) == 0);
	fd = openat(pair.from_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < 2000; i++) {
		int next;

		CHECK(scene, mkdirat(fd, "directory", 0750) == 0);
		next = openat(fd, "directory", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(fd);
		fd = next;
		if (i % 100 == 0)
			CHECK(scene, put_file(fd, "file", "content") == 0);
	}
	close(fd);
	CALL(scene, tree_copy(pair.from_fd, pair.to_fd, &pair.copy, &error));
	CHECK(scene, pair.copy.n_entries == 2020);
	CALL(scene, tree_seal(pair.to_fd, "copy", false, &seal, &error));
	CHECK(scene, seal.n_entries == 2021);
	for (to_fd = openat(pair.to_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); to_fd >= 0; n++) {
		int next = openat(to_fd, "directory", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		close(to_fd);
		to_fd = next;
	}
	CHECK(scene, n == 2001);
}

/* T2-8: 2,000 levels, longer than any path may be, with few descriptors. */
Test(tree, copies_a_deep_tree)
{
	scene_play(deep_body, 200);
}

static void links_body(struct scene *scene)
{
	struct stat st;
	abox_error *error = NULL;
	char name[32];
	struct pair pair;
	int n = getenv("ABOX_TEST_LONG") ? 60000 : 6000;

	CHECK(scene, pair_open(scene, &pair) == 0);
	CHECK(scene, put_file(pair.from_fd, "first", "shared") == 0);
	for (int i = 1; i < n; i++) {
		snprintf(name, sizeof(name), "link-%d", i);
		CHECK(scene, linkat(pair.from_fd, "first", pair.from_fd, name, 0) == 0);
	}
	CALL(scene, tree_copy(pair.from_fd, pair.to_fd, &pair.copy, &error));
	CHECK(scene, fstatat(pair.to_fd, "first", &st, 0) == 0 && st.st_nlink == (nlink_t)n);
	CHECK(scene, pair.copy.n_lost == 0 && pair.copy.n_bytes == 6);
	CHECK(scene, fstatat(pair.to_fd, ".agentbox-links-0", &st, AT_SYMLINK_NOFOLLOW) < 0);
}

/* T2-8: one file under many names stays one file. */
Test(tree, keeps_hard_links)
{
	scene_play(links_body, 200);
}

static void sparse_body(struct scene *scene)
{
	uint64_t begin = clock_monotonic_usec();
	struct tree_seal seal, copied;
	abox_error *error = NULL;
	struct pair pair;
	struct stat st;
	int fd;

	CHECK(scene, pair_open(scene, &pair) == 0);
	fd = openat(pair.from_fd, "huge", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	CHECK(scene, ftruncate(fd, 8LL << 40) == 0);
	CHECK(scene, pwrite(fd, "middle", 6, 3LL << 40) == 6 && pwrite(fd, "end", 3, (8LL << 40) - 3) == 3);
	close(fd);
	CALL(scene, tree_copy(pair.from_fd, pair.to_fd, &pair.copy, &error));
	CHECK(scene, fstatat(pair.to_fd, "huge", &st, 0) == 0 && st.st_size == 8LL << 40 &&
			     st.st_blocks * 512 < 1 << 20);
	CALL(scene, tree_seal(pair.from_fd, "from", false, &seal, &error));
	pair.copy.flags = TREE_COPY_LAYER | TREE_COPY_NO_CLONE;
	CHECK(scene, put_folder(scene->root_fd, "again") == 0);
	fd = openat(scene->root_fd, "again", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CALL(scene, tree_copy(pair.from_fd, fd, &pair.copy, &error));
	close(fd);
	fd = openat(scene->root_fd, "again", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CALL(scene, tree_seal(fd, "again", false, &copied, &error));
	CHECK(scene, seal.n_bytes < 1 << 20 && copied.n_bytes < 1 << 20);
	CHECK(scene,
		clock_monotonic_usec() - begin < 60 * USEC_PER_SEC); /* generous: against reading 8 TiB */
	pair.copy.max_bytes = 4096;
	CHECK(scene, put_folder(scene->root_fd, "bounded") == 0);
	close(fd);
	fd = openat(scene->root_fd, "bounded", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	REFUSED(scene, ABOX_E_LIMIT, tree_copy(pair.from_fd, fd, &pair.copy, &error));
}

/* T2-7: a file of 8 TiB with two little islands costs as much as the islands. */
Test(tree, keeps_holes)
{
	scene_play(sparse_body, 120);
}

static void locked_body(struct scene *scene)
{
	struct tree_seal before, after;
	abox_error *error = NULL;
	struct pair pair;

	CHECK(scene, pair_open(scene, &pair) == 0);
	CHECK(scene,
		put_file(pair.from_fd, "closed/inner/f", "f") == 0 && put_file(pair.from_fd, "g", "g") == 0);
	CHECK(scene, fchmodat(pair.from_fd, "g", 0, 0) == 0 &&
			     fchmodat(pair.from_fd, "closed/inner", 0500, 0) == 0);
	CHECK(scene, fchmodat(pair.from_fd, "closed", 0, 0) == 0);
	CALL(scene, tree_seal(pair.from_fd, "from", false, &before, &error));
	CALL(scene, tree_copy(pair.from_fd, pair.to_fd, &pair.copy, &error));
	CALL(scene, tree_seal(pair.from_fd, "from", false, &after, &error));
	CHECK(scene, strcmp(before.digest, after.digest) == 0); /* the right that was lent is given back */
	CHECK(scene, same_text(pair.from_fd, pair.to_fd));
}

/* T2-12: folders and files that their owner closed to himself are read, copied, and closed again. */
Test(tree, reads_what_is_closed)
{
	scene_play(locked_body, 30);
}

static int make_socket(int dir_fd)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/socket", dir_fd);
	return fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : fd;
}

static void dangerous_body(struct scene *scene)
{
	abox_error *error = NULL;
	struct pair pair;
	struct stat st;
	char value[8];
	bool root = geteuid() == 0;

	CHECK(scene, pair_open(scene, &pair) == 0);
	CHECK(scene, put_file(pair.from_fd, "setuid", "x") == 0 && put_file(pair.from_fd, "d/f", "f") == 0);
	CHECK(scene, fchmodat(pair.from_fd, "setuid", 06755, 0) == 0);
	CHECK(scene, close(make_socket(pair.from_fd)) == 0);
	CHECK(scene, mknodat(pair.from_fd, "whiteout", S_IFCHR, 0) == 0);
	CHECK(scene, layer_set_opaque(openat(pair.from_fd, "d", O_RDONLY | O_DIRECTORY), LAYER_USER) == 0);
	CHECK(scene, fsetxattr(openat(pair.from_fd, "d/f", O_RDONLY), "user.note", "kept", 4, 0) == 0);
	if (root) {
		CHECK(scene, mknodat(pair.from_fd, "null", S_IFCHR | 0666, 0x103) == 0);
		CHECK(scene, put_file(pair.from_fd, "others", "secret") == 0);
		CHECK(scene, fchownat(pair.from_fd, "others", 77, 77, 0) == 0);
		CHECK(scene, fchmodat(pair.from_fd, "others", 0600, 0) == 0);
		CHECK(scene, layer_set_opaque(
				     openat(pair.from_fd, "d", O_RDONLY | O_DIRECTORY), LAYER_TRUSTED) == 0);
	}
	CALL(scene, tree_copy(pair.from_fd, pair.to_fd, &pair.copy, &error));
	CHECK(scene, pair.copy.n_lost == (root ? 6 : 4));
	CHECK(scene, fstatat(pair.to_fd, "setuid", &st, 0) == 0 && (st.st_mode & 07777) == 0755);
	CHECK(scene,
		fstatat(pair.to_fd, "socket", &st, 0) < 0 && fstatat(pair.to_fd, "whiteout", &st, 0) < 0);
	CHECK(scene, layer_is_opaque(openat(pair.to_fd, "d", O_RDONLY | O_DIRECTORY), LAYER_USER) == 0);
	CHECK(scene, layer_is_opaque(openat(pair.to_fd, "d", O_RDONLY | O_DIRECTORY), LAYER_TRUSTED) == 0);
	CHECK(scene, fgetxattr(openat(pair.to_fd, "d/f", O_RDONLY), "user.note", value, sizeof(value)) == 4);
	if (root) {
		CHECK(scene, fstatat(pair.to_fd, "null", &st, 0) < 0);
		CHECK(scene, fstatat(pair.to_fd, "d/f", &st, 0) == 0 &&
				     st.st_uid == LAYER_RANGE_BASE + LAYER_INSIDE_ID);
		/* What only root could read does not become the box's. */
		CHECK(scene,
			fstatat(pair.to_fd, "others", &st, 0) == 0 && st.st_uid == LAYER_RANGE_BASE + 65534);
	}
}

/* T2-5: devices, sockets, set-id bits, marks of overlayfs are left out and counted; plain attributes come
 * along. */
Test(tree, leaves_out_what_is_dangerous)
{
	scene_play(dangerous_body, 30);
}

static int stop_at_once(void *userdata, uint64_t n_entries, uint64_t n_bytes)
{
	(*(int *)userdata)++;
	return -1;
}

static void cancel_body(struct scene *scene)
{
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	abox_workspace *workspace = NULL;
	abox_error *error = NULL;
	char path[128], *json = NULL;
	int n_called = 0;

	CHECK(scene, put_file(scene->root_fd, "src/f", "f") == 0);
	snprintf(path, sizeof(path), "%s/src", scene->root);
	options.source_kind = ABOX_SOURCE_DIR;
	options.source = path;
	options.mode = ABOX_WORKSPACE_COPY;
	options.progress = stop_at_once;
	options.progress_userdata = &n_called;
	REFUSED(scene, ABOX_E_CANCELED, abox_workspace_create(&options, &workspace, &error));
	CHECK(scene, n_called == 1);
	CALL(scene, abox_workspace_gc(&json, &error));
	CHECK(scene, strstr(json, "\"layers\":0")); /* it had removed what it began */
	abox_free(json);
}

/* A copy that is canceled leaves nothing behind. */
Test(tree, cancel_leaves_nothing)
{
	scene_play(cancel_body, 30);
}
