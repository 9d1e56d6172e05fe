/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How fast is a box, against a bare spawn, bwrap and crun, in one run? Rounds are interleaved and medians
 *taken; only the ratios mean something, as the floor of a host wanders.
 *
 *	bench-box [--quick] STATIC_TRUE AGENTBOX	a static program that does nothing, and the command
 *`agentbox`
 *
 * Peers that are not installed, or do not work for this user, are left out by name.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
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

#define BULK_BYTES (100ULL << 20)
#define N_AT_ONCE 100

extern char **environ;

static char folder[] = "/tmp/agentbox-bench-XXXXXX";
static abox_plan *plan;
static const char *in_box = "/bench/true";
static int rounds = 100;

static double now_usec(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static void die(const char *what, abox_error *error)
{
	char *text = NULL;

	if (error)
		abox_error_format(error, &text);
	fprintf(stderr, "bench-box: %s: %s\n", what, text ? text : strerror(errno));
	exit(1);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, int n)
{
	qsort(values, (size_t)n, sizeof(*values), by_value);
	return values[n / 2];
}

/* Microseconds from spawn to reaped; negative when the program failed. */
static double spawn_usec(const char *const *argv)
{
	posix_spawn_file_actions_t actions;
	double began = now_usec();
	int status = -1;
	pid_t pid;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	if (posix_spawnp(&pid, argv[0], &actions, NULL, (char **)argv, environ) == 0)
		waitpid(pid, &status, 0);
	posix_spawn_file_actions_destroy(&actions);
	return status == 0 ? now_usec() - began : -1;
}

static abox_sandbox *start(void)
{
	abox_error *error = NULL;
	abox_sandbox *box;

	if (abox_sandbox_start(plan, NULL, &box, &error) < 0)
		die("start", error);
	return box;
}

static void stop(abox_sandbox *box)
{
	abox_error *error = NULL;

	if (abox_sandbox_stop(box, ABOX_STOP_SUCCESS, NULL, &error) < 0)
		die("stop", error);
	abox_sandbox_unref(box);
}

static void run(abox_sandbox *box, const char *const *argv)
{
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .argv = argv,
		.output_bytes = 2 * BULK_BYTES };
	abox_error *error = NULL;
	abox_result *result;

	if (abox_command_run(box, &options, &result, &error) < 0)
		die("run", error);
	if (abox_result_get_exit_code(result) != 0)
		die("the command in the box failed", NULL);
	abox_result_unref(result);
}

/* ---- peers
 * ------------------------------------------------------------------------------------------------------ */

enum { PEER_SPAWN, PEER_BWRAP, PEER_CRUN, PEER_CLI, N_PEERS };
static const char *peer_names[N_PEERS] = { "bare posix_spawn", "bwrap --unshare-all", "crun run",
	"agentbox run" };
static const char *peer_argv[N_PEERS][16];
static bool peer_there[N_PEERS];

static void write_bundle(const char *path)
{
	char name[128];
	FILE *file;

	snprintf(name, sizeof(name), "%s/config.json", path);
	file = fopen(name, "w");
	if (!file)
		die(name, NULL);
	fprintf(file,
		"{\"ociVersion\":\"1.0.0\",\"process\":{\"terminal\":false,\"user\":{\"uid\":0,\"gid\":0},\"args\":[\"/true\"],"
		"\"env\":[\"PATH=/\"],\"cwd\":\"/\",\"noNewPrivileges\":true},\"root\":{\"path\":\"%s\",\"readonly\":true},"
		"\"mounts\":[{\"destination\":\"/proc\",\"type\":\"proc\",\"source\":\"proc\"}],\"linux\":{\"namespaces\":["
		"{\"type\":\"pid\"},{\"type\":\"network\"},{\"type\":\"ipc\"},{\"type\":\"uts\"},{\"type\":\"mount\"}]}}\n",
		folder);
	fclose(file);
}

