/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Runs the rows of the contract: each through the C API and through the command, behind each wall that is there, as
 * whoever started it. Output is TAP; a failed row says what is wrong and keeps its folder with --keep.
 *
 * Usage: contract-runner --agentbox PROGRAM --probe PROGRAM [--wall NAME] [--only TEXT] [--keep] FILE.json...
 */
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner.h"

/* Walls in the order in which they are tried. A wall is there when the doctor calls it usable. */
static const char *const backends[] = { "namespaces", "gvisor", "microvm" };

static unsigned n_rows, n_failed;

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)ftw;
	if (type == FTW_DP || type == FTW_D)
		chmod(path, 0700);
	remove(path);
	return 0;
}

static void remove_tree(const char *path)
{
	/* Twice: a folder of mode 000 opens only after the first pass has changed it. */
	nftw(path, remove_entry, 16, FTW_PHYS);
	nftw(path, remove_entry, 16, FTW_PHYS | FTW_DEPTH);
}

static bool make_folder(char *path, size_t size)
{
	const char *base = getenv("TMPDIR");

	snprintf(path, size, "%s/agentbox-row-XXXXXX", base ? base : "/tmp");
	return mkdtemp(path) && chmod(path, 0755) == 0;
}

static void read_outcome(struct outcome *outcome)
{
	char path[512];
	char *text;
	size_t len;

	snprintf(path, sizeof(path), "%s/stdout", outcome->dir);
	outcome->out = read_whole_file(path, &outcome->out_len);
	snprintf(path, sizeof(path), "%s/stderr", outcome->dir);
	outcome->err = read_whole_file(path, &outcome->err_len);
	snprintf(path, sizeof(path), "%s/result.json", outcome->dir);
	text = read_whole_file(path, &len);
	outcome->result = text ? json_loads(text, 0, NULL) : NULL;
	free(text);
}

/* The command's exit code must follow from the result, by the table of the command's help. */
static void expect_exit_code(const struct outcome *outcome, struct complaints *complaints)
{
	const json_t *error = json_object_get(outcome->result, "error");
	const char *code = json_string_value(json_object_get(error, "code"));
	const char *cause = json_string_value(json_object_get(outcome->result, "cause"));
	long long exit_code = json_integer_value(json_object_get(outcome->result, "exit_code"));
	long long signal_number = json_integer_value(json_object_get(outcome->result, "signal"));
	long long wanted;

	if (error)
		wanted = !code ? 125 : !strcmp(code, "EXEC_NOT_FOUND") ? 127
			 : !strcmp(code, "EXEC_FORMAT") || !strcmp(code, "EXEC_INTERPRETER") ? 126 : 125;
	else if (cause && (!strcmp(cause, "timeout") || !strcmp(cause, "idle")))
		wanted = 124;
	else if (cause && !strcmp(cause, "wall_lost"))
		wanted = 125;
	else
		wanted = signal_number > 0 ? 128 + signal_number : exit_code;
	if (outcome->result && outcome->exit_code != wanted)
		complain(complaints, "the command ended with %d, its table says %lld", outcome->exit_code, wanted);
}

static int run_list(const json_t *commands, const char *tmp, struct complaints *complaints)
{
	const json_t *command;
	size_t i;

	json_array_foreach(commands, i, command)
		if (run_shell(json_string_value(command), tmp, complaints) < 0)
			return -1;
	return 0;
}

static void drop_nulls(json_t *object)
{
	const char *name;
	json_t *value;
	void *next;

	json_object_foreach_safe(object, next, name, value)
		if (json_is_null(value))
			json_object_del(object, name);
}

static const json_t *differs_of(const struct runner *runner, const json_t *row, const char *backend)
{
	const json_t *differs = json_object_get(row, backend);
	const char *as = json_string_value(json_object_get(differs, "as"));

	return as && strcmp(as, runner->plain ? "plain" : "root") != 0 ? NULL : differs;
}

