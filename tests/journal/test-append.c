/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

TestSuite(journal_append, .init = setup, .fini = teardown);

/* What was appended is read back in order, after reopening too, with its fields. */
Test(journal_append, gives_back_what_was_appended)
{
	struct abox_journal_entry entry = ABOX_JOURNAL_ENTRY_INIT;
	struct abox_journal_record record = ABOX_JOURNAL_RECORD_INIT;
	abox_journal_reader *reader = NULL;
	abox_journal *journal = open_append(path, 0);
	uint64_t seq = 0;

	cr_assert_not_null(journal);
	entry.type = "tool.call";
	entry.task = "job \"7\"\n\xff";
	entry.box = "b1";
	entry.epoch = 9;
	entry.body = " { \"a\" : [ 1, 2.5e3, \"x\\u0000y\" ] }\n";
	cr_assert_eq(abox_journal_append(journal, &entry, &seq, NULL), 0);
	cr_expect_eq(seq, 2);
	cr_assert_eq(put_note(journal, 1, 10, ABOX_DURABILITY_NONE, &seq), 0);
	cr_expect_eq(seq, 3);
	journal = abox_journal_unref(journal);

	journal = open_append(path, 0);
	cr_assert_not_null(journal);
	cr_assert_eq(abox_journal_reader_new(journal, 2, 0, &reader, NULL), 0);
	cr_assert_eq(abox_journal_reader_next(reader, &record, NULL), 1);
	cr_expect_eq(record.seq, 2);
	cr_expect_eq(record.epoch, 9);
	cr_expect_str_eq(record.type, "tool.call");
	cr_expect_str_eq(record.task, "job \"7\"\n\xff");
	cr_expect_str_eq(record.box, "b1");
	cr_expect_str_eq(record.body, "{\"a\":[1,2.5e3,\"x\\u0000y\"]}");
	cr_assert_eq(abox_journal_reader_next(reader, &record, NULL), 1);
	cr_expect_eq(record.seq, 3);
	cr_expect_null(record.task);
	cr_expect_eq(record.durable, 1);
	cr_assert_eq(abox_journal_reader_next(reader, &record, NULL), 0);
	abox_journal_reader_unref(reader);
	abox_journal_unref(journal);
}

/* Bodies that are not one strict JSON object, names that are too long and types of the library are refused.
 */
Test(journal_append, refuses_what_is_not_one_object)
{
	static const char *const bodies[] = { "", "[]", "{} {}", "{\"a\":01}", "{\"a\":\"\n\"}",
		"{\"a\":nul}", "{\"a\"}", "{\"a\":\"\xc0\x80\"}", "{\"a\":+1}", "{\"a\":1,}",
		"\xef\xbb\xbf{}" };
	struct abox_journal_entry entry = ABOX_JOURNAL_ENTRY_INIT;
	abox_journal *journal = open_append(path, 0);
	char name[300];

	for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
		entry.body = bodies[i];
		cr_expect_eq(
			abox_journal_append(journal, &entry, NULL, NULL), ABOX_E_SYNTAX, "%s", bodies[i]);
	}
	entry.body = NULL;
	memset(name, 'n', sizeof(name));
	name[256] = 0;
	entry.task = name;
	cr_expect_eq(abox_journal_append(journal, &entry, NULL, NULL), ABOX_E_INVALID);
	name[255] = 0;
	cr_expect_eq(abox_journal_append(journal, &entry, NULL, NULL), 0);
	entry.type = "effect.committed";
	cr_expect_eq(abox_journal_append(journal, &entry, NULL, NULL), ABOX_E_INVALID);
	entry.type = "Upper";
	cr_expect_eq(abox_journal_append(journal, &entry, NULL, NULL), ABOX_E_INVALID);
	abox_journal_unref(journal);
}

/* Segments fill up and follow one another; all of it is one chain. */
Test(journal_append, rotates_by_itself)
{
	abox_journal *journal = open_append(path, 64 * 1024);
	uint64_t seq = 0;
	char *json = NULL;

	for (uint64_t i = 0; i < 1000; i++)
		cr_assert_eq(put_note(journal, i, 200, ABOX_DURABILITY_NONE, &seq), 0);
	cr_assert_eq(abox_journal_rotate(journal, NULL), 0);
	cr_assert_eq(
		put_note(journal, 1, 100 * 1024, ABOX_DURABILITY_DATA, &seq), 0, "larger than a segment");
	journal = abox_journal_unref(journal);
	cr_expect_eq(count_records(path), (int64_t)seq);
	cr_expect_eq(verify(path, &json), 1, "%s", json);
	free(json);
}
