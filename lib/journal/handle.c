/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The life of a handle: made, shared between threads, closed; and the questions that need nothing but the
 * handle.
 */
#include "journal/handle.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define ALIVE_BYTES 4096

/* A forked child shares the descriptions, and so the locks, of its parent: whatever it did would happen under
 * locks that it does not really hold. The kernel wipes this page in every child. */
static uint32_t *alive_new(void)
{
	uint32_t *page;

	page = mmap(NULL, ALIVE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return NULL;
	if (madvise(page, ALIVE_BYTES, MADV_WIPEONFORK) < 0) {
		munmap(page, ALIVE_BYTES);
		return NULL;
	}
	*page = 1;
	return page;
}

int journal_new(abox_journal **ret)
{
	abox_journal *journal = calloc(1, sizeof(*journal));
	pthread_mutexattr_t attributes;

	if (!journal)
		return ABOX_E_MEMORY;
	journal->n_refs = 1;
	journal->dir_fd = -EBADF;
	journal->lock = LOCK_FILE_INIT;
	journal->lock.timeout_usec = JOURNAL_LOCK_TIMEOUT_USEC;
	journal->reader = SEGMENT_READER_INIT;
	journal->segment_bytes = SEGMENT_BYTES_DEFAULT;
	journal->alive = alive_new();
	if (!journal->alive) {
		free(journal);
		return ABOX_E_MEMORY;
	}
	/* held for a few microseconds nearly always: cheaper to look again than to sleep */
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(&journal->mutex, &attributes);
	pthread_mutexattr_destroy(&attributes);
	pthread_mutex_init(&journal->index_mutex, NULL);
	pthread_mutex_init(&journal->blob_mutex, NULL);
	pthread_mutex_init(&journal->prune_mutex, NULL);
	*ret = journal;
	return 0;
}

static void journal_free(abox_journal *journal)
{
	for (size_t i = 0; i < journal->n_views; i++)
		journal->views[i].ops->destroy(journal->views[i].view);
	journal_tail_index_free(journal->tail_index);
	segment_unref(journal->tail);
	segment_reader_clear(&journal->reader);
	text_clear(&journal->line);
	text_clear(&journal->body);
	text_clear(&journal->found);
	lock_close(&journal->lock);
	fd_close(journal->dir_fd);
	if (!journal_is_dead(
		    journal)) { /* in a child they may be held by a thread that does not exist there */
		pthread_mutex_destroy(&journal->mutex);
		pthread_mutex_destroy(&journal->index_mutex);
		pthread_mutex_destroy(&journal->blob_mutex);
		pthread_mutex_destroy(&journal->prune_mutex);
	}
	munmap(journal->alive, ALIVE_BYTES);
	free(journal);
}

abox_journal *abox_journal_ref(abox_journal *journal)
{
	if (journal)
		__atomic_add_fetch(&journal->n_refs, 1, __ATOMIC_RELAXED);
	return journal;
}

abox_journal *abox_journal_unref(abox_journal *journal)
{
	if (journal && __atomic_sub_fetch(&journal->n_refs, 1, __ATOMIC_ACQ_REL) == 0)
		journal_free(journal);
	return NULL;
}

void journal_unrefp(abox_journal **journal)
{
	*journal = abox_journal_unref(*journal);
}

void abox_journal_options_init(struct abox_journal_options *options)
{
	if (options)
		*options = (struct abox_journal_options)ABOX_JOURNAL_OPTIONS_INIT;
}

void abox_journal_entry_init(struct abox_journal_entry *entry)
{
	if (entry)
		*entry = (struct abox_journal_entry)ABOX_JOURNAL_ENTRY_INIT;
}

bool journal_is_dead(const abox_journal *journal)
{
	return __atomic_load_n(journal->alive, __ATOMIC_RELAXED) == 0;
}

bool journal_can_append(const abox_journal *journal)
{
	return journal->append;
}

int journal_check(const abox_journal *journal, bool append, abox_error **reterr)
{
	if (!journal)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, NULL, "journal is required");
	if (journal_is_dead(journal))
		return error_set(reterr, ABOX_E_STATE, ABOX_STAGE_JOURNAL, NULL,
			"this handle was made before fork(); open the journal again in the child");
	if (append && !journal->append)
		return error_set(reterr, ABOX_E_STATE, ABOX_STAGE_JOURNAL, NULL,
			"the journal was opened for reading only");
	return 0;
}

