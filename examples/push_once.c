/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * push_once JOURNAL TASK DIR HOST PATH: pushes a git folder from a box to https://HOST/PATH as branch TASK. A rule makes
 * an effect of the push: it is written into the journal before it leaves, and however often this is called for the task,
 * in whatever box, it is sent once; what comes again gets the answer that was stored.
 */
#include <agentbox/agentbox.h>
#include <stdio.h>

static int make_spec(char **argv, abox_spec **ret, abox_error **error)
{
	char network[1024];
	abox_spec *spec;
	int r;

	snprintf(network, sizeof(network),
		"{\"mode\": \"allow\", \"allow\": ["
		"{\"host\": \"%s\", \"methods\": [\"POST\"], \"paths\": [\"/%s/git-receive-pack\"],"
		" \"effect\": {\"class\": \"opaque\", \"key\": \"git-refs\"}}, {\"host\": \"%s\"}]}",
		argv[4], argv[5], argv[4]);
	if ((r = abox_spec_new(&spec)) < 0)
		return r;
	if ((r = abox_spec_set_json(spec, "/network", network, error)) < 0 ||
	    (r = abox_spec_set_string(spec, "/journal", argv[1], error)) < 0 ||
	    (r = abox_spec_set_string(spec, "/task", argv[2], error)) < 0 ||
	    (r = abox_spec_set_json(spec, "/workspace/source", "{\"kind\": \"dir\"}", error)) < 0 ||
	    (r = abox_spec_set_string(spec, "/workspace/source/path", argv[3], error)) < 0) {
		abox_spec_unref(spec);
		return r;
	}
	*ret = spec;
	return 0;
}

static int push(char **argv, int *retcode, abox_error **error)
{
	char url[512], branch[300];
	const char *const command[] = { "git", "push", url, branch, NULL };
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .argv = command };
	abox_result *result = NULL;
	abox_sandbox *box = NULL;
	abox_spec *spec = NULL;
	abox_plan *plan = NULL;
	const void *output = "";
	size_t len = 0;
	int r;

	snprintf(url, sizeof(url), "https://%s/%s", argv[4], argv[5]);
	snprintf(branch, sizeof(branch), "HEAD:refs/heads/%s", argv[2]);
	if ((r = make_spec(argv, &spec, error)) < 0 || (r = abox_plan_compile(spec, &plan, error)) < 0 ||
	    (r = abox_sandbox_start(plan, NULL, &box, error)) < 0 ||
	    (r = abox_command_run(box, &options, &result, error)) < 0 ||
	    (r = abox_sandbox_stop(box, ABOX_STOP_SUCCESS, NULL, error)) < 0)
		goto end;
	*retcode = abox_result_get_exit_code(result);
	if (abox_result_get_output(result, 2, &output, &len) >= 0)
		fwrite(output, 1, len, stderr);
end:
	abox_result_unref(result);
	abox_sandbox_unref(box);
	abox_plan_unref(plan);
	abox_spec_unref(spec);
	return r;
}

/* What the journal says of it. */
static int show(const char *path, const char *task, abox_error **error)
{
	abox_journal *journal = NULL;
	char *json = NULL;
	int r;

	if ((r = abox_journal_open(path, NULL, &journal, error)) >= 0 &&
	    (r = abox_effect_list(journal, task, 0, &json, error)) >= 0)
		puts(json);
	abox_free(json);
	abox_journal_unref(journal);
	return r;
}

int main(int argc, char **argv)
{
	abox_error *error = NULL;
	int r, code = 125;

	if (argc != 6) {
		fprintf(stderr, "usage: push_once JOURNAL TASK DIR HOST PATH\n");
		return 2;
	}
	r = push(argv, &code, &error);
	if (r >= 0)
		r = show(argv[1], argv[2], &error);
	if (r < 0)
		fprintf(stderr, "%s: %s\n", abox_code_name(r), error ? abox_error_get_message(error) : "no details");
	abox_error_free(error);
	return r < 0 ? 125 : code;
}
