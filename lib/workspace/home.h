/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The folder of the store, its locks, and files that are replaced whole.
 */
#ifndef WORKSPACE_HOME_H
#define WORKSPACE_HOME_H

#include <agentbox/error.h>

#include "base/macro.h"
#include "workspace/store.h"

#define HOME_WORKSPACES "workspaces"
#define HOME_LAYERS "layers"
#define HOME_NAMES "names"
#define HOME_TRASH "trash"
#define HOME_RESULTS "results"	/* of boxes: artifacts and diagnostics (recorder/results.c) */

/* The folder of the store, made when missing: a readable descriptor, or a negative code. */
int home_open(abox_error **reterr);

/* 32 random hexadecimal digits. 0 or ABOX_E_SYSTEM. */
int home_new_id(char ret[STORE_ID_BYTES], abox_error **reterr);
bool home_is_id(const char *text);
bool home_is_name(const char *text);	/* as names in a spec */

/*
 * Locks of open file descriptions: they live as long as a copy of the descriptor, in whatever process. The file is made
 * when missing. ABOX_E_BUSY after timeout_usec, saying who wrote last that it holds it.
 */
int home_lock(int dir_fd, const char *name, bool exclusive, uint64_t timeout_usec, int *retfd, abox_error **reterr);
#define HOME_LOCK_TIMEOUT_USEC (10 * USEC_PER_SEC)
int home_lock_store(int home_fd, int *retfd, abox_error **reterr);

/* The file appears whole and durable, or not at all; an old one is replaced. */
int home_replace_file(int dir_fd, const char *name, const char *text, size_t len, abox_error **reterr);
/* mkdir and open; a folder that is there already is fine when `exist_ok`. Readable descriptor or a negative code. */
int home_make_folder(int dir_fd, const char *name, bool exist_ok, abox_error **reterr);
int home_sync_folder(int dir_fd, const char *place, abox_error **reterr);

/* Moves name out of dir_fd into the trash: atomic, under a new name. What is in the trash is removed by
 * home_empty_trash(), now or by a later gc. */
int home_discard(int home_fd, int dir_fd, const char *name, abox_error **reterr);
void home_empty_trash(int home_fd, uint64_t *retn_removed, uint64_t *retn_left);

/* One line about the machine's current life, for what must not outlive it unsynced. */
int home_boot_id(char ret[64], abox_error **reterr);

#endif
