/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A sandbox: a running box. It lives in a keeper process of its own, ends on time whether or not the program that
 * started it is alive, and is found again by id or name from any process of the same user.
 */
#ifndef AGENTBOX_SANDBOX_H
#define AGENTBOX_SANDBOX_H

#include <agentbox/types.h>
#include <agentbox/workspace.h>

#ifdef __cplusplus
extern "C" {
#endif

/** States of a sandbox, in the order of its life. */
enum abox_sandbox_state {
	ABOX_SANDBOX_STARTING = 0,
	ABOX_SANDBOX_RUNNING = 1,
	ABOX_SANDBOX_PAUSED = 2,
	ABOX_SANDBOX_STOPPING = 3,
	ABOX_SANDBOX_STOPPED = 4,
	ABOX_SANDBOX_FAILED = 5
};

/** How a sandbox is opened. Zero is the least. */
enum abox_open_mode {
	ABOX_OPEN_READ = 0,	/* look: state, statistics, output, results */
	ABOX_OPEN_ATTACH = 1,	/* and run commands, signal, write to them; several at once */
	ABOX_OPEN_CONTROL = 2	/* and stop, pause, change limits; an older controller gets ABOX_E_FENCED */
};

/** Why a sandbox is stopped: chooses what survives. */
enum abox_stop_mode {
	ABOX_STOP_CANCEL = 0,
	ABOX_STOP_FAILURE = 1,
	ABOX_STOP_SUCCESS = 2
};

/** Importance of a log message. */
enum abox_log_level {
	ABOX_LOG_ERROR = 0,
	ABOX_LOG_WARNING = 1,
	ABOX_LOG_INFO = 2,
	ABOX_LOG_DEBUG = 3
};

/**
 * abox_log_fn - receives what the library has to say about one handle; nothing is ever printed
 * @level:    enum abox_log_level
 * @message:  one line without a newline, borrowed for the call, never a secret
 * @userdata: as given
 *
 * Called on the thread that called into the library, from within that call. It must not use the same handle.
 */
typedef void (*abox_log_fn)(int level, const char *message, void *userdata);

/** Options of abox_sandbox_start(). Zero everything but size, or use ABOX_START_OPTIONS_INIT. */
struct abox_start_options {
	size_t size;
	abox_log_fn log;
	void *log_userdata;
	uint64_t timeout_usec;	/* for the start itself; 0 means 30 seconds, for a virtual machine 2 minutes */
};
#define ABOX_START_OPTIONS_INIT sizeof(struct abox_start_options)
/** abox_start_options_init() - as ABOX_START_OPTIONS_INIT, for bindings. Threads: any. Since: 0.1 */
ABOX_API void abox_start_options_init(struct abox_start_options *options);

/**
 * abox_sandbox_start() - make the box of a plan
 * @plan:     borrowed; the sandbox keeps its own reference
 * @options:  NULL for defaults
 * @retbox:   a controlling handle, released with abox_sandbox_unref()
 * @reterr:   names the step that failed; may be NULL
 *
 * Either the whole box of the plan stands, or nothing is left: a failed start undoes what it had done.
 *
 * Effects:  a keeper process (no child of the caller: its wait(-1) never sees it, except where the caller is PID 1
 *           or a subreaper and sees it end like every orphan), a state folder, control groups, namespaces.
 *           Signals, working directory, umask, environment and descriptors of the caller are not touched. What compiling
 *           found out about the host by trying is kept in the cache folder (one small file, for this boot and user).
 * Threads:  any
 * Return:   0, ABOX_E_EXISTS (name in use), ABOX_E_PERMISSION, ABOX_E_UNAVAILABLE, ABOX_E_NOT_FOUND (a source is
 *           gone since compile), ABOX_E_TIMEOUT, ABOX_E_SYSTEM, ABOX_E_MEMORY, ABOX_E_GONE
 * Since:    0.1
 */
ABOX_API int abox_sandbox_start(abox_plan *plan, const struct abox_start_options *options, abox_sandbox **retbox,
	abox_error **reterr);

/**
 * abox_sandbox_open() - find a box again, from any process of the same user
 * @ref:      id (32 hexadecimal digits) or name
 * @mode:     enum abox_open_mode
 * @retbox:   released with abox_sandbox_unref()
 * @reterr:   may be NULL
 *
 * A box whose keeper has died is cleared away by this call and answered with ABOX_E_NOT_FOUND, unless it was
 * detached: then its record and output stay readable (state stopped or failed) until abox_sandbox_remove().
 *
 * Effects:  ABOX_OPEN_CONTROL raises the epoch of the box
 * Return:   0, ABOX_E_NOT_FOUND, ABOX_E_STATE (attach or control of a box that has ended), ABOX_E_PERMISSION,
 *           ABOX_E_BUSY (still starting), ABOX_E_MEMORY, ABOX_E_SYSTEM
 * Since:    0.1
 */
ABOX_API int abox_sandbox_open(const char *ref, int mode, abox_sandbox **retbox, abox_error **reterr);

/** abox_sandbox_ref() - one more owner of the handle; returns @box. Any thread. Since 0.1. */
ABOX_API abox_sandbox *abox_sandbox_ref(abox_sandbox *box);

/**
 * abox_sandbox_unref() - let a handle go
 * @box:      may be NULL
 *
 * With the last reference to the handle of the owner (the one that started it, or the last controller) the policy
 * `on_owner_death` applies, as if the process had died: `stop` ends the box, `keep` keeps it.
 *
 * Return:   NULL
 * Since:    0.1
 */
ABOX_API abox_sandbox *abox_sandbox_unref(abox_sandbox *box);

/** abox_sandbox_set_log() - replace the log callback; NULL for silence. Since 0.1. */
ABOX_API void abox_sandbox_set_log(abox_sandbox *box, abox_log_fn log, void *userdata);

/** abox_sandbox_get_id() - 32 hexadecimal digits, belongs to the handle. Since 0.1. */
ABOX_API const char *abox_sandbox_get_id(const abox_sandbox *box);
/** abox_sandbox_get_name() - NULL when it has none; belongs to the handle. Since 0.1. */
ABOX_API const char *abox_sandbox_get_name(const abox_sandbox *box);
/** abox_sandbox_get_epoch() - raised by each ABOX_OPEN_CONTROL; the first controller has 1. Since 0.1. */
ABOX_API uint64_t abox_sandbox_get_epoch(const abox_sandbox *box);
/** abox_sandbox_get_state() - asks the keeper: enum abox_sandbox_state, or a negative code. Since 0.1. */
ABOX_API int abox_sandbox_get_state(abox_sandbox *box, abox_error **reterr);

/**
 * abox_sandbox_get_fd() - readable when abox_sandbox_process() has something to do (the box ended, a message came)
 * @box:      borrowed; so is the descriptor, for poll only
 *
 * Return:   a descriptor, or ABOX_E_STATE for a box that has ended
 * Since:    0.1
 */
ABOX_API int abox_sandbox_get_fd(const abox_sandbox *box);

/**
 * abox_sandbox_process() - take what has come, without waiting
 * Return:   1 when the box still runs, 0 when it has ended, or a negative code
 * Since:    0.1
 */
ABOX_API int abox_sandbox_process(abox_sandbox *box, abox_error **reterr);

/**
 * abox_sandbox_wait() - wait until the box has ended
 * Return:   1 when it has ended, 0 on timeout, or a negative code
 * Since:    0.1
 */
ABOX_API int abox_sandbox_wait(abox_sandbox *box, uint64_t timeout_usec, abox_error **reterr);

/**
 * abox_sandbox_inspect() - everything known of a box as JSON
 * @retjson:  {"id","name","state","backend","plan_digest","created_usec","epoch","owner_death","commands":[...],
 *            "plan":{...},"workspace"}; the last is the id of the workspace that is kept for it, while it runs;
 *            released with abox_free()
 * Since:    0.1
 */
ABOX_API int abox_sandbox_inspect(abox_sandbox *box, char **retjson, abox_error **reterr);

/**
 * abox_sandbox_list() - the boxes of this user as a JSON array
 * @retjson:  [{"id","name","state","backend","created_usec","pid","plan_digest","workspace"}...]; released with abox_free()
 *
 * Effects:  clears away what is left of attached boxes whose keeper died
 * Since:    0.1
 */
ABOX_API int abox_sandbox_list(char **retjson, abox_error **reterr);

/** Live figures of a box; a value that this host cannot tell is UINT64_MAX. */
struct abox_stats {
	size_t size;
	uint64_t cpu_usec;
	uint64_t memory_bytes;
	uint64_t memory_peak_bytes;
	uint64_t pids;
	uint64_t disk_bytes;
	uint64_t inodes;
	uint64_t oom_kills;
	uint64_t uptime_usec;
	uint64_t commands_running;
	uint64_t commands_started;
};
#define ABOX_STATS_INIT sizeof(struct abox_stats)

/** abox_sandbox_stats() - fill @stats (its size set by the caller) with the figures of now. Since 0.1. */
ABOX_API int abox_sandbox_stats(abox_sandbox *box, struct abox_stats *stats, abox_error **reterr);

/**
 * abox_sandbox_pause() - stop every process of the box until abox_sandbox_resume()
 *
 * With a cgroup freezer nothing inside can notice or undo it; without one SIGSTOP is sent to every process, which
 * the plan calls approximated. The wall clock goes on, idle and command clocks stand still.
 *
 * Return:   0 (also when it is paused already), ABOX_E_STATE, ABOX_E_FENCED, ABOX_E_GONE
 * Since:    0.1
 */
ABOX_API int abox_sandbox_pause(abox_sandbox *box, abox_error **reterr);
ABOX_API int abox_sandbox_resume(abox_sandbox *box, abox_error **reterr);

/**
 * abox_sandbox_snapshot() - a snapshot of the workspace that the box works on
 * @box:      opened for attach or control
 * @options:  as of abox_workspace_snapshot(); NULL: no name, kept until removed
 * @retid:    id of the snapshot; abox_free(); may be NULL
 *
 * Every process of the box is stopped meanwhile, as by abox_sandbox_pause(), for a time that goes with the changes and
 * not with the tree. What the spec's `never` names, and secrets of its environment, are looked for first; scratch is in
 * the snapshot, since the box still has it.
 *
 * Return:   0, ABOX_E_STATE (it has no workspace that is kept, or is being stopped), ABOX_E_DENIED (the place is what may
 *           not be kept), ABOX_E_EXISTS (name), ABOX_E_NOSPACE, ABOX_E_IO, ABOX_E_GONE
 * Since:    0.1
 */
ABOX_API int abox_sandbox_snapshot(
	abox_sandbox *box, const struct abox_snapshot_options *options, char **retid, abox_error **reterr);

/**
 * abox_sandbox_set_limit() - raise or lower a limit of a running box
 * @name:     "memory", "pids", "cpus" (in thousandths), "wall" (microseconds from now)
 * @value:    in the unit of the name; 0 is refused
 *
 * Return:   0, ABOX_E_INVALID, ABOX_E_UNSUPPORTED where this host cannot change it, ABOX_E_FENCED, ABOX_E_GONE
 * Since:    0.1
 */
ABOX_API int abox_sandbox_set_limit(abox_sandbox *box, const char *name, uint64_t value, abox_error **reterr);

/**
 * abox_sandbox_verify() - try the walls from inside the live box
 * @retjson:  the receipt: {"sandbox","plan_digest","backend","verified_usec","proven":[{"name","expected","outcome",
 *            "detail"}],"mismatches":[...]}; also set when ABOX_E_MISMATCH is returned; abox_free()
 *
 * Runs probes as a command: write outside, read a hidden path, connect out, metadata address, host loopback, ptrace,
 * keyring, raw socket, mount, new user namespace, DNS, abstract socket, capabilities. Each denial stands beside a
 * control that must succeed, so that a probe which could not run is a mismatch, not a proof.
 *
 * Return:   0, ABOX_E_MISMATCH, ABOX_E_STATE, ABOX_E_GONE
 * Since:    0.1
 */
ABOX_API int abox_sandbox_verify(abox_sandbox *box, char **retjson, abox_error **reterr);

/**
 * abox_sandbox_stop() - end the box and remove what it had put on the host
 * @mode:     enum abox_stop_mode
 * @retjson:  teardown report {"sandbox","mode","killed","removed":[...],"kept":[...],"revoked":[...],
 *            "left_behind":[{"what","error"}...],"wall_usec"}; may be NULL; released with abox_free()
 *
 * Where a workspace was kept for the box, "workspace" in the report says what has become of it: {"id","end" (success,
 * failure, cancel, timeout),"action" (as in the spec),"outcome" (kept, snapshot, discarded, artifacts, diagnostics,
 * refused, failed),"snapshot","changes" (digest of the change set),"n_changes","pruned","results" (the folder with
 * artifacts or diagnostics),"artifacts":[{"path","size","sha256","mode"}],"error"}. Refused or failed means that the
 * workspace stays as the box has left it.
 *
 * Admission is closed first, commands get TERM, after the grace time KILL, then every change to the host is undone
 * in reverse order, past failures. Stopping twice is fine: the second call answers 0 with the same report.
 *
 * Return:   0, ABOX_E_LEFT_BEHIND (the report lists it), ABOX_E_FENCED, ABOX_E_STATE (not a controller), ABOX_E_GONE
 * Since:    0.1
 */
ABOX_API int abox_sandbox_stop(abox_sandbox *box, int mode, char **retjson, abox_error **reterr);

/**
 * abox_sandbox_remove() - forget a detached box that has ended: its record and output
 * @ref:      id or name
 * Return:   0, ABOX_E_NOT_FOUND, ABOX_E_STATE (it still runs), ABOX_E_SYSTEM
 * Since:    0.1
 */
ABOX_API int abox_sandbox_remove(const char *ref, abox_error **reterr);

/**
 * abox_sandbox_gc() - clear away what dead boxes have left: state folders, control groups
 * @retjson:  {"removed":[...],"left_behind":[...]}; may be NULL; released with abox_free()
 *
 * Only boxes whose keeper is dead are touched; a lock that the living hold decides, never a pid. A workspace that nobody
 * has settled, because what was to do it was killed, is settled now: as the end that was on its way when the stop had
 * begun, else as a failure.
 * Records of detached boxes stay until abox_sandbox_remove() or their ttl.
 * Since:    0.1
 */
ABOX_API int abox_sandbox_gc(char **retjson, abox_error **reterr);

#ifdef __cplusplus
}
#endif
#endif
