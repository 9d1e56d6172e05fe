/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Readers for people and programs outside of the library: iterate, follow, export.
 *
 * A record is made durable before it is told, so that nobody builds on what a power loss takes back; a reader
 * that may not sync, or does not want to, asks for unsynced records by flag and sees them marked.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "journal/handle.h"

#define POLL_USEC (50 * USEC_PER_MSEC) /* where the host has no inotify instance left */

struct abox_journal_reader {
	abox_journal *journal;
	uint32_t flags;
	struct log log;
	struct text body;
	int inotify_fd;
	int dir_watch;
	int segment_watch;
	uint64_t watched_inode;
};

int abox_journal_reader_new(abox_journal *journal, uint64_t from_seq, uint32_t flags,
	abox_journal_reader **ret, abox_error **reterr)
{
	abox_journal_reader *reader;
	int r;

	r = journal_check(journal, false, reterr);
	if (r < 0)
		return r;
	if (!ret || (flags & ~(uint32_t)ABOX_JOURNAL_READ_UNSYNCED))
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, NULL, "ret is required, and flags known");
	reader = calloc(1, sizeof(*reader));
	if (!reader)
		return ABOX_E_MEMORY;
	reader->journal = abox_journal_ref(journal);
	reader->flags = flags;
	reader->log = LOG_INIT;
	reader->inotify_fd = -EBADF;
	r = log_start(&reader->log, journal->dir_fd, from_seq, journal->cloned, reterr);
	if (r < 0) {
		abox_journal_reader_unref(reader);
		return r;
	}
	*ret = reader;
	return 0;
}

abox_journal_reader *abox_journal_reader_unref(abox_journal_reader *reader)
{
	if (!reader)
		return NULL;
	log_clear(&reader->log);
	text_clear(&reader->body);
	fd_close(reader->inotify_fd);
	abox_journal_unref(reader->journal);
	free(reader);
	return NULL;
}

/* What live processes know to be durable; a lower bound, 0 where nothing can be said. */
static uint64_t shared_known(abox_journal *journal)
{
	struct lock_state state;

	if (journal->cloned || lock_read_state(&journal->lock, &state, NULL) < 0)
		return 0;
	return state.known;
}

static int make_durable(abox_journal *journal, uint64_t seq, abox_error **reterr)
{
	uint64_t last;
	int r;

	if (journal_is_covered(journal, seq))
		return 0;
	r = journal_look(journal, NULL, NULL, &last, reterr);
	if (r < 0)
		return r;
	return journal_sync(journal, seq, ABOX_DURABILITY_DATA, reterr);
}

static int fill_record(abox_journal_reader *reader, const struct journal_record *record, bool durable,
	struct abox_journal_record *ret)
{
	reader->body.len = 0;
	text_add_bytes(&reader->body, record->body, record->body_len);
	if (reader->body.failed) {
		text_clear(&reader->body);
		return ABOX_E_MEMORY;
	}
	*ret = (struct abox_journal_record){ .size = sizeof(*ret),
		.seq = record->seq,
		.known = record->known,
		.epoch = record->epoch,
		.time_usec = record->time_usec,
		.type = record->type,
		.task = record->task,
		.box = record->box,
		.body = reader->body.data,
		.hash = record->hash,
		.line = record->line,
		.line_bytes = record->line_len,
		.segment = record->segment,
		.offset_bytes = record->offset,
		.durable = durable };
	return 1;
}

static void watch(abox_journal_reader *reader)
{
	char path[64];
	int fd = reader->log.segment->fd;

	if (reader->inotify_fd < 0 || reader->watched_inode == reader->log.segment->inode)
		return;
	if (reader->watched_inode)
		(void)inotify_rm_watch(reader->inotify_fd, reader->segment_watch);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	reader->segment_watch = inotify_add_watch(reader->inotify_fd, path, IN_MODIFY);
	reader->watched_inode = reader->segment_watch >= 0 ? reader->log.segment->inode : 0;
}

static void drain(abox_journal_reader *reader)
{
	char buffer[4096] __attribute__((aligned(8)));

	while (reader->inotify_fd >= 0 && read(reader->inotify_fd, buffer, sizeof(buffer)) > 0)
		continue;
}

/* At the end: the descriptor is quieted first, then looked at again, so that nothing that comes between is missed. */
static int next_or_quiet(abox_journal_reader *reader, struct journal_record *record, abox_error **reterr)
{
	uint64_t known;
	int r;

	r = log_next(&reader->log, 0, record, reterr);
	if (r != 0)
		return r;
	known = shared_known(reader->journal);
	if (reader->inotify_fd < 0 && reader->log.chain.seq >= known)
		return 0;
	drain(reader);
	watch(reader);
	return log_next(&reader->log, known, record, reterr);
}

