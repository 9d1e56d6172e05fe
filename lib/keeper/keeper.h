/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The keeper: one per sandbox, outlives the program that started it. It makes the box, owns its clocks, its commands and
 * their output, and takes everything away again. One thread, one epoll loop, nothing in it blocks for long: a client that
 * does not read is dropped, never waited for.
 *
 * Security: what comes from the guest comes from inside the wall and is checked like any input. Clients are processes of
 * the same user.
 */
#ifndef KEEPER_KEEPER_H
#define KEEPER_KEEPER_H

#include <sys/types.h>

#include "backend/backend.h"
#include "base/fault.h"
#include "base/macro.h"
#include "base/pack.h"
#include "base/socket.h"
#include "base/strings.h"
#include "kernel/cgroup.h"
#include "keeper/wire.h"
#include "keeper/wish.h"
#include "plan/flat.h"

struct keeper;
struct client;
struct command;

/* Something that the loop watches. */
struct io {
	int fd;
	uint32_t events;	/* EPOLL*; 0 when it is not watched */
	void (*ready)(struct keeper *keeper, struct io *io, uint32_t events);
	void *owner;
};

/* -- spool: output kept for readers -- */

struct spool {
	int fd;			/* file of the state folder, or memory file */
	uint64_t total;		/* written by the command */
	uint64_t kept;		/* of these in fd */
	uint64_t cap;
	bool open;		/* more may come */
};

/* -- commands -- */

enum command_state {
	COMMAND_STARTING,	/* the order is with the guest */
	COMMAND_RUNNING,
	COMMAND_EXITED,		/* the main process has ended; its tree, or its pipes, not yet */
	COMMAND_ENDED,		/* the result is final */
};

struct command_result {
	uint32_t cause;		/* enum abox_cause */
	int32_t exit_code;
	int32_t signal;
	uint64_t wall_usec, cpu_usec, memory_peak_bytes;
	uint32_t survivors;
	uint32_t limits_struck;
	uint8_t truncated;
	char evidence[192];
};

struct command {
	struct command *next;
	struct keeper *keeper;
	uint32_t id;
	enum command_state state;
	char *token;		/* NULL for none */
	struct fingerprint fingerprint;	/* of the order, to tell a repeat from a conflict */
	char *argv0;
	char *record;		/* of its start, until it has started; NULL when nothing is recorded */
	uint32_t stdin_mode, stdout_mode, stderr_mode;
	bool join_stderr, pty, output_kill;
	uint32_t survivors;
	uint64_t grace_usec;
	uint64_t timeout_usec, file_bytes, cpu_limit_usec;
	uint64_t memory_bytes, pids;	/* limits of its own, 0: none */

	struct cgroup_group tree;	/* for kill */
	struct cgroup_group limits;	/* of its own limits */
	bool has_tree, has_limits;
	uint64_t behind_oom_kills, behind_forks_denied;	/* as the guest tells, where the limits are its kernel's */
	struct cgroup_stats before;	/* counters of the group that limits it, when it started */

	pid_t pid;		/* inside */
	bool tree_gone;
	int wait_status;
	uint32_t cause;		/* why we ended it, ABOX_CAUSE_NONE: we did not */
	uint32_t struck;	/* limits that we enforced on it */
	uint64_t started_usec, exited_usec;	/* monotonic */
	uint64_t timeout_at, kill_at, drain_at, gone_at;	/* UINT64_MAX: not set */

	struct spool spools[2];
	struct io out[2];	/* read ends, or the terminal in out[0] */
	struct io in;		/* write end */
	struct command_result result;
};

/* -- clients -- */

enum client_kind {
	CLIENT_OWNER,		/* the connection the keeper was born with */
	CLIENT_VISITOR,		/* through the socket; mode says what it may */
	CLIENT_WATCHER,		/* event socket of one command */
};

struct outgoing {
	struct outgoing *next;
	size_t len;
	uint8_t data[];
};

