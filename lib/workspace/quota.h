/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A bound on bytes and inodes for what a box adds to a workspace of layers: its upper lies on a filesystem of that size
 * as long as the box lives, and what survives is copied into the live layer (workspace_replace_live()), which costs what
 * was changed. Layers below are of the store and are not written, so forks and snapshots share them as ever.
 *
 * Nothing of it has a name: when nobody holds the mount any more it is gone, however the processes have ended. What was
 * written since the start is lost then, and the workspace is what it was before.
 */
#ifndef WORKSPACE_QUOTA_H
#define WORKSPACE_QUOTA_H

#include <errno.h>

#include "workspace/store.h"

enum quota_kind {
	QUOTA_GUEST,	/* this process cannot mount: the guest of the box makes a tmpfs */
	QUOTA_MEMORY,	/* a tmpfs */
	QUOTA_IMAGE,	/* an ext4 on a loop device, in a file of the store's disk */
};
/* The strongest that this process can have, and why it is not an image (NULL when it is). */
enum quota_kind quota_kind_here(const char **retwhy);

struct quota {
	int mount_fd;	/* an overlay can be laid on it as long as this is open */
	int upper_fd;	/* readable */
};
#define QUOTA_INIT ((struct quota){ -EBADF, -EBADF })
void quota_clear(struct quota *quota);

/* Puts an empty bounded upper in the place of the live layer's, which must be empty (workspace_push()). Not for
 * QUOTA_GUEST. */
int quota_open(const abox_workspace *workspace, uint64_t limit_bytes, uint64_t limit_inodes, struct layer_stack *stack,
	struct quota *ret, abox_error **reterr);

#endif
