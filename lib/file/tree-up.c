/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From the host into the workspace. Promises that what is there is replaced file by file, each whole, and that no link of
 * the box is written through; the box may do to the folders what it wants meanwhile, it is its workspace.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "file/files.h"
#include "workspace/tree.h"

struct upload {
	struct copying copying;
	uint32_t place;
	bool *made;	/* by level: the folder is ours, and gets mode and time */
	size_t n_made;
	size_t allocated;
};

static int push_made(struct upload *upload, bool made)
{
	if (upload->n_made == upload->allocated) {
		bool *grown = realloc(upload->made, (upload->allocated + 64) * sizeof(*grown));

		if (!grown)
			return ABOX_E_MEMORY;
		upload->made = grown;
		upload->allocated += 64;
	}
	upload->made[upload->n_made++] = made;
	return 0;
}

/* A folder, or the one that is there. */
static int make_folder(struct upload *upload, uint32_t place, const char *path, bool *retmade)
{
	_cleanup_(error_freep) abox_error *error = NULL;
	abox_files *files = upload->copying.files;
	struct pack_writer writer;
	struct pack_reader reader;
	int r;

	files_begin(files, &writer, FILE_MAKE_FOLDER);
	pack_u32(&writer, place);
	pack_string(&writer, path);
	pack_u32(&writer, 0700);
	pack_u8(&writer, 0);
	r = files_call(files, &writer, NULL, &reader, &error);
	*retmade = r == 0;
	if (r == ABOX_E_EXISTS)
		return 0;
	if (r < 0)
		return copying_fail(&upload->copying, &error, r);
	return unpack_u8(&reader) && unpack_done(&reader) ? 0 : files_protocol(files, upload->copying.reterr);
}

static int go(struct upload *upload, uint32_t type, const char *name)
{
	struct pack_writer writer;

	files_begin(upload->copying.files, &writer, type);
	pack_u32(&writer, upload->place);
	if (name)
		pack_string(&writer, name);
	return files_call_plain(upload->copying.files, &writer, upload->copying.reterr);
}

static int enter(void *userdata, const struct tree_entry *entry, int fd)
{
	struct upload *upload = userdata;
	bool made = false;
	int r;

	(void)fd;
	r = copying_count(&upload->copying, 1, 0, entry->path);
	if (r < 0 || !entry->name[0])	/* the root is there, and entered, already */
		return r;
	r = make_folder(upload, upload->place, entry->name, &made);
	if (r == 0)
		r = go(upload, FILE_ENTER, entry->name);
	return r < 0 ? r : push_made(upload, made);
}

static int leave(void *userdata, const struct tree_entry *entry, int fd)
{
	struct upload *upload = userdata;
	abox_files *files = upload->copying.files;
	struct pack_writer writer;
	int r = 0;

	(void)fd;
	if (upload->made[--upload->n_made]) {
		files_begin(files, &writer, FILE_DRESS);
		pack_u32(&writer, upload->place);
		pack_u32(&writer, entry->st.st_mode & 0777);
		pack_u64(&writer, (uint64_t)entry->st.st_mtim.tv_sec);
		pack_u32(&writer, (uint32_t)entry->st.st_mtim.tv_nsec);
		r = files_call_plain(files, &writer, upload->copying.reterr);
	}
	return r < 0 || !entry->name[0] ? r : go(upload, FILE_LEAVE, NULL);
}

static int put_file(struct upload *upload, uint32_t place, const char *name, int fd, const char *path)
{
	struct copying *copying = &upload->copying;
	struct stat st;
	uint32_t number;
	int r;

	if (fstat(fd, &st) < 0)
		return error_set_errno(copying->reterr, ABOX_E_IO, FILE_STAGE, path, errno, "cannot look at it");
	r = content_write_begin(
		copying->files, place, name, FILE_WRITE_ATOMIC, st.st_mode & 0777, &number, copying->reterr);
	if (r < 0)
		return r;
	r = content_put(copying, number, fd, (uint64_t)st.st_blocks * 512 < (uint64_t)st.st_size, (uint64_t)st.st_size,
		path);
	if (r == 0)
		return content_write_end(copying->files, number, false, st.st_mtim.tv_sec,
			(uint32_t)st.st_mtim.tv_nsec, copying->reterr);
	files_close_number(copying->files, number);
	return r;
}

