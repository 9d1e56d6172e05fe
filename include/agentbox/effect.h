/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Effects: actions with consequences outside, each tracked in the journal from intent to outcome, so that after any
 * crash it can be said what really happened and what may be done again. Approvals: a named person's permission for
 * one effect, given from any process.
 *
 * Guarantees per class, for one journal on one machine: an opaque or checkable effect happens at most once, if no
 * verdict or override given for it is wrong; an idempotent one at least once, under one key; a pure one any number
 * of times. lib/effect/README.md has the table of states.
 *
 * An effect belongs to a task (task.h). Functions that take an abox_task may be used from several threads at once;
 * an abox_effect is used by one thread at a time. All handles are dead in a forked child (ABOX_E_STATE).
 */
#ifndef AGENTBOX_EFFECT_H
#define AGENTBOX_EFFECT_H

#include <agentbox/error.h>
#include <agentbox/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What may be done when the outcome of a try is not known. */
enum abox_effect_class {
	ABOX_EFFECT_OPAQUE = 0,		/* nothing: it stays unknown until somebody decides */
	ABOX_EFFECT_CHECKABLE = 1,	/* the outside can be asked, by the check function */
	ABOX_EFFECT_IDEMPOTENT = 2,	/* it may be sent again under the same key */
	ABOX_EFFECT_PURE = 3		/* it may run again: nothing outside changes */
};

/** State of the newest try of an effect. */
enum abox_effect_state {
	ABOX_EFFECT_NONE = 0,		/* not begun: an ambiguous wish that waits for claim or new */
	ABOX_EFFECT_INTENDED = 1,	/* nothing has left */
	ABOX_EFFECT_DISPATCHED = 2,	/* may be happening now */
	ABOX_EFFECT_COMMITTED = 3,	/* happened; the result is stored */
	ABOX_EFFECT_FAILED = 4,		/* the outside said no, or nothing left */
	ABOX_EFFECT_UNKNOWN = 5,	/* may have happened; needs a decision */
	ABOX_EFFECT_CANCELED = 6,	/* guaranteed not to have happened, nor to happen */
	ABOX_EFFECT_ABSENT = 7,		/* a verdict: it did not happen and cannot any more */
	ABOX_EFFECT_ABANDONED = 8	/* a verdict: nobody will find out; it stays as it is */
};

/** abox_effect_class_name() - "opaque", "checkable", "idempotent", "pure"; "?" for others; static. Since 0.1. */
ABOX_API const char *abox_effect_class_name(int effect_class);
/** abox_effect_class_from_name() - the value behind a name, or ABOX_E_INVALID. Since 0.1. */
ABOX_API int abox_effect_class_from_name(const char *name);
/** abox_effect_state_name() - "INTENDED", "COMMITTED" and so on; "?" for others; static. Since 0.1. */
ABOX_API const char *abox_effect_state_name(int state);

/** Kinds of request: what of it counts for equality. */
enum abox_request_kind {
	ABOX_REQUEST_BYTES = 0,		/* target and body */
	ABOX_REQUEST_ARGV = 1,		/* target, argv, env, cwd, and the body as standard input */
	ABOX_REQUEST_HTTP = 2		/* target, method, host, port, path, query, headers, body */
};

enum abox_body_format {
	ABOX_BODY_RAW = 0,		/* equal when the bytes are equal */
	ABOX_BODY_JSON = 1		/* equal when RFC 8785 gives equal bytes; as raw bytes where it does not apply, or a
					 * number has more digits than it keeps (15 with a point or an exponent) */
};

