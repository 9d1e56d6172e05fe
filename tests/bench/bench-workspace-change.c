/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Diff, patch, apply, export and import of a workspace above a folder of 20,000 files with 50 changes, against git,
 * cp, tar and rsync on the same tree. Medians of one run; only the ratios mean something on a shared machine.
 *
 *	bench-workspace-change [FILES [BYTES-EACH]]	default 20000 and 25000
 */
#include <agentbox/change.h>
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

#define ROUNDS 11
#define CHANGES 50

static char root[] = "/tmp/bench-workspace-XXXXXX";

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

/* Half of it random, half of it text: about as well as sources pack. */
static void write_file(const char *path, size_t size, unsigned int seed)
{
	char *data = malloc(size + 1);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	srand(seed);
	for (size_t i = 0; data && i < size; i++)
		data[i] = (i / 64) % 2 ? (char)(' ' + rand() % 90) : (char)('a' + i % 16);
	if (!data || fd < 0 || write(fd, data, size) != (ssize_t)size)
		die(path, NULL);
	close(fd);
	free(data);
}

static void make_tree(unsigned int n, size_t size)
{
	char path[256];

	for (unsigned int i = 0; i < n; i++) {
		if (i % 100 == 0) {
			snprintf(path, sizeof(path), "%s/source/d%u", root, i / 100);
			if (mkdir(path, 0755) < 0)
				die(path, NULL);
		}
		snprintf(path, sizeof(path), "%s/source/d%u/f%u", root, i / 100, i);
		write_file(path, size, i);
	}
}

static double shell(const char *command)
{
	char line[1024];
	double begin = now_msec();

	snprintf(line, sizeof(line),
		"cd %s && export HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.test "
		"GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.test; { %s; } >/dev/null 2>&1",
		root, command);
	return system(line) == 0 ? now_msec() - begin : -1;
}

/* What a box would have left in the live layer: its record names the folder. */
static void change_files(abox_workspace *workspace, unsigned int n, size_t size, unsigned int seed)
{
	abox_error *error = NULL;
	char *json = NULL, *at, path[512];

	if (abox_workspace_dump(workspace, &json, &error) < 0)
		die("dump", error);
	at = strstr(json, "\"live\":\"");
	if (!at)
		die("live", NULL);
	at += strlen("\"live\":\"");
	for (unsigned int i = 0; i < CHANGES; i++) {
		unsigned int file = i * (n / CHANGES);

		snprintf(path, sizeof(path), "%s/state/layers/%.32s/data/d%u", root, at, file / 100);
		if (mkdir(path, 0755) < 0 && errno != EEXIST)
			die(path, NULL);
		snprintf(path, sizeof(path), "%s/state/layers/%.32s/data/d%u/f%u", root, at, file / 100, file);
		write_file(path, size, seed + i);
	}
	abox_free(json);
}

static void bench_changes(abox_workspace *workspace, unsigned int n, size_t size)
{
	double diff[ROUNDS], patch[ROUNDS], apply[ROUNDS], begin;
	abox_changes *changes = NULL;
	abox_error *error = NULL;
	int null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

	for (unsigned int i = 0; i < ROUNDS; i++) {
		change_files(workspace, n, size, 1000000 + i * CHANGES);
		sync();
		begin = now_msec();
		if (abox_workspace_diff(workspace, NULL, &changes, &error) < 0)
			die("diff", error);
		diff[i] = now_msec() - begin;
		if (abox_changes_get_count(changes) != CHANGES)
			die("diff does not list just the changes", NULL);
		begin = now_msec();
		if (abox_workspace_patch(workspace, NULL, changes, null_fd, &error) < 0)
			die("patch", error);
		patch[i] = now_msec() - begin;
		begin = now_msec();
		if (abox_workspace_apply(workspace, changes, NULL, NULL, &error) < 0)
			die("apply", error);
		apply[i] = now_msec() - begin;
		changes = abox_changes_unref(changes);
	}
	printf("diff after %d changes          %9.2f ms\n", CHANGES, median(diff, ROUNDS));
	printf("patch of them                  %9.2f ms\n", median(patch, ROUNDS));
	printf("apply of them                  %9.2f ms (synced)\n", median(apply, ROUNDS));
	close(null_fd);
}

static void bench_archives(abox_workspace *workspace)
{
	abox_workspace *other = NULL;
	abox_error *error = NULL;
	char path[128];
	double begin;
	int fd;

	snprintf(path, sizeof(path), "%s/export.tgz", root);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	begin = now_msec();
	if (fd < 0 || abox_workspace_export(workspace, NULL, fd, NULL, &error) < 0)
		die("export", error);
	printf("export                         %9.2f ms\n", now_msec() - begin);
	begin = now_msec();
	if (lseek(fd, 0, SEEK_SET) < 0 || abox_workspace_import(fd, NULL, &other, NULL, &error) < 0)
		die("import", error);
	printf("import                         %9.2f ms (synced and read again)\n", now_msec() - begin);
	abox_workspace_unref(other);
	close(fd);
}

int main(int argc, char **argv)
{
	unsigned int n = argc > 1 ? (unsigned int)strtoul(argv[1], NULL, 10) : 20000;
	size_t size = argc > 2 ? strtoul(argv[2], NULL, 10) : 25000;
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	abox_workspace *workspace = NULL;
	abox_error *error = NULL;
	char source[64];

	if (n < CHANGES || !mkdtemp(root) || setenv("ABOX_HOME", root, 1) < 0)
		die("/tmp", NULL);
	snprintf(source, sizeof(source), "%s/source", root);
	if (mkdir(source, 0755) < 0)
		die(source, NULL);
	make_tree(n, size);
	sync();
	printf("%u files of %zu bytes\n", n, size);
	options.source_kind = ABOX_SOURCE_DIR;
	options.source = source;
	if (abox_workspace_create(&options, &workspace, &error) < 0)
		die("create", error);
	bench_changes(workspace, n, size);
	bench_archives(workspace);
	abox_workspace_unref(workspace);
	printf("cp -a                          %9.2f ms\n", shell("cp -a source copy"));
	printf("rsync -a of nothing new        %9.2f ms\n", shell("rsync -a source/ copy/"));
	printf("tar -czf                       %9.2f ms\n", shell("tar -czf by-tar.tgz source"));
	printf("git add and commit             %9.2f ms\n", shell("cd copy && git init -q . && git add -A && git commit -qm x"));
	shell("for i in $(seq 50); do echo more >> copy/d$i/f$((i * 100)); done");
	printf("git status after 50 changes    %9.2f ms\n", shell("git -C copy status --short"));
	return shell("rm -rf source copy state *.tgz") < 0 || rmdir(root) < 0;
}
