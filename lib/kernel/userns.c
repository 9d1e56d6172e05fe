/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * User namespaces. What is promised: maps are written as given, in one write, or not at all. Which ids a box
 * gets is left to the plan.
 */
#include "kernel/userns.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <agentbox/error.h>

#include "base/fd.h"
#include "kernel/compat.h"

#define STACK_SIZE (16 * 1024)

static void proc_path(pid_t pid, const char *name, char *ret, size_t size)
{
	if (pid == 0)
		snprintf(ret, size, "/proc/self/%s", name);
	else
		snprintf(ret, size, "/proc/%d/%s", (int)pid, name);
}

/* The owner of /proc/PID is root while a process is not dumpable, so that it could not write its own maps.
 * Nothing is in the memory of a helper yet when it does. */
static int write_proc(pid_t pid, const char *name, const char *text)
{
	char path[64];
	int r, dumpable;

	proc_path(pid, name, path, sizeof(path));
	r = file_write_text(AT_FDCWD, path, text);
	if (r != -EACCES || pid != 0)
		return r;
	dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
	if (dumpable == 1 || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
		return r;
	r = file_write_text(AT_FDCWD, path, text);
	/* Security: never leave it readable for others; 2 cannot be set by hand, 0 is at least as strict. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 && r == 0)
		r = -errno;
	return r;
}

static int write_map(
	pid_t pid, const char *name, const struct id_range *ranges, size_t n, struct fault *fault)
{
	char text[USERNS_MAX_RANGES * 36];
	size_t used = 0;
	int r;

	if (n == 0 || n > USERNS_MAX_RANGES)
		return fault_set(fault, ABOX_E_INVALID, 0, name, "%zu ranges of ids", n);
	for (size_t i = 0; i < n; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%u %u %u\n", ranges[i].inside,
			ranges[i].outside, ranges[i].count);
	r = write_proc(pid, name, text);
	if (r < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -r, name, "cannot map ids of the user namespace");
	return 0;
}

int userns_write_maps(pid_t pid, const struct id_range *uids, size_t n_uids, const struct id_range *gids,
	size_t n_gids, bool deny_setgroups, struct fault *fault)
{
	int r;

	/* Security: setgroups could drop a group that only takes rights away; the kernel demands the denial
	 * from the unprivileged, and it must come before the gid map. */
	if (deny_setgroups) {
		r = write_proc(pid, "setgroups", "deny");
		if (r < 0)
			return fault_set(fault, ABOX_E_SYSTEM, -r, "setgroups",
				"cannot deny setgroups in the user namespace");
	}
	r = write_map(pid, "uid_map", uids, n_uids, fault);
	if (r < 0)
		return r;
	return write_map(pid, "gid_map", gids, n_gids, fault);
}

/* Runs on the caller's memory with a stack of its own, beside the caller: no errno, no memory but its own.
 * Every signal but SIGKILL is blocked. */
__attribute__((no_sanitize("address", "thread"))) static int idle_main(void *argument)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	for (;;)
		syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0);
	return 0;
}

static int open_userns(pid_t pid, const struct id_range *uids, size_t n_uids, const struct id_range *gids,
	size_t n_gids, int *retuserns_fd, struct fault *fault)
{
	char path[64];
	int fd, r;

	r = userns_write_maps(pid, uids, n_uids, gids, n_gids, false, fault);
	if (r < 0)
		return r;
	proc_path(pid, "ns/user", path, sizeof(path));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "userns", "cannot open the user namespace");
	*retuserns_fd = fd;
	return 0;
}

void userns_holder_end(struct userns_holder *holder)
{
	siginfo_t info;

	if (!holder->stack)
		return;
	while (sys_waitid_pidfd(holder->pidfd, &info, WEXITED | __WALL) < 0 && errno == EINTR)
		;
	fd_close(holder->pidfd);
	munmap(holder->stack, STACK_SIZE);
	*holder = (struct userns_holder){ 0 };
}

int userns_begin_idmap(const struct id_range *uids, size_t n_uids, const struct id_range *gids, size_t n_gids,
	int *retuserns_fd, struct userns_holder *holder, struct fault *fault)
{
	const uint64_t all = UINT64_MAX;
	int pidfd = -EBADF, r;
	uint64_t old;
	char *stack;
	pid_t pid;

	stack = mmap(
		NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (stack == MAP_FAILED)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "userns", "no stack");
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, sizeof(all));
	/* Sharing memory makes it as cheap for a large host as for a small one; exit signal 0, as in spawn.c.
	 */
	pid = clone(idle_main, stack + STACK_SIZE, CLONE_VM | CLONE_NEWUSER | CLONE_PIDFD, NULL, &pidfd);
	r = pid < 0 ? -errno : 0;
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old, NULL, sizeof(old));
	if (r < 0) {
		munmap(stack, STACK_SIZE);
		return fault_set(fault, ABOX_E_SYSTEM, -r, "userns", "cannot make a user namespace");
	}
	r = open_userns(pid, uids, n_uids, gids, n_gids, retuserns_fd, fault);
	/* Where a filter around the host refuses this call the wait below would have no end; the number is still the
	 * child's, as it has not been reaped. */
	if (sys_pidfd_send_signal(pidfd, SIGKILL, NULL, 0) < 0 && errno != ESRCH)
		kill(pid, SIGKILL);
	*holder = (struct userns_holder){ .pidfd = pidfd, .stack = stack };
	return r;
}

int userns_new_idmap(const struct id_range *uids, size_t n_uids, const struct id_range *gids, size_t n_gids,
	int *retuserns_fd, struct fault *fault)
{
	struct userns_holder holder = { 0 };
	int r = userns_begin_idmap(uids, n_uids, gids, n_gids, retuserns_fd, &holder, fault);

	userns_holder_end(&holder);
	return r;
}
