/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Unpacking: from a hostile archive to an empty folder that only we can see. An entry is put where nothing
 * is, below folders that are folders; so no order of entries can write through a link. Whatever is refused,
 * is refused with the whole archive.
 *
 * Two kinds are taken: any tar, where set-id bits and attributes that the host must not get are left out and
 * listed; and our own exports, which have none of those and carry a manifest. The manifest is not parsed but
 * made again from what was unpacked: the two must be the same bytes.
 */
#include "workspace/archive.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/path.h"
#include "workspace/archive-names.h"
#include "workspace/attribute.h"
#include "workspace/deep.h"

#define DEFAULT_BYTES (64ULL << 30)
#define DEFAULT_FILES 10000000ULL
#define LOST_LISTED 1000 /* the rest is counted */
#define DEPTH_MAX 4096

struct folder {
	char *path;
	uint32_t mode;
	uint32_t uid, gid;
	struct timespec mtime;
};

struct extraction {
	struct archive_reader *reader;
	int dir_fd;
	const struct layer_ids *ids;
	struct archive_bounds bounds;
	struct archive_lost *lost;
	bool strict;
	bool is_root;
	uint64_t n_bytes, n_files;
	struct folder *folders; /* modes and times come at the end: a folder may be read-only */
	size_t n_folders, n_allocated;
	int parent_fd; /* of the last entry: neighbours follow each other */
	char *parent;
	struct digest *manifest;
	uint64_t *line_hashes;
	size_t n_lines, n_lines_allocated;
};

void archive_lost_add(struct archive_lost *lost, const char *path, const char *what)
{
	if (lost->n_lost++ >= LOST_LISTED)
		return;
	text_add(&lost->list, lost->list.len ? ",{\"path\":" : "{\"path\":");
	text_add_json(&lost->list, path, strlen(path));
	text_printf(&lost->list, ",\"lost\":");
	text_add_json(&lost->list, what, strlen(what));
	text_add(&lost->list, "}");
}

void archive_lost_clear(struct archive_lost *lost)
{
	text_clear(&lost->list);
	lost->n_lost = 0;
}

static int refuse(abox_error **reterr, int code, const struct archive_entry *entry, const char *why)
{
	return error_set(reterr, code, ABOX_STAGE_WORKSPACE, entry->path, "the archive is refused: %s", why);
}

static int failed(abox_error **reterr, const struct archive_entry *entry, int r)
{
	switch (-r) {
	case ENOMEM:
		return ABOX_E_MEMORY;
	case EEXIST:
		return refuse(reterr, ABOX_E_DAMAGED, entry, "two entries for one path");
	case ELOOP:
	case ENOTDIR:
	case EXDEV:
		return refuse(reterr, ABOX_E_ESCAPE, entry, "its path leads through what is no folder");
	default:
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_WORKSPACE, entry->path, -r, "cannot unpack");
	}
}

static int note_folder(struct extraction *extraction, const struct archive_entry *entry)
{
	struct folder *folder;

	if (extraction->n_folders == extraction->n_allocated) {
		size_t allocated = extraction->n_allocated ? extraction->n_allocated * 2 : 64;
		struct folder *folders = realloc(extraction->folders, allocated * sizeof(*folders));

		if (!folders)
			return -ENOMEM;
		extraction->folders = folders;
		extraction->n_allocated = allocated;
	}
	folder = &extraction->folders[extraction->n_folders];
	*folder = (struct folder){strdup(entry->path), entry->mode, entry->uid, entry->gid,
		{entry->mtime_sec, entry->mtime_nsec}};
	if (!folder->path)
		return -ENOMEM;
	extraction->n_folders++;
	return 0;
}

/* Folders that an archive left out. Our own exports leave none out. */
static int make_parents(struct extraction *extraction, const char *path)
{
	_cleanup_(freep) char *prefix = strdup(path);

	if (!prefix)
		return -ENOMEM;
	for (char *slash = strchr(prefix, '/'); slash; slash = strchr(slash + 1, '/')) {
		_cleanup_(fd_closep) int fd = -EBADF;
		const char *name;

		*slash = 0;
		fd = deep_open_parent(extraction->dir_fd, prefix, &name);
		if (fd < 0)
			return fd;
		if (mkdirat(fd, name, 0755) == 0)
			extraction->n_files++;
		else if (errno != EEXIST)
			return -errno;
		*slash = '/';
	}
	return 0;
}

