/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The namespaces around every wall. For the namespaces wall they are the wall; the others run their programs in them, in
 * an outer root that has the box's root below it and nothing of the host's but what the plan binds there: so a program
 * that builds a wall is itself behind one, runs as nobody of the host, ends with its PID 1, and needs no rights.
 */
#ifndef BACKEND_OUTER_H
#define BACKEND_OUTER_H

#include "backend/backend.h"

/*
 * What PID 1 does when the tree stands: called as root of the user namespace (or as its only id), with the channel as
 * GUEST_FD_CHANNEL, the root of the scratch as scratch_fd, no other descriptor, and signals blocked that the keeper
 * blocks. It returns only when it has failed, with *fault set.
 */
typedef int (*outer_main)(const struct flat_plan *plan, int scratch_fd, struct fault *fault);

int outer_start(const struct flat_plan *plan, const struct cgroup_group *group, outer_main run, struct backend_wall *ret,
	struct fault *fault);
int outer_join(struct backend_wall *wall, const struct cgroup_group *group, struct fault *fault);
int outer_stop(struct backend_wall *wall, uint64_t timeout_usec, struct fault *fault);

#endif
