/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The one ordered table of what a start does to the host: each stage has the function that takes it back. A
 * start that fails goes back from where it came; a stop goes back from the end, past failures, and tells what
 * it could not undo.
 */
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <agentbox/error.h>
#include <agentbox/sandbox.h>

#include "base/clock.h"
#include "base/fd.h"
#include "keeper/network.h"
#include "kernel/compat.h"

#define READY_TIMEOUT_USEC (30 * USEC_PER_SEC)	/* where the wall itself knows no bound */
#define KILL_TIMEOUT_USEC (5 * USEC_PER_SEC)

struct stage {
	const char *name;	/* what the teardown report calls it */
	int (*run)(struct keeper *keeper, struct fault *fault);
	int (*undo)(struct keeper *keeper, struct fault *fault);	/* NULL: nothing to be taken back */
};

/* That of a detached box is there to be read; one that names an unsettled workspace, for gc to settle it. */
static bool folder_stays(const struct keeper *keeper)
{
	return keeper->workspace_id[0] || (keeper->plan.detach && keeper->state != ABOX_SANDBOX_STARTING);
}

static int folder_undo(struct keeper *keeper, struct fault *fault)
{
	if (folder_stays(keeper))
		return 0;	/* stop.c has written the report and the state */
	return state_leave(keeper, fault);
}

static int groups_undo(struct keeper *keeper, struct fault *fault)
{
	if (!keeper->has_group)
		return 0;
	keeper->has_group = false;
	return cgroup_remove(&keeper->group, KILL_TIMEOUT_USEC, fault);
}

static int groups_run(struct keeper *keeper, struct fault *fault)
{
	char name[64];
	int r;

	if (!keeper->plan.use_cgroup)
		return 0;
	snprintf(name, sizeof(name), "agentbox-%s", keeper->id);
	r = cgroup_begin(&keeper->plan.cgroup, name, &keeper->group, fault);
	if (r < 0)
		return r;
	keeper->has_group = true;
	if (!cgroup_has_rest(&keeper->plan.cgroup))
		r = cgroup_set_limits(&keeper->group, &keeper->plan.cgroup_limits, fault);
	if (r == 0 && keeper->plan.kill == FLAT_KILL_CGROUP2 && keeper->plan.map == FLAT_MAP_RANGE)
		r = cgroup_allow_clone(&keeper->group, keeper->plan.base_uid, keeper->plan.base_gid, fault);
	if (r < 0)
		groups_undo(keeper, NULL);
	return r;
}

/* What the guest joins when it has built: made meanwhile. */
static int rest_run(struct keeper *keeper, struct fault *fault)
{
	int r;

	if (!keeper->has_group || !cgroup_has_rest(&keeper->plan.cgroup))
		return 0;
	r = cgroup_complete(&keeper->plan.cgroup, &keeper->group, fault);
	if (r == 0)
		r = cgroup_set_limits(&keeper->group, &keeper->plan.cgroup_limits, fault);
	return r < 0 ? r : keeper->backend->join(&keeper->backend_wall, &keeper->group, fault);
}

static int guest_undo(struct keeper *keeper, struct fault *fault)
{
	keeper_watch(keeper, &keeper->guest, 0);
	keeper_watch(keeper, &keeper->wall, 0);
	keeper->guest.fd = keeper->wall.fd = -EBADF;
	keeper->scratch_fd = fd_close(keeper->scratch_fd);
	keeper->layer_fd = fd_close(keeper->layer_fd);
	return keeper->backend->stop(&keeper->backend_wall, KILL_TIMEOUT_USEC, fault);
}

/* How long the guest may take from its birth on. */
static uint64_t ready_usec(const struct keeper *keeper)
{
	if (keeper->ready_usec)
		return keeper->ready_usec;
	return keeper->backend->ready_usec ? keeper->backend->ready_usec : READY_TIMEOUT_USEC;
}

static int guest_run_stage(struct keeper *keeper, struct fault *fault)
{
	template_begin(keeper);
	return keeper->backend->start(&keeper->plan, keeper->has_group ? &keeper->group : NULL, ready_usec(keeper),
		&keeper->backend_wall, fault);
}

