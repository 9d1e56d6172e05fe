/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a resume would do, resuming, and tasks as JSON. A plan changes nothing; a resume takes control and
 * does each step of the plan that needs no person: it calls the dead UNKNOWN and asks the outside about
 * checkable effects.
 */
#include <stdlib.h>
#include <string.h>

#include "effect/owner.h"
#include "effect/write.h"

/* ---- the plan ---- */

struct advice {
	const char *what; /* skip replay run reconcile claim ask wait */
	const char *why;
};

static struct advice advise_unknown(const struct view_effect *effect)
{
	if (effect->overridden)
		return (struct advice){"run", "may have happened; somebody allowed another try"};
	switch (effect->effect_class) {
	case ABOX_EFFECT_CHECKABLE:
		return (struct advice){"reconcile", "may have happened; the outside can be asked"};
	case ABOX_EFFECT_IDEMPOTENT:
	case ABOX_EFFECT_PURE:
		if (effect->try < effect->max_tries)
			return (struct advice){
				"run", "may have happened; it can be sent again under the same key"};
		return (struct advice){"ask", "may have happened; its tries are used up"};
	default:
		return (struct advice){"ask", "may have happened; somebody has to decide"};
	}
}

static struct advice advise_effect(const struct view_effect *effect, int alive)
{
	if (effect->misfit)
		return (struct advice){"ask", "its records fit no rule"};
	switch (effect->state) {
	case ABOX_EFFECT_NONE:
		if (effect->bound_away)
			return (struct advice){"skip", "claimed for an earlier effect"};
		if (effect->allowed)
			return (struct advice){"run", "somebody called it new"};
		return (struct advice){"claim", "may be a repeat of an earlier effect"};
	case ABOX_EFFECT_INTENDED:
		if (effect->deferred)
			return (struct advice){"run", "held back until the commit boundary"};
		return (struct advice){"run", "nothing has left"};
	case ABOX_EFFECT_DISPATCHED:
		if (alive)
			return (struct advice){"wait", "its executor lives and may still be sending"};
		return advise_unknown(effect);
	case ABOX_EFFECT_UNKNOWN:
		return advise_unknown(effect);
	case ABOX_EFFECT_ABSENT:
		return (struct advice){"run", "it did not happen"};
	case ABOX_EFFECT_FAILED:
		if (!view_effect_is_final(effect))
			return (struct advice){"run", "failed, and may be tried again"};
		return (struct advice){"replay", "failed for good"};
	case ABOX_EFFECT_COMMITTED:
		return (struct advice){"replay", "done; the result is stored"};
	case ABOX_EFFECT_CANCELED:
		return (struct advice){"skip", "canceled and not done"};
	default:
		return (struct advice){"skip", "abandoned"};
	}
}

static struct advice advise_stage(const struct view_stage *stage, bool owner_lives)
{
	if (stage->run_again)
		return (struct advice){"run", "somebody said it was not done"};
	if (stage->done)
		return (struct advice){"skip", "done"};
	if (stage->running && owner_lives)
		return (struct advice){"wait", "running"};
	if (stage->running && !stage->repeatable)
		return (struct advice){"ask", "begun without an end, and consequential"};
	if (stage->runs >= stage->max_runs)
		return (struct advice){"ask", "its runs are used up"};
	if (stage->running)
		return stage->causes & 1u << ABOX_STAGE_CAUSE_OWNER_LOST
			       ? (struct advice){"run", "its owner was lost; it can be repeated"}
			       : (struct advice){"ask", "its owner was lost, and that is not to be retried"};
	return stage->causes & 1u << stage->cause
		       ? (struct advice){"run", "failed, and may be tried again"}
		       : (struct advice){"ask", "failed, and its cause is not to be retried"};
}

static void write_advice(struct text *text, const char *name, const char *value, struct advice advice)
{
	write_open(text, NULL, '{');
	write_text(text, name, value);
	write_text(text, "do", advice.what);
	write_text(text, "why", advice.why);
	write_close(text, '}');
}

