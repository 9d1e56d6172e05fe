/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox workspace diff, apply, export, import, artifacts.
 */
#include <agentbox/change.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "workspace.h"

enum { TEXT_SNAPSHOT, TEXT_SINCE, TEXT_TARGET, TEXT_NEVER, TEXT_SECRETS, TEXT_NAME, TEXT_TASK, TEXT_TTL, TEXT_DIGEST,
	TEXT_MAX };
enum { FLAG_PATCH, FLAG_DRY_RUN, FLAG_DRIFT, FLAG_RISKY, FLAG_ANY };

#define TEXT_AT(i) offsetof(struct cli_settings, text[i])
#define FLAG_AT(i) offsetof(struct cli_settings, flag[i])
#define LIST_MAX 64

static const struct cli_option options_state[] = {
	{ "snapshot", 0, "SNAPSHOT", "this state instead of the present one", OPTION_TEXT, TEXT_AT(TEXT_SNAPSHOT), NULL, NULL },
	{ 0 }
};
static const struct cli_option options_diff[] = {
	{ "since", 0, "SNAPSHOT", "compare with this state, not with the beginning", OPTION_TEXT, TEXT_AT(TEXT_SINCE), NULL,
	  NULL },
	{ "patch", 'p', NULL, "print a patch for `git apply`", OPTION_FLAG, FLAG_AT(FLAG_PATCH), NULL, NULL },
	{ 0 }
};
static const struct cli_option options_apply[] = {
	{ "to", 0, "DIR", "into this folder instead of the source folder", OPTION_TEXT, TEXT_AT(TEXT_TARGET), NULL, NULL },
	{ "dry-run", 'n', NULL, "only tell what would happen", OPTION_FLAG, FLAG_AT(FLAG_DRY_RUN), NULL, NULL },
	{ "accept-drift", 0, NULL, "overwrite what others have changed since", OPTION_FLAG, FLAG_AT(FLAG_DRIFT), NULL, NULL },
	{ "accept-risky", 0, NULL, "apply what would run on the host, too", OPTION_FLAG, FLAG_AT(FLAG_RISKY), NULL, NULL },
	{ 0 }
};
static const struct cli_option options_export[] = {
	{ "never", 0, "PATTERNS", "refuse when such a path is there; commas between", OPTION_TEXT, TEXT_AT(TEXT_NEVER), NULL,
	  NULL },
	{ "secrets", 0, "NAMES", "refuse when the value of such a variable is there; commas between", OPTION_TEXT,
	  TEXT_AT(TEXT_SECRETS), NULL, NULL },
	{ 0 }
};
static const struct cli_option options_import[] = {
	{ "any", 0, NULL, "any tar or tar.gz, not only an export", OPTION_FLAG, FLAG_AT(FLAG_ANY), NULL, NULL },
	{ "digest", 0, "SHA256", "what `workspace export` said", OPTION_TEXT, TEXT_AT(TEXT_DIGEST), NULL, NULL },
	{ "name", 0, "NAME", "a name that no other workspace has", OPTION_TEXT, TEXT_AT(TEXT_NAME), NULL, NULL },
	{ "task", 0, "ID", "the task it belongs to", OPTION_TEXT, TEXT_AT(TEXT_TASK), NULL, NULL },
	{ "ttl", 0, "TIME", "gc removes it after so long, such as 7d", OPTION_TEXT, TEXT_AT(TEXT_TTL), NULL, NULL },
	{ 0 }
};
static const struct cli_option options_artifacts[] = {
	{ "max-bytes", 0, "N", "of all files together", OPTION_TEXT, TEXT_AT(TEXT_MAX), NULL, NULL },
	{ "task", 0, "ID", "the task they come from, for the record", OPTION_TEXT, TEXT_AT(TEXT_TASK), NULL, NULL },
	{ 0 }
};
static const struct cli_option *const groups_diff[] = { options_state, options_diff, NULL };
static const struct cli_option *const groups_apply[] = { options_state, options_apply, NULL };
static const struct cli_option *const groups_export[] = { options_state, options_export, NULL };
static const struct cli_option *const groups_artifacts[] = { options_state, options_export, options_artifacts, NULL };
static const struct cli_option *const groups_import[] = { options_import, NULL };

static inline void abox_changes_unrefp(abox_changes **changes) { abox_changes_unref(*changes); }

