/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Effects over a real journal: replay, conflict, in flight, unknown, verdicts, fences, approvals (T14-10,
 * T14-11). */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "effect/owner.h"
#include "support.h"

TestSuite(effect, .init = test_setup, .fini = test_teardown, .timeout = 60);

static int do_it(abox_effect *effect, void *userdata)
{
	outside_happen(userdata);
	abox_effect_set_result(effect, "made 7", 6, 201);
	return ABOX_DONE_COMMITTED;
}

static int run(
	abox_task *task, struct abox_effect_options *options, const char *line, abox_effect **reteffect)
{
	abox_effect *effect = NULL;
	int r = abox_effect_run(task, options, do_it, NULL, (void *)line, &effect, NULL);

	if (reteffect)
		*reteffect = effect;
	else
		abox_effect_unref(effect);
	return r;
}

/* The same key again, also after a restart, gives the stored result and does nothing (T14-10). */
Test(effect, is_done_once_and_replayed)
{
	struct abox_effect_options options;
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);
	abox_effect *effect = NULL;
	size_t len = 0;

	test_options(&options, ABOX_EFFECT_OPAQUE, "pr", "forge", "body");
	cr_assert_eq(run(task, &options, "pr", &effect), ABOX_EFFECT_COMMITTED);
	cr_assert_eq(abox_effect_get_replayed(effect), 0);
	abox_effect_unref(effect);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(run(task, &options, "pr", &effect), ABOX_EFFECT_COMMITTED);
		cr_assert_eq(abox_effect_get_replayed(effect), 1);
		cr_assert_eq(abox_effect_get_code(effect), 201);
		cr_assert_str_eq(abox_effect_get_result(effect, &len), "made 7");
		cr_assert_eq(len, 6);
		abox_effect_unref(effect);
		abox_task_unref(task);
		abox_journal_unref(journal);
		journal = test_open();
		task = test_control(journal, "job", 0, NULL);
		cr_assert_eq(abox_task_get_attempt(task), (uint64_t)i + 2);
	}
	cr_assert_eq(outside_count(NULL), 1);
	abox_task_unref(task);
	abox_journal_unref(journal);
	cr_assert(test_verify());
}

/* The same key with another payload is refused, and the journal says so (T14-10). */
Test(effect, refuses_another_payload_under_the_same_key)
{
	struct abox_effect_options options;
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);
	char *json = NULL;

	test_options(&options, ABOX_EFFECT_OPAQUE, "pr", "forge", "body");
	cr_assert_eq(run(task, &options, "pr", NULL), ABOX_EFFECT_COMMITTED);
	test_options(&options, ABOX_EFFECT_OPAQUE, "pr", "forge", "other");
	cr_assert_eq(run(task, &options, "pr", NULL), ABOX_E_CONFLICT);
	test_options(&options, ABOX_EFFECT_IDEMPOTENT, "pr", "forge", "body");
	cr_assert_eq(run(task, &options, "pr", NULL), ABOX_E_CONFLICT, "another class is one as well");
	cr_assert_eq(outside_count(NULL), 1);
	cr_assert_eq(abox_effect_list(journal, "job", 0, &json, NULL), 0);
	cr_assert_not_null(strstr(json, "\"state\":\"COMMITTED\""));
	abox_free(json);
	abox_task_unref(task);
	abox_journal_unref(journal);
}

/* Keys have 1 to 255 bytes, whichever (T14-10). */
Test(effect, takes_keys_of_any_bytes)
{
	static char too_long[257];
	struct abox_effect_options options;
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);

	memset(too_long, 'k', 256);
	test_options(&options, ABOX_EFFECT_OPAQUE, "", "t", "b");
	cr_assert_eq(run(task, &options, "x", NULL), ABOX_E_INVALID);
	options.key = too_long;
	cr_assert_eq(run(task, &options, "x", NULL), ABOX_E_INVALID);
	options.key = too_long + 1;
	cr_assert_eq(run(task, &options, "x", NULL), ABOX_EFFECT_COMMITTED);
	options.key = "a\nb\xff\"\\";
	cr_assert_eq(run(task, &options, "y", NULL), ABOX_EFFECT_COMMITTED);
	abox_task_unref(task);
	abox_journal_unref(journal);
	journal = test_open();
	task = test_control(journal, "job", 0, NULL);
	cr_assert_eq(run(task, &options, "y", NULL), ABOX_EFFECT_COMMITTED);
	cr_assert_eq(outside_count("y"), 1);
	abox_task_unref(task);
	abox_journal_unref(journal);
}

