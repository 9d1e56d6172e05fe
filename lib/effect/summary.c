/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The view in the head of a segment: what is open, as a JSON array of parts that view_apply() takes like
 * facts, so that opening a journal needs its newest segment only. Closed tasks are one line each, for ever
 * (effects 1.11).
 */
#include "effect/view-inner.h"

#include <stdlib.h>
#include <string.h>

static void add_part(struct text *text, const struct fact *fact)
{
	if (text->len && text->data[text->len - 1] != '[')
		text_add(text, ",");
	fact_write(text, fact);
}

static void add_task(struct text *text, const struct view_task *task)
{
	struct fact fact = {.kind = FACT_STATE_TASK, .task = task->id, .epoch = task->epoch};

	fact.status = (uint32_t)task->ended;
	fact.by = task->ended_by;
	fact.state_seq = task->ended_seq;
	fact.first_seq = task->first_seq;
	if (!task->ended) {
		fact.identity = task->identity;
		fact.description = task->description;
		fact.executor = task->executor;
		fact.host = task->host;
		fact.pid = task->pid;
		fact.pid_start = task->pid_start;
		fact.pid_namespace = task->pid_namespace;
		fact.plan = task->boot[0] ? task->boot : NULL;
		fact.lease_usec = task->lease_usec;
		fact.boot = task->lease_boot[0] ? task->lease_boot : NULL;
		fact.boot_usec = task->lease_until_usec == UINT64_MAX ? 0 : task->lease_until_usec;
		fact.change_set = task->change_set;
		fact.artifacts = (const char *const *)task->artifacts;
		fact.effects = (const char *const *)task->bound_effects;
		fact.step = task->done_steps;
		fact.boundary_seq = task->boundary_seq;
		fact.checkpoint_seq = task->checkpoint_seq;
	}
	fact.canceled_seq = task->canceled_seq;
	fact.reason = task->canceled_by;
	fact.adopted = task->adopted;
	add_part(text, &fact);
}

static void add_stage(struct text *text, const struct view_task *task, const struct view_stage *stage)
{
	struct fact fact = {.kind = FACT_STATE_STAGE, .task = task->id, .name = stage->name};

	fact.epoch = stage->epoch;
	fact.repeatable = stage->repeatable;
	fact.max_runs = stage->max_runs;
	fact.causes = stage->causes;
	fact.backoff_usec = stage->backoff_usec;
	fact.max_backoff_usec = stage->max_backoff_usec;
	fact.jitter_percent = stage->jitter_percent;
	fact.runs = stage->runs;
	fact.done = stage->done;
	fact.claimed = stage->running;
	fact.retryable = stage->last_failed;
	fact.allowed = stage->run_again;
	fact.cause = (uint32_t)stage->cause;
	fact.boot = stage->boot[0] ? stage->boot : NULL;
	fact.boot_usec = stage->ended_usec;
	add_part(text, &fact);
}

static void add_effect(struct text *text, const struct view_effect *effect)
{
	struct fact fact = {.kind = FACT_STATE_EFFECT, .task = effect->task->id, .effect = effect->id};

	fact.epoch = effect->epoch;
	fact.key = (struct fact_bytes){effect->scope_key + 1, effect->scope_key_len - 1};
	fact.derived = effect->scope_key[0] == 'd';
	fact.target = (struct fact_bytes){effect->target, strlen(effect->target)};
	fact.fingerprint = effect->fingerprint;
	fact.what = effect->what;
	fact.plan = effect->plan;
	fact.executor = effect->executor;
	fact.approval = effect->approval;
	fact.payload_blob = effect->payload_blob;
	fact.effect_class = (uint32_t)effect->effect_class;
	fact.state = (uint32_t)effect->state;
	fact.handle = effect->handle;
	fact.step = effect->dispatched_seq;
	fact.try = effect->try;
	fact.max_tries = effect->max_tries;
	fact.attempt = effect->attempt;
	fact.claimed = effect->claimed;
	fact.wish = effect->wish;
	fact.settle_usec = effect->settle_usec;
	fact.boot = effect->boot[0] ? effect->boot : NULL;
	fact.boot_usec = effect->boot_usec;
	fact.time_usec = effect->unknown_time_usec;
	fact.first_seq = effect->first_seq;
	fact.state_seq = effect->state_seq;
	fact.result_seq = effect->result_seq;
	fact.payload_seq = effect->payload_seq;
	fact.retryable = effect->retryable;
	fact.maybe = effect->maybe;
	fact.override = effect->overridden;
	fact.deferred = effect->deferred;
	fact.needs_approval = effect->needs_approval;
	fact.credit = effect->credit;
	fact.allowed = effect->allowed;
	fact.boundary_seq = effect->bound;
	fact.adopted = effect->misfit;
	fact.runs = effect->late;
	fact.done = effect->bound_away;
	fact.room = effect->room;
	add_part(text, &fact);
}

