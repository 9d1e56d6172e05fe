/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef JOURNAL_INDEX_H
#define JOURNAL_INDEX_H

#include "journal/handle.h"

struct index_entry {
	uint64_t key;    /* hash of the key text */
	uint64_t offset; /* of a line in the file */
};

/* Which lines of one file carry which keys. */
struct index {
	struct index_entry *entries;
	size_t n;
	size_t allocated;
	bool failed; /* out of memory while adding */
};

/* Of the newest segment, in memory. Guarded by the handle's index_mutex. */
struct tail_index {
	uint64_t number;
	uint64_t offset;    /* up to here */
	struct index index; /* not sorted */
};

uint64_t index_hash(const char *key, size_t len);
/* Adds all keys of a record: "task:NAME", and what the views in the table emit. */
void index_add_record(struct index *index, const struct journal_record *record, uint64_t offset);
bool index_record_has(const struct journal_record *record, const char *key);
void index_sort(struct index *index);
void index_clear(struct index *index);
void index_clearp(struct index *index);

/* Index of an immutable file of lines, NAME.idx beside NAME.log: read, or built and (where possible) stored.
 * end: where its lines end; hash: of the last one. */
int index_load(int dir_fd, const char *name, int fd, uint64_t end, const char *hash, bool store,
	struct index *ret, abox_error **reterr);

/* The lines of a pruned past that were carried over; the newest file of its kind, -EBADF and 0 when there is
 * none. */
int carried_open(int dir_fd, int *retfd, uint64_t *retnumber, uint64_t *retbytes, abox_error **reterr);
int carried_remove_below(int dir_fd, uint64_t number); /* older ones, and their indexes: 0 or -errno */
void carried_name(uint64_t number, char ret[40]);

#endif
