/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Snapshot, fork, restore. What is promised: each is one replacement of workspace.json, so that a crash at
 * any point leaves the old state or the new; what it leaves beside is found by gc. None of them copies what
 * lies below the live layer, and none but the sealing of the change takes time that grows with the tree.
 *
 * Left out, and told so in the header: a workspace without overlay, whose live layer is a whole tree, is
 * copied.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <agentbox/workspace.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/strings.h"
#include "workspace/home.h"
#include "workspace/layer.h"
#include "workspace/tree.h"
#include "workspace/workspace.h"

#define STAGE ABOX_STAGE_WORKSPACE

/* Adds a snapshot of `layer` to the record. */
static int add_snapshot(struct workspace_record *record, const struct layer_record *layer,
	const struct abox_snapshot_options *options, abox_error **reterr)
{
	struct snapshot_record *snapshots, snapshot = {0};
	int r;

	snapshots = reallocarray(record->snapshots, record->n_snapshots + 1, sizeof(*snapshots));
	if (!snapshots)
		return ABOX_E_MEMORY;
	record->snapshots = snapshots;
	r = home_new_id(snapshot.id, reterr);
	if (r < 0)
		return r;
	snapshot.name = options->name ? strdup(options->name) : NULL;
	if (options->name && !snapshot.name)
		return ABOX_E_MEMORY;
	memcpy(snapshot.layer, layer->id, STORE_ID_BYTES);
	memcpy(snapshot.parent, record->head, STORE_ID_BYTES);
	memcpy(record->head, snapshot.id, STORE_ID_BYTES);
	snapshot.created_usec = clock_wall_usec();
	snapshot.ttl_usec = options->ttl_usec;
	snapshot.n_entries = layer->n_entries;
	snapshot.n_bytes = layer->n_bytes;
	record->snapshots[record->n_snapshots++] = snapshot;
	return 0;
}

/* The oldest go first; one that has a name stays until it is removed or expires. */
static void keep_last(struct workspace_record *record, uint32_t keep)
{
	size_t unnamed = 0, kept = 0;

	for (size_t i = 0; i < record->n_snapshots; i++)
		unnamed += !record->snapshots[i].name;
	for (size_t i = 0; i < record->n_snapshots; i++) {
		if (!record->snapshots[i].name && unnamed > keep) {
			unnamed--;
			snapshot_record_clear(&record->snapshots[i]);
		} else {
			record->snapshots[kept++] = record->snapshots[i];
		}
	}
	record->n_snapshots = kept;
}

/* The live layer becomes a frozen one below a new live layer; without options it gets no name as a snapshot.
 */
static int freeze_live(abox_workspace *workspace, const struct layer_record *layer,
	const struct abox_snapshot_options *options, struct workspace_record *next, abox_error **reterr)
{
	_cleanup_(fd_closep) int store_lock_fd = -EBADF, layer_fd = -EBADF, data_fd = -EBADF;
	int r;

	r = home_lock_store(workspace->home_fd, &store_lock_fd, reterr);
	if (r < 0)
		return r;
	layer_fd = layer_open(workspace->home_fd, layer->id, reterr);
	if (layer_fd < 0)
		return layer_fd;
	/* A crash after this leaves a live layer that says it is frozen: workspace.json is what counts. */
	r = layer_record_write(layer_fd, layer, reterr);
	if (r < 0)
		return r;
	data_fd = layer_open_data(layer_fd, layer->id, O_RDONLY, reterr);
	if (data_fd < 0)
		return data_fd;
	r = layer_new_live(workspace->home_fd, next->flavour, &next->ids, data_fd, next->live, reterr);
	if (r < 0)
		return r;
	memcpy(next->parent, layer->id, STORE_ID_BYTES);
	next->boot[0] = 0; /* all of it is on the disk */
	r = options ? add_snapshot(next, layer, options, reterr) : 0;
	if (r < 0)
		return r;
	if (options && options->keep_last > 0)
		keep_last(next, options->keep_last);
	return workspace_commit(workspace, next, reterr);
}

