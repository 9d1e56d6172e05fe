/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef SANDBOX_NETWORK_H
#define SANDBOX_NETWORK_H

#include "base/error.h"
#include "plan/plan.h"

/* The egress of a box that is being started: the keeper's end of its socket, and its process. */
struct network_helper {
	int fd, pidfd; /* -EBADF: the plan has no network */
};
#define NETWORK_HELPER_INIT                                                                                  \
	{                                                                                                    \
		-EBADF, -EBADF                                                                               \
	}
void network_helper_clear(struct network_helper *helper);

/* Starts the egress of a plan with a network. It ends when all copies of the socket are closed. */
int network_start(const struct plan_view *view, const char *id, uint64_t deadline_usec,
	struct network_helper *ret, abox_error **reterr);

#endif
