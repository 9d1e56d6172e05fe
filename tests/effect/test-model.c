/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Random lives against a small model: three processes that take control from one another, begin, dispatch, send, finish,
 * give up and are killed, and people who decide, approve and cancel. One step at a time, so that a seed replays a walk
 * exactly; every answer and, in between, every state must be the model's. ABOX_SEED=N replays one walk.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "support.h"

TestSuite(model, .init = test_setup_in_memory, .fini = test_teardown, .timeout = 3000);

#define N_WORKERS 3
#define N_KEYS 4
#define MAX_TRIES 3

enum op { CONTROL, BEGIN, DISPATCH, SEND, FINISH, DROP, RECONCILE };
static const char *const keys[N_KEYS] = { "opaque", "checkable", "idempotent", "approved" };
static const int classes[N_KEYS] = { ABOX_EFFECT_OPAQUE, ABOX_EFFECT_CHECKABLE, ABOX_EFFECT_IDEMPOTENT,
	ABOX_EFFECT_OPAQUE };

struct order {
	int op, key, argument;
};
struct reply {
	int result;
	char effect[64], approval[64];
};

/* ---- a worker: does as it is told, one order after the other ---- */

static struct {
	abox_journal *journal;
	abox_task *task;
	abox_effect *effects[N_KEYS];
} worker;

static void drop_all(void)
{
	for (int k = 0; k < N_KEYS; k++)
		worker.effects[k] = abox_effect_unref(worker.effects[k]);
	worker.task = abox_task_unref(worker.task);
}

static int find(abox_effect *effect, void *userdata)
{
	return outside_count(abox_effect_get_key(effect)) ? ABOX_FOUND_COMMITTED : ABOX_FOUND_ABSENT;
}

static void note_ids(struct reply *reply, const abox_effect *effect, const abox_error *error)
{
	const char *place = abox_error_get_place(error);

	if (effect)
		snprintf(reply->effect, sizeof(reply->effect), "%s", abox_effect_get_id(effect));
	else if (place && strncmp(place, "effect ", 7) == 0)
		snprintf(reply->effect, sizeof(reply->effect), "%s", place + 7);
	if (effect && abox_effect_get_approval(effect))
		snprintf(reply->approval, sizeof(reply->approval), "%s", abox_effect_get_approval(effect));
}

static int begin(int key, struct reply *reply)
{
	struct abox_effect_options options;
	abox_effect *effect = NULL;
	abox_error *error = NULL;
	int r;

	test_options(&options, classes[key], keys[key], "target", keys[key]);
	options.max_tries = MAX_TRIES;
	if (key == 3)
		options.approval_text = "please";
	r = abox_effect_begin(worker.task, &options, &effect, &error);
	note_ids(reply, effect, error);
	abox_error_free(error);
	if (r == ABOX_BEGIN_GO)
		worker.effects[key] = effect;
	else
		abox_effect_unref(effect);
	return r;
}

static void obey(const struct order *order, struct reply *reply)
{
	abox_effect **effect = &worker.effects[order->key];

	switch (order->op) {
	case CONTROL:
		drop_all();
		worker.task = test_control(worker.journal, "job", order->argument, &reply->result);
		break;
	case BEGIN:
		reply->result = begin(order->key, reply);
		break;
	case DISPATCH:
		reply->result = abox_effect_dispatch(*effect, NULL);
		if (reply->result < 0 && reply->result != ABOX_E_APPROVAL)
			*effect = abox_effect_unref(*effect);
		break;
	case SEND:
		outside_happen(keys[order->key]);
		break;
	case FINISH:
		reply->result = abox_effect_finish(*effect, order->argument, NULL, NULL);
		*effect = abox_effect_unref(*effect);
		break;
	case DROP:
		*effect = abox_effect_unref(*effect);
		break;
	default:
		break;
	}
}

