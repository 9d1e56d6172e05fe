/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The way of a command from clone to exec. Promises that the program never runs with less than the box has:
 * each step that fails ends the child before exec, and the failure is told.
 *
 * The child shares the memory of its parent until exec (CLONE_VM and CLONE_VFORK: the parent sleeps), which
 * is how the failure comes back; so it makes bare system calls and allocates nothing.
 */
#include "guest/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <termios.h>

#include <agentbox/error.h>

#include "base/fd.h"
#include "kernel/caps.h"
#include "kernel/clone.h"
#include "kernel/landlock.h"

#ifndef TIOCGPTPEER
#define TIOCGPTPEER 0x5441
#endif
#ifndef TIOCGPTN
#define TIOCGPTN 0x80045430
#endif
#ifndef TIOCSPTLCK
#define TIOCSPTLCK 0x40045431
#endif

#define STACK_BYTES 65536
#define SECCOMP_FILTERED 2

struct child {
	const struct launch *launch;
	int slave_fd;
	struct fault *fault;
};

static int limit_set(int resource, uint64_t soft, uint64_t hard, const char *place, struct fault *fault)
{
	struct rlimit limit;

	if (getrlimit(resource, &limit) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, place, "cannot read the limit");
	if (hard < limit.rlim_max)
		limit.rlim_max = hard;
	limit.rlim_cur = MIN(soft, limit.rlim_max);
	if (setrlimit(resource, &limit) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, place, "cannot set the limit");
	return 0;
}

static int set_limits(const struct guest_order *order, struct fault *fault)
{
	int r;

	r = limit_set(RLIMIT_CORE, 0, 0, "limit core", fault);
	if (r == 0 && order->open_files)
		r = limit_set(RLIMIT_NOFILE, order->open_files, order->open_files, "limit open_files", fault);
	if (r == 0 && order->pids)
		r = limit_set(RLIMIT_NPROC, order->pids, order->pids, "limit pids", fault);
	if (r == 0 && order->address_bytes)
		r = limit_set(RLIMIT_AS, order->address_bytes, order->address_bytes, "limit memory", fault);
	if (r == 0 && order->file_bytes)
		r = limit_set(RLIMIT_FSIZE, order->file_bytes, order->file_bytes, "limit file_bytes", fault);
	if (r == 0 && order->cpu_usec) {
		uint64_t sec = (order->cpu_usec + USEC_PER_SEC - 1) / USEC_PER_SEC;

		/* SIGXCPU first, which tells the cause; a program that goes on is killed a second later */
		r = limit_set(RLIMIT_CPU, sec, sec + 1, "limit cpu", fault);
	}
	return r;
}

static int set_streams(const struct child *child, struct fault *fault)
{
	for (int i = 0; i < 3; i++) {
		int fd = child->slave_fd >= 0 ? child->slave_fd : child->launch->fds[i];

		if (fd >= 0 && dup2(fd, i) < 0)
			return fault_set(
				fault, ABOX_E_SYSTEM, errno, "streams", "cannot hand over a descriptor");
	}
	/* Security: nothing of the guest's reaches the program; close-on-exec, since some are needed until
	 * then */
	if (sys_close_range(3, CLOSE_RANGE_REST, CLOSE_RANGE_CLOEXEC) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "streams", "cannot close descriptors");
	return 0;
}

static int join_groups(const struct launch *launch, struct fault *fault)
{
	for (size_t i = 0; i < ELEMENTSOF(launch->task_fds); i++) {
		if (launch->task_fds[i] >= 0 && write(launch->task_fds[i], "0", 1) != 1)
			return fault_set(
				fault, ABOX_E_SYSTEM, errno, "groups", "cannot join the command's group");
	}
	return 0;
}

static int set_identity(const struct guest_order *order, struct fault *fault)
{
	/* bare calls: those of the C library would lock and signal the threads of a memory that is not ours
	 * alone */
	if (syscall(SYS_setresgid, order->gid, order->gid, order->gid) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "gid", "cannot become group %u", order->gid);
	if (syscall(SYS_setresuid, order->uid, order->uid, order->uid) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "uid", "cannot become user %u", order->uid);
	return 0;
}

/* Security: the order is fixed. Capabilities go after the ids (which need them), the filter comes last, since
 * it forbids what the steps before it do. */
static int confine(const struct guest_box *box, struct fault *fault)
{
	int r;

	r = caps_drop_all(fault);
	if (r == 0)
		r = caps_no_new_privs(fault);
	if (r == 0 && box->has_rules)
		r = landlock_restrict(GUEST_FD_RULES, fault);
	if (r == 0 && !box->filtered_shepherds)
		r = filter_load(box->filter, box->n_filter, fault);
	if (r == 0 && prctl(PR_GET_SECCOMP) != SECCOMP_FILTERED)
		return fault_set(fault, ABOX_E_SYSTEM, 0, "filter", "the system call filter is not on");
	return r;
}

