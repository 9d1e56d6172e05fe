/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The state machine of tasks, effects, approvals and resources. Promises: the state after a fact depends on
 * the facts up to it and nothing else; a fact that no rule allows changes nothing but marks its effect, which
 * is then refused. Leaves to others: who may append what and when (decide.c), locks and disks (engine.c).
 *
 * A closed task keeps its end record and what is not final; everything else of it is forgotten
 * (effects 1.11).
 */
#include "effect/view-inner.h"

#include <stdlib.h>
#include <string.h>

/* ---- tasks ---- */

static int apply_control(struct view *view, const struct fact *fact)
{
	struct view_task *task;
	int r;

	r = view_task_make(view, fact->task, fact->seq, &task);
	if (r < 0)
		return r;
	if (fact->epoch != task->epoch + 1 || task->ended)
		return 1;
	task->epoch = fact->epoch;
	task->pid = fact->pid;
	task->pid_start = fact->pid_start;
	task->pid_namespace = fact->pid_namespace;
	task->lease_usec = fact->lease_usec;
	view_set_boot(&task->boot, fact->boot);
	view_set_boot(&task->lease_boot, fact->boot);
	task->lease_until_usec = fact->lease_usec ? fact->boot_usec + fact->lease_usec : UINT64_MAX;
	if ((fact->identity && !task->identity && view_set_text(&task->identity, fact->identity) < 0) ||
		(fact->description && !task->description &&
			view_set_text(&task->description, fact->description) < 0) ||
		view_set_text(&task->executor, fact->executor) < 0 ||
		view_set_text(&task->host, fact->host) < 0)
		return ABOX_E_MEMORY;
	return 0;
}

static int apply_heartbeat(struct view *view, const struct fact *fact)
{
	struct view_task *task = view_task_get(view, fact->task);

	if (!task || fact->epoch != task->epoch)
		return 1;
	view_set_boot(&task->lease_boot, fact->boot);
	task->lease_until_usec = fact->boot_usec + task->lease_usec;
	return 0;
}

static int apply_checkpoint(struct view *view, const struct fact *fact)
{
	struct view_task *task = view_task_get(view, fact->task);

	if (!task || fact->epoch != task->epoch)
		return 1;
	task->checkpoint_seq = fact->seq;
	return 0;
}

static void effect_set_unknown(struct view_effect *effect, const struct fact *fact)
{
	effect->state = ABOX_EFFECT_UNKNOWN;
	effect->state_seq = fact->seq;
	effect->overridden = false;
	view_set_boot(&effect->boot, fact->boot);
	effect->boot_usec = fact->boot_usec;
	effect->unknown_time_usec = fact->time_usec;
}

/* Cancel and end: what is INTENDED never leaves. CANCELED only if no try may have happened (effects 1.3). */
static void task_cancel_intended(struct view_task *task, const struct fact *fact)
{
	for (struct view_effect *effect = task->effects; effect; effect = effect->next) {
		if (effect->state != ABOX_EFFECT_INTENDED)
			continue;
		if (effect->maybe) {
			effect_set_unknown(effect, fact);
		} else {
			effect->state = ABOX_EFFECT_CANCELED;
			effect->state_seq = fact->seq;
		}
	}
}

static int apply_cancel(struct view *view, const struct fact *fact)
{
	struct view_task *task = view_task_get(view, fact->task);

	if (!task || task->ended || task->canceled_seq || task->boundary_seq)
		return 1;
	task->canceled_seq = fact->seq;
	task_cancel_intended(task, fact);
	return view_set_text(&task->canceled_by, fact->by);
}

static int apply_boundary(struct view *view, const struct fact *fact)
{
	struct view_task *task = view_task_get(view, fact->task);
	struct view_effect *effect;
	struct view_approval *approval;
	int r;

	if (!task || fact->epoch != task->epoch || task->ended || task->canceled_seq || task->boundary_seq)
		return 1;
	if (view_set_text(&task->change_set, fact->change_set) < 0 ||
		view_copy_list(&task->artifacts, fact->artifacts) < 0)
		return ABOX_E_MEMORY;
	r = view_copy_list(&task->bound_effects, fact->effects);
	if (r < 0)
		return r;
	task->boundary_seq = fact->seq;
	for (size_t i = 0; task->bound_effects[i]; i++) {
		effect = view_effect_get(view, task->bound_effects[i]);
		if (!effect)
			continue;
		effect->bound = true;
		effect->credit = true;
	}
	for (size_t i = 0; fact->approvals && fact->approvals[i]; i++) {
		approval = view_approval_get(view, fact->approvals[i]);
		if (approval)
			approval->used++;
	}
	return 0;
}

