/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A box with a hand-made plan, driven over the keeper's own socket: what the keeper does is tested here without the library's
 * half. Nothing in here asserts; the callers run below a fork too.
 */
#ifndef TESTS_KEEPER_BOX_H
#define TESTS_KEEPER_BOX_H

#include <agentbox/command.h>
#include <agentbox/sandbox.h>

#include "base/fault.h"
#include "base/pack.h"
#include "plan/flat.h"

struct box {
	char state[64];		/* the state folder */
	char id[33];
	int state_fd;
	int fd;			/* the owner's connection */
	int pidfd;
	pid_t keeper_pid;
	uint32_t serial;
	uint64_t epoch;
};

struct box_options {
	const char *name;
	bool detach;
	bool no_kill_scope;		/* kill by pid namespace instead */
	bool cgroup2;			/* root: kill by control group */
	uint64_t wall_usec, idle_usec, grace_usec, owner_grace_usec;
	uint64_t output_bytes, disk_bytes, inodes, pids;
	uint64_t memory_bytes, group_pids;	/* by control group */
	const char *hostname;		/* for failures: one that cannot be set */
	const char *extra_source;	/* bound at /extra */
	const char *state;		/* use this state folder */
};

/* A folder of its own for each test, with boxes/ and names/. */
int box_state_make(char *ret, size_t size);
void box_state_remove(const char *path);
bool box_state_is_empty(const char *path);	/* no box and no name left */

int box_start(struct box *box, const struct box_options *options, struct fault *fault);
int box_connect(const struct box *box, int mode, uint64_t *retepoch, struct fault *fault);	/* descriptor */
/* Request and answer; the body reader points into a static buffer. 0, or the code of the fault. */
int box_call(int fd, uint32_t *serial, const struct pack_writer *request, const int *fds, size_t n_fds,
	struct pack_reader *retanswer, struct fault *fault);
void box_request(struct pack_writer *writer, uint32_t type, uint32_t serial);
int box_stop(struct box *box, int mode, char *retjson, size_t size, uint32_t *retleft, struct fault *fault);
bool box_wait_gone(const struct box *box, uint64_t timeout_usec);	/* the keeper process */
void box_close(struct box *box);

struct box_exec {
	const char *const *argv;
	const char *const *env;
	const char *cwd, *user, *token;
	uint32_t stdin_mode, stdout_mode, stderr_mode;
	int stdin_fd, stdout_fd, stderr_fd;	/* 0: none */
	bool join, pty, output_kill;
	uint32_t survivors;
	uint64_t timeout_usec, grace_usec, output_bytes, memory_bytes, pids, cpu_usec, file_bytes;
	uint32_t open_files;
};
struct box_end {
	uint32_t cause;
	int32_t exit_code, signal;
	uint64_t wall_usec, cpu_usec, memory_peak_bytes;
	uint32_t survivors, limits_struck;
	uint64_t total[2];
	uint8_t truncated;
	char evidence[256];
};
/* *retevent_fd gets the end; 0 or 1 (existing). */
int box_exec(struct box *box, const struct box_exec *exec, uint32_t *retcommand, int *retevent_fd, struct fault *fault);
int box_wait_end(int event_fd, uint64_t timeout_usec, struct box_end *ret);
/* Both, with output captured through a pipe into out (NUL-terminated). */
int box_run(struct box *box, const struct box_exec *exec, char *out, size_t size, struct box_end *ret,
	struct fault *fault);
int box_sh(struct box *box, const char *script, char *out, size_t size, struct box_end *ret, struct fault *fault);

#endif
