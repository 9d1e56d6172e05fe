/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef KERNEL_SECCOMP_TABLE_H
#define KERNEL_SECCOMP_TABLE_H

#include "base/macro.h"

/* What the filter does with a call. The first three need no arguments. */
enum filter_action {
	ACTION_ENOSYS = 0,	/* as if the kernel did not have it, so that libraries fall back */
	ACTION_EPERM,
	ACTION_ALLOW,
	ACTION_CLONE,		/* no new namespaces */
	ACTION_IOCTL,		/* not those that type for others or change line disciplines */
	ACTION_SELF,		/* first argument (a pid) is 0 */
	ACTION_PRIORITY,	/* setpriority: process or group, of the caller */
	ACTION_IOPRIO,		/* ioprio_set: the same */
	ACTION_SOCKET,		/* families, types, protocols */
	ACTION_SOCKETPAIR,	/* AF_UNIX */
	ACTION_PERSONALITY,	/* harmless values */
	N_ACTIONS,
};

struct filter_entry {
	const char *name;
	enum filter_action action;
	bool allowable;		/* the spec may allow it by name */
	int number;		/* 0: libseccomp knows it; else the same on every architecture (424 and up) */
};

/* Every system call that gets another answer than ENOSYS, or may get one. In no order. */
extern const struct filter_entry filter_table[];
extern const size_t n_filter_table;

/* Number of an entry on the architecture that we run on, negative when it does not exist there. */
int filter_number_of(const struct filter_entry *entry);
const struct filter_entry *filter_find(const char *name);

/* Values that the argument checks compare with; the tests read them too. */
#define FILTER_CLONE_NEW 0x7e020000U	/* NEWNS NEWCGROUP NEWUTS NEWIPC NEWUSER NEWPID NEWNET */
extern const uint32_t filter_ioctls_denied[];
extern const size_t n_filter_ioctls_denied;
extern const uint32_t filter_inet_protocols[];
extern const size_t n_filter_inet_protocols;
extern const uint32_t filter_personalities[];
extern const size_t n_filter_personalities;

#endif
