/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Probes of other processes: what is seen of them, and what can be done to PID 1 and to one's own children; of
 * descriptors, environment and terminal, which may have leaked in.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "probe.h"

extern char **environ;

static long read_file(const char **args)
{
	char buffer[256];
	int fd = open(args[0], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	long r;

	if (fd < 0)
		return -errno;
	r = read(fd, buffer, sizeof(buffer));
	r = r < 0 ? -errno : r == 0 ? -ENODATA : 0;
	close(fd);
	return r;
}

static long list_folder(const char **args)
{
	DIR *dir = opendir(args[0]);
	long n = 0;

	if (!dir)
		return -errno;
	errno = 0;
	while (readdir(dir))
		n++;
	closedir(dir);
	return n > 2 ? 0 : -ENODATA;
}

static long read_target(const char **args)
{
	char target[4096];

	return RAW(readlink(args[0], target, sizeof(target)));
}

static int run_processes(const char **args)
{
	static const char *const files[] = { "environ", "maps", "mem", "stack", "syscall", "io", "smaps" };
	static const char *const links[] = { "root", "cwd", "exe" };
	struct dirent *entry;
	DIR *dir = opendir("/proc");
	char path[64], name[64];

	while (dir && (entry = readdir(dir))) {
		FILE *comm;
		char text[64] = "?";

		if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%.20s/comm", entry->d_name);
		comm = fopen(path, "re");
		if (comm) {
			if (fgets(text, sizeof(text), comm))
				text[strcspn(text, "\n")] = 0;
			fclose(comm);
		}
		printf("pid:%s %s 0\n", entry->d_name, text);
	}
	if (dir)
		closedir(dir);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		const char *one[] = { path, NULL };

		snprintf(path, sizeof(path), "/proc/1/%s", files[i]);
		snprintf(name, sizeof(name), "pid1:%s", files[i]);
		report(name, read_file, one);
	}
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
		const char *one[] = { path, NULL };

		snprintf(path, sizeof(path), "/proc/1/%s", links[i]);
		snprintf(name, sizeof(name), "pid1:%s", links[i]);
		report(name, read_target, one);
	}
	{
		const char *one[] = { "/proc/1/fd", NULL };

		report("pid1:fd", list_folder, one);
	}
	return 0;
}

/* -- trace: attacks on PID 1 and on a child of one's own -- */

static pid_t chosen_pid;

static long trace_attach(const char **args)
{
	return RAW(ptrace(PTRACE_ATTACH, chosen_pid, NULL, NULL));
}

static long trace_seize(const char **args)
{
	return RAW(ptrace((int)0x4206, chosen_pid, NULL, NULL));
}

static long memory_read(const char **args)
{
	char byte;
	struct iovec local = { &byte, 1 }, remote = { environ, 1 };

	return RAW(process_vm_readv(chosen_pid, &local, 1, &remote, 1, 0));
}

static long memory_write(const char **args)
{
	char byte = 0;
	struct iovec local = { &byte, 0 }, remote = { environ, 0 };

	return RAW(process_vm_writev(chosen_pid, &local, 1, &remote, 1, 0));
}

static long take_descriptor(const char **args)
{
	int pidfd = (int)syscall(434, chosen_pid, 0);

	if (pidfd < 0)
		return -errno;
	return RAW(syscall(438, pidfd, 0, 0));
}

static long compare(const char **args)
{
	return RAW(syscall(SYS_kcmp, chosen_pid, getpid(), 0, 0, 0));
}

static long set_limit(const char **args)
{
	struct rlimit old;

	/* Looking is what the change needs first; a change that is allowed would kill PID 1 of a box. */
	return RAW(syscall(SYS_prlimit64, chosen_pid, RLIMIT_CPU, NULL, &old));
}

static long set_limit_for_real(const char **args)
{
	struct rlimit zero = { 0, 0 };

	return RAW(syscall(SYS_prlimit64, chosen_pid, RLIMIT_CPU, &zero, NULL));
}

static long set_priority(const char **args)
{
	return RAW(setpriority(PRIO_PROCESS, (id_t)chosen_pid, 19));
}

static long set_affinity(const char **args)
{
	unsigned long mask = 1;

	return RAW(syscall(SYS_sched_setaffinity, chosen_pid, sizeof(mask), &mask));
}

static long set_scheduler(const char **args)
{
	int priority = 0;

	return RAW(syscall(SYS_sched_setscheduler, chosen_pid, 5 /* SCHED_IDLE */, &priority));
}

static long set_io_priority(const char **args)
{
	return RAW(syscall(SYS_ioprio_set, 1, chosen_pid, 3 << 13));
}

static long write_pid_file(const char *name, const char *text)
{
	char path[64];
	int fd;
	long r;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)chosen_pid, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = RAW(write(fd, text, strlen(text)));
	close(fd);
	return r;
}

static long set_oom_score(const char **args)
{
	return write_pid_file("oom_score_adj", "1000");
}

static long set_name(const char **args)
{
	return write_pid_file("comm", "renamed");
}