/* The folder of a path; kept for the neighbours. */
static int open_parent(struct extraction *extraction, const char *path, int *retfd, const char **retname)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;
	int fd;

	*retname = slash ? slash + 1 : path;
	if (extraction->parent && strncmp(extraction->parent, path, len) == 0 &&
		extraction->parent[len] == 0) {
		*retfd = extraction->parent_fd;
		return 0;
	}
	fd = deep_open_parent(extraction->dir_fd, path, retname);
	if (fd == -ENOENT && !extraction->strict) {
		int r = make_parents(extraction, path);

		fd = r < 0 ? r : deep_open_parent(extraction->dir_fd, path, retname);
	}
	if (fd < 0)
		return fd;
	fd_close(extraction->parent_fd);
	free(extraction->parent);
	extraction->parent_fd = *retfd = fd;
	extraction->parent = strndup(path, len);
	return extraction->parent ? 0 : -ENOMEM;
}

static int check_entry(struct extraction *extraction, struct archive_entry *entry, abox_error **reterr)
{
	size_t depth = 0;

	for (const char *c = entry->path; *c; c++)
		depth += *c == '/';
	if (depth > DEPTH_MAX)
		return refuse(reterr, ABOX_E_LIMIT, entry, "it is too deep");
	if (entry->type == ABOX_FILE_DEVICE)
		return refuse(reterr, ABOX_E_DENIED, entry, "it holds a device");
	if (++extraction->n_files > extraction->bounds.files)
		return refuse(reterr, ABOX_E_LIMIT, entry, "it holds more files than allowed");
	if (entry->mode & 06000) {
		if (extraction->strict)
			return refuse(reterr, ABOX_E_DENIED, entry, "it holds a set-id bit");
		/* A folder's bit says who owns new files in it; here that is settled. */
		archive_lost_add(extraction->lost, entry->path, "set-id bits");
		entry->mode &= 01777;
	}
	return 0;
}

/* Security: a capability would give a file rights that nobody granted; marks of an overlay would move
 * folders. */
static bool may_have(const char *name)
{
	return string_starts_with(name, "user.") && attribute_is_portable(name);
}

static int check_xattrs(struct extraction *extraction, struct archive_entry *entry, abox_error **reterr)
{
	size_t kept = 0;

	for (size_t i = 0; i < entry->n_xattrs; i++) {
		struct archive_xattr xattr = entry->xattrs[i];

		if (may_have(xattr.name)) {
			entry->xattrs[kept++] = xattr;
			continue;
		}
		if (extraction->strict)
			return refuse(reterr, ABOX_E_DENIED, entry,
				"it holds an attribute that is not the user's own");
		archive_lost_add(extraction->lost, entry->path, xattr.name);
		free(xattr.name);
		free(xattr.value);
		entry->xattrs[i] = (struct archive_xattr){0};
	}
	entry->n_xattrs = kept;
	return 0;
}

/* Bytes of the last entry into fd (-1: nowhere), and its digest. */
static int take_data(struct extraction *extraction, const struct archive_entry *entry, int fd,
	uint8_t digest[DIGEST_BYTES], abox_error **reterr)
{
	_cleanup_(content_hash_freep) struct content_hash *hash = NULL;
	const void *data;
	uint64_t offset;
	size_t len;
	int r;

	r = content_hash_new(entry->size, &hash);
	if (r < 0)
		return r;
	while ((r = archive_reader_data(extraction->reader, &data, &len, &offset, reterr)) > 0) {
		extraction->n_bytes += len;
		if (extraction->n_bytes > extraction->bounds.bytes)
			return refuse(reterr, ABOX_E_LIMIT, entry, "it holds more bytes than allowed");
		r = fd >= 0 ? fd_pwrite_all(fd, data, len, offset) : 0;
		if (r < 0)
			return failed(reterr, entry, r);
		r = content_hash_add(hash, offset, data, len);
		if (r < 0)
			return r;
		if (!progress_add(extraction->bounds.progress, 0, len))
			return refuse(reterr, ABOX_E_CANCELED, entry, "canceled");
	}
	/* Zeros up to the end of a plain digest are hashed one by one: only a small file has that many. */
	return r < 0 ? r : content_hash_final(hash, digest);
}

