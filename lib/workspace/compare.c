/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Diff, patch and apply over the handle of a workspace: the lock, the layers, and what the source folder was.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "workspace/apply.h"
#include "workspace/home.h"
#include "workspace/store.h"

#define STAGE ABOX_STAGE_WORKSPACE

void abox_diff_options_init(struct abox_diff_options *options)
{
	*options = (struct abox_diff_options)ABOX_DIFF_OPTIONS_INIT;
}

void abox_apply_options_init(struct abox_apply_options *options)
{
	*options = (struct abox_apply_options)ABOX_APPLY_OPTIONS_INIT;
}

int workspace_recover(abox_workspace *workspace, abox_error **reterr)
{
	_cleanup_(fd_closep) int journal_fd = -EBADF;
	int r;

	r = workspace_open_stage(workspace, "apply", &journal_fd, reterr);
	if (r < 0)
		return r;
	if (faccessat(journal_fd, "steps", F_OK, 0) < 0)
		return 0;
	r = workspace_lock(workspace, WORKSPACE_EXCLUSIVE, HOME_LOCK_TIMEOUT_USEC, reterr);
	if (r < 0)
		return r;
	r = apply_recover(journal_fd, reterr);
	workspace_unlock(workspace);
	return r;
}

/* Two states of a workspace. What both have in common, from the base up, is one run of layers. */
struct comparison {
	struct layer_stack now_stack, was_stack;
	struct stack_views now_views, was_views;
	struct view now, was;
};

static void comparison_clear(struct comparison *comparison)
{
	stack_views_clear(&comparison->now_views);
	stack_views_clear(&comparison->was_views);
	layer_stack_clear(&comparison->now_stack);
	layer_stack_clear(&comparison->was_stack);
}

static bool same_layer(const struct view_layer *a, const struct view_layer *b)
{
	struct stat x, y;

	return fstat(a->root_fd, &x) == 0 && fstat(b->root_fd, &y) == 0 && x.st_dev == y.st_dev &&
	       x.st_ino == y.st_ino;
}

/* When all layers of `was` are the lower ones of `now`, it is told in the terms of `now`: the walk then
 * passes by what both have. */
static void share_layers(struct comparison *comparison)
{
	const struct view *now = &comparison->now, *was = &comparison->was;

	if (was->n_layers > now->n_layers)
		return;
	for (size_t i = 1; i <= was->n_layers; i++)
		if (!same_layer(&now->layers[now->n_layers - i], &was->layers[was->n_layers - i]))
			return;
	comparison->was.layers = now->layers + (now->n_layers - was->n_layers);
}

static int comparison_init(struct comparison *comparison, abox_workspace *workspace, const char *snapshot,
	const char *since, abox_error **reterr)
{
	int r;

	*comparison = (struct comparison){.now_stack = LAYER_STACK_INIT, .was_stack = LAYER_STACK_INIT};
	if (!since && workspace_mode(workspace) == WORKSPACE_DIRECT)
		return error_set(reterr, ABOX_E_STATE, STAGE, workspace_id(workspace),
			"a workspace of mode direct is the folder itself: there is nothing to compare it "
			"with but a snapshot");
	r = workspace_open_stack(workspace, snapshot, &comparison->now_stack, reterr);
	if (r >= 0)
		r = stack_views_init(&comparison->now_stack, &comparison->now_views);
	if (r < 0)
		return r;
	comparison->now = comparison->now_views.now;
	comparison->was = comparison->now_views.was;
	if (!since)
		return 0;
	r = workspace_open_stack(workspace, since, &comparison->was_stack, reterr);
	if (r >= 0)
		r = stack_views_init(&comparison->was_stack, &comparison->was_views);
	if (r < 0)
		return r;
	comparison->was = comparison->was_views.now;
	share_layers(comparison);
	return 0;
}

static int check_diff_options(const struct abox_diff_options *options, abox_error **reterr)
{
	if (options && options->size < sizeof(*options))
		return error_set(reterr, ABOX_E_INVALID, STAGE, NULL, "options are of no known size");
	return 0;
}

/* Between two locks: `act` sees both states. */
static int with_comparison(abox_workspace *workspace, const struct abox_diff_options *options,
	int (*act)(const struct comparison *comparison, void *userdata, abox_error **reterr), void *userdata,
	abox_error **reterr)
{
	struct comparison comparison;
	struct progress progress = {0};
	int r;

	r = workspace_recover(workspace, reterr);
	if (r >= 0)
		r = workspace_lock(workspace, WORKSPACE_SHARED, HOME_LOCK_TIMEOUT_USEC, reterr);
	if (r < 0)
		return r;
	r = comparison_init(&comparison, workspace, options ? options->snapshot : NULL,
		options ? options->since : NULL, reterr);
	if (options)
		progress = (struct progress){options->progress, options->progress_userdata};
	comparison.now.progress = &progress;
	if (r >= 0)
		r = act(&comparison, userdata, reterr);
	comparison_clear(&comparison);
	workspace_unlock(workspace);
	return r;
}

static int act_diff(const struct comparison *comparison, void *userdata, abox_error **reterr)
{
	return changes_between(&comparison->now, &comparison->was, userdata, reterr);
}

int abox_workspace_diff(abox_workspace *workspace, const struct abox_diff_options *options,
	abox_changes **ret, abox_error **reterr)
{
	int r;

	if (!workspace || !ret)
		return error_set(reterr, ABOX_E_INVALID, STAGE, NULL, "workspace and ret are required");
	r = check_diff_options(options, reterr);
	return r < 0 ? r : with_comparison(workspace, options, act_diff, ret, reterr);
}

