/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include <agentbox/plan.h>

#include "base/error.h"
#include "base/macro.h"
#include "machine/machine.h"

/*
 * What a sandbox needs of a plan: the bytes for the keeper, and a few facts that the library side goes by
 * itself. Everything belongs to the plan and never changes.
 */
struct plan_view {
	const void *blob;	/* {bytes plan_json, bytes flat plan}, as WIRE_START wants it */
	size_t blob_len;
	int blob_fd;		/* the same as a sealed memory file; -EBADF when it fits into a packet */
	int keeper_fd;		/* the keeper program, sealed */
	const char *name;	/* NULL for none */
	const char *json;	/* the dump */
	int workspace_fd;	/* {bytes order_json, strings secrets}, sealed; -EBADF: nothing for the recorder */
	bool workspace_copies;	/* the start may take as long as a copy of the source */
	/* of a box with a network; descriptors -EBADF without one */
	int egress_fd;		/* the egress program */
	int rules_fd;		/* its rules, sealed (network/rule.h) */
	int roots_fd;		/* the certificates that it verifies servers with, sealed (PEM) */
	const char *proxy, *no_proxy;	/* of the host, "" for none; may hold a password, so the dump has it not */
	const void *slots;	/* of credentials (credential/slot.h), NULL: none */
	size_t slots_len;
	int minter_fd;		/* the program that mints them; -EBADF: none */
	uint32_t max_connections, max_half_open, max_rate;	/* of the box at its egress */
	uint32_t egress_uid, egress_gid;	/* whom it becomes; UINT32_MAX: the caller */
	const char *journal;	/* folder, NULL for none */
	const char *task;	/* job id, NULL for none */
	bool effects;		/* some rule makes effects of requests */
	const struct machine_kernel *kernel;	/* of a virtual machine, NULL for none */
	const char *kernel_place;		/* where the start must find what is made of it */
	uint64_t output_bytes;
	bool output_written;
	uint64_t ttl_usec;	/* of the record of a detached box */
	bool keep;		/* on_owner_death keep: the box is detached */
};
const struct plan_view *plan_view(const abox_plan *plan);
/* A box of this plan stands, or could not be started: what was found out about the host is kept, or is not believed any
 * more. */
void plan_tell_host(abox_plan *plan, bool stands, const abox_error *error);
void plan_unrefp(abox_plan **plan);

#endif
