/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Tasks: how they are found, stages and retries, checkpoints, resume, cancel by phase, the commit boundary,
 * cleanup. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "effect/support.h"

TestSuite(task, .init = test_setup, .fini = test_teardown, .timeout = 60);

static int open_status(
	abox_journal *journal, uint32_t access, uint32_t takeover, uint64_t lease, abox_task **ret)
{
	struct abox_task_options options;
	abox_task *task = NULL;
	int r;

	abox_task_options_init(&options);
	options.access = access;
	options.takeover = takeover;
	options.lease_usec = lease;
	r = abox_task_open(journal, "job", &options, &task, NULL);
	if (ret)
		*ret = task;
	else
		abox_task_unref(task);
	return r;
}

static int do_it(abox_effect *effect, void *userdata)
{
	size_t len = 0;
	const char *payload = abox_effect_get_payload(effect, &len);

	outside_happen(payload ? payload : userdata ? (const char *)userdata : "x");
	return ABOX_DONE_COMMITTED;
}

/* Every answer of an opening, in the order of a life. */
Test(task, tells_how_it_is_found)
{
	abox_journal *journal = test_open(), *other = test_open();
	abox_task *task = NULL;
	char *text = NULL;

	cr_assert_eq(open_status(journal, ABOX_TASK_APPEND, 0, 0, NULL), ABOX_TASK_NEW);
	cr_assert_eq(open_status(journal, ABOX_TASK_CONTROL, 0, 0, &task), ABOX_TASK_NEW);
	cr_assert_eq(open_status(other, ABOX_TASK_APPEND, 0, 0, NULL), ABOX_TASK_RUNNING);
	cr_assert_eq(open_status(other, ABOX_TASK_CONTROL, 0, 0, NULL), ABOX_E_BUSY);
	abox_task_unref(task);
	cr_assert_eq(open_status(other, ABOX_TASK_CONTROL, 0, 0, &task), ABOX_TASK_RESUMABLE);
	cr_assert_eq(abox_task_get_attempt(task), 2);
	cr_assert_eq(abox_task_end(task, "{\"ok\":true}", NULL), 0);
	cr_assert_eq(abox_task_end(task, NULL, NULL), ABOX_E_ALREADY);
	abox_task_unref(task);
	abox_journal_unref(journal);
	journal = test_open();
	cr_assert_eq(open_status(journal, ABOX_TASK_CONTROL, 0, 0, &task), ABOX_TASK_FINISHED);
	cr_assert_eq(abox_task_get_outcome(task, &text, NULL), 0);
	cr_assert_str_eq(text, "{\"ok\":true}");
	abox_free(text);
	cr_assert_eq(abox_task_end(task, NULL, NULL), ABOX_E_STATE, "it is only shown");
	abox_task_unref(task);
	abox_journal_unref(journal);
	abox_journal_unref(other);
	cr_assert(test_verify());
}

/* Names that could not be printed are refused. */
Test(task, refuses_odd_ids)
{
	static const char *const ids[] = {"", "a\nb", "\xff", "a\x7f"};
	abox_journal *journal = test_open();
	abox_task *task = NULL;

	for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++)
		cr_assert_eq(abox_task_open(journal, ids[i], NULL, &task, NULL), ABOX_E_INVALID, "%zu", i);
	cr_assert_eq(abox_task_open(journal, "grün", NULL, &task, NULL), ABOX_TASK_NEW);
	abox_task_unref(task);
	abox_journal_unref(journal);
}

/* A late duplicate of a finished task is refused, also after the segments have turned over (effects 1.11). */
Test(task, refuses_late_duplicates)
{
	struct abox_effect_options options;
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL), *late = NULL;
	abox_effect *effect = NULL;
	int status;

	test_options(&options, ABOX_EFFECT_OPAQUE, "k", "t", "b");
	cr_assert_eq(
		abox_effect_run(task, &options, do_it, NULL, NULL, &effect, NULL), ABOX_EFFECT_COMMITTED);
	abox_effect_unref(effect);
	cr_assert_eq(abox_task_open(journal, "job", NULL, &late, NULL), ABOX_TASK_RUNNING);
	cr_assert_eq(abox_task_end(task, "done", NULL), 0);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(abox_journal_rotate(journal, NULL), 0);
	cr_assert_eq(abox_effect_run(late, &options, do_it, NULL, NULL, &effect, NULL), ABOX_E_ALREADY);
	abox_task_unref(late);
	abox_task_unref(task);
	abox_journal_unref(journal);
	journal = test_open();
	task = test_control(journal, "job", 0, &status);
	cr_assert_eq(status, ABOX_TASK_FINISHED);
	cr_assert_eq(abox_effect_run(task, &options, do_it, NULL, NULL, &effect, NULL), ABOX_E_ALREADY);
	cr_assert_eq(outside_count(NULL), 1);
	abox_task_unref(task);
	abox_journal_unref(journal);
}