static int work(int in, int out)
{
	struct order order;
	struct reply reply;
	char id[64];

	worker.journal = test_open();
	while (read(in, &order, sizeof(order)) == (ssize_t)sizeof(order)) {
		memset(&reply, 0, sizeof(reply));
		if (order.op == RECONCILE) {
			if (read(in, id, sizeof(id)) != (ssize_t)sizeof(id))
				break;
			reply.result = abox_effect_reconcile(worker.task, id, find, NULL, NULL);
		} else {
			obey(&order, &reply);
		}
		if (write(out, &reply, sizeof(reply)) != (ssize_t)sizeof(reply))
			break;
	}
	return 0;
}

/* ---- the model ---- */

struct handle {
	bool held, dispatched, sent;
	uint32_t try;
};

static struct {
	uint64_t rng;
	abox_journal *journal;
	uint64_t epoch;
	int owner;		/* executor that has control; 0: none */
	int executors;
	bool canceled;
	char approval[64];
	int approval_state;	/* as in the header; -1: none */
	struct {
		int pid, in, out;
		int executor;	/* 0: it has no task */
		uint64_t epoch;
		struct handle handles[N_KEYS];
	} workers[N_WORKERS];
	struct {
		bool exists;
		char id[64];
		int state;
		uint32_t try;
		int executor, holder;	/* holder: the worker whose handle it is, -1 none */
		uint64_t epoch;
		bool retryable, maybe, overridden;
		int happened, overrides, tries_sent;
	} keys[N_KEYS];
	int steps;
} model;

static uint64_t rnd(uint64_t n)
{
	model.rng ^= model.rng << 13;
	model.rng ^= model.rng >> 7;
	model.rng ^= model.rng << 17;
	return (model.rng >> 11) % n;
}

static void spawn(int w)
{
	int in[2], out[2];

	cr_assert(pipe(in) == 0 && pipe(out) == 0);
	model.workers[w].pid = fork();
	if (model.workers[w].pid == 0) {
		for (int i = 0; i < N_WORKERS; i++)
			if (i != w && model.workers[i].pid) {
				close(model.workers[i].in);
				close(model.workers[i].out);
			}
		close(in[1]);
		close(out[0]);
		_exit(work(in[0], out[1]));
	}
	close(in[0]);
	close(out[1]);
	model.workers[w].in = in[1];
	model.workers[w].out = out[0];
	model.workers[w].executor = 0;
	model.workers[w].epoch = 0;
	memset(model.workers[w].handles, 0, sizeof(model.workers[w].handles));
}

static void crash(int w)
{
	kill(model.workers[w].pid, SIGKILL);
	waitpid(model.workers[w].pid, NULL, 0);
	close(model.workers[w].in);
	close(model.workers[w].out);
	for (int k = 0; k < N_KEYS; k++)
		if (model.keys[k].holder == w)
			model.keys[k].holder = -1;
	spawn(w);
}

static struct reply tell(int w, int op, int key, int argument)
{
	struct order order = { op, key, argument };
	struct reply reply = { 0 };

	cr_assert_eq(write(model.workers[w].in, &order, sizeof(order)), (ssize_t)sizeof(order));
	if (op == RECONCILE)
		cr_assert_eq(write(model.workers[w].in, model.keys[key].id, 64), 64);
	cr_assert_eq(read(model.workers[w].out, &reply, sizeof(reply)), (ssize_t)sizeof(reply), "worker %d", w);
	return reply;
}

static bool lives(int executor)
{
	for (int w = 0; w < N_WORKERS; w++)
		if (executor && model.workers[w].executor == executor)
			return true;
	return false;
}

/* The handle of a worker is let go, in order or not. */
static void let_go(int w, int k)
{
	struct handle *handle = &model.workers[w].handles[k];

	if (handle->held && model.keys[k].holder == w && model.keys[k].try == handle->try) {
		if (handle->dispatched && model.keys[k].state == ABOX_EFFECT_DISPATCHED)
			model.keys[k].state = ABOX_EFFECT_UNKNOWN;
		else if (!handle->dispatched && model.keys[k].state == ABOX_EFFECT_INTENDED)
			model.keys[k].executor = 0;
		model.keys[k].holder = -1;
	}
	memset(handle, 0, sizeof(*handle));
}

