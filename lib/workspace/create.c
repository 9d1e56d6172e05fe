/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * New workspaces: from nothing, a folder, a copy of a folder, a layer that somebody built (archives), a
 * snapshot. What is promised: a workspace is there as a whole or not at all, and the source is only read.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <agentbox/workspace.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/strings.h"
#include "workspace/change.h"
#include "workspace/home.h"
#include "workspace/layer.h"
#include "workspace/tree.h"
#include "workspace/workspace.h"

#define STAGE ABOX_STAGE_WORKSPACE
#define MAX_TASK 256U

static bool is_text(const char *text)
{
	while (*text) {
		size_t len = utf8_char_len(text, strlen(text));

		if (len == 0 || (unsigned char)*text < 0x20)
			return false;
		text += len;
	}
	return true;
}

int workspace_check_new(const char *name, const char *task, uint64_t ttl_usec, abox_error **reterr)
{
	if (name && !home_is_name(name))
		return error_remedy(reterr, error_set(reterr, ABOX_E_INVALID, STAGE, "name", "not a name"),
			"use at most %d letters, digits, '.', '_', '-', not at the beginning '.' or '-', and "
			"not what looks "
			"like an id",
			STORE_NAME_MAX);
	if (task && (strlen(task) > MAX_TASK || !is_text(task)))
		return error_set(
			reterr, ABOX_E_INVALID, STAGE, "task", "must be UTF-8 of at most %u bytes", MAX_TASK);
	if (ttl_usec > INT64_MAX)
		return error_set(reterr, ABOX_E_INVALID, STAGE, "ttl_usec", "too long");
	return 0;
}

static int record_begin(struct workspace_record *record, const char *name, const char *task,
	uint64_t ttl_usec, abox_error **reterr)
{
	int r;

	r = workspace_check_new(name, task, ttl_usec, reterr);
	if (r < 0)
		return r;
	r = home_new_id(record->id, reterr);
	if (r < 0)
		return r;
	record->name = name ? strdup(name) : NULL;
	record->task = task ? strdup(task) : NULL;
	if ((name && !record->name) || (task && !record->task))
		return ABOX_E_MEMORY;
	record->created_usec = clock_wall_usec();
	record->ttl_usec = ttl_usec;
	record->flavour = layer_flavour_of_process();
	layer_ids_of_process(geteuid(), getegid(), &record->ids);
	return 0;
}

int workspace_begin_new(
	int home_fd, struct workspace_record *record, int model_fd, abox_workspace **ret, abox_error **reterr)
{
	int r;

	if (record->mode != WORKSPACE_DIRECT && !record->live[0]) {
		r = layer_new_live(home_fd, record->flavour, &record->ids, model_fd, record->live, reterr);
		if (r < 0)
			return r;
	}
	r = workspace_put_new(home_fd, record, reterr);
	if (r < 0)
		return r;
	r = workspace_open_id(home_fd, record->id, ret, reterr);
	if (r >= 0)
		workspace_record_clear(record);
	return r;
}

/* The folder, as it stands in the record: canonical, so that no later change of a link leads elsewhere. */
static int open_folder(
	const char *path, struct workspace_base *base, int *retfd, struct stat *retst, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF;

	base->path = realpath(path, NULL);
	if (!base->path)
		return error_set_errno(reterr, errno == ENOENT ? ABOX_E_NOT_FOUND : ABOX_E_SYSTEM, STAGE,
			path, errno, "cannot find the source");
	fd = open(base->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, retst) < 0)
		return error_set_errno(reterr, errno == ENOTDIR ? ABOX_E_INVALID : ABOX_E_SYSTEM, STAGE, path,
			errno, "cannot open the source folder");
	base->kind = BASE_FOLDER;
	base->device = retst->st_dev;
	base->inode = retst->st_ino;
	workspace_now(&base->since_sec, &base->since_nsec);
	*retfd = steal_fd(fd);
	return 0;
}

/* Security: a workspace above the store itself would show every other workspace to the box. */
static int check_not_store(int home_fd, const char *path, abox_error **reterr)
{
	_cleanup_(freep) char *home = NULL;
	char self[40];

	snprintf(self, sizeof(self), "/proc/self/fd/%d", home_fd);
	home = realpath(self, NULL);
	if (home && (path_is_under(home, path) || path_is_under(path, home)))
		return error_set(reterr, ABOX_E_DENIED, STAGE, path,
			"the folder holds, or is within, the store of workspaces");
	return 0;
}

