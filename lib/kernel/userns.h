/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * User namespaces: writing the id maps, and namespaces that only serve as a map for idmapped mounts.
 * Helper code. 0, or a negative abox code with *fault set.
 */
#ifndef KERNEL_USERNS_H
#define KERNEL_USERNS_H

#include <sys/types.h>

#include "base/fault.h"
#include "base/macro.h"

struct id_range {
	uint32_t inside;
	uint32_t outside;
	uint32_t count;
};
#define USERNS_MAX_RANGES 8	/* far below the kernel's 340 */

/* Maps of the user namespace of `pid` (0: the caller's own). An unprivileged writer maps one id, its own, and
 * has setgroups denied; that is done whenever deny_setgroups is true. A privileged one writes any ranges. */
int userns_write_maps(pid_t pid, const struct id_range *uids, size_t n_uids, const struct id_range *gids,
	size_t n_gids, bool deny_setgroups, struct fault *fault);

/* The same through the set-uid programs newuidmap and newgidmap, for ranges of /etc/subuid and /etc/subgid.
 * Forks and waits; for single-threaded helpers. ABOX_E_UNSUPPORTED when the programs are not installed. */
int userns_write_maps_by_tool(pid_t pid, const struct id_range *uids, size_t n_uids,
	const struct id_range *gids, size_t n_gids, struct fault *fault);
/* True when both programs are in the usual folders. */
bool userns_has_tools(void);

/* A user namespace with these maps and nobody in it, for mount_idmap(). Needs CAP_SETUID and CAP_SETGID. */
int userns_new_idmap(const struct id_range *uids, size_t n_uids, const struct id_range *gids, size_t n_gids,
	int *retuserns_fd, struct fault *fault);

/* The same without waiting for the process that made it, which is about to die: its end can take longer than all the
 * rest. *holder is what has to be ended, on failure too. */
struct userns_holder {
	int pidfd;
	char *stack;	/* NULL: nothing is to be ended */
};
int userns_begin_idmap(const struct id_range *uids, size_t n_uids, const struct id_range *gids, size_t n_gids,
	int *retuserns_fd, struct userns_holder *holder, struct fault *fault);
void userns_holder_end(struct userns_holder *holder);

#endif
