/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A command: one process tree started in a sandbox, with its own streams, limits and end.
 */
#ifndef AGENTBOX_COMMAND_H
#define AGENTBOX_COMMAND_H

#include <agentbox/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Where the standard input of a command comes from. Zero is the least. */
enum abox_stdin {
	ABOX_STDIN_EMPTY = 0,	/* /dev/null of the box */
	ABOX_STDIN_BYTES = 1,	/* stdin_data, any size; the command sees a file */
	ABOX_STDIN_FD = 2,	/* stdin_fd itself is given to the command */
	ABOX_STDIN_COPY = 3,	/* the library copies from stdin_fd into a pipe while it waits */
	ABOX_STDIN_STREAM = 4	/* written with abox_command_write(), ended with abox_command_close_stdin() */
};

/** Where an output stream of a command goes. Zero is the least. */
enum abox_stream {
	ABOX_STREAM_NULL = 0,		/* dropped, not counted */
	ABOX_STREAM_CAPTURE = 1,	/* kept for the result, up to the output limit, while the caller waits */
	ABOX_STREAM_COPY = 2,		/* the library copies it to the given descriptor while the caller waits */
	ABOX_STREAM_SPOOL = 3,		/* kept by the keeper, read with abox_command_read(); survives the caller */
	ABOX_STREAM_FD = 4		/* the descriptor itself is given to the command; not counted, not limited */
};

/** What happens to processes that outlive the main process of a command. */
enum abox_survivors {
	ABOX_SURVIVORS_KILL = 0,	/* killed when the main process ends; the result says how many */
	ABOX_SURVIVORS_KEEP = 1		/* stay until the box stops or abox_command_kill() */
};

/** Why a command ended. */
enum abox_cause {
	ABOX_CAUSE_NONE = 0,		/* it has not ended */
	ABOX_CAUSE_EXITED = 1,
	ABOX_CAUSE_SIGNALED = 2,	/* by a signal that none of the causes below explains */
	ABOX_CAUSE_TIMEOUT = 3,		/* its own, or the wall clock of the box */
	ABOX_CAUSE_IDLE = 4,		/* idle clock of the box */
	ABOX_CAUSE_MEMORY = 5,		/* evidence: oom_kill counter of the control group */
	ABOX_CAUSE_PIDS = 6,
	ABOX_CAUSE_DISK = 7,
	ABOX_CAUSE_OUTPUT = 8,		/* output limit with output_kill */
	ABOX_CAUSE_POLICY = 9,		/* killed by the system call filter (SIGSYS) */
	ABOX_CAUSE_CANCELED = 10,	/* abox_command_kill(), or the box was stopped */
	ABOX_CAUSE_WALL_LOST = 11,	/* the wall ended under it */
	ABOX_CAUSE_KEEPER_LOST = 12
};

/** Names of limits that struck, as bits; see abox_result_get_limits_struck(). */
enum abox_limit {
	ABOX_LIMIT_WALL = 1 << 0,
	ABOX_LIMIT_IDLE = 1 << 1,
	ABOX_LIMIT_TIMEOUT = 1 << 2,
	ABOX_LIMIT_MEMORY = 1 << 3,
	ABOX_LIMIT_PIDS = 1 << 4,
	ABOX_LIMIT_DISK = 1 << 5,
	ABOX_LIMIT_INODES = 1 << 6,
	ABOX_LIMIT_OUTPUT = 1 << 7,
	ABOX_LIMIT_CPU = 1 << 8
};

/**
 * abox_output_fn - receives output as it arrives (streams in CAPTURE or COPY mode)
 * @stream:   1 or 2
 * Called on the thread that waits. Return 0 to go on; anything else kills the command (cause canceled).
 */
typedef int (*abox_output_fn)(int stream, const void *data, size_t len, void *userdata);

