/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The state machine, transition by transition (effects 1.1, 1.3, 1.9, 1.10; task). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "effect/decide.h"
#include "effect/view.h"

#define BOOT "00000000-0000-4000-8000-000000000001"

static struct view view;
static uint64_t seq;
static uint64_t now = 1000;
static const char *living = ""; /* executors that live, as one text */

static int apply(struct fact fact)
{
	fact.seq = ++seq;
	fact.time_usec = 1000000 + seq;
	if (!fact.task)
		fact.task = "job";
	if (!fact.boot)
		fact.boot = BOOT;
	fact.boot_usec = now;
	return view_apply(&view, &fact);
}

static int alive(void *userdata, const char *executor, uint64_t handle, abox_error **reterr)
{
	(void)userdata;
	(void)handle;
	(void)reterr;
	return executor && strstr(living, executor) != NULL;
}

static struct decide_context context(void)
{
	return (struct decide_context){BOOT, now, 2000000, alive, NULL};
}

static void control(uint64_t epoch, const char *executor)
{
	cr_assert_eq(
		apply((struct fact){.kind = FACT_TASK_CONTROL, .epoch = epoch, .executor = executor}), 0);
}

static struct fact intended(const char *id, const char *key, uint64_t epoch)
{
	return (struct fact){.kind = FACT_EFFECT_INTENDED,
		.effect = id,
		.key = {key, strlen(key)},
		.target = {"t", 1},
		.fingerprint = key,
		.try = 1,
		.max_tries = 3,
		.epoch = epoch,
		.executor = "e1",
		.handle = 1};
}

static struct fact derived(const char *id, const char *key, uint64_t epoch)
{
	struct fact fact = intended(id, key, epoch);

	fact.derived = 1;
	return fact;
}

static struct fact of_try(int kind, const char *id, uint64_t try, uint64_t epoch)
{
	return (struct fact){
		.kind = kind, .effect = id, .try = try, .epoch = epoch, .executor = "e1", .handle = 1};
}

static int state(const char *id)
{
	struct view_effect *effect = view_effect_get(&view, id);

	return effect ? effect->state : -1;
}

static int begin_code(const char *key, bool is_derived, uint64_t epoch, enum begin_step *retstep)
{
	struct wish wish = {.key = key, .derived = is_derived, .fingerprint = key, .target = "t"};
	struct decide_context ctx = context();
	struct begin_decision decision;

	cr_assert_eq(
		decide_begin(&view, view_task_get(&view, "job"), epoch, &wish, &ctx, &decision, NULL), 0);
	if (retstep)
		*retstep = decision.step;
	return decision.step == BEGIN_ANSWER ? decision.code : 0;
}

static void setup(void)
{
	view_init(&view);
	seq = 0;
	living = "e1 ";
	control(1, "e1");
}

static void teardown(void)
{
	view_clear(&view);
}

TestSuite(view, .init = setup, .fini = teardown);

/* Brings effect "x" into a state; class opaque. */
static void bring_to(int wanted)
{
	cr_assert_eq(apply(intended("x", "k", 1)), 0);
	if (wanted == ABOX_EFFECT_CANCELED)
		cr_assert_eq(apply(of_try(FACT_EFFECT_CANCELED, "x", 1, 1)), 0);
	if (wanted == ABOX_EFFECT_INTENDED || wanted == ABOX_EFFECT_CANCELED)
		return;
	cr_assert_eq(apply(of_try(FACT_EFFECT_DISPATCHED, "x", 1, 1)), 0);
	if (wanted == ABOX_EFFECT_COMMITTED)
		cr_assert_eq(apply(of_try(FACT_EFFECT_COMMITTED, "x", 1, 1)), 0);
	else if (wanted == ABOX_EFFECT_FAILED)
		cr_assert_eq(apply(of_try(FACT_EFFECT_FAILED, "x", 1, 1)), 0);
	else if (wanted != ABOX_EFFECT_DISPATCHED)
		cr_assert_eq(apply(of_try(FACT_EFFECT_UNKNOWN, "x", 1, 1)), 0);
	if (wanted == ABOX_EFFECT_ABSENT || wanted == ABOX_EFFECT_ABANDONED) {
		struct fact fact = of_try(FACT_EFFECT_VERDICT, "x", 1, 1);

		fact.state = (uint32_t)wanted;
		cr_assert_eq(apply(fact), 0);
	}
	cr_assert_eq(state("x"), wanted);
}

