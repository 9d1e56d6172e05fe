/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The store of workspaces, below $XDG_STATE_HOME/agentbox (root: /var/lib/agentbox; ABOX_HOME/state), 0700:
 *
 *	workspaces/ID/workspace.json	the whole truth about one workspace; replaced by rename, so old or new, never a mix
 *	workspaces/ID/names		host names that boxes on it have asked for, in order: keeper/names.c
 *	workspaces/ID/lock		held while the workspace is in use or is changed
 *	layers/LID/{layer.json,data,work}	one layer; shared by every workspace whose chain leads through it
 *	trash/				what is being removed
 *	lock				held for moments, while a record is replaced or gc looks at all of them
 *
 * A layer is live (the upper of one workspace) or frozen (never written again). A frozen layer knows its parent, so a
 * snapshot is the name of one frozen layer, and a fork is a new live layer above it. What no record leads to is
 * garbage. The base may be a folder of the host, which is only referenced.
 */
#ifndef WORKSPACE_STORE_H
#define WORKSPACE_STORE_H

#include <agentbox/workspace.h>

#include "base/macro.h"


#define STORE_FORMAT 1
#define STORE_ID_BYTES 33	/* 32 hexadecimal digits and NUL */
#define STORE_NAME_MAX 128
#define STORE_MERGE_ABOVE 16	/* layers of a chain, the base not counted */

/* In which attributes an overlay keeps its marks. A layer is only ever mounted with its own flavour. */
enum layer_flavour {
	LAYER_TRUSTED = 0,	/* trusted.overlay.* : made by root */
	LAYER_USER = 1,		/* user.overlay.* : made in a user namespace of a plain user */
};

/* Whose ids the files of a layer carry, and whom they stand for. */
enum layer_ids_kind {
	LAYER_IDS_OWN = 0,	/* plain user: every file belongs to owner_uid:owner_gid */
	LAYER_IDS_RANGE = 1,	/* root: id on disk = base + id inside, for ids inside below count */
};
struct layer_ids {
	uint32_t kind;
	uint32_t base;
	uint32_t count;
	uint32_t inside_uid, inside_gid;	/* the user of the box */
	uint32_t owner_uid, owner_gid;		/* whom the user of the box stands for on the host */
};
#define LAYER_RANGE_BASE 1900000000U
#define LAYER_RANGE_COUNT 65536U
#define LAYER_INSIDE_ID 1000U

/* What ids of this process's layers are like, for files that stand for owner_uid:owner_gid on the host. */
void layer_ids_of_process(uint32_t owner_uid, uint32_t owner_gid, struct layer_ids *ret);
bool layer_process_is_root(void);
enum layer_flavour layer_flavour_of_process(void);
/* Id as the box sees it, from the one on disk; UINT32_MAX for one that is not the box's. */
uint32_t layer_uid_inside(const struct layer_ids *ids, uint32_t uid_on_disk);
uint32_t layer_gid_inside(const struct layer_ids *ids, uint32_t gid_on_disk);
/* The other way; ids that the box cannot have become those of its user. */
uint32_t layer_uid_on_disk(const struct layer_ids *ids, uint32_t uid_inside);
uint32_t layer_gid_on_disk(const struct layer_ids *ids, uint32_t gid_inside);

/*
 * What a workspace (or a snapshot) is made of, uppermost first, as O_PATH directories. Whoever reads merges:
 * a name in a higher layer hides the lower one, a whiteout (character device 0:0) hides it without replacement, and a
 * directory whose opaque attribute is "y" hides what lies below it. layer_opaque_name() and so on tell the attributes.
 */
