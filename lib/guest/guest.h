/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The guest: PID 1 inside the wall. It starts commands when the keeper asks, each below a shepherd of its own, reaps,
 * and ends with the keeper's channel. Helper code; the wall has set everything up before guest_run() is entered.
 *
 * Security: the guest keeps its capabilities in the user namespace of the box and is never dumpable; commands share its
 * uid where only one is mapped. It runs no signal handler, so that nothing a command sends can divert it.
 */
#ifndef GUEST_GUEST_H
#define GUEST_GUEST_H

#include <sys/types.h>

#include "base/fault.h"
#include "base/macro.h"
#include "guest/message.h"
#include "kernel/seccomp.h"
#include "plan/flat.h"

/* Descriptors of guest and shepherds, close-on-exec but for 0-2, which are /dev/null of the box; so is what is not used. */
enum guest_fd {
	GUEST_FD_CHANNEL = 3,	/* to the keeper; shepherds report over it too: a packet is written whole or not at all */
	GUEST_FD_SIGNALS = 4,
	GUEST_FD_RULES = 5,	/* Landlock rules of commands, or unused */
	GUEST_FD_SCOPE = 6,	/* Landlock signal scope of shepherds, or unused */
	GUEST_FD_OOM = 7,	/* the guest's oom_score_adj, opened before it became undumpable */
	GUEST_FD_DOWN = 8,	/* shepherds: from the guest */
	GUEST_FD_GROUP = 9,	/* folder of the group of the box, where it has one of its own kernel; or unused */
	GUEST_FD_FREE = 10,
};

/* What all commands of a box have in common. */
struct guest_box {
	const struct filter_insn *filter;
	size_t n_filter;
	bool has_rules;
	bool has_scope;		/* a shepherd reaches its own command's tree only, and that whole */
	bool filtered_shepherds;	/* commands inherit the filter from their shepherd: compiling it for each costs more
				 * than all else between clone and exec. Not where commands are born into groups. */
	bool has_group;		/* commands are born into GUEST_FD_GROUP, whose counters tell what its limits did */
	bool new_pidns;		/* each command in a pid namespace of its own, whose PID 1 is the shepherd */
	/* In the new mount namespace of such a shepherd: a /proc that shows its processes. NULL: none, they see the box's. */
	int (*renew_proc)(const void *userdata, struct fault *fault);
	const void *userdata;
	const struct flat_network *network;	/* NULL for a box without one */
	bool has_link, link_v6;	/* the cell is at the other side of the wall */
	bool tied_signals;	/* a signalfd is of who made it, not of who reads it (gVisor): each makes its own */
};

#define GUEST_WORKSPACE "/workspace"	/* whose files are served */

/* Enters the loop; GUEST_READY has been sent. Returns never. */
_noreturn_ void guest_run(const struct guest_box *box);

/* The process below the guest that has started one command and sees its whole tree end. */
_noreturn_ void shepherd_run(const struct guest_box *box);

/* Takes all fixed numbers but the channel's at once, so that nothing that is opened on the way lands on one of them. */
int guest_open_null(struct fault *fault);

/* Signals that a shepherd takes with a signalfd, blocked in it and the guest. */
int guest_block_signals(struct fault *fault);	/* opens GUEST_FD_SIGNALS */

#endif
