/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A change set as a patch that `git apply` takes. What a patch cannot say (empty folders, fifos, permission
 * bits other than the executable one, files above the bound) is named in lines before it, which git passes
 * over, or refused where the content would be missing. Contents are read from the trees again and checked
 * against the digests of the set.
 */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/error.h"
#include "base/fd.h"
#include "workspace/changes.h"
#include "workspace/lines.h"

#define CONTENT_MAX (512ULL * 1024 * 1024) /* git takes patches below 1 GiB */
#define BINARY_LOOK 8000                   /* as git: a NUL in the first bytes makes a file binary */
#define FLUSH_ABOVE (1024 * 1024)

struct content {
	char *data;
	size_t len;
};

struct writer {
	const struct view *now;
	const struct view *was;
	int fd;
	struct text text;
};

static int flush(struct writer *writer, size_t above, abox_error **reterr)
{
	int r;

	if (writer->text.failed)
		return ABOX_E_MEMORY;
	if (writer->text.len <= above)
		return 0;
	r = fd_write_all(writer->fd, writer->text.data, writer->text.len);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_WORKSPACE, NULL, -r, "cannot write the patch");
	text_clear(&writer->text);
	return 0;
}

/* As git: in quotes with C escapes when there is anything odd in it. */
static void add_path(struct text *text, const char *prefix, const char *path)
{
	bool odd = false;

	for (const unsigned char *c = (const unsigned char *)path; *c; c++)
		odd |= *c < 0x20 || *c >= 0x7f || *c == '"' || *c == '\\';
	if (!odd) {
		text_printf(text, "%s%s", prefix, path);
		return;
	}
	text_printf(text, "\"%s", prefix);
	for (const unsigned char *c = (const unsigned char *)path; *c; c++) {
		if (*c == '"' || *c == '\\')
			text_printf(text, "\\%c", *c);
		else if (*c < 0x20 || *c >= 0x7f)
			text_printf(text, "\\%03o", *c);
		else
			text_add_bytes(text, c, 1);
	}
	text_add(text, "\"");
}

/* A space ends a name in these two lines unless a tab follows it. */
static void add_name_line(struct text *text, const char *sign, const char *prefix, const char *path)
{
	text_add(text, sign);
	add_path(text, prefix, path);
	text_add(text, strchr(path, ' ') ? "\t\n" : "\n");
}

static uint32_t git_mode(const struct change_side *side)
{
	return side->type == ABOX_FILE_LINK ? 0120000 : side->mode & 0100 ? 0100755 : 0100644;
}

static bool has_content(const struct change_side *side)
{
	return side->type == ABOX_FILE_REGULAR || side->type == ABOX_FILE_LINK;
}

static int read_regular(const struct view *view, const char *path, const struct change_side *side,
	struct content *ret, abox_error **reterr)
{
	struct view_dir dir = VIEW_DIR_INIT;
	_cleanup_(fd_closep) int fd = -EBADF;
	_cleanup_(freep) char *data = NULL;
	char digest[DIGEST_TEXT_BYTES];
	struct view_entry entry;
	const char *name;
	size_t len;
	int r;

	r = view_find(view, path, &dir, &entry, &name);
	if (r >= 0) {
		r = entry.st.st_mode ? view_open_file(view, &dir, name, &entry, &fd) : -ENOENT;
		view_dir_clear(&dir);
	}
	if (r >= 0)
		r = fd_read_text(fd, CONTENT_MAX, &data, &len);
	if (r == -ENOMEM)
		return ABOX_E_MEMORY;
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_WORKSPACE, path, -r, "cannot read the file");
	r = digest_sha256_text(data, len, digest);
	if (r < 0)
		return r;
	if (strcmp(digest, side->digest) != 0)
		return error_set(reterr, ABOX_E_CONFLICT, ABOX_STAGE_WORKSPACE, path,
			"is no longer what the change set says");
	*ret = (struct content){steal_ptr(data), len};
	return 0;
}

static int read_content(const struct view *view, const char *path, const struct change_side *side,
	struct content *ret, abox_error **reterr)
{
	*ret = (struct content){0};
	if (!has_content(side))
		return 0;
	if (side->type == ABOX_FILE_LINK) {
		ret->data = strdup(side->target);
		ret->len = strlen(side->target);
		return ret->data ? 0 : ABOX_E_MEMORY;
	}
	if (side->size_bytes > CONTENT_MAX)
		return error_set(reterr, ABOX_E_LIMIT, ABOX_STAGE_WORKSPACE, path,
			"is too large for a patch; export it instead");
	return read_regular(view, path, side, ret, reterr);
}