struct layer_stack {
	int top_fd;		/* data of the live upper; -EBADF for a snapshot, whose layers are all in lower_fds */
	int work_fd;		/* the work folder beside it; -EBADF likewise */
	int *lower_fds;
	size_t n_lowers;
	size_t n_base;		/* how many of them, at the end, are the base (0 or 1): changes are what lies above */
	bool base_is_host;	/* the base is a folder of the host: host ids, never written, may have drifted */
	bool is_full;		/* the first layer (top_fd, else lower_fds[0]) is a whole tree: overlay is not in use, what
				 * lies below it is only what it began as */
	enum layer_flavour flavour;
	struct layer_ids ids;	/* of all layers but a base of the host */
};
#define LAYER_STACK_INIT ((struct layer_stack){ .top_fd = -EBADF, .work_fd = -EBADF })
void layer_stack_clear(struct layer_stack *stack);

const char *layer_attribute_prefix(enum layer_flavour flavour);	/* "trusted.overlay." or "user.overlay." */
/* The file in dir_fd is a whiteout. st is from fstatat(AT_SYMLINK_NOFOLLOW). */
struct stat;
bool layer_is_whiteout(const struct stat *st);
/* 1, 0, or a negative errno. dir_fd may be O_PATH. */
int layer_is_opaque(int dir_fd, enum layer_flavour flavour);
/* Sets the mark on a directory of ours: 0 or a negative errno. */
int layer_set_opaque(int dir_fd, enum layer_flavour flavour);
int layer_make_whiteout(int dir_fd, const char *name);

/* The base as it was when the workspace was made. */
enum base_kind {
	BASE_EMPTY = 0,
	BASE_FOLDER = 1,	/* path, device and inode of the host's folder, or of what was copied */
	BASE_ARCHIVE = 2,	/* path and digest */
};
enum workspace_mode {		/* as enum abox_workspace_mode */
	WORKSPACE_OVERLAY = 0,
	WORKSPACE_COPY = 1,
	WORKSPACE_DIRECT = 2,
};
struct workspace_base {
	uint32_t kind;
	char *path;
	uint64_t device, inode;
	char *digest;
	char workspace[STORE_ID_BYTES];	/* a fork: where it comes from, with the base that one had */
	char snapshot[STORE_ID_BYTES];
	/* CLOCK_REALTIME as files get it: a file of the folder whose ctime is later was changed since. */
	int64_t since_sec;
	uint32_t since_nsec;
};

void workspace_unrefp(abox_workspace **workspace);	/* for _cleanup_ */
/* Of an open workspace; borrowed. */
const char *workspace_id(const abox_workspace *workspace);
const struct workspace_base *workspace_base(const abox_workspace *workspace);
enum workspace_mode workspace_mode(const abox_workspace *workspace);

/*
 * The lock of the workspace, for the life of the handle's use: shared to read (diff, export), exclusive to change or
 * mount. Held locks nest; an exclusive one is never taken over a shared one of the same handle. The record is read
 * again. ABOX_E_BUSY names the holder; ABOX_E_NOT_FOUND when it was removed meanwhile.
 */
enum workspace_lock { WORKSPACE_SHARED = 0, WORKSPACE_EXCLUSIVE = 1 };
int workspace_lock(abox_workspace *workspace, enum workspace_lock how, uint64_t timeout_usec, abox_error **reterr);
void workspace_unlock(abox_workspace *workspace);
/* For a helper that goes on holding it: a close-on-exec duplicate of the locked descriptor, or -errno. There the
 * descriptor becomes the lock of a handle that was opened by id; it is consumed on failure too. */
int workspace_lock_fd(const abox_workspace *workspace);
int workspace_adopt_lock(abox_workspace *workspace, int lock_fd_taken, abox_error **reterr);

/* The layers of the live workspace (snapshot NULL) or of one of its snapshots (id or name). Locked by the caller.
 * WORKSPACE_DIRECT: top_fd is the folder itself, nothing below it. ABOX_E_STATE: the base was replaced or is gone;
 * ABOX_E_DAMAGED: a layer is missing or unreadable. */
int workspace_open_stack(abox_workspace *workspace, const char *snapshot, struct layer_stack *retstack, abox_error **reterr);

/*
 * Around the use by a box (or any other writer of the live layer). Locked exclusively. begin marks the live layer as
 * unsynced and gives it a fresh work folder; end puts all of it on the disk and takes the mark away. When the machine
 * goes down in between, the live layer is not trusted any more (ABOX_E_DAMAGED): it may lack what was written.
 */
