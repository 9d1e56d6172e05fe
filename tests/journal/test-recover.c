/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is left by crashes, copies, and people with editors. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

#define FIRST "0000000001.log"
#define STATE_AT 128 /* in the lock file; lock.c has the layout */

static char *folder, *path;

static void setup(void)
{
	folder = folder_new();
	path = folder_journal(folder);
}

static void teardown(void)
{
	free(path);
	folder_remove(folder);
}

/* Bounds against hanging only: hosts may be busy. */
TestSuite(journal_recover, .init = setup, .fini = teardown, .timeout = 300);

static void fill(uint64_t n, int durability)
{
	abox_journal *journal = open_append(path, 512 * 1024);

	cr_assert_not_null(journal);
	for (uint64_t i = 0; i < n; i++)
		cr_assert_eq(put_note(journal, i, i % 40, durability, NULL), 0);
	abox_journal_unref(journal);
}

/* As after a reboot: what live processes told each other is gone. */
static void forget_boot(void)
{
	size_t len;
	char *data = read_file(path, "lock", &len);

	data[STATE_AT] ^= 0x55;
	write_file(path, "lock", data, len);
	free(data);
}

/* write_file() makes the same inode; identity is not touched. Start of line `number` (1 is the head). */
static size_t line_start(const char *data, size_t number)
{
	size_t at = 0;

	while (--number > 0)
		at = (size_t)(strchr(data + at, '\n') - data) + 1;
	return at;
}

static void expect_damage(uint64_t seq)
{
	char *json = NULL, wanted[64];
	abox_journal *journal = NULL;

	cr_assert_eq(verify(path, &json), 0, "%s", json);
	snprintf(wanted, sizeof(wanted), "\"seq\":%" PRIu64 ",\"reason\"", seq);
	cr_expect_not_null(strstr(json, wanted), "%s in %s", wanted, json);
	cr_expect_eq(try_open(path, ABOX_JOURNAL_APPEND, 0, &journal), ABOX_E_DAMAGED);
	cr_expect_eq(count_records(path), ABOX_E_DAMAGED);
	free(json);
}

/* T14-1: a flipped byte, a deleted, swapped or doubled line is found, and the first bad record is named. */
Test(journal_recover, any_change_names_the_first_bad_record)
{
	size_t len, a, b, c;
	char *good, *bad;

	fill(1000, ABOX_DURABILITY_DATA);
	good = read_file(path, FIRST, &len);
	bad = malloc(len);
	cr_assert_eq(verify(path, NULL), 1, "positive control");

	for (size_t record = 2; record < 1000; record += 111)
		for (size_t byte = 0; byte < 200; byte += 37) {
			memcpy(bad, good, len);
			bad[line_start(good, record) + byte] ^= 0x10;
			write_file(path, FIRST, bad, len);
			expect_damage(record);
		}
	a = line_start(good, 500), b = line_start(good, 501), c = line_start(good, 502);
	memset(bad, 0, len);
	memcpy(bad, good, a);
	memcpy(bad + a, good + b, len - b);
	write_file(path, FIRST, bad, len);
	expect_damage(500);

	memcpy(bad, good, len);
	memcpy(bad + a, good + b, c - b);
	memcpy(bad + a + (c - b), good + a, b - a);
	write_file(path, FIRST, bad, len);
	expect_damage(500);

	memcpy(bad, good, len);
	memcpy(bad + b, good + a, b - a);
	memcpy(bad + b + (b - a), good + b, len - b - (b - a));
	write_file(path, FIRST, bad, len);
	expect_damage(501);

	/* a newline that became something else joins two lines */
	memcpy(bad, good, len);
	bad[b - 1] = ' ';
	write_file(path, FIRST, bad, len);
	expect_damage(500);
	free(good);
	free(bad);
}

static void expect_recovered(uint64_t n_whole, bool torn)
{
	abox_journal *journal = NULL;
	uint64_t seq = 0;
	char *json = NULL;

	cr_assert_eq(try_open(path, ABOX_JOURNAL_APPEND, 0, &journal), 0);
	cr_assert_eq(abox_journal_dump(journal, &json, NULL), 0);
	cr_expect_eq(strstr(json, "\"what\":\"torn\"") != NULL, torn, "%s", json);
	free(json);
	cr_assert_eq(put_note(journal, 7, 5, ABOX_DURABILITY_DATA, &seq), 0);
	cr_expect_eq(seq, n_whole + 1 + torn, "the recovery is a record itself");
	abox_journal_unref(journal);
	cr_expect_eq(verify(path, NULL), 1);
	cr_expect_eq(count_records(path), (int64_t)seq);
}

