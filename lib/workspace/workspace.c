/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Handles of workspaces: finding, locking, reading, replacing the record, and the stack of layers. What is
 * promised: a record that was read under the lock is the truth until the lock is given back. How layers come
 * and go is told in create.c, snapshot.c and gc.c.
 */
#include "workspace/workspace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/strings.h"
#include "workspace/home.h"
#include "workspace/layer.h"
#include "workspace/quota.h"
#include <agentbox/workspace.h>

#define STAGE ABOX_STAGE_WORKSPACE
#define WORKSPACE_PATH_BYTES (sizeof(HOME_WORKSPACES) + 1 + STORE_ID_BYTES)
#define NAME_PATH_BYTES (sizeof(HOME_NAMES) + 2 + STORE_NAME_MAX)

static void workspace_path(const char *id, char ret[WORKSPACE_PATH_BYTES])
{
	snprintf(ret, WORKSPACE_PATH_BYTES, HOME_WORKSPACES "/%s", id);
}

void workspace_now(int64_t *retsec, uint32_t *retnsec)
{
	struct timespec begin, now;

	/* Files get the time of the last tick: what changes in the rest of this one would seem to be from
	 * before. Newer kernels (6.13) give a finer time to a file that somebody has looked at, so the
	 * moment itself must be fine too, or what was changed just before would seem to be from after. */
	clock_gettime(CLOCK_REALTIME, &begin);
	do {
		nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
		clock_gettime(CLOCK_REALTIME_COARSE, &now);
	} while (now.tv_sec < begin.tv_sec ||
		(now.tv_sec == begin.tv_sec && now.tv_nsec <= begin.tv_nsec));
	*retsec = begin.tv_sec;
	*retnsec = (uint32_t)begin.tv_nsec;
}

int workspace_record_copy(const struct workspace_record *record, struct workspace_record *ret)
{
	_cleanup_(workspace_record_clear) struct workspace_record copy = *record;

	copy.base = (struct workspace_base){0};
	copy.name = record->name ? strdup(record->name) : NULL;
	copy.task = record->task ? strdup(record->task) : NULL;
	copy.n_snapshots = 0;
	copy.snapshots = calloc(record->n_snapshots + 1, sizeof(*copy.snapshots));
	if (!copy.snapshots || (record->name && !copy.name) || (record->task && !copy.task) ||
		workspace_base_copy(&record->base, &copy.base) < 0)
		return ABOX_E_MEMORY;
	for (size_t i = 0; i < record->n_snapshots; i++) {
		struct snapshot_record *snapshot = &copy.snapshots[i];

		*snapshot = record->snapshots[i];
		snapshot->name = record->snapshots[i].name ? strdup(record->snapshots[i].name) : NULL;
		copy.n_snapshots++;
		if (record->snapshots[i].name && !snapshot->name)
			return ABOX_E_MEMORY;
	}
	*ret = copy;
	copy = (struct workspace_record){0};
	return 0;
}

int workspace_open_id(int home_fd, const char *id, abox_workspace **ret, abox_error **reterr)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = calloc(1, sizeof(*workspace));
	char path[WORKSPACE_PATH_BYTES];
	int r;

	if (!workspace)
		return ABOX_E_MEMORY;
	*workspace = (abox_workspace){.refs = 1, .home_fd = -EBADF, .dir_fd = -EBADF, .lock_fd = -EBADF};
	workspace->home_fd = fcntl(home_fd, F_DUPFD_CLOEXEC, 3);
	if (workspace->home_fd < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, STAGE, id, errno, "cannot open the workspace");
	workspace_path(id, path);
	workspace->dir_fd = openat(home_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (workspace->dir_fd < 0 && errno == ENOENT)
		return error_set(reterr, ABOX_E_NOT_FOUND, STAGE, id, "there is no such workspace");
	if (workspace->dir_fd < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, STAGE, id, errno, "cannot open the workspace");
	r = workspace_record_read(workspace->dir_fd, &workspace->record, reterr);
	if (r < 0)
		return error_prefix(reterr, r, "workspace %s", id);
	if (strcmp(workspace->record.id, id) != 0)
		return error_set(reterr, ABOX_E_DAMAGED, STAGE, id, "the record is another workspace's");
	*ret = steal_ptr(workspace);
	return 0;
}

