/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Opening a task: how it is found, and taking control of it. Control raises the epoch in one locked append,
 * synced and confirmed before it is given (effects 0.1, 1.8); what the owner before had dispatched may still
 * arrive, nothing else.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "effect/owner.h"
#include "task/process.h"

#define KILL_TIMEOUT_USEC (10 * USEC_PER_SEC)

void abox_task_options_init(struct abox_task_options *options)
{
	*options = (struct abox_task_options){.size = sizeof(*options)};
}

struct open_call {
	const struct abox_task_options *options;
	abox_task *task;
	struct process_identity self;
	int status; /* as found, before anybody was killed */
	bool found;
	bool kill; /* the owner has to go first */
	struct process_identity owner;
	char owner_boot[40];
	char owner_executor[17];
};

static int check_id(const char *id, abox_error **reterr)
{
	size_t len, n;
	int r;

	r = engine_check_name("id", id, 255, reterr);
	if (r < 0)
		return r;
	len = strlen(id);
	for (size_t i = 0; i < len; i += n) {
		unsigned char c = (unsigned char)id[i];

		n = utf8_char_len(id + i, len - i);
		if (n == 0 || c < 0x20 || c == 0x7f ||
			(n == 2 && c == 0xc2 && (unsigned char)id[i + 1] < 0xa0))
			return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_TASK, "id",
				"must be printable UTF-8 (byte %zu is not)", i);
	}
	return 0;
}

/* Who it is, so that a person can look at it; the lock decides. */
static int busy(const struct view_task *task, const struct decide_context *context, abox_error **reterr)
{
	int r;

	if (strcmp(task->boot, context->boot) == 0)
		r = error_set(reterr, ABOX_E_BUSY, ABOX_STAGE_TASK, NULL,
			"attempt %llu of task '%s' is alive: pid %llu (pid namespace %llu) on %s",
			(unsigned long long)task->epoch, task->id, (unsigned long long)task->pid,
			(unsigned long long)task->pid_namespace, task->host ? task->host : "?");
	else
		r = error_set(reterr, ABOX_E_BUSY, ABOX_STAGE_TASK, NULL,
			"attempt %llu of task '%s' is alive", (unsigned long long)task->epoch, task->id);
	error_retryable(reterr, r);
	return error_remedy(reterr, r, "take over by fence (what it sent may still arrive) or by kill");
}

/* 0: control may be taken, 1: kill first, negative: not. */
static int check_owner(struct open_call *call, const struct view_task *task,
	const struct decide_context *context, abox_error **reterr)
{
	int alive;

	if (call->status == ABOX_TASK_NEW)
		return 0;
	alive = context->alive(context->userdata, task->executor, 0, reterr);
	if (alive <= 0)
		return alive;
	if (call->options->takeover == ABOX_TAKEOVER_KILL) {
		call->owner = (struct process_identity){task->pid, task->pid_start, task->pid_namespace, ""};
		memcpy(call->owner_boot, task->boot, sizeof(call->owner_boot));
		snprintf(call->owner_executor, sizeof(call->owner_executor), "%s", task->executor);
		return 1;
	}
	if (call->options->takeover == ABOX_TAKEOVER_FENCE || decide_lease_is_over(task, context))
		return 0;
	return busy(task, context, reterr);
}

static void fill_control(const struct open_call *call, const struct view_task *task, struct fact *fact)
{
	fact->kind = FACT_TASK_CONTROL;
	fact->task = call->task->id;
	fact->epoch = task ? task->epoch + 1 : 1;
	fact->executor = call->task->executor;
	fact->pid = call->self.pid;
	fact->pid_start = call->self.start;
	fact->pid_namespace = call->self.pid_namespace;
	fact->host = call->self.host[0] ? call->self.host : NULL;
	fact->lease_usec = call->options->lease_usec;
	fact->identity = call->options->identity;
	fact->description = call->options->description;
}

static int control_decide(struct engine_step *step, struct fact *fact, abox_error **reterr)
{
	struct open_call *call = step->userdata;
	const struct view_task *task = view_task_get(step->view, call->task->id);
	int r;

	call->kill = false;
	r = decide_status(step->view, task, &step->context, reterr);
	if (r < 0)
		return r;
	if (!call->found)
		call->status = r;
	call->found = true;
	if (r == ABOX_TASK_NEW && call->options->must_exist)
		return error_set(reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_TASK, NULL, "there is no task '%s'",
			call->task->id);
	call->task->epoch = task ? task->epoch : 0;
	if (task && task->ended)
		return 0;
	r = check_owner(call, task, &step->context, reterr);
	if (r == 1) {
		call->kill = true;
		return 0;
	}
	if (r < 0)
		return r;
	fill_control(call, task, fact);
	step->priority = JOURNAL_VITAL;
	call->task->epoch = fact->epoch;
	return 1;
}

static int wait_for_end(const struct open_call *call, abox_error **reterr)
{
	uint64_t timeout = call->options->timeout_usec ? call->options->timeout_usec : KILL_TIMEOUT_USEC;
	uint64_t deadline = clock_deadline(clock_monotonic_usec(), timeout);
	struct timespec pause = {0, 2000000};
	uint64_t number = strtoull(call->owner_executor, NULL, 16);
	int r;

	for (;;) {
		r = journal_executor_alive(call->task->journal, number, reterr);
		if (r <= 0)
			return r;
		if (clock_monotonic_usec() >= deadline)
			return error_set(reterr, ABOX_E_TIMEOUT, ABOX_STAGE_TASK, NULL,
				"the owner was killed, but somebody still holds its lock");
		nanosleep(&pause, NULL);
	}
}

