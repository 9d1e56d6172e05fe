/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Deferred effects whose turn has come: begun by their id, by the owner that commits, with the payload that
 * was stored for this moment.
 */
#include "effect/deferred.h"

#include <string.h>

struct deferred_call {
	abox_effect *effect;
	const char *id;
	struct begin_decision decision;
	abox_error *error;
};

static int deferred_decide(struct engine_step *step, struct fact *fact, abox_error **reterr)
{
	struct deferred_call *call = step->userdata;
	const struct view_effect *now = view_effect_get(step->view, call->id);
	const abox_task *task = call->effect->task;
	int r;

	if (!now || strcmp(now->task->id, task->id) != 0)
		return error_set(reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_EFFECT, NULL,
			"the task has no effect '%s'", call->id);
	call->error = abox_error_free(call->error);
	r = decide_begin_bound(now, task->epoch, &step->context, &call->decision, &call->error);
	if (r < 0)
		return r;
	r = effect_fill(call->effect, now);
	if (r < 0)
		return r;
	fact->task = task->id;
	fact->epoch = task->epoch;
	fact->effect = now->id;
	switch (call->decision.step) {
	case BEGIN_INTEND:
		fact->kind = FACT_EFFECT_INTENDED;
		fact->try = call->decision.try;
		fact->executor = task->executor;
		fact->handle = call->effect->handle;
		call->effect->try = call->decision.try;
		return 1;
	case BEGIN_MARK_UNKNOWN:
		fact->kind = FACT_EFFECT_UNKNOWN;
		fact->try = now->try;
		fact->reason = "its executor ended without an outcome";
		step->room = -now->room;
		step->priority = JOURNAL_VITAL;
		return 1;
	case BEGIN_MARK_REPLAY:
		fact->kind = FACT_EFFECT_REPLAY;
		return 1;
	default:
		return 0;
	}
}

static int deferred_rounds(struct deferred_call *call, abox_error **reterr)
{
	abox_task *task = call->effect->task;
	struct engine_step step = {
		.journal = task->journal, .asker = task, .decide = deferred_decide, .userdata = call};
	int r;

	do
		r = engine_append(&step, reterr);
	while (r > 0 && call->decision.step != BEGIN_INTEND);
	if (r == 0)
		r = engine_sync(task->journal, step.seq, reterr);
	engine_step_clear(&step);
	if (r < 0)
		return r;
	if (call->decision.step == BEGIN_INTEND)
		return ABOX_BEGIN_GO;
	if (call->decision.code < 0 && reterr) {
		abox_error_free(*reterr);
		*reterr = steal_ptr(call->error);
	}
	return call->decision.code;
}

int deferred_begin(abox_task *task, const char *id, abox_effect **ret, abox_error **reterr)
{
	_cleanup_(effect_unrefp) abox_effect *effect = NULL;
	struct deferred_call call = {.id = id};
	int r;

	r = effect_new(task, &effect);
	if (r < 0)
		return r;
	owner_add_handle(task, effect);
	call.effect = effect;
	r = deferred_rounds(&call, reterr);
	abox_error_free(call.error);
	if (r < 0)
		return r;
	if (r == ABOX_BEGIN_GO) {
		effect->intended = true;
		effect->state = ABOX_EFFECT_INTENDED;
	}
	if (effect->payload_seq) {
		r = engine_load(task->journal, effect->payload_seq, true, &effect->payload,
			&effect->payload_len, NULL, NULL, reterr);
		if (r < 0)
			return r;
		r = effect->intended ? ABOX_BEGIN_GO : ABOX_BEGIN_REPLAY;
	}
	*ret = steal_ptr(effect);
	return r;
}