struct row {
	int from;
	int kind;
	uint64_t try;
	uint32_t verdict;
	int to; /* -1: refused, nothing changes */
};

/* Every state against every record: the table of effects 1.3 and nothing else. */
Test(view, has_the_transitions_of_the_table)
{
	static const int kinds[] = {FACT_EFFECT_INTENDED, FACT_EFFECT_DISPATCHED, FACT_EFFECT_COMMITTED,
		FACT_EFFECT_FAILED, FACT_EFFECT_UNKNOWN, FACT_EFFECT_CANCELED, FACT_EFFECT_VERDICT};
	static const struct row rows[] = {
		{ABOX_EFFECT_INTENDED, FACT_EFFECT_INTENDED, 1, 0, ABOX_EFFECT_INTENDED}, /* taken over */
		{ABOX_EFFECT_INTENDED, FACT_EFFECT_DISPATCHED, 1, 0, ABOX_EFFECT_DISPATCHED},
		{ABOX_EFFECT_INTENDED, FACT_EFFECT_CANCELED, 1, 0, ABOX_EFFECT_CANCELED},
		{ABOX_EFFECT_DISPATCHED, FACT_EFFECT_COMMITTED, 1, 0, ABOX_EFFECT_COMMITTED},
		{ABOX_EFFECT_DISPATCHED, FACT_EFFECT_FAILED, 1, 0, ABOX_EFFECT_FAILED},
		{ABOX_EFFECT_DISPATCHED, FACT_EFFECT_UNKNOWN, 1, 0, ABOX_EFFECT_UNKNOWN},
		{ABOX_EFFECT_UNKNOWN, FACT_EFFECT_COMMITTED, 1, 0, ABOX_EFFECT_COMMITTED},
		{ABOX_EFFECT_UNKNOWN, FACT_EFFECT_FAILED, 1, 0, ABOX_EFFECT_FAILED},
		{ABOX_EFFECT_UNKNOWN, FACT_EFFECT_VERDICT, 1, ABOX_EFFECT_COMMITTED, ABOX_EFFECT_COMMITTED},
		{ABOX_EFFECT_UNKNOWN, FACT_EFFECT_VERDICT, 1, ABOX_EFFECT_ABSENT, ABOX_EFFECT_ABSENT},
		{ABOX_EFFECT_UNKNOWN, FACT_EFFECT_VERDICT, 1, ABOX_EFFECT_ABANDONED, ABOX_EFFECT_ABANDONED},
		{ABOX_EFFECT_ABSENT, FACT_EFFECT_INTENDED, 2, 0, ABOX_EFFECT_INTENDED},
	};

	for (int from = ABOX_EFFECT_INTENDED; from <= ABOX_EFFECT_ABANDONED; from++)
		for (size_t k = 0; k < ELEMENTSOF(kinds); k++)
			for (uint64_t try = 1; try <= 2; try++)
				for (uint32_t verdict = 0; verdict <= ABOX_EFFECT_ABANDONED; verdict++) {
					struct fact fact = intended("x", "k", 1);
					int to = -1, r;

					if (verdict && kinds[k] != FACT_EFFECT_VERDICT)
						continue;
					for (size_t i = 0; i < ELEMENTSOF(rows); i++)
						if (rows[i].from == from && rows[i].kind == kinds[k] &&
							rows[i].try == try && rows[i].verdict == verdict)
							to = rows[i].to;
					teardown();
					setup();
					bring_to(from);
					fact.kind = kinds[k];
					fact.try = try;
					fact.state = verdict;
					r = apply(fact);
					cr_assert_eq(r, to < 0 ? 1 : 0, "%s + kind %d try %d verdict %u: %d",
						abox_effect_state_name(from), kinds[k], (int)try, verdict, r);
					cr_assert_eq(state("x"), to < 0 ? from : to);
					cr_assert_eq(view_effect_get(&view, "x")->misfit, to < 0);
				}
}

