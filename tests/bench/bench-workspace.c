/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Workspaces above a folder of 500 MB in 20,000 files: snapshot, fork, restore, diff, apply, export, import, against cp,
 * rsync, tar and git on the same tree in the same run. Medians; only the ratios mean something on a shared machine.
 *
 *	bench-workspace [FILES [BYTES-EACH]]	default 20000 and 25000
 */
#include "workspace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

double now_msec(void)
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

double median(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), compare);
	return values[n / 2];
}

void die(const char *what, const abox_error *error)
{
	fprintf(stderr, "%s: %s\n", what, error ? abox_error_get_message(error) : strerror(errno));
	exit(1);
}

void tell(const char *what, double msec, const char *peer, double peer_msec)
{
	if (msec < 0)
		printf("%-28s      (not here)\n", what);
	else if (peer && peer_msec > 0)
		printf("%-28s %10.2f ms   %8.4f x %s\n", what, msec, msec / peer_msec, peer);
	else
		printf("%-28s %10.2f ms\n", what, msec);
	fflush(stdout);
}

void write_file(const char *path, size_t size, unsigned int seed)
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

static void make_tree(const struct bench *bench)
{
	char path[256];

	for (unsigned int i = 0; i < bench->n_files; i++) {
		if (i % 100 == 0) {
			snprintf(path, sizeof(path), "%s/d%u", bench->source, i / 100);
			if (mkdir(path, 0755) < 0)
				die(path, NULL);
		}
		snprintf(path, sizeof(path), "%s/d%u/f%u", bench->source, i / 100, i);
		write_file(path, bench->file_bytes, i);
	}
}

/* The record of a workspace names the folder. */
static void find_live(const struct bench *bench, abox_workspace *workspace, char *ret, size_t size)
{
	abox_error *error = NULL;
	char *json = NULL, *at;

	if (abox_workspace_dump(workspace, &json, &error) < 0)
		die("dump", error);
	at = strstr(json, "\"live\":\"");
	if (!at)
		die("live", NULL);
	snprintf(ret, size, "%s/state/layers/%.32s/data", bench->root, at + strlen("\"live\":\""));
	abox_free(json);
}

void change_files(const struct bench *bench, abox_workspace *workspace, unsigned int n, size_t size, unsigned int seed)
{
	char live[160], path[224];

	find_live(bench, workspace, live, sizeof(live));
	for (unsigned int i = 0; i < n; i++) {
		unsigned int file = i * (bench->n_files / n);

		snprintf(path, sizeof(path), "%s/d%u", live, file / 100);
		if (mkdir(path, 0755) < 0 && errno != EEXIST)
			die(path, NULL);
		snprintf(path, sizeof(path), "%s/d%u/f%u", live, file / 100, file);
		write_file(path, size, seed + i);
	}
}

void new_files(const struct bench *bench, abox_workspace *workspace, unsigned int n, size_t size, unsigned int seed)
{
	char live[160], path[224];

	find_live(bench, workspace, live, sizeof(live));
	for (unsigned int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/new-%u", live, i);
		write_file(path, size, seed + i);
	}
}

/* Negative when it fails, as where the program is missing. */
static double shell(const struct bench *bench, const char *command)
{
	char line[1024];
	double begin = now_msec();

	snprintf(line, sizeof(line),
		"cd %s && export HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.test "
		"GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.test; { %s; } >/dev/null 2>&1",
		bench->root, command);
	return system(line) == 0 ? now_msec() - begin : -1;
}

static void run_peers(struct bench *bench)
{
	bench->cp = shell(bench, "cp -a source copy");
	bench->rsync = shell(bench, "rsync -a source/ copy-by-rsync/");
	bench->tar = shell(bench, "tar -czf by-tar.tgz source");
	bench->git_commit = shell(bench, "cd copy && git init -q . && git add -A && git commit -qm x");
	shell(bench, "for i in $(seq 50); do echo more >> copy/d$i/f$((i * 100)); done");
	bench->git_status = shell(bench, "git -C copy status --short");
	tell("cp -a", bench->cp, NULL, 0);
	tell("rsync -a", bench->rsync, NULL, 0);
	tell("tar -czf", bench->tar, NULL, 0);
	tell("git add -A && git commit", bench->git_commit, NULL, 0);
	tell("git status, 50 changes", bench->git_status, NULL, 0);
	shell(bench, "rm -rf copy copy-by-rsync by-tar.tgz");
}

int main(int argc, char **argv)
{
	struct bench bench = {
		.root = "/tmp/bench-workspace-XXXXXX",
		.n_files = argc > 1 ? (unsigned int)strtoul(argv[1], NULL, 10) : 20000,
		.file_bytes = argc > 2 ? strtoul(argv[2], NULL, 10) : 25000,
	};

	if (bench.n_files < 100 || !mkdtemp(bench.root) || setenv("ABOX_HOME", bench.root, 1) < 0)
		die("/tmp", NULL);
	snprintf(bench.source, sizeof(bench.source), "%s/source", bench.root);
	if (mkdir(bench.source, 0755) < 0)
		die(bench.source, NULL);
	make_tree(&bench);
	sync();
	printf("%u files of %zu bytes\n", bench.n_files, bench.file_bytes);
	run_peers(&bench);
	bench_store(&bench);
	bench_changes(&bench);
	return shell(&bench, "rm -rf source state run cache *.tgz") < 0 || rmdir(bench.root) < 0;
}