/* What is open survives any number of segments, as each head holds it. */
Test(task, survives_rotation)
{
	struct abox_effect_options options;
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);
	abox_effect *effect = NULL;
	char *json = NULL;
	size_t len;

	test_options(&options, ABOX_EFFECT_OPAQUE, "k\xff", "t", "b");
	cr_assert_eq(abox_effect_begin(task, &options, &effect, NULL), ABOX_BEGIN_GO);
	cr_assert_eq(abox_effect_dispatch(effect, NULL), 0);
	cr_assert_eq(abox_effect_set_result(effect, "made", 4, 0), 0);
	cr_assert_eq(abox_journal_rotate(journal, NULL), 0);
	cr_assert_eq(abox_effect_finish(effect, ABOX_DONE_COMMITTED, NULL, NULL), ABOX_EFFECT_COMMITTED);
	abox_effect_unref(effect);
	cr_assert_eq(abox_task_stage_begin(task, "install", ABOX_STAGE_REPEATABLE, NULL, NULL), 1);
	cr_assert_eq(abox_task_stage_done(task, "install", NULL), 0);
	cr_assert_eq(abox_task_add_resource(task, "vm", "vm-1", "destroy vm-1", 1, NULL), 0);
	cr_assert_eq(abox_task_checkpoint(task, "c1", "snap-1", "state", 5, NULL), 0);
	cr_assert_eq(abox_journal_rotate(journal, NULL), 0);
	abox_task_unref(task);
	abox_journal_unref(journal);
	journal = test_open();
	task = test_control(journal, "job", 0, NULL);
	cr_assert_eq(abox_effect_begin(task, &options, &effect, NULL), ABOX_BEGIN_REPLAY);
	cr_assert_str_eq(abox_effect_get_result(effect, &len), "made");
	abox_effect_unref(effect);
	cr_assert_eq(abox_task_stage_begin(task, "install", ABOX_STAGE_REPEATABLE, NULL, NULL), 0);
	cr_assert_eq(abox_task_get_checkpoint(task, NULL, NULL, &json, &len, NULL), 1);
	cr_assert_str_eq(json, "state");
	abox_free(json);
	cr_assert_eq(abox_task_show(journal, "job", &json, NULL), 0);
	cr_assert_not_null(strstr(json, "vm-1"));
	abox_free(json);
	abox_task_unref(task);
	abox_journal_unref(journal);
	cr_assert(test_verify());
}

/* A lease that is over permits takeover of the living; a heartbeat renews it. */
Test(task, gives_way_when_its_lease_is_over)
{
	abox_journal *journal = test_open(), *other = test_open();
	abox_task *task = NULL, *next = NULL;

	cr_assert_eq(open_status(journal, ABOX_TASK_CONTROL, 0, 400000, &task), ABOX_TASK_NEW);
	for (int i = 0; i < 4; i++) {
		usleep(200000);
		cr_assert_eq(abox_task_heartbeat(task, NULL), 0);
		cr_assert_eq(open_status(other, ABOX_TASK_CONTROL, 0, 0, NULL), ABOX_E_BUSY);
	}
	usleep(450000);
	cr_assert_eq(open_status(other, ABOX_TASK_CONTROL, 0, 0, &next), ABOX_TASK_RESUMABLE);
	cr_assert_eq(abox_task_heartbeat(task, NULL), ABOX_E_FENCED);
	abox_task_unref(next);
	abox_task_unref(task);
	abox_journal_unref(journal);
	abox_journal_unref(other);
}