/** Options of abox_command_start() and abox_command_run(). Zero everything but size and argv for defaults. */
struct abox_command_options {
	size_t size;
	const char *const *argv;	/* NULL-ended; argv[0] is looked up in PATH of the box unless it has a slash */
	const char *const *env;		/* NULL-ended NAME=VALUE added to, or replacing, those of the plan; NULL: none */
	const char *cwd;		/* absolute path inside; NULL: the plan's */
	const char *user;		/* "agent", "root" or a number; NULL: the plan's */
	const char *token;		/* same token: the command already started is returned, not a second one */
	int32_t stdin_mode;		/* enum abox_stdin */
	int32_t stdin_fd;
	const void *stdin_data;		/* copied at start */
	size_t stdin_len;
	int32_t stdout_mode;		/* enum abox_stream */
	int32_t stdout_fd;
	int32_t stderr_mode;
	int32_t stderr_fd;
	int32_t stderr_to_stdout;	/* 1: stderr joins stdout; stderr_mode is ignored then */
	int32_t pty;			/* 1: a terminal of the box's own is stdin, stdout, stderr; output is spooled as stream 1 */
	uint32_t pty_rows;		/* 0: 24 */
	uint32_t pty_columns;		/* 0: 80 */
	int32_t survivors;		/* enum abox_survivors */
	int32_t output_kill;		/* 1: the command is killed at the output limit; 0: the rest is dropped and counted */
	uint64_t timeout_usec;		/* 0: the box's own clock only */
	uint64_t grace_usec;		/* between TERM and KILL; 0: the plan's */
	uint64_t output_bytes;		/* per stream; 0: the plan's */
	uint64_t memory_bytes;		/* 0: the box's own */
	uint64_t pids;			/* 0: the box's own */
	uint64_t cpu_usec;		/* processor time of each process; 0: no limit of its own */
	uint64_t file_bytes;		/* size of each file it writes; 0: no limit of its own */
	uint32_t open_files;		/* 0: the plan's */
	abox_output_fn on_output;
	void *on_output_userdata;
};
#define ABOX_COMMAND_OPTIONS_INIT .size = sizeof(struct abox_command_options)
/** abox_command_options_init() - as ABOX_COMMAND_OPTIONS_INIT, for bindings. Threads: any. Since: 0.1 */
ABOX_API void abox_command_options_init(struct abox_command_options *options);

/**
 * abox_command_start() - start a command in a running box
 * @box:      borrowed; opened for attach or control
 * @options:  read during the call only
 * @retcommand: released with abox_command_unref()
 * @reterr:   may be NULL
 *
 * Returns when the program runs, so that a program that cannot run is an error here and never an exit code.
 *
 * Threads:  several threads may start commands on one box at once
 * Return:   0; 1 when @options.token named a command that was started before (it is returned);
 *           ABOX_E_EXEC_NOT_FOUND, ABOX_E_EXEC_FORMAT, ABOX_E_EXEC_INTERPRETER, ABOX_E_NOT_FOUND (cwd),
 *           ABOX_E_LIMIT (argument list too long, wider than the box), ABOX_E_CONFLICT (token with other argv),
 *           ABOX_E_STATE (box stops or is read-only), ABOX_E_FENCED, ABOX_E_UNSUPPORTED, ABOX_E_GONE
 * Since:    0.1
 */
ABOX_API int abox_command_start(abox_sandbox *box, const struct abox_command_options *options,
	abox_command **retcommand, abox_error **reterr);

/**
 * abox_command_run() - start a command and wait for its end
 * @retresult: released with abox_result_unref()
 *
 * Streams left at ABOX_STREAM_NULL are captured here: this is the call for "run it and give me everything".
 *
 * Return:   0, and what abox_command_start() and abox_command_wait() return
 * Since:    0.1
 */
ABOX_API int abox_command_run(abox_sandbox *box, const struct abox_command_options *options,
	abox_result **retresult, abox_error **reterr);

