/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The namespaces wall, the keeper's side: one clone into all namespaces but the network's (netns.c), the id maps, and the end.
 *
 * The guest is a fork of the keeper without an exec: that saves a program start. It is made while the keeper
 * holds nothing but the plan, and keeps no descriptor of it (guest_enter()).
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "backend/backend.h"
#include "backend/namespaces/namespaces.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/socket.h"
#include "guest/guest.h"
#include "kernel/compat.h"
#include "kernel/pidfd.h"
#include "kernel/userns.h"

#define MAPS_TIMEOUT_USEC (10 * USEC_PER_SEC)
#define SOURCES_TIMEOUT_USEC (30 * USEC_PER_SEC)

static int clone_guest(const struct flat_plan *plan, const struct cgroup_group *group, outer_main run,
	int channel_fd, int *retpidfd, pid_t *retpid, struct fault *fault)
{
	struct sys_clone_args args = {
		.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_PIDFD,
		.pidfd = (uint64_t)(uintptr_t)retpidfd,
		.exit_signal = SIGCHLD,
	};
	long pid;

	if (group && cgroup_clone_fd(group) >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)cgroup_clone_fd(group);
	}
	pid = sys_clone3(&args);
	if (pid == 0) {
		if (dup3(channel_fd, GUEST_FD_CHANNEL, O_CLOEXEC) < 0)
			_exit(1);
		guest_enter(plan, run);
	}
	if (pid < 0) {
		fault_set(fault, errno == EPERM ? ABOX_E_UNAVAILABLE : ABOX_E_SYSTEM, errno, "namespaces",
			"cannot make the namespaces of the box");
		return fault->code;
	}
	*retpid = (pid_t)pid;
	return 0;
}

/* The guest's own words, when it failed before it had its maps; else what is in *fault stays. */
static int prefer_guest_fault(const struct backend_wall *wall, struct fault *fault)
{
	uint8_t packet[sizeof(struct fault) + 64];
	struct pack_reader reader;
	struct fault told;
	ssize_t n;

	n = socket_recv_until(wall->channel_fd, packet, sizeof(packet), NULL, NULL, 0);
	reader = PACK_READER(packet, n > 0 ? (size_t)n : 0);
	if (unpack_u32(&reader) != GUEST_FAULT)
		return fault->code;
	unpack_u32(&reader);
	fault_unpack(&told, &reader);
	if (!reader.failed && told.code < 0)
		*fault = told;
	return fault->code;
}

/* The plan's user is the caller; the ids below and above it are subordinate ones. The tools refuse an empty
 * range. */
static size_t helper_ranges(const struct flat_plan *plan, uint32_t base, uint32_t inside, uint32_t outside,
	struct id_range *ranges)
{
	size_t n = 0;

	if (inside > 0)
		ranges[n++] = (struct id_range){ 0, base, inside };
	ranges[n++] = (struct id_range){ inside, outside, 1 };
	if (plan->map_count > inside + 1)
		ranges[n++] = (struct id_range){ inside + 1, base + inside, plan->map_count - inside - 1 };
	return n;
}

static int write_maps(const struct flat_plan *plan, pid_t pid, struct fault *fault)
{
	struct id_range uids[3], gids[3];
	size_t n_uids, n_gids;

	if (plan->map == FLAT_MAP_RANGE) {
		uids[0] = (struct id_range){ 0, plan->base_uid, plan->map_count };
		gids[0] = (struct id_range){ 0, plan->base_gid, plan->map_count };
		return userns_write_maps(pid, uids, 1, gids, 1, false, fault);
	}
	n_uids = helper_ranges(plan, plan->base_uid, plan->inside_uid, plan->outside_uid, uids);
	n_gids = helper_ranges(plan, plan->base_gid, plan->inside_gid, plan->outside_gid, gids);
	return userns_write_maps_by_tool(pid, uids, n_uids, gids, n_gids, fault);
}

static int wait_for_request(const struct backend_wall *wall, struct fault *fault)
{
	uint64_t deadline = clock_deadline(clock_monotonic_usec(), MAPS_TIMEOUT_USEC);
	char byte;

	if (socket_recv_until(wall->channel_fd, &byte, 1, NULL, NULL, deadline) != 1 || byte != ENTER_MAP_ME)
		return fault_set(fault, ABOX_E_GONE, 0, "guest", "it ended before it was set up");
	return 0;
}