static void run_part(const struct runner *runner, const json_t *part, const char *backend, const char *via, const char *tmp,
	const char *name, struct complaints *complaints)
{
	const char *on = json_string_value(json_object_get(part, "on"));
	const json_t *differs = differs_of(runner, part, backend);
	json_t *spec = row_spec(runner, part, backend, tmp), *expect;
	struct outcome outcome = { .exit_code = -1 };
	struct complaints found = { 0 };

	snprintf(outcome.dir, sizeof(outcome.dir), "%.200s/.%s", tmp, name);
	mkdir(outcome.dir, 0755);
	if (on && !strcmp(on, "host"))
		run_on_host(part, &outcome);
	else if (!strcmp(via, "shared"))
		run_in_shared(runner->shared, part, &outcome);
	else if (!strcmp(via, "api"))
		run_through_api(part, spec, &outcome);
	else
		run_through_cli(runner, part, spec, &outcome);
	read_outcome(&outcome);
	expect = json_deep_copy(json_object_get(part, "expect"));
	if (!expect)
		expect = json_object();
	json_object_update(expect, json_object_get(part, runner->plain ? "expect_plain" : "expect_root"));
	json_object_update(expect, json_object_get(differs, "expect"));
	drop_nulls(expect);
	if (!outcome_refused(json_object_get(part, "refused"), runner->plain, &outcome) &&
		!outcome_refused(json_object_get(differs, "refused"), runner->plain, &outcome))
		expect_outcome(expect, &outcome, &found);
	if (outcome.exit_code >= 0)
		expect_exit_code(&outcome, &found);
	if (found.text) {
		complain(complaints, "%s (%s):\n%s", name, via, found.text);
		complain(complaints, "stdout: %.1500s\nstderr: %.1500s", outcome.out ? outcome.out : "", outcome.err ? outcome.err : "");
	}
	free(found.text);
	json_decref(expect);
	json_decref(spec);
	outcome_clear(&outcome);
}

static void run_controls(const struct runner *runner, const json_t *row, const char *backend, const char *via, const char *tmp,
	struct complaints *complaints)
{
	const json_t *controls = json_object_get(row, "control"), *control;
	size_t i;

	json_array_foreach(controls, i, control) {
		char name[32];

		snprintf(name, sizeof(name), "control-%zu", i + 1);
		if (!row_concerns(control, runner->plain))
			continue;
		if (run_list(json_object_get(control, "setup"), tmp, complaints) == 0)
			run_part(runner, control, backend, via, tmp, name, complaints);
	}
}

static const char *missing_of(const json_t *row, const char **retwhat)
{
	const json_t *needs = json_object_get(row, "needs"), *one;
	size_t i;

	json_array_foreach(needs, i, one) {
		const char *missing = needs_missing(json_string_value(one));

		if (missing) {
			*retwhat = json_string_value(one);
			return missing;
		}
	}
	return NULL;
}

static void print_complaints(const char *text)
{
	fputs("# ", stdout);
	for (const char *c = text; *c; c++) {
		if (*c == '\n')
			fputs(c[1] ? "\n# " : "", stdout);
		else if ((unsigned char)*c >= 0x20 && (unsigned char)*c < 0x7f)
			putchar(*c);
		else
			printf("\\x%02x", (unsigned char)*c);
	}
	putchar('\n');
}

/* Security of the suite: a wall that does otherwise must have said so, in the detail of the rule that is named. */
static const char *announced(const struct runner *runner, const json_t *differs)
{
	const char *named = json_string_value(json_object_get(differs, "named"));
	const json_t *rule;
	size_t i;

	json_array_foreach(runner->rules, i, rule) {
		const char *name = json_string_value(json_object_get(rule, "name"));

		if (named && name && !strcmp(name, named))
			return json_string_value(json_object_get(rule, "detail"));
	}
	return NULL;
}

