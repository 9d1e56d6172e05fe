/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Layers on the disk.
 */
#ifndef WORKSPACE_LAYER_H
#define WORKSPACE_LAYER_H

#include "workspace/record.h"

/* Folder of the layer, and what is in it. Descriptors or negative codes; ABOX_E_DAMAGED when it is missing. */
int layer_open(int home_fd, const char *id, abox_error **reterr);
int layer_open_data(int layer_fd, const char *id, int open_flags, abox_error **reterr);	/* O_PATH or O_RDONLY */

/*
 * An empty live layer with the root attributes of model_fd (-EBADF: 0755, the box's user), complete with its record.
 * The caller holds the lock of the store until a record leads to it.
 */
int layer_new_live(int home_fd, enum layer_flavour flavour, const struct layer_ids *ids, int model_fd,
	char retid[STORE_ID_BYTES], abox_error **reterr);

/* Work folder made anew: what an earlier mount left in it (also the mark that refuses a second volatile mount). */
int layer_reset_work(int layer_fd, abox_error **reterr);

/* From `id` down along the parents. The last is the lowest. ABOX_E_DAMAGED when one is missing, live, or of another
 * flavour than `flavour`. "" gives none. */
struct layer_chain {
	struct layer_record *records;
	size_t n;
};
int layer_chain_read(int home_fd, const char *id, enum layer_flavour flavour, struct layer_chain *ret, abox_error **reterr);
void layer_chain_clear(struct layer_chain *chain);

/* Seals what is in the layer (on the disk, every byte read) and fills the record's part of it; then the record is
 * written with layer_record_write() and the layer is frozen. */
int layer_seal(int layer_fd, struct layer_record *record, abox_error **reterr);
/* Makes the seal again and compares: ABOX_E_DAMAGED. */
int layer_check(int home_fd, const char *id, abox_error **reterr);

/* Removes a layer that nothing leads to any more; what fails is found by gc. */
void layer_discard(int home_fd, const char *id);

/* Freezes what was built, as the record says (parent, is_full, is_base). The lock stays with the build. */
int layer_build_freeze(struct layer_build *build, struct layer_record *record, abox_error **reterr);
/* From now on a record leads to it: layer_build_clear() leaves it. */
void layer_build_taken(struct layer_build *build);

#endif
