/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Tasks: a stable job id with attempts and stages in a journal. It is what makes a retry different from a second
 * wish, and what can be taken up again after any crash.
 *
 * An abox_task may be used from several threads at once. It is dead in a forked child (ABOX_E_STATE).
 */
#ifndef AGENTBOX_TASK_H
#define AGENTBOX_TASK_H

#include <agentbox/effect.h>
#include <agentbox/error.h>
#include <agentbox/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How a task is opened. */
enum abox_task_access {
	ABOX_TASK_APPEND = 0,		/* helpers, many at once; works under the epoch it found; raises nothing */
	ABOX_TASK_CONTROL = 1		/* the owner: a new attempt, raises the epoch, fences the owner before */
};

/** What control does to an owner that is alive. */
enum abox_takeover {
	ABOX_TAKEOVER_NONE = 0,		/* nothing: ABOX_E_BUSY, unless its lease is over */
	ABOX_TAKEOVER_FENCE = 1,	/* fences it; what it had dispatched may still arrive and is listed */
	ABOX_TAKEOVER_KILL = 2		/* kills it and waits for its end: nothing of it slips through */
};

/** How a task was found. */
enum abox_task_status {
	ABOX_TASK_NEW = 0,
	ABOX_TASK_RUNNING = 1,		/* its owner lives and its lease is not over */
	ABOX_TASK_RESUMABLE = 2,	/* its owner is dead, or its lease is over */
	ABOX_TASK_COMMITTING = 3,	/* beyond the commit boundary, not everything is published */
	ABOX_TASK_FINISHED = 4,
	ABOX_TASK_CANCELED = 5,
	ABOX_TASK_ABANDONED = 6
};

/** abox_task_status_name() - "new", "running" and so on; "?" for others; static. Since 0.1. */
ABOX_API const char *abox_task_status_name(int status);

/**
 * abox_task_confirm_fn - asked after the new epoch is on disk and before control is given
 * @epoch:    the new epoch
 *
 * For whoever knows of processes that act for this task: returns 0 once each of them has confirmed the epoch.
 *
 * Threads:  the thread of abox_task_open(), without any lock
 * Return:   0, or a negative code, which abox_task_open() returns
 */
typedef int (*abox_task_confirm_fn)(const char *task, uint64_t epoch, void *userdata, abox_error **reterr);

/**
 * struct abox_task_options - how to open
 *
 * @size:          sizeof(struct abox_task_options); see abox_task_options_init()
 * @access:        enum abox_task_access
 * @takeover:      enum abox_takeover
 * @lease_usec:    after this time without abox_task_heartbeat() others may take over though the owner lives; 0: no
 *                 lease, only the owner's end counts. In the clock of this boot
 * @timeout_usec:  for TAKEOVER_KILL: how long to wait for the owner's end; 0 means 10 seconds
 * @identity:      whose task it is, such as "user:1842"; recorded with the first attempt; may be NULL
 * @description:   one line for people; may be NULL
 * @confirm:       may be NULL
 * @userdata:      for it
 * @must_exist:    1: ABOX_E_NOT_FOUND instead of a new task
 * @epoch:         append: work under this epoch, that of the owner on whose behalf it is opened, and no other
 *                 (ABOX_E_FENCED); 0: the one that is found
 */
struct abox_task_options {
	size_t size;
	uint32_t access;
	uint32_t takeover;
	uint64_t lease_usec;
	uint64_t timeout_usec;
	const char *identity;
	const char *description;
	abox_task_confirm_fn confirm;
	void *userdata;
	uint32_t must_exist;
	uint32_t reserved;	/* 0 */
	uint64_t epoch;
};

/** abox_task_options_init() - access append, all else empty, size set. Since 0.1. */
ABOX_API void abox_task_options_init(struct abox_task_options *options);

/**
 * abox_task_open() - open a task by its job id
 * @journal:  opened for append; kept alive by the task
 * @id:       1..255 bytes of printable UTF-8
 * @options:  NULL means append
 * @ret:      released with abox_task_unref()
 * @reterr:   may be NULL; ABOX_E_BUSY names the owner and how to take over
 *
 * The answer is the state before this call. With CONTROL, control is given for NEW, RESUMABLE, COMMITTING, and for
 * RUNNING by @takeover; its epoch is on disk before this returns. A task that is over (FINISHED, CANCELED with
 * nothing left to settle, ABANDONED) is only shown: its handle can be asked and nothing more.
 *
 * Effects:  durable records; TAKEOVER_KILL sends SIGKILL to the owner, found by pidfd and start time
 * Threads:  any
 * Return:   enum abox_task_status; ABOX_E_BUSY, ABOX_E_TIMEOUT, ABOX_E_INVALID, and what the journal answers
 * Since:    0.1
 */