static void run_row(const struct runner *runner, const json_t *written, const char *backend, const char *via)
{
	const char *id = json_string_value(json_object_get(written, "id")), *what = NULL;
	const char *missing = missing_of(written, &what), *background;
	const json_t *differs = differs_of(runner, written, backend);
	struct complaints complaints = { 0 };
	pid_t other = -1;
	char tmp[200];
	json_t *row;

	n_rows++;
	if (missing) {
		printf("ok %u - %s/%s/%s # SKIP needs %s: %s\n", n_rows, backend, via, id, what, missing);
		return;
	}
	if (differs && !announced(runner, differs)) {
		printf("not ok %u - %s/%s/%s\n# the plan does not say that this wall does otherwise\n", n_rows, backend, via, id);
		n_failed++;
		return;
	}
	if (json_is_true(json_object_get(differs, "skip"))) {
		printf("ok %u - %s/%s/%s # SKIP %s\n", n_rows, backend, via, id, announced(runner, differs));
		return;
	}
	if (!make_folder(tmp, sizeof(tmp))) {
		printf("not ok %u - %s/%s/%s\n# cannot make a folder\n", n_rows, backend, via, id);
		n_failed++;
		return;
	}
	row = row_expand(runner, written, tmp);
	background = json_string_value(json_object_get(row, "background"));
	if (run_list(json_object_get(row, "setup"), tmp, &complaints) == 0) {
		if (background)
			other = start_background(background, tmp);
		run_part(runner, row, backend, via, tmp, "run", &complaints);
		run_list(json_object_get(row, "check"), tmp, &complaints);
		run_controls(runner, row, backend, via, tmp, &complaints);
		end_background(other);
	}
	printf("%s %u - %s/%s/%s\n", complaints.text ? "not ok" : "ok", n_rows, backend, via, id);
	if (complaints.text) {
		n_failed++;
		printf("# %s\n", json_string_value(json_object_get(row, "title")));
		print_complaints(complaints.text);
	}
	if (complaints.text && runner->keep)
		printf("# kept in %s\n", tmp);
	else
		remove_tree(tmp);
	fflush(stdout);
	free(complaints.text);
	json_decref(row);
}

/* Whether the row can run in a box that others use: it asks nothing of box or host. */
static bool can_share(const struct runner *runner, const json_t *row)
{
	static const char *const own[] = { "spec", "setup", "check", "background", "control" };
	const char *via = json_string_value(json_object_get(row, "via"));

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (json_object_get(row, own[i]))
			return false;
	return runner->shared && (!via || !strcmp(via, "api"));
}

static void run_short(const struct runner *runner, const json_t *row, const char *backend)
{
	if (can_share(runner, row))
		run_row(runner, row, backend, "shared");
	else if (json_is_true(json_object_get(row, "every_wall")))
		run_row(runner, row, backend, "api");
}

static void run_file(const struct runner *runner, const char *path, const char *backend)
{
	static const char *const ways[] = { "api", "cli" };
	json_error_t error;
	json_t *rows = json_load_file(path, JSON_REJECT_DUPLICATES, &error), *row;
	size_t i;

	if (!json_is_array(rows)) {
		printf("not ok %u - %s\n# %d:%d: %s\n", ++n_rows, path, error.line, error.column, error.text);
		n_failed++;
		return;
	}
	json_array_foreach(rows, i, row) {
		const char *id = json_string_value(json_object_get(row, "id"));
		const char *via = json_string_value(json_object_get(row, "via"));

		if (!id || (runner->only && !strstr(id, runner->only)) || !row_concerns(row, runner->plain))
			continue;
		if (!runner->full) {
			run_short(runner, row, backend);
			continue;
		}
		for (int way = 0; way < 2; way++)
			if (!via || !strcmp(via, ways[way]))
				run_row(runner, row, backend, ways[way]);
	}
	json_decref(rows);
}

static bool backend_usable(const struct runner *runner, const char *backend)
{
	struct complaints ignored = { 0 };
	char command[4200];
	int r;

	snprintf(command, sizeof(command), "'%s' plan --backend %s >/dev/null 2>&1", runner->agentbox, backend);
	r = run_shell(command, "/", &ignored);
	free(ignored.text);
	return r == 0;
}

