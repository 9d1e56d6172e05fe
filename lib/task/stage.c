/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Stages: named parts of a task whose begin and end are records, so that a later attempt knows what to skip,
 * what to run again and what to ask about. Retries are counted over all attempts, bounded, and wait longer
 * each time.
 */
#include <string.h>
#include <sys/random.h>

#include "effect/owner.h"

#define DEFAULT_RUNS 3
#define MAX_RUNS 100
#define DEFAULT_CAUSES                                                                                       \
	(1u << ABOX_STAGE_CAUSE_WORKER_START | 1u << ABOX_STAGE_CAUSE_SOURCE |                               \
		1u << ABOX_STAGE_CAUSE_REGISTRY | 1u << ABOX_STAGE_CAUSE_OWNER_LOST)
#define DEFAULT_JITTER 50

void abox_retry_policy_init(struct abox_retry_policy *policy)
{
	*policy = (struct abox_retry_policy){.size = sizeof(*policy)};
}

struct stage_call {
	abox_task *task;
	const char *name;
	const char *detail;
	const char *by;
	struct abox_retry_policy policy;
	bool repeatable;
	bool done;
	int cause;
	/* Afterwards. */
	bool again;
	uint64_t delay_usec;
};

static int resolve_policy(
	const struct abox_retry_policy *policy, struct abox_retry_policy *ret, abox_error **reterr)
{
	abox_retry_policy_init(ret);
	if (policy)
		*ret = *policy;
	if (ret->size < sizeof(*ret) || ret->max_runs > MAX_RUNS || ret->jitter_percent > 100)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_TASK, "policy",
			"needs its size, at most %d runs and at most 100 percent of jitter", MAX_RUNS);
	if (!ret->max_runs)
		ret->max_runs = DEFAULT_RUNS;
	if (!ret->causes)
		ret->causes = DEFAULT_CAUSES;
	if (!ret->backoff_usec)
		ret->backoff_usec = USEC_PER_SEC;
	if (!ret->max_backoff_usec)
		ret->max_backoff_usec = 60 * USEC_PER_SEC;
	if (!ret->jitter_percent)
		ret->jitter_percent = DEFAULT_JITTER;
	return 0;
}

static int check_stage(abox_task *task, const char *name, abox_error **reterr)
{
	int r;

	r = owner_check(task, reterr);
	return r < 0 ? r : engine_check_name("name", name, 64, reterr);
}

static bool may_run_again(uint32_t runs, uint32_t max_runs, uint32_t causes, int cause)
{
	return runs < max_runs && (causes & 1u << cause);
}

/* A run that failed, or whose owner was lost. */
static int check_rerun(
	const struct stage_call *call, const struct view_stage *stage, int cause, abox_error **reterr)
{
	if (may_run_again(stage->runs, call->policy.max_runs, call->policy.causes, cause))
		return 1;
	return error_set(reterr, ABOX_E_LIMIT, ABOX_STAGE_TASK, stage->name,
		"failed by %s in run %u of %u and is not "
		"to be tried again",
		abox_stage_cause_name(cause), stage->runs, call->policy.max_runs);
}

static int check_begin(const struct stage_call *call, const struct view_task *task, abox_error **reterr)
{
	const struct view_stage *stage = view_stage_get(task, call->name);

	if (!stage || stage->run_again)
		return 1;
	if (stage->done)
		return 0;
	if (!stage->running)
		return check_rerun(call, stage, stage->cause, reterr);
	if (stage->epoch == task->epoch)
		return error_set(reterr, ABOX_E_STATE, ABOX_STAGE_TASK, stage->name, "is running");
	if (!stage->repeatable)
		return error_set(reterr, ABOX_E_UNKNOWN, ABOX_STAGE_TASK, stage->name,
			"was begun by attempt %llu and has no end: somebody has to say whether it was done",
			(unsigned long long)stage->epoch);
	return check_rerun(call, stage, ABOX_STAGE_CAUSE_OWNER_LOST, reterr);
}

static int begin_decide(struct engine_step *step, struct fact *fact, abox_error **reterr)
{
	struct stage_call *call = step->userdata;
	const struct view_task *task = view_task_get(step->view, call->task->id);
	int r;

	r = decide_admission(task, call->task->epoch, reterr);
	if (r < 0)
		return r;
	r = check_begin(call, task, reterr);
	if (r <= 0)
		return r;
	fact->kind = FACT_STAGE_BEGIN;
	fact->task = call->task->id;
	fact->epoch = call->task->epoch;
	fact->name = call->name;
	fact->repeatable = call->repeatable;
	fact->max_runs = call->policy.max_runs;
	fact->causes = call->policy.causes;
	fact->backoff_usec = call->policy.backoff_usec;
	fact->max_backoff_usec = call->policy.max_backoff_usec;
	fact->jitter_percent = call->policy.jitter_percent;
	return 1;
}

