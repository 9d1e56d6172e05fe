/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Rotation: one segment is closed, the next begins. All of it under LOCK_SYNC; LOCK_APPEND is held only for
 *the closing record. The order is what makes it safe to stop anywhere:
 *
 *	1. the next segment is written with zeros under another name, and synced: a full disk is met before
 *anything is closed, and outcomes still have the room that was reserved for them in the old one;
 *	2. the closing record is appended: nothing can be appended to the old segment any more;
 *	3. the old segment is synced;
 *	4. the head, with length and hash of the old one, is written and synced, the file gets its name, the
 *folder is synced. Only now can it be appended to.
 *
 * Whoever finds a closed segment without a next one goes on at 3.
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

#define SPARE_NAME "spare"
#define HEAD_SLACK 4096 /* between two looks the summary may grow a little */

struct rotation {
	uint64_t number; /* the segment to be closed */
	uint64_t want;   /* room for this beside the head */
	int spare_fd;
	uint64_t spare_bytes;
	struct text head; /* the first line of the next segment */
	char head_hash[DIGEST_TEXT_BYTES];
};

int rotate_write_zeros(int fd, uint64_t from, uint64_t to)
{
	_cleanup_(freep) char *zeros = NULL;
	const size_t size = 1024 * 1024;
	int r = 0;

	zeros = calloc(1, MIN(size, to - from + 1));
	if (!zeros)
		return -ENOMEM;
	while (from < to && r == 0) {
		uint64_t n = MIN(to - from, size);

		r = jio_pwrite(fd, zeros, n, from);
		from += n;
	}
	return r;
}

int rotate_write_spare(abox_journal *journal, const char *name, const char *data, size_t len, uint64_t bytes,
	int *retfd, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	int r;

	if (journal_beyond_limit(MAX(bytes, len)))
		return error_set(reterr, ABOX_E_NOSPACE, ABOX_STAGE_JOURNAL, name,
			"the limit on file sizes (RLIMIT_FSIZE) is below the size of a segment");
	r = jio_unlink(journal->dir_fd, name); /* what is left of one that was cut short */
	if (r < 0 && r != -ENOENT)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, name, -r, "cannot remove the old spare");
	fd = jio_open(journal->dir_fd, name, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, name, -fd, "cannot create a segment");
	r = len > 0 ? jio_pwrite(fd, data, len, 0) : 0;
	if (r == 0)
		r = rotate_write_zeros(fd, len, MAX(bytes, len));
	if (r == 0)
		r = jio_sync(fd);
	if (r < 0) {
		(void)jio_unlink(journal->dir_fd, name);
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, name, -r, "cannot make room for a segment");
	}
	*retfd = steal_fd(fd);
	return 0;
}

/* The head of the segment after the tail, which is closed (or, for its size, is about to be). */
static int build_head(
	abox_journal *journal, struct text *line, char hash[DIGEST_TEXT_BYTES], abox_error **reterr)
{
	_cleanup_(text_clear) struct text body = TEXT_INIT;
	struct record_fields fields = { .seq = journal->chain.seq + 1,
		.time_usec = clock_wall_usec(),
		.known = journal->chain.seq,
		.prev = journal->chain.hash };
	struct journal_entry entry = { .type = "journal.open", .room_bytes = journal->chain.room };
	const char *why = "out of memory";
	int r;

	text_printf(&body,
		"{\"format\":%d,\"journal\":\"%s\",\"segment\":%" PRIu64 ",\"sealed\":{\"segment\":%" PRIu64
		",\"bytes\":%" PRIu64 ",\"seq\":%" PRIu64 ",\"hash\":\"%s\"},\"views\":",
		FORMAT_NUMBER, journal->identity.id, journal->tail->number + 1, journal->tail->number,
		journal->chain.offset, journal->chain.seq, journal->chain.hash);
	r = views_summarize(journal, &body, reterr);
	if (r < 0)
		return r;
	text_add(&body, "}");
	if (body.failed)
		return ABOX_E_MEMORY;
	entry.body = body.data;
	entry.body_len = body.len;
	r = record_build(line, &fields, &entry, hash, &why);
	if (r == 0 && line->len > RECORD_LINE_MAX)
		r = error_set(reterr, ABOX_E_LIMIT, ABOX_STAGE_JOURNAL, NULL,
			"what is open in this journal no longer fits into the head of a segment");
	else if (r < 0)
		error_set(reterr, r, ABOX_STAGE_JOURNAL, NULL, "cannot build the head of a segment: %s", why);
	return r;
}

