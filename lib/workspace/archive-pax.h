/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What extended headers of a tar archive say about the entry that follows.
 */
#ifndef WORKSPACE_ARCHIVE_PAX_H
#define WORKSPACE_ARCHIVE_PAX_H

#include "workspace/archive.h"

struct extension {
	char *path;
	char *target;
	bool has_size, has_uid, has_gid, has_mtime;
	uint64_t size, uid, gid;
	bool has_major, has_minor, has_real;
	uint64_t major, minor, real;
	char *sparse_name;
	struct archive_entry entry; /* mtime and attributes */
};
void extension_clear(struct extension *extension);

/* The records of a pax header. */
int extension_take_records(struct extension *extension, const char *data, size_t len, abox_error **reterr);
/* A name from GNU's own header, or from a record. */
int extension_set_text(char **to, const char *value, size_t len, abox_error **reterr);

int archive_damaged(abox_error **reterr, const char *what);
bool archive_parse_decimal(const char *text, size_t len, uint64_t *ret);
char *archive_copy_text(const void *data, size_t len); /* NULL also when there is a NUL in it */

#endif
