/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef SANDBOX_SANDBOX_H
#define SANDBOX_SANDBOX_H

#include <stdatomic.h>

#include <agentbox/sandbox.h>

#include "base/error.h"
#include "sandbox/client.h"
#include "sandbox/state.h"

/*
 * A handle on a box. `client` is the owner's connection, or one that said HELLO; it is closed (-EBADF) in a
 * handle on a box that has ended, of which only the record is left.
 */
struct abox_sandbox {
	atomic_uint n_refs;
	struct client client;
	int state_fd;
	int box_fd;	/* its state folder */
	char id[STATE_ID_LEN + 1];
	char *name;
	char *plan_digest;
	char *backend;
	int mode;	/* enum abox_open_mode */
	uint64_t epoch;
	uint64_t output_bytes;	/* of the plan */
	bool output_written;
	char *report;	/* of a stop that was done through this handle */
	int report_code;
};

void sandbox_unrefp(abox_sandbox **box);
/* A new handle without a connection; state and box descriptors are taken. */
int sandbox_new(int state_fd_taken, int box_fd_taken, const char *id, int mode, abox_sandbox **ret);
/* Name, digest, backend and output limit from the record. */
int sandbox_adopt_record(abox_sandbox *box, const struct json *record);
/* A second connection to a live box that only reads. The client is the caller's. */
int sandbox_connect(
	const abox_sandbox *box, int mode, struct client *ret, uint64_t *retepoch, abox_error **reterr);

/* gc.c: clears one dead box away when nothing of it must stay (all: also the record of a detached one).
 * Adds what was removed and what stayed to the texts (JSON array members), which may be NULL. */
struct gc_report {
	struct text removed, left_behind;
	size_t n_removed, n_left_behind;
};
int gc_box(int state_fd, const char *id, bool all, struct gc_report *report, int stage, abox_error **reterr);
void gc_sweep(int state_fd, struct gc_report *report);
void gc_report_clear(struct gc_report *report);

#endif
