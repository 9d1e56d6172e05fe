/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H

#include <agentbox/command.h>
#include <agentbox/error.h>
#include <agentbox/plan.h>
#include <agentbox/sandbox.h>
#include <agentbox/spec.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * What host tests share. Tests that need another process use apart_run(): below a fork there must be no assertion of
 * criterion (a failing one hangs the whole run), so the child reports by a pipe and the parent judges.
 */

/* -- what must be there; skips the test by name and says what to install -- */
void needs(const char *what);		/* "root", "plain", "python3", "bash", "git", "memory-limit", ... */
void needs_wall(const char *name);	/* "gvisor", "microvm" */
bool am_root(void);

/* -- children -- */
/*
 * Runs function in a forked child, which leaves at the latest after so many seconds. Returns its answer (0 is good), or
 * -1 when it was killed; what it has said with apart_say() is in text.
 */
int apart_run(int (*function)(void *argument), void *argument, unsigned seconds, char *text, size_t size);
void apart_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* In a child: leaves with 1 when the condition does not hold. */
#define apart_check(condition)                                                                              \
	do {                                                                                                \
		if (!(condition)) {                                                                         \
			apart_say("%s:%d: %s", __FILE__, __LINE__, #condition);                             \
			return 1;                                                                           \
		}                                                                                           \
	} while (0)
/* In the test: the child must answer 0. */
#define assert_apart(function, argument, seconds)                                                           \
	do {                                                                                                \
		char apart_text_[4096];                                                                     \
		int apart_answer_ = apart_run((function), (argument), (seconds), apart_text_, sizeof(apart_text_)); \
		cr_assert_eq(apart_answer_, 0, "%s", apart_text_);                                          \
	} while (0)

/* A program with its arguments, NULL-ended; its output in text. Returns its exit code, 128+signal, or -1 when late. */
int program_run(const char *const *argv, const char *input, unsigned seconds, char *text, size_t size);
const char *agentbox_program(void);	/* set by meson in ABOX_TEST_AGENTBOX */
const char *probe_program(void);	/* ABOX_TEST_PROBE */

/* -- boxes; they end the test when they fail -- */
abox_plan *plan_of(const char *spec_json);	/* "{...}"; the probe program is added at /probe */
abox_sandbox *box_of(const char *spec_json);
abox_result *run_in(abox_sandbox *box, const char *const *argv);
#define run_words(box, ...) run_in((box), (const char *const[]){ __VA_ARGS__, NULL })
abox_command *start_in(abox_sandbox *box, const char *const *argv);
#define start_words(box, ...) start_in((box), (const char *const[]){ __VA_ARGS__, NULL })
void stop_box(abox_sandbox *box);		/* must leave nothing behind; releases the handle */
const char *output_of(const abox_result *result, int stream);
#define PROBE_IN_BOX "/probe/agentbox-probe"

/* The same without assertions, for children and threads: 0 or a code. */
int try_plan(const char *spec_json, abox_plan **retplan);
int try_box(const char *spec_json, abox_sandbox **retbox);
int try_run(abox_sandbox *box, const char *const *argv, int *retexit);

/* -- the host -- */
pid_t keeper_pid(const char *id);		/* 0 when the list does not have it */
bool pid_is_gone(pid_t pid);
/* A process below ancestor that lives and whose argv[0] ends so (NULL: any); 0 when there is none. */
pid_t find_below(pid_t ancestor, const char *name);
bool wait_until(bool (*condition)(void *argument), void *argument, unsigned msec);
bool box_is_gone(void *id);			/* for wait_until: neither keeper nor state */
void pause_msec(unsigned msec);
double clock_seconds(void);

/*
 * What boxes may leave on a host: mounts, control groups, processes, state folders, files in /tmp, sockets, keyrings.
 * leak_check() waits a little for what is on its way out, and returns NULL or a text that names what is new.
 */
struct leaks;
struct leaks *leaks_take(void);
char *leaks_check(struct leaks *before);	/* releases it */
#define assert_no_leaks(before)                                                                             \
	do {                                                                                                \
		char *leaked_ = leaks_check(before);                                                        \
		cr_assert_null(leaked_, "left behind: %s", leaked_);                                        \
	} while (0)
bool is_long(void);				/* tests/run --long */

#endif