/* A name is a link to an id: it holds only as long as the record says the same. */
static int resolve_name(int home_fd, const char *name, char retid[STORE_ID_BYTES])
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL;
	char path[NAME_PATH_BYTES], target[STORE_ID_BYTES + 1];
	ssize_t n;

	snprintf(path, sizeof(path), HOME_NAMES "/%s", name);
	n = readlinkat(home_fd, path, target, sizeof(target) - 1);
	target[n > 0 ? n : 0] = 0;
	if (n <= 0 || !home_is_id(target) || workspace_open_id(home_fd, target, &workspace, NULL) < 0)
		return ABOX_E_NOT_FOUND;
	if (!workspace->record.name || strcmp(workspace->record.name, name) != 0)
		return ABOX_E_NOT_FOUND;
	memcpy(retid, target, STORE_ID_BYTES);
	return 0;
}

int workspace_resolve(int home_fd, const char *ref, char retid[STORE_ID_BYTES], abox_error **reterr)
{
	if (home_is_id(ref)) {
		memcpy(retid, ref, STORE_ID_BYTES);
		return 0;
	}
	if (!home_is_name(ref))
		return error_set(
			reterr, ABOX_E_INVALID, STAGE, ref, "neither the id nor a name of a workspace");
	if (resolve_name(home_fd, ref, retid) < 0)
		return error_set(reterr, ABOX_E_NOT_FOUND, STAGE, ref, "no workspace has this name");
	return 0;
}

static int take_name(int home_fd, const char *name, const char *id, abox_error **reterr)
{
	char path[NAME_PATH_BYTES], other[STORE_ID_BYTES];

	if (!home_is_name(name))
		return error_remedy(reterr, error_set(reterr, ABOX_E_INVALID, STAGE, name, "not a name"),
			"use letters, digits, '.', '_', '-', not at the beginning '.' or '-', at most %d, "
			"not an id",
			STORE_NAME_MAX);
	if (resolve_name(home_fd, name, other) >= 0)
		return error_set(reterr, ABOX_E_EXISTS, STAGE, name, "workspace %s has this name", other);
	snprintf(path, sizeof(path), HOME_NAMES "/%s", name);
	if ((unlinkat(home_fd, path, 0) < 0 && errno != ENOENT) || symlinkat(id, home_fd, path) < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, STAGE, name, errno, "cannot take the name");
	return 0;
}

static void give_name_back(int home_fd, const char *name)
{
	char path[NAME_PATH_BYTES];

	snprintf(path, sizeof(path), HOME_NAMES "/%s", name);
	(void)unlinkat(
		home_fd, path, 0); /* one that stays leads to nothing, and is taken by whoever wants it */
}

static int sync_sub(int home_fd, const char *name, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = home_make_folder(home_fd, name, true, reterr);

	return fd < 0 ? fd : home_sync_folder(fd, name, reterr);
}

int workspace_put_new(int home_fd, struct workspace_record *record, abox_error **reterr)
{
	_cleanup_(fd_closep) int dir_fd = -EBADF, lock_fd = -EBADF;
	char path[WORKSPACE_PATH_BYTES];
	int r;

	workspace_path(record->id, path);
	if (record->name) {
		r = take_name(home_fd, record->name, record->id, reterr);
		if (r < 0)
			return r;
	}
	r = dir_fd = home_make_folder(home_fd, path, false, reterr);
	if (r >= 0)
		r = home_lock(dir_fd, "lock", true, 0, &lock_fd, reterr);
	if (r >= 0)
		r = workspace_record_write(dir_fd, record, reterr);
	if (r >= 0)
		r = sync_sub(home_fd, HOME_WORKSPACES, reterr);
	if (r >= 0 && record->name)
		r = sync_sub(home_fd, HOME_NAMES, reterr);
	if (r < 0) {
		if (record->name)
			give_name_back(home_fd, record->name);
		if (dir_fd >= 0)
			(void)home_discard(home_fd, home_fd, path, NULL);
		return r;
	}
	return 0;
}

