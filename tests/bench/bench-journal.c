/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How fast is the journal, against what the disk can do and against SQLite, in one run? Rounds are
 *interleaved and medians taken; only the ratios mean something, as the floor of a host wanders.
 *
 *	bench-journal [--quick] [FOLDER]	a folder on a real disk; default: the current one
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <agentbox/agentbox.h>

#ifdef HAVE_SQLITE
#include <sqlite3.h>
#endif

#define RECORD_BYTES 200
#define ROUNDS 7
#define PREWRITTEN_BYTES (32 * 1024 * 1024)

static char folder[4096];
static bool quick;

static double now_usec(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static void die(const char *what)
{
	fprintf(stderr, "bench-journal: %s: %s\n", what, strerror(errno));
	exit(1);
}

static const char *file_in_folder(const char *name)
{
	static char path[8192];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

/* ---- the limit: the same bytes into a file that was written before
 * --------------------------------------------- */

static int plain_fd;
static uint64_t plain_offset, plain_synced;
static pthread_mutex_t plain_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t plain_cond = PTHREAD_COND_INITIALIZER;
static bool plain_busy;
static char record[RECORD_BYTES];

static void plain_open(bool prewritten)
{
	static char zeros[1024 * 1024];

	plain_fd = open(file_in_folder("plain"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (plain_fd < 0)
		die("plain");
	for (uint64_t at = 0; prewritten && at < PREWRITTEN_BYTES; at += sizeof(zeros))
		if (pwrite(plain_fd, zeros, sizeof(zeros), (off_t)at) < 0)
			die("prewrite");
	fsync(plain_fd);
	plain_offset = plain_synced = 0;
	plain_busy = false;
}

static void plain_append(void)
{
	if (pwrite(plain_fd, record, RECORD_BYTES, (off_t)plain_offset) != RECORD_BYTES ||
		fdatasync(plain_fd) < 0)
		die("plain append");
	plain_offset = (plain_offset + RECORD_BYTES) % (PREWRITTEN_BYTES - RECORD_BYTES);
}

/* The barest group commit: one lock, whoever comes first syncs for all. */
static void plain_append_grouped(void)
{
	uint64_t mine, reach;

	pthread_mutex_lock(&plain_mutex);
	if (pwrite(plain_fd, record, RECORD_BYTES,
		    (off_t)(plain_offset % (PREWRITTEN_BYTES - RECORD_BYTES))) < 0)
		die("plain append");
	mine = plain_offset += RECORD_BYTES;
	while (plain_synced < mine) {
		if (plain_busy) {
			pthread_cond_wait(&plain_cond, &plain_mutex);
			continue;
		}
		plain_busy = true;
		reach = plain_offset;
		pthread_mutex_unlock(&plain_mutex);
		if (fdatasync(plain_fd) < 0)
			die("plain sync");
		pthread_mutex_lock(&plain_mutex);
		plain_busy = false;
		plain_synced = reach;
		pthread_cond_broadcast(&plain_cond);
	}
	pthread_mutex_unlock(&plain_mutex);
}

/* ---- the journal
 * ----------------------------------------------------------------------------------------------- */

static abox_journal *journal;
static char body[RECORD_BYTES + 1];

static void journal_setup(void)
{
	struct abox_journal_options options = ABOX_JOURNAL_OPTIONS_INIT;
	abox_error *error = NULL;
	char *text = NULL;

	options.mode = ABOX_JOURNAL_APPEND;
	options.flags = ABOX_JOURNAL_CREATE;
	options.segment_bytes = PREWRITTEN_BYTES;
	if (abox_journal_open(file_in_folder("journal"), &options, &journal, &error) < 0) {
		abox_error_format(error, &text);
		fprintf(stderr, "bench-journal: %s\n", text);
		exit(1);
	}
}

static void journal_put(uint32_t durability)
{
	struct abox_journal_entry entry = ABOX_JOURNAL_ENTRY_INIT;

	entry.body = body;
	entry.durability = durability;
	if (abox_journal_append(journal, &entry, NULL, NULL) < 0)
		die("journal append");
}

static void journal_append_durable(void)
{
	journal_put(ABOX_DURABILITY_DATA);
}

static void journal_append_unsynced(void)
{
	journal_put(ABOX_DURABILITY_NONE);
}

/* ---- SQLite
 * ---------------------------------------------------------------------------------------------------- */

#ifdef HAVE_SQLITE
static sqlite3 *sqlite_open_one(void)
{
	sqlite3 *db = NULL;

	if (sqlite3_open(file_in_folder("sqlite.db"), &db) != SQLITE_OK)
		die("sqlite");
	sqlite3_busy_timeout(db, 60000);
	sqlite3_exec(db,
		"PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
		"CREATE TABLE IF NOT EXISTS log (seq INTEGER PRIMARY KEY, body TEXT)",
		NULL, NULL, NULL);
	return db;
}

static __thread sqlite3 *sqlite_db;
static __thread sqlite3_stmt *sqlite_insert;

static void sqlite_append(void)
{
	int r;

	if (!sqlite_db) {
		sqlite_db = sqlite_open_one();
		sqlite3_prepare_v2(sqlite_db, "INSERT INTO log (body) VALUES (?)", -1, &sqlite_insert, NULL);
	}
	sqlite3_bind_text(sqlite_insert, 1, body, RECORD_BYTES, SQLITE_STATIC);
	while ((r = sqlite3_step(sqlite_insert)) == SQLITE_BUSY)
		sqlite3_reset(sqlite_insert);
	if (r != SQLITE_DONE)
		die("sqlite insert");
	sqlite3_reset(sqlite_insert);
}

static void sqlite_thread_done(void)
{
	if (!sqlite_db)
		return;
	sqlite3_finalize(sqlite_insert);
	sqlite3_close(sqlite_db);
	sqlite_db = NULL;
}
#else
static void sqlite_thread_done(void)
{
}
#endif

/* ---- measuring
 * -------------------------------------------------------------------------------------------------- */

struct job {
	void (*append)(void);
	unsigned int n;
};

static void *run_job(void *userdata)
{
	struct job *job = userdata;

	for (unsigned int i = 0; i < job->n; i++)
		job->append();
	sqlite_thread_done();
	return NULL;
}

/* Microseconds for each record. */
static double measure(void (*append)(void), unsigned int n_threads, unsigned int n_each)
{
	struct job job = { append, n_each };
	pthread_t threads[64];
	double start = now_usec();

	for (unsigned int i = 0; i < n_threads; i++)
		if (pthread_create(&threads[i], NULL, run_job, &job) != 0)
			die("thread");
	for (unsigned int i = 0; i < n_threads; i++)
		pthread_join(threads[i], NULL);
	return (now_usec() - start) / (n_threads * n_each);
}

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static double median(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), compare);
	return values[n / 2];
}

struct row {
	const char *name;
	void (*limit)(void);
	void (*append)(void);
	unsigned int n_threads;
	unsigned int n_each;
	double target; /* of the ratio of times; 0: none */
};

/* Rounds of limit and journal take turns, so that both see the same weather. */
static void run_row(const struct row *row)
{
	unsigned int n = quick ? row->n_each / 4 : row->n_each;
	double limit[ROUNDS], mine[ROUNDS], ratio;

	for (int i = 0; i < ROUNDS; i++) {
		limit[i] = measure(row->limit, row->n_threads, n);
		mine[i] = measure(row->append, row->n_threads, n);
	}
	ratio = median(mine, ROUNDS) / median(limit, ROUNDS);
	printf("%-52s limit %9.2f us  here %9.2f us  ratio %5.2f", row->name, median(limit, ROUNDS),
		median(mine, ROUNDS), ratio);
	if (row->target > 0)
		printf("  target <= %.2f %s", row->target, ratio <= row->target ? "met" : "MISSED");
	printf("\n");
	fflush(stdout);
}

static void run_unsynced(void)
{
	double mine[ROUNDS];

	for (int i = 0; i < ROUNDS; i++)
		mine[i] = measure(journal_append_unsynced, 1, quick ? 2000 : 10000);
	printf("%-52s here %9.2f us  target <= 10.00 us %s\n", "unsynced record, 1 thread",
		median(mine, ROUNDS), median(mine, ROUNDS) <= 10 ? "met" : "MISSED");
}

static double count_all(uint64_t *retn)
{
	struct abox_journal_record read = ABOX_JOURNAL_RECORD_INIT;
	abox_journal_reader *reader = NULL;
	double start = now_usec();

	*retn = 0;
	if (abox_journal_reader_new(journal, 0, 0, &reader, NULL) < 0)
		die("reader");
	while (abox_journal_reader_next(reader, &read, NULL) > 0)
		(*retn)++;
	abox_journal_reader_unref(reader);
	return now_usec() - start;
}

static long peak_kib(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	char line[256];
	long kib = 0;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "VmHWM: %ld", &kib) == 1)
			break;
	if (file)
		fclose(file);
	return kib;
}

