/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* run_once CMD [ARG...]: one command in a box of its own. Ends with its exit code (255: a signal ended it). */
#include <agentbox/agentbox.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .argv = (const char *const *)argv + 1 };
	abox_error *error = NULL;
	abox_spec *spec = NULL;
	abox_plan *plan = NULL;
	abox_sandbox *box = NULL;
	abox_result *result = NULL;
	const void *output = "";
	size_t len = 0;
	int r;

	if ((r = abox_spec_from_json("{\"version\": 1, \"limits\": {\"wall\": \"1m\"}}", &spec, &error)) < 0 ||
	    (r = abox_plan_compile(spec, &plan, &error)) < 0 || /* looks at the host, changes nothing */
	    (r = abox_sandbox_start(plan, NULL, &box, &error)) < 0 ||
	    (r = abox_command_run(box, &options, &result, &error)) < 0 ||
	    (r = abox_sandbox_stop(box, ABOX_STOP_SUCCESS, NULL, &error)) < 0)
		fprintf(stderr, "%s: %s\n", abox_code_name(r), error ? abox_error_get_message(error) : "no details");
	else if (abox_result_get_output(result, 1, &output, &len) >= 0)
		fwrite(output, 1, len, stdout);
	r = r < 0 ? 125 : abox_result_get_exit_code(result);
	abox_result_unref(result);
	abox_sandbox_unref(box); /* ends the box too, where an error came before the stop */
	abox_plan_unref(plan);
	abox_spec_unref(spec);
	abox_error_free(error);
	return r;
}
