/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The loops of faults: one life of a journal, and in it the N-th call to the system is killed before, in the
 * middle or after, or fails, or power goes there, for N = 1, 2, 3 ... until nothing was touched. After each:
 * it opens, verify accepts, and no acknowledged record is missing.
 *
 * This program is linked with the journal's files compiled with their failure points. The life is led by a
 * forked child with one thread, which tells by shared memory what was acknowledged.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "journal/inject.h"
#include "support.h"

#ifndef ABOX_FAULT_INJECTION
#error "needs the failure points"
#endif

#define NOTES 64
#define LIVES_MAX 4000

enum how { KILL_BEFORE, KILL_MIDDLE, KILL_AFTER, FAIL_ONCE, FAIL_FROM_THERE, POWER_BEFORE, POWER_AFTER };

struct shared {
	unsigned int n_acknowledged;
	uint8_t acknowledged[NOTES];
	unsigned int n_calls; /* how many calls were made */
	unsigned int reached; /* the N-th call was */
	unsigned int n_mallocs;
	char digest[ABOX_DIGEST_TEXT_BYTES]; /* of the acknowledged blob */
};

static char *folder, *path, *lost;
static struct shared *shared;

static void setup(void)
{
	folder = folder_new();
	path = folder_journal(folder);
	if (asprintf(&lost, "%s/lost", folder) < 0)
		abort();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void teardown(void)
{
	munmap(shared, sizeof(*shared));
	free(path);
	free(lost);
	folder_remove(folder);
}

TestSuite(journal_faults, .init = setup, .fini = teardown);

/* ---- the disk below the page cache
 * ---------------------------------------------------------------------------- */

#define BLOCK 512
#define FILES_MAX 32
#define FILE_BLOCKS_MAX 4096

/* What reached the disk of one file. Names are what reached the disk of the folder. */
struct disk_file {
	uint64_t inode;
	char *data;
	size_t len;
	uint8_t dirty[FILE_BLOCKS_MAX]; /* written and not yet synced */
};

static struct disk {
	struct disk_file files[FILES_MAX];
	size_t n_files;
	struct {
		char name[256];
		uint64_t inode;
	} names[FILES_MAX];
	size_t n_names;
	uint64_t random;
	bool active;
} disk;

static struct disk_file *disk_file(uint64_t inode)
{
	for (size_t i = 0; i < disk.n_files; i++)
		if (disk.files[i].inode == inode)
			return &disk.files[i];
	if (disk.n_files == FILES_MAX)
		_exit(9);
	disk.files[disk.n_files].inode = inode;
	return &disk.files[disk.n_files++];
}

/* Takes one block of the cache to the disk. */
static void disk_write_block(struct disk_file *file, int fd, size_t block)
{
	char bytes[BLOCK] = "";
	ssize_t n = pread(fd, bytes, BLOCK, (off_t)(block * BLOCK));
	size_t end;

	file->dirty[block] = 0;
	if (n <= 0)
		return;
	end = block * BLOCK + (size_t)n;
	if (end > file->len) {
		file->data = realloc(file->data, end);
		memset(file->data + file->len, 0, end - file->len);
		file->len = end;
	}
	memcpy(file->data + block * BLOCK, bytes, (size_t)n);
}

static void disk_sync_folder(int dir_fd)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY);
	struct dirent *entry;
	DIR *dir = fdopendir(fd);

	disk.n_names = 0;
	while ((entry = readdir(dir))) {
		if (entry->d_type != DT_REG || disk.n_names == FILES_MAX)
			continue;
		snprintf(disk.names[disk.n_names].name, 256, "%s", entry->d_name);
		disk.names[disk.n_names++].inode = entry->d_ino;
	}
	closedir(dir);
}

/* some: a failed sync writes only part of it, and forgets the rest: clean, and never on the disk. */
static void disk_sync_file(int fd, uint64_t inode, bool some)
{
	struct disk_file *file = disk_file(inode);
	char name[64];
	int read_fd;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	read_fd = open(name, O_RDONLY);
	for (size_t block = 0; block < FILE_BLOCKS_MAX; block++) {
		if (!file->dirty[block])
			continue;
		if (!some || random_u64(&disk.random) % 2)
			disk_write_block(file, read_fd, block);
		file->dirty[block] = 0;
	}
	close(read_fd);
}

static void disk_see(const struct inject_event *event, bool failed)
{
	struct stat st;

	if (event->op != INJECT_WRITE && event->op != INJECT_SYNC)
		return;
	if (fstat(event->fd, &st) < 0)
		return;
	if (event->op == INJECT_SYNC && S_ISDIR(st.st_mode)) {
		if (!failed && faccessat(event->fd, "lock", F_OK, 0) == 0)
			disk_sync_folder(event->fd);
	} else if (event->op == INJECT_SYNC) {
		disk_sync_file(event->fd, st.st_ino, failed);
	} else {
		struct disk_file *file = disk_file(st.st_ino);

		for (uint64_t at = event->offset / BLOCK; at <= (event->offset + event->len - 1) / BLOCK;
			at++)
			if (at < FILE_BLOCKS_MAX)
				file->dirty[at] = 1;
	}
}