/* Without a key, equal requests are one effect; a second wish says so (effects 1.1). */
Test(effect, derives_a_key_from_the_request)
{
	struct abox_effect_options options;
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);

	test_options(&options, ABOX_EFFECT_OPAQUE, NULL, "t", "comment");
	cr_assert_eq(run(task, &options, "x", NULL), ABOX_EFFECT_COMMITTED);
	cr_assert_eq(run(task, &options, "x", NULL), ABOX_EFFECT_COMMITTED);
	cr_assert_eq(outside_count("x"), 1);
	options.wish = 1;
	cr_assert_eq(run(task, &options, "x", NULL), ABOX_EFFECT_COMMITTED);
	cr_assert_eq(outside_count("x"), 2);
	abox_task_unref(task);
	abox_journal_unref(journal);
}

/* Results come back to the byte, also those too large for a record. */
Test(effect, keeps_results_of_any_size)
{
	static const size_t sizes[] = {0, 1, 65536, 65537, 300000};
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);

	for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(*sizes); i++) {
		struct abox_effect_options options;
		abox_effect *effect = NULL;
		size_t size = sizes[i / 2], len = 7;
		char key[16], *data = malloc(size + 1);

		memset(data, i % 2 ? 'a' : 0xfe, size);
		snprintf(key, sizeof(key), "k%zu", i);
		test_options(&options, ABOX_EFFECT_OPAQUE, key, "t", "b");
		cr_assert_eq(abox_effect_begin(task, &options, &effect, NULL), ABOX_BEGIN_GO);
		cr_assert_eq(abox_effect_dispatch(effect, NULL), 0);
		cr_assert_eq(abox_effect_set_result(effect, data, size, 0), 0);
		cr_assert_eq(
			abox_effect_finish(effect, ABOX_DONE_COMMITTED, NULL, NULL), ABOX_EFFECT_COMMITTED);
		abox_effect_unref(effect);
		cr_assert_eq(abox_effect_begin(task, &options, &effect, NULL), ABOX_BEGIN_REPLAY);
		cr_assert_not_null(abox_effect_get_result(effect, &len));
		cr_assert_eq(len, size);
		cr_assert_eq(memcmp(abox_effect_get_result(effect, NULL), data, size), 0);
		abox_effect_unref(effect);
		free(data);
	}
	abox_task_unref(task);
	abox_journal_unref(journal);
	cr_assert(test_verify());
}

/* Dies between DISPATCHED and the outcome, having done it or not. */
static int die_in_between(void *userdata)
{
	struct abox_effect_options options;
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);
	abox_effect *effect = NULL;
	int *effect_class = userdata;

	test_options(&options, *effect_class, "pr", "forge", "body");
	if (abox_effect_begin(task, &options, &effect, NULL) != ABOX_BEGIN_GO)
		return 1;
	if (abox_effect_dispatch(effect, NULL) != 0)
		return 2;
	outside_happen("pr");
	raise(SIGKILL);
	return 3;
}

/* A crash between intent and outcome is UNKNOWN and never run again by itself (T14-11). */
Test(effect, is_unknown_after_a_crash)
{
	int effect_class = ABOX_EFFECT_OPAQUE;
	struct abox_effect_options options;
	abox_effect *effect = NULL;
	abox_error *error = NULL;
	abox_journal *journal;
	abox_task *task;
	char id[64];

	cr_assert_eq(test_child(die_in_between, &effect_class), -SIGKILL);
	journal = test_open();
	task = test_control(journal, "job", 0, NULL);
	test_options(&options, effect_class, "pr", "forge", "body");
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(abox_effect_run(task, &options, do_it, NULL, (void *)"pr", &effect, &error),
			ABOX_E_UNKNOWN);
		snprintf(id, sizeof(id), "%s", abox_error_get_place(error) + strlen("effect "));
		error = abox_error_free(error);
	}
	cr_assert_eq(outside_count("pr"), 1);
	cr_assert_eq(abox_effect_resolve(journal, id, ABOX_VERDICT_COMMITTED, "ann", "seen", 4, 0, NULL), 0);
	cr_assert_eq(run(task, &options, "pr", &effect), ABOX_EFFECT_COMMITTED);
	cr_assert_str_eq(abox_effect_get_result(effect, NULL), "seen");
	abox_effect_unref(effect);
	cr_assert_eq(abox_effect_resolve(journal, id, ABOX_VERDICT_ABSENT, "bob", NULL, 0, 0, NULL),
		ABOX_E_STATE, "a verdict is final");
	abox_task_unref(task);
	abox_journal_unref(journal);
}

/* Abandoned stays abandoned; a retry by name opens another try. */
Test(effect, follows_what_people_decide)
{
	int effect_class = ABOX_EFFECT_OPAQUE;
	struct abox_effect_options options;
	abox_effect *effect = NULL;
	abox_error *error = NULL;
	abox_journal *journal;
	abox_task *task;
	char id[64];

	cr_assert_eq(test_child(die_in_between, &effect_class), -SIGKILL);
	journal = test_open();
	task = test_control(journal, "job", 0, NULL);
	test_options(&options, effect_class, "pr", "forge", "body");
	cr_assert_eq(abox_effect_begin(task, &options, &effect, &error), ABOX_E_UNKNOWN);
	snprintf(id, sizeof(id), "%s", abox_error_get_place(error) + strlen("effect "));
	error = abox_error_free(error);
	cr_assert_eq(abox_effect_retry(journal, id, "", NULL), ABOX_E_INVALID, "a name is needed");
	cr_assert_eq(abox_effect_retry(journal, id, "ann", NULL), 0);
	cr_assert_eq(run(task, &options, "pr", NULL), ABOX_EFFECT_COMMITTED);
	cr_assert_eq(outside_count("pr"), 2, "somebody took that upon himself");
	abox_task_unref(task);
	abox_journal_unref(journal);
}

