/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blobs: bytes too large for a record, stored once under their SHA-256 in the folder `blobs`.
 *
 * A blob is written and synced under another name, renamed, and its folder synced, before its digest is given
 * out: a record that names it never points at half of it. Names below "tmp-" are what a crash left; prune
 * clears them.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "journal/handle.h"
#include "journal/inject.h"

#define FOLDER "blobs"
#define BLOB_BYTES_DEFAULT (UINT64_C(64) * 1024 * 1024)

static int open_folder(abox_journal *journal, bool create, int *retfd, abox_error **reterr)
{
	int fd, r;

	fd = jio_open(journal->dir_fd, FOLDER, O_RDONLY | O_DIRECTORY, 0);
	if (fd == -ENOENT && create) {
		if (mkdirat(journal->dir_fd, FOLDER, 0700) < 0 && errno != EEXIST)
			return error_set_errno(reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, FOLDER, errno,
				"cannot create the folder");
		r = jio_sync(journal->dir_fd);
		if (r < 0)
			return error_set_errno(
				reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, FOLDER, -r, "cannot sync the folder");
		fd = jio_open(journal->dir_fd, FOLDER, O_RDONLY | O_DIRECTORY, 0);
	}
	if (fd < 0)
		return error_set_errno(reterr, fd == -ENOENT ? ABOX_E_NOT_FOUND : ABOX_E_IO,
			ABOX_STAGE_JOURNAL, FOLDER, -fd, "cannot open the blob folder");
	*retfd = fd;
	return 0;
}

/* There already, and of the right length: the bytes were synced before the name was given, but whoever did so
 * may not have synced the folder yet. It is made young, so that prune leaves it alone until it is named.
 * Under LOCK_BLOBS. */
static int is_stored(int dir_fd, const char *digest, uint64_t len)
{
	struct stat st;

	if (fstatat(dir_fd, digest, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != len)
		return 0;
	return utimensat(dir_fd, digest, NULL, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 1;
}

static int is_stored_locked(abox_journal *journal, int dir_fd, const char *digest, uint64_t len)
{
	int r;

	pthread_mutex_lock(&journal->blob_mutex);
	r = lock_take(&journal->lock, LOCK_BLOBS, journal_deadline(journal), NULL);
	if (r == 0) {
		r = is_stored(dir_fd, digest, len);
		lock_release(&journal->lock, LOCK_BLOBS);
	} else {
		r = -EBUSY;
	}
	pthread_mutex_unlock(&journal->blob_mutex);
	return r;
}

static int temporary_name(char ret[32])
{
	uint64_t number;

	if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
		return -errno;
	snprintf(ret, 32, "tmp-%016" PRIx64, number);
	return 0;
}

static int publish(abox_journal *journal, int dir_fd, const char *temporary, const char *digest, uint64_t len)
{
	int r;

	r = is_stored_locked(journal, dir_fd, digest, len);
	if (r == 0)
		r = jio_rename(dir_fd, temporary, digest);
	else if (r > 0)
		r = jio_unlink(dir_fd, temporary);
	return r < 0 ? r : jio_sync(dir_fd);
}

static int store(abox_journal *journal, int dir_fd, const void *data, size_t len, const char *digest)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	char temporary[32];
	int r;

	r = temporary_name(temporary);
	if (r < 0)
		return r;
	fd = jio_open(dir_fd, temporary, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return fd;
	r = len > 0 ? jio_pwrite(fd, data, len, 0) : 0;
	if (r == 0)
		r = jio_sync(fd);
	if (r == 0)
		r = publish(journal, dir_fd, temporary, digest, len);
	if (r < 0)
		(void)jio_unlink(dir_fd, temporary);
	return r;
}

int abox_journal_blob_put(abox_journal *journal, const void *data, size_t data_bytes,
	char retdigest[ABOX_DIGEST_TEXT_BYTES], abox_error **reterr)
{
	_cleanup_(fd_closep) int dir_fd = -EBADF;
	char digest[DIGEST_TEXT_BYTES];
	int r;

	r = journal_check(journal, true, reterr);
	if (r < 0)
		return r;
	if ((!data && data_bytes > 0) || !retdigest)
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, NULL, "data and retdigest are required");
	r = digest_sha256_text(data ? data : "", data_bytes, digest);
	if (r == 0)
		r = open_folder(journal, true, &dir_fd, reterr);
	if (r < 0)
		return r;
	r = is_stored_locked(journal, dir_fd, digest, data_bytes);
	if (r > 0)
		r = jio_sync(dir_fd);
	else if (r == 0)
		r = store(journal, dir_fd, data, data_bytes, digest);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, FOLDER, -r, "cannot store a blob");
	memcpy(retdigest, digest, sizeof(digest));
	return 0;
}

