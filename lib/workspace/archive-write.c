/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Writing tar.gz so that the same entries give the same bytes: every field is set from the entry or fixed, no
 * name of a user, no time of writing. What does not fit the old header goes into an extended one, and only
 * then.
 */
#include "workspace/archive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/error.h"
#include "base/fd.h"

#define BLOCK 512
#define OUT_BYTES (128 * 1024)

struct archive_writer {
	z_stream stream;
	bool stream_open;
	int fd;
	uint64_t written; /* of the current content */
	uint64_t wanted;
	uint8_t out[OUT_BYTES];
};

struct header {
	char name[100];
	char mode[8];
	char uid[8];
	char gid[8];
	char size[12];
	char mtime[12];
	char checksum[8];
	char type;
	char target[100];
	char magic[8];
	char user[32];
	char group[32];
	char major[8];
	char minor[8];
	char prefix[155];
	char padding[12];
};
_Static_assert(sizeof(struct header) == BLOCK, "a tar header is one block");

int archive_writer_new(int fd, struct archive_writer **ret)
{
	struct archive_writer *writer = calloc(1, sizeof(*writer));

	if (!writer)
		return ABOX_E_MEMORY;
	writer->fd = fd;
	/* 15 bits of window, and 16 for a gzip header, which zlib fills without time or name. */
	if (deflateInit2(&writer->stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
		free(writer);
		return ABOX_E_MEMORY;
	}
	writer->stream_open = true;
	*ret = writer;
	return 0;
}

void archive_writer_freep(struct archive_writer **writer)
{
	if (!*writer)
		return;
	if ((*writer)->stream_open)
		deflateEnd(&(*writer)->stream);
	free(*writer);
	*writer = NULL;
}

static int put(struct archive_writer *writer, const void *data, size_t len, int flush, abox_error **reterr)
{
	int r, state;

	writer->stream.next_in = (Bytef *)(uintptr_t)data;
	writer->stream.avail_in = (uInt)len;
	do {
		writer->stream.next_out = writer->out;
		writer->stream.avail_out = OUT_BYTES;
		state = deflate(&writer->stream, flush);
		r = fd_write_all(writer->fd, writer->out, OUT_BYTES - writer->stream.avail_out);
		if (r < 0)
			return error_set_errno(reterr, ABOX_E_IO, ABOX_STAGE_WORKSPACE, NULL, -r,
				"cannot write the archive");
	} while (writer->stream.avail_out == 0 || (flush == Z_FINISH && state != Z_STREAM_END));
	return 0;
}

static int put_padded(struct archive_writer *writer, const void *data, size_t len, abox_error **reterr)
{
	static const uint8_t zeros[BLOCK];
	int r;

	r = put(writer, data, len, Z_NO_FLUSH, reterr);
	if (r >= 0 && len % BLOCK != 0)
		r = put(writer, zeros, BLOCK - len % BLOCK, Z_NO_FLUSH, reterr);
	return r;
}

/* One record: "LENGTH KEY=VALUE\n", where the length counts itself. */
static void add_record(struct text *records, const char *key, const void *value, size_t len)
{
	size_t body = strlen(key) + len + 3, total = body + 1, digits = 0;
	char number[24];

	while (digits != (size_t)snprintf(number, sizeof(number), "%zu", total)) {
		digits = strlen(number);
		total = body + digits;
	}
	text_printf(records, "%zu %s=", total, key);
	text_add_bytes(records, value, len);
	text_add(records, "\n");
}

static void add_number(struct text *records, const char *key, uint64_t value)
{
	char number[24];

	snprintf(number, sizeof(number), "%llu", (unsigned long long)value);
	add_record(records, key, number, strlen(number));
}

static void add_time(struct text *records, const struct archive_entry *entry)
{
	char number[48];
	int len;

	/* A time before 1970 counts its fraction downwards. */
	if (entry->mtime_sec < 0 && entry->mtime_nsec > 0)
		len = snprintf(number, sizeof(number), "-%llu.%09u",
			(unsigned long long)-(entry->mtime_sec + 1), 1000000000U - entry->mtime_nsec);
	else if (entry->mtime_nsec > 0)
		len = snprintf(
			number, sizeof(number), "%lld.%09u", (long long)entry->mtime_sec, entry->mtime_nsec);
	else
		len = snprintf(number, sizeof(number), "%lld", (long long)entry->mtime_sec);
	add_record(records, "mtime", number, (size_t)len);
}

static bool is_utf8(const char *string)
{
	size_t len = strlen(string), n;

	for (size_t i = 0; i < len; i += n) {
		n = utf8_char_len(string + i, len - i);
		if (n == 0)
			return false;
	}
	return true;
}

/* In octal, as wide as the field has room for with its end; false when it does not fit. */
static bool octal(char *field, size_t size, uint64_t value)
{
	char number[32];
	int len = snprintf(number, sizeof(number), "%0*llo", (int)size - 1, (unsigned long long)value);

	if (len != (int)size - 1)
		return false;
	memcpy(field, number, (size_t)len + 1);
	return true;
}

static int put_header(struct archive_writer *writer, struct header *header, abox_error **reterr)
{
	const uint8_t *bytes = (const uint8_t *)header;
	unsigned int sum = 0;
	char number[8];

	memcpy(header->magic,
		"ustar\0"
		"00",
		8);
	memset(header->checksum, ' ', sizeof(header->checksum));
	for (size_t i = 0; i < BLOCK; i++)
		sum += bytes[i];
	snprintf(number, sizeof(number), "%06o", sum & 0777777U);
	memcpy(header->checksum, number, 7);
	return put(writer, header, BLOCK, Z_NO_FLUSH, reterr);
}

static int put_extended(struct archive_writer *writer, struct text *records, abox_error **reterr)
{
	struct header header = {.name = "pax-header", .type = 'x'};
	int r;

	octal(header.mode, sizeof(header.mode), 0644);
	octal(header.uid, sizeof(header.uid), 0);
	octal(header.gid, sizeof(header.gid), 0);
	octal(header.mtime, sizeof(header.mtime), 0);
	if (!octal(header.size, sizeof(header.size), records->len))
		return ABOX_E_MEMORY;
	r = put_header(writer, &header, reterr);
	return r < 0 ? r : put_padded(writer, records->data, records->len, reterr);
}

static char type_letter(const struct archive_entry *entry)
{
	if (entry->hard_link)
		return '1';
	switch (entry->type) {
	case ABOX_FILE_LINK:
		return '2';
	case ABOX_FILE_FOLDER:
		return '5';
	case ABOX_FILE_FIFO:
		return '6';
	default:
		return '0';
	}
}

/* The map before the content of a sparse file: numbers on lines of their own. */
static void add_map(struct text *map, const struct archive_entry *entry, uint64_t *retbytes)
{
	static const char zeros[BLOCK];

	*retbytes = 0;
	text_printf(map, "%zu\n", entry->n_runs);
	for (size_t i = 0; i < entry->n_runs; i++) {
		text_printf(map, "%llu\n%llu\n", (unsigned long long)entry->runs[i].offset,
			(unsigned long long)entry->runs[i].len);
		*retbytes += entry->runs[i].len;
	}
	if (map->len % BLOCK != 0)
		text_add_bytes(map, zeros, BLOCK - map->len % BLOCK);
}

static void fill(
	struct header *header, struct text *records, const struct archive_entry *entry, uint64_t size)
{
	size_t len = strlen(entry->path);
	bool folder = entry->type == ABOX_FILE_FOLDER;

	header->type = type_letter(entry);
	if (len + folder > sizeof(header->name))
		add_record(records, "path", entry->path, len);
	memcpy(header->name, entry->path, MIN(len, sizeof(header->name)));
	if (folder && len < sizeof(header->name))
		header->name[len] = '/';
	if (entry->target) {
		len = strlen(entry->target);
		if (len > sizeof(header->target))
			add_record(records, "linkpath", entry->target, len);
		memcpy(header->target, entry->target, MIN(len, sizeof(header->target)));
	}
	octal(header->mode, sizeof(header->mode), entry->mode & 07777);
	if (!octal(header->uid, sizeof(header->uid), entry->uid)) {
		octal(header->uid, sizeof(header->uid), 0);
		add_number(records, "uid", entry->uid);
	}
	if (!octal(header->gid, sizeof(header->gid), entry->gid)) {
		octal(header->gid, sizeof(header->gid), 0);
		add_number(records, "gid", entry->gid);
	}
	if (!octal(header->size, sizeof(header->size), size)) {
		octal(header->size, sizeof(header->size), 0);
		add_number(records, "size", size);
	}
	if (entry->mtime_sec < 0 || entry->mtime_nsec > 0 ||
		!octal(header->mtime, sizeof(header->mtime), (uint64_t)entry->mtime_sec)) {
		octal(header->mtime, sizeof(header->mtime),
			entry->mtime_sec < 0 ? 0 : MIN(entry->mtime_sec, 077777777777LL));
		add_time(records, entry);
	}
}

/* The sum over all is at the front of the records: names that are not UTF-8 are said to be bytes. */
static void add_charset(struct text *records, const struct archive_entry *entry)
{
	if (!is_utf8(entry->path) || (entry->target && !is_utf8(entry->target)))
		add_record(records, "hdrcharset", "BINARY", 6);
}

static void add_xattrs(struct text *records, const struct archive_entry *entry)
{
	for (size_t i = 0; i < entry->n_xattrs; i++) {
		char key[300];

		snprintf(key, sizeof(key), "SCHILY.xattr.%s", entry->xattrs[i].name);
		add_record(records, key, entry->xattrs[i].value, entry->xattrs[i].len);
	}
}

static int write_entry(struct archive_writer *writer, const struct archive_entry *entry, struct text *records,
	struct text *map, abox_error **reterr)
{
	struct header header = {0};
	uint64_t size = entry->type == ABOX_FILE_REGULAR && !entry->hard_link ? entry->size : 0;
	int r = 0;

	add_charset(records, entry);
	if (entry->sparse) {
		add_map(map, entry, &size);
		add_number(records, "GNU.sparse.major", 1);
		add_number(records, "GNU.sparse.minor", 0);
		add_record(records, "GNU.sparse.name", entry->path, strlen(entry->path));
		add_number(records, "GNU.sparse.realsize", entry->size);
	}
	writer->wanted = size;
	writer->written = 0;
	fill(&header, records, entry, size + map->len);
	add_xattrs(records, entry);
	if (records->failed || map->failed)
		return ABOX_E_MEMORY;
	if (records->len > 0)
		r = put_extended(writer, records, reterr);
	if (r >= 0)
		r = put_header(writer, &header, reterr);
	if (r >= 0 && map->len > 0)
		r = put(writer, map->data, map->len, Z_NO_FLUSH, reterr);
	return r;
}

int archive_writer_entry(
	struct archive_writer *writer, const struct archive_entry *entry, abox_error **reterr)
{
	struct text records = TEXT_INIT, map = TEXT_INIT;
	int r;

	r = write_entry(writer, entry, &records, &map, reterr);
	text_clear(&records);
	text_clear(&map);
	return r;
}

int archive_writer_data(struct archive_writer *writer, const void *data, size_t len, abox_error **reterr)
{
	static const uint8_t zeros[BLOCK];
	int r;

	if (len > writer->wanted - writer->written)
		return error_set(reterr, ABOX_E_CONFLICT, ABOX_STAGE_WORKSPACE, NULL,
			"a file grew while it was packed");
	r = put(writer, data, len, Z_NO_FLUSH, reterr);
	writer->written += len;
	if (r >= 0 && writer->written == writer->wanted && writer->wanted % BLOCK != 0)
		r = put(writer, zeros, BLOCK - (size_t)(writer->wanted % BLOCK), Z_NO_FLUSH, reterr);
	return r;
}

int archive_writer_finish(struct archive_writer *writer, abox_error **reterr)
{
	static const uint8_t zeros[2 * BLOCK];

	return put(writer, zeros, sizeof(zeros), Z_FINISH, reterr);
}
