/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From an order to a running program: everything that happens to a command between clone and exec. Helper code, for
 * single-threaded callers.
 */
#ifndef GUEST_LAUNCH_H
#define GUEST_LAUNCH_H

#include <sys/types.h>

#include "base/fault.h"
#include "guest/guest.h"
#include "guest/message.h"

/* Descriptors stay the caller's; negative: none. */
struct launch {
	const struct guest_box *box;
	const struct guest_order *order;
	int fds[3];		/* of stdin, stdout, stderr; none: /dev/null of the box */
	int program_fd;		/* executed instead of argv[0] */
	int group_fd;		/* cgroup v2 directory to be born into */
	int task_fds[2];	/* `tasks` or `cgroup.procs` of limiting groups, opened by the keeper */
};

/*
 * Starts the command and returns when its program runs. *retmaster_fd is the master of its terminal, -EBADF without one.
 * 0, or how it failed: ABOX_E_EXEC_NOT_FOUND, _FORMAT, _INTERPRETER, ABOX_E_NOT_FOUND (place "cwd"), ABOX_E_LIMIT
 * (argument list, processes), ABOX_E_SYSTEM and what errno makes of it. Nothing is left to be reaped then.
 */
int launch_start(const struct launch *launch, pid_t *retpid, int *retmaster_fd, struct fault *fault);

/* execve(2) with a search in PATH of env, and the reason when it fails (never returns 0). */
int launch_exec(const char *const *argv, const char *const *env, struct fault *fault);

#endif