static int apply_step(struct view *view, const struct fact *fact)
{
	struct view_task *task = view_task_get(view, fact->task);

	if (!task || fact->epoch != task->epoch || !task->boundary_seq || fact->step != task->done_steps + 1)
		return 1;
	task->done_steps = fact->step;
	return 0;
}

static void drop_result(struct view *view, struct view_effect *effect)
{
	if (effect->result)
		view->kept_bytes -= sizeof(*effect->result) + effect->result->len;
	view_result_free(effect->result);
	effect->result = NULL;
}

/* Effects that are not final stay (effects 1.11), with the keys that lead to them. */
static void task_forget(struct view *view, struct view_task *task)
{
	struct view_effect *kept = NULL, **last = &kept;
	struct view_resource *resources = NULL, **last_resource = &resources;

	for (struct view_effect *effect = task->effects, *next; effect; effect = next) {
		next = effect->next;
		effect->next = NULL;
		if (effect->state == ABOX_EFFECT_UNKNOWN || effect->state == ABOX_EFFECT_DISPATCHED) {
			*last = effect;
			last = &effect->next;
		} else {
			drop_result(view, effect);
			map_remove_string(&view->effects, effect->id);
			view_effect_free(effect);
		}
	}
	task->effects = NULL;
	for (struct view_resource *resource = task->resources, *next; resource; resource = next) {
		next = resource->next;
		resource->next = NULL;
		if (resource->duty) {
			*last_resource = resource;
			last_resource = &resource->next;
		} else {
			view_resource_free(resource);
		}
	}
	task->resources = NULL;
	for (struct view_approval *approval = task->approvals; approval; approval = approval->next)
		map_remove_string(&view->approvals, approval->id);
	view_task_free_parts(task);
	task->aliases = NULL;
	task->approvals = NULL;
	task->stages = NULL;
	task->last_approval = &task->approvals;
	task->last_stage = &task->stages;
	task->effects = kept;
	task->last_effect = kept ? last : &task->effects;
	task->resources = resources;
	for (struct view_effect *effect = kept; effect; effect = effect->next)
		map_put(&task->keys, effect->scope_key, effect->scope_key_len, effect);
}

static int apply_end(struct view *view, const struct fact *fact)
{
	struct view_task *task;
	int r;

	/* A tombstone that was carried over stands alone: the task is made from it. */
	r = view_task_make(view, fact->task, fact->seq, &task);
	if (r < 0)
		return r;
	if (task->ended || fact->status < ABOX_TASK_FINISHED)
		return 1;
	task->ended = (int)fact->status;
	task->ended_seq = fact->seq;
	if (fact->epoch > task->epoch)
		task->epoch = fact->epoch;
	r = view_set_text(&task->ended_by, fact->by);
	if (r < 0)
		return r;
	task_cancel_intended(task, fact);
	if (!view->keep_all)
		task_forget(view, task);
	return 0;
}

/* ---- stages and resources ---- */

static void stage_set_policy(struct view_stage *stage, const struct fact *fact)
{
	stage->repeatable = fact->repeatable != 0;
	stage->max_runs = (uint32_t)fact->max_runs;
	stage->causes = (uint32_t)fact->causes;
	stage->backoff_usec = fact->backoff_usec;
	stage->max_backoff_usec = fact->max_backoff_usec;
	stage->jitter_percent = (uint32_t)fact->jitter_percent;
}

static int apply_stage_begin(struct view *view, const struct fact *fact)
{
	struct view_task *task = view_task_get(view, fact->task);
	struct view_stage *stage;
	int r;

	if (!task || !fact->name || fact->epoch != task->epoch || task->ended)
		return 1;
	r = view_stage_make(task, fact->name, &stage);
	if (r < 0)
		return r;
	stage_set_policy(stage, fact);
	stage->running = true;
	stage->run_again = false;
	stage->last_failed = false;
	stage->epoch = fact->epoch;
	stage->runs++;
	return 0;
}

