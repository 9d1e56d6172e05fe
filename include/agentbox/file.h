/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Files: what is in a workspace, read and changed from outside. The same calls work on the workspace of a running box and
 * on one that no box runs on.
 *
 * All work is done by a file server, a process inside the wall: what it makes belongs to the box's user, and no name leads
 * out of the workspace, whatever the box puts in the way meanwhile. What it says is not believed further than a file
 * server may say. A box that is paused, or has ended, is an error and never a wait.
 *
 * Paths are below the workspace: `src/main.c`; "" is the workspace itself. A path that is absolute, holds `..`, or leads out
 * by a link is ABOX_E_ESCAPE; links that stay inside are followed. Names are bytes, not always UTF-8. A path has at most
 * 4,095 bytes; what lies deeper is reached by copying a folder above it.
 *
 * Whatever it calls itself, only a regular file is read or written; a fifo, socket or device is ABOX_E_UNSUPPORTED.
 */
#ifndef AGENTBOX_FILE_H
#define AGENTBOX_FILE_H

#include <agentbox/change.h>
#include <agentbox/error.h>
#include <agentbox/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A connection to a file server. */
typedef struct abox_files abox_files;
/** What is in one folder, as it is read. */
typedef struct abox_file_list abox_file_list;

enum {
	ABOX_FILES_WRITE = 1 << 0	/* change files, too; else they are only read */
};

/**
 * abox_files_open_sandbox() - the workspace of a running box
 * @box:      borrowed; the files keep a reference of their own. Opened for reading it gives files for reading; attach or
 *            control is needed for ABOX_FILES_WRITE
 * @flags:    ABOX_FILES_WRITE, or 0
 * @ret:      released with abox_files_unref()
 * @reterr:   may be NULL
 *
 * The file server is a process of the box and ends with it.
 *
 * Threads:  one for the box
 * Return:   0, ABOX_E_INVALID, ABOX_E_STATE (it is paused, or is not running, or was opened for reading only),
 *           ABOX_E_FENCED, ABOX_E_GONE, ABOX_E_LIMIT (the box has no room for one more process), ABOX_E_NOT_FOUND (it has
 *           no workspace), ABOX_E_TIMEOUT, ABOX_E_SYSTEM, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_files_open_sandbox(abox_sandbox *box, uint32_t flags, abox_files **ret, abox_error **reterr);

/**
 * abox_files_open_workspace() - a workspace that no box runs on
 * @workspace: borrowed; the files keep a reference of their own. It is in use until they are closed
 * @snapshot:  id or name, for reading only; NULL: the state as it is now
 * @flags:     ABOX_FILES_WRITE, or 0
 * @ret:       released with abox_files_unref()
 * @reterr:    may be NULL
 *
 * Several may read at once; who writes is alone.
 *
 * Effects:  on the host: a process until they are closed; with ABOX_FILES_WRITE the store
 * Threads:  one for the workspace
 * Return:   0, ABOX_E_INVALID, ABOX_E_NOT_FOUND, ABOX_E_BUSY (a box or somebody else has it), ABOX_E_STATE (the folder
 *           below it is gone or another one), ABOX_E_DAMAGED, ABOX_E_UNAVAILABLE (a plain user on a host without user
 *           namespaces), ABOX_E_UNSUPPORTED (root, and the folder below is on a file system that cannot map ids),
 *           ABOX_E_PERMISSION, ABOX_E_TIMEOUT, ABOX_E_SYSTEM, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_files_open_workspace(abox_workspace *workspace, const char *snapshot, uint32_t flags, abox_files **ret,
	abox_error **reterr);

/** abox_files_ref() - one more owner; takes NULL. Threads: any. Return: files. Since: 0.1 */
ABOX_API abox_files *abox_files_ref(abox_files *files);
/** abox_files_unref() - one owner less; the last one closes. Takes NULL. Threads: any. Return: NULL. Since: 0.1 */
ABOX_API abox_files *abox_files_unref(abox_files *files);