static int sleeping_owner(void *userdata)
{
	abox_journal *journal = test_open();
	struct abox_effect_options options;
	abox_effect *effect = NULL;
	abox_task *task = test_control(journal, "job", 0, NULL);

	test_options(&options, ABOX_EFFECT_OPAQUE, "k", "t", "b");
	if (abox_effect_begin(task, &options, &effect, NULL) != ABOX_BEGIN_GO ||
		abox_effect_dispatch(effect, NULL) < 0)
		return 2;
	if (write(*(int *)userdata, "x", 1) != 1)
		return 3;
	sleep(60);
	outside_happen("k"); /* the first byte leaves */
	return 0;
}

/* Takeover by kill: the owner is seen dead before control is given, so nothing of it slips through
 * (effects 1.8). */
Test(task, kills_the_owner_on_demand)
{
	abox_journal *journal;
	abox_task *task = NULL;
	int fds[2], pid, status;
	char c;

	cr_assert_eq(pipe(fds), 0);
	pid = test_start(sleeping_owner, &fds[1]);
	cr_assert_eq(read(fds[0], &c, 1), 1);
	journal = test_open();
	task = test_control(journal, "job", ABOX_TAKEOVER_NONE, &status);
	cr_assert_eq(status, ABOX_E_BUSY);
	task = test_control(journal, "job", ABOX_TAKEOVER_KILL, &status);
	cr_assert_eq(status, ABOX_TASK_RUNNING);
	cr_assert_eq(test_join(pid, 1), -SIGKILL);
	cr_assert_eq(abox_task_settle(task, 0, NULL), 1, "its effect is UNKNOWN");
	cr_assert_eq(outside_count(NULL), 0);
	abox_task_unref(task);
	abox_journal_unref(journal);
}

/* A stopped process (SIGSTOP) is alive: fenced, it starts nothing when it goes on. */
static int paused_owner(void *userdata)
{
	abox_journal *journal = test_open();
	struct abox_effect_options options;
	abox_effect *effect = NULL;
	abox_task *task = test_control(journal, "job", 0, NULL);

	test_options(&options, ABOX_EFFECT_OPAQUE, "k", "t", "b");
	if (abox_effect_begin(task, &options, &effect, NULL) != ABOX_BEGIN_GO)
		return 2;
	if (write(*(int *)userdata, "x", 1) != 1)
		return 3;
	raise(SIGSTOP);
	return abox_effect_dispatch(effect, NULL) == ABOX_E_FENCED ? 0 : 4;
}

Test(task, fences_a_stopped_owner)
{
	struct abox_effect_options options;
	abox_journal *journal;
	abox_task *task = NULL;
	abox_effect *effect = NULL;
	int fds[2], pid, status;
	char c;

	cr_assert_eq(pipe(fds), 0);
	pid = test_start(paused_owner, &fds[1]);
	cr_assert_eq(read(fds[0], &c, 1), 1);
	usleep(100000);
	journal = test_open();
	task = test_control(journal, "job", ABOX_TAKEOVER_FENCE, &status);
	cr_assert_eq(status, ABOX_TASK_RUNNING);
	test_options(&options, ABOX_EFFECT_OPAQUE, "k", "t", "b");
	cr_assert_eq(abox_effect_run(task, &options, do_it, NULL, (void *)"k", &effect, NULL),
		ABOX_EFFECT_COMMITTED);
	abox_effect_unref(effect);
	kill(pid, SIGCONT);
	cr_assert_eq(test_join(pid, 10), 0);
	cr_assert_eq(outside_count("k"), 1);
	abox_task_unref(task);
	abox_journal_unref(journal);
}

/* ---- stages ---- */