/* T14-2, B77: cut after every byte of the last three records, as a power loss does: whole records stay, the
 * torn part is set aside and told, and what is appended next is a line of its own. */
Test(journal_recover, a_cut_anywhere_loses_only_the_torn_record)
{
	size_t len, start, end, step = long_tests() ? 1 : 7;
	char *good, *bad, *lock;
	size_t lock_len;

	fill(20, ABOX_DURABILITY_DATA);
	good = read_file(path, FIRST, &len);
	forget_boot();
	lock = read_file(path, "lock", &lock_len);
	start = line_start(good, 19);
	end = line_start(good, 22);
	cr_assert_eq(good[end], 0);
	for (size_t cut = start; cut <= end; cut += (cut + step > end && cut < end) ? end - cut : step)
		for (int truncated = 0; truncated < 2; truncated++) {
			uint64_t whole = 0;
			bool torn;

			bad = calloc(1, len);
			memcpy(bad, good, cut);
			for (size_t i = 0; i < cut; i++)
				whole += bad[i] == '\n';
			torn = cut > 0 && bad[cut - 1] != '\n';
			write_file(path, FIRST, bad, truncated ? cut : len);
			write_file(path, "lock", lock, lock_len);
			free(bad);
			expect_recovered(whole, torn);
		}
	free(lock);
	free(good);
}

/* Whole records behind a hole, none of which claims the missing one, are a torn tail too: pages reach the
 * disk in any order. The same hole is damage when a record behind it says that its writer knew better. */
Test(journal_recover, a_hole_is_torn_unless_a_later_record_claims_it)
{
	size_t len, a, b;
	char *data;

	fill(10, ABOX_DURABILITY_NONE);
	forget_boot();
	data = read_file(path, FIRST, &len);
	a = line_start(data, 8), b = line_start(data, 9);
	memset(data + a, 0, b - a);
	write_file(path, FIRST, data, len);
	free(data);
	expect_recovered(7, true);

	fill(10, ABOX_DURABILITY_DATA);
	forget_boot();
	data = read_file(path, FIRST, &len);
	a = line_start(data, 14), b = line_start(data, 15);
	memset(data + a, 0, b - a);
	write_file(path, FIRST, data, len);
	free(data);
	expect_damage(14);
}

/* Half a record of a writer that was killed under the lock is undone by the next one, never joined. */
Test(journal_recover, half_a_record_is_undone_by_the_next_writer)
{
	abox_journal *journal = open_append(path, 0);
	uint64_t seq = 0;
	char name[4096];
	int fd;

	cr_assert_eq(put_note(journal, 1, 10, ABOX_DURABILITY_DATA, NULL), 0);
	snprintf(name, sizeof(name), "%s/" FIRST, path);
	fd = open(name, O_RDWR);
	cr_assert_eq(pwrite(fd, "{\"seq\":3,\"known\":2,\"ep", 22, (off_t)journal->chain.offset), 22);
	close(fd);
	cr_assert_eq(verify(path, NULL), 1, "torn, not damaged");
	cr_assert_eq(put_note(journal, 2, 0, ABOX_DURABILITY_DATA, &seq), 0);
	cr_expect_eq(seq, 3);
	cr_assert_eq(put_note(journal, 3, 0, ABOX_DURABILITY_DATA, &seq), 0);
	abox_journal_unref(journal);
	cr_expect_eq(verify(path, NULL), 1);
	cr_expect_eq(count_records(path), 4);
}

static void raise_sync_flag(void)
{
	size_t len;
	char *data = read_file(path, "lock", &len);

	data[STATE_AT + 32] = 1; /* syncing */
	write_file(path, "lock", data, len);
	free(data);
}

/* A syncer that died in its sync poisons the journal for everybody; who opens it alone rewrites it and says
 * so. */