static int map_guest(const struct flat_plan *plan, struct backend_wall *wall, struct fault *fault)
{
	char byte = ENTER_MAPPED;
	int r;

	if (plan->map == FLAT_MAP_SINGLE)
		return 0;
	if (plan->map == FLAT_MAP_HELPERS) { /* the tool looks whether the process is its caller's: it must be
						dumpable */
		r = wait_for_request(wall, fault);
		if (r < 0)
			return prefer_guest_fault(wall, fault);
	}
	r = write_maps(plan, wall->pid, fault);
	if (r == 0) {
		r = socket_send(wall->channel_fd, &byte, 1, NULL, 0);
		if (r < 0)
			fault_set(fault, ABOX_E_GONE, -r, "guest", "it ended before it was set up");
	}
	return r < 0 ? prefer_guest_fault(wall, fault) : 0;
}

/* What cannot be opened is told by the keeper; a guest that is gone has said why, as long as it was asked. */
static int send_sources(const struct flat_plan *plan, const struct backend_wall *wall, struct fault *fault)
{
	int r = sources_send(
		plan, wall->channel_fd, clock_deadline(clock_monotonic_usec(), SOURCES_TIMEOUT_USEC), fault);

	return r == ABOX_E_GONE ? prefer_guest_fault(wall, fault) : r;
}

int outer_join(struct backend_wall *wall, const struct cgroup_group *group, struct fault *fault)
{
	char byte = ENTER_GROUPS;
	int fds[CGROUP_N_CONTROLLERS], r;

	r = socket_send(wall->channel_fd, &byte, 1, fds, cgroup_join_fds(group, fds));
	if (r == 0)
		return 0;
	fault_set(fault, ABOX_E_GONE, -r, "guest", "it ended before it was set up");
	return prefer_guest_fault(wall, fault);
}

int outer_stop(struct backend_wall *wall, uint64_t timeout_usec, struct fault *fault)
{
	uint64_t deadline = clock_deadline(clock_monotonic_usec(), timeout_usec);
	struct pidfd_end end;
	int r;

	wall->channel_fd = fd_close(wall->channel_fd);
	if (wall->pidfd < 0)
		return 0;
	r = pidfd_signal(wall->pidfd, SIGKILL);
	if (r < 0 && r != -ESRCH)
		return fault_set(fault, ABOX_E_SYSTEM, -r, "guest", "cannot be killed");
	r = pidfd_wait(wall->pidfd, deadline);
	if (r == 0)
		return fault_set(fault, ABOX_E_TIMEOUT, 0, "guest", "does not die");
	pidfd_reap(wall->pidfd, true, &end);
	wall->pidfd = fd_close(wall->pidfd);
	return 0;
}

int outer_start(const struct flat_plan *plan, const struct cgroup_group *group, outer_main run, struct backend_wall *ret,
	struct fault *fault)
{
	_cleanup_(fd_closep) int ours = -EBADF, theirs = -EBADF;
	struct backend_wall wall = BACKEND_WALL_INIT;
	int pair[2], r;

	r = socket_pair(pair);
	if (r < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -r, "channel", "cannot be made");
	ours = pair[0];
	theirs = pair[1];
	r = clone_guest(plan, group, run, theirs, &wall.pidfd, &wall.pid, fault);
	if (r < 0)
		return r;
	theirs = fd_close(theirs);
	wall.channel_fd = steal_fd(ours);
	r = map_guest(plan, &wall, fault);
	if (r == 0 && plan->map == FLAT_MAP_RANGE)
		r = send_sources(plan, &wall, fault);
	if (r < 0) {
		outer_stop(&wall, MAPS_TIMEOUT_USEC, NULL);
		return r;
	}
	*ret = wall;
	return 0;
}

static int start(const struct flat_plan *plan, const struct cgroup_group *group, uint64_t ready_usec, struct backend_wall *ret,
	struct fault *fault)
{
	return outer_start(plan, group, guest_main, ret, fault);
}

const struct backend_ops backend_namespaces = {
	.name = "namespaces",
	.start = start,
	.join = outer_join,
	.stop = outer_stop,
};
