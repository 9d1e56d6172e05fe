/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox run: a box, a command in it, and its end. agentbox start: a box only.
 */
#include <jansson.h>
#include <string.h>

#include "answer.h"
#include "box.h"
#include "commands.h"

static int print_started(const struct cli_settings *settings, const abox_sandbox *box, const abox_command *command)
{
	if (settings->json && command)
		printf("{\"sandbox\": \"%s\", \"command\": %u}\n", abox_sandbox_get_id(box), abox_command_get_id(command));
	else if (settings->json)
		printf("{\"sandbox\": \"%s\"}\n", abox_sandbox_get_id(box));
	else
		printf("%s\n", abox_sandbox_get_id(box));
	return finish_stdout() ? CLI_EXIT_NO_BOX : CLI_EXIT_DONE;
}

/* What is there for the user afterwards, and what could not be kept. */
static void say_workspace(const char *teardown)
{
	json_t *report = json_loads(teardown, 0, NULL), *workspace = json_object_get(report, "workspace");
	const char *outcome = json_string_value(json_object_get(workspace, "outcome"));
	const char *results = json_string_value(json_object_get(workspace, "results"));
	const char *place = json_string_value(json_object_get(json_object_get(workspace, "error"), "place"));
	const char *message = json_string_value(json_object_get(json_object_get(workspace, "error"), "message"));
	const char *id = json_string_value(json_object_get(workspace, "id"));

	if (outcome && id && (!strcmp(outcome, "kept") || !strcmp(outcome, "snapshot")))
		say("the workspace stays: %s", id);
	if (results)
		say("results: %s", results);
	if (message)
		say("workspace %s stays as it is: %s%s%s", id, place ? place : "", place ? ": " : "", message);
	json_decref(report);
}

/* Of a box that has ended by itself nobody has the report any more: what stays of its workspace is looked up. */
static void say_workspace_of_ended(const struct cli_settings *settings)
{
	abox_workspace *workspace = NULL;

	if (!settings->workspace || abox_workspace_open(settings->workspace, &workspace, NULL) < 0)
		return;
	say("the workspace stays: %s", settings->workspace);
	abox_workspace_unref(workspace);
}

/* Id of the workspace that is kept for the box, while it is there to be asked. */
static char *find_workspace(const abox_plan *plan, abox_sandbox *box)
{
	_cleanup_(text_freep) char *dump = NULL, *state = NULL;
	const char *id;
	json_t *value;
	char *copy = NULL;

	if (abox_plan_dump(plan, &dump, NULL) < 0 || !strstr(dump, "\"stored\":true") ||
		abox_sandbox_inspect(box, &state, NULL) < 0)
		return NULL;
	value = json_loads(state, 0, NULL);
	id = json_string_value(json_object_get(value, "workspace"));
	if (id)
		copy = strdup(id);
	json_decref(value);
	return copy;
}

/* The box goes; what could not be removed is said, and stands in the result. The command's exit code stays. */
static void stop_box(struct answer *answer, abox_sandbox *box, int mode)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	int r;

	r = abox_sandbox_stop(box, mode, &answer->teardown, &error);
	/* A box that has ended by itself, by its clock for example, has been torn down already. */
	if (r < 0 && r != ABOX_E_GONE)
		say_error(r, error);
	if (answer->teardown)
		say_workspace(answer->teardown);
	else if (r == ABOX_E_GONE)
		say_workspace_of_ended(answer->settings);
}

static int stop_mode(const struct console *console, int exit_code)
{
	if (console->canceled || console->broken_pipe)
		return ABOX_STOP_CANCEL;
	return exit_code == 0 ? ABOX_STOP_SUCCESS : ABOX_STOP_FAILURE;
}

