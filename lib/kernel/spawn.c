/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Starting a helper from inside a host that must not notice.
 *
 * One clone is not enough: execve() resets the exit signal of a child to SIGCHLD, so the host's wait(-1)
 *would see the helper. Hence two: a middle process that never executes anything (exit signal 0) clones the
 *helper and leaves; the host waits for the middle one by descriptor, and the helper is nobody's child that
 *the host could meet.
 *
 *	host --clone(VM|VFORK|FILES|PIDFD)--> middle --clone(VM|VFORK|PIDFD)--> helper --execveat-->
 *
 * The middle one shares the descriptor table, so the helper's pidfd appears in the host's table,
 *close-on-exec from birth. Both run in the memory of the host while the calling thread stands still: system
 *calls only, on what is in struct job; no lock, no allocation, nothing of libc that keeps state. Every signal
 *is blocked in the calling thread meanwhile, so that no handler of the host runs in them.
 */
#include "kernel/spawn.h"

#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/fd.h"
#include "kernel/compat.h"

#define STACK_SIZE (64 * 1024)
#define KERNEL_SIGSET_SIZE 8
#define N_SIGNALS 64

/* The stacks are ours and two processes write on the host's memory, which the sanitizers cannot follow. */
#define _in_child_ __attribute__((no_sanitize("address", "thread")))

struct job {
	const struct spawn_request *request;
	char *const *envp;
	char *helper_stack_top;
	int helper_pidfd;
	pid_t helper_pid;
	const char *failed_step;	/* NULL: the helper was executed */
	int failed_errno;
};

/* What the kernel takes; libc refuses to touch two of its own signals. */
struct kernel_sigaction {
	void *handler;
	unsigned long flags;
	void *restorer;
	uint64_t mask;
};

static int mask_signals(int how, const uint64_t *set, uint64_t *retold)
{
	return (int)syscall(SYS_rt_sigprocmask, how, set, retold, KERNEL_SIGSET_SIZE);
}

_in_child_ static int fail(struct job *job, const char *step)
{
	job->failed_step = step;
	job->failed_errno = errno;
	return 127;
}

/* An ignored signal stays ignored over exec, a handler does not. */
_in_child_ static void reset_signals(void)
{
	struct kernel_sigaction action = { 0 };

	for (int signal = 1; signal <= N_SIGNALS; signal++)
		if (signal != SIGKILL && signal != SIGSTOP)
			syscall(SYS_rt_sigaction, signal, &action, NULL, KERNEL_SIGSET_SIZE);
}

/* Descriptors 0-2 are /dev/null, then the given ones. First all are copied above the range that they will
 * have, so that no move overwrites one that is still needed. Returns the number of the program, or -1. */
_in_child_ static int place_fds(struct job *job)
{
	const struct spawn_request *request = job->request;
	int floor = 3 + (int)request->n_fds, high[SPAWN_MAX_FDS], program_fd, null_fd;

	program_fd = fcntl(request->program_fd, F_DUPFD_CLOEXEC, floor);
	if (program_fd < 0)
		return -1;
	for (size_t i = 0; i < request->n_fds; i++) {
		high[i] = fcntl(request->fds[i], F_DUPFD_CLOEXEC, floor);
		if (high[i] < 0)
			return -1;
	}
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC | O_NOCTTY);
	if (null_fd < 0)
		return -1;
	for (int fd = 0; fd < 3; fd++)
		if ((fd == null_fd ? fcntl(fd, F_SETFD, 0) : dup3(null_fd, fd, 0)) < 0)
			return -1;
	for (size_t i = 0; i < request->n_fds; i++)
		if (dup3(high[i], 3 + (int)i, 0) < 0)
			return -1;
	return program_fd;
}

_in_child_ static int helper_main(void *argument)
{
	struct job *job = argument;
	const uint64_t none = 0;
	int program_fd;

	reset_signals();
	program_fd = place_fds(job);
	if (program_fd < 0)
		_exit(fail(job, "descriptors"));
	/* Security: whatever another thread of the host opens without close-on-exec ends here. */
	if (sys_close_range(3 + (unsigned int)job->request->n_fds, UINT_MAX, CLOSE_RANGE_CLOEXEC) < 0)
		_exit(fail(job, "close_range"));
	if (setsid() < 0)
		_exit(fail(job, "setsid"));
	if (chdir("/") < 0)
		_exit(fail(job, "chdir"));
	umask(077);
	mask_signals(SIG_SETMASK, &none, NULL);
	syscall(SYS_execveat, program_fd, "", job->request->argv, job->envp, AT_EMPTY_PATH);
	_exit(fail(job, "execve"));
}

_in_child_ static int middle_main(void *argument)
{
	struct job *job = argument;
	siginfo_t info;

	job->helper_pid = clone(helper_main, job->helper_stack_top, CLONE_VM | CLONE_VFORK | CLONE_PIDFD, job,
		&job->helper_pidfd);
	if (job->helper_pid < 0)
		_exit(fail(job, "clone"));
	/* The clone comes back after the helper's exec or end; what failed is reaped here, not by the host's
	 * init. */
	if (job->failed_step)
		sys_waitid_pidfd(job->helper_pidfd, &info, WEXITED | __WALL);
	_exit(0);
}

/* Runs the middle process to its end. 0 or -errno of the first clone. */
static int run_middle(struct job *job, char *stack_top)
{
	int middle_pidfd = -EBADF;
	siginfo_t info;
	pid_t pid;

	pid = clone(middle_main, stack_top, CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_PIDFD, job,
		&middle_pidfd);
	if (pid < 0)
		return -errno;
	/* ECHILD: the host ignores SIGCHLD, or a wait with __WALL in another thread took it; it has ended
	 * either way. */
	while (sys_waitid_pidfd(middle_pidfd, &info, WEXITED | __WALL) < 0 && errno == EINTR)
		;
	fd_close(middle_pidfd);
	return 0;
}

static int spawn_job(struct job *job)
{
	char *stacks;
	uint64_t all = UINT64_MAX, old;
	int r, cancel;

	stacks = mmap(
		NULL, 2 * STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (stacks == MAP_FAILED)
		return -errno;
	job->helper_stack_top = stacks + 2 * STACK_SIZE;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	mask_signals(SIG_SETMASK, &all, &old);
	r = run_middle(job, stacks + STACK_SIZE);
	mask_signals(SIG_SETMASK, &old, NULL);
	pthread_setcancelstate(cancel, NULL);
	munmap(stacks, 2 * STACK_SIZE);
	return r;
}

int spawn_helper(const struct spawn_request *request, int *retpidfd, pid_t *retpid, abox_error **reterr)
{
	static char *const no_environment[] = { NULL };
	struct job job = { .request = request, .envp = no_environment, .helper_pidfd = -EBADF };
	int r;

	if (request->n_fds > SPAWN_MAX_FDS)
		return error_set(reterr, ABOX_E_INVALID, request->stage, "spawn", "too many descriptors");
	r = spawn_job(&job);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, request->stage, "spawn", -r, "cannot start a helper");
	if (job.failed_step) {
		fd_close(job.helper_pidfd);
		return error_set_errno(reterr, ABOX_E_SYSTEM, request->stage, job.failed_step,
			job.failed_errno, "cannot start the helper %s", request->argv[0]);
	}
	*retpidfd = job.helper_pidfd;
	if (retpid)
		*retpid = job.helper_pid;
	return 0;
}