static bool is_binary(const struct content *content)
{
	return content->len > 0 && memchr(content->data, 0, MIN(content->len, BINARY_LOOK)) != NULL;
}

/* Lines of at most 52 bytes: a letter for their number, then five characters for four bytes. */
static void add_base85(struct text *text, const uint8_t *data, size_t len)
{
	static const char digits[] =
		"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

	while (len > 0) {
		size_t n = MIN(len, 52);
		char line[1 + 65 + 1], *to = line;

		*to++ = (char)(n <= 26 ? 'A' + n - 1 : 'a' + n - 27);
		for (size_t i = 0; i < n; i += 4) {
			uint32_t value = 0;

			for (size_t k = 0; k < 4; k++)
				value = value << 8 | (i + k < n ? data[i + k] : 0);
			for (int k = 4; k >= 0; k--) {
				to[k] = digits[value % 85];
				value /= 85;
			}
			to += 5;
		}
		*to++ = '\n';
		text_add_bytes(text, line, (size_t)(to - line));
		data += n;
		len -= n;
	}
}

static int add_literal(struct text *text, const struct content *content)
{
	_cleanup_(freep) uint8_t *packed = NULL;
	uLongf len = compressBound(content->len);

	packed = malloc(len);
	if (!packed || compress2(packed, &len, (const Bytef *)(content->data ? content->data : ""),
			       content->len, 6) != Z_OK)
		return ABOX_E_MEMORY;
	text_printf(text, "literal %zu\n", content->len);
	add_base85(text, packed, len);
	text_add(text, "\n");
	return 0;
}

static int add_index(
	struct text *text, const struct content *was, const struct content *now, bool is_old, bool is_new)
{
	char old_id[DIGEST_GIT_TEXT_BYTES], new_id[DIGEST_GIT_TEXT_BYTES];
	int r;

	memset(old_id, '0', sizeof(old_id) - 1);
	memset(new_id, '0', sizeof(new_id) - 1);
	old_id[sizeof(old_id) - 1] = new_id[sizeof(new_id) - 1] = 0;
	r = is_old ? digest_git_blob(was->data, was->len, old_id) : 0;
	if (r >= 0 && is_new)
		r = digest_git_blob(now->data, now->len, new_id);
	if (r >= 0)
		text_printf(text, "index %s..%s\n", old_id, new_id);
	return r;
}

/* The body of one file: from `was` to `now`, either of which may not be there. */
static int add_body(struct text *text, const char *path, const struct content *was, const struct content *now,
	bool is_old, bool is_new)
{
	int r;

	r = add_index(text, was, now, is_old, is_new);
	if (r < 0)
		return r;
	if (is_binary(was) || is_binary(now)) {
		text_add(text, "GIT binary patch\n");
		r = add_literal(text, now);
		return r < 0 ? r : add_literal(text, was);
	}
	if (was->len == 0 && now->len == 0)
		return 0;
	add_name_line(text, "--- ", is_old ? "a/" : "", is_old ? path : "/dev/null");
	add_name_line(text, "+++ ", is_new ? "b/" : "", is_new ? path : "/dev/null");
	return lines_diff(was->data, was->len, now->data, now->len, text);
}

static void add_head(struct text *text, const char *from, const char *to)
{
	text_add(text, "diff --git ");
	add_path(text, "a/", from);
	text_add(text, " ");
	add_path(text, "b/", to);
	text_add(text, "\n");
}

/* Whole files that come or go. */
static int add_whole(struct writer *writer, const char *path, const struct change_side *side, bool is_new,
	abox_error **reterr)
{
	struct content content, nothing = {0};
	int r;

	r = read_content(is_new ? writer->now : writer->was, path, side, &content, reterr);
	if (r < 0)
		return r;
	add_head(&writer->text, path, path);
	text_printf(&writer->text, "%s file mode %06o\n", is_new ? "new" : "deleted", git_mode(side));
	r = is_new ? add_body(&writer->text, path, &nothing, &content, false, true)
		   : add_body(&writer->text, path, &content, &nothing, true, false);
	free(content.data);
	return r;
}