/* A next try of what is UNKNOWN opens by a name or by class, never by itself (effects 1.3, 1.7). */
Test(view, opens_a_next_try_only_by_name_or_class)
{
	struct fact again = intended("x", "k", 1), y = intended("y", "ky", 1);
	enum begin_step step;

	bring_to(ABOX_EFFECT_UNKNOWN);
	cr_assert_eq(begin_code("k", false, 1, NULL), ABOX_E_UNKNOWN);
	cr_assert_eq(apply(of_try(FACT_EFFECT_OVERRIDE, "x", 1, 0)), 0);
	begin_code("k", false, 1, &step);
	cr_assert_eq(step, BEGIN_INTEND);
	again.try = 2;
	cr_assert_eq(apply(again), 0);
	cr_assert(view_effect_get(&view, "x")->maybe);

	y.effect_class = ABOX_EFFECT_IDEMPOTENT;
	cr_assert_eq(apply(y), 0);
	cr_assert_eq(apply(of_try(FACT_EFFECT_DISPATCHED, "y", 1, 1)), 0);
	cr_assert_eq(apply(of_try(FACT_EFFECT_UNKNOWN, "y", 1, 1)), 0);
	y.try = 2;
	cr_assert_eq(apply(y), 0, "idempotent: again under the same key");
}

/* CANCELED is a guarantee: an effect of which a try may have happened is UNKNOWN again instead (effects 1.3).
 */
Test(view, cancels_only_what_cannot_have_happened)
{
	struct fact again = intended("x", "k", 1);

	bring_to(ABOX_EFFECT_UNKNOWN);
	apply(of_try(FACT_EFFECT_OVERRIDE, "x", 1, 0));
	again.try = 2;
	apply(again);
	apply(intended("y", "ky", 1));
	cr_assert_eq(apply((struct fact){.kind = FACT_TASK_CANCEL, .by = "ann"}), 0);
	cr_assert_eq(state("x"), ABOX_EFFECT_UNKNOWN);
	cr_assert_eq(state("y"), ABOX_EFFECT_CANCELED);
	cr_assert_eq(begin_code("ky", false, 1, NULL), ABOX_E_CANCELED);
	cr_assert_eq(begin_code("new", false, 1, NULL), ABOX_E_CANCELED);
}

/* Same key, other payload or other class: a conflict (T14-10). */
Test(view, tells_conflicts)
{
	struct wish wish = {.key = "k", .fingerprint = "other", .target = "t"};
	struct decide_context ctx = context();
	struct begin_decision decision;

	bring_to(ABOX_EFFECT_COMMITTED);
	decide_begin(&view, view_task_get(&view, "job"), 1, &wish, &ctx, &decision, NULL);
	cr_assert_eq(decision.step, BEGIN_MARK_CONFLICT);
	wish.fingerprint = "k";
	wish.effect_class = ABOX_EFFECT_PURE;
	decide_begin(&view, view_task_get(&view, "job"), 1, &wish, &ctx, &decision, NULL);
	cr_assert_eq(decision.step, BEGIN_MARK_CONFLICT);
	wish.effect_class = ABOX_EFFECT_OPAQUE;
	decide_begin(&view, view_task_get(&view, "job"), 1, &wish, &ctx, &decision, NULL);
	cr_assert_eq(decision.step, BEGIN_ANSWER);
	cr_assert_eq(decision.code, ABOX_BEGIN_REPLAY);
}

/* DISPATCHED is IN_PROGRESS while its executor lives, also when it was fenced; then UNKNOWN
 * (effects 1.6, 1.7). */
