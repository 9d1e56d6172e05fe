/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Decisions over the view. Rule numbers are those of RULES.md in this folder; tests/model has the models in
 * which each of these checks was left out once to see what breaks.
 */
#include "effect/decide.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int decide_effect_error(
	abox_error **reterr, int code, const struct view_effect *effect, const char *format, ...)
{
	char place[128], message[512];
	va_list args;

	snprintf(place, sizeof(place), "effect %s", effect->id);
	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	return error_set(reterr, code, ABOX_STAGE_EFFECT, place, "%s", message);
}

/* ---- the task ---- */

int decide_fence(const struct view_task *task, uint64_t epoch, abox_error **reterr)
{
	if (!task || task->epoch == 0)
		return error_set(
			reterr, ABOX_E_STATE, ABOX_STAGE_TASK, NULL, "nobody has taken control of the task");
	/* Security: checked in the append itself (effects 1.8); outside, an effect could start unlisted. */
	if (task->epoch != epoch)
		return error_set(reterr, ABOX_E_FENCED, ABOX_STAGE_TASK, NULL,
			"attempt %llu of task '%s' has taken over from attempt %llu",
			(unsigned long long)task->epoch, task->id, (unsigned long long)epoch);
	return 0;
}

int decide_admission(const struct view_task *task, uint64_t epoch, abox_error **reterr)
{
	int r;

	r = decide_fence(task, epoch, reterr);
	if (r < 0)
		return r;
	if (task->ended)
		return error_set(reterr, ABOX_E_ALREADY, ABOX_STAGE_TASK, NULL, "task '%s' is over: %s",
			task->id, abox_task_status_name(task->ended));
	if (task->canceled_seq)
		return error_set(reterr, ABOX_E_CANCELED, ABOX_STAGE_TASK, NULL,
			"task '%s' was canceled by %s", task->id,
			task->canceled_by ? task->canceled_by : "somebody");
	return 0;
}

bool decide_lease_is_over(const struct view_task *task, const struct decide_context *context)
{
	if (task->lease_until_usec == UINT64_MAX)
		return false;
	return strcmp(task->lease_boot, context->boot) != 0 || context->boot_usec >= task->lease_until_usec;
}

int decide_status(const struct view *view, const struct view_task *task, const struct decide_context *context,
	abox_error **reterr)
{
	int alive;

	if (!task || (task->epoch == 0 && !task->ended && !task->canceled_seq))
		return ABOX_TASK_NEW;
	if (task->ended)
		return task->ended;
	if (task->canceled_seq)
		return ABOX_TASK_CANCELED;
	if (task->boundary_seq && !view_task_is_published(view, task))
		return ABOX_TASK_COMMITTING;
	/* The lock decides, whatever pid or namespace the owner has (effects 0.8). */
	alive = context->alive(context->userdata, task->executor, 0, reterr);
	if (alive < 0)
		return alive;
	/* A lease that is over permits takeover; it proves no death. */
	return alive && !decide_lease_is_over(task, context) ? ABOX_TASK_RUNNING : ABOX_TASK_RESUMABLE;
}

/* ---- approvals ---- */

static bool approval_expired(
	const struct view *view, const struct view_approval *approval, const struct decide_context *context)
{
	/* Wall time never earlier than the newest record: a clock set back gives no time (effects 1.10). */
	if (approval->wall)
		return MAX(context->wall_usec, view->max_time_usec) >= approval->until_usec;
	return strcmp(approval->boot, context->boot) != 0 || context->boot_usec >= approval->until_usec;
}

int decide_approval_state(
	const struct view *view, const struct view_approval *approval, const struct decide_context *context)
{
	if (approval->used >= approval->uses)
		return ABOX_APPROVAL_USED;
	if (approval->denied)
		return ABOX_APPROVAL_DENIED;
	if (approval->revoked)
		return ABOX_APPROVAL_REVOKED;
	if (approval->task->ended || approval->task->canceled_seq)
		return ABOX_APPROVAL_CLOSED;
	if (approval_expired(view, approval, context))
		return ABOX_APPROVAL_EXPIRED;
	return approval->granted ? ABOX_APPROVAL_GRANTED : ABOX_APPROVAL_PENDING;
}

