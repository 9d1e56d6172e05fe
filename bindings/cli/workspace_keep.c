/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox workspace create, ls, inspect, snapshot, fork, restore, tree, verify, rm, gc.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "box.h"
#include "terminal.h"
#include "workspace.h"

enum { TEXT_NAME, TEXT_TASK, TEXT_TTL, TEXT_FROM, TEXT_KEEP, TEXT_SNAPSHOT, TEXT_SIZE, TEXT_INODES };
enum { FLAG_NO_OVERLAY };

#define TEXT_AT(i) offsetof(struct cli_settings, text[i])
#define FLAG_AT(i) offsetof(struct cli_settings, flag[i])

static const struct cli_option options_new[] = {
	{ "name", 0, "NAME", "a name that no other workspace has", OPTION_TEXT, TEXT_AT(TEXT_NAME), NULL, NULL },
	{ "task", 0, "ID", "the task it belongs to", OPTION_TEXT, TEXT_AT(TEXT_TASK), NULL, NULL },
	{ "ttl", 0, "TIME", "gc removes it after so long, such as 7d", OPTION_TEXT, TEXT_AT(TEXT_TTL), NULL, NULL },
	{ 0 }
};
static const struct cli_option options_limit[] = {
	{ "size", 0, "SIZE", "what it may hold beside what it begins with, such as 2GiB", OPTION_TEXT, TEXT_AT(TEXT_SIZE),
	  NULL, NULL },
	{ "inodes", 0, "N", "the same for files and folders", OPTION_TEXT, TEXT_AT(TEXT_INODES), NULL, NULL },
	{ 0 }
};
static const struct cli_option options_create[] = {
	{ "from-snapshot", 0, "SNAPSHOT", "begin as this snapshot: an id, a name, or WORKSPACE:SNAPSHOT", OPTION_TEXT,
	  TEXT_AT(TEXT_FROM), NULL, NULL },
	{ "no-overlay", 0, NULL, "with :copy, whole trees instead of layers", OPTION_FLAG, FLAG_AT(FLAG_NO_OVERLAY), NULL,
	  NULL },
	{ 0 }
};
static const struct cli_option options_snapshot[] = {
	{ "name", 0, "NAME", "a name that no other snapshot of the workspace has", OPTION_TEXT, TEXT_AT(TEXT_NAME), NULL,
	  NULL },
	{ "ttl", 0, "TIME", "gc removes it after so long", OPTION_TEXT, TEXT_AT(TEXT_TTL), NULL, NULL },
	{ "keep-last", 0, "N", "of those without a name, only so many stay", OPTION_TEXT, TEXT_AT(TEXT_KEEP), NULL, NULL },
	{ 0 }
};
static const struct cli_option options_one_snapshot[] = {
	{ "snapshot", 0, "SNAPSHOT", "its id or name", OPTION_TEXT, TEXT_AT(TEXT_SNAPSHOT), NULL, NULL },
	{ 0 }
};

static const struct cli_option *const groups_create[] = { options_create, options_new, options_limit, NULL };
static const struct cli_option *const groups_snapshot[] = { options_snapshot, NULL };
static const struct cli_option *const groups_fork[] = { options_one_snapshot, options_new, options_limit, NULL };
static const struct cli_option *const groups_limit[] = { options_limit, NULL };
static const struct cli_option *const groups_rm[] = { options_one_snapshot, NULL };

static int take_ttl(const struct cli_settings *settings, uint64_t *retusec)
{
	const char *ttl = settings->text[TEXT_TTL];

	if (!ttl || parse_duration(ttl, retusec))
		return 0;
	say("--ttl %s: a time such as 90m or 7d", ttl);
	return -1;
}

static int take_limits(const struct cli_settings *settings, uint64_t *retbytes, uint64_t *retfiles)
{
	if (settings->text[TEXT_SIZE] && !parse_size(settings->text[TEXT_SIZE], retbytes)) {
		say("--size %s: a size such as 512MiB", settings->text[TEXT_SIZE]);
		return -1;
	}
	if (settings->text[TEXT_INODES] && !parse_u64(settings->text[TEXT_INODES], retfiles)) {
		say("--inodes %s: a number", settings->text[TEXT_INODES]);
		return -1;
	}
	return 0;
}