static uint64_t needed_bytes(const abox_journal *journal, const struct rotation *rotation)
{
	uint64_t need = rotation->head.len + HEAD_SLACK + rotation->want + SEGMENT_ROOM_CLOSE +
			(uint64_t)MAX(journal->chain.room, 0);

	need += segment_vital_room(journal->segment_bytes) +
		need / 8; /* a larger segment keeps more room, too */
	return MAX(need, journal->segment_bytes);
}

static int close_segment(abox_journal *journal, abox_error **reterr)
{
	struct journal_entry entry = { .type = "journal.rotate" };
	char body[64];
	int r;

	snprintf(body, sizeof(body), "{\"next\":%" PRIu64 "}", journal->tail->number + 1);
	entry.body = body;
	r = tail_build(journal, &entry, reterr);
	if (r < 0)
		return r;
	if (journal->chain.offset + journal->line.len > journal->tail_bytes)
		return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, NULL,
			"the room for the closing record of segment %" PRIu64 " is gone",
			journal->tail->number);
	return tail_write(journal, &entry, reterr);
}

enum { STEP_DONE, STEP_NEED_SPARE, STEP_INSTALL };

/* Under both locks and mutex. */
static int step_locked(
	abox_journal *journal, struct rotation *rotation, uint64_t *retneed, abox_error **reterr)
{
	int r;

	r = tail_catch_up(journal, true, reterr);
	if (r < 0)
		return r;
	if (journal->tail->number != rotation->number)
		return STEP_DONE;
	r = build_head(journal, &rotation->head, rotation->head_hash, reterr);
	if (r < 0)
		return r;
	*retneed = needed_bytes(journal, rotation);
	if (rotation->spare_fd < 0 || rotation->spare_bytes + HEAD_SLACK < *retneed)
		return STEP_NEED_SPARE;
	if (!journal->chain.closed) {
		r = close_segment(journal, reterr);
		if (r == 0)
			r = build_head(journal, &rotation->head, rotation->head_hash, reterr);
	}
	return r < 0 ? r : STEP_INSTALL;
}

static int step(abox_journal *journal, struct rotation *rotation, uint64_t *retneed, abox_error **reterr)
{
	uint64_t deadline = journal_deadline(journal);
	int r;

	r = journal_mutex_lock(journal, deadline, reterr);
	if (r < 0)
		return r;
	r = lock_take(&journal->lock, LOCK_APPEND, deadline, reterr);
	if (r == 0) {
		r = step_locked(journal, rotation, retneed, reterr);
		lock_release(&journal->lock, LOCK_APPEND);
	}
	journal_mutex_unlock(journal);
	return r;
}

/* Steps 3 and 4. What fails before the rename leaves the segment closed, for the next one to try again. */
static int install(abox_journal *journal, struct rotation *rotation, abox_error **reterr)
{
	_cleanup_(segment_unrefp) struct segment *old = NULL;
	char name[SEGMENT_NAME_BYTES];
	struct lock_state state;
	uint64_t sealed_bytes, sealed_seq;
	int r;

	r = sync_tail(journal, false, reterr);
	if (r < 0)
		return r;
	/* Kept here, as another thread moves on to the new segment as soon as it has its name. */
	pthread_mutex_lock(&journal->mutex);
	sealed_bytes = journal->chain.offset;
	sealed_seq = journal->chain.seq;
	old = segment_ref(journal->tail);
	pthread_mutex_unlock(&journal->mutex);
	r = jio_pwrite(rotation->spare_fd, rotation->head.data, rotation->head.len, 0);
	if (r == 0)
		r = jio_sync(rotation->spare_fd);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, SPARE_NAME, -r, "cannot write the head");
	r = sync_check_poison(journal, &state, reterr);
	if (r == 0)
		r = sync_flag_begin(journal, &state, reterr);
	if (r < 0)
		return r;
	segment_name(rotation->number + 1, name);
	r = jio_rename(journal->dir_fd, SPARE_NAME, name);
	if (r < 0) {
		(void)sync_flag_end(journal, &state, 0, 0, NULL);
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, name, -r, "cannot name the segment");
	}
	r = jio_sync(journal->dir_fd);
	/* the zeros behind the seal are of no use; a failure only leaves them there */
	if (r == 0)
		(void)jio_truncate(old->fd, sealed_bytes);
	return sync_flag_end(journal, &state, sealed_seq + 1, r, reterr);
}