/* The power goes: of what was not synced, any part may have reached the disk, in any order; of renames and
 * new names too. What is then on the disk is written into another folder. */
static void lose_power(int dir_fd)
{
	int mode = (int)(random_u64(&disk.random) % 3); /* nothing, anything, all of it */

	mkdir(lost, 0700);
	if (dir_fd < 0)
		return;
	if (mode == 2 || (mode == 1 && random_u64(&disk.random) % 2))
		disk_sync_folder(dir_fd);
	for (size_t i = 0; i < disk.n_names; i++) {
		struct disk_file *file = disk_file(disk.names[i].inode);
		char name[4096];
		int fd = -1;

		/* the file by its inode, whatever it is called now */
		DIR *dir = fdopendir(openat(dir_fd, ".", O_RDONLY | O_DIRECTORY));
		struct dirent *entry;

		while ((entry = readdir(dir)))
			if (entry->d_ino == disk.names[i].inode)
				fd = openat(dir_fd, entry->d_name, O_RDONLY);
		closedir(dir);
		for (size_t block = 0; fd >= 0 && block < FILE_BLOCKS_MAX; block++)
			if (file->dirty[block] && (mode == 2 || (mode == 1 && random_u64(&disk.random) % 2)))
				disk_write_block(file, fd, block);
		if (fd >= 0)
			close(fd);
		snprintf(name, sizeof(name), "%s/%s", lost, disk.names[i].name);
		fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		if (fd < 0 || fd_write_all(fd, file->data ? file->data : "", file->len) < 0)
			_exit(9);
		close(fd);
	}
}

/* ---- the N-th call
 * ---------------------------------------------------------------------------------------------- */

static enum how how;
static unsigned int nth;
static int fail_with;
static int journal_dir_fd = -1;

static void die(void)
{
	kill(getpid(), SIGKILL);
	_exit(9);
}

static void half_a_write(const struct inject_event *event)
{
	if (event->op == INJECT_WRITE)
		(void)!pwrite(event->fd, event->data, event->len / 2, (off_t)event->offset);
}

static int fail(const struct inject_event *event)
{
	/* a full disk, or one that breaks; a short write first, as both may come in the middle */
	half_a_write(event);
	if (disk.active)
		disk_see(event, true);
	return fail_with;
}

static int hook(const struct inject_event *event, bool done)
{
	unsigned int call;

	if (event->op == INJECT_OPEN && journal_dir_fd < 0)
		journal_dir_fd = dup(event->fd);
	if (done) {
		if (disk.active)
			disk_see(event, false);
		if (shared->n_calls == nth && how == KILL_AFTER)
			die();
		if (shared->n_calls == nth && how == POWER_AFTER) {
			lose_power(journal_dir_fd);
			die();
		}
		return 0;
	}
	call = ++shared->n_calls;
	if (call == nth)
		shared->reached = 1;
	if (how == FAIL_FROM_THERE && call >= nth && event->op == INJECT_WRITE)
		return fail(event);
	if (call != nth)
		return 0;
	switch (how) {
	case KILL_MIDDLE:
		half_a_write(event);
		die();
		break;
	case KILL_BEFORE:
		die();
		break;
	case POWER_BEFORE:
		lose_power(journal_dir_fd);
		die();
		break;
	case FAIL_ONCE:
		return fail(event);
	default:
		break;
	}
	return 0;
}

/* ---- a life
 * ------------------------------------------------------------------------------------------------------ */

static void put(abox_journal *journal, unsigned int number, size_t filling, int durability)
{
	uint64_t seq = 0;

	if (journal && put_note(journal, number, filling, durability, &seq) == 0 &&
		durability != ABOX_DURABILITY_NONE) {
		/* everything before it, too, was made durable by this; but only this one was promised */
		shared->acknowledged[number] = 1;
		shared->n_acknowledged++;
	}
}