static int print_id(const struct cli_settings *settings, const char *what, const char *id)
{
	if (settings->json)
		printf("{\"%s\": \"%s\"}\n", what, id);
	else
		printf("%s\n", id);
	return finish_stdout();
}

/* DIR, DIR:overlay, DIR:copy or DIR:direct; cuts the mode off. */
static void take_mode(char *directory, uint32_t *retmode)
{
	static const char *const modes[] = { ":overlay", ":copy", ":direct" };
	size_t len = strlen(directory);

	for (uint32_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		size_t n = strlen(modes[i]);

		if (len > n && strcmp(directory + len - n, modes[i]) == 0) {
			directory[len - n] = 0;
			*retmode = i;
			return;
		}
	}
}

static int run_create(struct cli_settings *settings)
{
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	_cleanup_(abox_workspace_unrefp) abox_workspace *workspace = NULL;
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	struct stat st;
	int r;

	options.name = settings->text[TEXT_NAME];
	options.task = settings->text[TEXT_TASK];
	options.progress = progress_count;
	options.progress_userdata = (void *)"copied";
	if (take_ttl(settings, &options.ttl_usec) < 0 ||
		take_limits(settings, &options.limit_bytes, &options.limit_files) < 0)
		return CLI_EXIT_USAGE;
	if (settings->text[TEXT_FROM] && settings->n_words > 0)
		return say("a folder or --from-snapshot, not both"), CLI_EXIT_USAGE;
	if (settings->text[TEXT_FROM]) {
		options.source_kind = ABOX_SOURCE_SNAPSHOT;
		options.source = settings->text[TEXT_FROM];
	} else if (settings->n_words > 0) {
		options.source_kind = ABOX_SOURCE_DIR;
		take_mode(settings->words[0], &options.mode);
		options.source = settings->words[0];
		/* What is no folder is taken for an archive; what it is not, the library says. */
		if (options.mode == ABOX_WORKSPACE_OVERLAY && stat(options.source, &st) == 0 && S_ISREG(st.st_mode)) {
			options.source_kind = ABOX_SOURCE_TAR;
			options.mode = ABOX_WORKSPACE_COPY;
		}
	}
	if (settings->flag[FLAG_NO_OVERLAY])
		options.flags |= ABOX_WORKSPACE_NO_OVERLAY;
	r = abox_workspace_create(&options, &workspace, &error);
	progress_wipe();
	if (r < 0)
		return fail(settings, r, error);
	return print_id(settings, "workspace", abox_workspace_get_id(workspace));
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "-";
}

/* A path is whatever somebody called a folder: it is shown as JSON, which holds no control bytes. */
static void print_row(const json_t *workspace)
{
	char *source = json_dumps(json_object_get(json_object_get(workspace, "base"), "path"),
		JSON_ENCODE_ANY | JSON_ENSURE_ASCII);

	printf("%-32s  %-8s %9zu  %-16s %s\n", text_of(workspace, "id"), text_of(workspace, "mode"),
		json_array_size(json_object_get(workspace, "snapshots")), text_of(workspace, "name"), source ? source : "-");
	free(source);
}

static int run_ls(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(text_freep) char *json = NULL;
	json_t *list, *each;
	size_t i;
	int r;

	r = abox_workspace_list(&json, &error);
	if (r < 0)
		return fail(settings, r, error);
	if (settings->json)
		return print_json_text(json);
	list = json_loads(json, 0, NULL);
	if (!list)
		return say("the list cannot be read"), CLI_EXIT_FAILED;
	printf("%-32s  %-8s %9s  %-16s %s\n", "ID", "MODE", "SNAPSHOTS", "NAME", "SOURCE");
	json_array_foreach(list, i, each)
		print_row(each);
	json_decref(list);
	return finish_stdout();
}

static int open_word(struct cli_settings *settings, abox_workspace **ret)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	int r = abox_workspace_open(settings->words[0], ret, &error);

	return r < 0 ? fail(settings, r, error) : CLI_EXIT_DONE;
}