/**
 * struct abox_effect_request - what is asked of the outside
 *
 * The fingerprint (SHA-256 over a versioned, length-prefixed form of all fields below) tells whether two requests
 * are equal. Leave out what changes by itself: dates, trace ids, attempts. All pointers are borrowed for the call.
 *
 * @size:         sizeof(struct abox_effect_request); see abox_effect_request_init()
 * @kind:         enum abox_request_kind; fields of other kinds are ignored
 * @body_format:  enum abox_body_format
 * @target:       what the effect aims at, such as "forge.test/repos/org/repo/pulls": 1..1024 bytes. Later attempts
 *                of a task compare unknown wishes with earlier effects of the same target
 * @credentials:  names (never values) of the rights it uses, NULL-terminated; may be NULL
 * @body:         request body or standard input; may be NULL
 * @body_len:     its length
 * @body_fd:      a file whose whole content is the body instead of @body, or -1. It is read with pread() and hashed
 *                before anything is recorded. Above the spool limit (64 MiB) the body is left out of the
 *                fingerprint, which takes an explicit key and no approval
 * @argv:         NULL-terminated
 * @env:          "NAME=value" of the variables that matter, NULL-terminated; order does not count; may be NULL
 * @cwd:          may be NULL
 * @method:       as sent, compared by bytes
 * @host:         compared without case
 * @port:         0 when not said
 * @path:         as sent
 * @query:        as sent, without the question mark; NULL and "" differ
 * @headers:      "Name: value" of the headers that matter, NULL-terminated; names are compared without case, order
 *                counts among equal names only; may be NULL
 */
struct abox_effect_request {
	size_t size;
	uint32_t kind;
	uint32_t body_format;
	const char *target;
	const char *const *credentials;
	const void *body;
	size_t body_len;
	int32_t body_fd;
	uint32_t port;
	const char *const *argv;
	const char *const *env;
	const char *cwd;
	const char *method;
	const char *host;
	const char *path;
	const char *query;
	const char *const *headers;
};

/** abox_effect_request_init() - all empty, size set, body_fd -1. Since 0.1. */
ABOX_API void abox_effect_request_init(struct abox_effect_request *request);

/**
 * abox_effect_fingerprint() - the fingerprint of a request, as begin would compute it
 * @request:  borrowed
 * @rethex:   64 lower-case hex digits and a NUL
 * @reterr:   may be NULL
 *
 * Effects:  reads @body_fd; nothing else
 * Threads:  any
 * Return:   0; 1 when the body was beyond the spool limit and is not part of it; ABOX_E_INVALID, ABOX_E_IO
 * Since:    0.1
 */
ABOX_API int abox_effect_fingerprint(const struct abox_effect_request *request, char rethex[65],
	abox_error **reterr);

/**
 * struct abox_effect_options - one wish
 *
 * @size:           sizeof(struct abox_effect_options); see abox_effect_options_init()
 * @effect_class:   enum abox_effect_class
 * @defer:          1: hold it back until the task's commit boundary (abox_task_commit()); @request.body (or @payload)
 *                  is stored for that time
 * @request:        what is asked
 * @key:            1..255 bytes, any but NUL; its scope is the task. NULL: derived from target and fingerprint, so
 *                  that an equal request in a task is the same effect
 * @wish:           with a derived key: 0 for the first, 1 for a second wish that is equal in every byte, and so on
 * @max_tries:      0 means 5
 * @settle_usec:    how long after its sender died a request may still arrive; 0 means 60 seconds
 * @plan_digest:    stored beside; not part of the fingerprint; may be NULL
 * @approval_text:  not NULL: a named approver must grant it first; the text tells people what it is about
 * @approval_ttl_usec:   life of the approval request; 0 means 24 hours
 * @approval_wall:  1: the ttl is wall time and survives a reboot; else it lapses with the boot
 * @approval_wait_usec:  how long abox_effect_run() waits for the grant; 0 does not wait
 * @payload:        what abox_task_commit() needs to carry out a deferred effect; NULL takes the body
 * @payload_len:    its length
 * @limit:          refuse (ABOX_E_LIMIT) when the task would have more effects on this target; 0 means no limit
 * @new_by:         answers ABOX_E_AMBIGUOUS in advance: this is a new wish, says the person or program named here
 * @claim_id:       answers it in advance: this is a repeat of that effect; with @claim_by
 * @claim_by:       who says so
 * @wait_usec:      how long abox_effect_run() waits for another executor of the same effect; 0 does not wait
 */