static int enter_cwd(const char *cwd, struct fault *fault)
{
	if (chdir(cwd) == 0)
		return 0;
	if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
		return fault_set(fault, ABOX_E_NOT_FOUND, errno, "cwd", "cannot enter %s", cwd);
	return fault_set(fault, ABOX_E_SYSTEM, errno, "cwd", "cannot enter %s", cwd);
}

static int child_steps(const struct child *child)
{
	const struct launch *launch = child->launch;
	struct fault *fault = child->fault;
	sigset_t none;
	int r;

	if (setsid() < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "session", "cannot make a session");
	if (child->slave_fd >= 0 && ioctl(child->slave_fd, TIOCSCTTY, 0) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "pty", "cannot take the terminal");
	umask(022);
	r = join_groups(launch, fault);
	if (r == 0)
		r = set_streams(child, fault);
	if (r == 0)
		r = set_limits(launch->order, fault);
	if (r == 0)
		r = set_identity(launch->order, fault);
	if (r == 0)
		r = confine(launch->box, fault);
	if (r == 0)
		r = enter_cwd(launch->order->cwd, fault);
	if (r < 0)
		return r;
	sigemptyset(&none);
	if (sigprocmask(SIG_SETMASK, &none, NULL) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "signals", "cannot unblock signals");
	if (launch->program_fd < 0)
		return launch_exec(launch->order->argv, launch->order->env, fault);
	syscall(SYS_execveat, launch->program_fd, "", launch->order->argv, launch->order->env, AT_EMPTY_PATH);
	return fault_set(fault, ABOX_E_EXEC_FORMAT, errno, "program", "cannot be executed");
}

static int child_main(void *userdata)
{
	const struct child *child = userdata;

	if (child_steps(child) >= 0)
		fault_set(child->fault, ABOX_E_SYSTEM, 0, "exec", "the program did not start");
	return 127;
}

/* gVisor has no other way; there /dev/pts is its own, in which nobody can put anything. */
static int open_peer_by_number(int master_fd)
{
	char path[32];
	unsigned int number;

	if (ioctl(master_fd, TIOCGPTN, &number) < 0)
		return -1;
	snprintf(path, sizeof(path), "/dev/pts/%u", number);
	return open(path, O_RDWR | O_NOCTTY | O_CLOEXEC | O_NOFOLLOW);
}

/* The terminal is of the box's own devpts. The peer is opened through the master, not by a name that could be
 * another's. */
static int pty_open(const struct guest_order *order, int *retmaster_fd, int *retslave_fd, struct fault *fault)
{
	struct winsize size = { .ws_row = (unsigned short)order->rows,
		.ws_col = (unsigned short)order->columns };
	_cleanup_(fd_closep) int master_fd = -EBADF, slave_fd = -EBADF;
	int unlocked = 0;

	master_fd = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (master_fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "pty", "cannot open a terminal");
	if (ioctl(master_fd, TIOCSPTLCK, &unlocked) < 0 || ioctl(master_fd, TIOCSWINSZ, &size) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "pty", "cannot set the terminal up");
	slave_fd = ioctl(master_fd, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave_fd < 0 && errno == ENOTTY)
		slave_fd = open_peer_by_number(master_fd);
	if (slave_fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "pty", "cannot open the terminal's other end");
	if (fchown(slave_fd, order->uid, order->gid) < 0 || fchmod(slave_fd, 0600) < 0)
		return fault_set(
			fault, ABOX_E_SYSTEM, errno, "pty", "cannot hand the terminal to the command's user");
	*retmaster_fd = steal_fd(master_fd);
	*retslave_fd = steal_fd(slave_fd);
	return 0;
}

int launch_start(const struct launch *launch, pid_t *retpid, int *retmaster_fd, struct fault *fault)
{
	static uint8_t stack[STACK_BYTES] __attribute__((aligned(16)));
	_cleanup_(fd_closep) int master_fd = -EBADF, slave_fd = -EBADF;
	struct child child = { .launch = launch, .fault = fault };
	long pid;
	int r;

	fault_init(fault, ABOX_STAGE_COMMAND);
	if (launch->order->pty) {
		r = pty_open(launch->order, &master_fd, &slave_fd, fault);
		if (r < 0)
			return r;
	}
	child.slave_fd = slave_fd;
	if (launch->group_fd >= 0) {
		struct sys_clone_args args = {
			.flags = CLONE_VM | CLONE_VFORK | CLONE_INTO_CGROUP,
			.exit_signal = SIGCHLD,
			.cgroup = (uint64_t)launch->group_fd,
		};

		pid = clone3_run(&args, stack, sizeof(stack), child_main, &child);
	} else {
		pid = clone_run(CLONE_VM | CLONE_VFORK | SIGCHLD, stack, sizeof(stack), child_main, &child);
	}
	if (pid < 0)
		return fault_set(fault, pid == -EAGAIN ? ABOX_E_LIMIT : ABOX_E_SYSTEM, (int)-pid, "clone",
			"cannot start a process");
	if (fault->code < 0) {
		while (waitpid((pid_t)pid, NULL, __WALL) < 0 && errno == EINTR)
			;
		return fault->code;
	}
	*retpid = (pid_t)pid;
	*retmaster_fd = steal_fd(master_fd);
	return 0;
}
