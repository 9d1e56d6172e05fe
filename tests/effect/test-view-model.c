/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A seeded random walk through the state machine: several incarnations of an owner, requests that travel
 * after their sender's death, crashes, verdicts, overrides, approvals, cancel, all against an outside world
 * that counts. ABOX_SEED replays one walk; ABOX_TEST_LONG makes it long.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "effect/decide.h"
#include "effect/view.h"

#define BOOT "00000000-0000-4000-8000-000000000001"
#define N_ACTORS 3
#define N_KEYS 4
#define SETTLE 100

enum { CLASS_OF_KEY_MASK = 3 };

struct actor {
	bool alive;
	uint64_t epoch;
	char executor[8];
	char effect[N_KEYS][24]; /* what it has intended or dispatched, by key */
	uint32_t try[N_KEYS];
	bool dispatched[N_KEYS];
	uint64_t handle[N_KEYS];
};

struct request { /* on the wire */
	int key;
	uint64_t arrives;
};

static struct {
	struct view view;
	uint64_t seq, now, rng, ids;
	struct actor actors[N_ACTORS];
	struct request wire[64];
	size_t n_wire;
	int happened[N_KEYS], overrides[N_KEYS], reported[N_KEYS], granted_uses[N_KEYS], sent[N_KEYS];
	bool canceled;
	unsigned int dispatches, replays;
} world;

static uint64_t rnd(uint64_t n)
{
	world.rng ^= world.rng << 13;
	world.rng ^= world.rng >> 7;
	world.rng ^= world.rng << 17;
	return (world.rng >> 11) % n;
}

static int append(struct fact fact)
{
	fact.seq = ++world.seq;
	fact.task = "job";
	fact.boot = BOOT;
	fact.boot_usec = world.now;
	return view_apply(&world.view, &fact);
}

static int alive(void *userdata, const char *executor, uint64_t handle, abox_error **reterr)
{
	(void)userdata;
	(void)reterr;
	for (int i = 0; executor && i < N_ACTORS; i++)
		if (strcmp(world.actors[i].executor, executor) == 0) {
			if (!world.actors[i].alive || handle == 0)
				return world.actors[i].alive;
			for (int k = 0; k < N_KEYS; k++)
				if (world.actors[i].handle[k] == handle)
					return 1;
		}
	return 0;
}

static struct decide_context context(void)
{
	return (struct decide_context){BOOT, world.now, world.now, alive, NULL};
}

static const char *key_name(int key)
{
	static const char *const names[N_KEYS] = {"k0", "k1", "k2", "k3"};

	return names[key];
}

/* k0 opaque, k1 checkable, k2 idempotent, k3 opaque and only with approval */
static int class_of(int key)
{
	return key == 3 ? ABOX_EFFECT_OPAQUE : key;
}

static void become_owner(struct actor *actor)
{
	struct view_task *task = view_task_get(&world.view, "job");
	uint64_t epoch = task ? task->epoch + 1 : 1;

	memset(actor, 0, sizeof(*actor));
	actor->alive = true;
	actor->epoch = epoch;
	snprintf(actor->executor, sizeof(actor->executor), "e%llu", (unsigned long long)epoch);
	cr_assert_eq(
		append((struct fact){.kind = FACT_TASK_CONTROL, .epoch = epoch, .executor = actor->executor}),
		0);
}

static void forget(struct actor *actor, int key)
{
	actor->effect[key][0] = 0;
	actor->dispatched[key] = false;
	actor->handle[key] = 0;
}

static void do_begin(struct actor *actor, int key)
{
	struct wish wish = {.key = key_name(key),
		.effect_class = class_of(key),
		.fingerprint = key_name(key),
		.target = "t"};
	struct view_task *task = view_task_get(&world.view, "job");
	struct decide_context ctx = context();
	struct begin_decision decision;
	struct fact fact = {0};

	if (actor->effect[key][0])
		return;
	cr_assert_eq(decide_begin(&world.view, task, actor->epoch, &wish, &ctx, &decision, NULL), 0);
	if (decision.effect)
		fact.effect = decision.effect->id;
	fact.epoch = actor->epoch;
	switch (decision.step) {
	case BEGIN_INTEND:
		if (!decision.effect) {
			snprintf(actor->effect[key], sizeof(actor->effect[key]), "x%llu",
				(unsigned long long)++world.ids);
			fact.effect = actor->effect[key];
		}
		fact.kind = FACT_EFFECT_INTENDED;
		fact.key = (struct fact_bytes){wish.key, strlen(wish.key)};
		fact.target = (struct fact_bytes){"t", 1};
		fact.fingerprint = wish.fingerprint;
		fact.effect_class = (uint32_t)wish.effect_class;
		fact.try = decision.try;
		fact.max_tries = 4;
		fact.settle_usec = SETTLE;
		fact.needs_approval = key == 3;
		fact.executor = actor->executor;
		fact.handle = ++world.ids;
		cr_assert_eq(append(fact), 0);
		if (decision.effect)
			snprintf(actor->effect[key], sizeof(actor->effect[key]), "%s", decision.effect->id);
		actor->try[key] = decision.try;
		actor->handle[key] = fact.handle;
		break;
	case BEGIN_MARK_UNKNOWN:
		fact.kind = FACT_EFFECT_UNKNOWN;
		fact.try = decision.effect->try;
		cr_assert_eq(append(fact), 0);
		break;
	case BEGIN_MARK_REPLAY:
		fact.kind = FACT_EFFECT_REPLAY;
		cr_assert_eq(append(fact), 0);
		break;
	case BEGIN_ANSWER:
		if (decision.code == ABOX_BEGIN_REPLAY && decision.effect->state == ABOX_EFFECT_COMMITTED) {
			cr_assert_gt(world.happened[key], 0, "a stored result of what never happened");
			world.replays++;
		}
		break;
	default:
		cr_assert_fail("step %d", decision.step);
	}
}