struct abox_effect_options {
	size_t size;
	uint32_t effect_class;
	uint32_t defer;
	struct abox_effect_request request;
	const char *key;
	uint64_t wish;
	uint32_t max_tries;
	uint32_t approval_wall;
	uint64_t settle_usec;
	const char *plan_digest;
	const char *approval_text;
	uint64_t approval_ttl_usec;
	uint64_t approval_wait_usec;
	const void *payload;
	size_t payload_len;
	uint64_t limit;
	const char *new_by;
	const char *claim_id;
	const char *claim_by;
	uint64_t wait_usec;
};

/** abox_effect_options_init() - class opaque, all else empty, sizes set. Since 0.1. */
ABOX_API void abox_effect_options_init(struct abox_effect_options *options);

/** What a do-function says of its try. Anything else, or a negative code, means ABOX_DONE_UNCLEAR. */
enum abox_done {
	ABOX_DONE_UNCLEAR = 0,		/* no clear answer: 5xx, a cut connection, a timeout */
	ABOX_DONE_COMMITTED = 1,
	ABOX_DONE_FAILED = 2,		/* the outside said no, for good */
	ABOX_DONE_FAILED_RETRY = 3	/* it said "later", or nothing left this process */
};

/** What a check-function found out. Anything else, or a negative code, means ABOX_FOUND_NOTHING. */
enum abox_found {
	ABOX_FOUND_NOTHING = 0,		/* still unknown */
	ABOX_FOUND_COMMITTED = 1,
	ABOX_FOUND_ABSENT = 2		/* it is not there and can no longer appear */
};

/**
 * abox_effect_do_fn - carries the effect out
 * @effect:   borrowed; dispatched and synced. abox_effect_set_result() stores the answer,
 *            abox_effect_get_id() is a good idempotency key
 *
 * Threads:  runs on the thread of the caller, without any lock
 * Return:   enum abox_done
 */
typedef int (*abox_effect_do_fn)(abox_effect *effect, void *userdata);

/**
 * abox_effect_check_fn - asks the outside whether an earlier try happened
 * @effect:   borrowed; UNKNOWN. abox_effect_set_result() stores the result that was found
 *
 * Threads:  runs on the thread of the caller, without any lock; its answer counts only if nothing changed meanwhile
 * Return:   enum abox_found
 */
typedef int (*abox_effect_check_fn)(abox_effect *effect, void *userdata);

/**
 * abox_effect_run() - the common case: do it unless it was done, and have the result
 * @task:      opened for control, or joined by an append opening
 * @options:   what, under which key
 * @do_fn:     carries it out
 * @check_fn:  for class checkable; may be NULL
 * @userdata:  for both
 * @ret:       the effect with its state and result, released with abox_effect_unref(); also set with
 *             ABOX_E_UNRECORDED
 * @reterr:    may be NULL; its place is "effect ID" (or "approval ID") where there is one
 *
 * Effects:  journal records; DISPATCHED is on disk before @do_fn is called, the outcome before this returns
 * Threads:  any
 * Return:   ABOX_EFFECT_COMMITTED or ABOX_EFFECT_FAILED (abox_effect_get_replayed() tells fresh from stored),
 *           ABOX_EFFECT_INTENDED when deferred; ABOX_E_UNKNOWN (needs a decision), ABOX_E_AMBIGUOUS,
 *           ABOX_E_CONFLICT, ABOX_E_IN_PROGRESS, ABOX_E_APPROVAL, ABOX_E_CANCELED, ABOX_E_FENCED, ABOX_E_ALREADY,
 *           ABOX_E_LIMIT, ABOX_E_NOSPACE, ABOX_E_UNRECORDED (done, but not on disk: it will be UNKNOWN), and
 *           what the journal answers
 * Since:    0.1
 */
ABOX_API int abox_effect_run(abox_task *task, const struct abox_effect_options *options, abox_effect_do_fn do_fn,
	abox_effect_check_fn check_fn, void *userdata, abox_effect **ret, abox_error **reterr);

/** Positive answers of abox_effect_begin(). */
enum abox_begin {
	ABOX_BEGIN_REPLAY = 0,		/* final: state and result are stored */
	ABOX_BEGIN_GO = 1,		/* a try is INTENDED and ours: abox_effect_dispatch() comes next */
	ABOX_BEGIN_DEFERRED = 2		/* held back until the commit boundary */
};

