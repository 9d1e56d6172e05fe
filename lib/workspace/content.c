/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Bytes of files. A box may make a file of 8 TiB without writing a byte of it: everything here goes from one
 * piece of data to the next and never reads a hole.
 */
#include "workspace/content.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "base/fd.h"

#define CHUNK (256 * 1024)            /* a multiple of CONTENT_BLOCK */
#define CLONE_FILE _IOW(0x94, 9, int) /* FICLONE of linux/fs.h */

static const uint8_t zeros[CONTENT_BLOCK];

struct content_hash {
	struct digest *digest;
	uint64_t size;
	uint64_t offset; /* how far it has come */
	bool blocks;
	size_t n_held; /* of an unfinished block, blocks only */
	uint8_t held[CONTENT_BLOCK];
};

static void put_u64(uint8_t *to, uint64_t value)
{
	for (int i = 0; i < 8; i++)
		to[i] = (uint8_t)(value >> (8 * i));
}

int content_hash_new(uint64_t size, struct content_hash **ret)
{
	static const char magic[] = "agentbox-blocks-1";
	_cleanup_(content_hash_freep) struct content_hash *hash = calloc(1, sizeof(*hash));
	uint8_t number[8];
	int r;

	if (!hash)
		return ABOX_E_MEMORY;
	hash->size = size;
	hash->blocks = size > CONTENT_PLAIN_MAX;
	r = digest_new(&hash->digest);
	if (r < 0)
		return r;
	if (hash->blocks) {
		put_u64(number, size);
		r = digest_update(hash->digest, magic, sizeof(magic) - 1);
		if (r >= 0)
			r = digest_update(hash->digest, number, sizeof(number));
		if (r < 0)
			return r;
	}
	*ret = steal_ptr(hash);
	return 0;
}

static int hash_block(struct content_hash *hash, uint64_t offset, const uint8_t *data, size_t len)
{
	uint8_t number[8];
	int r;

	if (memcmp(data, zeros, len) == 0)
		return 0;
	put_u64(number, offset);
	r = digest_update(hash->digest, number, sizeof(number));
	return r < 0 ? r : digest_update(hash->digest, data, len);
}

static int flush_block(struct content_hash *hash)
{
	int r;

	if (hash->n_held == 0)
		return 0;
	r = hash_block(hash, hash->offset - hash->n_held, hash->held, hash->n_held);
	hash->n_held = 0;
	return r;
}

/* The gap up to offset: zeros. */
static int skip_to(struct content_hash *hash, uint64_t offset)
{
	int r;

	if (!hash->blocks) {
		for (r = 0; r >= 0 && hash->offset < offset;) {
			size_t len = (size_t)MIN(offset - hash->offset, (uint64_t)sizeof(zeros));

			r = digest_update(hash->digest, zeros, len);
			hash->offset += len;
		}
		return r;
	}
	if (hash->offset < offset && hash->n_held > 0) {
		size_t len = (size_t)MIN(offset - hash->offset, (uint64_t)(CONTENT_BLOCK - hash->n_held));

		memset(hash->held + hash->n_held, 0, len);
		hash->n_held += len;
		hash->offset += len;
		if (hash->n_held == CONTENT_BLOCK) {
			r = flush_block(hash);
			if (r < 0)
				return r;
		}
	}
	if (hash->offset < offset) {
		size_t into = (size_t)(offset % CONTENT_BLOCK);

		memset(hash->held, 0, into);
		hash->n_held = into;
		hash->offset = offset;
	}
	return 0;
}

