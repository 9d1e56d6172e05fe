/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The commit boundary: one record before which nothing is visible outside, and after which change set,
 * artifacts and deferred effects follow in journal order, one by one. The first that is not committed stops
 * the rest until somebody decides; nothing is undone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "effect/deferred.h"

void abox_commit_options_init(struct abox_commit_options *options)
{
	*options = (struct abox_commit_options){.size = sizeof(*options)};
}

struct commit_call {
	abox_task *task;
	const struct abox_commit_options *options;
	const char **effects; /* borrowed, under the lock */
	const char **approvals;
	bool crossed; /* the boundary is behind us */
	/* What is to be done, copied out of the view. */
	char **bound;
	uint64_t done_steps;
	uint64_t step; /* of a TASK_STEP */
	struct id_seq {
		char *id;
		uint64_t payload_seq;
	} * deferred;
	size_t n_deferred;
};

static void commit_call_clear(struct commit_call *call)
{
	free((void *)call->effects);
	free((void *)call->approvals);
	for (size_t i = 0; call->bound && call->bound[i]; i++)
		free(call->bound[i]);
	free((void *)call->bound);
	for (size_t i = 0; i < call->n_deferred; i++)
		free(call->deferred[i].id);
	free(call->deferred);
}

static size_t count_list(const char *const *list)
{
	size_t n = 0;

	while (list && list[n])
		n++;
	return n;
}

/* ---- before the boundary ---- */

static int look_deferred(
	struct view *view, const struct decide_context *context, void *userdata, abox_error **reterr)
{
	struct commit_call *call = userdata;
	const struct view_task *task = view_task_get(view, call->task->id);
	size_t n = 0;
	int r;

	r = decide_fence(task, call->task->epoch, reterr);
	if (r < 0)
		return r;
	call->crossed = task->boundary_seq != 0;
	for (const struct view_effect *effect = task->effects; effect; effect = effect->next)
		n += effect->deferred && effect->state == ABOX_EFFECT_INTENDED;
	call->deferred = calloc(n + 1, sizeof(*call->deferred));
	if (!call->deferred)
		return ABOX_E_MEMORY;
	for (const struct view_effect *effect = task->effects; effect; effect = effect->next) {
		struct id_seq *at = &call->deferred[call->n_deferred];

		if (!effect->deferred || effect->state != ABOX_EFFECT_INTENDED)
			continue;
		at->payload_seq = effect->payload_seq;
		at->id = strdup(effect->id);
		call->n_deferred++;
		if (!at->id)
			return ABOX_E_MEMORY;
	}
	return 0;
}