/* Whole trees, and layers that are in use: the snapshot is a copy, and the live layer stays what it is. */
static int copy_live(abox_workspace *workspace, int upper_fd, const struct abox_snapshot_options *options,
	struct workspace_record *next, abox_error **reterr)
{
	bool direct = next->mode == WORKSPACE_DIRECT;
	struct tree_copy copy = {
		.flags = direct ? 0 : TREE_COPY_LAYER, .flavour = next->flavour, .ids = next->ids};
	struct layer_record layer = {.is_full = direct || next->is_full, .is_base = direct};
	_cleanup_(layer_stack_clear) struct layer_stack stack = LAYER_STACK_INIT;
	_cleanup_(layer_build_clear) struct layer_build build = LAYER_BUILD_INIT;
	_cleanup_(fd_closep) int store_lock_fd = -EBADF;
	int r;

	r = workspace_open_stack(workspace, NULL, &stack, reterr);
	if (r < 0)
		return r;
	r = layer_build_begin(&build, reterr);
	if (r < 0)
		return r;
	build.flavour = next->flavour;
	build.ids = next->ids;
	r = tree_copy(upper_fd >= 0 ? upper_fd : stack.top_fd, build.data_fd, &copy, reterr);
	if (r < 0)
		return r;
	memcpy(layer.parent, next->parent, STORE_ID_BYTES);
	r = layer_build_freeze(&build, &layer, reterr);
	if (r >= 0)
		r = home_lock_store(workspace->home_fd, &store_lock_fd, reterr);
	if (r >= 0)
		r = add_snapshot(next, &layer, options, reterr);
	if (r < 0)
		return r;
	if (options->keep_last > 0)
		keep_last(next, options->keep_last);
	r = workspace_commit(workspace, next, reterr);
	if (r < 0)
		return r;
	layer_build_taken(&build);
	return 0;
}

static int seal_and_freeze(abox_workspace *workspace, const struct abox_snapshot_options *options,
	struct workspace_record *next, abox_error **reterr)
{
	_cleanup_(fd_closep) int layer_fd = -EBADF;
	struct layer_record layer;
	int r;

	r = workspace_check_trusted(workspace, reterr);
	if (r < 0)
		return r;
	layer_fd = layer_open(workspace->home_fd, next->live, reterr);
	if (layer_fd < 0)
		return layer_fd;
	r = layer_record_read(layer_fd, &layer, reterr);
	if (r < 0)
		return r;
	memcpy(layer.parent, next->parent, STORE_ID_BYTES);
	/* Success is told only for what was read to the last byte and is on the disk. */
	r = layer_seal(layer_fd, &layer, reterr);
	return r < 0 ? r : freeze_live(workspace, &layer, options, next, reterr);
}

static int take_snapshot(
	abox_workspace *workspace, const struct abox_snapshot_options *options, abox_error **reterr)
{
	_cleanup_(workspace_record_clear) struct workspace_record next = {0};
	int r;

	if (options->name && workspace_record_find(&workspace->record, options->name))
		return error_set(reterr, ABOX_E_EXISTS, STAGE, options->name,
			"the workspace has a snapshot of this name");
	r = workspace_record_copy(&workspace->record, &next);
	if (r < 0)
		return r;
	if (next.mode == WORKSPACE_DIRECT || next.is_full)
		return copy_live(workspace, -EBADF, options, &next, reterr);
	return seal_and_freeze(workspace, options, &next, reterr);
}

static int check_layered(const abox_workspace *workspace, abox_error **reterr)
{
	if (workspace->record.mode == WORKSPACE_DIRECT || workspace->record.is_full)
		return error_set(reterr, ABOX_E_UNSUPPORTED, STAGE, workspace->record.id,
			"the workspace is one whole tree, not made of layers");
	return 0;
}

/* An empty live layer stays: a chain does not grow by what changes nothing. */
static bool live_is_empty(const abox_workspace *workspace)
{
	_cleanup_(fd_closep) int layer_fd = layer_open(workspace->home_fd, workspace->record.live, NULL);
	int fd = layer_fd < 0 ? -1 : layer_open_data(layer_fd, workspace->record.live, O_RDONLY, NULL), n = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir) {
		fd_close(fd);
		return false;
	}
	while (n <= 2 && readdir(dir))
		n++;
	closedir(dir);
	return n == 2;
}

