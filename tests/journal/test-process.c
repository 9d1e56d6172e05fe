/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Many processes and threads on one journal: one chain, nothing acknowledged is missing, whoever is killed
 * whenever. Children are made before the parent has threads, tell what was acknowledged by shared memory, and
 * _exit.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "support.h"

#define PROCESSES_MAX 8
#define NOTES_MAX 200000

struct shared {
	uint8_t acknowledged[NOTES_MAX]; /* by the number in the note */
	unsigned int n_failed;
	unsigned int stop;
	unsigned int next;
};

static char *folder, *path;
static struct shared *shared;

static void setup(void)
{
	folder = folder_new();
	path = folder_journal(folder);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void teardown(void)
{
	munmap(shared, sizeof(*shared));
	free(path);
	folder_remove(folder);
}

TestSuite(journal_process, .init = setup, .fini = teardown);

struct work {
	abox_journal *journal;
	unsigned int n;
};

static void *append_some(void *userdata)
{
	struct work *work = userdata;

	for (unsigned int i = 0; i < work->n; i++) {
		unsigned int number = __atomic_fetch_add(&shared->next, 1, __ATOMIC_RELAXED);

		if (put_note(work->journal, number, number % 200, ABOX_DURABILITY_DATA, NULL) == 0)
			shared->acknowledged[number] = 1;
		else
			__atomic_fetch_add(&shared->n_failed, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void run_child(unsigned int n_threads, unsigned int n_each)
{
	struct work work = { .n = n_each };
	pthread_t threads[8];

	work.journal = open_append(path, 256 * 1024);
	if (!work.journal)
		_exit(1);
	for (unsigned int i = 0; i < n_threads; i++)
		pthread_create(&threads[i], NULL, append_some, &work);
	for (unsigned int i = 0; i < n_threads; i++)
		pthread_join(threads[i], NULL);
	abox_journal_unref(work.journal);
	_exit(0);
}

/* Everything acknowledged is in the journal, once. Returns how many notes there are; negative when not so. */
static int64_t check_acknowledged(void)
{
	struct abox_journal_record record = ABOX_JOURNAL_RECORD_INIT;
	static uint8_t seen[NOTES_MAX];
	abox_journal_reader *reader = NULL;
	abox_journal *journal = NULL;
	int64_t n = 0;
	uint64_t number;
	int r;

	memset(seen, 0, sizeof(seen));
	if (abox_journal_open(path, NULL, &journal, NULL) < 0 ||
		abox_journal_reader_new(journal, 0, 0, &reader, NULL) < 0)
		return -1;
	while ((r = abox_journal_reader_next(reader, &record, NULL)) > 0) {
		if (strcmp(record.type, "note") != 0 || sscanf(record.body, "{\"n\":%" SCNu64, &number) != 1)
			continue;
		if (number >= NOTES_MAX || seen[number]++)
			return -2;
		n++;
	}
	abox_journal_reader_unref(reader);
	abox_journal_unref(journal);
	if (r < 0)
		return r;
	for (unsigned int i = 0; i < NOTES_MAX; i++)
		if (shared->acknowledged[i] && !seen[i])
			return -3;
	return n;
}

/* T14-7: processes times threads, one chain, nothing lost, nothing interleaved, with a reader and a verifier
 * during it. */
Test(journal_process, many_writers_make_one_chain, .timeout = 170)
{
	unsigned int n_each = long_tests() ? 1000 : 60, n_processes = 8, n_threads = 8;
	abox_journal *first = open_append(path, 256 * 1024);
	pid_t pids[PROCESSES_MAX];
	int status, left = (int)n_processes;

	cr_assert_not_null(first);
	abox_journal_unref(first);
	for (unsigned int i = 0; i < n_processes; i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			run_child(n_threads, n_each);
	}
	while (left > 0) {
		char *json = NULL;

		cr_expect_eq(verify(path, &json), 1, "%s", json);
		free(json);
		cr_expect_geq(count_records(path), 1);
		while (left > 0 && waitpid(-1, &status, WNOHANG) > 0) {
			cr_expect_eq(status, 0);
			left--;
		}
	}
	cr_expect_eq(shared->n_failed, 0);
	cr_expect_eq(verify(path, NULL), 1);
	cr_expect_eq(check_acknowledged(), (int64_t)n_each * n_processes * n_threads);
}

static void append_until_killed(unsigned int first, unsigned int end)
{
	abox_journal *journal = open_append(path, 64 * 1024);

	if (!journal)
		_exit(2);
	for (unsigned int number = first; number < end; number += PROCESSES_MAX) {
		int durability = number / PROCESSES_MAX % 4 ? ABOX_DURABILITY_DATA : ABOX_DURABILITY_NONE;

		if (put_note(journal, number, number % 500, durability, NULL) == 0)
			shared->acknowledged[number] = 1;
		else
			_exit(0); /* poisoned by the death of another: as it must be */
	}
	_exit(0);
}

/* T14-9: killed at random moments, alone and beside others; it always reopens, and what was acknowledged is
 * there. */
Test(journal_process, killed_writers_lose_nothing, .timeout = 170)
{
	unsigned int rounds = long_tests() ? 400 : 40,
		     per_round = NOTES_MAX / 2 / rounds / PROCESSES_MAX * PROCESSES_MAX;
	uint64_t seed = clock_monotonic_usec() | 1;

	fprintf(stderr, "seed %" PRIu64 "\n", seed);
	for (unsigned int round = 0; round < rounds; round++) {
		unsigned int n = round % 3 == 0 ? 1 : round % 3 == 1 ? 2 : PROCESSES_MAX;
		struct timespec pause = { .tv_nsec = (long)(random_u64(&seed) % 12000000) };
		abox_journal *journal = NULL;
		pid_t pids[PROCESSES_MAX];
		int64_t found;
		char *json = NULL;
		int status;

		for (unsigned int i = 0; i < n; i++) {
			pids[i] = fork();
			if (pids[i] == 0)
				append_until_killed(round * per_round + i, (round + 1) * per_round);
		}
		nanosleep(&pause, NULL);
		for (unsigned int i = 0; i < n; i++)
			kill(pids[i], SIGKILL);
		for (unsigned int i = 0; i < n; i++)
			cr_assert_eq(waitpid(pids[i], &status, 0), pids[i]);
		journal = open_append(path, 64 * 1024);
		cr_assert_not_null(journal, "round %u", round);
		cr_assert_eq(put_note(journal, NOTES_MAX - 1 - round, 1, ABOX_DURABILITY_DATA, NULL), 0);
		abox_journal_unref(journal);
		cr_assert_eq(verify(path, &json), 1, "round %u: %s", round, json);
		free(json);
		found = check_acknowledged();
		cr_assert_geq(found, 1, "round %u: %" PRId64, round, found);
	}
}

static void *sync_some(void *userdata)
{
	struct work *work = userdata;

	for (unsigned int i = 0; i < work->n; i++) {
		uint64_t seq = 0;

		if (put_note(work->journal, i, 10, ABOX_DURABILITY_NONE, &seq) < 0 ||
			abox_journal_sync(work->journal, i % 2 ? seq : 0, ABOX_DURABILITY_FULL, NULL) < 0)
			__atomic_fetch_add(&shared->n_failed, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void *read_some(void *userdata)
{
	struct abox_journal_record record = ABOX_JOURNAL_RECORD_INIT;
	struct work *work = userdata;
	abox_journal_reader *reader = NULL;
	uint64_t seq = 0;

	if (abox_journal_reader_new(work->journal, 0, 0, &reader, NULL) < 0) {
		__atomic_fetch_add(&shared->n_failed, 1, __ATOMIC_RELAXED);
		return NULL;
	}
	while (!__atomic_load_n(&shared->stop, __ATOMIC_RELAXED)) {
		int r = abox_journal_reader_next(reader, &record, NULL);

		if (r < 0 || (r > 0 && (record.seq != ++seq || !record.durable)))
			__atomic_fetch_add(&shared->n_failed, 1, __ATOMIC_RELAXED);
		if (r == 0)
			(void)abox_journal_reader_wait(reader, 1000, NULL);
	}
	abox_journal_reader_unref(reader);
	return NULL;
}

/* Threads of one handle append, sync, read, rotate and look at once (also what the thread sanitizer runs). */
Test(journal_process, one_handle_serves_many_threads, .timeout = 120)
{
	abox_journal *journal = open_append(path, 64 * 1024);
	struct work work = { .journal = journal, .n = 40 };
	pthread_t writers[6], syncers[2], reader;
	char *json = NULL, hash[ABOX_DIGEST_TEXT_BYTES];
	uint64_t seq;

	pthread_create(&reader, NULL, read_some, &work);
	for (size_t i = 0; i < 6; i++)
		pthread_create(&writers[i], NULL, append_some, &work);
	for (size_t i = 0; i < 2; i++)
		pthread_create(&syncers[i], NULL, sync_some, &work);
	for (int i = 0; i < 5; i++) {
		cr_expect_eq(abox_journal_rotate(journal, NULL), 0);
		cr_expect_eq(abox_journal_dump(journal, &json, NULL), 0);
		abox_free(json);
		cr_expect_eq(abox_journal_get_position(journal, &seq, hash, NULL), 0);
		(void)journal_is_covered(journal, seq);
	}
	for (size_t i = 0; i < 6; i++)
		pthread_join(writers[i], NULL);
	for (size_t i = 0; i < 2; i++)
		pthread_join(syncers[i], NULL);
	__atomic_store_n(&shared->stop, 1, __ATOMIC_RELAXED);
	pthread_join(reader, NULL);
	abox_journal_unref(journal);
	cr_expect_eq(shared->n_failed, 0);
	cr_expect_eq(verify(path, NULL), 1);
}