static void find_peers(const char *static_true, const char *agentbox)
{
	static char bundle[64], mount[64];

	snprintf(bundle, sizeof(bundle), "%s/bundle", folder);
	snprintf(mount, sizeof(mount), "%s:/bench", folder);
	if (mkdir(bundle, 0755) < 0)
		die(bundle, NULL);
	write_bundle(bundle);
	memcpy(peer_argv[PEER_SPAWN], (const char *[]){ static_true, NULL }, 2 * sizeof(char *));
	memcpy(peer_argv[PEER_BWRAP],
		(const char *[]){ "bwrap", "--unshare-all", "--ro-bind", "/", "/", static_true, NULL },
		7 * sizeof(char *));
	memcpy(peer_argv[PEER_CRUN],
		(const char *[]){ "crun", "--cgroup-manager=disabled", "run", "--bundle", bundle,
			"agentbox-bench", NULL },
		7 * sizeof(char *));
	memcpy(peer_argv[PEER_CLI], (const char *[]){ agentbox, "run", "--mount", mount, "--", in_box, NULL },
		7 * sizeof(char *));
	for (int i = 0; i < N_PEERS; i++) {
		peer_there[i] = spawn_usec(peer_argv[i]) >= 0;
		if (!peer_there[i])
			printf("left out: %s (not installed, or it does not work for this user)\n",
				peer_names[i]);
	}
}

static void print_ratios(const char *what, double ours, const double *peers)
{
	printf("%-34s %9.0f us", what, ours);
	for (int i = 0; i < N_PEERS; i++)
		if (peer_there[i] && peers[i] > 0)
			printf("   %.2fx %s (%.0f)", ours / peers[i], peer_names[i], peers[i]);
	printf("\n");
}

/* ---- measurements
 * ------------------------------------------------------------------------------------------------ */

static void measure_starts(void)
{
	const char *const argv[] = { in_box, NULL };
	double *cold = calloc((size_t)rounds, sizeof(double)),
	       *second = calloc((size_t)rounds, sizeof(double));
	double *peers[N_PEERS], medians[N_PEERS] = { 0 }, spawn_only[N_PEERS] = { 0 };

	for (int p = 0; p < N_PEERS; p++)
		peers[p] = calloc((size_t)rounds, sizeof(double));
	for (int i = 0; i < rounds; i++) {
		double began = now_usec(), paused;
		abox_sandbox *box = start();

		run(box, argv);
		paused = now_usec();
		cold[i] = paused - began;
		run(box, argv);
		second[i] = now_usec() - paused;
		paused = now_usec();
		stop(box);
		cold[i] += now_usec() - paused;
		for (int p = 0; p < N_PEERS; p++)
			if (peer_there[p])
				peers[p][i] = spawn_usec(peer_argv[p]);
	}
	for (int p = 0; p < N_PEERS; p++) {
		medians[p] = peer_there[p] ? median(peers[p], rounds) : 0;
		free(peers[p]);
	}
	spawn_only[PEER_SPAWN] = medians[PEER_SPAWN];
	print_ratios("cold box: start, run, stop", median(cold, rounds), medians);
	print_ratios("second command in a live box", median(second, rounds), spawn_only);
	if (peer_there[PEER_CLI] && peer_there[PEER_BWRAP])
		printf("%-34s %9.0f us   %.2fx bwrap --unshare-all\n", "cold box by the command agentbox",
			medians[PEER_CLI], medians[PEER_CLI] / medians[PEER_BWRAP]);
	free(cold);
	free(second);
}

/* The limit: the same bytes through one pipe of 1 MiB, read by this process. */
static double pipe_usec(const char *const *argv)
{
	posix_spawn_file_actions_t actions;
	static char buffer[1 << 16];
	double began = now_usec();
	int fds[2], status;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		die("pipe", NULL);
	fcntl(fds[0], F_SETPIPE_SZ, 1 << 20);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
	if (posix_spawnp(&pid, argv[0], &actions, NULL, (char **)argv, environ) != 0)
		die(argv[0], NULL);
	posix_spawn_file_actions_destroy(&actions);
	close(fds[1]);
	while (read(fds[0], buffer, sizeof(buffer)) > 0)
		;
	close(fds[0]);
	waitpid(pid, &status, 0);
	return now_usec() - began;
}

