/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Children for tests. What is promised: child_run() returns within 20 seconds and leaves no process behind.
 */
#include "support/child.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "kernel/mount.h"
#include "kernel/pidfd.h"
#include "kernel/userns.h"
#include "base/clock.h"

#define TIMEOUT_USEC (20 * USEC_PER_SEC)
#define PLAIN_ID 12345

static int become_plain(void)
{
	if (geteuid() != 0)
		return 0;
	if (setgroups(0, NULL) < 0 || setresgid(PLAIN_ID, PLAIN_ID, PLAIN_ID) < 0 ||
		setresuid(PLAIN_ID, PLAIN_ID, PLAIN_ID) < 0)
		return -1;
	return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); /* a change of ids takes it away, and with it /proc/self */
}

static int enter_userns(void)
{
	struct id_range uid = { 0, geteuid(), 1 }, gid = { 0, getegid(), 1 };

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return -1;
	if (userns_write_maps(0, &uid, 1, &gid, 1, true, NULL) < 0)
		return -1;
	return mount_make_private(NULL);
}

/* The child of the child is PID 1 of a new pid namespace; what it returns goes up by the pipe as from the
 * child. */
static int enter_pidns(void)
{
	int status;
	pid_t pid;

	if (unshare(CLONE_NEWPID) < 0)
		return -1;
	pid = fork();
	if (pid <= 0)
		return pid;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			_exit(1);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static int set_up(int flags)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
	if ((flags & CHILD_PLAIN) && become_plain() < 0)
		return -1;
	if ((flags & CHILD_USERNS) && enter_userns() < 0)
		return -1;
	if ((flags & CHILD_PIDNS) && enter_pidns() < 0)
		return -1;
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);	/* a change of ids clears it */
	return 0;
}

_noreturn_ static void child_main(
	struct child *child, int (*fn)(struct child *child), int flags, int report_fd)
{
	int r;

	if (set_up(flags) < 0) {
		snprintf(
			child->report, sizeof(child->report), "cannot set the child up: %s", strerror(errno));
		r = 1;
	} else {
		r = fn(child);
	}
	if (fd_write_all(report_fd, &r, sizeof(r)) == 0)
		(void)!fd_write_all(report_fd, child->report, sizeof(child->report));
	_exit(0);
}

int child_run(struct child *child, int (*fn)(struct child *child), int flags)
{
	int ends[2], r = -1;
	int pidfd;
	pid_t pid;

	child->report[0] = 0;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		close(ends[0]);
		child_main(child, fn, flags, ends[1]);
	}
	close(ends[1]);
	pidfd = pid > 0 ? pidfd_new(pid) : -1;
	if (pidfd >= 0 && pidfd_wait(pidfd, clock_monotonic_usec() + TIMEOUT_USEC) != 1)
		kill(pid, SIGKILL);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	/* Everyone who could still write is gone or not ours to wait for: read only what is there. */
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	if (fd_read_all(ends[0], &r, sizeof(r)) != sizeof(r) ||
		fd_read_all(ends[0], child->report, sizeof(child->report)) != sizeof(child->report))
		r = -1;
	close(ends[0]);
	fd_close(pidfd);
	return r;
}

static int nothing(struct child *child)
{
	return 0;
}

bool child_has_userns(int flags)
{
	struct child child = { .argument = NULL };

	return child_run(&child, nothing, flags | CHILD_USERNS) == 0;
}