int workspace_commit(abox_workspace *workspace, struct workspace_record *next, abox_error **reterr)
{
	int r;

	r = workspace_record_write(workspace->dir_fd, next, reterr);
	if (r < 0)
		return r;
	workspace_record_clear(&workspace->record);
	workspace->record = *next;
	*next = (struct workspace_record){0};
	return 0;
}

int workspace_discard(abox_workspace *workspace, abox_error **reterr)
{
	char path[WORKSPACE_PATH_BYTES];
	int r;

	workspace_path(workspace->record.id, path);
	r = home_discard(workspace->home_fd, workspace->home_fd, path, reterr);
	if (r < 0)
		return r;
	if (workspace->record.name)
		give_name_back(workspace->home_fd, workspace->record.name);
	return sync_sub(workspace->home_fd, HOME_WORKSPACES, reterr);
}

const char *workspace_id(const abox_workspace *workspace)
{
	return workspace->record.id;
}

const struct workspace_base *workspace_base(const abox_workspace *workspace)
{
	return &workspace->record.base;
}

enum workspace_mode workspace_mode(const abox_workspace *workspace)
{
	return workspace->record.mode;
}

/* Somebody may have moved the workspace to the trash while we waited; its lock file went along. */
static int check_still_there(const abox_workspace *workspace, abox_error **reterr)
{
	char path[WORKSPACE_PATH_BYTES];
	struct stat now, ours;

	workspace_path(workspace->record.id, path);
	if (fstat(workspace->dir_fd, &ours) < 0 ||
		fstatat(workspace->home_fd, path, &now, AT_SYMLINK_NOFOLLOW) < 0 ||
		now.st_dev != ours.st_dev || now.st_ino != ours.st_ino)
		return error_set(
			reterr, ABOX_E_NOT_FOUND, STAGE, workspace->record.id, "the workspace was removed");
	return 0;
}

int workspace_refresh(abox_workspace *workspace, abox_error **reterr)
{
	struct workspace_record record;
	int r;

	r = check_still_there(workspace, reterr);
	if (r < 0)
		return r;
	r = workspace_record_read(workspace->dir_fd, &record, reterr);
	if (r < 0)
		return r;
	workspace_record_clear(&workspace->record);
	workspace->record = record;
	return 0;
}

int workspace_lock(
	abox_workspace *workspace, enum workspace_lock how, uint64_t timeout_usec, abox_error **reterr)
{
	int r;

	if (workspace->lock_depth > 0) {
		if (how == WORKSPACE_EXCLUSIVE && workspace->lock == WORKSPACE_SHARED)
			return error_set(reterr, ABOX_E_STATE, STAGE, workspace->record.id,
				"the workspace is being read through the same handle");
		workspace->lock_depth++;
		return 0;
	}
	r = home_lock(workspace->dir_fd, "lock", how == WORKSPACE_EXCLUSIVE, timeout_usec,
		&workspace->lock_fd, reterr);
	if (r < 0)
		return error_prefix(reterr, r, "workspace %s", workspace->record.id);
	r = workspace_refresh(workspace, reterr);
	if (r < 0) {
		workspace->lock_fd = fd_close(workspace->lock_fd);
		return r;
	}
	if (how == WORKSPACE_SHARED && quota_is_left(workspace)) {
		workspace->lock_fd = fd_close(workspace->lock_fd);
		return workspace_lock(workspace, WORKSPACE_EXCLUSIVE, timeout_usec, reterr);
	}
	workspace->lock = how;
	workspace->lock_depth = 1;
	/* Where it fails, whoever needs the live layer is told so (workspace_check_trusted()). */
	if (quota_is_left(workspace))
		(void)quota_take_left(workspace, NULL);
	return 0;
}