static int apply_stage_end(struct view *view, const struct fact *fact)
{
	struct view_task *task = view_task_get(view, fact->task);
	struct view_stage *stage = task && fact->name ? view_stage_get(task, fact->name) : NULL;

	if (!stage || !stage->running || fact->epoch != task->epoch)
		return 1;
	stage->running = false;
	stage->done = fact->done != 0;
	stage->last_failed = !stage->done;
	stage->cause = (int)fact->cause;
	view_set_boot(&stage->boot, fact->boot);
	stage->ended_usec = fact->boot_usec;
	return 0;
}

static int apply_stage_decided(struct view *view, const struct fact *fact)
{
	struct view_task *task = view_task_get(view, fact->task);
	struct view_stage *stage = task && fact->name ? view_stage_get(task, fact->name) : NULL;

	if (!stage || !stage->running)
		return 1;
	stage->running = false;
	stage->done = fact->done != 0;
	stage->run_again = !stage->done;
	return 0;
}

static int apply_resource_created(struct view *view, const struct fact *fact)
{
	struct view_task *task = view_task_get(view, fact->task);
	struct view_resource *resource;
	char *id;

	if (!task || !fact->name || !fact->target.data)
		return 1;
	id = view_bytes_dup(&fact->target);
	if (!id)
		return ABOX_E_MEMORY;
	resource = view_resource_get(task, fact->name, id);
	if (resource) { /* noted again: what counts is the newest */
		free(id);
		resource->duty = fact->duty != 0;
		return view_set_text(&resource->cleanup, fact->cleanup);
	}
	free(id);
	return view_resource_make(task, fact);
}

static int apply_resource_removed(struct view *view, const struct fact *fact)
{
	struct view_task *task = view_task_get(view, fact->task);
	struct view_resource **at, *resource;
	char *id;

	if (!task || !fact->name || !fact->target.data)
		return 1;
	id = view_bytes_dup(&fact->target);
	if (!id)
		return ABOX_E_MEMORY;
	resource = view_resource_get(task, fact->name, id);
	free(id);
	if (!resource)
		return 1;
	for (at = &task->resources; *at != resource; at = &(*at)->next)
		;
	*at = resource->next;
	view_resource_free(resource);
	return 0;
}

/* ---- effects ---- */

/* Which state a next try may open from, and whether what was before may have happened. */
static bool may_open_try(const struct view_effect *effect, bool *retmaybe)
{
	*retmaybe = effect->maybe;
	switch (effect->state) {
	case ABOX_EFFECT_ABSENT:
		return true;
	case ABOX_EFFECT_FAILED:
		return effect->retryable;
	case ABOX_EFFECT_UNKNOWN:
		*retmaybe = true;
		return effect->overridden || effect->effect_class == ABOX_EFFECT_IDEMPOTENT ||
		       effect->effect_class == ABOX_EFFECT_PURE;
	default:
		return false;
	}
}

static int effect_intend(struct view_effect *effect, const struct fact *fact)
{
	bool maybe = effect->maybe;

	if (effect->bound_away)
		return 1;
	if (effect->state == ABOX_EFFECT_INTENDED || effect->state == ABOX_EFFECT_NONE) {
		if (fact->try != (effect->state == ABOX_EFFECT_NONE ? 1 : effect->try))
			return 1;
	} else if (!may_open_try(effect, &maybe) || fact->try != effect->try + 1) {
		return 1;
	}
	effect->maybe = maybe;
	effect->state = ABOX_EFFECT_INTENDED;
	effect->state_seq = fact->seq;
	effect->try = (uint32_t)fact->try;
	effect->epoch = fact->epoch;
	effect->claimed = fact->epoch;
	effect->handle = fact->handle;
	effect->overridden = false;
	effect->retryable = false;
	effect->needs_approval = effect->needs_approval || fact->needs_approval;
	effect->result_seq = 0;
	if (fact->approval && view_set_text(&effect->approval, fact->approval) < 0)
		return ABOX_E_MEMORY;
	if (fact->payload.data || fact->payload_blob)
		effect->payload_seq = fact->seq;
	return view_set_text(&effect->executor, fact->executor);
}

static int apply_intended(struct view *view, const struct fact *fact)
{
	struct view_task *task = view_task_get(view, fact->task);
	struct view_effect *effect;
	int r;

	if (!task || !fact->effect || fact->epoch != task->epoch || task->ended || task->canceled_seq)
		return 1;
	effect = view_effect_get(view, fact->effect);
	if (!effect) {
		if (fact->try != 1 || map_get_string(&view->effects, fact->effect))
			return 1;
		if (view_effect_by_key(task, fact->key.data ? fact->key.data : "", fact->derived != 0))
			return 1;
		r = view_effect_make(view, task, fact, &effect);
		if (r < 0)
			return r;
	}
	return effect_intend(effect, fact);
}

