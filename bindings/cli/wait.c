/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox wait: until a command, or the whole box, has ended.
 */
#include "box.h"
#include "commands.h"

static int wait_for_command(const struct cli_settings *settings, abox_sandbox *box, uint64_t timeout_usec)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_command_unrefp) abox_command *command = NULL;
	_cleanup_(abox_result_unrefp) abox_result *result = NULL;
	_cleanup_(text_freep) char *json = NULL;
	int r;

	r = box_open_command(settings, box, &command, &error);
	if (r >= 0)
		r = abox_command_wait(command, timeout_usec, &result, &error);
	if (r < 0)
		return fail(settings, r, error), CLI_EXIT_NO_BOX;
	if (r == 0)
		return say("it still runs"), CLI_EXIT_TIMEOUT;
	if (settings->json) {
		if (abox_result_dump(result, &json) < 0 || print_json_text(json) != 0)
			return CLI_EXIT_NO_BOX;
	}
	return exit_of_result(result);
}

static int wait_for_box(const struct cli_settings *settings, abox_sandbox *box, uint64_t timeout_usec)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	int r;

	r = abox_sandbox_wait(box, timeout_usec, &error);
	if (r < 0)
		return fail(settings, r, error), CLI_EXIT_NO_BOX;
	if (r == 0)
		return say("it still runs"), CLI_EXIT_TIMEOUT;
	if (settings->json)
		printf("{\"sandbox\": \"%s\", \"ended\": true}\n", abox_sandbox_get_id(box));
	return finish_stdout();
}

static int run(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_sandbox_unrefp) abox_sandbox *box = NULL;
	uint64_t timeout_usec = ABOX_FOREVER;
	int r;

	if (settings->timeout && !parse_duration(settings->timeout, &timeout_usec))
		return say("--timeout %s: write it as 90s, 5m, 2h or 500ms", settings->timeout), CLI_EXIT_USAGE;
	r = box_open(settings, ABOX_OPEN_READ, &box, &error);
	if (r < 0)
		return fail(settings, r, error), CLI_EXIT_NO_BOX;
	if (settings->n_words == 1)
		return wait_for_box(settings, box, timeout_usec);
	return wait_for_command(settings, box, timeout_usec);
}

static const struct cli_option wait_options[] = {
	{ "timeout", 0, "TIME", "wait no longer than this", OPTION_TEXT, offsetof(struct cli_settings, timeout), NULL, NULL },
	{ 0 }
};
static const struct cli_option *const groups[] = { wait_options, NULL };

const struct cli_command cli_wait = {
	.name = "wait",
	.usage = "[OPTIONS] ID [COMMAND]",
	.summary = "wait for a command or a box to end",
	.help =
	"With COMMAND (a number or token) waits for that command and ends with its exit code, as `agentbox run` would;\n"
	"--json prints its result. Without it waits until the box has ended. When --timeout passes first, the exit code\n"
	"is 124 and nothing is changed.\n",
	.groups = groups,
	.words_min = 1,
	.words_max = 2,
	.run = run,
};
