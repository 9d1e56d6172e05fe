/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Changes: what a box did to the files of its workspace, and what becomes of it. A change set is frozen once made and
 * may be shared freely; its digest is what journal and report cite.
 *
 * Nothing here ever runs a program, git least of all: what lies in a workspace may want exactly that.
 */
#ifndef AGENTBOX_CHANGE_H
#define AGENTBOX_CHANGE_H

#include <agentbox/error.h>
#include <agentbox/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct abox_changes abox_changes;

/** enum abox_change_kind - what happened to a path */
enum abox_change_kind {
	ABOX_CHANGE_ADDED = 1,
	ABOX_CHANGE_MODIFIED = 2,	/* content of a file, or target of a link; its mode may differ too */
	ABOX_CHANGE_DELETED = 3,
	ABOX_CHANGE_TYPE = 4,		/* a file became a link, a folder a file and so on */
	ABOX_CHANGE_MODE = 5		/* the permission bits alone */
};

/** enum abox_file_type - 0 means that there is nothing */
enum abox_file_type {
	ABOX_FILE_NONE = 0,
	ABOX_FILE_REGULAR = 1,
	ABOX_FILE_FOLDER = 2,
	ABOX_FILE_LINK = 3,
	ABOX_FILE_FIFO = 4,
	ABOX_FILE_SOCKET = 5,
	ABOX_FILE_DEVICE = 6
};

/** struct abox_change - one path of a change set; texts belong to the set */
struct abox_change {
	size_t size;			/* sizeof(struct abox_change), set by the caller */
	const char *path;		/* below the workspace; bytes, not always UTF-8 */
	const char *other_path;		/* added: the deleted file it was, when the content is the same; deleted: the
					 * added one it became; else NULL */
	int kind;
	int type;			/* now; enum abox_file_type */
	int old_type;
	uint32_t mode;
	uint32_t old_mode;
	uint64_t size_bytes;
	uint64_t old_size_bytes;
	const char *digest;		/* SHA-256 in hexadecimal of a regular file, or NULL */
	const char *old_digest;
	const char *risk;		/* the first class of what would run on the host, or NULL; the dump has all */
};

/**
 * abox_changes_ref() - one more owner; returns @changes. Threads: any. Since: 0.1
 */
ABOX_API abox_changes *abox_changes_ref(abox_changes *changes);
/** abox_changes_unref() - let go; NULL is fine; returns NULL. Threads: any. Since: 0.1 */
ABOX_API abox_changes *abox_changes_unref(abox_changes *changes);
/** abox_changes_get_count() - how many paths changed; 0 for NULL. Threads: any. Since: 0.1 */
ABOX_API size_t abox_changes_get_count(const abox_changes *changes);
/** abox_changes_get_digest() - SHA-256 of the set in hexadecimal, belongs to it; NULL for NULL. Since: 0.1 */
ABOX_API const char *abox_changes_get_digest(const abox_changes *changes);

/**
 * abox_changes_get() - one path
 * @changes:  borrowed
 * @i:        0 to abox_changes_get_count() - 1; sorted, a folder before what is in it
 * @ret:      its `size` is set by the caller
 *
 * Threads:  any
 * Return:   0, ABOX_E_INVALID, ABOX_E_NOT_FOUND (there is no such number)
 * Since:    0.1
 */
ABOX_API int abox_changes_get(const abox_changes *changes, size_t i, struct abox_change *ret);

/**
 * abox_changes_dump() - the whole set as a JSON object: format, digest, counts, changes
 * @changes:  borrowed
 * @retjson:  released with abox_free()
 *
 * A byte of a path that is not UTF-8 is written as U+DC80 + byte - 0x80, so that every name survives. The digest is
 * that of the text of the member `changes`, exactly as it stands there.
 *
 * Threads:  any
 * Return:   0, ABOX_E_INVALID, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_changes_dump(const abox_changes *changes, char **retjson);

/**
 * abox_changes_format() - a summary for people: one line a path, then the counts, then what would run on the host
 * @changes:  borrowed
 * @rettext:  released with abox_free(); safe on a terminal
 *
 * Threads:  any
 * Return:   0, ABOX_E_INVALID, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_changes_format(const abox_changes *changes, char **rettext);

/**
 * abox_changes_select() - the part of a set that patterns name
 * @changes:   borrowed
 * @patterns:  NULL-ended; `*` within one part, `**` across parts, a folder means all that is in it
 * @ret:       a set of its own, with a digest of its own; released with abox_changes_unref()
 * @reterr:    may be NULL
 *
 * Folders that a chosen path needs come along.
 *
 * Threads:  any
 * Return:   0, ABOX_E_INVALID, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_changes_select(const abox_changes *changes, const char *const *patterns, abox_changes **ret,
	abox_error **reterr);

/** Which two states of a workspace are compared. */
struct abox_diff_options {
	size_t size;			/* sizeof(struct abox_diff_options) */
	const char *snapshot;		/* id or name; NULL: the state as it is now */
	const char *since;		/* id or name of the snapshot it is compared with; NULL: what the workspace began as */
	abox_progress_fn progress;	/* may be NULL */
	void *progress_userdata;
};
#define ABOX_DIFF_OPTIONS_INIT { sizeof(struct abox_diff_options), 0, 0, 0, 0 }

