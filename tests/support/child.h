/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Namespace work happens in a forked, single-threaded child that reports by pipe and leaves with _exit(): the
 * test process has a second thread (unshare of a user namespace fails there), and an assertion that fails
 * below a fork hangs the run.
 */
#ifndef SUPPORT_CHILD_H
#define SUPPORT_CHILD_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include "base/macro.h"

struct child {
	char report[1024];	/* what did not hold; "" when all did */
	void *argument;
};

enum {
	CHILD_PLAIN = 1 << 0,  /* as uid and gid 12345 without groups, when the test runs as root */
	CHILD_USERNS = 1 << 1, /* in a user and mount namespace of its own, ids mapped to 0, mounts private */
	CHILD_PIDNS = 1 << 2,  /* with CHILD_USERNS: and in a pid namespace, as PID 1 */
};

/* Runs fn and returns what it returned: 0, or the line number of the CHECK that failed; -1 when it died or
 * took longer than 20 seconds. */
int child_run(struct child *child, int (*fn)(struct child *child), int flags);

/* A namespace that this host does not give: the test is skipped by name. */
bool child_has_userns(int flags);

#define CHECK(condition)                                                                                     \
	do {                                                                                                 \
		errno = 0;                                                                                   \
		if (!(condition)) {                                                                          \
			snprintf(child->report, sizeof(child->report), "line %d: %s (%s)", __LINE__, #condition,    \
				strerror(errno));                                                            \
			return __LINE__;                                                                     \
		}                                                                                            \
	} while (0)

/* For functions with a struct fault: its message joins the report. */
#define CHECK_FAULT(call, fault)                                                                             \
	do {                                                                                                 \
		if ((call) < 0) {                                                                            \
			snprintf(child->report, sizeof(child->report), "line %d: %s: %s", __LINE__, #call,          \
				(fault)->message);                                                           \
			return __LINE__;                                                                     \
		}                                                                                            \
	} while (0)

#define cr_child_with(check, fn, flags, child_argument)                                                      \
	do {                                                                                                 \
		struct child _child = { .argument = (child_argument) };                                      \
		int _r = child_run(&_child, fn, flags);                                                      \
                                                                                                             \
		check(_r, 0, "%s: %s", #fn, _r < 0 ? "died or hung" : _child.report);                        \
	} while (0)
#define cr_assert_child(fn, flags, child_argument) cr_child_with(cr_assert_eq, fn, flags, child_argument)
#define cr_expect_child(fn, flags, child_argument) cr_child_with(cr_expect_eq, fn, flags, child_argument)

#endif
