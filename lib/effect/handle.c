/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Handles of effects: what one caller knows of one effect, and the two moments that count: the dispatch,
 * before which nothing leaves, and the finish, before which nobody is told (effects 1.4, 1.5). A handle that
 * is let go in between says UNKNOWN for itself (effects 1.6).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "effect/owner.h"

int effect_new(abox_task *task, abox_effect **ret)
{
	abox_effect *effect = calloc(1, sizeof(*effect));

	if (!effect)
		return ABOX_E_MEMORY;
	effect->refs = 1;
	effect->task = abox_task_ref(task);
	*ret = effect;
	return 0;
}

static int take_text(char **at, const char *value)
{
	char *copy = value ? strdup(value) : NULL;

	if (value && !copy)
		return ABOX_E_MEMORY;
	free(*at);
	*at = copy;
	return 0;
}

static int fill_result(abox_effect *effect, const struct view_result *from)
{
	char *data = malloc(from->len + 1);

	if (!data)
		return ABOX_E_MEMORY;
	memcpy(data, from->data, from->len + 1);
	free(effect->result);
	effect->result = data;
	effect->result_len = from->len;
	effect->has_result = from->present;
	effect->code = from->code;
	effect->result_known = true;
	return take_text(&effect->reason, from->reason);
}

int effect_fill(abox_effect *effect, const struct view_effect *from)
{
	effect->effect_class = from->effect_class;
	effect->state = from->state;
	effect->try = from->try;
	effect->epoch = from->epoch;
	effect->state_seq = from->state_seq;
	effect->result_seq = from->result_seq;
	effect->payload_seq = from->payload_seq;
	effect->room = from->room;
	effect->retryable = from->state == ABOX_EFFECT_FAILED && !view_effect_is_final(from);
	if (take_text(&effect->id, from->id) < 0 ||
		take_text(&effect->key, view_effect_key(from, NULL)) < 0 ||
		take_text(&effect->target, from->target) < 0 ||
		take_text(&effect->approval, from->approval) < 0)
		return ABOX_E_MEMORY;
	if (from->result_seq && from->result)
		return fill_result(effect, from->result);
	return 0;
}

abox_effect *abox_effect_ref(abox_effect *effect)
{
	if (effect)
		__atomic_add_fetch(&effect->refs, 1, __ATOMIC_RELAXED);
	return effect;
}

/* ---- letting go ---- */

static int let_go_decide(struct engine_step *step, struct fact *fact, abox_error **reterr)
{
	const abox_effect *effect = step->userdata;
	const struct view_effect *now = view_effect_get(step->view, effect->id);

	(void)reterr;
	if (!now || now->try != effect->try || now->handle != effect->handle)
		return 0;
	fact->task = effect->task->id;
	fact->epoch = effect->task->epoch;
	fact->effect = effect->id;
	fact->try = effect->try;
	if (effect->dispatched && now->state == ABOX_EFFECT_DISPATCHED) {
		fact->kind = FACT_EFFECT_UNKNOWN;
		fact->reason = "its handle was let go without an outcome";
		step->room = -now->room;
		step->priority = JOURNAL_VITAL;
		return 1;
	}
	if (effect->intended && now->state == ABOX_EFFECT_INTENDED) {
		fact->kind = FACT_EFFECT_RELEASED;
		return 1;
	}
	return 0;
}

/*
 * There is nobody to tell of a failure here. When nothing can be written, the effect stays DISPATCHED until
 * this process ends, which is safe: nobody repeats it, and then it is UNKNOWN.
 */
static void let_go(abox_effect *effect)
{
	struct engine_step step = {.journal = effect->task->journal,
		.asker = effect->task,
		.decide = let_go_decide,
		.userdata = effect};

	if (journal_is_dead(effect->task->journal))
		return;
	if (effect->dispatched)
		engine_append_durable(&step, NULL);
	else if (effect->intended)
		engine_append(&step, NULL);
	engine_step_clear(&step);
}

