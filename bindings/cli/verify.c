/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox verify: try the walls of a live box from inside.
 */
#include <jansson.h>
#include <string.h>

#include "box.h"
#include "commands.h"

static void print_lines(json_t *lines)
{
	json_t *entry;
	size_t i;

	json_array_foreach(lines, i, entry) {
		const char *name = json_string_value(json_object_get(entry, "name"));
		const char *expected = json_string_value(json_object_get(entry, "expected"));
		const char *outcome = json_string_value(json_object_get(entry, "outcome"));
		const char *detail = json_string_value(json_object_get(entry, "detail"));

		if (!name || !expected || !outcome)
			continue;
		printf("%-9s %-28s %s%s%s\n", strcmp(expected, outcome) ? "MISMATCH" : "proven", name, outcome,
		       detail && detail[0] ? ": " : "", detail ? detail : "");
	}
}

static void print_receipt(const char *json)
{
	json_t *receipt = json_loads(json, 0, NULL);

	print_lines(json_object_get(receipt, "proven"));
	print_lines(json_object_get(receipt, "mismatches"));
	printf("%zu proven, %zu mismatches, plan %s\n", json_array_size(json_object_get(receipt, "proven")),
	       json_array_size(json_object_get(receipt, "mismatches")),
	       json_string_value(json_object_get(receipt, "plan_digest")));
	json_decref(receipt);
}

static int run(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_sandbox_unrefp) abox_sandbox *box = NULL;
	_cleanup_(text_freep) char *json = NULL;
	int r;

	r = box_open(settings, ABOX_OPEN_ATTACH, &box, &error);
	if (r >= 0)
		r = abox_sandbox_verify(box, &json, &error);
	if (!json)
		return fail(settings, r, error);
	if (settings->json) {
		if (print_json_text(json) != 0)
			return CLI_EXIT_FAILED;
	} else
		print_receipt(json);
	if (r < 0)
		say_error(r, error);
	return r < 0 || finish_stdout() ? CLI_EXIT_FAILED : CLI_EXIT_DONE;
}

const struct cli_command cli_verify = {
	.name = "verify",
	.usage = "[--json] ID",
	.summary = "try the walls of a box from inside",
	.help =
	"Runs probes inside the live box that try to write outside, read hidden paths, connect out, trace, mount, make\n"
	"namespaces and so on, each beside a control that must succeed, and prints what was proven. Anything less than\n"
	"the plan promises is a mismatch, and the exit code is 1.\n",
	.words_min = 1,
	.words_max = 1,
	.run = run,
};
