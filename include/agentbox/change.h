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

#ifdef __cplusplus
}
#endif
#endif