/* Retries are bounded, for the causes that the policy names, and wait longer each time. */
Test(task, retries_stages_within_bounds)
{
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);
	struct abox_retry_policy policy;
	uint64_t delay = 0;

	abox_retry_policy_init(&policy);
	policy.max_runs = 4;
	policy.backoff_usec = 1000;
	policy.max_backoff_usec = 3000;
	policy.jitter_percent = 1;
	for (uint64_t run = 1; run <= 4; run++) {
		uint64_t wait = run == 1 ? 1000 : run == 2 ? 2000 : 3000;

		cr_assert_eq(abox_task_stage_begin(task, "install", ABOX_STAGE_REPEATABLE, &policy, NULL), 1);
		cr_assert_eq(abox_task_stage_begin(task, "install", ABOX_STAGE_REPEATABLE, &policy, NULL),
			ABOX_E_STATE);
		cr_assert_eq(abox_task_stage_fail(
				     task, "install", ABOX_STAGE_CAUSE_REGISTRY, "timeout", &delay, NULL),
			run < 4);
		if (run < 4)
			cr_assert(delay <= wait && delay >= wait * 98 / 100, "%d", (int)delay);
	}
	cr_assert_eq(
		abox_task_stage_begin(task, "install", ABOX_STAGE_REPEATABLE, &policy, NULL), ABOX_E_LIMIT);
	cr_assert_eq(abox_task_stage_begin(task, "run", ABOX_STAGE_REPEATABLE, &policy, NULL), 1);
	cr_assert_eq(abox_task_stage_fail(task, "run", ABOX_STAGE_CAUSE_TESTS, "2 failed", &delay, NULL), 0);
	cr_assert_eq(abox_task_stage_begin(task, "run", ABOX_STAGE_REPEATABLE, &policy, NULL), ABOX_E_LIMIT);
	cr_assert_eq(abox_task_stage_fail(task, "never", 0, NULL, NULL, NULL), ABOX_E_STATE);
	abox_task_unref(task);
	abox_journal_unref(journal);
}

static int die_in_stages(void *userdata)
{
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);

	if (abox_task_stage_begin(task, "clone", ABOX_STAGE_REPEATABLE, NULL, NULL) != 1 ||
		abox_task_stage_done(task, "clone", NULL) != 0 ||
		abox_task_checkpoint(task, "cloned", "snap-7", "\0\1\2", 3, NULL) != 0 ||
		abox_task_stage_begin(task, "install", ABOX_STAGE_REPEATABLE, NULL, NULL) != 1 ||
		abox_task_stage_begin(task, "publish", ABOX_STAGE_CONSEQUENTIAL, NULL, NULL) != 1 ||
		abox_task_add_resource(task, "branch", "agent/1", "git push --delete", 1, NULL) != 0)
		return 1;
	raise(SIGKILL);
	return 2;
}

/* After a crash: what is done is skipped, what can be repeated runs, what has consequences is asked about. */
Test(task, resumes_by_a_plan)
{
	abox_journal *journal;
	abox_task *task = NULL;
	char *json = NULL, *name = NULL, *snapshot = NULL, *state = NULL;
	size_t len = 0;

	cr_assert_eq(test_child(die_in_stages, NULL), -SIGKILL);
	journal = test_open();
	cr_assert_eq(abox_task_resume_plan(journal, "job", &json, NULL), 0);
	cr_assert_not_null(strstr(json, "\"status\":\"resumable\""), "%s", json);
	cr_assert_not_null(strstr(json, "{\"name\":\"clone\",\"do\":\"skip\""), "%s", json);
	cr_assert_not_null(strstr(json, "{\"name\":\"install\",\"do\":\"run\""), "%s", json);
	cr_assert_not_null(strstr(json, "{\"name\":\"publish\",\"do\":\"ask\""), "%s", json);
	abox_free(json);
	cr_assert_eq(
		abox_task_resume(journal, "job", NULL, NULL, NULL, &task, &json, NULL), ABOX_TASK_RESUMABLE);
	abox_free(json);
	cr_assert_eq(abox_task_get_checkpoint(task, &name, &snapshot, &state, &len, NULL), 1);
	cr_assert_str_eq(name, "cloned");
	cr_assert_str_eq(snapshot, "snap-7");
	cr_assert_eq(len, 3);
	cr_assert_eq(memcmp(state, "\0\1\2", 3), 0);
	cr_assert_eq(abox_task_stage_begin(task, "clone", ABOX_STAGE_REPEATABLE, NULL, NULL), 0);
	cr_assert_eq(abox_task_stage_begin(task, "install", ABOX_STAGE_REPEATABLE, NULL, NULL), 1);
	cr_assert_eq(
		abox_task_stage_begin(task, "publish", ABOX_STAGE_CONSEQUENTIAL, NULL, NULL), ABOX_E_UNKNOWN);
	cr_assert_eq(abox_task_stage_decide(task, "publish", 0, "ann", NULL), 0);
	cr_assert_eq(abox_task_stage_begin(task, "publish", ABOX_STAGE_CONSEQUENTIAL, NULL, NULL), 1);
	abox_free(name);
	abox_free(snapshot);
	abox_free(state);
	abox_task_unref(task);
	cr_assert_eq(abox_task_resume_plan(journal, "nobody", &json, NULL), ABOX_E_NOT_FOUND);
	abox_journal_unref(journal);
}

