/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reading across segments, in order and in constant memory, while others append.
 *
 * Without a lock, bytes that are no record yet may be one that is being written, so the end is wherever the
 * chain ends. A place is called damaged only when something behind it says that it was whole once: a later
 * record's `known`, a later segment, or what live processes know; and only after it was read again, as the
 * writer may have finished between the two looks.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "journal/handle.h"
#include "journal/inject.h"

void log_clear(struct log *log)
{
	segment_reader_clear(&log->reader);
	log->segment = segment_unref(log->segment);
}

void log_clearp(struct log *log)
{
	log_clear(log);
}

static int sync_segment(struct log *log, abox_error **reterr)
{
	int r = log->sync_each ? jio_datasync(log->segment->fd) : 0;

	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, NULL, -r, "cannot sync the copy");
	return 0;
}

/* Leaves the log behind the head of a segment, the head in log->head. */
static int enter(struct log *log, uint64_t number, abox_error **reterr)
{
	struct segment *segment = NULL;
	struct chain chain;
	int r;

	r = segment_read_head(log->dir_fd, number, &log->reader, &segment, &chain, &log->head, reterr);
	if (r < 0)
		return r;
	segment_unref(log->segment);
	log->segment = segment;
	log->chain = chain;
	log->head_pending = true;
	return sync_segment(log, reterr);
}

/* The last segment that begins at or before from_seq: heads are read, as few as a binary search needs. */
static int find_segment(
	struct log *log, const uint64_t *numbers, size_t n, uint64_t from_seq, abox_error **reterr)
{
	size_t low = 0, high = n;
	int r;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		r = enter(log, numbers[middle], reterr);
		if (r < 0)
			return r;
		if (log->head.seq <= from_seq)
			low = middle;
		else
			high = middle;
	}
	r = enter(log, numbers[low], reterr);
	if (r == 0 && log->head.seq > from_seq)
		return error_set(reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_JOURNAL, NULL,
			"record %" PRIu64 " was pruned; the first one is %" PRIu64, from_seq, log->head.seq);
	return r;
}

int log_start(struct log *log, int dir_fd, uint64_t from_seq, bool sync_each, abox_error **reterr)
{
	_cleanup_(freep) uint64_t *numbers = NULL;
	struct journal_record record;
	size_t n = 0;
	int r;

	log->dir_fd = dir_fd;
	log->sync_each = sync_each;
	r = segment_list(dir_fd, &numbers, &n, reterr);
	if (r < 0)
		return r;
	if (n == 0)
		return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, NULL, "there is no segment");
	if (from_seq == 0)
		return enter(log, numbers[0], reterr);
	r = find_segment(log, numbers, n, from_seq, reterr);
	if (r < 0 || log->head.seq == from_seq)
		return r;
	log->head_pending = false;
	while (log->chain.seq + 1 < from_seq) {
		r = log_next(log, 0, &record, reterr);
		if (r < 0)
			return r;
		if (r == 0)
			return error_set(reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_JOURNAL, NULL,
				"there is no record %" PRIu64 " yet; the last one is %" PRIu64, from_seq,
				log->chain.seq);
	}
	return 0;
}

/* The next segment is not there: it is still to come (0), has come just now (1), or was pruned. */
static int judge_missing(struct log *log, abox_error **reterr)
{
	_cleanup_(freep) uint64_t *numbers = NULL;
	size_t n = 0;
	int r;

	r = segment_list(log->dir_fd, &numbers, &n, reterr);
	if (r < 0 || n == 0 || numbers[n - 1] <= log->segment->number)
		return r;
	for (size_t i = 0; i < n; i++)
		if (numbers[i] == log->segment->number + 1)
			return 1;
	if (numbers[0] > log->segment->number)
		return error_set(reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_JOURNAL, NULL,
			"record %" PRIu64 " was pruned before it was read", log->chain.seq + 1);
	return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, NULL, "segment %" PRIu64 " is missing",
		log->segment->number + 1);
}

/* 1: the next segment was entered; 0: there is none. */
static int go_on(struct log *log, abox_error **reterr)
{
	_cleanup_(error_freep) abox_error *error = NULL;
	struct chain before = log->chain;
	int r;

	r = enter(log, log->segment->number + 1, &error);
	if (r == ABOX_E_NOT_FOUND) {
		r = judge_missing(log, reterr);
		if (r <= 0)
			return r;
		error = abox_error_free(error);
		r = enter(log, log->segment->number + 1, &error);
	}
	if (r < 0) {
		if (reterr)
			*reterr = steal_ptr(error);
		return r;
	}
	if (log->head.seq != before.seq + 1 || strcmp(log->head.prev, before.hash) != 0) {
		char name[SEGMENT_NAME_BYTES];

		segment_name(log->segment->number, name);
		return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, name,
			"the segment does not follow the one before");
	}
	return 1;
}

