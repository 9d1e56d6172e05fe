/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How fast is each wall, against `runsc run` and `runsc exec`, in one run? Rounds are interleaved and medians taken; only
 * the ratios mean something.
 *
 *	bench-walls [--quick] STATIC_TRUE	a static program that does nothing
 *
 * Walls and peers that are not there, or do not work for this user, are left out by name.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <agentbox/agentbox.h>

#define MAX_ROUNDS 64
#define N_WALLS 4
#define FILES                                                                                                \
	"mkdir d && cd d && i=0; while [ $i -lt 200 ]; do echo x >f$i; i=$((i+1)); done; cat f* >/dev/null; rm f* && cd .. && rmdir d"

extern char **environ;

enum { START, COMMAND, FILE_WORK, N_WHAT };
static const char *const what_names[N_WHAT] = { "cold start and first command", "second command", "200 files: make, read, remove" };
static const char *const walls[N_WALLS] = { "namespaces", "gvisor", "microvm", "microvm-live" };
static const char *const keys[N_WALLS] = { "\"backend\":\"namespaces\"", "\"backend\":\"gvisor\"",
	"\"backend\":\"microvm\"" /* from a template, but for the first time */, "\"backend\":\"microvm\",\"files\":\"live\"" };
static const char *const in_box = "/bench/true";
static char folder[] = "/tmp/agentbox-walls-XXXXXX";
static abox_plan *plans[N_WALLS];
static double times[N_WALLS + 1][N_WHAT][MAX_ROUNDS];
static int rounds = 20;

static double now_usec(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *list)
{
	qsort(list, (size_t)rounds, sizeof(*list), by_value);
	return list[rounds / 2];
}

static void die(const char *what, abox_error *error)
{
	char *text = NULL;

	if (error)
		abox_error_format(error, &text);
	fprintf(stderr, "bench-walls: %s: %s\n", what, text ? text : strerror(errno));
	exit(1);
}

static void leave_out(const char *wall, abox_error *error)
{
	char *reason = NULL;

	abox_error_format(error, &reason);
	printf("left out: %s (%s)\n", wall, reason ? reason : "?");
	abox_free(reason);
	abox_error_free(error);
}

static abox_plan *compile(size_t wall)
{
	abox_error *error = NULL;
	abox_spec *spec = NULL;
	abox_plan *plan = NULL;
	char *text;

	if (asprintf(&text,
		    "{\"version\":1,%s,\"mounts\":[{\"source\":\"%s\",\"target\":\"/bench\",\"mode\":\"ro\"}]}",
		    keys[wall], folder) < 0)
		abort();
	if (abox_spec_from_json(text, &spec, &error) < 0)
		die("spec", error);
	if (abox_plan_compile(spec, &plan, &error) < 0)
		leave_out(walls[wall], error);
	abox_spec_unref(spec);
	free(text);
	return plan;
}

static double run(abox_sandbox *box, const char *const *argv)
{
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .argv = argv };
	double began = now_usec();
	abox_error *error = NULL;
	abox_result *result;

	if (abox_command_run(box, &options, &result, &error) < 0)
		die("run", error);
	if (abox_result_get_exit_code(result) != 0)
		die("the command in the box failed", NULL);
	abox_result_unref(result);
	return now_usec() - began;
}

static void measure_wall(size_t wall, int round)
{
	const char *const nothing[] = { in_box, NULL }, *const files[] = { "sh", "-c", FILES, NULL };
	abox_error *error = NULL;
	double began = now_usec();
	abox_sandbox *box;

	if (abox_sandbox_start(plans[wall], NULL, &box, &error) < 0) {
		leave_out(walls[wall], error);
		plans[wall] = abox_plan_unref(plans[wall]);
		return;
	}
	run(box, nothing);
	times[wall][START][round] = now_usec() - began;
	times[wall][COMMAND][round] = run(box, nothing);
	times[wall][FILE_WORK][round] = run(box, files);
	if (abox_sandbox_stop(box, ABOX_STOP_SUCCESS, NULL, &error) < 0)
		die("stop", error);
	abox_sandbox_unref(box);
}

/* -- runsc by hand -- */

