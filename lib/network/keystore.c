/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A store is {u32 magic, u32 version, u32 count}, entries, and a SHA-1 of a password that is the same
 * everywhere, a phrase, and all bytes before. The digest protects from nobody; programs that name the
 * password look at it all the same.
 */
#include "network/keystore.h"

#include <errno.h>
#include <string.h>

#include "base/fd.h"

#define MAGIC 0xfeedfeedU
#define HEAD 12
#define TRUSTED 2 /* an entry that is a certificate */
#define ALIAS "agentbox"
#define KIND "X.509"
#define CERTIFICATE_MAX 4096

struct sha1 {
	uint32_t state[5];
	uint64_t len;
	uint8_t block[64];
};

static uint32_t rotate(uint32_t value, unsigned int n)
{
	return value << n | value >> (32 - n);
}

static void sha1_block(struct sha1 *sha1)
{
	uint32_t w[80], a = sha1->state[0], b = sha1->state[1], c = sha1->state[2], d = sha1->state[3],
			e = sha1->state[4];

	for (size_t i = 0; i < 16; i++)
		w[i] = (uint32_t)sha1->block[4 * i] << 24 | (uint32_t)sha1->block[4 * i + 1] << 16 |
		       (uint32_t)sha1->block[4 * i + 2] << 8 | sha1->block[4 * i + 3];
	for (size_t i = 16; i < 80; i++)
		w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
	for (size_t i = 0; i < 80; i++) {
		uint32_t f = i < 20              ? (b & c) | (~b & d)
			     : i < 40 || i >= 60 ? b ^ c ^ d
						 : (b & c) | (b & d) | (c & d);
		uint32_t k = i < 20 ? 0x5a827999 : i < 40 ? 0x6ed9eba1 : i < 60 ? 0x8f1bbcdc : 0xca62c1d6;
		uint32_t next = rotate(a, 5) + f + e + k + w[i];

		e = d;
		d = c;
		c = rotate(b, 30);
		b = a;
		a = next;
	}
	sha1->state[0] += a;
	sha1->state[1] += b;
	sha1->state[2] += c;
	sha1->state[3] += d;
	sha1->state[4] += e;
}

static void sha1_add(struct sha1 *sha1, const void *data, size_t len)
{
	for (const uint8_t *byte = data; len > 0; byte++, len--) {
		sha1->block[sha1->len++ % 64] = *byte;
		if (sha1->len % 64 == 0)
			sha1_block(sha1);
	}
}

static void sha1_end(struct sha1 *sha1, uint8_t ret[KEYSTORE_DIGEST])
{
	uint64_t bits = sha1->len * 8;
	uint8_t byte = 0x80;

	do {
		sha1_add(sha1, &byte, 1);
		byte = 0;
	} while (sha1->len % 64 != 56);
	for (int shift = 56; shift >= 0; shift -= 8) {
		byte = (uint8_t)(bits >> shift);
		sha1_add(sha1, &byte, 1);
	}
	for (size_t i = 0; i < KEYSTORE_DIGEST; i++)
		ret[i] = (uint8_t)(sha1->state[i / 4] >> (24 - 8 * (i % 4)));
}

static void sha1_begin(struct sha1 *sha1)
{
	static const uint8_t salt[] = "\0c\0h\0a\0n\0g\0e\0i\0tMighty Aphrodite";

	*sha1 = (struct sha1){ .state = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0 } };
	sha1_add(sha1, salt, sizeof(salt) - 1);
}

static uint32_t read_u32(const uint8_t *data)
{
	return (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3];
}

static uint8_t *put(uint8_t *to, uint64_t value, unsigned int bytes)
{
	while (bytes-- > 0)
		*to++ = (uint8_t)(value >> (8 * bytes));
	return to;
}

bool keystore_open(uint8_t *data, size_t *len)
{
	uint32_t count;

	if (*len < HEAD + KEYSTORE_DIGEST || read_u32(data) != MAGIC || read_u32(data + 4) != 2)
		return false;
	count = read_u32(data + 8);
	if (count == UINT32_MAX)
		return false;
	put(data + 8, count + 1, 4);
	*len -= KEYSTORE_DIGEST;
	return true;
}

static int base64_digit(char c)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* The first certificate of a PEM text as DER: its length, or 0. */
static size_t der_of(const char *pem, size_t len, uint8_t ret[CERTIFICATE_MAX])
{
	static const char begin[] = "-----BEGIN CERTIFICATE-----";
	const char *at = len ? memmem(pem, len, begin, sizeof(begin) - 1) : NULL, *end = pem + len;
	uint32_t bits = 0, n_bits = 0;
	size_t n = 0;

	for (at = at ? at + sizeof(begin) - 1 : end; at < end && *at != '-'; at++) {
		int digit = base64_digit(*at);

		if (digit < 0)
			continue; /* ends of lines, and `=` */
		bits = bits << 6 | (uint32_t)digit;
		n_bits += 6;
		if (n_bits < 8)
			continue;
		if (n == CERTIFICATE_MAX)
			return 0;
		n_bits -= 8;
		ret[n++] = (uint8_t)(bits >> n_bits);
	}
	return n;
}

int keystore_finish(int fd, const void *data, size_t len, const char *pem, size_t pem_len)
{
	uint8_t entry[CERTIFICATE_MAX + 64], der[CERTIFICATE_MAX], *to = entry, digest[KEYSTORE_DIGEST];
	size_t n = der_of(pem, pem_len, der);
	struct sha1 sha1;
	int r;

	if (n == 0)
		return -EINVAL;
	to = put(to, TRUSTED, 4);
	to = put(to, strlen(ALIAS), 2);
	to = (uint8_t *)memcpy(to, ALIAS, strlen(ALIAS)) + strlen(ALIAS);
	to = put(to, 0, 8); /* when it was added: nobody looks */
	to = put(to, strlen(KIND), 2);
	to = (uint8_t *)memcpy(to, KIND, strlen(KIND)) + strlen(KIND);
	to = put(to, n, 4);
	memcpy(to, der, n);
	to += n;
	sha1_begin(&sha1);
	sha1_add(&sha1, data, len);
	sha1_add(&sha1, entry, (size_t)(to - entry));
	sha1_end(&sha1, digest);
	r = fd_write_all(fd, entry, (size_t)(to - entry));
	return r < 0 ? r : fd_write_all(fd, digest, sizeof(digest));
}
