/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From the workspace to the host. Promises that the target appears whole or not at all, and that nothing outside of it is
 * touched: each name is one part, made anew in a folder that we made ourselves; links are made and never followed.
 *
 * Security: names, types, sizes and targets come from inside the wall.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/descent.h"
#include "base/fd.h"
#include "base/path.h"
#include "file/files.h"
#include "kernel/compat.h"
#include "workspace/changes.h"

#define MODE_MASK 0755		/* neither set-id, nor for others to write */
#define MAX_NAMES 64		/* that are tried beside the target */
#define NO_REPLACE 1		/* RENAME_NOREPLACE */
#define CHANGED "changed or gone when it was to be copied"

/* One folder on the way down: what is still to be done in it. */
struct level {
	char **names;	/* the first byte is the type, enum abox_file_type */
	size_t n, allocated, next;
	size_t path_len;
	uint32_t mode;
	struct timespec modified;
};

struct download {
	struct copying copying;
	uint32_t place;
	struct descent here;	/* folders of the host */
	struct level *levels;
	size_t n_levels, allocated;
	struct text path;	/* for messages */
};

static void level_clear(struct level *level)
{
	for (size_t i = 0; i < level->n; i++)
		free(level->names[i]);
	free(level->names);
	*level = (struct level){ 0 };
}

static void download_clear(struct download *download)
{
	while (download->n_levels > 0)
		level_clear(&download->levels[--download->n_levels]);
	free(download->levels);
	descent_clear(&download->here);
	text_clear(&download->path);
	copying_clear(&download->copying);
}

static const char *path_of(const struct download *download)
{
	return download->path.data && download->path.data[0] ? download->path.data : ".";
}

static void path_cut(struct download *download, size_t len)
{
	download->path.len = len;
	if (download->path.data)
		download->path.data[len] = 0;
}

static int local_error(struct download *download, int sys_errno, const char *what)
{
	return error_set_errno(
		download->copying.reterr, ABOX_E_IO, FILE_STAGE, path_of(download), sys_errno, "cannot %s", what);
}

/* What a live box does with its files is no failure of the copy. */
static bool is_change(int code)
{
	return code == ABOX_E_NOT_FOUND || code == ABOX_E_INVALID || code == ABOX_E_UNSUPPORTED ||
		code == ABOX_E_ESCAPE;
}

static int add_name(struct level *level, const char *name, int type)
{
	size_t len = strlen(name);
	char *kept;

	if (level->n == level->allocated) {
		char **names = reallocarray(level->names, level->allocated * 2 + 32, sizeof(*names));

		if (!names)
			return ABOX_E_MEMORY;
		level->names = names;
		level->allocated = level->allocated * 2 + 32;
	}
	kept = malloc(len + 2);
	if (!kept)
		return ABOX_E_MEMORY;
	kept[0] = (char)type;
	memcpy(kept + 1, name, len + 1);
	level->names[level->n++] = kept;
	return 0;
}

/* All names of the folder that the place is, counted so that a folder without end has one. */
static int read_names(struct download *download, struct level *level)
{
	abox_files *files = download->copying.files;
	abox_error **reterr = download->copying.reterr;
	bool end = false, restart = true;
	int r = 0;

	while (r == 0 && !end) {
		struct pack_reader reader;
		uint32_t n = 0;

		r = files_list(files, download->place, restart, &end, &n, &reader, reterr);
		restart = false;
		for (uint32_t i = 0; r == 0 && i < n; i++) {
			struct file_entry entry;
			const char *name;

			r = files_next_entry(files, &reader, &name, &entry, reterr);
			if (r == 0)
				r = add_name(level, name, file_type_of(entry.mode));
			if (r == 0)
				r = copying_count(&download->copying, 1, 0, path_of(download));
		}
	}
	return r;
}

/* The folder that the place is now becomes `name` in dir_fd, and the newest level. */
static int begin_folder(struct download *download, int dir_fd, const char *name)
{
	struct level level = { .path_len = download->path.len };
	struct file_entry entry;
	int fd, r;

	r = files_stat(download->copying.files, download->place, "", true, &entry, download->copying.reterr);
	if (r < 0)
		return r;
	level.mode = entry.mode;
	level.modified = (struct timespec){ entry.seconds, entry.nanoseconds };
	if (mkdirat(dir_fd, name, 0700) < 0)
		return local_error(download, errno, "make the folder");
	fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = fd < 0 ? -errno : descent_push(&download->here, fd);
	if (r < 0)
		return local_error(download, -r, "open the folder");
	if (download->n_levels == download->allocated) {
		struct level *levels = reallocarray(download->levels, download->allocated + 64, sizeof(*levels));

		if (!levels)
			return ABOX_E_MEMORY;
		download->levels = levels;
		download->allocated += 64;
	}
	r = read_names(download, &level);
	download->levels[download->n_levels++] = level;
	return r;
}

