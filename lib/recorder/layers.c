/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The layers of a workspace as a box gets them: with the ids of the box, bounded, with a mask for names that are
 * protected and not there, and for root's boxes mounted.
 */
#include "recorder/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <agentbox/change.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/memfd.h"
#include "base/pack.h"
#include "base/path.h"
#include "kernel/mount.h"
#include "kernel/userns.h"
#include "workspace/apply.h"
#include "workspace/changes.h"
#include "workspace/home.h"
#include "workspace/workspace.h"

#define STAGE ABOX_STAGE_WORKSPACE

const struct json *keeping_quota(const struct keeping *keeping)
{
	return json_member(keeping->order, "quota");
}

uint64_t keeping_quota_number(const struct keeping *keeping, const char *name)
{
	return (uint64_t)json_number(json_member(keeping_quota(keeping), name));
}

enum quota_kind keeping_quota_kind(const struct keeping *keeping)
{
	return quota_kind_of_word(json_text(json_member(keeping_quota(keeping), "by")));
}

/* Root's box has ids of its own: a folder of the host is shown to it as the box's user's. */
static int show_to_box(const struct layer_stack *stack, int *fd, uint32_t flags, abox_error **reterr)
{
	const struct layer_ids *ids = &stack->ids;
	struct id_range uids = { ids->owner_uid, ids->base + ids->inside_uid, 1 };
	struct id_range gids = { ids->owner_gid, ids->base + ids->inside_gid, 1 };
	_cleanup_(fd_closep) int mount_fd = -EBADF, userns_fd = -EBADF;
	struct fault fault;
	int r;

	fault_init(&fault, STAGE);
	r = mount_clone(*fd, "", flags, "workspace", &mount_fd, &fault);
	if (r == 0)
		r = userns_new_idmap(&uids, 1, &gids, 1, &userns_fd, &fault);
	if (r == 0)
		r = mount_idmap(mount_fd, userns_fd, flags, "workspace", &fault);
	if (r == ABOX_E_UNSUPPORTED && (flags & MOUNT_READONLY))
		return 0; /* what everybody may read can be read; the plan has said so */
	if (r < 0)
		return error_from_fault(reterr, &fault);
	fd_close(*fd);
	*fd = steal_fd(mount_fd);
	return 0;
}

static int show_base(const struct keeping *keeping, struct opened *opened, abox_error **reterr)
{
	struct layer_stack *stack = &opened->stack;
	int *fd, before, r;

	if (!layer_process_is_root())
		return 0;
	if (workspace_mode(keeping->workspace) == WORKSPACE_DIRECT)
		return show_to_box(stack, &stack->top_fd, MOUNT_NOSUID | MOUNT_NODEV, reterr);
	if (!stack->base_is_host)
		return 0;
	fd = &stack->lower_fds[stack->n_lowers - 1];
	before = *fd;
	r = show_to_box(stack, fd, MOUNT_READONLY | MOUNT_NOSUID | MOUNT_NODEV, reterr);
	opened->base_is_shown = *fd != before;
	return r;
}

static int move_to_place(int *fd, const char *path)
{
	int there = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat ours, now;

	if (there < 0 || fstat(there, &now) < 0 || fstat(*fd, &ours) < 0 || now.st_ino != ours.st_ino ||
		now.st_dev != ours.st_dev) {
		fd_close(there);
		return -ESTALE;
	}
	fd_close(*fd);
	*fd = there;
	return 0;
}

/* What a mount that is attached nowhere has put into the stack. */
struct detached {
	size_t base;		/* which lower layer is the folder of the host, shown as the box's */
	const char *base_path;	/* NULL: it is shown as it is */
	const struct quota *quota; /* NULL: the upper layer is one of the store */
};

/* The layers that are attached, as paths. That of a detached one cannot be told, and is known. */
static int attached_paths(const struct keeping *keeping, const struct layer_stack *stack,
	const struct detached *detached, struct layer_paths *ret)
{
	struct layer_stack attached = *stack;
	int r;

	attached.lower_fds = calloc(stack->n_lowers + 1, sizeof(int));
	if (!attached.lower_fds)
		return ABOX_E_MEMORY;
	memcpy(attached.lower_fds, stack->lower_fds, stack->n_lowers * sizeof(int));
	if (detached->base_path)
		attached.lower_fds[detached->base] = keeping->workspace->home_fd;
	if (detached->quota)
		attached.top_fd = attached.work_fd = -EBADF;
	r = layer_stack_paths(&attached, ret, NULL);
	free(attached.lower_fds);
	return r;
}

