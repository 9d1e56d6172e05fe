/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Views, room, keys, pruning, blobs, checkpoints. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/evp.h>
#include <openssl/pem.h>

#include "support.h"

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

TestSuite(journal_view, .init = setup, .fini = teardown);

/* A view that counts notes. */
struct counter {
	uint64_t n, last_seq, n_loads;
};

static int counter_create(abox_journal *journal, void **retview)
{
	*retview = calloc(1, sizeof(struct counter));
	return *retview ? 0 : ABOX_E_MEMORY;
}

static int counter_load(void *view, const char *summary, size_t len, abox_error **reterr)
{
	struct counter *counter = view;

	counter->n_loads++;
	return sscanf(summary, "{\"n\":%" SCNu64, &counter->n) == 1 ? 0 : ABOX_E_DAMAGED;
}

static int counter_observe(void *view, const struct journal_record *record, abox_error **reterr)
{
	struct counter *counter = view;

	if (counter->last_seq && record->seq != counter->last_seq + 1)
		return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, NULL, "a record was skipped");
	if (record->body[record->body_len] != 0)
		return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, NULL, "no end");
	counter->last_seq = record->seq;
	counter->n += strcmp(record->type, "note") == 0;
	return 0;
}

static int counter_summarize(void *view, struct text *text)
{
	text_printf(text, "{\"n\":%" PRIu64 "}", ((struct counter *)view)->n);
	return 0;
}

static const struct journal_view_ops counter_ops = { .name = "counter",
	.create = counter_create,
	.destroy = free,
	.load = counter_load,
	.observe = counter_observe,
	.summarize = counter_summarize };

/* A view sees every record once and in order, and goes on from the newest head after reopening. */
Test(journal_view, goes_on_from_the_newest_head)
{
	abox_journal *journal = open_append(path, 64 * 1024), *other = open_append(path, 64 * 1024);
	struct counter *counter = NULL, *late = NULL;

	for (uint64_t i = 0; i < 50; i++)
		cr_assert_eq(put_note(journal, i, 100, ABOX_DURABILITY_NONE, NULL), 0);
	cr_assert_eq(journal_view(journal, &counter_ops, (void **)&counter, NULL), 0);
	cr_expect_eq(counter->n, 50);
	for (uint64_t i = 0; i < 500; i++)
		cr_assert_eq(put_note(i % 3 ? journal : other, i, 100, ABOX_DURABILITY_NONE, NULL), 0);
	cr_assert_eq(journal_look(journal, NULL, NULL, NULL, NULL), 0);
	cr_expect_eq(counter->n, 550);
	cr_assert_eq(abox_journal_rotate(journal, NULL), 0);
	cr_assert_eq(abox_journal_rotate(other, NULL), 0, "a handle without the view points back");
	cr_assert_eq(put_note(other, 1, 1, ABOX_DURABILITY_DATA, NULL), 0);
	abox_journal_unref(journal);
	abox_journal_unref(other);

	journal = open_append(path, 0);
	cr_assert_eq(journal_view(journal, &counter_ops, (void **)&late, NULL), 0);
	cr_expect_eq(late->n, 551);
	cr_expect_eq(late->n_loads, 1);
	abox_journal_unref(journal);
	cr_expect_eq(verify(path, NULL), 1);
}

struct decision {
	struct journal_entry entry;
	int answer;
	uint64_t next_seq;
};

static int decide(void *userdata, uint64_t next_seq, struct journal_entry *retentry, abox_error **reterr)
{
	struct decision *decision = userdata;

	decision->next_seq = next_seq;
	*retentry = decision->entry;
	return decision->answer;
}

/* A check that says no appends nothing, and its code goes up. */
Test(journal_view, a_transaction_appends_only_what_its_check_allows)
{
	abox_journal *journal = open_append(path, 0);
	struct decision decision = { .entry = { .type = "effect.test" }, .answer = ABOX_E_FENCED };
	uint64_t seq = 0;

	cr_expect_eq(journal_transact(journal, decide, &decision, &seq, NULL), ABOX_E_FENCED);
	decision.answer = 0;
	cr_expect_eq(journal_transact(journal, decide, &decision, &seq, NULL), 0);
	cr_expect_eq(seq, 1);
	decision.answer = 1;
	cr_expect_eq(journal_transact(journal, decide, &decision, &seq, NULL), 1);
	cr_expect_eq(seq, 2);
	cr_expect_eq(decision.next_seq, 2);
	cr_expect_not(journal_is_covered(journal, 2), "nothing is covered by being appended");
	cr_expect_eq(journal_sync(journal, seq, ABOX_DURABILITY_DATA, NULL), 0);
	cr_expect(journal_is_covered(journal, 2));
	abox_journal_unref(journal);
}