static int die_dispatched(void *userdata)
{
	struct abox_effect_options options;
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);
	abox_effect *effect = NULL;

	for (int i = 0; i < 2; i++) {
		test_options(
			&options, i ? ABOX_EFFECT_CHECKABLE : ABOX_EFFECT_OPAQUE, i ? "c" : "o", "t", "b");
		if (abox_effect_begin(task, &options, &effect, NULL) != ABOX_BEGIN_GO ||
			abox_effect_dispatch(effect, NULL) != 0)
			return 1;
	}
	outside_happen("c");
	raise(SIGKILL);
	return 2;
}

static int found(abox_effect *effect, void *userdata)
{
	return outside_count(abox_effect_get_key(effect)) ? ABOX_FOUND_COMMITTED : ABOX_FOUND_ABSENT;
}

/* Resume asks the outside where it can, and leaves the rest to a person. */
Test(task, reconciles_when_it_resumes)
{
	abox_journal *journal;
	abox_task *task = NULL;
	char *json = NULL;

	cr_assert_eq(test_child(die_dispatched, NULL), -SIGKILL);
	journal = test_open();
	cr_assert_eq(
		abox_task_resume(journal, "job", NULL, found, NULL, &task, &json, NULL), ABOX_TASK_RESUMABLE);
	cr_assert_not_null(strstr(json, "\"state\":\"UNKNOWN\",\"do\":\"ask\""), "%s", json);
	cr_assert_not_null(strstr(json, "\"state\":\"COMMITTED\",\"do\":\"replay\""), "%s", json);
	abox_free(json);
	cr_assert_eq(abox_task_settle(task, 0, NULL), 1);
	abox_task_unref(task);
	abox_journal_unref(journal);
}

/* ---- cancel ---- */

static int cancel(void *userdata)
{
	abox_journal *journal = test_open();
	int r = abox_task_cancel(journal, "job", "ann", "enough", NULL, NULL);

	abox_journal_unref(journal);
	return r == 0 ? 0 : 1;
}

/* Cancel by phase: before the dispatch it is guaranteed not done, after it what is proven (task: Cancel). */
Test(task, is_canceled_from_another_process)
{
	struct abox_effect_options options;
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);
	abox_effect *intended = NULL, *sent = NULL, *effect = NULL;
	abox_error *error = NULL;
	char *json = NULL;

	test_options(&options, ABOX_EFFECT_OPAQUE, "i", "t", "b");
	cr_assert_eq(abox_effect_begin(task, &options, &intended, NULL), ABOX_BEGIN_GO);
	options.key = "s";
	cr_assert_eq(abox_effect_begin(task, &options, &sent, NULL), ABOX_BEGIN_GO);
	cr_assert_eq(abox_effect_dispatch(sent, NULL), 0);
	cr_assert_eq(abox_task_canceled(task, NULL), 0);
	cr_assert_eq(test_child(cancel, NULL), 0);
	cr_assert_eq(abox_task_canceled(task, NULL), 1);
	cr_assert_eq(abox_effect_dispatch(intended, NULL), ABOX_E_CANCELED);
	options.key = "new";
	cr_assert_eq(abox_effect_begin(task, &options, &effect, NULL), ABOX_E_CANCELED);
	cr_assert_eq(abox_task_stage_begin(task, "run", ABOX_STAGE_REPEATABLE, NULL, NULL), ABOX_E_CANCELED);
	cr_assert_eq(abox_task_end(task, NULL, &error), ABOX_E_IN_PROGRESS);
	abox_error_free(error);
	cr_assert_eq(abox_effect_finish(sent, ABOX_DONE_COMMITTED, NULL, NULL), ABOX_EFFECT_COMMITTED,
		"late, and true");
	cr_assert_eq(abox_task_cancel(journal, "job", "bob", NULL, &json, NULL), 1, "it was canceled before");
	cr_assert_not_null(strstr(json, abox_effect_get_id(intended)));
	cr_assert_lt(strstr(json, abox_effect_get_id(intended)), strstr(json, "\"done\""));
	cr_assert_gt(strstr(json, abox_effect_get_id(sent)), strstr(json, "\"done\""));
	abox_free(json);
	cr_assert_eq(abox_task_end(task, NULL, NULL), 0);
	abox_effect_unref(sent);
	abox_effect_unref(intended);
	abox_task_unref(task);
	cr_assert_eq(open_status(journal, ABOX_TASK_APPEND, 0, 0, NULL), ABOX_TASK_CANCELED);
	abox_journal_unref(journal);
	cr_assert(test_verify());
}

