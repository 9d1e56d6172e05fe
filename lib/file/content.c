/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is in files: read and written in pieces, holes told as such. Promises that what comes from a file server is bounded
 * by what was asked for, whatever the file does meanwhile.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "file/files.h"

#define LEFT_OUT_MAX 1000	/* that are listed; all are counted */
#define READ_MAX_DEFAULT (64ULL << 20)
#define WRITE_FLAGS (ABOX_FILE_PARENTS | ABOX_FILE_ATOMIC | ABOX_FILE_NEW | ABOX_FILE_SYNC)

void abox_copy_options_init(struct abox_copy_options *options)
{
	*options = (struct abox_copy_options)ABOX_COPY_OPTIONS_INIT;
}

int copying_begin(struct copying *copying, abox_files *files, const struct abox_copy_options *options,
	abox_error **reterr)
{
	static const struct abox_copy_options none = ABOX_COPY_OPTIONS_INIT;

	*copying = (struct copying){ .files = files, .options = options ? options : &none, .reterr = reterr };
	options = copying->options;
	if (options->size < sizeof(*options) || (options->flags & ~(uint32_t)ABOX_COPY_REPLACE))
		return error_set(reterr, ABOX_E_INVALID, FILE_STAGE, NULL,
			"options: size must be sizeof(struct abox_copy_options), and flags known");
	copying->progress.fn = options->progress;
	copying->progress.userdata = options->progress_userdata;
	return 0;
}

int copying_count(struct copying *copying, uint64_t entries, uint64_t bytes, const char *path)
{
	const struct abox_copy_options *options = copying->options;
	struct progress *progress = &copying->progress;
	uint64_t max_entries = options->max_entries ? options->max_entries : FILE_MAX_ENTRIES;

	progress->n_entries += entries;
	progress->n_bytes += bytes;
	if (progress->n_entries > max_entries || (options->max_bytes && progress->n_bytes > options->max_bytes))
		return error_set(copying->reterr, ABOX_E_LIMIT, FILE_STAGE, path, "more than was allowed");
	if (!progress_tick(progress, false))
		return error_set(copying->reterr, ABOX_E_CANCELED, FILE_STAGE, path, "canceled");
	return 0;
}

int copying_fail(struct copying *copying, abox_error **error_taken, int code)
{
	if (copying->reterr)
		*copying->reterr = steal_ptr(*error_taken);
	return code;
}

void copying_leave_out(struct copying *copying, const char *path, const char *reason)
{
	/* a box may hold any number of them */
	if (copying->n_left_out >= LEFT_OUT_MAX) {
		copying->n_left_out++;
		return;
	}
	text_add(&copying->left_out, copying->n_left_out++ ? ",{\"path\":" : "{\"path\":");
	text_add_json(&copying->left_out, path, strlen(path));
	text_printf(&copying->left_out, ",\"reason\":\"%s\"}", reason);
}

int copying_report(struct copying *copying, char **retjson)
{
	struct text text = TEXT_INIT;

	if (copying->left_out.failed)
		return ABOX_E_MEMORY;
	if (!retjson)
		return 0;
	text_printf(&text, "{\"entries\":%llu,\"bytes\":%llu,\"n_left_out\":%llu,\"left_out\":[%s]}",
		(unsigned long long)copying->progress.n_entries, (unsigned long long)copying->progress.n_bytes,
		(unsigned long long)copying->n_left_out,
		copying->left_out.data ? copying->left_out.data : "");
	return text_take(&text, retjson);
}

void copying_clear(struct copying *copying)
{
	text_clear(&copying->left_out);
}

int content_read_begin(abox_files *files, uint32_t place, const char *path, bool follow, uint32_t *retnumber,
	struct file_entry *ret, abox_error **reterr)
{
	struct pack_writer writer;
	int r;

	files_begin(files, &writer, FILE_READ_BEGIN);
	pack_u32(&writer, place);
	pack_string(&writer, path);
	pack_u8(&writer, follow);
	r = files_call_entry(files, &writer, retnumber, ret, reterr);
	return r == 0 && !S_ISREG(ret->mode) ? files_protocol(files, reterr) : r;
}