static int apply_ambiguous(struct view *view, const struct fact *fact)
{
	struct view_task *task = view_task_get(view, fact->task);
	struct view_effect *effect;
	int r;

	if (!task || !fact->effect || fact->epoch != task->epoch || task->ended ||
		view_effect_get(view, fact->effect) ||
		view_effect_by_key(task, fact->key.data ? fact->key.data : "", fact->derived != 0))
		return 1;
	r = view_effect_make(view, task, fact, &effect);
	if (r < 0)
		return r;
	effect->state_seq = fact->seq;
	return 0;
}

static int apply_allowed(struct view *view, const struct fact *fact)
{
	struct view_effect *effect = view_effect_get(view, fact->effect);

	if (!effect || effect->state != ABOX_EFFECT_NONE || effect->bound_away)
		return 1;
	effect->allowed = true;
	return 0;
}

/* A key that leads to an effect of its own is not led away from it. */
static bool claims_free_key(const struct view_task *task, const struct fact *fact)
{
	const struct view_effect *known =
		view_effect_by_key(task, fact->key.data ? fact->key.data : "", fact->derived != 0);

	return fact->key.len > 0 && (!known || known->state == ABOX_EFFECT_NONE);
}

/* The wish, ambiguous until now or told with its key, leads to the earlier effect for good (effects 1.1). */
static int apply_claimed(struct view *view, const struct fact *fact)
{
	struct view_effect *wish = view_effect_get(view, fact->effect), *of = view_effect_get(view, fact->of);
	struct view_task *task = of ? of->task : NULL;
	struct view_alias *alias;

	if (!of || of == wish ||
		(wish && (wish->state != ABOX_EFFECT_NONE || wish->bound_away || wish->task != task)))
		return 1;
	if (!wish && !claims_free_key(task, fact))
		return 1;
	alias = calloc(1, sizeof(*alias));
	if (!alias)
		return ABOX_E_MEMORY;
	alias->effect = of;
	if (wish)
		alias->scope_key = view_scope_key(wish->scope_key + 1, wish->scope_key_len - 1,
			wish->scope_key[0] == 'd', &alias->scope_key_len);
	else
		alias->scope_key = view_scope_key(
			fact->key.data, fact->key.len, fact->derived != 0, &alias->scope_key_len);
	if (!alias->scope_key) {
		free(alias);
		return ABOX_E_MEMORY;
	}
	map_remove(&task->keys, alias->scope_key, alias->scope_key_len);
	if (map_put(&task->keys, alias->scope_key, alias->scope_key_len, of) < 0) {
		free(alias->scope_key);
		free(alias);
		return ABOX_E_MEMORY;
	}
	view_add_alias(task, alias);
	if (wish)
		wish->bound_away = true;
	of->claimed = task->epoch;
	return 0;
}

static int apply_dispatched(struct view *view, const struct fact *fact)
{
	struct view_effect *effect = view_effect_get(view, fact->effect);
	struct view_approval *approval;

	if (!effect || effect->state != ABOX_EFFECT_INTENDED || fact->try != effect->try ||
		fact->epoch != effect->task->epoch || effect->task->canceled_seq || effect->task->ended)
		return 1;
	effect->state = ABOX_EFFECT_DISPATCHED;
	effect->state_seq = fact->seq;
	effect->dispatched_seq = fact->seq;
	effect->epoch = fact->epoch;
	effect->handle = fact->handle;
	effect->credit = false;
	approval = view_approval_get(view, fact->approval);
	if (approval) {
		approval->used++;
		if (view_set_text(&effect->approval, fact->approval) < 0)
			return ABOX_E_MEMORY;
	}
	return view_set_text(&effect->executor, fact->executor);
}

static bool outcome_is_welcome(const struct view_effect *effect, const struct fact *fact)
{
	return effect && fact->try == effect->try &&
	       (effect->state == ABOX_EFFECT_DISPATCHED || effect->state == ABOX_EFFECT_UNKNOWN);
}

#define KEPT_RESULT_BYTES 2048
#define KEPT_BYTES (4u << 20)

/*
 * Small results stay at hand, so that a repeat costs no reading; the record remains what counts, and is read
 * where there is none here. Lack of memory is no failure.
 */
