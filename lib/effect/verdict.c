/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Decisions about effects whose outcome is not known, by the outside that can be asked, or by a person with a
 * name (effects 1.1, 1.3, 1.7), and waiting for those that are still under way.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "effect/owner.h"

#define POLL_FIRST_USEC 2000
#define POLL_LAST_USEC 50000

struct verdict_call {
	const char *id;
	const char *by;
	abox_task *task; /* reconcile: its epoch counts; else NULL */
	int kind;        /* FACT_EFFECT_VERDICT or FACT_EFFECT_OVERRIDE */
	int state;
	struct fact_bytes result;
	struct engine_blob blob;
	size_t result_len;
	bool has_result;
	int32_t code;
	/* Reconcile: as it was when the outside was asked. */
	bool compare;
	uint32_t try;
	uint64_t state_seq;
	/* Afterwards. */
	bool again;          /* UNKNOWN was appended first */
	abox_effect *filled; /* takes what the view holds, and nothing is appended; may be NULL */
};

static struct view_effect *find_effect(const struct view *view, const char *id, abox_error **reterr)
{
	struct view_effect *effect = view_effect_get(view, id);

	if (!effect)
		error_set(reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_EFFECT, NULL,
			"no effect '%s' is open in this journal", id ? id : "");
	return effect;
}

static void mark_unknown(struct engine_step *step, const struct view_effect *effect, struct fact *fact)
{
	fact->kind = FACT_EFFECT_UNKNOWN;
	fact->task = effect->task->id;
	fact->epoch = effect->task->epoch;
	fact->effect = effect->id;
	fact->try = effect->try;
	fact->reason = "its executor ended without an outcome";
	step->room = -effect->room;
	step->priority = JOURNAL_VITAL;
}

/* Security: a verdict formed without the lock must not overwrite what came in meanwhile (effects 1.7). */
static int check_unchanged(
	const struct verdict_call *call, const struct view_effect *effect, abox_error **reterr)
{
	if (!call->compare || (effect->try == call->try && effect->state_seq == call->state_seq))
		return 0;
	return decide_effect_error(reterr, ABOX_E_CONFLICT, effect,
		"it changed to %s while the outside was asked", abox_effect_state_name(effect->state));
}

static int verdict_decide(struct engine_step *step, struct fact *fact, abox_error **reterr)
{
	struct verdict_call *call = step->userdata;
	struct view_effect *effect = find_effect(step->view, call->id, reterr);
	int r;

	call->again = false;
	if (!effect)
		return ABOX_E_NOT_FOUND;
	if (call->task) {
		r = decide_fence(effect->task, call->task->epoch, reterr);
		if (r < 0)
			return r;
	}
	r = check_unchanged(call, effect, reterr);
	if (r < 0)
		return r;
	r = decide_verdict(
		effect, call->kind == FACT_EFFECT_VERDICT ? call->state : 0, &step->context, reterr);
	if (r < 0)
		return r;
	if (r == 1) {
		mark_unknown(step, effect, fact);
		call->again = true;
		return 1;
	}
	if (call->filled)
		return effect_fill(call->filled, effect);
	fact->kind = call->kind;
	fact->task = effect->task->id;
	fact->epoch = effect->task->epoch;
	fact->effect = effect->id;
	fact->try = effect->try;
	fact->by = call->by;
	if (call->kind == FACT_EFFECT_VERDICT)
		fact->state = (uint32_t)call->state;
	if (call->state == ABOX_EFFECT_COMMITTED) {
		fact->result = call->result;
		fact->result_blob = call->blob.text[0] ? call->blob.text : NULL;
		fact->has_result = call->has_result;
		fact->result_len = call->result_len;
		fact->code = call->code;
	}
	step->room = -effect->room;
	return 1;
}

static int verdict_append(
	abox_journal *journal, abox_task *asker, struct verdict_call *call, abox_error **reterr)
{
	struct engine_step step = {
		.journal = journal, .asker = asker, .decide = verdict_decide, .userdata = call};
	int r;

	do
		r = engine_append_durable(&step, reterr);
	while (r > 0 && call->again);
	engine_step_clear(&step);
	return r < 0 ? r : 0;
}

static int check_arguments(abox_journal *journal, const char *id, const char *by, abox_error **reterr)
{
	int r;

	r = engine_check_journal(journal, true, reterr);
	if (r < 0)
		return r;
	if (!id)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, "id", "is required");
	return engine_check_name("by", by, 255, reterr);
}

int abox_effect_resolve(abox_journal *journal, const char *id, int verdict, const char *by,
	const void *result, size_t len, int32_t code, abox_error **reterr)
{
	static const int states[] = {ABOX_EFFECT_ABANDONED, ABOX_EFFECT_COMMITTED, ABOX_EFFECT_ABSENT};
	struct verdict_call call = {.id = id, .by = by, .kind = FACT_EFFECT_VERDICT, .code = code};
	int r;

	r = check_arguments(journal, id, by, reterr);
	if (r < 0)
		return r;
	if (verdict < 0 || (size_t)verdict >= ELEMENTSOF(states) || (!result && len))
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, NULL, "no such verdict or result");
	call.state = states[verdict];
	if (call.state == ABOX_EFFECT_COMMITTED) {
		r = engine_store(journal, result, len, &call.result, &call.blob, reterr);
		if (r < 0)
			return r;
		call.has_result = result != NULL;
		call.result_len = len;
	}
	return verdict_append(journal, NULL, &call, reterr);
}

