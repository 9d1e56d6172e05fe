/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The gate: proof that certain paths and certain values are not in a tree that is to be frozen or to leave.
 * It looks at every byte of every file, every name, target and attribute, as they are; what is packed or
 * encoded inside a file is beyond it. It never says what a value is, nor where in a file it was found.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fd.h"
#include "workspace/attribute.h"
#include "workspace/change.h"
#include "workspace/content.h"

#define CHUNK (256 * 1024)

static int found(const char *place, abox_error **reterr)
{
	error_set(
		reterr, ABOX_E_DENIED, ABOX_STAGE_WORKSPACE, place, "holds a secret that the run was given");
	return error_remedy(reterr, ABOX_E_DENIED,
		"remove it from there, or put the path into a class that does not survive");
}

static bool holds_secret(const void *data, size_t len, const struct scan_rules *rules)
{
	for (size_t i = 0; i < rules->n_secrets; i++)
		if (len >= rules->secrets[i].len &&
			memmem(data, len, rules->secrets[i].data, rules->secrets[i].len))
			return true;
	return false;
}

static int check_rules(const struct scan_rules *rules, abox_error **reterr)
{
	for (const char *const *pattern = rules->never; pattern && *pattern; pattern++)
		if (!pattern_is_valid(*pattern))
			return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_WORKSPACE, *pattern,
				"is no pattern of a path below the workspace");
	for (size_t i = 0; i < rules->n_secrets; i++)
		if (!rules->secrets[i].data || rules->secrets[i].len < SCAN_SECRET_MIN)
			return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_WORKSPACE, NULL,
				"a secret of fewer than %d bytes cannot be looked for: it would be found "
				"everywhere",
				SCAN_SECRET_MIN);
	return 0;
}

int scan_bytes(
	const void *data, size_t len, const struct scan_rules *rules, const char *place, abox_error **reterr)
{
	int r = check_rules(rules, reterr);

	if (r < 0)
		return r;
	return holds_secret(data, len, rules) ? found(place, reterr) : 0;
}

static size_t longest(const struct scan_rules *rules)
{
	size_t len = 0;

	for (size_t i = 0; i < rules->n_secrets; i++)
		len = MAX(len, rules->secrets[i].len);
	return len;
}

struct scan {
	const struct view *view;
	const struct scan_rules *rules;
	uint8_t *buffer; /* CHUNK and what one secret may reach into it from before */
	size_t overlap;
};

/* One run of data; a secret may lie across two chunks. Zeros cannot be part of a hole's neighbour: runs that
 * touch are one. */
static int scan_run(const struct scan *scan, int fd, const struct content_run *run)
{
	uint64_t offset = run->offset, end = run->offset + run->len;
	size_t kept = 0;

	while (offset < end) {
		ssize_t n = fd_pread_all(
			fd, scan->buffer + kept, (size_t)MIN(end - offset, (uint64_t)CHUNK), offset);
		size_t len;

		if (n <= 0)
			return n < 0 ? (int)n : -ESTALE;
		len = kept + (size_t)n;
		if (holds_secret(scan->buffer, len, scan->rules))
			return 1;
		kept = MIN(len, scan->overlap);
		memmove(scan->buffer, scan->buffer + len - kept, kept);
		offset += (uint64_t)n;
	}
	return 0;
}

static int scan_content(const struct scan *scan, int fd, uint64_t size)
{
	_cleanup_(freep) struct content_run *runs = NULL;
	struct content_run whole = {0, size};
	size_t n = 0;
	int r = 0;

	if (!content_has_hole(fd, size))
		return scan_run(scan, fd, &whole);
	/* Blocks of zeros are left out: a secret that is written into one makes it no block of zeros. */
	r = content_map(fd, size, &runs, &n);
	for (size_t i = 0; r == 0 && i < n; i++)
		r = scan_run(scan, fd, &runs[i]);
	return r;
}

static int scan_attributes(const struct scan *scan, int fd)
{
	_cleanup_(attribute_list_clear) struct attribute_list list = {0};
	int r;

	r = attribute_list_read(fd, &list);
	for (size_t i = 0; r == 0 && i < list.n; i++) {
		_cleanup_(freep) void *value = NULL;
		size_t len;

		r = attribute_read(fd, list.names[i], &value, &len);
		if (r == -ENODATA)
			r = 0;
		else if (r >= 0)
			r = holds_secret(value, len, scan->rules) ||
			    holds_secret(list.names[i], strlen(list.names[i]), scan->rules);
	}
	return r;
}

