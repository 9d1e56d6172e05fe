/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The reader of segments over any bytes: it never reads beyond, always ends, and what it takes for a record
 * is one; a prefix of records that it accepts is the same when read again. The bytes are a file of several
 * lines; hashes are made right first for lines that end in `"hash":"?"}`, so that the parser behind the hash
 * is reached.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "journal/segment.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char mark[] = ",\"hash\":\"?\"}";

static void add_line(struct text *file, const char *line, size_t len)
{
	char hash[DIGEST_TEXT_BYTES];
	size_t n = sizeof(mark) - 1;

	if (len < n || memcmp(line + len - n, mark, n) != 0) {
		text_add_bytes(file, line, len);
		return;
	}
	if (digest_sha256_text(line, len - n, hash) < 0)
		abort();
	text_add_bytes(file, line, len - n);
	text_add(file, ",\"hash\":\"");
	text_add(file, hash);
	text_add(file, "\"}");
}

static void read_all(int fd, uint64_t *retn, uint64_t *retend)
{
	struct segment_reader reader = SEGMENT_READER_INIT;
	struct journal_record record;
	struct chain chain = { .seq = 0 };
	bool check = false;
	int r;

	*retn = 0;
	segment_reader_start(&reader, fd, 1, 0);
	while ((r = segment_reader_next(&reader, &chain, check, &record, NULL)) == SEGMENT_RECORD) {
		if (record.body_len < 2 || record.body[0] != '{' ||
			memchr(record.line, '\n', record.line_len))
			abort();
		if (record.known >= record.seq && record.seq > 0)
			abort();
		check = true;
		(*retn)++;
		if (chain.closed)
			break;
	}
	*retend = chain.offset;
	(void)segment_claims(fd, 1, chain.offset, chain.seq + 1, NULL, NULL);
	segment_reader_clear(&reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(text_clear) struct text file = TEXT_INIT, compact = TEXT_INIT, again = TEXT_INIT;
	const char *at = (const char *)data, *end = at + size;
	uint64_t n[2], ends[2];
	int fd;

	if (json_text_compact(&compact, at, size, false, NULL) == 0) {
		/* what was made compact stays as it is */
		if (json_text_compact(&again, compact.data, compact.len, false, NULL) < 0 ||
			again.len != compact.len || memcmp(again.data, compact.data, compact.len) != 0)
			abort();
	}
	while (at < end) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));

		add_line(&file, at, (size_t)((newline ? newline : end) - at));
		if (newline)
			text_add(&file, "\n");
		at = newline ? newline + 1 : end;
	}
	fd = memfd_create("fuzz", MFD_CLOEXEC);
	if (fd < 0 || (file.len > 0 && write(fd, file.data, file.len) != (ssize_t)file.len))
		abort();
	read_all(fd, &n[0], &ends[0]);
	read_all(fd, &n[1], &ends[1]);
	if (n[0] != n[1] || ends[0] != ends[1])
		abort();
	close(fd);
	return 0;
}