static int add_modified(struct writer *writer, const struct change *change, abox_error **reterr)
{
	struct content was = {0}, now = {0};
	uint32_t old_mode = git_mode(&change->was), new_mode = git_mode(&change->now);
	int r = 0;

	if (change->kind == ABOX_CHANGE_MODE && old_mode == new_mode)
		return 0;
	if (change->kind == ABOX_CHANGE_MODIFIED) {
		r = read_content(writer->was, change->path, &change->was, &was, reterr);
		if (r >= 0)
			r = read_content(writer->now, change->path, &change->now, &now, reterr);
	}
	if (r >= 0) {
		add_head(&writer->text, change->path, change->path);
		if (old_mode != new_mode)
			text_printf(&writer->text, "old mode %06o\nnew mode %06o\n", old_mode, new_mode);
		if (change->kind == ABOX_CHANGE_MODIFIED)
			r = add_body(&writer->text, change->path, &was, &now, true, true);
	}
	free(was.data);
	free(now.data);
	return r;
}

static void add_rename(struct text *text, const struct change *change)
{
	uint32_t old_mode = change->other_mode & 0100 ? 0100755 : 0100644;

	add_head(text, change->other, change->path);
	if (old_mode != git_mode(&change->now))
		text_printf(text, "old mode %06o\nnew mode %06o\n", old_mode, git_mode(&change->now));
	text_add(text, "similarity index 100%\nrename from ");
	add_path(text, "", change->other);
	text_add(text, "\nrename to ");
	add_path(text, "", change->path);
	text_add(text, "\n");
}

static int add_change(struct writer *writer, const struct change *change, abox_error **reterr)
{
	int r = 0;

	switch (change->kind) {
	case ABOX_CHANGE_ADDED:
		if (change->other) {
			add_rename(&writer->text, change);
			return 0;
		}
		return has_content(&change->now) ? add_whole(writer, change->path, &change->now, true, reterr)
						 : 0;
	case ABOX_CHANGE_DELETED:
		if (change->other || !has_content(&change->was))
			return 0;
		return add_whole(writer, change->path, &change->was, false, reterr);
	case ABOX_CHANGE_TYPE:
		if (has_content(&change->was))
			r = add_whole(writer, change->path, &change->was, false, reterr);
		if (r >= 0 && has_content(&change->now))
			r = add_whole(writer, change->path, &change->now, true, reterr);
		return r;
	default:
		return has_content(&change->now) ? add_modified(writer, change, reterr) : 0;
	}
}

/* What git has no words for. A folder that something is put into needs none. */
static const char *left_out(const abox_changes *changes, size_t i)
{
	const struct change *change = &changes->items[i];
	int type = change->now.type ? change->now.type : change->was.type;

	if (type == ABOX_FILE_FIFO || type == ABOX_FILE_SOCKET || type == ABOX_FILE_DEVICE)
		return file_type_name(type);
	if (change->kind == ABOX_CHANGE_MODE &&
		(type == ABOX_FILE_FOLDER || git_mode(&change->was) == git_mode(&change->now)))
		return "permission bits";
	if (change->kind == ABOX_CHANGE_ADDED && type == ABOX_FILE_FOLDER) {
		size_t len = strlen(change->path);

		if (i + 1 >= changes->n_items ||
			strncmp(changes->items[i + 1].path, change->path, len) != 0 ||
			changes->items[i + 1].path[len] != '/')
			return "empty folder";
	}
	return NULL;
}

int patch_write(const abox_changes *changes, const struct view *now, const struct view *was, int fd,
	abox_error **reterr)
{
	struct writer writer = {.now = now, .was = was, .fd = fd};
	int r = 0;

	for (size_t i = 0; i < changes->n_items; i++) {
		const char *what = left_out(changes, i);

		if (!what)
			continue;
		text_printf(&writer.text, "# not in this patch: %s of ", what);
		add_path(&writer.text, "", changes->items[i].path);
		text_add(&writer.text, "\n");
	}
	for (size_t i = 0; i < changes->n_items && r >= 0; i++) {
		if (!progress_add(now->progress, 1, changes->items[i].now.size_bytes))
			r = error_set(reterr, ABOX_E_CANCELED, ABOX_STAGE_WORKSPACE, changes->items[i].path, "the caller wants an end");
		else
			r = add_change(&writer, &changes->items[i], reterr);
		if (r >= 0)
			r = flush(&writer, FLUSH_ABOVE, reterr);
	}
	if (r >= 0)
		r = flush(&writer, 0, reterr);
	text_clear(&writer.text);
	return r;
}