/**
 * abox_effect_begin() - the first step of abox_effect_run(), for those who send by themselves
 * @task:     as for abox_effect_run()
 * @options:  borrowed for the call
 * @ret:      released with abox_effect_unref()
 * @reterr:   may be NULL; its place is "effect ID" where there is one
 *
 * Effects:  a record of the intent
 * Threads:  any
 * Return:   enum abox_begin; ABOX_E_UNKNOWN (see abox_effect_reconcile()), ABOX_E_AMBIGUOUS, ABOX_E_CONFLICT,
 *           ABOX_E_IN_PROGRESS, ABOX_E_CANCELED, ABOX_E_ALREADY (abandoned, or the task is over), ABOX_E_FENCED,
 *           ABOX_E_LIMIT, ABOX_E_INVALID
 * Since:    0.1
 */
ABOX_API int abox_effect_begin(abox_task *task, const struct abox_effect_options *options, abox_effect **ret,
	abox_error **reterr);

/**
 * abox_effect_dispatch() - the last moment before the first byte leaves
 * @effect:   from abox_effect_begin() with ABOX_BEGIN_GO
 * @reterr:   may be NULL
 *
 * One locked append checks state, epoch, cancel, approval and room, and uses the approval up; it is synced before
 * this returns. Only after 0 may anything leave.
 *
 * Effects:  a durable record
 * Threads:  one
 * Return:   0; ABOX_E_APPROVAL (retryable while it is pending), ABOX_E_FENCED, ABOX_E_CANCELED, ABOX_E_STATE,
 *           ABOX_E_NOSPACE, and what the journal answers: nothing may leave then
 * Since:    0.1
 */
ABOX_API int abox_effect_dispatch(abox_effect *effect, abox_error **reterr);

/**
 * abox_effect_set_result() - the bytes that are stored with the outcome and given to whoever repeats the effect
 * @effect:   borrowed
 * @data:     copied; above 64 KiB it is stored as a blob of the journal
 * @len:      its length
 * @code:     a number beside it, such as the exit or HTTP status
 *
 * Without memory for the result the outcome cannot be recorded: abox_effect_finish() is ABOX_E_UNRECORDED then.
 *
 * Threads:  one
 * Return:   0, ABOX_E_INVALID, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_effect_set_result(abox_effect *effect, const void *data, size_t len, int32_t code);

/**
 * abox_effect_set_body_digest() - what was sent, when its body was beyond the spool limit
 * @effect:   borrowed
 * @hex:      SHA-256 of the body, 64 lower-case hex digits; recorded with the outcome
 *
 * Threads:  one
 * Return:   0, ABOX_E_INVALID
 * Since:    0.1
 */
ABOX_API int abox_effect_set_body_digest(abox_effect *effect, const char *hex);

/**
 * abox_effect_finish() - record how a dispatched try ended
 * @effect:   dispatched
 * @done:     enum abox_done. UNCLEAR is UNKNOWN for opaque and checkable effects, a retryable failure for the others
 * @reason:   one line for people; may be NULL
 * @reterr:   may be NULL
 *
 * Accepted from its executor whether or not it was fenced meanwhile; after a verdict it is kept as late evidence.
 *
 * Effects:  a durable record (and blob) before it returns
 * Threads:  one
 * Return:   the state that holds now (enum abox_effect_state); ABOX_E_ALREADY when a verdict came first (the outcome
 *           is recorded as late), ABOX_E_UNRECORDED when it could not be made durable
 * Since:    0.1
 */
ABOX_API int abox_effect_finish(abox_effect *effect, int done, const char *reason, abox_error **reterr);

/**
 * abox_effect_judge_http() - what an HTTP status says of a try
 * @status:   0 when there was no complete answer
 *
 * 2xx and 3xx are done; 425 and 429 "later"; 408, 5xx and no answer unclear; other 4xx a refusal.
 *
 * Threads:  any
 * Return:   enum abox_done
 * Since:    0.1
 */
