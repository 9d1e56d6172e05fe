/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Workspace: the files that a task works on, kept as layers. Each workspace is private to one user of the host and to
 * one task; nothing but its files survives in it.
 *
 * A workspace works without a sandbox: it can be made, kept, forked and compared alone. It lies below
 * $XDG_STATE_HOME/agentbox (root: /var/lib/agentbox; ABOX_HOME/state where that is set), closed to other users.
 *
 * What it is made of: the base (nothing, a folder that stays where it is and is only read, or a copy), frozen layers
 * with what was changed up to each snapshot, and the live layer with what changed since. A snapshot or fork takes the
 * same short time whatever the size of the tree; before a snapshot is told as done, the change was read to the last
 * byte and is on the disk, which takes time in proportion to the change. A crash at any point leaves the old state or
 * the new one; what it left beside, abox_workspace_gc() finds.
 *
 * Workspaces without overlay (ABOX_WORKSPACE_NO_OVERLAY) and those of mode direct have one whole tree instead: their
 * snapshots are copies of it, and take time in proportion to the tree.
 */
#ifndef AGENTBOX_WORKSPACE_H
#define AGENTBOX_WORKSPACE_H

#include <agentbox/error.h>
#include <agentbox/spec.h>
#include <agentbox/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a workspace begins with. */
enum abox_source_kind {
	ABOX_SOURCE_EMPTY = 0,
	ABOX_SOURCE_DIR = 1,		/* a folder of the host */
	ABOX_SOURCE_TAR = 2,		/* an archive: tar or tar.gz */
	ABOX_SOURCE_SNAPSHOT = 3	/* a snapshot: its id, its name, or WORKSPACE:SNAPSHOT */
};

enum {
	ABOX_WORKSPACE_NO_OVERLAY = 1 << 0	/* mode copy: whole trees, for hosts where no overlay can be mounted */
};

struct abox_workspace_options {
	size_t size;			/* sizeof(struct abox_workspace_options) */
	uint32_t source_kind;		/* enum abox_source_kind */
	uint32_t mode;			/* enum abox_workspace_mode (spec.h); a fork is as what it comes from */
	uint32_t flags;
	const char *source;		/* folder, archive or snapshot; NULL for ABOX_SOURCE_EMPTY */
	const char *name;		/* unique among the user's workspaces; may be NULL */
	const char *task;		/* id of the task it belongs to; may be NULL */
	uint64_t ttl_usec;		/* gc removes it when it is older; 0: it stays until it is removed */
	abox_progress_fn progress;	/* may be NULL; an end by it leaves nothing behind */
	void *progress_userdata;
	uint64_t max_bytes;		/* of content that is unpacked or copied; 0: an archive's 64 GiB, else any */
	uint64_t max_files;		/* likewise; 0: an archive's ten million, else any */
	uint64_t limit_bytes;		/* as of abox_workspace_set_limit() */
	uint64_t limit_files;
};
#define ABOX_WORKSPACE_OPTIONS_INIT { sizeof(struct abox_workspace_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** abox_workspace_options_init() - as ABOX_WORKSPACE_OPTIONS_INIT, for bindings. Threads: any. Since: 0.1 */
ABOX_API void abox_workspace_options_init(struct abox_workspace_options *options);