static void keep_result(struct view *view, struct view_effect *effect, const struct fact *fact)
{
	struct view_result *result;

	drop_result(view, effect);
	if (fact->result_blob || fact->result.len > KEPT_RESULT_BYTES || view->kept_bytes > KEPT_BYTES)
		return;
	result = calloc(1, sizeof(*result) + fact->result.len + 1);
	if (!result)
		return;
	if (fact->reason && !(result->reason = strdup(fact->reason))) {
		free(result);
		return;
	}
	if (fact->result.len)
		memcpy(result->data, fact->result.data, fact->result.len);
	result->len = fact->result.len;
	result->code = (int32_t)fact->code;
	result->present = fact->result.data != NULL;
	view->kept_bytes += sizeof(*result) + result->len;
	effect->result = result;
}

/* Fenced or not: the epoch of an outcome is not looked at (effects 1.5). */
static int apply_outcome(struct view *view, const struct fact *fact)
{
	struct view_effect *effect = view_effect_get(view, fact->effect);

	if (!outcome_is_welcome(effect, fact))
		return 1;
	effect->state = fact->kind == FACT_EFFECT_COMMITTED ? ABOX_EFFECT_COMMITTED : ABOX_EFFECT_FAILED;
	effect->state_seq = fact->seq;
	effect->result_seq = fact->seq;
	keep_result(view, effect, fact);
	effect->retryable = fact->retryable != 0;
	effect->maybe = effect->maybe || fact->maybe;
	effect->overridden = false;
	return 0;
}

static int apply_unknown(struct view *view, const struct fact *fact)
{
	struct view_effect *effect = view_effect_get(view, fact->effect);

	if (!effect || fact->try != effect->try || effect->state != ABOX_EFFECT_DISPATCHED)
		return 1;
	effect_set_unknown(effect, fact);
	return 0;
}

static int apply_canceled(struct view *view, const struct fact *fact)
{
	struct view_effect *effect = view_effect_get(view, fact->effect);

	if (!effect || effect->state != ABOX_EFFECT_INTENDED || fact->try != effect->try)
		return 1;
	if (effect->maybe) {
		effect_set_unknown(effect, fact);
		return 0;
	}
	effect->state = ABOX_EFFECT_CANCELED;
	effect->state_seq = fact->seq;
	return 0;
}

static int apply_verdict(struct view *view, const struct fact *fact)
{
	struct view_effect *effect = view_effect_get(view, fact->effect);

	if (!effect || effect->state != ABOX_EFFECT_UNKNOWN || fact->try != effect->try)
		return 1;
	switch (fact->state) {
	case ABOX_EFFECT_COMMITTED:
		effect->result_seq = fact->seq;
		keep_result(view, effect, fact);
		break;
	case ABOX_EFFECT_ABSENT:
		effect->maybe = false; /* said of the effect, not of one try */
		break;
	case ABOX_EFFECT_ABANDONED:
		break;
	default:
		return 1;
	}
	effect->state = (int)fact->state;
	effect->state_seq = fact->seq;
	effect->overridden = false;
	return 0;
}

static int apply_override(struct view *view, const struct fact *fact)
{
	struct view_effect *effect = view_effect_get(view, fact->effect);

	if (!effect || effect->state != ABOX_EFFECT_UNKNOWN || fact->try != effect->try)
		return 1;
	effect->overridden = true;
	return 0;
}

static int apply_late(struct view *view, const struct fact *fact)
{
	struct view_effect *effect = view_effect_get(view, fact->effect);

	if (effect)
		effect->late++;
	return 0;
}

static int apply_replay(struct view *view, const struct fact *fact)
{
	struct view_effect *effect = view_effect_get(view, fact->effect);

	if (effect && fact->epoch == effect->task->epoch)
		effect->claimed = fact->epoch;
	return 0;
}

static int apply_released(struct view *view, const struct fact *fact)
{
	struct view_effect *effect = view_effect_get(view, fact->effect);

	if (!effect || effect->state != ABOX_EFFECT_INTENDED || fact->try != effect->try)
		return 1;
	return view_set_text(&effect->executor, NULL);
}

/* ---- approvals ---- */

static int apply_request(struct view *view, const struct fact *fact)
{
	struct view_task *task = view_task_get(view, fact->task);
	struct view_approval *approval;

	if (!task || !fact->approval || task->ended || task->canceled_seq ||
		view_approval_get(view, fact->approval))
		return 1;
	return view_approval_make(view, task, fact, &approval);
}

