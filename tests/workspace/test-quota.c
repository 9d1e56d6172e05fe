/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The bounded upper of a workspace (T2-7, T5-4, T5-5): what does not fit is refused inside, what was written becomes
 * the live layer, also after a kill in the middle, which leaves neither a mount nor a device. The limit that a workspace
 * has for itself.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/fd.h"
#include "kernel/mount.h"
#include "scene.h"
#include "workspace/quota.h"

#define LIMIT (UINT64_C(16) << 20)
#define INODES 200

struct use {
	struct layer_stack stack;
	struct quota quota;
	int mount_fd;
};

static int begin(abox_workspace *workspace, struct use *use, abox_error **reterr)
{
	struct fault fault = { 0 };
	int r;

	*use = (struct use){ LAYER_STACK_INIT, QUOTA_INIT, -EBADF };
	r = workspace_push(workspace, reterr);
	if (r >= 0)
		r = workspace_begin_use(workspace, reterr);
	if (r >= 0)
		r = workspace_open_stack(workspace, NULL, &use->stack, reterr);
	if (r >= 0)
		r = quota_open(workspace, quota_kind_here(NULL), LIMIT, INODES, &use->stack, &use->quota, reterr);
	if (r < 0)
		return r;
	r = layer_stack_mount(&use->stack, MOUNT_OVERLAY_VOLATILE, 0, &use->mount_fd, &fault);
	return r < 0 ? error_from_fault(reterr, &fault) : 0;
}

static void end(struct use *use)
{
	use->mount_fd = fd_close(use->mount_fd);
	quota_clear(&use->quota);
	layer_stack_clear(&use->stack);
}

/* Bytes that went in until the first refusal, which must be ENOSPC. */
static uint64_t fill(int dir_fd, const char *name)
{
	static char block[65536];
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	uint64_t sum = 0;
	ssize_t n;

	memset(block, 'x', sizeof(block));
	while ((n = write(fd, block, sizeof(block))) > 0)
		sum += (uint64_t)n;
	if (fd < 0 || errno != ENOSPC)
		sum = 0;
	fd_close(fd);
	return sum;
}

static unsigned int fill_inodes(int dir_fd)
{
	char name[32];
	unsigned int n = 0;
	int fd = 0;

	while (n < INODES * 2) {
		snprintf(name, sizeof(name), "file-%u", n);
		fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		if (fd < 0)
			break;
		close(fd);
		n++;
	}
	return fd < 0 && errno == ENOSPC ? n : 0;
}

static int make(struct scene *scene, abox_workspace **ret, abox_error **reterr)
{
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	static char path[128];

	snprintf(path, sizeof(path), "%s/src", scene->root);
	options.source_kind = ABOX_SOURCE_DIR;
	options.source = path;
	options.mode = ABOX_WORKSPACE_OVERLAY;
	return abox_workspace_create(&options, ret, reterr);
}

static void bounds_body(struct scene *scene)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL, *other = NULL;
	abox_error *error = NULL;
	struct use use, second;
	struct stat st;
	unsigned int n;
	char *text;
	int fd;

	CHECK(scene, put_file(scene->root_fd, "src/f", "f") == 0);
	CALL(scene, make(scene, &workspace, &error));
	CALL(scene, make(scene, &other, &error));
	CALL(scene, workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, &error));
	CALL(scene, workspace_lock(other, WORKSPACE_EXCLUSIVE, 0, &error));
	CALL(scene, begin(workspace, &use, &error));
	CALL(scene, begin(other, &second, &error));
	/* 8 TiB that are not there cost nothing, or are refused; what is there is bounded. */
	fd = openat(use.mount_fd, "sparse", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	CHECK(scene, fd >= 0 && (ftruncate(fd, (off_t)8 << 40) == 0 || errno == EFBIG || errno == ENOSPC));
	fd_close(fd);
	CHECK(scene, fill(use.mount_fd, "big") <= LIMIT + LIMIT / 8);
	CHECK(scene, fstatat(use.mount_fd, "big", &st, 0) == 0 && (uint64_t)st.st_size >= LIMIT - LIMIT / 8);
	CHECK(scene, fill(second.mount_fd, "big") >= LIMIT - LIMIT / 8); /* each has its own */
	CHECK(scene, unlinkat(use.mount_fd, "big", 0) == 0);
	n = fill_inodes(use.mount_fd);
	CHECK(scene, n >= INODES - 16 && n <= INODES + 64);
	CHECK(scene, unlinkat(use.mount_fd, "file-0", 0) == 0);
	CHECK(scene, write_lines(use.mount_fd, "r f") == 0); /* a deletion is a file of the upper */
	CALL(scene, workspace_replace_live(workspace, use.quota.upper_fd, false, &error));
	end(&use);
	end(&second);
	workspace_unlock(workspace);
	text = workspace_text(workspace, NULL);
	CHECK(scene, text && strstr(text, "sparse") && strstr(text, "file-1 ") && !strstr(text, "\nf "));
	free(text);
}

