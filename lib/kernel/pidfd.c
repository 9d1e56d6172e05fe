/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Processes by descriptor. What is promised: a signal or a wait reaches the process that was meant, or
 * nobody.
 */
#include "kernel/pidfd.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/clock.h"
#include "base/fd.h"
#include "kernel/compat.h"

int pidfd_new(pid_t pid)
{
	int fd = sys_pidfd_open(pid, 0);	/* always close-on-exec */

	return fd < 0 ? -errno : fd;
}

int pidfd_signal(int pidfd, int signal)
{
	return sys_pidfd_send_signal(pidfd, signal, NULL, 0) < 0 ? -errno : 0;
}

int pidfd_wait(int pidfd, uint64_t deadline_usec)
{
	for (;;) {
		struct pollfd entry = { .fd = pidfd, .events = POLLIN };
		int n = poll(&entry, 1, clock_poll_msec(clock_monotonic_usec(), deadline_usec));

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0)
			return entry.revents & POLLNVAL ? -EBADF : 1;
		if (clock_monotonic_usec() >= deadline_usec)
			return 0;
	}
}

int pidfd_reap(int pidfd, bool nohang, struct pidfd_end *ret)
{
	siginfo_t info;
	int r;

	memset(&info, 0, sizeof(info));
	/* __WALL: a child whose exit signal is not SIGCHLD is not seen otherwise. */
	do
		r = sys_waitid_pidfd(pidfd, &info, WEXITED | __WALL | (nohang ? WNOHANG : 0));
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return -errno;
	if (info.si_pid == 0)
		return -EAGAIN;
	ret->code = info.si_code;
	ret->status = info.si_status;
	return 0;
}

/* The line "Pid:\t123" of fdinfo; -1 after the process was reaped, 0 when it is in no namespace that we see.
 */
static pid_t pid_of_fdinfo(int pidfd)
{
	char path[48], text[1024], *line;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = fd_read_all(fd, text, sizeof(text) - 1);
	fd_close(fd);
	if (n < 0)
		return (pid_t)n;
	text[n] = 0;
	line = strstr(text, "\nPid:");
	if (!line)
		return -EINVAL;
	n = strtol(line + 5, NULL, 10);
	return n > 0 ? (pid_t)n : 0;
}

pid_t pidfd_get_pid(int pidfd)
{
	struct sys_pidfd_info info;

	memset(&info, 0, sizeof(info));
	info.mask = SYS_PIDFD_INFO_PID;
	if (ioctl(pidfd, SYS_PIDFD_GET_INFO, &info) == 0)
		return (pid_t)info.tgid;
	if (errno == ESRCH)
		return 0;
	return pid_of_fdinfo(pidfd);
}
