/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Settling: what becomes of the live layer when a box has ended. What is promised: nothing survives that the gate has
 * not seen, scratch does not survive, and a snapshot that was asked for is there when this returns 0.
 *
 * Scratch is taken out of the live layer entry by entry. So what the base has under such a name shows again: a box
 * cannot delete or change it for those who come after.
 */
#include "workspace/settle.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/path.h"
#include "workspace/home.h"
#include "workspace/layer.h"
#include "workspace/tree.h"
#include "workspace/workspace.h"

#define STAGE ABOX_STAGE_WORKSPACE

struct pruning {
	const struct settle_policy *policy;
	int base_fd;	/* of a whole tree: what lies in there is not the box's to leave out; -EBADF for a layer */
	uint64_t n;
	abox_error **reterr;
};

static bool is_scratch(const struct pruning *pruning, const char *path)
{
	const struct settle_policy *policy = pruning->policy;
	int fd;

	if (!pattern_match_any(policy->scratch, path) || pattern_match_any(policy->keep, path) ||
		pattern_match_any(policy->cache, path))
		return false;
	if (pruning->base_fd < 0)
		return true;
	fd = path_open_under(pruning->base_fd, path, O_PATH | O_NOFOLLOW, 0, 0);
	fd_close(fd);
	return fd < 0;
}

static int prune_other(void *userdata, const struct tree_entry *entry)
{
	struct pruning *pruning = userdata;

	if (entry->is_mount || !is_scratch(pruning, entry->path))
		return 0;
	if (unlinkat(entry->dir_fd, entry->name, 0) < 0)
		return error_set_errno(pruning->reterr, ABOX_E_IO, STAGE, entry->path, errno, "cannot remove it");
	pruning->n++;
	return 0;
}

/* A folder goes when nothing in it is to be kept. */
static int prune_leave(void *userdata, const struct tree_entry *entry, int fd)
{
	struct pruning *pruning = userdata;

	if (entry->dir_fd < 0 || !is_scratch(pruning, entry->path))
		return 0;
	if (unlinkat(entry->dir_fd, entry->name, AT_REMOVEDIR) == 0)
		pruning->n++;
	else if (errno != ENOTEMPTY && errno != EEXIST)
		return error_set_errno(pruning->reterr, ABOX_E_IO, STAGE, entry->path, errno, "cannot remove it");
	return 0;
}

static int prune(abox_workspace *workspace, const struct settle_policy *policy, uint64_t *retn, abox_error **reterr)
{
	_cleanup_(layer_stack_clear) struct layer_stack stack = LAYER_STACK_INIT;
	struct pruning pruning = { .policy = policy, .base_fd = -EBADF, .reterr = reterr };
	struct tree_visitor visitor = { .leave = prune_leave, .other = prune_other, .userdata = &pruning };
	int r;

	if (!policy->scratch || !policy->scratch[0])
		return 0;
	r = workspace_open_stack(workspace, NULL, &stack, reterr);
	if (r < 0)
		return r;
	if (stack.is_full && stack.n_lowers > 0)
		pruning.base_fd = stack.lower_fds[0];
	r = tree_walk(stack.top_fd, "live layer", &visitor, reterr);
	*retn = pruning.n;
	return r;
}

static int pass_gate(abox_workspace *workspace, const struct scan_rules *rules, abox_error **reterr)
{
	_cleanup_(layer_stack_clear) struct layer_stack stack = LAYER_STACK_INIT;
	_cleanup_(stack_views_clear) struct stack_views views = { 0 };
	int r;

	if ((!rules->never || !rules->never[0]) && rules->n_secrets == 0)
		return 0;
	r = workspace_open_stack(workspace, NULL, &stack, reterr);
	if (r >= 0)
		r = stack_views_init(&stack, &views);
	/* What lies below the live layer passed when it was frozen, or is the base. */
	return r < 0 ? r : scan_view(&views.now, 1, rules, reterr);
}

/* An empty live layer takes the place of the one that is thrown away. */
static int throw_away(abox_workspace *workspace, abox_error **reterr)
{
	_cleanup_(layer_stack_clear) struct layer_stack stack = LAYER_STACK_INIT;
	_cleanup_(workspace_record_clear) struct workspace_record next = { 0 };
	_cleanup_(fd_closep) int store_lock_fd = -EBADF;
	char old[STORE_ID_BYTES];
	int r;

	r = workspace_open_chain(workspace, workspace->record.parent, &stack, reterr);
	if (r >= 0)
		r = workspace_record_copy(&workspace->record, &next);
	if (r >= 0)
		r = home_lock_store(workspace->home_fd, &store_lock_fd, reterr);
	if (r >= 0)
		r = layer_new_live(workspace->home_fd, next.flavour, &next.ids,
			stack.n_lowers > 0 ? stack.lower_fds[0] : -EBADF, next.live, reterr);
	if (r < 0)
		return r;
	next.boot[0] = 0;
	memcpy(old, workspace->record.live, sizeof(old));
	r = workspace_commit(workspace, &next, reterr);
	if (r < 0)
		return r;
	store_lock_fd = fd_close(store_lock_fd);
	layer_discard(workspace->home_fd, old);
	return 0;
}

static int discard(abox_workspace *workspace, bool is_brief, abox_error **reterr)
{
	_cleanup_(fd_closep) int store_lock_fd = -EBADF;
	int r;

	if (is_brief) {
		r = home_lock_store(workspace->home_fd, &store_lock_fd, reterr);
		if (r >= 0)
			r = workspace_discard(workspace, reterr);
		store_lock_fd = fd_close(store_lock_fd);
		if (r >= 0)
			workspace_tidy(workspace->home_fd);
		return r;
	}
	if (workspace->record.mode == WORKSPACE_DIRECT)
		return error_set(reterr, ABOX_E_UNSUPPORTED, STAGE, workspace->record.base.path,
			"the folder itself is the workspace: its changes cannot be thrown away");
	/* A whole tree goes back to what it began as, or to the snapshot that it came from. */
	if (workspace->record.is_full)
		return workspace_reset_whole(workspace, reterr);
	return throw_away(workspace, reterr);
}

int workspace_settle(abox_workspace *workspace, const struct settle_policy *policy, struct settle_result *ret,
	abox_error **reterr)
{
	struct settle_result result = { 0 };
	char *snapshot = NULL;
	int r;

	if (policy->action == SETTLE_DISCARD) {
		*ret = result;
		return discard(workspace, policy->is_brief, reterr);
	}
	r = workspace_check_trusted(workspace, reterr);
	if (r >= 0)
		r = prune(workspace, policy, &result.n_pruned, reterr);
	if (r >= 0)
		r = pass_gate(workspace, &policy->gate, reterr);
	if (r < 0)
		return r;
	if (policy->action == SETTLE_KEEP) {
		r = workspace_end_use(workspace, reterr);
	} else {
		r = abox_workspace_snapshot(workspace, policy->snapshot, &snapshot, reterr);
		if (r >= 0)
			memcpy(result.snapshot, snapshot, STORE_ID_BYTES);
		abox_free(snapshot);
	}
	if (r < 0)
		return r;
	*ret = result;
	return 0;
}
