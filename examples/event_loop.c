/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* event_loop: commands of a box in the caller's own poll loop, which alone waits, and ends the third one itself. */
#include <agentbox/agentbox.h>
#include <poll.h>
#include <stdio.h>

enum { N_COMMANDS = 3, N_STEPS_MAX = 2000 };

static int print_output(int stream, const void *data, size_t len, void *userdata)
{
	printf("%s wrote %zu bytes: %.*s", (const char *)userdata, len, (int)len, (const char *)data);
	return 0; /* anything else would end the command */
}

static int start(abox_sandbox *box, const char *name, const char *script, abox_command **ret, abox_error **reterr)
{
	const char *const argv[] = { "sh", "-c", script, NULL };
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .argv = argv,
		.stdout_mode = ABOX_STREAM_CAPTURE, .on_output = print_output, .on_output_userdata = (void *)name };

	return abox_command_start(box, &options, ret, reterr);
}

static int run_loop(abox_command **commands, abox_error **reterr)
{
	int n_open = N_COMMANDS, r = 0;

	for (int step = 0; n_open > 0 && r >= 0 && step < N_STEPS_MAX; step++) {
		struct pollfd fds[N_COMMANDS];

		for (int i = 0; i < N_COMMANDS; i++) /* poll() passes over negative descriptors */
			fds[i] = (struct pollfd){ commands[i] ? abox_command_get_fd(commands[i]) : -1, POLLIN, 0 };
		poll(fds, N_COMMANDS, 1000);
		for (int i = 0; i < N_COMMANDS && r >= 0; i++) {
			abox_result *result = NULL;

			if (!fds[i].revents)
				continue;
			r = abox_command_process(commands[i], reterr);
			if (r <= 0 || (r = abox_command_wait(commands[i], 0, &result, reterr)) <= 0)
				continue;
			printf("command %d ended: %s (%s)\n", i, abox_cause_name(abox_result_get_cause(result)),
				abox_result_get_evidence(result));
			abox_result_unref(result);
			commands[i] = abox_command_unref(commands[i]);
			if (--n_open == 1 && commands[2])
				r = abox_command_kill(commands[2], 0, reterr); /* does not wait for its end */
		}
	}
	return r < 0 ? r : n_open;
}

int main(void)
{
	abox_command *commands[N_COMMANDS] = { NULL };
	abox_error *error = NULL;
	abox_spec *spec = NULL;
	abox_plan *plan = NULL;
	abox_sandbox *box = NULL;
	int r;

	if ((r = abox_spec_new(&spec)) >= 0 && (r = abox_plan_compile(spec, &plan, &error)) >= 0 &&
	    (r = abox_sandbox_start(plan, NULL, &box, &error)) >= 0 &&
	    (r = start(box, "first", "for i in 1 2 3; do echo $i; sleep 0.1; done", &commands[0], &error)) >= 0 &&
	    (r = start(box, "second", "sleep 0.1; echo done", &commands[1], &error)) >= 0 &&
	    (r = start(box, "third", "sleep 1000", &commands[2], &error)) >= 0)
		r = run_loop(commands, &error);
	if (r < 0)
		fprintf(stderr, "%s: %s\n", abox_code_name(r), error ? abox_error_get_message(error) : "no details");
	for (int i = 0; i < N_COMMANDS; i++)
		abox_command_unref(commands[i]);
	abox_sandbox_unref(box);
	abox_plan_unref(plan);
	abox_spec_unref(spec);
	abox_error_free(error);
	return r != 0;
}