int workspace_push(abox_workspace *workspace, abox_error **reterr)
{
	_cleanup_(workspace_record_clear) struct workspace_record next = {0};
	int r;

	r = check_layered(workspace, reterr);
	if (r < 0 || live_is_empty(workspace))
		return r;
	r = workspace_record_copy(&workspace->record, &next);
	if (r >= 0)
		r = seal_and_freeze(workspace, NULL, &next, reterr);
	if (r >= 0)
		(void)workspace_merge(workspace, NULL); /* gc tries again */
	return r;
}

int workspace_replace_live(abox_workspace *workspace, int upper_fd, bool unsettled, abox_error **reterr)
{
	struct tree_copy copy = {
		.flags = TREE_COPY_LAYER, .flavour = workspace->record.flavour, .ids = workspace->record.ids};
	_cleanup_(workspace_record_clear) struct workspace_record next = {0};
	_cleanup_(layer_build_clear) struct layer_build build = LAYER_BUILD_INIT;
	_cleanup_(fd_closep) int store_lock_fd = -EBADF;
	struct layer_record layer = {0};
	char old[STORE_ID_BYTES];
	int r;

	r = check_layered(workspace, reterr);
	if (r >= 0)
		r = workspace_record_copy(&workspace->record, &next);
	if (r >= 0)
		r = layer_build_begin(&build, reterr);
	if (r < 0)
		return r;
	build.flavour = next.flavour;
	build.ids = next.ids;
	r = tree_copy(upper_fd, build.data_fd, &copy, reterr);
	if (r >= 0)
		r = layer_build_freeze(
			&build, &layer, reterr); /* on the disk; the record says live all the same */
	if (r >= 0)
		r = home_lock_store(workspace->home_fd, &store_lock_fd, reterr);
	if (r < 0)
		return r;
	memcpy(old, next.live, STORE_ID_BYTES);
	memcpy(next.live, build.id, STORE_ID_BYTES);
	if (!unsettled)
		next.boot[0] = 0;
	r = workspace_commit(workspace, &next, reterr);
	if (r < 0)
		return r;
	layer_build_taken(&build);
	store_lock_fd = fd_close(store_lock_fd);
	layer_discard(workspace->home_fd, old);
	return 0;
}

static int check_snapshot_options(const struct abox_snapshot_options *options, abox_error **reterr)
{
	if (options->size < sizeof(*options))
		return error_set(reterr, ABOX_E_INVALID, STAGE, "size", "the options were not initialised");
	if (options->flags & ~(uint32_t)ABOX_SNAPSHOT_DEFER_MERGE)
		return error_set(reterr, ABOX_E_INVALID, STAGE, "flags", "there is no such flag");
	return workspace_check_new(options->name, NULL, options->ttl_usec, reterr);
}

void abox_snapshot_options_init(struct abox_snapshot_options *options)
{
	if (options)
		*options = (struct abox_snapshot_options)ABOX_SNAPSHOT_OPTIONS_INIT;
}

int abox_workspace_snapshot(abox_workspace *workspace, const struct abox_snapshot_options *options,
	char **retid, abox_error **reterr)
{
	static const struct abox_snapshot_options defaults = ABOX_SNAPSHOT_OPTIONS_INIT;
	_cleanup_(freep) char *id = NULL;
	size_t n_before, n_after;
	int r;

	if (!workspace)
		return error_set(reterr, ABOX_E_INVALID, STAGE, NULL, "workspace is required");
	options = options ? options : &defaults;
	r = check_snapshot_options(options, reterr);
	if (r < 0)
		return r;
	id = malloc(STORE_ID_BYTES);
	if (!id)
		return ABOX_E_MEMORY;
	r = workspace_lock(workspace, WORKSPACE_EXCLUSIVE, HOME_LOCK_TIMEOUT_USEC, reterr);
	if (r < 0)
		return r;
	n_before = workspace->record.n_snapshots;
	r = take_snapshot(workspace, options, reterr);
	memcpy(id, workspace->record.head, STORE_ID_BYTES);
	if (r >= 0 && !(options->flags & ABOX_SNAPSHOT_DEFER_MERGE))
		(void)workspace_merge(workspace, NULL); /* the snapshot is made: gc tries again */
	n_after = workspace->record.n_snapshots;
	workspace_unlock(workspace);
	if (r < 0)
		return r;
	if (n_after <= n_before)
		workspace_tidy(workspace->home_fd);
	if (retid)
		*retid = steal_ptr(id);
	return 0;
}