static int stage_append(struct stage_call *call, engine_decide_fn decide, bool durable, abox_error **reterr)
{
	struct engine_step step = {
		.journal = call->task->journal, .asker = call->task, .decide = decide, .userdata = call};
	int r;

	r = durable ? engine_append_durable(&step, reterr) : engine_append(&step, reterr);
	if (r == 0 && !durable) {
		/* "done before" is only said of what is on disk. */
		int synced = engine_sync(step.journal, step.seq, reterr);

		r = synced < 0 ? synced : 0;
	}
	engine_step_clear(&step);
	return r;
}

int abox_task_stage_begin(abox_task *task, const char *name, int stage_class,
	const struct abox_retry_policy *policy, abox_error **reterr)
{
	struct stage_call call = {
		.task = task, .name = name, .repeatable = stage_class == ABOX_STAGE_REPEATABLE};
	int r;

	r = check_stage(task, name, reterr);
	if (r < 0)
		return r;
	if (stage_class < 0 || stage_class > ABOX_STAGE_REPEATABLE)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_TASK, "stage_class", "is out of range");
	r = resolve_policy(policy, &call.policy, reterr);
	if (r < 0)
		return r;
	return stage_append(&call, begin_decide, !call.repeatable, reterr);
}

/* ---- end ---- */

/* Up to max, doubled with each run, shortened by a random part so that many do not come at once. */
static uint64_t backoff(const struct view_stage *stage)
{
	uint64_t wait = stage->backoff_usec, random = 0;

	for (uint32_t i = 1; i < stage->runs && wait < stage->max_backoff_usec; i++)
		wait = wait > UINT64_MAX / 2 ? UINT64_MAX : wait * 2;
	wait = MIN(wait, stage->max_backoff_usec);
	if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != (ssize_t)sizeof(random))
		random = 0;
	return wait - (uint64_t)((double)wait * (double)stage->jitter_percent / 100 * (double)(random >> 11) /
				 0x1p53);
}

static int end_decide(struct engine_step *step, struct fact *fact, abox_error **reterr)
{
	struct stage_call *call = step->userdata;
	const struct view_task *task = view_task_get(step->view, call->task->id);
	const struct view_stage *stage;
	int r;

	/* Not admission: the end of what was begun is recorded after a cancel as well. */
	r = decide_fence(task, call->task->epoch, reterr);
	if (r < 0)
		return r;
	stage = view_stage_get(task, call->name);
	if (!stage || !stage->running || stage->epoch != call->task->epoch)
		return error_set(reterr, ABOX_E_STATE, ABOX_STAGE_TASK, call->name, "is not running");
	call->again = !call->done && !task->canceled_seq &&
		      may_run_again(stage->runs, stage->max_runs, stage->causes, call->cause);
	call->delay_usec = call->again ? backoff(stage) : 0;
	fact->kind = FACT_STAGE_END;
	fact->task = call->task->id;
	fact->epoch = call->task->epoch;
	fact->name = call->name;
	fact->done = call->done;
	fact->cause = (uint32_t)call->cause;
	fact->reason = call->detail;
	return 1;
}

int abox_task_stage_done(abox_task *task, const char *name, abox_error **reterr)
{
	struct stage_call call = {.task = task, .name = name, .done = true};
	int r;

	r = check_stage(task, name, reterr);
	if (r < 0)
		return r;
	r = stage_append(&call, end_decide, true, reterr);
	return r < 0 ? r : 0;
}

int abox_task_stage_fail(abox_task *task, const char *name, int cause, const char *detail,
	uint64_t *retdelay_usec, abox_error **reterr)
{
	struct stage_call call = {.task = task, .name = name, .cause = cause, .detail = detail};
	int r;

	r = check_stage(task, name, reterr);
	if (r < 0)
		return r;
	if (cause < 0 || cause > ABOX_STAGE_CAUSE_POLICY)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_TASK, "cause", "is out of range");
	r = stage_append(&call, end_decide, true, reterr);
	if (r < 0)
		return r;
	if (retdelay_usec)
		*retdelay_usec = call.delay_usec;
	return call.again;
}

/* ---- a decision ---- */

static int decided_decide(struct engine_step *step, struct fact *fact, abox_error **reterr)
{
	struct stage_call *call = step->userdata;
	const struct view_task *task = view_task_get(step->view, call->task->id);
	const struct view_stage *stage;
	int r;

	r = decide_fence(task, call->task->epoch, reterr);
	if (r < 0)
		return r;
	stage = view_stage_get(task, call->name);
	if (!stage || !stage->running || stage->epoch == task->epoch)
		return error_set(
			reterr, ABOX_E_STATE, ABOX_STAGE_TASK, call->name, "there is nothing to decide");
	fact->kind = FACT_STAGE_DECIDED;
	fact->task = call->task->id;
	fact->epoch = call->task->epoch;
	fact->name = call->name;
	fact->done = call->done;
	fact->by = call->by;
	return 1;
}

int abox_task_stage_decide(abox_task *task, const char *name, int done, const char *by, abox_error **reterr)
{
	struct stage_call call = {.task = task, .name = name, .by = by, .done = done != 0};
	int r;

	r = check_stage(task, name, reterr);
	if (r < 0)
		return r;
	r = engine_check_name("by", by, 255, reterr);
	if (r < 0)
		return r;
	r = stage_append(&call, decided_decide, true, reterr);
	return r < 0 ? r : 0;
}