uint64_t journal_deadline(const abox_journal *journal)
{
	return clock_deadline(clock_monotonic_usec(), journal->lock.timeout_usec);
}

/* Whoever has it may be waiting for another process: patience is bounded here as it is there. */
int journal_mutex_lock(abox_journal *journal, uint64_t deadline_usec, abox_error **reterr)
{
	struct timespec until;
	uint64_t now, wall;

	if (pthread_mutex_trylock(&journal->mutex) == 0)
		return 0;
	now = clock_monotonic_usec();
	wall = clock_deadline(clock_wall_usec(), deadline_usec > now ? deadline_usec - now : 0);
	until.tv_sec = (time_t)MIN(wall / USEC_PER_SEC, (uint64_t)INT64_MAX / 2);
	until.tv_nsec = (long)(wall % USEC_PER_SEC * NSEC_PER_USEC);
	if (pthread_mutex_timedlock(&journal->mutex, &until) == 0)
		return 0;
	return error_retryable(reterr, error_set(reterr, ABOX_E_BUSY, ABOX_STAGE_JOURNAL, NULL,
					       "another thread of this process waits for the journal"));
}

void journal_mutex_unlock(abox_journal *journal)
{
	pthread_mutex_unlock(&journal->mutex);
}

void journal_add_found(abox_journal *journal, const char *format, ...)
{
	char buffer[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(buffer, sizeof(buffer), format, args);
	va_end(args);
	if (journal->found.len > 0)
		text_add(&journal->found, ",");
	text_add(&journal->found, buffer);
}

bool journal_beyond_limit(uint64_t bytes)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
	       bytes > limit.rlim_cur;
}

bool journal_is_covered(abox_journal *journal, uint64_t seq)
{
	return __atomic_load_n(&journal->covered, __ATOMIC_ACQUIRE) >= seq;
}

bool journal_is_poisoned(abox_journal *journal)
{
	return __atomic_load_n(&journal->poisoned, __ATOMIC_ACQUIRE);
}

int journal_describe_self(struct text *text)
{
	struct lock_file lock = LOCK_FILE_INIT;
	int r;

	r = lock_self(&lock.self, lock.boot_id, NULL);
	if (r < 0)
		return r;
	lock_describe_self(&lock, text);
	return text->failed ? ABOX_E_MEMORY : 0;
}

const char *abox_journal_get_id(const abox_journal *journal)
{
	return journal ? journal->identity.id : NULL;
}

int abox_journal_dump(abox_journal *journal, char **retjson, abox_error **reterr)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	int r;

	r = journal_check(journal, false, reterr);
	if (r < 0)
		return r;
	if (!retjson)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, NULL, "retjson is required");
	r = journal_mutex_lock(journal, journal_deadline(journal), reterr);
	if (r < 0)
		return r;
	text_printf(&text,
		"{\"id\":\"%s\",\"format\":%d,\"mode\":\"%s\",\"segment\":%" PRIu64 ",\"seq\":%" PRIu64
		",\"known\":%" PRIu64 ",\"reserved\":%" PRId64
		",\"poisoned\":%s,\"cloned\":%s,\"machine\":\"%s\",\"found\":[",
		journal->identity.id, FORMAT_NUMBER, journal->append ? "append" : "read",
		journal->tail ? journal->tail->number : 0, journal->chain.seq, journal->covered,
		journal->chain.room, journal->poisoned ? "true" : "false", journal->cloned ? "true" : "false",
		journal->identity.machine);
	text_add_bytes(&text, journal->found.data, journal->found.len);
	journal_mutex_unlock(journal);
	text_add(&text, "]}");
	return text_take(&text, retjson);
}
