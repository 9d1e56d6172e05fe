/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox rm: forget boxes that have ended. agentbox gc: clear away what dead ones have left.
 */
#include "commands.h"

static int run_rm(struct cli_settings *settings)
{
	int result = CLI_EXIT_DONE;

	for (unsigned i = 0; i < settings->n_words; i++) {
		_cleanup_(abox_error_freep) abox_error *error = NULL;
		int r = abox_sandbox_remove(settings->words[i], &error);

		if (r < 0)
			result = fail(settings, r, error);
		else if (settings->json)
			printf("{\"removed\": true, \"number\": %u}\n", i + 1);
	}
	return finish_stdout() ? CLI_EXIT_FAILED : result;
}

static int run_gc(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(text_freep) char *json = NULL;
	int r;

	r = abox_sandbox_gc(&json, &error);
	if (r < 0)
		return fail(settings, r, error);
	return settings->json ? print_json_text(json) : CLI_EXIT_DONE;
}

const struct cli_command cli_rm = {
	.name = "rm",
	.usage = "ID...",
	.summary = "forget boxes that have ended",
	.help = "Removes the record and the output of detached boxes that have ended. A running box is refused: stop it first.\n",
	.words_min = 1,
	.words_max = CLI_WORDS_ANY,
	.run = run_rm,
};

const struct cli_command cli_gc = {
	.name = "gc",
	.usage = "[--json]",
	.summary = "clear away what dead boxes have left",
	.help =
	"Removes state folders and control groups of boxes whose keeper is dead. Running boxes are never touched, and the\n"
	"records of detached boxes stay until `agentbox rm`. --json prints what was removed.\n",
	.run = run_gc,
};
