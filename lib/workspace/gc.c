/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Removing: snapshots, workspaces, and what nothing leads to any more. What is promised: a layer goes only
 * when no record leads to it, seen while no record can change; when a single record cannot be read, no layer
 * goes at all. A workspace whose layers others have forked goes without harm to them: layers belong to
 * whoever leads to them.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <agentbox/workspace.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/map.h"
#include "base/strings.h"
#include "workspace/home.h"
#include "workspace/apply.h"
#include "workspace/layer.h"
#include "workspace/workspace.h"

#define STAGE ABOX_STAGE_WORKSPACE

struct sweep {
	int home_fd;
	uint64_t now_usec;
	struct map reached; /* ids of layers; the keys are owned by `ids` */
	char **ids;
	size_t n_ids, allocated;
	char (*expired)[STORE_ID_BYTES]; /* workspaces to look at */
	size_t n_expired;
	char (*merging)[STORE_ID_BYTES];
	size_t n_merging;
	uint64_t n_unreadable;
	uint64_t n_workspaces, n_snapshots, n_results, n_layers, n_merged, n_removed, n_left; /* answers */
};

static void sweep_clear(struct sweep *sweep)
{
	map_clear(&sweep->reached);
	for (size_t i = 0; i < sweep->n_ids; i++)
		free(sweep->ids[i]);
	free(sweep->ids);
	free(sweep->expired);
	free(sweep->merging);
	fd_close(sweep->home_fd);
}

/* 1 when it was reached before. */
static int reach_one(struct sweep *sweep, const char *id)
{
	if (map_get_string(&sweep->reached, id))
		return 1;
	if (sweep->n_ids == sweep->allocated) {
		size_t more = sweep->allocated ? sweep->allocated * 2 : 64;
		char **ids = reallocarray(sweep->ids, more, sizeof(*ids));

		if (!ids)
			return ABOX_E_MEMORY;
		sweep->ids = ids;
		sweep->allocated = more;
	}
	sweep->ids[sweep->n_ids] = strdup(id);
	if (!sweep->ids[sweep->n_ids])
		return ABOX_E_MEMORY;
	return map_put_string(&sweep->reached, sweep->ids[sweep->n_ids++], sweep);
}

/* A layer and those below it. A chain that is broken reaches as far as it goes: its workspace is damaged, and
 * nothing of what is left of it may go. */
static int reach_chain(struct sweep *sweep, const char *top)
{
	char id[STORE_ID_BYTES];

	memcpy(id, top, STORE_ID_BYTES);
	while (id[0]) {
		_cleanup_(fd_closep) int fd = -EBADF;
		struct layer_record record;
		int r;

		r = reach_one(sweep, id);
		if (r != 0)
			return r < 0 ? r : 0;
		fd = layer_open(sweep->home_fd, id, NULL);
		r = fd < 0 ? fd : layer_record_read(fd, &record, NULL);
		if (r == ABOX_E_MEMORY)
			return r;
		if (r < 0)
			break;
		memcpy(id, record.parent, STORE_ID_BYTES);
	}
	return 0;
}

static int reach_workspace(void *userdata, abox_workspace *workspace, abox_error **reterr)
{
	const struct workspace_record *record = &workspace->record;
	struct sweep *sweep = userdata;
	int r;

	r = reach_chain(sweep, record->live);
	if (r >= 0)
		r = reach_chain(sweep, record->parent);
	for (size_t i = 0; r >= 0 && i < record->n_snapshots; i++)
		r = reach_chain(sweep, record->snapshots[i].layer);
	return r;
}

static int remember(char (**ids)[STORE_ID_BYTES], size_t *n, const char *id)
{
	void *more = reallocarray(*ids, *n + 1, STORE_ID_BYTES);

	if (!more)
		return ABOX_E_MEMORY;
	*ids = more;
	memcpy((*ids)[(*n)++], id, STORE_ID_BYTES);
	return 0;
}

static int look_at_age(void *userdata, abox_workspace *workspace, abox_error **reterr)
{
	const struct workspace_record *record = &workspace->record;
	bool expired = workspace_record_expired(record, ((struct sweep *)userdata)->now_usec);
	_cleanup_(layer_chain_clear) struct layer_chain chain = {0};
	struct sweep *sweep = userdata;
	int r;

	for (size_t i = 0; !expired && i < record->n_snapshots; i++)
		expired = snapshot_record_expired(&record->snapshots[i], sweep->now_usec);
	if (expired)
		return remember(&sweep->expired, &sweep->n_expired, record->id);
	r = layer_chain_read(sweep->home_fd, record->parent, record->flavour, &chain, NULL);
	if (r >= 0 && chain.n > STORE_MERGE_ABOVE)
		r = remember(&sweep->merging, &sweep->n_merging, record->id);
	return r == ABOX_E_MEMORY ? r : 0;
}

