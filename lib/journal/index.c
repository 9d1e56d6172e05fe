/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The key index: where in a sealed segment the records of a task or an effect stand, so that an old one is
 * found without reading everything.
 *
 * An index file is a cache: bound to its segment by length and last hash, closed by a digest, and built again
 * when it is missing or does not fit. A wrong hit costs a look; a missed one would let an effect run twice,
 * hence the digest.
 *
 * File: "abox-index 1\n", then little-endian: u64 end of lines, 32 bytes last hash, 32 bytes digest of the
 * names of the views whose keys are in it, u64 count, count times (u64 key, u64 offset) sorted, 32 bytes
 * SHA-256 of all before.
 */
#include "journal/index.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "journal/inject.h"

#define MAGIC "abox-index 1\n"
#define INDEX_BYTES_MAX (256U * 1024 * 1024)

struct stored_header {
	char magic[16];
	uint64_t end;
	uint8_t hash[DIGEST_BYTES];
	uint8_t views[DIGEST_BYTES];
	uint64_t n;
};

uint64_t index_hash(const char *key, size_t len)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char)key[i]) * UINT64_C(0x100000001b3);
	return hash;
}

static void add(struct index *index, uint64_t key, uint64_t offset)
{
	struct index_entry *grown;

	if (index->n == index->allocated) {
		index->allocated = index->allocated ? index->allocated * 2 : 256;
		grown = reallocarray(index->entries, index->allocated, sizeof(*grown));
		if (!grown) {
			index->allocated = index->n;
			index->failed = true;
			return;
		}
		index->entries = grown;
	}
	index->entries[index->n++] = (struct index_entry){ key, offset };
}

struct key_visit {
	struct index *index; /* either: add to this */
	uint64_t offset;
	const char *wanted; /* or: compare with this */
	size_t wanted_len;
	bool found;
};

static void visit_key(void *userdata, const char *key, size_t len)
{
	struct key_visit *visit = userdata;

	if (visit->index)
		add(visit->index, index_hash(key, len), visit->offset);
	else if (len == visit->wanted_len && memcmp(key, visit->wanted, len) == 0)
		visit->found = true;
}

static void visit_keys(const struct journal_record *record, struct key_visit *visit)
{
	char key[RECORD_NAME_MAX + 8];
	int n;

	if (record->task) {
		n = snprintf(key, sizeof(key), "task:%s", record->task);
		visit_key(visit, key, (size_t)n);
	}
	for (size_t i = 0; journal_views[i]; i++)
		if (journal_views[i]->keys)
			journal_views[i]->keys(record, visit_key, visit);
}

void index_add_record(struct index *index, const struct journal_record *record, uint64_t offset)
{
	struct key_visit visit = { .index = index, .offset = offset };

	visit_keys(record, &visit);
}

bool index_record_has(const struct journal_record *record, const char *key)
{
	struct key_visit visit = { .wanted = key, .wanted_len = strlen(key) };

	visit_keys(record, &visit);
	return visit.found;
}

static int compare(const void *a, const void *b)
{
	const struct index_entry *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

void index_sort(struct index *index)
{
	if (index->n > 1)
		qsort(index->entries, index->n, sizeof(*index->entries), compare);
}

void index_clear(struct index *index)
{
	free(index->entries);
	*index = (struct index){ 0 };
}

void index_clearp(struct index *index)
{
	index_clear(index);
}

static int fill_header(struct stored_header *header, uint64_t end, const char *hash, uint64_t n)
{
	_cleanup_(text_clear) struct text names = TEXT_INIT;

	*header = (struct stored_header){ .magic = MAGIC, .end = end, .n = n };
	if (hex_decode(hash, header->hash, sizeof(header->hash)) < 0)
		return ABOX_E_INVALID;
	for (size_t i = 0; journal_views[i]; i++)
		text_printf(&names, "%s\n", journal_views[i]->name);
	if (names.failed)
		return ABOX_E_MEMORY;
	return digest_sha256(names.data ? names.data : "", names.len, header->views);
}

/* 1: loaded; 0: there is none that fits. */
static int read_index(int dir_fd, const char *file, uint64_t end, const char *hash, struct index *ret)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	_cleanup_(freep) char *data = NULL;
	struct stored_header wanted, found;
	uint8_t digest[DIGEST_BYTES];
	size_t len, size;

	fd = jio_open(dir_fd, file, O_RDONLY, 0);
	if (fd < 0 || fd_read_text(fd, INDEX_BYTES_MAX, &data, &len) < 0 ||
		len < sizeof(found) + DIGEST_BYTES)
		return 0;
	memcpy(&found, data, sizeof(found));
	if (fill_header(&wanted, end, hash, found.n) < 0 || memcmp(&wanted, &found, sizeof(found)) != 0)
		return 0;
	if (found.n > (len - sizeof(found) - DIGEST_BYTES) / sizeof(struct index_entry))
		return 0;
	size = found.n * sizeof(struct index_entry);
	if (len != sizeof(found) + size + DIGEST_BYTES ||
		digest_sha256(data, len - DIGEST_BYTES, digest) < 0 ||
		memcmp(digest, data + len - DIGEST_BYTES, DIGEST_BYTES) != 0)
		return 0;
	ret->entries = malloc(size + 1);
	if (!ret->entries)
		return ABOX_E_MEMORY;
	memcpy(ret->entries, data + sizeof(found), size);
	ret->n = ret->allocated = found.n;
	return 1;
}