Test(quota, bounds_bytes_and_inodes_and_keeps_what_fits)
{
	if (geteuid() != 0)
		cr_skip_test("needs root: a plain user's guest makes the bounded layer itself");
	scene_play_as(bounds_body, 60, 0);
}

/* Where the device of a filesystem gets its bytes from; false when it has gone. */
static bool device_is_there(dev_t device)
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/loop/backing_file", major(device), minor(device));
	return access(path, F_OK) == 0;
}

static bool has_image(const abox_workspace *workspace)
{
	char path[128];

	snprintf(path, sizeof(path), "layers/%s/image", workspace->record.live);
	return faccessat(workspace->home_fd, path, F_OK, 0) == 0;
}

static void writer_main(abox_workspace *workspace, int report_fd)
{
	struct use use;
	struct stat st = { 0 };

	if (workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, NULL) >= 0 && begin(workspace, &use, NULL) >= 0 &&
		put_file(use.mount_fd, "new", "x") == 0 && write_lines(use.mount_fd, "r g") == 0)
		fstat(use.quota.upper_fd, &st);
	if (write(report_fd, &st.st_dev, sizeof(st.st_dev)) > 0)
		pause();
	_exit(1);
}

/* While another writes, nobody takes for whole what is not; after its end it is all there, for whoever comes first. */
static void killed_body(struct scene *scene)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL;
	bool on_disk = quota_kind_here(NULL) == QUOTA_IMAGE;
	abox_error *error = NULL;
	int pipe_fds[2];
	dev_t device = 0;
	char *text;
	pid_t pid;

	CHECK(scene, put_file(scene->root_fd, "src/f", "f") == 0 && put_file(scene->root_fd, "src/g", "g") == 0);
	CHECK(scene, pipe2(pipe_fds, O_CLOEXEC) == 0);
	CALL(scene, make(scene, &workspace, &error));
	pid = fork();
	if (pid == 0)
		writer_main(workspace, pipe_fds[1]);
	CHECK(scene, read(pipe_fds[0], &device, sizeof(device)) == (ssize_t)sizeof(device) && device != 0);
	REFUSED(scene, ABOX_E_BUSY, workspace_lock(workspace, WORKSPACE_SHARED, 0, &error));
	CALL(scene, workspace_refresh(workspace, &error));
	CHECK(scene, quota_is_left(workspace) == on_disk && has_image(workspace) == on_disk);
	CHECK(scene, kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
	CALL(scene, workspace_lock(workspace, WORKSPACE_SHARED, USEC_PER_SEC, &error));
	workspace_unlock(workspace);
	CHECK(scene, !has_image(workspace));
	text = workspace_text(workspace, NULL);
	CHECK(scene, text && strstr(text, "f ") && !strstr(text, "new") == !on_disk && !strstr(text, "g ") == on_disk);
	free(text);
	for (int i = 0; i < 500 && device_is_there(device); i++) /* gone a moment after its last user */
		usleep(10000);
	CHECK(scene, !device_is_there(device));
}

Test(quota, keeps_what_was_written_when_it_is_killed)
{
	if (geteuid() != 0)
		cr_skip_test("needs root: a plain user's guest makes the bounded layer itself");
	scene_play_as(killed_body, 60, 0);
}

/* What the machine's end has cut off is not taken for whole, and does not stand in the way of a snapshot. */
static void rebooted_body(struct scene *scene)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL;
	struct abox_snapshot_options named = ABOX_SNAPSHOT_OPTIONS_INIT;
	abox_error *error = NULL;
	int pipe_fds[2];
	dev_t device = 0;
	char *text;
	pid_t pid;

	CHECK(scene, put_file(scene->root_fd, "src/g", "g") == 0 && pipe2(pipe_fds, O_CLOEXEC) == 0);
	CALL(scene, make(scene, &workspace, &error));
	named.name = "good";
	CALL(scene, abox_workspace_snapshot(workspace, &named, NULL, &error));
	pid = fork();
	if (pid == 0)
		writer_main(workspace, pipe_fds[1]);
	CHECK(scene, read(pipe_fds[0], &device, sizeof(device)) == (ssize_t)sizeof(device) && device != 0);
	CALL(scene, workspace_refresh(workspace, &error));
	strcpy(workspace->record.boot, "another life");
	CALL(scene, workspace_record_write(workspace->dir_fd, &workspace->record, &error));
	CHECK(scene, kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
	REFUSED(scene, ABOX_E_DAMAGED, abox_workspace_snapshot(workspace, NULL, NULL, &error));
	CALL(scene, abox_workspace_restore(workspace, "good", &error));
	CHECK(scene, !has_image(workspace));
	text = workspace_text(workspace, NULL);
	CHECK(scene, text && strstr(text, "g ") && !strstr(text, "new"));
	free(text);
}

