/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Putting a change set into a folder: what must be true before (nothing drifted, nothing that would run on
 * the host unless accepted), the new content in the stage, and the order of steps. apply-steps.c carries them
 * out.
 */
#include "workspace/apply.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "workspace/content.h"

#define SYNC_EACH_MAX 64 /* up to so many new files are synced one by one, more with their filesystem */

struct apply {
	const abox_changes *changes;
	const struct view *now;
	const struct apply_options *options;
	struct apply_target target;
	struct apply_steps steps;
	struct apply_record record;
	struct text drift; /* elements of JSON arrays */
	struct text skipped;
	size_t n_drift;
	size_t n_applied;
	const char *first_drift;
	bool staged; /* the stage exists: slots are filled */
	size_t n_staged;
};

static void add_item(struct text *list, const char *path, const char *reason)
{
	text_add(list, list->len ? ",{\"path\":" : "{\"path\":");
	text_add_json(list, path, strlen(path));
	text_printf(list, ",\"reason\":\"%s\"}", reason);
}

static void note_drift(struct apply *apply, const struct change *change, const char *reason)
{
	add_item(&apply->drift, change->path, reason);
	if (apply->n_drift++ == 0)
		apply->first_drift = change->path;
}

/* What is there at present, compared with what the set says was there. NULL when it is the same. */
static const char *compare_side(
	int parent_fd, const char *name, const struct change_side *was, struct stat *st)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	uint8_t digest[DIGEST_BYTES];
	char hex[DIGEST_TEXT_BYTES], target[4097];
	uint64_t len;
	ssize_t n;

	if (fstatat(parent_fd, name, st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno != ENOENT)
			return "cannot be read";
		return was->type == ABOX_FILE_NONE ? NULL : "is gone";
	}
	if (was->type == ABOX_FILE_NONE)
		return "is there now";
	if (file_type_of(st->st_mode) != was->type)
		return "is of another type";
	if (was->type == ABOX_FILE_LINK) {
		n = readlinkat(parent_fd, name, target, sizeof(target) - 1);
		if (n < 0)
			return "cannot be read";
		target[n] = 0;
		return strcmp(target, was->target) == 0 ? NULL : "points elsewhere";
	}
	if ((st->st_mode & 07777) != was->mode)
		return "has another mode";
	if (was->type != ABOX_FILE_REGULAR)
		return NULL;
	fd = openat(parent_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || content_digest(fd, digest, &len) < 0)
		return "cannot be read";
	hex_encode(digest, sizeof(digest), hex);
	return strcmp(hex, was->digest) == 0 ? NULL : "has other content";
}

static bool touched_since(const struct apply *apply, const struct stat *st)
{
	const struct apply_options *options = apply->options;

	if (!options->has_since || apply_record_has(&apply->record, st))
		return false;
	return st->st_ctim.tv_sec > options->since_sec ||
	       (st->st_ctim.tv_sec == options->since_sec && st->st_ctim.tv_nsec > (long)options->since_nsec);
}

/* The inode that a file was copied up from, as the overlay noted it in a file handle; 0 when it cannot be
 * told. */
static uint64_t origin_of(const struct view *view, const struct change *change)
{
	struct view_dir dir = VIEW_DIR_INIT;
	_cleanup_(fd_closep) int fd = -EBADF;
	struct view_entry entry;
	uint8_t value[256];
	const char *name;
	ssize_t len = 0;
	uint32_t inode;

	if (view_find(view, change->path, &dir, &entry, &name) < 0)
		return 0;
	if (entry.st.st_mode && view_open_file(view, &dir, name, &entry, &fd) >= 0) {
		enum view_flavour flavour = view->layers[entry.layer].flavour;

		if (flavour != VIEW_PLAIN)
			len = fgetxattr(fd,
				flavour == VIEW_USER ? "user.overlay.origin" : "trusted.overlay.origin",
				value, sizeof(value));
	}
	view_dir_clear(&dir);
	/* struct ovl_fb: version, magic, length, flags, type, 16 bytes of filesystem, then the handle. Type 1
	 * begins with a 32-bit inode number (ext4, tmpfs). */
	if (len < 25 || value[1] != 0xfb || value[4] != 1)
		return 0;
	memcpy(&inode, value + 21, sizeof(inode));
	return inode;
}

/* A file that was copied up and has nothing below it: the box moved it there, or the source lost it since. */
static bool lost_its_base(const struct apply *apply, const struct change *change)
{
	uint64_t inode;

	if (change->was.type != ABOX_FILE_NONE || change->now.type != ABOX_FILE_REGULAR || change->other)
		return false;
	inode = origin_of(apply->now, change);
	if (inode == 0)
		return false;
	for (size_t i = 0; i < apply->changes->n_items; i++)
		if (apply->changes->items[i].was.inode == inode &&
			apply->changes->items[i].kind != ABOX_CHANGE_ADDED)
			return false;
	return true;
}

