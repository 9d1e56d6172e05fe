/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Segments: the files a journal consists of. A segment is written with zeros once, so that appending later
 * changes no metadata and needs no room. This file opens, lists and reads them; what is to be done about a
 * broken place is decided by those who call (tail.c, recover.c, verify.c).
 */
#include "journal/segment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "journal/inject.h"

#define CHUNK_BYTES (64 * 1024)
#define FIRST_CHUNK_BYTES 4096 /* a look for what is new seldom finds more */

void segment_name(uint64_t number, char ret[SEGMENT_NAME_BYTES])
{
	snprintf(ret, SEGMENT_NAME_BYTES, "%010" PRIu64 ".log", number % UINT64_C(10000000000));
}

int segment_wrap(int fd, uint64_t number, struct segment **ret, abox_error **reterr)
{
	_cleanup_(fd_closep) int owned_fd = fd;
	char name[SEGMENT_NAME_BYTES];
	struct segment *segment;
	struct stat st;

	segment_name(number, name);
	if (fstat(fd, &st) < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_JOURNAL, name, errno, "cannot stat");
	if (!S_ISREG(st.st_mode) || st.st_nlink > 1)
		return error_set(reterr, ABOX_E_PERMISSION, ABOX_STAGE_JOURNAL, name,
			"is not a plain file of its own");
	segment = calloc(1, sizeof(*segment));
	if (!segment)
		return ABOX_E_MEMORY;
	segment->n_refs = 1;
	segment->fd = steal_fd(owned_fd);
	segment->number = number;
	segment->inode = st.st_ino;
	segment->device = st.st_dev;
	*ret = segment;
	return 0;
}

int segment_open(int dir_fd, uint64_t number, bool writable, struct segment **ret, abox_error **reterr)
{
	char name[SEGMENT_NAME_BYTES];
	int fd;

	segment_name(number, name);
	fd = jio_open(dir_fd, name, writable ? O_RDWR : O_RDONLY, 0);
	if (fd < 0)
		return error_set_errno(reterr, fd == -ENOENT ? ABOX_E_NOT_FOUND : ABOX_E_IO,
			ABOX_STAGE_JOURNAL, name, -fd, "cannot open the segment");
	return segment_wrap(fd, number, ret, reterr);
}

struct segment *segment_ref(struct segment *segment)
{
	__atomic_add_fetch(&segment->n_refs, 1, __ATOMIC_RELAXED);
	return segment;
}

struct segment *segment_unref(struct segment *segment)
{
	if (segment && __atomic_sub_fetch(&segment->n_refs, 1, __ATOMIC_ACQ_REL) == 0) {
		fd_close(segment->fd);
		free(segment);
	}
	return NULL;
}

void segment_unrefp(struct segment **segment)
{
	*segment = segment_unref(*segment);
}

uint64_t segment_vital_room(uint64_t segment_bytes)
{
	return MIN(segment_bytes / 8, UINT64_C(32) * 1024);
}

static bool parse_name(const char *name, uint64_t *ret)
{
	uint64_t number = 0;

	if (strlen(name) != 14 || strcmp(name + 10, ".log") != 0)
		return false;
	for (int i = 0; i < 10; i++) {
		if (name[i] < '0' || name[i] > '9')
			return false;
		number = number * 10 + (uint64_t)(name[i] - '0');
	}
	*ret = number;
	return number > 0;
}