Test(journal_recover, a_sync_that_was_cut_short_poisons_until_somebody_is_alone)
{
	abox_journal *journal = open_append(path, 0), *other = open_append(path, 0), *third = NULL;
	struct stat before, after;
	char *json = NULL, name[4096];
	uint64_t seq;

	snprintf(name, sizeof(name), "%s/" FIRST, path);
	cr_assert_eq(stat(name, &before), 0);
	cr_assert_eq(put_note(journal, 1, 10, ABOX_DURABILITY_DATA, NULL), 0);
	cr_assert_eq(put_note(journal, 2, 10, ABOX_DURABILITY_NONE, &seq), 0);
	raise_sync_flag();
	cr_expect_eq(put_note(journal, 3, 10, ABOX_DURABILITY_DATA, NULL), ABOX_E_POISONED);
	cr_expect_eq(put_note(other, 4, 10, ABOX_DURABILITY_NONE, NULL), ABOX_E_POISONED);
	cr_expect_eq(try_open(path, ABOX_JOURNAL_APPEND, 0, &third), ABOX_E_POISONED);
	cr_expect_eq(try_open(path, ABOX_JOURNAL_READ, 0, &third), 0, "reading is still possible");
	third = abox_journal_unref(third);
	cr_expect_eq(abox_journal_repair(path, "test", NULL, NULL), ABOX_E_BUSY);
	abox_journal_unref(journal);
	abox_journal_unref(other);

	cr_assert_eq(try_open(path, ABOX_JOURNAL_APPEND, 0, &journal), 0);
	cr_assert_eq(abox_journal_dump(journal, &json, NULL), 0);
	cr_expect_not_null(strstr(json, "\"what\":\"poisoned\""), "%s", json);
	cr_assert_eq(stat(name, &after), 0);
	cr_expect_neq(before.st_ino, after.st_ino, "written anew");
	cr_expect_eq(put_note(journal, 5, 10, ABOX_DURABILITY_DATA, NULL), 0);
	abox_journal_unref(journal);
	free(json);
	cr_expect_eq(verify(path, NULL), 1);
}

/* Damage stays damage until somebody cuts it out by name; what is cut is kept beside, and named in the log.
 */
Test(journal_recover, repair_cuts_damage_out_by_name)
{
	abox_journal *journal = NULL;
	size_t len;
	char *data, *json = NULL;

	fill(20, ABOX_DURABILITY_DATA);
	data = read_file(path, FIRST, &len);
	data[line_start(data, 11) + 40] ^= 1;
	write_file(path, FIRST, data, len);
	free(data);
	expect_damage(11);
	cr_assert_eq(abox_journal_repair(path, "somebody", &json, NULL), 0);
	cr_expect_not_null(strstr(json, "\"what\":\"damaged\""), "%s", json);
	cr_expect_eq(verify(path, NULL), 1);
	cr_expect_eq(count_records(path), 11, "ten whole ones and the repair");
	cr_assert_eq(try_open(path, ABOX_JOURNAL_APPEND, 0, &journal), 0);
	cr_expect_eq(put_note(journal, 1, 1, ABOX_DURABILITY_DATA, NULL), 0);
	abox_journal_unref(journal);
	free(json);
}

/* A copied folder is refused until it is adopted; the original goes on. */
Test(journal_recover, a_copy_is_refused_until_adopted)
{
	abox_journal *journal = NULL;
	char *original, *copy = NULL, *json = NULL;

	fill(5, ABOX_DURABILITY_DATA);
	cr_expect_eq(abox_journal_adopt(path, "test", NULL), ABOX_E_ALREADY);
	copy = malloc(strlen(folder) + 16);
	sprintf(copy, "%s/copy", folder);
	copy_folder(path, copy);
	cr_expect_eq(try_open(copy, ABOX_JOURNAL_APPEND, 0, &journal), ABOX_E_CLONED);
	cr_expect_eq(count_records(copy), 6, "it can be read");
	cr_assert_eq(abox_journal_adopt(copy, "test", NULL), 0);
	cr_assert_eq(try_open(copy, ABOX_JOURNAL_APPEND, 0, &journal), 0);
	cr_expect_eq(put_note(journal, 1, 1, ABOX_DURABILITY_DATA, NULL), 0);
	original = strdup(abox_journal_get_id(journal));
	abox_journal_unref(journal);
	cr_expect_eq(verify(copy, &json), 1, "%s", json);
	free(json);

	journal = open_append(path, 0);
	cr_assert_not_null(journal);
	cr_expect_str_neq(abox_journal_get_id(journal), original);
	cr_expect_eq(put_note(journal, 1, 1, ABOX_DURABILITY_DATA, NULL), 0);
	abox_journal_unref(journal);
	free(original);
	free(copy);
}