static void run_attacks(const char *on, bool for_real)
{
	static const struct { const char *name; probe_function function; } attacks[] = {
		{ "attach", trace_attach }, { "seize", trace_seize }, { "vm_readv", memory_read }, { "vm_writev", memory_write },
		{ "getfd", take_descriptor }, { "kcmp", compare }, { "prlimit-look", set_limit }, { "setpriority", set_priority },
		{ "affinity", set_affinity }, { "scheduler", set_scheduler }, { "ioprio", set_io_priority },
		{ "oom_score_adj", set_oom_score }, { "comm", set_name },
	};
	char name[64];

	for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++) {
		snprintf(name, sizeof(name), "%s:%s", on, attacks[i].name);
		report(name, attacks[i].function, NULL);
	}
	if (for_real) {
		snprintf(name, sizeof(name), "%s:prlimit-set", on);
		report(name, set_limit_for_real, NULL);
	}
}

/* With "pid1" the attacks are on PID 1 (for boxes only), else on a child of our own. */
static int run_trace(const char **args)
{
	pid_t child;

	if (args[0] && !strcmp(args[0], "pid1")) {
		chosen_pid = 1;
		run_attacks("pid1", getpid() != 1);
		return 0;
	}
	child = fork();
	if (child == 0) {
		for (int i = 0; i < 60; i++)
			sleep(1);
		_exit(0);
	}
	chosen_pid = child;
	run_attacks("child", false);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return 0;
}

/* -- signals: to everybody, to PID 1 -- */

static long kill_everybody(const char **args)
{
	return RAW(kill(-1, SIGCONT));
}

static long kill_pid(const char **args)
{
	return RAW(kill((pid_t)atoi(args[0]), args[1] ? atoi(args[1]) : SIGKILL));
}

static long owner_signal(const char **args)
{
	int fds[2];

	if (pipe(fds) < 0)
		return -errno;
	if (fcntl(fds[0], F_SETOWN, 1) < 0 || fcntl(fds[0], F_SETFL, O_ASYNC) < 0)
		return -errno;
	return RAW(write(fds[1], "x", 1));
}

static int run_signals(const char **args)
{
	const char *stop[] = { "1", "19", NULL }, *destroy[] = { "1", "9", NULL }, *parent[] = { NULL, "0", NULL };
	char number[16];

	report("signal:all", kill_everybody, NULL);
	report("signal:pid1-stop", kill_pid, stop);
	report("signal:pid1-kill", kill_pid, destroy);
	snprintf(number, sizeof(number), "%d", (int)getppid());
	parent[0] = number;
	report("signal:parent", kill_pid, parent);
	report("signal:owner", owner_signal, NULL);
	return 0;
}

/* -- fds: everything beyond 0, 1, 2 -- */

static int run_fds(const char **args)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	unsigned extra = 0;

	while (dir && (entry = readdir(dir))) {
		char path[64], target[256];
		ssize_t n;
		int fd;

		if (entry->d_name[0] == '.')
			continue;
		fd = atoi(entry->d_name);
		if (fd == dirfd(dir))
			continue;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, target, sizeof(target) - 1);
		target[n < 0 ? 0 : n] = 0;
		printf("fd:%d %s\n", fd, target);
		if (fd > 2) {
			int up = openat(fd, "../..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

			extra++;
			printf("fd:%d:up %s\n", fd, up < 0 ? errno_name(errno) : "allowed");
			if (up >= 0)
				close(up);
		}
	}
	if (dir)
		closedir(dir);
	printf("fd:extra %u\n", extra);
	return 0;
}

static int run_env(const char **args)
{
	for (char **e = environ; *e; e++)
		printf("env:%s\n", *e);
	return 0;
}

/* -- terminal -- */

static long push_input(const char **args)
{
	char byte = 'x';

	return RAW(ioctl(0, TIOCSTI, &byte));
}

/* The kernel looks at 32 bits of the request, the filter at 64: the upper half must not open a way. */
static long push_input_wide(const char **args)
{
	char byte = 'x';

	return RAW(syscall(SYS_ioctl, 0, 0xffffffff00000000UL | TIOCSTI, &byte));
}

static long console_input(const char **args)
{
	char code = 2;

	return RAW(ioctl(0, 0x541c /* TIOCLINUX */, &code));
}

static long open_tty(const char **args)
{
	int fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static int run_terminal(const char **args)
{
	report("tty:push-input", push_input, NULL);
	report("tty:push-input-wide", push_input_wide, NULL);
	report("tty:console", console_input, NULL);
	report("tty:open", open_tty, NULL);
	for (int fd = 0; fd < 3; fd++) {
		char name[64];
		struct stat st;

		errno = 0;
		if (isatty(fd))
			printf("tty:name:%d %s\n", fd, ttyname(fd) ? ttyname(fd) : "?");
		else
			printf("tty:name:%d none %s\n", fd, errno_name(errno));
		if (fstat(fd, &st) == 0) {
			snprintf(name, sizeof(name), "tty:kind:%d", fd);
			printf("%s %s\n", name, S_ISCHR(st.st_mode) ? "char" : S_ISFIFO(st.st_mode) ? "pipe"
			       : S_ISSOCK(st.st_mode) ? "socket" : S_ISREG(st.st_mode) ? "file" : "other");
		}
	}
	return 0;
}

const struct probe_group probe_process_groups[] = {
	{ "processes", "", run_processes },
	{ "trace", "[pid1]", run_trace },
	{ "signals", "", run_signals },
	{ "fds", "", run_fds },
	{ "env", "", run_env },
	{ "terminal", "", run_terminal },
	{ 0 }
};