static int go(int w, int k, uint32_t try, bool maybe)
{
	model.keys[k].exists = true;
	model.keys[k].state = ABOX_EFFECT_INTENDED;
	model.keys[k].try = try;
	model.keys[k].executor = model.workers[w].executor;
	model.keys[k].holder = w;
	model.keys[k].epoch = model.epoch;
	model.keys[k].maybe = maybe;
	model.keys[k].overridden = false;
	model.workers[w].handles[k] = (struct handle){ .held = true, .try = try };
	return ABOX_BEGIN_GO;
}

static int next_try(int w, int k, bool by_name)
{
	bool maybe = model.keys[k].maybe || model.keys[k].state == ABOX_EFFECT_UNKNOWN;

	if (model.canceled)
		return ABOX_E_CANCELED;
	if (!by_name && model.keys[k].try >= MAX_TRIES)
		return ABOX_E_LIMIT;
	return go(w, k, model.keys[k].try + 1, maybe);
}

static int expect_begin(int w, int k)
{
	if (model.workers[w].epoch != model.epoch)
		return ABOX_E_FENCED;
	if (!model.keys[k].exists)
		return model.canceled ? ABOX_E_CANCELED : go(w, k, 1, false);
	if (model.keys[k].state == ABOX_EFFECT_DISPATCHED && !lives(model.keys[k].executor))
		model.keys[k].state = ABOX_EFFECT_UNKNOWN;
	switch (model.keys[k].state) {
	case ABOX_EFFECT_INTENDED:
		if (lives(model.keys[k].executor) && model.keys[k].epoch == model.epoch)
			return ABOX_E_IN_PROGRESS;
		return go(w, k, model.keys[k].try, model.keys[k].maybe);
	case ABOX_EFFECT_DISPATCHED:
		return ABOX_E_IN_PROGRESS;
	case ABOX_EFFECT_FAILED:
		if (model.keys[k].retryable && model.keys[k].try < MAX_TRIES && !model.canceled)
			return next_try(w, k, false);
		return ABOX_BEGIN_REPLAY;
	case ABOX_EFFECT_UNKNOWN:
		if (model.keys[k].overridden || classes[k] == ABOX_EFFECT_IDEMPOTENT)
			return next_try(w, k, model.keys[k].overridden);
		return ABOX_E_UNKNOWN;
	case ABOX_EFFECT_ABSENT:
		return next_try(w, k, false);
	case ABOX_EFFECT_CANCELED:
		return ABOX_E_CANCELED;
	case ABOX_EFFECT_ABANDONED:
		return ABOX_E_ALREADY;
	default:
		return ABOX_BEGIN_REPLAY;
	}
}

static void do_begin(int w, int k)
{
	struct reply reply;
	int expected;

	if (!model.workers[w].executor || model.workers[w].handles[k].held)
		return;
	expected = expect_begin(w, k);
	reply = tell(w, BEGIN, k, 0);
	cr_assert_eq(reply.result, expected, "begin %s by %d: %d, not %d", keys[k], w, reply.result, expected);
	if (reply.effect[0])
		memcpy(model.keys[k].id, reply.effect, sizeof(reply.effect));
	if (k == 3 && expected == ABOX_BEGIN_GO && strcmp(model.approval, reply.approval) != 0) {
		cr_assert(model.approval_state == -1 || model.approval_state == ABOX_APPROVAL_USED);
		memcpy(model.approval, reply.approval, sizeof(model.approval));
		model.approval_state = ABOX_APPROVAL_PENDING;
	}
}

static int expect_dispatch(int w, int k)
{
	const struct handle *handle = &model.workers[w].handles[k];

	if (model.workers[w].epoch != model.epoch)
		return ABOX_E_FENCED;
	if (model.keys[k].state == ABOX_EFFECT_CANCELED || model.canceled)
		return ABOX_E_CANCELED;
	if (model.keys[k].state != ABOX_EFFECT_INTENDED || model.keys[k].try != handle->try)
		return ABOX_E_STATE;
	if (model.keys[k].holder != w)
		return ABOX_E_IN_PROGRESS;
	if (k == 3 && model.approval_state != ABOX_APPROVAL_GRANTED)
		return ABOX_E_APPROVAL;
	return 0;
}