int abox_effect_retry(abox_journal *journal, const char *id, const char *by, abox_error **reterr)
{
	struct verdict_call call = {.id = id, .by = by, .kind = FACT_EFFECT_OVERRIDE};
	int r;

	r = check_arguments(journal, id, by, reterr);
	return r < 0 ? r : verdict_append(journal, NULL, &call, reterr);
}

/* ---- reconcile ---- */

static int ask_outside(abox_task *task, const char *id, abox_effect_check_fn check_fn, void *userdata,
	struct verdict_call *verdict, abox_effect **reteffect, abox_error **reterr)
{
	_cleanup_(effect_unrefp) abox_effect *effect = NULL;
	struct verdict_call look = {.id = id, .task = task, .kind = FACT_EFFECT_OVERRIDE};
	int r, found;

	r = effect_new(task, &effect);
	if (r < 0)
		return r;
	look.filled = effect;
	r = verdict_append(task->journal, task, &look, reterr);
	if (r < 0)
		return r;
	if (effect->effect_class != ABOX_EFFECT_CHECKABLE)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, NULL,
			"effect '%s' is %s, not checkable", id, abox_effect_class_name(effect->effect_class));
	verdict->compare = true;
	verdict->try = effect->try;
	verdict->state_seq = effect->state_seq;
	/* Without any lock: it may take as long as it wants. */
	found = check_fn(effect, userdata);
	if (effect->result_lost)
		return ABOX_E_MEMORY;
	verdict->state = found == ABOX_FOUND_COMMITTED ? ABOX_EFFECT_COMMITTED
			 : found == ABOX_FOUND_ABSENT  ? ABOX_EFFECT_ABSENT
						       : ABOX_EFFECT_UNKNOWN;
	*reteffect = steal_ptr(effect);
	return 0;
}

int abox_effect_reconcile(
	abox_task *task, const char *id, abox_effect_check_fn check_fn, void *userdata, abox_error **reterr)
{
	struct verdict_call call = {.id = id, .by = "check", .task = task, .kind = FACT_EFFECT_VERDICT};
	_cleanup_(effect_unrefp) abox_effect *effect = NULL;
	int r;

	r = owner_check(task, reterr);
	if (r < 0)
		return r;
	if (!id || !check_fn)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, NULL,
			"an id and a check function are required");
	r = ask_outside(task, id, check_fn, userdata, &call, &effect, reterr);
	if (r < 0)
		return r;
	if (call.state == ABOX_EFFECT_UNKNOWN) {
		char place[64];

		snprintf(place, sizeof(place), "effect %s", id);
		return error_set(reterr, ABOX_E_UNKNOWN, ABOX_STAGE_EFFECT, place,
			"the check could not tell whether it happened");
	}
	if (call.state == ABOX_EFFECT_COMMITTED) {
		r = engine_store(task->journal, effect->has_result ? effect->result : NULL,
			effect->result_len, &call.result, &call.blob, reterr);
		if (r < 0)
			return r;
		call.has_result = effect->has_result;
		call.result_len = effect->result_len;
		call.code = effect->code;
	}
	r = verdict_append(task->journal, task, &call, reterr);
	return r < 0 ? r : call.state;
}

/* ---- ambiguous wishes ---- */

struct claim_call {
	const char *id;
	const char *of; /* NULL: it is new */
	const char *by;
};

static int claim_decide(struct engine_step *step, struct fact *fact, abox_error **reterr)
{
	const struct claim_call *call = step->userdata;
	const struct view_effect *wish = find_effect(step->view, call->id, reterr), *of;

	if (!wish)
		return ABOX_E_NOT_FOUND;
	if (wish->state != ABOX_EFFECT_NONE || wish->bound_away)
		return decide_effect_error(reterr, ABOX_E_STATE, wish, "is %s, not an ambiguous wish",
			abox_effect_state_name(wish->state));
	fact->kind = FACT_EFFECT_ALLOWED;
	fact->task = wish->task->id;
	fact->epoch = wish->task->epoch;
	fact->effect = wish->id;
	fact->by = call->by;
	if (!call->of)
		return 1;
	of = find_effect(step->view, call->of, reterr);
	if (!of)
		return ABOX_E_NOT_FOUND;
	if (of->task != wish->task || of->effect_class != wish->effect_class ||
		strcmp(of->target, wish->target) != 0)
		return decide_effect_error(reterr, ABOX_E_CONFLICT, wish,
			"effect '%s' is of another task, target or class", of->id);
	if (of->state == ABOX_EFFECT_NONE)
		return decide_effect_error(
			reterr, ABOX_E_STATE, wish, "effect '%s' is ambiguous itself", of->id);
	fact->kind = FACT_EFFECT_CLAIMED;
	fact->of = of->id;
	return 1;
}

