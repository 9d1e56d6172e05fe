/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Runs the rows of the contract: each through the C API and through the command, behind each wall that is there, as
 * whoever started it. Output is TAP; a failed row says what is wrong and keeps its folder with --keep.
 *
 * Usage: contract-runner --agentbox PROGRAM --probe PROGRAM [--only TEXT] [--keep] FILE.json...
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

static void run_part(const struct runner *runner, const json_t *part, const char *backend, const char *via, const char *tmp,
	const char *name, struct complaints *complaints)
{
	const char *on = json_string_value(json_object_get(part, "on"));
	json_t *spec = row_spec(runner, part, backend, tmp), *expect;
	struct outcome outcome = { .exit_code = -1 };
	struct complaints found = { 0 };

	snprintf(outcome.dir, sizeof(outcome.dir), "%.200s/.%s", tmp, name);
	mkdir(outcome.dir, 0755);
	if (on && !strcmp(on, "host"))
		run_on_host(part, &outcome);
	else if (!strcmp(via, "api"))
		run_through_api(part, spec, &outcome);
	else
		run_through_cli(runner, part, spec, &outcome);
	read_outcome(&outcome);
	expect = json_deep_copy(json_object_get(part, "expect"));
	if (!expect)
		expect = json_object();
	json_object_update(expect, json_object_get(part, runner->plain ? "expect_plain" : "expect_root"));
	if (!outcome_refused(json_object_get(part, "refused"), runner->plain, &outcome))
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

static void run_row(const struct runner *runner, const json_t *written, const char *backend, const char *via)
{
	const char *id = json_string_value(json_object_get(written, "id")), *what = NULL;
	const char *missing = missing_of(written, &what), *background;
	struct complaints complaints = { 0 };
	pid_t other = -1;
	char tmp[200];
	json_t *row;

	n_rows++;
	if (missing) {
		printf("ok %u - %s/%s/%s # SKIP needs %s: %s\n", n_rows, backend, via, id, what, missing);
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
		else if (!strcmp(argv[first], "--only") && first + 1 < argc)
			runner.only = argv[++first];
	}
	if (!runner.agentbox || !runner.probe || first >= argc) {
		fputs("usage: contract-runner --agentbox PROGRAM --probe PROGRAM [--only TEXT] [--keep] FILE...\n", stderr);
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
		if (!backend_usable(&runner, backends[i])) {
			printf("# %s is not usable here\n", backends[i]);
			continue;
		}
		n_backends++;
		for (int file = first; file < argc; file++)
			run_file(&runner, argv[file], backends[i]);
	}
	if (n_backends == 0) {
		printf("not ok %u - no wall is usable here\n", ++n_rows);
		n_failed++;
	}
	printf("1..%u\n", n_rows);
	return n_failed > 0;
}