Test(view, believes_the_lock_and_nothing_else)
{
	enum begin_step step;

	bring_to(ABOX_EFFECT_DISPATCHED);
	control(2, "e2");
	cr_assert_eq(begin_code("k", false, 2, NULL), ABOX_E_IN_PROGRESS);
	cr_assert_eq(begin_code("k", false, 1, NULL), ABOX_E_FENCED);
	living = "e2 ";
	begin_code("k", false, 2, &step);
	cr_assert_eq(step, BEGIN_MARK_UNKNOWN);
	/* The outcome of a fenced executor is welcome all the same (effects 1.5). */
	cr_assert_eq(apply(of_try(FACT_EFFECT_COMMITTED, "x", 1, 1)), 0);
	cr_assert_eq(state("x"), ABOX_EFFECT_COMMITTED);
}

/* Nothing is dispatched under an old epoch, nor by a handle that was taken over (effects 1.8). */
Test(view, fences_the_dispatch)
{
	struct decide_context ctx = context();
	struct view_approval *approval;
	struct view_effect *effect;

	cr_assert_eq(apply(intended("x", "k", 1)), 0);
	effect = view_effect_get(&view, "x");
	cr_assert_eq(decide_dispatch(&view, effect, 1, 1, "e1", 1, &ctx, &approval, NULL), 0);
	cr_assert_eq(
		decide_dispatch(&view, effect, 1, 1, "e1", 2, &ctx, &approval, NULL), ABOX_E_IN_PROGRESS);
	control(2, "e2");
	cr_assert_eq(decide_dispatch(&view, effect, 1, 1, "e1", 1, &ctx, &approval, NULL), ABOX_E_FENCED);
	cr_assert_eq(
		decide_dispatch(&view, effect, 1, 2, "e2", 1, &ctx, &approval, NULL), ABOX_E_IN_PROGRESS);
	cr_assert_eq(apply(of_try(FACT_EFFECT_DISPATCHED, "x", 1, 1)), 1, "and no record can do it either");
}

/* A reworded wish of a later attempt is asked about; a claim binds it for good (effects 1.1, model keys). */
Test(view, asks_about_reworded_wishes)
{
	struct fact claim = {.kind = FACT_EFFECT_CLAIMED, .effect = "w", .of = "x", .by = "ann"};
	struct fact wish = derived("w", "word2", 2);
	enum begin_step step;

	cr_assert_eq(apply(derived("x", "word1", 1)), 0);
	cr_assert_eq(apply(of_try(FACT_EFFECT_DISPATCHED, "x", 1, 1)), 0);
	cr_assert_eq(apply(of_try(FACT_EFFECT_COMMITTED, "x", 1, 1)), 0);
	begin_code("word2", true, 1, &step);
	cr_assert_eq(step, BEGIN_INTEND, "inside one attempt it is a new wish");
	control(2, "e1");
	begin_code("word2", true, 2, &step);
	cr_assert_eq(step, BEGIN_MARK_AMBIGUOUS);
	begin_code("own", false, 2, &step);
	cr_assert_eq(step, BEGIN_INTEND, "an own key says what it means");
	wish.kind = FACT_EFFECT_AMBIGUOUS;
	cr_assert_eq(apply(wish), 0);
	cr_assert_eq(begin_code("word2", true, 2, NULL), ABOX_E_AMBIGUOUS);
	cr_assert_eq(apply(claim), 0);
	cr_assert_eq(begin_code("word2", true, 2, NULL), ABOX_BEGIN_REPLAY);
	control(3, "e1");
	begin_code("word2", true, 3, &step);
	cr_assert_eq(step, BEGIN_MARK_REPLAY, "for good");
	apply((struct fact){.kind = FACT_EFFECT_REPLAY, .effect = "x", .epoch = 3});
	begin_code("word3", true, 3, &step);
	cr_assert_eq(step, BEGIN_INTEND, "once the old ones are claimed, an unknown wish is new");
}

/* What cannot have happened makes nobody ask. */
Test(view, is_not_ambiguous_about_what_did_not_happen)
{
	enum begin_step step;

	cr_assert_eq(apply(derived("x", "word1", 1)), 0);
	cr_assert_eq(apply(of_try(FACT_EFFECT_DISPATCHED, "x", 1, 1)), 0);
	cr_assert_eq(apply(of_try(FACT_EFFECT_FAILED, "x", 1, 1)), 0);
	control(2, "e1");
	begin_code("word2", true, 2, &step);
	cr_assert_eq(step, BEGIN_INTEND);
}