static int compare_numbers(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void closedirp(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

int segment_list(int dir_fd, uint64_t **ret, size_t *retn, abox_error **reterr)
{
	_cleanup_(freep) uint64_t *numbers = NULL;
	_cleanup_(closedirp) DIR *dir = NULL;
	size_t n = 0, allocated = 0;
	struct dirent *entry;
	uint64_t number, *grown;
	int fd;

	fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || !(dir = fdopendir(fd))) {
		fd_close(fd);
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, NULL, errno, "cannot list the folder");
	}
	while (errno = 0, (entry = readdir(dir))) {
		if (!parse_name(entry->d_name, &number))
			continue;
		if (n == allocated) {
			allocated = allocated ? allocated * 2 : 64;
			grown = reallocarray(numbers, allocated, sizeof(*numbers));
			if (!grown)
				return ABOX_E_MEMORY;
			numbers = grown;
		}
		numbers[n++] = number;
	}
	if (errno)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, NULL, errno, "cannot list the folder");
	if (n > 1)
		qsort(numbers, n, sizeof(*numbers), compare_numbers);
	*ret = steal_ptr(numbers);
	*retn = n;
	return 0;
}

void segment_reader_start(struct segment_reader *reader, int fd, uint64_t number, uint64_t offset)
{
	reader->fd = fd;
	reader->number = number;
	reader->start = reader->end = 0;
	reader->buffer_offset = offset;
	reader->why = NULL;
}

void segment_reader_clear(struct segment_reader *reader)
{
	free(reader->buffer);
	*reader = SEGMENT_READER_INIT;
}

/* Makes room for `want` more bytes behind what is unread, moving it to the front. */
static int reserve(struct segment_reader *reader, size_t want)
{
	size_t kept = reader->end - reader->start, need = kept + want + 1, size;
	char *grown;

	if (reader->start > 0 && kept > 0)
		memmove(reader->buffer, reader->buffer + reader->start, kept);
	reader->buffer_offset += reader->start;
	reader->start = 0;
	reader->end = kept;
	if (need <= reader->allocated)
		return 0;
	size = MAX(need, reader->allocated * 2);
	grown = realloc(reader->buffer, size);
	if (!grown)
		return ABOX_E_MEMORY;
	reader->buffer = grown;
	reader->allocated = size;
	return 0;
}

/* Reads on; *retmore tells whether there was anything. */
static int fill(struct segment_reader *reader, bool *retmore, abox_error **reterr)
{
	size_t want =
		reader->end == reader->start && reader->allocated == 0 ? FIRST_CHUNK_BYTES : CHUNK_BYTES;
	char name[SEGMENT_NAME_BYTES];
	ssize_t n;
	int r;

	r = reserve(reader, want);
	if (r < 0)
		return r;
	n = fd_pread_all(reader->fd, reader->buffer + reader->end, want, reader->buffer_offset + reader->end);
	if (n < 0) {
		segment_name(reader->number, name);
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, name, (int)-n, "cannot read the segment");
	}
	reader->end += (size_t)n;
	*retmore = n > 0;
	return 0;
}

static bool all_zero(const char *data, size_t len)
{
	return len == 0 || (data[0] == 0 && memcmp(data, data + 1, len - 1) == 0);
}

static int broken(struct segment_reader *reader, const char *why)
{
	reader->why = why;
	return SEGMENT_BROKEN;
}

/* No newline up to the end of the file: zeros are nothing, anything else is half a line. */
static int judge_rest(struct segment_reader *reader, abox_error **reterr)
{
	bool more = true, zero = true;
	int r;

	while (zero) {
		zero = all_zero(reader->buffer + reader->start, reader->end - reader->start);
		reader->start = reader->end;
		if (!zero || !more)
			break;
		r = fill(reader, &more, reterr);
		if (r < 0)
			return r;
	}
	return zero ? SEGMENT_END : broken(reader, "half a line");
}

/* Whether what follows holds a line: a zero byte before any newline says that it does not. */
static int find_line(struct segment_reader *reader, size_t *retlen, abox_error **reterr)
{
	size_t seen = 0, have;
	bool more = true;
	char *newline;
	int r;

	for (;;) {
		have = reader->end - reader->start;
		newline =
			have > seen ? memchr(reader->buffer + reader->start + seen, '\n', have - seen) : NULL;
		if (newline) {
			*retlen = (size_t)(newline - (reader->buffer + reader->start));
			return 1;
		}
		if (have > 0 && reader->buffer[reader->end - 1] == 0)
			return 0;
		if (have > RECORD_LINE_MAX || !more)
			return 0;
		seen = have;
		r = fill(reader, &more, reterr);
		if (r < 0)
			return r;
	}
}