static void lead_life(void)
{
	abox_journal *journal = open_append(path, 64 * 1024), *other;
	unsigned int number = 0;
	char digest[ABOX_DIGEST_TEXT_BYTES];

	for (int i = 0; i < 3; i++)
		put(journal, number++, 40, i % 2 ? ABOX_DURABILITY_DATA : ABOX_DURABILITY_NONE);
	if (journal && abox_journal_blob_put(journal, "result", 6, digest, NULL) == 0)
		memcpy(shared->digest, digest, sizeof(digest));
	put(journal, number++, 700, ABOX_DURABILITY_FULL);
	if (journal)
		(void)abox_journal_rotate(journal, NULL);
	other = open_append(path, 64 * 1024);
	put(other, number++, 10, ABOX_DURABILITY_NONE);
	put(journal, number++, 1200, ABOX_DURABILITY_DATA);
	abox_journal_unref(journal);
	/* fills the segment up */
	put(other, number++, 30000, ABOX_DURABILITY_NONE);
	put(other, number++, 30000, ABOX_DURABILITY_DATA);
	put(other, number++, 10, ABOX_DURABILITY_DATA);
	if (other)
		(void)abox_journal_prune(other, NULL, NULL, NULL);
	put(other, number++, 10, ABOX_DURABILITY_DATA);
	abox_journal_unref(other);
	journal = open_append(path, 64 * 1024);
	put(journal, number++, 10, ABOX_DURABILITY_DATA);
	abox_journal_unref(journal);
}

static void child(enum how child_how, unsigned int child_nth, int child_errno, uint64_t seed)
{
	how = child_how;
	nth = child_nth;
	fail_with = child_errno;
	disk.random = seed;
	disk.active = how == POWER_BEFORE || how == POWER_AFTER;
	inject_hook = hook;
	freopen("/dev/null", "w", stderr);
	lead_life();
	_exit(0);
}

static void remove_journal(const char *which)
{
	char *copy = strdup(which);

	folder_remove(copy);
}

/* After a power loss the folder is where it was: its lock file has the inode that the identity names. */
static void settle_identity(const char *where)
{
	char name[4096], text[256];
	size_t len;
	char *data, *at;
	struct stat st;

	snprintf(name, sizeof(name), "%s/id", where);
	if (access(name, F_OK) == 0) {
		snprintf(name, sizeof(name), "%s/lock", where);
		if (stat(name, &st) < 0)
			return;
		data = read_file(where, "id", &len);
		at = strstr(data, "\"inode\":\"");
		if (at) {
			at += 9;
			snprintf(text, sizeof(text), "%.*s%" PRIu64 "%s", (int)(at - data), data,
				(uint64_t)st.st_ino, strchr(at, '"'));
			write_file(where, "id", text, strlen(text));
		}
		free(data);
	}
	snprintf(name, sizeof(name), "%s/lock", where);
	if (access(name, F_OK) == 0) {
		data = read_file(where, "lock", &len);
		if (len > 128) {
			data[128] ^= 0x55; /* another boot */
			write_file(where, "lock", data, len);
		}
		free(data);
	}
}

/* Which notes are there; pruned ones were all acknowledged before the pruning, so the first one found bounds
 * them. */
static const char *check_notes(const char *where, bool pruned)
{
	struct abox_journal_record record = ABOX_JOURNAL_RECORD_INIT;
	abox_journal_reader *reader = NULL;
	abox_journal *journal = NULL;
	uint8_t seen[NOTES] = { 0 };
	uint64_t number;
	unsigned int first = NOTES;
	int r;

	if (abox_journal_open(where, NULL, &journal, NULL) < 0)
		return "does not open for reading";
	if (abox_journal_reader_new(journal, 0, 0, &reader, NULL) < 0) {
		abox_journal_unref(journal);
		return "has no first record";
	}
	while ((r = abox_journal_reader_next(reader, &record, NULL)) > 0) {
		if (strcmp(record.type, "note") != 0 ||
			sscanf(record.body, "{\"n\":%" SCNu64, &number) != 1 || number >= NOTES)
			continue;
		first = number < first ? (unsigned int)number : first;
		seen[number] = 1;
	}
	abox_journal_reader_unref(reader);
	abox_journal_unref(journal);
	if (r < 0)
		return "cannot be read to its end";
	for (unsigned int i = pruned && first < NOTES ? first : 0; i < NOTES; i++)
		if (shared->acknowledged[i] && !seen[i])
			return "an acknowledged record is missing";
	return NULL;
}

/* NULL when all is well, else what is not. */
static const char *check_life(const char *where)
{
	abox_journal *journal = NULL;
	char *json = NULL;
	const char *why;
	bool pruned;
	int r;

	journal = open_append(where, 64 * 1024);
	if (!journal)
		return "does not open";
	r = put_note(journal, NOTES - 1, 1, ABOX_DURABILITY_DATA, NULL);
	if (r == 0 && shared->digest[0]) {
		char *data = NULL;

		if (where == path && abox_journal_blob_get(journal, shared->digest, 0, &data, NULL, NULL) < 0)
			r = ABOX_E_NOT_FOUND;
		abox_free(data);
	}
	abox_journal_unref(journal);
	if (r == ABOX_E_NOT_FOUND)
		return "an acknowledged blob is missing";
	if (r < 0)
		return "cannot be appended to";
	r = verify(where, &json);
	pruned = json && !strstr(json, "\"first_segment\":1,");
	free(json);
	if (r != 1)
		return "does not verify";
	why = check_notes(where, pruned);
	return why;
}

