/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Recovery: what a crash, a failed sync or a damaged disk left in the newest segment.
 *
 * A torn tail is set aside, zeroed and told. A poisoned journal is written anew: after a failed sync the page
 * cache may call clean what the disk never got, so only freshly written pages of another file can be synced
 * and believed. Both keep every record of the chain. Damage is cut out only when somebody says so by name.
 * All of this ends with a rename, so that stopping anywhere leaves the old file or the new one.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "journal/handle.h"
#include "journal/inject.h"

#define REWRITE_NAME "rewrite"

static int copy_bytes(int from_fd, uint64_t from, uint64_t to, int to_fd)
{
	_cleanup_(freep) char *buffer = malloc(256 * 1024);
	uint64_t at = from;
	int r = 0;

	if (!buffer)
		return -ENOMEM;
	while (at < to && r == 0) {
		ssize_t n = fd_pread_all(from_fd, buffer, MIN(to - at, UINT64_C(256) * 1024), at);

		if (n <= 0)
			return n < 0 ? (int)n : -EIO;
		r = jio_pwrite(to_fd, buffer, (size_t)n, at - from);
		at += (uint64_t)n;
	}
	return r;
}

/* A copy of [from, to) under a name of its own; *retname has 64 bytes. */
static int set_aside(abox_journal *journal, int fd, const char *what, uint64_t number, uint64_t from,
	uint64_t to, char retname[64])
{
	_cleanup_(fd_closep) int aside_fd = -EBADF;
	int r;

	for (int i = 0; i < 1000; i++) {
		snprintf(retname, 64, "%s-%010" PRIu64 "-%" PRIu64 ".%d", what, number, from, i);
		aside_fd = jio_open(journal->dir_fd, retname, O_WRONLY | O_CREAT | O_EXCL, 0600);
		if (aside_fd != -EEXIST)
			break;
	}
	if (aside_fd < 0)
		return aside_fd;
	r = copy_bytes(fd, from, to, aside_fd);
	if (r == 0)
		r = jio_sync(aside_fd);
	if (r == 0)
		r = jio_sync(journal->dir_fd);
	if (r < 0)
		(void)jio_unlink(journal->dir_fd, retname);
	return r;
}

int recover_set_aside(abox_journal *journal, uint64_t end, abox_error **reterr)
{
	char file[64];
	int r;

	r = set_aside(
		journal, journal->tail->fd, "torn", journal->tail->number, journal->chain.offset, end, file);
	if (r < 0 && r != -ENOSPC && r != -EDQUOT)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, file, -r, "cannot set the torn tail aside");
	/* a full disk must not keep anybody from recording an outcome; half a record was never acknowledged
	 */
	if (r < 0)
		file[0] = 0;
	journal_add_found(journal,
		"{\"what\":\"torn\",\"segment\":%" PRIu64 ",\"offset\":%" PRIu64 ",\"bytes\":%" PRIu64
		",\"seq\":%" PRIu64 ",\"file\":%s%s%s}",
		journal->tail->number, journal->chain.offset, end - journal->chain.offset,
		journal->chain.seq + 1, file[0] ? "\"" : "null", file, file[0] ? "\"" : "");
	return 0;
}

/* A file that was cut has lost the room that was written in advance. */
int recover_room(abox_journal *journal, abox_error **reterr)
{
	uint64_t wanted = MAX(journal->segment_bytes, journal->chain.offset + SEGMENT_BYTES_MIN);
	char name[SEGMENT_NAME_BYTES];
	int r;

	if (journal->chain.closed || journal->tail_bytes >= journal->chain.offset + SEGMENT_ROOM_CLOSE)
		return 0;
	r = rotate_write_zeros(journal->tail->fd, journal->chain.offset, wanted);
	if (r < 0) {
		segment_name(journal->tail->number, name);
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, name, -r, "cannot make room in a cut segment");
	}
	journal->tail_bytes = wanted;
	return 0;
}

/* Puts a new file, holding [0, end) of the old one, in its place. */
static int replace_segment(
	abox_journal *journal, int old_fd, uint64_t number, uint64_t end, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	char name[SEGMENT_NAME_BYTES];
	struct stat st;
	int r;

	segment_name(number, name);
	if (fstat(old_fd, &st) < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_JOURNAL, name, errno, "cannot stat");
	r = rotate_write_spare(journal, REWRITE_NAME, NULL, 0,
		MAX((uint64_t)st.st_size, journal->segment_bytes), &fd, reterr);
	if (r < 0)
		return r;
	r = copy_bytes(old_fd, 0, end, fd);
	if (r == 0)
		r = jio_sync(fd);
	if (r == 0)
		r = jio_rename(journal->dir_fd, REWRITE_NAME, name);
	if (r == 0)
		r = jio_sync(journal->dir_fd);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, name, -r, "cannot write the segment anew");
	return 0;
}