/* Room that is reserved stays reserved across rotation and reopening, and may not be given back twice. */
Test(journal_view, reserved_room_is_carried)
{
	abox_journal *journal = open_append(path, 64 * 1024);
	struct journal_entry entry = { .type = "effect.dispatched", .room_bytes = 20000 };
	static char body[19000];

	cr_assert_eq(journal_append(journal, &entry, NULL, NULL), 0);
	cr_assert_eq(journal_append(journal, &entry, NULL, NULL), 0);
	for (uint64_t i = 0; i < 400; i++)
		cr_assert_eq(put_note(journal, i, 100, ABOX_DURABILITY_NONE, NULL), 0);
	cr_expect_gt(journal->tail->number, 1);
	cr_expect_eq(journal->chain.room, 40000);
	abox_journal_unref(journal);
	journal = open_append(path, 64 * 1024);
	cr_expect_eq(journal->chain.room, 40000);
	strcpy(body, "{\"x\":\"");
	memset(body + 6, 'x', 18000);
	strcat(body, "\"}");
	entry = (struct journal_entry){
		.type = "effect.committed", .room_bytes = -20000, .body = body, .priority = JOURNAL_RESERVED
	};
	cr_expect_eq(journal_append(journal, &entry, NULL, NULL), 0);
	cr_expect_eq(journal_append(journal, &entry, NULL, NULL), 0);
	cr_expect_eq(journal->chain.room, 0);
	cr_expect_eq(journal_append(journal, &entry, NULL, NULL), ABOX_E_INVALID);
	abox_journal_unref(journal);
	cr_expect_eq(verify(path, NULL), 1);
}

static int collect(void *userdata, const struct journal_record *record, abox_error **reterr)
{
	uint64_t *seqs = userdata;

	seqs[++seqs[0]] = record->seq;
	return 0;
}

static int put_task(abox_journal *journal, const char *task, uint64_t *retseq)
{
	struct abox_journal_entry entry = ABOX_JOURNAL_ENTRY_INIT;

	entry.task = task;
	entry.type = "tool.call";
	entry.durability = ABOX_DURABILITY_NONE;
	return abox_journal_append(journal, &entry, retseq, NULL);
}

/* Records of a task are found in old and new segments, with the index and after it was lost or falsified. */
Test(journal_view, records_are_found_by_task)
{
	abox_journal *journal = open_append(path, 64 * 1024);
	uint64_t wanted[8] = { 0 }, found[64] = { 0 };
	char name[4096];

	for (uint64_t i = 0; i < 5; i++) {
		for (uint64_t k = 0; k < 150; k++)
			cr_assert_eq(put_task(journal, "other", NULL), 0);
		cr_assert_eq(put_task(journal, "wanted", &wanted[i]), 0);
		if (i < 4)
			cr_assert_eq(abox_journal_rotate(journal, NULL), 0);
	}
	for (int round = 0; round < 4; round++) {
		memset(found, 0, sizeof(found));
		cr_assert_eq(journal_find(journal, "task:wanted", collect, found, NULL), 0);
		cr_expect_eq(found[0], 5);
		for (uint64_t i = 0; i < 5; i++)
			cr_expect_eq(found[1 + i], wanted[i]);
		snprintf(name, sizeof(name), "%s/0000000002.idx", path);
		cr_expect_eq(access(name, F_OK), 0);
		if (round == 0) {
			cr_assert_eq(unlink(name), 0);
		} else if (round == 1) {
			size_t len;
			char *data = read_file(path, "0000000002.idx", &len);

			data[len / 2] ^= 1;
			write_file(path, "0000000002.idx", data, len);
			free(data);
		} else {
			cr_assert_eq(put_task(journal, "other", NULL), 0);
		}
	}
	memset(found, 0, sizeof(found));
	cr_assert_eq(journal_find(journal, "task:nobody", collect, found, NULL), 0);
	cr_expect_eq(found[0], 0);
	abox_journal_unref(journal);
}

