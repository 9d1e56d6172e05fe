/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox stop: the end of a box, with a report of what was removed.
 */
#include <jansson.h>
#include <string.h>

#include "box.h"
#include "commands.h"

static void say_left_behind(const char *report)
{
	json_t *value = json_loads(report, 0, NULL), *left;
	size_t i;

	json_array_foreach(json_object_get(value, "left_behind"), i, left) {
		const char *what = json_string_value(json_object_get(left, "what"));
		const char *why = json_string_value(json_object_get(left, "error"));

		say("left behind: %s (%s)", what ? what : "?", why ? why : "?");
	}
	json_decref(value);
}

static int run(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_sandbox_unrefp) abox_sandbox *box = NULL;
	_cleanup_(text_freep) char *report = NULL;
	int mode = ABOX_STOP_SUCCESS, r;

	if (settings->stop_as && !strcmp(settings->stop_as, "failure"))
		mode = ABOX_STOP_FAILURE;
	else if (settings->stop_as && !strcmp(settings->stop_as, "cancel"))
		mode = ABOX_STOP_CANCEL;
	else if (settings->stop_as && strcmp(settings->stop_as, "success"))
		return say("--as is success, failure or cancel"), CLI_EXIT_USAGE;
	r = box_open(settings, ABOX_OPEN_CONTROL, &box, &error);
	if (r >= 0) {
		progress_begin("stopping the box");
		r = abox_sandbox_stop(box, mode, &report, &error);
		progress_end();
	}
	if (report)
		say_left_behind(report);
	if (r < 0)
		return fail(settings, r, error);
	return settings->json ? print_json_text(report) : CLI_EXIT_DONE;
}

static const struct cli_option stop_options[] = {
	{ "as", 0, "success|failure|cancel", "which policy decides what is kept (success)", OPTION_TEXT,
	  offsetof(struct cli_settings, stop_as), NULL, NULL },
	{ 0 }
};
static const struct cli_option *const groups[] = { stop_options, NULL };

const struct cli_command cli_stop = {
	.name = "stop",
	.usage = "[OPTIONS] ID",
	.summary = "end a box",
	.help =
	"Ends the box: its commands get SIGTERM, after the grace time SIGKILL, and everything it had put on the host is\n"
	"removed. --json prints the teardown report. What could not be removed is listed, and the exit code is 1.\n",
	.groups = groups,
	.words_min = 1,
	.words_max = 1,
	.run = run,
};