static void do_dispatch(struct actor *actor, int key)
{
	struct view_effect *effect = view_effect_get(&world.view, actor->effect[key]);
	struct decide_context ctx = context();
	struct view_approval *approval = NULL;
	struct fact fact = {.kind = FACT_EFFECT_DISPATCHED,
		.effect = actor->effect[key],
		.try = actor->try[key],
		.epoch = actor->epoch,
		.executor = actor->executor,
		.handle = actor->handle[key]};
	int r;

	if (!effect || actor->dispatched[key])
		return;
	r = decide_dispatch(&world.view, effect, actor->try[key], actor->epoch, actor->executor,
		actor->handle[key], &ctx, &approval, NULL);
	if (r < 0) {
		if (r != ABOX_E_APPROVAL)
			forget(actor, key);
		return;
	}
	cr_assert(!world.canceled, "nothing is dispatched after a cancel");
	cr_assert_eq(actor->epoch, view_task_get(&world.view, "job")->epoch);
	fact.approval = approval ? approval->id : NULL;
	cr_assert_eq(append(fact), 0);
	actor->dispatched[key] = true;
	world.dispatches++;
	world.sent[key]++;
	if (key == 3)
		cr_assert_leq(
			world.sent[key], world.granted_uses[key], "more dispatches than uses were granted");
	if (world.n_wire < ELEMENTSOF(world.wire))
		world.wire[world.n_wire++] = (struct request){key, world.now + rnd(SETTLE)};
}

/* The sender hears yes only when it arrived; else it may give up, or say it does not know. */
static void do_finish(struct actor *actor, int key)
{
	struct fact fact = {.effect = actor->effect[key], .try = actor->try[key], .epoch = actor->epoch};
	struct view_effect *effect = view_effect_get(&world.view, actor->effect[key]);
	bool arrived = world.happened[key] > 0;

	if (!effect || !actor->dispatched[key])
		return;
	fact.kind = arrived && rnd(4) ? FACT_EFFECT_COMMITTED : FACT_EFFECT_UNKNOWN;
	if (effect->try != fact.try ||
		(effect->state != ABOX_EFFECT_DISPATCHED && effect->state != ABOX_EFFECT_UNKNOWN))
		fact.kind = FACT_EFFECT_LATE;
	else if (fact.kind == FACT_EFFECT_UNKNOWN && effect->state == ABOX_EFFECT_UNKNOWN)
		fact.kind = FACT_EFFECT_LATE;
	cr_assert_eq(append(fact), 0);
	forget(actor, key);
}

static void do_verdict(int key)
{
	struct view_effect *effect =
		view_effect_by_key(view_task_get(&world.view, "job"), key_name(key), false);
	struct decide_context ctx = context();
	struct fact fact = {.kind = FACT_EFFECT_VERDICT};
	uint64_t choice = rnd(12);
	int r;

	if (!effect)
		return;
	fact.state = world.happened[key] ? ABOX_EFFECT_COMMITTED : ABOX_EFFECT_ABSENT;
	if (choice == 0)
		fact.state = ABOX_EFFECT_ABANDONED;
	r = decide_verdict(effect, (int)fact.state, &ctx, NULL);
	if (r < 0)
		return;
	fact.effect = effect->id;
	fact.try = effect->try;
	fact.by = "ann";
	if (r == 1)
		fact.kind = FACT_EFFECT_UNKNOWN;
	else if (choice == 1) {
		fact.kind = FACT_EFFECT_OVERRIDE;
		world.overrides[key]++;
	}
	cr_assert_eq(append(fact), 0);
}

