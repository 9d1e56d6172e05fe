/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Spec: the wish. What may run, see, reach and spend, and what shall survive.
 *
 * A spec is JSON of version 1, read from a text or put together with setters; both go through the same table
 * of keys (abox_spec_describe_keys() prints it), so nothing can be said in one way that the other would
 * refuse. A key that is absent has its default. What is wrong in itself is refused at once, with JSON
 * pointer, line and column where there is a text, and what to write instead; what is wrong between keys is
 * refused by abox_spec_check(), which abox_spec_from_json() and abox_plan_compile() call. Nothing here looks
 * at the host.
 *
 * Pointers are JSON pointers (RFC 6901): "/limits/memory", "/mounts/0/target"; `/` and `~` in a name are
 * written ~1 and ~0. Setting "/mounts/-" appends.
 */
#ifndef AGENTBOX_SPEC_H
#define AGENTBOX_SPEC_H

#include <agentbox/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Bounds of a spec as text. */
enum {
	ABOX_SPEC_VERSION = 1,
	ABOX_SPEC_MAX_BYTES = 1048576,
	ABOX_SPEC_MAX_DEPTH = 16
};

/** enum abox_mount_mode - what a box may do at a mount; for abox_spec_add_mount() */
enum abox_mount_mode {
	ABOX_MOUNT_RO = 0,	/* a host path, read-only */
	ABOX_MOUNT_RW = 1,	/* a host path, writable */
	ABOX_MOUNT_TMPFS = 2	/* empty, in memory, gone with the box; no source */
};

/** enum abox_workspace_mode - how a folder becomes a workspace; for abox_spec_set_workspace() */
enum abox_workspace_mode {
	ABOX_WORKSPACE_OVERLAY = 0,	/* the folder stays untouched, changes go to a layer above it */
	ABOX_WORKSPACE_COPY = 1,	/* a copy of the folder */
	ABOX_WORKSPACE_DIRECT = 2	/* the folder itself, writable */
};

/** enum abox_keys_format - for abox_spec_describe_keys() */
enum abox_keys_format {
	ABOX_KEYS_JSON = 0,
	ABOX_KEYS_MARKDOWN = 1
};

/**
 * abox_spec_new() - an empty spec: every key has its default
 * @ret:      released with abox_spec_unref()
 *
 * Threads:  any
 * Return:   0, ABOX_E_INVALID, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_spec_new(abox_spec **ret);

/**
 * abox_spec_from_json() - read a spec from a text and check it as a whole
 * @text:     JSON, NUL-terminated; at most ABOX_SPEC_MAX_BYTES, more is refused before it is read
 * @ret:      released with abox_spec_unref()
 * @reterr:   error with line, column, JSON pointer and remedy; may be NULL
 *
 * Refused are unknown and duplicate keys, wrong types, null, numbers such as 2.0 or 1e3 where a whole number
 * is asked for, bytes after the value, and limits that are 0, negative or absurd.
 *
 * Threads:  any
 * Return:   0, ABOX_E_SYNTAX (not JSON), ABOX_E_INVALID (not a spec), ABOX_E_LIMIT (too long or too deep),
 *           ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_spec_from_json(const char *text, abox_spec **ret, abox_error **reterr);

/** abox_spec_from_bytes() - as abox_spec_from_json(), of a text with a given size; NUL in it is refused. */
ABOX_API int abox_spec_from_bytes(const void *data, size_t size, abox_spec **ret, abox_error **reterr);

/** abox_spec_copy() - an independent copy of a spec; released with abox_spec_unref(). Since 0.1. */
ABOX_API int abox_spec_copy(const abox_spec *spec, abox_spec **ret);

/** abox_spec_ref() - one more owner; returns spec. From any thread. Since 0.1. */
ABOX_API abox_spec *abox_spec_ref(abox_spec *spec);

/** abox_spec_unref() - one owner less; takes and returns NULL. From any thread. Since 0.1. */
ABOX_API abox_spec *abox_spec_unref(abox_spec *spec);