/** abox_diff_options_init() - as ABOX_DIFF_OPTIONS_INIT, for bindings. Threads: any. Since: 0.1 */
ABOX_API void abox_diff_options_init(struct abox_diff_options *options);

/**
 * abox_workspace_diff() - what has changed
 * @workspace: borrowed; no box may have it in use
 * @options:   NULL: the present state against what the workspace began as
 * @ret:       released with abox_changes_unref()
 * @reterr:    names the path that could not be read; may be NULL
 *
 * A path is listed when content, target, type or permission bits differ; times, owners and attributes are not
 * compared. The time goes with the changes, not with the tree, unless the workspace is without overlay.
 *
 * Effects:  on the host: none, but for an apply that was cut off, which is ended first
 * Threads:  one for the workspace
 * Return:   0, ABOX_E_INVALID, ABOX_E_NOT_FOUND (snapshot), ABOX_E_BUSY, ABOX_E_STATE (the source folder is gone, or
 *           the mode is direct: there is nothing to compare with), ABOX_E_CANCELED, ABOX_E_DAMAGED, ABOX_E_IO,
 *           ABOX_E_PERMISSION, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_workspace_diff(abox_workspace *workspace, const struct abox_diff_options *options, abox_changes **ret,
	abox_error **reterr);

/**
 * abox_workspace_patch() - the changes as a patch that `git apply` takes, binary files too
 * @workspace: borrowed
 * @options:   as they were given to abox_workspace_diff()
 * @changes:   what that gave, or a part of it
 * @fd:        where it is written to; borrowed
 * @reterr:    may be NULL
 *
 * What git has no words for (empty folders, fifos, permission bits but the executable one) is named in lines before
 * the patch. Object names in it are SHA-1.
 *
 * Threads:  one for the workspace
 * Return:   as abox_workspace_diff(), and ABOX_E_CONFLICT (a file is no longer what the set says), ABOX_E_LIMIT (a file
 *           of more than 512 MiB)
 * Since:    0.1
 */
ABOX_API int abox_workspace_patch(abox_workspace *workspace, const struct abox_diff_options *options,
	const abox_changes *changes, int fd, abox_error **reterr);

/** Flags of struct abox_apply_options. */
enum {
	ABOX_APPLY_DRY_RUN = 1 << 0,		/* only look: the report says what would happen, drift is listed in it */
	ABOX_APPLY_ACCEPT_DRIFT = 1 << 1,	/* what is there at present is overwritten */
	ABOX_APPLY_ACCEPT_RISKY = 1 << 2	/* paths that would run on the host are applied too */
};

struct abox_apply_options {
	size_t size;			/* sizeof(struct abox_apply_options) */
	uint32_t flags;
	const char *target;		/* folder; NULL: the source folder of the workspace */
	const char *snapshot;		/* the state that the set was made of, as in struct abox_diff_options */
	abox_progress_fn progress;	/* may be NULL; an end by it leaves the folder as it was */
	void *progress_userdata;
};
#define ABOX_APPLY_OPTIONS_INIT { sizeof(struct abox_apply_options), 0, 0, 0, 0, 0 }

/** abox_apply_options_init() - as ABOX_APPLY_OPTIONS_INIT, for bindings. Threads: any. Since: 0.1 */
ABOX_API void abox_apply_options_init(struct abox_apply_options *options);