/** abox_command_open() - a command that was started before, by its number or token. Since 0.1. */
ABOX_API int abox_command_open(abox_sandbox *box, const char *ref, abox_command **retcommand, abox_error **reterr);

ABOX_API abox_command *abox_command_ref(abox_command *command);
/** abox_command_unref() - let the handle go; the command goes on. CAPTURE and COPY streams end here. Since 0.1. */
ABOX_API abox_command *abox_command_unref(abox_command *command);

/** abox_command_get_id() - number of the command in its box, from 1. Since 0.1. */
ABOX_API uint32_t abox_command_get_id(const abox_command *command);

/**
 * abox_command_get_fd() - readable when abox_command_process() has something to do
 * Borrowed, for poll only; an epoll descriptor that covers the end and all streams. Since 0.1.
 */
ABOX_API int abox_command_get_fd(const abox_command *command);

/**
 * abox_command_process() - move data and take events, without waiting
 * Return:   1 when the command has ended (abox_command_wait() then returns at once), 0 when not, or a negative code
 * Since:    0.1
 */
ABOX_API int abox_command_process(abox_command *command, abox_error **reterr);

/**
 * abox_command_wait() - wait until the command has finished
 * @command:       borrowed
 * @timeout_usec:  microseconds; 0 only looks, ABOX_FOREVER waits for ever
 * @retresult:     the result, released with abox_result_unref()
 * @reterr:        may be NULL
 *
 * A command ends when its main process ends; background processes that hold its streams do not delay it: what
 * is in the pipes then is drained, for at most 100 ms.
 *
 * Threads:  one waiter; abox_command_signal() and abox_command_kill() may be called meanwhile
 * Return:   1 when finished, 0 on timeout (@retresult untouched), ABOX_E_MEMORY, ABOX_E_GONE
 * Since:    0.1
 */
ABOX_API int abox_command_wait(abox_command *command, uint64_t timeout_usec, abox_result **retresult,
	abox_error **reterr);

/** abox_command_signal() - send a signal to the main process (its process group with a pty). Any thread. Since 0.1. */
ABOX_API int abox_command_signal(abox_command *command, int signal_number, abox_error **reterr);

/**
 * abox_command_kill() - end the whole tree: TERM, grace, KILL
 * @grace_usec: 0 kills at once; ABOX_FOREVER means the plan's grace time
 * Threads:  any. Return: 0 (also when it has ended already), ABOX_E_GONE. Since 0.1.
 */
ABOX_API int abox_command_kill(abox_command *command, uint64_t grace_usec, abox_error **reterr);

/** abox_command_write() - bytes for ABOX_STDIN_STREAM or a pty; returns when the keeper has taken all. Since 0.1. */
ABOX_API int abox_command_write(abox_command *command, const void *data, size_t len, abox_error **reterr);
ABOX_API int abox_command_close_stdin(abox_command *command, abox_error **reterr);
ABOX_API int abox_command_resize(abox_command *command, uint32_t rows, uint32_t columns, abox_error **reterr);

/** One piece of spooled output. */
struct abox_output {
	size_t size;
	uint64_t cursor;	/* of the first byte; greater than asked for when bytes were dropped in between (a gap) */
	uint64_t next_cursor;	/* where to go on */
	uint64_t total_bytes;	/* that the command has written so far, dropped ones included */
	size_t len;		/* bytes put into the buffer */
	int32_t gap;		/* 1 when bytes between the asked cursor and this piece are gone */
	int32_t end;		/* 1 when the stream has ended and everything has been read */
};

/**
 * abox_command_read() - read spooled output from a cursor
 * @stream:   1 or 2
 * @cursor:   byte offset, 0 for the start
 * @buffer:   filled with exact bytes
 * @output:   size set by the caller
 * @timeout_usec: waits so long for at least one byte
 * Return:   1 with data or end, 0 on timeout, ABOX_E_STATE (stream is not spooled), ABOX_E_GONE
 * Since:    0.1
 */
