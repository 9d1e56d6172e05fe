/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the benches of workspaces share: one tree, one clock, one way to tell. Nothing of it asserts; what fails ends the
 * program.
 */
#ifndef BENCH_WORKSPACE_H
#define BENCH_WORKSPACE_H

#include <agentbox/error.h>
#include <agentbox/workspace.h>

struct bench {
	char root[64];		/* a folder of its own; the store is in it */
	char source[80];	/* the tree */
	unsigned int n_files;
	size_t file_bytes;
	/* of programs that do the like, in the same run; negative: not here */
	double cp, rsync, tar, git_commit, git_status;
};

double now_msec(void);
double median(double *values, size_t n);
_Noreturn void die(const char *what, const abox_error *error);
/* Half of it random, half of it text: about as well as sources pack. */
void write_file(const char *path, size_t size, unsigned int seed);
/* What a box would have left in the live layer: n of the files changed, or new ones beside them. */
void change_files(const struct bench *bench, abox_workspace *workspace, unsigned int n, size_t size, unsigned int seed);
void new_files(const struct bench *bench, abox_workspace *workspace, unsigned int n, size_t size, unsigned int seed);
/* One line: the time, and how it stands to that of a peer (NULL: none). */
void tell(const char *what, double msec, const char *peer, double peer_msec);

void bench_store(const struct bench *bench);
void bench_changes(const struct bench *bench);

#endif
