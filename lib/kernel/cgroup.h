/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Control groups, v1 and v2, behind one group object. Detection (cgroup-detect.c) is library code and only
 * reads; making, limiting, reading, killing and removing (cgroup.c) is helper code.
 *
 * Which is used for what: limits go where the controllers are (v1: one directory per controller; v2: one
 * directory). Killing and freezing goes to a v2 directory, which needs no controllers; on a hybrid host both
 * are in use.
 */
#ifndef KERNEL_CGROUP_H
#define KERNEL_CGROUP_H

#include <sys/types.h>

#include "base/fault.h"
#include "base/macro.h"
#include "base/pack.h"

enum cgroup_controller {
	CGROUP_MEMORY,
	CGROUP_PIDS,
	CGROUP_CPU,
	CGROUP_CPUACCT,	/* v1 without a v2 tree only; that counts always */
	CGROUP_N_CONTROLLERS,
};
#define CGROUP_BIT(controller) (1U << (controller))

/* Where groups can be made. Flat, so that it travels in the plan. */
struct cgroup_layout {
	uint32_t limits_version;	/* 0: no limits possible, see reason; 1; 2 */
	uint32_t controllers;		/* CGROUP_BIT()s that can be used, limits_version 1 or 2 */
	char limits_dir[CGROUP_N_CONTROLLERS][512];	/* absolute; v2: all the same */
	char tree_dir[512];		/* v2 directory for kill and freeze; "" when there is none */
	uint32_t has_kill;		/* cgroup.kill is there (Linux 5.14) */
	char reason[256];	/* why limits or the tree are not possible; "" when both are */
	char remedy[256];
};
/* Library. What this process could use. Reads only (access(2), no trial groups). Always fills *ret.
 * 0, or -ENOMEM: then what was found is less than there is. */
int cgroup_detect(struct cgroup_layout *ret);
/* The same from other files than those of /proc/self: for tests of hosts that are not this one. */
int cgroup_detect_by(const char *mountinfo, const char *own, struct cgroup_layout *ret);
void cgroup_layout_pack(struct pack_writer *writer, const struct cgroup_layout *layout);
void cgroup_layout_unpack(struct pack_reader *reader, struct cgroup_layout *ret);

struct cgroup_limits {
	uint64_t memory_bytes;	/* 0: none; swap is held to the same sum where the kernel counts it */
	uint64_t pids;		/* 0: none */
	uint64_t cpu_millis;	/* thousandths of one cpu; 0: none */
};

/* A group, which is up to five directories of one name. Descriptors are -EBADF where there is none. */
struct cgroup_group {
	char name[64];
	uint32_t version;	/* of the limits, 0 when it has none */
	int parent_fds[CGROUP_N_CONTROLLERS];	/* v2: only [0] */
	int dir_fds[CGROUP_N_CONTROLLERS];
	/* Opened for writing by the maker: they work after a change of ids too. */
	int join_fds[CGROUP_N_CONTROLLERS];
	int tree_parent_fd;
	int tree_fd;		/* v2: may be a copy of dir_fds[0] */
	int tree_join_fd;
	bool has_kill;
};
#define CGROUP_GROUP_INIT                                                                                    \
	((struct cgroup_group){                                                                              \
		.parent_fds = { -EBADF, -EBADF, -EBADF, -EBADF },                                            \
		.dir_fds = { -EBADF, -EBADF, -EBADF, -EBADF },                                               \
		.join_fds = { -EBADF, -EBADF, -EBADF, -EBADF },                                              \
		.tree_parent_fd = -EBADF, .tree_fd = -EBADF, .tree_join_fd = -EBADF })

/* 0 or a negative abox code with *fault set; what was made is undone on failure. Name: no slash, not "." or
 * "..". v2: controllers that the parent does not pass on yet are switched on there, which stays (others may
 * use them by then). */
int cgroup_create(
	const struct cgroup_layout *layout, const char *name, struct cgroup_group *ret, struct fault *fault);
