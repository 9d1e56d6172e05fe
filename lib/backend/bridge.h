/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * PID 1 of the outer namespaces while the program of a wall runs below it: it relays between the keeper and the guest
 * behind the wall, bounds how long that may take to answer, keeps what the program says, and tells how it ended.
 */
#ifndef BACKEND_BRIDGE_H
#define BACKEND_BRIDGE_H

#include <sys/types.h>

#include "base/fault.h"
#include "guest/setup.h"
#include "plan/flat.h"

struct bridge {
	const char *name;	/* of the program, for people */
	pid_t pid;		/* a child whose end is the end of the wall */
	const char *second_name;
	pid_t second_pid;	/* another such child, or 0 */
	int in_fd, out_fd;	/* the channel: bytes of the guest, and to it */
	int log_fd;		/* read end of what the programs write to stderr, or -EBADF */
	int scratch_fd;		/* goes with GUEST_READY, or -EBADF */
	int cell_fd;		/* of the process that widens the cell of the box, or -EBADF */
	const char *stage;	/* where a start is before the guest has said anything */
	uint64_t ready_usec;	/* how long the keeper waits for the guest */
	const struct guest_setup *setup;
};

/* The first thing, while the rights for it are there. Of a box without a network it starts nothing. */
int bridge_start_cell(struct bridge *bridge, const struct flat_plan *plan, struct fault *fault);

struct bridge_pipes {		/* the program's ends */
	int in_fd, out_fd, err_fd;
};

/* Fills in_fd, out_fd and log_fd, which do not block, and gives the other ends. */
int bridge_make_pipes(struct bridge *bridge, struct bridge_pipes *ret, struct fault *fault);

/* The first two alone. */
int bridge_make_channel(struct bridge *bridge, struct bridge_pipes *ret, struct fault *fault);

/* A child of the bridge: 0-2 are the given descriptors (pipes, never a device or file of the host's), 3 where it is not
 * negative; nothing else is open; no new privileges, all signals as by default. When the program cannot be executed it
 * says so on err_fd. */
pid_t bridge_spawn(const char *const *argv, int in_fd, int out_fd, int err_fd, int fourth_fd);	/* or -errno */

/* The one whose end is the end of the wall: fills pid, and closes the program's ends. */
int bridge_start(struct bridge *bridge, const char *const *argv, const struct bridge_pipes *pipes, struct fault *fault);

/* Drops all rights but these for good, and loads the filter of commands. */
int bridge_confine(const struct flat_plan *plan, uint64_t caps, struct fault *fault);

/* Confines itself, then works until the wall or the keeper is gone. */
int bridge_run(const struct flat_plan *plan, const struct bridge *bridge, struct fault *fault);

#endif
