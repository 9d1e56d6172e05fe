/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The comparison of two trees. What is promised: each path whose content, target, type or permission bits
 * differ is listed once, with digests of what was read; a file that was only touched is not. Times, owners
 * and attributes are not compared. A path that cannot be read fails the comparison, by name: a set is
 * complete or not there.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fd.h"
#include "workspace/changes.h"
#include "workspace/content.h"

int file_type_of(uint32_t mode)
{
	switch (mode & S_IFMT) {
	case 0:
		return ABOX_FILE_NONE;
	case S_IFREG:
		return ABOX_FILE_REGULAR;
	case S_IFDIR:
		return ABOX_FILE_FOLDER;
	case S_IFLNK:
		return ABOX_FILE_LINK;
	case S_IFIFO:
		return ABOX_FILE_FIFO;
	case S_IFSOCK:
		return ABOX_FILE_SOCKET;
	default:
		return ABOX_FILE_DEVICE;
	}
}

const char *file_type_name(int type)
{
	static const char *const names[] = {"none", "file", "folder", "link", "fifo", "socket", "device"};

	return type >= 0 && (size_t)type < ELEMENTSOF(names) ? names[type] : "?";
}

static int read_error(const char *path, int sys_errno, abox_error **reterr)
{
	if (sys_errno == ENOMEM)
		return ABOX_E_MEMORY;
	return error_set_errno(
		reterr, ABOX_E_IO, ABOX_STAGE_WORKSPACE, path, sys_errno, "cannot read the file");
}

static int read_side(const struct view *view, const struct view_dir *dir, const char *path, const char *name,
	const struct view_entry *entry, struct change_side *side, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	uint8_t digest[DIGEST_BYTES];
	int r;

	side->type = file_type_of(entry->st.st_mode);
	if (side->type == ABOX_FILE_NONE)
		return 0;
	side->mode = side->type == ABOX_FILE_LINK ? 0777 : entry->st.st_mode & 07777;
	side->inode = entry->st.st_ino;
	if (side->type == ABOX_FILE_LINK) {
		r = view_read_link(view, dir, name, entry, &side->target);
		if (r < 0)
			return read_error(path, -r, reterr);
		side->size_bytes = strlen(side->target);
	}
	if (side->type != ABOX_FILE_REGULAR)
		return 0;
	r = view_open_file(view, dir, name, entry, &fd);
	if (r < 0)
		return read_error(path, -r, reterr);
	r = content_digest(fd, digest, &side->size_bytes);
	if (r < 0)
		return r == ABOX_E_MEMORY ? r : read_error(path, errno, reterr);
	hex_encode(digest, sizeof(digest), side->digest);
	return 0;
}

static int kind_of(const struct change *change)
{
	const struct change_side *now = &change->now, *was = &change->was;

	if (was->type == ABOX_FILE_NONE)
		return ABOX_CHANGE_ADDED;
	if (now->type == ABOX_FILE_NONE)
		return ABOX_CHANGE_DELETED;
	if (now->type != was->type)
		return ABOX_CHANGE_TYPE;
	if (now->type == ABOX_FILE_REGULAR && strcmp(now->digest, was->digest) != 0)
		return ABOX_CHANGE_MODIFIED;
	if (now->type == ABOX_FILE_LINK && strcmp(now->target, was->target) != 0)
		return ABOX_CHANGE_MODIFIED;
	return now->mode != was->mode ? ABOX_CHANGE_MODE : 0;
}

static void change_clear(struct change *change)
{
	free(change->path);
	free(change->other);
	free(change->detail);
	free(change->now.target);
	free(change->was.target);
	*change = (struct change){0};
}

static int changes_grow(abox_changes *changes)
{
	size_t allocated = changes->n_allocated ? changes->n_allocated * 2 : 64;
	struct change *items;

	if (changes->n_items < changes->n_allocated)
		return 0;
	items = realloc(changes->items, allocated * sizeof(*items));
	if (!items)
		return ABOX_E_MEMORY;
	changes->items = items;
	changes->n_allocated = allocated;
	return 0;
}

