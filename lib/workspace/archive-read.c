/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reading tar archives that anybody may have made. What is promised: each number is checked before it is
 * used, memory is bounded whatever the archive says, and what is not understood is refused. What is left to
 * others: whether an entry may be put anywhere.
 */
#include "workspace/archive.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/error.h"
#include "base/fd.h"
#include "workspace/archive-pax.h"

#define BLOCK 512
#define IN_BYTES (128 * 1024)
#define OUT_BYTES (256 * 1024)
#define RUNS_MAX 1000000 /* of one sparse file */

struct archive_reader {
	int fd;
	const uint8_t *memory; /* instead of fd */
	size_t memory_len;
	z_stream stream;
	bool started;
	bool gzip;
	bool stream_ended;
	bool input_ended;
	size_t in_begin, in_end;
	size_t out_begin, out_end;
	uint64_t left; /* of the entry's data, padding not counted */
	uint64_t padding;
	const struct content_run *run; /* of a sparse entry: where the data goes */
	struct content_run *runs;
	size_t n_runs;
	size_t next_run;
	uint64_t in_run;
	uint64_t file_offset;
	bool sparse;
	uint8_t in[IN_BYTES];
	uint8_t out[OUT_BYTES];
};

int archive_reader_new(int fd, struct archive_reader **ret)
{
	struct archive_reader *reader = calloc(1, sizeof(*reader));

	if (!reader)
		return ABOX_E_MEMORY;
	reader->fd = fd;
	*ret = reader;
	return 0;
}

int archive_reader_new_memory(const void *data, size_t len, struct archive_reader **ret)
{
	int r = archive_reader_new(-EBADF, ret);

	if (r < 0)
		return r;
	(*ret)->memory = data;
	(*ret)->memory_len = len;
	return 0;
}

void archive_reader_freep(struct archive_reader **reader)
{
	if (!*reader)
		return;
	if ((*reader)->gzip)
		inflateEnd(&(*reader)->stream);
	free((*reader)->runs);
	free(*reader);
	*reader = NULL;
}

static int fill_input(struct archive_reader *reader, abox_error **reterr)
{
	ssize_t n;

	if (reader->in_begin < reader->in_end || reader->input_ended)
		return 0;
	if (reader->memory) {
		n = (ssize_t)MIN(reader->memory_len, (size_t)IN_BYTES);
		memcpy(reader->in, reader->memory, (size_t)n);
		reader->memory += n;
		reader->memory_len -= (size_t)n;
	} else
		n = fd_read_all(reader->fd, reader->in, IN_BYTES);
	if (n < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_WORKSPACE, NULL, (int)-n, "cannot read the archive");
	reader->in_begin = 0;
	reader->in_end = (size_t)n;
	reader->input_ended = n == 0;
	return 0;
}

/* Archives packed by other means are named, so that nobody wonders about "damaged". */
static int refuse_other_packing(const struct archive_reader *reader, abox_error **reterr)
{
	static const struct {
		const char *magic;
		size_t len;
		const char *name;
	} others[] = {{"\xfd"
		       "7zXZ",
			      5, "xz"},
		{"BZh", 3, "bzip2"}, {"\x28\xb5\x2f\xfd", 4, "zstd"}, {"PK\x03\x04", 4, "zip"}};

	for (size_t i = 0; i < ELEMENTSOF(others); i++)
		if (reader->in_end >= others[i].len &&
			memcmp(reader->in, others[i].magic, others[i].len) == 0)
			return error_set(reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_WORKSPACE, NULL,
				"archives in %s are not read; use tar or tar.gz", others[i].name);
	return 0;
}

static int start(struct archive_reader *reader, abox_error **reterr)
{
	int r;

	reader->started = true;
	r = fill_input(reader, reterr);
	if (r < 0)
		return r;
	if (reader->in_end >= 2 && reader->in[0] == 0x1f && reader->in[1] == 0x8b) {
		if (inflateInit2(&reader->stream, 15 + 16) != Z_OK)
			return ABOX_E_MEMORY;
		reader->gzip = true;
		return 0;
	}
	return refuse_other_packing(reader, reterr);
}

