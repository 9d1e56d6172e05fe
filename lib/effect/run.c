/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The common case in one call: begin, wait for others, ask the outside, get the approval, send, record. A
 * state machine of the public steps; whatever happens in between, the next call finds the effect where this
 * one left it.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "effect/owner.h"

struct run {
	abox_task *task;
	const struct abox_effect_options *options;
	abox_effect_do_fn do_fn;
	abox_effect_check_fn check_fn;
	void *userdata;
	uint64_t deadline; /* for other executors and settle times */
	uint64_t approval_deadline;
};

/* The id in "effect ID" or "approval ID", the place of an error. */
static const char *id_of_error(const abox_error *error, const char *word)
{
	const char *place = abox_error_get_place(error);
	size_t len = strlen(word);

	return place && strncmp(place, word, len) == 0 ? place + len : NULL;
}

static uint64_t left_until(uint64_t deadline)
{
	uint64_t now = clock_monotonic_usec();

	if (deadline == UINT64_MAX)
		return UINT64_MAX;
	return deadline > now ? deadline - now : 0;
}

static void pass(abox_error **reterr, abox_error **from)
{
	if (reterr) {
		abox_error_free(*reterr);
		*reterr = steal_ptr(*from);
	}
}

static void pause_a_little(uint64_t left)
{
	uint64_t usec = MIN(left, 20 * USEC_PER_MSEC);
	struct timespec ts = {0, (long)(usec * NSEC_PER_USEC)};

	nanosleep(&ts, NULL);
}

/* 1 when begin is to be asked again; else the code goes up. */
static int after_in_progress(const struct run *run, const abox_error *error)
{
	const char *id = id_of_error(error, "effect ");
	int r;

	if (!id || left_until(run->deadline) == 0)
		return ABOX_E_IN_PROGRESS;
	r = abox_effect_wait(run->task->journal, id, left_until(run->deadline), NULL);
	return r >= 0 ? 1 : ABOX_E_IN_PROGRESS;
}

static int after_unknown(const struct run *run, abox_error **error)
{
	_cleanup_(error_freep) abox_error *asked = NULL;
	const char *id = id_of_error(*error, "effect ");
	int r;

	if (!run->check_fn || !id || run->options->effect_class != ABOX_EFFECT_CHECKABLE)
		return ABOX_E_UNKNOWN;
	r = abox_effect_reconcile(run->task, id, run->check_fn, run->userdata, &asked);
	if (r >= 0 || r == ABOX_E_CONFLICT || r == ABOX_E_STATE)
		return 1; /* decided, by us or by somebody else meanwhile */
	if (r == ABOX_E_BUSY && left_until(run->deadline) > 0) {
		pause_a_little(left_until(run->deadline));
		return 1;
	}
	abox_error_free(*error);
	*error = steal_ptr(asked);
	return r;
}

static int begin(const struct run *run, abox_effect **ret, abox_error **reterr)
{
	int r;

	for (;;) {
		_cleanup_(error_freep) abox_error *error = NULL;

		r = abox_effect_begin(run->task, run->options, ret, &error);
		if (r == ABOX_E_IN_PROGRESS)
			r = after_in_progress(run, error);
		else if (r == ABOX_E_UNKNOWN)
			r = after_unknown(run, &error);
		else {
			pass(reterr, &error);
			return r;
		}
		if (r < 0) {
			pass(reterr, &error);
			return r;
		}
	}
}

static int dispatch(const struct run *run, abox_effect *effect, abox_error **reterr)
{
	int r;

	for (;;) {
		_cleanup_(error_freep) abox_error *error = NULL;
		const char *id;

		r = abox_effect_dispatch(effect, &error);
		id = r == ABOX_E_APPROVAL && abox_error_get_retryable(error) ? id_of_error(error, "approval ")
									     : NULL;
		if (id && left_until(run->approval_deadline) > 0) {
			r = abox_approval_wait(
				run->task->journal, id, left_until(run->approval_deadline), NULL);
			if (r >= 0)
				continue;
		}
		if (r < 0)
			pass(reterr, &error);
		return r;
	}
}

static int carry_out(const struct run *run, abox_effect **effect, abox_effect **ret, abox_error **reterr)
{
	const char *reason = NULL;
	int done, r;

	r = dispatch(run, *effect, reterr);
	if (r < 0)
		return r;
	done = run->do_fn(*effect, run->userdata);
	if (done < ABOX_DONE_UNCLEAR || done > ABOX_DONE_FAILED_RETRY)
		done = ABOX_DONE_UNCLEAR;
	if (done == ABOX_DONE_UNCLEAR)
		reason = "no clear answer";
	r = abox_effect_finish(*effect, done, reason, reterr);
	if (r == ABOX_E_UNRECORDED) {
		(*effect)->state = done == ABOX_DONE_COMMITTED ? ABOX_EFFECT_COMMITTED : ABOX_EFFECT_UNKNOWN;
		*ret = steal_ptr(
			*effect); /* it was done: the result is returned all the same (effects 1.5) */
	}
	return r;
}

static const char *unknown_place(const abox_effect *effect, char place[64])
{
	snprintf(place, 64, "effect %s", effect->id);
	return place;
}

int abox_effect_run(abox_task *task, const struct abox_effect_options *options, abox_effect_do_fn do_fn,
	abox_effect_check_fn check_fn, void *userdata, abox_effect **ret, abox_error **reterr)
{
	struct run run = {task, options, do_fn, check_fn, userdata, 0, 0};
	_cleanup_(effect_unrefp) abox_effect *effect = NULL;
	uint64_t now = clock_monotonic_usec();
	char place[64];
	int r, state;

	if (!task || !options || options->size < sizeof(*options) || !do_fn || !ret)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, NULL,
			"task, options, a function and ret are required");
	run.deadline = clock_deadline(now, options->wait_usec);
	run.approval_deadline = clock_deadline(now, options->approval_wait_usec);
	r = begin(&run, &effect, reterr);
	if (r < 0)
		return r;
	if (r == ABOX_BEGIN_GO) {
		r = carry_out(&run, &effect, ret, reterr);
		if (r == ABOX_EFFECT_UNKNOWN)
			return error_remedy(reterr,
				error_set(reterr, ABOX_E_UNKNOWN, ABOX_STAGE_EFFECT, unknown_place(effect, place),
					"it was sent, and no clear answer came: whether it happened is not known"),
				"find out and resolve it, or let it be tried again, by name");
		if (r < 0)
			return r;
	}
	state = effect->state;
	*ret = steal_ptr(effect);
	return state;
}