/* Without the snapshots that `keep` refuses. What came after one that goes now comes after the one before it.
 */
static int drop_snapshots(abox_workspace *workspace,
	bool (*drop)(const struct snapshot_record *snapshot, const void *userdata), const void *userdata,
	uint64_t *n_dropped, abox_error **reterr)
{
	_cleanup_(workspace_record_clear) struct workspace_record next = {0};
	_cleanup_(fd_closep) int store_lock_fd = -EBADF;
	size_t kept = 0;
	int r;

	r = workspace_record_copy(&workspace->record, &next);
	if (r < 0)
		return r;
	for (size_t i = 0; i < next.n_snapshots; i++) {
		struct snapshot_record gone = next.snapshots[i];

		if (!drop(&gone, userdata)) {
			next.snapshots[kept++] = gone;
			continue;
		}
		for (size_t k = i + 1; k < next.n_snapshots; k++)
			if (strcmp(next.snapshots[k].parent, gone.id) == 0)
				memcpy(next.snapshots[k].parent, gone.parent, STORE_ID_BYTES);
		if (strcmp(next.head, gone.id) == 0)
			memcpy(next.head, gone.parent, STORE_ID_BYTES);
		snapshot_record_clear(&gone);
	}
	*n_dropped += next.n_snapshots - kept;
	if (kept == next.n_snapshots)
		return 0;
	next.n_snapshots = kept;
	/* A fork looks at the record while it holds this lock. */
	r = home_lock_store(workspace->home_fd, &store_lock_fd, reterr);
	return r < 0 ? r : workspace_commit(workspace, &next, reterr);
}

static bool is_expired(const struct snapshot_record *snapshot, const void *userdata)
{
	return snapshot_record_expired(snapshot, *(const uint64_t *)userdata);
}

static bool is_this(const struct snapshot_record *snapshot, const void *userdata)
{
	return strcmp(snapshot->id, userdata) == 0;
}

/* One that is in use is left alone: it is looked at again next time. */
static int expire_one(struct sweep *sweep, const char *id, abox_error **reterr)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL;
	_cleanup_(fd_closep) int store_lock_fd = -EBADF;
	int r;

	r = workspace_open_id(sweep->home_fd, id, &workspace, NULL);
	if (r >= 0)
		r = workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, NULL);
	if (r < 0)
		return r == ABOX_E_MEMORY ? r : 0;
	/* The undo journal of an apply must not go with the workspace. */
	r = workspace_recover(workspace, NULL);
	if (r < 0) {
		workspace_unlock(workspace);
		return r == ABOX_E_MEMORY ? r : 0;
	}
	if (!workspace_record_expired(&workspace->record, sweep->now_usec)) {
		r = drop_snapshots(workspace, is_expired, &sweep->now_usec, &sweep->n_snapshots, reterr);
	} else {
		r = home_lock_store(sweep->home_fd, &store_lock_fd, reterr);
		if (r >= 0)
			r = workspace_discard(workspace, reterr);
		sweep->n_workspaces += r >= 0;
	}
	workspace_unlock(workspace);
	return r;
}

static int merge_one(struct sweep *sweep, const char *id)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL;
	int r;

	r = workspace_open_id(sweep->home_fd, id, &workspace, NULL);
	if (r >= 0)
		r = workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, NULL);
	if (r < 0)
		return r;
	r = workspace_merge(workspace, NULL);
	sweep->n_merged += r >= 0;
	workspace_unlock(workspace);
	return r;
}

/* Nobody is making it: its lock can be had. */
static bool is_idle(int home_fd, const char *folder, const char *id)
{
	_cleanup_(fd_closep) int dir_fd = -EBADF, lock_fd = -EBADF;
	char path[64];

	snprintf(path, sizeof(path), "%s/%s", folder, id);
	dir_fd = openat(home_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return dir_fd >= 0 && home_lock(dir_fd, "lock", true, 0, &lock_fd, NULL) >= 0;
}

static int discard_in(struct sweep *sweep, const char *folder, const char *id)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/%s", folder, id);
	return home_discard(sweep->home_fd, sweep->home_fd, path, NULL);
}