int workspace_snapshot_in_use(abox_workspace *workspace, int upper_fd,
	const struct abox_snapshot_options *options, char retid[STORE_ID_BYTES], abox_error **reterr)
{
	static const struct abox_snapshot_options defaults = ABOX_SNAPSHOT_OPTIONS_INIT;
	_cleanup_(workspace_record_clear) struct workspace_record next = {0};
	int r;

	options = options ? options : &defaults;
	r = check_snapshot_options(options, reterr);
	if (r < 0)
		return r;
	if (options->name && workspace_record_find(&workspace->record, options->name))
		return error_set(reterr, ABOX_E_EXISTS, STAGE, options->name,
			"the workspace has a snapshot of this name");
	r = workspace_record_copy(&workspace->record, &next);
	if (r >= 0)
		r = copy_live(workspace, upper_fd, options, &next, reterr);
	if (r >= 0)
		memcpy(retid, workspace->record.head, STORE_ID_BYTES);
	return r;
}

/* The record of a fork: what it inherits is the base, the ids and the layers; nothing of the run. */
static int fork_record(const abox_workspace *origin, const struct snapshot_record *snapshot,
	const struct abox_workspace_options *options, struct workspace_record *ret, abox_error **reterr)
{
	_cleanup_(workspace_record_clear) struct workspace_record record = {0};
	int r;

	r = home_new_id(record.id, reterr);
	if (r >= 0)
		r = workspace_base_copy(&origin->record.base, &record.base);
	if (r < 0)
		return r;
	record.name = options->name ? strdup(options->name) : NULL;
	record.task = options->task ? strdup(options->task) : NULL;
	if ((options->name && !record.name) || (options->task && !record.task))
		return ABOX_E_MEMORY;
	record.mode = origin->record.mode;
	record.is_full = origin->record.is_full;
	if (record.mode == WORKSPACE_DIRECT) {
		/* The folder goes on living; the fork is above the copy that the snapshot is. */
		record.mode = WORKSPACE_COPY;
		record.base.since_sec = (int64_t)(snapshot->created_usec / USEC_PER_SEC);
		record.base.since_nsec = (uint32_t)(snapshot->created_usec % USEC_PER_SEC * NSEC_PER_USEC);
	}
	record.flavour = origin->record.flavour;
	record.ids = origin->record.ids;
	record.created_usec = clock_wall_usec();
	record.ttl_usec = options->ttl_usec;
	memcpy(record.base.workspace, origin->record.id, STORE_ID_BYTES);
	memcpy(record.base.snapshot, snapshot->id, STORE_ID_BYTES);
	memcpy(record.head, snapshot->id, STORE_ID_BYTES);
	memcpy(record.parent, snapshot->layer, STORE_ID_BYTES);
	memcpy(record.inherited, snapshot->layer, STORE_ID_BYTES);
	record.limit_bytes = options->limit_bytes;
	record.limit_inodes = options->limit_files;
	*ret = record;
	record = (struct workspace_record){0};
	return 0;
}

/* A live layer that is a copy of the whole tree in layer `from`, beside layer `parent`. */
static int build_whole_live(int home_fd, const char *from, const struct workspace_record *record,
	struct layer_build *ret, char retparent[STORE_ID_BYTES], abox_error **reterr)
{
	struct tree_copy copy = {.flags = TREE_COPY_LAYER, .flavour = record->flavour, .ids = record->ids};
	_cleanup_(fd_closep) int layer_fd = layer_open(home_fd, from, reterr), data_fd = -EBADF;
	struct layer_record layer, live = {.is_full = true};
	int r;

