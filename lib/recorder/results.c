/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Results: what is kept of a box besides its workspace, below results/ID_OF_THE_BOX in the store. Artifacts
 * as abox_workspace_collect() puts them together, diagnostics as one bounded JSON file. Nothing goes in there
 * that the gate would stop; gc removes it when its time is over.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <agentbox/change.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/place.h"
#include "recorder/recorder.h"
#include "workspace/home.h"
#include "workspace/workspace.h"

#define STAGE ABOX_STAGE_WORKSPACE
#define CHANGES_MAX 1000 /* listed in a bundle */
#define BUNDLE_MAX (1U << 20)

/* The folder of the box, made anew: what an attempt that was cut off has left in it goes. */
static int open_folder(const struct keeping *keeping, char **retpath, int *retfd, abox_error **reterr)
{
	_cleanup_(fd_closep) int results_fd = -EBADF;
	char place[PATH_MAX], path[PATH_MAX + 64];
	int fd, r;

	r = place_path(PLACE_STATE, place, sizeof(place));
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, STAGE, "results", -r, "there is no place for them");
	results_fd = home_make_folder(keeping->workspace->home_fd, HOME_RESULTS, true, reterr);
	if (results_fd < 0)
		return results_fd;
	r = path_remove_tree(results_fd, keeping->box);
	if (r < 0 && r != -ENOENT)
		return error_set_errno(reterr, ABOX_E_IO, STAGE, keeping->box, -r, "cannot clear the folder");
	fd = home_make_folder(results_fd, keeping->box, false, reterr);
	if (fd < 0)
		return fd;
	snprintf(path, sizeof(path), "%s/" HOME_RESULTS "/%s", place, keeping->box);
	*retpath = strdup(path);
	if (!*retpath) {
		fd_close(fd);
		return ABOX_E_MEMORY;
	}
	*retfd = fd;
	return 0;
}

/* When gc may remove it, for gc; the rest for people. */
static int write_note(const struct keeping *keeping, int folder_fd, abox_error **reterr)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	uint64_t ttl = (uint64_t)json_number(json_member(keeping->order, "ttl_usec")),
		 now = clock_wall_usec();

	text_printf(&text, "{\"format\":1,\"box\":\"%s\",\"task\":", keeping->box);
	text_add_json(&text, keeping->task, strlen(keeping->task));
	text_printf(&text, ",\"plan\":\"%s\",\"workspace\":\"%s\",\"created_usec\":%llu,\"ttl_usec\":%llu}\n",
		keeping->plan, workspace_id(keeping->workspace), (unsigned long long)now,
		(unsigned long long)ttl);
	if (text.failed)
		return ABOX_E_MEMORY;
	return home_replace_file(folder_fd, "note.json", text.data, text.len, reterr);
}

int results_collect(
	struct keeping *keeping, const char *command, char **retjson, char **retfolder, abox_error **reterr)
{
	struct abox_artifact_options options = ABOX_ARTIFACT_OPTIONS_INIT;
	_cleanup_(freep) char **patterns = order_texts(keeping->order, "artifact"),
			      **never = order_texts(keeping->order, "never");
	_cleanup_(freep) struct abox_secret *secrets = calloc(keeping->n_secrets + 1, sizeof(*secrets));
	_cleanup_(fd_closep) int folder_fd = -EBADF;
	_cleanup_(freep) char *folder = NULL;
	char path[PATH_MAX + 128];
	int r;

	if (!patterns || !never || !secrets)
		return ABOX_E_MEMORY;
	for (size_t i = 0; i < keeping->n_secrets; i++)
		secrets[i] = (struct abox_secret){ keeping->secrets[i], strlen(keeping->secrets[i]) };
	options.patterns = (const char *const *)patterns;
	options.never = (const char *const *)never;
	options.secrets = secrets;
	options.n_secrets = keeping->n_secrets;
	options.task = keeping->task[0] ? keeping->task : NULL;
	options.command = command;
	options.plan = keeping->plan;
	r = open_folder(keeping, &folder, &folder_fd, reterr);
	if (r >= 0)
		r = write_note(keeping, folder_fd, reterr);
	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "%s/artifacts", folder);
	r = abox_workspace_collect(keeping->workspace, &options, path, retjson, reterr);
	if (r >= 0)
		*retfolder = steal_ptr(folder);
	return r;
}

static const char *kind_name(int kind)
{
	switch (kind) {
	case ABOX_CHANGE_ADDED:
		return "added";
	case ABOX_CHANGE_DELETED:
		return "deleted";
	default:
		return "modified";
	}
}

static void add_changes(struct text *text, const abox_changes *changes)
{
	size_t n = abox_changes_get_count(changes), i;

	text_add(text, ",\"changes\":[");
	for (i = 0; i < MIN(n, (size_t)CHANGES_MAX) && text->len < BUNDLE_MAX; i++) {
		struct abox_change change = { .size = sizeof(change) };

		if (abox_changes_get(changes, i, &change) < 0)
			break;
		text_printf(text, "%s{\"path\":", i ? "," : "");
		text_add_json(text, change.path, strlen(change.path));
		text_printf(text, ",\"kind\":\"%s\",\"size\":%llu,\"sha256\":", kind_name(change.kind),
			(unsigned long long)change.size_bytes);
		if (change.digest)
			text_add_json(text, change.digest, strlen(change.digest));
		else
			text_add(text, "null");
		text_add(text, "}");
	}
	text_printf(text, "],\"n_changes\":%zu,\"changes_cut\":%s", n, i < n ? "true" : "false");
}

int results_diagnose(struct keeping *keeping, const char *evidence, const abox_changes *changes,
	char **retfolder, abox_error **reterr)
{
	_cleanup_(freep) struct scan_secret *secrets = calloc(keeping->n_secrets + 1, sizeof(*secrets));
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	_cleanup_(fd_closep) int folder_fd = -EBADF;
	_cleanup_(freep) char *folder = NULL;
	struct scan_rules rules = { .n_secrets = keeping->n_secrets };
	int r;

	if (!secrets)
		return ABOX_E_MEMORY;
	for (size_t i = 0; i < keeping->n_secrets; i++)
		secrets[i] = (struct scan_secret){ keeping->secrets[i], strlen(keeping->secrets[i]) };
	rules.secrets = secrets;
	text_printf(&text,
		"{\"format\":1,\"box\":\"%s\",\"plan\":\"%s\",\"workspace\":\"%s\",\"task\":", keeping->box,
		keeping->plan, workspace_id(keeping->workspace));
	text_add_json(&text, keeping->task, strlen(keeping->task));
	text_printf(&text, ",\"result\":%s", evidence);
	if (changes) {
		text_printf(&text, ",\"digest\":\"%s\"", abox_changes_get_digest(changes));
		add_changes(&text, changes);
	}
	text_add(&text, "}\n");
	if (text.failed)
		return ABOX_E_MEMORY;
	r = scan_bytes(text.data, text.len, &rules, "diagnostics.json", reterr);
	if (r >= 0)
		r = open_folder(keeping, &folder, &folder_fd, reterr);
	if (r >= 0)
		r = write_note(keeping, folder_fd, reterr);
	if (r >= 0)
		r = home_replace_file(folder_fd, "diagnostics.json", text.data, text.len, reterr);
	if (r >= 0)
		*retfolder = steal_ptr(folder);
	return r;
}
