/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Beginning an effect: which effect is meant, and what may be done about it now (effects 1.1-1.3, 1.6).
 * Nothing leaves here; the outcome is a handle that may be dispatched, a stored result, or an answer that
 * says why not.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "effect/fingerprint.h"
#include "effect/owner.h"
#include "effect/request.h"

#define MAX_ROUNDS 64 /* of one question; each appends a record that settles something */

void abox_effect_options_init(struct abox_effect_options *options)
{
	*options = (struct abox_effect_options){.size = sizeof(*options)};
	abox_effect_request_init(&options->request);
}

static int error_take(abox_error **reterr, abox_error **from, int code)
{
	if (reterr) {
		abox_error_free(*reterr);
		*reterr = steal_ptr(*from);
	}
	return code;
}

/* What one call of begin knows, and what it found out under the lock. */
struct begin_call {
	abox_task *task;
	const struct abox_effect_options *options;
	struct fingerprint fingerprint;
	char derived_key[DIGEST_TEXT_BYTES];
	struct wish wish;
	struct text what;
	struct fact_bytes payload;
	struct engine_blob payload_blob;
	char new_id[ENGINE_ID_BYTES];
	const char **candidates; /* borrowed from the view, under the lock */
	size_t n_candidates;
	abox_effect *effect;            /* the handle to be */
	struct begin_decision decision; /* its effect is to be looked at under the lock only */
	char *known_id;                 /* id of that effect */
	abox_error *error;              /* of an answer that is no failure of the step */
};

static void begin_call_clear(struct begin_call *call)
{
	text_clear(&call->what);
	free((void *)call->candidates);
	free(call->known_id);
	abox_error_free(call->error);
	abox_effect_unref(call->effect);
}

/* ---- what the options say ---- */

static int check_options(const struct abox_effect_options *options, abox_error **reterr)
{
	int r;

	if (!options || options->size < sizeof(*options))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, NULL,
			"options with their size are required");
	if (options->effect_class > ABOX_EFFECT_PURE)
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, "effect_class", "is out of range");
	if (options->key) {
		r = engine_check_name("key", options->key, 255, reterr);
		if (r < 0)
			return r;
		if (options->wish)
			return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, "wish",
				"counts equal wishes with a derived key; an own key says it already");
	}
	if (options->claim_id && string_empty(options->claim_by))
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, "claim_by", "a claim needs a name");
	if (options->new_by && options->claim_id)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, "new_by",
			"it cannot be both new and claimed");
	return 0;
}

static int prepare_key(struct begin_call *call, abox_error **reterr)
{
	const struct abox_effect_options *options = call->options;
	int r;

	r = fingerprint_make(&options->request, &call->fingerprint, reterr);
	if (r < 0)
		return r;
	/* A body that was not hashed makes neither a key nor something a person can approve (effects 1.2). */
	if (call->fingerprint.without_body && (!options->key || options->approval_text))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, "body",
			"is beyond the spool limit: it takes a key of its own and no approval");
	call->wish.key = options->key;
	if (!options->key) {
		r = fingerprint_derive_key(
			options->request.target, &call->fingerprint, options->wish, call->derived_key);
		if (r < 0)
			return r;
		call->wish.key = call->derived_key;
		call->wish.derived = true;
	}
	return 0;
}

static int prepare_payload(struct begin_call *call, abox_error **reterr)
{
	const struct abox_effect_options *options = call->options;
	const void *data = options->payload ? options->payload : options->request.body;
	size_t len = options->payload ? options->payload_len : options->request.body_len;

	if (!options->defer)
		return 0;
	if (!options->payload && options->request.body_fd >= 0)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, "payload",
			"a deferred effect with its body in a file needs a payload");
	return engine_store(call->task->journal, data ? data : "", data ? len : 0, &call->payload,
		&call->payload_blob, reterr);
}

