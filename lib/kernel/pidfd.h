/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Processes by descriptor: a number can be reused, a descriptor cannot. Helper code; answers -errno.
 */
#ifndef KERNEL_PIDFD_H
#define KERNEL_PIDFD_H

#include <sys/types.h>

#include "base/macro.h"

int pidfd_new(pid_t pid);	/* close-on-exec descriptor or -errno (-ESRCH) */
int pidfd_signal(int pidfd, int signal);	/* 0, for a zombie too; -ESRCH when it was reaped */
/* 1 when the process has ended, 0 when the deadline (monotonic, UINT64_MAX: never) came first, or -errno. */
int pidfd_wait(int pidfd, uint64_t deadline_usec);
/* Reaps our own child, whatever its exit signal: 0 and how it ended, -EAGAIN while it lives (with nohang),
 * -ECHILD when it is not ours. */
struct pidfd_end {
	int code;	/* CLD_EXITED, CLD_KILLED, CLD_DUMPED */
	int status;	/* exit code or signal */
};
int pidfd_reap(int pidfd, bool nohang, struct pidfd_end *ret);
/* The pid in our namespace, 0 when it has been reaped or is not visible; -errno. Read from fdinfo where the
 * kernel has no PIDFD_GET_INFO. */
pid_t pidfd_get_pid(int pidfd);

#endif
