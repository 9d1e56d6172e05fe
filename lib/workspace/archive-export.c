/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Packing a tree: entries in the order of their names, ids as the box sees them, and a manifest at the end
 * with the digest of each file. The same tree gives the same bytes, whoever packs it. Nothing is written
 * before the gate has let all of it pass.
 */
#include "workspace/archive.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/path.h"
#include "workspace/archive-names.h"
#include "workspace/attribute.h"
#include "workspace/changes.h"

#define CHUNK (256 * 1024)
#define NOBODY 65534

/* The first path of a file that has several. */
struct known_link {
	dev_t device;
	ino_t inode;
	char *path;
};

struct export
{
	const struct view *view;
	const struct layer_ids *ids;
	struct archive_writer *writer;
	struct archive_lost *lost;
	struct digest *digest;
	struct text manifest;
	struct known_link *links; /* open addressing; NULL path: free */
	size_t n_links, n_slots;
	uint8_t *buffer;
};

void archive_manifest_line(struct text *line, const struct archive_entry *entry, const char *digest)
{
	text_add(line, "{\"path\":");
	text_add_json(line, entry->path, strlen(entry->path));
	if (entry->hard_link) {
		text_add(line, ",\"same_as\":");
		text_add_json(line, entry->target, strlen(entry->target));
		text_add(line, "}\n");
		return;
	}
	text_printf(line, ",\"type\":\"%s\",\"uid\":%u,\"gid\":%u,\"mtime\":\"%lld.%09u\"",
		file_type_name(entry->type), entry->uid, entry->gid, (long long)entry->mtime_sec,
		entry->mtime_nsec);
	if (entry->type != ABOX_FILE_LINK)
		text_printf(line, ",\"mode\":\"%04o\"", entry->mode);
	if (entry->type == ABOX_FILE_REGULAR)
		text_printf(line, ",\"size\":%llu,\"%s\":\"%s\"", (unsigned long long)entry->size,
			content_digest_name(entry->size), digest);
	if (entry->type == ABOX_FILE_LINK) {
		text_add(line, ",\"target\":");
		text_add_json(line, entry->target, strlen(entry->target));
	}
	for (size_t i = 0; i < entry->n_xattrs; i++) {
		const uint8_t *value = entry->xattrs[i].value;

		text_add(line, i ? "," : ",\"attributes\":{");
		text_add_json(line, entry->xattrs[i].name, strlen(entry->xattrs[i].name));
		text_add(line, ":\"");
		for (size_t k = 0; k < entry->xattrs[i].len; k++)
			text_printf(line, "%02x", value[k]);
		text_add(line, i + 1 == entry->n_xattrs ? "\"}" : "\"");
	}
	text_add(line, "}\n");
}

static size_t slot_of(const struct export *export, dev_t device, ino_t inode)
{
	size_t slot =
		(size_t)((inode ^ ((uint64_t)device << 40)) * 0x9e3779b97f4a7c15ULL) & (export->n_slots - 1);

	while (export->links[slot].path &&
		(export->links[slot].inode != inode || export->links[slot].device != device))
		slot = (slot + 1) & (export->n_slots - 1);
	return slot;
}

static int grow_links(struct export *export)
{
	struct known_link *old = export->links;
	size_t n_old = export->n_slots;

	export->n_slots = n_old ? n_old * 2 : 64;
	export->links = calloc(export->n_slots, sizeof(*export->links));
	if (!export->links) {
		export->links = old;
		export->n_slots = n_old;
		return ABOX_E_MEMORY;
	}
	for (size_t i = 0; i < n_old; i++)
		if (old[i].path)
			export->links[slot_of(export, old[i].device, old[i].inode)] = old[i];
	free(old);
	return 0;
}

/* 1 when the file was packed under another name already. */
static int find_link(struct export *export, const struct view_step *step, struct archive_entry *entry)
{
	size_t slot;

	if (!S_ISREG(step->now.st.st_mode) || step->now.st.st_nlink < 2)
		return 0;
	if (export->n_links * 2 >= export->n_slots && grow_links(export) < 0)
		return ABOX_E_MEMORY;
	slot = slot_of(export, step->now.st.st_dev, step->now.st.st_ino);
	if (!export->links[slot].path) {
		export->links[slot] =
			(struct known_link){step->now.st.st_dev, step->now.st.st_ino, strdup(step->path)};
		export->n_links++;
		return export->links[slot].path ? 0 : ABOX_E_MEMORY;
	}
	entry->hard_link = true;
	entry->target = strdup(export->links[slot].path);
	return entry->target ? 1 : ABOX_E_MEMORY;
}

