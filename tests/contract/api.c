/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A row through the C API: compile, start, run, stop, in a process of its own that can be ended.
 */
#include <agentbox/command.h>
#include <agentbox/error.h>
#include <agentbox/plan.h>
#include <agentbox/sandbox.h>
#include <agentbox/spec.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner.h"

struct api_run {
	const json_t *row;
	const json_t *spec;
	const char *shared;	/* run in this box instead of one from spec */
	const struct outcome *outcome;
};

static void put_file(const struct outcome *outcome, const char *name, const void *data, size_t len)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", outcome->dir, name);
	file = fopen(path, "we");
	if (!file)
		return;
	fwrite(data, 1, len, file);
	fclose(file);
}

static void put_error(const struct outcome *outcome, int code, const abox_error *error)
{
	char *json = NULL, *text = NULL;

	if (error && abox_error_dump(error, &json) >= 0 && asprintf(&text, "{\"error\": %s}", json) >= 0)
		put_file(outcome, "result.json", text, strlen(text));
	else if (asprintf(&text, "{\"error\": {\"code\": \"%s\"}}", abox_code_name(code)) >= 0)
		put_file(outcome, "result.json", text, strlen(text));
}

static void put_result(const struct outcome *outcome, const abox_result *result)
{
	static const char *const names[] = { "", "stdout", "stderr" };
	char *json = NULL;

	for (int stream = 1; stream <= 2; stream++) {
		const void *data;
		size_t len;

		if (abox_result_get_output(result, stream, &data, &len) >= 0)
			put_file(outcome, names[stream], data, len);
	}
	if (abox_result_dump(result, &json) >= 0)
		put_file(outcome, "result.json", json, strlen(json));
}

static const char **text_list(const json_t *list)
{
	const char **texts = calloc(json_array_size(list) + 1, sizeof(*texts));
	const json_t *one;
	size_t i;

	json_array_foreach(list, i, one)
		texts[i] = json_string_value(one);
	return texts;
}

static uint64_t number_of(const json_t *options, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(options, name));
}

static void fill_options(const json_t *row, struct abox_command_options *options)
{
	const json_t *given = json_object_get(row, "options"), *input = json_object_get(given, "stdin");

	options->argv = text_list(json_object_get(row, "command"));
	if (json_object_get(given, "env"))
		options->env = text_list(json_object_get(given, "env"));
	options->cwd = json_string_value(json_object_get(given, "cwd"));
	options->user = json_string_value(json_object_get(given, "user"));
	options->pty = json_is_true(json_object_get(given, "pty"));
	options->stderr_to_stdout = json_is_true(json_object_get(given, "stderr_to_stdout"));
	options->output_kill = json_is_true(json_object_get(given, "output_kill"));
	options->survivors = json_is_true(json_object_get(given, "keep_survivors")) ? ABOX_SURVIVORS_KEEP : ABOX_SURVIVORS_KILL;
	options->timeout_usec = number_of(given, "timeout_usec");
	options->grace_usec = number_of(given, "grace_usec");
	options->output_bytes = number_of(given, "output_bytes");
	options->memory_bytes = number_of(given, "memory_bytes");
	options->pids = number_of(given, "pids");
	options->cpu_usec = number_of(given, "cpu_usec");
	options->file_bytes = number_of(given, "file_bytes");
	options->open_files = (uint32_t)number_of(given, "open_files");
	if (input) {
		options->stdin_mode = ABOX_STDIN_BYTES;
		options->stdin_data = json_string_value(input);
		options->stdin_len = json_string_length(input);
	}
}

static int compile(const struct api_run *run, abox_plan **retplan, abox_error **reterr)
{
	char *text = json_is_string(run->spec) ? strdup(json_string_value(run->spec)) : json_dumps(run->spec, 0);
	abox_spec *spec = NULL;
	int r;

	r = abox_spec_from_json(text, &spec, reterr);
	free(text);
	if (r < 0)
		return r;
	r = abox_plan_compile(spec, retplan, reterr);
	abox_spec_unref(spec);
	return r;
}

