/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * SHA-256 (FIPS 180-4) of our own. A plan has a digest, and loading libcrypto for it costs more than half of what
 * starting a box does: some hundred pages of it are relocated before the first line of the program runs.
 *
 * Two forms of the block function: one for every machine, and one that uses the SHA extensions of x86, as fast
 * as libcrypto's. The tests compare both with the published examples and with each other.
 */
#include "base/sha256.h"

#include <string.h>

static const uint32_t constants[64] __attribute__((aligned(16))) = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotated(uint32_t x, unsigned int by)
{
	return x >> by | x << (32 - by);
}

static uint32_t load_be(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void store_be(uint8_t *p, uint32_t x)
{
	p[0] = (uint8_t)(x >> 24);
	p[1] = (uint8_t)(x >> 16);
	p[2] = (uint8_t)(x >> 8);
	p[3] = (uint8_t)x;
}

void sha256_blocks_portable(uint32_t state[8], const uint8_t *data, size_t n)
{
	uint32_t w[64];

	for (; n > 0; n--, data += SHA256_BLOCK) {
		uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
		uint32_t e = state[4], f = state[5], g = state[6], h = state[7];

		for (size_t i = 0; i < 16; i++)
			w[i] = load_be(data + 4 * i);
		for (size_t i = 16; i < 64; i++)
			w[i] = w[i - 16] + w[i - 7] +
			       (rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ w[i - 15] >> 3) +
			       (rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ w[i - 2] >> 10);
		for (size_t i = 0; i < 64; i++) {
			uint32_t t1 = h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) +
				      ((e & f) ^ (~e & g)) + constants[i] + w[i];
			uint32_t t2 = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) +
				      ((a & b) ^ (a & c) ^ (b & c));

			h = g;
			g = f;
			f = e;
			e = d + t1;
			d = c;
			c = b;
			b = a;
			a = t1 + t2;
		}
		state[0] += a;
		state[1] += b;
		state[2] += c;
		state[3] += d;
		state[4] += e;
		state[5] += f;
		state[6] += g;
		state[7] += h;
	}
}

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>

/* Four rounds a step. The instructions want the state as (A,B,E,F) and (C,D,G,H), and each message word of the
 * next rounds is made from those of the last sixteen. */
__attribute__((target("sha,sse4.1,ssse3"))) static void blocks_by_extension(
	uint32_t state[8], const uint8_t *data, size_t n)
{
	const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
	__m128i low = _mm_loadu_si128((const __m128i *)state), high = _mm_loadu_si128((const __m128i *)(state + 4));
	__m128i abef, cdgh;

	low = _mm_shuffle_epi32(low, 0xb1);
	high = _mm_shuffle_epi32(high, 0x1b);
	abef = _mm_alignr_epi8(low, high, 8);
	cdgh = _mm_blend_epi16(high, low, 0xf0);
	for (; n > 0; n--, data += SHA256_BLOCK) {
		const __m128i abef_before = abef, cdgh_before = cdgh;
		__m128i w[4], sum;

		for (size_t i = 0; i < 4; i++)
			w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(data + 16 * i)), swap);
		for (size_t i = 0; i < 16; i++) {
			__m128i *word = &w[i % 4];

			if (i >= 4) {
				const __m128i before = w[(i + 3) % 4];

				*word = _mm_sha256msg1_epu32(*word, w[(i + 1) % 4]);
				*word = _mm_add_epi32(*word, _mm_alignr_epi8(before, w[(i + 2) % 4], 4));
				*word = _mm_sha256msg2_epu32(*word, before);
			}
			sum = _mm_add_epi32(*word, _mm_load_si128((const __m128i *)(constants + 4 * i)));
			cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
			abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
		}
		abef = _mm_add_epi32(abef, abef_before);
		cdgh = _mm_add_epi32(cdgh, cdgh_before);
	}
	low = _mm_shuffle_epi32(abef, 0x1b);
	high = _mm_shuffle_epi32(cdgh, 0xb1);
	_mm_storeu_si128((__m128i *)state, _mm_blend_epi16(low, high, 0xf0));
	_mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(high, low, 8));
}

static bool has_extension(void)
{
	unsigned int a, b, c, d;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSE4_1) || !(c & bit_SSSE3))
		return false;
	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}

static void blocks(uint32_t state[8], const uint8_t *data, size_t n)
{
	/* asking costs some microseconds in a virtual machine; every thread finds the same answer */
	static int known;
	int has = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (!has) {
		has = has_extension() ? 1 : -1;
		__atomic_store_n(&known, has, __ATOMIC_RELAXED);
	}
	if (has > 0)
		blocks_by_extension(state, data, n);
	else
		sha256_blocks_portable(state, data, n);
}
#else
static void blocks(uint32_t state[8], const uint8_t *data, size_t n)
{
	sha256_blocks_portable(state, data, n);
}
#endif

void sha256_init(struct sha256 *sha)
{
	static const uint32_t start[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
		0x1f83d9ab, 0x5be0cd19 };

	memcpy(sha->state, start, sizeof(start));
	sha->len = 0;
}

void sha256_update(struct sha256 *sha, const void *data, size_t len)
{
	size_t used = sha->len % SHA256_BLOCK, n;
	const uint8_t *bytes = data;

	if (len == 0)
		return;
	sha->len += len;
	if (used > 0) {
		n = MIN(len, SHA256_BLOCK - used);
		memcpy(sha->pending + used, bytes, n);
		if (used + n < SHA256_BLOCK)
			return;
		blocks(sha->state, sha->pending, 1);
		bytes += n;
		len -= n;
	}
	n = len / SHA256_BLOCK;
	if (n > 0)
		blocks(sha->state, bytes, n);
	memcpy(sha->pending, bytes + n * SHA256_BLOCK, len % SHA256_BLOCK);
}

void sha256_final(struct sha256 *sha, uint8_t ret[SHA256_BYTES])
{
	static const uint8_t padding[SHA256_BLOCK] = { 0x80 };
	uint64_t n_bits = sha->len * 8;
	size_t used = sha->len % SHA256_BLOCK;
	uint8_t length[8];

	store_be(length, (uint32_t)(n_bits >> 32));
	store_be(length + 4, (uint32_t)n_bits);
	sha256_update(sha, padding, (used < 56 ? 56 : 56 + SHA256_BLOCK) - used);
	sha256_update(sha, length, sizeof(length));
	for (size_t i = 0; i < 8; i++)
		store_be(ret + 4 * i, sha->state[i]);
}
