/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Names that are made in a folder of the host so that they can be held there, and removed again. What is about to be made
 * is written down first, so that whoever comes after a kill can take it back.
 *
 * Helper code. The record: {str root, u32 count, {u8 folder, str path below root, u64 bytes}...}, packed.
 */
#ifndef BASE_PLACEHOLDER_H
#define BASE_PLACEHOLDER_H

#include "base/macro.h"

/*
 * Removes what the record names, last first: a folder when it is empty, a file when it is one, of the size that it was
 * made with. Anything else is somebody's own by now and stays. Returns how many names are left, or a negative errno for
 * a record that is none.
 */
int placeholder_remove(const void *record, size_t len);

#endif