ABOX_API int abox_effect_judge_http(uint32_t status);

/** abox_effect_ref() - one more owner. Since 0.1. */
ABOX_API abox_effect *abox_effect_ref(abox_effect *effect);
/**
 * abox_effect_unref() - let go; the last owner of a try that was dispatched and not finished records it as UNKNOWN
 * @effect:   may be NULL
 *
 * Threads:  one
 * Return:   NULL
 * Since:    0.1
 */
ABOX_API abox_effect *abox_effect_unref(abox_effect *effect);

/**
 * Fields of an effect as this handle last saw it; texts belong to the handle. All take NULL and answer 0 or NULL.
 *
 * abox_effect_get_id()           made by the library before anything left; unique
 * abox_effect_get_key()          bytes without NUL; a derived key is hex
 * abox_effect_get_target()       what it aims at
 * abox_effect_get_class()        enum abox_effect_class
 * abox_effect_get_state()        enum abox_effect_state
 * abox_effect_get_try()          number of the newest try, from 1
 * abox_effect_get_epoch()        of the task when it was dispatched, for targets that can check it
 * abox_effect_get_replayed()     1 when state and result are those of an earlier call
 * abox_effect_get_retryable()    1 for a FAILED that the same call may try again
 * abox_effect_get_code()         the number beside the result
 * abox_effect_get_result()       the result; *retlen its length; NULL when there is none
 * abox_effect_get_reason()       why it failed or is unknown; may be NULL
 * abox_effect_get_approval()     id of the approval request; NULL when none is needed
 * abox_effect_get_payload()      of a deferred effect
 * Since: 0.1
 */
ABOX_API const char *abox_effect_get_id(const abox_effect *effect);
ABOX_API const char *abox_effect_get_key(const abox_effect *effect);
ABOX_API const char *abox_effect_get_target(const abox_effect *effect);
ABOX_API int abox_effect_get_class(const abox_effect *effect);
ABOX_API int abox_effect_get_state(const abox_effect *effect);
ABOX_API uint32_t abox_effect_get_try(const abox_effect *effect);
ABOX_API uint64_t abox_effect_get_epoch(const abox_effect *effect);
ABOX_API int abox_effect_get_replayed(const abox_effect *effect);
ABOX_API int abox_effect_get_retryable(const abox_effect *effect);
ABOX_API int32_t abox_effect_get_code(const abox_effect *effect);
ABOX_API const void *abox_effect_get_result(const abox_effect *effect, size_t *retlen);
ABOX_API const char *abox_effect_get_reason(const abox_effect *effect);
ABOX_API const char *abox_effect_get_approval(const abox_effect *effect);
ABOX_API const void *abox_effect_get_payload(const abox_effect *effect, size_t *retlen);

/**
 * abox_effect_wait() - wait until an effect is no longer being executed
 * @journal:       opened for append
 * @id:            from the place of ABOX_E_IN_PROGRESS
 * @timeout_usec:  0 only looks, ABOX_FOREVER waits for ever
 * @reterr:        may be NULL
 *
 * The end of the executor wakes it: its DISPATCHED is UNKNOWN then.
 *
 * Effects:  a record when the executor is found dead
 * Threads:  any
 * Return:   the state (enum abox_effect_state); ABOX_E_TIMEOUT, ABOX_E_NOT_FOUND, and what the journal answers
 * Since:    0.1
 */
ABOX_API int abox_effect_wait(abox_journal *journal, const char *id, uint64_t timeout_usec, abox_error **reterr);

/**
 * abox_effect_reconcile() - ask the outside about an effect that is UNKNOWN
 * @task:      controlled
 * @id:        the effect, of class checkable
 * @check_fn:  asks; called without a lock. Its verdict holds if state, try and epoch are as it saw them
 * @userdata:  for it
 * @reterr:    may be NULL
 *
 * Effects:  a record of the verdict, durable before it returns. ABSENT is refused until the settle time has passed
 *           since the executor ended
 * Threads:  any
 * Return:   the state that holds now; ABOX_E_UNKNOWN when nothing was found, ABOX_E_BUSY (retryable) before the
 *           settle time is over, ABOX_E_IN_PROGRESS, ABOX_E_FENCED, ABOX_E_CONFLICT when it changed meanwhile
 * Since:    0.1
 */