struct plan_call {
	const char *id;
	struct text text;
};

static int write_stages(struct text *text, const struct view_task *task, bool owner_lives)
{
	write_open(text, "stages", '[');
	for (const struct view_stage *stage = task->stages; stage; stage = stage->next)
		write_advice(text, "name", stage->name, advise_stage(stage, owner_lives));
	write_close(text, ']');
	return 0;
}

static int write_effects(struct text *text, const struct view_task *task,
	const struct decide_context *context, abox_error **reterr)
{
	write_open(text, "effects", '[');
	for (const struct view_effect *effect = task->effects; effect; effect = effect->next) {
		int alive = 0;

		if (effect->state == ABOX_EFFECT_DISPATCHED) {
			alive = context->alive(context->userdata, effect->executor, effect->handle, reterr);
			if (alive < 0)
				return alive;
		}
		write_open(text, NULL, '{');
		write_text(text, "id", effect->id);
		write_text(text, "what", effect->what);
		write_text(text, "state", view_effect_state_name(effect));
		write_text(text, "do", advise_effect(effect, alive).what);
		write_text(text, "why", advise_effect(effect, alive).why);
		write_close(text, '}');
	}
	write_close(text, ']');
	return 0;
}

static void write_resources(struct text *text, const struct view_task *task)
{
	write_open(text, "resources", '[');
	for (const struct view_resource *resource = task->resources; resource; resource = resource->next) {
		write_open(text, NULL, '{');
		write_text(text, "kind", resource->kind);
		write_bytes_member(text, "id", resource->id, strlen(resource->id));
		write_text(text, "cleanup", resource->cleanup);
		write_flag(text, "duty", resource->duty);
		write_close(text, '}');
	}
	write_close(text, ']');
}

static int plan_look(
	struct view *view, const struct decide_context *context, void *userdata, abox_error **reterr)
{
	struct plan_call *call = userdata;
	const struct view_task *task = view_task_get(view, call->id);
	struct text *text = &call->text;
	int status, alive, r;

	status = decide_status(view, task, context, reterr);
	if (status < 0)
		return status;
	if (!task || status == ABOX_TASK_NEW)
		return error_set(
			reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_TASK, NULL, "there is no task '%s'", call->id);
	alive = context->alive(context->userdata, task->executor, 0, reterr);
	if (alive < 0)
		return alive;
	text_clear(text);
	write_open(text, NULL, '{');
	write_text(text, "task", task->id);
	write_text(text, "status", abox_task_status_name(status));
	write_number(text, "attempts", task->epoch);
	write_number(text, "checkpoint", task->checkpoint_seq);
	write_stages(text, task, alive > 0);
	r = write_effects(text, task, context, reterr);
	if (r < 0)
		return r;
	write_resources(text, task);
	write_close(text, '}');
	return 0;
}

static int make_plan(
	abox_journal *journal, abox_task *asker, const char *id, char **retjson, abox_error **reterr)
{
	struct plan_call call = {.id = id};
	uint64_t seq = 0;
	int r;

	r = engine_look(journal, asker, plan_look, &call, &seq, reterr);
	if (r >= 0 && journal_can_append(journal))
		r = engine_sync(journal, seq, reterr);
	if (r < 0) {
		text_clear(&call.text);
		return r;
	}
	return text_take(&call.text, retjson);
}

int abox_task_resume_plan(abox_journal *journal, const char *id, char **retjson, abox_error **reterr)
{
	int r;

	r = engine_check_journal(journal, false, reterr);
	if (r < 0)
		return r;
	if (!id || !retjson)
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_TASK, NULL, "id and retjson are required");
	return make_plan(journal, NULL, id, retjson, reterr);
}

/* ---- resume ---- */

struct checkable {
	const char *task;
	char **ids;
	size_t n;
};

static int checkable_look(
	struct view *view, const struct decide_context *context, void *userdata, abox_error **reterr)
{
	struct checkable *call = userdata;
	const struct view_task *task = view_task_get(view, call->task);
	size_t n = 0;