static void request_approval(const char *id, uint64_t uses, uint64_t wall)
{
	cr_assert_eq(apply((struct fact){.kind = FACT_APPROVAL_REQUEST,
			     .approval = id,
			     .target = {"t", 1},
			     .fingerprint = "k",
			     .uses = uses,
			     .ttl_usec = 500,
			     .wall = wall,
			     .epoch = 1}),
		0);
}

static void answer(int kind, const char *id)
{
	cr_assert_eq(apply((struct fact){.kind = kind, .approval = id, .by = "ann"}), 0);
}

static int approval_state(const char *id)
{
	struct decide_context ctx = context();

	return decide_approval_state(&view, view_approval_get(&view, id), &ctx);
}

/* Deny and revoke win until used, in any order; uses are counted; time is that of the boot
 * (effects 1.9, 1.10). */
Test(view, judges_approvals)
{
	struct fact sent;
	uint64_t start = now;

	request_approval("a", 1, 0);
	cr_assert_eq(approval_state("a"), ABOX_APPROVAL_PENDING);
	answer(FACT_APPROVAL_GRANT, "a");
	cr_assert_eq(approval_state("a"), ABOX_APPROVAL_GRANTED);
	now = start + 500;
	cr_assert_eq(approval_state("a"), ABOX_APPROVAL_EXPIRED);
	now = start;
	answer(FACT_APPROVAL_REVOKE, "a");
	cr_assert_eq(approval_state("a"), ABOX_APPROVAL_REVOKED);

	request_approval("b", 1, 0);
	answer(FACT_APPROVAL_DENY, "b");
	answer(FACT_APPROVAL_GRANT, "b");
	cr_assert_eq(approval_state("b"), ABOX_APPROVAL_DENIED, "whatever came later");

	request_approval("c", 2, 0);
	answer(FACT_APPROVAL_GRANT, "c");
	apply(intended("x", "k", 1));
	sent = of_try(FACT_EFFECT_DISPATCHED, "x", 1, 1);
	sent.approval = "c";
	cr_assert_eq(apply(sent), 0);
	cr_assert_eq(approval_state("c"), ABOX_APPROVAL_GRANTED, "one of two uses is left");
	apply((struct fact){.kind = FACT_TASK_CANCEL, .by = "ann"});
	cr_assert_eq(approval_state("c"), ABOX_APPROVAL_CLOSED);
}

/* A grant lapses with its boot, unless it was asked for in wall time; wall time never goes back
 * (effects 1.10). */
Test(view, lets_grants_lapse_at_reboot)
{
	struct decide_context ctx = context();

	request_approval("a", 1, 0);
	request_approval("w", 1, 1);
	answer(FACT_APPROVAL_GRANT, "a");
	answer(FACT_APPROVAL_GRANT, "w");
	ctx.boot = "00000000-0000-4000-8000-000000000002";
	ctx.boot_usec = 1;
	ctx.wall_usec = 1000000;
	cr_assert_eq(
		decide_approval_state(&view, view_approval_get(&view, "a"), &ctx), ABOX_APPROVAL_EXPIRED);
	cr_assert_eq(
		decide_approval_state(&view, view_approval_get(&view, "w"), &ctx), ABOX_APPROVAL_GRANTED);
	apply((struct fact){.kind = FACT_NONE});
	seq += 1000;
	apply((struct fact){.kind = FACT_TASK_HEARTBEAT, .epoch = 1});
	cr_assert_eq(decide_approval_state(&view, view_approval_get(&view, "w"), &ctx), ABOX_APPROVAL_EXPIRED,
		"a clock set back gives no time back: the newest record is later");
}

/* ABSENT waits until nothing of a dead sender can arrive (effects 1.7). */
Test(view, waits_for_the_settle_time)
{
	struct decide_context ctx;

	bring_to(ABOX_EFFECT_UNKNOWN);
	view_effect_get(&view, "x")->settle_usec = 100;
	ctx = context();
	ctx.boot_usec = now + 99;
	cr_assert_eq(
		decide_verdict(view_effect_get(&view, "x"), ABOX_EFFECT_ABSENT, &ctx, NULL), ABOX_E_BUSY);
	cr_assert_eq(decide_verdict(view_effect_get(&view, "x"), ABOX_EFFECT_COMMITTED, &ctx, NULL), 0);
	ctx.boot_usec = now + 100;
	cr_assert_eq(decide_verdict(view_effect_get(&view, "x"), ABOX_EFFECT_ABSENT, &ctx, NULL), 0);
}

