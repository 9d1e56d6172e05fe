/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Walls that a program builds: streams go through them whole, what kills a part of one is told as the end of the wall, and
 * nothing is left.
 */
#include <agentbox/probe.h>
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/support.h"

#define GVISOR "{\"backend\": \"gvisor\"}"

/* -- streams -- */

/* A megabyte in and out again is the same megabyte, and a command that nobody reads from holds up no other. */
Test(walls, gvisor_streams_are_whole_and_apart)
{
	static char data[1 << 20];
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .argv = (const char *const[]){ "cat", NULL } };
	struct abox_command_options deaf = { ABOX_COMMAND_OPTIONS_INIT, .argv = (const char *const[]){ "yes", NULL } };
	abox_command *stuck = NULL;
	abox_result *result = NULL;
	abox_sandbox *box;
	const void *out;
	size_t len;
	int pipe_fds[2];

	needs_wall("gvisor");
	box = box_of(GVISOR);
	cr_assert_eq(pipe(pipe_fds), 0);
	deaf.stdout_mode = ABOX_STREAM_FD;
	deaf.stdout_fd = pipe_fds[1];
	cr_assert_geq(abox_command_start(box, &deaf, &stuck, NULL), 0);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 2654435761U >> 13);
	options.stdin_mode = ABOX_STDIN_BYTES;
	options.stdin_data = data;
	options.stdin_len = sizeof(data);
	options.output_bytes = 2 << 20;
	cr_assert_geq(abox_command_run(box, &options, &result, NULL), 0);
	cr_expect_eq(abox_result_get_exit_code(result), 0);
	abox_result_get_output(result, 1, &out, &len);
	cr_assert_eq(len, sizeof(data));
	cr_expect_eq(memcmp(out, data, len), 0);
	abox_result_unref(result);
	/* the end of who reads is told to who writes */
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	cr_assert_geq(abox_command_wait(stuck, 30000000, &result, NULL), 1);
	cr_expect_eq(abox_result_get_signal(result), SIGPIPE);
	abox_result_unref(result);
	abox_command_unref(stuck);
	stop_box(box);
}

/* The size of a terminal is set from outside. */
Test(walls, gvisor_terminal)
{
	const char *const argv[] = { "sh", "-c",
		"[ \"$(stty size)\" = '31 77' ] || exit 1; echo ready; read x; [ \"$(stty size)\" = '45 99' ] && exit 7", NULL };
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .argv = argv, .pty = 1, .pty_rows = 31,
		.pty_columns = 77 };
	abox_command *command = NULL;
	abox_result *result = NULL;
	struct abox_output output = { .size = sizeof(output) };
	abox_sandbox *box;
	char text[256];

	needs_wall("gvisor");
	box = box_of(GVISOR);
	cr_assert_geq(abox_command_start(box, &options, &command, NULL), 0);
	cr_assert_eq(abox_command_read(command, 1, 0, text, sizeof(text), &output, 30000000, NULL), 1);
	cr_assert_geq(abox_command_resize(command, 45, 99, NULL), 0);
	cr_assert_geq(abox_command_write(command, "x\n", 2, NULL), 0);
	cr_assert_geq(abox_command_wait(command, 30000000, &result, NULL), 1);
	cr_expect_eq(abox_result_get_exit_code(result), 7);
	abox_result_unref(result);
	abox_command_unref(command);
	stop_box(box);
}

/* -- kill -9 -- */

static void kill_part(const char *name)
{
	const char *const argv[] = { "sleep", "100", NULL };
	struct leaks *before;
	abox_command *command;
	abox_result *result = NULL;
	abox_sandbox *box;
	char id[64];
	pid_t pid;

	needs_wall("gvisor");
	before = leaks_take();
	box = box_of(GVISOR);
	snprintf(id, sizeof(id), "%s", abox_sandbox_get_id(box));
	command = start_in(box, argv);
	pid = find_below(keeper_pid(id), name);
	cr_assert_gt(pid, 0, "there is no %s below the keeper", name);
	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert_geq(abox_command_wait(command, 30000000, &result, NULL), 1);
	cr_expect_eq(abox_result_get_cause(result), ABOX_CAUSE_WALL_LOST);
	cr_expect_not_null(strstr(abox_result_get_evidence(result), "runsc"), "%s", abox_result_get_evidence(result));
	abox_result_unref(result);
	abox_command_unref(command);
	cr_expect(wait_until(box_is_gone, id, 10000), "the box is still there");
	abox_sandbox_unref(box);
	assert_no_leaks(before);
}