/* The changes that the words behind the workspace name; all of them without such. */
static int make_changes(struct cli_settings *settings, const struct abox_diff_options *options, abox_workspace *workspace,
	abox_changes **ret, abox_error **reterr)
{
	_cleanup_(abox_changes_unrefp) abox_changes *all = NULL;
	int r;

	struct abox_diff_options told = *options;

	told.progress = progress_count;
	told.progress_userdata = (void *)"compared";
	r = abox_workspace_diff(workspace, &told, &all, reterr);
	progress_wipe();
	if (r < 0)
		return r;
	if (settings->n_words > 1)
		return abox_changes_select(all, (const char *const *)settings->words + 1, ret, reterr);
	*ret = abox_changes_ref(all);
	return 0;
}

static int print_text(char *text)
{
	fputs(text, stdout);
	return finish_stdout();
}

static int run_diff(struct cli_settings *settings)
{
	struct abox_diff_options options = ABOX_DIFF_OPTIONS_INIT;
	_cleanup_(abox_workspace_unrefp) abox_workspace *workspace = NULL;
	_cleanup_(abox_changes_unrefp) abox_changes *changes = NULL;
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(text_freep) char *text = NULL;
	int r;

	options.snapshot = settings->text[TEXT_SNAPSHOT];
	options.since = settings->text[TEXT_SINCE];
	r = abox_workspace_open(settings->words[0], &workspace, &error);
	if (r >= 0)
		r = make_changes(settings, &options, workspace, &changes, &error);
	if (r >= 0 && settings->flag[FLAG_PATCH]) {
		options.progress = progress_count;
		options.progress_userdata = (void *)"compared";
		r = abox_workspace_patch(workspace, &options, changes, STDOUT_FILENO, &error);
		progress_wipe();
	} else if (r >= 0)
		r = settings->json ? abox_changes_dump(changes, &text) : abox_changes_format(changes, &text);
	if (r < 0)
		return fail(settings, r, error);
	/* Not through a JSON parser: names that are not UTF-8 are written in a way that few of them take. */
	if (text && settings->json)
		return puts(text) < 0 ? CLI_EXIT_FAILED : finish_stdout();
	return text ? print_text(text) : CLI_EXIT_DONE;
}

static int run_apply(struct cli_settings *settings)
{
	struct abox_diff_options diff = ABOX_DIFF_OPTIONS_INIT;
	struct abox_apply_options options = ABOX_APPLY_OPTIONS_INIT;
	_cleanup_(abox_workspace_unrefp) abox_workspace *workspace = NULL;
	_cleanup_(abox_changes_unrefp) abox_changes *changes = NULL;
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(text_freep) char *report = NULL;
	_cleanup_(text_freep) char *text = NULL;
	int r;

	options.snapshot = diff.snapshot = settings->text[TEXT_SNAPSHOT];
	options.target = settings->text[TEXT_TARGET];
	options.flags = (settings->flag[FLAG_DRY_RUN] ? ABOX_APPLY_DRY_RUN : 0U)
		| (settings->flag[FLAG_DRIFT] ? ABOX_APPLY_ACCEPT_DRIFT : 0U)
		| (settings->flag[FLAG_RISKY] ? ABOX_APPLY_ACCEPT_RISKY : 0U);
	r = abox_workspace_open(settings->words[0], &workspace, &error);
	if (r >= 0)
		r = make_changes(settings, &diff, workspace, &changes, &error);
	options.progress = progress_count;
	options.progress_userdata = (void *)"staged";
	if (r >= 0)
		r = abox_workspace_apply(workspace, changes, &options, &report, &error);
	progress_wipe();
	if (r >= 0 && !settings->json)
		r = abox_changes_format(changes, &text);
	if (r < 0)
		return fail(settings, r, error);
	/* A dry run is looked at for what has drifted, which only the report has. */
	if (settings->json || settings->flag[FLAG_DRY_RUN]) {
		if (text)
			fputs(text, stderr);
		return puts(report) < 0 ? CLI_EXIT_FAILED : finish_stdout();
	}
	return print_text(text);
}

static size_t split(char *list, const char **items)
{
	char *rest = NULL;
	size_t n = 0;

	for (char *item = strtok_r(list, ",", &rest); item && n < LIST_MAX; item = strtok_r(NULL, ",", &rest))
		items[n++] = item;
	items[n] = NULL;
	return n;
}

/* The gate's patterns and values. 0, or an exit code after it has said what is wrong. */
static int take_rules(char *never, char *names, const char **patterns, struct abox_secret *secrets,
	struct abox_export_options *options)
{
	/* Filled for export; artifacts take the same three members over. */
	const char *variables[LIST_MAX + 1];
	size_t n;

