/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox-probe: tries the walls of a box from inside and prints what came of each attempt, one line each. It
 * judges nothing, except in `verify`, where each line stands beside what a box must answer. Static and without any
 * library but libc, so that it runs in every box. Run outside of a box it is its own positive control: attempts use
 * arguments that do no harm where they are allowed.
 */
#include "probe.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ATTEMPT_SECONDS 5

static const struct {
	int number;
	const char *name;
} errno_names[] = {
#define E(name) { name, #name }
	E(EPERM), E(ENOENT), E(ESRCH), E(EINTR), E(EIO), E(ENXIO), E(E2BIG), E(ENOEXEC), E(EBADF), E(ECHILD), E(EAGAIN),
	E(ENOMEM), E(EACCES), E(EFAULT), E(ENOTBLK), E(EBUSY), E(EEXIST), E(EXDEV), E(ENODEV), E(ENOTDIR), E(EISDIR),
	E(EINVAL), E(ENFILE), E(EMFILE), E(ENOTTY), E(ETXTBSY), E(EFBIG), E(ENOSPC), E(ESPIPE), E(EROFS), E(EMLINK),
	E(EPIPE), E(ENAMETOOLONG), E(ENOSYS), E(ELOOP), E(EPROTONOSUPPORT), E(ESOCKTNOSUPPORT), E(EOPNOTSUPP),
	E(EAFNOSUPPORT), E(EADDRINUSE), E(EADDRNOTAVAIL), E(ENETDOWN), E(ENETUNREACH), E(ECONNREFUSED), E(EHOSTUNREACH),
	E(ETIMEDOUT), E(ECONNRESET), E(ENOTCONN), E(EPROTOTYPE), E(ENOKEY), E(EDQUOT), E(EOVERFLOW), E(ENODATA),
	E(EDESTADDRREQ), E(EBADFD), E(ENOTEMPTY), E(ENOPROTOOPT), E(EISCONN), E(EINPROGRESS), E(ERANGE), E(EDOM), E(ENOMSG),
	E(EKEYREJECTED), E(ESTALE), E(EUSERS),
#undef E
};

const char *errno_name(int number)
{
	static char other[16];

	for (size_t i = 0; i < sizeof(errno_names) / sizeof(errno_names[0]); i++)
		if (errno_names[i].number == number)
			return errno_names[i].name;
	snprintf(other, sizeof(other), "E%d", number);
	return other;
}

long raw_result(long r)
{
	return r == -1 ? -errno : r;
}

/* Waits for the child without a signal handler or alarm: those may be what is probed. */
static int wait_bounded(pid_t child)
{
	int status;

	for (int i = 0; i < ATTEMPT_SECONDS * 1000; i++) {
		pid_t got = waitpid(child, &status, WNOHANG);

		if (got == child)
			return status;
		if (got < 0 && errno != EINTR)
			return -errno;
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	kill(child, SIGKILL);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return -ETIMEDOUT;
}

long attempt(probe_function function, const char **args, int *retsignal)
{
	long result = -EINTR;
	int pipe_fds[2], status;
	pid_t child;

	*retsignal = 0;
	fflush(stdout);
	if (pipe(pipe_fds) < 0)
		return -errno;
	child = fork();
	if (child < 0) {
		result = -errno;
		close(pipe_fds[0]);
		close(pipe_fds[1]);
		return result;
	}
	if (child == 0) {
		result = function(args);
		(void)!write(pipe_fds[1], &result, sizeof(result));
		_exit(0);
	}
	close(pipe_fds[1]);
	status = wait_bounded(child);
	if (read(pipe_fds[0], &result, sizeof(result)) != sizeof(result))
		result = -EINTR;
	close(pipe_fds[0]);
	if (status >= 0 && WIFSIGNALED(status))
		*retsignal = WTERMSIG(status);
	return status == -ETIMEDOUT ? -ETIMEDOUT : result;
}

void print_line(const char *name, long result, int signal_number)
{
	if (signal_number)
		printf("%s killed %d\n", name, signal_number);
	else if (result == -ETIMEDOUT)
		printf("%s hung ETIMEDOUT\n", name);
	else if (result < 0)
		printf("%s denied %s\n", name, errno_name((int)-result));
	else
		printf("%s allowed 0\n", name);
	fflush(stdout);
}

long report(const char *name, probe_function function, const char **args)
{
	int signal_number;
	long result = attempt(function, args, &signal_number);

	print_line(name, result, signal_number);
	return result;
}

static const struct probe_group *const all_groups[] = {
	probe_files_groups, probe_kernel_groups, probe_calls_groups, probe_process_groups, probe_socket_groups,
	probe_load_groups, probe_protect_groups,
};

static int usage(void)
{
	fputs("usage: agentbox-probe GROUP [ARGUMENT...]; groups:\n  verify NAME=VALUE...\n", stderr);
	for (size_t i = 0; i < sizeof(all_groups) / sizeof(all_groups[0]); i++)
		for (const struct probe_group *group = all_groups[i]; group->name; group++)
			fprintf(stderr, "  %s %s\n", group->name, group->usage);
	return 2;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return usage();
	if (!strcmp(argv[1], "verify"))
		return run_verify((const char **)argv + 2);
	for (size_t i = 0; i < sizeof(all_groups) / sizeof(all_groups[0]); i++)
		for (const struct probe_group *group = all_groups[i]; group->name; group++)
			if (!strcmp(argv[1], group->name))
				return group->run((const char **)argv + 2);
	return usage();
}