int abox_journal_reader_next(
	abox_journal_reader *reader, struct abox_journal_record *ret, abox_error **reterr)
{
	struct journal_record record;
	struct chain before;
	bool durable, was_head;
	int r;

	if (!reader || !ret || ret->size < sizeof(*ret))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, NULL,
			"reader and ret with its size are required");
	r = journal_check(reader->journal, false, reterr);
	if (r < 0)
		return r;
	before = reader->log.chain;
	was_head = reader->log.head_pending;
	r = next_or_quiet(reader, &record, reterr);
	if (r <= 0)
		return r;
	durable = journal_is_covered(reader->journal, record.seq);
	if (!durable && !(reader->flags & ABOX_JOURNAL_READ_UNSYNCED)) {
		r = make_durable(reader->journal, record.seq, reterr);
		durable = true;
	}
	if (r >= 0)
		r = fill_record(reader, &record, durable, ret);
	if (r < 0) { /* not told: it comes again */
		if (was_head || record.offset == 0)
			reader->log.head_pending = true;
		else
			reader->log.chain = before;
	}
	return r;
}

int abox_journal_reader_get_fd(abox_journal_reader *reader, abox_error **reterr)
{
	char path[64];

	if (!reader)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, NULL, "reader is required");
	if (reader->inotify_fd < 0) {
		reader->inotify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
		if (reader->inotify_fd < 0)
			return error_set_errno(
				reterr, ABOX_E_SYSTEM, ABOX_STAGE_JOURNAL, NULL, errno, "cannot watch");
		snprintf(path, sizeof(path), "/proc/self/fd/%d", reader->journal->dir_fd);
		reader->dir_watch = inotify_add_watch(reader->inotify_fd, path, IN_MOVED_TO);
		watch(reader);
		if (reader->dir_watch < 0 || !reader->watched_inode) {
			int sys_errno = errno;

			reader->inotify_fd = fd_close(reader->inotify_fd);
			reader->watched_inode = 0;
			return error_set_errno(
				reterr, ABOX_E_SYSTEM, ABOX_STAGE_JOURNAL, NULL, sys_errno, "cannot watch");
		}
	}
	return reader->inotify_fd;
}

/* Is there a record behind the reader's place? The place is not moved. */
static int peek(abox_journal_reader *reader, abox_error **reterr)
{
	struct log *log = &reader->log;
	struct journal_record record;
	struct chain before = log->chain;
	int r;

	if (log->head_pending)
		return 1;
	r = log_next(log, 0, &record, reterr);
	if (r > 0 && record.offset == 0)
		log->head_pending = true;
	else if (r > 0)
		log->chain = before;
	return r;
}

int abox_journal_reader_wait(abox_journal_reader *reader, uint64_t timeout_usec, abox_error **reterr)
{
	uint64_t deadline, now;
	int r;

	if (!reader)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, NULL, "reader is required");
	deadline = clock_deadline(clock_monotonic_usec(), timeout_usec);
	(void)abox_journal_reader_get_fd(reader, NULL);
	for (;;) {
		struct pollfd poll_fd = { .fd = reader->inotify_fd, .events = POLLIN };
		uint64_t until = deadline;

		drain(reader); /* before the look, so that nothing that comes after it is missed */
		watch(reader);
		r = peek(reader, reterr);
		if (r == ABOX_E_DAMAGED) { /* reader_next() tells it */
			if (reterr)
				*reterr = abox_error_free(*reterr);
			return 1;
		}
		if (r != 0)
			return r;
		now = clock_monotonic_usec();
		if (now >= deadline)
			return 0;
		if (reader->inotify_fd < 0)
			until = MIN(deadline, now + POLL_USEC);
		r = poll(&poll_fd, reader->inotify_fd >= 0, clock_poll_msec(now, until));
		if (r < 0 && errno != EINTR)
			return error_set_errno(
				reterr, ABOX_E_SYSTEM, ABOX_STAGE_JOURNAL, NULL, errno, "cannot wait");
	}
}

/* Lines are gathered, so that a pipe sees few writes. */
static int flush(struct text *lines, int fd, abox_error **reterr)
{
	int r;

	if (lines->failed)
		return ABOX_E_MEMORY;
	r = lines->len > 0 ? fd_write_all(fd, lines->data, lines->len) : 0;
	lines->len = 0;
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, NULL, -r, "cannot write the export");
	return 0;
}

int abox_journal_export(abox_journal *journal, uint64_t from_seq, uint64_t to_seq, int fd, uint64_t *retcount,
	abox_error **reterr)
{
	struct abox_journal_record record = ABOX_JOURNAL_RECORD_INIT;
	_cleanup_(text_clear) struct text lines = TEXT_INIT;
	abox_journal_reader *reader = NULL;
	uint64_t count = 0;
	int r;

	r = abox_journal_reader_new(journal, from_seq, 0, &reader, reterr);
	if (r < 0)
		return r;
	for (;;) {
		r = abox_journal_reader_next(reader, &record, reterr);
		if (r <= 0 || record.seq > to_seq)
			break;
		text_add_bytes(&lines, record.line, record.line_bytes);
		text_add_bytes(&lines, "\n", 1);
		count++;
		if (lines.len >= 256 * 1024) {
			r = flush(&lines, fd, reterr);
			if (r < 0)
				break;
		}
	}
	if (r >= 0)
		r = flush(&lines, fd, reterr);
	abox_journal_reader_unref(reader);
	if (r < 0)
		return r;
	if (retcount)
		*retcount = count;
	return 0;
}