ABOX_API int abox_effect_reconcile(abox_task *task, const char *id, abox_effect_check_fn check_fn, void *userdata,
	abox_error **reterr);

/** Verdicts of a person over an effect that is UNKNOWN. */
enum abox_verdict {
	ABOX_VERDICT_ABANDONED = 0,	/* leave it; it will not be tried again */
	ABOX_VERDICT_COMMITTED = 1,	/* it happened, with this result */
	ABOX_VERDICT_ABSENT = 2		/* it did not happen and cannot any more: may be tried again */
};

/**
 * abox_effect_resolve() - decide about an effect that is UNKNOWN, from any process
 * @journal:  opened for append
 * @id:       the effect
 * @verdict:  enum abox_verdict
 * @by:       who decides: 1..255 bytes, recorded, not authenticated
 * @result:   for COMMITTED; may be NULL
 * @len:      its length
 * @code:     the number beside it
 * @reterr:   may be NULL
 *
 * Effects:  a durable record
 * Threads:  any
 * Return:   0; ABOX_E_IN_PROGRESS while its executor lives, ABOX_E_BUSY (retryable) for ABSENT before the settle
 *           time is over, ABOX_E_STATE when it is not UNKNOWN, ABOX_E_NOT_FOUND
 * Since:    0.1
 */
ABOX_API int abox_effect_resolve(abox_journal *journal, const char *id, int verdict, const char *by,
	const void *result, size_t len, int32_t code, abox_error **reterr);

/**
 * abox_effect_retry() - let an UNKNOWN effect be tried again though it may have happened, by name
 *
 * Parameters as for abox_effect_resolve(). The next begin with its key gets a new try.
 *
 * Effects:  a durable record
 * Threads:  any
 * Return:   0; ABOX_E_IN_PROGRESS, ABOX_E_STATE, ABOX_E_NOT_FOUND
 * Since:    0.1
 */
ABOX_API int abox_effect_retry(abox_journal *journal, const char *id, const char *by, abox_error **reterr);

/**
 * abox_effect_claim() - say that an ambiguous wish is a repeat of an earlier effect, for good
 * @journal:    opened for append
 * @id:         of the ambiguous wish, from the place of ABOX_E_AMBIGUOUS
 * @effect_id:  the earlier effect it repeats
 * @by:         who says so
 * @reterr:     may be NULL
 *
 * Effects:  a durable record; from now on the wish is answered as that effect is
 * Threads:  any
 * Return:   0; ABOX_E_NOT_FOUND, ABOX_E_STATE when it is not ambiguous, ABOX_E_CONFLICT for another task or target
 * Since:    0.1
 */
ABOX_API int abox_effect_claim(abox_journal *journal, const char *id, const char *effect_id, const char *by,
	abox_error **reterr);

/** abox_effect_allow() - say that an ambiguous wish is a new one; as abox_effect_claim(). Since 0.1. */
ABOX_API int abox_effect_allow(abox_journal *journal, const char *id, const char *by, abox_error **reterr);

/**
 * abox_effect_list() - effects as a JSON array
 * @journal:   opened for reading or append
 * @task:      only those of this task; NULL takes all
 * @open_only: 1: only those that are not final
 * @retjson:   released with abox_free()
 * @reterr:    may be NULL
 *
 * Effects:  reads the journal from its beginning
 * Threads:  any
 * Return:   0, and what the journal answers
 * Since:    0.1
 */
ABOX_API int abox_effect_list(abox_journal *journal, const char *task, int open_only, char **retjson,
	abox_error **reterr);

/** abox_effect_show() - one effect as a JSON object, its result included; ABOX_E_NOT_FOUND. Since 0.1. */
ABOX_API int abox_effect_show(abox_journal *journal, const char *id, char **retjson, abox_error **reterr);

