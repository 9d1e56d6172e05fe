/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The group of everything that a box runs, where the guest has a kernel of its own (cgroup v2). Helper code.
 */
#ifndef GUEST_GROUP_H
#define GUEST_GROUP_H

#include "base/fault.h"
#include "base/macro.h"

struct group_counts {
	uint64_t n_oom_kills, n_forks_denied;
};

/* Mounts the groups where no root of a box will be, makes the one of the box and limits it (0: no limit). A descriptor of
 * its folder. */
int group_make(uint64_t memory_bytes, uint64_t pids, struct fault *fault);

/* What has happened in it so far. What cannot be read is 0. */
void group_read(int group_fd, struct group_counts *ret);

#endif
