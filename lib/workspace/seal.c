/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The seal of a tree: one digest over all that is in it. A snapshot is told as done only after it was sealed,
 * which reads every byte; a later check makes the seal again and compares.
 *
 * Content is taken in blocks that are not all zero, with their place, so that a file of 8 TiB with nothing in
 * it costs nothing, and the seal does not depend on where a filesystem makes holes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/pack.h"
#include "base/strings.h"
#include "workspace/attribute.h"
#include "workspace/tree.h"

#define STAGE ABOX_STAGE_WORKSPACE
#define BLOCK 4096U
#define CHUNK (256U << 10)
#define SYNC_ONE_BY_ONE 256 /* more changed files than this: the whole filesystem at once is cheaper */

struct sealing {
	struct tree_seal *seal;
	struct digest *digest;
	const char *place;
	abox_error **reterr;
	bool sync;
	bool sync_all;
	uint64_t n_synced;
	char *buffer;
};

static int fail(const struct sealing *sealing, int sys_errno, const char *path, const char *what)
{
	return error_set_errno(sealing->reterr, ABOX_E_IO, STAGE, sealing->place, sys_errno,
		"cannot %s '%.200s'", what, path[0] ? path : ".");
}

static int seal_attributes(struct pack_writer *writer, int fd)
{
	_cleanup_(attribute_list_clear) struct attribute_list list = {0};
	int r;

	r = attribute_list_read(fd, &list);
	for (size_t i = 0; r >= 0 && i < list.n; i++) {
		_cleanup_(freep) void *value = NULL;
		size_t len;

		r = attribute_read(fd, list.names[i], &value, &len);
		if (r < 0)
			return r;
		pack_string(writer, list.names[i]);
		pack_bytes(writer, value, len);
	}
	return r;
}

/* What is known without looking inside. */
static int seal_facts(struct sealing *sealing, const struct tree_entry *entry, int fd)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	const struct stat *st = &entry->st;
	uint64_t len;
	int r;

	sealing->seal->n_entries++;
	pack_string(&writer, entry->name);
	pack_u32(&writer, st->st_mode);
	pack_u32(&writer, st->st_uid);
	pack_u32(&writer, st->st_gid);
	pack_u64(&writer, S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0);
	pack_u64(&writer, S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode) ? (uint64_t)st->st_rdev : 0);
	pack_u64(&writer, (uint64_t)st->st_mtim.tv_sec);
	pack_u64(&writer, (uint64_t)st->st_mtim.tv_nsec);
	r = seal_attributes(&writer, fd);
	if (r < 0)
		return fail(sealing, -r, entry->path, "read the attributes of");
	if (writer.failed)
		return ABOX_E_MEMORY;
	/* With its length before it, so that no two trees give the same bytes. */
	len = writer.len;
	r = digest_update(sealing->digest, &len, sizeof(len));
	return r < 0 ? r : digest_update(sealing->digest, writer.data, writer.len);
}

static bool all_zero(const char *data, size_t len)
{
	return len == 0 || (data[0] == 0 && memcmp(data, data + 1, len - 1) == 0);
}

static int seal_blocks(struct sealing *sealing, uint64_t at, const char *data, size_t len)
{
	for (size_t i = 0; i < len; i += BLOCK) {
		size_t n = MIN((size_t)BLOCK, len - i);
		uint64_t place = at + i;
		int r;

		if (all_zero(data + i, n))
			continue;
		r = digest_update(sealing->digest, &place, sizeof(place));
		if (r >= 0)
			r = digest_update(sealing->digest, data + i, n);
		if (r < 0)
			return r;
	}
	sealing->seal->n_bytes += len;
	return 0;
}