static int claim_append(abox_journal *journal, struct claim_call *call, abox_error **reterr)
{
	struct engine_step step = {.journal = journal, .decide = claim_decide, .userdata = call};
	int r;

	r = check_arguments(journal, call->id, call->by, reterr);
	if (r < 0)
		return r;
	r = engine_append_durable(&step, reterr);
	engine_step_clear(&step);
	return r < 0 ? r : 0;
}

int abox_effect_claim(
	abox_journal *journal, const char *id, const char *effect_id, const char *by, abox_error **reterr)
{
	struct claim_call call = {id, effect_id, by};

	if (!effect_id)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, "effect_id", "is required");
	return claim_append(journal, &call, reterr);
}

int abox_effect_allow(abox_journal *journal, const char *id, const char *by, abox_error **reterr)
{
	struct claim_call call = {id, NULL, by};

	return claim_append(journal, &call, reterr);
}

/* ---- waiting ---- */

struct wait_call {
	const char *id;
	int state;
	bool dead; /* under way by the records, and nobody executes it */
	bool found;
};

static int wait_look(
	struct view *view, const struct decide_context *context, void *userdata, abox_error **reterr)
{
	struct wait_call *call = userdata;
	const struct view_effect *effect = view_effect_get(view, call->id);
	int r;

	call->found = effect != NULL;
	if (!effect)
		return 0;
	call->state = effect->state;
	call->dead = false;
	if (effect->state != ABOX_EFFECT_DISPATCHED && effect->state != ABOX_EFFECT_INTENDED)
		return 0;
	r = context->alive(context->userdata, effect->executor, effect->handle, reterr);
	if (r < 0)
		return r;
	call->dead = r == 0 || effect->deferred;
	return 0;
}

static int settle_decide(struct engine_step *step, struct fact *fact, abox_error **reterr)
{
	struct wait_call *call = step->userdata;
	const struct view_effect *effect = view_effect_get(step->view, call->id);
	int r;

	if (!effect || effect->state != ABOX_EFFECT_DISPATCHED)
		return 0;
	/* Tested again, inside the append (effects 1.7). */
	r = step->context.alive(step->context.userdata, effect->executor, effect->handle, reterr);
	if (r != 0)
		return r < 0 ? r : 0;
	mark_unknown(step, effect, fact);
	return 1;
}

static int settle_dead(abox_journal *journal, struct wait_call *call, abox_error **reterr)
{
	struct engine_step step = {.journal = journal, .decide = settle_decide, .userdata = call};
	int r;

	r = engine_append_durable(&step, reterr);
	engine_step_clear(&step);
	return r;
}

static void sleep_usec(uint64_t usec)
{
	struct timespec ts = {(time_t)(usec / USEC_PER_SEC), (long)(usec % USEC_PER_SEC * NSEC_PER_USEC)};

	nanosleep(&ts, NULL);
}

/* A task that ended took its final effects with it; the journal still knows. */
static int state_from_history(abox_journal *journal, const char *id, abox_error **reterr)
{
	struct view_effect *effect;
	struct view view;
	int r;

	r = engine_history(journal, NULL, &view, reterr);
	if (r < 0)
		return r;
	effect = find_effect(&view, id, reterr);
	r = effect ? effect->state : ABOX_E_NOT_FOUND;
	view_clear(&view);
	return r;
}

int abox_effect_wait(abox_journal *journal, const char *id, uint64_t timeout_usec, abox_error **reterr)
{
	uint64_t deadline = clock_deadline(clock_monotonic_usec(), timeout_usec), pause = POLL_FIRST_USEC,
		 now, seq;
	struct wait_call call = {.id = id};
	int r;

	r = engine_check_journal(journal, true, reterr);
	if (r < 0)
		return r;
	if (!id)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, "id", "is required");
	for (;;) {
		r = engine_look(journal, NULL, wait_look, &call, &seq, reterr);
		if (r < 0)
			return r;
		if (!call.found)
			return state_from_history(journal, id, reterr);
		if (call.dead && call.state == ABOX_EFFECT_DISPATCHED) {
			r = settle_dead(journal, &call, reterr);
			if (r < 0)
				return r;
			continue;
		}
		if (call.dead ||
			(call.state != ABOX_EFFECT_DISPATCHED && call.state != ABOX_EFFECT_INTENDED)) {
			r = engine_sync(journal, seq, reterr);
			return r < 0 ? r : call.state;
		}
		now = clock_monotonic_usec();
		if (now >= deadline)
			return error_set(reterr, ABOX_E_TIMEOUT, ABOX_STAGE_EFFECT, NULL,
				"effect '%s' is still %s", id, abox_effect_state_name(call.state));
		sleep_usec(MIN(pause, deadline - now));
		pause = MIN(pause * 2, POLL_LAST_USEC);
	}
}
