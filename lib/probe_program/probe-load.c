/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Loads: programs that use up what there is of something, leave daemons behind, stop themselves, or end in a given
 * way. They are stopped by a limit or by whoever started them.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "probe.h"

static unsigned long long number(const char *text, unsigned long long otherwise)
{
	return text ? strtoull(text, NULL, 10) : otherwise;
}

static void ignore_signals(void)
{
	for (int i = 1; i < 32; i++)
		signal(i, SIG_IGN);
}

/* Children that fork in turn, in sessions of their own, deaf to every signal. Never returns. */
static int run_bomb(const char **args)
{
	ignore_signals();
	for (;;) {
		pid_t child = fork();

		if (child == 0)
			setsid();
	}
	return 0;
}

/* How many children there can be at once. Prints the number and why there were no more. */
static int run_forks(const char **args)
{
	unsigned long long most = number(args[0], 100000);
	unsigned long long n = 0;
	int stop[2], error = 0;

	if (pipe(stop) < 0)
		return 1;
	while (n < most) {
		pid_t child = fork();

		if (child < 0) {
			error = errno;
			break;
		}
		if (child == 0) {
			char byte;

			close(stop[1]);
			(void)!read(stop[0], &byte, 1);
			_exit(0);
		}
		n++;
	}
	printf("forks %llu %s\n", n, error ? errno_name(error) : "0");
	fflush(stdout);
	close(stop[1]);
	while (wait(NULL) > 0 || errno == EINTR)
		;
	return 0;
}

/* Touches so many bytes, in a child when the second word is "child", and says so when it got that far. */
static int run_memory(const char **args)
{
	size_t bytes = (size_t)number(args[0], 0);
	char *memory;

	if (args[0] && args[1] && !strcmp(args[1], "child")) {
		int status;
		pid_t child = fork();

		if (child == 0)
			return run_memory((const char *[]){ args[0], NULL });
		waitpid(child, &status, 0);
		printf("child %s %d\n", WIFSIGNALED(status) ? "signal" : "exit",
		       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		return 5;
	}
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) {
		printf("memory denied %s\n", errno_name(errno));
		return 1;
	}
	for (size_t i = 0; i < bytes; i += 4096)
		memory[i] = 1;
	printf("memory allowed 0\n");
	return 0;
}

/* Writes to a file until it fails or so many bytes are written. */
static int run_fill(const char **args)
{
	static char block[65536];
	unsigned long long most, written = 0;
	int fd, error = 0;

	if (!args[0])
		return 2;
	most = number(args[1], 1ULL << 40);
	memset(block, 'x', sizeof(block));
	fd = open(args[0], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0) {
		printf("fill denied %s\n", errno_name(errno));
		return 1;
	}
	while (written < most) {
		ssize_t n = write(fd, block, sizeof(block));

		if (n < 0) {
			error = errno;
			break;
		}
		written += (unsigned long long)n;
	}
	if (close(fd) < 0 && !error)
		error = errno;
	printf("fill %llu %s\n", written, error ? errno_name(error) : "0");
	return 0;
}

/* Makes empty files in a folder until it fails. */
static int run_inodes(const char **args)
{
	unsigned long long most, n = 0;
	int error = 0;
	char path[4096];

	if (!args[0])
		return 2;
	most = number(args[1], 10000000);
	for (; n < most; n++) {
		int fd;

		snprintf(path, sizeof(path), "%s/%llu", args[0], n);
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd < 0) {
			error = errno;
			break;
		}
		close(fd);
	}
	printf("inodes %llu %s\n", n, error ? errno_name(error) : "0");
	return 0;
}

static int run_descriptors(const char **args)
{
	unsigned n = 0;

	while (dup(0) >= 0)
		n++;
	printf("descriptors %u %s\n", n, errno_name(errno));
	return 0;
}

/* So many busy children for so many seconds; prints the processor time they got, in milliseconds. */
static int run_spin(const char **args)
{
	unsigned long long n = number(args[0], 1), seconds = number(args[0] ? args[1] : NULL, 3600);
	struct rusage used;

	for (unsigned long long i = 0; i < n; i++)
		if (fork() == 0) {
			struct timespec start, now;

			clock_gettime(CLOCK_MONOTONIC, &start);
			do
				clock_gettime(CLOCK_MONOTONIC, &now);
			while ((unsigned long long)(now.tv_sec - start.tv_sec) < seconds);
			_exit(0);
		}
	while (wait(NULL) > 0 || errno == EINTR)
		;
	getrusage(RUSAGE_CHILDREN, &used);
	printf("spin %lld\n", (long long)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000
			      + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000);
	return 0;
}

