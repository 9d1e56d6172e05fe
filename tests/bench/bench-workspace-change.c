/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Diff, patch and apply after 50 changes, export and import, against git, rsync and tar. */
#include "workspace.h"

#include <agentbox/change.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define ROUNDS 11
#define CHANGES 50

static void bench_set(const struct bench *bench, abox_workspace *workspace)
{
	double diff[ROUNDS], patch[ROUNDS], apply[ROUNDS], begin;
	abox_changes *changes = NULL;
	abox_error *error = NULL;
	int null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

	for (unsigned int i = 0; i < ROUNDS; i++) {
		change_files(bench, workspace, CHANGES, bench->file_bytes, 1000000 + i * CHANGES);
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
	tell("diff after 50 changes", median(diff, ROUNDS), "git status", bench->git_status);
	tell("patch of them", median(patch, ROUNDS), "git status", bench->git_status);
	tell("apply of them, synced", median(apply, ROUNDS), "rsync -a", bench->rsync);
	close(null_fd);
}

static void bench_archives(const struct bench *bench, abox_workspace *workspace)
{
	abox_workspace *other = NULL;
	abox_error *error = NULL;
	char path[128];
	double begin;
	int fd;

	snprintf(path, sizeof(path), "%s/export.tgz", bench->root);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	begin = now_msec();
	if (fd < 0 || abox_workspace_export(workspace, NULL, fd, NULL, &error) < 0)
		die("export", error);
	tell("export, with digests", now_msec() - begin, "tar -czf", bench->tar);
	begin = now_msec();
	if (lseek(fd, 0, SEEK_SET) < 0 || abox_workspace_import(fd, NULL, &other, NULL, &error) < 0)
		die("import", error);
	tell("import, synced", now_msec() - begin, "tar -czf", bench->tar);
	abox_workspace_unref(other);
	close(fd);
}

void bench_changes(const struct bench *bench)
{
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	abox_workspace *workspace = NULL;
	abox_error *error = NULL;

	options.source_kind = ABOX_SOURCE_DIR;
	options.source = bench->source;
	if (abox_workspace_create(&options, &workspace, &error) < 0)
		die("create", error);
	bench_set(bench, workspace);
	bench_archives(bench, workspace);
	abox_workspace_unref(workspace);
}
