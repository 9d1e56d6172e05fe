/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Clearing the blob folder: what no record names any more, and is old enough that nobody is about to name it.
 * A record names a blob as "sha256:DIGEST", anywhere in its line. The folder is listed once, the log read
 * once; memory is 33 bytes a blob. Storing a blob and removing one happen under the same lock, and a blob
 * that is stored again is young again.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "journal/index.h"
#include "journal/inject.h"

#define AGE_DEFAULT_USEC (24 * 3600 * USEC_PER_SEC)

struct blob {
	uint8_t digest[DIGEST_BYTES];
	bool named;
};

struct blobs {
	struct blob *list;
	size_t n;
	size_t allocated;
};

static int compare(const void *a, const void *b)
{
	return memcmp(((const struct blob *)a)->digest, ((const struct blob *)b)->digest, DIGEST_BYTES);
}

static int add_blob(struct blobs *blobs, const char *name)
{
	struct blob *grown;

	if (blobs->n == blobs->allocated) {
		size_t wanted = blobs->allocated ? blobs->allocated * 2 : 64;

		grown = reallocarray(blobs->list, wanted, sizeof(*grown));
		if (!grown)
			return ABOX_E_MEMORY;
		blobs->list = grown;
		blobs->allocated = wanted;
	}
	if (hex_decode(name, blobs->list[blobs->n].digest, DIGEST_BYTES) < 0)
		return 0;
	blobs->list[blobs->n++].named = false;
	return 0;
}

static bool is_old(int dir_fd, const char *name, uint64_t age_usec)
{
	uint64_t changed, now = clock_wall_usec();
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return false;
	changed = (uint64_t)st.st_mtim.tv_sec * USEC_PER_SEC + (uint64_t)st.st_mtim.tv_nsec / NSEC_PER_USEC;
	return changed < now && now - changed >= age_usec;
}

/* Old files only; what a crash left under a temporary name is removed at once when it is old. */
static int list_old(int dir_fd, uint64_t age_usec, bool dry_run, struct blobs *blobs, abox_error **reterr)
{
	struct dirent *entry;
	int fd, r = 0;
	DIR *dir;

	fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || !(dir = fdopendir(fd))) {
		fd_close(fd);
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, "blobs", errno, "cannot list the blobs");
	}
	while (r == 0 && (entry = readdir(dir))) {
		if (!is_old(dir_fd, entry->d_name, age_usec))
			continue;
		if (strlen(entry->d_name) == 64)
			r = add_blob(blobs, entry->d_name);
		else if (string_starts_with(entry->d_name, "tmp-") && !dry_run)
			(void)jio_unlink(dir_fd, entry->d_name);
	}
	closedir(dir);
	if (blobs->n > 1)
		qsort(blobs->list, blobs->n, sizeof(*blobs->list), compare);
	return r;
}

static void mark(struct blobs *blobs, const char *line, size_t len)
{
	static const char prefix[] = "sha256:";
	const char *at = line, *end = line + len;
	struct blob key, *found;
	char digits[65];

	while ((at = memmem(at, (size_t)(end - at), prefix, sizeof(prefix) - 1))) {
		at += sizeof(prefix) - 1;
		if (end - at < 64)
			return;
		memcpy(digits, at, 64);
		digits[64] = 0;
		if (strlen(digits) != 64 || hex_decode(digits, key.digest, DIGEST_BYTES) < 0)
			continue;
		found = bsearch(&key, blobs->list, blobs->n, sizeof(*blobs->list), compare);
		if (found)
			found->named = true;
	}
}

static int mark_carried(abox_journal *journal, struct blobs *blobs, abox_error **reterr)
{
	struct segment_reader reader = SEGMENT_READER_INIT;
	_cleanup_(fd_closep) int fd = -EBADF;
	struct journal_record record;
	uint64_t number, bytes, offset = 0;
	int r;

	r = carried_open(journal->dir_fd, &fd, &number, &bytes, reterr);
	if (r < 0 || fd < 0)
		return r;
	segment_reader_start(&reader, fd, 0, 0);
	while ((r = segment_reader_line(&reader, &offset, &record, reterr)) == SEGMENT_RECORD)
		mark(blobs, record.line, record.line_len);
	segment_reader_clear(&reader);
	if (r == SEGMENT_BROKEN)
		return error_set(
			reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, NULL, "a carried record is damaged");
	return r;
}

static int mark_log(abox_journal *journal, struct blobs *blobs, abox_error **reterr)
{
	_cleanup_(log_clearp) struct log log = LOG_INIT;
	struct journal_record record;
	int r;

	r = log_start(&log, journal->dir_fd, 0, false, reterr);
	while (r >= 0 && (r = log_next(&log, 0, &record, reterr)) > 0)
		mark(blobs, record.line, record.line_len);
	return r;
}

static int remove_unnamed(int dir_fd, const struct blobs *blobs, uint64_t age_usec, bool dry_run,
	uint64_t *retn, abox_error **reterr)
{
	char name[DIGEST_TEXT_BYTES];
	int r;

	for (size_t i = 0; i < blobs->n; i++) {
		hex_encode(blobs->list[i].digest, DIGEST_BYTES, name);
		if (blobs->list[i].named || !is_old(dir_fd, name, age_usec))
			continue;
		r = dry_run ? 0 : jio_unlink(dir_fd, name);
		if (r < 0 && r != -ENOENT)
			return error_set_errno(
				reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, name, -r, "cannot remove a blob");
		(*retn)++;
	}
	return 0;
}

int blobs_prune(abox_journal *journal, uint64_t age_usec, bool dry_run, uint64_t *retn, abox_error **reterr)
{
	_cleanup_(fd_closep) int dir_fd = -EBADF;
	struct blobs blobs = { 0 };
	int r;

	if (age_usec == 0)
		age_usec = AGE_DEFAULT_USEC;
	*retn = 0;
	dir_fd = jio_open(journal->dir_fd, "blobs", O_RDONLY | O_DIRECTORY, 0);
	if (dir_fd == -ENOENT)
		return 0;
	if (dir_fd < 0)
		return error_set_errno(reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, "blobs", -dir_fd,
			"cannot open the blob folder");
	r = list_old(dir_fd, age_usec, dry_run, &blobs, reterr);
	if (r == 0 && blobs.n > 0)
		r = mark_carried(journal, &blobs, reterr);
	if (r == 0 && blobs.n > 0)
		r = mark_log(journal, &blobs, reterr);
	if (r == 0 && blobs.n > 0) {
		pthread_mutex_lock(&journal->blob_mutex);
		r = lock_take(&journal->lock, LOCK_BLOBS, journal_deadline(journal), reterr);
		if (r == 0) {
			r = remove_unnamed(dir_fd, &blobs, age_usec, dry_run, retn, reterr);
			lock_release(&journal->lock, LOCK_BLOBS);
		}
		pthread_mutex_unlock(&journal->blob_mutex);
	}
	free(blobs.list);
	return r;
}