	if (layer_fd < 0)
		return layer_fd;
	r = layer_record_read(layer_fd, &layer, reterr);
	if (r < 0)
		return r;
	data_fd = layer_open_data(layer_fd, from, O_RDONLY, reterr);
	if (data_fd < 0)
		return data_fd;
	r = layer_build_begin(ret, reterr);
	if (r < 0)
		return r;
	ret->ids = record->ids;
	r = tree_copy(data_fd, ret->data_fd, &copy, reterr);
	if (r < 0)
		return r;
	memcpy(live.id, ret->id, STORE_ID_BYTES);
	memcpy(live.parent, layer.parent, STORE_ID_BYTES);
	live.flavour = ret->flavour;
	live.ids = ret->ids;
	memcpy(retparent, layer.parent, STORE_ID_BYTES);
	return layer_record_write(ret->dir_fd, &live, reterr);
}

/* Puts the fork in place while nobody can remove the snapshot. */
static int put_fork(abox_workspace *origin, const char *snapshot, struct workspace_record *record,
	abox_workspace **ret, abox_error **reterr)
{
	_cleanup_(fd_closep) int store_lock_fd = -EBADF, layer_fd = -EBADF, data_fd = -EBADF;
	_cleanup_(layer_chain_clear) struct layer_chain chain = {0};
	const struct snapshot_record *found;
	int r;

	r = home_lock_store(origin->home_fd, &store_lock_fd, reterr);
	if (r >= 0)
		r = workspace_refresh(origin, reterr);
	if (r < 0)
		return r;
	found = workspace_record_find(&origin->record, snapshot);
	if (!found)
		return error_set(reterr, ABOX_E_NOT_FOUND, STAGE, snapshot, "the snapshot was removed");
	r = layer_chain_read(origin->home_fd, found->layer, record->flavour, &chain, reterr);
	if (r < 0)
		return r;
	layer_fd = layer_open(origin->home_fd, found->layer, reterr);
	if (layer_fd < 0)
		return layer_fd;
	data_fd = layer_open_data(layer_fd, found->layer, O_RDONLY, reterr);
	if (data_fd < 0)
		return data_fd;
	return workspace_begin_new(origin->home_fd, record, data_fd, ret, reterr);
}

static int fork_snapshot(abox_workspace *origin, const char *snapshot,
	const struct abox_workspace_options *options, abox_workspace **ret, abox_error **reterr)
{
	_cleanup_(workspace_record_clear) struct workspace_record record = {0};
	_cleanup_(layer_build_clear) struct layer_build whole = LAYER_BUILD_INIT;
	const struct snapshot_record *found = workspace_record_find(&origin->record, snapshot);
	char id[STORE_ID_BYTES];
	int r;

	if (!found)
		return error_set(
			reterr, ABOX_E_NOT_FOUND, STAGE, snapshot, "the workspace has no such snapshot");
	r = fork_record(origin, found, options, &record, reterr);
	if (r < 0)
		return r;
	if (record.is_full) {
		r = build_whole_live(origin->home_fd, found->layer, &record, &whole, record.parent, reterr);
		if (r < 0)
			return r;
		memcpy(record.live, whole.id, STORE_ID_BYTES);
	}
	memcpy(id, found->id, STORE_ID_BYTES); /* the record is read again */
	r = put_fork(origin, id, &record, ret, reterr);
	if (r >= 0)
		layer_build_taken(&whole);
	return r;
}

static int check_fork_options(const abox_workspace *origin, const struct abox_workspace_options *options, abox_error **reterr)
{
	if (options->size < sizeof(*options))
		return error_set(reterr, ABOX_E_INVALID, STAGE, "size", "the options were not initialised");
	if (options->flags)
		return error_set(reterr, ABOX_E_INVALID, STAGE, "flags", "a fork is as what it comes from");
	if (MAX(options->limit_bytes, options->limit_files) > INT64_MAX)
		return error_set(reterr, ABOX_E_INVALID, STAGE, "limit_bytes", "too large");
	if (origin->record.is_full && (options->limit_bytes || options->limit_files))
		return error_set(reterr, ABOX_E_UNSUPPORTED, STAGE, "limit_bytes",
			"without overlay there is no layer that could be bounded");
	return workspace_check_new(options->name, options->task, options->ttl_usec, reterr);
}

