/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What this process can do on this host, found out by trying: the plan is made from it and abox_probe() shows
 * it.
 */
#ifndef PROBE_FACTS_H
#define PROBE_FACTS_H

#include <agentbox/error.h>

#include "base/macro.h"
#include "kernel/cgroup.h"
#include "kernel/userns.h"
#include "probe/verdict.h"

/* How the ids of a box can be mapped. */
enum userns_mode {
	USERNS_NONE = 0,	/* no user namespace: blocker says why */
	USERNS_SINGLE,		/* the caller's own id, as one id inside */
	USERNS_TOOLS,		/* ranges of /etc/subuid by newuidmap and newgidmap */
	USERNS_ROOT,		/* any range of the whole 32 bits, written directly */
};

/* The way to kill a command's whole tree (facts.kill): all are sound, the cheapest that the host has is taken. */
enum kill_way {
	KILL_PIDNS = 0,		/* a pid namespace per command */
	KILL_SCOPE,		/* shepherd in a Landlock signal scope */
	KILL_CGROUP2,		/* cgroup.kill */
};

struct host_facts {
	uint32_t uid, gid;		/* effective */
	bool is_root;			/* uid 0 with CAP_SYS_ADMIN, SETUID, SETGID in its user namespace */
	bool in_userns;			/* this process itself is not in the initial user namespace */
	uint64_t caps;			/* effective */
	char release[65];
	uint32_t version_major, version_minor;
	char arch[16];

	enum userns_mode userns;
	struct id_range subuid, subgid;	/* USERNS_TOOLS: the first range of 65536 and up; inside = 0 */
	bool namespaces;		/* all of a box can be made together */
	bool proc_mount;		/* a new proc can be mounted in them */
	char blocker[256];		/* why the namespaces wall cannot be used; "" when it can */
	char remedy[256];

	bool new_mount_api;
	bool openat2;
	bool overlay;			/* overlay with upper can be mounted the way our box would do it */
	bool overlay_fd;		/* layers by descriptor (lowerdir+) */
	bool idmap;			/* idmapped mounts: root only, and depending on the filesystem */
	bool mount_beneath;
	bool tmpfs_xattr;		/* user.* attributes on tmpfs (6.6) */
	int landlock_abi;
	bool seccomp;
	bool outer_seccomp;		/* a filter is on this process already */
	bool time_ns;

	struct cgroup_layout cgroup;
	enum kill_way kill;

	bool no_memory;			/* something could not be read for lack of it */
};

/* Reads and tries; changes nothing on the host (what it tries happens in a child process that ends before it
 * returns and that the host's wait(-1) does not see). About a millisecond. What cannot be found out is false.
 * 0, ABOX_E_MEMORY, ABOX_E_SYSTEM when not even the child could be tried. */
int host_facts_read(struct host_facts *ret, abox_error **reterr);
/* The same, but what was tried before need not be tried again (probe/verdict.h). */
int host_facts_recall(struct host_facts *ret, struct verdict *verdict, abox_error **reterr);

/* Whether files of the filesystem at fd can be shown with other ids (USERNS_ROOT only). */
bool host_facts_can_idmap(int dir_fd, struct verdict *verdict);

#endif