static int seal_content(struct sealing *sealing, const struct tree_entry *entry, int fd)
{
	off_t at = 0, end;

	while (at < entry->st.st_size) {
		at = lseek(fd, at, SEEK_DATA);
		if (at < 0 && errno == ENXIO)
			break;
		end = at < 0 ? -1 : lseek(fd, at, SEEK_HOLE);
		if (end < 0)
			return fail(sealing, errno, entry->path, "read");
		/* Whole blocks: a place depends on the content only. */
		at -= at % BLOCK;
		end = MIN(entry->st.st_size, (end + BLOCK - 1) / BLOCK * BLOCK);
		while (at < end) {
			ssize_t n = pread(fd, sealing->buffer, (size_t)MIN((off_t)CHUNK, end - at), at);
			int r;

			if (n <= 0)
				return fail(sealing, n < 0 ? errno : EIO, entry->path, "read");
			r = seal_blocks(sealing, (uint64_t)at, sealing->buffer, (size_t)n);
			if (r < 0)
				return r;
			at += n;
		}
	}
	return 0;
}

static int sync_one(struct sealing *sealing, int fd, const char *path)
{
	if (!sealing->sync || sealing->sync_all)
		return 0;
	if (++sealing->n_synced > SYNC_ONE_BY_ONE)
		sealing->sync_all = true;
	else if (fsync(fd) < 0)
		return fail(sealing, errno, path, "sync");
	return 0;
}

static int seal_link(struct sealing *sealing, const struct tree_entry *entry)
{
	char target[4097];
	ssize_t n = readlinkat(entry->dir_fd, entry->name, target, sizeof(target));

	if (n < 0)
		return fail(sealing, errno, entry->path, "read");
	return digest_update(sealing->digest, target, (size_t)n);
}

static int on_other(void *userdata, const struct tree_entry *entry)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	struct sealing *sealing = userdata;
	int r;

	if (S_ISREG(entry->st.st_mode)) {
		fd = tree_open(entry->dir_fd, entry->name, &entry->st);
		if (fd < 0)
			return fail(sealing, -fd, entry->path, "open");
	} else {
		fd = openat(entry->dir_fd, entry->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			return fail(sealing, errno, entry->path, "open");
	}
	r = seal_facts(sealing, entry, fd);
	if (r >= 0 && S_ISLNK(entry->st.st_mode))
		r = seal_link(sealing, entry);
	if (r >= 0 && S_ISREG(entry->st.st_mode))
		r = seal_content(sealing, entry, fd);
	if (r >= 0 && S_ISREG(entry->st.st_mode))
		r = sync_one(sealing, fd, entry->path);
	return r;
}

static int on_enter(void *userdata, const struct tree_entry *entry, int fd)
{
	return seal_facts(userdata, entry, fd);
}

static int on_leave(void *userdata, const struct tree_entry *entry, int fd)
{
	struct sealing *sealing = userdata;
	int r;

	r = digest_update(sealing->digest, &(uint64_t){UINT64_MAX}, sizeof(uint64_t)); /* up again */
	return r < 0 ? r : sync_one(sealing, fd, entry->path);
}

int tree_seal(int root_fd, const char *place, bool sync, struct tree_seal *ret, abox_error **reterr)
{
	_cleanup_(digest_freep) struct digest *digest = NULL;
	_cleanup_(freep) char *buffer = malloc(CHUNK);
	struct sealing sealing = {
		.seal = ret, .place = place, .reterr = reterr, .sync = sync, .buffer = buffer};
	struct tree_visitor visitor = {
		.enter = on_enter, .leave = on_leave, .other = on_other, .userdata = &sealing};
	uint8_t bytes[DIGEST_BYTES];
	int r;

	*ret = (struct tree_seal){0};
	if (!buffer)
		return ABOX_E_MEMORY;
	r = digest_new(&digest);
	if (r < 0)
		return r;
	sealing.digest = digest;
	r = tree_walk(root_fd, place, &visitor, reterr);
	if (r < 0)
		return r;
	if (sealing.sync_all) {
		_cleanup_(fd_closep) int fd = openat(root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (fd < 0 || syncfs(fd) < 0)
			return fail(&sealing, errno, "", "sync");
	}
	r = digest_final(digest, bytes);
	if (r < 0)
		return r;
	hex_encode(bytes, sizeof(bytes), ret->digest);
	return 0;
}