static const char *judge_place(
	const struct chain *chain, bool check_chain, const struct journal_record *record)
{
	if (chain->closed)
		return "bytes behind the closing record";
	if (record_opens(record) != (chain->offset == 0))
		return "a head that is not the first line, or a first line that is no head";
	if (!check_chain)
		return NULL;
	if (record->seq != chain->seq + 1)
		return record->seq <= chain->seq ? "a record that was there before" : "records are missing";
	if (strcmp(record->prev, chain->hash) != 0)
		return "the chain does not fit";
	if (!record_opens(record) && chain->room + record->room_bytes < 0)
		return "gives back more room than was reserved";
	return NULL;
}

/* One try with what is in the buffer and behind it. */
static int next_line(struct segment_reader *reader, struct chain *chain, bool check_chain,
	struct journal_record *ret, size_t *retlen, abox_error **reterr)
{
	int r;

	r = find_line(reader, retlen, reterr);
	if (r < 0)
		return r;
	if (r == 0 || reader->buffer[reader->start] == 0)
		return judge_rest(reader, reterr);
	r = record_parse(reader->buffer + reader->start, *retlen, ret, &reader->texts, &reader->why);
	if (r == ABOX_E_SYNTAX)
		return SEGMENT_BROKEN;
	if (r < 0)
		return r;
	reader->why = judge_place(chain, check_chain, ret);
	return reader->why ? SEGMENT_BROKEN : SEGMENT_RECORD;
}

int segment_reader_next(struct segment_reader *reader, struct chain *chain, bool check_chain,
	struct journal_record *ret, abox_error **reterr)
{
	size_t len = 0;
	bool stale;
	int r;

	if (reader->buffer_offset + reader->start != chain->offset)
		segment_reader_start(reader, reader->fd, reader->number, chain->offset);
	stale = reader->end > reader->start;
	r = next_line(reader, chain, check_chain, ret, &len, reterr);
	if (r != SEGMENT_RECORD && r >= 0 && stale) {
		/* what was read earlier may be older than what stands there now */
		segment_reader_start(reader, reader->fd, reader->number, chain->offset);
		r = next_line(reader, chain, check_chain, ret, &len, reterr);
	}
	if (r != SEGMENT_RECORD) {
		const char *why = reader->why;

		segment_reader_start(reader, reader->fd, reader->number, chain->offset);
		reader->why = why;
		return r;
	}
	ret->segment = reader->number;
	ret->offset = chain->offset;
	chain->seq = ret->seq;
	memcpy(chain->hash, reader->texts.hash, sizeof(chain->hash));
	chain->room = record_opens(ret) ? ret->room_bytes : chain->room + ret->room_bytes;
	chain->offset += len + 1;
	chain->closed = record_closes(ret);
	reader->start += len + 1;
	return SEGMENT_RECORD;
}

int segment_reader_line(
	struct segment_reader *reader, uint64_t *offset, struct journal_record *ret, abox_error **reterr)
{
	size_t len = 0;
	int r;

	if (reader->buffer_offset + reader->start != *offset)
		segment_reader_start(reader, reader->fd, reader->number, *offset);
	r = find_line(reader, &len, reterr);
	if (r < 0)
		return r;
	if (r == 0 || reader->buffer[reader->start] == 0)
		return SEGMENT_END;
	r = record_parse(reader->buffer + reader->start, len, ret, &reader->texts, &reader->why);
	if (r < 0)
		return r == ABOX_E_SYNTAX ? SEGMENT_BROKEN : r;
	ret->segment = reader->number;
	ret->offset = *offset;
	*offset += len + 1;
	reader->start += len + 1;
	return SEGMENT_RECORD;
}

/* Does a piece of a file up to a newline end in a whole record that claims seq? Before it there may be half a
 * record and a hole, or a record whose newline was lost. Few starts are tried: the bytes may be anybody's. */
