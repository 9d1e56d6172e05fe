/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Types that every other header uses.
 *
 * Return values: 0 or a documented positive answer, or a negative code of enum abox_code (error.h).
 * Output parameters are named `ret...` and are set only on success; `reterr` is set only on failure and may be
 * NULL. Handles are opaque and reference counted; `_unref` takes NULL and returns NULL. A handle is used by one
 * thread at a time unless its header says otherwise; frozen objects (plan, result, report) are shared freely.
 */
#ifndef AGENTBOX_TYPES_H
#define AGENTBOX_TYPES_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define ABOX_API __attribute__((visibility("default")))
#else
#define ABOX_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct abox_error abox_error;
typedef struct abox_spec abox_spec;
typedef struct abox_plan abox_plan;
typedef struct abox_sandbox abox_sandbox;
typedef struct abox_command abox_command;
typedef struct abox_result abox_result;
typedef struct abox_journal abox_journal;
typedef struct abox_effect abox_effect;
typedef struct abox_task abox_task;
typedef struct abox_workspace abox_workspace;

/** Waits for ever, where a function takes a timeout in microseconds. */
#define ABOX_FOREVER UINT64_MAX

/**
 * abox_progress_fn - told about ten times a second how far something long has come
 * @userdata:  as given
 * @entries:   files and folders so far
 * @bytes:     bytes of content so far
 *
 * Called on the thread that called the function which takes so long.
 *
 * Return:   0, or a negative number to end it: the function then answers ABOX_E_CANCELED
 */
typedef int (*abox_progress_fn)(void *userdata, uint64_t entries, uint64_t bytes);

/**
 * abox_free() - release text or bytes that the library returned in a `char **ret...` parameter
 * @memory:   may be NULL
 *
 * Threads:  any
 * Since:    0.1
 */
ABOX_API void abox_free(void *memory);

#ifdef __cplusplus
}
#endif
#endif