static int check_outside(abox_effect *effect, void *userdata)
{
	if (outside_count(userdata) == 0)
		return ABOX_FOUND_ABSENT;
	abox_effect_set_result(effect, "found", 5, 200);
	return ABOX_FOUND_COMMITTED;
}

/* A checkable effect asks the outside: found there, it is not done again. */
Test(effect, asks_the_outside_when_it_can)
{
	int effect_class = ABOX_EFFECT_CHECKABLE;
	struct abox_effect_options options;
	abox_effect *effect = NULL;
	abox_journal *journal;
	abox_task *task;

	cr_assert_eq(test_child(die_in_between, &effect_class), -SIGKILL);
	journal = test_open();
	task = test_control(journal, "job", 0, NULL);
	test_options(&options, effect_class, "pr", "forge", "body");
	cr_assert_eq(run(task, &options, "pr", NULL), ABOX_E_UNKNOWN, "not without a check function");
	cr_assert_eq(abox_effect_run(task, &options, do_it, check_outside, (void *)"pr", &effect, NULL),
		ABOX_EFFECT_COMMITTED);
	cr_assert_eq(abox_effect_get_replayed(effect), 1);
	cr_assert_str_eq(abox_effect_get_result(effect, NULL), "found");
	cr_assert_eq(outside_count("pr"), 1);
	abox_effect_unref(effect);
	abox_task_unref(task);
	abox_journal_unref(journal);
}

/* ABSENT is believed only after the settle time; then it is done again, once (effects 1.7). */
Test(effect, waits_before_it_believes_absent)
{
	struct abox_effect_options options;
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);
	abox_effect *effect = NULL;

	test_options(&options, ABOX_EFFECT_CHECKABLE, "pr", "forge", "body");
	options.settle_usec = 300000;
	cr_assert_eq(abox_effect_begin(task, &options, &effect, NULL), ABOX_BEGIN_GO);
	cr_assert_eq(abox_effect_dispatch(effect, NULL), 0);
	abox_effect_unref(effect); /* gave up: UNKNOWN */
	cr_assert_eq(abox_effect_run(task, &options, do_it, check_outside, (void *)"pr", &effect, NULL),
		ABOX_E_BUSY);
	options.wait_usec = 5000000;
	cr_assert_eq(abox_effect_run(task, &options, do_it, check_outside, (void *)"pr", &effect, NULL),
		ABOX_EFFECT_COMMITTED);
	cr_assert_eq(abox_effect_get_try(effect), 2);
	cr_assert_eq(outside_count("pr"), 1);
	abox_effect_unref(effect);
	abox_task_unref(task);
	abox_journal_unref(journal);
}

static int unclear(abox_effect *effect, void *userdata)
{
	outside_happen(userdata);
	return abox_effect_judge_http(503);
}

/* An answer that does not tell: UNKNOWN for opaque, again for idempotent, and tries are bounded
 * (effects 1.3). */
Test(effect, takes_unclear_answers_by_class)
{
	struct abox_effect_options options;
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);
	abox_effect *effect = NULL;

	test_options(&options, ABOX_EFFECT_OPAQUE, "a", "t", "b");
	cr_assert_eq(
		abox_effect_run(task, &options, unclear, NULL, (void *)"a", &effect, NULL), ABOX_E_UNKNOWN);
	cr_assert_eq(
		abox_effect_run(task, &options, unclear, NULL, (void *)"a", &effect, NULL), ABOX_E_UNKNOWN);
	cr_assert_eq(outside_count("a"), 1);
	test_options(&options, ABOX_EFFECT_IDEMPOTENT, "i", "t", "b");
	options.max_tries = 3;
	for (int i = 1; i <= 3; i++) {
		cr_assert_eq(abox_effect_run(task, &options, unclear, NULL, (void *)"i", &effect, NULL),
			ABOX_EFFECT_FAILED);
		cr_assert_eq(abox_effect_get_try(effect), (uint32_t)i);
		abox_effect_unref(effect);
	}
	cr_assert_eq(abox_effect_run(task, &options, unclear, NULL, (void *)"i", &effect, NULL),
		ABOX_EFFECT_FAILED);
	cr_assert_eq(abox_effect_get_replayed(effect), 1);
	cr_assert_eq(outside_count("i"), 3);
	abox_effect_unref(effect);
	abox_task_unref(task);
	abox_journal_unref(journal);
}