struct patch_request {
	const abox_changes *changes;
	int fd;
};

static int act_patch(const struct comparison *comparison, void *userdata, abox_error **reterr)
{
	const struct patch_request *request = userdata;

	return patch_write(request->changes, &comparison->now, &comparison->was, request->fd, reterr);
}

int abox_workspace_patch(abox_workspace *workspace, const struct abox_diff_options *options,
	const abox_changes *changes, int fd, abox_error **reterr)
{
	struct patch_request request = {changes, fd};
	int r;

	if (!workspace || !changes || fd < 0)
		return error_set(
			reterr, ABOX_E_INVALID, STAGE, NULL, "workspace, changes and fd are required");
	r = check_diff_options(options, reterr);
	return r < 0 ? r : with_comparison(workspace, options, act_patch, &request, reterr);
}

int abox_changes_select(
	const abox_changes *changes, const char *const *patterns, abox_changes **ret, abox_error **reterr)
{
	if (!changes || !patterns || !ret)
		return error_set(
			reterr, ABOX_E_INVALID, STAGE, NULL, "changes, patterns and ret are required");
	return changes_select(changes, patterns, ret, reterr);
}

/* The folder that is changed: a given one, or the source, which must still be the one that it was. */
static int open_target(abox_workspace *workspace, const char *target, char **retpath, int *retfd,
	struct apply_options *options, abox_error **reterr)
{
	const struct workspace_base *base = workspace_base(workspace);
	_cleanup_(freep) char *path = NULL;
	_cleanup_(fd_closep) int fd = -EBADF;
	struct stat st;

	if (!target && base->kind != BASE_FOLDER)
		return error_set(reterr, ABOX_E_STATE, STAGE, workspace_id(workspace),
			"the workspace was not made from a folder: say where its changes shall go");
	/* Recovery finds the folder by this path, whatever the working directory is then. */
	path = realpath(target ? target : base->path, NULL);
	if (path)
		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_set_errno(reterr, errno == ENOENT ? ABOX_E_STATE : ABOX_E_IO, STAGE,
			target ? target : base->path, errno, "cannot open the folder");
	if (base->kind == BASE_FOLDER && st.st_dev == base->device && st.st_ino == base->inode) {
		options->has_since = true;
		options->since_sec = base->since_sec;
		options->since_nsec = base->since_nsec;
	} else if (!target)
		return error_set(reterr, ABOX_E_STATE, STAGE, base->path,
			"another folder has taken the place of the source folder");
	/* Root writes for the owner of the folder. */
	options->owner_uid = geteuid() == 0 ? st.st_uid : UINT32_MAX;
	options->owner_gid = geteuid() == 0 ? st.st_gid : UINT32_MAX;
	*retpath = steal_ptr(path);
	*retfd = steal_fd(fd);
	return 0;
}

static int apply_locked(abox_workspace *workspace, const abox_changes *changes,
	const struct abox_apply_options *given, char **retreport, abox_error **reterr)
{
	struct apply_options options = {.flags = given ? given->flags : 0};
	_cleanup_(fd_closep) int target_fd = -EBADF;
	_cleanup_(fd_closep) int journal_fd = -EBADF;
	_cleanup_(freep) char *path = NULL;
	struct comparison comparison;
	struct progress progress = {0};
	int r;

	r = open_target(workspace, given ? given->target : NULL, &path, &target_fd, &options, reterr);
	if (r >= 0)
		r = workspace_open_stage(workspace, "apply", &journal_fd, reterr);
	if (r < 0)
		return r;
	r = comparison_init(&comparison, workspace, given ? given->snapshot : NULL, NULL, reterr);
	if (given)
		progress = (struct progress){given->progress, given->progress_userdata};
	comparison.now.progress = &progress;
	if (r >= 0)
		r = apply_changes(
			changes, &comparison.now, path, target_fd, journal_fd, &options, retreport, reterr);
	comparison_clear(&comparison);
	return r;
}

int abox_workspace_apply(abox_workspace *workspace, const abox_changes *changes,
	const struct abox_apply_options *options, char **retreport, abox_error **reterr)
{
	_cleanup_(freep) char *report = NULL;
	int r;

	_Static_assert((int)ABOX_APPLY_DRY_RUN == (int)APPLY_DRY_RUN &&
			       (int)ABOX_APPLY_ACCEPT_DRIFT == (int)APPLY_ACCEPT_DRIFT &&
			       (int)ABOX_APPLY_ACCEPT_RISKY == (int)APPLY_ACCEPT_RISKY,
		"the flags are the same");
	if (!workspace || !changes)
		return error_set(reterr, ABOX_E_INVALID, STAGE, NULL, "workspace and changes are required");
	if (options && (options->size < sizeof(*options) ||
			       options->flags > (ABOX_APPLY_DRY_RUN | ABOX_APPLY_ACCEPT_DRIFT |
							ABOX_APPLY_ACCEPT_RISKY)))
		return error_set(reterr, ABOX_E_INVALID, STAGE, NULL,
			"options are of no known size, or have unknown flags");
	r = workspace_lock(workspace, WORKSPACE_EXCLUSIVE, HOME_LOCK_TIMEOUT_USEC, reterr);
	if (r < 0)
		return r;
	r = apply_locked(workspace, changes, options, &report, reterr);
	workspace_unlock(workspace);
	if (r >= 0 && retreport)
		*retreport = steal_ptr(report);
	return r;
}