Test(walls, gvisor_loses_its_kernel) { kill_part("runsc-sandbox"); }
Test(walls, gvisor_loses_its_gofer) { kill_part("runsc-gofer"); }
Test(walls, gvisor_loses_runsc) { kill_part("/runsc"); }

/* With the keeper goes everything. */
Test(walls, gvisor_ends_with_its_keeper)
{
	struct leaks *before;
	abox_sandbox *box;
	char id[64];
	pid_t keeper, kernel;

	needs_wall("gvisor");
	before = leaks_take();
	box = box_of(GVISOR);
	snprintf(id, sizeof(id), "%s", abox_sandbox_get_id(box));
	keeper = keeper_pid(id);
	kernel = find_below(keeper_pid(id), "runsc-sandbox");
	cr_assert_gt(kernel, 0);
	cr_assert_eq(kill(keeper, SIGKILL), 0);
	for (int i = 0; i < 1000 && !pid_is_gone(kernel); i++)
		pause_msec(10);
	cr_expect(pid_is_gone(kernel), "gVisor's kernel outlives the keeper");
	abox_sandbox_unref(box);
	abox_sandbox_gc(NULL, NULL);
	assert_no_leaks(before);
}

/* -- starts that fail, and many that do not -- */

/* A runsc that is this script, at a path that ends in XXXXXX. */
static void use_runsc(char *path, const char *script)
{
	int fd = mkstemp(path);

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, script, strlen(script)), (ssize_t)strlen(script));
	cr_assert_eq(fchmod(fd, 0755), 0);
	close(fd);
	setenv("ABOX_RUNSC", path, 1);
}

/* What cannot come up says in which stage it was, and with which words of its program. */
Test(walls, gvisor_start_that_fails_names_its_stage)
{
	static const char script[] = "#!/bin/sh\necho runsc version release-20990101.0\n"
				     "printf '\\n  -platform string\\n  -ignore-cgroups\\n  -file-access value\\n'\n";
	char path[] = "/tmp/agentbox-runsc-XXXXXX";
	abox_sandbox *box = NULL;
	abox_error *error = NULL;
	abox_plan *plan = NULL;
	abox_spec *spec = NULL;
	struct leaks *before;

	needs_wall("gvisor");
	before = leaks_take();
	use_runsc(path, script);
	cr_assert_geq(abox_spec_from_json("{\"version\": 1, \"backend\": \"gvisor\"}", &spec, NULL), 0);
	cr_assert_geq(abox_plan_compile(spec, &plan, &error), 0, "%s", abox_error_get_message(error));
	/* a script has no interpreter in the outer root: there is nothing of the host in it */
	cr_assert_eq(abox_sandbox_start(plan, NULL, &box, &error), ABOX_E_UNAVAILABLE, "%s", abox_error_get_message(error));
	cr_expect_str_eq(abox_error_get_place(error), "runsc");
	cr_expect_not_null(strstr(abox_error_get_message(error), "before the guest answered"), "%s",
		abox_error_get_message(error));
	cr_expect_not_null(strstr(abox_error_get_message(error), "cannot be executed"), "%s", abox_error_get_message(error));
	unlink(path);
	unsetenv("ABOX_RUNSC");
	abox_error_free(error);
	abox_plan_unref(plan);
	abox_spec_unref(spec);
	assert_no_leaks(before);
}

/* What a plan says of its platform, made anew. */
static void expect_platform(const abox_spec *spec, const char *platform, abox_plan **retplan)
{
	abox_error *error = NULL;
	char *json, by[64];

	snprintf(by, sizeof(by), "release-20990101.0 (%s)", platform);
	cr_assert_geq(abox_plan_compile(spec, retplan, &error), 0, "%s", abox_error_get_message(error));
	cr_assert_geq(abox_plan_dump(*retplan, &json, NULL), 0);
	cr_expect_not_null(strstr(json, by), "%s: %s", by, json);
	free(json);
}