/* Requests are on disk, and whole: a blob is read against its digest. */
static int check_requests(const struct commit_call *call, abox_error **reterr)
{
	for (size_t i = 0; i < call->n_deferred; i++) {
		_cleanup_(freep) char *data = NULL;
		size_t len = 0;
		int r;

		if (!call->deferred[i].payload_seq)
			continue;
		r = engine_load(call->task->journal, call->deferred[i].payload_seq, true, &data, &len, NULL,
			NULL, reterr);
		if (r < 0)
			return error_prefix(reterr, r, "request of effect %s", call->deferred[i].id);
	}
	return 0;
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool same_list(const char *const *a, char *const *b)
{
	size_t n = count_list(a);

	if (n != count_list((const char *const *)b))
		return false;
	for (size_t i = 0; i < n; i++)
		if (strcmp(a[i], b[i]) != 0)
			return false;
	return true;
}

/* Uses that this boundary takes of a request before the one at hand. */
static uint32_t taken(const char *const *approvals, size_t n, const char *id)
{
	uint32_t uses = 0;

	for (size_t i = 0; i < n; i++)
		uses += strcmp(approvals[i], id) == 0;
	return uses;
}

static int take_approval(struct commit_call *call, const struct view *view, const struct view_effect *effect,
	const struct decide_context *context, size_t *n, abox_error **reterr)
{
	for (const struct view_approval *approval = effect->task->approvals; approval;
		approval = approval->next)
		if (approval->effect_class == effect->effect_class &&
			strcmp(approval->fingerprint, effect->fingerprint) == 0 &&
			decide_approval_state(view, approval, context) == ABOX_APPROVAL_GRANTED &&
			approval->used + taken(call->approvals, *n, approval->id) < approval->uses) {
			call->approvals[(*n)++] = approval->id;
			return 0;
		}
	return decide_effect_error(reterr, ABOX_E_APPROVAL, effect,
		"'%s' is not approved; nothing was committed", effect->what ? effect->what : effect->target);
}

static int gather(struct commit_call *call, const struct view *view, const struct view_task *task,
	const struct decide_context *context, abox_error **reterr)
{
	size_t n = 0, n_approvals = 0, total = 0;
	int r;

	for (const struct view_effect *effect = task->effects; effect; effect = effect->next)
		total++;
	free((void *)call->effects);
	free((void *)call->approvals);
	call->effects = calloc(total + 1, sizeof(*call->effects));
	call->approvals = calloc(total + 1, sizeof(*call->approvals));
	if (!call->effects || !call->approvals)
		return ABOX_E_MEMORY;
	for (const struct view_effect *effect = task->effects; effect; effect = effect->next) {
		if (!effect->deferred)
			continue;
		if (effect->state == ABOX_EFFECT_NONE && !effect->bound_away && !effect->allowed)
			return decide_effect_error(reterr, ABOX_E_AMBIGUOUS, effect,
				"is held back and ambiguous; nothing was committed");
		if (effect->state != ABOX_EFFECT_INTENDED)
			continue;
		if (effect->needs_approval) {
			r = take_approval(call, view, effect, context, &n_approvals, reterr);
			if (r < 0)
				return r;
		}
		call->effects[n++] = effect->id;
	}
	return 0;
}

static int boundary_decide(struct engine_step *step, struct fact *fact, abox_error **reterr)
{
	struct commit_call *call = step->userdata;
	const struct view_task *task = view_task_get(step->view, call->task->id);
	int r;

	r = decide_admission(task, call->task->epoch, reterr);
	if (r < 0)
		return r;
	if (task->boundary_seq) {
		if (!same_text(call->options->change_set, task->change_set) ||
			!same_list(call->options->artifacts, task->artifacts))
			return error_set(reterr, ABOX_E_CONFLICT, ABOX_STAGE_TASK, NULL,
				"the boundary was crossed with another change set or other artifacts");
		return 0;
	}
	r = gather(call, step->view, task, &step->context, reterr);
	if (r < 0)
		return r;
	fact->kind = FACT_TASK_BOUNDARY;
	fact->task = task->id;
	fact->epoch = call->task->epoch;
	fact->change_set = call->options->change_set;
	fact->artifacts = call->options->artifacts;
	fact->effects = call->effects;
	fact->approvals = call->approvals;
	return 1;
}

static int cross(struct commit_call *call, abox_error **reterr)
{
	struct engine_step step = {.journal = call->task->journal,
		.asker = call->task,
		.decide = boundary_decide,
		.userdata = call};
	const struct abox_commit_options *options = call->options;
	int r;

	r = engine_look(call->task->journal, call->task, look_deferred, call, NULL, reterr);
	if (r < 0)
		return r;
	if (call->n_deferred && !options->do_fn)
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_TASK, "do_fn", "is required for deferred effects");
	if (!call->crossed) {
		r = check_requests(call, reterr);
		if (r < 0)
			return r;
		if (options->change_set && options->drift) {
			r = options->drift(options->change_set, options->userdata, reterr);
			if (r < 0)
				return r;
		}
	}
	/* Believed only when durable, whoever wrote it. */
	r = engine_append_durable(&step, reterr);
	engine_step_clear(&step);
	return r < 0 ? r : 0;
}

/* ---- after it ---- */

static int look_bound(
	struct view *view, const struct decide_context *context, void *userdata, abox_error **reterr)
{
	struct commit_call *call = userdata;
	const struct view_task *task = view_task_get(view, call->task->id);
	size_t n;
	int r;

	r = decide_fence(task, call->task->epoch, reterr);
	if (r < 0)
		return r;
	call->done_steps = task->done_steps;
	if (call->bound)
		return 0;
	n = count_list((const char *const *)task->bound_effects);
	call->bound = calloc(n + 1, sizeof(*call->bound));
	if (!call->bound)
		return ABOX_E_MEMORY;
	for (size_t i = 0; i < n; i++) {
		call->bound[i] = strdup(task->bound_effects[i]);
		if (!call->bound[i])
			return ABOX_E_MEMORY;
	}
	return 0;
}

static int step_decide(struct engine_step *step, struct fact *fact, abox_error **reterr)
{
	const struct commit_call *call = step->userdata;
	const struct view_task *task = view_task_get(step->view, call->task->id);
	int r;

	r = decide_fence(task, call->task->epoch, reterr);
	if (r < 0)
		return r;
	if (task->done_steps >= call->step)
		return 0;
	fact->kind = FACT_TASK_STEP;
	fact->task = task->id;
	fact->epoch = call->task->epoch;
	fact->step = call->step;
	fact->name = call->step == 1 && task->change_set ? "apply" : "artifact";
	return 1;
}

static int record_step(struct commit_call *call, uint64_t number, abox_error **reterr)
{
	struct engine_step step = {
		.journal = call->task->journal, .asker = call->task, .decide = step_decide, .userdata = call};
	int r;

	call->step = number;
	r = engine_append_durable(&step, reterr);
	engine_step_clear(&step);
	return r < 0 ? r : 0;
}

