/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Entries as they travel; both ends compile this (helper code). What comes out of file_entry_unpack() is within the
 * ranges that a file system knows, whoever sent it.
 */
#include <string.h>
#include <sys/stat.h>

#include "file/wire.h"

#define NSEC_PER_SEC 1000000000U

bool file_name_is_good(const char *name)
{
	size_t len = strlen(name);

	return len > 0 && len <= FILE_NAME_MAX && !strchr(name, '/') && strcmp(name, ".") != 0 &&
		strcmp(name, "..") != 0;
}

void file_entry_pack(const struct file_entry *entry, struct pack_writer *writer)
{
	pack_u32(writer, entry->mode);
	pack_u64(writer, entry->size);
	pack_u64(writer, entry->allocated);
	pack_u64(writer, (uint64_t)entry->seconds);
	pack_u32(writer, entry->nanoseconds);
	pack_u32(writer, entry->uid);
	pack_u32(writer, entry->gid);
	pack_u32(writer, entry->n_links);
	pack_string(writer, entry->target);
}

static bool is_known_type(uint32_t mode)
{
	return S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode) || S_ISFIFO(mode) || S_ISSOCK(mode) ||
		S_ISCHR(mode) || S_ISBLK(mode);
}

void file_entry_unpack(struct file_entry *entry, struct pack_reader *reader)
{
	entry->mode = unpack_u32(reader);
	entry->size = unpack_u64(reader);
	entry->allocated = unpack_u64(reader);
	entry->seconds = (int64_t)unpack_u64(reader);
	entry->nanoseconds = unpack_u32(reader);
	entry->uid = unpack_u32(reader);
	entry->gid = unpack_u32(reader);
	entry->n_links = unpack_u32(reader);
	entry->target = unpack_string(reader);
	if ((entry->mode & ~(uint32_t)(S_IFMT | 07777)) || !is_known_type(entry->mode) || entry->size > INT64_MAX ||
		entry->nanoseconds >= NSEC_PER_SEC || strlen(entry->target) > FILE_LINK_MAX ||
		(S_ISLNK(entry->mode) != 0) != (entry->target[0] != 0))
		reader->failed = true;
}