/* Copies and hashes in one pass, so that what is stored is what was hashed. */
static int copy_hashed(int from_fd, int to_fd, char retdigest[DIGEST_TEXT_BYTES], uint64_t *retlen)
{
	_cleanup_(digest_freep) struct digest *digest = NULL;
	_cleanup_(freep) char *buffer = malloc(256 * 1024);
	uint8_t bytes[DIGEST_BYTES];
	uint64_t len = 0;
	ssize_t n;
	int r;

	if (!buffer || digest_new(&digest) < 0)
		return -ENOMEM;
	while ((n = fd_read_all(from_fd, buffer, 256 * 1024)) > 0) {
		if (digest_update(digest, buffer, (size_t)n) < 0)
			return -ENOMEM;
		r = jio_pwrite(to_fd, buffer, (size_t)n, len);
		if (r < 0)
			return r;
		len += (uint64_t)n;
	}
	if (n < 0)
		return (int)n;
	if (digest_final(digest, bytes) < 0)
		return -ENOMEM;
	hex_encode(bytes, sizeof(bytes), retdigest);
	*retlen = len;
	return 0;
}

int journal_blob_put_fd(abox_journal *journal, int fd, char retdigest[ABOX_DIGEST_TEXT_BYTES],
	uint64_t *retlen, abox_error **reterr)
{
	_cleanup_(fd_closep) int dir_fd = -EBADF, blob_fd = -EBADF;
	char temporary[32], digest[DIGEST_TEXT_BYTES];
	uint64_t len = 0;
	int r;

	r = journal_check(journal, true, reterr);
	if (r == 0)
		r = open_folder(journal, true, &dir_fd, reterr);
	if (r < 0)
		return r;
	r = temporary_name(temporary);
	if (r == 0)
		r = blob_fd = jio_open(dir_fd, temporary, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (r >= 0) {
		r = copy_hashed(fd, blob_fd, digest, &len);
		if (r == 0)
			r = jio_sync(blob_fd);
		if (r == 0)
			r = publish(journal, dir_fd, temporary, digest, len);
		if (r < 0)
			(void)jio_unlink(dir_fd, temporary);
	}
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, FOLDER, -r, "cannot store a blob");
	memcpy(retdigest, digest, sizeof(digest));
	if (retlen)
		*retlen = len;
	return 0;
}

int abox_journal_blob_get(abox_journal *journal, const char *digest, uint64_t max_bytes, char **retdata,
	size_t *retbytes, abox_error **reterr)
{
	_cleanup_(fd_closep) int dir_fd = -EBADF, fd = -EBADF;
	_cleanup_(freep) char *data = NULL;
	char found[DIGEST_TEXT_BYTES];
	size_t len = 0;
	int r;

	r = journal_check(journal, false, reterr);
	if (r < 0)
		return r;
	if (digest && string_starts_with(digest, "sha256:"))
		digest += 7;
	if (!digest || strlen(digest) != 64 || strspn(digest, "0123456789abcdef") != 64 || !retdata)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, NULL,
			"a digest of 64 hexadecimal digits is required");
	r = open_folder(journal, false, &dir_fd, reterr);
	if (r < 0)
		return r;
	fd = jio_open(dir_fd, digest, O_RDONLY, 0);
	if (fd < 0)
		return error_set_errno(reterr, fd == -ENOENT ? ABOX_E_NOT_FOUND : ABOX_E_IO,
			ABOX_STAGE_JOURNAL, digest, -fd, "cannot open the blob");
	r = fd_read_text(fd, max_bytes ? max_bytes : BLOB_BYTES_DEFAULT, &data, &len);
	if (r == -EFBIG)
		return error_set(
			reterr, ABOX_E_LIMIT, ABOX_STAGE_JOURNAL, digest, "the blob is larger than allowed");
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, digest, -r, "cannot read the blob");
	r = digest_sha256_text(data, len, found);
	if (r < 0)
		return r;
	if (strcmp(found, digest) != 0)
		return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, digest, "the blob is damaged");
	*retdata = steal_ptr(data);
	if (retbytes)
		*retbytes = len;
	return 0;
}
