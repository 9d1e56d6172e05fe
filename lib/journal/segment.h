/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef JOURNAL_SEGMENT_H
#define JOURNAL_SEGMENT_H

#include <errno.h>

#include "journal/format.h"

#define SEGMENT_NAME_BYTES 24 /* "0000000001.log" */
#define SEGMENT_BYTES_DEFAULT (4U * 1024 * 1024)
#define SEGMENT_BYTES_MIN (64U * 1024)
#define SEGMENT_BYTES_MAX (1024U * 1024 * 1024)
#define SEGMENT_ROOM_CLOSE 1024 /* for the closing record, always kept */

/* An open segment file; shared by a handle's tail and a sync under way. */
struct segment {
	unsigned int n_refs; /* atomic */
	int fd;
	uint64_t number;
	uint64_t inode;
	uint64_t device;
};

void segment_name(uint64_t number, char ret[SEGMENT_NAME_BYTES]);
/* Opens and checks one; 0, -ENOENT passes as ABOX_E_NOT_FOUND. */
int segment_open(int dir_fd, uint64_t number, bool writable, struct segment **ret, abox_error **reterr);
int segment_wrap(int fd, uint64_t number, struct segment **ret, abox_error **reterr); /* consumes fd */
struct segment *segment_ref(struct segment *segment);
struct segment *segment_unref(struct segment *segment);
void segment_unrefp(struct segment **segment);
/* Room for vital records that ordinary ones leave alone. */
uint64_t segment_vital_room(uint64_t segment_bytes);

/* Sorted numbers of the segment files in the folder; *ret is malloc'ed and may be NULL when there is none. */
int segment_list(int dir_fd, uint64_t **ret, size_t *retn, abox_error **reterr);

/* The place in a chain where the next record has to fit. */
struct chain {
	uint64_t seq;                 /* of the last record; 0 before the first */
	char hash[DIGEST_TEXT_BYTES]; /* of the last record */
	uint64_t offset;              /* where the next line begins */
	int64_t room;                 /* reserved and not yet given back */
	bool closed;                  /* the last record closes the segment */
};

/*
 * Reads lines of one segment in constant memory (the longest line). What it gives is checked down to hash and
 * place in the chain; the chain is then moved on. The texts hold until the next call.
 */
struct segment_reader {
	int fd;
	uint64_t number;
	char *buffer;
	size_t allocated;
	size_t start; /* unread bytes: [start, end) */
	size_t end;
	uint64_t buffer_offset; /* in the file, of buffer[0] */
	struct record_texts texts;
	const char *why; /* static text: what was wrong at the place where it stopped */
};
#define SEGMENT_READER_INIT ((struct segment_reader){ .fd = -EBADF })
void segment_reader_start(struct segment_reader *reader, int fd, uint64_t number, uint64_t offset);
void segment_reader_clear(struct segment_reader *reader); /* does not close fd */

enum segment_answer {
	SEGMENT_RECORD = 1, /* *ret is filled, *chain moved on */
	SEGMENT_END = 0,    /* nothing but zeros, or the end of the file, at chain->offset */
	SEGMENT_BROKEN = 2, /* bytes at chain->offset that are not the next record; reader->why */
};
/* check_chain false: for the first line of a segment whose past is not known; the chain is taken from it. */
int segment_reader_next(struct segment_reader *reader, struct chain *chain, bool check_chain,
	struct journal_record *ret, abox_error **reterr);

/* The line at *offset, which is moved behind it, without a look at any chain. */
int segment_reader_line(
	struct segment_reader *reader, uint64_t *offset, struct journal_record *ret, abox_error **reterr);

/*
 * Looks behind a broken place for a whole record that says its writer knew seq (or a later one) to be
 * durable: 1 then (damage), 0 when there is none (a torn tail). *retend: where the last byte that is not zero
 * ends.
 */
int segment_claims(
	int fd, uint64_t number, uint64_t offset, uint64_t seq, uint64_t *retend, abox_error **reterr);

/* True when the record closes its segment. */
static inline bool record_closes(const struct journal_record *record)
{
	return record->type[0] == 'j' && __builtin_strcmp(record->type, "journal.rotate") == 0;
}

/* True for the head, the first record of a segment. */
static inline bool record_opens(const struct journal_record *record)
{
	return record->type[0] == 'j' && __builtin_strcmp(record->type, "journal.open") == 0;
}

/* Where the lines of the segment before end, as a head says; 0: it does not say. */
uint64_t segment_sealed_bytes(const struct journal_record *head);

/* The first line of a segment file: seq, prev and body. Not checked against what was before. */
int segment_read_head(int dir_fd, uint64_t number, struct segment_reader *reader, struct segment **retsegment,
	struct chain *retchain, struct journal_record *ret, abox_error **reterr);

#endif
