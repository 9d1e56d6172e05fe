/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * inspect_plan [MEMORY]: makes a spec with setters and prints the plan: what this host would enforce, and by what.
 * Nothing is started. With MEMORY (such as 1GiB) the limit is written: where this host cannot keep it, the plan is
 * refused, and every part of the error is shown.
 */
#include <agentbox/agentbox.h>
#include <stdio.h>

static void print_error(const abox_error *error)
{
	const char *place = abox_error_get_place(error), *remedy = abox_error_get_remedy(error);

	fprintf(stderr, "code:    %s\n", abox_code_name(abox_error_get_code(error)));
	fprintf(stderr, "stage:   %s\n", abox_stage_name(abox_error_get_stage(error)));
	fprintf(stderr, "place:   %s\n", place ? place : "-");
	fprintf(stderr, "message: %s\n", abox_error_get_message(error));
	fprintf(stderr, "remedy:  %s\n", remedy ? remedy : "-");
}

static int make_spec(const char *memory, abox_spec **ret, abox_error **reterr)
{
	abox_spec *spec = NULL;
	int r;

	r = abox_spec_new(&spec);
	if (r >= 0)
		r = abox_spec_set_string(spec, "/limits/wall", "10m", reterr);
	if (r >= 0)
		r = abox_spec_set_integer(spec, "/limits/pids", 200, reterr);
	if (r >= 0 && memory)
		r = abox_spec_set_string(spec, "/limits/memory", memory, reterr);
	if (r >= 0)
		r = abox_spec_add_mount(spec, NULL, "/scratch", ABOX_MOUNT_TMPFS, reterr);
	if (r >= 0)
		r = abox_spec_add_env(spec, "CI", "1", reterr);
	if (r < 0) {
		abox_spec_unref(spec);
		return r;
	}
	*ret = spec;
	return 0;
}

int main(int argc, char **argv)
{
	abox_error *error = NULL;
	abox_spec *spec = NULL;
	abox_plan *plan = NULL;
	char *json = NULL;
	int r;

	r = make_spec(argc > 1 ? argv[1] : NULL, &spec, &error);
	if (r >= 0)
		r = abox_plan_compile(spec, &plan, &error);
	if (r >= 0)
		r = abox_plan_dump(plan, &json, &error);
	if (r >= 0) {
		fprintf(stderr, "wall %s, digest %s\n", abox_plan_get_backend(plan), abox_plan_get_digest(plan));
		puts(json);
	} else if (error)
		print_error(error);
	else
		fprintf(stderr, "code:    %s\n", abox_code_name(r));
	abox_free(json);
	abox_plan_unref(plan);
	abox_spec_unref(spec);
	abox_error_free(error);
	return r < 0;
}