/* The next piece, of at most `left` bytes with the hole before it. It lies in the buffer of the files. */
static int read_piece(abox_files *files, uint32_t number, uint64_t left, uint64_t *rethole, const void **retdata,
	size_t *retlen, bool *retend, abox_error **reterr)
{
	struct pack_writer writer;
	struct pack_reader reader;
	int r;

	files_begin(files, &writer, FILE_READ);
	pack_u32(&writer, number);
	pack_u32(&writer, (uint32_t)MIN(left, (uint64_t)FILE_DATA_MAX));
	r = files_call(files, &writer, NULL, &reader, reterr);
	if (r < 0)
		return r;
	*rethole = unpack_u64(&reader);
	*retend = unpack_u8(&reader);
	*retdata = unpack_bytes(&reader, retlen);
	if (!unpack_done(&reader) || *rethole > INT64_MAX || *retlen > FILE_DATA_MAX || (*retlen == 0 && !*retend))
		return files_protocol(files, reterr);
	/* A hole and what is behind it may have grown since. */
	*rethole = MIN(*rethole, left);
	*retlen = (size_t)MIN((uint64_t)*retlen, left - *rethole);
	return 0;
}

static int local_error(struct copying *copying, const char *path, const char *what)
{
	return error_set_errno(copying->reterr, ABOX_E_IO, FILE_STAGE, path, errno, "%s", what);
}

/* A hole as bytes, for what cannot seek. */
static int write_zeros(struct copying *copying, int fd, uint64_t len, const char *path)
{
	static const uint8_t zeros[65536];

	while (len > 0) {
		size_t n = (size_t)MIN(len, (uint64_t)sizeof(zeros));
		int r = fd_write_all(fd, zeros, n);

		if (r < 0) {
			errno = -r;
			return local_error(copying, path, "cannot write it");
		}
		r = copying_count(copying, 0, n, path);
		if (r < 0)
			return r;
		len -= n;
	}
	return 0;
}

int content_get(struct copying *copying, uint32_t number, uint64_t size, int fd, bool seeks, const char *path)
{
	uint64_t offset = 0;
	bool end = false;
	int r = 0;

	while (r == 0 && !end && offset < size) {
		uint64_t hole = 0;
		const void *data = NULL;
		size_t len = 0;

		r = read_piece(copying->files, number, size - offset, &hole, &data, &len, &end, copying->reterr);
		if (r == 0 && !seeks)
			r = write_zeros(copying, fd, hole, path);
		if (r < 0)
			return r;
		offset += hole;
		r = seeks ? fd_pwrite_all(fd, data, len, offset) : fd_write_all(fd, data, len);
		if (r < 0) {
			errno = -r;
			return local_error(copying, path, "cannot write it");
		}
		offset += len;
		r = copying_count(copying, 0, len, path);
	}
	if (r == 0 && seeks && ftruncate(fd, (off_t)offset) < 0)
		return local_error(copying, path, "cannot write it");
	return r;
}

int content_write_begin(abox_files *files, uint32_t place, const char *path, uint32_t flags, uint32_t mode,
	uint32_t *retnumber, abox_error **reterr)
{
	struct pack_writer writer;
	struct pack_reader reader;
	uint32_t number;
	int r;

	files_begin(files, &writer, FILE_WRITE_BEGIN);
	pack_u32(&writer, place);
	pack_string(&writer, path);
	pack_u32(&writer, flags);
	pack_u32(&writer, mode);
	r = files_call(files, &writer, NULL, &reader, reterr);
	if (r < 0)
		return r;
	number = unpack_u32(&reader);
	if (!unpack_done(&reader))
		return files_protocol(files, reterr);
	*retnumber = number;
	return 0;
}