int abox_workspace_fork(abox_workspace *origin, const char *snapshot,
	const struct abox_workspace_options *options, abox_workspace **ret, abox_error **reterr)
{
	static const struct abox_workspace_options defaults = ABOX_WORKSPACE_OPTIONS_INIT;
	static const struct abox_snapshot_options unnamed = ABOX_SNAPSHOT_OPTIONS_INIT;
	int r;

	if (!origin || !ret)
		return error_set(reterr, ABOX_E_INVALID, STAGE, NULL, "workspace and ret are required");
	options = options ? options : &defaults;
	r = check_fork_options(origin, options, reterr);
	if (r < 0)
		return r;
	/* A snapshot does not change: it can be forked while a box has the workspace. */
	if (snapshot) {
		r = workspace_refresh(origin, reterr);
		return r < 0 ? r : fork_snapshot(origin, snapshot, options, ret, reterr);
	}
	r = workspace_lock(origin, WORKSPACE_EXCLUSIVE, HOME_LOCK_TIMEOUT_USEC, reterr);
	if (r < 0)
		return r;
	r = take_snapshot(origin, &unnamed, reterr);
	if (r >= 0)
		r = fork_snapshot(origin, origin->record.head, options, ret, reterr);
	workspace_unlock(origin);
	return r;
}

static int restore_snapshot(
	abox_workspace *workspace, const struct snapshot_record *snapshot, abox_error **reterr)
{
	_cleanup_(fd_closep) int store_lock_fd = -EBADF, layer_fd = -EBADF, data_fd = -EBADF;
	_cleanup_(workspace_record_clear) struct workspace_record next = {0};
	_cleanup_(layer_build_clear) struct layer_build whole = LAYER_BUILD_INIT;
	_cleanup_(layer_chain_clear) struct layer_chain chain = {0};
	char old[STORE_ID_BYTES];
	int r;

	r = workspace_record_copy(&workspace->record, &next);
	if (r < 0)
		return r;
	r = layer_chain_read(workspace->home_fd, snapshot->layer, next.flavour, &chain, reterr);
	if (r < 0)
		return r;
	memcpy(next.parent, snapshot->layer, STORE_ID_BYTES);
	memcpy(next.head, snapshot->id, STORE_ID_BYTES);
	next.boot[0] = 0;
	if (next.is_full) {
		r = build_whole_live(workspace->home_fd, snapshot->layer, &next, &whole, next.parent, reterr);
		if (r < 0)
			return r;
	}
	r = home_lock_store(workspace->home_fd, &store_lock_fd, reterr);
	if (r < 0)
		return r;
	layer_fd = layer_open(workspace->home_fd, snapshot->layer, reterr);
	if (layer_fd < 0)
		return layer_fd;
	data_fd = layer_open_data(layer_fd, snapshot->layer, O_RDONLY, reterr);
	if (data_fd < 0)
		return data_fd;
	if (next.is_full)
		memcpy(next.live, whole.id, STORE_ID_BYTES);
	else
		r = layer_new_live(workspace->home_fd, next.flavour, &next.ids, data_fd, next.live, reterr);
	if (r < 0)
		return r;
	memcpy(old, workspace->record.live, STORE_ID_BYTES);
	r = workspace_commit(workspace, &next, reterr);
	if (r < 0)
		return r;
	layer_build_taken(&whole);
	store_lock_fd = fd_close(store_lock_fd);
	layer_discard(workspace->home_fd, old);
	return 0;
}