static void measure_output(void)
{
	static const char *const argv[] = { "head", "-c", "104857600", "/dev/zero", NULL };
	double ours[9], plain[9];
	abox_sandbox *box = start();
	int n = rounds < 9 ? rounds : 9;

	for (int i = 0; i < n; i++) {
		double began = now_usec();

		run(box, argv);
		ours[i] = now_usec() - began;
		plain[i] = pipe_usec(argv);
	}
	stop(box);
	printf("%-34s %9.0f us   %.2fx the speed of a 1 MiB pipe (%.0f)\n", "100 MiB of output, captured",
		median(ours, n), median(plain, n) / median(ours, n), median(plain, n));
}

static unsigned long long pss_bytes(const char *pid)
{
	char path[64], line[256];
	unsigned long long kib = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%.16s/smaps_rollup", pid);
	file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "Pss: %llu kB", &kib) == 1)
			break;
	if (file)
		fclose(file);
	return kib * 1024;
}

/* All helpers of the boxes of now, by the names they give themselves. */
static unsigned long long helpers_bytes(void)
{
	unsigned long long sum = 0;
	struct dirent *entry;
	DIR *dir = opendir("/proc");

	while (dir && (entry = readdir(dir))) {
		char path[300], name[32] = "";
		int fd;

		if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/comm", entry->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0 && read(fd, name, sizeof(name) - 1) > 0 && strncmp(name, "agentbox-", 9) == 0)
			sum += pss_bytes(entry->d_name);
		if (fd >= 0)
			close(fd);
	}
	if (dir)
		closedir(dir);
	return sum;
}

static void measure_many(void)
{
	static abox_sandbox *boxes[N_AT_ONCE];
	unsigned long long before = helpers_bytes(), after;
	double began = now_usec(), each;

	for (int i = 0; i < N_AT_ONCE; i++)
		boxes[i] = start();
	each = (now_usec() - began) / N_AT_ONCE;
	after = helpers_bytes();
	for (int i = 0; i < N_AT_ONCE; i++)
		stop(boxes[i]);
	printf("%-34s %9.0f us each\n", "100 boxes side by side, start", each);
	if (after > before)
		printf("%-34s %9.0f KiB (PSS of all helpers)\n", "memory of an idle box",
			(double)(after - before) / N_AT_ONCE / 1024);
}

static void make_plan(void)
{
	abox_error *error = NULL;
	abox_spec *spec = NULL;
	double began;

	if (abox_spec_new(&spec) < 0 ||
		abox_spec_add_mount(spec, folder, "/bench", ABOX_MOUNT_RO, &error) < 0 ||
		abox_spec_set_integer(spec, "/limits/output", 2 * BULK_BYTES, &error) < 0)
		die("spec", error);
	began = now_usec();
	if (abox_plan_compile(spec, &plan, &error) < 0)
		die("plan", error);
	printf("%-34s %9.0f us\n", "compile a plan", now_usec() - began);
	abox_spec_unref(spec);
}

static void copy_program(const char *path)
{
	char target[PATH_MAX], command[3 * PATH_MAX];

	if (!mkdtemp(folder) || chmod(folder, 0755) < 0)
		die(folder, NULL);
	snprintf(target, sizeof(target), "%s/true", folder);
	snprintf(command, sizeof(command), "cp '%s' '%s' && chmod 755 '%s'", path, target, target);
	if (system(command) != 0)
		die(path, NULL);
}

int main(int argc, char **argv)
{
	char command[PATH_MAX];
	int i = 1;

	if (i < argc && strcmp(argv[i], "--quick") == 0) {
		rounds = 20;
		i++;
	}
	if (argc - i != 2) {
		fprintf(stderr, "usage: bench-box [--quick] STATIC_TRUE AGENTBOX\n");
		return 2;
	}
	copy_program(argv[i]);
	make_plan();
	find_peers(argv[i], argv[i + 1]);
	measure_starts();
	measure_output();
	measure_many();
	abox_plan_unref(plan);
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	return system(command) == 0 ? 0 : 1;
}