/* Canceled when nobody owns it any more: settled and ended on the spot; what is unknown is said. */
Test(task, is_canceled_when_its_owner_is_dead)
{
	abox_journal *journal;
	char *json = NULL;

	cr_assert_eq(test_child(die_dispatched, NULL), -SIGKILL);
	journal = test_open();
	cr_assert_eq(abox_task_cancel(journal, "job", "ann", NULL, &json, NULL), 0);
	cr_assert_not_null(strstr(json, "\"unknown\":[\"eff-"), "%s", json);
	abox_free(json);
	cr_assert_eq(open_status(journal, ABOX_TASK_CONTROL, 0, 0, NULL), ABOX_TASK_CANCELED);
	cr_assert_eq(abox_task_cancel(journal, "nobody", "ann", NULL, NULL, NULL), ABOX_E_NOT_FOUND);
	abox_journal_unref(journal);
}

/* Given up by name, only when the owner is dead; unknown effects stay open for verdicts. */
Test(task, is_abandoned_by_name)
{
	abox_journal *journal;
	abox_task *task;
	char *json = NULL, id[64];

	cr_assert_eq(test_child(die_dispatched, NULL), -SIGKILL);
	journal = test_open();
	task = test_control(journal, "job", 0, NULL);
	cr_assert_eq(abox_task_abandon(journal, "job", "ann", NULL, NULL), ABOX_E_BUSY);
	abox_task_unref(task);
	cr_assert_eq(abox_task_abandon(journal, "job", "ann", "no use", NULL), 0);
	cr_assert_eq(open_status(journal, ABOX_TASK_CONTROL, 0, 0, NULL), ABOX_TASK_ABANDONED);
	cr_assert_eq(abox_effect_list(journal, "job", 1, &json, NULL), 0);
	snprintf(id, sizeof(id), "%.36s", strstr(json, "eff-"));
	abox_free(json);
	cr_assert_eq(abox_effect_resolve(journal, id, ABOX_VERDICT_ABANDONED, "ann", NULL, 0, 0, NULL), 0);
	abox_journal_unref(journal);
	cr_assert(test_verify());
}

/* ---- commit ---- */

struct committer {
	int drift;
	int fail_at; /* kill at this step, or stop with UNKNOWN where negative */
	int steps;
};

static int drift(const char *change_set, void *userdata, abox_error **reterr)
{
	struct committer *committer = userdata;

	return committer->drift;
}

static int step(struct committer *committer, const char *line)
{
	committer->steps++;
	if (committer->fail_at == committer->steps)
		raise(SIGKILL);
	outside_happen(line);
	if (-committer->fail_at == committer->steps)
		return -1;
	return 0;
}

static int apply(const char *change_set, void *userdata, abox_error **reterr)
{
	return step(userdata, change_set) < 0 ? ABOX_E_IO : 0;
}

static int publish(const char *artifact, void *userdata, abox_error **reterr)
{
	return step(userdata, artifact) < 0 ? ABOX_E_IO : 0;
}

static int send(abox_effect *effect, void *userdata)
{
	size_t len = 0;

	return step(userdata, abox_effect_get_payload(effect, &len)) < 0 ? ABOX_DONE_UNCLEAR
									 : ABOX_DONE_COMMITTED;
}

