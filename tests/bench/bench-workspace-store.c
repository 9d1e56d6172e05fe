/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Snapshot, fork, restore and gc of a workspace, against copying the tree. */
#include "workspace.h"

#include <stdio.h>

#define ROUNDS 21
#define CHANGES 50

void bench_store(const struct bench *bench)
{
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	struct abox_snapshot_options plain = ABOX_SNAPSHOT_OPTIONS_INIT;
	double empty[ROUNDS], changed[ROUNDS], fork[ROUNDS], restore[ROUNDS], begin;
	abox_workspace *workspace = NULL, *other = NULL;
	abox_error *error = NULL;
	char *id = NULL;

	options.source_kind = ABOX_SOURCE_DIR;
	options.source = bench->source;
	begin = now_msec();
	if (abox_workspace_create(&options, &workspace, &error) < 0)
		die("create", error);
	tell("create above the folder", now_msec() - begin, "cp -a", bench->cp);
	plain.flags = ABOX_SNAPSHOT_DEFER_MERGE;
	for (unsigned int i = 0; i < ROUNDS; i++) {
		begin = now_msec();
		if (abox_workspace_snapshot(workspace, &plain, NULL, &error) < 0)
			die("snapshot", error);
		empty[i] = now_msec() - begin;
		new_files(bench, workspace, CHANGES, 10000, i * CHANGES);
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
	abox_free(id);
	tell("layer switch of a snapshot", median(empty, ROUNDS), "cp -a", bench->cp);
	tell("snapshot, 50 new, synced", median(changed, ROUNDS), "git add and commit", bench->git_commit);
	tell("fork", median(fork, ROUNDS), "cp -a", bench->cp);
	tell("restore", median(restore, ROUNDS), "cp -a", bench->cp);
	begin = now_msec();
	if (abox_workspace_gc(NULL, &error) < 0)
		die("gc", error);
	tell("gc, merge of 42 layers", now_msec() - begin, NULL, 0);
	options.mode = ABOX_WORKSPACE_COPY;
	begin = now_msec();
	if (abox_workspace_create(&options, &other, &error) < 0)
		die("copy", error);
	tell("create as a copy, synced", now_msec() - begin, "cp -a", bench->cp);
	abox_workspace_unref(other);
	abox_workspace_unref(workspace);
}