static int remember(void *userdata, const char *id, uint64_t *retseq, char rethash[ABOX_DIGEST_TEXT_BYTES])
{
	const struct chain *seen = userdata;

	*retseq = seen->seq;
	memcpy(rethash, seen->hash, ABOX_DIGEST_TEXT_BYTES);
	return 0;
}

/* A folder put back in its place shows to a witness, whether it is behind or went on differently. */
Test(journal_recover, a_rollback_in_place_shows_to_a_witness)
{
	struct abox_journal_options options = ABOX_JOURNAL_OPTIONS_INIT;
	abox_journal *journal = NULL;
	struct chain seen = { .seq = 0 };
	size_t len;
	char *old;

	fill(5, ABOX_DURABILITY_DATA);
	old = read_file(path, FIRST, &len);
	fill(5, ABOX_DURABILITY_DATA);
	options.mode = ABOX_JOURNAL_APPEND;
	options.witness = remember;
	options.witness_userdata = &seen;
	cr_assert_eq(abox_journal_open(path, &options, &journal, NULL), 0, "a witness that knows nothing");
	cr_assert_eq(abox_journal_get_position(journal, &seen.seq, seen.hash, NULL), 0);
	cr_expect_eq(seen.seq, 11);
	journal = abox_journal_unref(journal);
	cr_assert_eq(abox_journal_open(path, &options, &journal, NULL), 0, "positive control");
	journal = abox_journal_unref(journal);

	forget_boot();
	write_file(path, FIRST, old, len);
	cr_expect_eq(abox_journal_open(path, &options, &journal, NULL), ABOX_E_CLONED);
	fill(20, ABOX_DURABILITY_DATA);
	cr_expect_eq(abox_journal_open(path, &options, &journal, NULL), ABOX_E_CLONED);
	free(old);
}

/* Rolled back while others hold it, or within one boot, it shows without a witness. */
Test(journal_recover, what_was_durable_in_this_boot_may_not_vanish)
{
	abox_journal *journal = NULL;
	size_t len;
	char *old;

	fill(5, ABOX_DURABILITY_DATA);
	old = read_file(path, FIRST, &len);
	fill(5, ABOX_DURABILITY_DATA);
	write_file(path, FIRST, old, len);
	free(old);
	cr_expect_eq(try_open(path, ABOX_JOURNAL_APPEND, 0, &journal), ABOX_E_DAMAGED);
	cr_expect_eq(verify(path, NULL), 0);
}

/* Time is told, order is seq (T14-14). */
Test(journal_recover, a_clock_that_goes_back_changes_no_order)
{
	struct record_fields fields = { .seq = 0 };
	abox_journal *journal = open_append(path, 0);
	struct journal_entry entry = { .type = "note" };
	struct text line = TEXT_INIT;
	char hash[DIGEST_TEXT_BYTES], prev[DIGEST_TEXT_BYTES];
	const char *why = NULL;
	uint64_t seq;

	/* two records of another process, an hour back and in the same microsecond */
	memcpy(prev, journal->chain.hash, sizeof(prev));
	for (uint64_t i = 0, offset = journal->chain.offset; i < 2; i++, offset += line.len) {
		fields = (struct record_fields){ .seq = 2 + i, .known = 1, .time_usec = 1000, .prev = prev };
		cr_assert_eq(record_build(&line, &fields, &entry, hash, &why), 0);
		cr_assert_eq(
			pwrite(journal->tail->fd, line.data, line.len, (off_t)offset), (ssize_t)line.len);
		memcpy(prev, hash, sizeof(prev));
	}
	text_clear(&line);
	cr_assert_eq(put_note(journal, 1, 1, ABOX_DURABILITY_DATA, &seq), 0);
	cr_expect_eq(seq, 4);
	abox_journal_unref(journal);
	cr_expect_eq(verify(path, NULL), 1);
	cr_expect_eq(count_records(path), 4);
}