/* The live layer is made anew from the base layer, or empty where there is none. */
static int reset_to_base(abox_workspace *workspace, abox_error **reterr)
{
	_cleanup_(workspace_record_clear) struct workspace_record next = {0};
	_cleanup_(layer_build_clear) struct layer_build whole = LAYER_BUILD_INIT;
	_cleanup_(fd_closep) int store_lock_fd = -EBADF;
	char old[STORE_ID_BYTES], above[STORE_ID_BYTES];
	int r;

	memcpy(old, workspace->record.live, STORE_ID_BYTES);
	r = workspace_record_copy(&workspace->record, &next);
	if (r >= 0 && next.parent[0])
		r = build_whole_live(workspace->home_fd, next.parent, &next, &whole, above, reterr);
	if (r >= 0)
		r = home_lock_store(workspace->home_fd, &store_lock_fd, reterr);
	if (r < 0)
		return r;
	if (next.parent[0])
		memcpy(next.live, whole.id, STORE_ID_BYTES);
	else
		r = layer_new_live(workspace->home_fd, next.flavour, &next.ids, -EBADF, next.live, reterr);
	next.boot[0] = 0;
	if (r >= 0)
		r = workspace_commit(workspace, &next, reterr);
	if (r < 0)
		return r;
	layer_build_taken(&whole);
	store_lock_fd = fd_close(store_lock_fd);
	layer_discard(workspace->home_fd, old);
	return 0;
}

int workspace_reset_whole(abox_workspace *workspace, abox_error **reterr)
{
	const struct snapshot_record *head =
		workspace->record.head[0] ? workspace_record_find(&workspace->record, workspace->record.head)
					  : NULL;

	if (head)
		return restore_snapshot(workspace, head, reterr);
	if (workspace->record.base.snapshot[0])
		return error_remedy(reterr,
			error_set(reterr, ABOX_E_UNSUPPORTED, STAGE, workspace->record.id,
				"a fork without overlay has no state of its own to go back to"),
			"take a snapshot of it before it is used");
	return reset_to_base(workspace, reterr);
}

int abox_workspace_restore(abox_workspace *workspace, const char *snapshot, abox_error **reterr)
{
	const struct snapshot_record *found;
	int r;

	if (!workspace || !snapshot)
		return error_set(reterr, ABOX_E_INVALID, STAGE, NULL, "workspace and snapshot are required");
	r = workspace_lock(workspace, WORKSPACE_EXCLUSIVE, HOME_LOCK_TIMEOUT_USEC, reterr);
	if (r < 0)
		return r;
	found = workspace_record_find(&workspace->record, snapshot);
	if (!found)
		r = error_set(
			reterr, ABOX_E_NOT_FOUND, STAGE, snapshot, "the workspace has no such snapshot");
	else if (workspace->record.mode == WORKSPACE_DIRECT)
		r = error_remedy(reterr,
			error_set(reterr, ABOX_E_UNSUPPORTED, STAGE, workspace->record.base.path,
				"the folder itself is the workspace and is not overwritten"),
			"fork the snapshot");
	else
		r = restore_snapshot(workspace, found, reterr);
	workspace_unlock(workspace);
	return r;
}

int abox_workspace_verify(abox_workspace *workspace, const char *snapshot, abox_error **reterr)
{
	_cleanup_(layer_chain_clear) struct layer_chain chain = {0};
	const struct snapshot_record *found;
	int r;

	if (!workspace || !snapshot)
		return error_set(reterr, ABOX_E_INVALID, STAGE, NULL, "workspace and snapshot are required");
	r = workspace_lock(workspace, WORKSPACE_SHARED, HOME_LOCK_TIMEOUT_USEC, reterr);
	if (r < 0)
		return r;
	found = workspace_record_find(&workspace->record, snapshot);
	if (!found)
		r = error_set(
			reterr, ABOX_E_NOT_FOUND, STAGE, snapshot, "the workspace has no such snapshot");
	else
		r = layer_chain_read(
			workspace->home_fd, found->layer, workspace->record.flavour, &chain, reterr);
	for (size_t i = 0; r >= 0 && i < chain.n; i++)
		r = layer_check(workspace->home_fd, chain.records[i].id, reterr);
	workspace_unlock(workspace);
	return r;
}