/* Old segments go, what is left verifies, readers are told what was pruned. */
Test(journal_view, prune_drops_old_segments_and_says_so)
{
	struct abox_journal_prune_options options = ABOX_JOURNAL_PRUNE_OPTIONS_INIT;
	abox_journal *journal = open_append(path, 64 * 1024), *sleeper = open_append(path, 64 * 1024);
	abox_journal_reader *reader = NULL;
	char *json = NULL;
	uint64_t seq = 0;

	for (uint64_t i = 0; i < 1000; i++)
		cr_assert_eq(put_note(journal, i, 150, ABOX_DURABILITY_NONE, &seq), 0);
	options.dry_run = 1;
	cr_assert_eq(abox_journal_prune(journal, &options, &json, NULL), 0);
	cr_expect_not_null(strstr(json, "\"dry_run\":true"), "%s", json);
	free(json);
	cr_expect_eq(count_records(path), (int64_t)seq);
	options.dry_run = 0;
	options.keep_segments = 1;
	cr_assert_eq(abox_journal_prune(journal, &options, &json, NULL), 0);
	free(json);
	cr_expect_eq(verify(path, &json), 1, "%s", json);
	cr_expect_null(strstr(json, "\"first_segment\":1,"), "%s", json);
	free(json);
	cr_expect_lt(count_records(path), (int64_t)seq);
	cr_expect_eq(abox_journal_reader_new(journal, 2, 0, &reader, NULL), ABOX_E_NOT_FOUND);

	/* a handle that slept through it goes on at the end, and does not begin a second end of its own */
	cr_assert_eq(put_note(sleeper, 1, 1, ABOX_DURABILITY_DATA, &seq), 0);
	cr_expect_eq(seq, journal->chain.seq + 1);
	cr_expect_eq(verify(path, NULL), 1);

	abox_journal_unref(sleeper);
	abox_journal_unref(journal);
	cr_expect_eq(verify(path, NULL), 1);
}

/* Blobs come back as they were, once stored once, and damage in one is seen. */
Test(journal_view, blobs_are_checked_against_their_digest)
{
	struct abox_journal_verify_options verify_options = ABOX_JOURNAL_VERIFY_OPTIONS_INIT;
	struct abox_journal_prune_options options = ABOX_JOURNAL_PRUNE_OPTIONS_INIT;
	abox_journal *journal = open_append(path, 0);
	struct abox_journal_entry entry = ABOX_JOURNAL_ENTRY_INIT;
	char digest[ABOX_DIGEST_TEXT_BYTES], other[ABOX_DIGEST_TEXT_BYTES], body[200], name[128],
		*data = NULL, *json = NULL;
	size_t len = 0;

	cr_assert_eq(abox_journal_blob_put(journal, "hello\0x", 7, digest, NULL), 0);
	cr_assert_eq(abox_journal_blob_put(journal, "hello\0x", 7, other, NULL), 0);
	cr_expect_str_eq(digest, other);
	cr_assert_eq(abox_journal_blob_get(journal, digest, 0, &data, &len, NULL), 0);
	cr_expect_eq(len, 7);
	cr_expect_arr_eq(data, "hello\0x", 7);
	abox_free(data);
	cr_expect_eq(abox_journal_blob_get(journal, digest, 3, &data, &len, NULL), ABOX_E_LIMIT);
	cr_expect_eq(
		abox_journal_blob_get(journal, "../../etc/passwd", 0, &data, &len, NULL), ABOX_E_INVALID);
	cr_assert_eq(abox_journal_blob_put(journal, NULL, 0, other, NULL), 0);
	cr_expect_str_eq(other, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");

	/* the one that a record names stays */
	snprintf(body, sizeof(body), "{\"result\":\"sha256:%s\"}", digest);
	entry.body = body;
	cr_assert_eq(abox_journal_append(journal, &entry, NULL, NULL), 0);
	options.blob_age_usec = 1;
	options.keep_segments = 10;
	usleep(2000);
	cr_assert_eq(abox_journal_prune(journal, &options, &json, NULL), 0);
	cr_expect_not_null(strstr(json, "\"blobs\":1"), "%s", json);
	abox_free(json);
	cr_expect_eq(abox_journal_blob_get(journal, other, 0, &data, &len, NULL), ABOX_E_NOT_FOUND);

	snprintf(name, sizeof(name), "blobs/%s", digest);
	write_file(path, name, "hellO\0x", 7);
	cr_expect_eq(abox_journal_blob_get(journal, digest, 0, &data, &len, NULL), ABOX_E_DAMAGED);
	abox_journal_unref(journal);
	verify_options.blobs = 1;
	cr_expect_eq(abox_journal_verify(path, &verify_options, &json, NULL), 0);
	abox_free(json);
}

static void make_keys(char **retprivate, char **retpublic)
{
	EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
	BIO *bio = BIO_new(BIO_s_mem());
	char *data;
	long n;

	PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL);
	n = BIO_get_mem_data(bio, &data);
	*retprivate = strndup(data, (size_t)n);
	BIO_free(bio);
	bio = BIO_new(BIO_s_mem());
	PEM_write_bio_PUBKEY(bio, key);
	n = BIO_get_mem_data(bio, &data);
	*retpublic = strndup(data, (size_t)n);
	BIO_free(bio);
	EVP_PKEY_free(key);
}