	if (never && split(never, patterns) > 0)
		options->never = patterns;
	n = names ? split(names, variables) : 0;
	for (size_t i = 0; i < n; i++) {
		const char *value = getenv(variables[i]);

		if (!value) {
			say("--secrets %s: there is no such variable", variables[i]);
			return CLI_EXIT_USAGE;
		}
		secrets[i] = (struct abox_secret){ value, strlen(value) };
	}
	options->secrets = secrets;
	options->n_secrets = n;
	return 0;
}

static int export_to(struct cli_settings *settings, abox_workspace *workspace, struct abox_export_options *options)
{
	struct whole_file file = WHOLE_FILE_INIT;
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(text_freep) char *report = NULL;
	bool to_stdout = strcmp(settings->words[1], "-") == 0;
	int r = 0;

	if (!to_stdout)
		r = whole_file_open(&file, settings->words[1]);
	if (r < 0) {
		say("%s: %s", settings->words[1], strerror(-r));
		return CLI_EXIT_FAILED;
	}
	options->progress = progress_count;
	options->progress_userdata = (void *)"packed";
	r = abox_workspace_export(workspace, options, to_stdout ? STDOUT_FILENO : file.fd, &report, &error);
	progress_wipe();
	if (r < 0) {
		whole_file_discard(&file);
		return fail(settings, r, error);
	}
	if (to_stdout)
		return CLI_EXIT_DONE;
	r = whole_file_commit(&file, "");
	if (r < 0) {
		say("%s: %s", settings->words[1], strerror(-r));
		return CLI_EXIT_FAILED;
	}
	return puts(report) < 0 ? CLI_EXIT_FAILED : finish_stdout();
}

static int run_export(struct cli_settings *settings)
{
	struct abox_export_options options = ABOX_EXPORT_OPTIONS_INIT;
	_cleanup_(abox_workspace_unrefp) abox_workspace *workspace = NULL;
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	struct abox_secret secrets[LIST_MAX];
	const char *patterns[LIST_MAX + 1];
	char *never, *names;
	int r;

	r = abox_workspace_open(settings->words[0], &workspace, &error);
	if (r < 0)
		return fail(settings, r, error);
	never = settings->text[TEXT_NEVER] ? strdup(settings->text[TEXT_NEVER]) : NULL;
	names = settings->text[TEXT_SECRETS] ? strdup(settings->text[TEXT_SECRETS]) : NULL;
	options.snapshot = settings->text[TEXT_SNAPSHOT];
	r = take_rules(never, names, patterns, secrets, &options);
	if (r == 0)
		r = export_to(settings, workspace, &options);
	free(never);
	free(names);
	return r;
}

static int run_artifacts(struct cli_settings *settings)
{
	struct abox_artifact_options options = ABOX_ARTIFACT_OPTIONS_INIT;
	struct abox_export_options rules = ABOX_EXPORT_OPTIONS_INIT;
	_cleanup_(abox_workspace_unrefp) abox_workspace *workspace = NULL;
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(text_freep) char *json = NULL;
	struct abox_secret secrets[LIST_MAX];
	const char *patterns[LIST_MAX + 1];
	char *never, *names;
	int r;

	if (settings->text[TEXT_MAX] && !parse_u64(settings->text[TEXT_MAX], &options.max_bytes)) {
		say("--max-bytes %s: a number", settings->text[TEXT_MAX]);
		return CLI_EXIT_USAGE;
	}
	never = settings->text[TEXT_NEVER] ? strdup(settings->text[TEXT_NEVER]) : NULL;
	names = settings->text[TEXT_SECRETS] ? strdup(settings->text[TEXT_SECRETS]) : NULL;
	r = take_rules(never, names, patterns, secrets, &rules);
	if (r == 0) {
		options.snapshot = settings->text[TEXT_SNAPSHOT];
		options.task = settings->text[TEXT_TASK];
		options.patterns = (const char *const *)settings->words + 2;
		options.never = rules.never;
		options.secrets = rules.secrets;
		options.n_secrets = rules.n_secrets;
		options.progress = progress_count;
		options.progress_userdata = (void *)"collected";
		r = abox_workspace_open(settings->words[0], &workspace, &error);
		if (r >= 0)
			r = abox_workspace_collect(workspace, &options, settings->words[1], &json, &error);
		progress_wipe();
		r = r < 0 ? fail(settings, r, error) : puts(json) < 0 ? CLI_EXIT_FAILED : finish_stdout();
	}
	free(never);
	free(names);
	return r;
}