/* T14-12: links, fifos, folders that others may write to, files that are replaced under us. */
Test(journal_recover, only_a_folder_of_our_own_is_taken)
{
	abox_journal *journal = NULL;
	char name[4096], link_path[4096];

	fill(3, ABOX_DURABILITY_DATA);
	snprintf(link_path, sizeof(link_path), "%s/link", folder);
	cr_assert_eq(symlink(path, link_path), 0);
	cr_expect_eq(try_open(link_path, ABOX_JOURNAL_APPEND, 0, &journal), ABOX_E_PERMISSION);
	strcat(link_path, "/");
	cr_expect_eq(try_open(link_path, ABOX_JOURNAL_APPEND, 0, &journal), ABOX_E_PERMISSION);
	cr_expect_eq(try_open("/dev/null", ABOX_JOURNAL_APPEND, 0, &journal), ABOX_E_PERMISSION);

	cr_assert_eq(chmod(path, 0777), 0);
	cr_expect_eq(try_open(path, ABOX_JOURNAL_APPEND, 0, &journal), ABOX_E_PERMISSION);
	cr_assert_eq(chmod(path, 0700), 0);
	cr_assert_eq(chmod(folder, 0777), 0);
	cr_expect_eq(try_open(path, ABOX_JOURNAL_APPEND, 0, &journal), ABOX_E_PERMISSION);
	cr_assert_eq(chmod(folder, 01777), 0);
	cr_expect_eq(try_open(path, ABOX_JOURNAL_APPEND, 0, &journal), 0, "a sticky parent is fine");
	journal = abox_journal_unref(journal);

	snprintf(name, sizeof(name), "%s/" FIRST, path);
	snprintf(link_path, sizeof(link_path), "%s/elsewhere", folder);
	cr_assert_eq(rename(name, link_path), 0);
	cr_assert_eq(symlink(link_path, name), 0);
	cr_expect_lt(try_open(path, ABOX_JOURNAL_APPEND, 0, &journal), 0);
	cr_assert_eq(unlink(name), 0);
	cr_assert_eq(mkfifo(name, 0600), 0);
	cr_expect_lt(try_open(path, ABOX_JOURNAL_APPEND, 0, &journal), 0);
	cr_assert_eq(unlink(name), 0);
	cr_assert_eq(link(link_path, name), 0);
	cr_expect_lt(try_open(path, ABOX_JOURNAL_APPEND, 0, &journal), 0, "a second name for the same file");
}

/* What is not in the folder any more is never acknowledged. */
Test(journal_recover, a_replaced_file_is_never_acknowledged)
{
	abox_journal *journal = open_append(path, 0);
	size_t len;
	char *data, name[4096];

	cr_assert_eq(put_note(journal, 1, 1, ABOX_DURABILITY_DATA, NULL), 0);
	data = read_file(path, FIRST, &len);
	snprintf(name, sizeof(name), "%s/" FIRST, path);
	cr_assert_eq(unlink(name), 0);
	write_file(path, FIRST, data, len);
	cr_expect_eq(put_note(journal, 2, 1, ABOX_DURABILITY_DATA, NULL), ABOX_E_DAMAGED);
	abox_journal_unref(journal);
	free(data);
}

