/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A workspace in use: what is written down before a box gets the live layer and after it has given it back,
 * and the mount that the box sees. What is promised: a live layer that may hold less than was written,
 * because the machine went down before it was synced, is never taken for whole.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "kernel/mount.h"
#include "workspace/home.h"
#include "workspace/layer.h"
#include "workspace/workspace.h"

#define STAGE ABOX_STAGE_WORKSPACE

static int set_boot(abox_workspace *workspace, const char *boot, abox_error **reterr)
{
	_cleanup_(workspace_record_clear) struct workspace_record next = {0};
	int r;

	if (strcmp(workspace->record.boot, boot) == 0)
		return 0;
	r = workspace_record_copy(&workspace->record, &next);
	if (r < 0)
		return r;
	memcpy(next.boot, boot, sizeof(next.boot));
	return workspace_commit(workspace, &next, reterr);
}

int workspace_begin_use(abox_workspace *workspace, abox_error **reterr)
{
	_cleanup_(fd_closep) int layer_fd = -EBADF;
	char boot[64] = "";
	int r;

	if (workspace->record.mode == WORKSPACE_DIRECT)
		return 0;
	r = workspace_check_trusted(workspace, reterr);
	if (r >= 0)
		r = home_boot_id(boot, reterr);
	if (r < 0)
		return r;
	layer_fd = layer_open(workspace->home_fd, workspace->record.live, reterr);
	if (layer_fd < 0)
		return layer_fd;
	r = layer_reset_work(layer_fd, reterr);
	return r < 0 ? r : set_boot(workspace, boot, reterr);
}

int workspace_end_use(abox_workspace *workspace, abox_error **reterr)
{
	static const char none[64] = "";
	_cleanup_(fd_closep) int layer_fd = -EBADF;
	struct layer_record layer = {0};
	int r;

	if (workspace->record.mode == WORKSPACE_DIRECT || !workspace->record.boot[0])
		return 0;
	layer_fd = layer_open(workspace->home_fd, workspace->record.live, reterr);
	if (layer_fd < 0)
		return layer_fd;
	memcpy(layer.id, workspace->record.live, STORE_ID_BYTES);
	r = layer_seal(layer_fd, &layer, reterr); /* synced; the seal itself is not kept */
	return r < 0 ? r : set_boot(workspace, none, reterr);
}

int layer_stack_mount(const struct layer_stack *stack, uint32_t overlay_flags, uint32_t attributes,
	int *retmount_fd, struct fault *fault)
{
	struct mount_overlay overlay = {
		.lower_fds = stack->lower_fds,
		.n_lower = stack->n_lowers,
		.upper_fd = stack->top_fd,
		.work_fd = stack->work_fd,
		.flags = overlay_flags | (stack->flavour == LAYER_USER ? MOUNT_OVERLAY_USERXATTR : 0),
	};

	/* A whole tree, or the only layer: nothing to be laid over each other. */
	if (stack->is_full || stack->n_lowers + (stack->top_fd >= 0) == 1)
		return mount_clone(stack->top_fd >= 0 ? stack->top_fd : stack->lower_fds[0], "",
			attributes | (stack->top_fd >= 0 ? 0 : MOUNT_READONLY), "workspace", retmount_fd,
			fault);
	return mount_new_overlay(&overlay, attributes, "workspace", retmount_fd, fault);
}

/* The absolute path of an open folder, which nobody but us can rename (the store), or which is canonical (a
 * base). */
static int path_of(int fd, char **ret, abox_error **reterr)
{
	char self[40], path[PATH_MAX];
	struct stat ours, there;
	ssize_t n;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	n = readlink(self, path, sizeof(path));
	if (n < 0 || (size_t)n >= sizeof(path))
		return error_set_errno(reterr, ABOX_E_SYSTEM, STAGE, self, n < 0 ? errno : ENAMETOOLONG,
			"cannot find the path of a layer");
	path[n] = 0;
	if (fstat(fd, &ours) < 0 || lstat(path, &there) < 0 || ours.st_dev != there.st_dev ||
		ours.st_ino != there.st_ino)
		return error_set(reterr, ABOX_E_STATE, STAGE, path, "the folder of the layer was moved");
	*ret = strdup(path);
	return *ret ? 0 : ABOX_E_MEMORY;
}

int layer_stack_paths(const struct layer_stack *stack, struct layer_paths *ret, abox_error **reterr)
{
	_cleanup_(layer_paths_clear) struct layer_paths paths = {0};
	int r = 0;

	paths.lowers = calloc(stack->n_lowers + 1, sizeof(*paths.lowers));
	if (!paths.lowers)
		return ABOX_E_MEMORY;
	if (stack->top_fd >= 0)
		r = path_of(stack->top_fd, &paths.top, reterr);
	if (r >= 0 && stack->work_fd >= 0)
		r = path_of(stack->work_fd, &paths.work, reterr);
	for (size_t i = 0; r >= 0 && i < stack->n_lowers; i++) {
		r = path_of(stack->lower_fds[i], &paths.lowers[i], reterr);
		paths.n_lowers += r >= 0;
	}
	if (r < 0)
		return r;
	*ret = paths;
	paths = (struct layer_paths){0};
	return 0;
}

void layer_paths_clear(struct layer_paths *paths)
{
	for (size_t i = 0; i < paths->n_lowers; i++)
		free(paths->lowers[i]);
	free(paths->lowers);
	free(paths->top);
	free(paths->work);
	*paths = (struct layer_paths){0};
}