ABOX_API int abox_task_open(abox_journal *journal, const char *id, const struct abox_task_options *options,
	abox_task **ret, abox_error **reterr);

/** abox_task_ref() - one more owner. Since 0.1. */
ABOX_API abox_task *abox_task_ref(abox_task *task);
/** abox_task_unref() - let go; the executor lock falls when the last effect is let go too. NULL is fine. Since 0.1. */
ABOX_API abox_task *abox_task_unref(abox_task *task);

/**
 * Fields. All take NULL and answer 0 or NULL then.
 *
 * abox_task_get_id()        belongs to the handle
 * abox_task_get_epoch()     the epoch this handle works under; 0 when it has none
 * abox_task_get_attempt()   number of the attempt, from 1; 0 when there was none
 * abox_task_get_fenced()    1 when a newer epoch was seen
 * Since: 0.1
 */
ABOX_API const char *abox_task_get_id(const abox_task *task);
ABOX_API uint64_t abox_task_get_epoch(const abox_task *task);
ABOX_API uint64_t abox_task_get_attempt(const abox_task *task);
ABOX_API int abox_task_get_fenced(abox_task *task);

/**
 * abox_task_dup_executor() - a descriptor that keeps this owner alive in the eyes of others
 * @task:    controlled, or with effects of its own
 * @reterr:  may be NULL
 *
 * A helper process that sends on behalf of this task holds it, so that what it sends is not called UNKNOWN when
 * this process dies. Close-on-exec; the caller closes it.
 *
 * Threads:  any
 * Return:   the descriptor; ABOX_E_STATE, ABOX_E_SYSTEM
 * Since:    0.1
 */
ABOX_API int abox_task_dup_executor(abox_task *task, abox_error **reterr);

/**
 * abox_task_heartbeat() - renew the lease
 *
 * Effects:  a record without sync, at most one per quarter of the lease
 * Threads:  any
 * Return:   0; ABOX_E_FENCED, ABOX_E_CANCELED (stop working: see abox_task_settle()), ABOX_E_STATE without a lease
 * Since:    0.1
 */
ABOX_API int abox_task_heartbeat(abox_task *task, abox_error **reterr);

/** What a stage may do when it is not known whether it ended. */
enum abox_stage_class {
	ABOX_STAGE_CONSEQUENTIAL = 0,	/* not again without asking */
	ABOX_STAGE_REPEATABLE = 1
};

/** Why a stage failed. */
enum abox_stage_cause {
	ABOX_STAGE_CAUSE_OTHER = 0,
	ABOX_STAGE_CAUSE_WORKER_START = 1,
	ABOX_STAGE_CAUSE_SOURCE = 2,
	ABOX_STAGE_CAUSE_REGISTRY = 3,
	ABOX_STAGE_CAUSE_COMMAND = 4,
	ABOX_STAGE_CAUSE_TESTS = 5,
	ABOX_STAGE_CAUSE_LIMIT = 6,
	ABOX_STAGE_CAUSE_CANCELED = 7,
	ABOX_STAGE_CAUSE_OWNER_LOST = 8,
	ABOX_STAGE_CAUSE_POLICY = 9
};

/** abox_stage_cause_name() - "worker_start", "tests" and so on; "?" for others; static. Since 0.1. */
ABOX_API const char *abox_stage_cause_name(int cause);

/**
 * struct abox_retry_policy - how often a stage is tried
 *
 * @size:             sizeof(struct abox_retry_policy); see abox_retry_policy_init()
 * @max_runs:         over all attempts of the task; 0 means 3, at most 100
 * @causes:           bit mask, 1 << enum abox_stage_cause; 0 means worker_start, source, registry, owner_lost
 * @backoff_usec:     before the second run, doubled for each further one; 0 means 1 second
 * @max_backoff_usec: 0 means 1 minute
 * @jitter_percent:   each wait is shortened by a random part of up to this; 0 means 50, at most 100
 */
struct abox_retry_policy {
	size_t size;
	uint32_t max_runs;
	uint32_t causes;
	uint64_t backoff_usec;
	uint64_t max_backoff_usec;
	uint32_t jitter_percent;
};