/* The chain of a segment as far as it goes; *retbroken: something stands behind it. */
static int walk(int dir_fd, uint64_t number, struct segment **retsegment, struct chain *retchain,
	bool *retbroken, abox_error **reterr)
{
	struct segment_reader reader = SEGMENT_READER_INIT;
	struct journal_record record;
	int r;

	r = segment_read_head(dir_fd, number, &reader, retsegment, retchain, &record, reterr);
	if (r == 0)
		r = SEGMENT_RECORD;
	while (r == SEGMENT_RECORD && !retchain->closed)
		r = segment_reader_next(&reader, retchain, true, &record, reterr);
	*retbroken = r == SEGMENT_BROKEN;
	segment_reader_clear(&reader);
	return r < 0 ? r : 0;
}

static int last_segment(abox_journal *journal, uint64_t *ret, abox_error **reterr)
{
	_cleanup_(freep) uint64_t *numbers = NULL;
	size_t n = 0;
	int r;

	r = segment_list(journal->dir_fd, &numbers, &n, reterr);
	if (r < 0)
		return r;
	if (n == 0)
		return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, NULL, "there is no segment");
	*ret = numbers[n - 1];
	return 0;
}

int recover_poisoned(abox_journal *journal, struct lock_state *state, abox_error **reterr)
{
	_cleanup_(segment_unrefp) struct segment *segment = NULL;
	uint64_t number = 0, known = state->known;
	struct chain chain;
	bool broken = false;
	int r;

	r = last_segment(journal, &number, reterr);
	if (r == 0)
		r = walk(journal->dir_fd, number, &segment, &chain, &broken, reterr);
	if (r < 0)
		return r;
	if (known > chain.seq)
		return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, NULL,
			"record %" PRIu64 " was durable and is gone", chain.seq + 1);
	if (broken) {
		/* half a record, or damage: looked at again with the lock, when the journal is opened for
		 * good */
		struct stat st;

		if (fstat(segment->fd, &st) < 0)
			return error_set_errno(
				reterr, ABOX_E_SYSTEM, ABOX_STAGE_JOURNAL, NULL, errno, "cannot stat");
		r = replace_segment(journal, segment->fd, number, (uint64_t)st.st_size, reterr);
	} else {
		r = replace_segment(journal, segment->fd, number, chain.offset, reterr);
	}
	if (r < 0)
		return error_prefix(reterr, r, "the journal is poisoned and stays so");
	state->poisoned = state->syncing = 0;
	state->known = chain.seq;
	r = lock_write_state(&journal->lock, state, reterr);
	if (r < 0)
		return r;
	__atomic_store_n(&journal->poisoned, false, __ATOMIC_RELEASE);
	journal_add_found(journal,
		"{\"what\":\"poisoned\",\"segment\":%" PRIu64 ",\"known\":%" PRIu64 ",\"seq\":%" PRIu64 "}",
		number, known, chain.seq);
	return 0;
}

int recover_cut(abox_journal *journal, uint64_t number, abox_error **reterr)
{
	_cleanup_(segment_unrefp) struct segment *segment = NULL;
	char file[64], name[SEGMENT_NAME_BYTES];
	struct lock_state state;
	struct chain chain = { .seq = 0 };
	struct stat st;
	bool broken, headless;
	int r;

	segment_name(number, name);
	r = walk(journal->dir_fd, number, &segment, &chain, &broken, NULL);
	headless = r == ABOX_E_DAMAGED;
	if (headless)
		r = segment_open(journal->dir_fd, number, false, &segment, reterr);
	if (r < 0)
		return r;
	if (headless && number == 1)
		return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, name,
			"the head of the only segment is damaged: there is nothing to go on from");
	if (fstat(segment->fd, &st) < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_JOURNAL, name, errno, "cannot stat");
	r = set_aside(journal, segment->fd, "damaged", number, chain.offset, (uint64_t)st.st_size, file);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, file, -r, "cannot set the damaged part aside");
	if (headless) { /* the one before is closed: a new one follows by itself */
		r = jio_unlink(journal->dir_fd, name);
		if (r == 0)
			r = jio_sync(journal->dir_fd);
		if (r < 0)
			return error_set_errno(
				reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, name, -r, "cannot remove");
	} else {
		r = replace_segment(journal, segment->fd, number, chain.offset, reterr);
		if (r < 0)
			return r;
	}
	r = lock_read_state(&journal->lock, &state, reterr);
	if (r < 0)
		return r;
	state.poisoned = state.syncing = 0;
	state.known = headless ? 0 : chain.seq;
	r = lock_write_state(&journal->lock, &state, reterr);
	if (r < 0)
		return r;
	journal_add_found(journal,
		"{\"what\":\"damaged\",\"segment\":%" PRIu64 ",\"offset\":%" PRIu64 ",\"bytes\":%" PRIu64
		",\"seq\":%" PRIu64 ",\"file\":\"%s\"}",
		number, chain.offset, (uint64_t)st.st_size - chain.offset, chain.seq + 1, file);
	return 0;
}