/* A request that is answered later. */
struct waiter {
	struct waiter *next;
	uint32_t type;
	uint32_t serial;
	uint32_t command;
	uint32_t stream;
	uint64_t cursor;
	uint32_t max;
	uint64_t deadline;
	bool existing;
	uint8_t *data;		/* INPUT */
	size_t len;
};

struct client {
	struct client *next;
	struct io io;
	enum client_kind kind;
	bool greeted;
	bool gone;		/* to be freed by the loop */
	uint32_t mode;		/* enum abox_open_mode */
	uint32_t command;	/* of a watcher */
	struct outgoing *out_head, *out_tail;
	size_t out_bytes;
	struct waiter *waiters;
};

/* -- report -- */

enum report_kind {
	REPORT_REMOVED,
	REPORT_KEPT,
	REPORT_LEFT,
};
#define REPORT_MAX 32
struct report {
	uint32_t n;
	struct {
		enum report_kind kind;
		char what[160];
		char error[200];
	} entries[REPORT_MAX];
};

enum stop_phase {
	STOP_NONE,
	STOP_TERM,	/* commands have got TERM */
	STOP_KILL,	/* and KILL */
	STOP_DONE,
};

struct keeper {
	int epoll_fd;
	struct io signals;
	struct io listener;
	struct io guest;
	struct io wall;		/* pidfd of the guest */
	struct io recorder;	/* -EBADF: there is none, or not any more */
	bool records;		/* there is a journal */
	uint32_t egress_life;	/* so many have been lost */
	uint32_t n_effects;	/* that were let go, and of which no outcome is recorded */
	bool keeps_workspace;	/* the recorder opens and settles the workspace */
	struct io egress;	/* -EBADF: the box has no network, or has lost it */
	int egress_pidfd;
	int names_fd;		/* of the workspace, see names.c; -EBADF: the names go with the box */

	char id[33];
	struct flat_plan plan;
	const void *start_blob;	/* the plan points into it */
	size_t start_blob_len;
	void *start_memory;	/* the same when it came inline */
	const char *record, *plan_json;
	size_t record_len, plan_json_len;

	char workspace_id[33];	/* as long as it has to be settled, else empty */
	struct flat_workspace workspace;
	void *workspace_memory;	/* its paths point into it */
	struct text workspace_report;	/* what has become of it, JSON; empty for none */
	bool workspace_kept;
	bool recorder_was_first;	/* it was gone before the box was being stopped */
	int held_fd;	/* folder of the host in which names are held, locked; -EBADF for none */
	int template_fd;	/* folder of templates, locked while this box may make one; else -EBADF */
	const struct flat_source *held_source;
	struct placeholder {
		char *path;
		bool folder;
		uint64_t size_bytes;
	} *placeholders;	/* that were made in it */
	uint32_t n_placeholders;
	bool layer_is_bounded;
	int layer_fd;	/* of a bounded layer that is not in the scratch: says how full it is */

	int state_fd;		/* STATE */
	int boxes_fd, box_fd, lock_fd;
	uint32_t stages_done;
	bool named;
	const struct backend_ops *backend;
	uint64_t ready_usec;	/* how long the guest may take, as the caller wants it; 0: as the wall thinks right */
	struct backend_wall backend_wall;
	struct cgroup_group group;
	bool has_group;
	int scratch_fd;
	struct fault guest_fault;	/* why the guest ended, when it said so */

	uint32_t state;		/* enum abox_sandbox_state */
	uint64_t epoch;
	uint64_t started_wall_usec, started_usec;
	uint64_t wall_at, idle_at, owner_at;
	uint64_t paused_usec;	/* since when, 0: it is not */
	uint32_t next_command, n_started, n_running;
	struct command *commands;	/* newest first */
	uint32_t n_commands;
	uint64_t spooled_bytes;	/* kept of all streams together */
	struct client *clients;
	uint32_t n_owners;

