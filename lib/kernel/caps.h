/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Capabilities by the bare system calls, for the time between clone and exec, where libcap's allocations have
 * no place. Helper code. Masks are 1 << CAP_number.
 */
#ifndef KERNEL_CAPS_H
#define KERNEL_CAPS_H

#include "base/fault.h"
#include "base/macro.h"

enum {
	CAPS_SETGID = 6,
	CAPS_SETUID = 7,
	CAPS_SETPCAP = 8,
	CAPS_NET_BIND_SERVICE = 10,
	CAPS_NET_ADMIN = 12,
	CAPS_SYS_PTRACE = 19,
	CAPS_SYS_ADMIN = 21,
	CAPS_SYS_RESOURCE = 24,
	CAPS_MKNOD = 27,
	CAPS_SETFCAP = 31,
};
#define CAPS_BIT(cap) (1ULL << (cap))

struct caps {
	uint64_t effective;
	uint64_t permitted;
	uint64_t inheritable;
	uint64_t bounding;
	uint64_t ambient;
};
int caps_read(struct caps *ret);	/* of the calling thread; 0 or -errno */

/* Nothing left in any set, bounding and ambient included; securebits locked, so that uid 0 inside gets
 * nothing by exec. Emptying the bounding set needs CAP_SETPCAP, so this comes while the process still has it.
 * Reads the sets back and fails unless all are empty (Security: fail closed). */
int caps_drop_all(struct fault *fault);

/* The bounding set alone: no program that is executed from here on gains anything, and caps_drop_all() has
 * less to do. Needs CAP_SETPCAP; fails unless the set is empty afterwards. */
int caps_drop_bounding(struct fault *fault);

/* Keeps exactly `mask` in effective and permitted (and inheritable and ambient with `inherit`, so that they
 * survive an exec), drops the rest, bounding included. */
int caps_keep(uint64_t mask, bool inherit, struct fault *fault);

int caps_no_new_privs(struct fault *fault);

#endif