static int inflate_more(struct archive_reader *reader, abox_error **reterr)
{
	int state;

	if (reader->stream_ended) {
		/* One gzip file may follow another, and means one longer text. */
		if (inflateReset(&reader->stream) != Z_OK)
			return archive_damaged(reterr, "bad gzip data");
		reader->stream_ended = false;
	}
	reader->stream.next_in = reader->in + reader->in_begin;
	reader->stream.avail_in = (uInt)(reader->in_end - reader->in_begin);
	reader->stream.next_out = reader->out;
	reader->stream.avail_out = OUT_BYTES;
	state = inflate(&reader->stream, Z_NO_FLUSH);
	reader->in_begin = reader->in_end - reader->stream.avail_in;
	reader->out_begin = 0;
	reader->out_end = OUT_BYTES - reader->stream.avail_out;
	reader->stream_ended = state == Z_STREAM_END;
	if (state == Z_MEM_ERROR)
		return ABOX_E_MEMORY;
	return state == Z_OK || state == Z_STREAM_END || state == Z_BUF_ERROR
		       ? 0
		       : archive_damaged(reterr, "bad gzip data");
}

/* Makes sure that there is something in `out`; 0 at the end of all. */
static int fill_output(struct archive_reader *reader, abox_error **reterr)
{
	int r = 0;

	if (!reader->started)
		r = start(reader, reterr);
	while (r >= 0 && reader->out_begin == reader->out_end) {
		r = fill_input(reader, reterr);
		if (r < 0)
			return r;
		if (reader->in_begin == reader->in_end)
			return reader->gzip && !reader->stream_ended
				       ? archive_damaged(reterr, "it ends in the middle")
				       : 0;
		if (reader->gzip)
			r = inflate_more(reader, reterr);
		else {
			reader->out_begin = 0;
			reader->out_end = reader->in_end - reader->in_begin;
			memcpy(reader->out, reader->in + reader->in_begin, reader->out_end);
			reader->in_begin = reader->in_end;
		}
	}
	return r < 0 ? r : 1;
}

/* Exactly len bytes; 0 when there was nothing at all and may_end is set. */
static int read_exactly(
	struct archive_reader *reader, void *data, size_t len, bool may_end, abox_error **reterr)
{
	uint8_t *to = data;
	size_t got = 0;

	while (got < len) {
		size_t n;
		int r = fill_output(reader, reterr);

		if (r < 0)
			return r;
		if (r == 0)
			return got == 0 && may_end ? 0 : archive_damaged(reterr, "it ends in the middle");
		n = MIN(len - got, reader->out_end - reader->out_begin);
		memcpy(to + got, reader->out + reader->out_begin, n);
		reader->out_begin += n;
		got += n;
	}
	return 1;
}

static int skip(struct archive_reader *reader, uint64_t len, abox_error **reterr)
{
	while (len > 0) {
		size_t n;
		int r = fill_output(reader, reterr);

		if (r <= 0)
			return r < 0 ? r : archive_damaged(reterr, "it ends in the middle");
		n = (size_t)MIN(len, (uint64_t)(reader->out_end - reader->out_begin));
		reader->out_begin += n;
		len -= n;
	}
	return 0;
}

/* A number of a header: octal text, or GNU's base 256. */
static bool parse_number(const uint8_t *field, size_t size, int64_t *ret)
{
	uint64_t value = 0;
	size_t i = 0;

	if (field[0] & 0x80) {
		bool negative = field[0] == 0xff;

		value = negative ? UINT64_MAX : 0;
		if (!negative && field[0] != 0x80)
			return false;
		for (i = 1; i < size; i++) {
			uint8_t top = (uint8_t)(value >> 56);

			if (top != (negative ? 0xff : 0))
				return false;
			value = value << 8 | field[i];
		}
		if ((value >> 63) != (negative ? 1U : 0U))
			return false;
		*ret = (int64_t)value;
		return true;
	}
	while (i < size && field[i] == ' ')
		i++;
	for (; i < size && field[i] >= '0' && field[i] <= '7'; i++) {
		if (value >> 60)
			return false;
		value = value << 3 | (uint64_t)(field[i] - '0');
	}
	for (; i < size; i++)
		if (field[i] != 0 && field[i] != ' ')
			return false;
	*ret = (int64_t)value;
	return true;
}