	for (const struct view_effect *effect = task ? task->effects : NULL; effect; effect = effect->next)
		n += effect->state == ABOX_EFFECT_UNKNOWN && effect->effect_class == ABOX_EFFECT_CHECKABLE;
	call->ids = calloc(n + 1, sizeof(*call->ids));
	if (!call->ids)
		return ABOX_E_MEMORY;
	for (const struct view_effect *effect = task ? task->effects : NULL; effect; effect = effect->next)
		if (effect->state == ABOX_EFFECT_UNKNOWN && effect->effect_class == ABOX_EFFECT_CHECKABLE) {
			call->ids[call->n] = strdup(effect->id);
			if (!call->ids[call->n++])
				return ABOX_E_MEMORY;
		}
	return 0;
}

/* What cannot be told, or not yet, stays in the plan. */
static int reconcile_all(abox_task *task, abox_effect_check_fn check_fn, void *userdata, abox_error **reterr)
{
	struct checkable call = {.task = task->id};
	int r;

	r = engine_look(task->journal, task, checkable_look, &call, NULL, reterr);
	for (size_t i = 0; r >= 0 && i < call.n; i++) {
		r = abox_effect_reconcile(task, call.ids[i], check_fn, userdata, reterr);
		if (r == ABOX_E_UNKNOWN || r == ABOX_E_BUSY || r == ABOX_E_CONFLICT || r == ABOX_E_STATE ||
			r == ABOX_E_IN_PROGRESS) {
			if (reterr)
				*reterr = abox_error_free(*reterr);
			r = 0;
		}
	}
	for (size_t i = 0; i < call.n; i++)
		free(call.ids[i]);
	free((void *)call.ids);
	return r < 0 ? r : 0;
}

int abox_task_resume(abox_journal *journal, const char *id, const struct abox_task_options *options,
	abox_effect_check_fn check_fn, void *userdata, abox_task **ret, char **retjson, abox_error **reterr)
{
	_cleanup_(owner_unrefp) abox_task *task = NULL;
	struct abox_task_options control;
	int status, r;

	if (!ret || (options && options->size < sizeof(*options)))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_TASK, NULL,
			"ret is required, and options need their size");
	abox_task_options_init(&control);
	if (options)
		control = *options;
	control.access = ABOX_TASK_CONTROL;
	control.must_exist = 1;
	status = abox_task_open(journal, id, &control, &task, reterr);
	if (status < 0)
		return status;
	if (task->controls) {
		r = abox_task_settle(task, 0, reterr);
		if (r >= 0 && check_fn)
			r = reconcile_all(task, check_fn, userdata, reterr);
		if (r < 0)
			return r;
	}
	if (retjson) {
		r = make_plan(journal, task, id, retjson, reterr);
		if (r < 0)
			return r;
	}
	*ret = steal_ptr(task);
	return status;
}

/* ---- list and show ---- */

struct list_call {
	bool open_only;
	struct text text;
};

static int write_task_head(struct text *text, const struct view *view, const struct view_task *task,
	const struct decide_context *context, abox_error **reterr)
{
	int status = decide_status(view, task, context, reterr);

	if (status < 0)
		return status;
	write_text(text, "id", task->id);
	write_text(text, "status", abox_task_status_name(status));
	write_number(text, "attempts", task->epoch);
	write_text(text, "identity", task->identity);
	write_text(text, "description", task->description);
	write_text(text, "canceled_by", task->canceled_by);
	if (!task->ended && task->pid) {
		write_open(text, "owner", '{');
		write_text(text, "host", task->host);
		write_number(text, "pid", task->pid);
		write_number(text, "pid_namespace", task->pid_namespace);
		write_close(text, '}');
	}
	return 0;
}

static int list_look(
	struct view *view, const struct decide_context *context, void *userdata, abox_error **reterr)
{
	struct list_call *call = userdata;
	int r;