int content_hash_add(struct content_hash *hash, uint64_t offset, const void *data, size_t len)
{
	const uint8_t *bytes = data;
	int r;

	if (offset < hash->offset || offset > hash->size || len > hash->size - offset)
		return ABOX_E_INVALID;
	r = skip_to(hash, offset);
	if (r < 0)
		return r;
	if (!hash->blocks) {
		hash->offset += len;
		return digest_update(hash->digest, bytes, len);
	}
	while (len > 0) {
		size_t n = MIN(len, CONTENT_BLOCK - hash->n_held);

		if (hash->n_held == 0 && n == CONTENT_BLOCK) {
			r = hash_block(hash, hash->offset, bytes, n);
			hash->offset += n;
		} else {
			memcpy(hash->held + hash->n_held, bytes, n);
			hash->n_held += n;
			hash->offset += n;
			r = hash->n_held == CONTENT_BLOCK ? flush_block(hash) : 0;
		}
		if (r < 0)
			return r;
		bytes += n;
		len -= n;
	}
	return 0;
}

int content_hash_final(struct content_hash *hash, uint8_t ret[DIGEST_BYTES])
{
	int r;

	r = hash->blocks && hash->offset == hash->size ? 0 : skip_to(hash, hash->size);
	if (r >= 0 && hash->blocks)
		r = flush_block(hash);
	return r < 0 ? r : digest_final(hash->digest, ret);
}

struct content_hash *content_hash_free(struct content_hash *hash)
{
	if (!hash)
		return NULL;
	digest_free(hash->digest);
	free(hash);
	return NULL;
}

void content_hash_freep(struct content_hash **hash)
{
	content_hash_free(*hash);
}

/* The next piece of data at or behind *offset: 1 with its bounds, 0 when there is none, -errno. */
static int next_data(int fd, uint64_t size, uint64_t *offset, uint64_t *retend)
{
	off_t begin, end;

	if (*offset >= size)
		return 0;
	begin = lseek(fd, (off_t)*offset, SEEK_DATA);
	if (begin < 0 && errno == ENXIO)
		return 0;
	if (begin < 0 && errno == EINVAL) { /* a filesystem that does not know holes */
		*retend = size;
		return 1;
	}
	if (begin < 0)
		return -errno;
	end = lseek(fd, begin, SEEK_HOLE);
	if (end < 0)
		return -errno;
	if ((uint64_t)begin >= size)
		return 0;
	*offset = (uint64_t)begin;
	*retend = MIN((uint64_t)end, size);
	return 1;
}

int content_digest(int fd, uint8_t ret[DIGEST_BYTES], uint64_t *retlen)
{
	_cleanup_(content_hash_freep) struct content_hash *hash = NULL;
	_cleanup_(freep) uint8_t *buffer = NULL;
	uint64_t offset = 0, end;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return ABOX_E_IO;
	*retlen = (uint64_t)st.st_size;
	if (*retlen <= CONTENT_PLAIN_MAX)
		return lseek(fd, 0, SEEK_SET) < 0 ? ABOX_E_IO : digest_sha256_fd(fd, ret, retlen);
	buffer = malloc(CHUNK);
	if (!buffer)
		return ABOX_E_MEMORY;
	r = content_hash_new(*retlen, &hash);
	if (r < 0)
		return r;
	while ((r = next_data(fd, *retlen, &offset, &end)) > 0) {
		while (offset < end) {
			ssize_t n =
				fd_pread_all(fd, buffer, (size_t)MIN(end - offset, (uint64_t)CHUNK), offset);

			if (n <= 0) { /* it became shorter under our hands */
				errno = n < 0 ? (int)-n : ESTALE;
				return ABOX_E_IO;
			}
			r = content_hash_add(hash, offset, buffer, (size_t)n);
			if (r < 0)
				return r;
			offset += (uint64_t)n;
		}
	}
	if (r < 0) {
		errno = -r;
		return ABOX_E_IO;
	}
	return content_hash_final(hash, ret);
}

bool content_has_hole(int fd, uint64_t size)
{
	off_t hole = size > 0 ? lseek(fd, 0, SEEK_HOLE) : 0;

	return hole >= 0 && (uint64_t)hole < size;
}

struct runs {
	struct content_run *items;
	size_t n;
};