/* The data of a header that describes another entry: whole, in memory. */
static int read_small(struct archive_reader *reader, uint64_t size, char **ret, abox_error **reterr)
{
	_cleanup_(freep) char *data = NULL;
	int r;

	if (size > ARCHIVE_HEADER_MAX)
		return archive_damaged(reterr, "a header is too long");
	data = malloc((size_t)size + 1);
	if (!data)
		return ABOX_E_MEMORY;
	r = size > 0 ? read_exactly(reader, data, (size_t)size, false, reterr) : 1;
	if (r >= 0)
		r = skip(reader, (BLOCK - size % BLOCK) % BLOCK, reterr);
	if (r < 0)
		return r;
	data[size] = 0;
	*ret = steal_ptr(data);
	return 0;
}

static int read_extension(struct archive_reader *reader, char type, uint64_t size,
	struct extension *extension, abox_error **reterr)
{
	_cleanup_(freep) char *data = NULL;
	int r;

	r = read_small(reader, size, &data, reterr);
	if (r < 0)
		return r;
	if (type == 'L')
		return extension_set_text(&extension->path, data, strnlen(data, (size_t)size), reterr);
	if (type == 'K')
		return extension_set_text(&extension->target, data, strnlen(data, (size_t)size), reterr);
	return extension_take_records(extension, data, (size_t)size, reterr);
}

bool archive_path_normalize(char *path)
{
	char *to = path;

	if (path[0] == '/' || path[0] == 0 || strlen(path) > ARCHIVE_NAME_MAX)
		return false;
	for (const char *from = path; *from;) {
		size_t len = strcspn(from, "/");

		if (len == 2 && from[0] == '.' && from[1] == '.')
			return false;
		if (len > 255)
			return false;
		if (len > 0 && !(len == 1 && from[0] == '.')) {
			if (to != path)
				*to++ = '/';
			memmove(to, from, len);
			to += len;
		}
		from += len;
		from += *from == '/';
	}
	*to = 0;
	return true;
}

static int add_run(
	struct archive_reader *reader, uint64_t offset, uint64_t len, uint64_t file_size, abox_error **reterr)
{
	const struct content_run *last = reader->n_runs > 0 ? &reader->runs[reader->n_runs - 1] : NULL;
	struct content_run *runs;

	if (offset > file_size || len > file_size - offset || (last && offset < last->offset + last->len))
		return archive_damaged(reterr, "the map of a sparse file cannot be");
	if (len == 0)
		return 0;
	if (reader->n_runs >= RUNS_MAX)
		return archive_damaged(reterr, "the map of a sparse file is too long");
	if ((reader->n_runs & (reader->n_runs - 1)) == 0) {
		runs = realloc(reader->runs, (reader->n_runs ? reader->n_runs * 2 : 1) * sizeof(*runs));
		if (!runs)
			return ABOX_E_MEMORY;
		reader->runs = runs;
	}
	reader->runs[reader->n_runs++] = (struct content_run){offset, len};
	return 0;
}

/* One decimal line of a map within the data of the entry. */
static int read_map_number(struct archive_reader *reader, uint64_t *ret, uint64_t *used, abox_error **reterr)
{
	char digits[24];
	size_t n = 0;
	int r;

	for (;;) {
		char c;

		if (*used >= reader->left)
			return archive_damaged(reterr, "the map of a sparse file is cut off");
		r = read_exactly(reader, &c, 1, false, reterr);
		if (r < 0)
			return r;
		(*used)++;
		if (c == '\n')
			break;
		if (n >= sizeof(digits))
			return archive_damaged(reterr, "the map of a sparse file cannot be read");
		digits[n++] = c;
	}
	return archive_parse_decimal(digits, n, ret)
		       ? 0
		       : archive_damaged(reterr, "the map of a sparse file cannot be read");
}

static int read_map(struct archive_reader *reader, uint64_t file_size, abox_error **reterr)
{
	uint64_t n, used = 0, sum = 0;
	int r;

	r = read_map_number(reader, &n, &used, reterr);
	for (uint64_t i = 0; r >= 0 && i < n; i++) {
		uint64_t offset = 0, len = 0;

		r = read_map_number(reader, &offset, &used, reterr);
		if (r >= 0)
			r = read_map_number(reader, &len, &used, reterr);
		if (r >= 0)
			r = add_run(reader, offset, len, file_size, reterr);
		sum += len; /* bounded by the file's size, as the runs do not overlap */
	}
	if (r < 0)
		return r;
	if (used % BLOCK != 0) {
		uint64_t rest = BLOCK - used % BLOCK;

		if (rest > reader->left - used)
			return archive_damaged(reterr, "the map of a sparse file is cut off");
		r = skip(reader, rest, reterr);
		used += rest;
	}
	reader->left -= used;
	if (r >= 0 && sum != reader->left)
		r = archive_damaged(reterr, "a sparse file and its map do not agree");
	return r;
}