static int say_no(abox_effect *effect, void *userdata)
{
	outside_happen(userdata);
	abox_effect_set_result(effect, "no", 2, 422);
	return ABOX_DONE_FAILED;
}

/* A refusal is an answer: it is stored and replayed. */
Test(effect, replays_a_refusal)
{
	struct abox_effect_options options;
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);
	abox_effect *effect = NULL;

	test_options(&options, ABOX_EFFECT_OPAQUE, "a", "t", "b");
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(abox_effect_run(task, &options, say_no, NULL, (void *)"a", &effect, NULL),
			ABOX_EFFECT_FAILED);
		cr_assert_eq(abox_effect_get_code(effect), 422);
		cr_assert_eq(abox_effect_get_replayed(effect), i);
		abox_effect_unref(effect);
	}
	cr_assert_eq(outside_count("a"), 1);
	abox_task_unref(task);
	abox_journal_unref(journal);
}

/* ---- several processes ---- */

static int slow(abox_effect *effect, void *userdata)
{
	outside_happen(userdata);
	usleep(200000);
	abox_effect_set_result(effect, "slow", 4, 0);
	return ABOX_DONE_COMMITTED;
}

static void *second_thread(void *userdata)
{
	struct abox_effect_options options;
	abox_effect *effect = NULL;
	int r;

	test_options(&options, ABOX_EFFECT_OPAQUE, "k", "t", "b");
	options.wait_usec = 10000000;
	r = abox_effect_run(userdata, &options, slow, NULL, (void *)"k", &effect, NULL);
	if (r == ABOX_EFFECT_COMMITTED && strcmp(abox_effect_get_result(effect, NULL), "slow") != 0)
		r = -1;
	abox_effect_unref(effect);
	return (void *)(intptr_t)r;
}

/* Threads that want the same effect at once: one does it, all get its result (effects 1.6). */
Test(effect, is_done_once_by_many_threads)
{
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);
	pthread_t threads[8];

	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, second_thread, task);
	for (int i = 0; i < 8; i++) {
		void *r;

		pthread_join(threads[i], &r);
		cr_assert_eq((int)(intptr_t)r, ABOX_EFFECT_COMMITTED);
	}
	cr_assert_eq(outside_count("k"), 1);
	abox_task_unref(task);
	abox_journal_unref(journal);
	cr_assert(test_verify());
}

/* A helper process: joins the epoch it finds. */
static int helper(void *userdata)
{
	abox_journal *journal = test_open();
	struct abox_effect_options options;
	abox_effect *effect = NULL;
	abox_task *task = NULL;
	int r;

	if (abox_task_open(journal, "job", NULL, &task, NULL) < 0)
		return 1;
	test_options(&options, ABOX_EFFECT_OPAQUE, "k", "t", "b");
	options.wait_usec = 20000000;
	r = abox_effect_run(task, &options, slow, NULL, userdata, &effect, NULL);
	abox_effect_unref(effect);
	abox_task_unref(task);
	abox_journal_unref(journal);
	return r == ABOX_EFFECT_COMMITTED ? 0 : 2;
}

/* Two and eight processes at once: never twice (effects 5). */
Test(effect, is_done_once_by_many_processes)
{
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);
	int pids[8];

	for (int i = 0; i < 8; i++)
		pids[i] = test_start(helper, (void *)"k");
	for (int i = 0; i < 8; i++)
		cr_assert_eq(test_join(pids[i], 30), 0, "helper %d", i);
	cr_assert_eq(outside_count("k"), 1);
	abox_task_unref(task);
	abox_journal_unref(journal);
	cr_assert(test_verify());
}

static int dies_while_sending(void *userdata)
{
	abox_journal *journal = test_open();
	struct abox_effect_options options;
	abox_effect *effect = NULL;
	abox_task *task = NULL;

	if (abox_task_open(journal, "job", NULL, &task, NULL) < 0)
		return 1;
	test_options(&options, ABOX_EFFECT_OPAQUE, "k", "t", "b");
	if (abox_effect_begin(task, &options, &effect, NULL) != ABOX_BEGIN_GO ||
		abox_effect_dispatch(effect, NULL) < 0)
		return 2;
	if (write(*(int *)userdata, "x", 1) != 1)
		return 3;
	usleep(300000);
	raise(SIGKILL);
	return 4;
}