static int prepare(struct begin_call *call, abox_error **reterr)
{
	const struct abox_effect_options *options = call->options;
	int r;

	r = check_options(options, reterr);
	if (r < 0)
		return r;
	r = prepare_key(call, reterr);
	if (r < 0)
		return r;
	call->wish.effect_class = (int)options->effect_class;
	call->wish.fingerprint = call->fingerprint.hex;
	call->wish.target = options->request.target;
	call->wish.deferred = options->defer != 0;
	call->wish.limit = options->limit;
	call->wish.new_by = options->new_by;
	call->wish.claim_id = options->claim_id;
	call->wish.claim_by = options->claim_by;
	fingerprint_describe(&options->request, &call->what);
	if (call->what.failed)
		return ABOX_E_MEMORY;
	r = prepare_payload(call, reterr);
	if (r < 0)
		return r;
	r = owner_take_executor(call->task, reterr);
	if (r < 0)
		return r;
	r = effect_new(call->task, &call->effect);
	if (r < 0)
		return r;
	owner_add_handle(call->task, call->effect);
	return engine_make_id("eff-", call->new_id, reterr);
}

/* ---- under the lock ---- */

static void fact_of_wish(const struct begin_call *call, struct fact *fact)
{
	const struct abox_effect_options *options = call->options;

	fact->effect = call->new_id;
	fact->key = (struct fact_bytes){call->wish.key, strlen(call->wish.key)};
	fact->derived = call->wish.derived;
	fact->effect_class = options->effect_class;
	fact->target = (struct fact_bytes){options->request.target, strlen(options->request.target)};
	fact->fingerprint = call->fingerprint.hex;
	fact->what = call->what.data;
	fact->wish = options->wish;
	fact->plan = options->plan_digest;
	fact->max_tries = options->max_tries ? options->max_tries : DECIDE_MAX_TRIES;
	fact->settle_usec = options->settle_usec ? options->settle_usec : DECIDE_SETTLE_USEC;
	fact->deferred = options->defer != 0;
}

static void intend(struct begin_call *call, struct fact *fact)
{
	const struct view_effect *effect = call->decision.effect;

	fact->kind = FACT_EFFECT_INTENDED;
	if (!effect)
		fact_of_wish(call, fact);
	else
		fact->effect = effect->id;
	if (!effect || effect->state == ABOX_EFFECT_NONE) {
		fact->payload = call->payload;
		fact->payload_blob = call->payload_blob.text[0] ? call->payload_blob.text : NULL;
		fact->by = call->options->new_by;
	}
	/* The stricter of all wishes counts: what once needed an approval always does. */
	fact->needs_approval = call->options->approval_text != NULL;
	fact->try = call->decision.try;
	fact->executor = call->task->executor;
	fact->handle = call->effect->handle;
}

static void count_candidate(void *userdata, const struct view_effect *effect)
{
	struct begin_call *call = userdata;

	call->candidates[call->n_candidates++] = effect->id;
}

static int mark_ambiguous(struct begin_call *call, const struct view_task *task, struct fact *fact)
{
	size_t n = decide_candidates(task, call->wish.target, call->task->epoch, NULL, NULL);

	free((void *)call->candidates);
	call->n_candidates = 0;
	call->candidates = calloc(n + 1, sizeof(*call->candidates));
	if (!call->candidates)
		return ABOX_E_MEMORY;
	decide_candidates(task, call->wish.target, call->task->epoch, count_candidate, call);
	fact_of_wish(call, fact);
	fact->kind = FACT_EFFECT_AMBIGUOUS;
	fact->candidates = call->candidates;
	return 0;
}

static int mark_claimed(
	struct begin_call *call, const struct view *view, struct fact *fact, abox_error **reterr)
{
	const struct view_effect *of = view_effect_get(view, call->wish.claim_id);