static int run_in_box(struct answer *answer, struct console *console)
{
	const struct cli_settings *settings = answer->settings;
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	int r;

	r = console_start(console, &error);
	if (r < 0) {
		stop_box(answer, console->box, ABOX_STOP_FAILURE);
		return answer_error(answer, exit_of_start_error(r), r, error);
	}
	if (settings->detach)
		return print_started(settings, console->box, console->command);
	r = console_follow(console, &error);
	if (r < 0) {
		stop_box(answer, console->box, ABOX_STOP_CANCEL);
		return answer_error(answer, CLI_EXIT_NO_BOX, r, error);
	}
	if (settings->keep)
		say("the box stays: %s", abox_sandbox_get_id(console->box));
	else {
		int mode = stop_mode(console, console_exit_code(console));

		stop_box(answer, console->box, mode);
	}
	return answer_result(answer, console);
}

static int run(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_plan_unrefp) abox_plan *plan = NULL;
	_cleanup_(abox_sandbox_unrefp) abox_sandbox *box = NULL;
	struct console console = { .settings = settings, .argv = settings->words };
	struct answer answer;
	int r;

	r = answer_open(&answer, settings);
	if (r != 0)
		return r;
	console_prepare_signals();
	r = box_compile(settings, settings->detach || settings->keep, &plan, &error);
	if (r >= 0)
		r = box_start(plan, &box, &error);
	if (r < 0)
		r = answer_error(&answer, CLI_EXIT_NO_BOX, r, error);
	else {
		console.box = box;
		settings->workspace = find_workspace(plan, box);
		r = run_in_box(&answer, &console);
	}
	console_clear(&console);
	answer_clear(&answer);
	return r;
}

static int start(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_plan_unrefp) abox_plan *plan = NULL;
	_cleanup_(abox_sandbox_unrefp) abox_sandbox *box = NULL;
	int r;

	r = box_compile(settings, true, &plan, &error);
	if (r >= 0)
		r = box_start(plan, &box, &error);
	if (r < 0) {
		fail(settings, r, error);
		return CLI_EXIT_NO_BOX;
	}
	return print_started(settings, box, NULL);
}

static const struct cli_option *const run_groups[] = { options_box, options_start, options_command, NULL };
static const struct cli_option *const start_groups[] = { options_box, NULL };

const struct cli_command cli_run = {
	.name = "run",
	.usage = "[OPTIONS] [--] COMMAND [ARGUMENT...]",
	.summary = "run a command in a box of its own",
	.help =
	"Makes a box, runs COMMAND in it and removes the box. What the command writes is copied to our own stdout\n"
	"and stderr; it reads nothing unless -i passes our standard input on. Nothing of our environment, descriptors\n"
	"or terminal gets in. Without options it sees the system's programs read-only, an empty /workspace, and no\n"
	"network; `agentbox plan` prints what would be enforced.\n\n"
	"SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed to the command; a second one kills it with all it has started.\n"
	"With -t the command has a terminal of its own; with -it ours is made raw meanwhile and is restored on every\n"
	"way out. From a background process group our terminal is neither read nor changed. Where a clock, a limit or a\n"
	"signal ended the command, one line on stderr says which, and what that rests on.\n\n"
	"With --keep or --detach the box lives on until `agentbox stop`, --timeout or --idle; without --timeout it has\n"
	"no wall clock then. --result writes cause, exit_code, signal, wall_usec, cpu_usec, memory_peak_bytes,\n"
	"stdout_bytes, stderr_bytes, truncated, survivors, limits, sandbox, plan_digest, workspace (where one is kept)\n"
	"and the teardown report, or the error when the box could not be made. With --json the same goes to stdout, with the output of the command\n"
	"in it (as stdout_base64, stderr_base64 where it is not UTF-8).\n",
	.groups = run_groups,
	.words_min = 1,
	.words_max = CLI_WORDS_ANY,
	.stops_at_word = true,
	.usage_exit = CLI_EXIT_NO_BOX,
	.run = run,
};

const struct cli_command cli_start = {
	.name = "start",
	.usage = "[OPTIONS]",
	.summary = "start a box that lives on, for exec",
	.help =
	"Makes a box and prints its id. It lives until `agentbox stop`, --timeout or --idle, whoever started it, and has\n"
	"no wall clock unless --timeout is given. Its record and output stay until `agentbox rm`.\n",
	.groups = start_groups,
	.words_max = 0,
	.usage_exit = CLI_EXIT_NO_BOX,
	.run = start,
};
