/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/memfd.h"
#include "base/strings.h"
#include "kernel/pidfd.h"
#include "kernel/spawn.h"

/* A shell from a sealed memory file; it writes to descriptor 3. */
static int shell_fd(void)
{
	_cleanup_(fd_closep) int file = open("/bin/sh", O_RDONLY | O_CLOEXEC);
	struct stat st;
	char *data;
	int fd = -EBADF;

	cr_assert_geq(file, 0);
	cr_assert_eq(fstat(file, &st), 0);
	data = malloc((size_t)st.st_size);
	cr_assert_eq(fd_read_all(file, data, (size_t)st.st_size), st.st_size);
	cr_assert_eq(memfd_new_sealed("shell", data, (size_t)st.st_size, 0555, &fd), 0);
	free(data);
	return fd;
}

static int run_shell(int program_fd, const char *script, const int *fds, size_t n_fds, int *retpidfd)
{
	const char *argv[] = { "helper", "-c", script, NULL };
	struct spawn_request request = {
		.program_fd = program_fd, .argv = argv, .fds = fds, .n_fds = n_fds, .stage = ABOX_STAGE_START
	};

	return spawn_helper(&request, retpidfd, NULL, NULL);
}

/* What the shell wrote into descriptor 3, and its end. */
static void shell_output(int program_fd, const char *script, char *output, size_t size)
{
	int ends[2], pidfd = -EBADF;
	ssize_t n;

	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	cr_assert_eq(run_shell(program_fd, script, &ends[1], 1, &pidfd), 0);
	fd_close(ends[1]);
	n = fd_read_all(ends[0], output, size - 1);
	cr_assert_geq(n, 0);
	output[n] = 0;
	fd_close(ends[0]);
	cr_assert_eq(pidfd_wait(pidfd, clock_monotonic_usec() + 10 * USEC_PER_SEC), 1);
	fd_close(pidfd);
}

static volatile sig_atomic_t n_sigchld;

static void count_sigchld(int signal)
{
	n_sigchld++;
}

/* The host gets no SIGCHLD and has no child, whatever it looks for. */
Test(spawn, host_sees_no_child)
{
	_cleanup_(fd_closep) int program_fd = shell_fd();
	struct sigaction action = { .sa_handler = count_sigchld };
	char output[64];

	cr_assert_eq(sigaction(SIGCHLD, &action, NULL), 0);
	n_sigchld = 0;
	for (int i = 0; i < 20; i++) {
		shell_output(program_fd, "echo hello >&3", output, sizeof(output));
		cr_assert_str_eq(output, "hello\n");
		cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1);
		cr_assert_eq(errno, ECHILD);
		cr_assert_eq(waitpid(-1, NULL, WNOHANG | __WALL), -1);
		cr_assert_eq(errno, ECHILD);
	}
	cr_assert_eq(n_sigchld, 0);
}

/* It works while the host ignores SIGCHLD, and leaves that as it is. */
Test(spawn, works_while_sigchld_is_ignored)
{
	_cleanup_(fd_closep) int program_fd = shell_fd();
	struct sigaction action;
	char output[64];

	signal(SIGCHLD, SIG_IGN);
	shell_output(program_fd, "echo hello >&3", output, sizeof(output));
	cr_assert_str_eq(output, "hello\n");
	cr_assert_eq(sigaction(SIGCHLD, NULL, &action), 0);
	cr_assert_eq(action.sa_handler, SIG_IGN);
}

/* Only 0-2 and the given descriptors arrive, although the host holds others without close-on-exec. */
Test(spawn, child_has_only_given_descriptors)
{
	_cleanup_(fd_closep) int program_fd = shell_fd();
	char output[512];
	int leaks[50];

	for (size_t i = 0; i < ELEMENTSOF(leaks); i++)
		leaks[i] = open("/", O_RDONLY);
	/* Positive control: a child that is started the usual way does see them. */
	cr_assert_eq(fcntl(leaks[0], F_GETFD), 0);
	shell_output(program_fd,
		"x=$(for n in 0 1 2 3 4 5 6 7 8 9 20 30 40 50 60; do readlink /proc/$$/fd/$n; done); echo "
		"\"$x\" >&3",
		output, sizeof(output));
	cr_assert(string_starts_with(output, "/dev/null\n/dev/null\n/dev/null\npipe:"), "%s", output);
	cr_assert_null(strstr(output, "\n/\n"), "%s", output);
	for (size_t i = 0; i < ELEMENTSOF(leaks); i++)
		close(leaks[i]);
}

/* A host with 0, 1 and 2 closed is no special case: the numbers are not mixed up. */
Test(spawn, works_with_standard_descriptors_closed)
{
	_cleanup_(fd_closep) int program_fd = shell_fd();
	int saved[3], ends[2], pidfd = -EBADF, r;
	char output[64];
	ssize_t n;

	for (int i = 0; i < 3; i++) {
		saved[i] = fcntl(i, F_DUPFD_CLOEXEC, 100);
		close(i);
	}
	r = pipe2(ends, O_CLOEXEC);	/* these are 0 and 1 now */
	if (r == 0)
		r = run_shell(program_fd, "echo ok >&4; readlink /proc/self/fd/0 >&4",
			(int[]){ ends[0], ends[1] }, 2, &pidfd);
	fd_close(ends[1]);
	n = fd_read_all(ends[0], output, sizeof(output) - 1);
	fd_close(ends[0]);
	for (int i = 0; i < 3; i++)
		if (saved[i] >= 0) {
			dup2(saved[i], i);
			close(saved[i]);
		}
	cr_assert_eq(r, 0);
	cr_assert_gt(n, 0);
	output[n] = 0;
	cr_assert_str_eq(output, "ok\n/dev/null\n");
	fd_close(pidfd);
}

