/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A bound on bytes and inodes for what a box adds to a workspace of layers. Its upper lies on a filesystem of that size
 * as long as the box lives: root's is an ext4 in the file "image" of the live layer, mounted by nobody but who needs it,
 * behind a loop device that goes with the mount. What survives is copied into the live layer (workspace_replace_live()),
 * which costs what was changed. So at rest every layer is a plain folder: forks and snapshots share them as ever, nothing
 * is mounted and no device is taken.
 *
 * An image that is there without a box is what one has written of which everything was killed. Whoever locks the
 * workspace next takes it in (workspace_lock()), as if it had been written into the live layer; that is one replacement
 * of the record, after which the old live layer goes with its image. A machine that goes down loses it as it loses a
 * live layer that was not synced.
 *
 * A workspace may have a limit of its own. It counts what each snapshot has added above its base and what has come since
 * (of a fork: above the snapshot that it came from, which is its parent's), so a box gets what is left of it.
 */
#ifndef WORKSPACE_QUOTA_H
#define WORKSPACE_QUOTA_H

#include <errno.h>

#include "workspace/store.h"

enum quota_kind {
	QUOTA_GUEST,	/* this process cannot mount: the guest of the box makes a tmpfs */
	QUOTA_MEMORY,	/* a tmpfs: lost when everything is killed */
	QUOTA_IMAGE,	/* an ext4 on a loop device, in a file of the live layer */
};
const char *quota_kind_word(enum quota_kind kind);
enum quota_kind quota_kind_of_word(const char *word);
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
int quota_open(abox_workspace *workspace, enum quota_kind kind, uint64_t limit_bytes, uint64_t limit_inodes, struct layer_stack *stack,
	struct quota *ret, abox_error **reterr);

/* What a box has written lies in an image of the live layer. */
bool quota_is_there(const abox_workspace *workspace);
/* The same, but the box was killed: it is not this handle that has opened it. */
bool quota_is_left(const abox_workspace *workspace);
/* Takes it in. Locked exclusively. */
int quota_take_left(abox_workspace *workspace, abox_error **reterr);
/* Throws it away: nothing was written. Locked exclusively. */
int quota_drop(abox_workspace *workspace, abox_error **reterr);
/* Puts the mount into the live layer's folder, in the mount namespace of the caller, which is a private one: the kernel
 * may want layers that are attached. The two folders as paths. */
int quota_attach(const abox_workspace *workspace, const struct quota *quota, char **retupper, char **retwork,
	struct fault *fault);

/* What counts against the limit of the workspace. */
int quota_used(abox_workspace *workspace, uint64_t *retbytes, uint64_t *retinodes, abox_error **reterr);
/* Makes *bytes and *inodes no more than what is left of the workspace's own limit. Layers that no snapshot names are
 * merged first where the disk holds more than the limit: some of it must be hidden. Locked exclusively; with `looks`
 * nothing is merged, and no lock is needed. ABOX_E_NOSPACE when hardly anything is left. */
int quota_left(abox_workspace *workspace, bool looks, uint64_t *bytes, uint64_t *inodes, abox_error **reterr);
/* 0 bytes or inodes: no limit. ABOX_E_LIMIT when more is there already. Locked exclusively. */
int quota_set(abox_workspace *workspace, uint64_t limit_bytes, uint64_t limit_inodes, abox_error **reterr);

#endif
