/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef BASE_DIGEST_H
#define BASE_DIGEST_H

#include "base/macro.h"

#define DIGEST_BYTES 32
#define DIGEST_TEXT_BYTES 65 /* hexadecimal and NUL */

/* SHA-256 of bytes in memory. 0 or ABOX_E_MEMORY. */
int digest_sha256(const void *data, size_t len, uint8_t ret[DIGEST_BYTES]);
int digest_sha256_text(const void *data, size_t len, char ret[DIGEST_TEXT_BYTES]);

/* SHA-256 in pieces; digest_final() may be called once, the context is then ready for the next message. */
struct digest;
int digest_new(struct digest **ret);
int digest_update(struct digest *digest, const void *data, size_t len);
int digest_final(struct digest *digest, uint8_t ret[DIGEST_BYTES]);
struct digest *digest_free(struct digest *digest);
void digest_freep(struct digest **digest);

/* SHA-256 of a file from its current position to the end, and how many bytes that was. 0,
 * ABOX_E_IO (errno set) or ABOX_E_MEMORY. */
int digest_sha256_fd(int fd, uint8_t ret[DIGEST_BYTES], uint64_t *retlen);

/* The name that git gives to these bytes (SHA-1 of a blob), for patches. Serves to address, never to trust.
 */
#define DIGEST_GIT_TEXT_BYTES 41
int digest_git_blob(const void *data, size_t len, char ret[DIGEST_GIT_TEXT_BYTES]);

#endif