/* In a forked child the handle is dead, and closing it there takes nothing from the parent. */
Test(journal_recover, a_forked_child_cannot_use_the_handle)
{
	abox_journal *journal = open_append(path, 0);
	int status;
	pid_t pid;

	pid = fork();
	if (pid == 0) {
		int r = put_note(journal, 1, 1, ABOX_DURABILITY_DATA, NULL);

		abox_journal_unref(journal);
		_exit(r == ABOX_E_STATE ? 0 : 1);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_expect_eq(status, 0);
	cr_expect_eq(put_note(journal, 2, 1, ABOX_DURABILITY_DATA, NULL), 0);
	abox_journal_unref(journal);
}

/* Alive is who holds the lock: through any copy of the descriptor, in any process, until the last one is
 * closed. */
Test(journal_recover, an_executor_lives_as_long_as_a_copy_of_its_lock)
{
	abox_journal *journal = open_append(path, 0), *other = open_append(path, 0);
	uint64_t number = 0;
	int fd = -1, pipe_fds[2], status;
	pid_t pid;
	char byte;

	cr_assert_eq(journal_executor_open(journal, &number, &fd, NULL), 0);
	cr_expect_eq(journal_executor_alive(journal, number, NULL), 1);
	cr_expect_eq(journal_executor_alive(other, number, NULL), 1);
	cr_expect_eq(journal_executor_alive(other, number ^ 1, NULL), 0);
	cr_assert_eq(pipe(pipe_fds), 0);
	pid = fork();
	if (pid == 0) {
		close(pipe_fds[1]);
		(void)!read(pipe_fds[0], &byte, 1);
		_exit(0);
	}
	close(pipe_fds[0]);
	close(fd);
	cr_expect_eq(journal_executor_alive(other, number, NULL), 1, "the child shares it");
	close(pipe_fds[1]);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_expect_eq(journal_executor_alive(other, number, NULL), 0);
	abox_journal_unref(journal);
	abox_journal_unref(other);
}

/* T14-8: a stopped holder is waited for with bounded patience and named; it is never robbed. Killed, it holds
 * nothing. */
Test(journal_recover, a_stopped_holder_is_named_and_not_robbed)
{
	abox_journal *journal = open_append(path, 0);
	abox_error *error = NULL;
	int status, pipe_fds[2];
	char byte, pid_text[32];
	uint64_t seq = 0;
	pid_t pid;

	cr_assert_eq(pipe(pipe_fds), 0);
	pid = fork();
	if (pid == 0) {
		abox_journal *mine = open_append(path, 0);

		if (!mine || lock_take(&mine->lock, LOCK_APPEND, UINT64_MAX, NULL) < 0)
			_exit(1);
		(void)!write(pipe_fds[1], "x", 1);
		raise(SIGSTOP);
		_exit(1);
	}
	cr_assert_eq(read(pipe_fds[0], &byte, 1), 1);
	journal->lock.timeout_usec = 100 * USEC_PER_MSEC;
	cr_expect_eq(abox_journal_append(
			     journal, &(struct abox_journal_entry)ABOX_JOURNAL_ENTRY_INIT, &seq, &error),
		ABOX_E_BUSY);
	snprintf(pid_text, sizeof(pid_text), "process %d ", (int)pid);
	cr_expect_not_null(
		strstr(abox_error_get_message(error), pid_text), "%s", abox_error_get_message(error));
	cr_expect_eq(abox_error_get_retryable(error), 1);
	abox_error_free(error);
	kill(pid, SIGKILL);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_expect_eq(put_note(journal, 1, 1, ABOX_DURABILITY_DATA, &seq), 0);
	cr_expect_eq(seq, 2);
	abox_journal_unref(journal);
}

/* A limit on file sizes is met as an error before it ends the process by a signal; a larger one lets it go
 * on. */
Test(journal_recover, a_limit_on_file_sizes_is_an_error_and_no_signal)
{
	int status;
	pid_t pid;

	pid = fork();
	if (pid == 0) {
		struct rlimit limit = { 100 * 1024, RLIM_INFINITY };
		abox_journal *journal = open_append(path, 64 * 1024);
		int r = 0, n;

		setrlimit(RLIMIT_FSIZE, &limit);
		for (n = 0; n < 100 && r == 0; n++)
			r = put_note(journal, (uint64_t)n, 1000, ABOX_DURABILITY_DATA, NULL);
		if (r < 0 || n < 100)
			_exit(1); /* segments of 64 KiB fit */
		if (put_note(journal, 1, 150 * 1024, ABOX_DURABILITY_DATA, NULL) != ABOX_E_NOSPACE)
			_exit(2);
		if (put_note(journal, 1, 10, ABOX_DURABILITY_DATA, NULL) != 0)
			_exit(3);
		limit.rlim_cur = RLIM_INFINITY;
		setrlimit(RLIMIT_FSIZE, &limit);
		if (put_note(journal, 1, 150 * 1024, ABOX_DURABILITY_DATA, NULL) != 0)
			_exit(4);
		abox_journal_unref(journal);
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_expect_eq(status, 0, "status %x", status);
	cr_expect_eq(verify(path, NULL), 1);
}