/* Mask and dispositions of the host do not reach the child; cwd, umask, environment are fixed. */
Test(spawn, child_starts_clean)
{
	_cleanup_(fd_closep) int program_fd = shell_fd();
	char output[1024];
	sigset_t set, old, now;

	signal(SIGTERM, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	sigfillset(&set);
	sigprocmask(SIG_SETMASK, &set, &old);
	cr_assert_eq(chdir("/tmp"), 0);
	umask(0);
	setenv("SECRET", "marker", 1);
	shell_output(program_fd,
		"{ pwd; umask; echo [$SECRET]; grep -E '^Sig(Blk|Ign)|^NSpid' /proc/self/status;"
		" [ $$ = $(cut -d' ' -f6 /proc/$$/stat) ] && echo leader; } >&3",
		output, sizeof(output));
	sigprocmask(SIG_SETMASK, &old, &now);
	cr_assert_not_null(strstr(output, "/\n0077\n[]\n"), "%s", output);
	cr_assert_not_null(strstr(output, "SigBlk:\t0000000000000000"), "%s", output);
	cr_assert_not_null(strstr(output, "SigIgn:\t0000000000000000"), "%s", output);
	cr_assert_not_null(strstr(output, "leader"), "%s", output);
	/* ... and the host's own are as they were. */
	cr_assert_eq(sigismember(&now, SIGUSR1), 1);
	cr_assert_eq(umask(022), 0);
}

/* A program that cannot be executed is an error with the errno, and leaves no process and no descriptor. */
Test(spawn, tells_why_exec_failed)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	const char *argv[] = { "helper", NULL };
	struct spawn_request request = { .argv = argv, .stage = ABOX_STAGE_START };
	_cleanup_(error_freep) abox_error *error = NULL;
	int pidfd = -EBADF, before, after;

	cr_assert_eq(memfd_new_sealed("none", "not a program", 13, 0111, &fd), 0);
	request.program_fd = fd;
	before = dup(0);
	close(before);
	cr_assert_eq(spawn_helper(&request, &pidfd, NULL, &error), ABOX_E_SYSTEM);
	cr_assert_eq(abox_error_get_errno(error), ENOEXEC);
	cr_assert_str_eq(abox_error_get_place(error), "execve");
	cr_assert_eq(pidfd, -EBADF);
	after = dup(0);
	close(after);
	cr_assert_eq(before, after);
	cr_assert_eq(waitpid(-1, NULL, WNOHANG | __WALL), -1);
}

/* The descriptor tells the end although the helper is no child, and a signal through it reaches the helper.
 */
Test(spawn, pidfd_signals_and_reports_the_end)
{
	_cleanup_(fd_closep) int program_fd = shell_fd();
	_cleanup_(fd_closep) int pidfd = -EBADF;

	cr_assert_eq(run_shell(program_fd, "sleep 1000 & wait", NULL, 0, &pidfd), 0);
	cr_assert_eq(fcntl(pidfd, F_GETFD), FD_CLOEXEC);
	cr_assert_eq(pidfd_wait(pidfd, 0), 0);
	cr_assert_gt(pidfd_get_pid(pidfd), 0);
	kill(-pidfd_get_pid(pidfd), SIGKILL);	/* the sleep too: the helper leads its group */
	cr_assert_eq(pidfd_wait(pidfd, clock_monotonic_usec() + 10 * USEC_PER_SEC), 1);
}

static int shared_program_fd;

static void *spawn_many(void *argument)
{
	uintptr_t bad = 0;

	for (int i = 0; i < 50; i++) {
		int ends[2], pidfd = -EBADF;
		char output[256];
		ssize_t n = -1;

		if (pipe2(ends, O_CLOEXEC) < 0)
			return (void *)1;
		if (run_shell(shared_program_fd, "ls /proc/self/fd | wc -l >&3", &ends[1], 1, &pidfd) < 0)
			bad++;
		fd_close(ends[1]);
		n = fd_read_all(ends[0], output, sizeof(output) - 1);
		fd_close(ends[0]);
		fd_close(pidfd);
		output[n > 0 ? n : 0] = 0;
		/* 0, pipe to wc as 1, 2, 3, and the directory itself */
		if (strtol(output, NULL, 10) != 5)
			bad++;
	}
	return (void *)bad;
}

static void *open_and_close(void *argument)
{
	atomic_bool *stop = argument;

	while (!*stop) {
		int fd = open("/", O_RDONLY);

		usleep(50);
		close(fd);
	}
	return NULL;
}

/* Several threads spawn while another opens and closes descriptors without close-on-exec: none is inherited.
 */
Test(spawn, threads_leak_no_descriptor)
{
	atomic_bool stop = false;
	pthread_t threads[4], noise;

	shared_program_fd = shell_fd();
	pthread_create(&noise, NULL, open_and_close, &stop);
	for (size_t i = 0; i < ELEMENTSOF(threads); i++)
		pthread_create(&threads[i], NULL, spawn_many, NULL);
	for (size_t i = 0; i < ELEMENTSOF(threads); i++) {
		void *bad;

		pthread_join(threads[i], &bad);
		cr_expect_eq((uintptr_t)bad, 0);
	}
	stop = true;
	pthread_join(noise, NULL);
	cr_assert_eq(waitpid(-1, NULL, WNOHANG | __WALL), -1);
}
