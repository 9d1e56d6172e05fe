/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * SHA-256 behind our own name. OpenSSL looks an algorithm up by name for every one-shot digest, which costs
 * more than hashing a short record; the low-level functions skip that, and are there in every release of
 * OpenSSL 3. They also stand alone in its archive: a program that links that (as `agentbox` does) gets some 30 KiB
 * instead of loading the whole of libcrypto, which costs a start as much as several mounts do.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/digest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <agentbox/error.h>
#include <openssl/sha.h>

#include "base/fd.h"
#include "base/strings.h"

struct digest {
	SHA256_CTX context;
};

int digest_sha256(const void *data, size_t len, uint8_t ret[DIGEST_BYTES])
{
	SHA256_CTX context;

	if (!SHA256_Init(&context) || !SHA256_Update(&context, data, len) || !SHA256_Final(ret, &context))
		return ABOX_E_MEMORY;
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

	if (!digest || !SHA256_Init(&digest->context)) {
		free(digest);
		return ABOX_E_MEMORY;
	}
	*ret = digest;
	return 0;
}

int digest_update(struct digest *digest, const void *data, size_t len)
{
	return SHA256_Update(&digest->context, data, len) ? 0 : ABOX_E_MEMORY;
}

int digest_final(struct digest *digest, uint8_t ret[DIGEST_BYTES])
{
	if (!SHA256_Final(ret, &digest->context) || !SHA256_Init(&digest->context))
		return ABOX_E_MEMORY;
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
	SHA256_CTX context;
	uint64_t len = 0;
	ssize_t n;

	buffer = malloc(size);
	if (!buffer || !SHA256_Init(&context))
		return ABOX_E_MEMORY;
	for (;;) {
		n = fd_read_all(fd, buffer, size);
		if (n < 0) {
			errno = (int)-n;
			return ABOX_E_IO;
		}
		if (n == 0)
			break;
		SHA256_Update(&context, buffer, (size_t)n);
		len += (uint64_t)n;
	}
	if (!SHA256_Final(ret, &context))
		return ABOX_E_MEMORY;
	if (retlen)
		*retlen = len;
	return 0;
}

int digest_git_blob(const void *data, size_t len, char ret[DIGEST_GIT_TEXT_BYTES])
{
	uint8_t bytes[SHA_DIGEST_LENGTH];
	char head[32];
	SHA_CTX context;
	int n;

	n = snprintf(head, sizeof(head), "blob %zu", len);
	if (!SHA1_Init(&context) || !SHA1_Update(&context, head, (size_t)n + 1) ||
		!SHA1_Update(&context, data, len) || !SHA1_Final(bytes, &context))
		return ABOX_E_MEMORY;
	hex_encode(bytes, sizeof(bytes), ret);
	return 0;
}