static void do_approval(void)
{
	char id[24];
	struct view_task *task = view_task_get(&world.view, "job");
	struct fact fact = {.kind = FACT_APPROVAL_REQUEST,
		.approval = id,
		.target = {"t", 1},
		.fingerprint = "k3",
		.uses = 1,
		.ttl_usec = 400,
		.epoch = task->epoch};

	if (world.canceled)
		return;
	snprintf(id, sizeof(id), "a%llu", (unsigned long long)++world.ids);
	cr_assert_eq(append(fact), 0);
	if (rnd(3)) {
		append((struct fact){.kind = FACT_APPROVAL_GRANT, .approval = id, .by = "ann"});
		world.granted_uses[3]++;
	}
	if (rnd(4) == 0)
		append((struct fact){.kind = rnd(2) ? FACT_APPROVAL_DENY : FACT_APPROVAL_REVOKE,
			.approval = id,
			.by = "bob"});
}

static void pass_time(void)
{
	world.now += 1 + rnd(30);
	for (size_t i = 0; i < world.n_wire;)
		if (world.wire[i].arrives <= world.now) {
			int key = world.wire[i].key;

			if (rnd(5)) {
				if (class_of(key) != ABOX_EFFECT_IDEMPOTENT || !world.happened[key])
					world.happened[key]++;
			}
			world.wire[i] = world.wire[--world.n_wire];
		} else {
			i++;
		}
}

static void check(void)
{
	struct view_task *task = view_task_get(&world.view, "job");

	for (int key = 0; key < N_KEYS; key++) {
		struct view_effect *effect = view_effect_by_key(task, key_name(key), false);

		cr_assert_leq(world.happened[key], 1 + world.overrides[key], "key %d happened %d times", key,
			world.happened[key]);
		if (!effect)
			continue;
		cr_assert(!effect->misfit);
		if (effect->state == ABOX_EFFECT_CANCELED || effect->state == ABOX_EFFECT_INTENDED)
			cr_assert(world.happened[key] == 0 || effect->maybe, "key %d", key);
	}
}

/* What a new segment would begin with leads to the same view. */
static void check_summary(void)
{
	struct text first = TEXT_INIT, second = TEXT_INIT;
	struct json_bounds bounds = {1u << 22, 8, ABOX_STAGE_JOURNAL};
	struct json *array = NULL;
	struct view copy;

	view_summarize(&world.view, &first);
	cr_assert_eq(json_parse(first.data, first.len, &bounds, &array, NULL), 0);
	view_init(&copy);
	for (size_t i = 0; i < json_count(array); i++) {
		struct fact fact = {0};

		cr_assert_eq(fact_read_tree(&fact, json_ref(json_element(array, i)), NULL), 0);
		cr_assert_eq(view_apply(&copy, &fact), 0);
		fact_clear(&fact);
	}
	view_summarize(&copy, &second);
	cr_assert_str_eq(first.data, second.data);
	view_clear(&copy);
	json_unref(array);
	text_clear(&first);
	text_clear(&second);
}

static void step(void)
{
	struct actor *actor = &world.actors[rnd(N_ACTORS)];
	int key = (int)rnd(N_KEYS);

	switch (rnd(actor->alive ? 14 : 2)) {
	case 0:
	case 1:
		if (!actor->alive && rnd(3) == 0)
			become_owner(actor);
		else
			pass_time();
		break;
	case 2:
	case 3:
	case 4:
		do_begin(actor, key);
		break;
	case 5:
	case 6:
	case 7:
		do_dispatch(actor, key);
		break;
	case 8:
	case 9:
		do_finish(actor, key);
		break;
	case 10:
		do_verdict(key);
		break;
	case 11:
		do_approval();
		break;
	case 12:
		if (rnd(4) == 0)
			actor->alive = false;
		break;
	case 13:
		if (rnd(60) == 0 && !world.canceled) {
			cr_assert_eq(append((struct fact){.kind = FACT_TASK_CANCEL, .by = "ann"}), 0);
			world.canceled = true;
		}
		break;
	}
}

static void walk(uint64_t seed)
{
	memset(&world, 0, sizeof(world));
	world.rng = seed * 2654435761u + 88172645463325252ULL;
	world.now = 10 * SETTLE;
	view_init(&world.view);
	become_owner(&world.actors[0]);
	for (int i = 0; i < 300; i++) {
		step();
		check();
		if (i % 50 == 49)
			check_summary();
	}
	view_clear(&world.view);
}

/* No effect twice, no false result, no dispatch after cancel or without approval, whatever the order. */
Test(view_model, holds_in_random_walks)
{
	const char *seed = getenv("ABOX_SEED");
	unsigned int dispatches = 0, replays = 0;
	int walks = getenv("ABOX_TEST_LONG") ? 50000 : 1500;

	for (int i = 0; i < (seed ? 1 : walks); i++) {
		uint64_t s = seed ? strtoull(seed, NULL, 10) : (uint64_t)i + 1;

		if (i % 1000 == 0)
			fprintf(stderr, "walks from ABOX_SEED=%llu\n", (unsigned long long)s);
		walk(s);
		dispatches += world.dispatches;
		replays += world.replays;
	}
	cr_assert(seed || (dispatches > 1000 && replays > 1000),
		"%u dispatches, %u replays: the walk is lame", dispatches, replays);
}