static int extract_regular(struct extraction *extraction, const struct archive_entry *entry, int parent_fd,
	const char *name, int *retfd, uint8_t digest[DIGEST_BYTES], abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	int r;

	fd = openat(parent_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return failed(reterr, entry, -errno);
	if (entry->sparse && ftruncate(fd, (off_t)entry->size) < 0)
		return failed(reterr, entry, -errno);
	r = take_data(extraction, entry, fd, digest, reterr);
	if (r < 0)
		return r;
	*retfd = steal_fd(fd);
	return 0;
}

static int extract_hard_link(struct extraction *extraction, const struct archive_entry *entry, int parent_fd,
	const char *name, abox_error **reterr)
{
	_cleanup_(fd_closep) int from_fd = -EBADF;
	const char *from_name;
	struct stat st;

	from_fd = deep_open_parent(extraction->dir_fd, entry->target, &from_name);
	if (from_fd < 0 || fstatat(from_fd, from_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return refuse(reterr, ABOX_E_ESCAPE, entry, "it holds a hard link to what is not in it");
	if (linkat(from_fd, from_name, parent_fd, name, 0) < 0)
		return failed(reterr, entry, -errno);
	return 0;
}

/* Owner, mode, attributes and time, in this order: each may undo the one after it. */
static int dress(struct extraction *extraction, const struct archive_entry *entry, int parent_fd,
	const char *name, int fd)
{
	const struct timespec times[2] = {
		{entry->mtime_sec, entry->mtime_nsec}, {entry->mtime_sec, entry->mtime_nsec}};

	if (extraction->is_root &&
		fchownat(parent_fd, name, layer_uid_on_disk(extraction->ids, entry->uid),
			layer_gid_on_disk(extraction->ids, entry->gid), AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	for (size_t i = 0; i < entry->n_xattrs && fd >= 0; i++) {
		int r = attribute_write(
			fd, entry->xattrs[i].name, entry->xattrs[i].value, entry->xattrs[i].len);

		if (r < 0)
			return r;
	}
	if (entry->type != ABOX_FILE_LINK && fchmodat(parent_fd, name, entry->mode, 0) < 0)
		return -errno;
	return utimensat(parent_fd, name, times, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

static int extract_folder(
	struct extraction *extraction, const struct archive_entry *entry, int parent_fd, const char *name)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	int r;

	/* It may be there already: an archive may name what is in a folder before the folder, or twice. */
	if (mkdirat(parent_fd, name, 0700) < 0 && (errno != EEXIST || extraction->strict))
		return -errno;
	fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	for (size_t i = 0; i < entry->n_xattrs; i++) {
		r = attribute_write(fd, entry->xattrs[i].name, entry->xattrs[i].value, entry->xattrs[i].len);
		if (r < 0)
			return r;
	}
	return note_folder(extraction, entry);
}

static int extract_entry(struct extraction *extraction, struct archive_entry *entry,
	uint8_t digest[DIGEST_BYTES], abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	int parent_fd = -EBADF, r;
	const char *name;

	r = check_entry(extraction, entry, reterr);
	if (r >= 0)
		r = check_xattrs(extraction, entry, reterr);
	if (r < 0)
		return r;
	if (!progress_add(extraction->bounds.progress, 1, 0))
		return refuse(reterr, ABOX_E_CANCELED, entry, "canceled");
	if (!entry->path[0]) /* "./" */
		return entry->type == ABOX_FILE_FOLDER
			       ? 0
			       : refuse(reterr, ABOX_E_ESCAPE, entry, "its root is no folder");
	r = open_parent(extraction, entry->path, &parent_fd, &name);
	if (r < 0)
		return failed(reterr, entry, r);
	if (entry->hard_link)
		return extract_hard_link(extraction, entry, parent_fd, name, reterr);
	switch (entry->type) {
	case ABOX_FILE_FOLDER:
		r = extract_folder(extraction, entry, parent_fd, name);
		return r < 0 ? failed(reterr, entry, r) : 0;
	case ABOX_FILE_REGULAR:
		r = extract_regular(extraction, entry, parent_fd, name, &fd, digest, reterr);
		if (r < 0)
			return r;
		break;
	case ABOX_FILE_LINK:
		r = symlinkat(entry->target, parent_fd, name) < 0 ? -errno : 0;
		break;
	default:
		r = mkfifoat(parent_fd, name, 0600) < 0 ? -errno : 0;
	}
	if (r >= 0)
		r = dress(extraction, entry, parent_fd, name, fd);
	return r < 0 ? failed(reterr, entry, r) : 0;
}

/* From the bottom up, so that no mode locks us out of what is below. */
static int finish_folders(struct extraction *extraction, abox_error **reterr)
{
	for (size_t i = extraction->n_folders; i-- > 0;) {
		const struct folder *folder = &extraction->folders[i];
		struct archive_entry entry = {
			.path = folder->path,
			.type = ABOX_FILE_FOLDER,
			.mode = folder->mode,
			.uid = folder->uid,
			.gid = folder->gid,
			.mtime_sec = folder->mtime.tv_sec,
			.mtime_nsec = (uint32_t)folder->mtime.tv_nsec,
		};
		_cleanup_(fd_closep) int parent_fd = -EBADF;
		const char *name;
		int r;

		parent_fd = deep_open_parent(extraction->dir_fd, folder->path, &name);
		r = parent_fd < 0 ? parent_fd : dress(extraction, &entry, parent_fd, name, -EBADF);
		if (r < 0)
			return failed(reterr, &entry, r);
	}
	return 0;
}

static void extraction_clear(struct extraction *extraction)
{
	archive_reader_freep(&extraction->reader);
	for (size_t i = 0; i < extraction->n_folders; i++)
		free(extraction->folders[i].path);
	free(extraction->folders);
	fd_close(extraction->parent_fd);
	free(extraction->parent);
	digest_free(extraction->manifest);
	free(extraction->line_hashes);
}

static int extraction_init(struct extraction *extraction, int archive_fd, int dir_fd,
	const struct layer_ids *ids, const struct archive_bounds *bounds, struct archive_lost *lost)
{
	*extraction = (struct extraction){
		.dir_fd = dir_fd,
		.ids = ids,
		.lost = lost,
		.parent_fd = -EBADF,
		.is_root = geteuid() == 0,
		.bounds = {bounds && bounds->bytes ? bounds->bytes : DEFAULT_BYTES,
			bounds && bounds->files ? bounds->files : DEFAULT_FILES,
			bounds ? bounds->progress : NULL},
	};
	return archive_reader_new(archive_fd, &extraction->reader);
}

static uint64_t hash_line(const char *line, size_t len)
{
	uint64_t hash = 14695981039346656037ULL;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char)line[i]) * 1099511628211ULL;
	return hash;
}

/* The line that a manifest must have for this entry. */
static int note_line(
	struct extraction *extraction, const struct archive_entry *entry, const uint8_t digest[DIGEST_BYTES])
{
	struct text line = TEXT_INIT;
	char hex[DIGEST_TEXT_BYTES];
	int r;

	if (extraction->n_lines == extraction->n_lines_allocated) {
		size_t allocated = extraction->n_lines_allocated ? extraction->n_lines_allocated * 2 : 256;
		uint64_t *hashes = realloc(extraction->line_hashes, allocated * sizeof(*hashes));

		if (!hashes)
			return ABOX_E_MEMORY;
		extraction->line_hashes = hashes;
		extraction->n_lines_allocated = allocated;
	}
	hex_encode(digest, DIGEST_BYTES, hex);
	archive_manifest_line(&line, entry, hex);
	r = line.failed ? ABOX_E_MEMORY : digest_update(extraction->manifest, line.data, line.len);
	if (r >= 0)
		extraction->line_hashes[extraction->n_lines++] = hash_line(line.data, line.len);
	text_clear(&line);
	return r;
}

/* A small file of the export itself, whole; NUL-terminated. */
static int read_member(struct extraction *extraction, const struct archive_entry *entry, struct text *ret,
	abox_error **reterr)
{
	const void *data;
	uint64_t offset;
	size_t len;
	int r;

	if (entry->type != ABOX_FILE_REGULAR || entry->hard_link || entry->sparse)
		return refuse(reterr, ABOX_E_DAMAGED, entry, "it is not one of our exports");
	while ((r = archive_reader_data(extraction->reader, &data, &len, &offset, reterr)) > 0) {
		if (len > ARCHIVE_HEADER_MAX - ret->len)
			return refuse(reterr, ABOX_E_LIMIT, entry, "it is too long");
		text_add_bytes(ret, data, len);
	}
	return r < 0 ? r : ret->failed ? ABOX_E_MEMORY : 0;
}

/* Compares while it comes by: a wrong line is named, the whole is settled by its digest. */
struct manifest_check {
	struct digest *digest;
	struct text line;
	size_t n_lines;
};

static int check_lines(struct extraction *extraction, struct manifest_check *check, const char *data,
	size_t len, const struct archive_entry *entry, abox_error **reterr)
{
	while (len > 0) {
		const char *end = memchr(data, '\n', len);
		size_t n = end ? (size_t)(end - data) + 1 : len;

		if (n > 4 * ARCHIVE_HEADER_MAX - check->line.len)
			return refuse(reterr, ABOX_E_DAMAGED, entry, "a line of the manifest is too long");
		text_add_bytes(&check->line, data, n);
		if (check->line.failed)
			return ABOX_E_MEMORY;
		if (end) {
			if (check->n_lines >= extraction->n_lines)
				return refuse(reterr, ABOX_E_DAMAGED, entry,
					"its manifest names files that it does not hold");
			if (hash_line(check->line.data, check->line.len) !=
				extraction->line_hashes[check->n_lines]) {
				struct text shown = TEXT_INIT;

				text_add_escaped(&shown, check->line.data, MIN(check->line.len - 1, 200));
				error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_WORKSPACE, entry->path,
					"the archive is refused: it does not hold what its manifest says: %s",
					shown.data ? shown.data : "");
				text_clear(&shown);
				return ABOX_E_DAMAGED;
			}
			check->n_lines++;
			text_clear(&check->line);
		}
		data += n;
		len -= n;
	}
	return 0;
}

static int check_manifest(struct extraction *extraction, const struct archive_entry *entry,
	struct manifest_check *check, uint8_t ret[DIGEST_BYTES], abox_error **reterr)
{
	uint8_t wanted[DIGEST_BYTES];
	const void *data;
	uint64_t offset;
	size_t len;
	int r;

	if (entry->type != ABOX_FILE_REGULAR || entry->hard_link || entry->sparse)
		return refuse(reterr, ABOX_E_DAMAGED, entry, "it is not one of our exports");
	r = digest_new(&check->digest);
	if (r < 0)
		return r;
	while ((r = archive_reader_data(extraction->reader, &data, &len, &offset, reterr)) > 0) {
		r = digest_update(check->digest, data, len);
		if (r >= 0)
			r = check_lines(extraction, check, data, len, entry, reterr);
		if (r < 0)
			return r;
	}
	if (r < 0)
		return r;
	if (check->line.len > 0 || check->n_lines != extraction->n_lines)
		return refuse(
			reterr, ABOX_E_DAMAGED, entry, "it holds files that its manifest does not name");
	r = digest_final(check->digest, wanted);
	if (r >= 0)
		r = digest_final(extraction->manifest, ret);
	if (r >= 0 && memcmp(wanted, ret, DIGEST_BYTES) != 0)
		return refuse(reterr, ABOX_E_DAMAGED, entry, "it does not hold what its manifest says");
	return r;
}

/* Entries of a tree, with the prefix cut off. */
static int import_tree_entry(struct extraction *extraction, struct archive_entry *entry, abox_error **reterr)
{
	uint8_t digest[DIGEST_BYTES] = {0};
	const size_t prefix = sizeof(ARCHIVE_TREE) - 1;
	int r;

	if (!string_starts_with(entry->path, ARCHIVE_TREE) || !entry->path[prefix])
		return refuse(reterr, ABOX_E_DAMAGED, entry, "it is not one of our exports");
	memmove(entry->path, entry->path + prefix, strlen(entry->path) - prefix + 1);
	if (entry->hard_link) {
		if (!string_starts_with(entry->target, ARCHIVE_TREE) || !entry->target[prefix])
			return refuse(
				reterr, ABOX_E_ESCAPE, entry, "it holds a hard link to what is not in it");
		memmove(entry->target, entry->target + prefix, strlen(entry->target) - prefix + 1);
	}
	r = extract_entry(extraction, entry, digest, reterr);
	return r < 0 ? r : note_line(extraction, entry, digest);
}

static int import_marker(struct extraction *extraction, abox_error **reterr)
{
	struct archive_entry entry = {0};
	struct text text = TEXT_INIT;
	int r;

	r = archive_reader_next(extraction->reader, &entry, reterr);
	if (r == 0)
		r = error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_WORKSPACE, NULL, "the archive is empty");
	if (r > 0 && strcmp(entry.path, ARCHIVE_MARKER) != 0)
		r = refuse(reterr, ABOX_E_DAMAGED, &entry, "it is not one of our exports");
	if (r > 0)
		r = read_member(extraction, &entry, &text, reterr);
	if (r >= 0 && strcmp(text.data ? text.data : "", ARCHIVE_MARKER_TEXT) != 0)
		r = refuse(reterr, ABOX_E_UNSUPPORTED, &entry, "it was made by a newer release");
	archive_entry_clear(&entry);
	text_clear(&text);
	return r;
}

/* What was lost when it was packed goes into the list of what is lost now. */
static int import_lost(struct extraction *extraction, const struct archive_entry *entry, abox_error **reterr)
{
	struct archive_entry shown = {
		.path = (char *)(uintptr_t)ARCHIVE_LOST, .type = ABOX_FILE_REGULAR, .mode = 0644};
	uint8_t digest[DIGEST_BYTES];
	struct text text = TEXT_INIT;
	int r;

	r = read_member(extraction, entry, &text, reterr);
	if (r >= 0)
		r = digest_sha256(text.data ? text.data : "", text.len, digest);
	shown.size = text.len;
	if (r >= 0)
		r = note_line(extraction, &shown, digest);
	if (r >= 0)
		archive_lost_add(extraction->lost, ".", "what the export lists as lost already");
	text_clear(&text);
	return r;
}

static int import_all(struct extraction *extraction, uint8_t ret[DIGEST_BYTES], abox_error **reterr)
{
	bool verified = false, lost = false;
	int r;

	r = import_marker(extraction, reterr);
	while (r >= 0) {
		struct archive_entry entry = {0};

		r = archive_reader_next(extraction->reader, &entry, reterr);
		if (r <= 0)
			break;
		if (verified)
			r = refuse(reterr, ABOX_E_DAMAGED, &entry, "something follows its manifest");
		else if (strcmp(entry.path, ARCHIVE_MANIFEST) == 0) {
			struct manifest_check check = {0};

			r = check_manifest(extraction, &entry, &check, ret, reterr);
			digest_free(check.digest);
			text_clear(&check.line);
			verified = true;
		} else if (strcmp(entry.path, ARCHIVE_LOST) == 0 && !lost) {
			r = import_lost(extraction, &entry, reterr);
			lost = true;
		} else if (lost)
			r = refuse(reterr, ABOX_E_DAMAGED, &entry, "it is not one of our exports");
		else
			r = import_tree_entry(extraction, &entry, reterr);
		archive_entry_clear(&entry);
	}
	if (r >= 0 && !verified)
		return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_WORKSPACE, NULL,
			"the archive is refused: it has no manifest");
	return r;
}

int archive_import(int archive_fd, int dir_fd, const struct layer_ids *ids,
	const struct archive_bounds *bounds, const char *expected, struct archive_lost *retlost,
	char retdigest[DIGEST_TEXT_BYTES], abox_error **reterr)
{
	_cleanup_(extraction_clear) struct extraction extraction;
	uint8_t digest[DIGEST_BYTES];
	char hex[DIGEST_TEXT_BYTES];
	int r;

	r = extraction_init(&extraction, archive_fd, dir_fd, ids, bounds, retlost);
	if (r < 0)
		return r;
	extraction.strict = true;
	r = digest_new(&extraction.manifest);
	if (r >= 0)
		r = import_all(&extraction, digest, reterr);
	if (r < 0)
		return r;
	hex_encode(digest, sizeof(digest), hex);
	if (expected && strcmp(expected, hex) != 0)
		return error_set(reterr, ABOX_E_MISMATCH, ABOX_STAGE_WORKSPACE, NULL,
			"the archive is refused: its digest is %s", hex);
	r = finish_folders(&extraction, reterr);
	if (r < 0)
		return r;
	strcpy(retdigest, hex);
	return 0;
}

int archive_extract(int archive_fd, int dir_fd, const struct layer_ids *ids,
	const struct archive_bounds *bounds, struct archive_lost *retlost, abox_error **reterr)
{
	_cleanup_(extraction_clear) struct extraction extraction;
	uint64_t n = 0;
	int r;

	r = extraction_init(&extraction, archive_fd, dir_fd, ids, bounds, retlost);
	while (r >= 0) {
		struct archive_entry entry = {0};
		uint8_t digest[DIGEST_BYTES];

		r = archive_reader_next(extraction.reader, &entry, reterr);
		if (r <= 0)
			break;
		n++;
		r = extract_entry(&extraction, &entry, digest, reterr);
		archive_entry_clear(&entry);
	}
	if (r >= 0 && n == 0)
		return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_WORKSPACE, NULL,
			"the archive is empty, or no tar archive");
	return r < 0 ? r : finish_folders(&extraction, reterr);
}