static int list_ids(
	int home_fd, const char *folder, char (**retids)[STORE_ID_BYTES], size_t *retn, abox_error **reterr)
{
	int fd = openat(home_fd, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), r = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!dir) {
		r = error_set_errno(reterr, ABOX_E_SYSTEM, STAGE, folder, errno, "cannot list it");
		fd_close(fd);
		return r;
	}
	while (r >= 0 && (entry = readdir(dir)))
		if (home_is_id(entry->d_name))
			r = remember(retids, retn, entry->d_name);
	closedir(dir);
	return r;
}

static int sweep_layers(struct sweep *sweep, abox_error **reterr)
{
	_cleanup_(freep) char(*ids)[STORE_ID_BYTES] = NULL;
	size_t n = 0;
	int r;

	r = list_ids(sweep->home_fd, HOME_LAYERS, &ids, &n, reterr);
	for (size_t i = 0; r >= 0 && i < n; i++)
		if (!map_get_string(&sweep->reached, ids[i]) &&
			is_idle(sweep->home_fd, HOME_LAYERS, ids[i]) &&
			discard_in(sweep, HOME_LAYERS, ids[i]) >= 0)
			sweep->n_layers++;
	return r;
}

/* Folders of workspaces that never got their record. */
static int sweep_unborn(struct sweep *sweep, abox_error **reterr)
{
	_cleanup_(freep) char(*ids)[STORE_ID_BYTES] = NULL;
	char path[96];
	size_t n = 0;
	int r;

	r = list_ids(sweep->home_fd, HOME_WORKSPACES, &ids, &n, reterr);
	for (size_t i = 0; r >= 0 && i < n; i++) {
		snprintf(path, sizeof(path), HOME_WORKSPACES "/%s/workspace.json", ids[i]);
		if (faccessat(sweep->home_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT &&
			is_idle(sweep->home_fd, HOME_WORKSPACES, ids[i]))
			(void)discard_in(sweep, HOME_WORKSPACES, ids[i]);
	}
	return r;
}

static int sweep_store(struct sweep *sweep, abox_error **reterr)
{
	_cleanup_(fd_closep) int store_lock_fd = -EBADF;
	int r;

	r = home_lock_store(sweep->home_fd, &store_lock_fd, reterr);
	if (r >= 0)
		r = workspace_each(sweep->home_fd, reach_workspace, sweep, &sweep->n_unreadable, reterr);
	if (r >= 0)
		r = sweep_unborn(sweep, reterr);
	/* Security: what a record that cannot be read leads to is not known. */
	if (r >= 0 && sweep->n_unreadable == 0)
		r = sweep_layers(sweep, reterr);
	return r;
}

/* Artifacts and diagnostics of boxes, whose time is over (recorder/results.c writes the note). */
static bool result_expired(const struct sweep *sweep, int results_fd, const char *id)
{
	struct json_bounds bounds = {.max_bytes = 65536, .max_depth = 4, .stage = STAGE};
	_cleanup_(json_unrefp) struct json *note = NULL;
	_cleanup_(freep) char *text = NULL;
	char path[STORE_ID_BYTES + 16];
	uint64_t created, ttl;
	size_t len;

	snprintf(path, sizeof(path), "%s/note.json", id);
	if (file_read_text(results_fd, path, 65536, &text, &len) < 0 ||
		json_parse(text, len, &bounds, &note, NULL) < 0)
		return false;
	created = (uint64_t)json_number(json_member(note, "created_usec"));
	ttl = (uint64_t)json_number(json_member(note, "ttl_usec"));
	return ttl > 0 && sweep->now_usec > created && sweep->now_usec - created > ttl;
}

static int sweep_results(struct sweep *sweep, abox_error **reterr)
{
	_cleanup_(freep) char(*ids)[STORE_ID_BYTES] = NULL;
	_cleanup_(fd_closep) int fd = home_make_folder(sweep->home_fd, HOME_RESULTS, true, reterr);
	size_t n = 0;
	int r;

	if (fd < 0)
		return fd;
	r = list_ids(sweep->home_fd, HOME_RESULTS, &ids, &n, reterr);
	for (size_t i = 0; r >= 0 && i < n; i++)
		if (result_expired(sweep, fd, ids[i]) && discard_in(sweep, HOME_RESULTS, ids[i]) >= 0)
			sweep->n_results++;
	return r;
}

static int sweep_to_json(const struct sweep *sweep, char **retjson)
{
	_cleanup_(json_unrefp) struct json *json = json_new_object();

	if (!json ||
		json_put_member(json, "workspaces", json_new_integer((int64_t)sweep->n_workspaces)) < 0 ||
		json_put_member(json, "snapshots", json_new_integer((int64_t)sweep->n_snapshots)) < 0 ||
		json_put_member(json, "results", json_new_integer((int64_t)sweep->n_results)) < 0 ||
		json_put_member(json, "layers", json_new_integer((int64_t)sweep->n_layers)) < 0 ||
		json_put_member(json, "merged", json_new_integer((int64_t)sweep->n_merged)) < 0 ||
		json_put_member(json, "left_behind", json_new_integer((int64_t)sweep->n_left)) < 0 ||
		json_put_member(json, "unreadable", json_new_integer((int64_t)sweep->n_unreadable)) < 0)
		return ABOX_E_MEMORY;
	return json_print_new(json, retjson);
}

int abox_workspace_gc(char **retjson, abox_error **reterr)
{
	_cleanup_(sweep_clear) struct sweep sweep = {.now_usec = clock_wall_usec()};
	int r;

	sweep.home_fd = home_open(reterr);
	if (sweep.home_fd < 0)
		return sweep.home_fd;
	r = workspace_each(sweep.home_fd, look_at_age, &sweep, NULL, reterr);
	for (size_t i = 0; r >= 0 && i < sweep.n_expired; i++)
		r = expire_one(&sweep, sweep.expired[i], reterr);
	for (size_t i = 0; r >= 0 && i < sweep.n_merging; i++)
		r = merge_one(&sweep, sweep.merging[i]) == ABOX_E_MEMORY ? ABOX_E_MEMORY : 0;
	if (r >= 0)
		r = sweep_results(&sweep, reterr);
	if (r >= 0)
		r = sweep_store(&sweep, reterr);
	if (r < 0)
		return r;
	home_empty_trash(sweep.home_fd, &sweep.n_removed, &sweep.n_left);
	return retjson ? sweep_to_json(&sweep, retjson) : 0;
}

/* After something was let go of: what nothing leads to goes at once, so that space comes back. What fails is
 * found by the next gc. */
void workspace_tidy(int home_fd)
{
	_cleanup_(sweep_clear) struct sweep sweep = {.home_fd = fcntl(home_fd, F_DUPFD_CLOEXEC, 3)};

	if (sweep.home_fd < 0)
		return;
	(void)sweep_store(&sweep, NULL);
	home_empty_trash(home_fd, NULL, NULL);
}

int abox_workspace_remove_snapshot(abox_workspace *workspace, const char *snapshot, abox_error **reterr)
{
	const struct snapshot_record *found;
	char id[STORE_ID_BYTES];
	uint64_t n = 0;
	int r;

	if (!workspace || !snapshot)
		return error_set(reterr, ABOX_E_INVALID, STAGE, NULL, "workspace and snapshot are required");
	r = workspace_lock(workspace, WORKSPACE_EXCLUSIVE, HOME_LOCK_TIMEOUT_USEC, reterr);
	if (r < 0)
		return r;
	found = workspace_record_find(&workspace->record, snapshot);
	if (!found) {
		r = error_set(
			reterr, ABOX_E_NOT_FOUND, STAGE, snapshot, "the workspace has no such snapshot");
	} else {
		memcpy(id, found->id, STORE_ID_BYTES);
		r = drop_snapshots(workspace, is_this, id, &n, reterr);
	}
	workspace_unlock(workspace);
	if (r >= 0)
		workspace_tidy(workspace->home_fd);
	return r;
}

int abox_workspace_remove(const char *ref, abox_error **reterr)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL;
	_cleanup_(fd_closep) int store_lock_fd = -EBADF;
	int r;

	r = abox_workspace_open(ref, &workspace, reterr);
	if (r < 0)
		return r;
	/* Not a moment longer than it takes to see that a box has it. */
	r = workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, reterr);
	if (r < 0)
		return r;
	r = workspace_recover(workspace, reterr);
	if (r >= 0)
		r = home_lock_store(workspace->home_fd, &store_lock_fd, reterr);
	if (r >= 0)
		r = workspace_discard(workspace, reterr);
	store_lock_fd = fd_close(store_lock_fd);
	workspace_unlock(workspace);
	if (r >= 0)
		workspace_tidy(workspace->home_fd);
	return r;
}
