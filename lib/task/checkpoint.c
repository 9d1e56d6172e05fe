/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Checkpoints: a workspace snapshot, what the harness wants back, and by their place in the journal the
 * effects so far.
 */
#include <stdlib.h>
#include <string.h>

#include "effect/owner.h"

#define MAX_STATE_BYTES (1u << 20)

struct checkpoint_call {
	abox_task *task;
	const char *name;
	const char *snapshot;
	struct fact_bytes state;
	struct engine_blob blob;
};

static int checkpoint_decide(struct engine_step *step, struct fact *fact, abox_error **reterr)
{
	const struct checkpoint_call *call = step->userdata;
	int r;

	r = decide_admission(view_task_get(step->view, call->task->id), call->task->epoch, reterr);
	if (r < 0)
		return r;
	fact->kind = FACT_TASK_CHECKPOINT;
	fact->task = call->task->id;
	fact->epoch = call->task->epoch;
	fact->name = call->name;
	fact->snapshot = call->snapshot;
	fact->payload = call->state;
	fact->payload_blob = call->blob.text[0] ? call->blob.text : NULL;
	return 1;
}

int abox_task_checkpoint(abox_task *task, const char *name, const char *snapshot, const void *state,
	size_t len, abox_error **reterr)
{
	struct checkpoint_call call = {.task = task, .name = name, .snapshot = snapshot};
	struct engine_step step = {.asker = task, .decide = checkpoint_decide, .userdata = &call};
	int r;

	r = owner_check(task, reterr);
	if (r < 0)
		return r;
	r = engine_check_name("name", name, 64, reterr);
	if (r < 0)
		return r;
	if (!state && len)
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_TASK, "state", "has a length and no bytes");
	if (len > MAX_STATE_BYTES)
		return error_set(reterr, ABOX_E_LIMIT, ABOX_STAGE_TASK, "state",
			"has at most 1 MiB, this one %zu bytes", len);
	r = engine_store(task->journal, state, len, &call.state, &call.blob, reterr);
	if (r < 0)
		return r;
	step.journal = task->journal;
	r = engine_append_durable(&step, reterr);
	engine_step_clear(&step);
	return r < 0 ? r : 0;
}

struct newest_call {
	const char *task;
	uint64_t checkpoint_seq;
};

static int newest_look(
	struct view *view, const struct decide_context *context, void *userdata, abox_error **reterr)
{
	struct newest_call *call = userdata;
	const struct view_task *task = view_task_get(view, call->task);

	call->checkpoint_seq = task ? task->checkpoint_seq : 0;
	return 0;
}

static int copy_text(const char *text, char **ret)
{
	if (!ret)
		return 0;
	*ret = text ? strdup(text) : NULL;
	return text && !*ret ? ABOX_E_MEMORY : 0;
}

int abox_task_get_checkpoint(abox_task *task, char **retname, char **retsnapshot, char **retstate,
	size_t *retlen, abox_error **reterr)
{
	_cleanup_(freep) char *name = NULL, *snapshot = NULL, *state = NULL;
	struct newest_call call = {0};
	struct fact fact;
	uint64_t seq = 0;
	size_t len = 0;
	int r;

	r = owner_check(task, reterr);
	if (r < 0)
		return r;
	call.task = task->id;
	r = engine_look(task->journal, task, newest_look, &call, &seq, reterr);
	if (r < 0 || !call.checkpoint_seq)
		return r;
	r = engine_sync(task->journal, seq, reterr);
	if (r < 0)
		return r;
	r = engine_fact(task->journal, call.checkpoint_seq, &fact, reterr);
	if (r < 0)
		return r;
	r = copy_text(fact.name, &name);
	if (r >= 0)
		r = copy_text(fact.snapshot, &snapshot);
	fact_clear(&fact);
	if (r >= 0 && retstate)
		r = engine_load(task->journal, call.checkpoint_seq, true, &state, &len, NULL, NULL, reterr);
	if (r < 0)
		return r;
	if (retname)
		*retname = steal_ptr(name);
	if (retsnapshot)
		*retsnapshot = steal_ptr(snapshot);
	if (retstate)
		*retstate = steal_ptr(state);
	if (retlen)
		*retlen = len;
	return 1;
}