static void do_dispatch(int w, int k)
{
	struct handle *handle = &model.workers[w].handles[k];
	struct reply reply;
	int expected;

	if (!handle->held || handle->dispatched)
		return;
	expected = expect_dispatch(w, k);
	if (expected == 0) {
		handle->dispatched = true;
		model.keys[k].state = ABOX_EFFECT_DISPATCHED;
		if (k == 3)
			model.approval_state = ABOX_APPROVAL_USED;
	} else if (expected != ABOX_E_APPROVAL) {
		let_go(w, k);
	}
	reply = tell(w, DISPATCH, k, 0);
	cr_assert_eq(reply.result, expected, "dispatch %s by %d: %d, not %d", keys[k], w, reply.result, expected);
}

static void do_send(int w, int k)
{
	struct handle *handle = &model.workers[w].handles[k];

	if (!handle->dispatched || handle->sent)
		return;
	tell(w, SEND, k, 0);
	handle->sent = true;
	model.keys[k].happened++;
}

static int expect_finish(int w, int k, int done)
{
	const struct handle *handle = &model.workers[w].handles[k];
	int *state = &model.keys[k].state;

	if (model.keys[k].try != handle->try ||
		(*state != ABOX_EFFECT_DISPATCHED && *state != ABOX_EFFECT_UNKNOWN))
		return ABOX_E_ALREADY;
	model.keys[k].holder = -1;
	if (done == ABOX_DONE_UNCLEAR && classes[k] != ABOX_EFFECT_IDEMPOTENT)
		return *state = ABOX_EFFECT_UNKNOWN;
	model.keys[k].overridden = false;
	if (done == ABOX_DONE_COMMITTED)
		return *state = ABOX_EFFECT_COMMITTED;
	model.keys[k].retryable = done != ABOX_DONE_FAILED;
	model.keys[k].maybe = model.keys[k].maybe || done == ABOX_DONE_UNCLEAR;
	return *state = ABOX_EFFECT_FAILED;
}

static void do_finish(int w, int k)
{
	struct handle *handle = &model.workers[w].handles[k];
	static const int nothing_left[] = { ABOX_DONE_UNCLEAR, ABOX_DONE_FAILED_RETRY, ABOX_DONE_FAILED };
	struct reply reply;
	int expected, done;

	if (!handle->dispatched)
		return;
	done = handle->sent ? (rnd(4) ? ABOX_DONE_COMMITTED : ABOX_DONE_UNCLEAR) : nothing_left[rnd(3)];
	expected = expect_finish(w, k, done);
	memset(handle, 0, sizeof(*handle));
	reply = tell(w, FINISH, k, done);
	cr_assert_eq(
		reply.result, expected, "finish %s by %d: %d, not %d", keys[k], w, reply.result, expected);
}

static void do_control(int w)
{
	int fence = (int)rnd(2), before;
	struct reply reply;

	for (int k = 0; k < N_KEYS; k++)
		let_go(w, k);
	model.workers[w].executor = 0;
	before = lives(model.owner);
	reply = tell(w, CONTROL, 0, fence ? ABOX_TAKEOVER_FENCE : ABOX_TAKEOVER_NONE);
	if (before && !fence) {
		cr_assert_eq(reply.result, ABOX_E_BUSY, "control by %d: %d", w, reply.result);
		return;
	}
	cr_assert_geq(reply.result, 0, "control by %d: %d", w, reply.result);
	model.workers[w].executor = model.owner = ++model.executors;
	model.workers[w].epoch = ++model.epoch;
}

/* 0: it is UNKNOWN now, else the code that anybody who decides gets. */
static int expect_decidable(int k)
{
	if (model.keys[k].state == ABOX_EFFECT_DISPATCHED) {
		if (lives(model.keys[k].executor))
			return ABOX_E_IN_PROGRESS;
		model.keys[k].state = ABOX_EFFECT_UNKNOWN;
	}
	return model.keys[k].state == ABOX_EFFECT_UNKNOWN ? 0 : ABOX_E_STATE;
}