/* As the box sees it: a folder of the host shows its owner as the user of the box, and all others as nobody.
 */
static void take_owner(const struct export *export, const struct view_step *step, struct archive_entry *entry)
{
	const struct layer_ids *ids = export->ids;

	if (export->view->layers[step->now.layer].host_ids) {
		entry->uid = step->now.st.st_uid == ids->owner_uid ? ids->inside_uid : UINT32_MAX;
		entry->gid = step->now.st.st_gid == ids->owner_gid ? ids->inside_gid : UINT32_MAX;
	} else {
		entry->uid = layer_uid_inside(ids, step->now.st.st_uid);
		entry->gid = layer_gid_inside(ids, step->now.st.st_gid);
	}
	if (entry->uid == UINT32_MAX)
		entry->uid = NOBODY;
	if (entry->gid == UINT32_MAX)
		entry->gid = NOBODY;
}

static int read_error(const char *path, int r, abox_error **reterr)
{
	if (r == -ENOMEM)
		return ABOX_E_MEMORY;
	return error_set_errno(reterr, ABOX_E_IO, ABOX_STAGE_WORKSPACE, path, -r, "cannot read the file");
}

static int compare_xattrs(const void *a, const void *b)
{
	return strcmp(((const struct archive_xattr *)a)->name, ((const struct archive_xattr *)b)->name);
}

static int take_xattrs(struct export *export, const char *path, int fd, struct archive_entry *entry)
{
	_cleanup_(attribute_list_clear) struct attribute_list list = {0};
	int r;

	r = attribute_list_read(fd, &list);
	if (r < 0)
		return r;
	entry->xattrs = calloc(list.n + 1, sizeof(*entry->xattrs));
	if (!entry->xattrs)
		return -ENOMEM;
	for (size_t i = 0; i < list.n; i++) {
		struct archive_xattr *xattr = &entry->xattrs[entry->n_xattrs];

		if (strstr(list.names[i], ".overlay."))
			continue; /* marks of the layer, not of the file */
		if (!string_starts_with(list.names[i], "user.") || !attribute_is_portable(list.names[i])) {
			archive_lost_add(export->lost, path, list.names[i]);
			continue;
		}
		r = attribute_read(fd, list.names[i], &xattr->value, &xattr->len);
		if (r == -ENODATA)
			continue;
		if (r < 0)
			return r;
		xattr->name = strdup(list.names[i]);
		entry->n_xattrs++;
		if (!xattr->name)
			return -ENOMEM;
	}
	if (entry->n_xattrs > 1)
		qsort(entry->xattrs, entry->n_xattrs, sizeof(*entry->xattrs), compare_xattrs);
	return 0;
}

static int add_line(
	struct export *export, const struct archive_entry *entry, const uint8_t digest[DIGEST_BYTES])
{
	char hex[DIGEST_TEXT_BYTES];

	hex_encode(digest, DIGEST_BYTES, hex);
	archive_manifest_line(&export->manifest, entry, hex);
	return export->manifest.failed ? ABOX_E_MEMORY : 0;
}

/* The entry under its place in the archive. */
static int write_header(struct export *export, const struct archive_entry *entry, abox_error **reterr)
{
	_cleanup_(freep) char *path = NULL, *target = NULL;
	struct archive_entry placed = *entry;
	int r;

	r = path_join(ARCHIVE_TREE, entry->path, &path);
	if (r >= 0 && entry->hard_link)
		r = path_join(ARCHIVE_TREE, entry->target, &target);
	if (r < 0)
		return r;
	placed.path = path;
	placed.target = target ? target : entry->target;
	return archive_writer_entry(export->writer, &placed, reterr);
}

