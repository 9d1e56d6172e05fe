/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "kernel/mount.h"
#include "kernel/userns.h"
#include "support/child.h"

#define NEEDS_USERNS(flags)                                                                                  \
	if (!child_has_userns(flags))                                                                        \
	cr_skip_test("no user namespaces here")

static const int ways[] = { 0, CHILD_PLAIN };

static int tmpfs(const char *place, int *retfd, struct fault *fault)
{
	struct mount_tmpfs options = { .size_bytes = 1 << 20, .n_inodes = 64, .mode = 0755 };

	return mount_new_tmpfs(&options, MOUNT_NOSUID | MOUNT_NODEV, place, retfd, fault);
}

static int at(int dir_fd, const char *name)
{
	return openat(dir_fd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static int write_file(int dir_fd, const char *name, const char *text)
{
	_cleanup_(fd_closep) int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	return fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
}

static bool file_is(int dir_fd, const char *name, const char *text)
{
	_cleanup_(freep) char *data = NULL;

	return file_read_text(dir_fd, name, 4096, &data, NULL) == 0 && strcmp(data, text) == 0;
}

static int check_tmpfs(struct child *child)
{
	struct fault fault = { 0 };
	struct statvfs vfs;
	int fd = -EBADF, r = 0;

	CHECK(mount_new_tmpfs(&(struct mount_tmpfs){ .size_bytes = 0, .n_inodes = 1 }, 0, "t", &fd, &fault) ==
		ABOX_E_INVALID);
	CHECK(mount_new_tmpfs(&(struct mount_tmpfs){ .size_bytes = 1, .n_inodes = 0 }, 0, "t", &fd, &fault) ==
		ABOX_E_INVALID);
	CHECK_FAULT(tmpfs("t", &fd, &fault), &fault);
	CHECK_FAULT(mount_attach(fd, open("/mnt", O_PATH), "t", &fault), &fault);
	CHECK(statvfs("/mnt", &vfs) == 0);
	CHECK((vfs.f_flag & (ST_NOSUID | ST_NODEV)) == (ST_NOSUID | ST_NODEV));
	CHECK(vfs.f_blocks * vfs.f_frsize == 1 << 20);
	CHECK(vfs.f_files == 64);
	for (int i = 0; i < 100 && r == 0; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%d", i);
		r = write_file(fd, name, "");
	}
	CHECK(r == -ENOSPC);
	CHECK_FAULT(mount_detach("/mnt", &fault), &fault);
	CHECK_FAULT(mount_detach("/mnt", &fault), &fault);	/* nothing there: fine */
	return 0;
}

/* A tmpfs has the bounds that were asked for, and is refused without them. */
Test(mount, tmpfs_is_bounded)
{
	NEEDS_USERNS(CHILD_PLAIN);
	for (size_t i = 0; i < ELEMENTSOF(ways); i++)
		cr_assert_child(check_tmpfs, ways[i] | CHILD_USERNS, NULL);
}

static int check_clone(struct child *child)
{
	struct fault fault = { 0 };
	int base = -EBADF, copy = -EBADF, sub = -EBADF;

	CHECK_FAULT(tmpfs("base", &base, &fault), &fault);
	CHECK_FAULT(mount_attach(base, open("/mnt", O_PATH), "base", &fault), &fault);
	CHECK(mkdirat(base, "source", 0755) == 0 && mkdirat(base, "target", 0755) == 0);
	CHECK(mkdirat(base, "source/sub", 0755) == 0);
	CHECK_FAULT(tmpfs("sub", &sub, &fault), &fault);
	CHECK_FAULT(mount_attach(sub, at(base, "source/sub"), "sub", &fault), &fault);
	CHECK(write_file(sub, "below", "x") == 0);
	CHECK_FAULT(mount_clone(base, "source",
			    MOUNT_RECURSIVE | MOUNT_READONLY | MOUNT_NOSUID | MOUNT_NODEV | MOUNT_NOEXEC,
			    "target", &copy, &fault),
		&fault);
	CHECK_FAULT(mount_attach(copy, at(base, "target"), "target", &fault), &fault);
	CHECK(file_is(base, "target/sub/below", "x"));
	CHECK(write_file(base, "target/new", "") == -EROFS);
	CHECK(write_file(base, "target/sub/new", "") == -EROFS);
	CHECK(write_file(base, "source/new", "") == 0);	/* the source stays writable */
	fd_close(copy);
	/* Not recursive: what is mounted below does not come along. */
	CHECK_FAULT(mount_clone(base, "source", 0, "flat", &copy, &fault), &fault);
	CHECK(faccessat(copy, "sub/below", F_OK, 0) < 0);
	CHECK(faccessat(copy, "new", F_OK, 0) == 0);
	/* A name that is a link is not followed. */
	CHECK(symlinkat("source", base, "link") == 0);
	fd_close(copy);
	CHECK_FAULT(mount_clone(base, "link", 0, "link", &copy, &fault), &fault);
	CHECK(faccessat(copy, "new", F_OK, 0) < 0);
	CHECK(mount_clone(base, "missing", 0, "missing", &copy, &fault) == ABOX_E_SYSTEM);
	CHECK(fault.sys_errno == ENOENT && strcmp(fault.place, "missing") == 0);
	return 0;
}

/* A copy is dressed before it can be reached: read-only with all below it, while the source stays as it was.
 */
Test(mount, copies_tree_with_attributes)
{
	NEEDS_USERNS(CHILD_PLAIN);
	for (size_t i = 0; i < ELEMENTSOF(ways); i++)
		cr_assert_child(check_clone, ways[i] | CHILD_USERNS, NULL);
}

static int check_locked(struct child *child)
{
	struct fault fault = { 0 };
	int fd = -EBADF;

	CHECK_FAULT(mount_clone(AT_FDCWD, "/proc", MOUNT_RECURSIVE, "proc", &fd, &fault), &fault);
	fd_close(fd);
	CHECK_FAULT(tmpfs("t", &fd, &fault), &fault);
	CHECK_FAULT(mount_change(fd, MOUNT_READONLY | MOUNT_NOATIME, 0, "t", &fault), &fault);
	CHECK(write_file(fd, "x", "") == -EROFS);
	CHECK_FAULT(mount_change(fd, 0, MOUNT_READONLY, "t", &fault), &fault);
	CHECK(write_file(fd, "x", "") == 0);
	return 0;
}

/* Attributes go on and off again on our own mounts. */
Test(mount, changes_attributes)
{
	NEEDS_USERNS(CHILD_PLAIN);
	for (size_t i = 0; i < ELEMENTSOF(ways); i++)
		cr_assert_child(check_locked, ways[i] | CHILD_USERNS, NULL);
}

static int check_overlay(struct child *child)
{
	uint32_t flags = *(uint32_t *)child->argument | MOUNT_OVERLAY_USERXATTR | MOUNT_OVERLAY_VOLATILE;
	int base = -EBADF, fd = -EBADF, lower[60], upper, work;
	struct fault fault = { 0 };
	struct mount_overlay overlay;
	char name[16], cwd[64];

	CHECK(chdir("/") == 0);
	CHECK_FAULT(mount_new_tmpfs(&(struct mount_tmpfs){ 1 << 20, 200, 0755 }, 0, "base", &base, &fault),
		&fault);
	CHECK_FAULT(mount_attach(base, open("/mnt", O_PATH), "base", &fault), &fault);
	for (int i = 0; i < 60; i++) {
		snprintf(name, sizeof(name), "a:b,c\\%d", i);	/* hostile for an option text */
		CHECK(mkdirat(base, name, 0755) == 0);
		lower[i] = at(base, name);
		CHECK(lower[i] >= 0);
	}
	CHECK(write_file(lower[0], "who", "first") == 0);
	CHECK(write_file(lower[1], "who", "second") == 0);
	CHECK(write_file(lower[1], "only", "second") == 0);
	CHECK(mkdirat(base, "upper", 0755) == 0 && mkdirat(base, "work", 0755) == 0);
	upper = at(base, "upper");
	work = at(base, "work");
	overlay = (struct mount_overlay){ lower, 3, upper, work, flags };
	CHECK_FAULT(mount_new_overlay(&overlay, MOUNT_NODEV, "o", &fd, &fault), &fault);
	CHECK(mkdirat(base, "merged", 0755) == 0);
	CHECK_FAULT(mount_attach(fd, at(base, "merged"), "o", &fault), &fault);
	CHECK(file_is(base, "merged/who", "first"));	/* [0] is the uppermost */
	CHECK(file_is(base, "merged/only", "second"));
	CHECK(write_file(fd, "who", "third") == 0);
	CHECK(file_is(base, "upper/who", "third"));
	CHECK(file_is(lower[0], "who", "first"));
	/* Without upper it is read-only; 40 layers work either way, 60 by text are refused by name. */
	fd_close(fd);
	overlay = (struct mount_overlay){ lower, 40, -EBADF, -EBADF,
		flags & ~(uint32_t)MOUNT_OVERLAY_VOLATILE };
	CHECK_FAULT(mount_new_overlay(&overlay, 0, "o", &fd, &fault), &fault);
	CHECK(write_file(fd, "x", "") == -EROFS);
	CHECK(getcwd(cwd, sizeof(cwd)) && strcmp(cwd, "/") == 0);
	overlay.n_lower = 60;
	if (flags & MOUNT_OVERLAY_FORCE_STRING)
		CHECK(mount_new_overlay(&overlay, 0, "o", &fd, &fault) == ABOX_E_LIMIT);
	overlay.n_lower = 0;
	CHECK(mount_new_overlay(&overlay, 0, "o", &fd, &fault) == ABOX_E_INVALID);
	return 0;
}

/* Layers arrive by descriptor whatever their names, and by text on kernels that cannot do better. */
Test(mount, overlays_layers_by_descriptor_and_by_text)
{
	uint32_t flags[] = { 0, MOUNT_OVERLAY_FORCE_STRING };

	NEEDS_USERNS(CHILD_PLAIN);
	for (size_t i = 0; i < ELEMENTSOF(ways); i++)
		for (size_t j = 0; j < ELEMENTSOF(flags); j++)
			cr_assert_child(check_overlay, ways[i] | CHILD_USERNS, &flags[j]);
}

static int check_pivot(struct child *child)
{
	int root = -EBADF, pts = -EBADF, proc = -EBADF, mqueue = -EBADF, fd;
	struct fault fault = { 0 };
	struct stat before, after;

	CHECK(stat("/", &before) == 0);
	CHECK_FAULT(tmpfs("root", &root, &fault), &fault);
	CHECK(mkdirat(root, "proc", 0755) == 0 && mkdirat(root, "pts", 0755) == 0 &&
		mkdirat(root, "mq", 0755) == 0);
	CHECK_FAULT(mount_attach(root, open("/mnt", O_PATH), "root", &fault), &fault);
	CHECK_FAULT(mount_new_devpts(MOUNT_NOSUID | MOUNT_NOEXEC, "pts", &pts, &fault), &fault);
	CHECK_FAULT(mount_attach(pts, at(root, "pts"), "pts", &fault), &fault);
	CHECK_FAULT(
		mount_new_proc(0, MOUNT_NOSUID | MOUNT_NODEV | MOUNT_NOEXEC, "proc", &proc, &fault), &fault);
	CHECK_FAULT(mount_attach(proc, at(root, "proc"), "proc", &fault), &fault);
	CHECK(unshare(CLONE_NEWIPC) == 0);
	CHECK_FAULT(mount_new_mqueue(0, "mq", &mqueue, &fault), &fault);
	CHECK_FAULT(mount_pivot(root, &fault), &fault);
	CHECK(stat("/", &after) == 0);
	CHECK(before.st_dev != after.st_dev);
	CHECK(access("/etc", F_OK) < 0);
	CHECK(access("/..//etc", F_OK) < 0);
	CHECK(access("/proc/1/status", F_OK) == 0);
	CHECK(access("/proc/2", F_OK) < 0);	/* only we are in the pid namespace */
	fd = open("/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	CHECK(fd >= 0);
	CHECK(access("/pts/0", F_OK) == 0);
	return 0;
}

/* The new root is all there is; proc shows the own pid namespace, a pty can be made. */
Test(mount, pivots_to_a_root_of_its_own)
{
	NEEDS_USERNS(CHILD_PLAIN | CHILD_PIDNS);
	for (size_t i = 0; i < ELEMENTSOF(ways); i++)
		cr_assert_child(check_pivot, ways[i] | CHILD_USERNS | CHILD_PIDNS, NULL);
}

static int check_freeze(struct child *child)
{
	int fd = -EBADF, other = -EBADF, writer, target;
	struct fault fault = { 0 };

	CHECK_FAULT(tmpfs("t", &fd, &fault), &fault);
	CHECK_FAULT(mount_attach(fd, open("/mnt", O_PATH), "t", &fault), &fault);
	writer = openat(fd, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	CHECK(writer >= 0);
	CHECK(mount_freeze_superblock(fd, "t", &fault) == ABOX_E_BUSY);
	close(writer);
	CHECK_FAULT(mount_freeze_superblock(fd, "t", &fault), &fault);
	CHECK(write_file(fd, "file", "x") == -EROFS);
	/* A new layer slides below, the old one goes: the name is never without a mount. */
	CHECK_FAULT(tmpfs("new", &other, &fault), &fault);
	CHECK(write_file(other, "new", "x") == 0);
	target = open("/mnt", O_PATH | O_CLOEXEC);
	if (mount_attach_beneath(other, target, "new", &fault) < 0) {
		CHECK(fault.sys_errno == EINVAL);	/* before 6.5 */
		return 0;
	}
	CHECK(access("/mnt/file", F_OK) == 0);
	CHECK_FAULT(mount_detach("/mnt", &fault), &fault);
	CHECK(access("/mnt/new", F_OK) == 0);
	return 0;
}

/* A layer is frozen when nobody writes, and switched without a gap. */
Test(mount, freezes_and_switches)
{
	NEEDS_USERNS(CHILD_PLAIN);
	for (size_t i = 0; i < ELEMENTSOF(ways); i++)
		cr_assert_child(check_freeze, ways[i] | CHILD_USERNS, NULL);
}

static int check_idmap(struct child *child)
{
	struct id_range map = { .inside = 4000, .outside = 700000, .count = 10 };
	int fd = -EBADF, userns = -EBADF, copy = -EBADF;
	struct fault fault = { 0 };
	struct stat st;

	CHECK(unshare(CLONE_NEWNS) == 0);
	CHECK_FAULT(mount_make_private(&fault), &fault);
	CHECK_FAULT(tmpfs("t", &fd, &fault), &fault);
	CHECK_FAULT(mount_attach(fd, open("/mnt", O_PATH), "t", &fault), &fault);
	CHECK(write_file(fd, "file", "x") == 0);
	CHECK(fchownat(fd, "file", 4003, 4003, 0) == 0);
	CHECK_FAULT(userns_new_idmap(&map, 1, &map, 1, &userns, &fault), &fault);
	CHECK_FAULT(mount_clone(fd, "", 0, "copy", &copy, &fault), &fault);
	if (mount_idmap(copy, userns, 0, "copy", &fault) == ABOX_E_UNSUPPORTED)
		return 0;	/* tmpfs before 6.3 */
	CHECK(fault.code == 0);
	CHECK(fstatat(copy, "file", &st, 0) == 0);
	CHECK(st.st_uid == 700003 && st.st_gid == 700003);
	CHECK(fstatat(fd, "file", &st, 0) == 0);
	CHECK(st.st_uid == 4003);
	fd_close(copy);
	CHECK_FAULT(mount_new_proc(0, 0, "proc", &copy, &fault), &fault);
	CHECK(mount_idmap(copy, userns, 0, "proc", &fault) == ABOX_E_UNSUPPORTED);
	return 0;
}

/* Root: files show with mapped ids in the copy and with their own in the source; proc is refused by name. */
Test(mount, idmaps)
{
	if (geteuid() != 0)
		cr_skip_test("needs root");
	cr_assert_child(check_idmap, 0, NULL);
}
