/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef CONTRACT_RUNNER_H
#define CONTRACT_RUNNER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * Rows of the contract: what a box must do, as data. A row is an object of a *.json file in this folder:
 *
 *   id, title        its name in reports, one sentence of intent
 *   as, needs        who can run it ("root", "plain"; both when absent), what must be there (see needs.c)
 *   setup            shell commands on the host before it, in ${TMP}; check: after it, each must end with 0
 *   background       a shell command on the host that runs meanwhile; its first line of output is waited for
 *   spec, command    of the box; options: stdin, pty, timeout_usec, cwd, user, env, memory_bytes, ... of the command
 *   expect           see expect.c; expect_root and expect_plain replace members of it
 *   refused          who may get a refusal instead: { "as": "plain", "code": "UNSUPPORTED", "place": "/limits/memory" }
 *   control          a list of positive controls: { "on": "host" or "box", "command", "spec", "setup", "expect", "as" }
 *   via              "api" or "cli" when only one of them can do it
 *   every_wall       true: also in the short run of a slow wall, in a box of its own
 *   gvisor, microvm  where that wall does otherwise: { "named": a rule of its plan whose detail says so, "as": "plain" or "root"
 *                    when only there, "expect": members that replace those of expect (null: none), "refused": as above,
 *                    "skip": true when it cannot be asked }
 *
 * Behind the slow walls the short run is through the API only: rows that need no box of their own share one.
 *
 * ${TMP} is a fresh folder of the host, ${PROBE} the probe program inside the box, ${HOST_PROBE} on the host,
 * ${AGENTBOX} the command.
 */
struct runner {
	const char *agentbox;	/* the command line program */
	const char *probe;	/* the probe program, on the host */
	const char *wall;	/* only behind this one; NULL: all that are there */
	const char *only;	/* run rows whose id has this in it; NULL: all */
	bool plain;
	bool full;		/* behind slow walls too: every row in a box of its own, both ways */
	const json_t *rules;	/* what the plan of this wall enforces, and how */
	const char *shared;	/* id of the box that rows share; NULL: none */
	bool keep;		/* leave the folders of failed rows */
};

/* What came of one run. dir holds result.json, stdout, stderr. */
struct outcome {
	char dir[256];
	json_t *result;		/* what abox_result_dump() gives, or {"error": ...}; NULL: the run itself broke */
	char *out;
	size_t out_len;
	char *err;
	size_t err_len;
	int exit_code;		/* of the CLI; -1 when run through the API, or by the host */
	double seconds;
};

/* Text of what is wrong, growing; empty means that the row holds. */
struct complaints {
	char *text;
	size_t len;
};
void complain(struct complaints *complaints, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* row.c */
json_t *row_expand(const struct runner *runner, const json_t *value, const char *tmp);	/* variables in all strings */
json_t *row_spec(const struct runner *runner, const json_t *row, const char *backend, const char *tmp);
bool row_concerns(const json_t *object, bool plain);
char *read_whole_file(const char *path, size_t *retlen);

/* expect.c */
void expect_outcome(const json_t *expect, const struct outcome *outcome, struct complaints *complaints);
bool outcome_refused(const json_t *refused, bool plain, const struct outcome *outcome);
void outcome_clear(struct outcome *outcome);

/* api.c, cli.c, host.c: run it, bounded in time; the outcome is always filled as far as it got */
void run_through_api(const json_t *row, const json_t *spec, struct outcome *outcome);
void run_in_shared(const char *id, const json_t *row, struct outcome *outcome);
bool shared_start(const json_t *spec, char *retid, size_t size);	/* the box that rows share, ours until shared_stop() */
bool shared_stop(void);
void run_through_cli(const struct runner *runner, const json_t *row, const json_t *spec, struct outcome *outcome);
void run_on_host(const json_t *row, struct outcome *outcome);
int run_shell(const char *command, const char *cwd, struct complaints *complaints);	/* 0 when it ended with 0 */
pid_t start_background(const char *command, const char *cwd);	/* a process group; when it has printed a line */
void end_background(pid_t pid);
/* Forks; the child runs function and leaves, at the latest after seconds. False when it was killed for that. */
bool run_bounded(void (*function)(void *), void *argument, double seconds);
double now_seconds(void);
double row_seconds(const json_t *row);	/* how long it may take */

/* needs.c: NULL when it is there, else what to do about it */
const char *needs_missing(const char *what);

#endif