/* A platform that does not come up is not taken a second time, and the reason is told. */
Test(walls, gvisor_platform_is_chosen_by_what_came_up)
{
	static const char script[] = "#!/bin/sh\necho runsc version release-20990101.0\n"
				     "printf '\\n  -platform string\\n    \tspecifies which platform to use: systrap (default), ptrace, kvm.\\n'\n"
				     "printf '  -ignore-cgroups\\n  -file-access value\\n'\n";
	char path[] = "/tmp/agentbox-runsc-XXXXXX";
	abox_sandbox *box = NULL;
	abox_error *error = NULL;
	abox_plan *plan = NULL;
	abox_spec *spec = NULL;
	abox_host *host = NULL;
	struct leaks *before;
	char *json;

	needs_wall("gvisor");
	before = leaks_take();
	use_runsc(path, script);
	cr_assert_geq(abox_spec_from_json("{\"version\": 1, \"backend\": \"gvisor\"}", &spec, NULL), 0);
	expect_platform(spec, "systrap", &plan);
	cr_assert_eq(abox_sandbox_start(plan, NULL, &box, NULL), ABOX_E_UNAVAILABLE);
	abox_plan_unref(plan);
	expect_platform(spec, "ptrace", &plan);
	abox_plan_unref(plan);
	cr_assert_geq(abox_probe(&host, &error), 0, "%s", abox_error_get_message(error));
	cr_assert_geq(abox_host_dump(host, &json), 0);
	cr_expect_not_null(strstr(json, "on ptrace ("), "%s", json);
	cr_expect_not_null(strstr(json, "systrap: it ended with"), "%s", json);
	free(json);
	abox_host_unref(host);
	setenv("ABOX_RUNSC_PLATFORM", "systrap", 1);
	expect_platform(spec, "systrap", &plan);
	abox_plan_unref(plan);
	plan = NULL;
	setenv("ABOX_RUNSC_PLATFORM", "other", 1);
	cr_expect_eq(abox_plan_compile(spec, &plan, &error), ABOX_E_UNAVAILABLE);
	cr_expect_not_null(strstr(abox_error_get_message(error), "ABOX_RUNSC_PLATFORM"), "%s", abox_error_get_message(error));
	unsetenv("ABOX_RUNSC_PLATFORM");
	unsetenv("ABOX_RUNSC");
	unlink(path);
	abox_error_free(error);
	abox_spec_unref(spec);
	assert_no_leaks(before);
}

static void expect_hang(const char *name, const char *told)
{
	struct abox_start_options options = { ABOX_START_OPTIONS_INIT, .timeout_usec = 3000000 };
	char path[600], command[1400];
	abox_sandbox *box = NULL;
	abox_error *error = NULL;
	abox_plan *plan;

	snprintf(path, sizeof(path), "%s/runsc-%s", getenv("TMPDIR"), name);
	snprintf(command, sizeof(command), "cp '%s%s' '%s'", getenv("ABOX_TEST_FAKE_RUNSC"), name, path);
	cr_assert_eq(system(command), 0);
	setenv("ABOX_RUNSC", path, 1);
	plan = plan_of("{\"version\": 1, \"backend\": \"gvisor\"}");
	cr_expect_eq(abox_sandbox_start(plan, &options, &box, &error), ABOX_E_TIMEOUT);
	cr_expect_str_eq(abox_error_get_place(error), "runsc");
	cr_expect(strstr(abox_error_get_message(error), told), "%s", abox_error_get_message(error));
	unsetenv("ABOX_RUNSC");
	unlink(path);
	abox_error_free(error);
	abox_plan_unref(plan);
}

/* T19-2: a runsc that hangs is given up in time, with the stage that it has come to and its last words, and nothing stays. */
Test(walls, gvisor_start_that_hangs_names_its_stage)
{
	struct leaks *before;

	needs_wall("gvisor");
	if (!getenv("ABOX_TEST_FAKE_RUNSC") || !getenv("TMPDIR"))
		cr_skip_test("needs the environment of `meson test`");
	before = leaks_take();
	expect_hang("hangs", "at stage container the first program of the container is not started: the last word");
	expect_hang("silent", "at stage setup the guest is silent: the last word");
	assert_no_leaks(before);
}

/* Boxes come and go, paused and resumed meanwhile, and leave nothing. */
Test(walls, gvisor_boxes_leave_nothing)
{
	struct leaks *before;

	needs_wall("gvisor");
	before = leaks_take();
	for (int i = 0; i < (is_long() ? 20 : 3); i++) {
		abox_sandbox *box = box_of(GVISOR);
		abox_result *result;

		cr_assert_geq(abox_sandbox_pause(box, NULL), 0);
		cr_assert_geq(abox_sandbox_resume(box, NULL), 0);
		result = run_words(box, "sh", "-c", "sleep 100 & exit 3");
		cr_expect_eq(abox_result_get_exit_code(result), 3);
		abox_result_unref(result);
		stop_box(box);
	}
	assert_no_leaks(before);
}
