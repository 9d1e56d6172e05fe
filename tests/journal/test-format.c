/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

/* Every byte string survives in task and box, in exactly one physical line of strict JSON (T4-6). */
Test(journal_format, names_survive_and_stay_on_one_line)
{
	static const char *const names[] = { "a\nb", "a\rb", "\x01\x1f\x7f", "\xff\xfe",
		"\xe2\x80\xa8\xe2\x80\xa9", "\"\\/", "\xc2\x85", "caf\xc3\xa9", "\xf0\x9f\x93\xa6", "" };
	struct record_fields fields = { .seq = 7, .known = 6, .time_usec = 5, .prev = RECORD_HASH_NONE };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct journal_entry entry = {
			.type = "note", .task = names[i], .box = names[i], .room_bytes = -12
		};
		char hash[DIGEST_TEXT_BYTES];
		struct text line = TEXT_INIT;
		struct journal_record record;
		struct record_texts texts;
		const char *why = NULL;

		cr_assert_eq(record_build(&line, &fields, &entry, hash, &why), 0, "%s", why);
		cr_expect_eq(memchr(line.data, '\n', line.len), line.data + line.len - 1);
		cr_expect_null(strchr(line.data, '\r'));
		cr_expect_null(strstr(line.data, "\xe2\x80\xa8"));
		cr_assert_eq(record_parse(line.data, line.len - 1, &record, &texts, &why), 0, "%s", why);
		cr_expect_str_eq(record.task, names[i]);
		cr_expect_str_eq(record.box, names[i]);
		cr_expect_eq(record.room_bytes, -12);
		cr_expect_eq(record.seq, 7);
		text_clear(&line);
	}
}

/* No single changed byte of a record goes unnoticed. */
Test(journal_format, any_flip_is_noticed)
{
	struct record_fields fields = { .seq = 2, .known = 1, .time_usec = 5, .prev = RECORD_HASH_NONE };
	struct journal_entry entry = { .type = "note", .body = "{\"a\":1}" };
	char hash[DIGEST_TEXT_BYTES];
	struct text line = TEXT_INIT;
	struct journal_record record;
	struct record_texts texts;
	const char *why = NULL;

	cr_assert_eq(record_build(&line, &fields, &entry, hash, &why), 0);
	cr_assert_eq(record_parse(line.data, line.len - 1, &record, &texts, NULL), 0);
	for (size_t i = 0; i + 1 < line.len; i++)
		for (int bit = 0; bit < 8; bit++) {
			line.data[i] ^= (char)(1 << bit);
			cr_assert_neq(record_parse(line.data, line.len - 1, &record, &texts, NULL), 0,
				"byte %zu", i);
			line.data[i] ^= (char)(1 << bit);
		}
	text_clear(&line);
}