/** abox_retry_policy_init() - the defaults, size set. Since 0.1. */
ABOX_API void abox_retry_policy_init(struct abox_retry_policy *policy);

/**
 * abox_task_stage_begin() - record the begin of a stage
 * @task:         controlled
 * @name:         1..64 bytes; offered: provision clone install run verify export publish teardown
 * @stage_class:  enum abox_stage_class
 * @policy:       NULL takes the defaults
 * @reterr:       may be NULL
 *
 * Effects:  a record, durable for a consequential stage
 * Threads:  any
 * Return:   1 when it shall run now, 0 when it was done before (skip it); ABOX_E_UNKNOWN when a consequential stage
 *           of an earlier attempt has no end (see abox_task_stage_decide()), ABOX_E_LIMIT when its runs are used up
 *           or its last cause is not to be retried, ABOX_E_STATE when it is running, ABOX_E_CANCELED, ABOX_E_FENCED
 * Since:    0.1
 */
ABOX_API int abox_task_stage_begin(abox_task *task, const char *name, int stage_class,
	const struct abox_retry_policy *policy, abox_error **reterr);

/** abox_task_stage_done() - record that a stage succeeded; durable. ABOX_E_STATE when it is not running. Since 0.1. */
ABOX_API int abox_task_stage_done(abox_task *task, const char *name, abox_error **reterr);

/**
 * abox_task_stage_fail() - record that a stage failed, and learn whether it may run again
 * @task:           controlled
 * @name:           of a stage that runs
 * @cause:          enum abox_stage_cause
 * @detail:         one line for people; may be NULL
 * @retdelay_usec:  how long to wait before the next begin; may be NULL
 * @reterr:         may be NULL
 *
 * Effects:  a durable record
 * Threads:  any
 * Return:   1 when it may run again after the delay, 0 when not; ABOX_E_STATE, ABOX_E_FENCED
 * Since:    0.1
 */
ABOX_API int abox_task_stage_fail(abox_task *task, const char *name, int cause, const char *detail,
	uint64_t *retdelay_usec, abox_error **reterr);

/**
 * abox_task_stage_decide() - say by name whether a stage without an end was done
 * @done:     1: it was done, skip it; 0: run it again
 * @by:       who says so
 *
 * Effects:  a durable record
 * Threads:  any
 * Return:   0; ABOX_E_STATE when there is nothing to decide
 * Since:    0.1
 */
ABOX_API int abox_task_stage_decide(abox_task *task, const char *name, int done, const char *by,
	abox_error **reterr);

/**
 * abox_task_checkpoint() - a point to resume from
 * @task:      controlled
 * @name:      1..64 bytes
 * @snapshot:  id of a workspace snapshot; may be NULL
 * @state:     what the harness wants back; up to 1 MiB; above 64 KiB it is stored as a blob; may be NULL
 * @len:       its length
 * @reterr:    may be NULL
 *
 * Effects:  a durable record
 * Threads:  any
 * Return:   0; ABOX_E_FENCED, ABOX_E_CANCELED, ABOX_E_LIMIT
 * Since:    0.1
 */
ABOX_API int abox_task_checkpoint(abox_task *task, const char *name, const char *snapshot, const void *state,
	size_t len, abox_error **reterr);

/**
 * abox_task_get_checkpoint() - the newest checkpoint
 * @retname:      released with abox_free(); may be NULL
 * @retsnapshot:  as above; NULL when it has none
 * @retstate:     as above; @retlen bytes
 *
 * Threads:  any
 * Return:   1; 0 when there is none; ABOX_E_DAMAGED when its blob is not what was stored
 * Since:    0.1
 */
ABOX_API int abox_task_get_checkpoint(abox_task *task, char **retname, char **retsnapshot, char **retstate,
	size_t *retlen, abox_error **reterr);

/**
 * abox_task_resume_plan() - what a resume would do; changes nothing
 * @journal:  opened for reading or append
 * @id:       job id
 * @retjson:  {"task","status","attempts","checkpoint","stages":[{"name","do","why"}],"effects":[{"id","do","why"}],
 *            "resources":[...]}; "do" is one of skip, replay, run, reconcile, claim, ask, wait; abox_free()
 * @reterr:   may be NULL
 *
 * Threads:  any
 * Return:   0; ABOX_E_NOT_FOUND, and what the journal answers
 * Since:    0.1
 */
