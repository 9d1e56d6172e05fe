/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Snapshot, fork and restore of a workspace above a folder of 20,000 files, against copying it. Medians of one run;
 * only the ratios mean something on a shared machine.
 *
 *	bench-workspace-store [FILES [BYTES-EACH]]	default 20000 and 25000
 */
#include <agentbox/workspace.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 21

static double now_msec(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), compare);
	return values[n / 2];
}

static void die(const char *what, const abox_error *error)
{
	fprintf(stderr, "%s: %s\n", what, error ? abox_error_get_message(error) : strerror(errno));
	exit(1);
}

static void write_file(const char *path, size_t size, unsigned int seed)
{
	char *data = malloc(size ? size : 1);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	srand(seed);
	for (size_t i = 0; data && i < size; i++)
		data[i] = (char)rand();
	if (!data || fd < 0 || write(fd, data, size) != (ssize_t)size)
		die(path, NULL);
	close(fd);
	free(data);
}

static void make_tree(const char *root, unsigned int n, size_t size)
{
	char path[256];

	for (unsigned int i = 0; i < n; i++) {
		if (i % 100 == 0) {
			snprintf(path, sizeof(path), "%s/d%u", root, i / 100);
			if (mkdir(path, 0755) < 0)
				die(path, NULL);
		}
		snprintf(path, sizeof(path), "%s/d%u/f%u", root, i / 100, i);
		write_file(path, size, i);
	}
}

/* What a box would have left in the live layer: its record names the folder. */
static void change_files(const char *home, abox_workspace *workspace, unsigned int n, size_t size, unsigned int seed)
{
	abox_error *error = NULL;
	char *json = NULL, *at, path[512];

	if (abox_workspace_dump(workspace, &json, &error) < 0)
		die("dump", error);
	at = strstr(json, "\"live\":\"");
	if (!at)
		die("live", NULL);
	for (unsigned int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/state/layers/%.32s/data/changed-%u", home, at + strlen("\"live\":\""), i);
		write_file(path, size, seed + i);
	}
	abox_free(json);
}

static double run_peer(const char *const *argv)
{
	double begin = now_msec();
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		execvp(argv[0], (char *const *)argv);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
		return -1;
	return now_msec() - begin;
}

static void bench_store(const char *home, const char *source)
{
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	struct abox_snapshot_options plain = ABOX_SNAPSHOT_OPTIONS_INIT;
	double empty[ROUNDS], changed[ROUNDS], fork[ROUNDS], restore[ROUNDS], begin;
	abox_workspace *workspace = NULL, *other = NULL;
	abox_error *error = NULL;
	char *id = NULL;

	options.source_kind = ABOX_SOURCE_DIR;
	options.source = source;
	begin = now_msec();
	if (abox_workspace_create(&options, &workspace, &error) < 0)
		die("create", error);
	printf("create above the folder        %9.2f ms\n", now_msec() - begin);
	plain.flags = ABOX_SNAPSHOT_DEFER_MERGE;
	for (unsigned int i = 0; i < ROUNDS; i++) {
		begin = now_msec();
		if (abox_workspace_snapshot(workspace, &plain, NULL, &error) < 0)
			die("snapshot", error);
		empty[i] = now_msec() - begin;
		change_files(home, workspace, 50, 10000, i * 50);
		begin = now_msec();
		abox_free(id);
		if (abox_workspace_snapshot(workspace, &plain, &id, &error) < 0)
			die("snapshot", error);
		changed[i] = now_msec() - begin;
		begin = now_msec();
		if (abox_workspace_fork(workspace, id, NULL, &other, &error) < 0)
			die("fork", error);
		fork[i] = now_msec() - begin;
		other = abox_workspace_unref(other);
		begin = now_msec();
		if (abox_workspace_restore(workspace, id, &error) < 0)
			die("restore", error);
		restore[i] = now_msec() - begin;
	}
	printf("layer switch of a snapshot     %9.2f ms (nothing changed)\n", median(empty, ROUNDS));
	printf("snapshot after 50 changes      %9.2f ms (synced and read again)\n", median(changed, ROUNDS));
	printf("fork of a snapshot             %9.2f ms\n", median(fork, ROUNDS));
	printf("restore                        %9.2f ms\n", median(restore, ROUNDS));
	abox_free(id);
	begin = now_msec();
	if (abox_workspace_gc(NULL, &error) < 0)
		die("gc", error);
	printf("gc with merge of %d layers     %9.2f ms\n", 2 * ROUNDS, now_msec() - begin);
	options.mode = ABOX_WORKSPACE_COPY;
	begin = now_msec();
	if (abox_workspace_create(&options, &other, &error) < 0)
		die("copy", error);
	printf("create as a copy               %9.2f ms (synced and read again)\n", now_msec() - begin);
	abox_workspace_unref(other);
	abox_workspace_unref(workspace);
}

int main(int argc, char **argv)
{
	unsigned int n = argc > 1 ? (unsigned int)strtoul(argv[1], NULL, 10) : 20000;
	size_t size = argc > 2 ? strtoul(argv[2], NULL, 10) : 25000;
	char root[] = "/tmp/bench-workspace-XXXXXX", source[64], copy[64], archive[64];

	if (!mkdtemp(root) || setenv("ABOX_HOME", root, 1) < 0)
		die("/tmp", NULL);
	snprintf(source, sizeof(source), "%s/source", root);
	snprintf(copy, sizeof(copy), "%s/copy", root);
	snprintf(archive, sizeof(archive), "%s/source.tar", root);
	if (mkdir(source, 0755) < 0)
		die(source, NULL);
	make_tree(source, n, size);
	sync();
	printf("%u files of %zu bytes\n", n, size);
	/* The store does not take a folder that holds it. */
	bench_store(root, source);
	printf("cp -a                          %9.2f ms\n",
		run_peer((const char *const[]){ "cp", "-a", source, copy, NULL }));
	printf("tar -cf                        %9.2f ms\n",
		run_peer((const char *const[]){ "tar", "-cf", archive, "-C", root, "source", NULL }));
	return run_peer((const char *const[]){ "rm", "-rf", root, NULL }) < 0;
}