static void add_alias(struct text *text, const struct view_task *task, const struct view_alias *alias)
{
	struct fact fact = {.kind = FACT_STATE_ALIAS, .task = task->id, .of = alias->effect->id};

	fact.key = (struct fact_bytes){alias->scope_key + 1, alias->scope_key_len - 1};
	fact.derived = alias->scope_key[0] == 'd';
	add_part(text, &fact);
}

static void add_approval(struct text *text, const struct view_approval *approval)
{
	struct fact fact = {
		.kind = FACT_STATE_APPROVAL, .task = approval->task->id, .approval = approval->id};

	fact.target = (struct fact_bytes){approval->target, strlen(approval->target)};
	fact.fingerprint = approval->fingerprint;
	fact.reason = approval->text;
	fact.what = approval->what;
	fact.by = approval->by;
	fact.effect_class = (uint32_t)approval->effect_class;
	fact.uses = approval->uses;
	fact.used = approval->used;
	fact.allowed = approval->granted;
	fact.override = approval->denied;
	fact.claimed = approval->revoked;
	fact.wall = approval->wall;
	fact.boot = approval->boot[0] ? approval->boot : NULL;
	fact.boot_usec = approval->until_usec > INT64_MAX ? 0 : approval->until_usec;
	fact.first_seq = approval->seq;
	add_part(text, &fact);
}

static void add_resource(
	struct text *text, const struct view_task *task, const struct view_resource *resource)
{
	struct fact fact = {.kind = FACT_STATE_RESOURCE, .task = task->id, .name = resource->kind};

	fact.target = (struct fact_bytes){resource->id, strlen(resource->id)};
	fact.cleanup = resource->cleanup;
	fact.duty = resource->duty;
	fact.first_seq = resource->seq;
	add_part(text, &fact);
}

/* The list is newest first and restoring puts each in front: written from its end. */
static void add_resources(
	struct text *text, const struct view_task *task, const struct view_resource *resource)
{
	size_t n = 0;

	for (const struct view_resource *r = resource; r; r = r->next)
		n++;
	for (; n > 0; n--) {
		const struct view_resource *r = resource;

		for (size_t i = 1; i < n; i++)
			r = r->next;
		add_resource(text, task, r);
	}
}

void view_summarize(const struct view *view, struct text *text)
{
	text_add(text, "[");
	for (const struct view_task *task = view->first_task; task; task = task->next) {
		add_task(text, task);
		for (const struct view_stage *stage = task->stages; stage; stage = stage->next)
			add_stage(text, task, stage);
		for (const struct view_effect *effect = task->effects; effect; effect = effect->next)
			if (!task->ended || effect->state == ABOX_EFFECT_UNKNOWN ||
				effect->state == ABOX_EFFECT_DISPATCHED)
				add_effect(text, effect);
		for (const struct view_alias *alias = task->aliases; alias; alias = alias->next)
			add_alias(text, task, alias);
		for (const struct view_approval *approval = task->approvals; approval;
			approval = approval->next)
			add_approval(text, approval);
		add_resources(text, task, task->resources);
	}
	text_add(text, "]");
}

uint64_t view_keep_from(const struct view *view)
{
	uint64_t lowest = UINT64_MAX;

	for (const struct view_task *task = view->first_task; task; task = task->next) {
		if (!task->ended)
			lowest = MIN(lowest, task->first_seq);
		for (const struct view_effect *effect = task->effects; effect; effect = effect->next)
			if (effect->state == ABOX_EFFECT_UNKNOWN || effect->state == ABOX_EFFECT_DISPATCHED)
				lowest = MIN(lowest, effect->first_seq);
		for (const struct view_resource *resource = task->resources; resource;
			resource = resource->next)
			if (resource->duty)
				lowest = MIN(lowest, resource->seq);
	}
	return lowest;
}

/* ---- restoring ---- */

static int restore_task(struct view *view, const struct fact *fact)
{
	struct view_task *task;
	int r;

	r = view_task_make(view, fact->task, fact->first_seq, &task);
	if (r < 0)
		return r;
	task->epoch = fact->epoch;
	task->ended = (int)fact->status;
	task->ended_seq = fact->state_seq;
	task->pid = fact->pid;
	task->pid_start = fact->pid_start;
	task->pid_namespace = fact->pid_namespace;
	task->lease_usec = fact->lease_usec;
	task->lease_until_usec = fact->lease_usec ? fact->boot_usec : UINT64_MAX;
	task->done_steps = fact->step;
	task->boundary_seq = fact->boundary_seq;
	task->checkpoint_seq = fact->checkpoint_seq;
	task->canceled_seq = fact->canceled_seq;
	task->adopted = fact->adopted != 0;
	view_set_boot(&task->boot, fact->plan);
	view_set_boot(&task->lease_boot, fact->boot);
	if (view_set_text(&task->identity, fact->identity) < 0 ||
		view_set_text(&task->description, fact->description) < 0 ||
		view_set_text(&task->executor, fact->executor) < 0 ||
		view_set_text(&task->host, fact->host) < 0 || view_set_text(&task->ended_by, fact->by) < 0 ||
		view_set_text(&task->canceled_by, fact->reason) < 0 ||
		view_set_text(&task->change_set, fact->change_set) < 0)
		return ABOX_E_MEMORY;
	if (!task->boundary_seq)
		return 0;
	r = view_copy_list(&task->artifacts, fact->artifacts);
	return r < 0 ? r : view_copy_list(&task->bound_effects, fact->effects);
}

