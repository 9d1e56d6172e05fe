/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TASK_PROCESS_H
#define TASK_PROCESS_H

#include "base/error.h"

/* Who a process is, for people, and for killing the right one. Liveness is the executor lock's to tell, not this. */
struct process_identity {
	uint64_t pid;
	uint64_t start;		/* ticks after boot */
	uint64_t pid_namespace;	/* inode */
	char host[65];
};
void process_self(struct process_identity *ret);
/* Sends SIGKILL to exactly this process of this boot. 0, or a code with the reason why it cannot be done from here. */
int process_kill(const struct process_identity *who, const char *who_boot, const char *boot, abox_error **reterr);

#endif
