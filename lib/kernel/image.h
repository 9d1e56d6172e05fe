/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A filesystem of a given size on a disk of the host: an ext4 in a file, behind a loop device that clears itself. The
 * mount is attached nowhere, and the device hangs on it: whoever held it last, and however he ended, it is free again.
 * The file stays as long as it has its name, and can be mounted again with all that was written. There is a folder lost+found in it.
 *
 * Needs the host's root, /dev/loop-control, and mkfs.ext4 of e2fsprogs, which is run for a moment. Nothing of it is
 * promised to outlive the machine: it has no journal.
 */
#ifndef KERNEL_IMAGE_H
#define KERNEL_IMAGE_H

#include "base/fault.h"
#include "base/macro.h"

struct mount_image {
	int folder_fd;		/* on the disk that is to hold it */
	const char *name;	/* of the file in it, which must not be there; it appears with a whole filesystem */
	uint64_t size_bytes;	/* for files; what the filesystem itself needs comes on top */
	uint64_t n_inodes;	/* at most one for each KiB of size_bytes is given */
	uint32_t owner_uid, owner_gid;	/* of its root folder, which is 0755 */
};

/* Attributes as of kernel/mount.h. A detached mount. 0, or a negative code with *fault. */
int mount_new_image(const struct mount_image *options, uint32_t attributes, const char *place, int *retmount_fd,
	struct fault *fault);
/* What is in the file, once more. One that is mounted still, by whomever, is the same filesystem: never a second one
 * over the same bytes. The caller sees to it that nobody does this to the same file at the same time. */
int mount_image_again(int folder_fd, const char *name, uint32_t attributes, const char *place, int *retmount_fd,
	struct fault *fault);

/* Where mkfs.ext4 is, or NULL. */
const char *image_maker(void);
/* 0 when a loop device can be had, else a negative errno. */
int image_try_loop(void);

#endif