/* Whoever waits for an effect is woken by the death of its executor (effects 1.6). */
Test(effect, wakes_when_the_executor_dies)
{
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);
	struct abox_effect_options options;
	abox_effect *effect = NULL;
	abox_error *error = NULL;
	int fds[2], pid;
	char c, id[64];

	cr_assert_eq(pipe(fds), 0);
	pid = test_start(dies_while_sending, &fds[1]);
	cr_assert_eq(read(fds[0], &c, 1), 1);
	test_options(&options, ABOX_EFFECT_OPAQUE, "k", "t", "b");
	cr_assert_eq(abox_effect_begin(task, &options, &effect, &error), ABOX_E_IN_PROGRESS);
	snprintf(id, sizeof(id), "%s", abox_error_get_place(error) + strlen("effect "));
	error = abox_error_free(error);
	cr_assert_eq(abox_effect_resolve(journal, id, ABOX_VERDICT_COMMITTED, "ann", NULL, 0, 0, NULL),
		ABOX_E_IN_PROGRESS, "nobody decides over the living");
	cr_assert_eq(abox_effect_wait(journal, id, 0, NULL), ABOX_E_TIMEOUT);
	cr_assert_eq(abox_effect_wait(journal, id, 20000000, NULL), ABOX_EFFECT_UNKNOWN);
	cr_assert_eq(test_join(pid, 10), -SIGKILL);
	abox_task_unref(task);
	abox_journal_unref(journal);
}

/* A fenced owner starts nothing; the outcome of what it had dispatched is welcome (effects 1.5, 1.8). */
Test(effect, fences_the_owner_before)
{
	abox_journal *journal = test_open(), *other = test_open();
	abox_task *old = test_control(journal, "job", 0, NULL), *new;
	struct abox_effect_options options;
	abox_effect *sent = NULL, *intended = NULL, *effect = NULL;
	int status;

	test_options(&options, ABOX_EFFECT_OPAQUE, "sent", "t", "b");
	cr_assert_eq(abox_effect_begin(old, &options, &sent, NULL), ABOX_BEGIN_GO);
	cr_assert_eq(abox_effect_dispatch(sent, NULL), 0);
	options.key = "intended";
	cr_assert_eq(abox_effect_begin(old, &options, &intended, NULL), ABOX_BEGIN_GO);

	new = test_control(other, "job", ABOX_TAKEOVER_NONE, &status);
	cr_assert_eq(status, ABOX_E_BUSY, "positive control: the living are not fenced by accident");
	cr_assert_null(new);
	new = test_control(other, "job", ABOX_TAKEOVER_FENCE, &status);
	cr_assert_eq(status, ABOX_TASK_RUNNING);
	cr_assert_eq(abox_task_get_fenced(old), 1);
	cr_assert_eq(abox_task_get_fenced(new), 0);

	cr_assert_eq(abox_effect_dispatch(intended, NULL), ABOX_E_FENCED);
	options.key = "later";
	cr_assert_eq(abox_effect_begin(old, &options, &effect, NULL), ABOX_E_FENCED);
	options.key = "sent";
	cr_assert_eq(abox_effect_begin(new, &options, &effect, NULL), ABOX_E_IN_PROGRESS);
	options.key = "intended";
	cr_assert_eq(abox_effect_begin(new, &options, &effect, NULL), ABOX_BEGIN_GO, "taken over");
	abox_effect_unref(effect);
	cr_assert_eq(abox_effect_finish(sent, ABOX_DONE_COMMITTED, NULL, NULL), ABOX_EFFECT_COMMITTED);
	options.key = "sent";
	cr_assert_eq(abox_effect_begin(new, &options, &effect, NULL), ABOX_BEGIN_REPLAY);
	abox_effect_unref(effect);
	abox_effect_unref(sent);
	abox_effect_unref(intended);
	abox_task_unref(old);
	abox_task_unref(new);
	abox_journal_unref(journal);
	abox_journal_unref(other);
	cr_assert(test_verify());
}

/* An outcome after a verdict changes nothing and is told loudly (effects 1.5). */
Test(effect, keeps_late_outcomes_as_evidence)
{
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);
	struct abox_effect_options options;
	abox_effect *effect = NULL;
	abox_journal *other = test_open();
	abox_error *error = NULL;
	char *json = NULL;

	test_options(&options, ABOX_EFFECT_OPAQUE, "k", "t", "b");
	cr_assert_eq(abox_effect_begin(task, &options, &effect, NULL), ABOX_BEGIN_GO);
	cr_assert_eq(abox_effect_dispatch(effect, NULL), 0);
	cr_assert_eq(abox_effect_finish(effect, ABOX_DONE_UNCLEAR, "timeout", NULL), ABOX_EFFECT_UNKNOWN);
	cr_assert_eq(
		abox_effect_finish(effect, ABOX_DONE_COMMITTED, NULL, NULL), ABOX_E_STATE, "it had let go");
	abox_effect_unref(effect);

	options.key = "late";
	cr_assert_eq(abox_effect_begin(task, &options, &effect, NULL), ABOX_BEGIN_GO);
	cr_assert_eq(abox_effect_dispatch(effect, NULL), 0);
	cr_assert_eq(abox_effect_resolve(other, abox_effect_get_id(effect), ABOX_VERDICT_ABANDONED, "ann",
			     NULL, 0, 0, NULL),
		ABOX_E_IN_PROGRESS, "positive control: while it holds its lock nobody decides");
	/* A stand-in for an executor that others have every reason to call dead: its lock falls while it
	 * works on. */
	close(task->executor_fd);
	cr_assert_eq(abox_effect_resolve(other, abox_effect_get_id(effect), ABOX_VERDICT_ABANDONED, "ann",
			     NULL, 0, 0, NULL),
		0);
	cr_assert_eq(abox_effect_finish(effect, ABOX_DONE_COMMITTED, NULL, &error), ABOX_E_ALREADY);
	cr_assert_not_null(strstr(abox_error_get_message(error), "late"));
	error = abox_error_free(error);
	cr_assert_eq(abox_effect_list(journal, "job", 0, &json, NULL), 0);
	cr_assert_not_null(strstr(json, "\"late_outcomes\":1"));
	cr_assert_not_null(strstr(json, "ABANDONED"));
	abox_free(json);
	task->executor_fd = -EBADF;
	abox_effect_unref(effect);
	abox_task_unref(task);
	abox_journal_unref(other);
	abox_journal_unref(journal);
}