/* GNU's own form: four pieces in the header, more in blocks that follow it. */
static int read_gnu_map(
	struct archive_reader *reader, const uint8_t *header, uint64_t *retsize, abox_error **reterr)
{
	uint8_t block[BLOCK];
	const uint8_t *pieces = header + 386;
	size_t n_pieces = 4;
	bool more = header[482] != 0;
	int64_t real;
	uint64_t sum = 0;
	int r = 0;

	if (!parse_number(header + 483, 12, &real) || real < 0)
		return archive_damaged(reterr, "the size of a sparse file cannot be read");
	*retsize = (uint64_t)real;
	for (;;) {
		for (size_t i = 0; i < n_pieces && pieces[i * 24] != 0; i++) {
			int64_t offset, len;

			if (!parse_number(pieces + i * 24, 12, &offset) ||
				!parse_number(pieces + i * 24 + 12, 12, &len) || offset < 0 || len < 0)
				return archive_damaged(reterr, "the map of a sparse file cannot be read");
			r = add_run(reader, (uint64_t)offset, (uint64_t)len, *retsize, reterr);
			if (r < 0)
				return r;
			sum += (uint64_t)len;
		}
		if (!more)
			break;
		r = read_exactly(reader, block, BLOCK, false, reterr);
		if (r < 0)
			return r;
		pieces = block;
		n_pieces = 21;
		more = block[504] != 0;
	}
	return sum == reader->left ? 0 : archive_damaged(reterr, "a sparse file and its map do not agree");
}

static bool checksum_holds(const uint8_t *header)
{
	unsigned int sum = 0;
	int signed_sum = 0;
	int64_t wanted;

	for (size_t i = 0; i < BLOCK; i++) {
		uint8_t c = i >= 148 && i < 156 ? ' ' : header[i];

		sum += c;
		signed_sum += (int8_t)c;
	}
	return parse_number(header + 148, 8, &wanted) && (wanted == (int64_t)sum || wanted == signed_sum);
}

static bool is_zero(const uint8_t *block)
{
	for (size_t i = 0; i < BLOCK; i++)
		if (block[i] != 0)
			return false;
	return true;
}

/* Behind the end there may be padding and nothing else. */
static int check_end(struct archive_reader *reader, abox_error **reterr)
{
	for (;;) {
		int r = fill_output(reader, reterr);

		if (r <= 0)
			return r;
		for (; reader->out_begin < reader->out_end; reader->out_begin++)
			if (reader->out[reader->out_begin] != 0)
				return archive_damaged(reterr, "something follows its end");
	}
}

static int take_type(struct archive_entry *entry, char type, abox_error **reterr)
{
	switch (type) {
	case '0':
	case 0:
	case '7':
	case 'S':
		entry->type = ABOX_FILE_REGULAR;
		return 0;
	case '1':
		entry->type = ABOX_FILE_REGULAR;
		entry->hard_link = true;
		return 0;
	case '2':
		entry->type = ABOX_FILE_LINK;
		return 0;
	case '3':
	case '4':
		entry->type = ABOX_FILE_DEVICE;
		return 0;
	case '5':
		entry->type = ABOX_FILE_FOLDER;
		return 0;
	case '6':
		entry->type = ABOX_FILE_FIFO;
		return 0;
	default:
		return error_set(reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_WORKSPACE, entry->path,
			"the archive has an entry of a type that is not read (0x%02x)", (unsigned char)type);
	}
}

static int take_names(struct archive_entry *entry, struct extension *extension, const uint8_t *header)
{
	char name[100 + 155 + 2];
	bool ustar = memcmp(header + 257, "ustar\0", 6) == 0; /* GNU's own has no prefix there */
	size_t prefix_len = ustar ? strnlen((const char *)header + 345, 155) : 0, name_len;

	if (extension->sparse_name)
		entry->path = steal_ptr(extension->sparse_name);
	else if (extension->path)
		entry->path = steal_ptr(extension->path);
	else {
		memcpy(name, header + 345, prefix_len);
		if (prefix_len > 0)
			name[prefix_len++] = '/';
		name_len = strnlen((const char *)header, 100);
		memcpy(name + prefix_len, header, name_len);
		entry->path = archive_copy_text(name, prefix_len + name_len);
	}
	if (extension->target)
		entry->target = steal_ptr(extension->target);
	else if (header[157] != 0)
		entry->target = archive_copy_text(header + 157, strnlen((const char *)header + 157, 100));
	if (!entry->path || (header[157] != 0 && !entry->target))
		return ABOX_E_MEMORY;
	return 0;
}