/**
 * abox_workspace_create() - make a workspace
 * @options:   borrowed
 * @ret:       released with abox_workspace_unref(); the workspace stays
 * @reterr:    may be NULL
 *
 * Mode overlay: the folder stays as it is, and must not be changed elsewhere while the workspace is in use. Mode copy:
 * the folder is copied (bytes are shared where the filesystem can); devices, sockets, set-id bits, capabilities and
 * what is mounted below are left out; when root copies, files that belong to others than the folder's owner become
 * nobody's. Mode direct: the folder itself is the workspace.
 *
 * An archive is unpacked as a whole, and belongs to the user of the box, or is refused as a whole: names that lead outside or through links, names that come
 * twice, devices, hard links to what is not in it, more than 64 GiB or ten million files.
 *
 * Effects:  on the host: the store; the source is only read
 * Threads:  any
 * Return:   0, ABOX_E_INVALID, ABOX_E_NOT_FOUND (source), ABOX_E_EXISTS (name), ABOX_E_CONFLICT (several snapshots of
 *           that name), ABOX_E_DENIED (the folder holds the store; the archive is hostile), ABOX_E_ESCAPE, ABOX_E_LIMIT,
 *           ABOX_E_SYNTAX, ABOX_E_UNSUPPORTED (archive), ABOX_E_PERMISSION, ABOX_E_NOSPACE,
 *           ABOX_E_CANCELED, ABOX_E_BUSY, ABOX_E_DAMAGED, ABOX_E_IO, ABOX_E_SYSTEM, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_workspace_create(
	const struct abox_workspace_options *options, abox_workspace **ret, abox_error **reterr);

/**
 * abox_workspace_open() - a handle for a workspace that is there
 * @ref:       id or name
 * @ret:       released with abox_workspace_unref()
 * @reterr:    may be NULL
 *
 * Threads:  any
 * Return:   0, ABOX_E_INVALID, ABOX_E_NOT_FOUND, ABOX_E_DAMAGED, ABOX_E_UNSUPPORTED (made by a newer release),
 *           ABOX_E_PERMISSION, ABOX_E_SYSTEM, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_workspace_open(const char *ref, abox_workspace **ret, abox_error **reterr);

/** abox_workspace_ref() - one more owner; takes NULL. Threads: any. Return: workspace. Since: 0.1 */
ABOX_API abox_workspace *abox_workspace_ref(abox_workspace *workspace);
/** abox_workspace_unref() - one owner less; the workspace itself stays. Takes NULL. Threads: any. Return: NULL. Since: 0.1 */
ABOX_API abox_workspace *abox_workspace_unref(abox_workspace *workspace);

/** abox_workspace_get_id() - 32 hexadecimal digits, owned by the handle; NULL for NULL. Threads: one. Since: 0.1 */
ABOX_API const char *abox_workspace_get_id(const abox_workspace *workspace);
/** abox_workspace_get_name() - its name, owned by the handle; NULL when it has none. Threads: one. Since: 0.1 */
ABOX_API const char *abox_workspace_get_name(const abox_workspace *workspace);

/**
 * abox_workspace_dump() - all that is recorded of a workspace, as a JSON object
 * @workspace: borrowed
 * @retjson:   {"id","name","task","mode","whole_copy","flavour","ids","created_usec","ttl_usec","base","live","parent",
 *             "head","limit_bytes","limit_inodes","snapshots":[{"id","name","layer","parent","created_usec","ttl_usec","entries","bytes"}]};
 *             abox_free()
 * @reterr:    may be NULL
 *
 * Members without a value are left out. The record is read anew.
 *
 * Threads:  one
 * Return:   0, ABOX_E_INVALID, ABOX_E_NOT_FOUND (it was removed), ABOX_E_DAMAGED, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_workspace_dump(abox_workspace *workspace, char **retjson, abox_error **reterr);

/**
 * abox_workspace_list() - all workspaces of this user, as a JSON array of what abox_workspace_dump() gives
 * @retjson:   abox_free()
 * @reterr:    may be NULL
 *
 * Threads:  any
 * Return:   0, ABOX_E_INVALID, ABOX_E_PERMISSION, ABOX_E_SYSTEM, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_workspace_list(char **retjson, abox_error **reterr);

/**
 * abox_workspace_tree() - who descends from whom, as a JSON array
 * @retjson:   {"kind":"snapshot"|"workspace","id","name","parent","workspace","origin","created_usec",...}: a snapshot
 *             names the snapshot that it came after, a workspace the one that its live layer lies above; abox_free()
 * @reterr:    may be NULL
 *
 * A parent that is not in the list was removed; what descends from it is whole all the same.
 *
 * Threads:  any
 * Return:   0, ABOX_E_INVALID, ABOX_E_PERMISSION, ABOX_E_SYSTEM, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_workspace_tree(char **retjson, abox_error **reterr);

/**
 * abox_workspace_set_limit() - how much a workspace may hold beside what it began with
 * @workspace:    borrowed; no box may have it in use
 * @limit_bytes:  0: no limit
 * @limit_files:  files and folders; 0: no limit
 * @reterr:       may be NULL
 *
 * What counts is what each snapshot has added, and what has come since; of a fork, not what its parent had. A box that
 * uses the workspace gets what is left of it, or less where its spec says so, and is refused with ABOX_E_NOSPACE when nothing is left; inside, what
 * does not fit is answered ENOSPC. The plan says what enforces that on this host, or that nothing does. Files that are
 * written from outside (abox_file_write() and others) are not refused; they count.
 *
 * Effects:  on the host: the record of the workspace
 * Threads:  one
 * Return:   0, ABOX_E_INVALID, ABOX_E_LIMIT (it holds more already), ABOX_E_UNSUPPORTED (mode direct, or without
 *           overlay: there is no layer that could be bounded), ABOX_E_BUSY, ABOX_E_NOT_FOUND, ABOX_E_DAMAGED, ABOX_E_IO,
 *           ABOX_E_SYSTEM, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_workspace_set_limit(
	abox_workspace *workspace, uint64_t limit_bytes, uint64_t limit_files, abox_error **reterr);

enum {
	ABOX_SNAPSHOT_DEFER_MERGE = 1 << 0	/* layers that have become many are left to the next gc */
};