/* After the boundary: in order, one by one, and the approvals were used up by the boundary record itself. */
Test(view, keeps_order_after_the_boundary)
{
	static const char *const effects[] = {"x", "y", NULL}, *const artifacts[] = {"art", NULL};
	struct fact x = intended("x", "k", 1), y = intended("y", "ky", 1);
	struct decide_context ctx = context();
	struct view_approval *approval;

	x.deferred = y.deferred = x.needs_approval = 1;
	apply(x);
	apply(y);
	cr_assert_eq(
		decide_dispatch(&view, view_effect_get(&view, "x"), 1, 1, "e1", 1, &ctx, &approval, NULL),
		ABOX_E_STATE);
	cr_assert_eq(apply((struct fact){.kind = FACT_TASK_BOUNDARY,
			     .epoch = 1,
			     .change_set = "c",
			     .artifacts = artifacts,
			     .effects = effects}),
		0);
	cr_assert_eq(decide_status(&view, view_task_get(&view, "job"), &ctx, NULL), ABOX_TASK_COMMITTING);
	cr_assert_eq(apply((struct fact){.kind = FACT_TASK_CANCEL, .by = "ann"}), 1, "too late to cancel");
	cr_assert_eq(
		decide_dispatch(&view, view_effect_get(&view, "x"), 1, 1, "e1", 1, &ctx, &approval, NULL),
		ABOX_E_STATE);
	cr_assert_eq(apply((struct fact){.kind = FACT_TASK_STEP, .step = 1, .epoch = 1}), 0);
	cr_assert_eq(apply((struct fact){.kind = FACT_TASK_STEP, .step = 2, .epoch = 1}), 0);
	cr_assert_eq(
		decide_dispatch(&view, view_effect_get(&view, "x"), 1, 1, "e1", 1, &ctx, &approval, NULL), 0);
	cr_assert_eq(
		decide_dispatch(&view, view_effect_get(&view, "y"), 1, 1, "e1", 1, &ctx, &approval, NULL),
		ABOX_E_STATE);
	apply(of_try(FACT_EFFECT_DISPATCHED, "x", 1, 1));
	apply(of_try(FACT_EFFECT_COMMITTED, "x", 1, 1));
	cr_assert_eq(
		decide_dispatch(&view, view_effect_get(&view, "y"), 1, 1, "e1", 1, &ctx, &approval, NULL), 0);
	apply(of_try(FACT_EFFECT_DISPATCHED, "y", 1, 1));
	cr_assert(!view_task_is_published(&view, view_task_get(&view, "job")));
	apply(of_try(FACT_EFFECT_COMMITTED, "y", 1, 1));
	cr_assert(view_task_is_published(&view, view_task_get(&view, "job")));
}

/* A lease that is over permits takeover; it proves no death: what is dispatched stays in progress. */
Test(view, takes_a_lease_for_what_it_is)
{
	struct decide_context ctx;

	cr_assert_eq(apply((struct fact){
			     .kind = FACT_TASK_CONTROL, .epoch = 2, .executor = "e1", .lease_usec = 50}),
		0);
	ctx = context();
	cr_assert_eq(decide_status(&view, view_task_get(&view, "job"), &ctx, NULL), ABOX_TASK_RUNNING);
	ctx.boot_usec += 50;
	cr_assert_eq(decide_status(&view, view_task_get(&view, "job"), &ctx, NULL), ABOX_TASK_RESUMABLE);
	now += 40;
	cr_assert_eq(apply((struct fact){.kind = FACT_TASK_HEARTBEAT, .epoch = 2}), 0);
	cr_assert_eq(decide_status(&view, view_task_get(&view, "job"), &ctx, NULL), ABOX_TASK_RUNNING);
	now -= 40;
}

