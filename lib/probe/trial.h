/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a first child in new namespaces can do. For lib/probe alone. */
#ifndef PROBE_TRIAL_H
#define PROBE_TRIAL_H

#include "base/macro.h"

/* Each is 0 when it worked, else the errno; -1 when it was not tried because something before it failed. */
struct trial {
	int clone;
	int map;
	int mount;		/* make private, new tmpfs, attach */
	int proc;
	int overlay;
	int overlay_fd;		/* `lowerdir+` by descriptor */
	int mount_beneath;
	int tmpfs_xattr;
	int setattr;		/* mount_setattr is there */
};

/* A box can be made: what a plan cannot do without has worked. */
bool trial_is_good(const struct trial *trial);

/* 0 or -errno (no memory for the child's stack). */
int trial_run(struct trial *ret);

#endif
