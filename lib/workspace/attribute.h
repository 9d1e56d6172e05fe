/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Extended attributes of a file, by a descriptor that may be O_PATH.
 */
#ifndef WORKSPACE_ATTRIBUTE_H
#define WORKSPACE_ATTRIBUTE_H

#include "base/macro.h"
#include "workspace/store.h"

/* The sorted names, and the values one by one. All answer 0 or a negative errno; a filesystem without attributes has
 * none. */
struct attribute_list {
	char *block;		/* the names as the kernel gave them */
	const char **names;
	size_t n;
};
int attribute_list_read(int fd, struct attribute_list *ret);
void attribute_list_clear(struct attribute_list *list);
int attribute_read(int fd, const char *name, void **retvalue, size_t *retlen);	/* -ENODATA: it went away */
int attribute_write(int fd, const char *name, const void *value, size_t len);

/* Whether an attribute of a host's file may come along: none of overlayfs, no capability, nothing of the security
 * modules, no access list (its ids are the host's). */
bool attribute_is_portable(const char *name);

#endif
