/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Loading a filter that the library compiled. Helper code.
 */
#include <agentbox/error.h>

#include "kernel/compat.h"
#include "kernel/seccomp.h"

/* struct sock_fprog of the kernel */
struct program {
	uint16_t len;
	const struct filter_insn *insns;
};

#define SET_MODE_FILTER 1

int filter_load(const struct filter_insn *program, size_t n_insns, struct fault *fault)
{
	struct program argument = { .len = (uint16_t)n_insns, .insns = program };

	if (n_insns == 0 || n_insns > 4096)
		return fault_set(
			fault, ABOX_E_INVALID, 0, "seccomp", "a filter of %zu instructions", n_insns);
	if (syscall(SYS_seccomp, SET_MODE_FILTER, 0, &argument) < 0)
		return fault_set(
			fault, ABOX_E_SYSTEM, errno, "seccomp", "cannot load the system call filter");
	return 0;
}