static int kill_owner(const struct open_call *call, abox_error **reterr)
{
	const char *boot = engine_boot_id(reterr);
	int r;

	if (!boot)
		return ABOX_E_SYSTEM;
	r = process_kill(&call->owner, call->owner_boot, boot, reterr);
	/* Waiting happens without the journal's lock. */
	return r < 0 ? r : wait_for_end(call, reterr);
}

static int take_control(struct open_call *call, abox_error **reterr)
{
	struct engine_step step = {.journal = call->task->journal,
		.asker = call->task,
		.decide = control_decide,
		.userdata = call};
	int r;

	r = owner_take_executor(call->task, reterr);
	if (r < 0)
		return r;
	process_self(&call->self);
	do {
		r = engine_append_durable(&step, reterr);
		if (r >= 0 && call->kill) {
			r = kill_owner(call, reterr);
			if (r >= 0)
				r = 1;
		}
	} while (r > 0 && call->kill);
	engine_step_clear(&step);
	if (r <= 0)
		return r;
	call->task->controls = true;
	call->task->lease_usec = call->options->lease_usec;
	call->task->heartbeat_usec = clock_boot_usec();
	/* Given when the epoch is synced and those who act for the task have confirmed it (effects 1.8). */
	if (!call->options->confirm)
		return 0;
	r = call->options->confirm(call->task->id, call->task->epoch, call->options->userdata, reterr);
	return r < 0 ? r : 0;
}

static int append_look(
	struct view *view, const struct decide_context *context, void *userdata, abox_error **reterr)
{
	struct open_call *call = userdata;
	const struct view_task *task = view_task_get(view, call->task->id);
	int r;

	r = decide_status(view, task, context, reterr);
	if (r < 0)
		return r;
	call->status = r;
	call->task->epoch = task ? task->epoch : 0;
	if (call->options->epoch) {
		r = decide_fence(task, call->options->epoch, reterr);
		if (r < 0)
			return r;
		r = call->status;
	}
	if (r == ABOX_TASK_NEW && call->options->must_exist)
		return error_set(reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_TASK, NULL, "there is no task '%s'",
			call->task->id);
	return 0;
}

static int open_append(struct open_call *call, abox_error **reterr)
{
	uint64_t seq = 0;
	int r;

	r = engine_look(call->task->journal, NULL, append_look, call, &seq, reterr);
	return r < 0 ? r : engine_sync(call->task->journal, seq, reterr);
}

int abox_task_open(abox_journal *journal, const char *id, const struct abox_task_options *options,
	abox_task **ret, abox_error **reterr)
{
	struct abox_task_options defaults;
	_cleanup_(owner_unrefp) abox_task *task = NULL;
	struct open_call call = {.options = options};
	int r;

	abox_task_options_init(&defaults);
	if (!options)
		call.options = &defaults;
	r = engine_check_journal(journal, true, reterr);
	if (r < 0)
		return r;
	if (!ret || call.options->size < sizeof(*options) || call.options->access > ABOX_TASK_CONTROL ||
		call.options->takeover > ABOX_TAKEOVER_KILL)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_TASK, NULL,
			"options with size, access and takeover in range, and ret are required");
	r = check_id(id, reterr);
	if (r < 0)
		return r;
	r = owner_new(journal, id, &task, reterr);
	if (r < 0)
		return r;
	call.task = task;
	r = call.options->access == ABOX_TASK_CONTROL ? take_control(&call, reterr)
						      : open_append(&call, reterr);
	if (r < 0)
		return r;
	*ret = steal_ptr(task);
	return call.status;
}

/* ---- fence and lease ---- */

static int fenced_look(
	struct view *view, const struct decide_context *context, void *userdata, abox_error **reterr)
{
	const abox_task *task = userdata;
	const struct view_task *now = view_task_get(view, task->id);

	return now && now->epoch > task->epoch;
}

int abox_task_get_fenced(abox_task *task)
{
	int r;

	if (owner_check(task, NULL) < 0)
		return 0;
	r = engine_look(task->journal, task, fenced_look, task, NULL, NULL);
	return r > 0;
}

static int heartbeat_decide(struct engine_step *step, struct fact *fact, abox_error **reterr)
{
	const abox_task *task = step->userdata;
	int r;

	r = decide_admission(view_task_get(step->view, task->id), task->epoch, reterr);
	if (r < 0)
		return r;
	if (step->context.boot_usec - task->heartbeat_usec < task->lease_usec / 4)
		return 0;
	fact->kind = FACT_TASK_HEARTBEAT;
	fact->task = task->id;
	fact->epoch = task->epoch;
	return 1;
}

int abox_task_heartbeat(abox_task *task, abox_error **reterr)
{
	struct engine_step step = {.asker = task, .decide = heartbeat_decide, .userdata = task};
	int r;

	r = owner_check(task, reterr);
	if (r < 0)
		return r;
	if (!task->controls || !task->lease_usec)
		return error_set(
			reterr, ABOX_E_STATE, ABOX_STAGE_TASK, NULL, "the task was opened without a lease");
	step.journal = task->journal;
	r = engine_append(&step, reterr);
	engine_step_clear(&step);
	if (r > 0)
		task->heartbeat_usec = step.context.boot_usec;
	return r < 0 ? r : 0;
}
