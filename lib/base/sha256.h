/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The block function of SHA-256 and what surrounds it; base/digest.h is what others use. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include "base/macro.h"

#define SHA256_BYTES 32
#define SHA256_BLOCK 64

struct sha256 {
	uint32_t state[8];
	uint64_t len;
	uint8_t pending[SHA256_BLOCK];
};

void sha256_init(struct sha256 *sha);
void sha256_update(struct sha256 *sha, const void *data, size_t len);
void sha256_final(struct sha256 *sha, uint8_t ret[SHA256_BYTES]);

/* For tests: only the form that every machine has. */
void sha256_blocks_portable(uint32_t state[8], const uint8_t *data, size_t n);

#endif