/* A forked child cannot use the handles of its parent; its own come from opening again. */
static int use_in_child(void *userdata)
{
	struct abox_effect_options options;
	abox_effect *effect = NULL;
	int r;

	test_options(&options, ABOX_EFFECT_OPAQUE, "k", "t", "b");
	r = abox_effect_begin(userdata, &options, &effect, NULL);
	abox_task_unref(userdata);
	return r == ABOX_E_STATE ? 0 : 1;
}

Test(effect, is_dead_in_a_forked_child)
{
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);

	cr_assert_eq(test_child(use_in_child, task), 0);
	abox_task_unref(task);
	abox_journal_unref(journal);
}

/* ---- ambiguous wishes ---- */

/* A reworded wish of a later attempt is asked about; claim and allow answer for good (effects 1.1). */
Test(effect, asks_about_reworded_wishes)
{
	struct abox_effect_options options;
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);
	abox_effect *effect = NULL;
	abox_error *error = NULL;
	char *json = NULL, first[64], wish[64];

	test_options(&options, ABOX_EFFECT_OPAQUE, NULL, "forge", "Fix the bug");
	cr_assert_eq(run(task, &options, "x", &effect), ABOX_EFFECT_COMMITTED);
	snprintf(first, sizeof(first), "%s", abox_effect_get_id(effect));
	abox_effect_unref(effect);
	abox_task_unref(task);
	task = test_control(journal, "job", 0, NULL);
	test_options(&options, ABOX_EFFECT_OPAQUE, NULL, "forge", "Fixes the bug");
	cr_assert_eq(abox_effect_begin(task, &options, &effect, &error), ABOX_E_AMBIGUOUS);
	snprintf(wish, sizeof(wish), "%s", abox_error_get_place(error) + strlen("effect "));
	error = abox_error_free(error);
	cr_assert_eq(outside_count("x"), 1);
	cr_assert_eq(abox_effect_claim(journal, wish, first, "ann", NULL), 0);
	cr_assert_eq(abox_effect_claim(journal, wish, first, "bob", NULL), ABOX_E_STATE, "once is enough");
	cr_assert_eq(abox_effect_allow(journal, wish, "bob", NULL), ABOX_E_STATE);
	cr_assert_eq(abox_effect_list(journal, "job", 1, &json, NULL), 0);
	cr_assert_str_eq(json, "[]", "nothing is left to decide");
	abox_free(json);
	/* The claim stands in the head of the next segment as well. */
	cr_assert_eq(abox_journal_rotate(journal, NULL), 0);
	abox_task_unref(task);
	abox_journal_unref(journal);
	journal = test_open();
	task = test_control(journal, "job", 0, NULL);
	cr_assert_eq(run(task, &options, "x", &effect), ABOX_EFFECT_COMMITTED);
	cr_assert_eq(abox_effect_get_replayed(effect), 1);
	cr_assert_str_eq(abox_effect_get_id(effect), first);
	abox_effect_unref(effect);
	abox_task_unref(task);

	task = test_control(journal, "job", 0, NULL);
	test_options(&options, ABOX_EFFECT_OPAQUE, NULL, "forge", "Another one");
	cr_assert_eq(abox_effect_begin(task, &options, &effect, &error), ABOX_E_AMBIGUOUS);
	snprintf(wish, sizeof(wish), "%s", abox_error_get_place(error) + strlen("effect "));
	error = abox_error_free(error);
	cr_assert_eq(abox_effect_allow(journal, wish, "ann", NULL), 0);
	cr_assert_eq(run(task, &options, "x", NULL), ABOX_EFFECT_COMMITTED);
	cr_assert_eq(outside_count("x"), 2);
	abox_task_unref(task);

	task = test_control(journal, "job", 0, NULL);
	test_options(&options, ABOX_EFFECT_OPAQUE, NULL, "forge", "In advance");
	options.new_by = "harness";
	cr_assert_eq(run(task, &options, "x", NULL), ABOX_EFFECT_COMMITTED);
	options.new_by = NULL;
	test_options(&options, ABOX_EFFECT_OPAQUE, NULL, "forge", "Fix the bug!");
	options.claim_id = first;
	options.claim_by = "harness";
	cr_assert_eq(run(task, &options, "x", &effect), ABOX_EFFECT_COMMITTED);
	cr_assert_eq(abox_effect_get_replayed(effect), 1);
	abox_effect_unref(effect);
	cr_assert_eq(outside_count("x"), 3);
	abox_task_unref(task);
	abox_journal_unref(journal);
	cr_assert(test_verify());
}

