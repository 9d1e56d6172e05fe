/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox inspect: everything known of a box.
 */
#include "box.h"
#include "commands.h"

static int run(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_sandbox_unrefp) abox_sandbox *box = NULL;
	_cleanup_(text_freep) char *json = NULL;
	int r;

	r = box_open(settings, ABOX_OPEN_READ, &box, &error);
	if (r >= 0)
		r = abox_sandbox_inspect(box, &json, &error);
	if (r < 0)
		return fail(settings, r, error);
	return print_json_text(json);
}

const struct cli_command cli_inspect = {
	.name = "inspect",
	.usage = "ID",
	.summary = "print everything known of a box, as JSON",
	.help = "Prints id, name, state, commands and the plan of the box with this id or name, as JSON.\n",
	.words_min = 1,
	.words_max = 1,
	.run = run,
};