ABOX_API int abox_task_resume_plan(abox_journal *journal, const char *id, char **retjson, abox_error **reterr);

/**
 * abox_task_resume() - take a task up again: control, then each step of the plan that needs no person
 * @journal:   opened for append
 * @id:        job id; must exist
 * @options:   access is taken as CONTROL; may be NULL
 * @check_fn:  for checkable effects that are UNKNOWN; may be NULL, they are left then
 * @userdata:  for it
 * @ret:       released with abox_task_unref()
 * @retjson:   the plan that is left: what the harness does by calling its stages and effects again, and what waits
 *             for a decision; abox_free(); may be NULL
 * @reterr:    may be NULL
 *
 * Effects:  a new attempt; durable records
 * Threads:  any
 * Return:   enum abox_task_status as found; as abox_task_open()
 * Since:    0.1
 */
ABOX_API int abox_task_resume(abox_journal *journal, const char *id, const struct abox_task_options *options,
	abox_effect_check_fn check_fn, void *userdata, abox_task **ret, char **retjson, abox_error **reterr);

/**
 * abox_task_cancel() - close admission for good, from any process
 * @journal:  opened for append
 * @id:       job id
 * @by:       who cancels
 * @reason:   may be NULL
 * @retjson:  what became of the effects: {"not_done":[...],"done":[...],"in_flight":[...],"unknown":[...]};
 *            abox_free(); may be NULL
 * @reterr:   may be NULL
 *
 * One durable record. No effect is dispatched after it; what was only intended is CANCELED, guaranteed not done.
 * What is under way is told as it ends. When no owner lives the task is settled and ended here; else by
 * abox_task_settle() in the owner.
 *
 * Threads:  any
 * Return:   0; 1 when it was canceled before; ABOX_E_ALREADY beyond the commit boundary or after the end
 * Since:    0.1
 */
ABOX_API int abox_task_cancel(abox_journal *journal, const char *id, const char *by, const char *reason,
	char **retjson, abox_error **reterr);

/** abox_task_canceled() - 1 when the task was canceled, 0 when not; looks at the journal. Since 0.1. */
ABOX_API int abox_task_canceled(abox_task *task, abox_error **reterr);

/**
 * abox_task_settle() - wait for what is in flight, then call UNKNOWN what has no outcome and no executor
 * @timeout_usec:  for each live executor; 0 only looks
 *
 * Effects:  durable records
 * Threads:  any
 * Return:   number of effects that are still in flight or UNKNOWN; negative codes as usual
 * Since:    0.1
 */
ABOX_API int abox_task_settle(abox_task *task, uint64_t timeout_usec, abox_error **reterr);

/**
 * abox_task_end() - the last record of a task; it is kept for ever and refuses late duplicates
 * @task:     controlled
 * @outcome:  text or JSON of the harness, up to 64 KiB; given to whoever opens the task again; may be NULL
 * @reterr:   may be NULL
 *
 * What was intended and not dispatched is canceled, open approval requests are closed. UNKNOWN effects stay open for
 * verdicts. A canceled task ends as canceled.
 *
 * Effects:  a durable record
 * Threads:  any
 * Return:   0; ABOX_E_IN_PROGRESS while effects are in flight, ABOX_E_STATE beyond the boundary with steps left,
 *           ABOX_E_FENCED, ABOX_E_ALREADY
 * Since:    0.1
 */
ABOX_API int abox_task_end(abox_task *task, const char *outcome, abox_error **reterr);

/** abox_task_get_outcome() - what abox_task_end() stored; *rettext NULL when nothing; abox_free(). Since 0.1. */
ABOX_API int abox_task_get_outcome(abox_task *task, char **rettext, abox_error **reterr);

/**
 * abox_task_abandon() - give a task up by name, from any process, when its owner is dead
 * @by:       who does
 * @reason:   may be NULL
 *
 * Effects:  a durable record
 * Threads:  any
 * Return:   0; ABOX_E_BUSY while its owner lives, ABOX_E_ALREADY
 * Since:    0.1
 */
ABOX_API int abox_task_abandon(abox_journal *journal, const char *id, const char *by, const char *reason,
	abox_error **reterr);

