/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Paths longer than the kernel takes at once.
 */
#ifndef WORKSPACE_DEEP_H
#define WORKSPACE_DEEP_H

#include "base/macro.h"

/* The folder that `path` is in, below root_fd, through no link and across no mount, whatever its length: an
 * O_PATH descriptor, and the last part in *retname, which points into path; or -errno (-ELOOP: a link,
 * -EXDEV: outside). */
int deep_open_parent(int root_fd, const char *path, const char **retname);

#endif