/* Change set and artifacts have no state of their own: they are redone from the record, so both must be
 * repeatable. */
static int publish_plain(struct commit_call *call, abox_error **reterr)
{
	const struct abox_commit_options *options = call->options;
	uint64_t number = 0;
	int r;

	if (options->change_set && call->done_steps < ++number) {
		r = options->apply(options->change_set, options->userdata, reterr);
		if (r >= 0)
			r = record_step(call, number, reterr);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; options->artifacts && options->artifacts[i]; i++) {
		if (call->done_steps >= ++number)
			continue;
		r = options->publish(options->artifacts[i], options->userdata, reterr);
		if (r >= 0)
			r = record_step(call, number, reterr);
		if (r < 0)
			return r;
	}
	return 0;
}

/* 0 committed, 1 ask again, negative: it stops here. */
static int send_deferred(const struct commit_call *call, abox_effect *effect, abox_error **reterr)
{
	const char *id = abox_effect_get_id(effect);
	char place[64];
	int r, done;

	if (!call->options->do_fn)
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_TASK, "do_fn", "is required for deferred effects");
	r = abox_effect_dispatch(effect, reterr);
	if (r < 0)
		return r;
	done = call->options->do_fn(effect, call->options->userdata);
	r = abox_effect_finish(effect, done, done == ABOX_DONE_UNCLEAR ? "no clear answer" : NULL, reterr);
	if (r < 0)
		return r;
	if (r == ABOX_EFFECT_COMMITTED)
		return 0;
	snprintf(place, sizeof(place), "effect %s", id);
	return error_set(reterr, r == ABOX_EFFECT_UNKNOWN ? ABOX_E_UNKNOWN : ABOX_E_STATE, ABOX_STAGE_TASK,
		place, "is %s; what comes after it waits", abox_effect_state_name(r));
}

static int publish_effect(const struct commit_call *call, const char *id, abox_error **reterr)
{
	for (;;) {
		_cleanup_(effect_unrefp) abox_effect *effect = NULL;
		char place[64];
		int r;

		snprintf(place, sizeof(place), "effect %s", id);
		r = deferred_begin(call->task, id, &effect, reterr);
		if (r == ABOX_BEGIN_GO)
			return send_deferred(call, effect, reterr);
		if (r == ABOX_E_UNKNOWN && call->options->check_fn) {
			if (reterr)
				*reterr = abox_error_free(*reterr);
			r = abox_effect_reconcile(
				call->task, id, call->options->check_fn, call->options->userdata, reterr);
			if (r < 0)
				return r;
			continue;
		}
		if (r < 0)
			return r;
		if (abox_effect_get_state(effect) == ABOX_EFFECT_COMMITTED)
			return 0;
		return error_set(reterr, ABOX_E_STATE, ABOX_STAGE_TASK, place,
			"is %s; what comes after it waits",
			abox_effect_state_name(abox_effect_get_state(effect)));
	}
}

static int publish(struct commit_call *call, abox_error **reterr)
{
	int r;

	r = engine_look(call->task->journal, call->task, look_bound, call, NULL, reterr);
	if (r < 0)
		return r;
	r = publish_plain(call, reterr);
	for (size_t i = 0; r >= 0 && call->bound[i]; i++)
		r = publish_effect(call, call->bound[i], reterr);
	return r < 0 ? r : 0;
}

static int check_options(
	const abox_task *task, const struct abox_commit_options *options, abox_error **reterr)
{
	int r;

	r = owner_check(task, reterr);
	if (r < 0)
		return r;
	if (!task->controls)
		return error_set(reterr, ABOX_E_STATE, ABOX_STAGE_TASK, NULL, "only the owner commits");
	if (!options || options->size < sizeof(*options))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_TASK, NULL,
			"options with their size are required");
	if ((options->change_set && !options->apply) || (count_list(options->artifacts) && !options->publish))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_TASK, NULL,
			"apply and publish are required for what there is to do");
	if (options->change_set &&
		(r = engine_check_name("change_set", options->change_set, 1024, reterr)) < 0)
		return r;
	for (size_t i = 0; options->artifacts && options->artifacts[i]; i++) {
		const char *artifact = options->artifacts[i];

		for (size_t at = 0, n; artifact[at]; at += n) {
			n = utf8_char_len(artifact + at, strlen(artifact + at));
			if (n == 0)
				return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_TASK, "artifacts",
					"must be UTF-8");
		}
	}
	return 0;
}

int abox_task_commit(abox_task *task, const struct abox_commit_options *options, abox_error **reterr)
{
	struct commit_call call = {.task = task, .options = options};
	int r;

	r = check_options(task, options, reterr);
	if (r < 0)
		return r;
	r = cross(&call, reterr);
	if (r >= 0)
		r = publish(&call, reterr);
	commit_call_clear(&call);
	return r;
}
