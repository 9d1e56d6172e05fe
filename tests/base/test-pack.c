/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/pack.h"

static void fill(struct pack_writer *writer)
{
	pack_u8(writer, 7);
	pack_u32(writer, 0xdeadbeef);
	pack_i32(writer, -5);
	pack_u64(writer, UINT64_MAX - 1);
	pack_string(writer, "hello");
	pack_bytes(writer, "a\0b", 3);
	pack_strings(writer, (const char *const[]){ "x", "", "yy", NULL });
}

/* What is written comes back. */
Test(pack, round_trip)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct pack_reader reader;
	size_t len;

	fill(&writer);
	cr_assert_not(writer.failed);
	reader = PACK_READER(writer.data, writer.len);
	cr_assert_eq(unpack_u8(&reader), 7);
	cr_assert_eq(unpack_u32(&reader), 0xdeadbeef);
	cr_assert_eq(unpack_i32(&reader), -5);
	cr_assert_eq(unpack_u64(&reader), UINT64_MAX - 1);
	cr_assert_str_eq(unpack_string(&reader), "hello");
	cr_assert_eq(memcmp(unpack_bytes(&reader, &len), "a\0b", 3), 0);
	cr_assert_eq(len, 3);
	cr_assert_eq(unpack_count(&reader, 5), 3);
	cr_assert_str_eq(unpack_string(&reader), "x");
	cr_assert_str_eq(unpack_string(&reader), "");
	cr_assert_str_eq(unpack_string(&reader), "yy");
	cr_assert(unpack_done(&reader));
}

/* A buffer cut at any byte fails; it never reads past its end, and the error sticks. */
Test(pack, cut_anywhere_fails)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;

	fill(&writer);
	for (size_t cut = 0; cut < writer.len; cut++) {
		uint8_t *copy = malloc(cut ? cut : 1);
		struct pack_reader reader = PACK_READER(copy, cut);
		size_t len;
		uint32_t n;

		memcpy(copy, writer.data, cut);
		unpack_u8(&reader);
		unpack_u32(&reader);
		unpack_i32(&reader);
		unpack_u64(&reader);
		unpack_string(&reader);
		unpack_bytes(&reader, &len);
		n = unpack_count(&reader, 5);
		for (uint32_t i = 0; i < n; i++)
			unpack_string(&reader);
		cr_assert_not(unpack_done(&reader), "cut at %zu", cut);
		free(copy);
	}
}