static int run_inspect(struct cli_settings *settings)
{
	_cleanup_(abox_workspace_unrefp) abox_workspace *workspace = NULL;
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(text_freep) char *json = NULL;
	int r = open_word(settings, &workspace);

	if (r != CLI_EXIT_DONE)
		return r;
	r = abox_workspace_dump(workspace, &json, &error);
	return r < 0 ? fail(settings, r, error) : print_json_text(json);
}

/* The box that has the workspace, opened; it goes on undisturbed. ABOX_E_BUSY: none of ours has. */
static int open_user(const char *workspace, abox_sandbox **retbox, abox_error **reterr)
{
	_cleanup_(text_freep) char *json = NULL;
	const json_t *box;
	json_t *list;
	size_t i;
	int r;

	r = abox_sandbox_list(&json, reterr);
	if (r < 0)
		return r;
	list = json_loads(json, 0, NULL);
	r = ABOX_E_BUSY;
	json_array_foreach(list, i, box) {
		const char *used = json_string_value(json_object_get(box, "workspace"));

		if (r == ABOX_E_BUSY && used && strcmp(used, workspace) == 0)
			r = abox_sandbox_open(json_string_value(json_object_get(box, "id")), ABOX_OPEN_ATTACH, retbox, reterr);
	}
	json_decref(list);
	return r;
}

/* Also while a box works on it, which then stands still for a moment. */
static int take_snapshot(abox_workspace *workspace, const struct abox_snapshot_options *options, char **retid,
	abox_error **reterr)
{
	_cleanup_(abox_sandbox_unrefp) abox_sandbox *box = NULL;
	int r;

	r = open_user(abox_workspace_get_id(workspace), &box, reterr);
	if (r >= 0)
		return abox_sandbox_snapshot(box, options, retid, reterr);
	return r == ABOX_E_BUSY ? abox_workspace_snapshot(workspace, options, retid, reterr) : r;
}

static int run_snapshot(struct cli_settings *settings)
{
	struct abox_snapshot_options options = ABOX_SNAPSHOT_OPTIONS_INIT;
	_cleanup_(abox_workspace_unrefp) abox_workspace *workspace = NULL;
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(text_freep) char *id = NULL;
	uint64_t keep = 0;
	int r;

	options.name = settings->text[TEXT_NAME];
	if (take_ttl(settings, &options.ttl_usec) < 0)
		return CLI_EXIT_USAGE;
	if (settings->text[TEXT_KEEP] &&
		(!parse_u64(settings->text[TEXT_KEEP], &keep) || keep == 0 || keep > UINT32_MAX))
		return say("--keep-last %s: a number from 1 on", settings->text[TEXT_KEEP]), CLI_EXIT_USAGE;
	options.keep_last = (uint32_t)keep;
	r = open_word(settings, &workspace);
	if (r != CLI_EXIT_DONE)
		return r;
	r = take_snapshot(workspace, &options, &id, &error);
	return r < 0 ? fail(settings, r, error) : print_id(settings, "snapshot", id);
}

static int run_fork(struct cli_settings *settings)
{
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	_cleanup_(abox_workspace_unrefp) abox_workspace *workspace = NULL, *fork = NULL;
	struct abox_snapshot_options unnamed = ABOX_SNAPSHOT_OPTIONS_INIT;
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(text_freep) char *taken = NULL;
	const char *snapshot = settings->text[TEXT_SNAPSHOT];
	int r;

	options.name = settings->text[TEXT_NAME];
	options.task = settings->text[TEXT_TASK];
	if (take_ttl(settings, &options.ttl_usec) < 0 ||
		take_limits(settings, &options.limit_bytes, &options.limit_files) < 0)
		return CLI_EXIT_USAGE;
	r = open_word(settings, &workspace);
	if (r != CLI_EXIT_DONE)
		return r;
	r = snapshot ? 0 : take_snapshot(workspace, &unnamed, &taken, &error);
	if (r >= 0)
		r = abox_workspace_fork(workspace, snapshot ? snapshot : taken, &options, &fork, &error);
	return r < 0 ? fail(settings, r, error) : print_id(settings, "workspace", abox_workspace_get_id(fork));
}