void workspace_unlock(abox_workspace *workspace)
{
	if (workspace->lock_depth > 0 && --workspace->lock_depth == 0)
		workspace->lock_fd = fd_close(workspace->lock_fd);
}

int workspace_lock_fd(const abox_workspace *workspace)
{
	int fd = workspace->lock_fd < 0 ? -1 : fcntl(workspace->lock_fd, F_DUPFD_CLOEXEC, 3);

	return fd < 0 ? -errno : fd;
}

int workspace_adopt_lock(abox_workspace *workspace, int lock_fd_taken, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = lock_fd_taken;
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct stat ours, given;
	int r;

	if (workspace->lock_depth > 0)
		return error_set(reterr, ABOX_E_STATE, STAGE, workspace->record.id, "the handle has a lock");
	/* It is this workspace's lock, and it is locked through this descriptor: to lock it again changes
	 * nothing. */
	if (fstat(fd, &given) < 0 || fstatat(workspace->dir_fd, "lock", &ours, AT_SYMLINK_NOFOLLOW) < 0 ||
		given.st_dev != ours.st_dev || given.st_ino != ours.st_ino ||
		fcntl(fd, F_OFD_SETLK, &lock) < 0)
		return error_set(reterr, ABOX_E_INVALID, STAGE, workspace->record.id,
			"not the lock of this workspace");
	r = workspace_refresh(workspace, reterr);
	if (r < 0)
		return r;
	workspace->lock_fd = steal_fd(fd);
	workspace->lock = WORKSPACE_EXCLUSIVE;
	workspace->lock_depth = 1;
	return 0;
}

int workspace_open_stage(abox_workspace *workspace, const char *name, int *retfd, abox_error **reterr)
{
	_cleanup_(fd_closep) int stage_fd = home_make_folder(workspace->dir_fd, "stage", true, reterr);
	int fd;

	if (stage_fd < 0)
		return stage_fd;
	fd = home_make_folder(stage_fd, name, true, reterr);
	if (fd < 0)
		return fd;
	*retfd = fd;
	return 0;
}

