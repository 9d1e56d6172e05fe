/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the trial of a host came to, kept from one program to the next: a trial makes namespaces and waits until
 * they are gone, which costs as much as a good part of a box.
 *
 * Security: a verdict that is wrong, stale or forged ends in a start that is refused, never in a box that has
 * less: only "it works" is kept, and whatever a plan takes from it must then succeed at the start. It is kept in
 * the cache folder, for this boot, this user, these namespaces; anything odd about the file, and it is not there.
 */
#ifndef PROBE_VERDICT_H
#define PROBE_VERDICT_H

#include "probe/trial.h"

#define VERDICT_IDMAPS 8

struct verdict {
	char key[512];		/* "" where no verdict may be kept */
	struct trial trial;
	uint64_t idmaps[VERDICT_IDMAPS];	/* mounts that can be shown with other ids, by their unique number */
	size_t n_idmaps;
	bool known;		/* it was there */
	bool changed;		/* there is more to keep than was there */
};

/* Finds out for whom a verdict would be, and takes it where there is one. Only reads. */
void verdict_recall(struct verdict *verdict);
/* Keeps it; where that cannot be done the next program tries again. */
void verdict_keep(const struct verdict *verdict);
/* A start has failed: what was kept may be wrong. */
void verdict_forget(const struct verdict *verdict);

/* A file of the cache folder, whole and ending in a newline; false where it is not there or somebody else's. */
#define VERDICT_BYTES 4096
bool verdict_read_file(const char *name, char text[VERDICT_BYTES]);
/* Where that cannot be done nothing is kept. */
void verdict_write_file(const char *name, const char *text, size_t len);

/* The unique number of the mount behind a descriptor, 0 where the kernel has none (before Linux 6.8). */
uint64_t verdict_mount_id(int fd);

#endif
