/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Artifacts: declared results, copied out of a workspace with digest and provenance. What is promised: the
 * bytes are those of regular files of the workspace and of nothing else, never more than was allowed, and
 * none that the gate would stop. They are put together beside their place and appear there by one rename.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <agentbox/change.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/path.h"
#include "workspace/change.h"
#include "workspace/content.h"
#include "workspace/deep.h"
#include "workspace/home.h"
#include "workspace/store.h"

#define STAGE ABOX_STAGE_WORKSPACE
#define DEFAULT_BYTES (1ULL << 30)
#define DEFAULT_FILES 10000
#define LISTED_MAX 10000 /* of what is left out */
#define NOREPLACE 1u

struct collection {
	const struct view *view;
	const struct abox_artifact_options *options;
	struct scan_rules rules;
	uint64_t max_bytes, max_file_bytes, max_files;
	int files_fd;
	struct text artifacts, left_out;
	uint64_t n_bytes, n_files, n_left_out;
};

void abox_artifact_options_init(struct abox_artifact_options *options)
{
	*options = (struct abox_artifact_options)ABOX_ARTIFACT_OPTIONS_INIT;
}

static int failed(const char *path, int r, const char *what, abox_error **reterr)
{
	return r == -ENOMEM ? ABOX_E_MEMORY : error_set_errno(reterr, ABOX_E_IO, STAGE, path, -r, "%s", what);
}

static void leave_out(struct collection *collection, const char *path, const char *reason)
{
	struct text *list = &collection->left_out;

	if (collection->n_left_out++ >= LISTED_MAX)
		return;
	text_add(list, list->len ? ",{\"path\":" : "{\"path\":");
	text_add_json(list, path, strlen(path));
	text_printf(list, ",\"reason\":\"%s\"}", reason);
}

/* Why a file is not taken; NULL when it is. */
static const char *reason_against(const struct collection *collection, const struct stat *st)
{
	if (S_ISLNK(st->st_mode))
		return "a link";
	if (!S_ISREG(st->st_mode))
		return "no regular file";
	if ((uint64_t)st->st_size > collection->max_file_bytes)
		return "too long";
	if ((uint64_t)st->st_size > collection->max_bytes - collection->n_bytes)
		return "more bytes than allowed";
	if (collection->n_files >= collection->max_files)
		return "more files than allowed";
	return NULL;
}

/* The folders above a file; the parts of the path are known to be names. */
static int make_parents(int files_fd, const char *path)
{
	_cleanup_(freep) char *prefix = strdup(path);

	if (!prefix)
		return -ENOMEM;
	for (char *slash = strchr(prefix, '/'); slash; slash = strchr(slash + 1, '/')) {
		_cleanup_(fd_closep) int parent_fd = -EBADF;
		const char *name;

		*slash = 0;
		parent_fd = deep_open_parent(files_fd, prefix, &name);
		if (parent_fd < 0)
			return parent_fd;
		if (mkdirat(parent_fd, name, 0755) < 0 && errno != EEXIST)
			return -errno;
		*slash = '/';
	}
	return 0;
}