static int go(struct download *download, uint32_t type, const char *name, abox_error **reterr)
{
	struct pack_writer writer;

	files_begin(download->copying.files, &writer, type);
	pack_u32(&writer, download->place);
	if (name)
		pack_string(&writer, name);
	return files_call_plain(download->copying.files, &writer, reterr);
}

static int get_folder(struct download *download, const char *name)
{
	_cleanup_(error_freep) abox_error *error = NULL;
	int r = go(download, FILE_ENTER, name, &error);

	if (is_change(r)) {
		copying_leave_out(&download->copying, path_of(download), CHANGED);
		return 0;
	}
	if (r < 0)
		return copying_fail(&download->copying, &error, r);
	return begin_folder(download, descent_fd(&download->here), name);
}

static int end_folder(struct download *download)
{
	struct level *level = &download->levels[download->n_levels - 1];
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, level->modified };
	int fd = descent_fd(&download->here), r;

	path_cut(download, level->path_len);
	if (fchmod(fd, (level->mode & MODE_MASK) | 0700) < 0 || futimens(fd, times) < 0)
		return local_error(download, errno, "set mode and time of the folder");
	level_clear(level);
	download->n_levels--;
	if (download->n_levels == 0)
		return 0;
	r = descent_pop(&download->here);
	if (r < 0)
		return local_error(download, -r, "go back from the folder");
	return go(download, FILE_LEAVE, NULL, download->copying.reterr);
}

static int write_file(struct download *download, uint32_t number, const struct file_entry *entry, int dir_fd,
	const char *name)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { entry->seconds, entry->nanoseconds } };
	_cleanup_(fd_closep) int fd = -EBADF;
	int r;

	fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return local_error(download, errno, "make the file");
	r = content_get(&download->copying, number, entry->size, fd, true, path_of(download));
	if (r < 0)
		return r;
	if (fchmod(fd, (entry->mode & MODE_MASK) | 0600) < 0 || futimens(fd, times) < 0)
		return local_error(download, errno, "set mode and time of the file");
	return 0;
}

/* `path` below the place on the server, `name` in dir_fd here. A change is *retchange where that is given. */
static int get_file(struct download *download, const char *path, int dir_fd, const char *name, bool *retchange)
{
	abox_files *files = download->copying.files;
	_cleanup_(error_freep) abox_error *error = NULL;
	struct file_entry entry;
	uint32_t number;
	int r;

	r = content_read_begin(files, download->place, path, false, &number, &entry, &error);
	if (r < 0) {
		*retchange = is_change(r);
		return copying_fail(&download->copying, &error, r);
	}
	r = write_file(download, number, &entry, dir_fd, name);
	files_close_number(files, number);
	return r;
}

static int get_link(struct download *download, const char *path, int dir_fd, const char *name, bool *retchange)
{
	_cleanup_(error_freep) abox_error *error = NULL;
	struct file_entry entry;
	int r;

	r = files_stat(download->copying.files, download->place, path, false, &entry, &error);
	if (r == 0 && !S_ISLNK(entry.mode))
		r = error_set(&error, ABOX_E_INVALID, FILE_STAGE, path_of(download), "is no link any more");
	if (r < 0) {
		*retchange = is_change(r);
		return copying_fail(&download->copying, &error, r);
	}
	return symlinkat(entry.target, dir_fd, name) < 0 ? local_error(download, errno, "make the link") : 0;
}

static int get_entry(struct download *download, const char *name, int type)
{
	int dir_fd = descent_fd(&download->here), r;
	bool change = false;

	if (type == ABOX_FILE_FOLDER)
		return get_folder(download, name);
	if (type == ABOX_FILE_REGULAR) {
		r = get_file(download, name, dir_fd, name, &change);
	} else if (type == ABOX_FILE_LINK) {
		r = get_link(download, name, dir_fd, name, &change);
	} else {
		copying_leave_out(&download->copying, path_of(download), "no file, folder or link");
		return 0;
	}
	if (r < 0 && change) {
		copying_leave_out(&download->copying, path_of(download), CHANGED);
		if (download->copying.reterr)
			*download->copying.reterr = abox_error_free(*download->copying.reterr);
		return 0;
	}
	return r;
}

static int get_tree(struct download *download, const char *path, int dir_fd, const char *name)
{
	abox_files *files = download->copying.files;
	struct file_entry entry;
	int r;

	r = files_open_place(files, 0, path, &download->place, &entry, download->copying.reterr);
	if (r < 0)
		return r;
	r = begin_folder(download, dir_fd, name);
	while (r == 0 && download->n_levels > 0) {
		struct level *level = &download->levels[download->n_levels - 1];
		const char *next;

		path_cut(download, level->path_len);
		if (level->next == level->n) {
			r = end_folder(download);
			continue;
		}
		next = level->names[level->next++];
		if (level->path_len > 0)
			text_add(&download->path, "/");
		text_add(&download->path, next + 1);
		r = download->path.failed ? ABOX_E_MEMORY : get_entry(download, next + 1, next[0]);
	}
	files_close_number(files, download->place);
	return r;
}