/* The archive at its beginning; its digest stands in the record. */
static int open_archive(const char *path, struct workspace_base *base, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	uint8_t digest[DIGEST_BYTES];
	struct stat st;
	uint64_t len;
	int r;

	base->path = realpath(path, NULL);
	fd = base->path ? open(base->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_set_errno(reterr, errno == ENOENT ? ABOX_E_NOT_FOUND : ABOX_E_SYSTEM, STAGE,
			path, errno, "cannot open the archive");
	if (!S_ISREG(st.st_mode))
		return error_set(reterr, ABOX_E_INVALID, STAGE, path, "not a regular file");
	base->kind = BASE_ARCHIVE;
	base->digest = malloc(DIGEST_TEXT_BYTES);
	if (!base->digest)
		return ABOX_E_MEMORY;
	r = digest_sha256_fd(fd, digest, &len);
	if (r < 0)
		return error_set_errno(reterr, r, STAGE, path, errno, "cannot read the archive");
	hex_encode(digest, sizeof(digest), base->digest);
	if (lseek(fd, 0, SEEK_SET) < 0)
		return error_set_errno(reterr, ABOX_E_IO, STAGE, path, errno, "cannot read the archive");
	workspace_now(&base->since_sec, &base->since_nsec);
	return steal_fd(fd);
}

static int build_copy(int from_fd, const struct abox_workspace_options *options, struct layer_build *build,
	const struct layer_ids *ids, abox_error **reterr)
{
	struct tree_copy copy = {.ids = *ids,
		.max_bytes = options->max_bytes,
		.max_entries = options->max_files,
		.progress = options->progress,
		.userdata = options->progress_userdata};

	build->ids = *ids;
	return tree_copy(from_fd, build->data_fd, &copy, reterr);
}

/* Without overlay the live layer is a second copy: the first stays as it was, to compare with and to go back
 * to. */
static int build_whole(struct layer_build *base, const struct abox_workspace_options *options,
	struct layer_build *ret, abox_error **reterr)
{
	struct tree_copy copy = {.flags = TREE_COPY_LAYER,
		.flavour = base->flavour,
		.ids = base->ids,
		.progress = options->progress,
		.userdata = options->progress_userdata};
	int r;

	r = layer_build_begin(ret, reterr);
	if (r < 0)
		return r;
	ret->ids = base->ids;
	return tree_copy(base->data_fd, ret->data_fd, &copy, reterr);
}

/* Puts a workspace above a frozen base layer, or beside it when `whole` is the live layer. */
static int put_above(struct workspace_record *record, struct layer_build *base, struct layer_build *whole,
	abox_workspace **ret, abox_error **reterr)
{
	struct layer_record layer = {.is_base = true}, live = {.is_full = true};
	_cleanup_(fd_closep) int store_lock_fd = -EBADF;
	int r;

	r = layer_build_freeze(base, &layer, reterr);
	if (r < 0)
		return r;
	memcpy(record->parent, base->id, STORE_ID_BYTES);
	if (whole) {
		memcpy(live.id, whole->id, STORE_ID_BYTES);
		memcpy(live.parent, base->id, STORE_ID_BYTES);
		live.flavour = whole->flavour;
		live.ids = whole->ids;
		r = layer_record_write(whole->dir_fd, &live, reterr);
		if (r < 0)
			return r;
		memcpy(record->live, whole->id, STORE_ID_BYTES);
	}
	r = home_lock_store(base->store_fd, &store_lock_fd, reterr);
	if (r < 0)
		return r;
	r = workspace_begin_new(base->store_fd, record, base->data_fd, ret, reterr);
	if (r < 0)
		return r;
	layer_build_taken(base);
	if (whole)
		layer_build_taken(whole);
	return 0;
}

int workspace_new_from_layer(const struct workspace_new *options, struct layer_build *build,
	abox_workspace **ret, abox_error **reterr)
{
	_cleanup_(workspace_record_clear) struct workspace_record record = {.mode = WORKSPACE_COPY};
	int r;

	r = record_begin(&record, options->name, options->task, options->ttl_usec, reterr);
	if (r < 0)
		return r;
	record.flavour = build->flavour;
	record.ids = build->ids;
	r = workspace_base_copy(&options->base, &record.base);
	return r < 0 ? r : put_above(&record, build, NULL, ret, reterr);
}

static int create_copy(int from_fd, const struct abox_workspace_options *options,
	struct workspace_record *record, abox_workspace **ret, abox_error **reterr)
{
	_cleanup_(layer_build_clear) struct layer_build base = LAYER_BUILD_INIT, whole = LAYER_BUILD_INIT;
	int r;

	r = layer_build_begin(&base, reterr);
	if (r < 0)
		return r;
	r = build_copy(from_fd, options, &base, &record->ids, reterr);
	if (r < 0)
		return r;
	record->is_full = options->flags & ABOX_WORKSPACE_NO_OVERLAY;
	if (record->is_full) {
		r = build_whole(&base, options, &whole, reterr);
		if (r < 0)
			return r;
	}
	return put_above(record, &base, record->is_full ? &whole : NULL, ret, reterr);
}

static int create_folder(const struct abox_workspace_options *options, int home_fd,
	struct workspace_record *record, abox_workspace **ret, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF, store_lock_fd = -EBADF;
	struct stat st;
	int r;

	r = open_folder(options->source, &record->base, &fd, &st, reterr);
	if (r < 0)
		return r;
	r = check_not_store(home_fd, record->base.path, reterr);
	if (r < 0)
		return r;
	record->mode = (enum workspace_mode)options->mode;
	layer_ids_of_process(st.st_uid, st.st_gid, &record->ids);
	if (record->mode == WORKSPACE_COPY)
		return create_copy(fd, options, record, ret, reterr);
	r = home_lock_store(home_fd, &store_lock_fd, reterr);
	return r < 0 ? r : workspace_begin_new(home_fd, record, fd, ret, reterr);
}

static int create_archive(const struct abox_workspace_options *options, struct workspace_record *record,
	abox_workspace **ret, abox_error **reterr)
{
	_cleanup_(layer_build_clear) struct layer_build base = LAYER_BUILD_INIT, whole = LAYER_BUILD_INIT;
	struct progress progress = {options->progress, options->progress_userdata};
	struct archive_bounds bounds = {options->max_bytes, options->max_files, &progress};
	_cleanup_(archive_lost_clear) struct archive_lost lost = {0};
	/* The ids in it are those of another machine: all of it is given to the user of the box. */
	struct layer_ids ids = {.kind = LAYER_IDS_OWN,
		.owner_uid = layer_uid_on_disk(&record->ids, record->ids.inside_uid),
		.owner_gid = layer_gid_on_disk(&record->ids, record->ids.inside_gid)};
	_cleanup_(fd_closep) int fd = -EBADF;
	int r;

	fd = open_archive(options->source, &record->base, reterr);
	if (fd < 0)
		return fd;
	r = layer_build_begin(&base, reterr);
	if (r < 0)
		return r;
	base.ids = record->ids;
	r = archive_extract(fd, base.data_fd, &ids, &bounds, &lost, reterr);
	if (r < 0)
		return r;
	record->mode = WORKSPACE_COPY;
	record->is_full = options->flags & ABOX_WORKSPACE_NO_OVERLAY;
	if (record->is_full) {
		r = build_whole(&base, options, &whole, reterr);
		if (r < 0)
			return r;
	}
	return put_above(record, &base, record->is_full ? &whole : NULL, ret, reterr);
}

static int create_empty(const struct abox_workspace_options *options, int home_fd,
	struct workspace_record *record, abox_workspace **ret, abox_error **reterr)
{
	_cleanup_(fd_closep) int store_lock_fd = -EBADF;
	int r;

	/* Nothing below: the live layer is the whole tree, whether overlay is there or not. */
	record->mode = options->mode == ABOX_WORKSPACE_COPY ? WORKSPACE_COPY : WORKSPACE_OVERLAY;
	record->is_full = options->flags & ABOX_WORKSPACE_NO_OVERLAY;
	workspace_now(&record->base.since_sec, &record->base.since_nsec);
	r = home_lock_store(home_fd, &store_lock_fd, reterr);
	return r < 0 ? r : workspace_begin_new(home_fd, record, -EBADF, ret, reterr);
}

static int create_fork(
	const struct abox_workspace_options *options, abox_workspace **ret, abox_error **reterr)
{
	_cleanup_(workspace_unrefp) abox_workspace *origin = NULL;
	_cleanup_(freep) char *snapshot = NULL;
	int r;

	r = abox_workspace_find_snapshot(options->source, &origin, &snapshot, reterr);
	return r < 0 ? r : abox_workspace_fork(origin, snapshot, options, ret, reterr);
}

static int check_options(const struct abox_workspace_options *options, abox_error **reterr)
{
	if (options->size < sizeof(*options))
		return error_set(reterr, ABOX_E_INVALID, STAGE, "size", "the options were not initialised");
	if (options->source_kind > ABOX_SOURCE_SNAPSHOT)
		return error_set(
			reterr, ABOX_E_INVALID, STAGE, "source_kind", "there is no such kind of source");
	if (options->mode > ABOX_WORKSPACE_DIRECT)
		return error_set(reterr, ABOX_E_INVALID, STAGE, "mode", "there is no such mode");
	if (options->flags & ~(uint32_t)ABOX_WORKSPACE_NO_OVERLAY)
		return error_set(reterr, ABOX_E_INVALID, STAGE, "flags", "there is no such flag");
	if ((options->source_kind == ABOX_SOURCE_EMPTY) != string_empty(options->source))
		return error_set(reterr, ABOX_E_INVALID, STAGE, "source", "%s",
			options->source_kind == ABOX_SOURCE_EMPTY ? "an empty workspace has no source"
								  : "the source is missing");
	if (options->mode == ABOX_WORKSPACE_DIRECT && options->source_kind != ABOX_SOURCE_DIR)
		return error_set(reterr, ABOX_E_INVALID, STAGE, "mode", "only a folder can be used directly");
	if ((options->flags & ABOX_WORKSPACE_NO_OVERLAY) && options->mode != ABOX_WORKSPACE_COPY)
		return error_set(reterr, ABOX_E_INVALID, STAGE, "flags", "without overlay the mode is copy");
	if (MAX(options->limit_bytes, options->limit_files) > INT64_MAX)
		return error_set(reterr, ABOX_E_INVALID, STAGE, "limit_bytes", "too large");
	if ((options->limit_bytes || options->limit_files) &&
		(options->mode == ABOX_WORKSPACE_DIRECT || (options->flags & ABOX_WORKSPACE_NO_OVERLAY)))
		return error_set(reterr, ABOX_E_UNSUPPORTED, STAGE, "limit_bytes",
			"without overlay there is no layer that could be bounded");
	return workspace_check_new(options->name, options->task, options->ttl_usec, reterr);
}

void abox_workspace_options_init(struct abox_workspace_options *options)
{
	if (options)
		*options = (struct abox_workspace_options)ABOX_WORKSPACE_OPTIONS_INIT;
}

int abox_workspace_create(
	const struct abox_workspace_options *options, abox_workspace **ret, abox_error **reterr)
{
	_cleanup_(workspace_record_clear) struct workspace_record record = {0};
	_cleanup_(fd_closep) int home_fd = -EBADF;
	int r;

	if (!options || !ret)
		return error_set(reterr, ABOX_E_INVALID, STAGE, NULL, "options and ret are required");
	r = check_options(options, reterr);
	if (r < 0)
		return r;
	if (options->source_kind == ABOX_SOURCE_SNAPSHOT)
		return create_fork(options, ret, reterr);
	home_fd = home_open(reterr);
	if (home_fd < 0)
		return home_fd;
	r = record_begin(&record, options->name, options->task, options->ttl_usec, reterr);
	if (r < 0)
		return r;
	record.limit_bytes = options->limit_bytes;
	record.limit_inodes = options->limit_files;
	if (options->source_kind == ABOX_SOURCE_EMPTY)
		return create_empty(options, home_fd, &record, ret, reterr);
	if (options->source_kind == ABOX_SOURCE_TAR)
		return create_archive(options, &record, ret, reterr);
	return create_folder(options, home_fd, &record, ret, reterr);
}