	if (!of || strcmp(of->task->id, call->task->id) != 0)
		return error_set(reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_EFFECT, "claim_id",
			"the task has no effect '%s'", call->wish.claim_id);
	if (of->effect_class != call->wish.effect_class || strcmp(of->target, call->wish.target) != 0)
		return error_set(reterr, ABOX_E_CONFLICT, ABOX_STAGE_EFFECT, "claim_id",
			"effect '%s' has another target or class", of->id);
	fact->kind = FACT_EFFECT_CLAIMED;
	fact->effect = call->decision.effect ? call->decision.effect->id : NULL;
	fact->key = (struct fact_bytes){call->wish.key, strlen(call->wish.key)};
	fact->derived = call->wish.derived;
	fact->fingerprint = call->fingerprint.hex;
	fact->of = of->id;
	fact->by = call->wish.claim_by;
	return 0;
}

static int begin_decide(struct engine_step *step, struct fact *fact, abox_error **reterr)
{
	struct begin_call *call = step->userdata;
	const struct view_task *task = view_task_get(step->view, call->task->id);
	struct begin_decision *decision = &call->decision;
	int r;

	call->error = abox_error_free(call->error);
	r = decide_begin(
		step->view, task, call->task->epoch, &call->wish, &step->context, decision, &call->error);
	if (r < 0)
		return error_take(reterr, &call->error, r);
	free(call->known_id);
	call->known_id = decision->effect ? strdup(decision->effect->id) : NULL;
	if (decision->effect && !call->known_id)
		return ABOX_E_MEMORY;
	fact->task = call->task->id;
	fact->epoch = call->task->epoch;
	switch (decision->step) {
	case BEGIN_ANSWER:
		return decision->effect ? effect_fill(call->effect, decision->effect) : 0;
	case BEGIN_INTEND:
		intend(call, fact);
		break;
	case BEGIN_MARK_UNKNOWN:
		fact->kind = FACT_EFFECT_UNKNOWN;
		fact->effect = decision->effect->id;
		fact->try = decision->effect->try;
		fact->reason = "its executor ended without an outcome";
		step->room = -decision->effect->room;
		step->priority = JOURNAL_VITAL;
		break;
	case BEGIN_MARK_CONFLICT:
		fact->kind = FACT_EFFECT_CONFLICT;
		fact->effect = decision->effect->id;
		fact->fingerprint = call->fingerprint.hex;
		fact->what = call->what.data;
		break;
	case BEGIN_MARK_AMBIGUOUS:
		r = mark_ambiguous(call, task, fact);
		break;
	case BEGIN_MARK_ALLOWED:
		fact->kind = FACT_EFFECT_ALLOWED;
		fact->effect = decision->effect->id;
		fact->by = call->wish.new_by;
		break;
	case BEGIN_MARK_CLAIMED:
		r = mark_claimed(call, step->view, fact, reterr);
		break;
	case BEGIN_MARK_REPLAY:
		fact->kind = FACT_EFFECT_REPLAY;
		fact->effect = decision->effect->id;
		break;
	}
	return r < 0 ? r : 1;
}

/* ---- answers ---- */

struct refresh_call {
	abox_effect *effect;
	const char *id;
};

static int refresh_look(
	struct view *view, const struct decide_context *context, void *userdata, abox_error **reterr)
{
	struct refresh_call *call = userdata;
	const struct view_effect *from = view_effect_get(view, call->id);

	(void)context;
	return from ? effect_fill(call->effect, from) : 0;
}

static int load_result(abox_effect *effect, uint64_t result_seq, abox_error **reterr)
{
	char *data = NULL, *reason = NULL;
	size_t len = 0;
	int r;

	if (!result_seq || effect->result_known)
		return 0;
	r = engine_load(
		effect->task->journal, result_seq, false, &data, &len, &effect->code, &reason, reterr);
	if (r < 0)
		return r;
	free(effect->result);
	free(effect->reason);
	effect->result = data;
	effect->result_len = len;
	effect->has_result = data != NULL;
	effect->reason = reason;
	return 0;
}

