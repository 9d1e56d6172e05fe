/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Bytes of files, holes and all: digests, maps of what is not zero, copies.
 */
#ifndef WORKSPACE_CONTENT_H
#define WORKSPACE_CONTENT_H

#include "base/digest.h"
#include "base/macro.h"

#define CONTENT_BLOCK 4096
/* Files longer than this have a digest over their blocks, so that 8 TiB of holes cost nothing. Which of the
 * two it is follows from the size alone. */
#define CONTENT_PLAIN_MAX (1ULL << 30)

/*
 * Up to CONTENT_PLAIN_MAX: SHA-256 of the bytes. Beyond: SHA-256 over "agentbox-blocks-1", the size as 8
 * bytes little-endian, then for each block of 4096 bytes that is not all zero its offset as 8 bytes and its
 * bytes; the same whatever holes the filesystem keeps. 0, ABOX_E_MEMORY, or ABOX_E_IO with errno set. Moves
 * the file's position.
 */
int content_digest(int fd, uint8_t ret[DIGEST_BYTES], uint64_t *retlen);
static inline const char *content_digest_name(uint64_t size)
{
	return size > CONTENT_PLAIN_MAX ? "sha256_blocks" : "sha256";
}

/* The same while the bytes come by, in order; gaps are holes. */
struct content_hash;
int content_hash_new(uint64_t size, struct content_hash **ret);
int content_hash_add(struct content_hash *hash, uint64_t offset, const void *data, size_t len);
int content_hash_final(struct content_hash *hash, uint8_t ret[DIGEST_BYTES]);
struct content_hash *content_hash_free(struct content_hash *hash);
void content_hash_freep(struct content_hash **hash);

/* Runs of blocks that are not all zero, in order; their number is bounded by what the file holds. */
struct content_run {
	uint64_t offset;
	uint64_t len;
};
int content_map(int fd, uint64_t size, struct content_run **retruns, size_t *retn); /* 0 or -errno */
bool content_has_hole(int fd, uint64_t size);

/* The whole of a file into an empty one, shared with it where the filesystem can, holes kept. 0 or -errno. */
int content_copy(int from_fd, int to_fd, uint64_t size);

#endif