struct view_approval *decide_usable_approval(const struct view *view, const struct view_task *task,
	const char *fingerprint, int effect_class, const struct decide_context *context,
	struct view_approval **retnewest)
{
	struct view_approval *newest = NULL;

	for (struct view_approval *approval = task->approvals; approval; approval = approval->next) {
		if (approval->effect_class != effect_class || strcmp(approval->fingerprint, fingerprint) != 0)
			continue;
		if (decide_approval_state(view, approval, context) == ABOX_APPROVAL_GRANTED)
			return approval;
		newest = approval;
	}
	if (retnewest)
		*retnewest = newest;
	return NULL;
}

/* ---- begin ---- */

static bool is_candidate(const struct view_effect *effect, const char *target, uint64_t epoch)
{
	return (effect->effect_class == ABOX_EFFECT_OPAQUE ||
		       effect->effect_class == ABOX_EFFECT_CHECKABLE) &&
	       effect->attempt < epoch && effect->claimed < epoch && strcmp(effect->target, target) == 0 &&
	       view_effect_may_have_happened(effect);
}

size_t decide_candidates(const struct view_task *task, const char *target, uint64_t epoch,
	void (*emit)(void *userdata, const struct view_effect *effect), void *userdata)
{
	size_t n = 0;

	for (const struct view_effect *effect = task->effects; effect; effect = effect->next)
		if (is_candidate(effect, target, epoch)) {
			n++;
			if (emit)
				emit(userdata, effect);
		}
	return n;
}

static size_t count_on_target(const struct view_task *task, const char *target)
{
	size_t n = 0;

	for (const struct view_effect *effect = task->effects; effect; effect = effect->next)
		n += effect->state != ABOX_EFFECT_NONE && effect->state != ABOX_EFFECT_CANCELED &&
		     strcmp(effect->target, target) == 0;
	return n;
}

static int answer(struct begin_decision *ret, int code)
{
	ret->step = BEGIN_ANSWER;
	ret->code = code;
	return 0;
}

static int step(struct begin_decision *ret, enum begin_step what)
{
	ret->step = what;
	return 0;
}

/* A copied journal does not know what the original did since: any key it does not know is ambiguous (effects
 * 0.7). */
static bool is_ambiguous(const struct view_task *task, uint64_t epoch, const struct wish *wish)
{
	return task->adopted ||
	       (wish->derived && decide_candidates(task, wish->target, epoch, NULL, NULL) > 0);
}

static int check_room_for_wish(const struct view_task *task, const struct wish *wish, abox_error **reterr)
{
	if (wish->deferred && task->boundary_seq)
		return error_set(reterr, ABOX_E_ALREADY, ABOX_STAGE_EFFECT, NULL,
			"task '%s' is beyond its commit boundary: nothing more can be held back", task->id);
	if (wish->limit && count_on_target(task, wish->target) >= wish->limit)
		return error_set(reterr, ABOX_E_LIMIT, ABOX_STAGE_EFFECT, NULL,
			"the task has had its %llu effects on this target", (unsigned long long)wish->limit);
	return 0;
}

static int begin_unknown_key(const struct view_task *task, uint64_t epoch, const struct wish *wish,
	struct begin_decision *ret, abox_error **reterr)
{
	int r;

	r = decide_admission(task, epoch, reterr);
	if (r < 0)
		return answer(ret, r);
	r = check_room_for_wish(task, wish, reterr);
	if (r < 0)
		return answer(ret, r);
	if (wish->claim_id)
		return step(ret, BEGIN_MARK_CLAIMED);
	if (!wish->new_by && is_ambiguous(task, epoch, wish))
		return step(ret, BEGIN_MARK_AMBIGUOUS);
	ret->try = 1;
	return step(ret, BEGIN_INTEND);
}

static int begin_ambiguous(const struct view_task *task, uint64_t epoch, const struct wish *wish,
	struct begin_decision *ret, abox_error **reterr)
{
	struct view_effect *effect = ret->effect;
	int r;

