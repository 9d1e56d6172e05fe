/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A fact: one record of a task, stage, effect, approval or resource, taken apart. Zero and NULL fields are not
 * written; what a record of another version has besides is ignored. fact.c has the two tables (types and fields).
 */
#ifndef EFFECT_FACT_H
#define EFFECT_FACT_H

#include <agentbox/effect.h>
#include <agentbox/error.h>

#include "base/json.h"
#include "base/macro.h"
#include "base/strings.h"

enum fact_kind {
	FACT_NONE = 0,
	FACT_TASK_CONTROL,	/* an attempt begins; the record's epoch is the new one */
	FACT_TASK_HEARTBEAT,
	FACT_TASK_CHECKPOINT,
	FACT_TASK_CANCEL,
	FACT_TASK_BOUNDARY,
	FACT_TASK_STEP,		/* a step after the boundary is done */
	FACT_TASK_END,
	FACT_STAGE_BEGIN,
	FACT_STAGE_END,
	FACT_STAGE_DECIDED,
	FACT_EFFECT_INTENDED,	/* of a new effect, of a next try, or taken over from a dead owner */
	FACT_EFFECT_AMBIGUOUS,
	FACT_EFFECT_ALLOWED,
	FACT_EFFECT_CLAIMED,
	FACT_EFFECT_DISPATCHED,
	FACT_EFFECT_COMMITTED,
	FACT_EFFECT_FAILED,
	FACT_EFFECT_UNKNOWN,
	FACT_EFFECT_CANCELED,
	FACT_EFFECT_VERDICT,
	FACT_EFFECT_OVERRIDE,
	FACT_EFFECT_CONFLICT,
	FACT_EFFECT_LATE,
	FACT_EFFECT_REPLAY,
	FACT_EFFECT_RELEASED,	/* its owner let go of what it only intended */
	FACT_APPROVAL_REQUEST,
	FACT_APPROVAL_GRANT,
	FACT_APPROVAL_DENY,
	FACT_APPROVAL_REVOKE,
	FACT_RESOURCE_CREATED,
	FACT_RESOURCE_REMOVED,
	FACT_JOURNAL_ADOPTED,
	/* Only in summaries of segment heads. */
	FACT_STATE_TASK,
	FACT_STATE_STAGE,
	FACT_STATE_EFFECT,
	FACT_STATE_ALIAS,
	FACT_STATE_APPROVAL,
	FACT_STATE_RESOURCE,
	N_FACT_KINDS
};

struct fact_bytes {
	const void *data;	/* with a NUL behind, not counted, when decoded */
	size_t len;
};

struct fact {
	int kind;
	uint64_t seq;
	uint64_t time_usec;
	uint64_t epoch;
	const char *task;

	/* when, in the clock of a boot */
	const char *boot;
	uint64_t boot_usec;
	/* who */
	const char *by;
	const char *executor;	/* 16 hexadecimal digits: the executor lock */
	uint64_t handle;	/* of the process, to tell its threads apart */
	uint64_t pid;
	uint64_t pid_start;
	uint64_t pid_namespace;
	const char *host;
	const char *identity;
	const char *description;
	uint64_t lease_usec;
	/* what and why, for people */
	const char *name;
	const char *reason;
	const char *what;
	/* effect */
	const char *effect;
	struct fact_bytes key;
	uint64_t derived;
	uint32_t effect_class;
	struct fact_bytes target;
	const char *fingerprint;
	uint64_t wish;
	uint64_t try;
	uint64_t max_tries;
	uint64_t settle_usec;
	const char *plan;
	uint64_t deferred;
	uint64_t needs_approval;
	const char *approval;
	const char *of;		/* the effect that a wish is a repeat of */
	const char *const *candidates;
	uint32_t state;
	uint64_t retryable;
	uint64_t maybe;		/* this or an earlier try may have happened */
	struct fact_bytes payload;
	const char *payload_blob;	/* "sha256:..." */
	struct fact_bytes result;
	const char *result_blob;
	uint64_t result_len;
	uint64_t has_result;
	int64_t code;
	const char *body_digest;	/* of a request that was streamed */
	/* approval */
	uint64_t uses;
	uint64_t used;
	uint64_t ttl_usec;
	uint64_t wall;
	/* task */
	const char *snapshot;
	const char *change_set;
	const char *const *artifacts;
	const char *const *effects;
	const char *const *approvals;
	uint64_t step;
	uint32_t status;	/* of an end: enum abox_task_status */
	/* stage */
	uint64_t repeatable;
	uint64_t max_runs;
	uint64_t causes;
	uint64_t backoff_usec;
	uint64_t max_backoff_usec;
	uint64_t jitter_percent;
	uint32_t cause;
	uint64_t done;
	/* resource */
	const char *cleanup;
	uint64_t duty;
	/* summaries */
	uint64_t attempt;
	uint64_t claimed;
	uint64_t first_seq;
	uint64_t state_seq;
	uint64_t result_seq;
	uint64_t payload_seq;
	uint64_t override;
	uint64_t credit;
	uint64_t allowed;
	uint64_t canceled_seq;
	uint64_t boundary_seq;
	uint64_t checkpoint_seq;
	uint64_t runs;
	uint64_t adopted;
	uint64_t owner_epoch;
	int64_t room;		/* reserved in the journal (+) or given back (-); outside of the body */

	struct json *tree;	/* owns the texts of a decoded fact */
	void *owned[8];
	size_t n_owned;
};

const char *fact_type(int kind);		/* type of the record, such as "effect.dispatched" */
int fact_kind_of(const char *type);		/* FACT_NONE for the types of others */

/* False when a number is beyond what a record can hold (63 bits): such a fact must not be written. */
bool fact_fits(const struct fact *fact);
/* The body as a JSON object. */
void fact_write(struct text *text, const struct fact *fact);
/* Takes a body apart. The fact must be zero; release it with fact_clear() also after a failure. */
int fact_read(struct fact *fact, int kind, const char *body, size_t len, abox_error **reterr);
int fact_read_tree(struct fact *fact, struct json *tree_taken, abox_error **reterr);
void fact_clear(struct fact *fact);

#endif