static int check_drift(struct apply *apply, const struct change *change, struct stat *st)
{
	_cleanup_(fd_closep) int parent_fd = -EBADF;
	const char *name, *reason;

	memset(st, 0, sizeof(*st));
	parent_fd = apply_open_parent(&apply->target, change->path, &name);
	if (parent_fd == -ENOENT || parent_fd == -ENOTDIR || parent_fd == -ELOOP) {
		/* Its folder is not there yet: it comes with the same set, or the folder's own line tells. */
		if (change->was.type != ABOX_FILE_NONE)
			note_drift(apply, change, "is gone");
		return 0;
	}
	if (parent_fd < 0)
		return parent_fd;
	reason = compare_side(parent_fd, name, &change->was, st);
	if (!reason && change->was.type != ABOX_FILE_NONE && change->was.type != ABOX_FILE_FOLDER &&
		touched_since(apply, st))
		reason = "was touched since the workspace was made";
	if (!reason && apply->options->has_since && lost_its_base(apply, change))
		reason = "was removed since the workspace was made";
	if (reason)
		note_drift(apply, change, reason);
	return 0;
}

static int add_step(struct apply *apply, const struct apply_step *step, const char *path)
{
	struct apply_steps *steps = &apply->steps;

	if (steps->n == steps->allocated) {
		size_t allocated = steps->allocated ? steps->allocated * 2 : 64;
		struct apply_step *items = realloc(steps->items, allocated * sizeof(*items));

		if (!items)
			return ABOX_E_MEMORY;
		steps->items = items;
		steps->allocated = allocated;
	}
	steps->items[steps->n] = *step;
	steps->items[steps->n].path = strdup(path);
	if (!steps->items[steps->n].path)
		return ABOX_E_MEMORY;
	steps->n++;
	return 0;
}

/* Bits that a box may ask for. Security: set-user-id and set-group-id come from the host's own file or not at
 * all. */
static uint32_t mode_wanted(const struct change *change)
{
	return (change->now.mode & 01777) | (change->now.mode & change->was.mode & 06000);
}