	r = decide_admission(task, epoch, reterr);
	if (r < 0)
		return answer(ret, r);
	r = check_room_for_wish(task, wish, reterr);
	if (r < 0)
		return answer(ret, r);
	if (wish->claim_id)
		return step(ret, BEGIN_MARK_CLAIMED);
	if (!effect->allowed && wish->new_by)
		return step(ret, BEGIN_MARK_ALLOWED);
	if (!effect->allowed && is_ambiguous(task, epoch, wish)) {
		r = decide_effect_error(reterr, ABOX_E_AMBIGUOUS, effect,
			"may be a repeat of one of %zu earlier effects on '%s'",
			decide_candidates(task, wish->target, epoch, NULL, NULL), wish->target);
		return answer(ret,
			error_remedy(reterr, r, "claim it for one of them, or allow it as new, by name"));
	}
	ret->try = 1;
	return step(ret, BEGIN_INTEND);
}

static int begin_next_try(const struct view_task *task, uint64_t epoch, struct begin_decision *ret,
	bool by_name, abox_error **reterr)
{
	int r;

	r = decide_admission(task, epoch, reterr);
	if (r < 0)
		return answer(ret, r);
	if (!by_name && ret->effect->try >= ret->effect->max_tries)
		return answer(ret, decide_effect_error(reterr, ABOX_E_LIMIT, ret->effect,
					   "its %u tries are used up", ret->effect->max_tries));
	ret->try = ret->effect->try + 1;
	return step(ret, BEGIN_INTEND);
}

/* Held back ones are carried out by the commit and nobody else. */
static int begin_intended(const struct view_task *task, uint64_t epoch, const struct wish *wish,
	const struct decide_context *context, struct begin_decision *ret, abox_error **reterr)
{
	struct view_effect *effect = ret->effect;
	int r;

	r = decide_admission(task, epoch, reterr);
	if (r < 0)
		return answer(ret, r);
	if (effect->deferred && wish)
		return effect->claimed < epoch ? step(ret, BEGIN_MARK_REPLAY)
					       : answer(ret, ABOX_BEGIN_DEFERRED);
	r = context->alive(context->userdata, effect->executor, effect->handle, reterr);
	if (r < 0)
		return r;
	/* A fenced owner can no longer dispatch what it only intended. */
	if (r > 0 && effect->epoch == epoch)
		return answer(ret,
			decide_effect_error(reterr, ABOX_E_IN_PROGRESS, effect, "is being begun elsewhere"));
	ret->try = effect->try;
	return step(ret, BEGIN_INTEND);
}

static int begin_dispatched(
	const struct decide_context *context, struct begin_decision *ret, abox_error **reterr)
{
	int r;

	/* Security: never because it was fenced or its harness died; whoever holds the lock may still be
	 * sending (effects 1.7). */
	r = context->alive(context->userdata, ret->effect->executor, ret->effect->handle, reterr);
	if (r < 0)
		return r;
	if (r == 0)
		return step(ret, BEGIN_MARK_UNKNOWN);
	return answer(ret, decide_effect_error(reterr, ABOX_E_IN_PROGRESS, ret->effect, "is being executed"));
}

static int begin_unknown(
	const struct view_task *task, uint64_t epoch, struct begin_decision *ret, abox_error **reterr)
{
	struct view_effect *effect = ret->effect;
	int r;

	if (effect->overridden)
		return begin_next_try(task, epoch, ret, true, reterr);
	if (effect->effect_class == ABOX_EFFECT_IDEMPOTENT || effect->effect_class == ABOX_EFFECT_PURE)
		return begin_next_try(task, epoch, ret, false, reterr);
	r = decide_effect_error(
		reterr, ABOX_E_UNKNOWN, effect, "whether try %u happened is not known", effect->try);
	return answer(
		ret, error_remedy(reterr, r, "find out and resolve it, or let it be tried again, by name"));
}