static int open_new(struct collection *collection, const char *path, int *retfd)
{
	_cleanup_(fd_closep) int parent_fd = -EBADF;
	const char *name;
	int fd, r;

	r = make_parents(collection->files_fd, path);
	if (r < 0)
		return r;
	parent_fd = deep_open_parent(collection->files_fd, path, &name);
	if (parent_fd < 0)
		return parent_fd;
	fd = openat(parent_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	*retfd = fd;
	return 0;
}

static int copy_file(struct collection *collection, const struct view_step *step, int *retfd)
{
	_cleanup_(fd_closep) int from_fd = -EBADF;
	_cleanup_(fd_closep) int fd = -EBADF;
	int r;

	r = view_open_file(collection->view, step->now_dir, step->name, &step->now, &from_fd);
	if (r >= 0)
		r = open_new(collection, step->path, &fd);
	if (r >= 0)
		r = content_copy(from_fd, fd, (uint64_t)step->now.st.st_size);
	if (r < 0)
		return r;
	if (fchmod(fd, step->now.st.st_mode & 0111 ? 0755 : 0644) < 0 || fsync(fd) < 0)
		return -errno;
	*retfd = steal_fd(fd);
	return 0;
}

static int take(struct collection *collection, const struct view_step *step, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	struct text *list = &collection->artifacts;
	uint8_t digest[DIGEST_BYTES];
	char hex[DIGEST_TEXT_BYTES];
	uint64_t len;
	int r;

	r = copy_file(collection, step, &fd);
	if (r < 0)
		return failed(step->path, r, "cannot collect the file", reterr);
	/* What was copied is what is looked at, and what its digest says. */
	r = scan_file(fd, step->path, &collection->rules, reterr);
	if (r < 0)
		return r;
	r = content_digest(fd, digest, &len);
	if (r < 0)
		return r == ABOX_E_MEMORY ? r : failed(step->path, -errno, "cannot read the copy", reterr);
	hex_encode(digest, sizeof(digest), hex);
	if (!progress_add(collection->view->progress, 0, len))
		return error_set(reterr, ABOX_E_CANCELED, STAGE, step->path, "the caller wants an end");
	collection->n_bytes += len;
	collection->n_files++;
	text_add(list, list->len ? ",{\"path\":" : "{\"path\":");
	text_add_json(list, step->path, strlen(step->path));
	text_printf(list, ",\"size\":%llu,\"%s\":\"%s\",\"mode\":\"%s\"}", (unsigned long long)len,
		content_digest_name(len), hex, step->now.st.st_mode & 0111 ? "0755" : "0644");
	return 0;
}

static int take_all(struct collection *collection, abox_error **reterr)
{
	_cleanup_(view_walk_freep) struct view_walk *walk = NULL;
	struct view_step step;
	int r;

	r = view_walk_new(collection->view, NULL, &walk);
	while (r >= 0 && (r = view_walk_next(walk, &step, reterr)) > 0) {
		const char *reason;

		if (S_ISDIR(step.now.st.st_mode) ||
			!pattern_match_any(collection->options->patterns, step.path))
			continue;
		reason = reason_against(collection, &step.now.st);
		if (reason)
			leave_out(collection, step.path, reason);
		else
			r = take(collection, &step, reterr);
	}
	return r;
}

static void add_member(struct text *json, const char *key, const char *value)
{
	if (!value)
		return;
	text_printf(json, "\"%s\":", key);
	text_add_json(json, value, strlen(value));
	text_add(json, ",");
}

static int make_json(const struct collection *collection, const char *workspace, char **retjson)
{
	const struct abox_artifact_options *options = collection->options;
	struct text json = TEXT_INIT;

	text_add(&json, "{\"format\":1,");
	add_member(&json, "workspace", workspace);
	add_member(&json, "snapshot", options->snapshot);
	add_member(&json, "task", options->task);
	add_member(&json, "command", options->command);
	add_member(&json, "plan", options->plan);
	text_printf(&json, "\"artifacts\":[%s],\"left_out\":[%s],\"n_left_out\":%llu}",
		collection->artifacts.data ? collection->artifacts.data : "",
		collection->left_out.data ? collection->left_out.data : "",
		(unsigned long long)collection->n_left_out);
	json.failed |= collection->artifacts.failed || collection->left_out.failed;
	return text_take(&json, retjson);
}

static int write_json(int folder_fd, const char *json)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	int r;

	fd = openat(folder_fd, "artifacts.json", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	r = fd_write_all(fd, json, strlen(json));
	return r < 0 ? r : fsync(fd) < 0 ? -errno : 0;
}

/* The folder that the result appears in, and its name there. */
static int open_place(const char *folder, char **retname, int *retfd, abox_error **reterr)
{
	_cleanup_(freep) char *parent = strdup(folder), *name = NULL;
	struct stat st;
	size_t len;
	char *slash;
	int fd;

	if (!parent)
		return ABOX_E_MEMORY;
	for (len = strlen(parent); len > 1 && parent[len - 1] == '/'; len--)
		parent[len - 1] = 0;
	slash = strrchr(parent, '/');
	name = strdup(slash ? slash + 1 : parent);
	if (!name)
		return ABOX_E_MEMORY;
	if (!name[0] || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strlen(name) > 200)
		return error_set(reterr, ABOX_E_INVALID, STAGE, folder, "is no name for a new folder");
	if (slash)
		slash[slash == parent] = 0;
	fd = open(slash ? parent : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return failed(folder, -errno, "cannot open the folder above", reterr);
	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		fd_close(fd);
		return error_set(reterr, ABOX_E_EXISTS, STAGE, folder, "is there already");
	}
	*retname = steal_ptr(name);
	*retfd = fd;
	return 0;
}

static int collect_into(struct collection *collection, int stage_fd, const char *workspace, char **retjson,
	abox_error **reterr)
{
	int r;

	if (mkdirat(stage_fd, "files", 0755) < 0)
		return failed("files", -errno, "cannot make the folder", reterr);
	collection->files_fd = openat(stage_fd, "files", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (collection->files_fd < 0)
		return failed("files", -errno, "cannot open the folder", reterr);
	r = take_all(collection, reterr);
	if (r >= 0)
		r = make_json(collection, workspace, retjson);
	if (r < 0)
		return r;
	r = write_json(stage_fd, *retjson);
	return r < 0 ? failed("artifacts.json", r, "cannot write the list", reterr) : 0;
}

/* Beside its place, closed to others, until it is whole. */
static int collect_beside(struct collection *collection, const char *folder, const char *workspace,
	char **retjson, abox_error **reterr)
{
	_cleanup_(fd_closep) int parent_fd = -EBADF;
	_cleanup_(fd_closep) int stage_fd = -EBADF;
	_cleanup_(freep) char *name = NULL, *json = NULL;
	char stage[256], id[STORE_ID_BYTES];
	int r;

	r = open_place(folder, &name, &parent_fd, reterr);
	if (r >= 0)
		r = home_new_id(id, reterr);
	if (r < 0)
		return r;
	snprintf(stage, sizeof(stage), ".%s.%.12s", name, id);
	if (mkdirat(parent_fd, stage, 0700) < 0)
		return failed(folder, -errno, "cannot make a folder beside it", reterr);
	stage_fd = openat(parent_fd, stage, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = stage_fd < 0 ? failed(folder, -errno, "cannot open the new folder", reterr)
			 : collect_into(collection, stage_fd, workspace, &json, reterr);
	if (r >= 0 && (fchmod(stage_fd, 0755) < 0 || fsync(stage_fd) < 0))
		r = failed(folder, -errno, "cannot sync the folder", reterr);
	if (r >= 0 && syscall(SYS_renameat2, parent_fd, stage, parent_fd, name, NOREPLACE) < 0)
		r = errno == EEXIST ? error_set(reterr, ABOX_E_EXISTS, STAGE, folder, "is there already")
				    : failed(folder, -errno, "cannot put the folder in its place", reterr);
	if (r < 0) {
		path_remove_tree(parent_fd, stage);
		return r;
	}
	fsync(parent_fd);
	*retjson = steal_ptr(json);
	return 0;
}

static int collect_locked(abox_workspace *workspace, struct collection *collection, const char *folder,
	char **retjson, abox_error **reterr)
{
	_cleanup_(layer_stack_clear) struct layer_stack stack = LAYER_STACK_INIT;
	struct progress progress = {collection->options->progress, collection->options->progress_userdata};
	_cleanup_(stack_views_clear) struct stack_views views = {0};
	int r;

	r = workspace_open_stack(workspace, collection->options->snapshot, &stack, reterr);
	if (r >= 0)
		r = stack_views_init(&stack, &views);
	if (r < 0)
		return r;
	views.now.progress = &progress;
	collection->view = &views.now;
	return collect_beside(collection, folder, workspace_id(workspace), retjson, reterr);
}

int abox_workspace_collect(abox_workspace *workspace, const struct abox_artifact_options *options,
	const char *folder, char **retjson, abox_error **reterr)
{
	_cleanup_(freep) char *json = NULL;
	struct collection collection = {.options = options, .files_fd = -EBADF};
	int r;

	if (!workspace || !options || options->size < sizeof(*options) || !options->patterns || !folder)
		return error_set(
			reterr, ABOX_E_INVALID, STAGE, NULL, "workspace, patterns and folder are required");
	for (const char *const *pattern = options->patterns; *pattern; pattern++)
		if (!pattern_is_valid(*pattern))
			return error_set(reterr, ABOX_E_INVALID, STAGE, *pattern,
				"is no pattern of a path below the workspace");
	collection.rules = (struct scan_rules){
		options->never, (const struct scan_secret *)options->secrets, options->n_secrets};
	collection.max_bytes = options->max_bytes ? options->max_bytes : DEFAULT_BYTES;
	collection.max_file_bytes = options->max_file_bytes ? options->max_file_bytes : collection.max_bytes;
	collection.max_files = options->max_files ? options->max_files : DEFAULT_FILES;
	r = workspace_lock(workspace, WORKSPACE_SHARED, HOME_LOCK_TIMEOUT_USEC, reterr);
	if (r < 0)
		return r;
	r = collect_locked(workspace, &collection, folder, &json, reterr);
	workspace_unlock(workspace);
	fd_close(collection.files_fd);
	text_clear(&collection.artifacts);
	text_clear(&collection.left_out);
	if (r >= 0 && retjson)
		*retjson = steal_ptr(json);
	return r;
}