static int stage_regular(struct apply *apply, const struct change *change, const char *slot, int *retfd)
{
	struct view_dir dir = VIEW_DIR_INIT;
	_cleanup_(fd_closep) int from_fd = -EBADF;
	_cleanup_(fd_closep) int fd = -EBADF;
	uint8_t digest[DIGEST_BYTES];
	char hex[DIGEST_TEXT_BYTES];
	struct view_entry entry;
	const char *name;
	uint64_t len;
	int r;

	r = view_find(apply->now, change->path, &dir, &entry, &name);
	if (r >= 0) {
		r = S_ISREG(entry.st.st_mode) ? view_open_file(apply->now, &dir, name, &entry, &from_fd)
					      : -ESTALE;
		view_dir_clear(&dir);
	}
	if (r < 0)
		return r;
	fd = openat(apply->target.stage_fd, slot, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = content_copy(from_fd, fd, (uint64_t)entry.st.st_size);
	if (r < 0)
		return r;
	r = content_digest(fd, digest, &len);
	if (r < 0)
		return r == ABOX_E_MEMORY ? -ENOMEM : -errno;
	hex_encode(digest, sizeof(digest), hex);
	if (strcmp(hex, change->now.digest) != 0)
		return -ESTALE;
	if (futimens(fd, (struct timespec[]){entry.st.st_mtim, entry.st.st_mtim}) < 0)
		return -errno;
	*retfd = steal_fd(fd);
	return 0;
}

/* Attributes that the host's file has (rights lists, the user's own) go on with its new content. */
static int keep_attributes(struct apply *apply, const struct change *change, int fd)
{
	_cleanup_(fd_closep) int parent_fd = -EBADF;
	_cleanup_(fd_closep) int old_fd = -EBADF;
	char names[4096], value[4096];
	const char *name;
	ssize_t len;

	parent_fd = apply_open_parent(&apply->target, change->path, &name);
	if (parent_fd < 0)
		return parent_fd;
	old_fd = openat(parent_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (old_fd < 0)
		return -errno;
	len = flistxattr(old_fd, names, sizeof(names));
	if (len < 0)
		return errno == EOPNOTSUPP ? 0 : -errno;
	for (const char *attribute = names; attribute < names + len; attribute += strlen(attribute) + 1) {
		ssize_t n;

		if (strcmp(attribute, "security.capability") == 0) /* belongs to the old content */
			continue;
		n = fgetxattr(old_fd, attribute, value, sizeof(value));
		if (n < 0)
			return -errno;
		/* The label of a security module may be the kernel's to give. */
		if (fsetxattr(fd, attribute, value, (size_t)n, 0) < 0 &&
			!string_starts_with(attribute, "security."))
			return -errno;
	}
	return 0;
}

/* Owner before mode: a change of owner clears bits. */
static int dress(struct apply *apply, const struct change *change, const char *slot, const struct stat *old,
	uint32_t mode)
{
	uint32_t uid = old->st_mode ? old->st_uid : apply->options->owner_uid;
	uint32_t gid = old->st_mode ? old->st_gid : apply->options->owner_gid;
	struct stat st;

	if (fstatat(apply->target.stage_fd, slot, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if ((uid != UINT32_MAX && st.st_uid != uid) || (gid != UINT32_MAX && st.st_gid != gid)) {
		if (fchownat(apply->target.stage_fd, slot, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
	}
	if (change->now.type != ABOX_FILE_LINK && fchmodat(apply->target.stage_fd, slot, mode, 0) < 0)
		return -errno;
	return 0;
}

static int stage_one(struct apply *apply, const struct change *change, size_t i, const struct stat *old,
	uint64_t *retinode)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	uint32_t mode = mode_wanted(change);
	struct stat st;
	char slot[24];
	int r = 0;

	snprintf(slot, sizeof(slot), "%zu", i);
	switch (change->now.type) {
	case ABOX_FILE_REGULAR:
		r = stage_regular(apply, change, slot, &fd);
		if (r >= 0 && change->was.type == ABOX_FILE_REGULAR)
			r = keep_attributes(apply, change, fd);
		break;
	case ABOX_FILE_FOLDER:
		mode |= 0700; /* until it is filled; a step at the end gives it what it shall have */
		r = mkdirat(apply->target.stage_fd, slot, 0700) < 0 ? -errno : 0;
		break;
	case ABOX_FILE_LINK:
		r = symlinkat(change->now.target, apply->target.stage_fd, slot) < 0 ? -errno : 0;
		break;
	default:
		r = mkfifoat(apply->target.stage_fd, slot, 0600) < 0 ? -errno : 0;
	}
	if (r < 0)
		return r;
	r = dress(apply, change, slot, old, mode);
	if (r < 0)
		return r;
	apply->n_staged++;
	if (fd >= 0 && apply->n_staged <= SYNC_EACH_MAX && fsync(fd) < 0)
		return -errno;
	if (fstatat(apply->target.stage_fd, slot, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	*retinode = st.st_ino;
	return 0;
}

static bool can_be_made(int type)
{
	return type != ABOX_FILE_SOCKET && type != ABOX_FILE_DEVICE;
}

/* The step of one change that brings something; removals have been planned before. */
static int plan_coming(
	struct apply *apply, const struct change *change, const struct stat *old, abox_error **reterr)
{
	struct apply_step step = {.old_inode = old->st_ino};
	int r;

	if (!can_be_made(change->now.type)) {
		add_item(&apply->skipped, change->path, "sockets and devices are not made on the host");
		return 0;
	}
	if (S_ISDIR(old->st_mode) && change->now.type == ABOX_FILE_FOLDER)
		return 0; /* accepted drift: it is there already */
	if (!old->st_mode)
		step.kind = change->now.type == ABOX_FILE_FOLDER ? APPLY_ADD_FOLDER : APPLY_ADD;
	else
		step.kind = APPLY_EXCHANGE;
	step.was_folder = S_ISDIR(old->st_mode);
	if (apply->staged) {
		r = stage_one(apply, change, apply->steps.n, old, &step.inode);
		if (r == -ENOMEM)
			return ABOX_E_MEMORY;
		if (r == -ESTALE)
			return error_set(reterr, ABOX_E_CONFLICT, ABOX_STAGE_WORKSPACE, change->path,
				"is no longer what the change set says");
		if (r < 0)
			return error_set_errno(reterr, ABOX_E_IO, ABOX_STAGE_WORKSPACE, change->path, -r,
				"cannot write the new content");
	}
	apply->n_applied++;
	return add_step(apply, &step, change->path);
}

static int plan_going(struct apply *apply, const struct change *change, const struct stat *old)
{
	struct apply_step step = {.kind = APPLY_REMOVE, .old_inode = old->st_ino};

	if (!old->st_mode)
		return 0; /* accepted drift: it is gone already */
	if (S_ISDIR(old->st_mode))
		step.kind = APPLY_REMOVE_FOLDER;
	apply->n_applied++;
	return add_step(apply, &step, change->path);
}

/* Modes come last and from the bottom up, as a folder may become unwritable. */
static int plan_mode(struct apply *apply, const struct change *change, const struct stat *old)
{
	struct apply_step step = {.kind = APPLY_MODE, .mode = mode_wanted(change)};

	if (change->kind == ABOX_CHANGE_MODE) {
		if (!old->st_mode)
			return 0;
		step.inode = old->st_ino;
		step.old_mode = old->st_mode & 07777;
		apply->n_applied++;
		return add_step(apply, &step, change->path);
	}
	if (change->now.type != ABOX_FILE_FOLDER || (step.mode & 0700) == 0700)
		return 0;
	step.old_mode = step.mode | 0700;
	for (size_t i = 0; i < apply->steps.n; i++)
		if (apply->steps.items[i].inode != 0 && strcmp(apply->steps.items[i].path, change->path) == 0)
			step.inode = apply->steps.items[i].inode;
	return add_step(apply, &step, change->path);
}

static int plan(struct apply *apply, const struct stat *olds, abox_error **reterr)
{
	const abox_changes *changes = apply->changes;
	int r = 0;

	for (size_t i = changes->n_items; i-- > 0 && r >= 0;)
		if (changes->items[i].kind == ABOX_CHANGE_DELETED)
			r = plan_going(apply, &changes->items[i], &olds[i]);
	for (size_t i = 0; i < changes->n_items && r >= 0; i++) {
		const struct change *change = &changes->items[i];

		if (change->kind != ABOX_CHANGE_DELETED && change->kind != ABOX_CHANGE_MODE)
			r = plan_coming(apply, change, &olds[i], reterr);
		if (r >= 0 && !progress_add(apply->now->progress, 1, change->now.size_bytes))
			r = error_set(reterr, ABOX_E_CANCELED, ABOX_STAGE_WORKSPACE, change->path, "canceled");
	}
	for (size_t i = changes->n_items; i-- > 0 && r >= 0;)
		if (changes->items[i].kind != ABOX_CHANGE_DELETED)
			r = plan_mode(apply, &changes->items[i], &olds[i]);
	return r;
}

static int check_risks(const struct apply *apply, abox_error **reterr)
{
	const struct change *first = NULL;
	size_t n = 0;

	if (apply->options->flags & APPLY_ACCEPT_RISKY)
		return 0;
	for (size_t i = 0; i < apply->changes->n_items; i++) {
		const struct change *change = &apply->changes->items[i];

		/* Programs are what many tasks are about; all else takes over what the host does by itself.
		 */
		if (!change->risks[0] || strcmp(change->risks[0], "executable") == 0)
			continue;
		if (n++ == 0)
			first = change;
	}
	if (n == 0)
		return 0;
	error_set(reterr, ABOX_E_DENIED, ABOX_STAGE_WORKSPACE, first->path,
		"would run on the host (%s); %zu such %s in the set", first->risks[0], n,
		n == 1 ? "path is" : "paths are");
	return error_remedy(reterr, ABOX_E_DENIED,
		"look at the change set, then accept them by flag or leave them out by pattern");
}

static int make_report(const struct apply *apply, char **retreport)
{
	struct text json = TEXT_INIT;
	bool any = false;

	text_printf(&json, "{\"changes\":\"%s\",\"dry_run\":%s,\"applied\":%zu,\"drift\":[",
		apply->changes->digest, apply->options->flags & APPLY_DRY_RUN ? "true" : "false",
		apply->n_applied);
	text_add_bytes(&json, apply->drift.data ? apply->drift.data : "", apply->drift.len);
	text_add(&json, "],\"skipped\":[");
	text_add_bytes(&json, apply->skipped.data ? apply->skipped.data : "", apply->skipped.len);
	text_add(&json, "],\"kept\":[");
	for (size_t i = 0; i < apply->steps.n; i++) {
		if (!apply->steps.items[i].kept)
			continue;
		if (any)
			text_add(&json, ",");
		text_add_json(&json, apply->steps.items[i].path, strlen(apply->steps.items[i].path));
		any = true;
	}
	text_add(&json, "]}");
	json.failed |= apply->drift.failed || apply->skipped.failed;
	return text_take(&json, retreport);
}

static int sync_stage(const struct apply *apply, abox_error **reterr)
{
	int r;

	r = apply->n_staged > SYNC_EACH_MAX ? syncfs(apply->target.fd) : fsync(apply->target.stage_fd);
	return r < 0 ? error_set_errno(reterr, ABOX_E_IO, ABOX_STAGE_WORKSPACE, apply->target.path, errno,
			       "cannot sync the new content")
		     : 0;
}

static int execute(struct apply *apply, const struct stat *olds, int journal_fd, abox_error **reterr)
{
	int r;

	/* The name of the stage is on record before there is one. */
	r = apply_stage_name(&apply->target, reterr);
	if (r >= 0)
		r = apply_journal_write(journal_fd, &apply->target, &apply->steps, reterr);
	if (r >= 0)
		r = apply_stage_open(&apply->target, reterr);
	if (r < 0)
		return r;
	apply->staged = true;
	apply->n_applied = 0;
	r = plan(apply, olds, reterr);
	if (r >= 0)
		r = sync_stage(apply, reterr);
	if (r >= 0)
		r = apply_journal_write(journal_fd, &apply->target, &apply->steps, reterr);
	if (r >= 0)
		r = apply_run(&apply->target, &apply->steps, reterr);
	if (r < 0)
		return r;
	if (syncfs(apply->target.fd) < 0)
		return error_set_errno(reterr, ABOX_E_IO, ABOX_STAGE_WORKSPACE, apply->target.path, errno,
			"cannot sync the target");
	return apply_journal_commit(journal_fd, reterr);
}

static int check(struct apply *apply, struct stat *olds, abox_error **reterr)
{
	int r;

	r = check_risks(apply, reterr);
	for (size_t i = 0; i < apply->changes->n_items && r >= 0; i++) {
		const struct change *change = &apply->changes->items[i];

		r = check_drift(apply, change, &olds[i]);
		if (r < 0)
			return error_set_errno(reterr, ABOX_E_IO, ABOX_STAGE_WORKSPACE, change->path, -r,
				"cannot look at the target");
	}
	if (r < 0 || apply->n_drift == 0 || (apply->options->flags & (APPLY_DRY_RUN | APPLY_ACCEPT_DRIFT)))
		return r;
	error_set(reterr, ABOX_E_CONFLICT, ABOX_STAGE_WORKSPACE, apply->first_drift,
		"the folder has changed since the workspace was made: %zu of %zu paths; nothing was applied",
		apply->n_drift, apply->changes->n_items);
	return error_remedy(reterr, ABOX_E_CONFLICT, "a dry run lists them");
}

static void apply_clear(struct apply *apply)
{
	apply_steps_clear(&apply->steps);
	apply_record_clear(&apply->record);
	text_clear(&apply->drift);
	text_clear(&apply->skipped);
}

static int apply_with(
	struct apply *apply, struct stat *olds, int journal_fd, char **retreport, abox_error **reterr)
{
	abox_error *ignored = NULL;
	int r;

	r = check(apply, olds, reterr);
	if (r < 0)
		return r;
	if (apply->options->flags & APPLY_DRY_RUN) {
		r = plan(apply, olds, reterr);
		return r < 0 ? r : make_report(apply, retreport);
	}
	r = execute(apply, olds, journal_fd, reterr);
	fd_close(apply->target.stage_fd);
	apply->target.stage_fd = -EBADF;
	/* Whether it went well or not: the journal says which way to clean up. */
	if (apply_recover(journal_fd, r < 0 ? &ignored : reterr) < 0 && r >= 0)
		r = ABOX_E_LEFT_BEHIND;
	abox_error_free(ignored);
	return r < 0 ? r : make_report(apply, retreport);
}

int apply_changes(const abox_changes *changes, const struct view *now, const char *target_path, int target_fd,
	int journal_fd, const struct apply_options *options, char **retreport, abox_error **reterr)
{
	struct apply apply = {
		.changes = changes,
		.now = now,
		.options = options,
		.target = {.path = target_path, .fd = target_fd, .stage_fd = -EBADF},
	};
	_cleanup_(freep) struct stat *olds = calloc(changes->n_items + 1, sizeof(*olds));
	struct stat st;
	int r;

	if (!olds)
		return ABOX_E_MEMORY;
	if (fstat(target_fd, &st) < 0)
		return error_set_errno(reterr, ABOX_E_IO, ABOX_STAGE_WORKSPACE, target_path, errno,
			"cannot look at the target");
	apply.target.device = st.st_dev;
	apply.target.inode = st.st_ino;
	r = apply_recover(journal_fd, reterr);
	if (r >= 0)
		r = apply_record_load(journal_fd, &apply.record, reterr);
	if (r >= 0)
		r = apply_with(&apply, olds, journal_fd, retreport, reterr);
	apply_clear(&apply);
	return r;
}
