/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Files of boxes and workspaces: how they are named on a command line, and opened; agentbox cp.
 */
#include "files.h"

#include <agentbox/workspace.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"

#define PLACE "/workspace"	/* what it is called inside: a path may begin with it */

static void text_free(char **text)
{
	free(*text);
}

bool remote_parse(const char *word, bool bare, struct remote *ret)
{
	const char *colon = strchr(word, ':'), *slash = strchr(word, '/');
	const char *path;

	/* as everywhere: what has a slash before its colon is a path of the host */
	if (!colon && bare && !slash)
		colon = word + strlen(word);
	if (!colon || colon == word || (slash && slash < colon))
		return false;
	ret->id = strdup(word);
	if (!ret->id)
		return false;
	ret->id[colon - word] = 0;
	path = *colon ? ret->id + (colon - word) + 1 : ret->id + (colon - word);
	if (strncmp(path, PLACE, strlen(PLACE)) == 0 && (!path[strlen(PLACE)] || path[strlen(PLACE)] == '/')) {
		path += strlen(PLACE);
		path += strspn(path, "/");
	}
	ret->path = path;
	return true;
}

void remote_clear(struct remote *remote)
{
	free(remote->id);
}

static int open_workspace(const char *id, uint32_t flags, abox_files **ret, abox_error **reterr)
{
	abox_workspace *workspace = NULL;
	int r;

	r = abox_workspace_open(id, &workspace, reterr);
	if (r >= 0)
		r = abox_files_open_workspace(workspace, NULL, flags, ret, reterr);
	abox_workspace_unref(workspace);
	return r;
}

int remote_open(const struct remote *remote, uint32_t flags, abox_files **ret, abox_error **reterr)
{
	_cleanup_(abox_sandbox_unrefp) abox_sandbox *box = NULL;
	int r;

	r = abox_sandbox_open(
		remote->id, flags & ABOX_FILES_WRITE ? ABOX_OPEN_ATTACH : ABOX_OPEN_READ, &box, reterr);
	if (r >= 0)
		return abox_files_open_sandbox(box, flags, ret, reterr);
	if (r != ABOX_E_NOT_FOUND)
		return r;
	*reterr = abox_error_free(*reterr);
	return open_workspace(remote->id, flags, ret, reterr);
}

int remote_finish(const struct cli_settings *settings, abox_files *files, int r, abox_error **error)
{
	abox_error *other = NULL;
	int closing = files ? abox_files_close(files, r < 0 ? &other : error) : 0;

	abox_error_free(other);
	progress_wipe();
	if (r >= 0)
		r = closing;
	return r < 0 ? fail(settings, r, *error) : CLI_EXIT_DONE;
}

/* The last part of a path, without slashes behind it; NULL when there is none that could be a name. */
static char *last_part(const char *path)
{
	size_t len = strlen(path), begin;
	char *part;

	while (len > 0 && path[len - 1] == '/')
		len--;
	for (begin = len; begin > 0 && path[begin - 1] != '/';)
		begin--;
	part = strndup(path + begin, len - begin);
	if (part && (!*part || !strcmp(part, ".") || !strcmp(part, ".."))) {
		free(part);
		return NULL;
	}
	return part;
}

static bool ends_in_slash(const char *path)
{
	return !*path || path[strlen(path) - 1] == '/';
}

/* Into a folder that is there under the name of the source; else under the name that was given. NULL: no memory. */
static char *place_in(const char *folder, const char *source)
{
	_cleanup_(text_free) char *name = last_part(source);
	char *path = NULL;

	if (!name)
		return strdup(folder);
	if (asprintf(&path, "%s%s%s", folder, ends_in_slash(folder) ? "" : "/", name) < 0)
		return NULL;
	return path;
}

static bool is_remote_folder(abox_files *files, const char *path)
{
	struct abox_file_entry entry = ABOX_FILE_ENTRY_INIT;

	return abox_files_stat(files, path, 0, &entry, NULL) >= 0 && entry.type == ABOX_FILE_FOLDER;
}