	text_clear(&call->text);
	write_open(&call->text, NULL, '[');
	for (const struct view_task *task = view->first_task; task; task = task->next) {
		if (call->open_only && task->ended)
			continue;
		write_open(&call->text, NULL, '{');
		r = write_task_head(&call->text, view, task, context, reterr);
		if (r < 0)
			return r;
		write_close(&call->text, '}');
	}
	write_close(&call->text, ']');
	return 0;
}

int abox_task_list(abox_journal *journal, int open_only, char **retjson, abox_error **reterr)
{
	struct list_call call = {.open_only = open_only != 0};
	uint64_t seq = 0;
	int r;

	r = engine_check_journal(journal, false, reterr);
	if (r < 0)
		return r;
	if (!retjson)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_TASK, NULL, "retjson is required");
	r = engine_look(journal, NULL, list_look, &call, &seq, reterr);
	if (r >= 0 && journal_can_append(journal))
		r = engine_sync(journal, seq, reterr);
	if (r < 0) {
		text_clear(&call.text);
		return r;
	}
	return text_take(&call.text, retjson);
}

struct show_call {
	const char *id;
	const struct view *history;
	struct text text;
};

static void write_stage_state(struct text *text, const struct view_stage *stage)
{
	write_open(text, NULL, '{');
	write_text(text, "name", stage->name);
	write_text(text, "class", stage->repeatable ? "repeatable" : "consequential");
	write_text(text, "state", stage->done ? "done" : stage->running ? "running" : "failed");
	if (stage->last_failed)
		write_text(text, "cause", abox_stage_cause_name(stage->cause));
	write_number(text, "runs", stage->runs);
	write_number(text, "attempt", stage->epoch);
	write_close(text, '}');
}

/* The head from what is now (who lives), the rest from the records, also of a task that is over. */
static int show_look(
	struct view *view, const struct decide_context *context, void *userdata, abox_error **reterr)
{
	struct show_call *call = userdata;
	const struct view_task *now = view_task_get(view, call->id),
			       *task = view_task_get(call->history, call->id);
	struct text *text = &call->text;
	int r;

	if (!now || !task)
		return error_set(
			reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_TASK, NULL, "there is no task '%s'", call->id);
	text_clear(text);
	write_open(text, NULL, '{');
	r = write_task_head(text, view, now, context, reterr);
	if (r < 0)
		return r;
	write_number(text, "checkpoint", task->checkpoint_seq);
	write_number(text, "boundary", task->boundary_seq);
	write_open(text, "stages", '[');
	for (const struct view_stage *stage = task->stages; stage; stage = stage->next)
		write_stage_state(text, stage);
	write_close(text, ']');
	write_open(text, "effects", '[');
	for (const struct view_effect *effect = task->effects; effect; effect = effect->next) {
		write_open(text, NULL, '{');
		write_effect(text, effect, context);
		write_close(text, '}');
	}
	write_close(text, ']');
	write_open(text, "approvals", '[');
	for (const struct view_approval *approval = task->approvals; approval; approval = approval->next) {
		write_open(text, NULL, '{');
		write_approval(text, call->history, approval, context);
		write_close(text, '}');
	}
	write_close(text, ']');
	write_resources(text, task);
	write_close(text, '}');
	return 0;
}

int abox_task_show(abox_journal *journal, const char *id, char **retjson, abox_error **reterr)
{
	struct show_call call = {.id = id};
	struct view history;
	int r;

	r = engine_check_journal(journal, false, reterr);
	if (r < 0)
		return r;
	if (!id || !retjson)
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_TASK, NULL, "id and retjson are required");
	r = engine_history(journal, id, &history, reterr);
	if (r < 0)
		return r;
	call.history = &history;
	r = engine_look(journal, NULL, show_look, &call, NULL, reterr);
	view_clear(&history);
	if (r < 0) {
		text_clear(&call.text);
		return r;
	}
	return text_take(&call.text, retjson);
}
