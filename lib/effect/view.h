/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The view: what the facts add up to. A pure state machine in memory, fed in the order of seq; it knows no journal,
 * lock or clock. view.c has the transitions (effects 1.3), decide.c the questions asked of it under the lock.
 */
#ifndef EFFECT_VIEW_H
#define EFFECT_VIEW_H

#include <agentbox/task.h>

#include "base/map.h"
#include "effect/fact.h"

struct view_task;

struct view_effect {
	struct view_task *task;
	struct view_effect *next;	/* in the order in which the task's effects were made */
	char *id;
	char *scope_key;	/* 'd' or 'k' before the key: derived and own keys never meet */
	size_t scope_key_len;
	char *target;
	char *fingerprint;
	char *what;
	char *plan;
	char *executor;		/* of the newest try */
	char *approval;		/* the request made for it; other requests for its payload count as well */
	char *payload_blob;
	int effect_class;
	int state;
	uint64_t handle;
	uint64_t epoch;		/* under which the newest try was intended or dispatched */
	uint64_t dispatched_seq;
	uint32_t try;
	uint32_t max_tries;
	uint64_t attempt;	/* that made it */
	uint64_t claimed;	/* the newest attempt that asked for it */
	uint64_t wish;
	uint64_t settle_usec;
	char boot[40];		/* clock in which it became UNKNOWN; "" when only the wall time is known */
	uint64_t boot_usec;
	uint64_t unknown_time_usec;
	uint64_t first_seq;
	uint64_t state_seq;	/* record that set the state */
	uint64_t result_seq;	/* record that holds the result */
	uint64_t payload_seq;
	bool retryable;
	bool maybe;		/* a try before the newest may have happened */
	bool overridden;	/* a name stands for another try */
	bool deferred;
	bool needs_approval;
	bool credit;		/* its first dispatch was approved at the boundary */
	bool allowed;		/* an ambiguous wish that somebody called new */
	bool bound;		/* its step stands in the boundary record */
	struct view_result *result;	/* the stored result, when it is small and was seen; else NULL */
	bool bound_away;	/* an ambiguous wish that was claimed: its key leads elsewhere */
	bool misfit;		/* a record about it fits no rule: it must not be touched */
	uint32_t late;		/* outcomes that came after a verdict */
	int64_t room;		/* reserved for its outcome and not yet given back (effects 0.6) */
};

struct view_result {
	char *reason;
	size_t len;
	int32_t code;
	bool present;
	char data[];		/* with a NUL behind */
};

struct view_alias {		/* a reworded wish bound to an earlier effect for good */
	struct view_alias *next;
	struct view_effect *effect;
	char *scope_key;
	size_t scope_key_len;
};

struct view_approval {
	struct view_task *task;
	struct view_approval *next;
	char *id;
	char *target;
	char *fingerprint;
	char *text;
	char *what;
	char *by;
	int effect_class;
	uint32_t uses;
	uint32_t used;
	bool granted;
	bool denied;
	bool revoked;
	bool wall;
	char boot[40];
	uint64_t until_usec;	/* boot clock, or wall clock */
	uint64_t seq;
};

struct view_stage {
	struct view_stage *next;
	char *name;
	bool repeatable;
	bool running;		/* begun, and not ended */
	bool done;
	bool last_failed;
	bool run_again;		/* somebody said so */
	int cause;
	uint64_t epoch;		/* of the newest run */
	uint32_t runs;
	uint32_t max_runs;
	uint32_t causes;
	uint64_t backoff_usec;
	uint64_t max_backoff_usec;
	uint32_t jitter_percent;
	char boot[40];
	uint64_t ended_usec;
};

struct view_resource {
	struct view_resource *next;	/* newest first */
	char *kind;
	char *id;
	char *cleanup;
	bool duty;
	uint64_t seq;
};

struct view_task {
	struct view_task *next;		/* in the order in which they were seen */
	char *id;
	char *identity;
	char *description;
	uint64_t epoch;			/* attempts are numbered by it */
	uint64_t first_seq;
	/* owner */
	char *executor;
	char *host;
	char boot[40];
	uint64_t pid, pid_start, pid_namespace;
	uint64_t lease_usec;
	char lease_boot[40];
	uint64_t lease_until_usec;
	/* end and boundary */
	int ended;			/* enum abox_task_status, 0 while it is open */
	char *ended_by;
	uint64_t ended_seq;
	char *canceled_by;
	uint64_t canceled_seq;
	uint64_t boundary_seq;
	char *change_set;
	char **artifacts;		/* NULL-terminated, as is the next */
	char **bound_effects;		/* ids of the deferred effects, in journal order */
	uint64_t done_steps;		/* of change set and artifacts; effects have states of their own */
	uint64_t checkpoint_seq;
	bool adopted;			/* the journal is a copy: keys it does not know may have been used */
	struct view_effect *effects, **last_effect;
	struct view_alias *aliases;
	struct view_approval *approvals, **last_approval;
	struct view_stage *stages, **last_stage;
	struct view_resource *resources;
	struct map keys;		/* scope key -> struct view_effect */
};

struct view {
	struct map tasks;		/* by id */
	struct map effects;		/* by id */
	struct map approvals;		/* by id */
	struct view_task *first_task, **last_task;
	uint64_t seq;
	uint64_t max_time_usec;		/* newest wall time in any record (effects 1.10) */
	size_t kept_bytes;		/* in small results, bounded */
	bool keep_all;			/* closed tasks keep their effects: for lists and reports */
};

void view_init(struct view *view);
void view_clear(struct view *view);

/* Adds one fact. 0; 1 when the fact fits no rule and was put aside (its effect is marked); ABOX_E_MEMORY. */
int view_apply(struct view *view, const struct fact *fact);

/* A summary from which view_apply() of the parts restores all that matters: a JSON array. */
void view_summarize(const struct view *view, struct text *text);
/* The lowest seq that is still needed; UINT64_MAX when none is. */
uint64_t view_keep_from(const struct view *view);

struct view_task *view_task_get(const struct view *view, const char *id);
struct view_effect *view_effect_get(const struct view *view, const char *id);
struct view_approval *view_approval_get(const struct view *view, const char *id);
struct view_stage *view_stage_get(const struct view_task *task, const char *name);
struct view_resource *view_resource_get(const struct view_task *task, const char *kind, const char *id);
/* By own (derived false) or derived key; a claimed wish leads to the effect it was bound to. */
struct view_effect *view_effect_by_key(const struct view_task *task, const char *key, bool derived);
const char *view_effect_key(const struct view_effect *effect, bool *retderived);
/* True when the newest or an earlier try may have happened outside. */
bool view_effect_may_have_happened(const struct view_effect *effect);
/* As people read it: AMBIGUOUS and CLAIMED for wishes that were never begun. */
const char *view_effect_state_name(const struct view_effect *effect);
bool view_effect_is_final(const struct view_effect *effect);
/* Steps of the boundary that have no state of their own: change set and artifacts. */
uint64_t view_task_plain_steps(const struct view_task *task);
/* True when everything behind the boundary is published. */
bool view_task_is_published(const struct view *view, const struct view_task *task);

#endif