abox_effect *abox_effect_unref(abox_effect *effect)
{
	if (!effect || __atomic_sub_fetch(&effect->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return NULL;
	let_go(effect);
	owner_drop_handle(effect->task, effect);
	abox_task_unref(effect->task);
	free(effect->id);
	free(effect->key);
	free(effect->target);
	free(effect->reason);
	free(effect->approval);
	free(effect->result);
	free(effect->payload);
	free(effect);
	return NULL;
}

void effect_unrefp(abox_effect **effect)
{
	*effect = abox_effect_unref(*effect);
}

/* ---- dispatch ---- */

static int dispatch_decide(struct engine_step *step, struct fact *fact, abox_error **reterr)
{
	const abox_effect *effect = step->userdata;
	const struct view_effect *now = view_effect_get(step->view, effect->id);
	struct view_approval *approval = NULL;
	int r;

	if (!now)
		return error_set(reterr, ABOX_E_ALREADY, ABOX_STAGE_EFFECT, NULL, "its task is over");
	r = decide_dispatch(step->view, now, effect->try, effect->task->epoch, effect->task->executor,
		effect->handle, &step->context, &approval, reterr);
	if (r < 0)
		return r;
	fact->kind = FACT_EFFECT_DISPATCHED;
	fact->task = effect->task->id;
	fact->epoch = effect->task->epoch;
	fact->effect = effect->id;
	fact->try = effect->try;
	fact->approval = approval ? approval->id : NULL;
	fact->executor = effect->task->executor;
	fact->handle = effect->handle;
	/* A full disk refuses new effects here, never their outcomes (effects 0.6). */
	step->room = ENGINE_OUTCOME_ROOM;
	return 1;
}

static int check_handle(const abox_effect *effect, abox_error **reterr)
{
	if (!effect)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, NULL, "an effect is required");
	return owner_check(effect->task, reterr);
}

int abox_effect_dispatch(abox_effect *effect, abox_error **reterr)
{
	struct engine_step step = {.decide = dispatch_decide, .userdata = effect};
	int r;

	r = check_handle(effect, reterr);
	if (r < 0)
		return r;
	if (!effect->intended)
		return error_set(reterr, ABOX_E_STATE, ABOX_STAGE_EFFECT, NULL,
			"there is no try of this handle to dispatch");
	step.journal = effect->task->journal;
	step.asker = effect->task;
	r = engine_append(&step, reterr);
	engine_step_clear(&step);
	if (r < 0)
		return r;
	effect->intended = false;
	effect->dispatched = true;
	effect->state = ABOX_EFFECT_DISPATCHED;
	effect->epoch = effect->task->epoch;
	effect->room = ENGINE_OUTCOME_ROOM;
	/* Security: only what is on disk may be acted on (effects 1.4). If this fails nothing may leave; the
	 * handle says UNKNOWN when it is let go, as the record may have come through all the same. */
	r = engine_sync(effect->task->journal, step.seq, reterr);
	return r < 0 ? r : 0;
}

/* ---- finish ---- */

int abox_effect_set_result(abox_effect *effect, const void *data, size_t len, int32_t code)
{
	char *copy = NULL;

	if (!effect || (!data && len))
		return ABOX_E_INVALID;
	if (data) {
		copy = malloc(len + 1);
		effect->result_lost = !copy;
		if (!copy)
			return ABOX_E_MEMORY;
		if (len)
			memcpy(copy, data, len);
		copy[len] = 0;
	}
	free(effect->result);
	effect->result = copy;
	effect->result_len = len;
	effect->has_result = data != NULL;
	effect->code = code;
	return 0;
}

int abox_effect_set_body_digest(abox_effect *effect, const char *hex)
{
	uint8_t digest[32];

	if (!effect || !hex || hex_decode(hex, digest, sizeof(digest)) < 0)
		return ABOX_E_INVALID;
	memcpy(effect->body_digest, hex, sizeof(effect->body_digest));
	return 0;
}

struct finish_call {
	abox_effect *effect;
	int done;
	const char *reason;
	struct fact_bytes result;
	struct engine_blob blob;
	int state; /* that holds afterwards */
	bool late;
};

static int outcome_kind(const abox_effect *effect, int done)
{
	switch (done) {
	case ABOX_DONE_COMMITTED:
		return FACT_EFFECT_COMMITTED;
	case ABOX_DONE_FAILED:
	case ABOX_DONE_FAILED_RETRY:
		return FACT_EFFECT_FAILED;
	default:
		/* An answer that does not tell: for these classes it costs nothing to send it again
		 * (effects 1.3). */
		if (effect->effect_class == ABOX_EFFECT_IDEMPOTENT ||
			effect->effect_class == ABOX_EFFECT_PURE)
			return FACT_EFFECT_FAILED;
		return FACT_EFFECT_UNKNOWN;
	}
}

static void fill_outcome(const struct finish_call *call, struct fact *fact)
{
	const abox_effect *effect = call->effect;

	fact->kind = outcome_kind(effect, call->done);
	fact->task = effect->task->id;
	fact->epoch = effect->task->epoch;
	fact->effect = effect->id;
	fact->try = effect->try;
	fact->reason = call->reason;
	if (fact->kind == FACT_EFFECT_FAILED) {
		fact->retryable = call->done != ABOX_DONE_FAILED;
		fact->maybe = call->done != ABOX_DONE_FAILED && call->done != ABOX_DONE_FAILED_RETRY;
	}
	fact->body_digest = effect->body_digest[0] ? effect->body_digest : NULL;
	if (fact->kind != FACT_EFFECT_UNKNOWN) {
		fact->result = call->result;
		fact->result_blob = call->blob.text[0] ? call->blob.text : NULL;
		fact->has_result = effect->has_result;
		fact->result_len = effect->result_len;
		fact->code = effect->code;
	}
}

/* Without reserved room: from that of cancels and epochs, unless it is too large for it. */
static int unreserved_priority(const struct finish_call *call)
{
	return call->result.len < 4096 ? JOURNAL_VITAL : JOURNAL_NORMAL;
}

/* Welcome from its executor, fenced or not, while the try is DISPATCHED or UNKNOWN (effects 1.5). */
static int finish_decide(struct engine_step *step, struct fact *fact, abox_error **reterr)
{
	struct finish_call *call = step->userdata;
	const struct view_effect *now = view_effect_get(step->view, call->effect->id);
	bool open = now && now->try == call->effect->try &&
		    (now->state == ABOX_EFFECT_DISPATCHED || now->state == ABOX_EFFECT_UNKNOWN);

	(void)reterr;
	fill_outcome(call, fact);
	call->late = !open;
	call->state = now ? now->state : ABOX_EFFECT_NONE;
	if (!open) {
		fact->state = fact->kind == FACT_EFFECT_COMMITTED ? ABOX_EFFECT_COMMITTED
			      : fact->kind == FACT_EFFECT_FAILED  ? ABOX_EFFECT_FAILED
								  : ABOX_EFFECT_UNKNOWN;
		fact->kind = FACT_EFFECT_LATE;
		step->priority = unreserved_priority(call);
		return 1;
	}
	step->room = -now->room;
	step->priority = now->room > 0 ? JOURNAL_RESERVED : unreserved_priority(call);
	if (fact->kind == FACT_EFFECT_UNKNOWN && now->state == ABOX_EFFECT_UNKNOWN)
		return 0; /* that is known */
	call->state = fact->kind == FACT_EFFECT_COMMITTED ? ABOX_EFFECT_COMMITTED
		      : fact->kind == FACT_EFFECT_FAILED  ? ABOX_EFFECT_FAILED
							  : ABOX_EFFECT_UNKNOWN;
	return 1;
}

static int not_recorded(abox_effect *effect, abox_error **reterr, const char *what)
{
	_cleanup_(error_freep) abox_error *cause = reterr ? *reterr : NULL;
	char place[64];

	if (reterr)
		*reterr = NULL;
	snprintf(place, sizeof(place), "effect %s", effect->id);
	return error_set(reterr, ABOX_E_UNRECORDED, ABOX_STAGE_EFFECT, place,
		"%s (%s); the effect will be UNKNOWN", what,
		cause ? abox_error_get_message(cause) : "no memory to say why");
}

int abox_effect_finish(abox_effect *effect, int done, const char *reason, abox_error **reterr)
{
	struct finish_call call = {.effect = effect, .done = done, .reason = reason};
	struct engine_step step = {.decide = finish_decide, .userdata = &call};
	int r;

	r = check_handle(effect, reterr);
	if (r < 0)
		return r;
	if (!effect->dispatched)
		return error_set(reterr, ABOX_E_STATE, ABOX_STAGE_EFFECT, NULL,
			"there is no dispatched try to finish");
	step.journal = effect->task->journal;
	step.asker = effect->task;
	if (effect->result_lost && done != ABOX_DONE_UNCLEAR)
		return not_recorded(effect, reterr, "there was no memory to keep the result");
	/* Blob first, then record, then sync, then tell. */
	r = engine_store(step.journal, effect->has_result ? effect->result : NULL, effect->result_len,
		&call.result, &call.blob, reterr);
	if (r < 0)
		return not_recorded(effect, reterr, "the result could not be stored");
	r = engine_append_durable(&step, reterr);
	engine_step_clear(&step);
	if (r < 0)
		return not_recorded(effect, reterr, "the outcome could not be recorded");
	effect->dispatched = false;
	effect->state = call.state;
	effect->room = 0;
	effect->retryable = call.state == ABOX_EFFECT_FAILED && done != ABOX_DONE_FAILED;
	take_text(&effect->reason, reason);
	if (call.late) {
		char place[64];

		snprintf(place, sizeof(place), "effect %s", effect->id);
		return error_set(reterr, ABOX_E_ALREADY, ABOX_STAGE_EFFECT, place,
			"the outcome came after it was decided %s; it is recorded as late evidence",
			abox_effect_state_name(call.state));
	}
	return call.state;
}

/* ---- fields ---- */

const char *abox_effect_get_id(const abox_effect *effect)
{
	return effect ? effect->id : NULL;
}

const char *abox_effect_get_key(const abox_effect *effect)
{
	return effect ? effect->key : NULL;
}

const char *abox_effect_get_target(const abox_effect *effect)
{
	return effect ? effect->target : NULL;
}

int abox_effect_get_class(const abox_effect *effect)
{
	return effect ? effect->effect_class : 0;
}

int abox_effect_get_state(const abox_effect *effect)
{
	return effect ? effect->state : 0;
}

uint32_t abox_effect_get_try(const abox_effect *effect)
{
	return effect ? effect->
	try:
		0;
}

uint64_t abox_effect_get_epoch(const abox_effect *effect)
{
	return effect ? effect->epoch : 0;
}

int abox_effect_get_replayed(const abox_effect *effect)
{
	return effect && effect->replayed;
}

int abox_effect_get_retryable(const abox_effect *effect)
{
	return effect && effect->retryable;
}

int32_t abox_effect_get_code(const abox_effect *effect)
{
	return effect ? effect->code : 0;
}

const void *abox_effect_get_result(const abox_effect *effect, size_t *retlen)
{
	if (!effect || !effect->has_result)
		return NULL;
	if (retlen)
		*retlen = effect->result_len;
	return effect->result;
}

const char *abox_effect_get_reason(const abox_effect *effect)
{
	return effect ? effect->reason : NULL;
}

const char *abox_effect_get_approval(const abox_effect *effect)
{
	return effect ? effect->approval : NULL;
}

const void *abox_effect_get_payload(const abox_effect *effect, size_t *retlen)
{
	if (!effect || !effect->payload)
		return NULL;
	if (retlen)
		*retlen = effect->payload_len;
	return effect->payload;
}