static int take_numbers(struct archive_entry *entry, struct extension *extension, const uint8_t *header,
	uint64_t *retsize, abox_error **reterr)
{
	int64_t mode, uid, gid, size, mtime;

	if (!parse_number(header + 100, 8, &mode) || !parse_number(header + 108, 8, &uid) ||
		!parse_number(header + 116, 8, &gid) || !parse_number(header + 124, 12, &size) ||
		!parse_number(header + 136, 12, &mtime))
		return archive_damaged(reterr, "a number of a header is none");
	if (extension->has_uid)
		uid = (int64_t)extension->uid;
	if (extension->has_gid)
		gid = (int64_t)extension->gid;
	if (extension->has_size)
		size = (int64_t)extension->size;
	if (size < 0 || uid < 0 || gid < 0 || uid >= UINT32_MAX || gid >= UINT32_MAX || mode < 0)
		return archive_damaged(reterr, "a number of a header is out of range");
	entry->mode = (uint32_t)mode & 07777;
	entry->uid = (uint32_t)uid;
	entry->gid = (uint32_t)gid;
	entry->mtime_sec = extension->has_mtime ? extension->entry.mtime_sec : mtime;
	entry->mtime_nsec = extension->has_mtime ? extension->entry.mtime_nsec : 0;
	*retsize = (uint64_t)size;
	return 0;
}

/* The content: how much of it is in the archive, and where it goes in the file. */
static int take_content(struct archive_reader *reader, struct archive_entry *entry,
	const struct extension *extension, const uint8_t *header, uint64_t size, abox_error **reterr)
{
	bool regular = entry->type == ABOX_FILE_REGULAR && !entry->hard_link;
	bool pax_sparse = extension->has_major || extension->has_minor || extension->has_real;
	int r = 0;

	reader->left = size;
	reader->padding = (BLOCK - size % BLOCK) % BLOCK;
	entry->size = regular ? size : 0;
	if (!regular)
		return size > 0 ? archive_damaged(reterr, "an entry that has no content has some") : 0;
	if (pax_sparse) {
		if (extension->major != 1 || extension->minor != 0 || !extension->has_real ||
			!extension->has_major)
			return error_set(reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_WORKSPACE, entry->path,
				"this form of sparse file is not read");
		entry->size = extension->real;
		r = read_map(reader, entry->size, reterr);
	} else if (header[156] == 'S') {
		r = read_gnu_map(reader, header, &entry->size, reterr);
	}
	entry->sparse = pax_sparse || header[156] == 'S';
	if (r >= 0 && entry->size > INT64_MAX)
		r = archive_damaged(reterr, "a file is too long");
	return r;
}

static int finish_last(struct archive_reader *reader, abox_error **reterr)
{
	int r;

	r = skip(reader, reader->left, reterr);
	if (r >= 0)
		r = skip(reader, reader->padding, reterr);
	reader->left = reader->padding = 0;
	reader->n_runs = reader->next_run = 0;
	reader->in_run = reader->file_offset = 0;
	return r;
}

static int take_entry(struct archive_reader *reader, struct extension *extension, const uint8_t *header,
	struct archive_entry *entry, abox_error **reterr)
{
	uint64_t size = 0;
	int r;

	r = take_names(entry, extension, header);
	if (r >= 0)
		r = take_type(entry, (char)header[156], reterr);
	if (r >= 0)
		r = take_numbers(entry, extension, header, &size, reterr);
	if (r >= 0)
		r = take_content(reader, entry, extension, header, size, reterr);
	if (r < 0)
		return r;
	/* An old way to write a folder: a file whose name ends with a slash. */
	if (entry->type == ABOX_FILE_REGULAR && entry->path[0] && entry->path[strlen(entry->path) - 1] == '/')
		entry->type = ABOX_FILE_FOLDER;
	if (!archive_path_normalize(entry->path))
		return error_set(reterr, ABOX_E_ESCAPE, ABOX_STAGE_WORKSPACE, entry->path,
			"the archive has a path that leads outside, or none at all");
	if (entry->hard_link &&
		(!entry->target || !archive_path_normalize(entry->target) || !entry->target[0]))
		return error_set(reterr, ABOX_E_ESCAPE, ABOX_STAGE_WORKSPACE, entry->path,
			"the archive has a hard link to what lies outside");
	if (entry->type == ABOX_FILE_LINK && (!entry->target || strlen(entry->target) > 4095))
		return archive_damaged(reterr, "a symbolic link has no target, or one that is too long");
	entry->xattrs = steal_ptr(extension->entry.xattrs);
	entry->n_xattrs = extension->entry.n_xattrs;
	extension->entry.n_xattrs = 0;
	reader->sparse = entry->sparse;
	return 1;
}

