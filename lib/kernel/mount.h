/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Mounts by descriptor (the mount API of Linux 5.2 and later): a mount is made detached, dressed, and only
 * then put in its place, so that nobody sees it half done and no path is looked up twice.
 *
 * Helper code: system calls only. Every function returns 0, or a negative abox code with *fault set (which
 * may be NULL); `place` is the name under which the caller knows the mount and serves messages only.
 * Descriptors that come back are close-on-exec. A mount that was not attached goes away with its descriptor.
 */
#ifndef KERNEL_MOUNT_H
#define KERNEL_MOUNT_H

#include "base/fault.h"
#include "base/macro.h"

enum {
	MOUNT_READONLY = 1 << 0,
	MOUNT_NOSUID = 1 << 1,
	MOUNT_NODEV = 1 << 2,
	MOUNT_NOEXEC = 1 << 3,
	MOUNT_NOATIME = 1 << 4,
	MOUNT_NOSYMFOLLOW = 1 << 5,
	MOUNT_RECURSIVE = 1 << 8,	/* not an attribute: the whole tree below */
};

/* A detached copy of what is mounted at dir_fd + path (path "" is dir_fd itself; a final link is not
 * followed); with MOUNT_RECURSIVE submounts come along. Attributes in `flags` are set on the copy. */
int mount_clone(int dir_fd, const char *path, uint32_t flags, const char *place, int *retmount_fd,
	struct fault *fault);

/* Attributes of a mount that may be attached already: `set` on, `clear` off; MOUNT_RECURSIVE in `set` takes
 * the tree. Locked attributes of a less privileged mount namespace cannot be cleared (EPERM). */
int mount_change(int mount_fd, uint32_t set, uint32_t clear, const char *place, struct fault *fault);

/* Files show with the ids that the user namespace maps. Only on a detached mount that nobody uses yet.
 * ABOX_E_UNSUPPORTED when the filesystem cannot (an overlay, proc). */
int mount_idmap(int mount_fd, int userns_fd, uint32_t flags, const char *place, struct fault *fault);

/* Puts a detached (or moves an attached) mount onto target_fd, which is what it covers: directory on
 * directory, file on file. mount_attach_beneath() slides it below the mount that is at target_fd (Linux 6.5).
 */
int mount_attach(int mount_fd, int target_fd, const char *place, struct fault *fault);
int mount_attach_beneath(int mount_fd, int target_fd, const char *place, struct fault *fault);

/* New filesystems, detached. `attributes` is of the enum above. */
struct mount_tmpfs {
	uint64_t size_bytes;	/* 0 is refused: a tmpfs without bound takes half of the memory */
	uint64_t n_inodes;	/* 0 is refused */
	uint32_t mode;
};
int mount_new_tmpfs(const struct mount_tmpfs *options, uint32_t attributes, const char *place,
	int *retmount_fd, struct fault *fault);

/* What is on a block device, nothing of which has to outlive the machine (no barriers). The discarding of what was
 * freed gives a file behind a loop device its holes back. */
int mount_new_ext4(const char *device, uint32_t attributes, const char *place, int *retmount_fd, struct fault *fault);

enum {
	MOUNT_PROC_SUBSET_PID = 1 << 0,	/* nothing but /proc/PID: no sysctl, no kcore */
	MOUNT_PROC_HIDEPID = 1 << 1,	/* other users' processes do not show */
};
/* Shows the pid namespace of the caller. ABOX_E_PERMISSION with a remedy where the host masks parts of its
 * own proc. */
int mount_new_proc(
	uint32_t proc_flags, uint32_t attributes, const char *place, int *retmount_fd, struct fault *fault);
int mount_new_devpts(
	uint32_t attributes, const char *place, int *retmount_fd, struct fault *fault); /* ptmxmode 0666 */
int mount_new_mqueue(uint32_t attributes, const char *place, int *retmount_fd, struct fault *fault);

/* Layers by descriptor (O_PATH is fine), lower_fds[0] the uppermost. upper_fd and work_fd are both given or
 * both negative (read-only). Kernels without `lowerdir+` get a text with the numbers of the descriptors, for
 * which the working directory is /proc/self/fd for a moment; the kernel limits that text, and more than
 * MOUNT_OVERLAY_STRING_LAYERS layers are refused with ABOX_E_LIMIT then. Before 6.15 the layers must lie on
 * attached mounts. */
enum {
	MOUNT_OVERLAY_USERXATTR = 1 << 0, /* for a mount made in a user namespace */
	MOUNT_OVERLAY_VOLATILE =
		1 << 1, /* no sync at umount: durability is promised elsewhere or not at all */
	MOUNT_OVERLAY_FORCE_STRING = 1 << 2, /* for tests: as on a kernel without lowerdir+ */
	MOUNT_OVERLAY_REDIRECT = 1 << 3, /* folders of lower layers can be renamed; not in a user namespace */
};
#define MOUNT_OVERLAY_STRING_LAYERS 48
struct mount_overlay {
	const int *lower_fds;
	size_t n_lower;
	int upper_fd;
	int work_fd;
	uint32_t flags;
};
int mount_new_overlay(const struct mount_overlay *overlay, uint32_t attributes, const char *place,
	int *retmount_fd, struct fault *fault);

/* In a new mount namespace, before anything else: nothing that happens here reaches the host, and the host's
 * later mounts do not come in. */
int mount_make_private(struct fault *fault);

/* The mount at root_fd becomes the root of the mount namespace, the old one is detached with all below it;
 * cwd is the new root. Security: descriptors of the old tree that are still open lead out; the caller closes
 * them. */
int mount_pivot(int root_fd, struct fault *fault);

/* Detaches what is mounted at an absolute path (lazily: users keep what they hold). 0 also when nothing is
 * there. */
int mount_detach(const char *path, struct fault *fault);

/* The superblock behind mount_fd turns read-only: ABOX_E_BUSY while a file is open for writing. */
int mount_freeze_superblock(int mount_fd, const char *place, struct fault *fault);

#endif
