/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Landlock layers: a second, independent limit on which files a process tree reaches, and scopes for signals
 * and abstract sockets. Helper code. A landlocked process cannot mount: commands and shepherds are
 * restricted, the guest never.
 *
 * Every layer, a scope-only one too, handles REFER and grants it where files may be reached; a layer that did
 * not would turn each rename or link between directories into EXDEV (git, npm and mv depend on them).
 */
#ifndef KERNEL_LANDLOCK_H
#define KERNEL_LANDLOCK_H

#include "base/fault.h"
#include "base/macro.h"

enum {
	LANDLOCK_READ = 1 << 0,		/* files and directories */
	LANDLOCK_EXEC = 1 << 1,
	LANDLOCK_WRITE = 1 << 2,	/* write, truncate, make, remove, rename and link below */
	LANDLOCK_DEVICE = 1 << 3,	/* ioctl on devices */
	LANDLOCK_RO = LANDLOCK_READ | LANDLOCK_EXEC,
	LANDLOCK_RW = LANDLOCK_READ | LANDLOCK_EXEC | LANDLOCK_WRITE,
};
enum {
	LANDLOCK_SCOPE_SIGNALS = 1 << 0,
	LANDLOCK_SCOPE_ABSTRACT_SOCKETS = 1 << 1,
};

struct landlock_rule {
	int fd;			/* O_PATH descriptor of a file or directory; negative: open `path` */
	const char *path;
	uint32_t access;
};

/* The ABI of this kernel, 1 and up; 0 when there is none (not built in, not enabled, or refused by a filter).
 */
int landlock_abi(void);

/* A ruleset with these grants; everything else is denied. What the ABI cannot tell apart is not handled
 * (TRUNCATE before ABI 3, devices before 5), which never grants less than asked for; before ABI 2 a layer is
 * refused (ABOX_E_UNSUPPORTED), as is a scope before ABI 6. */
int landlock_new(const struct landlock_rule *rules, size_t n_rules, uint32_t scopes, int *retruleset_fd,
	struct fault *fault);
/* No limit on files, only scopes. root_fd is the root directory, on which everything is granted. */
int landlock_new_scope(int root_fd, uint32_t scopes, int *retruleset_fd, struct fault *fault);
/* From here on, for the calling thread and what it starts. Needs no_new_privs or CAP_SYS_ADMIN. */
int landlock_restrict(int ruleset_fd, struct fault *fault);

#endif