struct abox_snapshot_options {
	size_t size;			/* sizeof(struct abox_snapshot_options) */
	uint32_t flags;
	uint32_t keep_last;		/* of the snapshots without a name, only so many stay; 0: all */
	const char *name;		/* unique within the workspace; may be NULL */
	uint64_t ttl_usec;		/* gc removes it when it is older; 0: it stays */
};
#define ABOX_SNAPSHOT_OPTIONS_INIT { sizeof(struct abox_snapshot_options), 0, 0, 0, 0 }

/** abox_snapshot_options_init() - as ABOX_SNAPSHOT_OPTIONS_INIT, for bindings. Threads: any. Since: 0.1 */
ABOX_API void abox_snapshot_options_init(struct abox_snapshot_options *options);

/**
 * abox_workspace_snapshot() - keep the state as it is now
 * @workspace: borrowed; no box may have it in use
 * @options:   NULL: no name, kept until removed
 * @retid:     id of the snapshot; abox_free(); may be NULL
 * @reterr:    may be NULL
 *
 * When it returns 0, the snapshot is on the disk and every byte of the change was read. Layers that have become more
 * than 16 are merged (without copying content) before it returns, unless that is deferred.
 *
 * Threads:  one
 * Return:   0, ABOX_E_INVALID, ABOX_E_EXISTS (name), ABOX_E_BUSY, ABOX_E_NOT_FOUND, ABOX_E_NOSPACE, ABOX_E_DAMAGED
 *           (the machine went down while it was in use), ABOX_E_IO, ABOX_E_SYSTEM, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_workspace_snapshot(
	abox_workspace *workspace, const struct abox_snapshot_options *options, char **retid, abox_error **reterr);

/**
 * abox_workspace_fork() - a new workspace that begins as a snapshot of another
 * @workspace: borrowed
 * @snapshot:  id or name; NULL takes one first (then no box may have the workspace in use)
 * @options:   name, task, ttl, limits and size count; NULL: none of them
 * @ret:       released with abox_workspace_unref()
 * @reterr:    may be NULL
 *
 * The two share frozen layers and nothing that can change, and a limit counts for each what it has of its own. Of the
 * run before, the fork has the files and nothing else: no environment, no credential, no task. A fork of a workspace of mode direct is one of mode copy.
 *
 * Threads:  one
 * Return:   as abox_workspace_create() and abox_workspace_snapshot()
 * Since:    0.1
 */