/* Deny and revoke win until it is used, in whatever order they come (effects 1.9). */
static int apply_answer(struct view *view, const struct fact *fact)
{
	struct view_approval *approval = view_approval_get(view, fact->approval);

	if (!approval)
		return 1;
	switch (fact->kind) {
	case FACT_APPROVAL_GRANT:
		approval->granted = true;
		break;
	case FACT_APPROVAL_DENY:
		approval->denied = true;
		break;
	default:
		approval->revoked = true;
		break;
	}
	return view_set_text(&approval->by, fact->by);
}

/* ---- a copied journal ---- */

/* What is not final may have gone on in the original (effects 0.7). */
static int apply_adopted(struct view *view, const struct fact *fact)
{
	for (struct view_task *task = view->first_task; task; task = task->next) {
		for (struct view_effect *effect = task->effects; effect; effect = effect->next)
			if (effect->state == ABOX_EFFECT_INTENDED ||
				effect->state == ABOX_EFFECT_DISPATCHED ||
				effect->state == ABOX_EFFECT_ABSENT ||
				(effect->state == ABOX_EFFECT_FAILED && !view_effect_is_final(effect)))
				effect_set_unknown(effect, fact);
		for (struct view_approval *approval = task->approvals; approval; approval = approval->next)
			approval->revoked = true; /* the original has the use of it */
		task->adopted = task->adopted || !task->ended;
	}
	return 0;
}

/* ---- applying ---- */

typedef int (*apply_fn)(struct view *view, const struct fact *fact);

static const apply_fn transitions[FACT_STATE_TASK] = {
	[FACT_TASK_CONTROL] = apply_control,
	[FACT_TASK_HEARTBEAT] = apply_heartbeat,
	[FACT_TASK_CHECKPOINT] = apply_checkpoint,
	[FACT_TASK_CANCEL] = apply_cancel,
	[FACT_TASK_BOUNDARY] = apply_boundary,
	[FACT_TASK_STEP] = apply_step,
	[FACT_TASK_END] = apply_end,
	[FACT_STAGE_BEGIN] = apply_stage_begin,
	[FACT_STAGE_END] = apply_stage_end,
	[FACT_STAGE_DECIDED] = apply_stage_decided,
	[FACT_EFFECT_INTENDED] = apply_intended,
	[FACT_EFFECT_AMBIGUOUS] = apply_ambiguous,
	[FACT_EFFECT_ALLOWED] = apply_allowed,
	[FACT_EFFECT_CLAIMED] = apply_claimed,
	[FACT_EFFECT_DISPATCHED] = apply_dispatched,
	[FACT_EFFECT_COMMITTED] = apply_outcome,
	[FACT_EFFECT_FAILED] = apply_outcome,
	[FACT_EFFECT_UNKNOWN] = apply_unknown,
	[FACT_EFFECT_CANCELED] = apply_canceled,
	[FACT_EFFECT_VERDICT] = apply_verdict,
	[FACT_EFFECT_OVERRIDE] = apply_override,
	[FACT_EFFECT_LATE] = apply_late,
	[FACT_EFFECT_REPLAY] = apply_replay,
	[FACT_EFFECT_RELEASED] = apply_released,
	[FACT_APPROVAL_REQUEST] = apply_request,
	[FACT_APPROVAL_GRANT] = apply_answer,
	[FACT_APPROVAL_DENY] = apply_answer,
	[FACT_APPROVAL_REVOKE] = apply_answer,
	[FACT_RESOURCE_CREATED] = apply_resource_created,
	[FACT_RESOURCE_REMOVED] = apply_resource_removed,
	[FACT_JOURNAL_ADOPTED] = apply_adopted,
};

int view_apply(struct view *view, const struct fact *fact)
{
	struct view_effect *effect;
	int r = 0;

	if (fact->kind >= FACT_STATE_TASK)
		return view_restore(view, fact);
	if (fact->seq > view->seq)
		view->seq = fact->seq;
	if (fact->time_usec > view->max_time_usec)
		view->max_time_usec = fact->time_usec;
	if (fact->kind != FACT_JOURNAL_ADOPTED && fact->kind != FACT_NONE &&
		(!fact->task || fact->epoch > INT64_MAX))
		return 1;
	if (transitions[fact->kind])
		r = transitions[fact->kind](view, fact);
	if (r < 0)
		return r;
	effect = view_effect_get(view, fact->effect);
	if (effect) {
		effect->room += fact->room;
		effect->misfit = effect->misfit || r == 1;
	}
	return r;
}
