/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox logs: spooled output of a command, from a cursor on.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "box.h"
#include "commands.h"
#include "console.h"

static int wait_for(struct relay *relay, bool *broken, int *code)
{
	relay_wait(relay, -1);
	if (relay_get_errno(relay))
		*broken = true;
	if (relay_get_code(relay) < 0 && *code == 0)
		*code = relay_get_code(relay);
	relay_forget(relay);
	return 0;
}

static int print_logs(const struct cli_settings *settings, const char *id, uint32_t number, uint64_t cursor)
{
	bool only_errors = settings->stream && !strcmp(settings->stream, "2");
	bool only_output = settings->stream && !strcmp(settings->stream, "1");
	struct relay *output = NULL, *errors = NULL;
	bool broken = false;
	int code = 0, r = 0;

	if (!only_errors)
		r = relay_output_start(id, number, 1, cursor, STDOUT_FILENO, settings->follow,
				       !settings->raw && isatty(STDOUT_FILENO), &output);
	if (r >= 0 && !only_output)
		r = relay_output_start(id, number, 2, only_errors ? cursor : 0, only_errors ? STDOUT_FILENO : STDERR_FILENO,
				       settings->follow, !settings->raw && isatty(STDERR_FILENO), &errors);
	if (r < 0)
		return say("cannot read the output: %s", abox_code_name(r)), CLI_EXIT_FAILED;
	if (output)
		wait_for(output, &broken, &code);
	if (broken)
		return CLI_EXIT_BROKEN_PIPE;
	if (errors)
		wait_for(errors, &broken, &code);
	if (code == ABOX_E_STATE) {
		say("the output of this command was not spooled: it went to the program that started it");
		return CLI_EXIT_FAILED;
	}
	if (code < 0)
		say("reading stopped: %s", abox_code_name(code));
	return code < 0 ? CLI_EXIT_FAILED : CLI_EXIT_DONE;
}

static int run(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_sandbox_unrefp) abox_sandbox *box = NULL;
	_cleanup_(abox_command_unrefp) abox_command *command = NULL;
	uint64_t cursor = 0;
	int r;

	if (settings->cursor && !parse_u64(settings->cursor, &cursor))
		return say("--cursor %s: write it as a number of bytes", settings->cursor), CLI_EXIT_USAGE;
	if (settings->stream && strcmp(settings->stream, "1") && strcmp(settings->stream, "2"))
		return say("--stream is 1 or 2"), CLI_EXIT_USAGE;
	signal(SIGPIPE, SIG_IGN);
	r = box_open(settings, ABOX_OPEN_READ, &box, &error);
	if (r >= 0)
		r = box_open_command(settings, box, &command, &error);
	if (r < 0)
		return fail(settings, r, error);
	return print_logs(settings, abox_sandbox_get_id(box), abox_command_get_id(command), cursor);
}

static const struct cli_option logs_options[] = {
	{ "follow", 'f', NULL, "go on until the command ends", OPTION_FLAG, offsetof(struct cli_settings, follow), NULL, NULL },
	{ "cursor", 0, "N", "from this byte on; 0 is the start", OPTION_TEXT, offsetof(struct cli_settings, cursor), NULL, NULL },
	{ "stream", 0, "1|2", "only stdout, or only stderr (on stdout)", OPTION_TEXT, offsetof(struct cli_settings, stream),
	  NULL, NULL },
	{ "raw", 0, NULL, "write exact bytes to a terminal also where control bytes could drive it", OPTION_FLAG,
	  offsetof(struct cli_settings, raw), NULL, NULL },
	{ 0 }
};
static const struct cli_option *const groups[] = { logs_options, NULL };

const struct cli_command cli_logs = {
	.name = "logs",
	.usage = "[OPTIONS] ID [COMMAND]",
	.summary = "print the spooled output of a command",
	.help =
	"Prints what a command (a number, a token, or else the newest one) has written: stdout to stdout, stderr to\n"
	"stderr. Exact bytes to a file or pipe; on a terminal control bytes are left out. Bytes beyond the output limit are\n"
	"gone, and a line on stderr says how many.\n",
	.groups = groups,
	.words_min = 1,
	.words_max = 2,
	.run = run,
};