/* 1 when a secret was found, or -errno. */
static int scan_step(const struct scan *scan, const struct view_step *step)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	_cleanup_(freep) char *target = NULL;
	int r;

	if (scan->rules->n_secrets == 0)
		return 0;
	if (holds_secret(step->path, strlen(step->path), scan->rules))
		return 1;
	if (S_ISLNK(step->now.st.st_mode)) {
		r = view_read_link(scan->view, step->now_dir, step->name, &step->now, &target);
		return r < 0 ? r : holds_secret(target, strlen(target), scan->rules);
	}
	if (S_ISDIR(step->now.st.st_mode)) {
		struct view_dir dir = VIEW_DIR_INIT;

		r = view_open_dir(scan->view, step->now_dir, step->name, &dir);
		for (size_t i = 0; r == 0 && i < dir.n_parts; i++)
			r = scan_attributes(scan, dir.parts[i].fd);
		view_dir_clear(&dir);
		return r;
	}
	if (!S_ISREG(step->now.st.st_mode))
		return 0;
	r = view_open_file(scan->view, step->now_dir, step->name, &step->now, &fd);
	if (r == 0)
		r = scan_attributes(scan, fd);
	return r == 0 ? scan_content(scan, fd, (uint64_t)step->now.st.st_size) : r;
}

static int scan_all(const struct scan *scan, const struct view *was, abox_error **reterr)
{
	_cleanup_(view_walk_freep) struct view_walk *walk = NULL;
	struct view_step step;
	int r;

	r = view_walk_new(scan->view, was, &walk);
	while (r >= 0 && (r = view_walk_next(walk, &step, reterr)) > 0) {
		if (!step.now.st.st_mode)
			continue; /* deleted */
		/* A pattern of what is in a folder does not name the folder; an empty one may stay. */
		if (pattern_match_any(scan->rules->never, step.path)) {
			error_set(
				reterr, ABOX_E_DENIED, ABOX_STAGE_WORKSPACE, step.path, "may never be kept");
			return error_remedy(reterr, ABOX_E_DENIED,
				"remove it before, or write another pattern for `never`");
		}
		r = scan_step(scan, &step);
		if (r > 0)
			return found(step.path, reterr);
		if (r == -ENOMEM)
			return ABOX_E_MEMORY;
		if (r < 0)
			return error_set_errno(reterr, ABOX_E_IO, ABOX_STAGE_WORKSPACE, step.path, -r,
				"cannot be looked through");
	}
	return r;
}

int scan_view(const struct view *view, size_t n_new, const struct scan_rules *rules, abox_error **reterr)
{
	struct view was = {view->layers + n_new, view->n_layers - n_new};
	struct scan scan = {.view = view, .rules = rules, .overlap = longest(rules)};
	int r;

	r = check_rules(rules, reterr);
	if (r < 0)
		return r;
	scan.overlap -= scan.overlap > 0;
	scan.buffer = malloc(CHUNK + scan.overlap);
	if (!scan.buffer)
		return ABOX_E_MEMORY;
	r = scan_all(&scan, n_new > 0 && n_new < view->n_layers ? &was : NULL, reterr);
	free(scan.buffer);
	return r;
}

int scan_file(int fd, const char *path, const struct scan_rules *rules, abox_error **reterr)
{
	struct scan scan = {.rules = rules, .overlap = longest(rules)};
	struct stat st;
	int r;

	r = check_rules(rules, reterr);
	if (r < 0)
		return r;
	if (pattern_match_any(rules->never, path))
		return error_set(reterr, ABOX_E_DENIED, ABOX_STAGE_WORKSPACE, path, "may never be kept");
	if (rules->n_secrets == 0)
		return 0;
	scan.overlap -= 1;
	scan.buffer = malloc(CHUNK + scan.overlap);
	if (!scan.buffer)
		return ABOX_E_MEMORY;
	r = holds_secret(path, strlen(path), rules);
	if (r == 0)
		r = fstat(fd, &st) < 0 ? -errno : scan_content(&scan, fd, (uint64_t)st.st_size);
	free(scan.buffer);
	if (r > 0)
		return found(path, reterr);
	return r < 0 ? error_set_errno(
			       reterr, ABOX_E_IO, ABOX_STAGE_WORKSPACE, path, -r, "cannot be looked through")
		     : 0;
}
