/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How tasks end: canceled from any process, settled, finished, given up. Cancel closes admission in one
 * record; what was only intended is guaranteed not done, what was dispatched is told as it turns out.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "effect/owner.h"
#include "effect/write.h"

/* ---- ids of effects ---- */

struct id_list {
	const char *task;
	int state;
	char **ids;
	size_t n;
	size_t undecided; /* in flight or UNKNOWN */
};

static void id_list_clear(struct id_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		free(list->ids[i]);
	free((void *)list->ids);
	list->ids = NULL;
	list->n = 0;
}

static int id_list_look(
	struct view *view, const struct decide_context *context, void *userdata, abox_error **reterr)
{
	struct id_list *list = userdata;
	const struct view_task *task = view_task_get(view, list->task);
	const struct view_effect *first = task ? task->effects : NULL;
	size_t n = 0;

	list->undecided = 0;
	for (const struct view_effect *effect = first; effect; effect = effect->next) {
		n += effect->state == list->state;
		list->undecided +=
			effect->state == ABOX_EFFECT_DISPATCHED || effect->state == ABOX_EFFECT_UNKNOWN;
	}
	list->ids = calloc(n + 1, sizeof(*list->ids));
	if (!list->ids)
		return ABOX_E_MEMORY;
	for (const struct view_effect *effect = first; effect; effect = effect->next)
		if (effect->state == list->state) {
			list->ids[list->n] = strdup(effect->id);
			if (!list->ids[list->n++])
				return ABOX_E_MEMORY;
		}
	return 0;
}

/* Waits for each that is in flight; the dead become UNKNOWN. Returns how many are still undecided. */
static int settle(abox_journal *journal, const char *task, uint64_t timeout_usec, abox_error **reterr)
{
	struct id_list list = {.task = task, .state = ABOX_EFFECT_DISPATCHED};
	uint64_t seq = 0;
	int r;

	r = engine_look(journal, NULL, id_list_look, &list, NULL, reterr);
	for (size_t i = 0; r >= 0 && i < list.n; i++) {
		r = abox_effect_wait(journal, list.ids[i], timeout_usec, reterr);
		if (r == ABOX_E_TIMEOUT || r == ABOX_E_NOT_FOUND) {
			if (reterr)
				*reterr = abox_error_free(*reterr);
			r = 0;
		}
	}
	id_list_clear(&list);
	if (r < 0)
		return r;
	r = engine_look(journal, NULL, id_list_look, &list, &seq, reterr);
	id_list_clear(&list);
	if (r >= 0)
		r = engine_sync(journal, seq, reterr);
	return r < 0 ? r : (int)MIN(list.undecided, (size_t)INT32_MAX);
}

int abox_task_settle(abox_task *task, uint64_t timeout_usec, abox_error **reterr)
{
	int r;

	r = owner_check(task, reterr);
	return r < 0 ? r : settle(task->journal, task->id, timeout_usec, reterr);
}

/* ---- ending ---- */

struct end_call {
	const char *id;
	const char *by;
	const char *reason;
	uint64_t epoch; /* of the owner; 0: whoever, if the owner is dead */
	int status;     /* wanted */
	struct fact_bytes outcome;
	struct engine_blob blob;
	size_t outcome_len;
};

static int find_task(const struct view *view, const char *id, struct view_task **ret, abox_error **reterr)
{
	*ret = view_task_get(view, id);
	if (*ret)
		return 0;
	return error_set(reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_TASK, NULL, "there is no task '%s'", id);
}

static int check_over(const struct view_task *task, abox_error **reterr)
{
	if (!task->ended)
		return 0;
	return error_set(reterr, ABOX_E_ALREADY, ABOX_STAGE_TASK, NULL, "task '%s' is over: %s", task->id,
		abox_task_status_name(task->ended));
}

static int check_owner(const struct end_call *call, const struct view_task *task,
	const struct decide_context *context, abox_error **reterr)
{
	int alive;

	if (call->epoch)
		return decide_fence(task, call->epoch, reterr);
	alive = context->alive(context->userdata, task->executor, 0, reterr);
	if (alive > 0)
		return error_set(reterr, ABOX_E_BUSY, ABOX_STAGE_TASK, NULL,
			"the owner of task '%s' is alive: cancel it, or take control", task->id);
	return alive;
}

static int check_in_flight(const struct view_task *task, abox_error **reterr)
{
	for (const struct view_effect *effect = task->effects; effect; effect = effect->next)
		if (effect->state == ABOX_EFFECT_DISPATCHED)
			return decide_effect_error(
				reterr, ABOX_E_IN_PROGRESS, effect, "is still being executed");
	return 0;
}