static json_t *rules_of(const struct runner *runner, const char *backend)
{
	char command[4200];
	json_t *plan, *rules;
	FILE *pipe;

	snprintf(command, sizeof(command), "'%s' plan --json --backend %s", runner->agentbox, backend);
	pipe = popen(command, "re");
	plan = pipe ? json_loadf(pipe, 0, NULL) : NULL;
	if (pipe)
		pclose(pipe);
	rules = json_incref(json_object_get(plan, "enforcement"));
	json_decref(plan);
	return rules;
}

/* All files behind one wall. */
static void run_wall(struct runner *runner, const char *backend, char **files)
{
	bool slow = strcmp(backend, "namespaces") != 0;
	json_t *spec = NULL;
	char id[64];

	runner->full = !slow || getenv("ABOX_TEST_LONG");
	runner->rules = rules_of(runner, backend);
	if (!runner->full) {
		spec = row_spec(runner, NULL, backend, "/");
		json_object_set_new(spec, "limits", json_pack("{s:s}", "wall", "1h"));
		if (shared_start(spec, id, sizeof(id))) {
			runner->shared = id;
		} else {
			printf("not ok %u - %s\n# the box that rows share does not start\n", ++n_rows, backend);
			n_failed++;
		}
	}
	for (; *files; files++)
		run_file(runner, *files, backend);
	if (runner->shared && !shared_stop()) {
		printf("not ok %u - %s\n# the box that rows share does not stop\n", ++n_rows, backend);
		n_failed++;
	}
	runner->shared = NULL;
	json_decref(spec);
	json_decref((json_t *)runner->rules);
}

int main(int argc, char **argv)
{
	struct runner runner = { .plain = geteuid() != 0 };
	int first = 1, n_backends = 0;

	for (; first < argc && argv[first][0] == '-'; first++) {
		if (!strcmp(argv[first], "--keep"))
			runner.keep = true;
		else if (!strcmp(argv[first], "--agentbox") && first + 1 < argc)
			runner.agentbox = argv[++first];
		else if (!strcmp(argv[first], "--probe") && first + 1 < argc)
			runner.probe = argv[++first];
		else if (!strcmp(argv[first], "--wall") && first + 1 < argc)
			runner.wall = argv[++first];
		else if (!strcmp(argv[first], "--only") && first + 1 < argc)
			runner.only = argv[++first];
	}
	/* Security: rows empty the store, and kill whoever has a file of it open. That must be a store of this run alone. */
	if (!getenv("ABOX_HOME") || !strstr(getenv("ABOX_HOME"), "/agentbox-test-")) {
		fputs("contract-runner: ABOX_HOME must name a folder of this run alone: start it with tests/support/as\n", stderr);
		return 2;
	}
	if (!runner.agentbox || !runner.probe || first >= argc) {
		fputs("usage: contract-runner --agentbox PROGRAM --probe PROGRAM [--wall NAME] [--only TEXT] [--keep] FILE...\n", stderr);
		return 2;
	}
	/* meson gives them relative to the build folder, and rows run elsewhere */
	runner.agentbox = realpath(runner.agentbox, NULL);
	runner.probe = realpath(runner.probe, NULL);
	if (!runner.agentbox || !runner.probe) {
		perror("contract-runner");
		return 2;
	}
	for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
		if (runner.wall && strcmp(runner.wall, backends[i]) != 0)
			continue;
		if (!backend_usable(&runner, backends[i])) {
			printf("# %s is not usable here\n", backends[i]);
			if (runner.wall)
				printf("1..0 # SKIP %s is not usable here: agentbox doctor tells why\n", backends[i]);
			if (runner.wall)
				return 0;
			continue;
		}
		n_backends++;
		run_wall(&runner, backends[i], argv + first);
	}
	if (n_backends == 0) {
		printf("not ok %u - no wall is usable here\n", ++n_rows);
		n_failed++;
	}
	printf("1..%u\n", n_rows);
	return n_failed > 0;
}
