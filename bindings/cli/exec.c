/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox exec: one more command in a box. agentbox attach: watch and type to one that runs.
 */
#include <string.h>
#include <unistd.h>

#include "answer.h"
#include "box.h"
#include "commands.h"
#include "terminal.h"

static int exec_in_box(struct answer *answer, struct console *console)
{
	const struct cli_settings *settings = answer->settings;
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	int r;

	r = console_start(console, &error);
	if (r < 0)
		return answer_error(answer, exit_of_start_error(r), r, error);
	if (settings->detach) {
		printf(settings->json ? "{\"command\": %u}\n" : "%u\n", abox_command_get_id(console->command));
		return finish_stdout() ? CLI_EXIT_NO_BOX : CLI_EXIT_DONE;
	}
	r = console_follow(console, &error);
	if (r < 0)
		return answer_error(answer, CLI_EXIT_NO_BOX, r, error);
	return answer_result(answer, console);
}

static int run_exec(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_sandbox_unrefp) abox_sandbox *box = NULL;
	struct console console = { .settings = settings, .argv = settings->words + 1 };
	struct answer answer;
	int r;

	if (settings->n_words > 1 && !strcmp(settings->words[1], "--"))
		console.argv++;
	if (!console.argv[0]) {
		say("usage: agentbox exec [OPTIONS] ID [--] COMMAND [ARGUMENT...]");
		return CLI_EXIT_NO_BOX;
	}
	r = answer_open(&answer, settings);
	if (r != 0)
		return r;
	console_prepare_signals();
	r = box_open(settings, ABOX_OPEN_ATTACH, &box, &error);
	if (r < 0)
		r = answer_error(&answer, CLI_EXIT_NO_BOX, r, error);
	else {
		console.box = box;
		r = exec_in_box(&answer, &console);
	}
	console_clear(&console);
	answer_clear(&answer);
	return r;
}

static int attach_to(struct console *console)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	const struct cli_settings *settings = console->settings;
	uint32_t rows = 24, columns = 80;
	int r;

	r = box_open_command(settings, console->box, &console->command, &error);
	if (r < 0)
		return fail(settings, r, error), CLI_EXIT_NO_BOX;
	if (settings->cursor && !parse_u64(settings->cursor, &console->cursor)) {
		say("--cursor %s: write it as a number of bytes", settings->cursor);
		return CLI_EXIT_NO_BOX;
	}
	/* Only a command with a terminal can be resized: that is how we know, and the size is right at once. */
	terminal_size(STDIN_FILENO, &rows, &columns);
	console->pty = abox_command_resize(console->command, rows, columns, NULL) >= 0;
	console->spooled = true;
	console->input = !settings->no_input;
	console->detachable = true;
	r = console_follow(console, &error);
	if (r < 0)
		return fail(settings, r, error), CLI_EXIT_NO_BOX;
	if (console->detached)
		say("detached; it goes on");
	return console_exit_code(console);
}

static int run_attach(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_sandbox_unrefp) abox_sandbox *box = NULL;
	struct console console = { .settings = settings };
	int r;

	console_prepare_signals();
	r = box_open(settings, ABOX_OPEN_ATTACH, &box, &error);
	if (r < 0)
		return fail(settings, r, error), CLI_EXIT_NO_BOX;
	console.box = box;
	r = attach_to(&console);
	console_clear(&console);
	return r;
}

static const struct cli_option attach_options[] = {
	{ "cursor", 0, "N", "replay from this byte of the output on; 0 is the start", OPTION_TEXT,
	  offsetof(struct cli_settings, cursor), NULL, NULL },
	{ "no-input", 0, NULL, "only watch", OPTION_FLAG, offsetof(struct cli_settings, no_input), NULL, NULL },
	{ "raw", 0, NULL, "write exact bytes to a terminal also where control bytes could drive it", OPTION_FLAG,
	  offsetof(struct cli_settings, raw), NULL, NULL },
	{ 0 }
};
static const struct cli_option *const exec_groups[] = { options_command, options_exec, NULL };
static const struct cli_option *const attach_groups[] = { attach_options, NULL };

const struct cli_command cli_exec = {
	.name = "exec",
	.usage = "[OPTIONS] ID [--] COMMAND [ARGUMENT...]",
	.summary = "run one more command in a box",
	.help =
	"Runs COMMAND in the box with this id or name, beside the ones that run there. Streams, signals and --result are\n"
	"as with `agentbox run`; the box stays. With --detach its number is printed and its output is spooled, for\n"
	"`agentbox logs`, `attach` and `wait`.\n",
	.groups = exec_groups,
	.words_min = 2,
	.words_max = CLI_WORDS_ANY,
	.stops_at_word = true,
	.usage_exit = CLI_EXIT_NO_BOX,
	.run = run_exec,
};

const struct cli_command cli_attach = {
	.name = "attach",
	.usage = "[OPTIONS] ID [COMMAND]",
	.summary = "watch a running command and type to it",
	.help =
	"Replays the spooled output of a command (a number, a token, or else the newest one) from the cursor on and\n"
	"follows it; what is typed goes to the command where it has a terminal or an open standard input. Ctrl-] lets go\n"
	"and the command goes on; when it ends, the exit code is its own.\n",
	.groups = attach_groups,
	.words_min = 1,
	.words_max = 2,
	.usage_exit = CLI_EXIT_NO_BOX,
	.run = run_attach,
};