/**
 * abox_files_close() - end the file server and give the workspace back
 * @files:    borrowed; every later call with it is ABOX_E_STATE, but for unref
 * @reterr:   may be NULL
 *
 * After ABOX_FILES_WRITE on a workspace at rest all of its change is on the disk when this returns 0; unref does the same,
 * but cannot tell of a failure.
 *
 * Threads:  one
 * Return:   0, ABOX_E_INVALID, ABOX_E_IO, ABOX_E_NOSPACE, ABOX_E_DAMAGED, ABOX_E_SYSTEM, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_files_close(abox_files *files, abox_error **reterr);

/*
 * What every call below may answer besides what it lists: ABOX_E_INVALID (an argument, or a name that cannot be),
 * ABOX_E_ESCAPE (the path leads outside), ABOX_E_NOT_FOUND, ABOX_E_PERMISSION, ABOX_E_IO, ABOX_E_STATE (closed; the box was
 * paused meanwhile), ABOX_E_GONE (the box, or its file server, has ended), ABOX_E_TIMEOUT (no word from it for a minute),
 * ABOX_E_PROTOCOL (it said what it must not), ABOX_E_LIMIT, ABOX_E_SYSTEM, ABOX_E_MEMORY. After STATE, GONE, TIMEOUT and
 * PROTOCOL the files are of no more use, and what was asked for last may have been done or not. Each is used by one
 * thread at a time.
 */

/** One file, folder or other thing. The texts belong to the files (or the list), until the next call with them. */
struct abox_file_entry {
	size_t size;			/* sizeof(struct abox_file_entry), set by the caller */
	const char *name;		/* its last part, or as it was given */
	const char *target;		/* of a link, else NULL; a text, never followed */
	int type;			/* enum abox_file_type */
	uint32_t mode;			/* permission bits, as the box sees them */
	uint64_t size_bytes;
	uint64_t allocated_bytes;	/* fewer than its size: it has holes */
	int64_t modified_sec;
	uint32_t modified_nsec;
	uint32_t uid, gid;		/* as the box sees them */
	uint32_t n_links;
};
#define ABOX_FILE_ENTRY_INIT { sizeof(struct abox_file_entry), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

enum {
	ABOX_FILE_NO_FOLLOW = 1 << 0,	/* stat, read: a link at the end of the path is looked at itself, or refused */
	ABOX_FILE_PARENTS = 1 << 1,	/* write, make_folder: missing folders above are made; a folder that is there is fine */
	ABOX_FILE_ATOMIC = 1 << 2,	/* write: the old content stays until the new one is whole. Replaces links, too */
	ABOX_FILE_NEW = 1 << 3,		/* write, rename: nothing may be there */
	ABOX_FILE_SYNC = 1 << 4,	/* write: on the disk before it returns */
	ABOX_FILE_RECURSIVE = 1 << 5	/* remove: a folder with all that is in it */
};

/**
 * abox_files_stat() - what a path is
 * @files:    borrowed
 * @path:     below the workspace
 * @flags:    ABOX_FILE_NO_FOLLOW, or 0
 * @ret:      its `size` is set by the caller
 * @reterr:   may be NULL
 *
 * Return:   0, and see above
 * Since:    0.1
 */
ABOX_API int abox_files_stat(
	abox_files *files, const char *path, uint32_t flags, struct abox_file_entry *ret, abox_error **reterr);

/**
 * abox_files_list() - read a folder
 * @files:    borrowed; other calls may come between those of the list
 * @path:     of a folder
 * @ret:      released with abox_file_list_free(), before the files are closed
 * @reterr:   may be NULL
 *
 * Return:   0, ABOX_E_LIMIT (too many lists at once), and see above
 * Since:    0.1
 */
ABOX_API int abox_files_list(abox_files *files, const char *path, abox_file_list **ret, abox_error **reterr);

/**
 * abox_file_list_next() - the next entry, in no order
 * @list:     borrowed
 * @ret:      its `size` is set by the caller
 * @reterr:   may be NULL
 *
 * The folder is not held still: what comes or goes meanwhile is listed or not. A box that makes names faster than they are
 * read is told apart by ABOX_E_LIMIT, after ten million.
 *
 * Return:   1 with an entry, 0 at the end, and see above
 * Since:    0.1
 */
ABOX_API int abox_file_list_next(abox_file_list *list, struct abox_file_entry *ret, abox_error **reterr);
/** abox_file_list_free() - let go; takes NULL. Threads: that of the files. Return: NULL. Since: 0.1 */
ABOX_API abox_file_list *abox_file_list_free(abox_file_list *list);

