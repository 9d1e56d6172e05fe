/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Walls that lose one of their programs at any moment, from the start of a box to its end: it is told as the end of the wall
 * or of the keeper, or as a start that failed, never as anything else; and nothing is left.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/support.h"

#define WAIT_SECONDS 60

struct wall {
	const char *spec;
	const char *parts[5];	/* ends of argv[0], NULL-ended */
};

static const struct wall gvisor = { "{\"version\":1,\"backend\":\"gvisor\"}",
	{ "runsc-sandbox", "runsc-gofer", "/runsc", "agentbox-keeper", NULL } };
static const struct wall microvm = { "{\"version\":1,\"backend\":\"microvm\"}",
	{ "qemu-system-x86_64", "virtiofsd", "agentbox-keeper", NULL, NULL } };

/* -- processes below this one: it is who their keepers are handed to -- */

/* The first one of that name that has not ended; any, without a name. */
static pid_t find_ours(const char *name)
{
	return find_below(getpid(), name);
}

/* -- the one who kills -- */

struct killer {
	const char *part;
	unsigned after_msec;
	atomic_bool done;	/* the box is gone, or was never there */
	bool killed;
};

static void *kill_part(void *argument)
{
	struct killer *killer = argument;

	pause_msec(killer->after_msec);
	while (!killer->killed && !atomic_load(&killer->done)) {
		pid_t pid = find_ours(killer->part);

		killer->killed = pid > 0 && kill(pid, SIGKILL) == 0;
		if (!killer->killed)
			pause_msec(2);
	}
	return NULL;
}

/* -- a round -- */

static void expect_told(abox_sandbox *box, const struct killer *killer)
{
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .argv = (const char *const[]){ "sleep", "100", NULL } };
	bool keeper = strcmp(killer->part, "agentbox-keeper") == 0;
	abox_result *result = NULL;
	abox_error *error = NULL;
	abox_command *command = NULL;
	int r;

	r = abox_command_start(box, &options, &command, &error);
	if (r >= 0)
		r = abox_command_wait(command, WAIT_SECONDS * 1000000ULL, &result, &error);
	if (r > 0) {
		cr_expect_eq(abox_result_get_cause(result), keeper ? ABOX_CAUSE_KEEPER_LOST : ABOX_CAUSE_WALL_LOST, "%s killed: %s",
			killer->part, abox_result_get_evidence(result));
		cr_expect(keeper || abox_result_get_evidence(result)[0], "no evidence");
	} else {
		/* the box had ended before the command was there */
		cr_expect(r == ABOX_E_GONE || r == ABOX_E_STATE || r == ABOX_E_NOT_FOUND, "%s killed: %d, %s", killer->part, r,
			abox_error_get_message(error));
	}
	abox_result_unref(result);
	abox_command_unref(command);
	abox_error_free(error);
}

static bool all_gone(void *argument)
{
	(void)argument;
	while (waitpid(-1, NULL, WNOHANG | __WALL) > 0)
		;
	return find_ours(NULL) == 0;
}

static void round_of(const struct wall *wall, const char *part, unsigned after_msec)
{
	struct killer killer = { .part = part, .after_msec = after_msec };
	abox_sandbox *box = NULL;
	abox_error *error = NULL;
	abox_plan *plan = plan_of(wall->spec);
	pthread_t thread;
	int r;

	cr_assert_eq(pthread_create(&thread, NULL, kill_part, &killer), 0);
	r = abox_sandbox_start(plan, NULL, &box, &error);
	if (r >= 0)
		expect_told(box, &killer);
	else
		cr_expect(abox_error_get_stage(error) == ABOX_STAGE_START && abox_error_get_message(error)[0], "%s killed: %s", part,
			abox_error_get_message(error));
	atomic_store(&killer.done, true);
	pthread_join(thread, NULL);
	cr_expect(killer.killed, "nobody found %s to kill; the start said %d, %s", part, r, abox_error_get_message(error));
	cr_expect(r >= 0 || r != ABOX_E_TIMEOUT, "%s killed, and it was waited for: %s", part, abox_error_get_message(error));
	cr_expect(wait_until(all_gone, NULL, 15000), "%s killed, and process %d is left", part, (int)find_ours(NULL));
	abox_sandbox_unref(box);
	abox_error_free(error);
	abox_plan_unref(plan);
}

static void rounds_of(const struct wall *wall, int n_rounds)
{
	const char *given = getenv("ABOX_TEST_SEED");
	unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL), n_parts = 0, start_msec;
	struct leaks *before = leaks_take();
	double began;

	cr_assert_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	fprintf(stderr, "# seed %u\n", seed);
	while (wall->parts[n_parts])
		n_parts++;
	began = clock_seconds();
	stop_box(box_of(wall->spec));
	start_msec = (unsigned)((clock_seconds() - began) * 1000);
	for (int i = 0; i < n_rounds; i++) {
		const char *part = wall->parts[(unsigned)i % n_parts];
		unsigned after_msec = (unsigned)rand_r(&seed) % (start_msec + start_msec / 2 + 1);

		round_of(wall, part, after_msec);
	}
	abox_sandbox_gc(NULL, NULL);
	assert_no_leaks(before);
}

Test(kill, gvisor_at_any_moment, .timeout = 3600)
{
	needs_wall("gvisor");
	rounds_of(&gvisor, is_long() ? 60 : 8);
}

Test(kill, microvm_at_any_moment, .timeout = 3600)
{
	needs_wall("microvm");
	rounds_of(&microvm, is_long() ? 40 : 3);
}