/**
 * abox_workspace_apply() - put a change set into the source folder, all of it or nothing
 * @workspace: borrowed; no box may have it in use
 * @changes:   borrowed
 * @options:   NULL: into the source folder, nothing accepted
 * @retreport: {"changes" (the digest),"dry_run","applied","drift":[{"path","reason"}],"skipped":[..],"kept":[..]};
 *             abox_free(); may be NULL
 * @reterr:    may be NULL
 *
 * Whatever ends it midway (a failure, a kill, the power), the folder is as before or as wanted once the next call of
 * diff, apply or gc on the workspace has found the undo journal. Programs that look meanwhile may see some paths
 * changed and others not yet. A path has drifted when it is not what the set says was there, or was touched after the
 * workspace was made, by others than an earlier apply. Sockets and devices are skipped, folders that hold more than
 * the set knows are kept, set-id bits are not set. A replaced file keeps owner and attributes; it is a new file, so
 * hard links to the old one keep the old content.
 *
 * Effects:  on the host: the folder; for its duration a folder .agentbox-apply-… in it
 * Threads:  one for the workspace
 * Return:   0, ABOX_E_INVALID, ABOX_E_CONFLICT (drift, or the set is stale), ABOX_E_DENIED (would run on the host),
 *           ABOX_E_STATE (there is no source folder, or it is another one now), ABOX_E_BUSY, ABOX_E_CANCELED, ABOX_E_NOSPACE,
 *           ABOX_E_PERMISSION, ABOX_E_LEFT_BEHIND (applied, but the folder beside it could not be removed), ABOX_E_IO,
 *           ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_workspace_apply(abox_workspace *workspace, const abox_changes *changes,
	const struct abox_apply_options *options, char **retreport, abox_error **reterr);

/** A value that must not be in what leaves. It is compared and never stored or told. */
struct abox_secret {
	const void *data;
	size_t len;			/* 8 or more */
};

struct abox_export_options {
	size_t size;			/* sizeof(struct abox_export_options) */
	const char *snapshot;		/* id or name; NULL: the state as it is now */
	const char *const *never;	/* NULL-ended patterns of paths that must not be in it; may be NULL */
	const struct abox_secret *secrets;
	size_t n_secrets;
	abox_progress_fn progress;	/* may be NULL */
	void *progress_userdata;
};
#define ABOX_EXPORT_OPTIONS_INIT { sizeof(struct abox_export_options), 0, 0, 0, 0, 0, 0 }

/** abox_export_options_init() - as ABOX_EXPORT_OPTIONS_INIT, for bindings. Threads: any. Since: 0.1 */
ABOX_API void abox_export_options_init(struct abox_export_options *options);

/**
 * abox_workspace_export() - the tree of a workspace as a tar.gz
 * @workspace: borrowed; no box may have it in use
 * @options:   NULL: the present state, nothing looked for
 * @fd:        where it is written to; borrowed
 * @retreport: {"digest","n_lost","lost":[{"path","lost"}]}; abox_free(); may be NULL
 * @reterr:    names a path that may not leave; may be NULL
 *
 * The same tree gives the same bytes. It holds files, folders, links, hard links, fifos, holes, times, modes, owners as
 * the box sees them and attributes `user.*`; what it cannot hold is listed. Nothing is written before all of it was
 * looked through for `never` and the secrets. The digest is that of its manifest.
 *
 * Threads:  one for the workspace
 * Return:   0, ABOX_E_INVALID, ABOX_E_NOT_FOUND, ABOX_E_DENIED (something may not leave), ABOX_E_BUSY, ABOX_E_STATE,
 *           ABOX_E_CANCELED, ABOX_E_DAMAGED, ABOX_E_IO, ABOX_E_NOSPACE, ABOX_E_PERMISSION, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_workspace_export(abox_workspace *workspace, const struct abox_export_options *options, int fd,
	char **retreport, abox_error **reterr);

/** What is collected, and how much of it at most. */
struct abox_artifact_options {
	size_t size;			/* sizeof(struct abox_artifact_options) */
	const char *snapshot;		/* id or name; NULL: the state as it is now */
	const char *const *patterns;	/* NULL-ended; which files */
	uint64_t max_bytes;		/* of all files together; 0: 1 GiB */
	uint64_t max_file_bytes;	/* of one; 0: as max_bytes */
	uint64_t max_files;		/* 0: 10,000 */
	const char *const *never;	/* as in struct abox_export_options */
	const struct abox_secret *secrets;
	size_t n_secrets;
	const char *task;		/* where they come from, for the record; each may be NULL */
	const char *command;
	const char *plan;
	abox_progress_fn progress;	/* may be NULL; an end by it leaves nothing behind */
	void *progress_userdata;
};
#define ABOX_ARTIFACT_OPTIONS_INIT { sizeof(struct abox_artifact_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** abox_artifact_options_init() - as ABOX_ARTIFACT_OPTIONS_INIT, for bindings. Threads: any. Since: 0.1 */
ABOX_API void abox_artifact_options_init(struct abox_artifact_options *options);

