/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox pause, agentbox resume: every process of a box stands still, and goes on.
 */
#include "box.h"
#include "commands.h"

static int change(const struct cli_settings *settings, int (*function)(abox_sandbox *, abox_error **), const char *state)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_sandbox_unrefp) abox_sandbox *box = NULL;
	int r;

	r = box_open(settings, ABOX_OPEN_CONTROL, &box, &error);
	if (r >= 0)
		r = function(box, &error);
	if (r < 0)
		return fail(settings, r, error);
	if (settings->json)
		printf("{\"sandbox\": \"%s\", \"state\": \"%s\"}\n", abox_sandbox_get_id(box), state);
	return finish_stdout();
}

static int run_pause(struct cli_settings *settings)
{
	return change(settings, abox_sandbox_pause, "paused");
}

static int run_resume(struct cli_settings *settings)
{
	return change(settings, abox_sandbox_resume, "running");
}

const struct cli_command cli_pause = {
	.name = "pause",
	.usage = "ID",
	.summary = "stop every process of a box until resume",
	.help = "Every process of the box stands still until `agentbox resume`. The wall clock goes on.\n",
	.words_min = 1,
	.words_max = 1,
	.run = run_pause,
};

const struct cli_command cli_resume = {
	.name = "resume",
	.usage = "ID",
	.summary = "let a paused box go on",
	.help = "Lets the processes of a paused box go on.\n",
	.words_min = 1,
	.words_max = 1,
	.run = run_resume,
};
