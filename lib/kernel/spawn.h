/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Starts a helper program from inside a host that must not notice: threaded, with its own SIGCHLD handling,
 * maybe with descriptors 0-2 closed. Library code; safe to call from several threads at once.
 */
#ifndef KERNEL_SPAWN_H
#define KERNEL_SPAWN_H

#include <sys/types.h>

#include <agentbox/error.h>

#include "base/macro.h"

struct spawn_request {
	int program_fd;			/* sealed memory file or O_PATH descriptor of an ELF program */
	const char *const *argv;	/* NULL-ended; argv[0] is what ps shows */
	const int *fds;			/* become 3, 4, ... in the child; a number may repeat */
	size_t n_fds;			/* at most SPAWN_MAX_FDS */
	int stage;			/* for the error */
};
#define SPAWN_MAX_FDS 16

/*
 * The child: 0-2 are /dev/null, then the given descriptors, nothing else; empty environment; own session; cwd
 * /; umask 077; all signals default and unblocked; not dumpable from its first instruction when the program
 * file has mode 0111. The host: no SIGCHLD, waitpid(-1) finds nothing, mask, handlers, cwd, umask,
 * environment and descriptors as before. A host that is PID 1 or a subreaper meets the helper's end as it
 * does every orphan's.
 *
 * *retpidfd is close-on-exec; it polls readable when the helper is gone, and it is no child to wait for.
 * Return: 0; ABOX_E_SYSTEM and what error_set_errno() makes of the errno, when the program cannot be executed
 * too.
 */
int spawn_helper(const struct spawn_request *request, int *retpidfd, pid_t *retpid, abox_error **reterr);

#endif