/**
 * abox_workspace_collect() - the results of a task, out of its workspace
 * @workspace: borrowed; no box may have it in use
 * @options:   borrowed; patterns are required
 * @folder:    is made; must not be there. Below it: files/PATH, and artifacts.json
 * @retjson:   what artifacts.json says: {"format","workspace","task","command","plan","artifacts":[{"path","size",
 *             "sha256","mode"}],"left_out":[{"path","reason"}]}; abox_free(); may be NULL
 * @reterr:    names a path that may not leave; may be NULL
 *
 * Regular files only, read without following anything: a link that the box made is left out and listed, whatever it
 * points at, and so is what is beyond the bounds. Files get mode 0644, or 0755 where they were executable, and belong
 * to the caller. The folder appears whole or not at all.
 *
 * Effects:  on the host: the folder
 * Threads:  one for the workspace
 * Return:   0, ABOX_E_INVALID, ABOX_E_NOT_FOUND, ABOX_E_EXISTS (the folder), ABOX_E_DENIED (something may not leave),
 *           ABOX_E_BUSY, ABOX_E_STATE, ABOX_E_CANCELED, ABOX_E_DAMAGED, ABOX_E_NOSPACE, ABOX_E_PERMISSION, ABOX_E_IO,
 *           ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_workspace_collect(abox_workspace *workspace, const struct abox_artifact_options *options,
	const char *folder, char **retjson, abox_error **reterr);

enum {
	ABOX_IMPORT_ANY = 1 << 0	/* any tar or tar.gz; else only what abox_workspace_export() made */
};

struct abox_import_options {
	size_t size;			/* sizeof(struct abox_import_options) */
	uint32_t flags;
	const char *name;		/* of the new workspace; may be NULL */
	const char *task;		/* may be NULL */
	const char *digest;		/* what the export must be; NULL: whatever it is. Not with ABOX_IMPORT_ANY */
	uint64_t ttl_usec;		/* as in struct abox_workspace_options */
	uint64_t max_bytes;		/* of content; 0: 64 GiB */
	uint64_t max_files;		/* 0: 10 million */
	abox_progress_fn progress;	/* may be NULL; an end by it leaves nothing behind */
	void *progress_userdata;
};
#define ABOX_IMPORT_OPTIONS_INIT { sizeof(struct abox_import_options), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** abox_import_options_init() - as ABOX_IMPORT_OPTIONS_INIT, for bindings. Threads: any. Since: 0.1 */
ABOX_API void abox_import_options_init(struct abox_import_options *options);

/**
 * abox_workspace_import() - a new workspace that begins as an archive
 * @fd:        the archive, read from its position to its end; borrowed
 * @options:   NULL: an export, within the bounds
 * @ret:       released with abox_workspace_unref()
 * @retreport: {"digest" (of an export),"n_lost","lost":[..]}; abox_free(); may be NULL
 * @reterr:    names the entry that was refused; may be NULL
 *
 * The archive is taken whole or refused whole: names that lead outside or through links, two entries for one path,
 * devices, hard links to what is not in it, more bytes or files than allowed, bytes behind its end, and an export that
 * does not hold what its manifest says. In place of set-id bits and of attributes other than `user.*` an archive of
 * another program gets a line in the list; an export that has such is refused. A plain user owns all files.
 *
 * Effects:  on the host: the store
 * Threads:  any
 * Return:   0, ABOX_E_INVALID, ABOX_E_EXISTS (name), ABOX_E_ESCAPE, ABOX_E_DENIED (a device), ABOX_E_LIMIT,
 *           ABOX_E_DAMAGED, ABOX_E_MISMATCH (another digest), ABOX_E_UNSUPPORTED (packed by other means, or an old
 *           form of sparse file), ABOX_E_CANCELED, ABOX_E_NOSPACE, ABOX_E_IO, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_workspace_import(int fd, const struct abox_import_options *options, abox_workspace **ret,
	char **retreport, abox_error **reterr);

#ifdef __cplusplus
}
#endif
#endif