static int rotate_with_turn(abox_journal *journal, struct rotation *rotation, abox_error **reterr)
{
	struct lock_state state;
	uint64_t need = 0;
	int r;

	r = sync_check_poison(journal, &state, reterr);
	if (r < 0)
		return r;
	for (int tries = 0; tries < 16; tries++) {
		r = step(journal, rotation, &need, reterr);
		if (r < 0 || r == STEP_DONE)
			return r;
		if (r == STEP_INSTALL)
			return install(journal, rotation, reterr);
		rotation->spare_fd = fd_close(rotation->spare_fd);
		rotation->spare_bytes = need + HEAD_SLACK * (uint64_t)tries;
		r = rotate_write_spare(
			journal, SPARE_NAME, NULL, 0, rotation->spare_bytes, &rotation->spare_fd, reterr);
		if (r < 0)
			return r;
	}
	return error_set(reterr, ABOX_E_BUSY, ABOX_STAGE_JOURNAL, NULL,
		"what is open grows faster than it can be written");
}

int rotate_away(abox_journal *journal, uint64_t number, uint64_t want_bytes, abox_error **reterr)
{
	struct rotation rotation = { .number = number, .want = want_bytes, .spare_fd = -EBADF };
	int r;

	r = views_attach_all(journal, reterr);
	if (r < 0)
		return r;
	r = sync_turn_take(journal, UINT64_MAX, false, reterr);
	if (r < 0)
		return r;
	r = rotate_with_turn(journal, &rotation, reterr);
	if (r < 0 && rotation.spare_fd >= 0)
		(void)jio_unlink(journal->dir_fd, SPARE_NAME);
	sync_turn_release(journal);
	fd_close(rotation.spare_fd);
	text_clear(&rotation.head);
	return r < 0 ? r : 0;
}

int rotate_first(abox_journal *journal, abox_error **reterr)
{
	_cleanup_(text_clear) struct text line = TEXT_INIT;
	_cleanup_(fd_closep) int fd = -EBADF;
	struct record_fields fields = { .seq = 1, .time_usec = clock_wall_usec(), .prev = RECORD_HASH_NONE };
	struct journal_entry entry = { .type = "journal.open" };
	char body[256], hash[DIGEST_TEXT_BYTES], name[SEGMENT_NAME_BYTES];
	const char *why = NULL;
	int r;

	snprintf(body, sizeof(body),
		"{\"format\":%d,\"journal\":\"%s\",\"segment\":1,\"sealed\":null,\"views\":{}}",
		FORMAT_NUMBER, journal->identity.id);
	entry.body = body;
	r = record_build(&line, &fields, &entry, hash, &why);
	if (r < 0)
		return r;
	r = rotate_write_spare(journal, SPARE_NAME, line.data, line.len, journal->segment_bytes, &fd, reterr);
	if (r < 0)
		return r;
	segment_name(1, name);
	r = jio_rename(journal->dir_fd, SPARE_NAME, name);
	if (r == 0)
		r = jio_sync(journal->dir_fd);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, name, -r, "cannot create the first segment");
	return 0;
}

int abox_journal_rotate(abox_journal *journal, abox_error **reterr)
{
	uint64_t number;
	int r;

	r = journal_check(journal, true, reterr);
	if (r < 0)
		return r;
	r = journal_mutex_lock(journal, journal_deadline(journal), reterr);
	if (r < 0)
		return r;
	number = journal->tail->number;
	journal_mutex_unlock(journal);
	return rotate_away(journal, number, 0, reterr);
}
