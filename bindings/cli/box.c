/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Boxes from settings: compiled, started, found again. What several sub-commands do in the same way.
 */
#include "box.h"

#include <jansson.h>
#include <string.h>

/* A box that outlives us says so in its spec, and has no wall clock, unless the user has written otherwise.
 */
static int set_outlive(abox_spec *spec, abox_error **reterr)
{
	_cleanup_(text_freep) char *json = NULL;
	bool owner_written, wall_written;
	json_t *written;
	int r;

	r = abox_spec_dump(spec, &json);
	if (r < 0)
		return r;
	written = json_loads(json, 0, NULL);
	owner_written = written && json_object_get(written, "on_owner_death");
	wall_written = written && json_object_get(json_object_get(written, "limits"), "wall");
	json_decref(written);
	r = owner_written ? 0 : abox_spec_set_string(spec, "/on_owner_death", "keep", reterr);
	if (r >= 0 && !wall_written)
		r = abox_spec_set_string(spec, "/limits/wall", "off", reterr);
	return r;
}

int box_compile(struct cli_settings *settings, bool outlive, abox_plan **retplan, abox_error **reterr)
{
	int r;

	r = settings_make_spec(settings, reterr);
	if (r >= 0 && outlive)
		r = set_outlive(settings->spec, reterr);
	if (r < 0)
		return r;
	return abox_plan_compile(settings->spec, retplan, reterr);
}

int box_start(abox_plan *plan, abox_sandbox **retbox, abox_error **reterr)
{
	int r;

	progress_begin("starting the box");
	r = abox_sandbox_start(plan, NULL, retbox, reterr);
	progress_end();
	return r;
}

int box_open(const struct cli_settings *settings, int mode, abox_sandbox **retbox, abox_error **reterr)
{
	return abox_sandbox_open(settings->words[0], mode, retbox, reterr);
}

static uint32_t newest_command(const char *inspected)
{
	json_t *value = json_loads(inspected, 0, NULL), *command;
	uint32_t newest = 0, running = 0;
	size_t i;

	json_array_foreach(json_object_get(value, "commands"), i, command)
	{
		json_int_t id = json_integer_value(json_object_get(command, "id"));
		const char *state = json_string_value(json_object_get(command, "state"));

		if (id <= 0 || id > UINT32_MAX)
			continue;
		if (id > newest)
			newest = (uint32_t)id;
		if (state && !strcmp(state, "running") && id > running)
			running = (uint32_t)id;
	}
	json_decref(value);
	return running ? running : newest;
}

int box_open_command(const struct cli_settings *settings, abox_sandbox *box, abox_command **retcommand,
	abox_error **reterr)
{
	_cleanup_(text_freep) char *json = NULL;
	char number[16];
	uint32_t id;
	int r;

	if (settings->n_words > 1)
		return abox_command_open(box, settings->words[1], retcommand, reterr);
	r = abox_sandbox_inspect(box, &json, reterr);
	if (r < 0)
		return r;
	id = newest_command(json);
	if (id == 0) {
		say("no command was started in this box");
		return ABOX_E_NOT_FOUND;
	}
	snprintf(number, sizeof(number), "%u", id);
	return abox_command_open(box, number, retcommand, reterr);
}