/* Adds what the step is, when it is a change. */
static int add_step(abox_changes *changes, const struct view *now, const struct view *was,
	const struct view_step *step, abox_error **reterr)
{
	struct change change = {0};
	int r;

	/* The very same file on both sides: nothing was copied up. */
	if (step->now.st.st_mode != 0 && step->now.st.st_ino == step->was.st.st_ino &&
		step->now.st.st_dev == step->was.st.st_dev && step->now.st.st_mode == step->was.st.st_mode)
		return 0;
	r = changes_grow(changes);
	if (r >= 0)
		r = read_side(now, step->now_dir, step->path, step->name, &step->now, &change.now, reterr);
	if (r >= 0)
		r = read_side(was, step->was_dir, step->path, step->name, &step->was, &change.was, reterr);
	if (r >= 0)
		change.kind = kind_of(&change);
	if (r >= 0 && change.kind != 0) {
		change.path = strdup(step->path);
		r = change.path ? risk_classify(now, step, &change, reterr) : ABOX_E_MEMORY;
	}
	if (r < 0 || change.kind == 0) {
		change_clear(&change);
		return r;
	}
	changes->items[changes->n_items++] = change;
	return 0;
}

static int compare_content(const void *a, const void *b)
{
	const struct change *x = *(struct change *const *)a, *y = *(struct change *const *)b;
	const struct change_side *p = x->kind == ABOX_CHANGE_ADDED ? &x->now : &x->was;
	const struct change_side *q = y->kind == ABOX_CHANGE_ADDED ? &y->now : &y->was;
	int order = strcmp(p->digest, q->digest);

	if (order == 0)
		order = x->kind - y->kind;
	return order ? order : strcmp(x->path, y->path);
}

/* Pairs a deleted file with an added one of the same content: each once, in the order of their paths. */
static int find_renames(abox_changes *changes)
{
	_cleanup_(freep) struct change **files = malloc((changes->n_items + 1) * sizeof(*files));
	size_t n = 0;

	if (!files)
		return ABOX_E_MEMORY;
	for (size_t i = 0; i < changes->n_items; i++) {
		struct change *change = &changes->items[i];

		if ((change->kind == ABOX_CHANGE_ADDED && change->now.type == ABOX_FILE_REGULAR &&
			    change->now.size_bytes > 0) ||
			(change->kind == ABOX_CHANGE_DELETED && change->was.type == ABOX_FILE_REGULAR &&
				change->was.size_bytes > 0))
			files[n++] = change;
	}
	if (n > 1)
		qsort(files, n, sizeof(*files), compare_content);
	/* Among equal contents the added ones come first: the pointers walk through both groups. */
	for (size_t begin = 0; begin < n;) {
		size_t end = begin, deleted;
		const char *digest = files[begin]->kind == ABOX_CHANGE_ADDED ? files[begin]->now.digest
									     : files[begin]->was.digest;

		while (end < n && strcmp(files[end]->kind == ABOX_CHANGE_ADDED ? files[end]->now.digest
									       : files[end]->was.digest,
					  digest) == 0)
			end++;
		for (deleted = begin; deleted < end && files[deleted]->kind == ABOX_CHANGE_ADDED; deleted++)
			;
		for (size_t added = begin; deleted < end && files[added]->kind == ABOX_CHANGE_ADDED;
			added++, deleted++) {
			files[added]->other = strdup(files[deleted]->path);
			files[deleted]->other = strdup(files[added]->path);
			files[added]->other_mode = files[deleted]->was.mode;
			if (!files[added]->other || !files[deleted]->other)
				return ABOX_E_MEMORY;
		}
		begin = end;
	}
	return 0;
}