static int commit(abox_task *task, struct committer *committer)
{
	static const char *const artifacts[] = {"art-1", NULL};
	struct abox_commit_options options;

	abox_commit_options_init(&options);
	options.change_set = "set-1";
	options.artifacts = artifacts;
	options.drift = drift;
	options.apply = apply;
	options.publish = publish;
	options.do_fn = send;
	options.userdata = committer;
	return abox_task_commit(task, &options, NULL);
}

static int defer(abox_task *task, const char *key, const char *approval)
{
	struct abox_effect_options options;
	abox_effect *effect = NULL;
	int r;

	test_options(&options, ABOX_EFFECT_OPAQUE, key, "t", key);
	options.defer = 1;
	options.approval_text = approval;
	r = abox_effect_begin(task, &options, &effect, NULL);
	abox_effect_unref(effect);
	return r;
}

/* Nothing is visible before the boundary; then everything, in order, once. */
Test(task, commits_in_order)
{
	struct committer committer = {0};
	struct abox_effect_options options;
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);
	abox_effect *effect = NULL;

	cr_assert_eq(defer(task, "d1", NULL), ABOX_BEGIN_DEFERRED);
	cr_assert_eq(defer(task, "d2", NULL), ABOX_BEGIN_DEFERRED);
	cr_assert_eq(defer(task, "d1", NULL), ABOX_BEGIN_DEFERRED, "again: the same");
	test_options(&options, ABOX_EFFECT_OPAQUE, "d1", "t", "d1");
	options.defer = 1;
	cr_assert_eq(abox_effect_run(task, &options, do_it, NULL, NULL, &effect, NULL), ABOX_EFFECT_INTENDED);
	abox_effect_unref(effect);
	cr_assert_eq(outside_count(NULL), 0);
	committer.drift = ABOX_E_CONFLICT;
	cr_assert_eq(commit(task, &committer), ABOX_E_CONFLICT, "the target has drifted");
	cr_assert_eq(outside_count(NULL), 0);
	committer.drift = 0;
	cr_assert_eq(commit(task, &committer), 0);
	cr_assert_eq(committer.steps, 4);
	cr_assert_eq(
		outside_count("set-1") + outside_count("art-1") + outside_count("d1") + outside_count("d2"),
		4);
	cr_assert_eq(commit(task, &committer), 0, "again: nothing is left");
	cr_assert_eq(committer.steps, 4);
	cr_assert_eq(abox_task_cancel(journal, "job", "ann", NULL, NULL, NULL), ABOX_E_ALREADY);
	cr_assert_eq(defer(task, "d3", NULL), ABOX_E_ALREADY);
	cr_assert_eq(abox_task_end(task, NULL, NULL), 0);
	abox_task_unref(task);
	abox_journal_unref(journal);
	cr_assert(test_verify());
}

static int commit_and_die(void *userdata)
{
	struct committer committer = {.fail_at = *(int *)userdata};
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);

	if (defer(task, "d1", NULL) < 0 || defer(task, "d2", NULL) < 0)
		return 1;
	return commit(task, &committer) == 0 ? 0 : 2;
}

/* Killed in any step: change set and artifacts are redone, an effect on the way is UNKNOWN and stops the
 * rest. */
Test(task, goes_on_after_a_crash_behind_the_boundary)
{
	for (int at = 1; at <= 4; at++) {
		struct committer committer = {0};
		abox_journal *journal;
		abox_task *task;
		char *json = NULL, id[64];
		int status, r;

		test_teardown();
		test_setup();
		cr_assert_eq(test_child(commit_and_die, &at), -SIGKILL);
		journal = test_open();
		task = test_control(journal, "job", 0, &status);
		cr_assert_eq(status, ABOX_TASK_COMMITTING);
		r = commit(task, &committer);
		if (at <= 2) {
			cr_assert_eq(r, 0);
		} else {
			cr_assert_eq(r, ABOX_E_UNKNOWN);
			cr_assert_eq(outside_count("d2"), 0, "it waits");
			cr_assert_eq(abox_task_end(task, NULL, NULL), ABOX_E_STATE);
			cr_assert_eq(abox_effect_list(journal, "job", 1, &json, NULL), 0);
			snprintf(id, sizeof(id), "%.36s", strstr(json, "eff-"));
			abox_free(json);
			usleep(1000);
			cr_assert_eq(abox_effect_resolve(
					     journal, id, ABOX_VERDICT_ABSENT, "ann", NULL, 0, 0, NULL),
				0);
			cr_assert_eq(commit(task, &committer), 0);
		}
		cr_assert_eq(outside_count("d1"), 1);
		cr_assert_eq(outside_count("d2"), 1);
		cr_assert_geq(outside_count("set-1"), 1);
		cr_assert_eq(abox_task_end(task, NULL, NULL), 0);
		abox_task_unref(task);
		abox_journal_unref(journal);
		cr_assert(test_verify());
	}
}

