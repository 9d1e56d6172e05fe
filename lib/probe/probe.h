/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The report that abox_probe() makes of the facts; apart from it so that tests can feed facts of other hosts.
 */
#ifndef PROBE_PROBE_H
#define PROBE_PROBE_H

#include <agentbox/probe.h>

#include "machine/machine.h"
#include "probe/kvm.h"
#include "probe/runsc.h"

/* Copies the facts; runsc, machine or kvm NULL: not looked at. 0 or ABOX_E_MEMORY. */
int host_new(const struct host_facts *facts, const struct runsc_facts *runsc, const struct machine_host *machine,
	const struct kvm_verdict *kvm, abox_host **ret);
const struct host_facts *host_get_facts(const abox_host *host);

#endif
