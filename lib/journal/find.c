/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Finding the records of one key: first what was carried over from pruned segments, then sealed segments by
 * their index, then the newest one, whose index is kept in memory and only ever added to.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "journal/index.h"

struct search {
	abox_journal *journal;
	const char *key;
	uint64_t hash;
	int (*visit)(void *userdata, const struct journal_record *record, abox_error **reterr);
	void *userdata;
	struct segment_reader reader;
	struct text body;
};

/* Returns what visit returned; 0 as well when the line carries another key with the same hash. */
static int show(struct search *search, struct journal_record *record, abox_error **reterr)
{
	if (!index_record_has(record, search->key))
		return 0;
	search->body.len = 0;
	text_add_bytes(&search->body, record->body, record->body_len);
	if (search->body.failed)
		return ABOX_E_MEMORY;
	record->body = search->body.data;
	return search->visit(search->userdata, record, reterr);
}

/* below: only records with a lower seq; they are not at their offset in a segment then. */
static int show_at(
	struct search *search, int fd, uint64_t number, uint64_t offset, uint64_t below, abox_error **reterr)
{
	struct journal_record record;
	int r;

	segment_reader_start(&search->reader, fd, number, offset);
	r = segment_reader_line(&search->reader, &offset, &record, reterr);
	if (r < 0)
		return r;
	if (r != SEGMENT_RECORD)
		return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, NULL,
			"the record at %" PRIu64 " of segment %" PRIu64 " is damaged", offset, number);
	if (record.seq >= below)
		return 0;
	if (below != UINT64_MAX)
		record.offset = UINT64_MAX;
	return show(search, &record, reterr);
}

static int show_index(struct search *search, const struct index *index, int fd, uint64_t number,
	uint64_t below, abox_error **reterr)
{
	size_t low = 0, high = index->n;
	int r = 0;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (index->entries[middle].key < search->hash)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < index->n && index->entries[low].key == search->hash && r == 0; low++)
		r = show_at(search, fd, number, index->entries[low].offset, below, reterr);
	return r;
}

static int search_carried(struct search *search, uint64_t first_seq, abox_error **reterr)
{
	_cleanup_(index_clearp) struct index index = { 0 };
	_cleanup_(fd_closep) int fd = -EBADF;
	uint64_t number = 0, bytes = 0;
	char name[40];
	int r;

	r = carried_open(search->journal->dir_fd, &fd, &number, &bytes, reterr);
	if (r < 0 || fd < 0)
		return r;
	carried_name(number, name);
	r = index_load(search->journal->dir_fd, name, fd, bytes, RECORD_HASH_NONE, search->journal->append,
		&index, reterr);
	return r < 0 ? r : show_index(search, &index, fd, 0, first_seq, reterr);
}

/* The head of the next segment says where a sealed one ends. */
static int search_sealed(struct search *search, uint64_t number, const struct journal_record *next_head,
	uint64_t sealed_bytes, abox_error **reterr)
{
	_cleanup_(segment_unrefp) struct segment *segment = NULL;
	_cleanup_(index_clearp) struct index index = { 0 };
	char name[SEGMENT_NAME_BYTES];
	int r;

	r = segment_open(search->journal->dir_fd, number, false, &segment, reterr);
	if (r < 0)
		return r;
	segment_name(number, name);
	r = index_load(search->journal->dir_fd, name, segment->fd, sealed_bytes, next_head->prev,
		search->journal->append, &index, reterr);
	return r < 0 ? r : show_index(search, &index, segment->fd, number, UINT64_MAX, reterr);
}

/* Adds what is new in the newest segment to the index in memory, then looks there. Under index_mutex. */
static int search_newest(struct search *search, struct segment *segment, uint64_t end, abox_error **reterr)
{
	struct tail_index *tail = search->journal->tail_index;
	struct journal_record record;
	size_t n;
	int r = 0;

	if (tail->number != segment->number) {
		index_clear(&tail->index);
		tail->number = segment->number;
		tail->offset = 0;
	}
	segment_reader_start(&search->reader, segment->fd, segment->number, tail->offset);
	while (tail->offset < end) {
		r = segment_reader_line(&search->reader, &tail->offset, &record, reterr);
		if (r < 0)
			return r;
		if (r != SEGMENT_RECORD)
			return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, NULL,
				"the record at %" PRIu64 " of segment %" PRIu64 " is damaged", tail->offset,
				segment->number);
		index_add_record(&tail->index, &record, record.offset);
	}
	if (tail->index.failed) {
		tail->number = 0;
		return ABOX_E_MEMORY;
	}
	r = 0;
	n = tail->index.n;
	for (size_t i = 0; i < n && r == 0; i++)
		if (tail->index.entries[i].key == search->hash)
			r = show_at(search, segment->fd, segment->number, tail->index.entries[i].offset,
				UINT64_MAX, reterr);
	return r;
}

static int search_all(struct search *search, struct segment *newest, uint64_t end, abox_error **reterr)
{
	struct segment_reader reader = SEGMENT_READER_INIT;
	_cleanup_(freep) uint64_t *numbers = NULL;
	struct journal_record head;
	struct chain chain;
	size_t n = 0;
	int r;

	r = segment_list(search->journal->dir_fd, &numbers, &n, reterr);
	for (size_t i = 0; i < n && r == 0 && numbers[i] <= newest->number; i++) {
		_cleanup_(segment_unrefp) struct segment *segment = NULL;

		r = segment_read_head(
			search->journal->dir_fd, numbers[i], &reader, &segment, &chain, &head, reterr);
		if (r == 0 && i == 0)
			r = search_carried(search, head.seq, reterr);
		else if (r == 0)
			r = search_sealed(search, numbers[i] - 1, &head, segment_sealed_bytes(&head), reterr);
	}
	segment_reader_clear(&reader);
	if (r != 0)
		return r;
	pthread_mutex_lock(&search->journal->index_mutex);
	r = search_newest(search, newest, end, reterr);
	pthread_mutex_unlock(&search->journal->index_mutex);
	return r;
}

int journal_find(abox_journal *journal, const char *key,
	int (*visit)(void *userdata, const struct journal_record *record, abox_error **reterr),
	void *userdata, abox_error **reterr)
{
	struct search search = { .journal = journal,
		.key = key,
		.hash = index_hash(key, strlen(key)),
		.visit = visit,
		.userdata = userdata,
		.reader = SEGMENT_READER_INIT };
	_cleanup_(segment_unrefp) struct segment *newest = NULL;
	uint64_t end;
	int r;

	r = journal_check(journal, false, reterr);
	if (r == 0)
		r = journal_mutex_lock(journal, journal_deadline(journal), reterr);
	if (r < 0)
		return r;
	r = tail_catch_up(journal, false, reterr);
	newest = segment_ref(journal->tail);
	end = journal->chain.offset;
	if (r == 0 && !journal->tail_index) {
		journal->tail_index = calloc(1, sizeof(*journal->tail_index));
		if (!journal->tail_index)
			r = ABOX_E_MEMORY;
	}
	journal_mutex_unlock(journal);
	if (r == 0)
		r = search_all(&search, newest, end, reterr);
	segment_reader_clear(&search.reader);
	text_clear(&search.body);
	return r < 0 ? r : 0;
}

void journal_tail_index_free(struct tail_index *tail)
{
	if (tail)
		index_clear(&tail->index);
	free(tail);
}