int workspace_open_host_base(const struct workspace_base *base, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	struct stat st;

	fd = open(base->path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_set_errno(
			reterr, ABOX_E_STATE, STAGE, base->path, errno, "the source folder cannot be opened");
	if (st.st_dev != base->device || st.st_ino != base->inode)
		return error_set(reterr, ABOX_E_STATE, STAGE, base->path,
			"another folder has taken the place of the source folder");
	return steal_fd(fd);
}

int workspace_check_boot(const abox_workspace *workspace, abox_error **reterr)
{
	const struct workspace_record *record = &workspace->record;
	char boot[64];
	int r;

	if (!record->boot[0])
		return 0;
	r = home_boot_id(boot, reterr);
	if (r < 0)
		return r;
	if (strcmp(boot, record->boot) == 0)
		return 0; /* a crash of a process loses nothing that was written */
	return error_remedy(reterr,
		error_set(reterr, ABOX_E_DAMAGED, STAGE, record->id,
			"it was in use, not yet synced, when the machine went down"),
		"restore a snapshot");
}

int workspace_check_trusted(const abox_workspace *workspace, abox_error **reterr)
{
	int r = workspace_check_boot(workspace, reterr);

	if (r < 0 || !quota_is_left(workspace))
		return r;
	return error_remedy(reterr,
		error_set(reterr, ABOX_E_DAMAGED, STAGE, workspace->record.id,
			"what a box has written before it was killed could not be taken into the live layer"),
		"see that the disk of the store has room for it and try again, or restore a snapshot");
}

static int stack_add(struct layer_stack *stack, int fd_taken)
{
	int *fds = reallocarray(stack->lower_fds, stack->n_lowers + 1, sizeof(int));

	if (!fds) {
		fd_close(fd_taken);
		return ABOX_E_MEMORY;
	}
	fds[stack->n_lowers++] = fd_taken;
	stack->lower_fds = fds;
	return 0;
}

static int stack_add_layer(const abox_workspace *workspace, struct layer_stack *stack,
	const struct layer_record *layer, abox_error **reterr)
{
	_cleanup_(fd_closep) int layer_fd = layer_open(workspace->home_fd, layer->id, reterr);
	int fd;

	if (layer_fd < 0)
		return layer_fd;
	fd = layer_open_data(layer_fd, layer->id, O_PATH, reterr);
	if (fd < 0)
		return fd;
	if (layer->is_base)
		stack->n_base = 1;
	return stack_add(stack, fd);
}

static int stack_add_chain(
	const abox_workspace *workspace, struct layer_stack *stack, const char *top, abox_error **reterr)
{
	_cleanup_(layer_chain_clear) struct layer_chain chain = {0};
	int r;

	r = layer_chain_read(workspace->home_fd, top, workspace->record.flavour, &chain, reterr);
	for (size_t i = 0; r >= 0 && i < chain.n; i++) {
		r = stack_add_layer(workspace, stack, &chain.records[i], reterr);
		if (r < 0 || !chain.records[i].is_full)
			continue;
		if (stack->top_fd >= 0 || i > 0)
			break;         /* what lies below a whole tree is hidden */
		stack->is_full = true; /* the snapshot itself is one: below is what it began as */
	}
	if (r < 0)
		return r;
	if (stack->n_base == 0 && workspace->record.mode == WORKSPACE_OVERLAY &&
		workspace->record.base.kind == BASE_FOLDER) {
		r = workspace_open_host_base(&workspace->record.base, reterr);
		if (r < 0)
			return r;
		stack->n_base = 1;
		stack->base_is_host = true;
		return stack_add(stack, r);
	}
	return 0;
}

static int stack_add_live(const abox_workspace *workspace, struct layer_stack *stack, abox_error **reterr)
{
	_cleanup_(fd_closep) int layer_fd = -EBADF;
	int r;

	r = workspace_check_trusted(workspace, reterr);
	if (r < 0)
		return r;
	layer_fd = layer_open(workspace->home_fd, workspace->record.live, reterr);
	if (layer_fd < 0)
		return layer_fd;
	stack->is_full = workspace->record.is_full;
	stack->top_fd = layer_open_data(layer_fd, workspace->record.live, O_PATH, reterr);
	if (stack->top_fd < 0)
		return stack->top_fd;
	stack->work_fd = openat(layer_fd, "work", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (stack->work_fd < 0)
		return error_set_errno(reterr, ABOX_E_DAMAGED, STAGE, workspace->record.live, errno,
			"cannot open the work folder");
	return 0;
}

int workspace_open_chain(
	abox_workspace *workspace, const char *top, struct layer_stack *retstack, abox_error **reterr)
{
	_cleanup_(layer_stack_clear) struct layer_stack stack = LAYER_STACK_INIT;
	int r;

	stack.flavour = workspace->record.flavour;
	stack.ids = workspace->record.ids;
	r = stack_add_chain(workspace, &stack, top, reterr);
	if (r < 0)
		return r;
	*retstack = stack;
	stack = LAYER_STACK_INIT;
	return 0;
}

int workspace_open_stack(
	abox_workspace *workspace, const char *snapshot, struct layer_stack *retstack, abox_error **reterr)
{
	_cleanup_(layer_stack_clear) struct layer_stack stack = LAYER_STACK_INIT;
	const struct snapshot_record *found =
		snapshot ? workspace_record_find(&workspace->record, snapshot) : NULL;
	int r;

	if (snapshot && !found)
		return error_set(
			reterr, ABOX_E_NOT_FOUND, STAGE, snapshot, "the workspace has no such snapshot");
	stack.flavour = workspace->record.flavour;
	stack.ids = workspace->record.ids;
	if (!found && workspace->record.mode == WORKSPACE_DIRECT) {
		stack.is_full = true;
		stack.top_fd = workspace_open_host_base(&workspace->record.base, reterr);
		if (stack.top_fd < 0)
			return stack.top_fd;
	} else {
		r = found ? 0 : stack_add_live(workspace, &stack, reterr);
		if (r >= 0)
			r = stack_add_chain(
				workspace, &stack, found ? found->layer : workspace->record.parent, reterr);
		if (r < 0)
			return r;
	}
	*retstack = stack;
	stack = LAYER_STACK_INIT;
	return 0;
}

void workspace_unrefp(abox_workspace **workspace)
{
	abox_workspace_unref(*workspace);
}

abox_workspace *abox_workspace_ref(abox_workspace *workspace)
{
	if (workspace)
		__atomic_add_fetch(&workspace->refs, 1, __ATOMIC_RELAXED);
	return workspace;
}

abox_workspace *abox_workspace_unref(abox_workspace *workspace)
{
	if (!workspace || __atomic_sub_fetch(&workspace->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return NULL;
	workspace_record_clear(&workspace->record);
	fd_close(workspace->lock_fd);
	fd_close(workspace->dir_fd);
	fd_close(workspace->home_fd);
	free(workspace);
	return NULL;
}

int abox_workspace_open(const char *ref, abox_workspace **ret, abox_error **reterr)
{
	_cleanup_(fd_closep) int home_fd = -EBADF;
	char id[STORE_ID_BYTES];
	int r;

	if (!ref || !ret)
		return error_set(reterr, ABOX_E_INVALID, STAGE, NULL, "ref and ret are required");
	home_fd = home_open(reterr);
	if (home_fd < 0)
		return home_fd;
	r = workspace_resolve(home_fd, ref, id, reterr);
	return r < 0 ? r : workspace_open_id(home_fd, id, ret, reterr);
}

const char *abox_workspace_get_id(const abox_workspace *workspace)
{
	return workspace ? workspace->record.id : NULL;
}

const char *abox_workspace_get_name(const abox_workspace *workspace)
{
	return workspace ? workspace->record.name : NULL;
}

int abox_workspace_dump(abox_workspace *workspace, char **retjson, abox_error **reterr)
{
	_cleanup_(json_unrefp) struct json *json = NULL;
	int r;

	if (!workspace || !retjson)
		return error_set(reterr, ABOX_E_INVALID, STAGE, NULL, "workspace and retjson are required");
	if (workspace->lock_depth == 0) { /* a record is replaced by rename: reading needs no lock */
		r = workspace_refresh(workspace, reterr);
		if (r < 0)
			return r;
	}
	r = workspace_record_to_json(&workspace->record, &json);
	return r < 0 ? r : json_print_new(json, retjson);
}

int abox_workspace_set_limit(
	abox_workspace *workspace, uint64_t limit_bytes, uint64_t limit_files, abox_error **reterr)
{
	int r;

	if (!workspace)
		return error_set(reterr, ABOX_E_INVALID, STAGE, NULL, "workspace is required");
	if (MAX(limit_bytes, limit_files) > INT64_MAX)
		return error_set(reterr, ABOX_E_INVALID, STAGE, "limit_bytes", "too large");
	r = workspace_lock(workspace, WORKSPACE_EXCLUSIVE, HOME_LOCK_TIMEOUT_USEC, reterr);
	if (r < 0)
		return r;
	r = quota_set(workspace, limit_bytes, limit_files, reterr);
	workspace_unlock(workspace);
	return r;
}
