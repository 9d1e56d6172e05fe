/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Approvals: asked for by the owner of a task, answered by a named person from any process, judged and used
 * up in the append of DISPATCHED and only there (effects 1.9). The name is recorded, not authenticated.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "effect/request.h"

#define DEFAULT_TTL_USEC (24ULL * 3600 * USEC_PER_SEC)
#define MAX_USES 1000000

void abox_approval_options_init(struct abox_approval_options *options)
{
	*options = (struct abox_approval_options){.size = sizeof(*options)};
	abox_effect_request_init(&options->request);
}

struct request_call {
	abox_task *task;
	int effect_class;
	const char *fingerprint;
	const char *target;
	const char *text;
	const char *what;
	uint64_t uses;
	uint64_t ttl_usec;
	bool wall;
	bool attach_to_refused; /* for an effect: a denial stands until somebody asks on purpose */
	char new_id[ENGINE_ID_BYTES];
	char *found_id;
};

static bool stands(const struct request_call *call, int state)
{
	switch (state) {
	case ABOX_APPROVAL_PENDING:
	case ABOX_APPROVAL_GRANTED:
		return true;
	case ABOX_APPROVAL_DENIED:
	case ABOX_APPROVAL_REVOKED:
		return call->attach_to_refused;
	default:
		return false;
	}
}

static int request_decide(struct engine_step *step, struct fact *fact, abox_error **reterr)
{
	struct request_call *call = step->userdata;
	const struct view_task *task = view_task_get(step->view, call->task->id);
	const struct view_approval *found;
	struct view_approval *newest = NULL;
	int r;

	r = decide_admission(task, call->task->epoch, reterr);
	if (r < 0)
		return r;
	found = decide_usable_approval(
		step->view, task, call->fingerprint, call->effect_class, &step->context, &newest);
	if (!found && newest && stands(call, decide_approval_state(step->view, newest, &step->context)))
		found = newest;
	free(call->found_id);
	call->found_id = found ? strdup(found->id) : NULL;
	if (found)
		return call->found_id ? 0 : ABOX_E_MEMORY;
	fact->kind = FACT_APPROVAL_REQUEST;
	fact->task = task->id;
	fact->epoch = call->task->epoch;
	fact->approval = call->new_id;
	fact->effect_class = (uint32_t)call->effect_class;
	fact->target = (struct fact_bytes){call->target, strlen(call->target)};
	fact->fingerprint = call->fingerprint;
	fact->reason = call->text;
	fact->what = call->what;
	fact->uses = call->uses;
	fact->ttl_usec = call->ttl_usec;
	fact->wall = call->wall;
	return 1;
}

/* *retid is allocated. 0 for a new request, 1 for one that stood. */
static int request_append(struct request_call *call, bool durable, char **retid, abox_error **reterr)
{
	struct engine_step step = {.journal = call->task->journal,
		.asker = call->task,
		.decide = request_decide,
		.userdata = call};
	int r;

	r = engine_make_id("app-", call->new_id, reterr);
	if (r < 0)
		return r;
	r = durable ? engine_append_durable(&step, reterr) : engine_append(&step, reterr);
	engine_step_clear(&step);
	if (r >= 0) {
		*retid = call->found_id ? steal_ptr(call->found_id) : strdup(call->new_id);
		r = *retid ? !r : ABOX_E_MEMORY;
	}
	free(call->found_id);
	return r;
}

int request_for_effect(abox_effect *effect, const struct abox_effect_options *options,
	const struct fingerprint *fingerprint, const char *what, abox_error **reterr)
{
	struct request_call call = {.task = effect->task,
		.effect_class = effect->effect_class,
		.fingerprint = fingerprint->hex,
		.target = options->request.target,
		.text = options->approval_text,
		.what = what,
		.uses = 1,
		.wall = options->approval_wall != 0,
		.attach_to_refused = true};
	char *id = NULL;
	int r;

	call.ttl_usec = options->approval_ttl_usec ? options->approval_ttl_usec : DEFAULT_TTL_USEC;
	/* Durable: somebody else is to see it and answer. */
	r = request_append(&call, true, &id, reterr);
	if (r < 0)
		return r;
	free(effect->approval);
	effect->approval = id;
	return 0;
}