/* The same in two steps. cgroup_begin() makes what a process is born into: the v2 directory, where there is one.
 * cgroup_complete() makes the rest, which is joined later: the directories of v1. cgroup_has_rest() tells whether there is
 * any. A failure of the second leaves the group as it was after the first. */
int cgroup_begin(
	const struct cgroup_layout *layout, const char *name, struct cgroup_group *ret, struct fault *fault);
int cgroup_complete(const struct cgroup_layout *layout, struct cgroup_group *group, struct fault *fault);
bool cgroup_has_rest(const struct cgroup_layout *layout);
/* A group below `parent` for one command: only in the v2 tree (kill, freeze, cpu time), without limits of its
 * own. */
int cgroup_create_child(const struct cgroup_group *parent, const char *name, struct cgroup_group *ret,
	struct fault *fault);
/* Takes a group again after a restart (for clearing away); ABOX_E_NOT_FOUND when no directory of it is left.
 */
int cgroup_open(
	const struct cgroup_layout *layout, const char *name, struct cgroup_group *ret, struct fault *fault);
void cgroup_close(struct cgroup_group *group);	/* descriptors only; the group stays */
int cgroup_set_limits(
	const struct cgroup_group *group, const struct cgroup_limits *limits, struct fault *fault);

/* Joining at birth. The clone side: cgroup_clone_fd() for CLONE_INTO_CGROUP (v2 tree), or -EBADF. The child
 * side: cgroup_join() writes "0" to the rest (v1 `tasks`: the calling *thread*, so only from a
 * single-threaded process; moving a pid from outside costs 7-16 ms). in_tree: the clone already put us into
 * the v2 directory. */
int cgroup_clone_fd(const struct cgroup_group *group);
/* CLONE_INTO_CGROUP by a process of these ids, from a process in `group` into it and into groups below it,
 * which need the same. Gives them the list of processes and nothing else. */
int cgroup_allow_clone(const struct cgroup_group *group, uid_t uid, gid_t gid, struct fault *fault);
int cgroup_join(const struct cgroup_group *group, bool in_tree, struct fault *fault);
/* What joins the rest, for a process that has not got the group: descriptors for cgroup_join_by(), which are the group's.
 * The kernel demands that the one that writes has, as its own or its saved one, the user id of who opened them, or
 * that this was root. */
size_t cgroup_join_fds(const struct cgroup_group *group, int retfds[CGROUP_N_CONTROLLERS]);
int cgroup_join_by(const int *fds, size_t n_fds, struct fault *fault);

struct cgroup_stats {
	uint32_t has_memory, has_pids, has_cpu;	/* which of the following mean something */
	uint64_t memory_bytes, memory_peak_bytes;
	uint64_t n_oom_kills;	/* the evidence for "memory"; failcnt is none */
	uint64_t n_pids, n_pids_denied;	/* denied forks: the evidence for "pids" */
	uint64_t cpu_usec;
};
int cgroup_read(const struct cgroup_group *group, struct cgroup_stats *ret);	/* 0 or -errno */
/* Only n_oom_kills and n_pids_denied, which are read around every command. */
int cgroup_read_evidence(const struct cgroup_group *group, struct cgroup_stats *ret);

int cgroup_freeze(const struct cgroup_group *group, bool frozen, uint64_t timeout_usec, struct fault *fault);
/* Kills everything in the group and its children. v2 with cgroup.kill: one write. Otherwise pids.max=0 and a
 * kill loop, bounded by the timeout (ABOX_E_TIMEOUT). A group that was killed is not used again: kernels up
 * to 6.18 at least kill whoever is cloned into it later. */
int cgroup_kill(const struct cgroup_group *group, uint64_t timeout_usec, struct fault *fault);
bool cgroup_is_populated(const struct cgroup_group *group);
/* Kills, then removes the group with all groups below it. ABOX_E_LEFT_BEHIND names what stayed. Closes
 * *group. */
int cgroup_remove(struct cgroup_group *group, uint64_t timeout_usec, struct fault *fault);

#endif
