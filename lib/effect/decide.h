/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The questions asked of the view under the append lock: what may this wish, dispatch, outcome, verdict,
 * opening do now? Pure: no journal, no clock; whether an executor lives is asked through the context. An
 * answer is a code, or a record that has to be appended before the question is asked again.
 */
#ifndef EFFECT_DECIDE_H
#define EFFECT_DECIDE_H

#include "base/error.h"
#include "effect/view.h"

#define DECIDE_SETTLE_USEC (60 * USEC_PER_SEC)
#define DECIDE_MAX_TRIES 5

struct decide_context {
	const char *boot; /* id of this boot */
	uint64_t boot_usec;
	uint64_t wall_usec;
	/* 1 alive, 0 dead, negative code. executor may be NULL (dead). */
	int (*alive)(void *userdata, const char *executor, uint64_t handle, abox_error **reterr);
	void *userdata;
};

/* A wish as begin knows it. */
struct wish {
	const char *key;
	bool derived;
	int effect_class;
	const char *fingerprint;
	const char *target;
	bool deferred;
	uint64_t limit;
	const char *new_by;
	const char *claim_id;
	const char *claim_by;
};

enum begin_step {
	BEGIN_ANSWER,       /* code says what: REPLAY, DEFERRED, or negative */
	BEGIN_INTEND,       /* append INTENDED with .try; .effect is NULL for a new one */
	BEGIN_MARK_UNKNOWN, /* its executor is dead */
	BEGIN_MARK_CONFLICT,
	BEGIN_MARK_AMBIGUOUS,
	BEGIN_MARK_ALLOWED,
	BEGIN_MARK_CLAIMED,
	BEGIN_MARK_REPLAY /* this attempt asked for it for the first time */
};

struct begin_decision {
	enum begin_step step;
	int code;                   /* enum abox_begin or a negative code; the error is set then */
	struct view_effect *effect; /* NULL: there is none yet */
	uint32_t try;
};

int decide_begin(const struct view *view, const struct view_task *task, uint64_t epoch,
	const struct wish *wish, const struct decide_context *context, struct begin_decision *ret,
	abox_error **reterr);
/* The same for a deferred effect whose turn has come behind the commit boundary. */
int decide_begin_bound(const struct view_effect *effect, uint64_t epoch, const struct decide_context *context,
	struct begin_decision *ret, abox_error **reterr);
/* Effects of the task that an unknown wish may be a repeat of: calls emit for each; returns how many
 * (effects 1.1). */
size_t decide_candidates(const struct view_task *task, const char *target, uint64_t epoch,
	void (*emit)(void *userdata, const struct view_effect *effect), void *userdata);

/* 0: append DISPATCHED; *retapproval is the request whose use it takes, NULL when none is needed. */
int decide_dispatch(const struct view *view, const struct view_effect *effect, uint32_t try, uint64_t epoch,
	const char *executor, uint64_t handle, const struct decide_context *context,
	struct view_approval **retapproval, abox_error **reterr);

/* 0: UNKNOWN, a verdict may be given; 1: append UNKNOWN first, its executor is dead; negative: not now. */
int decide_verdict(const struct view_effect *effect, int verdict, const struct decide_context *context,
	abox_error **reterr);
/* True once nothing of a dead sender can arrive any more (effects 1.7); else *retleft_usec is what is
 * missing. */
bool decide_is_settled(
	const struct view_effect *effect, const struct decide_context *context, uint64_t *retleft_usec);

/* enum abox_approval_state */
int decide_approval_state(
	const struct view *view, const struct view_approval *approval, const struct decide_context *context);
/* The oldest request for this payload that can be used now; else NULL and *retnewest what stands in the way.
 */
struct view_approval *decide_usable_approval(const struct view *view, const struct view_task *task,
	const char *fingerprint, int effect_class, const struct decide_context *context,
	struct view_approval **retnewest);

/* enum abox_task_status or a negative code */
int decide_status(const struct view *view, const struct view_task *task, const struct decide_context *context,
	abox_error **reterr);
/* True when the owner's lease is over; a lease of another boot is. */
bool decide_lease_is_over(const struct view_task *task, const struct decide_context *context);
/* 0 when work under this epoch is admitted; FENCED, CANCELED, ALREADY else. */
int decide_admission(const struct view_task *task, uint64_t epoch, abox_error **reterr);
int decide_fence(const struct view_task *task, uint64_t epoch, abox_error **reterr);

/* Place of an error: "effect ID". Returns code. */
int decide_effect_error(abox_error **reterr, int code, const struct view_effect *effect, const char *format,
	...) _printf_(4, 5);

#endif