static int next(struct archive_reader *reader, struct extension *extension, struct archive_entry *entry,
	abox_error **reterr)
{
	uint8_t header[BLOCK];
	bool extended = false;
	int r;

	for (;;) {
		int64_t size;

		r = read_exactly(reader, header, BLOCK, !extended, reterr);
		if (r <= 0)
			return r;
		if (is_zero(header))
			return extended ? archive_damaged(reterr, "it ends behind an extended header")
					: check_end(reader, reterr);
		if (!checksum_holds(header))
			return archive_damaged(reterr, "the checksum of a header is wrong");
		if (header[156] != 'x' && header[156] != 'g' && header[156] != 'L' && header[156] != 'K')
			return take_entry(reader, extension, header, entry, reterr);
		if (!parse_number(header + 124, 12, &size) || size < 0)
			return archive_damaged(reterr, "a number of a header is none");
		if (header[156] == 'g') {
			/* For all entries that follow. Nobody needs one; git writes a comment. */
			struct extension global = {0};

			r = read_extension(reader, 'g', (uint64_t)size, &global, reterr);
			if (r >= 0 && (global.path || global.target || global.has_size ||
					      global.entry.n_xattrs > 0 || global.has_major))
				r = error_set(reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_WORKSPACE, NULL,
					"the archive has names, sizes or attributes that are to hold for all "
					"entries");
			extension_clear(&global);
		} else {
			r = read_extension(reader, (char)header[156], (uint64_t)size, extension, reterr);
			extended = true;
		}
		if (r < 0)
			return r;
	}
}

int archive_reader_next(struct archive_reader *reader, struct archive_entry *ret, abox_error **reterr)
{
	struct archive_entry entry = {0};
	struct extension extension = {0};
	int r;

	r = finish_last(reader, reterr);
	if (r >= 0)
		r = next(reader, &extension, &entry, reterr);
	extension_clear(&extension);
	if (r <= 0) {
		archive_entry_clear(&entry);
		return r;
	}
	*ret = entry;
	return 1;
}

int archive_reader_data(struct archive_reader *reader, const void **retdata, size_t *retlen,
	uint64_t *retoffset, abox_error **reterr)
{
	uint64_t most = reader->left, offset = reader->file_offset;
	size_t n;
	int r;

	if (reader->left == 0)
		return 0;
	if (reader->sparse) {
		const struct content_run *run;

		while (reader->next_run < reader->n_runs &&
			reader->in_run == reader->runs[reader->next_run].len) {
			reader->next_run++;
			reader->in_run = 0;
		}
		if (reader->next_run == reader->n_runs)
			return archive_damaged(reterr, "a sparse file and its map do not agree");
		run = &reader->runs[reader->next_run];
		offset = run->offset + reader->in_run;
		most = MIN(most, run->len - reader->in_run);
	}
	r = fill_output(reader, reterr);
	if (r <= 0)
		return r < 0 ? r : archive_damaged(reterr, "it ends in the middle");
	n = (size_t)MIN(most, (uint64_t)(reader->out_end - reader->out_begin));
	*retdata = reader->out + reader->out_begin;
	*retlen = n;
	*retoffset = offset;
	reader->out_begin += n;
	reader->left -= n;
	reader->in_run += n;
	reader->file_offset += n;
	return 1;
}

void archive_entry_clear(struct archive_entry *entry)
{
	for (size_t i = 0; i < entry->n_xattrs; i++) {
		free(entry->xattrs[i].name);
		free(entry->xattrs[i].value);
	}
	free(entry->xattrs);
	free(entry->runs);
	free(entry->path);
	free(entry->target);
	*entry = (struct archive_entry){0};
}