/* Nothing is replayed or told before it is covered (effects 0.3). */
static int answer_stored(
	struct begin_call *call, struct engine_step *step, abox_effect **ret, abox_error **reterr)
{
	int r;

	r = engine_sync(call->task->journal, step->seq, reterr);
	if (r < 0)
		return r;
	if (call->decision.code < 0)
		return error_take(reterr, &call->error, call->decision.code);
	if (call->decision.code == ABOX_BEGIN_REPLAY) {
		r = load_result(call->effect, call->effect->result_seq, reterr);
		if (r < 0)
			return r;
		call->effect->replayed = true;
	}
	*ret = steal_ptr(call->effect);
	return call->decision.code;
}

static int answer_conflict(struct begin_call *call, struct engine_step *step, abox_error **reterr)
{
	char place[64];
	int r;

	r = engine_sync(call->task->journal, step->seq, reterr);
	if (r < 0)
		return r;
	snprintf(place, sizeof(place), "effect %s", call->effect->id);
	return error_set(reterr, ABOX_E_CONFLICT, ABOX_STAGE_EFFECT, place,
		"its key stands for another request or class; nothing was done");
}

static int answer_go(struct begin_call *call, abox_effect **ret, abox_error **reterr)
{
	struct refresh_call refresh = {call->effect, call->effect->id};
	int r;

	/* No sync: that of DISPATCHED covers INTENDED. */
	r = engine_look(call->task->journal, call->task, refresh_look, &refresh, NULL, reterr);
	if (r < 0)
		return r;
	call->effect->intended = !call->options->defer;
	if (call->options->approval_text) {
		r = request_for_effect(
			call->effect, call->options, &call->fingerprint, call->what.data, reterr);
		if (r < 0)
			return r;
	}
	if (call->options->defer) {
		/* A promise to do it later is acknowledged, so it is durable. */
		r = abox_journal_sync(call->task->journal, 0, ABOX_DURABILITY_DATA, reterr);
		if (r < 0)
			return r;
	}
	*ret = steal_ptr(call->effect);
	return (*ret)->intended ? ABOX_BEGIN_GO : ABOX_BEGIN_DEFERRED;
}

/* The id must be known before the record is shown to others as ours. */
static int adopt_id(struct begin_call *call)
{
	char *copy = call->known_id ? steal_ptr(call->known_id) : strdup(call->new_id);

	if (!copy)
		return ABOX_E_MEMORY;
	free(call->effect->id);
	call->effect->id = copy;
	return 0;
}

static int begin_rounds(
	struct begin_call *call, struct engine_step *step, abox_effect **ret, abox_error **reterr)
{
	int r;

	for (int round = 0; round < MAX_ROUNDS; round++) {
		r = engine_append(step, reterr);
		if (r < 0)
			return r;
		if (r == 0)
			return answer_stored(call, step, ret, reterr);
		if (call->decision.step == BEGIN_INTEND) {
			r = adopt_id(call);
			return r < 0 ? r : answer_go(call, ret, reterr);
		}
		if (call->decision.step == BEGIN_MARK_CONFLICT) {
			r = adopt_id(call);
			return r < 0 ? r : answer_conflict(call, step, reterr);
		}
	}
	return error_set(reterr, ABOX_E_BUSY, ABOX_STAGE_EFFECT, NULL, "others keep changing this effect");
}

int abox_effect_begin(
	abox_task *task, const struct abox_effect_options *options, abox_effect **ret, abox_error **reterr)
{
	struct begin_call call = {.task = task, .options = options};
	struct engine_step step = {.asker = task, .decide = begin_decide, .userdata = &call};
	int r;

	r = owner_check(task, reterr);
	if (r < 0)
		return r;
	if (!ret)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, NULL, "ret is required");
	r = prepare(&call, reterr);
	if (r >= 0) {
		step.journal = task->journal;
		r = begin_rounds(&call, &step, ret, reterr);
	}
	engine_step_clear(&step);
	begin_call_clear(&call);
	return r;
}