static int write_piece(
	abox_files *files, uint32_t number, uint64_t hole, const void *data, size_t len, abox_error **reterr)
{
	struct pack_writer writer;

	files_begin(files, &writer, FILE_WRITE);
	pack_u32(&writer, number);
	pack_u64(&writer, hole);
	pack_bytes(&writer, data, len);
	return files_call_plain(files, &writer, reterr);
}

int content_write_end(abox_files *files, uint32_t number, bool sync, int64_t seconds, uint32_t nanoseconds,
	abox_error **reterr)
{
	struct file_entry entry;
	struct pack_writer writer;

	files_begin(files, &writer, FILE_WRITE_END);
	pack_u32(&writer, number);
	pack_u8(&writer, sync);
	pack_u64(&writer, (uint64_t)seconds);
	pack_u32(&writer, nanoseconds);
	return files_call_entry(files, &writer, NULL, &entry, reterr);
}

/* The hole at the offset of the descriptor, which stands behind it afterwards; *retmax: data behind it. */
static uint64_t local_hole(int fd, uint64_t offset, uint64_t size, uint64_t *retmax)
{
	off_t data = lseek(fd, (off_t)offset, SEEK_DATA), end;

	*retmax = UINT64_MAX;
	if (data < 0 && errno == ENXIO) {
		*retmax = 0;
		return size > offset ? size - offset : 0;
	}
	end = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
	if (data < 0 || end < 0 || (uint64_t)data < offset || lseek(fd, data, SEEK_SET) < 0) {
		if (lseek(fd, (off_t)offset, SEEK_SET) < 0)
			*retmax = 0;
		return 0;
	}
	*retmax = (uint64_t)(end - data);
	return (uint64_t)data - offset;
}

int content_put(struct copying *copying, uint32_t number, int fd, bool seeks, uint64_t size, const char *path)
{
	_cleanup_(freep) uint8_t *piece = malloc(FILE_DATA_MAX);
	uint64_t offset = 0, data_left = 0;
	int r = 0;

	if (!piece)
		return ABOX_E_MEMORY;
	while (r == 0 && offset < size) {
		uint64_t hole = 0, max = MIN(size - offset, (uint64_t)FILE_DATA_MAX);
		ssize_t n = 0;

		if (seeks && data_left == 0) {
			hole = MIN(local_hole(fd, offset, size, &data_left), size - offset);
			max = MIN(size - offset - hole, (uint64_t)FILE_DATA_MAX);
		}
		if (seeks)
			max = MIN(max, data_left);
		if (max > 0)
			n = fd_read_all(fd, piece, (size_t)max);
		if (n < 0) {
			errno = (int)-n;
			return local_error(copying, path, "cannot read it");
		}
		if (n == 0 && hole == 0)
			break;	/* shorter than it was */
		r = write_piece(copying->files, number, hole, piece, (size_t)n, copying->reterr);
		offset += hole + (uint64_t)n;
		data_left -= MIN(data_left, (uint64_t)n);
		if (r == 0)
			r = copying_count(copying, 0, (uint64_t)n, path);
	}
	return r;
}

int abox_files_read(abox_files *files, const char *path, uint32_t flags, uint64_t max_bytes, char **retdata,
	size_t *retlen, abox_error **reterr)
{
	_cleanup_(freep) char *data = NULL;
	struct file_entry entry;
	uint64_t used = 0;
	bool end = false;
	uint32_t number;
	int r;

	if (!files || !path || !retdata || (flags & ~(uint32_t)ABOX_FILE_NO_FOLLOW))
		return error_set(reterr, ABOX_E_INVALID, FILE_STAGE, NULL,
			"files, a path, flags that are known and retdata are required");
	r = content_read_begin(files, 0, path, !(flags & ABOX_FILE_NO_FOLLOW), &number, &entry, reterr);
	if (r < 0)
		return r;
	if (entry.size > (max_bytes ? max_bytes : READ_MAX_DEFAULT))
		r = error_set(reterr, ABOX_E_LIMIT, FILE_STAGE, path, "it is longer than was allowed");
	else if (!(data = calloc(1, (size_t)entry.size + 1)))
		r = ABOX_E_MEMORY;
	while (r == 0 && !end && used < entry.size) {
		uint64_t hole = 0;
		const void *piece = NULL;
		size_t len = 0;

		r = read_piece(files, number, entry.size - used, &hole, &piece, &len, &end, reterr);
		if (r < 0)
			break;
		used += hole;
		memcpy(data + used, piece, len);
		used += len;
	}
	files_close_number(files, number);
	if (r < 0)
		return r;
	if (retlen)
		*retlen = (size_t)used;
	*retdata = steal_ptr(data);
	return 0;
}