	enum stop_phase stop_phase;
	uint64_t stop_at;	/* end of the phase */
	uint64_t stop_began_usec;
	uint32_t stop_mode, stop_cause;
	bool stop_requested;
	uint32_t n_killed;
	struct report report;
	struct text revoked;	/* credentials, by name: a JSON array; empty: none */
};

/* main.c */
int keeper_watch(struct keeper *keeper, struct io *io, uint32_t events);	/* 0 events: not any more */
void keeper_log(struct keeper *keeper, int level, const char *format, ...) _printf_(3, 4);

/* stages.c: the ordered table of everything that a start does to the host */
int stages_do(struct keeper *keeper, struct fault *fault);	/* undoes itself on failure */
void stages_undo(struct keeper *keeper);

/* state.c: the folder of the box */
int state_enter(struct keeper *keeper, struct fault *fault);
int state_leave(struct keeper *keeper, struct fault *fault);
int state_listen(struct keeper *keeper, struct fault *fault);
int state_set(struct keeper *keeper, uint32_t state);
int state_write(struct keeper *keeper, const char *name, const void *data, size_t len);	/* 0 or -errno; by rename */

/* link.c: the guest's messages */
int link_wait_ready(struct keeper *keeper, uint64_t deadline_usec, struct fault *fault);
void link_ready(struct keeper *keeper, struct io *io, uint32_t events);
void link_wall_ready(struct keeper *keeper, struct io *io, uint32_t events);
int link_signal(struct keeper *keeper, uint32_t command, int signal, uint32_t scope);
int link_signal_all(struct keeper *keeper, int signal);
/* Of a terminal whose master is behind the wall: what the keeper holds of it is a socket. */
int link_tty_size(struct keeper *keeper, uint32_t command, uint32_t rows, uint32_t columns);
int link_tty_signal(struct keeper *keeper, uint32_t command, int signal);

/* client.c */
struct client *client_new(struct keeper *keeper, int fd, enum client_kind kind);	/* takes fd, NULL: no memory */
void client_drop(struct keeper *keeper, struct client *client);
void client_send(struct keeper *keeper, struct client *client, const struct pack_writer *message);
void client_answer_ok(struct keeper *keeper, struct client *client, uint32_t serial);
void client_answer_fault(struct keeper *keeper, struct client *client, uint32_t serial, const struct fault *fault);
void client_begin(struct pack_writer *writer, uint32_t type, uint32_t serial);
struct waiter *client_wait(struct client *client, uint32_t type, uint32_t serial);	/* NULL: no memory, or too many */
void client_waiter_free(struct client *client, struct waiter *waiter);
void client_accept(struct keeper *keeper, struct io *io, uint32_t events);
void client_flush_all(struct keeper *keeper, uint64_t timeout_usec);
void client_sweep(struct keeper *keeper);	/* frees dropped ones */

/* request.c */
struct request {
	struct client *client;
	uint32_t type;
	uint32_t serial;
	struct pack_reader body;
	int fds[SOCKET_MAX_FDS];
	size_t n_fds;
};
void request_handle(struct keeper *keeper, struct request *request);
int request_start(struct keeper *keeper, struct request *request, struct fault *fault);	/* start.c */

/* command.c */
int command_start(struct keeper *keeper, struct request *request, struct fault *fault);
struct command *command_find(struct keeper *keeper, uint32_t id);
struct command *command_find_ref(struct keeper *keeper, const char *ref);
void command_kill(struct command *command, uint32_t cause, uint32_t struck, uint64_t grace_usec);
void command_kill_now(struct command *command);
void command_spawned(struct command *command, pid_t pid, int master_fd);
void command_refused(struct command *command, const struct fault *fault);
void command_exited(struct command *command, int status, uint64_t cpu_usec, uint64_t rss_bytes, uint32_t survivors);
void command_tree_gone(struct command *command, uint32_t n_killed, uint64_t cpu_usec, uint64_t rss_bytes);
void command_lost(struct command *command, uint32_t cause);
void command_check(struct command *command, uint64_t now);	/* deadlines, and whether it has ended */
void command_free(struct command *command);
void command_list_json(struct keeper *keeper, struct text *text);
int command_watch(struct keeper *keeper, struct command *command, int fd);