/* A cache that cannot be stored is built again next time: nothing else depends on it. */
static void write_index(
	int dir_fd, const char *file, uint64_t end, const char *hash, const struct index *index)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	_cleanup_(fd_closep) int fd = -EBADF;
	struct stored_header header;
	uint8_t digest[DIGEST_BYTES];
	char temporary[64];

	if (fill_header(&header, end, hash, index->n) < 0)
		return;
	text_add_bytes(&text, (const char *)&header, sizeof(header));
	text_add_bytes(&text, (const char *)index->entries, index->n * sizeof(*index->entries));
	if (text.failed || digest_sha256(text.data, text.len, digest) < 0)
		return;
	text_add_bytes(&text, (const char *)digest, sizeof(digest));
	snprintf(temporary, sizeof(temporary), "%s.%d.new", file, (int)getpid());
	fd = jio_open(dir_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		return;
	if (text.failed || jio_pwrite(fd, text.data, text.len, 0) < 0 ||
		jio_rename(dir_fd, temporary, file) < 0)
		(void)jio_unlink(dir_fd, temporary);
}

/* Lines are taken as they are, without their place in a chain: carried ones have none. */
static int build_index(int fd, const char *name, uint64_t end, struct index *ret, abox_error **reterr)
{
	struct segment_reader reader = SEGMENT_READER_INIT;
	struct journal_record record;
	uint64_t offset = 0;
	int r = 1;

	segment_reader_start(&reader, fd, 0, 0);
	while (offset < end) {
		r = segment_reader_line(&reader, &offset, &record, reterr);
		if (r == SEGMENT_RECORD)
			index_add_record(ret, &record, record.offset);
		else
			break;
	}
	segment_reader_clear(&reader);
	if (r < 0)
		return r;
	if (offset < end)
		return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, name,
			"the record at %" PRIu64 " is damaged", offset);
	index_sort(ret);
	return ret->failed ? ABOX_E_MEMORY : 0;
}

int index_load(int dir_fd, const char *name, int fd, uint64_t end, const char *hash, bool store,
	struct index *ret, abox_error **reterr)
{
	_cleanup_(index_clearp) struct index index = { 0 };
	char file[48];
	int r;

	snprintf(file, sizeof(file), "%.*s.idx", (int)(strlen(name) - 4), name);
	r = read_index(dir_fd, file, end, hash, &index);
	if (r == 0) {
		r = build_index(fd, name, end, &index, reterr);
		if (r == 0 && store)
			write_index(dir_fd, file, end, hash, &index);
	}
	if (r < 0)
		return r;
	*ret = index;
	index = (struct index){ 0 };
	return 0;
}

void carried_name(uint64_t number, char ret[40])
{
	snprintf(ret, 40, "carried-%010" PRIu64 ".log", number % UINT64_C(10000000000));
}

static bool parse_carried(const char *name, const char *suffix, uint64_t *ret)
{
	char wanted[48];

	if (sscanf(name, "carried-%10" SCNu64, ret) != 1)
		return false;
	carried_name(*ret, wanted);
	memcpy(wanted + strlen(wanted) - 4, suffix, 5);
	return strcmp(name, wanted) == 0;
}

static int open_listing(int dir_fd, DIR **ret)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), saved;

	*ret = fd < 0 ? NULL : fdopendir(fd);
	if (*ret)
		return 0;
	saved = errno;
	fd_close(fd);
	return -saved;
}

int carried_remove_below(int dir_fd, uint64_t number)
{
	struct dirent *entry;
	uint64_t found;
	DIR *dir;
	int r;

	r = open_listing(dir_fd, &dir);
	if (r < 0)
		return r;
	while (r == 0 && (entry = readdir(dir)))
		if ((parse_carried(entry->d_name, ".log", &found) ||
			    parse_carried(entry->d_name, ".idx", &found)) &&
			found < number)
			r = jio_unlink(dir_fd, entry->d_name);
	closedir(dir);
	return r;
}

int carried_open(int dir_fd, int *retfd, uint64_t *retnumber, uint64_t *retbytes, abox_error **reterr)
{
	uint64_t number, newest = 0;
	struct dirent *entry;
	struct stat st;
	char name[40];
	DIR *dir;
	int fd, r;

	r = open_listing(dir_fd, &dir);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, NULL, -r, "cannot list the folder");
	while ((entry = readdir(dir)))
		if (parse_carried(entry->d_name, ".log", &number))
			newest = MAX(newest, number);
	closedir(dir);
	*retfd = -EBADF;
	*retnumber = newest;
	*retbytes = 0;
	if (newest == 0)
		return 0;
	carried_name(newest, name);
	fd = jio_open(dir_fd, name, O_RDONLY, 0);
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, name, fd < 0 ? -fd : errno, "cannot open");
	*retfd = fd;
	*retbytes = (uint64_t)st.st_size;
	return 0;
}