/* A number that no record could hold is refused before it is written: it would stop every reader of the journal. */
Test(effect, refuses_numbers_beyond_63_bits)
{
	struct abox_effect_options options;
	struct abox_task_options task_options;
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL), *other = NULL;
	abox_effect *effect = NULL;

	test_options(&options, ABOX_EFFECT_OPAQUE, "k", "t", "b");
	options.settle_usec = UINT64_MAX;
	cr_assert_eq(abox_effect_begin(task, &options, &effect, NULL), ABOX_E_INVALID);
	abox_task_options_init(&task_options);
	task_options.access = ABOX_TASK_CONTROL;
	task_options.lease_usec = ABOX_FOREVER;
	cr_assert_eq(abox_task_open(journal, "other", &task_options, &other, NULL), ABOX_E_INVALID);
	task_options.lease_usec = INT64_MAX;
	cr_assert_eq(abox_task_open(journal, "other", &task_options, &other, NULL), ABOX_TASK_NEW);
	options.settle_usec = INT64_MAX;
	cr_assert_eq(abox_effect_begin(task, &options, &effect, NULL), ABOX_BEGIN_GO);
	cr_assert_eq(abox_journal_rotate(journal, NULL), 0);
	abox_effect_unref(effect);
	abox_task_unref(other);
	abox_task_unref(task);
	abox_journal_unref(journal);
	journal = test_open();
	task = test_control(journal, "job", 0, NULL);
	cr_assert_not_null(task);
	abox_task_unref(task);
	abox_journal_unref(journal);
}

/* A limit per target bounds what rewording inside one attempt could repeat. */
Test(effect, bounds_effects_per_target)
{
	struct abox_effect_options options;
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);

	test_options(&options, ABOX_EFFECT_OPAQUE, NULL, "t", "1");
	options.limit = 2;
	cr_assert_eq(run(task, &options, "x", NULL), ABOX_EFFECT_COMMITTED);
	options.request.body = "2";
	cr_assert_eq(run(task, &options, "x", NULL), ABOX_EFFECT_COMMITTED);
	options.request.body = "3";
	cr_assert_eq(run(task, &options, "x", NULL), ABOX_E_LIMIT);
	options.request.body = "1";
	cr_assert_eq(run(task, &options, "x", NULL), ABOX_EFFECT_COMMITTED, "a repeat is no effect");
	abox_task_unref(task);
	abox_journal_unref(journal);
}

/* ---- approvals ---- */

struct answer {
	char id[64];
	int how;
	int delay_msec;
};

static int answer(void *userdata)
{
	struct answer *answer = userdata;
	abox_journal *journal = test_open();
	int r;

	usleep((unsigned int)answer->delay_msec * 1000);
	r = answer->how == 0   ? abox_approval_grant(journal, answer->id, "ann", "fine", NULL)
	    : answer->how == 1 ? abox_approval_deny(journal, answer->id, "ann", NULL, NULL)
			       : abox_approval_revoke(journal, answer->id, "ann", NULL, NULL);
	abox_journal_unref(journal);
	return r == 0 ? 0 : 1;
}

static void begin_with_approval(
	abox_task *task, struct abox_effect_options *options, const char *key, struct answer *answer)
{
	abox_effect *effect = NULL;
	abox_error *error = NULL;

	test_options(options, ABOX_EFFECT_OPAQUE, key, "forge", key);
	options->approval_text = "open a pull request";
	cr_assert_eq(
		abox_effect_run(task, options, do_it, NULL, (void *)key, &effect, &error), ABOX_E_APPROVAL);
	cr_assert_eq(abox_error_get_retryable(error), 1);
	snprintf(answer->id, sizeof(answer->id), "%s", abox_error_get_place(error) + strlen("approval "));
	error = abox_error_free(error);
}