static bool exists(const struct log *log, uint64_t number)
{
	char name[SEGMENT_NAME_BYTES];

	segment_name(number, name);
	return faccessat(log->dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A repair puts another file in the place of the newest segment, with the same chain in it. */
static int was_replaced(struct log *log, abox_error **reterr)
{
	_cleanup_(segment_unrefp) struct segment *segment = NULL;
	char name[SEGMENT_NAME_BYTES];
	struct stat st;
	int r;

	segment_name(log->segment->number, name);
	if (fstatat(log->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		(st.st_ino == log->segment->inode && st.st_dev == log->segment->device))
		return 0;
	r = segment_open(log->dir_fd, log->segment->number, false, &segment, reterr);
	if (r < 0)
		return r == ABOX_E_NOT_FOUND ? 0 : r;
	segment_unref(log->segment);
	log->segment = steal_ptr(segment);
	segment_reader_start(&log->reader, log->segment->fd, log->segment->number, log->chain.offset);
	return 1;
}

/* Something stands behind the end of the chain, or nothing where something was. 1: that is damage. */
static int is_damage(struct log *log, int answer, uint64_t known, abox_error **reterr)
{
	if (known > log->chain.seq || exists(log, log->segment->number + 1))
		return 1;
	/* after a power loss zeros may hide records; this is looked at once, as nothing else makes such a
	 * hole */
	if (answer == SEGMENT_END && log->looked_behind == log->segment->number)
		return 0;
	log->looked_behind = log->segment->number;
	return segment_claims(
		log->segment->fd, log->segment->number, log->chain.offset, log->chain.seq + 1, NULL, reterr);
}

static int set_damage(struct log *log, abox_error **reterr)
{
	char name[SEGMENT_NAME_BYTES], place[SEGMENT_NAME_BYTES + 24];

	segment_name(log->segment->number, name);
	snprintf(place, sizeof(place), "%s:%" PRIu64, name, log->chain.offset);
	return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, place,
		"record %" PRIu64 " is damaged: %s", log->chain.seq + 1,
		log->reader.why ? log->reader.why : "it is missing");
}

int log_next(struct log *log, uint64_t known, struct journal_record *ret, abox_error **reterr)
{
	bool suspected = false;
	int r;

	if (log->head_pending) {
		log->head_pending = false;
		*ret = log->head;
		return 1;
	}
	for (;;) {
		if (log->chain.closed) {
			r = go_on(log, reterr);
			if (r <= 0)
				return r;
			log->head_pending = false;
			*ret = log->head;
			return 1;
		}
		r = segment_reader_next(&log->reader, &log->chain, true, ret, reterr);
		if (r < 0 || r == SEGMENT_RECORD)
			return r < 0 ? r : 1;
		if (suspected)
			return set_damage(log, reterr);
		r = is_damage(log, r, known, reterr);
		if (r == 0) {
			r = was_replaced(log, reterr);
			if (r <= 0)
				return r;
			continue;
		}
		if (r < 0)
			return r;
		suspected = true; /* one more look: it may have been written meanwhile */
	}
}

int journal_hash_of(abox_journal *journal, uint64_t seq, char rethash[DIGEST_TEXT_BYTES], abox_error **reterr)
{
	_cleanup_(error_freep) abox_error *error = NULL;
	_cleanup_(log_clearp) struct log log = LOG_INIT;
	struct journal_record record;
	int r;

	r = log_start(&log, journal->dir_fd, seq, false, &error);
	if (r == ABOX_E_NOT_FOUND)
		return 0;
	if (r == 0)
		r = log_next(&log, 0, &record, &error);
	if (r < 0 && reterr)
		*reterr = steal_ptr(error);
	if (r <= 0)
		return r;
	memcpy(rethash, record.hash, DIGEST_TEXT_BYTES);
	return 1;
}

int journal_read_range(abox_journal *journal, uint64_t first_seq, uint64_t last_seq,
	int (*visit)(void *userdata, const struct journal_record *record, abox_error **reterr),
	void *userdata, abox_error **reterr)
{
	_cleanup_(log_clearp) struct log log = LOG_INIT;
	_cleanup_(text_clear) struct text body = TEXT_INIT;
	struct journal_record record;
	int r;

	r = journal_check(journal, false, reterr);
	if (r == 0)
		r = log_start(&log, journal->dir_fd, first_seq, journal->cloned, reterr);
	while (r == 0) {
		r = log_next(&log, 0, &record, reterr);
		if (r <= 0)
			return r;
		if (record.seq > last_seq)
			return 0;
		body.len = 0;
		text_add_bytes(&body, record.body, record.body_len);
		if (body.failed)
			return ABOX_E_MEMORY;
		record.body = body.data;
		r = visit(userdata, &record, reterr);
	}
	return r < 0 ? r : 0;
}