ABOX_API int abox_command_read(abox_command *command, int stream, uint64_t cursor, void *buffer, size_t buffer_len,
	struct abox_output *output, uint64_t timeout_usec, abox_error **reterr);

/* -- result: never changes once made; shared freely between threads -- */

ABOX_API abox_result *abox_result_ref(abox_result *result);
ABOX_API abox_result *abox_result_unref(abox_result *result);
/** abox_result_get_cause() - enum abox_cause; abox_cause_name() gives its name. Since 0.1. */
ABOX_API int abox_result_get_cause(const abox_result *result);
ABOX_API const char *abox_cause_name(int cause);
/** abox_result_get_exit_code() - 0..255, or -1 when a signal ended it. Since 0.1. */
ABOX_API int abox_result_get_exit_code(const abox_result *result);
/** abox_result_get_signal() - the signal that ended the main process, 0 when it exited. Since 0.1. */
ABOX_API int abox_result_get_signal(const abox_result *result);
ABOX_API uint64_t abox_result_get_wall_usec(const abox_result *result);
ABOX_API uint64_t abox_result_get_cpu_usec(const abox_result *result);
/** abox_result_get_memory_peak_bytes() - of the command's group, or of its largest process where there is none. */
ABOX_API uint64_t abox_result_get_memory_peak_bytes(const abox_result *result);
/** abox_result_get_survivors() - processes that outlived the main process (killed or kept by option). Since 0.1. */
ABOX_API uint32_t abox_result_get_survivors(const abox_result *result);
/** abox_result_get_limits_struck() - bits of enum abox_limit for which there is evidence. Since 0.1. */
ABOX_API uint32_t abox_result_get_limits_struck(const abox_result *result);
/** abox_result_get_evidence() - one line saying what the cause rests on; belongs to the result. Since 0.1. */
ABOX_API const char *abox_result_get_evidence(const abox_result *result);
/**
 * abox_result_get_output() - captured bytes of a stream
 * @stream:   1 or 2
 * @retdata:  belongs to the result; exact bytes, a NUL behind them that is not counted
 * @retlen:   bytes kept
 * Return:   0, ABOX_E_INVALID
 * Since:    0.1
 */
ABOX_API int abox_result_get_output(const abox_result *result, int stream, const void **retdata, size_t *retlen);
/** abox_result_get_output_total() - bytes the command wrote to the stream, those beyond the limit included. */
ABOX_API uint64_t abox_result_get_output_total(const abox_result *result, int stream);
/** abox_result_get_truncated() - 1 when bytes of the stream were dropped at the output limit. Since 0.1. */
ABOX_API int abox_result_get_truncated(const abox_result *result, int stream);
/** abox_result_get_stdin_taken() - bytes of ABOX_STDIN_BYTES that the command has read. Since 0.1. */
ABOX_API uint64_t abox_result_get_stdin_taken(const abox_result *result);
/**
 * abox_result_dump() - the result as JSON: cause, exit_code, signal, wall_usec, cpu_usec, memory_peak_bytes,
 * stdout_bytes, stderr_bytes, truncated, survivors, limits, evidence, sandbox, command, plan_digest
 * @retjson:  released with abox_free(). Since 0.1.
 */
ABOX_API int abox_result_dump(const abox_result *result, char **retjson);

/**
 * abox_text_safe() - output bytes as text that cannot drive a terminal
 * @data:     any bytes
 * @len:      how many
 * @final:    0 when more follows: an unfinished character at the end is then left for the next call
 * @rettext:  valid UTF-8 without C0, C1 and DEL but for newline and tab; bytes that are no UTF-8 become U+FFFD;
 *            released with abox_free()
 * @rettaken: bytes of @data that went into it; may be NULL
 * Return:   0, ABOX_E_INVALID, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_text_safe(const void *data, size_t len, int final, char **rettext, size_t *rettaken);

#ifdef __cplusplus
}
#endif
#endif