int workspace_begin_use(abox_workspace *workspace, abox_error **reterr);
int workspace_end_use(abox_workspace *workspace, abox_error **reterr);
/* A snapshot while a box has the workspace mounted and is frozen (or nothing writes): the change is copied, the live
 * layer stays what and where it is. upper_fd: where the change lies, when not in the live layer (see below); else -EBADF.
 * Locked exclusively (by the holder, see workspace_adopt_lock()). */
struct abox_snapshot_options;
int workspace_snapshot_in_use(abox_workspace *workspace, int upper_fd, const struct abox_snapshot_options *options,
	char retid[STORE_ID_BYTES], abox_error **reterr);
/* The tree as one detached mount: an overlay, or a clone where there is but one layer. `overlay_flags` and `attributes`
 * are those of kernel/mount.h; flavour and read-only (a snapshot) follow from the stack. For a box of root, whoever
 * calls it puts an idmapped mount in the place of a base of the host first. The kernel wants layers that were opened in
 * the caller's own mount namespace. */
struct fault;
int layer_stack_mount(const struct layer_stack *stack, uint32_t overlay_flags, uint32_t attributes, int *retmount_fd,
	struct fault *fault);

/*
 * An upper that lies elsewhere (a bounded one: workspace/quota.h) becomes the live layer: it is copied with
 * its marks and ids, and takes the place of the old live layer in one replacement of the record. upper_fd is readable,
 * and of the workspace's flavour; `unsettled`: the use by the box, which was killed, is still to be ended. Before such
 * a box begins, workspace_push() puts what the live layer holds below an empty one, without a snapshot, so that it is among the lower layers. Both: mode overlay or copy with overlay, locked
 * exclusively.
 */
int workspace_push(abox_workspace *workspace, abox_error **reterr);
int workspace_replace_live(abox_workspace *workspace, int upper_fd, bool unsettled, abox_error **reterr);

/* The same layers as absolute paths, for a process that opens them in a mount namespace of its own. */
struct layer_paths {
	char *top, *work;	/* NULL for a snapshot, work also in mode direct */
	char **lowers;		/* as lower_fds of the stack */
	size_t n_lowers;
};
int layer_stack_paths(const struct layer_stack *stack, struct layer_paths *ret, abox_error **reterr);
void layer_paths_clear(struct layer_paths *paths);

/* A private folder in the workspace for work that is put in place by rename (undo journals, staged imports); made when
 * missing, a readable directory. It survives crashes: whoever uses it looks for what an earlier one left. */
int workspace_open_stage(abox_workspace *workspace, const char *name, int *retfd, abox_error **reterr);

/*
 * New layers. A layer under construction is locked, so that gc leaves it alone, until workspace_new_take_layer() has
 * made it the base of a new workspace, or layer_build_clear() has removed it.
 */
struct layer_build {
	char id[STORE_ID_BYTES];
	int store_fd;
	int lock_fd;
	int dir_fd;
	int data_fd;		/* readable; what is put in here becomes the content */
	enum layer_flavour flavour;
	struct layer_ids ids;
};
#define LAYER_BUILD_INIT ((struct layer_build){ .store_fd = -EBADF, .lock_fd = -EBADF, .dir_fd = -EBADF, .data_fd = -EBADF })
int layer_build_begin(struct layer_build *ret, abox_error **reterr);
void layer_build_clear(struct layer_build *build);	/* removes what was not taken */

/* A new workspace whose base is the layer, which is synced, verified and frozen first (import and archives). name and
 * task may be NULL; ttl_usec 0: stays until removed. The layer is consumed on success. */
struct workspace_new {
	const char *name;
	const char *task;
	uint64_t ttl_usec;
	struct workspace_base base;	/* borrowed */
};
int workspace_new_from_layer(const struct workspace_new *options, struct layer_build *build, abox_workspace **ret,
	abox_error **reterr);

#endif