/* A closed task keeps its tombstone and what is unknown, and refuses late duplicates (effects 1.11). */
Test(view, keeps_the_tombstone)
{
	bring_to(ABOX_EFFECT_UNKNOWN);
	apply(intended("y", "ky", 1));
	apply(intended("z", "kz", 1));
	apply(of_try(FACT_EFFECT_DISPATCHED, "z", 1, 1));
	apply(of_try(FACT_EFFECT_COMMITTED, "z", 1, 1));
	cr_assert_eq(
		apply((struct fact){.kind = FACT_TASK_END, .status = ABOX_TASK_FINISHED, .epoch = 1}), 0);
	cr_assert_eq(state("x"), ABOX_EFFECT_UNKNOWN);
	cr_assert_eq(state("y"), -1);
	cr_assert_eq(state("z"), -1);
	cr_assert_eq(begin_code("kz", false, 1, NULL), ABOX_E_ALREADY);
	cr_assert_eq(apply((struct fact){.kind = FACT_TASK_CONTROL, .epoch = 2}), 1);
	cr_assert_eq(view_keep_from(&view), view_effect_get(&view, "x")->first_seq);
}

/* In a copied journal nothing that is not final is believed, and no key it does not know (effects 0.7). */
Test(view, distrusts_a_copied_journal)
{
	enum begin_step step;

	apply(intended("x", "k", 1));
	cr_assert_eq(apply((struct fact){.kind = FACT_JOURNAL_ADOPTED}), 0);
	cr_assert_eq(state("x"), ABOX_EFFECT_UNKNOWN);
	begin_code("own", false, 1, &step);
	cr_assert_eq(step, BEGIN_MARK_AMBIGUOUS);
}

/* A record about a task that nobody names fits nothing and does no harm. */
Test(view, puts_foreign_records_aside)
{
	struct fact fact = intended("x", "k", 7);

	cr_assert_eq(apply(fact), 1);
	fact.task = "nobody";
	cr_assert_eq(apply(fact), 1);
	cr_assert_eq(apply((struct fact){.kind = FACT_TASK_END, .status = ABOX_TASK_RUNNING, .epoch = 1}), 1);
	cr_assert_eq(apply((struct fact){.kind = FACT_APPROVAL_GRANT, .approval = "no"}), 1);
	cr_assert_eq(apply((struct fact){.kind = FACT_STAGE_END, .name = "s", .epoch = 1}), 1);
}

/* Keys of any bytes come back from a record as they were. */
Test(fact, carries_any_bytes)
{
	struct fact fact = intended("x", "a\n\xff\x01z", 1), back = {0};
	struct text text = TEXT_INIT;

	fact.result = (struct fact_bytes){"a\0b", 3};
	fact.code = -7;
	fact_write(&text, &fact);
	cr_assert_eq(fact_read(&back, FACT_EFFECT_INTENDED, text.data, text.len, NULL), 0, "%s", text.data);
	cr_assert_eq(back.key.len, 5);
	cr_assert_eq(memcmp(back.key.data, "a\n\xff\x01z", 5), 0);
	cr_assert_eq(back.result.len, 3);
	cr_assert_eq(memcmp(back.result.data, "a\0b", 3), 0);
	cr_assert_eq(back.code, -7);
	cr_assert_str_eq(back.executor, "e1");
	fact_clear(&back);
	text_clear(&text);
}

/* A body that is no record of ours is refused, not half believed. */
Test(fact, refuses_wrong_types)
{
	static const char *const bodies[] = {"{\"try\":\"1\"}", "{\"try\":-1}", "{\"class\":\"odd\"}",
		"{\"effects\":[1]}", "{\"key_hex\":\"xy\"}"};

	for (size_t i = 0; i < ELEMENTSOF(bodies); i++) {
		struct fact fact = {0};

		cr_assert_eq(fact_read(&fact, FACT_EFFECT_INTENDED, bodies[i], strlen(bodies[i]), NULL),
			ABOX_E_DAMAGED, "%s", bodies[i]);
		fact_clear(&fact);
	}
}