/* result.c */
void result_make(struct command *command);
void result_send(struct keeper *keeper, struct client *watcher, const struct command *command);
void result_store(struct command *command);

void result_add_json(const struct command *command, struct text *text);	/* ,"cause":... members of the end */

/* record.c: nothing is recorded when the box has no journal */
#define RECORD_TAIL_BYTES 2048
int record_begin(struct keeper *keeper, struct fault *fault);
void record_prepare_command(struct command *command, const char *const *argv, const char *cwd, uint32_t uid);
void record_command_start(struct command *command);
void record_command_end(struct command *command);
void record_take(struct keeper *keeper);	/* what the recorder says, if there is something */
int record_send(struct keeper *keeper, const struct pack_writer *writer, const int *fds, size_t n_fds);
void record_event(struct keeper *keeper, const char *type, const struct text *body, uint32_t durability);
int record_verify(struct keeper *keeper, const void *json, size_t len, struct fault *fault);
void record_end(struct keeper *keeper, const char *outcome, const struct text *report);
void record_command_json(struct command *command, struct text *text);	/* its end, with the tails of its output */

/* effect.c: requests of the box that are effects, between egress and recorder */
void effect_ask(struct keeper *keeper, uint32_t type, uint32_t serial, struct pack_reader *body, const int *fds, size_t n_fds);
void effect_answer(struct keeper *keeper, uint32_t serial, struct pack_reader *body, const int *fds, size_t n_fds);
void effects_lost(struct keeper *keeper);	/* egress is gone */
void effects_drain(struct keeper *keeper);	/* what is under way gets a grace */

/* workspace.c: nothing when no workspace of the store is used */
int workspace_begin(struct keeper *keeper, struct fault *fault);
int workspace_tell_wall(struct keeper *keeper, struct fault *fault);
int workspace_settle(struct keeper *keeper, struct fault *fault);
int workspace_snapshot(struct keeper *keeper, const char *name, uint64_t ttl_usec, uint32_t keep_last, char retid[33],
	struct fault *fault);

/* placeholder.c: protected names that are not there, in a folder of the host */
int placeholder_run(struct keeper *keeper, struct fault *fault);
int placeholder_undo(struct keeper *keeper, struct fault *fault);

/* pump.c */
int pump_open_spool(struct command *command, int stream, int *retwrite_fd, struct fault *fault);
int pump_open_input(struct command *command, int *retread_fd, struct fault *fault);
void pump_take_master(struct command *command, int master_fd);
void pump_drain(struct command *command);	/* what is in the pipes now */
bool pump_is_dry(const struct command *command);
void pump_close(struct command *command);
void pump_forget(struct command *command);	/* gives its spools up */
void pump_input(struct keeper *keeper, struct client *client, struct waiter *waiter);
void pump_answer_readers(struct command *command);
bool pump_answer_read(struct keeper *keeper, struct client *client, struct waiter *waiter, struct command *command,
	bool timeout);

/* clocks.c */
uint64_t clocks_next(struct keeper *keeper);
void clocks_run(struct keeper *keeper, uint64_t now);
void clocks_touch_idle(struct keeper *keeper);
int clocks_pause(struct keeper *keeper, struct fault *fault);
int clocks_resume(struct keeper *keeper, struct fault *fault);

struct guest_message;
/* template.c: of the machine of a microVM; for the stage that starts it */
void template_begin(struct keeper *keeper);
void template_take(struct keeper *keeper, const struct guest_message *message);
void template_end(struct keeper *keeper);

/* stop.c */
void stop_begin(struct keeper *keeper, uint32_t mode, uint32_t cause, uint64_t grace_usec);
void stop_check(struct keeper *keeper, uint64_t now);
void report_add(struct keeper *keeper, enum report_kind kind, const char *what, const char *error);
void owner_lost(struct keeper *keeper);

#endif