/* Its streams are pipes: as root runsc gives what it gets as 0, 1 and 2 to another user. Negative when it failed. */
static double runsc(const char *first, const char *second, const char *third)
{
	char root[PATH_MAX];
	const char *argv[] = { "runsc", root, "--network=none", "--ignore-cgroups", "--platform=ptrace", first, second, third, NULL };
	posix_spawn_file_actions_t actions;
	int pipe_fds[2], status = -1;
	double began = now_usec();
	pid_t pid;

	snprintf(root, sizeof(root), "--root=%s/state", folder);
	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -1;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, pipe_fds[0], 0);
	posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], 1);
	posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], 2);
	if (posix_spawnp(&pid, "runsc", &actions, NULL, (char **)argv, environ) == 0)
		waitpid(pid, &status, 0);
	posix_spawn_file_actions_destroy(&actions);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	return status == 0 ? now_usec() - began : -1;
}

static void write_bundle(const char *name, const char *args)
{
	char path[PATH_MAX];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/%s/config.json", folder, name);
	file = fopen(path, "w");
	if (!file)
		die(path, NULL);
	fprintf(file,
		"{\"ociVersion\":\"1.0.0\",\"process\":{\"user\":{\"uid\":0,\"gid\":0},\"args\":[%s],\"env\":[\"PATH=/usr/bin\"],"
		"\"cwd\":\"/\"},\"root\":{\"path\":\"/\",\"readonly\":true},\"mounts\":[{\"destination\":\"/proc\",\"type\":\"proc\","
		"\"source\":\"proc\"}],\"linux\":{\"namespaces\":[{\"type\":\"pid\"},{\"type\":\"mount\"}]}}",
		args);
	fclose(file);
}

static bool start_peer(void)
{
	char bundle[PATH_MAX], program[PATH_MAX];

	if (geteuid() != 0)
		return false;
	snprintf(program, sizeof(program), "\"%s/true\"", folder);
	write_bundle("once", program);
	write_bundle("stays", "\"/bin/sleep\",\"10000\"");
	snprintf(bundle, sizeof(bundle), "--bundle=%s/once", folder);
	if (runsc("run", bundle, "warm") < 0)
		return false;
	snprintf(bundle, sizeof(bundle), "--bundle=%s/stays", folder);
	return runsc("create", bundle, "stays") >= 0 && runsc("start", "stays", NULL) >= 0;
}

static void measure_peer(int round)
{
	char bundle[PATH_MAX], program[PATH_MAX];

	snprintf(bundle, sizeof(bundle), "--bundle=%s/once", folder);
	snprintf(program, sizeof(program), "%s/true", folder);
	times[N_WALLS][START][round] = runsc("run", bundle, "once");
	times[N_WALLS][COMMAND][round] = runsc("exec", "stays", program);
}

static void end_peer(void)
{
	runsc("kill", "stays", "KILL");
	runsc("delete", "--force", "stays");
}

/* -- report -- */

static void copy_program(const char *from)
{
	char command[PATH_MAX * 2];

	if (!mkdtemp(folder) || chmod(folder, 0755) < 0)
		die(folder, NULL);
	snprintf(command, sizeof(command), "cp '%s' %s/true && chmod 755 %s/true", from, folder, folder);
	if (system(command) != 0)
		die(from, NULL);
}

static void report(bool peer)
{
	double base[N_WHAT];

	for (int what = 0; what < N_WHAT; what++) {
		base[what] = peer && what != FILE_WORK ? median(times[N_WALLS][what]) : 0;
		printf("\n%s\n", what_names[what]);
		if (base[what] > 0)
			printf("  %-12s %10.0f us\n", what == START ? "runsc run" : "runsc exec", base[what]);
		for (size_t wall = 0; wall < N_WALLS; wall++) {
			if (!plans[wall])
				continue;
			printf("  %-12s %10.0f us", walls[wall], median(times[wall][what]));
			if (base[what] > 0)
				printf("  %6.2f of runsc's", times[wall][what][rounds / 2] / base[what]);
			printf("\n");
		}
	}
}

int main(int argc, char **argv)
{
	bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0, peer;
	char command[PATH_MAX];

	if (argc != (quick ? 3 : 2)) {
		fprintf(stderr, "usage: bench-walls [--quick] STATIC_TRUE\n");
		return 2;
	}
	if (quick)
		rounds = 5;
	copy_program(argv[argc - 1]);
	for (size_t wall = 0; wall < N_WALLS; wall++)
		plans[wall] = compile(wall);
	peer = start_peer();
	if (!peer)
		printf("left out: runsc by hand (not there, or not root)\n");
	for (int round = 0; round < rounds; round++) {
		for (size_t wall = 0; wall < N_WALLS; wall++)
			if (plans[wall])
				measure_wall(wall, round);
		if (peer)
			measure_peer(round);
	}
	if (peer)
		end_peer();
	report(peer);
	for (size_t wall = 0; wall < N_WALLS; wall++)
		abox_plan_unref(plans[wall]);
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command) != 0;
}
