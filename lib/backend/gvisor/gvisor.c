/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The gVisor wall: runsc in the outer namespaces, with the box's root as that of its container and the guest as the
 * container's init, which talks over descriptors 0 and 1. The bundle is part of the plan.
 */
#include <agentbox/error.h>

#include "backend/bridge.h"
#include "backend/outer.h"

#define READY_USEC (20 * USEC_PER_SEC)	/* a start that hung was seen */

static uint64_t wanted_usec;

static int run(const struct flat_plan *plan, int scratch_fd, struct fault *fault)
{
	const struct guest_setup setup = { .hostname = plan->hostname, .filter = plan->filter, .filter_len = plan->filter_len,
		.uid = plan->inside_uid, .gid = plan->inside_gid };
	struct bridge bridge = { .name = "runsc", .stage = "container", .scratch_fd = scratch_fd, .ready_usec = wanted_usec, .setup = &setup };
	struct bridge_pipes pipes;
	int r;

	r = bridge_start_cell(&bridge, plan, fault);
	if (r == 0)
		r = bridge_make_pipes(&bridge, &pipes, fault);
	if (r == 0)
		r = bridge_start(&bridge, plan->program, &pipes, fault);
	return r < 0 ? r : bridge_run(plan, &bridge, fault);
}

static int start(const struct flat_plan *plan, const struct cgroup_group *group, uint64_t ready_usec,
	struct backend_wall *ret, struct fault *fault)
{
	if (!flat_has_program(plan))
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "plan", "it names no runsc");
	wanted_usec = ready_usec;
	return outer_start(plan, group, run, ret, fault);
}

const struct backend_ops backend_gvisor = {
	.name = "gvisor",
	.ready_usec = READY_USEC,
	.start = start,
	.join = outer_join,
	.stop = outer_stop,
};