int changes_between(const struct view *now, const struct view *was, abox_changes **ret, abox_error **reterr)
{
	_cleanup_(changes_unrefp) abox_changes *changes = calloc(1, sizeof(*changes));
	_cleanup_(view_walk_freep) struct view_walk *walk = NULL;
	struct view_step step;
	int r;

	if (!changes)
		return ABOX_E_MEMORY;
	changes->n_refs = 1;
	r = view_walk_new(now, was, &walk);
	if (r < 0)
		return r;
	while ((r = view_walk_next(walk, &step, reterr)) > 0) {
		r = add_step(changes, now, was, &step, reterr);
		if (r < 0)
			return r;
	}
	if (r < 0)
		return r;
	r = find_renames(changes);
	if (r >= 0)
		r = changes_seal(changes);
	if (r < 0)
		return r;
	*ret = steal_ptr(changes);
	return 0;
}

static bool is_needed_folder(const abox_changes *changes, size_t folder, const bool *wanted)
{
	const char *path = changes->items[folder].path;
	size_t len = strlen(path);

	/* What is in a folder follows it directly. */
	for (size_t i = folder + 1; i < changes->n_items; i++) {
		const char *below = changes->items[i].path;

		if (strncmp(below, path, len) != 0 || below[len] != '/')
			return false;
		if (wanted[i] && changes->items[i].now.type != ABOX_FILE_NONE)
			return true;
	}
	return false;
}

static int change_copy(const struct change *from, struct change *to)
{
	*to = *from;
	to->path = strdup(from->path);
	to->other = NULL; /* the other half may not be chosen; found again afterwards */
	to->detail = from->detail ? strdup(from->detail) : NULL;
	to->now.target = from->now.target ? strdup(from->now.target) : NULL;
	to->was.target = from->was.target ? strdup(from->was.target) : NULL;
	if (!to->path || (from->detail && !to->detail) || (from->now.target && !to->now.target) ||
		(from->was.target && !to->was.target)) {
		change_clear(to);
		return ABOX_E_MEMORY;
	}
	return 0;
}

int changes_select(
	const abox_changes *changes, const char *const *patterns, abox_changes **ret, abox_error **reterr)
{
	_cleanup_(changes_unrefp) abox_changes *chosen = calloc(1, sizeof(*chosen));
	_cleanup_(freep) bool *wanted = calloc(changes->n_items + 1, sizeof(*wanted));
	int r;

	if (!chosen || !wanted)
		return ABOX_E_MEMORY;
	chosen->n_refs = 1;
	for (const char *const *pattern = patterns; *pattern; pattern++)
		if (!pattern_is_valid(*pattern))
			return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_WORKSPACE, *pattern,
				"is no pattern of a path below the workspace");
	for (size_t i = 0; i < changes->n_items; i++)
		wanted[i] = pattern_match_any(patterns, changes->items[i].path);
	for (size_t i = changes->n_items; i-- > 0;) {
		const struct change *change = &changes->items[i];

		if (!wanted[i] && change->now.type == ABOX_FILE_FOLDER &&
			change->was.type != ABOX_FILE_FOLDER)
			wanted[i] = is_needed_folder(changes, i, wanted);
	}
	for (size_t i = 0; i < changes->n_items; i++) {
		if (!wanted[i])
			continue;
		r = changes_grow(chosen);
		if (r >= 0)
			r = change_copy(&changes->items[i], &chosen->items[chosen->n_items]);
		if (r < 0)
			return r;
		chosen->n_items++;
	}
	r = find_renames(chosen);
	if (r >= 0)
		r = changes_seal(chosen);
	if (r < 0)
		return r;
	*ret = steal_ptr(chosen);
	return 0;
}

void changes_unrefp(abox_changes **changes)
{
	abox_changes_unref(*changes);
}

abox_changes *abox_changes_ref(abox_changes *changes)
{
	if (changes)
		changes->n_refs++;
	return changes;
}

abox_changes *abox_changes_unref(abox_changes *changes)
{
	if (!changes || --changes->n_refs > 0)
		return NULL;
	for (size_t i = 0; i < changes->n_items; i++)
		change_clear(&changes->items[i]);
	free(changes->items);
	free(changes);
	return NULL;
}
