/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The gVisor wall: runsc in the outer namespaces, with the box's root as that of its container and the guest as the
 * container's init, which talks over descriptors 0 and 1. The bundle is part of the plan.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "backend/bridge.h"
#include "backend/outer.h"
#include "base/fd.h"

#define READY_USEC (20 * USEC_PER_SEC)	/* a start that hung was seen */
#define CHANNEL_BYTES (1 << 20)

/* Both ends; the one that stays here is non-blocking. */
static int make_pipe(int ret[2], int ours, struct fault *fault)
{
	if (pipe2(ret, O_CLOEXEC) < 0 ||
		fcntl(ret[ours], F_SETFL, (ours ? O_WRONLY : O_RDONLY) | O_NONBLOCK) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "runsc", "no pipe for it");
	fcntl(ret[ours], F_SETPIPE_SZ, CHANNEL_BYTES);	/* fewer switches; the default does as well */
	return 0;
}

static int run(const struct flat_plan *plan, int scratch_fd, struct fault *fault)
{
	const struct guest_setup setup = { .hostname = plan->hostname, .filter = plan->filter, .filter_len = plan->filter_len,
		.uid = plan->inside_uid, .gid = plan->inside_gid };
	struct bridge bridge = { .name = "runsc", .scratch_fd = scratch_fd, .ready_usec = READY_USEC, .setup = &setup };
	int in[2], out[2], err[2], r;

	r = make_pipe(in, 1, fault);
	if (r == 0)
		r = make_pipe(out, 0, fault);
	if (r == 0)
		r = make_pipe(err, 0, fault);
	if (r < 0)
		return r;
	bridge.pid = bridge_spawn(plan->program, in[0], out[1], err[1]);
	fd_close(in[0]);
	fd_close(out[1]);
	fd_close(err[1]);
	if (bridge.pid < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -bridge.pid, "runsc", "cannot start a process");
	bridge.out_fd = in[1];
	bridge.in_fd = out[0];
	bridge.log_fd = err[0];
	return bridge_run(plan, &bridge, fault);
}

static int start(const struct flat_plan *plan, const struct cgroup_group *group, struct backend_wall *ret, struct fault *fault)
{
	if (!flat_has_program(plan))
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "plan", "it names no runsc");
	return outer_start(plan, group, run, ret, fault);
}

const struct backend_ops backend_gvisor = {
	.name = "gvisor",
	.prepare = outer_prepare,
	.release = outer_release,
	.start = start,
	.stop = outer_stop,
};
