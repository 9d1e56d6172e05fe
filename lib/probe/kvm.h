/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whether a machine starts by hardware on this host. That a device opens says little: there are hosts under whose KVM a
 * stock kernel hangs. So one is started, once per boot of the host, kernel and QEMU, and what came of it is kept.
 */
#ifndef PROBE_KVM_H
#define PROBE_KVM_H

#include "machine/machine.h"

struct kvm_verdict {
	bool works;
	char text[192];		/* why not, or that it has not been tried; "": it works */
};

/* What is known. Only reads. */
void kvm_recall(const struct machine_host *machine, struct kvm_verdict *ret);

/* Starts one, for so long at most, with the box's guest and nothing else in it, unless that is known already, and keeps
 * what came of it. It is a process of this user's, confined by QEMU's own filter; what is in it comes from this library
 * and the host. 0, ABOX_E_MEMORY, ABOX_E_SYSTEM; a machine that does not start is no error. */
int kvm_try(const struct machine_host *machine, uint64_t bound_usec, struct kvm_verdict *ret, abox_error **reterr);

#endif
