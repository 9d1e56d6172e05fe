/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox plan: what would be enforced here, without making a box.
 */
#include <jansson.h>
#include <string.h>

#include "box.h"
#include "commands.h"

static const char *text_of(const json_t *value, const char *key)
{
	const char *text = json_string_value(json_object_get(value, key));

	return text ? text : "";
}

static void print_workspace(const json_t *workspace)
{
	const json_t *layers = json_object_get(workspace, "layers"), *layer;
	size_t i;

	printf("\nworkspace  %s of %s: %s\n", text_of(workspace, "mode"), text_of(workspace, "kind"),
		text_of(workspace, "why"));
	json_array_foreach(layers, i, layer)
		printf("  layer    %s %s\n", text_of(layer, "kind"), text_of(layer, "is"));
	printf("  rename   %s\n", text_of(workspace, "rename"));
	printf("  then     success: %s, failure: %s, cancel: %s, timeout: %s\n", text_of(workspace, "on_success"),
		text_of(workspace, "on_failure"), text_of(workspace, "on_cancel"), text_of(workspace, "on_timeout"));
}

static void print_plan(const json_t *plan)
{
	const json_t *rules = json_object_get(plan, "enforcement"), *entry;
	int width = 2;
	size_t i;

	json_array_foreach(rules, i, entry)
		if ((int)strlen(text_of(entry, "by")) > width)
			width = (int)strlen(text_of(entry, "by"));
	printf("backend  %s\ndigest   %s\n\n", text_of(plan, "backend"), text_of(plan, "digest"));
	printf("%-20s %-24s %-*s  %s\n", "RULE", "STATUS", width, "BY", "DETAIL");
	json_array_foreach(rules, i, entry)
		printf("%-20s %-24s %-*s  %s\n", text_of(entry, "name"), text_of(entry, "status"), width,
			text_of(entry, "by"), text_of(entry, "detail"));
	print_workspace(json_object_get(plan, "workspace"));
	json_array_foreach(json_object_get(plan, "warnings"), i, entry)
		if (json_is_string(entry))
			printf("\nwarning: %s\n", json_string_value(entry));
}

static int run(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_plan_unrefp) abox_plan *plan = NULL;
	_cleanup_(text_freep) char *json = NULL;
	json_t *value;
	int r;

	r = box_compile(settings, false, &plan, &error);
	if (r >= 0)
		r = abox_plan_dump(plan, &json, &error);
	if (r < 0)
		return fail(settings, r, error);
	if (settings->json)
		return print_json_text(json);
	value = json_loads(json, 0, NULL);
	if (!value)
		return say("the plan cannot be read"), CLI_EXIT_FAILED;
	print_plan(value);
	json_decref(value);
	return finish_stdout();
}

static const struct cli_option *const groups[] = { options_box, NULL };

const struct cli_command cli_plan = {
	.name = "plan",
	.usage = "[OPTIONS]",
	.summary = "print what would be enforced here, and by what",
	.help =
	"Checks a spec against this host and prints what a box made from it would enforce, by what means, and what was\n"
	"waived. The host is only read. What was asked for and cannot be enforced here is refused, with the reason.\n",
	.groups = groups,
	.run = run,
};
