/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "workspace/quota.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "kernel/image.h"
#include "kernel/mount.h"
#include "workspace/workspace.h"

#define STAGE ABOX_STAGE_WORKSPACE
#define OWN_INODES 8	/* upper, work and what overlayfs keeps there */

enum quota_kind quota_kind_here(const char **retwhy)
{
	const char *why = NULL;

	if (!layer_process_is_root())
		why = "only root can have a loop device";
	else if (!image_maker())
		why = "mkfs.ext4 is not installed (e2fsprogs)";
	else if (access("/dev/loop-control", R_OK | W_OK) < 0)
		why = "there is no /dev/loop-control to be used";
	if (retwhy)
		*retwhy = why;
	if (!why)
		return QUOTA_IMAGE;
	return layer_process_is_root() ? QUOTA_MEMORY : QUOTA_GUEST;
}

static int make_mount(const abox_workspace *workspace, uint64_t limit_bytes, uint64_t limit_inodes, int *retmount_fd,
	struct fault *fault)
{
	const uint32_t attributes = MOUNT_NOSUID | MOUNT_NODEV;
	struct mount_image image = { .folder_fd = workspace->home_fd, .size_bytes = limit_bytes,
		.n_inodes = limit_inodes + OWN_INODES };
	struct mount_tmpfs memory = { .size_bytes = limit_bytes, .n_inodes = limit_inodes + OWN_INODES, .mode = 0755 };

	if (quota_kind_here(NULL) == QUOTA_IMAGE)
		return mount_new_image(&image, attributes, "workspace", retmount_fd, fault);
	return mount_new_tmpfs(&memory, attributes, "workspace", retmount_fd, fault);
}

/* A folder with the rights of st, open and readable. */
static int make_folder(int dir_fd, const char *name, const struct stat *st, int *retfd)
{
	_cleanup_(fd_closep) int fd = -EBADF;

	if (mkdirat(dir_fd, name, 0700) < 0)
		return -errno;
	fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fchown(fd, st->st_uid, st->st_gid) < 0 || fchmod(fd, st->st_mode & 07777) < 0)
		return -errno;
	*retfd = steal_fd(fd);
	return 0;
}

void quota_clear(struct quota *quota)
{
	quota->mount_fd = fd_close(quota->mount_fd);
	quota->upper_fd = fd_close(quota->upper_fd);
}

int quota_open(const abox_workspace *workspace, uint64_t limit_bytes, uint64_t limit_inodes, struct layer_stack *stack,
	struct quota *ret, abox_error **reterr)
{
	_cleanup_(fd_closep) int mount_fd = -EBADF, upper_fd = -EBADF, work_fd = -EBADF, copy_fd = -EBADF;
	struct fault fault;
	struct stat top, own = { .st_mode = 0700 };
	int r;

	fault_init(&fault, STAGE);
	if (fstat(stack->top_fd, &top) < 0)
		return error_set_errno(reterr, ABOX_E_IO, STAGE, "live layer", errno, "cannot be looked at");
	r = make_mount(workspace, limit_bytes, limit_inodes, &mount_fd, &fault);
	if (r < 0)
		return error_from_fault(reterr, &fault);
	r = make_folder(mount_fd, "upper", &top, &upper_fd);
	if (r == 0)
		r = make_folder(mount_fd, "work", &own, &work_fd);
	if (r == 0 && (copy_fd = fcntl(upper_fd, F_DUPFD_CLOEXEC, 3)) < 0)
		r = -errno;
	if (r < 0)
		return error_set_errno(reterr, ABOX_E_IO, STAGE, "bounded layer", -r, "cannot be made");
	fd_close(stack->top_fd);
	fd_close(stack->work_fd);
	stack->top_fd = steal_fd(upper_fd);
	stack->work_fd = steal_fd(work_fd);
	*ret = (struct quota){ steal_fd(mount_fd), steal_fd(copy_fd) };
	return 0;
}