static int end_decide(struct engine_step *step, struct fact *fact, abox_error **reterr)
{
	const struct end_call *call = step->userdata;
	struct view_task *task;
	int r;

	r = find_task(step->view, call->id, &task, reterr);
	if (r < 0)
		return r;
	r = check_over(task, reterr);
	if (r < 0)
		return r;
	r = check_owner(call, task, &step->context, reterr);
	if (r < 0)
		return r;
	r = check_in_flight(task, reterr);
	if (r < 0)
		return r;
	if (call->status == ABOX_TASK_FINISHED && task->boundary_seq &&
		!view_task_is_published(step->view, task))
		return error_set(reterr, ABOX_E_STATE, ABOX_STAGE_TASK, NULL,
			"task '%s' is beyond its commit boundary and not everything is published", task->id);
	fact->kind = FACT_TASK_END;
	fact->task = task->id;
	fact->epoch = task->epoch;
	fact->status =
		(uint32_t)(call->status == ABOX_TASK_FINISHED && task->canceled_seq ? ABOX_TASK_CANCELED
										    : call->status);
	fact->by = call->by;
	fact->reason = call->reason;
	fact->payload = call->outcome;
	fact->payload_blob = call->blob.text[0] ? call->blob.text : NULL;
	if (call->outcome_len < 4096)
		step->priority = JOURNAL_VITAL;
	return 1;
}

static int end_append(abox_journal *journal, abox_task *asker, struct end_call *call, abox_error **reterr)
{
	struct engine_step step = {
		.journal = journal, .asker = asker, .decide = end_decide, .userdata = call};
	int r;

	/* The dead are called UNKNOWN first, so that nothing stays in flight behind the end. */
	r = settle(journal, call->id, 0, reterr);
	if (r < 0)
		return r;
	r = engine_append_durable(&step, reterr);
	engine_step_clear(&step);
	return r < 0 ? r : 0;
}

int abox_task_end(abox_task *task, const char *outcome, abox_error **reterr)
{
	struct end_call call = {.status = ABOX_TASK_FINISHED};
	int r;

	r = owner_check(task, reterr);
	if (r < 0)
		return r;
	if (!task->controls)
		return error_set(reterr, ABOX_E_STATE, ABOX_STAGE_TASK, NULL, "only the owner ends a task");
	call.outcome_len = outcome ? strlen(outcome) : 0;
	if (call.outcome_len > ENGINE_INLINE_BYTES)
		return error_set(reterr, ABOX_E_LIMIT, ABOX_STAGE_TASK, "outcome", "has at most 64 KiB");
	r = engine_store(task->journal, outcome, call.outcome_len, &call.outcome, &call.blob, reterr);
	if (r < 0)
		return r;
	call.id = task->id;
	call.epoch = task->epoch;
	return end_append(task->journal, task, &call, reterr);
}

int abox_task_abandon(
	abox_journal *journal, const char *id, const char *by, const char *reason, abox_error **reterr)
{
	struct end_call call = {.id = id, .by = by, .reason = reason, .status = ABOX_TASK_ABANDONED};
	int r;

	r = engine_check_journal(journal, true, reterr);
	if (r < 0)
		return r;
	r = engine_check_name("by", by, 255, reterr);
	if (r < 0)
		return r;
	r = engine_check_name("id", id, 255, reterr);
	return r < 0 ? r : end_append(journal, NULL, &call, reterr);
}

struct outcome_call {
	abox_journal *journal;
	char *text;
	char *blob;
};

static int outcome_visit(void *userdata, const struct journal_record *record, abox_error **reterr)
{
	struct outcome_call *call = userdata;
	struct fact fact = {0};
	size_t len = 0;
	int r;

	if (strcmp(record->type, fact_type(FACT_TASK_END)) != 0)
		return 0;
	r = engine_read(&fact, record, reterr);
	if (r >= 0)
		r = engine_take(call->journal, &fact.payload, NULL, &call->text, &len, reterr);
	if (r >= 0 && fact.payload_blob && !(call->blob = strdup(fact.payload_blob)))
		r = ABOX_E_MEMORY;
	fact_clear(&fact);
	return r < 0 ? r : 1;
}

int abox_task_get_outcome(abox_task *task, char **rettext, abox_error **reterr)
{
	_cleanup_(text_clear) struct text key = TEXT_INIT;
	struct outcome_call call = {0};
	size_t len = 0;
	int r;

	r = owner_check(task, reterr);
	if (r < 0)
		return r;
	if (!rettext)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_TASK, NULL, "rettext is required");
	text_add(&key, "task:");
	text_add(&key, task->id);
	if (key.failed)
		return ABOX_E_MEMORY;
	/* Found by key: the end of a task is carried over when its segment goes (effects 1.11). */
	call.journal = task->journal;
	r = journal_find(task->journal, key.data, outcome_visit, &call, reterr);
	if (r >= 0 && call.blob)
		r = engine_take(task->journal, NULL, call.blob, &call.text, &len, reterr);
	free(call.blob);
	if (r < 0) {
		free(call.text);
		return r;
	}
	*rettext = call.text;
	return 0;
}