static int write_range(struct export *export, const char *path, int fd, uint64_t offset, uint64_t end,
	struct content_hash *hash, abox_error **reterr)
{
	while (offset < end) {
		ssize_t n =
			fd_pread_all(fd, export->buffer, (size_t)MIN(end - offset, (uint64_t)CHUNK), offset);
		int r;

		if (n <= 0)
			return read_error(path, n < 0 ? (int)n : -ESTALE, reterr);
		r = archive_writer_data(export->writer, export->buffer, (size_t)n, reterr);
		if (r >= 0)
			r = content_hash_add(hash, offset, export->buffer, (size_t)n);
		if (r < 0)
			return r;
		offset += (uint64_t)n;
		if (!progress_add(export->view->progress, 0, (uint64_t)n))
			return error_set(reterr, ABOX_E_CANCELED, ABOX_STAGE_WORKSPACE, path, "canceled");
	}
	return 0;
}

static int write_regular(struct export *export, struct archive_entry *entry, int fd, abox_error **reterr)
{
	_cleanup_(content_hash_freep) struct content_hash *hash = NULL;
	uint8_t digest[DIGEST_BYTES];
	int r;

	entry->sparse = content_has_hole(fd, entry->size);
	if (entry->sparse) {
		r = content_map(fd, entry->size, &entry->runs, &entry->n_runs);
		if (r < 0)
			return read_error(entry->path, r, reterr);
	}
	r = content_hash_new(entry->size, &hash);
	if (r >= 0)
		r = write_header(export, entry, reterr);
	if (r >= 0 && !entry->sparse)
		r = write_range(export, entry->path, fd, 0, entry->size, hash, reterr);
	for (size_t i = 0; r >= 0 && i < entry->n_runs; i++)
		r = write_range(export, entry->path, fd, entry->runs[i].offset,
			entry->runs[i].offset + entry->runs[i].len, hash, reterr);
	if (r >= 0)
		r = content_hash_final(hash, digest);
	return r < 0 ? r : add_line(export, entry, digest);
}

/* A descriptor of the file or folder, for content and attributes; links and fifos need none. */
static int open_step(struct export *export, const struct view_step *step)
{
	struct view_dir dir = VIEW_DIR_INIT;
	int fd = -EBADF, r;

	if (S_ISREG(step->now.st.st_mode)) {
		r = view_open_file(export->view, step->now_dir, step->name, &step->now, &fd);
		return r < 0 ? r : fd;
	}
	if (!S_ISDIR(step->now.st.st_mode))
		return -EBADF;
	r = view_open_dir(export->view, step->now_dir, step->name, &dir);
	if (r < 0)
		return r;
	/* what was lent is given back with the descriptor it was lent to */
	fd = fcntl(dir.parts[0].fd, F_DUPFD_CLOEXEC, 0);
	r = fd < 0 ? -errno : fd;
	view_dir_clear(&dir);
	return r;
}

static int pack(
	struct export *export, const struct view_step *step, struct archive_entry *entry, abox_error **reterr)
{
	static const uint8_t none[DIGEST_BYTES];
	_cleanup_(fd_closep) int fd = -EBADF;
	int r;

	r = find_link(export, step, entry);
	if (r < 0)
		return r;
	if (r > 0) {
		r = write_header(export, entry, reterr);
		return r < 0 ? r : add_line(export, entry, none);
	}
	fd = open_step(export, step);
	if (fd < 0 && fd != -EBADF)
		return read_error(step->path, fd, reterr);
	r = fd >= 0 ? take_xattrs(export, step->path, fd, entry) : 0;
	if (r >= 0 && entry->type == ABOX_FILE_LINK)
		r = view_read_link(export->view, step->now_dir, step->name, &step->now, &entry->target);
	if (r < 0)
		return read_error(step->path, r, reterr);
	if (entry->type == ABOX_FILE_REGULAR)
		return write_regular(export, entry, fd, reterr);
	r = write_header(export, entry, reterr);
	return r < 0 ? r : add_line(export, entry, none);
}