static int runs_add(struct runs *runs, uint64_t offset, uint64_t len)
{
	struct content_run *last = runs->n > 0 ? &runs->items[runs->n - 1] : NULL, *items;

	if (last && last->offset + last->len == offset) {
		last->len += len;
		return 0;
	}
	if ((runs->n & (runs->n - 1)) == 0) {
		items = realloc(runs->items, (runs->n ? runs->n * 2 : 1) * sizeof(*items));
		if (!items)
			return -ENOMEM;
		runs->items = items;
	}
	runs->items[runs->n++] = (struct content_run){offset, len};
	return 0;
}

static int map_data(int fd, uint64_t size, struct runs *runs, uint8_t *buffer)
{
	uint64_t offset = 0, end, done = 0;
	int r;

	while ((r = next_data(fd, size, &offset, &end)) > 0) {
		/* Whole blocks, also where the filesystem has smaller ones. */
		offset = MAX(offset - offset % CONTENT_BLOCK, done);
		if (end % CONTENT_BLOCK != 0)
			end = MIN(end + CONTENT_BLOCK - end % CONTENT_BLOCK, size);
		done = end;
		while (offset < end) {
			ssize_t n =
				fd_pread_all(fd, buffer, (size_t)MIN(end - offset, (uint64_t)CHUNK), offset);

			if (n <= 0)
				return n < 0 ? (int)n : -ESTALE;
			for (ssize_t i = 0; i < n; i += CONTENT_BLOCK) {
				size_t len = (size_t)MIN(n - i, CONTENT_BLOCK);

				if (memcmp(buffer + i, zeros, len) == 0)
					continue;
				r = runs_add(runs, offset + (uint64_t)i, len);
				if (r < 0)
					return r;
			}
			offset += (uint64_t)n;
		}
	}
	return r;
}

int content_map(int fd, uint64_t size, struct content_run **retruns, size_t *retn)
{
	_cleanup_(freep) uint8_t *buffer = malloc(CHUNK);
	struct runs runs = {0};
	int r;

	if (!buffer)
		return -ENOMEM;
	r = map_data(fd, size, &runs, buffer);
	if (r < 0) {
		free(runs.items);
		return r;
	}
	*retruns = runs.items;
	*retn = runs.n;
	return 0;
}

static int copy_range(int from_fd, int to_fd, uint64_t offset, uint64_t end, uint8_t *buffer)
{
	off_t in = (off_t)offset, out = (off_t)offset;
	bool kernel = true;

	while (offset < end) {
		ssize_t n = -1;

		if (kernel) {
			n = copy_file_range(
				from_fd, &in, to_fd, &out, (size_t)MIN(end - offset, (uint64_t)1 << 30), 0);
			if (n < 0 && errno == EINTR)
				continue;
			if (n < 0 && errno != EXDEV && errno != EINVAL && errno != EOPNOTSUPP &&
				errno != ENOSYS)
				return -errno;
			kernel = n > 0;
		}
		if (!kernel) {
			n = fd_pread_all(from_fd, buffer, (size_t)MIN(end - offset, (uint64_t)CHUNK), offset);
			if (n <= 0)
				return n < 0 ? (int)n : -ESTALE;
			if (fd_pwrite_all(to_fd, buffer, (size_t)n, offset) < 0)
				return -errno;
			in = out = (off_t)offset + n;
		}
		offset += (uint64_t)n;
	}
	return 0;
}

int content_copy(int from_fd, int to_fd, uint64_t size)
{
	_cleanup_(freep) uint8_t *buffer = NULL;
	uint64_t offset = 0, end;
	int r;

	if (ioctl(to_fd, CLONE_FILE, from_fd) == 0)
		return 0;
	buffer = malloc(CHUNK);
	if (!buffer)
		return -ENOMEM;
	if (ftruncate(to_fd, (off_t)size) < 0)
		return -errno;
	while ((r = next_data(from_fd, size, &offset, &end)) > 0) {
		r = copy_range(from_fd, to_fd, offset, end, buffer);
		if (r < 0)
			return r;
		offset = end;
	}
	return r;
}