static void set_verdict(int k, int state)
{
	model.keys[k].state = state;
	model.keys[k].overridden = false;
	if (state == ABOX_EFFECT_ABSENT)
		model.keys[k].maybe = false;
}

static void do_resolve(int k)
{
	static const int states[] = { ABOX_EFFECT_ABANDONED, ABOX_EFFECT_COMMITTED, ABOX_EFFECT_ABSENT };
	int verdict, expected, r;

	if (!model.keys[k].exists)
		return;
	verdict = rnd(8) == 0 ? ABOX_VERDICT_ABANDONED :
		  model.keys[k].happened ? ABOX_VERDICT_COMMITTED :
					   ABOX_VERDICT_ABSENT;
	expected = expect_decidable(k);
	if (expected == 0)
		set_verdict(k, states[verdict]);
	r = abox_effect_resolve(model.journal, model.keys[k].id, verdict, "ann", NULL, 0, 0, NULL);
	cr_assert_eq(r, expected, "resolve %s: %d, not %d", keys[k], r, expected);
}

static void do_retry(int k)
{
	int expected, r;

	if (!model.keys[k].exists)
		return;
	expected = expect_decidable(k);
	if (expected == 0) {
		model.keys[k].overridden = true;
		model.keys[k].overrides++;
	}
	r = abox_effect_retry(model.journal, model.keys[k].id, "ann", NULL);
	cr_assert_eq(r, expected, "retry %s: %d, not %d", keys[k], r, expected);
}

static void do_reconcile(int w)
{
	struct reply reply;
	int expected;

	if (!model.workers[w].executor || !model.keys[1].exists)
		return;
	expected = model.workers[w].epoch != model.epoch ? ABOX_E_FENCED : expect_decidable(1);
	if (expected == 0) {
		expected = model.keys[1].happened ? ABOX_EFFECT_COMMITTED : ABOX_EFFECT_ABSENT;
		set_verdict(1, expected);
	}
	reply = tell(w, RECONCILE, 1, 0);
	cr_assert_eq(reply.result, expected, "reconcile by %d: %d, not %d", w, reply.result, expected);
}

static void do_answer(void)
{
	bool grant = rnd(3) != 0;
	int expected = 0, r;

	if (model.approval_state == -1)
		return;
	if (model.canceled ||
		(model.approval_state != ABOX_APPROVAL_PENDING && model.approval_state != ABOX_APPROVAL_GRANTED))
		expected = ABOX_E_ALREADY;
	else
		model.approval_state = grant ? ABOX_APPROVAL_GRANTED : ABOX_APPROVAL_DENIED;
	r = grant ? abox_approval_grant(model.journal, model.approval, "ann", NULL, NULL) :
		    abox_approval_deny(model.journal, model.approval, "ann", NULL, NULL);
	cr_assert_eq(r, expected, "answer: %d, not %d", r, expected);
}

/* Only under a living owner: else the task would end on the spot. */
static void do_cancel(void)
{
	int r;

	if (!lives(model.owner))
		return;
	r = abox_task_cancel(model.journal, "job", "ann", NULL, NULL, NULL);
	cr_assert_eq(r, model.canceled ? 1 : 0);
	model.canceled = true;
	for (int k = 0; k < N_KEYS; k++)
		if (model.keys[k].exists && model.keys[k].state == ABOX_EFFECT_INTENDED) {
			model.keys[k].state =
				model.keys[k].maybe ? ABOX_EFFECT_UNKNOWN : ABOX_EFFECT_CANCELED;
			model.keys[k].overridden = false;
		}
}

/* ---- walking ---- */

