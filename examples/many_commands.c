/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * many_commands: eight commands at once in one box, each from a thread of its own. They share the box's files, each
 * has its own streams and its own end.
 */
#include <agentbox/agentbox.h>
#include <pthread.h>
#include <stdio.h>

enum { N_JOBS = 8 };

struct job {
	pthread_t thread;
	abox_sandbox *box;
	char script[128];
	abox_result *result;
	abox_error *error;
	int r;
};

static void *run_job(void *userdata)
{
	struct job *job = userdata;
	const char *const argv[] = { "sh", "-c", job->script, NULL };
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .argv = argv, .timeout_usec = 20000000 };

	job->r = abox_command_run(job->box, &options, &job->result, &job->error);
	return NULL;
}

/* Waits for a job, prints its end. 1 when it went as planned. */
static int finish_job(struct job *job, int number)
{
	const void *output;
	size_t len;
	int good = 0;

	pthread_join(job->thread, NULL);
	if (job->r < 0)
		fprintf(stderr, "job %d: %s\n", number, job->error ? abox_error_get_message(job->error) : "no memory");
	else if (abox_result_get_output(job->result, 1, &output, &len) >= 0) {
		printf("job %d: exit code %d, says: %.*s", number, abox_result_get_exit_code(job->result), (int)len,
			(const char *)output);
		good = abox_result_get_exit_code(job->result) == number;
	}
	abox_result_unref(job->result);
	abox_error_free(job->error);
	return good;
}

int main(void)
{
	struct job jobs[N_JOBS] = { 0 };
	abox_error *error = NULL;
	abox_spec *spec = NULL;
	abox_plan *plan = NULL;
	abox_sandbox *box = NULL;
	int n_good = 0, n = 0, r;

	if ((r = abox_spec_new(&spec)) >= 0 && (r = abox_plan_compile(spec, &plan, &error)) >= 0)
		r = abox_sandbox_start(plan, NULL, &box, &error);
	for (; r >= 0 && n < N_JOBS; n++) {
		jobs[n].box = box;
		/* The last one writes the file that all others wait for: they do run at the same time. */
		snprintf(jobs[n].script, sizeof(jobs[n].script),
			n < N_JOBS - 1 ? "until test -e /tmp/go; do sleep 0.02; done; echo go; exit %d"
				       : "touch /tmp/go; echo went; exit %d", n);
		if (pthread_create(&jobs[n].thread, NULL, run_job, &jobs[n]))
			break;
	}
	for (int i = 0; i < n; i++)
		n_good += finish_job(&jobs[i], i);
	if (r < 0)
		fprintf(stderr, "%s: %s\n", abox_code_name(r), error ? abox_error_get_message(error) : "no details");
	abox_sandbox_unref(box);
	abox_plan_unref(plan);
	abox_spec_unref(spec);
	abox_error_free(error);
	return n_good == N_JOBS ? 0 : 1;
}