/* Approvals of deferred effects are used up by the boundary itself, so that none can lapse half way. */
Test(task, takes_approvals_at_the_boundary)
{
	struct committer committer = {0};
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);
	char *json = NULL, id[64];

	cr_assert_eq(defer(task, "d1", "publish it"), ABOX_BEGIN_DEFERRED);
	cr_assert_eq(commit(task, &committer), ABOX_E_APPROVAL);
	cr_assert_eq(outside_count(NULL), 0);
	cr_assert_eq(abox_approval_list(journal, "job", 1, &json, NULL), 0);
	snprintf(id, sizeof(id), "%.36s", strstr(json, "app-"));
	abox_free(json);
	cr_assert_eq(abox_approval_grant(journal, id, "ann", NULL, NULL), 0);
	cr_assert_eq(commit(task, &committer), 0);
	cr_assert_eq(outside_count("d1"), 1);
	cr_assert_eq(abox_approval_wait(journal, id, 0, NULL), ABOX_APPROVAL_USED);
	abox_task_unref(task);
	abox_journal_unref(journal);
}

/* A cancel before the boundary: nothing is ever published. */
Test(task, commits_nothing_after_a_cancel)
{
	struct committer committer = {0};
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);

	cr_assert_eq(defer(task, "d1", NULL), ABOX_BEGIN_DEFERRED);
	cr_assert_eq(test_child(cancel, NULL), 0);
	cr_assert_eq(commit(task, &committer), ABOX_E_CANCELED);
	cr_assert_eq(outside_count(NULL), 0);
	abox_task_unref(task);
	abox_journal_unref(journal);
}

/* ---- resources ---- */

static int remove_it(const char *kind, const char *id, const char *cleanup, void *userdata)
{
	outside_happen(id);
	return strcmp(id, "stuck") == 0 ? -1 : 0;
}

/* The ledger names what must go; cleaning up goes on past failures and is told what is left. */
Test(task, cleans_up_by_its_ledger)
{
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);

	cr_assert_eq(abox_task_add_resource(task, "vm", "a", NULL, 1, NULL), 0);
	cr_assert_eq(abox_task_add_resource(task, "vm", "stuck", NULL, 1, NULL), 0);
	cr_assert_eq(abox_task_add_resource(task, "pr", "17", NULL, 0, NULL), 0);
	cr_assert_eq(test_child(cancel, NULL), 0);
	cr_assert_eq(abox_task_add_resource(task, "vm", "late", NULL, 1, NULL), 0,
		"what exists is noted after a cancel too");
	cr_assert_eq(abox_task_cleanup(task, remove_it, NULL, NULL), 1);
	cr_assert_eq(outside_count(NULL), 3);
	cr_assert_eq(abox_task_end(task, NULL, NULL), 0);
	abox_task_unref(task);
	abox_journal_unref(journal);
	journal = test_open();
	cr_assert_eq(open_status(journal, ABOX_TASK_APPEND, 0, 0, &task), ABOX_TASK_CANCELED);
	cr_assert_eq(abox_task_cleanup(task, remove_it, NULL, NULL), 1, "the duty outlives the task");
	cr_assert_eq(outside_count("stuck"), 2);
	cr_assert_eq(abox_task_remove_resource(task, "vm", "stuck", NULL), 0);
	cr_assert_eq(abox_task_cleanup(task, remove_it, NULL, NULL), 0);
	abox_task_unref(task);
	abox_journal_unref(journal);
}