int abox_approval_request(
	abox_task *task, const struct abox_approval_options *options, char **retid, abox_error **reterr)
{
	_cleanup_(text_clear) struct text what = TEXT_INIT;
	struct request_call call = {.task = task};
	struct fingerprint fingerprint;
	int r;

	r = owner_check(task, reterr);
	if (r < 0)
		return r;
	if (!options || options->size < sizeof(*options) || !retid ||
		options->effect_class > ABOX_EFFECT_PURE || options->uses > MAX_USES)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, NULL,
			"options with size, class and uses in range, and retid are required");
	r = fingerprint_make(&options->request, &fingerprint, reterr);
	if (r < 0)
		return r;
	if (fingerprint.without_body)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, "body",
			"is beyond the spool limit: nobody can approve what was not hashed");
	fingerprint_describe(&options->request, &what);
	if (what.failed)
		return ABOX_E_MEMORY;
	call.effect_class = (int)options->effect_class;
	call.fingerprint = fingerprint.hex;
	call.target = options->request.target;
	call.text = options->text;
	call.what = what.data;
	call.uses = options->uses ? options->uses : 1;
	call.ttl_usec = options->ttl_usec ? options->ttl_usec : DEFAULT_TTL_USEC;
	call.wall = options->wall != 0;
	return request_append(&call, true, retid, reterr);
}

/* ---- answers ---- */

struct answer_call {
	const char *id;
	const char *by;
	const char *note;
	int kind;
};

static int find_approval(
	const struct view *view, const char *id, struct view_approval **ret, abox_error **reterr)
{
	*ret = view_approval_get(view, id);
	if (*ret)
		return 0;
	return error_set(reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_EFFECT, NULL,
		"no approval request '%s' is open in this journal", id);
}

static int answer_decide(struct engine_step *step, struct fact *fact, abox_error **reterr)
{
	const struct answer_call *call = step->userdata;
	struct view_approval *approval;
	int state, r;

	r = find_approval(step->view, call->id, &approval, reterr);
	if (r < 0)
		return r;
	state = decide_approval_state(step->view, approval, &step->context);
	if (state != ABOX_APPROVAL_PENDING && state != ABOX_APPROVAL_GRANTED)
		return error_set(reterr, ABOX_E_ALREADY, ABOX_STAGE_EFFECT, NULL, "approval '%s' is %s",
			call->id, abox_approval_state_name(state));
	if (state == ABOX_APPROVAL_GRANTED && call->kind == FACT_APPROVAL_GRANT)
		return 0; /* granted twice is granted once */
	fact->kind = call->kind;
	fact->task = approval->task->id;
	fact->epoch = approval->task->epoch;
	fact->approval = approval->id;
	fact->by = call->by;
	fact->reason = call->note;
	return 1;
}

static int answer_append(abox_journal *journal, struct answer_call *call, abox_error **reterr)
{
	struct engine_step step = {.journal = journal, .decide = answer_decide, .userdata = call};
	int r;

	r = engine_check_journal(journal, true, reterr);
	if (r < 0)
		return r;
	if (!call->id)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, "id", "is required");
	r = engine_check_name("by", call->by, 255, reterr);
	if (r < 0)
		return r;
	r = engine_append_durable(&step, reterr);
	engine_step_clear(&step);
	return r < 0 ? r : 0;
}

int abox_approval_grant(
	abox_journal *journal, const char *id, const char *by, const char *note, abox_error **reterr)
{
	struct answer_call call = {id, by, note, FACT_APPROVAL_GRANT};

	return answer_append(journal, &call, reterr);
}

int abox_approval_deny(
	abox_journal *journal, const char *id, const char *by, const char *note, abox_error **reterr)
{
	struct answer_call call = {id, by, note, FACT_APPROVAL_DENY};

	return answer_append(journal, &call, reterr);
}

int abox_approval_revoke(
	abox_journal *journal, const char *id, const char *by, const char *note, abox_error **reterr)
{
	struct answer_call call = {id, by, note, FACT_APPROVAL_REVOKE};

	return answer_append(journal, &call, reterr);
}

/* ---- waiting ---- */

struct approval_look {
	const char *id;
	int state;
};

static int approval_look(
	struct view *view, const struct decide_context *context, void *userdata, abox_error **reterr)
{
	struct approval_look *call = userdata;
	struct view_approval *approval;
	int r;

	r = find_approval(view, call->id, &approval, reterr);
	if (r < 0)
		return r;
	call->state = decide_approval_state(view, approval, context);
	return 0;
}

int abox_approval_wait(abox_journal *journal, const char *id, uint64_t timeout_usec, abox_error **reterr)
{
	uint64_t deadline = clock_deadline(clock_monotonic_usec(), timeout_usec), pause = 2000, now, seq;
	struct approval_look call = {.id = id};
	struct timespec ts = {0};
	int r;

	r = engine_check_journal(journal, true, reterr);
	if (r < 0)
		return r;
	if (!id)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, "id", "is required");
	for (;;) {
		r = engine_look(journal, NULL, approval_look, &call, &seq, reterr);
		if (r < 0)
			return r;
		now = clock_monotonic_usec();
		if (call.state != ABOX_APPROVAL_PENDING || now >= deadline)
			break;
		ts.tv_nsec = (long)(MIN(pause, deadline - now) * NSEC_PER_USEC);
		nanosleep(&ts, NULL);
		pause = MIN(pause * 2, 50000);
	}
	r = engine_sync(journal, seq, reterr);
	return r < 0 ? r : call.state;
}