/* A child: it leaves by _exit, so what it holds goes with it. */
static void run_api(void *argument)
{
	const struct api_run *run = argument;
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT };
	abox_error *error = NULL;
	abox_plan *plan = NULL;
	abox_sandbox *box = NULL;
	abox_result *result = NULL;
	char *report = NULL;
	int r;

	if (run->shared) {
		r = abox_sandbox_open(run->shared, ABOX_OPEN_ATTACH, &box, &error);
	} else {
		r = compile(run, &plan, &error);
		if (r >= 0)
			r = abox_sandbox_start(plan, NULL, &box, &error);
	}
	if (r < 0) {
		put_error(run->outcome, r, error);
		return;
	}
	fill_options(run->row, &options);
	r = abox_command_run(box, &options, &result, &error);
	if (r < 0)
		put_error(run->outcome, r, error);
	else
		put_result(run->outcome, result);
	abox_result_unref(result);
	error = abox_error_free(error);
	if (run->shared) {
		abox_sandbox_unref(box);
		return;
	}
	r = abox_sandbox_stop(box, r < 0 ? ABOX_STOP_FAILURE : ABOX_STOP_SUCCESS, &report, &error);
	if (r < 0 && r != ABOX_E_GONE)
		put_error(run->outcome, r, error);
	abox_free(report);
	abox_sandbox_unref(box);
	abox_plan_unref(plan);
}

static abox_sandbox *shared;

bool shared_start(const json_t *spec, char *retid, size_t size)
{
	struct outcome nowhere = { .dir = "/nonexistent" };
	struct api_run run = { .spec = spec, .outcome = &nowhere };
	abox_error *error = NULL;
	abox_plan *plan = NULL;
	int r;

	r = compile(&run, &plan, &error);
	if (r >= 0)
		r = abox_sandbox_start(plan, NULL, &shared, &error);
	if (r < 0)
		printf("# %s\n", abox_error_get_message(error));
	else
		snprintf(retid, size, "%s", abox_sandbox_get_id(shared));
	abox_error_free(error);
	abox_plan_unref(plan);
	return r >= 0;
}

bool shared_stop(void)
{
	char *report = NULL;
	int r = abox_sandbox_stop(shared, ABOX_STOP_SUCCESS, &report, NULL);

	abox_free(report);
	shared = abox_sandbox_unref(shared);
	return r >= 0;
}

/* What one row has left must not be met by the next. */
static void clean_shared(void *argument)
{
	const char *const argv[] = { "sh", "-c", "rm -rf /workspace/* /workspace/.[!.]* /tmp/* /dev/shm/* \"$HOME\"/*", NULL };
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .argv = argv };
	abox_sandbox *box = NULL;
	abox_result *result = NULL;

	if (abox_sandbox_open(argument, ABOX_OPEN_ATTACH, &box, NULL) >= 0)
		abox_command_run(box, &options, &result, NULL);
	abox_result_unref(result);
	abox_sandbox_unref(box);
}

void run_in_shared(const char *id, const json_t *row, struct outcome *outcome)
{
	struct api_run run = { .row = row, .shared = id, .outcome = outcome };
	double started = now_seconds();

	if (!run_bounded(run_api, &run, row_seconds(row)))
		put_file(outcome, "stderr", "it did not end in time\n", 23);
	outcome->seconds = now_seconds() - started;
	outcome->exit_code = -1;
	run_bounded(clean_shared, (void *)id, 30);
}

void run_through_api(const json_t *row, const json_t *spec, struct outcome *outcome)
{
	struct api_run run = { .row = row, .spec = spec, .outcome = outcome };
	double started = now_seconds();

	if (!run_bounded(run_api, &run, row_seconds(row)))
		put_file(outcome, "stderr", "it did not end in time\n", 23);
	outcome->seconds = now_seconds() - started;
	outcome->exit_code = -1;
}