Test(quota, trusts_no_image_of_a_machine_that_went_down)
{
	if (geteuid() != 0)
		cr_skip_test("needs root: a plain user's guest makes the bounded layer itself");
	scene_play_as(rebooted_body, 60, 0);
}

#define MIB (UINT64_C(1) << 20)

/* A file of so many bytes, written as a box would. */
static int put_bytes(int dir_fd, const void *userdata)
{
	static char block[65536];
	size_t n = *(const size_t *)userdata;
	int fd = openat(dir_fd, "data", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	memset(block, 'x', sizeof(block));
	for (; fd >= 0 && n > 0; n -= MIN(n, sizeof(block)))
		if (write(fd, block, MIN(n, sizeof(block))) < 0)
			break;
	if (fd < 0)
		return -errno;
	close(fd);
	return n > 0 ? -EIO : 0;
}

static uint64_t bytes_left(abox_workspace *workspace, bool looks)
{
	uint64_t bytes = 100 * MIB, inodes = 1000;

	return quota_left(workspace, looks, &bytes, &inodes, NULL) < 0 ? 0 : bytes;
}

/* Written anew over and over, in layers that nobody has named, it counts once; a snapshot's counts beside it. */
static void limit_body(struct scene *scene)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL, *fork = NULL;
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	const size_t three = 3 * MIB;
	abox_error *error = NULL;
	uint64_t bytes, inodes;

	options.source_kind = ABOX_SOURCE_EMPTY;
	options.limit_bytes = 10 * MIB;
	CALL(scene, abox_workspace_create(&options, &workspace, &error));
	CALL(scene, workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, &error));
	CHECK(scene, bytes_left(workspace, false) == 10 * MIB);
	for (int i = 0; i < 5; i++) {
		CHECK(scene, in_workspace(workspace, put_bytes, &three) == 0);
		CALL(scene, workspace_push(workspace, &error));
		bytes = bytes_left(workspace, false);
		CHECK(scene, bytes >= 4 * MIB && bytes <= 7 * MIB);
	}
	CALL(scene, abox_workspace_snapshot(workspace, NULL, NULL, &error));
	CHECK(scene, in_workspace(workspace, put_bytes, &three) == 0);
	CALL(scene, quota_used(workspace, &bytes, &inodes, &error));
	CHECK(scene, bytes >= 6 * MIB && bytes < 7 * MIB + MIB / 2 && inodes >= 2);
	workspace_unlock(workspace);
	REFUSED(scene, ABOX_E_LIMIT, abox_workspace_set_limit(workspace, 5 * MIB, 0, &error));
	CHECK(scene, workspace->record.limit_bytes == 10 * MIB);
	CALL(scene, abox_workspace_set_limit(workspace, bytes + MIB / 2, 0, &error));
	CHECK(scene, bytes_left(workspace, true) == MIB / 2);
	CALL(scene, abox_workspace_set_limit(workspace, bytes + 100, 0, &error));
	CHECK(scene, bytes_left(workspace, true) == 0); /* full */
	/* What a fork has of its parent is its parent's. */
	CALL(scene, abox_workspace_fork(workspace, NULL, &options, &fork, &error));
	CHECK(scene, bytes_left(fork, true) == 10 * MIB);
	CALL(scene, workspace_lock(fork, WORKSPACE_EXCLUSIVE, 0, &error));
	CHECK(scene, in_workspace(fork, put_bytes, &three) == 0);
	bytes = bytes_left(fork, true);
	CHECK(scene, bytes >= 6 * MIB + MIB / 2 && bytes <= 7 * MIB);
	workspace_unlock(fork);
	CHECK(scene, bytes_left(workspace, true) == 0);
	/* without layers there is nothing to be bounded */
	options.mode = ABOX_WORKSPACE_COPY;
	options.flags = ABOX_WORKSPACE_NO_OVERLAY;
	REFUSED(scene, ABOX_E_UNSUPPORTED, abox_workspace_create(&options, &fork, &error));
}

Test(quota, a_workspace_has_a_limit_of_its_own)
{
	scene_play(limit_body, 60);
}