/**
 * struct abox_commit_options - what becomes visible outside, at once and in order
 *
 * Before the boundary everything must be on disk: change set, artifacts, deferred requests. The callbacks run on the
 * thread of abox_task_commit(), without any lock.
 *
 * @size:         sizeof(struct abox_commit_options); see abox_commit_options_init()
 * @change_set:   digest or id of the change set; NULL: there is none
 * @artifacts:    ids or digests of artifacts, NULL-terminated; may be NULL
 * @drift:        asked before the boundary: 0 when the target of the change set is as it was; a negative code stops
 * @apply:        applies the change set; called again after a crash, so it must be repeatable. 0 or a negative code
 * @publish:      publishes one artifact; repeatable as well. 0 or a negative code
 * @do_fn:        carries out one deferred effect: abox_effect_get_payload()
 * @check_fn:     for deferred effects of class checkable; may be NULL
 * @userdata:     for all
 */
struct abox_commit_options {
	size_t size;
	const char *change_set;
	const char *const *artifacts;
	int (*drift)(const char *change_set, void *userdata, abox_error **reterr);
	int (*apply)(const char *change_set, void *userdata, abox_error **reterr);
	int (*publish)(const char *artifact, void *userdata, abox_error **reterr);
	abox_effect_do_fn do_fn;
	abox_effect_check_fn check_fn;
	void *userdata;
};

/** abox_commit_options_init() - all empty, size set. Since 0.1. */
ABOX_API void abox_commit_options_init(struct abox_commit_options *options);

/**
 * abox_task_commit() - cross the commit boundary, or go on after it
 * @task:     controlled
 * @options:  the same after a crash as before it; change set and artifacts are compared with the record
 * @reterr:   may be NULL; its place names the step that stopped it
 *
 * One durable record, checked against epoch and cancel, uses up the approvals of the deferred effects. Before it
 * nothing is visible outside; after it change set, artifacts and deferred effects follow in journal order, one by
 * one, and the first that is not committed stops the rest. Never undone; cancel answers ABOX_E_ALREADY.
 *
 * Effects:  durable records; what the callbacks do
 * Threads:  one
 * Return:   0 when everything is published; ABOX_E_APPROVAL (nothing was recorded), ABOX_E_UNKNOWN and others when a
 *           step stopped it: the task is `committing` then
 * Since:    0.1
 */
ABOX_API int abox_task_commit(abox_task *task, const struct abox_commit_options *options, abox_error **reterr);

/**
 * abox_task_add_resource() - note something that was made outside and must be removed some day
 * @task:     controlled
 * @kind:     such as "vm", "branch", "bucket": 1..64 bytes
 * @id:       its name outside: 1..1024 bytes
 * @cleanup:  how to remove it, for people or for the callback; may be NULL
 * @duty:     1: the task must remove it before it is over; 0: it is meant to stay
 * @reterr:   may be NULL
 *
 * Effects:  a durable record; call it before the thing is made where its name is known before
 * Threads:  any
 * Return:   0; ABOX_E_FENCED, ABOX_E_CANCELED (not for duties: what exists is always noted)
 * Since:    0.1
 */
ABOX_API int abox_task_add_resource(abox_task *task, const char *kind, const char *id, const char *cleanup, int duty,
	abox_error **reterr);

/** abox_task_remove_resource() - note that it is gone; durable; ABOX_E_NOT_FOUND. Since 0.1. */
ABOX_API int abox_task_remove_resource(abox_task *task, const char *kind, const char *id, abox_error **reterr);

/**
 * abox_task_cleanup() - remove what the ledger says must go, newest first
 * @remove_fn:  removes one; 0 when it is gone (also when it was not there), negative when not
 *
 * Goes on past failures.
 *
 * Effects:  what @remove_fn does; a durable record for each
 * Threads:  @remove_fn runs on the calling thread, without any lock
 * Return:   number of things left behind; negative codes of the journal
 * Since:    0.1
 */
ABOX_API int abox_task_cleanup(abox_task *task,
	int (*remove_fn)(const char *kind, const char *id, const char *cleanup, void *userdata), void *userdata,
	abox_error **reterr);

/** abox_task_list() - tasks as a JSON array; @open_only 1: those that are not over. Since 0.1. */
ABOX_API int abox_task_list(abox_journal *journal, int open_only, char **retjson, abox_error **reterr);

/** abox_task_show() - one task as JSON: attempts, stages, checkpoint, effects, approvals, resources. Since 0.1. */
ABOX_API int abox_task_show(abox_journal *journal, const char *id, char **retjson, abox_error **reterr);

#ifdef __cplusplus
}
#endif
#endif
