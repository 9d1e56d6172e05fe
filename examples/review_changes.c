/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * review_changes DIR PATTERN CMD [ARG...]: lets a command change a folder in a box, shows what it has changed, and puts
 * what the pattern names into the folder. Nothing else of it is left.
 */
#include <agentbox/agentbox.h>
#include <stdio.h>

static int work_in_box(abox_workspace *workspace, const char *const *argv, abox_error **error)
{
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .argv = argv };
	abox_result *result = NULL;
	abox_sandbox *box = NULL;
	abox_spec *spec = NULL;
	abox_plan *plan = NULL;
	int r;

	if ((r = abox_spec_new(&spec)) < 0 ||
	    (r = abox_spec_set_json(spec, "/workspace/source", "{\"kind\": \"workspace\"}", error)) < 0 ||
	    (r = abox_spec_set_string(spec, "/workspace/source/id", abox_workspace_get_id(workspace), error)) < 0 ||
	    (r = abox_plan_compile(spec, &plan, error)) < 0 ||
	    (r = abox_sandbox_start(plan, NULL, &box, error)) < 0 ||
	    (r = abox_command_run(box, &options, &result, error)) < 0)
		goto end;
	r = abox_sandbox_stop(box, abox_result_get_exit_code(result) == 0 ? ABOX_STOP_SUCCESS : ABOX_STOP_FAILURE, NULL, error);
end:
	abox_result_unref(result);
	abox_sandbox_unref(box);
	abox_plan_unref(plan);
	abox_spec_unref(spec);
	return r;
}

static int review(abox_workspace *workspace, const char *pattern, abox_error **error)
{
	abox_changes *changes = NULL, *wanted = NULL;
	char *text = NULL;
	int r;

	if ((r = abox_workspace_diff(workspace, NULL, &changes, error)) >= 0 &&
	    (r = abox_changes_format(changes, &text)) >= 0 && fputs(text, stdout) >= 0 &&
	    (r = abox_changes_select(changes, (const char *const[]){ pattern, NULL }, &wanted, error)) >= 0)
		r = abox_workspace_apply(workspace, wanted, NULL, NULL, error); /* all of it or nothing */
	abox_free(text);
	abox_changes_unref(wanted);
	abox_changes_unref(changes);
	return r;
}

int main(int argc, char **argv)
{
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	abox_workspace *workspace = NULL;
	abox_error *error = NULL;
	int r;

	if (argc < 4) {
		fprintf(stderr, "usage: review_changes DIR PATTERN CMD [ARG...]\n");
		return 2;
	}
	options.source_kind = ABOX_SOURCE_DIR;
	options.source = argv[1];
	r = abox_workspace_create(&options, &workspace, &error);
	if (r >= 0)
		r = work_in_box(workspace, (const char *const *)argv + 3, &error);
	if (r >= 0)
		r = review(workspace, argv[2], &error);
	if (r < 0)
		fprintf(stderr, "%s: %s\n", abox_code_name(r), error ? abox_error_get_message(error) : "no details");
	if (workspace)
		abox_workspace_remove(abox_workspace_get_id(workspace), NULL);
	abox_workspace_unref(workspace);
	abox_error_free(error);
	return r < 0;
}
