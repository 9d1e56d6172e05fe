/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The ledger of what was made outside: names, how to remove them, and whether the task must.
 */
#include <stdlib.h>
#include <string.h>

#include "effect/owner.h"

struct resource_call {
	abox_task *task;
	int kind;
	const char *name;
	const char *id;
	const char *cleanup;
	bool duty;
};

static int resource_decide(struct engine_step *step, struct fact *fact, abox_error **reterr)
{
	const struct resource_call *call = step->userdata;
	const struct view_task *task = view_task_get(step->view, call->task->id);
	int r;

	r = decide_fence(task, call->task->epoch, reterr);
	if (r < 0)
		return r;
	/* What exists and must go is noted after a cancel too; a thing that stays is a consequence like any
	 * other. */
	if (call->kind == FACT_RESOURCE_CREATED && (task->ended || !call->duty)) {
		r = decide_admission(task, call->task->epoch, reterr);
		if (r < 0)
			return r;
	}
	if (call->kind == FACT_RESOURCE_REMOVED && !view_resource_get(task, call->name, call->id))
		return error_set(reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_TASK, call->name,
			"'%s' is not in the ledger", call->id);
	fact->kind = call->kind;
	fact->task = call->task->id;
	fact->epoch = call->task->epoch;
	fact->name = call->name;
	fact->target = (struct fact_bytes){call->id, strlen(call->id)};
	fact->cleanup = call->cleanup;
	fact->duty = call->duty;
	return 1;
}

static int resource_append(struct resource_call *call, abox_error **reterr)
{
	struct engine_step step = {.asker = call->task, .decide = resource_decide, .userdata = call};
	int r;

	r = owner_check(call->task, reterr);
	if (r < 0)
		return r;
	r = engine_check_name("kind", call->name, 64, reterr);
	if (r < 0)
		return r;
	r = engine_check_name("id", call->id, 1024, reterr);
	if (r < 0)
		return r;
	step.journal = call->task->journal;
	r = engine_append_durable(&step, reterr);
	engine_step_clear(&step);
	return r < 0 ? r : 0;
}

int abox_task_add_resource(
	abox_task *task, const char *kind, const char *id, const char *cleanup, int duty, abox_error **reterr)
{
	struct resource_call call = {task, FACT_RESOURCE_CREATED, kind, id, cleanup, duty != 0};

	return resource_append(&call, reterr);
}

int abox_task_remove_resource(abox_task *task, const char *kind, const char *id, abox_error **reterr)
{
	struct resource_call call = {task, FACT_RESOURCE_REMOVED, kind, id, NULL, false};

	return resource_append(&call, reterr);
}

/* ---- cleaning up ---- */

struct duty {
	char *kind;
	char *id;
	char *cleanup;
};

struct duties {
	const char *task;
	struct duty *list;
	size_t n;
};

static void duties_clear(struct duties *duties)
{
	for (size_t i = 0; i < duties->n; i++) {
		free(duties->list[i].kind);
		free(duties->list[i].id);
		free(duties->list[i].cleanup);
	}
	free(duties->list);
}

static int duties_look(
	struct view *view, const struct decide_context *context, void *userdata, abox_error **reterr)
{
	struct duties *duties = userdata;
	const struct view_task *task = view_task_get(view, duties->task);
	size_t n = 0;

	for (const struct view_resource *r = task ? task->resources : NULL; r; r = r->next)
		n += r->duty;
	duties->list = calloc(n + 1, sizeof(*duties->list));
	if (!duties->list)
		return ABOX_E_MEMORY;
	for (const struct view_resource *r = task ? task->resources : NULL; r; r = r->next) {
		struct duty *duty = &duties->list[duties->n];

		if (!r->duty)
			continue;
		duties->n++;
		duty->kind = strdup(r->kind);
		duty->id = strdup(r->id);
		duty->cleanup = r->cleanup ? strdup(r->cleanup) : NULL;
		if (!duty->kind || !duty->id || (r->cleanup && !duty->cleanup))
			return ABOX_E_MEMORY;
	}
	return 0;
}

int abox_task_cleanup(abox_task *task,
	int (*remove_fn)(const char *kind, const char *id, const char *cleanup, void *userdata),
	void *userdata, abox_error **reterr)
{
	struct duties duties = {0};
	int left = 0, r;

	r = owner_check(task, reterr);
	if (r < 0)
		return r;
	if (!remove_fn)
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_TASK, NULL, "a function that removes is required");
	duties.task = task->id;
	r = engine_look(task->journal, task, duties_look, &duties, NULL, reterr);
	for (size_t i = 0; r >= 0 && i < duties.n; i++) {
		const struct duty *duty = &duties.list[i];

		if (remove_fn(duty->kind, duty->id, duty->cleanup, userdata) < 0) {
			left++;
			continue;
		}
		r = abox_task_remove_resource(task, duty->kind, duty->id, reterr);
		if (r == ABOX_E_NOT_FOUND)
			r = 0; /* somebody else removed it meanwhile */
	}
	duties_clear(&duties);
	return r < 0 ? r : left;
}
