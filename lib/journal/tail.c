/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The end of the log as one handle sees it: reads on what others appended, and writes what this handle
 * appends.
 *
 * Under LOCK_APPEND nobody else writes, so bytes behind the end of the chain are what a killed writer left:
 * half a record is undone before the next one is written, so that two never become one line. Whole records
 * that cannot be reached, or a shared `known` beyond the end, are damage: told, and nothing is appended.
 * Without the lock such bytes may be a record that is being written; the chain then simply ends before them.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "journal/handle.h"
#include "journal/inject.h"

void tail_set_covered(abox_journal *journal, uint64_t seq, bool full)
{
	if (seq > journal->covered)
		__atomic_store_n(&journal->covered, seq, __ATOMIC_RELEASE);
	if (full && seq > journal->covered_full)
		__atomic_store_n(&journal->covered_full, seq, __ATOMIC_RELEASE);
	if (journal->covered >= journal->chain.seq) {
		journal->position_seq = journal->chain.seq;
		memcpy(journal->position_hash, journal->chain.hash, sizeof(journal->position_hash));
	}
}

int tail_damage(abox_journal *journal, uint64_t offset, const char *why, abox_error **reterr)
{
	char name[SEGMENT_NAME_BYTES], place[SEGMENT_NAME_BYTES + 24];
	int r;

	segment_name(journal->tail->number, name);
	snprintf(place, sizeof(place), "%s:%" PRIu64, name, offset);
	r = error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, place, "record %" PRIu64 " is damaged: %s",
		journal->chain.seq + 1, why);
	return error_remedy(
		reterr, r, "the journal can still be read; `agentbox journal repair` cuts the damage out");
}

int tail_show(abox_journal *journal, const struct journal_record *record, abox_error **reterr)
{
	struct journal_record shown = *record;
	int r = 0;

	if (journal->n_views == 0)
		return 0;
	journal->body.len = 0;
	text_add_bytes(&journal->body, record->body, record->body_len);
	if (journal->body.failed) {
		text_clear(&journal->body);
		r = ABOX_E_MEMORY;
	}
	shown.body = journal->body.data;
	for (size_t i = 0; i < journal->n_views && r >= 0; i++)
		r = journal->views[i].ops->observe(journal->views[i].view, &shown, reterr);
	if (r < 0)
		journal->broken = r;
	return r < 0 ? r : 0;
}

static int set_tail(abox_journal *journal, struct segment *segment, abox_error **reterr)
{
	char name[SEGMENT_NAME_BYTES];
	struct stat st;

	if (fstat(segment->fd, &st) < 0) {
		segment_name(segment->number, name);
		return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_JOURNAL, name, errno, "cannot stat");
	}
	/* a write beyond the limit would not fail, but end the process by a signal */
	if (journal->append && journal_beyond_limit((uint64_t)st.st_size))
		return error_set(reterr, ABOX_E_NOSPACE, ABOX_STAGE_JOURNAL, NULL,
			"the limit on file sizes (RLIMIT_FSIZE) is below the size of a segment");
	segment_unref(journal->tail);
	journal->tail = segment_ref(segment);
	journal->tail_bytes = (uint64_t)st.st_size;
	return 0;
}

int tail_start(abox_journal *journal, uint64_t number, abox_error **reterr)
{
	_cleanup_(segment_unrefp) struct segment *segment = NULL, *reopened = NULL;
	struct journal_record head;
	struct chain chain;
	int r;

	r = segment_read_head(journal->dir_fd, number, &journal->reader, &segment, &chain, &head, reterr);
	if (r < 0)
		return r;
	if (journal->append) {
		r = segment_open(journal->dir_fd, number, true, &reopened, reterr);
		if (r < 0)
			return r;
		if (reopened->inode != segment->inode)
			return error_set(reterr, ABOX_E_BUSY, ABOX_STAGE_JOURNAL, NULL,
				"the journal is being repaired");
	}
	r = set_tail(journal, reopened ? reopened : segment, reterr);
	if (r < 0)
		return r;
	journal->chain = chain;
	segment_reader_start(&journal->reader, journal->tail->fd, number, chain.offset);
	return 0;
}

/* The next segment is not there. It was pruned if a later one is: this handle has slept through all of it,
 * and starts again from the newest head, whose summaries replace what the views know. 1 then. */
static int go_to_newest(abox_journal *journal, abox_error **reterr)
{
	_cleanup_(freep) uint64_t *numbers = NULL;
	size_t n = 0;
	int r;

	r = segment_list(journal->dir_fd, &numbers, &n, reterr);
	if (r < 0 || n == 0 || numbers[n - 1] <= journal->tail->number)
		return r;
	if (n > 1 && numbers[0] <= journal->tail->number + 1)
		return 1; /* it has come meanwhile */
	r = tail_start(journal, numbers[n - 1], reterr);
	if (r == 0)
		r = views_reload(journal, reterr);
	return r < 0 ? r : 1;
}

/* The closing record was read. 1: the next segment is the tail now; 0: there is none yet. */
static int next_segment(abox_journal *journal, abox_error **reterr)
{
	_cleanup_(segment_unrefp) struct segment *segment = NULL;
	_cleanup_(error_freep) abox_error *error = NULL;
	struct chain chain = journal->chain;
	struct journal_record head;
	int r;

	r = segment_open(journal->dir_fd, journal->tail->number + 1, journal->append, &segment, &error);
	if (r == ABOX_E_NOT_FOUND)
		return go_to_newest(journal, reterr);
	if (r < 0) {
		if (reterr)
			*reterr = steal_ptr(error);
		return r;
	}
	chain.offset = 0;
	chain.closed = false;
	segment_reader_start(&journal->reader, segment->fd, segment->number, 0);
	r = segment_reader_next(&journal->reader, &chain, true, &head, reterr);
	if (r < 0)
		return r;
	if (r != SEGMENT_RECORD) {
		const char *why = journal->reader.why ? journal->reader.why : "its segment is empty";

		segment_reader_start(
			&journal->reader, journal->tail->fd, journal->tail->number, journal->chain.offset);
		return tail_damage(journal, journal->chain.offset, why, reterr);
	}
	r = set_tail(journal, segment, reterr);
	if (r < 0)
		return r;
	journal->chain = chain;
	r = tail_show(journal, &head, reterr);
	return r < 0 ? r : 1;
}

