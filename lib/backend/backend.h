/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a wall is to the keeper. A backend gets a plan and the group of the box, and nothing else of the
 * keeper's; it gives back a channel to a guest (guest/wire.h) and a process whose end is the end of the box.
 * Helper code.
 */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include <sys/types.h>

#include "base/fault.h"
#include "kernel/cgroup.h"
#include "plan/flat.h"

struct backend_wall {
	pid_t pid;		/* of PID 1, in the keeper's pid namespace; a child of the keeper */
	int pidfd;
	int channel_fd;		/* SOCK_SEQPACKET, GUEST_READY has come or will come */
};
#define BACKEND_WALL_INIT ((struct backend_wall){ .pidfd = -EBADF, .channel_fd = -EBADF })

struct backend_ops {
	const char *name;
	uint64_t ready_usec;	/* how long the guest may take to be ready, unless somebody knows better; 0: as long as usual */

	/* Starts the guest and brings it as far as its own set-up: from here on it sends messages, GUEST_LOG
	 * and GUEST_FAULT or GUEST_READY. A failure leaves nothing running. The keeper waits for ready_usec: a wall that
	 * can tell what is in the way does so a bit before. */
	int (*start)(const struct flat_plan *plan, const struct cgroup_group *group, uint64_t ready_usec,
		struct backend_wall *ret, struct fault *fault);

	/* Lets the guest join what it was not born into, where cgroup_has_rest(); it is not ready before. */
	int (*join)(struct backend_wall *wall, const struct cgroup_group *group, struct fault *fault);

	/* Ends everything behind the wall and takes the guest's remains. ABOX_E_TIMEOUT when it does not die.
	 */
	int (*stop)(struct backend_wall *wall, uint64_t timeout_usec, struct fault *fault);
};

extern const struct backend_ops backend_namespaces;
extern const struct backend_ops backend_gvisor;
extern const struct backend_ops backend_microvm;

/* By the name in the plan; NULL when it is not in this build. */
const struct backend_ops *backend_find(const char *name);

#endif