ABOX_API int abox_workspace_fork(abox_workspace *workspace, const char *snapshot,
	const struct abox_workspace_options *options, abox_workspace **ret, abox_error **reterr);

/**
 * abox_workspace_restore() - go back to a snapshot; what was changed since the newest one is gone
 * @workspace: borrowed; no box may have it in use
 * @snapshot:  id or name of one of its own
 * @reterr:    may be NULL
 *
 * Later snapshots stay and can be restored as well.
 *
 * Threads:  one
 * Return:   0, ABOX_E_INVALID, ABOX_E_NOT_FOUND, ABOX_E_BUSY, ABOX_E_UNSUPPORTED (mode direct: fork it instead),
 *           ABOX_E_DAMAGED, ABOX_E_NOSPACE, ABOX_E_IO, ABOX_E_SYSTEM, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_workspace_restore(abox_workspace *workspace, const char *snapshot, abox_error **reterr);

/**
 * abox_workspace_verify() - read all that a snapshot is made of, and compare it with what was sealed
 * @workspace: borrowed
 * @snapshot:  id or name
 * @reterr:    names the layer that is not what it was; may be NULL
 *
 * The folder below a workspace of mode overlay belongs to the host and is not part of it.
 *
 * Threads:  one
 * Return:   0, ABOX_E_INVALID, ABOX_E_NOT_FOUND, ABOX_E_DAMAGED, ABOX_E_BUSY, ABOX_E_IO, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_workspace_verify(abox_workspace *workspace, const char *snapshot, abox_error **reterr);

/**
 * abox_workspace_find_snapshot() - look for a snapshot in all workspaces
 * @ref:         its id, WORKSPACE:SNAPSHOT, or a name that only one has
 * @ret:         the workspace that has it; abox_workspace_unref()
 * @retsnapshot: its id; abox_free()
 * @reterr:      may be NULL
 *
 * Threads:  any
 * Return:   0, ABOX_E_INVALID, ABOX_E_NOT_FOUND, ABOX_E_CONFLICT (several), ABOX_E_PERMISSION, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_workspace_find_snapshot(
	const char *ref, abox_workspace **ret, char **retsnapshot, abox_error **reterr);

/**
 * abox_workspace_remove_snapshot() - remove a snapshot; workspaces that were forked from it are not touched
 * @workspace: borrowed; no box may have it in use
 * @snapshot:  id or name
 * @reterr:    may be NULL
 *
 * Its files go when nothing else is made of them.
 *
 * Threads:  one
 * Return:   0, ABOX_E_INVALID, ABOX_E_NOT_FOUND, ABOX_E_BUSY, ABOX_E_IO, ABOX_E_SYSTEM, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_workspace_remove_snapshot(abox_workspace *workspace, const char *snapshot, abox_error **reterr);

/**
 * abox_workspace_remove() - remove a workspace with its snapshots; forks of it are not touched, nor is its source
 * @ref:       id or name
 * @reterr:    may be NULL
 *
 * Threads:  any
 * Return:   0, ABOX_E_INVALID, ABOX_E_NOT_FOUND, ABOX_E_BUSY (a box has it), ABOX_E_DAMAGED, ABOX_E_SYSTEM,
 *           ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_workspace_remove(const char *ref, abox_error **reterr);

/**
 * abox_workspace_gc() - remove what has expired and what crashes have left; merge layers that have become many
 * @retjson:   {"workspaces","snapshots","results","layers","merged","left_behind","unreadable"}: how many of each;
 *             abox_free(); may be NULL
 * @reterr:    may be NULL
 *
 * What is in use is left alone. As long as one record of a workspace cannot be read ("unreadable"), no layer goes.
 *
 * Threads:  any
 * Return:   0, ABOX_E_BUSY, ABOX_E_PERMISSION, ABOX_E_SYSTEM, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_workspace_gc(char **retjson, abox_error **reterr);

#ifdef __cplusplus
}
#endif
#endif