/* ---- cancel ---- */

struct cancel_call {
	const char *id;
	const char *by;
	const char *reason;
	bool before; /* it was canceled before */
	bool owner_lives;
};

static int cancel_decide(struct engine_step *step, struct fact *fact, abox_error **reterr)
{
	struct cancel_call *call = step->userdata;
	struct view_task *task;
	int r;

	r = find_task(step->view, call->id, &task, reterr);
	if (r < 0)
		return r;
	call->before = task->canceled_seq != 0;
	if (task->ended && !(call->before && task->ended == ABOX_TASK_CANCELED))
		return check_over(task, reterr);
	if (task->boundary_seq)
		return error_set(reterr, ABOX_E_ALREADY, ABOX_STAGE_TASK, NULL,
			"task '%s' is beyond its commit boundary", task->id);
	r = step->context.alive(step->context.userdata, task->executor, 0, reterr);
	if (r < 0)
		return r;
	call->owner_lives = r > 0;
	if (call->before)
		return 0;
	fact->kind = FACT_TASK_CANCEL;
	fact->task = task->id;
	fact->epoch = task->epoch;
	fact->by = call->by;
	fact->reason = call->reason;
	step->priority = JOURNAL_VITAL;
	return 1;
}

static void write_ids(struct text *text, const struct view_task *task, const char *name, int state, int also)
{
	write_open(text, name, '[');
	for (const struct view_effect *effect = task->effects; effect; effect = effect->next)
		if (effect->state == state || effect->state == also)
			write_element(text, effect->id);
	write_close(text, ']');
}

/* From the history: a task that ended keeps only what is open. */
static int write_cancel(abox_journal *journal, const char *id, char **retjson, abox_error **reterr)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	const struct view_task *task;
	struct view view;
	int r;

	r = engine_history(journal, id, &view, reterr);
	if (r < 0)
		return r;
	task = view_task_get(&view, id);
	write_open(&text, NULL, '{');
	if (task) {
		write_ids(&text, task, "not_done", ABOX_EFFECT_CANCELED, ABOX_EFFECT_ABSENT);
		write_ids(&text, task, "done", ABOX_EFFECT_COMMITTED, ABOX_EFFECT_COMMITTED);
		write_ids(&text, task, "failed", ABOX_EFFECT_FAILED, ABOX_EFFECT_FAILED);
		write_ids(&text, task, "in_flight", ABOX_EFFECT_DISPATCHED, ABOX_EFFECT_DISPATCHED);
		write_ids(&text, task, "unknown", ABOX_EFFECT_UNKNOWN, ABOX_EFFECT_ABANDONED);
	}
	write_close(&text, '}');
	view_clear(&view);
	return text_take(&text, retjson);
}

/* Nobody is left to do it. */
static int end_canceled(abox_journal *journal, const char *id, abox_error **reterr)
{
	struct end_call call = {.id = id, .status = ABOX_TASK_CANCELED};
	int r;

	r = end_append(journal, NULL, &call, reterr);
	if (r != ABOX_E_BUSY && r != ABOX_E_IN_PROGRESS && r != ABOX_E_ALREADY)
		return r;
	/* Somebody took control meanwhile, or another executor is still sending: they settle it. */
	if (reterr)
		*reterr = abox_error_free(*reterr);
	return 0;
}

int abox_task_cancel(abox_journal *journal, const char *id, const char *by, const char *reason,
	char **retjson, abox_error **reterr)
{
	struct cancel_call call = {.id = id, .by = by, .reason = reason};
	struct engine_step step = {.journal = journal, .decide = cancel_decide, .userdata = &call};
	int r;

	r = engine_check_journal(journal, true, reterr);
	if (r < 0)
		return r;
	r = engine_check_name("by", by, 255, reterr);
	if (r < 0)
		return r;
	r = engine_check_name("id", id, 255, reterr);
	if (r < 0)
		return r;
	r = engine_append_durable(&step, reterr);
	engine_step_clear(&step);
	if (r < 0)
		return r;
	if (!call.owner_lives) {
		r = end_canceled(journal, id, reterr);
		if (r < 0)
			return r;
	}
	if (retjson) {
		r = write_cancel(journal, id, retjson, reterr);
		if (r < 0)
			return r;
	}
	return call.before;
}

static int canceled_look(
	struct view *view, const struct decide_context *context, void *userdata, abox_error **reterr)
{
	const struct view_task *task = view_task_get(view, userdata);

	return task && task->canceled_seq;
}

int abox_task_canceled(abox_task *task, abox_error **reterr)
{
	uint64_t seq = 0;
	int r, synced;

	r = owner_check(task, reterr);
	if (r < 0)
		return r;
	r = engine_look(task->journal, task, canceled_look, task->id, &seq, reterr);
	if (r <= 0)
		return r;
	synced = engine_sync(task->journal, seq, reterr);
	return synced < 0 ? synced : 1;
}