static bool is_local_folder(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int copy_in(abox_files *files, const char *source, const char *path, const struct abox_copy_options *options,
	char **retjson, abox_error **reterr)
{
	_cleanup_(text_free) char *target = NULL;

	if (!strcmp(source, "-"))
		return abox_files_write_from(
			files, path, ABOX_FILE_ATOMIC, UINT32_MAX, STDIN_FILENO, options, reterr);
	target = is_remote_folder(files, path) ? place_in(path, source) : strdup(path);
	return target ? abox_files_upload(files, source, target, options, retjson, reterr) : ABOX_E_MEMORY;
}

static int copy_out(abox_files *files, const char *path, const char *target, struct abox_copy_options *options,
	char **retjson, abox_error **reterr)
{
	_cleanup_(text_free) char *name = NULL;

	if (!strcmp(target, "-"))
		return abox_files_read_to(files, path, 0, STDOUT_FILENO, options, reterr);
	name = is_local_folder(target) ? place_in(target, path) : strdup(target);
	options->flags = ABOX_COPY_REPLACE;
	return name ? abox_files_download(files, path, name, options, retjson, reterr) : ABOX_E_MEMORY;
}

static void tell_left_out(const char *json)
{
	json_t *value = json_loads(json, 0, NULL), *one;
	size_t i;

	json_array_foreach(json_object_get(value, "left_out"), i, one)
		say("left out '%s': %s", json_string_value(json_object_get(one, "path")),
			json_string_value(json_object_get(one, "reason")));
	json_decref(value);
}

static int run_cp(struct cli_settings *settings)
{
	struct abox_copy_options options = ABOX_COPY_OPTIONS_INIT;
	_cleanup_(remote_clear) struct remote remote = { 0 };
	_cleanup_(abox_files_unrefp) abox_files *files = NULL;
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(text_freep) char *json = NULL;
	const char *from = settings->words[0], *to = settings->words[1];
	bool out = remote_parse(from, false, &remote), in = !out && remote_parse(to, false, &remote);
	int r;

	if (!out && !in)
		return say("one of the two is ID:PATH, where ID is a box or a workspace"), CLI_EXIT_USAGE;
	if (out && strchr(to, ':') && !strchr(to, '/'))
		return say("one of the two is a path of the host"), CLI_EXIT_USAGE;
	progress_interruptible();
	options.progress = progress_count;
	options.progress_userdata = (void *)"copied";
	r = remote_open(&remote, in ? ABOX_FILES_WRITE : 0, &files, &error);
	if (r >= 0)
		r = in ? copy_in(files, from, remote.path, &options, &json, &error)
		       : copy_out(files, remote.path, to, &options, &json, &error);
	r = remote_finish(settings, files, r, &error);
	if (r != CLI_EXIT_DONE || !json)
		return r;
	if (settings->json)
		return puts(json) < 0 ? CLI_EXIT_FAILED : finish_stdout();
	tell_left_out(json);
	return CLI_EXIT_DONE;
}

const struct cli_command cli_cp = {
	.name = "cp",
	.usage = "[--json] SOURCE ID:PATH | ID:PATH TARGET",
	.summary = "copy files into a box or workspace, or out of it",
	.help =
	"ID is a running box or a workspace that no box runs on, by id or name; PATH lies below its /workspace, and may be\n"
	"empty. Folders are copied with all that is in them. A folder that is there takes the source in, under its own name;\n"
	"`-` is standard input or output.\n"
	"\n"
	"Into a workspace: files that are there are replaced one by one, each whole; they belong to the box's user. Out of it:\n"
	"TARGET appears whole or not at all; a file that is there is replaced, a folder never. Links are copied as links, never\n"
	"followed. Fifos, sockets and devices are left out and named. Set-id bits, and the right of others to write, stay behind.\n",
	.words_min = 2,
	.words_max = 2,
	.run = run_cp,
};