/**
 * Setters. Objects above the pointer are made as needed. On failure the spec is as it was.
 *
 * abox_spec_set_string()   texts, names, paths, enums, sizes ("2GiB") and durations ("5m")
 * abox_spec_set_integer()  whole numbers; also sizes in bytes and durations in seconds
 * abox_spec_set_boolean()  0 or 1
 * abox_spec_set_json()     any value as JSON text: objects, lists, decimals
 * abox_spec_clear()        removes what was written, so that the default holds again; a list moves up.
 *                          Clearing what is not there is fine.
 *
 * @spec:     borrowed, changed
 * @pointer:  JSON pointer of a key of the table
 * @reterr:   error with the pointer and what to write instead; may be NULL
 *
 * Threads:  one at a time
 * Return:   0, ABOX_E_INVALID (also for an unknown key), ABOX_E_SYNTAX (json), ABOX_E_LIMIT, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_spec_set_string(abox_spec *spec, const char *pointer, const char *value,
	abox_error **reterr);
ABOX_API int abox_spec_set_integer(abox_spec *spec, const char *pointer, int64_t value, abox_error **reterr);
ABOX_API int abox_spec_set_boolean(abox_spec *spec, const char *pointer, int value, abox_error **reterr);
ABOX_API int abox_spec_set_json(abox_spec *spec, const char *pointer, const char *json, abox_error **reterr);
ABOX_API int abox_spec_clear(abox_spec *spec, const char *pointer, abox_error **reterr);

/**
 * abox_spec_add_mount() - append to "/mounts"
 * @spec:     borrowed, changed
 * @source:   absolute path on the host; NULL for ABOX_MOUNT_TMPFS
 * @target:   absolute path in the box
 * @mode:     enum abox_mount_mode
 * @reterr:   may be NULL
 *
 * Threads:  one at a time
 * Return:   0, ABOX_E_INVALID, ABOX_E_LIMIT (too many), ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_spec_add_mount(abox_spec *spec, const char *source, const char *target, int mode,
	abox_error **reterr);

/** abox_spec_add_env() - set "/env/NAME"; a variable that is there is replaced. As abox_spec_set_string(). */
ABOX_API int abox_spec_add_env(abox_spec *spec, const char *name, const char *value, abox_error **reterr);

/**
 * abox_spec_set_workspace() - a folder of the host as workspace
 * @spec:      borrowed, changed; source and mode of its workspace are replaced, the other keys stay
 * @directory: absolute path on the host
 * @mode:      enum abox_workspace_mode
 * @reterr:    may be NULL
 *
 * Threads:  one at a time
 * Return:   0, ABOX_E_INVALID, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_spec_set_workspace(abox_spec *spec, const char *directory, int mode, abox_error **reterr);

/**
 * abox_spec_check() - check what concerns several keys at once
 * @spec:     borrowed
 * @reterr:   may be NULL
 *
 * For example that mount targets are given once, that a tmpfs has no source, that a credential that a rule
 * names is declared.
 *
 * Threads:  one at a time
 * Return:   0, ABOX_E_INVALID, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_spec_check(const abox_spec *spec, abox_error **reterr);

/**
 * abox_spec_get() - one value as JSON text: what was written, or the default
 * @spec:     borrowed
 * @pointer:  JSON pointer
 * @retjson:  released with abox_free()
 * @reterr:   may be NULL
 *
 * Threads:  one at a time
 * Return:   0, ABOX_E_NOT_FOUND (neither written nor with a default), ABOX_E_INVALID (no such key),
 *           ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_spec_get(const abox_spec *spec, const char *pointer, char **retjson, abox_error **reterr);

/**
 * abox_spec_dump() - what was written, with the version, as JSON that abox_spec_from_json() reads again
 * @spec:     borrowed
 * @retjson:  released with abox_free(); the same spec gives the same bytes
 *
 * The values of "/env" stand in it as they were written.
 *
 * Threads:  one at a time
 * Return:   0, ABOX_E_INVALID, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_spec_dump(const abox_spec *spec, char **retjson);

/** abox_spec_dump_resolved() - as abox_spec_dump(), with every default filled in. Since 0.1. */
ABOX_API int abox_spec_dump_resolved(const abox_spec *spec, char **retjson);

/**
 * abox_spec_describe_keys() - the table of keys: pointer, type, range, default, meaning
 * @format:   enum abox_keys_format
 * @rettext:  released with abox_free()
 *
 * Threads:  any
 * Return:   0, ABOX_E_INVALID, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_spec_describe_keys(int format, char **rettext);

#ifdef __cplusplus
}
#endif
#endif
