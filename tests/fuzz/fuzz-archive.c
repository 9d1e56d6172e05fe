/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Archives from anywhere. Nothing may crash, hang or take memory without bound; every path that the reader gives is
 * one that stays below its folder, and the pieces of a file lie within it, in order.
 */
#include <stdlib.h>
#include <string.h>

#include "workspace/archive.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void check_path(const char *path)
{
	require(path[0] != '/');
	while (*path) {
		size_t len = strcspn(path, "/");

		require(len > 0 && len < 256);
		require(!(len == 1 && path[0] == '.') && !(len == 2 && path[0] == '.' && path[1] == '.'));
		path += len;
		path += *path == '/';
	}
}

static int read_entry(struct archive_reader *reader, const struct archive_entry *entry)
{
	uint64_t last = 0, offset, total = 0;
	const void *piece;
	size_t len;
	int r;

	check_path(entry->path);
	if (entry->hard_link)
		check_path(entry->target);
	require(entry->type != ABOX_FILE_LINK || entry->target);
	while (total < 1 << 22 && (r = archive_reader_data(reader, &piece, &len, &offset, NULL)) > 0) {
		require(len > 0 && offset >= last && offset + len <= entry->size);
		last = offset + len;
		total += len;
	}
	return total < 1 << 22 ? r : -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct archive_reader *reader;
	struct archive_entry entry;
	int r;

	if (archive_reader_new_memory(data, size, &reader) < 0)
		return 0;
	for (int n = 0; n < 1000 && archive_reader_next(reader, &entry, NULL) > 0; n++) {
		struct text line = TEXT_INIT;

		r = read_entry(reader, &entry);
		archive_manifest_line(&line, &entry, "");
		text_clear(&line);
		archive_entry_clear(&entry);
		if (r < 0)
			break;
	}
	archive_reader_freep(&reader);
	return 0;
}