static int ready_run(struct keeper *keeper, struct fault *fault)
{
	int r = link_wait_ready(keeper, clock_deadline(clock_monotonic_usec(), ready_usec(keeper)), fault);

	template_end(keeper);
	if (r < 0)
		return r;
	keeper->guest = (struct io){ .fd = keeper->backend_wall.channel_fd, .ready = link_ready };
	keeper->wall = (struct io){ .fd = keeper->backend_wall.pidfd, .ready = link_wall_ready };
	if (keeper_watch(keeper, &keeper->guest, EPOLLIN) < 0 || keeper_watch(keeper, &keeper->wall, EPOLLIN) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "guest", "cannot be watched");
	return workspace_tell_wall(keeper, fault);
}

static int confine_run(struct keeper *keeper, struct fault *fault)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "keeper", "cannot be confined");
	return 0;
}

static int socket_undo(struct keeper *keeper, struct fault *fault)
{
	keeper_watch(keeper, &keeper->listener, 0);
	keeper->listener.fd = fd_close(keeper->listener.fd);
	if (keeper->box_fd >= 0 && unlinkat(keeper->box_fd, STATE_SOCKET, 0) < 0 && errno != ENOENT)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "socket", "cannot be removed");
	return 0;
}

static int running_run(struct keeper *keeper, struct fault *fault)
{
	int r = state_set(keeper, ABOX_SANDBOX_RUNNING);

	return r < 0 ? fault_set(fault, ABOX_E_SYSTEM, -r, STATE_STATE, "cannot be written") : 0;
}

static const struct stage stages[] = {
	{ "state folder", state_enter, folder_undo },
	{ "control groups", groups_run, groups_undo },
	{ "workspace", workspace_begin, workspace_settle },
	{ "placeholders", placeholder_run, placeholder_undo },
	{ "egress", network_egress_run, network_egress_undo },
	{ "processes and namespaces", guest_run_stage, guest_undo },
	{ "limits", rest_run, NULL },
	{ "guest", ready_run, NULL },
	{ "confinement of the keeper", confine_run, NULL },
	{ "journal", record_begin, NULL },
	{ "network", network_run, network_undo },
	{ "socket", state_listen, socket_undo },
	{ "record", running_run, NULL },
};

int stages_do(struct keeper *keeper, struct fault *fault)
{
	for (; keeper->stages_done < ELEMENTSOF(stages); keeper->stages_done++) {
		int r = stages[keeper->stages_done].run(keeper, fault);

		if (r < 0) {
			keeper->state = ABOX_SANDBOX_STARTING;
			stages_undo(keeper);
			return r;
		}
	}
	return 0;
}

static bool is_of_interest(const struct keeper *keeper, uint32_t number)
{
	if (stages[number].undo == groups_undo)
		return keeper->has_group;
	if (stages[number].undo == workspace_settle)
		return keeper->workspace_id[0] != 0;
	if (stages[number].undo == placeholder_undo)
		return keeper->n_placeholders != 0;
	if (stages[number].undo == network_egress_undo)
		return keeper->plan.network.mode != FLAT_NETWORK_NONE;
	return stages[number].undo != network_undo;
}

void stages_undo(struct keeper *keeper)
{
	while (keeper->stages_done > 0) {
		const struct stage *stage = &stages[--keeper->stages_done];
		bool tell = is_of_interest(keeper, keeper->stages_done);
		bool kept;
		struct fault fault;
		int r;

		if (!stage->undo)
			continue;
		fault_init(&fault, ABOX_STAGE_STOP);
		r = stage->undo(keeper, &fault);
		kept = stage->undo == folder_undo ? folder_stays(keeper)
						   : stage->undo == workspace_settle && keeper->workspace_kept;
		if (r < 0)
			report_add(keeper, REPORT_LEFT, stage->name, fault.message);
		else if (tell)
			report_add(keeper, kept ? REPORT_KEPT : REPORT_REMOVED, stage->name, NULL);
	}
}
