/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox kill: end a command with all that it has started, or send it a signal.
 */
#include "box.h"
#include "commands.h"

static int run(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_sandbox_unrefp) abox_sandbox *box = NULL;
	_cleanup_(abox_command_unrefp) abox_command *command = NULL;
	int signal_number = 0, r;

	if (settings->signal_name) {
		signal_number = parse_signal(settings->signal_name);
		if (signal_number == 0)
			return say("--signal %s: there is no such signal", settings->signal_name), CLI_EXIT_USAGE;
	}
	r = box_open(settings, ABOX_OPEN_ATTACH, &box, &error);
	if (r >= 0)
		r = box_open_command(settings, box, &command, &error);
	if (r >= 0 && signal_number)
		r = abox_command_signal(command, signal_number, &error);
	else if (r >= 0)
		r = abox_command_kill(command, ABOX_FOREVER, &error);
	if (r < 0)
		return fail(settings, r, error);
	if (settings->json)
		printf("{\"sandbox\": \"%s\", \"command\": %u}\n", abox_sandbox_get_id(box), abox_command_get_id(command));
	return finish_stdout();
}

static const struct cli_option kill_options[] = {
	{ "signal", 0, "NAME", "only send this signal to its main process", OPTION_TEXT,
	  offsetof(struct cli_settings, signal_name), NULL, NULL },
	{ 0 }
};
static const struct cli_option *const groups[] = { kill_options, NULL };

const struct cli_command cli_kill = {
	.name = "kill",
	.usage = "[OPTIONS] ID [COMMAND]",
	.summary = "end a command, or send it a signal",
	.help =
	"Ends a command (a number, a token, or else the newest one) with every process it has started: SIGTERM, the\n"
	"grace time, SIGKILL. With --signal only its main process gets that signal. The box stays.\n",
	.groups = groups,
	.words_min = 1,
	.words_max = 2,
	.run = run,
};