/* Opening is bounded by the newest segment; reading and verifying take constant memory. */
static void run_large(uint64_t n_records)
{
	struct abox_journal_options options = ABOX_JOURNAL_OPTIONS_INIT;
	double opened[ROUNDS], start, read_usec, verify_usec;
	long before, after;
	char *json = NULL;
	uint64_t n = 0;

	options.mode = ABOX_JOURNAL_APPEND;
	options.flags = ABOX_JOURNAL_CREATE;
	if (abox_journal_open(file_in_folder("large"), &options, &journal, NULL) < 0)
		die("large");
	for (uint64_t i = 0; i < n_records; i++)
		journal_append_unsynced();
	journal = abox_journal_unref(journal);
	options.flags = 0;
	for (int i = 0; i < ROUNDS; i++) {
		start = now_usec();
		if (abox_journal_open(file_in_folder("large"), &options, &journal, NULL) < 0)
			die("large");
		opened[i] = now_usec() - start;
		if (i + 1 < ROUNDS)
			journal = abox_journal_unref(journal);
	}
	printf("%-52s here %9.2f ms\n", "open for append, all records", median(opened, ROUNDS) / 1e3);
	before = peak_kib();
	read_usec = count_all(&n);
	start = now_usec();
	if (abox_journal_verify(file_in_folder("large"), NULL, &json, NULL) != 1)
		die("verify");
	verify_usec = now_usec() - start;
	after = peak_kib();
	printf("%-52s here %9.2f us a record (%" PRIu64 " records)\n", "iterate", read_usec / (double)n, n);
	printf("%-52s here %9.2f us a record, peak memory %ld KiB more\n", "verify", verify_usec / (double)n,
		after - before);
	abox_free(json);
	journal = abox_journal_unref(journal);
}

