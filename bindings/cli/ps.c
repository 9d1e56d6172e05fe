/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox ps: the boxes of this user.
 */
#include <jansson.h>
#include <time.h>

#include "commands.h"

static const char *text_of(const json_t *box, const char *key)
{
	const char *text = json_string_value(json_object_get(box, key));

	return text ? text : "-";
}

static void print_age(json_int_t created_usec)
{
	json_int_t age = (json_int_t)time(NULL) - created_usec / 1000000;

	if (age < 0)
		age = 0;
	if (age < 120)
		printf("%4llds", (long long)age);
	else if (age < 7200)
		printf("%4lldm", (long long)(age / 60));
	else if (age < 172800)
		printf("%4lldh", (long long)(age / 3600));
	else
		printf("%4lldd", (long long)(age / 86400));
}

static void print_table(const json_t *boxes)
{
	const json_t *box;
	size_t i;

	printf("%-32s  %-10s %-11s %5s  %s\n", "ID", "STATE", "BACKEND", "AGE", "NAME");
	json_array_foreach(boxes, i, box) {
		printf("%-32s  %-10s %-11s ", text_of(box, "id"), text_of(box, "state"), text_of(box, "backend"));
		print_age(json_integer_value(json_object_get(box, "created_usec")));
		printf("  %s\n", text_of(box, "name"));
	}
}

static int run(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(text_freep) char *json = NULL;
	json_t *boxes;
	int r;

	r = abox_sandbox_list(&json, &error);
	if (r < 0)
		return fail(settings, r, error);
	if (settings->json)
		return print_json_text(json);
	boxes = json_loads(json, 0, NULL);
	if (!boxes)
		return say("the list cannot be read"), CLI_EXIT_FAILED;
	print_table(boxes);
	json_decref(boxes);
	return finish_stdout();
}

const struct cli_command cli_ps = {
	.name = "ps",
	.usage = "[--json]",
	.summary = "list boxes",
	.help = "Lists the boxes of this user: running ones, and detached ones that have ended and were not removed yet.\n",
	.run = run,
};