/* Nothing leaves before a named person in another process has said yes; then once (effects 1.9). */
Test(effect, needs_the_approval_it_asks_for)
{
	struct abox_effect_options options;
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);
	struct answer grant = {.how = 0, .delay_msec = 200}, deny = {.how = 1}, revoke = {.how = 2};
	abox_effect *effect = NULL;
	char *json = NULL;
	int pid;

	begin_with_approval(task, &options, "a", &grant);
	cr_assert_eq(outside_count(NULL), 0);
	cr_assert_eq(abox_approval_list(journal, NULL, 1, &json, NULL), 0);
	cr_assert_not_null(strstr(json, "open a pull request"));
	cr_assert_not_null(strstr(json, "\"target\":\"forge\""));
	abox_free(json);
	pid = test_start(answer, &grant);
	options.approval_wait_usec = 20000000;
	cr_assert_eq(run(task, &options, "a", &effect), ABOX_EFFECT_COMMITTED);
	cr_assert_str_eq(abox_effect_get_approval(effect), grant.id);
	abox_effect_unref(effect);
	cr_assert_eq(test_join(pid, 10), 0);
	cr_assert_eq(abox_approval_wait(journal, grant.id, 0, NULL), ABOX_APPROVAL_USED);
	cr_assert_eq(abox_approval_revoke(journal, grant.id, "bob", NULL, NULL), ABOX_E_ALREADY);

	begin_with_approval(task, &options, "b", &deny);
	cr_assert_eq(test_child(answer, &deny), 0);
	cr_assert_eq(abox_approval_grant(journal, deny.id, "bob", NULL, NULL), ABOX_E_ALREADY, "deny wins");
	cr_assert_eq(run(task, &options, "b", NULL), ABOX_E_APPROVAL);
	cr_assert_eq(abox_approval_wait(journal, deny.id, 0, NULL), ABOX_APPROVAL_DENIED);

	begin_with_approval(task, &options, "c", &revoke);
	cr_assert_eq(abox_approval_grant(journal, revoke.id, "bob", NULL, NULL), 0);
	cr_assert_eq(test_child(answer, &revoke), 0);
	cr_assert_eq(run(task, &options, "c", NULL), ABOX_E_APPROVAL);
	cr_assert_eq(outside_count(NULL), 1);
	abox_task_unref(task);
	abox_journal_unref(journal);
	cr_assert(test_verify());
}

/* A grant that expired is none; asking again makes a new request. */
Test(effect, lets_approvals_expire)
{
	struct abox_effect_options options;
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);
	abox_error *error = NULL;
	abox_effect *effect = NULL;
	char id[64];

	test_options(&options, ABOX_EFFECT_OPAQUE, "a", "forge", "a");
	options.approval_text = "x";
	options.approval_ttl_usec = 200000;
	cr_assert_eq(abox_effect_begin(task, &options, &effect, NULL), ABOX_BEGIN_GO);
	snprintf(id, sizeof(id), "%s", abox_effect_get_approval(effect));
	cr_assert_eq(abox_approval_grant(journal, id, "ann", NULL, NULL), 0);
	usleep(250000);
	cr_assert_eq(abox_effect_dispatch(effect, &error), ABOX_E_APPROVAL);
	cr_assert_eq(abox_error_get_retryable(error), 0);
	error = abox_error_free(error);
	abox_effect_unref(effect);
	options.approval_ttl_usec = 0;
	cr_assert_eq(abox_effect_begin(task, &options, &effect, NULL), ABOX_BEGIN_GO);
	cr_assert_str_neq(abox_effect_get_approval(effect), id);
	cr_assert_eq(abox_approval_grant(journal, abox_effect_get_approval(effect), "ann", NULL, NULL), 0);
	cr_assert_eq(abox_effect_dispatch(effect, NULL), 0);
	abox_effect_unref(effect);
	abox_task_unref(task);
	abox_journal_unref(journal);
}

/* Two effects of one payload and one use: one of them goes (model approval). */
Test(effect, counts_uses)
{
	struct abox_effect_options options;
	struct abox_approval_options ask;
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);
	abox_effect *effects[3] = {NULL};
	char *id = NULL;
	int gone = 0;

	abox_approval_options_init(&ask);
	ask.request.target = "forge";
	ask.request.body = "p";
	ask.request.body_len = 1;
	ask.text = "twice";
	ask.uses = 2;
	cr_assert_eq(abox_approval_request(task, &ask, &id, NULL), 0);
	cr_assert_eq(abox_approval_grant(journal, id, "ann", NULL, NULL), 0);
	for (int i = 0; i < 3; i++) {
		test_options(&options, ABOX_EFFECT_OPAQUE, NULL, "forge", "p");
		options.wish = (uint64_t)i;
		options.approval_text = "twice";
		cr_assert_eq(abox_effect_begin(task, &options, &effects[i], NULL), ABOX_BEGIN_GO);
	}
	for (int i = 0; i < 3; i++)
		gone += abox_effect_dispatch(effects[i], NULL) == 0;
	cr_assert_eq(gone, 2);
	for (int i = 0; i < 3; i++)
		abox_effect_unref(effects[i]);
	abox_free(id);
	abox_task_unref(task);
	abox_journal_unref(journal);
}