static int run_import(struct cli_settings *settings)
{
	struct abox_import_options options = ABOX_IMPORT_OPTIONS_INIT;
	_cleanup_(abox_workspace_unrefp) abox_workspace *workspace = NULL;
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(text_freep) char *report = NULL;
	bool from_stdin = strcmp(settings->words[0], "-") == 0;
	int fd = from_stdin ? STDIN_FILENO : open(settings->words[0], O_RDONLY | O_CLOEXEC), r;

	if (fd < 0) {
		say("%s: %s", settings->words[0], strerror(errno));
		return CLI_EXIT_FAILED;
	}
	options.flags = settings->flag[FLAG_ANY] ? ABOX_IMPORT_ANY : 0;
	options.name = settings->text[TEXT_NAME];
	options.task = settings->text[TEXT_TASK];
	options.digest = settings->text[TEXT_DIGEST];
	if (settings->text[TEXT_TTL] && !parse_duration(settings->text[TEXT_TTL], &options.ttl_usec)) {
		say("--ttl %s: a time such as 90m or 7d", settings->text[TEXT_TTL]);
		return CLI_EXIT_USAGE;
	}
	options.progress = progress_count;
	options.progress_userdata = (void *)"unpacked";
	r = abox_workspace_import(fd, &options, &workspace, &report, &error);
	progress_wipe();
	if (!from_stdin)
		close(fd);
	if (r < 0)
		return fail(settings, r, error);
	if (settings->json)
		printf("{\"workspace\": \"%s\", \"report\": %s}\n", abox_workspace_get_id(workspace), report);
	else {
		puts(abox_workspace_get_id(workspace));
		if (!strstr(report, "\"n_lost\":0,"))
			fprintf(stderr, "agentbox: not all of the archive could be kept: %s\n", report);
	}
	return finish_stdout();
}

const struct cli_command cli_workspace_diff = {
	.name = "workspace diff",
	.usage = "[OPTIONS] WORKSPACE [PATTERN...]",
	.summary = "what has changed since the beginning, or since a snapshot",
	.help =
	"A line a path: A added, M modified, D deleted, R renamed, T of another type, P of other permissions; then what would\n"
	"run on the host: hooks, tasks of editors, programs, planted repositories. Patterns choose paths: * stays within one\n"
	"part, ** crosses parts, a folder means what is in it.\n",
	.groups = groups_diff,
	.words_min = 1,
	.words_max = CLI_WORDS_ANY,
	.run = run_diff,
};

const struct cli_command cli_workspace_apply = {
	.name = "workspace apply",
	.usage = "[OPTIONS] WORKSPACE [PATTERN...]",
	.summary = "put changes into the source folder, all of them or nothing",
	.help =
	"Refused when the folder has drifted: when a path is not what it was, or was touched since the workspace was made.\n"
	"Refused as well when a path would run on the host; look at `workspace diff` first. Killed midway, the folder is put\n"
	"back by the next diff, apply or gc.\n",
	.groups = groups_apply,
	.words_min = 1,
	.words_max = CLI_WORDS_ANY,
	.run = run_apply,
};

const struct cli_command cli_workspace_export = {
	.name = "workspace export",
	.usage = "[OPTIONS] WORKSPACE FILE",
	.summary = "the tree as a tar.gz with a manifest",
	.help =
	"The same tree gives the same bytes. FILE appears whole or not at all; - is stdout. Prints the digest of the manifest\n"
	"and what an archive cannot hold, as JSON.\n",
	.groups = groups_export,
	.words_min = 2,
	.words_max = 2,
	.run = run_export,
};

const struct cli_command cli_workspace_import = {
	.name = "workspace import",
	.usage = "[OPTIONS] FILE",
	.summary = "a new workspace from an export, or from any tar",
	.help =
	"FILE is - for stdin. The archive is taken whole or refused whole: paths that lead outside, devices, entries that do not\n"
	"fit the manifest. Prints the id of the workspace.\n",
	.groups = groups_import,
	.words_min = 1,
	.words_max = 1,
	.run = run_import,
};

const struct cli_command cli_workspace_artifacts = {
	.name = "workspace artifacts",
	.usage = "[OPTIONS] WORKSPACE DIR PATTERN...",
	.summary = "collect results into a new folder",
	.help =
	"Copies the regular files that the patterns name to DIR/files and writes DIR/artifacts.json with their digests. Links\n"
	"and what is beyond the bounds are left out and listed.\n",
	.groups = groups_artifacts,
	.words_min = 3,
	.words_max = CLI_WORDS_ANY,
	.run = run_artifacts,
};