/* One life for each N, until N is beyond the last call. */
static void loop(enum how loop_how, int loop_errno, unsigned int step)
{
	uint64_t seed = clock_monotonic_usec() | 1;
	unsigned int n;

	for (n = 1; n < LIVES_MAX; n += step) {
		const char *where = loop_how >= POWER_BEFORE ? lost : path, *why;
		uint64_t this_seed = random_u64(&seed);
		int status;
		pid_t pid;

		remove_journal(path);
		remove_journal(lost);
		memset(shared, 0, sizeof(*shared));
		pid = fork();
		if (pid == 0)
			child(loop_how, n, loop_errno, this_seed);
		cr_assert_eq(waitpid(pid, &status, 0), pid);
		cr_assert(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0,
			"status %x", status);
		if (!shared->reached)
			break;
		if (WIFEXITED(status)) /* a call that failed by itself has no "after" */
			where = path;
		if (where == lost)
			settle_identity(lost);
		why = check_life(where);
		cr_assert_null(why, "how %d, call %u, errno %d, seed %" PRIu64 ": %s", loop_how, n,
			loop_errno, this_seed, why);
	}
	cr_expect_gt(n, 50, "the loop was a loop");
	cr_expect_lt(n, LIVES_MAX);
	fprintf(stderr, "how %d, errno %d: %u calls\n", loop_how, loop_errno, shared->n_calls);
}

static unsigned int bounded(unsigned int step)
{
	return long_tests() ? 1 : step;
}

/* kill -9 before the N-th write, sync, rename, open, unlink. */
Test(journal_faults, killed_before_any_call, .timeout = 300)
{
	loop(KILL_BEFORE, 0, bounded(2));
}

/* In the middle of a write: half of it is in the page cache. */
Test(journal_faults, killed_in_any_write, .timeout = 300)
{
	loop(KILL_MIDDLE, 0, bounded(1));
}

/* After it, before anybody was told. */
Test(journal_faults, killed_after_any_call, .timeout = 300)
{
	loop(KILL_AFTER, 0, bounded(2));
}

/* The N-th call fails once (T14-5); half of a write went through. */
Test(journal_faults, any_call_fails_once, .timeout = 600)
{
	loop(FAIL_ONCE, EIO, bounded(1));
	loop(FAIL_ONCE, ENOSPC, bounded(3));
	loop(FAIL_ONCE, EINTR, bounded(5));
}

/* From the N-th call on the disk is full. */
Test(journal_faults, the_disk_is_full_from_somewhere_on, .timeout = 300)
{
	loop(FAIL_FROM_THERE, ENOSPC, bounded(2));
	loop(FAIL_FROM_THERE, EFBIG, bounded(7));
}

/* Power goes before or after the N-th call; of what was not synced any part is gone, in any order. */
Test(journal_faults, power_goes_anywhere, .timeout = 600)
{
	unsigned int rounds = long_tests() ? 20 : 2;

	for (unsigned int i = 0; i < rounds; i++) {
		loop(POWER_BEFORE, 0, bounded(1));
		loop(POWER_AFTER, 0, bounded(2));
	}
}

/* ---- memory
 * ------------------------------------------------------------------------------------------------------ */

/* The linker puts these in the place of malloc and its kin for everything in this program but libc itself. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *memory, size_t size);

static unsigned int fail_malloc; /* the N-th; 0: none */

static bool no_memory(void)
{
	if (!fail_malloc)
		return false;
	if (++shared->n_mallocs != fail_malloc)
		return false;
	shared->reached = 1;
	return true;
}

void *__wrap_malloc(size_t size)
{
	return no_memory() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return no_memory() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
	return no_memory() ? NULL : __real_realloc(memory, size);
}

/* The N-th allocation fails: the call says so, nothing crashes, nothing acknowledged is lost. */
Test(journal_faults, any_allocation_fails, .timeout = 600)
{
	unsigned int n;

	for (n = 1; n < LIVES_MAX; n += bounded(3)) {
		const char *why;
		int status;
		pid_t pid;

		memset(shared, 0, sizeof(*shared));
		pid = fork();
		if (pid == 0) {
			freopen("/dev/null", "w", stderr);
			fail_malloc = n;
			lead_life();
			_exit(0);
		}
		cr_assert_eq(waitpid(pid, &status, 0), pid);
		cr_assert_eq(status, 0, "allocation %u: status %x", n, status);
		if (!shared->reached)
			break;
		why = check_life(path);
		cr_assert_null(why, "allocation %u: %s", n, why);
		remove_journal(path);
	}
	cr_expect_gt(n, 50);
	cr_expect_lt(n, LIVES_MAX);
}