static int pack_step(struct export *export, const struct view_step *step, abox_error **reterr)
{
	struct archive_entry entry = {
		.type = file_type_of(step->now.st.st_mode),
		.mode = step->now.st.st_mode & 01777,
		.mtime_sec = step->now.st.st_mtim.tv_sec,
		.mtime_nsec = (uint32_t)step->now.st.st_mtim.tv_nsec,
		.size = S_ISREG(step->now.st.st_mode) ? (uint64_t)step->now.st.st_size : 0,
	};
	int r;

	take_owner(export, step, &entry);
	if (entry.type == ABOX_FILE_SOCKET || entry.type == ABOX_FILE_DEVICE) {
		archive_lost_add(export->lost, step->path, file_type_name(entry.type));
		return 0;
	}
	if (step->now.st.st_mode & 06000)
		archive_lost_add(export->lost, step->path, "set-id bits");
	entry.path = strdup(step->path);
	if (!entry.path)
		return ABOX_E_MEMORY;
	r = pack(export, step, &entry, reterr);
	archive_entry_clear(&entry);
	return r;
}

/* A file that belongs to the export and not to the tree. */
static int write_member(
	struct export *export, const char *name, const char *data, size_t len, abox_error **reterr)
{
	struct archive_entry entry = {
		.path = (char *)(uintptr_t)name, .type = ABOX_FILE_REGULAR, .mode = 0644, .size = len};
	int r;

	r = archive_writer_entry(export->writer, &entry, reterr);
	return r < 0 || len == 0 ? r : archive_writer_data(export->writer, data, len, reterr);
}

static int write_lost(struct export *export, abox_error **reterr)
{
	struct archive_entry entry = {
		.path = (char *)(uintptr_t)ARCHIVE_LOST, .type = ABOX_FILE_REGULAR, .mode = 0644};
	uint8_t digest[DIGEST_BYTES];
	struct text json = TEXT_INIT;
	int r;

	text_printf(&json, "{\"n_lost\":%llu,\"lost\":[%s]}\n", (unsigned long long)export->lost->n_lost,
		export->lost->list.data ? export->lost->list.data : "");
	entry.size = json.len;
	r = json.failed || export->lost->list.failed ? ABOX_E_MEMORY
						     : digest_sha256(json.data, json.len, digest);
	if (r >= 0)
		r = add_line(export, &entry, digest);
	if (r >= 0)
		r = write_member(export, ARCHIVE_LOST, json.data, json.len, reterr);
	text_clear(&json);
	return r;
}

static int write_all(struct export *export, char retdigest[DIGEST_TEXT_BYTES], abox_error **reterr)
{
	_cleanup_(view_walk_freep) struct view_walk *walk = NULL;
	struct view_step step;
	int r;

	r = write_member(export, ARCHIVE_MARKER, ARCHIVE_MARKER_TEXT, strlen(ARCHIVE_MARKER_TEXT), reterr);
	if (r >= 0)
		r = view_walk_new(export->view, NULL, &walk);
	while (r >= 0 && (r = view_walk_next(walk, &step, reterr)) > 0)
		r = pack_step(export, &step, reterr);
	if (r >= 0 && export->lost->n_lost > 0)
		r = write_lost(export, reterr);
	if (r >= 0)
		r = digest_sha256_text(
			export->manifest.data ? export->manifest.data : "", export->manifest.len, retdigest);
	if (r >= 0)
		r = write_member(
			export, ARCHIVE_MANIFEST, export->manifest.data, export->manifest.len, reterr);
	return r < 0 ? r : archive_writer_finish(export->writer, reterr);
}

int archive_export(const struct view *view, const struct layer_ids *ids, const struct scan_rules *rules,
	int archive_fd, struct archive_lost *retlost, char retdigest[DIGEST_TEXT_BYTES], abox_error **reterr)
{
	struct export export = {.view = view, .ids = ids, .lost = retlost};
	int r;

	r = rules ? scan_view(view, 0, rules, reterr) : 0;
	if (r < 0)
		return r;
	export.buffer = malloc(CHUNK);
	r = export.buffer ? archive_writer_new(archive_fd, &export.writer) : ABOX_E_MEMORY;
	if (r >= 0)
		r = write_all(&export, retdigest, reterr);
	archive_writer_freep(&export.writer);
	for (size_t i = 0; i < export.n_slots; i++)
		free(export.links[i].path);
	free(export.links);
	free(export.buffer);
	text_clear(&export.manifest);
	return r;
}