static int run_restore(struct cli_settings *settings)
{
	_cleanup_(abox_workspace_unrefp) abox_workspace *workspace = NULL;
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	int r = open_word(settings, &workspace);

	if (r != CLI_EXIT_DONE)
		return r;
	r = abox_workspace_restore(workspace, settings->words[1], &error);
	return r < 0 ? fail(settings, r, error) : CLI_EXIT_DONE;
}

static int run_verify(struct cli_settings *settings)
{
	_cleanup_(abox_workspace_unrefp) abox_workspace *workspace = NULL;
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	int r = open_word(settings, &workspace);

	if (r != CLI_EXIT_DONE)
		return r;
	r = abox_workspace_verify(workspace, settings->words[1], &error);
	return r < 0 ? fail(settings, r, error) : CLI_EXIT_DONE;
}

/* Below its parent, two columns in; a node whose parent is gone stands at the top. */
static void print_children(const json_t *nodes, const char *parent, int depth)
{
	const json_t *node;
	size_t i;

	if (depth > 1000)
		return;
	json_array_foreach(nodes, i, node) {
		const char *above = json_string_value(json_object_get(node, "parent"));
		const char *id = text_of(node, "id"), *kind = text_of(node, "kind");
		const json_t *other;
		bool found = false;
		size_t k;

		json_array_foreach(nodes, k, other)
			found |= above && !strcmp(text_of(other, "kind"), "snapshot") && !strcmp(text_of(other, "id"), above);
		if (parent ? !above || strcmp(above, parent) != 0 : found)
			continue;
		printf("%*s%s %s %s\n", 2 * depth, "", kind, id, json_object_get(node, "name") ? text_of(node, "name") : "");
		if (strcmp(kind, "snapshot") == 0)
			print_children(nodes, id, depth + 1);
	}
}

static int run_tree(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(text_freep) char *json = NULL;
	json_t *nodes;
	int r;

	r = abox_workspace_tree(&json, &error);
	if (r < 0)
		return fail(settings, r, error);
	if (settings->json)
		return print_json_text(json);
	nodes = json_loads(json, 0, NULL);
	if (!nodes)
		return say("the tree cannot be read"), CLI_EXIT_FAILED;
	print_children(nodes, NULL, 0);
	json_decref(nodes);
	return finish_stdout();
}

/* Without an option: none any more. */
static int run_limit(struct cli_settings *settings)
{
	_cleanup_(abox_workspace_unrefp) abox_workspace *workspace = NULL;
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	uint64_t bytes = 0, files = 0;
	int r;

	if (take_limits(settings, &bytes, &files) < 0)
		return CLI_EXIT_USAGE;
	r = open_word(settings, &workspace);
	if (r != CLI_EXIT_DONE)
		return r;
	r = abox_workspace_set_limit(workspace, bytes, files, &error);
	return r < 0 ? fail(settings, r, error) : CLI_EXIT_DONE;
}

static int run_rm(struct cli_settings *settings)
{
	_cleanup_(abox_workspace_unrefp) abox_workspace *workspace = NULL;
	int result = CLI_EXIT_DONE;

	if (settings->text[TEXT_SNAPSHOT] && settings->n_words != 1)
		return say("--snapshot goes with one workspace"), CLI_EXIT_USAGE;
	for (unsigned i = 0; i < settings->n_words; i++) {
		_cleanup_(abox_error_freep) abox_error *error = NULL;
		int r;

		if (settings->text[TEXT_SNAPSHOT]) {
			r = abox_workspace_open(settings->words[0], &workspace, &error);
			if (r >= 0)
				r = abox_workspace_remove_snapshot(workspace, settings->text[TEXT_SNAPSHOT], &error);
		} else
			r = abox_workspace_remove(settings->words[i], &error);
		if (r < 0)
			result = fail(settings, r, error);
	}
	return result;
}

static int run_gc(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(text_freep) char *json = NULL;
	int r = abox_workspace_gc(&json, &error);

	if (r < 0)
		return fail(settings, r, error);
	return settings->json ? print_json_text(json) : CLI_EXIT_DONE;
}

