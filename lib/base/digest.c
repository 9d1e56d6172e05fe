/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Digests of memory and of files, and the names that git gives. */
#include "base/digest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "base/fd.h"
#include "base/sha256.h"
#include "base/strings.h"

struct digest {
	struct sha256 context;
};

int digest_sha256(const void *data, size_t len, uint8_t ret[DIGEST_BYTES])
{
	struct sha256 context;

	sha256_init(&context);
	sha256_update(&context, data, len);
	sha256_final(&context, ret);
	return 0;
}

int digest_sha256_text(const void *data, size_t len, char ret[DIGEST_TEXT_BYTES])
{
	uint8_t bytes[DIGEST_BYTES];
	int r;

	r = digest_sha256(data, len, bytes);
	if (r < 0)
		return r;
	hex_encode(bytes, sizeof(bytes), ret);
	return 0;
}

int digest_new(struct digest **ret)
{
	struct digest *digest = malloc(sizeof(*digest));

	if (!digest)
		return ABOX_E_MEMORY;
	sha256_init(&digest->context);
	*ret = digest;
	return 0;
}

int digest_update(struct digest *digest, const void *data, size_t len)
{
	sha256_update(&digest->context, data, len);
	return 0;
}

int digest_final(struct digest *digest, uint8_t ret[DIGEST_BYTES])
{
	sha256_final(&digest->context, ret);
	sha256_init(&digest->context);
	return 0;
}

struct digest *digest_free(struct digest *digest)
{
	free(digest);
	return NULL;
}

void digest_freep(struct digest **digest)
{
	*digest = digest_free(*digest);
}

int digest_sha256_fd(int fd, uint8_t ret[DIGEST_BYTES], uint64_t *retlen)
{
	_cleanup_(freep) char *buffer = NULL;
	const size_t size = 64 * 1024;
	struct sha256 context;
	uint64_t len = 0;
	ssize_t n;

	buffer = malloc(size);
	if (!buffer)
		return ABOX_E_MEMORY;
	sha256_init(&context);
	for (;;) {
		n = fd_read_all(fd, buffer, size);
		if (n < 0) {
			errno = (int)-n;
			return ABOX_E_IO;
		}
		if (n == 0)
			break;
		sha256_update(&context, buffer, (size_t)n);
		len += (uint64_t)n;
	}
	sha256_final(&context, ret);
	if (retlen)
		*retlen = len;
	return 0;
}

/* -- SHA-1, for the names of git alone -- */

static uint32_t rotated(uint32_t x, unsigned int by)
{
	return x << by | x >> (32 - by);
}

static void sha1_block(uint32_t state[5], const uint8_t block[64])
{
	static const uint32_t constants[4] = { 0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6 };
	uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f, next, w[80];

	for (size_t i = 0; i < 16; i++)
		w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
		       (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
	for (size_t i = 16; i < 80; i++)
		w[i] = rotated(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
	for (size_t i = 0; i < 80; i++) {
		if (i < 20)
			f = (b & c) | (~b & d);
		else if (i < 40 || i >= 60)
			f = b ^ c ^ d;
		else
			f = (b & c) | (b & d) | (c & d);
		next = rotated(a, 5) + f + e + constants[i / 20] + w[i];
		e = d;
		d = c;
		c = rotated(b, 30);
		b = a;
		a = next;
	}
	state[0] += a;
	state[1] += b;
	state[2] += c;
	state[3] += d;
	state[4] += e;
}

/* Both parts one after the other; the first is shorter than a block. */
static void sha1_of_two(const char *head, size_t head_len, const uint8_t *data, size_t len, uint8_t ret[20])
{
	uint32_t state[5] = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0 };
	uint64_t n_bits = ((uint64_t)head_len + len) * 8;
	size_t used = head_len, n;
	uint8_t block[64];

	memcpy(block, head, head_len);
	do {
		n = MIN(len, sizeof(block) - used);
		if (n > 0)
			memcpy(block + used, data, n);
		used += n;
		data += n;
		len -= n;
		if (used == sizeof(block)) {
			sha1_block(state, block);
			used = 0;
		}
	} while (len > 0);
	block[used++] = 0x80;
	memset(block + used, 0, sizeof(block) - used);
	if (used > sizeof(block) - 8) {
		sha1_block(state, block);
		memset(block, 0, sizeof(block));
	}
	for (size_t i = 0; i < 8; i++)
		block[56 + i] = (uint8_t)(n_bits >> (56 - 8 * i));
	sha1_block(state, block);
	for (size_t i = 0; i < 20; i++)
		ret[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
}

int digest_git_blob(const void *data, size_t len, char ret[DIGEST_GIT_TEXT_BYTES])
{
	uint8_t bytes[20];
	char head[32];
	int n = snprintf(head, sizeof(head), "blob %zu", len);

	sha1_of_two(head, (size_t)n + 1, data, len, bytes);
	hex_encode(bytes, sizeof(bytes), ret);
	return 0;
}