/**
 * abox_files_read() - the content of a file
 * @files:    borrowed
 * @path:     of a regular file
 * @flags:    ABOX_FILE_NO_FOLLOW, or 0
 * @max_bytes: a longer one is ABOX_E_LIMIT; 0: 64 MiB
 * @retdata:  with a NUL behind it, which is not counted; abox_free()
 * @retlen:   its length; may be NULL
 * @reterr:   may be NULL
 *
 * A file that grows meanwhile is read as long as it was at the beginning.
 *
 * Return:   0, ABOX_E_UNSUPPORTED (no regular file), ABOX_E_LIMIT, and see above
 * Since:    0.1
 */
ABOX_API int abox_files_read(abox_files *files, const char *path, uint32_t flags, uint64_t max_bytes, char **retdata,
	size_t *retlen, abox_error **reterr);

/**
 * abox_files_write() - make or replace a file
 * @files:    borrowed, opened with ABOX_FILES_WRITE
 * @path:     below the workspace
 * @flags:    ABOX_FILE_PARENTS, ABOX_FILE_ATOMIC, ABOX_FILE_NEW, ABOX_FILE_SYNC
 * @mode:     permission bits of a new file (and with ABOX_FILE_ATOMIC of a replaced one); UINT32_MAX: as it was, or 0644
 * @data:     may be NULL when @len is 0
 * @len:      bytes
 * @reterr:   may be NULL
 *
 * Return:   0, ABOX_E_EXISTS, ABOX_E_UNSUPPORTED (something else than a regular file is there), ABOX_E_STATE (a folder is),
 *           ABOX_E_NOSPACE, ABOX_E_CONFLICT (the box replaced it at once), and see above
 * Since:    0.1
 */
ABOX_API int abox_files_write(abox_files *files, const char *path, uint32_t flags, uint32_t mode, const void *data, size_t len,
	abox_error **reterr);

/**
 * abox_files_make_folder() - make a folder
 * @files:    borrowed, opened with ABOX_FILES_WRITE
 * @path:     below the workspace
 * @flags:    ABOX_FILE_PARENTS, or 0
 * @mode:     permission bits of the last folder
 * @reterr:   may be NULL
 *
 * Return:   0, ABOX_E_EXISTS, ABOX_E_NOSPACE, and see above
 * Since:    0.1
 */
ABOX_API int abox_files_make_folder(
	abox_files *files, const char *path, uint32_t flags, uint32_t mode, abox_error **reterr);

/**
 * abox_files_rename() - give another name or place within the workspace
 * @files:    borrowed, opened with ABOX_FILES_WRITE
 * @from:     what is there
 * @to:       the new path; what is there is replaced, unless ABOX_FILE_NEW is given
 * @flags:    ABOX_FILE_NEW, or 0
 * @reterr:   may be NULL
 *
 * Return:   0, ABOX_E_EXISTS, ABOX_E_STATE (a folder that is not empty is in the way), ABOX_E_UNSUPPORTED (a folder of a
 *           layer below, or across mounts: copy it and remove the old one), ABOX_E_BUSY (a mount), and see above
 * Since:    0.1
 */
ABOX_API int abox_files_rename(abox_files *files, const char *from, const char *to, uint32_t flags, abox_error **reterr);

/** Options of what copies or removes many files. */
struct abox_copy_options {
	size_t size;			/* sizeof(struct abox_copy_options) */
	uint32_t flags;
	abox_progress_fn progress;	/* may be NULL */
	void *progress_userdata;
	uint64_t max_bytes;		/* of content; 0: no bound. ABOX_E_LIMIT beyond */
	uint64_t max_entries;		/* 0: ten million */
};
#define ABOX_COPY_OPTIONS_INIT { sizeof(struct abox_copy_options), 0, 0, 0, 0, 0 }

/** abox_copy_options_init() - as ABOX_COPY_OPTIONS_INIT, for bindings. Threads: any. Since: 0.1 */
ABOX_API void abox_copy_options_init(struct abox_copy_options *options);

enum {
	ABOX_COPY_REPLACE = 1 << 0	/* download: a file (never a folder) that is there is replaced */
};

