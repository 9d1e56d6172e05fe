/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <stdio.h>
#include <unistd.h>

#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/sha256.h"
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

/* Of every length up to some blocks, cut anywhere: what libcrypto gives, by the form of this machine and by the one of
 * every machine. */
Test(digest, agrees_with_libcrypto)
{
	uint8_t data[400], ours[DIGEST_BYTES], theirs[SHA256_DIGEST_LENGTH], sha1[SHA_DIGEST_LENGTH];
	char name[DIGEST_GIT_TEXT_BYTES], text[DIGEST_GIT_TEXT_BYTES], blob[500];

	srand(1);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)rand();
	for (size_t len = 0; len < sizeof(data); len++) {
		struct sha256 sha;
		size_t cut = len ? (size_t)rand() % len : 0;
		int n;

		SHA256(data, len, theirs);
		sha256_init(&sha);
		sha256_update(&sha, data, cut);
		sha256_update(&sha, data + cut, len - cut);
		sha256_final(&sha, ours);
		cr_expect_arr_eq(ours, theirs, sizeof(ours), "%zu bytes, cut at %zu", len, cut);

		n = snprintf(blob, sizeof(blob), "blob %zu", len) + 1;
		memcpy(blob + n, data, len);
		SHA1((const uint8_t *)blob, (size_t)n + len, sha1);
		for (size_t i = 0; i < sizeof(sha1); i++)
			snprintf(text + 2 * i, 3, "%02x", sha1[i]);
		cr_assert_eq(digest_git_blob(data, len, name), 0);
		cr_expect_str_eq(name, text, "%zu bytes", len);
	}
	for (size_t n = 1; n <= sizeof(data) / SHA256_BLOCK; n++) {
		struct sha256 sha;
		uint32_t state[8];

		sha256_init(&sha);
		memcpy(state, sha.state, sizeof(state));
		sha256_update(&sha, data, n * SHA256_BLOCK);
		sha256_blocks_portable(state, data, n);
		cr_expect_arr_eq(state, sha.state, sizeof(state), "%zu blocks", n);
	}
}