static int restore_stage(struct view_task *task, const struct fact *fact)
{
	struct view_stage *stage;
	int r;

	r = view_stage_make(task, fact->name, &stage);
	if (r < 0)
		return r;
	stage->epoch = fact->epoch;
	stage->repeatable = fact->repeatable != 0;
	stage->max_runs = (uint32_t)fact->max_runs;
	stage->causes = (uint32_t)fact->causes;
	stage->backoff_usec = fact->backoff_usec;
	stage->max_backoff_usec = fact->max_backoff_usec;
	stage->jitter_percent = (uint32_t)fact->jitter_percent;
	stage->runs = (uint32_t)fact->runs;
	stage->done = fact->done != 0;
	stage->running = fact->claimed != 0;
	stage->last_failed = fact->retryable != 0;
	stage->run_again = fact->allowed != 0;
	stage->cause = (int)fact->cause;
	stage->ended_usec = fact->boot_usec;
	view_set_boot(&stage->boot, fact->boot);
	return 0;
}

static int restore_effect(struct view *view, struct view_task *task, const struct fact *fact)
{
	struct view_effect *effect;
	int r;

	r = view_effect_make(view, task, fact, &effect);
	if (r < 0)
		return r;
	effect->epoch = fact->epoch;
	effect->state = (int)fact->state;
	effect->handle = fact->handle;
	effect->dispatched_seq = fact->step;
	effect->try = (uint32_t)fact->try;
	effect->claimed = fact->claimed;
	effect->boot_usec = fact->boot_usec;
	effect->unknown_time_usec = fact->time_usec;
	effect->state_seq = fact->state_seq;
	effect->result_seq = fact->result_seq;
	effect->payload_seq = fact->payload_seq;
	effect->retryable = fact->retryable != 0;
	effect->maybe = fact->maybe != 0;
	effect->overridden = fact->override != 0;
	effect->credit = fact->credit != 0;
	effect->allowed = fact->allowed != 0;
	effect->bound = fact->boundary_seq != 0;
	effect->misfit = fact->adopted != 0;
	effect->late = (uint32_t)fact->runs;
	effect->bound_away = fact->done != 0;
	effect->room = fact->room;
	view_set_boot(&effect->boot, fact->boot);
	if (view_set_text(&effect->executor, fact->executor) < 0)
		return ABOX_E_MEMORY;
	return view_set_text(&effect->approval, fact->approval);
}

static int restore_alias(struct view *view, struct view_task *task, const struct fact *fact)
{
	struct view_effect *of = view_effect_get(view, fact->of);
	struct view_alias *alias;

	if (!of)
		return 1;
	alias = calloc(1, sizeof(*alias));
	if (!alias)
		return ABOX_E_MEMORY;
	alias->effect = of;
	alias->scope_key =
		view_scope_key(fact->key.data, fact->key.len, fact->derived != 0, &alias->scope_key_len);
	if (alias->scope_key) /* the wish itself stands in the summary too */
		map_remove(&task->keys, alias->scope_key, alias->scope_key_len);
	if (!alias->scope_key || map_put(&task->keys, alias->scope_key, alias->scope_key_len, of) < 0) {
		free(alias->scope_key);
		free(alias);
		return ABOX_E_MEMORY;
	}
	view_add_alias(task, alias);
	return 0;
}

static int restore_approval(struct view *view, struct view_task *task, const struct fact *fact)
{
	struct view_approval *approval;
	int r;

	r = view_approval_make(view, task, fact, &approval);
	if (r < 0)
		return r;
	approval->used = (uint32_t)fact->used;
	approval->granted = fact->allowed != 0;
	approval->denied = fact->override != 0;
	approval->revoked = fact->claimed != 0;
	approval->until_usec = fact->boot_usec ? fact->boot_usec : UINT64_MAX;
	return view_set_text(&approval->by, fact->by);
}

int view_restore(struct view *view, const struct fact *fact)
{
	struct view_task *task = view_task_get(view, fact->task);

	if (fact->kind == FACT_STATE_TASK)
		return fact->task && !task ? restore_task(view, fact) : 1;
	if (!task)
		return 1;
	switch (fact->kind) {
	case FACT_STATE_STAGE:
		return fact->name ? restore_stage(task, fact) : 1;
	case FACT_STATE_EFFECT:
		return fact->effect ? restore_effect(view, task, fact) : 1;
	case FACT_STATE_ALIAS:
		return restore_alias(view, task, fact);
	case FACT_STATE_APPROVAL:
		return fact->approval ? restore_approval(view, task, fact) : 1;
	case FACT_STATE_RESOURCE:
		return fact->name && fact->target.data ? view_resource_make(task, fact) : 1;
	default:
		return 1;
	}
}