static int begin_known(const struct view_task *task, uint64_t epoch, const struct wish *wish,
	const struct decide_context *context, struct begin_decision *ret, abox_error **reterr)
{
	struct view_effect *effect = ret->effect;

	switch (effect->state) {
	case ABOX_EFFECT_NONE:
		if (!wish)
			break;
		return begin_ambiguous(task, epoch, wish, ret, reterr);
	case ABOX_EFFECT_INTENDED:
		return begin_intended(task, epoch, wish, context, ret, reterr);
	case ABOX_EFFECT_DISPATCHED:
		return begin_dispatched(context, ret, reterr);
	case ABOX_EFFECT_UNKNOWN:
		return begin_unknown(task, epoch, ret, reterr);
	case ABOX_EFFECT_ABSENT:
		return begin_next_try(task, epoch, ret, false, reterr);
	case ABOX_EFFECT_FAILED:
		if (!view_effect_is_final(effect) && decide_admission(task, epoch, NULL) == 0)
			return begin_next_try(task, epoch, ret, false, reterr);
		break;
	case ABOX_EFFECT_CANCELED:
		return answer(ret,
			decide_effect_error(reterr, ABOX_E_CANCELED, effect, "was canceled and not done"));
	case ABOX_EFFECT_ABANDONED:
		return answer(ret, decide_effect_error(reterr, ABOX_E_ALREADY, effect,
					   "was abandoned: whether it happened stays unknown"));
	default:
		break;
	}
	/* COMMITTED or final FAILED: the stored result. */
	if (effect->claimed < epoch && !task->ended)
		return step(ret, BEGIN_MARK_REPLAY);
	return answer(ret, ABOX_BEGIN_REPLAY);
}

int decide_begin(const struct view *view, const struct view_task *task, uint64_t epoch,
	const struct wish *wish, const struct decide_context *context, struct begin_decision *ret,
	abox_error **reterr)
{
	struct view_effect *effect;
	int r;

	*ret = (struct begin_decision){0};
	r = decide_fence(task, epoch, reterr);
	if (r < 0)
		return answer(ret, r);
	effect = view_effect_by_key(task, wish->key, wish->derived);
	if (!effect)
		return begin_unknown_key(task, epoch, wish, ret, reterr);
	ret->effect = effect;
	if (effect->misfit)
		return answer(ret, decide_effect_error(reterr, ABOX_E_DAMAGED, effect,
					   "the journal holds records of it that fit no rule"));
	/* Scope of a key: the task, not the class; a changed class must not run it again (effects 1.1). A
	 * derived key is its fingerprint, or was claimed for this effect. */
	if (effect->effect_class != wish->effect_class ||
		(!wish->derived && strcmp(effect->fingerprint, wish->fingerprint) != 0))
		return step(ret, BEGIN_MARK_CONFLICT);
	return begin_known(task, epoch, wish, context, ret, reterr);
}

int decide_begin_bound(const struct view_effect *effect, uint64_t epoch, const struct decide_context *context,
	struct begin_decision *ret, abox_error **reterr)
{
	int r;

	*ret = (struct begin_decision){.effect = (struct view_effect *)effect};
	r = decide_fence(effect->task, epoch, reterr);
	if (r < 0)
		return answer(ret, r);
	if (!effect->bound || effect->misfit)
		return answer(ret, decide_effect_error(reterr, ABOX_E_STATE, effect,
					   "does not wait behind the boundary"));
	return begin_known(effect->task, epoch, NULL, context, ret, reterr);
}

/* ---- dispatch ---- */

/* Order after the boundary: each deferred effect waits until all before it are committed. */
static int check_bound_order(const struct view *view, const struct view_effect *effect, abox_error **reterr)
{
	const struct view_task *task = effect->task;

	if (!effect->bound || task->done_steps < view_task_plain_steps(task))
		return decide_effect_error(
			reterr, ABOX_E_STATE, effect, "is held back until the commit boundary");
	for (size_t i = 0; task->bound_effects[i] && strcmp(task->bound_effects[i], effect->id) != 0; i++) {
		const struct view_effect *before = view_effect_get(view, task->bound_effects[i]);

		if (!before || before->state != ABOX_EFFECT_COMMITTED)
			return decide_effect_error(reterr, ABOX_E_STATE, effect,
				"waits for effect %s, which comes before it", task->bound_effects[i]);
	}
	return 0;
}

static int check_approval(const struct view *view, const struct view_effect *effect,
	const struct decide_context *context, struct view_approval **retapproval, abox_error **reterr)
{
	struct view_approval *usable, *newest = NULL;
	char place[128];
	int state, r;

	*retapproval = NULL;
	if (!effect->needs_approval || effect->credit)
		return 0;
	usable = decide_usable_approval(
		view, effect->task, effect->fingerprint, effect->effect_class, context, &newest);
	if (usable) {
		*retapproval = usable;
		return 0;
	}
	if (!newest)
		return decide_effect_error(
			reterr, ABOX_E_APPROVAL, effect, "needs an approval, and none was asked for");
	state = decide_approval_state(view, newest, context);
	snprintf(place, sizeof(place), "approval %s", newest->id);
	r = error_set(reterr, ABOX_E_APPROVAL, ABOX_STAGE_EFFECT, place, "approval is %s",
		abox_approval_state_name(state));
	if (state != ABOX_APPROVAL_PENDING)
		return r;
	r = error_remedy(reterr, r, "have it granted, by name, and call again");
	return error_retryable(reterr, r);
}

