/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A helper that is started beside a box. It has two sockets: over the first (descriptor 3) the library tells it
 * once what to do, over the second (descriptor 4) it serves another helper as long as the box lives.
 */
#ifndef SANDBOX_PEER_H
#define SANDBOX_PEER_H

#include "base/error.h"
#include "base/pack.h"

struct peer {
	const char *name, *reach;	/* for people: "egress", "an egress" */
	const char *program;		/* what ps shows */
	uint32_t ok, fault;		/* types of its answers */
};

/* *retfd and *retother_fd are our ends of both. */
int peer_start(const struct peer *peer, int program_fd, int *retfd, int *retother_fd, int *retpidfd,
	abox_error **reterr);

/* The answer to the one thing that it is told: 0, or its fault. */
int peer_answer(const struct peer *peer, int fd, uint64_t deadline_usec, abox_error **reterr);

#endif