static int get_any(struct download *download, const char *path, int dir_fd, const char *name, bool *retfolder)
{
	struct file_entry entry;
	bool change;
	int r;

	r = files_stat(download->copying.files, 0, path, false, &entry, download->copying.reterr);
	if (r < 0)
		return r;
	*retfolder = S_ISDIR(entry.mode);
	if (*retfolder)
		return get_tree(download, path, dir_fd, name);
	text_add(&download->path, path);
	r = copying_count(&download->copying, 1, 0, path);
	if (r < 0)
		return r;
	if (S_ISREG(entry.mode))
		return get_file(download, path, dir_fd, name, &change);
	if (S_ISLNK(entry.mode))
		return get_link(download, path, dir_fd, name, &change);
	return error_set(download->copying.reterr, ABOX_E_UNSUPPORTED, FILE_STAGE, path,
		"is neither a file nor a folder nor a link");
}

/* The folder that the target is in, and its name there. */
static int open_parent(const char *target, int *retfd, char name[NAME_MAX + 1], abox_error **reterr)
{
	_cleanup_(freep) char *copy = strdup(target);
	size_t len = copy ? strlen(copy) : 0;
	char *slash;
	int fd;

	if (!copy)
		return ABOX_E_MEMORY;
	while (len > 1 && copy[len - 1] == '/')
		copy[--len] = 0;
	slash = strrchr(copy, '/');
	if (!file_name_is_good(slash ? slash + 1 : copy))
		return error_set(reterr, ABOX_E_INVALID, FILE_STAGE, target, "does not end in a name");
	strcpy(name, slash ? slash + 1 : copy);
	if (slash)
		slash[slash == copy] = 0;
	fd = open(slash ? copy : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return error_set_errno(reterr, errno == ENOENT ? ABOX_E_NOT_FOUND : ABOX_E_IO, FILE_STAGE, target, errno,
			"cannot open the folder of the target");
	*retfd = fd;
	return 0;
}

static int choose_name(int parent_fd, char *ret, size_t size, abox_error **reterr)
{
	struct stat st;

	for (int i = 0; i < MAX_NAMES; i++) {
		uint64_t number = 0;

		if (getrandom(&number, sizeof(number), 0) != sizeof(number))
			break;
		snprintf(ret, size, ".agentbox-%016llx", (unsigned long long)number);
		if (fstatat(parent_fd, ret, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
			return 0;
	}
	return error_set_errno(reterr, ABOX_E_SYSTEM, FILE_STAGE, NULL, errno, "cannot find a name beside the target");
}

/* A file may be replaced where that is wanted, a folder never. */
static int check_target(int parent_fd, const char *name, const char *target, bool replace, abox_error **reterr)
{
	struct stat st;

	if (fstatat(parent_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (replace && !S_ISDIR(st.st_mode))
		return 0;
	return error_set(reterr, ABOX_E_EXISTS, FILE_STAGE, target, "is there already");
}

int abox_files_download(abox_files *files, const char *path, const char *target, const struct abox_copy_options *options,
	char **retjson, abox_error **reterr)
{
	_cleanup_(download_clear) struct download download = { 0 };
	_cleanup_(fd_closep) int parent_fd = -EBADF;
	char name[NAME_MAX + 1], temporary[40];
	bool replace, folder = false;
	int r;

	if (!files || !path || !target)
		return error_set(reterr, ABOX_E_INVALID, FILE_STAGE, NULL, "files, a path and a target are required");
	r = copying_begin(&download.copying, files, options, reterr);
	if (r < 0)
		return r;
	replace = download.copying.options->flags & ABOX_COPY_REPLACE;
	r = open_parent(target, &parent_fd, name, reterr);
	if (r == 0)
		r = check_target(parent_fd, name, target, replace, reterr);
	if (r == 0)
		r = choose_name(parent_fd, temporary, sizeof(temporary), reterr);
	if (r < 0)
		return r;
	r = get_any(&download, path, parent_fd, temporary, &folder);
	if (r == 0 && syscall(SYS_renameat2, parent_fd, temporary, parent_fd, name, replace && !folder ? 0 : NO_REPLACE) < 0)
		r = error_set_errno(reterr, errno == EEXIST ? ABOX_E_EXISTS : ABOX_E_IO, FILE_STAGE, target, errno,
			"cannot put it in its place");
	if (r < 0) {
		path_remove_tree(parent_fd, temporary);
		return r;
	}
	return copying_report(&download.copying, retjson);
}