static int attach_base(const struct layer_stack *stack, const struct detached *detached, struct fault *fault)
{
	_cleanup_(fd_closep) int place_fd =
		open(detached->base_path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (place_fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, detached->base_path, "cannot be opened");
	return mount_attach(stack->lower_fds[detached->base], place_fd, detached->base_path, fault);
}

/* The layers again, in a mount namespace in which all of them are attached: the base where it lies. */
static int reopen_layers(const struct keeping *keeping, struct layer_stack *stack, struct layer_paths *paths,
	const struct detached *detached, struct fault *fault)
{
	int r = detached->base_path ? attach_base(stack, detached, fault) : 0;

	if (r == 0 && detached->quota)
		r = quota_attach(keeping->workspace, detached->quota, &paths->top, &paths->work, fault);
	if (r < 0)
		return r;
	r = move_to_place(&stack->top_fd, paths->top);
	if (r == 0)
		r = move_to_place(&stack->work_fd, paths->work);
	for (size_t i = 0; r == 0 && i < stack->n_lowers; i++)
		r = move_to_place(&stack->lower_fds[i],
			detached->base_path && i == detached->base ? detached->base_path : paths->lowers[i]);
	return r < 0 ? fault_set(fault, ABOX_E_SYSTEM, -r, "workspace", "its layers cannot be opened once more") : 0;
}

/*
 * Before Linux 6.15 an overlay takes no layer that is not attached in the namespace of whoever mounts it. So
 * there is one for a moment; what the overlay holds outlives it.
 */
static int mount_attached(
	struct keeping *keeping, struct opened *opened, uint32_t overlay_flags, struct fault *fault)
{
	_cleanup_(fd_closep) int host_fd = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	_cleanup_(layer_paths_clear) struct layer_paths paths = { 0 };
	struct layer_stack *stack = &opened->stack;
	struct detached detached = {
		.base = stack->n_lowers - 1 - opened->n_masks,
		.base_path = opened->base_is_shown ? workspace_base(keeping->workspace)->path : NULL,
		.quota = keeping->quota.mount_fd >= 0 ? &keeping->quota : NULL,
	};
	int r;

	r = attached_paths(keeping, stack, &detached, &paths);
	if (r < 0 || host_fd < 0 || unshare(CLONE_NEWNS) < 0)
		return fault->code;
	fault_init(fault, STAGE);
	r = mount_make_private(fault);
	if (r == 0)
		r = reopen_layers(keeping, stack, &paths, &detached, fault);
	if (r == 0)
		r = layer_stack_mount(
			stack, overlay_flags, MOUNT_NOSUID | MOUNT_NODEV, &opened->mount_fd, fault);
	if (setns(host_fd, CLONE_NEWNS) < 0)
		r = fault_set(fault, ABOX_E_SYSTEM, errno, "namespace", "cannot go back");
	return r < 0 ? fault->code : 0;
}

static int mount_as_root(struct keeping *keeping, struct opened *opened, abox_error **reterr)
{
	const uint32_t flags = MOUNT_OVERLAY_VOLATILE | MOUNT_OVERLAY_REDIRECT;
	struct layer_stack *stack = &opened->stack;
	struct fault fault;
	int r;

	if (workspace_mode(keeping->workspace) == WORKSPACE_DIRECT) {
		opened->mount_fd = steal_fd(stack->top_fd);
		return 0;
	}
	fault_init(&fault, STAGE);
	r = layer_stack_mount(stack, flags, MOUNT_NOSUID | MOUNT_NODEV, &opened->mount_fd, &fault);
	if (r < 0 && fault.sys_errno == EINVAL && (opened->base_is_shown || keeping->quota.mount_fd >= 0))
		r = mount_attached(keeping, opened, flags, &fault);
	return r < 0 ? error_remedy(reterr, error_from_fault(reterr, &fault), "use mode \"copy\"") : 0;
}

static int give(const struct layer_ids *ids, int fd)
{
	if (ids->kind != LAYER_IDS_RANGE)
		return 0;
	return fchown(fd, layer_uid_on_disk(ids, ids->inside_uid), layer_gid_on_disk(ids, ids->inside_gid)) <
			       0
		       ? -errno
		       : 0;
}

static bool is_name(const char *name)
{
	return name[0] && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* A folder of the mask, open; it belongs to the user of the box. */
static int mask_folder(const struct layer_ids *ids, int dir_fd, const char *name)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	int r;

	if (!is_name(name))
		return -EINVAL;
	if (mkdirat(dir_fd, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = give(ids, fd);
	return r < 0 ? r : steal_fd(fd);
}

static int mask_file(const struct layer_ids *ids, int dir_fd, const char *name, const char *content)
{
	_cleanup_(fd_closep) int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0444);
	int r = fd < 0 ? -errno : fd_write_all(fd, content, strlen(content));

	return r < 0 ? r : give(ids, fd);
}

static int mask_one(const struct layer_ids *ids, int mask_fd, const struct json *name)
{
	const char *path = json_text(json_member(name, "path")),
		   *content = json_text(json_member(name, "content"));
	_cleanup_(fd_closep) int dir_fd = fcntl(mask_fd, F_DUPFD_CLOEXEC, 3);
	_cleanup_(freep) char *copy = path ? strdup(path) : NULL;
	char *part = copy, *slash;
	int fd;

	if (dir_fd < 0 || !copy)
		return dir_fd < 0 ? -errno : -EINVAL;
	for (; (slash = strchr(part, '/')); part = slash + 1) {
		*slash = 0;
		fd = mask_folder(ids, dir_fd, part);
		if (fd < 0)
			return fd;
		fd_close(dir_fd);
		dir_fd = fd;
	}
	if (!json_truth(json_member(name, "folder")))
		return mask_file(ids, dir_fd, part, content ? content : "");
	fd = mask_folder(ids, dir_fd, part);
	fd_close(fd);
	return MIN(fd, 0);
}

/* The guest of a plain user makes the bounded layer itself, above what is mounted here. */
static int bound_layer(struct keeping *keeping, struct opened *opened, abox_error **reterr)
{
	uint64_t bytes = keeping_quota_number(keeping, "bytes"), inodes = keeping_quota_number(keeping, "inodes");
	int r;

	if (!keeping_quota(keeping) || keeping_quota_kind(keeping) == QUOTA_GUEST)
		return 0;
	r = quota_left(keeping->workspace, false, &bytes, &inodes, reterr);
	return r < 0 ? r
		     : quota_open(keeping->workspace, keeping_quota_kind(keeping), bytes, inodes, &opened->stack,
			       &keeping->quota, reterr);
}

/* Names that are protected and not there come from a layer below everything else, where no change shows them.
 */
static int add_mask(struct keeping *keeping, struct opened *opened, abox_error **reterr)
{
	const struct json *names = json_member(keeping->order, "mask");
	_cleanup_(fd_closep) int stage_fd = -EBADF, mask_fd = -EBADF;
	int *fds, r = 0;

	if (json_count(names) == 0 || opened->stack.is_full)
		return 0;
	r = workspace_open_stage(keeping->workspace, "protect", &stage_fd, reterr);
	if (r < 0)
		return r;
	r = path_remove_tree(stage_fd, "mask");
	if (r < 0 && r != -ENOENT)
		return error_set_errno(reterr, ABOX_E_IO, STAGE, "mask", -r, "cannot be cleared");
	mask_fd = home_make_folder(stage_fd, "mask", false, reterr);
	if (mask_fd < 0)
		return mask_fd;
	r = fchmod(mask_fd, 0755) < 0 ? -errno : 0;
	for (size_t i = 0; r == 0 && i < json_count(names); i++)
		r = mask_one(&opened->stack.ids, mask_fd, json_element(names, i));
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, STAGE, "mask", -r, "a protected name cannot be held");
	fds = reallocarray(opened->stack.lower_fds, opened->stack.n_lowers + 1, sizeof(*fds));
	if (!fds)
		return ABOX_E_MEMORY;
	opened->stack.lower_fds = fds;
	fds[opened->stack.n_lowers++] = steal_fd(mask_fd);
	opened->n_masks = 1;
	return 0;
}

int keeping_open_layers(struct keeping *keeping, struct opened *opened, abox_error **reterr)
{
	int r;

	r = workspace_open_stack(keeping->workspace, NULL, &opened->stack, reterr);
	if (r >= 0)
		r = show_base(keeping, opened, reterr);
	if (r >= 0)
		r = bound_layer(keeping, opened, reterr);
	if (r >= 0)
		r = add_mask(keeping, opened, reterr);
	if (r >= 0 && layer_process_is_root())
		r = mount_as_root(keeping, opened, reterr);
	return r;
}
