/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Extended headers. Keys that we do not keep (times of access, comments, names of users) are passed over; a
 * value that cannot be what its key says is damage.
 */
#include "workspace/archive-pax.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

int archive_damaged(abox_error **reterr, const char *what)
{
	return error_set(
		reterr, ABOX_E_DAMAGED, ABOX_STAGE_WORKSPACE, NULL, "the archive is damaged: %s", what);
}

bool archive_parse_decimal(const char *text, size_t len, uint64_t *ret)
{
	uint64_t value = 0;

	if (len == 0 || len > 20)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9' || __builtin_mul_overflow(value, 10, &value) ||
			__builtin_add_overflow(value, (uint64_t)(text[i] - '0'), &value))
			return false;
	}
	*ret = value;
	return true;
}

static bool parse_time(const char *text, size_t len, struct archive_entry *entry)
{
	bool negative = len > 0 && text[0] == '-';
	const char *point;
	uint64_t seconds;
	uint32_t nsec = 0, scale = 100000000;
	size_t whole;

	text += negative;
	len -= negative;
	point = memchr(text, '.', len);
	whole = point ? (size_t)(point - text) : len;
	if (!archive_parse_decimal(text, whole, &seconds) || seconds > INT64_MAX / 2)
		return false;
	for (size_t i = whole + 1; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		nsec += (uint32_t)(text[i] - '0') * scale;
		scale /= 10;
	}
	entry->mtime_sec = negative ? -(int64_t)seconds : (int64_t)seconds;
	entry->mtime_nsec = nsec;
	if (negative && nsec > 0) {
		entry->mtime_sec--;
		entry->mtime_nsec = 1000000000U - nsec;
	}
	return true;
}

char *archive_copy_text(const void *data, size_t len)
{
	char *copy = memchr(data, 0, len) ? NULL : malloc(len + 1);

	if (!copy)
		return NULL;
	memcpy(copy, data, len);
	copy[len] = 0;
	return copy;
}

void extension_clear(struct extension *extension)
{
	free(extension->path);
	free(extension->target);
	free(extension->sparse_name);
	archive_entry_clear(&extension->entry);
	*extension = (struct extension){0};
}

int extension_set_text(char **to, const char *value, size_t len, abox_error **reterr)
{
	char *copy;

	if (len == 0 || len > ARCHIVE_NAME_MAX || memchr(value, 0, len))
		return archive_damaged(reterr, "a name is empty, too long or holds a NUL");
	copy = archive_copy_text(value, len);
	if (!copy)
		return ABOX_E_MEMORY;
	free(*to);
	*to = copy;
	return 0;
}

static int add_xattr(struct archive_entry *entry, const char *name, size_t name_len, const void *value,
	size_t len, abox_error **reterr)
{
	struct archive_xattr *xattrs;

	if (entry->n_xattrs >= ARCHIVE_XATTRS_MAX || name_len == 0 || name_len > 255 || len > 65536 ||
		memchr(name, 0, name_len))
		return archive_damaged(reterr, "too many or too long attributes");
	xattrs = realloc(entry->xattrs, (entry->n_xattrs + 1) * sizeof(*xattrs));
	if (!xattrs)
		return ABOX_E_MEMORY;
	entry->xattrs = xattrs;
	xattrs[entry->n_xattrs] =
		(struct archive_xattr){archive_copy_text(name, name_len), malloc(len + 1), len};
	if (!xattrs[entry->n_xattrs].name || !xattrs[entry->n_xattrs].value) {
		free(xattrs[entry->n_xattrs].name);
		free(xattrs[entry->n_xattrs].value);
		return ABOX_E_MEMORY;
	}
	memcpy(xattrs[entry->n_xattrs].value, value, len);
	entry->n_xattrs++;
	return 0;
}

static int take_number(const char *value, size_t len, uint64_t *ret, bool *rethas, abox_error **reterr)
{
	if (!archive_parse_decimal(value, len, ret))
		return archive_damaged(reterr, "a number of an extended header is none");
	*rethas = true;
	return 0;
}

static int take_record(struct extension *extension, const char *key, size_t key_len, const char *value,
	size_t len, abox_error **reterr)
{
#define IS(name) (key_len == sizeof(name) - 1 && memcmp(key, name, sizeof(name) - 1) == 0)
	static const char xattr[] = "SCHILY.xattr.";
	struct extension *e = extension;

	if (IS("path"))
		return extension_set_text(&e->path, value, len, reterr);
	if (IS("linkpath"))
		return extension_set_text(&e->target, value, len, reterr);
	if (IS("size"))
		return take_number(value, len, &e->size, &e->has_size, reterr);
	if (IS("uid"))
		return take_number(value, len, &e->uid, &e->has_uid, reterr);
	if (IS("gid"))
		return take_number(value, len, &e->gid, &e->has_gid, reterr);
	if (IS("mtime")) {
		if (!parse_time(value, len, &e->entry))
			return archive_damaged(reterr, "a time is none");
		e->has_mtime = true;
		return 0;
	}
	if (IS("GNU.sparse.major"))
		return take_number(value, len, &e->major, &e->has_major, reterr);
	if (IS("GNU.sparse.minor"))
		return take_number(value, len, &e->minor, &e->has_minor, reterr);
	if (IS("GNU.sparse.realsize"))
		return take_number(value, len, &e->real, &e->has_real, reterr);
	if (IS("GNU.sparse.name"))
		return extension_set_text(&e->sparse_name, value, len, reterr);
	if (key_len > 11 && memcmp(key, "GNU.sparse.", 11) == 0)
		return error_set(reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_WORKSPACE, NULL,
			"this old form of sparse files is not read; pack them with tar --format=pax");
	if (key_len > sizeof(xattr) - 1 && memcmp(key, xattr, sizeof(xattr) - 1) == 0)
		return add_xattr(&e->entry, key + sizeof(xattr) - 1, key_len - (sizeof(xattr) - 1), value,
			len, reterr);
	/* Times of access, comments, names of users, attributes in other spellings: nothing that we keep. */
	return 0;
#undef IS
}

int extension_take_records(struct extension *extension, const char *data, size_t len, abox_error **reterr)
{
	while (len > 0) {
		const char *space = memchr(data, ' ', MIN(len, 21)), *equals;
		uint64_t total;
		int r;

		if (!space || !archive_parse_decimal(data, (size_t)(space - data), &total) || total > len ||
			total < (uint64_t)(space - data) + 4 || data[total - 1] != '\n')
			return archive_damaged(reterr, "an extended header cannot be read");
		equals = memchr(space + 1, '=', (size_t)(data + total - 1 - (space + 1)));
		if (!equals || equals == space + 1)
			return archive_damaged(reterr, "an extended header cannot be read");
		r = take_record(extension, space + 1, (size_t)(equals - space - 1), equals + 1,
			(size_t)(data + total - 1 - (equals + 1)), reterr);
		if (r < 0)
			return r;
		data += total;
		len -= (size_t)total;
	}
	return 0;
}
