/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A row through the command line, commands on the host for controls and set-up, and the bounded child that all of
 * them run in.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runner.h"

double now_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

double row_seconds(const json_t *row)
{
	const json_t *most = json_object_get(row, "most_seconds");

	return most ? json_number_value(most) : 30;
}

/* Waits until the group's leader has ended; kills the group when that takes too long. */
static bool wait_bounded(pid_t child, double seconds, int *retstatus)
{
	double end = now_seconds() + seconds;

	while (now_seconds() < end) {
		if (waitpid(child, retstatus, WNOHANG) == child)
			return true;
		nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
	}
	kill(-child, SIGKILL);
	kill(child, SIGKILL);
	waitpid(child, retstatus, 0);
	return false;
}

bool run_bounded(void (*function)(void *), void *argument, double seconds)
{
	int status;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (child == 0) {
		setpgid(0, 0);
		function(argument);
		fflush(NULL);
		_exit(0);
	}
	return child > 0 && wait_bounded(child, seconds, &status);
}

static void redirect(const char *dir, const char *name, int fd, int flags)
{
	char path[4096];
	int file;

	snprintf(path, sizeof(path), "%s%s%s", dir, name[0] == '/' ? "" : "/", name);
	file = open(name[0] == '/' ? name : path, flags, 0600);
	if (file < 0 || dup2(file, fd) < 0)
		_exit(120);
	if (file != fd)
		close(file);
}

/* Runs a program with its streams in the outcome's folder. Returns its exit code, 128+signal, or -1 when killed late. */
static int run_program(const char *const *argv, const char *input, struct outcome *outcome, double seconds)
{
	double started = now_seconds();
	int status;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (child == 0) {
		setpgid(0, 0);
		redirect(outcome->dir, input ? input : "/dev/null", 0, O_RDONLY);
		redirect(outcome->dir, "stdout", 1, O_WRONLY | O_CREAT | O_TRUNC);
		redirect(outcome->dir, "stderr", 2, O_WRONLY | O_CREAT | O_TRUNC);
		execvp(argv[0], (char *const *)argv);
		_exit(121);
	}
	if (child < 0 || !wait_bounded(child, seconds, &status))
		status = -1;
	outcome->seconds = now_seconds() - started;
	if (status < 0)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void put_text(const struct outcome *outcome, const char *name, const char *text)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", outcome->dir, name);
	file = fopen(path, "we");
	if (!file)
		return;
	fputs(text, file);
	fclose(file);
}

void run_through_cli(const struct runner *runner, const json_t *row, const json_t *spec, struct outcome *outcome)
{
	const json_t *command = json_object_get(row, "command"), *given = json_object_get(row, "options"), *word;
	const json_t *input = json_object_get(given, "stdin"), *arguments = json_object_get(row, "cli_args");
	const char *argv[64];
	char spec_path[4096], result_path[4096];
	char *text = json_is_string(spec) ? strdup(json_string_value(spec)) : json_dumps(spec, 0);
	size_t n = 0, i;

	snprintf(spec_path, sizeof(spec_path), "%s/spec.json", outcome->dir);
	snprintf(result_path, sizeof(result_path), "%s/result.json", outcome->dir);
	put_text(outcome, "spec.json", text);
	free(text);
	if (input)
		put_text(outcome, "input", json_string_value(input));
	argv[n++] = runner->agentbox;
	argv[n++] = "run";
	argv[n++] = "--spec";
	argv[n++] = spec_path;
	argv[n++] = "--result";
	argv[n++] = result_path;
	if (json_is_true(json_object_get(given, "pty")))
		argv[n++] = "-t";
	if (input)
		argv[n++] = "-i";
	json_array_foreach(arguments, i, word)
		argv[n++] = json_string_value(word);
	argv[n++] = "--";
	json_array_foreach(command, i, word)
		if (n < 63)
			argv[n++] = json_string_value(word);
	argv[n] = NULL;
	outcome->exit_code = run_program(argv, input ? "input" : NULL, outcome, row_seconds(row));
}

/* The result is made in the form of the library's, so that the same expectations serve. */
void run_on_host(const json_t *row, struct outcome *outcome)
{
	const json_t *command = json_object_get(row, "command"), *word;
	const char *argv[64];
	char result[128];
	size_t n = 0, i;
	int code;

	json_array_foreach(command, i, word)
		if (n < 63)
			argv[n++] = json_string_value(word);
	argv[n] = NULL;
	code = run_program(argv, NULL, outcome, row_seconds(row));
	outcome->exit_code = -1;
	snprintf(result, sizeof(result), "{\"cause\": \"%s\", \"exit_code\": %d, \"signal\": %d}",
		 code > 128 ? "signaled" : "exited", code > 128 ? -1 : code, code > 128 ? code - 128 : 0);
	put_text(outcome, "result.json", result);
}

int run_shell(const char *command, const char *cwd, struct complaints *complaints)
{
	int status;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (child == 0) {
		setpgid(0, 0);
		dup2(STDERR_FILENO, STDOUT_FILENO);
		if (chdir(cwd) < 0)
			_exit(122);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(121);
	}
	if (child > 0 && wait_bounded(child, 60, &status) && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	complain(complaints, "on the host failed: %s", command);
	return -1;
}

static int background_fd = -1;

pid_t start_background(const char *command, const char *cwd)
{
	struct pollfd p;
	int pipe_fds[2];
	pid_t child;
	char byte;

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -1;
	fflush(NULL);
	child = fork();
	if (child == 0) {
		setpgid(0, 0);
		dup2(pipe_fds[1], STDOUT_FILENO);
		if (chdir(cwd) < 0)
			_exit(122);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(121);
	}
	close(pipe_fds[1]);
	p = (struct pollfd){ .fd = pipe_fds[0], .events = POLLIN };
	if (child > 0 && poll(&p, 1, 10000) > 0)
		(void)!read(pipe_fds[0], &byte, 1);
	background_fd = pipe_fds[0];	/* open as long as it runs: it may write more */
	return child;
}

void end_background(pid_t pid)
{
	int status;

	if (pid <= 0)
		return;
	kill(-pid, SIGKILL);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	close(background_fd);
}