/* A checkpoint that was kept elsewhere shows that the end was cut off, which the chain alone cannot. */
Test(journal_view, a_checkpoint_shows_a_cut)
{
	struct abox_journal_verify_options options = ABOX_JOURNAL_VERIFY_OPTIONS_INIT;
	abox_journal *journal = open_append(path, 0);
	char *private = NULL, *public = NULL, *other = NULL, *checkpoint = NULL, *json = NULL, *data;
	uint64_t seq;
	size_t len, keep = 0;

	make_keys(&private, &public);
	for (uint64_t i = 0; i < 20; i++)
		cr_assert_eq(put_note(journal, i, 1, ABOX_DURABILITY_DATA, &seq), 0);
	cr_assert_eq(abox_journal_checkpoint(journal, private, &checkpoint, NULL), 0);
	cr_expect_eq(abox_journal_checkpoint(journal, "nonsense", &json, NULL), ABOX_E_INVALID);
	abox_journal_unref(journal);
	options.public_key = public;
	options.checkpoint = checkpoint;
	cr_expect_eq(abox_journal_verify(path, &options, &json, NULL), 1, "%s", json);
	abox_free(json);

	data = read_file(path, "0000000001.log", &len);
	for (int lines = 0; lines < 10; keep++)
		lines += data[keep] == '\n';
	memset(data + keep, 0, len - keep);
	write_file(path, "0000000001.log", data, len);
	free(data);
	data = read_file(path, "lock", &len);
	data[128] ^= 1;
	write_file(path, "lock", data, len);
	free(data);
	cr_expect_eq(verify(path, NULL), 1, "the chain alone does not show it");
	cr_expect_eq(abox_journal_verify(path, &options, &json, NULL), 0);
	cr_expect_not_null(strstr(json, "cut off"), "%s", json);
	abox_free(json);
	free(public);
	free(private);
	make_keys(&private, &other);
	options.public_key = other;
	cr_expect_eq(abox_journal_verify(path, &options, &json, NULL), ABOX_E_INVALID,
		"another key did not sign it");
	free(other);
	free(private);
	abox_free(checkpoint);
}

/* Export gives the exact lines; follow is woken by another handle. */
Test(journal_view, export_and_follow)
{
	struct abox_journal_record record = ABOX_JOURNAL_RECORD_INIT;
	abox_journal *journal = open_append(path, 64 * 1024), *reading = NULL;
	abox_journal_reader *reader = NULL;
	uint64_t count = 0, seq = 0;
	struct pollfd poll_fd = { .events = POLLIN };
	FILE *out = tmpfile();
	long bytes = 0;

	for (uint64_t i = 0; i < 500; i++)
		cr_assert_eq(put_note(journal, i, 100, ABOX_DURABILITY_NONE, &seq), 0);
	cr_assert_eq(abox_journal_export(journal, 0, UINT64_MAX, fileno(out), &count, NULL), 0);
	cr_expect_eq(count, (uint64_t)journal->chain.seq);
	fseek(out, 0, SEEK_END);
	bytes = ftell(out);
	cr_expect_gt(bytes, 500 * 300);
	fclose(out);

	cr_assert_eq(try_open(path, ABOX_JOURNAL_READ, 0, &reading), 0);
	cr_assert_eq(abox_journal_reader_new(reading, seq + 1, 0, &reader, NULL), 0);
	cr_expect_eq(abox_journal_reader_next(reader, &record, NULL), 0);
	cr_expect_eq(abox_journal_reader_wait(reader, 1000, NULL), 0);
	poll_fd.fd = abox_journal_reader_get_fd(reader, NULL);
	cr_expect_eq(poll(&poll_fd, 1, 0), 0);
	cr_assert_eq(put_note(journal, 1, 1, ABOX_DURABILITY_NONE, NULL), 0);
	cr_expect_eq(poll(&poll_fd, 1, 5000), 1, "the descriptor tells it too");
	cr_expect_eq(abox_journal_reader_wait(reader, 5 * USEC_PER_SEC, NULL), 1);
	cr_assert_eq(abox_journal_reader_next(reader, &record, NULL), 1);
	cr_expect_eq(record.seq, seq + 1);
	cr_expect_eq(abox_journal_reader_next(reader, &record, NULL), 0);
	cr_expect_eq(poll(&poll_fd, 1, 0), 0, "and is quiet when all was read");
	cr_expect_eq(record.durable, 1, "made durable before it is told");
	cr_assert_eq(abox_journal_rotate(journal, NULL), 0);
	cr_expect_eq(abox_journal_reader_wait(reader, 5 * USEC_PER_SEC, NULL), 1);
	cr_assert_eq(abox_journal_reader_next(reader, &record, NULL), 1);
	cr_expect_str_eq(record.type, "journal.rotate");
	cr_assert_eq(abox_journal_reader_next(reader, &record, NULL), 1);
	cr_expect_str_eq(record.type, "journal.open");
	abox_journal_reader_unref(reader);
	abox_journal_unref(reading);
	abox_journal_unref(journal);
}