/* So many orphans, one after the other: each must be reaped by somebody. */
static int run_orphans(const char **args)
{
	unsigned long long n = number(args[0], 5000);

	for (unsigned long long i = 0; i < n; i++) {
		pid_t child = fork();

		if (child < 0) {
			printf("orphans %llu %s\n", i, errno_name(errno));
			return 1;
		}
		if (child == 0) {
			(void)!fork();
			_exit(0);
		}
		waitpid(child, NULL, 0);
	}
	printf("orphans %llu 0\n", n);
	return 0;
}

/* Daemons: double fork, own session, deaf, closed descriptors, another name. They live for so many seconds. */
static int run_daemons(const char **args)
{
	unsigned long long n = number(args[0], 1), seconds = number(args[0] ? args[1] : NULL, 1000);
	bool keep_streams = args[0] && args[1] && args[2];

	for (unsigned long long i = 0; i < n; i++) {
		pid_t child = fork();

		if (child == 0) {
			setsid();
			if (fork() != 0)
				_exit(0);
			ignore_signals();
			prctl(PR_SET_NAME, "not-a-daemon", 0, 0, 0);
			for (int fd = keep_streams ? 3 : 0; fd < 64; fd++)
				close(fd);
			(void)!chdir("/");
			for (unsigned long long s = 0; s < seconds * 10; s++)
				nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
			_exit(0);
		}
		waitpid(child, NULL, 0);
	}
	printf("daemons %llu 0\n", n);
	return 0;
}

/* A chain of processes that fork and leave: whoever kills by number is always late. Never ends by itself. */
static int run_chaser(const char **args)
{
	puts("chaser started");
	fflush(stdout);
	if (fork() == 0) {
		setsid();
		ignore_signals();
		for (;;) {
			pid_t child = fork();

			if (child > 0)
				_exit(0);
		}
	}
	for (;;)
		pause();
	return 0;
}

static int run_stop(const char **args)
{
	puts("stopping");
	fflush(stdout);
	if (fork() == 0) {
		kill(0, SIGSTOP);
		_exit(0);
	}
	kill(getpid(), SIGSTOP);
	for (;;)
		pause();
	return 0;
}

static int run_raise(const char **args)
{
	int signal_number = (int)number(args[0], SIGTERM);
	struct rlimit none = { 0, 0 };

	setrlimit(RLIMIT_CORE, &none);
	signal(signal_number, SIG_DFL);
	raise(signal_number);
	return 1;
}

/* So many bytes of a fixed pattern to stdout (and the same to stderr when there is a second word). */
static int run_output(const char **args)
{
	unsigned long long bytes = number(args[0], 0);
	static char block[65536];

	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (char)('a' + i % 26);
	while (bytes > 0) {
		size_t n = bytes < sizeof(block) ? (size_t)bytes : sizeof(block);

		if (write(1, block, n) != (ssize_t)n || (args[0] && args[1] && write(2, block, n) != (ssize_t)n))
			return 1;
		bytes -= n;
	}
	return 0;
}

/* Writes each word as bytes given in hexadecimal, with so many milliseconds between. */
static int run_bytes(const char **args)
{
	long pause_msec = args[0] ? strtol(args[0], NULL, 10) : 0;

	for (const char **word = args + (args[0] ? 1 : 0); *word; word++) {
		for (const char *c = *word; c[0] && c[1]; c += 2) {
			char hex[3] = { c[0], c[1], 0 };
			unsigned char byte = (unsigned char)strtoul(hex, NULL, 16);

			if (write(1, &byte, 1) != 1)
				return 1;
		}
		nanosleep(&(struct timespec){ pause_msec / 1000, pause_msec % 1000 * 1000000 }, NULL);
	}
	return 0;
}

const struct probe_group probe_load_groups[] = {
	{ "bomb", "", run_bomb },
	{ "forks", "[MOST]", run_forks },
	{ "memory", "BYTES [child]", run_memory },
	{ "fill", "FILE [MOST-BYTES]", run_fill },
	{ "inodes", "DIR [MOST]", run_inodes },
	{ "descriptors", "", run_descriptors },
	{ "spin", "PROCESSES [SECONDS]", run_spin },
	{ "orphans", "NUMBER", run_orphans },
	{ "daemons", "NUMBER [SECONDS [keep-streams]]", run_daemons },
	{ "chaser", "", run_chaser },
	{ "stop", "", run_stop },
	{ "raise", "SIGNAL", run_raise },
	{ "output", "BYTES [both]", run_output },
	{ "bytes", "MSEC HEX...", run_bytes },
	{ 0 }
};