static void compare(void)
{
	struct json_bounds bounds = { 1u << 22, 8, ABOX_STAGE_EFFECT };
	struct json *list = NULL;
	char *json = NULL;
	size_t n = 0;

	cr_assert_eq(abox_effect_list(model.journal, "job", 0, &json, NULL), 0);
	cr_assert_eq(json_parse(json, strlen(json), &bounds, &list, NULL), 0);
	for (int k = 0; k < N_KEYS; k++) {
		n += model.keys[k].exists;
		cr_assert_leq(model.keys[k].happened,
			classes[k] == ABOX_EFFECT_IDEMPOTENT ? MAX_TRIES + model.keys[k].overrides :
							       1 + model.keys[k].overrides,
			"%s happened %d times", keys[k], model.keys[k].happened);
		cr_assert_eq(outside_count(keys[k]), model.keys[k].happened);
		if (model.keys[k].exists && model.keys[k].state == ABOX_EFFECT_CANCELED)
			cr_assert_eq(model.keys[k].happened, 0, "%s was canceled and happened", keys[k]);
	}
	cr_assert_eq(json_count(list), n);
	for (size_t i = 0; i < n; i++) {
		const struct json *entry = json_element(list, i);
		const char *key = json_text(json_member(entry, "key"));

		for (int k = 0; k < N_KEYS; k++)
			if (strcmp(keys[k], key) == 0)
				cr_assert_str_eq(json_text(json_member(entry, "state")),
					abox_effect_state_name(model.keys[k].state), "%s", key);
	}
	json_unref(list);
	abox_free(json);
}

static void step(void)
{
	int w = (int)rnd(N_WORKERS), k = (int)rnd(N_KEYS);

	switch (rnd(24)) {
	case 0:
		do_control(w);
		break;
	case 1:
		crash(w);
		break;
	case 2:
		for (k = 0; k < N_KEYS; k++)
			if (model.workers[w].handles[k].held) {
				let_go(w, k);
				tell(w, DROP, k, 0);
				break;
			}
		break;
	case 3:
	case 4:
		do_resolve(k);
		break;
	case 5:
		do_retry(k);
		break;
	case 6:
		do_reconcile(w);
		break;
	case 7:
	case 8:
		do_answer();
		break;
	case 9:
		if (rnd(25) == 0)
			do_cancel();
		break;
	case 10:
	case 11:
	case 12:
	case 13:
		do_begin(w, k);
		break;
	case 14:
	case 15:
	case 16:
	case 17:
		do_dispatch(w, k);
		break;
	case 18:
	case 19:
	case 20:
		do_send(w, k);
		break;
	default:
		do_finish(w, k);
		break;
	}
}

static void walk(uint64_t seed, int steps)
{
	memset(&model, 0, sizeof(model));
	model.rng = seed * 0x9e3779b97f4a7c15ULL + 1;
	model.approval_state = -1;
	for (int k = 0; k < N_KEYS; k++)
		model.keys[k].holder = -1;
	model.journal = test_open();
	for (int w = 0; w < N_WORKERS; w++)
		spawn(w);
	do_control(0);
	for (int i = 0; i < steps; i++) {
		step();
		if (i % 10 == 9)
			compare();
		if (rnd(60) == 0)
			cr_assert_eq(abox_journal_rotate(model.journal, NULL), 0);
	}
	for (int w = 0; w < N_WORKERS; w++) {
		kill(model.workers[w].pid, SIGKILL);
		waitpid(model.workers[w].pid, NULL, 0);
		close(model.workers[w].in);
		close(model.workers[w].out);
	}
	abox_journal_unref(model.journal);
	model.journal = test_open();
	compare();
	abox_journal_unref(model.journal);
	cr_assert(test_verify());
}

/* Every answer is the model's, whoever is killed when. */
Test(model, agrees_with_the_library)
{
	const char *seed = getenv("ABOX_SEED");
	int walks = test_long() ? 400 : 25;

	for (int i = 0; i < (seed ? 1 : walks); i++) {
		uint64_t s = seed ? strtoull(seed, NULL, 10) : (uint64_t)getpid() * 1000 + (uint64_t)i;

		fprintf(stderr, "ABOX_SEED=%llu\n", (unsigned long long)s);
		test_teardown();
		test_setup_in_memory();
		walk(s, 200);
	}
}
