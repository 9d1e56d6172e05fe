/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <stdio.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/strings.h"

/* The test vectors of FIPS 180-2. */
Test(digest, gives_the_published_values)
{
	char text[DIGEST_TEXT_BYTES];

	cr_assert_eq(digest_sha256_text("", 0, text), 0);
	cr_expect_str_eq(text, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	cr_assert_eq(digest_sha256_text("abc", 3, text), 0);
	cr_expect_str_eq(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

/* In pieces, from a file and at once are the same digest, and a context serves again. */
Test(digest, pieces_equal_the_whole)
{
	uint8_t whole[DIGEST_BYTES], pieces[DIGEST_BYTES], file[DIGEST_BYTES];
	_cleanup_(digest_freep) struct digest *digest = NULL;
	FILE *stream = tmpfile();
	uint64_t len = 0;

	cr_assert_not_null(stream);
	cr_assert_eq(digest_sha256("hello world", 11, whole), 0);
	cr_assert_eq(digest_new(&digest), 0);
	for (int round = 0; round < 2; round++) {
		digest_update(digest, "hello ", 6);
		digest_update(digest, "world", 5);
		cr_assert_eq(digest_final(digest, pieces), 0);
		cr_expect_arr_eq(whole, pieces, sizeof(whole));
	}
	fputs("hello world", stream);
	fflush(stream);
	cr_assert_eq(lseek(fileno(stream), 0, SEEK_SET), 0);
	cr_assert_eq(digest_sha256_fd(fileno(stream), file, &len), 0);
	cr_expect_arr_eq(whole, file, sizeof(whole));
	cr_expect_eq(len, 11);
	fclose(stream);
}