/**
 * abox_files_remove() - remove a file, link or folder
 * @files:    borrowed, opened with ABOX_FILES_WRITE
 * @path:     below the workspace; never the workspace itself
 * @flags:    ABOX_FILE_RECURSIVE, or 0
 * @options:  progress counts here; NULL: none
 * @reterr:   may be NULL
 *
 * A link is removed, never what it leads to; what is mounted below stays, and is ABOX_E_BUSY.
 *
 * Return:   0, ABOX_E_STATE (a folder that is not empty), ABOX_E_BUSY, ABOX_E_CANCELED, ABOX_E_LIMIT (a plain user's, of a
 *           layer below, more than 256 levels deep), and see above
 * Since:    0.1
 */
ABOX_API int abox_files_remove(abox_files *files, const char *path, uint32_t flags, const struct abox_copy_options *options,
	abox_error **reterr);

/**
 * abox_files_upload() - copy a file or folder of the host into the workspace
 * @files:    borrowed, opened with ABOX_FILES_WRITE
 * @source:   path of the host; a link at its end is followed, none below it is
 * @path:     what it becomes; a folder that is there takes the new files in, files are replaced one by one, each whole
 * @options:  NULL: none
 * @retjson:  {"entries","bytes","n_left_out","left_out":[{"path","reason"}]} (the first thousand); abox_free(); may be NULL
 * @reterr:   may be NULL
 *
 * Content, permission bits (not set-id), times and links come along; holes stay holes; hard links become files of their own.
 * Fifos, sockets, devices and what is mounted below are left out and listed. What was copied before a failure stays.
 *
 * Return:   0, ABOX_E_EXISTS, ABOX_E_STATE, ABOX_E_UNSUPPORTED, ABOX_E_NOSPACE, ABOX_E_LIMIT, ABOX_E_CANCELED, and see above
 * Since:    0.1
 */
ABOX_API int abox_files_upload(abox_files *files, const char *source, const char *path,
	const struct abox_copy_options *options, char **retjson, abox_error **reterr);

/**
 * abox_files_download() - copy a file or folder of the workspace to the host
 * @files:    borrowed
 * @path:     below the workspace; a link at its end is copied as a link
 * @target:   path of the host that is made; its folder must be there
 * @options:  NULL: none
 * @retjson:  as of abox_files_upload(); may be NULL
 * @reterr:   may be NULL
 *
 * The target appears whole or not at all, and nothing outside of it is touched whatever names and links the workspace holds.
 * Content, times and links come along, as texts; holes stay holes. Everything belongs to the caller, who can always read and
 * write it; set-id bits and the right of others to write do not come along. Fifos, sockets and devices are left out and
 * listed. Where the box goes on changing files, each is as long as it was when it was opened.
 *
 * Effects:  on the host: the target; for the duration a name `.agentbox-…` beside it
 * Return:   0, ABOX_E_EXISTS (the target), ABOX_E_UNSUPPORTED, ABOX_E_CONFLICT (a folder was moved meanwhile),
 *           ABOX_E_NOSPACE, ABOX_E_LIMIT, ABOX_E_CANCELED, and see above
 * Since:    0.1
 */
ABOX_API int abox_files_download(abox_files *files, const char *path, const char *target,
	const struct abox_copy_options *options, char **retjson, abox_error **reterr);

/**
 * abox_files_read_to() - copy the content of a file to a descriptor
 * @files:    borrowed
 * @path:     of a regular file
 * @flags:    ABOX_FILE_NO_FOLLOW, or 0
 * @fd:       borrowed; holes are written as zeros
 * @options:  NULL: none
 * @reterr:   may be NULL
 *
 * Return:   0, ABOX_E_UNSUPPORTED, ABOX_E_LIMIT, ABOX_E_CANCELED, and see above
 * Since:    0.1
 */
ABOX_API int abox_files_read_to(abox_files *files, const char *path, uint32_t flags, int fd,
	const struct abox_copy_options *options, abox_error **reterr);

/**
 * abox_files_write_from() - make or replace a file with what a descriptor gives until its end
 * @files:    borrowed, opened with ABOX_FILES_WRITE
 * @path:     below the workspace
 * @flags:    as of abox_files_write()
 * @mode:     as of abox_files_write()
 * @fd:       borrowed, blocking
 * @options:  NULL: none
 * @reterr:   may be NULL
 *
 * Return:   as abox_files_write(), and ABOX_E_CANCELED
 * Since:    0.1
 */
ABOX_API int abox_files_write_from(abox_files *files, const char *path, uint32_t flags, uint32_t mode, int fd,
	const struct abox_copy_options *options, abox_error **reterr);

#ifdef __cplusplus
}
#endif
#endif