int abox_files_read_to(abox_files *files, const char *path, uint32_t flags, int fd,
	const struct abox_copy_options *options, abox_error **reterr)
{
	_cleanup_(copying_clear) struct copying copying = { 0 };
	struct file_entry entry;
	uint32_t number;
	int r;

	if (!files || !path || fd < 0 || (flags & ~(uint32_t)ABOX_FILE_NO_FOLLOW))
		return error_set(reterr, ABOX_E_INVALID, FILE_STAGE, NULL,
			"files, a path, flags that are known and a descriptor are required");
	r = copying_begin(&copying, files, options, reterr);
	if (r == 0)
		r = content_read_begin(files, 0, path, !(flags & ABOX_FILE_NO_FOLLOW), &number, &entry, reterr);
	if (r < 0)
		return r;
	r = content_get(&copying, number, entry.size, fd, false, path);
	files_close_number(files, number);
	return r;
}

static uint32_t wire_flags(uint32_t flags)
{
	return (flags & ABOX_FILE_PARENTS ? (uint32_t)FILE_WRITE_PARENTS : 0) |
		(flags & ABOX_FILE_ATOMIC ? (uint32_t)FILE_WRITE_ATOMIC : 0) |
		(flags & ABOX_FILE_NEW ? (uint32_t)FILE_WRITE_NEW : 0);
}

int abox_files_write(abox_files *files, const char *path, uint32_t flags, uint32_t mode, const void *data, size_t len,
	abox_error **reterr)
{
	const uint8_t *bytes = data;
	uint32_t number = 0;
	int r;

	if (!files || !path || (!data && len) || (flags & ~(uint32_t)WRITE_FLAGS))
		return error_set(reterr, ABOX_E_INVALID, FILE_STAGE, NULL,
			"files, a path, flags that are known and data are required");
	r = content_write_begin(files, 0, path, wire_flags(flags), mode, &number, reterr);
	if (r < 0)
		return r;
	while (r == 0 && len > 0) {
		size_t n = MIN(len, (size_t)FILE_DATA_MAX);

		r = write_piece(files, number, 0, bytes, n, reterr);
		bytes += n;
		len -= n;
	}
	if (r == 0)
		return content_write_end(files, number, flags & ABOX_FILE_SYNC, 0, FILE_NO_TIME, reterr);
	files_close_number(files, number);
	return r;
}

int abox_files_write_from(abox_files *files, const char *path, uint32_t flags, uint32_t mode, int fd,
	const struct abox_copy_options *options, abox_error **reterr)
{
	_cleanup_(copying_clear) struct copying copying = { 0 };
	uint32_t number = 0;
	int r;

	if (!files || !path || fd < 0 || (flags & ~(uint32_t)WRITE_FLAGS))
		return error_set(reterr, ABOX_E_INVALID, FILE_STAGE, NULL,
			"files, a path, flags that are known and a descriptor are required");
	r = copying_begin(&copying, files, options, reterr);
	if (r == 0)
		r = content_write_begin(files, 0, path, wire_flags(flags), mode, &number, reterr);
	if (r < 0)
		return r;
	r = content_put(&copying, number, fd, false, UINT64_MAX, path);
	if (r == 0)
		return content_write_end(files, number, flags & ABOX_FILE_SYNC, 0, FILE_NO_TIME, reterr);
	files_close_number(files, number);
	return r;
}