int decide_dispatch(const struct view *view, const struct view_effect *effect, uint32_t try, uint64_t epoch,
	const char *executor, uint64_t handle, const struct decide_context *context,
	struct view_approval **retapproval, abox_error **reterr)
{
	int r;

	/* Security: all of this in one locked append with DISPATCHED (effects 1.4). */
	r = decide_fence(effect->task, epoch, reterr);
	if (r < 0)
		return r;
	if (effect->state == ABOX_EFFECT_CANCELED)
		return decide_effect_error(reterr, ABOX_E_CANCELED, effect, "was canceled");
	r = decide_admission(effect->task, epoch, reterr);
	if (r < 0)
		return r;
	if (effect->misfit || effect->state != ABOX_EFFECT_INTENDED || effect->try != try)
		return decide_effect_error(reterr, ABOX_E_STATE, effect,
			"try %u is %s and cannot be dispatched", effect->try,
			abox_effect_state_name(effect->state));
	if (!effect->executor || strcmp(effect->executor, executor) != 0 || effect->handle != handle)
		return decide_effect_error(reterr, ABOX_E_IN_PROGRESS, effect, "was taken over");
	if (effect->deferred) {
		r = check_bound_order(view, effect, reterr);
		if (r < 0)
			return r;
	}
	return check_approval(view, effect, context, retapproval, reterr);
}

/* ---- verdicts ---- */

bool decide_is_settled(
	const struct view_effect *effect, const struct decide_context *context, uint64_t *retleft_usec)
{
	uint64_t settle = effect->settle_usec ? effect->settle_usec : DECIDE_SETTLE_USEC, passed;

	/* UNKNOWN was written when the executor was found dead or let go: not before its end. After a reboot
	 * the sender ended before this boot began. */
	if (!effect->boot[0])
		passed = context->wall_usec > effect->unknown_time_usec
				 ? context->wall_usec - effect->unknown_time_usec
				 : 0;
	else if (strcmp(effect->boot, context->boot) == 0)
		passed = context->boot_usec > effect->boot_usec ? context->boot_usec - effect->boot_usec : 0;
	else
		passed = context->boot_usec;
	if (retleft_usec)
		*retleft_usec = passed < settle ? settle - passed : 0;
	return passed >= settle;
}

int decide_verdict(const struct view_effect *effect, int verdict, const struct decide_context *context,
	abox_error **reterr)
{
	uint64_t left = 0;
	int r;

	if (effect->misfit)
		return decide_effect_error(
			reterr, ABOX_E_DAMAGED, effect, "the journal holds records of it that fit no rule");
	if (effect->state == ABOX_EFFECT_DISPATCHED) {
		r = context->alive(context->userdata, effect->executor, effect->handle, reterr);
		if (r < 0)
			return r;
		if (r > 0)
			return decide_effect_error(reterr, ABOX_E_IN_PROGRESS, effect,
				"its executor lives and may still be sending");
		return 1;
	}
	if (effect->state != ABOX_EFFECT_UNKNOWN)
		return decide_effect_error(reterr, ABOX_E_STATE, effect, "is %s: there is nothing to decide",
			abox_effect_state_name(effect->state));
	if (verdict == ABOX_EFFECT_ABSENT && !decide_is_settled(effect, context, &left)) {
		r = decide_effect_error(reterr, ABOX_E_BUSY, effect,
			"what was sent may still arrive for %llu ms: absent cannot be said yet",
			(unsigned long long)((left + USEC_PER_MSEC - 1) / USEC_PER_MSEC));
		return error_retryable(reterr, r);
	}
	return 0;
}

const char *abox_approval_state_name(int state)
{
	static const char *const names[] = {
		"PENDING", "GRANTED", "DENIED", "REVOKED", "EXPIRED", "USED", "CLOSED"};

	return state >= 0 && (size_t)state < ELEMENTSOF(names) ? names[state] : "?";
}