int tail_zero(abox_journal *journal, uint64_t end, abox_error **reterr)
{
	static const char zeros[16 * 1024];
	uint64_t at = journal->chain.offset;
	char name[SEGMENT_NAME_BYTES];
	int r = 0;

	/* Backwards: should it be cut short, the rest still looks like the half record it is. */
	while (end > at && r == 0) {
		uint64_t n = MIN(end - at, sizeof(zeros));

		r = jio_pwrite(journal->tail->fd, zeros, n, end - n);
		end -= n;
	}
	segment_reader_start(&journal->reader, journal->tail->fd, journal->tail->number, at);
	if (r == 0)
		return 0;
	segment_name(journal->tail->number, name);
	return error_set_errno(reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, name, -r, "cannot undo half a record");
}

/* LOCK_APPEND is held: nobody is writing these bytes any more. */
static int undo_half(abox_journal *journal, abox_error **reterr)
{
	const char *why = journal->reader.why;
	uint64_t end;
	int r;

	r = segment_claims(journal->tail->fd, journal->tail->number, journal->chain.offset,
		journal->chain.seq + 1, &end, reterr);
	if (r < 0)
		return r;
	if (r > 0 || journal->covered > journal->chain.seq)
		return tail_damage(journal, journal->chain.offset, why ? why : "not a record", reterr);
	if (end == journal->chain.offset)
		return 0;
	if (journal->opening) {
		r = recover_set_aside(journal, end, reterr);
		if (r < 0)
			return r;
	}
	return tail_zero(journal, end, reterr);
}

/* One byte tells whether there is anything new: the usual answer is no. */
static int probe(abox_journal *journal, abox_error **reterr)
{
	char byte = 0, name[SEGMENT_NAME_BYTES];
	ssize_t n;

	n = fd_pread_all(journal->tail->fd, &byte, 1, journal->chain.offset);
	if (n < 0) {
		segment_name(journal->tail->number, name);
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, name, (int)-n, "cannot read the segment");
	}
	return n == 1 && byte != 0;
}

int tail_catch_up(abox_journal *journal, bool locked, abox_error **reterr)
{
	struct journal_record record;
	int r;

	if (journal->broken)
		return error_set(reterr, journal->broken, ABOX_STAGE_JOURNAL, NULL,
			"this handle missed a record before; open the journal again");
	for (;;) {
		if (journal->chain.closed) {
			r = next_segment(journal, reterr);
			if (r <= 0)
				return r;
			continue;
		}
		r = probe(journal, reterr);
		if (r < 0)
			return r;
		r = r == 0 ? SEGMENT_END
			   : segment_reader_next(&journal->reader, &journal->chain, true, &record, reterr);
		if (r == SEGMENT_RECORD)
			r = tail_show(journal, &record, reterr);
		else if (r == SEGMENT_BROKEN)
			return locked ? undo_half(journal, reterr) : 0;
		else if (r == SEGMENT_END && locked && journal->opening)
			return undo_half(
				journal, reterr); /* pages reach the disk in any order: zeros may hide more */
		else
			return r;
		if (r < 0)
			return r;
	}
}

static int show_own(abox_journal *journal, uint64_t offset, abox_error **reterr)
{
	struct journal_record record;
	struct record_texts texts;
	int r;

	if (journal->n_views == 0)
		return 0;
	r = record_parse(journal->line.data, journal->line.len - 1, &record, &texts, NULL);
	if (r < 0) {
		journal->broken = r;
		return r;
	}
	record.segment = journal->tail->number;
	record.offset = offset;
	return tail_show(journal, &record, reterr);
}

int tail_build(abox_journal *journal, const struct journal_entry *entry, abox_error **reterr)
{
	struct record_fields fields = { .seq = journal->chain.seq + 1,
		.known = MIN(journal->covered, journal->chain.seq),
		.time_usec = clock_wall_usec(),
		.prev = journal->chain.hash };
	const char *why = "out of memory";
	int r;

	r = record_build(&journal->line, &fields, entry, journal->line_hash, &why);
	if (r < 0) {
		if (journal->line.failed)
			text_clear(&journal->line);
		return error_set(reterr, r, ABOX_STAGE_JOURNAL, NULL, "%s", why);
	}
	return 0;
}

int tail_write(abox_journal *journal, const struct journal_entry *entry, abox_error **reterr)
{
	uint64_t offset = journal->chain.offset;
	char name[SEGMENT_NAME_BYTES];
	int r;

	r = jio_pwrite(journal->tail->fd, journal->line.data, journal->line.len, offset);
	if (r < 0) {
		/* Where this fails too, the next appender undoes it. */
		(void)tail_zero(journal, offset + journal->line.len, NULL);
		segment_name(journal->tail->number, name);
		return error_set_errno(reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, name, -r, "cannot append");
	}
	journal->chain.seq++;
	memcpy(journal->chain.hash, journal->line_hash, sizeof(journal->chain.hash));
	journal->chain.offset += journal->line.len;
	journal->chain.room += entry->room_bytes;
	journal->chain.closed = strcmp(entry->type, "journal.rotate") == 0;
	return show_own(journal, offset, reterr);
}
