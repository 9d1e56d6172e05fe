/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The inner pieces of the namespaces wall.
 */
#ifndef BACKEND_NAMESPACES_H
#define BACKEND_NAMESPACES_H

#include "backend/outer.h"
#include "base/fault.h"
#include "kernel/cgroup.h"
#include "plan/flat.h"

/*
 * What of the host goes into the box, one detached mount a step that uses a source. In the guest they get the descriptors
 * SOURCES_FD + number of the step (the root's: + n_steps).
 *
 * A privileged keeper opens them and sends them over the channel, because the guest's ids may not reach the paths; the
 * guest takes them as it builds. A plain user's guest opens them itself, since only in its own mount namespace it may copy
 * mounts, and before anything lies over the paths.
 */
#define SOURCES_FD 64
#define SOURCES_MAX 4096
#define SOURCE_ABSENT (-ENOENT)	/* an optional source that is not there */

int sources_send(const struct flat_plan *plan, int channel_fd, uint64_t deadline_usec, struct fault *fault);
int sources_open(const struct flat_plan *plan, struct fault *fault);
int sources_end(const struct flat_plan *plan, struct fault *fault);	/* takes what has not been asked for, and closes all */
/* *retfd is a descriptor, or SOURCE_ABSENT. Waits for the keeper. */
int sources_get(const struct flat_plan *plan, uint32_t step, int *retfd, struct fault *fault);

/* Builds the tree of the plan in the caller's (new, private) mount namespace and makes it the root.
 * *retscratch_fd is the root of the scratch tmpfs. log() is told of optional steps that failed. */
typedef void (*tree_log)(const char *message);
int tree_enter(const struct flat_plan *plan, tree_log log, int *retscratch_fd, struct fault *fault);

/* protect.c: holds the name of a FLAT_OP_PROTECT step against everybody in the box. */
int protect_hold(const struct flat_plan *plan, const struct flat_step *step, int root_fd, struct fault *fault);
/* Fills a folder that will be the lowest layer of the overlay at `place` with the names to be held that are
 * not there. Their number; with mask_fd -1 it only counts. */
int protect_mask(const struct flat_plan *plan, const char *place, int mask_fd, struct fault *fault);

/* In a copy of that mount namespace with a new pid namespace: /proc anew, with its masks. */
int tree_renew_proc(const struct flat_plan *plan, struct fault *fault);

/* netns.c: the network namespace, made beside the building of the tree; with `lo_up` its loopback interface is up. The
 * process that makes it is begun when no descriptor of the caller's is closed by range any more. */
int netns_begin(bool lo_up, struct fault *fault);
int netns_enter(struct fault *fault);

/* The guest's side of the clone: never returns. The channel is descriptor GUEST_FD_CHANNEL already. */
_noreturn_ void guest_enter(const struct flat_plan *plan, outer_main run);
/* The guest of the namespaces wall. */
int guest_main(const struct flat_plan *plan, int scratch_fd, struct fault *fault);

/* What keeper and guest say on the way to READY: one byte each. The first only where a tool needs it; the last with
 * the descriptors that groups are joined by, only where cgroup_has_rest(). Sources come between the last two. */
#define ENTER_MAP_ME 'm'
#define ENTER_MAPPED 'g'
#define ENTER_GROUPS 'c'

#endif
