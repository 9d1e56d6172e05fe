/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The system call filter of commands. The library compiles it (seccomp-compile.c, from the tables in
 * seccomp-table.c); helpers only load it (seccomp-load.c).
 *
 * What is not in the tables answers ENOSYS, so that the C libraries fall back; what is known and dangerous
 * answers EPERM; foreign ABIs (i386, x32, arm) answer ENOSYS for every number. Arguments are looked at where
 * the call is needed but some of its uses are not. (Names begin with filter_, since libseccomp owns
 * seccomp_.)
 */
#ifndef KERNEL_SECCOMP_H
#define KERNEL_SECCOMP_H

#include <agentbox/error.h>

#include "base/fault.h"
#include "base/macro.h"

/* struct sock_filter of the kernel, which helpers have no header for. */
struct filter_insn {
	uint16_t code;
	uint8_t jt;
	uint8_t jf;
	uint32_t k;
};

enum filter_verdict {
	FILTER_UNKNOWN = 0,	/* ENOSYS */
	FILTER_DENY,		/* EPERM */
	FILTER_ALLOW,
	FILTER_CHECK,		/* by arguments */
};

struct filter_policy {
	const char *const *allow;	/* names, NULL-ended, may be NULL: the spec's seccomp.allow */
};

/* Library. Errors: ABOX_E_INVALID for a name that is not a system call or may never be allowed (place
 * "/seccomp/allow/N"), ABOX_E_MEMORY. *retprogram is released with free(). */
int filter_compile(const struct filter_policy *policy, struct filter_insn **retprogram, size_t *retn_insns,
	abox_error **reterr);
/* What the tables say about a name: ALLOW, CHECK, DENY, UNKNOWN. *retallowable: seccomp.allow may name it. */
enum filter_verdict filter_verdict_of(const char *name, bool *retallowable);

/* Helper. Loads the filter for the calling thread; needs no_new_privs or CAP_SYS_ADMIN. */
int filter_load(const struct filter_insn *program, size_t n_insns, struct fault *fault);

#endif