static bool line_claims(const char *line, size_t len, uint64_t seq)
{
	static const char start[] = "{\"seq\":";
	struct journal_record record;
	struct record_texts texts;
	const char *zero = memrchr(line, 0, len), *at, *end = line + len;

	if (zero)
		line = zero + 1;
	for (int tries = 0; tries < 8; tries++) {
		at = memmem(line, (size_t)(end - line), start, sizeof(start) - 1);
		if (!at)
			return false;
		if (record_parse(at, (size_t)(end - at), &record, &texts, NULL) == 0)
			return record.known >= seq;
		line = at + 1;
	}
	return false;
}

int segment_claims(
	int fd, uint64_t number, uint64_t offset, uint64_t seq, uint64_t *retend, abox_error **reterr)
{
	struct segment_reader reader = SEGMENT_READER_INIT;
	uint64_t end = offset;
	bool claimed = false, more = true;
	int r = 0;

	segment_reader_start(&reader, fd, number, offset);
	while (r == 0 && more) {
		char *line, *newline;

		r = fill(&reader, &more, reterr);
		if (r < 0)
			break;
		for (;;) {
			size_t have = reader.end - reader.start;

			line = reader.buffer + reader.start;
			newline = memchr(line, '\n', have);
			if (!newline)
				break;
			claimed = claimed || line_claims(line, (size_t)(newline - line), seq);
			reader.start += (size_t)(newline - line) + 1;
			end = reader.buffer_offset + reader.start;
		}
		/* what is left is half a line, or zeros: keep no more of it than a line can have */
		if (all_zero(reader.buffer + reader.start, reader.end - reader.start)) {
			reader.start = reader.end;
			continue;
		}
		for (size_t i = reader.end; i > reader.start; i--)
			if (reader.buffer[i - 1] != 0) {
				end = MAX(end, reader.buffer_offset + i);
				break;
			}
		if (reader.end - reader.start > RECORD_LINE_MAX)
			reader.start = reader.end;
	}
	segment_reader_clear(&reader);
	if (r < 0)
		return r;
	if (retend)
		*retend = end;
	return claimed;
}

int segment_read_head(int dir_fd, uint64_t number, struct segment_reader *reader, struct segment **retsegment,
	struct chain *retchain, struct journal_record *ret, abox_error **reterr)
{
	_cleanup_(segment_unrefp) struct segment *segment = NULL;
	struct chain chain = { .seq = 0 };
	char name[SEGMENT_NAME_BYTES];
	int r;

	r = segment_open(dir_fd, number, false, &segment, reterr);
	if (r < 0)
		return r;
	segment_reader_start(reader, segment->fd, number, 0);
	r = segment_reader_next(reader, &chain, false, ret, reterr);
	if (r < 0)
		return r;
	if (r != SEGMENT_RECORD || !record_opens(ret)) {
		segment_name(number, name);
		return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, name,
			"the segment has no head (%s)",
			reader->why        ? reader->why
			: r == SEGMENT_END ? "it is empty"
					   : "another record stands there");
	}
	*retchain = chain;
	*retsegment = steal_ptr(segment);
	return 0;
}

/* The writer puts the seal before anything that others may fill in, so the first match is the seal's. */
uint64_t segment_sealed_bytes(const struct journal_record *head)
{
	static const char before[] = "\"sealed\":{\"segment\":", member[] = ",\"bytes\":";
	const char *end = head->body + head->body_len, *at;
	uint64_t value = 0;

	at = memmem(head->body, head->body_len, before, sizeof(before) - 1);
	if (at)
		at = memmem(at, (size_t)(end - at), member, sizeof(member) - 1);
	if (!at)
		return 0;
	for (at += sizeof(member) - 1; at < end && *at >= '0' && *at <= '9' && value < UINT64_MAX / 16; at++)
		value = value * 10 + (uint64_t)(*at - '0');
	return value;
}