/*
 * Approvals. A request shows task, class, target, fingerprint and the requester's text; deny and revoke win until it
 * is used; it is judged and used up in the record of the dispatch and nowhere else.
 * The approver's name is recorded, not authenticated: any process that may write the journal can give one.
 */

/** State of an approval. */
enum abox_approval_state {
	ABOX_APPROVAL_PENDING = 0,
	ABOX_APPROVAL_GRANTED = 1,
	ABOX_APPROVAL_DENIED = 2,
	ABOX_APPROVAL_REVOKED = 3,
	ABOX_APPROVAL_EXPIRED = 4,
	ABOX_APPROVAL_USED = 5,		/* no use left */
	ABOX_APPROVAL_CLOSED = 6	/* the task ended or was canceled */
};

/** abox_approval_state_name() - "PENDING" and so on; "?" for others; static. Since 0.1. */
ABOX_API const char *abox_approval_state_name(int state);

/**
 * struct abox_approval_options - a request for approval
 *
 * @size:          sizeof(struct abox_approval_options); see abox_approval_options_init()
 * @effect_class:  enum abox_effect_class
 * @uses:          how many dispatches it is good for; 0 means 1
 * @request:       the request, for target and fingerprint
 * @text:          what the requester says it is about; may lie about the request, which is why both are shown
 * @ttl_usec:      0 means 24 hours
 * @wall:          1: ttl in wall time, survives a reboot; else it lapses with the boot
 */
struct abox_approval_options {
	size_t size;
	uint32_t effect_class;
	uint32_t uses;
	struct abox_effect_request request;
	const char *text;
	uint64_t ttl_usec;
	uint32_t wall;
};

/** abox_approval_options_init() - all empty, sizes set. Since 0.1. */
ABOX_API void abox_approval_options_init(struct abox_approval_options *options);

/**
 * abox_approval_request() - ask for approval of a payload; an open request for the same payload is taken again
 * @task:     controlled
 * @options:  borrowed for the call
 * @retid:    released with abox_free()
 * @reterr:   may be NULL
 *
 * Effects:  a durable record
 * Threads:  any
 * Return:   0 for a new request, 1 for one that was open; ABOX_E_CANCELED, ABOX_E_ALREADY, ABOX_E_FENCED
 * Since:    0.1
 */
ABOX_API int abox_approval_request(abox_task *task, const struct abox_approval_options *options, char **retid,
	abox_error **reterr);

/**
 * abox_approval_grant(), abox_approval_deny(), abox_approval_revoke() - answer a request, from any process
 * @journal:  opened for append
 * @id:       the request
 * @by:       who answers: 1..255 bytes
 * @note:     why; may be NULL
 * @reterr:   may be NULL
 *
 * Effects:  a durable record
 * Threads:  any
 * Return:   0; ABOX_E_NOT_FOUND; ABOX_E_ALREADY when it was used up, expired, closed, or denied before
 * Since:    0.1
 */
ABOX_API int abox_approval_grant(abox_journal *journal, const char *id, const char *by, const char *note,
	abox_error **reterr);
ABOX_API int abox_approval_deny(abox_journal *journal, const char *id, const char *by, const char *note,
	abox_error **reterr);
ABOX_API int abox_approval_revoke(abox_journal *journal, const char *id, const char *by, const char *note,
	abox_error **reterr);

/**
 * abox_approval_wait() - wait until a request is no longer pending
 * @journal:       opened for append
 * @id:            the request
 * @timeout_usec:  0 only looks, ABOX_FOREVER waits for ever
 * @reterr:        may be NULL
 *
 * Threads:  any
 * Return:   enum abox_approval_state (PENDING when the time is over); ABOX_E_NOT_FOUND
 * Since:    0.1
 */
ABOX_API int abox_approval_wait(abox_journal *journal, const char *id, uint64_t timeout_usec, abox_error **reterr);

/** abox_approval_list() - requests as a JSON array; @task NULL takes all, @pending_only 1 the open ones. Since 0.1. */
ABOX_API int abox_approval_list(abox_journal *journal, const char *task, int pending_only, char **retjson,
	abox_error **reterr);

#ifdef __cplusplus
}
#endif
#endif