const struct cli_command cli_workspace_create = {
	.name = "workspace create",
	.usage = "[DIR[:overlay|:copy|:direct] | ARCHIVE.tar[.gz]] [OPTIONS]",
	.summary = "make one: empty, from a folder, an archive or a snapshot",
	.help =
	"Prints the id of a new workspace. With :overlay, the default, the folder stays as it is and changes go to a layer\n"
	"above it; with :copy the workspace is a copy of it; with :direct it is the folder itself.\n",
	.groups = groups_create,
	.words_max = 1,
	.run = run_create,
};

const struct cli_command cli_workspace_ls = {
	.name = "workspace ls",
	.usage = "[--json]",
	.summary = "list them",
	.help = "Lists the workspaces of this user.\n",
	.run = run_ls,
};

const struct cli_command cli_workspace_inspect = {
	.name = "workspace inspect",
	.usage = "WORKSPACE",
	.summary = "all that is recorded of one",
	.help = "Prints the record of a workspace, its snapshots included, as JSON.\n",
	.words_min = 1,
	.words_max = 1,
	.run = run_inspect,
};

const struct cli_command cli_workspace_snapshot = {
	.name = "workspace snapshot",
	.usage = "WORKSPACE [OPTIONS]",
	.summary = "keep the state as it is now",
	.help =
	"Prints the id of the snapshot when it is on the disk and was read to the last byte. No box may have the workspace\n"
	"in use.\n",
	.groups = groups_snapshot,
	.words_min = 1,
	.words_max = 1,
	.run = run_snapshot,
};

const struct cli_command cli_workspace_fork = {
	.name = "workspace fork",
	.usage = "WORKSPACE [--snapshot SNAPSHOT] [OPTIONS]",
	.summary = "a new one that begins as a snapshot of another",
	.help = "Prints the id of the new workspace. Without --snapshot one is taken first.\n",
	.groups = groups_fork,
	.words_min = 1,
	.words_max = 1,
	.run = run_fork,
};

const struct cli_command cli_workspace_limit = {
	.name = "workspace limit",
	.usage = "WORKSPACE [--size SIZE] [--inodes N]",
	.summary = "how much one may hold beside what it began with",
	.help =
	"What is left of it bounds each box that uses the workspace, where the host has a means for that: \"agentbox plan\" says\n"
	"so. What is not given is without a limit afterwards. Less than it holds already is refused.\n",
	.groups = groups_limit,
	.words_min = 1,
	.words_max = 1,
	.run = run_limit,
};

const struct cli_command cli_workspace_restore = {
	.name = "workspace restore",
	.usage = "WORKSPACE SNAPSHOT",
	.summary = "go back to a snapshot",
	.help = "What was changed since the newest snapshot is gone afterwards. All snapshots stay.\n",
	.words_min = 2,
	.words_max = 2,
	.run = run_restore,
};

const struct cli_command cli_workspace_tree = {
	.name = "workspace tree",
	.usage = "[--json]",
	.summary = "who descends from whom",
	.help = "Shows snapshots below the one that they came after, and workspaces below the one that they lie above.\n",
	.run = run_tree,
};

const struct cli_command cli_workspace_verify = {
	.name = "workspace verify",
	.usage = "WORKSPACE SNAPSHOT",
	.summary = "read a snapshot and compare it with its seal",
	.help = "Ends with 0 when every byte of the snapshot is what it was when it was taken.\n",
	.words_min = 2,
	.words_max = 2,
	.run = run_verify,
};

const struct cli_command cli_workspace_rm = {
	.name = "workspace rm",
	.usage = "WORKSPACE... | WORKSPACE --snapshot SNAPSHOT",
	.summary = "remove workspaces, or one snapshot",
	.help =
	"Forks of what is removed are not touched, nor is the folder that a workspace was made from. One that a box has in\n"
	"use is refused.\n",
	.groups = groups_rm,
	.words_min = 1,
	.words_max = CLI_WORDS_ANY,
	.run = run_rm,
};

const struct cli_command cli_workspace_gc = {
	.name = "workspace gc",
	.usage = "[--json]",
	.summary = "remove what has expired and what crashes have left",
	.help = "What is in use is left alone. --json prints how many workspaces, snapshots and layers went.\n",
	.run = run_gc,
};