static int put_link(struct upload *upload, const struct tree_entry *entry)
{
	abox_files *files = upload->copying.files;
	struct pack_writer writer;
	char target[FILE_LINK_MAX + 1];
	ssize_t n = readlinkat(entry->dir_fd, entry->name, target, sizeof(target));

	if (n <= 0 || (size_t)n >= sizeof(target))
		return error_set_errno(upload->copying.reterr, ABOX_E_IO, FILE_STAGE, entry->path,
			n < 0 ? errno : ENAMETOOLONG, "cannot read the link");
	target[n] = 0;
	files_begin(files, &writer, FILE_LINK);
	pack_u32(&writer, upload->place);
	pack_string(&writer, entry->name);
	pack_string(&writer, target);
	pack_u8(&writer, 1);
	return files_call_plain(files, &writer, upload->copying.reterr);
}

static int other(void *userdata, const struct tree_entry *entry)
{
	struct upload *upload = userdata;
	_cleanup_(fd_closep) int fd = -EBADF;
	int r;

	r = copying_count(&upload->copying, 1, 0, entry->path);
	if (r < 0)
		return r;
	if (S_ISLNK(entry->st.st_mode))
		return put_link(upload, entry);
	if (entry->is_mount || !S_ISREG(entry->st.st_mode)) {
		copying_leave_out(&upload->copying, entry->path,
			entry->is_mount ? "something is mounted here" : "no file, folder or link");
		return 0;
	}
	fd = tree_open(entry->dir_fd, entry->name, &entry->st);
	if (fd < 0)
		return error_set_errno(upload->copying.reterr, ABOX_E_IO, FILE_STAGE, entry->path, -fd, "cannot open it");
	return put_file(upload, upload->place, entry->name, fd, entry->path);
}

static int put_tree(struct upload *upload, int fd, const char *source, const char *path)
{
	struct tree_visitor visitor = { enter, leave, other, upload };
	abox_error **reterr = upload->copying.reterr;
	struct file_entry entry;
	bool made = false;
	int r = 0;

	if (path[0])
		r = make_folder(upload, 0, path, &made);
	if (r == 0)
		r = push_made(upload, made);
	if (r == 0)
		r = files_open_place(upload->copying.files, 0, path, &upload->place, &entry, reterr);
	if (r < 0)
		return r;
	r = tree_walk(fd, source, &visitor, reterr);
	files_close_number(upload->copying.files, upload->place);
	return r;
}

int abox_files_upload(abox_files *files, const char *source, const char *path, const struct abox_copy_options *options,
	char **retjson, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	struct upload upload = { 0 };
	struct stat st;
	int r;

	if (!files || !source || !path)
		return error_set(reterr, ABOX_E_INVALID, FILE_STAGE, NULL, "files, a source and a path are required");
	r = copying_begin(&upload.copying, files, options, reterr);
	if (r < 0)
		return r;
	fd = open(source, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_set_errno(reterr, errno == ENOENT ? ABOX_E_NOT_FOUND : ABOX_E_IO, FILE_STAGE, source, errno,
			"cannot open the source");
	if (S_ISDIR(st.st_mode)) {
		r = put_tree(&upload, fd, source, path);
	} else if (S_ISREG(st.st_mode)) {
		r = copying_count(&upload.copying, 1, 0, source);
		if (r == 0)
			r = put_file(&upload, 0, path, fd, source);
	} else {
		r = error_set(reterr, ABOX_E_UNSUPPORTED, FILE_STAGE, source, "is neither a file nor a folder");
	}
	if (r == 0)
		r = copying_report(&upload.copying, retjson);
	copying_clear(&upload.copying);
	free(upload.made);
	return r;
}
