/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A filesystem of a given size on a disk of the host: an ext4 in a file without a name, behind a loop device that
 * clears itself. All of it hangs on the mount: whoever held it last, and however he ended, the space is free again
 * and nothing is left to be cleared away.
 *
 * Needs the host's root, /dev/loop-control, and mkfs.ext4 of e2fsprogs, which is run for a moment.
 */
#ifndef KERNEL_IMAGE_H
#define KERNEL_IMAGE_H

#include "base/fault.h"
#include "base/macro.h"

struct mount_image {
	int folder_fd;		/* on the disk that is to hold it */
	uint64_t size_bytes;	/* for files; what the filesystem itself needs comes on top */
	uint64_t n_inodes;
	uint32_t owner_uid, owner_gid;	/* of its root folder, which is 0755 */
};

/* Attributes as of kernel/mount.h. A detached mount. 0, or a negative code with *fault. */
int mount_new_image(const struct mount_image *options, uint32_t attributes, const char *place, int *retmount_fd,
	struct fault *fault);

/* Where mkfs.ext4 is, or NULL. */
const char *image_maker(void);

#endif