static void remove_folder(void)
{
	char command[8192];

	if (strchr(folder, '\'') == NULL) {
		snprintf(command, sizeof(command), "rm -rf '%s'", folder);
		if (system(command) != 0)
			fprintf(stderr, "bench-journal: %s was left behind\n", folder);
	}
}

int main(int argc, char **argv)
{
	const char *base = ".";

	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--quick") == 0)
			quick = true;
		else
			base = argv[i];
	snprintf(folder, sizeof(folder), "%s/bench-journal-XXXXXX", base);
	if (!mkdtemp(folder))
		die(folder);
	memset(record, 'r', sizeof(record));
	snprintf(body, sizeof(body), "{\"note\":\"%0*d\"}", RECORD_BYTES - 11, 0);

	journal_setup();
	plain_open(true);
	run_unsynced();
	run_row(&(struct row){ "durable record, prewritten + fdatasync, 1 thread", plain_append,
		journal_append_durable, 1, 400, 1.15 });
	run_row(&(struct row){ "durable record, group commit, 8 threads", plain_append_grouped,
		journal_append_durable, 8, 200, 0 });
	run_row(&(struct row){ "durable record, group commit, 64 threads", plain_append_grouped,
		journal_append_durable, 64, 100, 1 / 0.75 });
	close(plain_fd);
	plain_open(false);
	run_row(&(struct row){ "durable record, growing file + fdatasync, 1 thread", plain_append,
		journal_append_durable, 1, 400, 0 });
#ifdef HAVE_SQLITE
	run_row(&(struct row){ "durable record, SQLite WAL FULL, 1 thread", sqlite_append,
		journal_append_durable, 1, 400, 1 });
	run_row(&(struct row){ "durable record, SQLite WAL FULL, 8 threads", sqlite_append,
		journal_append_durable, 8, 50, 1 });
#else
	printf("SQLite rows skipped: libsqlite3-dev is not there\n");
#endif
	abox_journal_unref(journal);
	close(plain_fd);
	run_large(quick ? 50000 : 1000000);
	remove_folder();
	return 0;
}
