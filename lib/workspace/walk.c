/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Walking a tree that somebody hostile may have made. What is promised: each entry once, in order of name; a
 * bounded number of descriptors whatever the depth; a directory that its owner closed to himself is opened
 * and closed again. That nobody changes the tree meanwhile is left to the caller; a change leads to an error,
 * never out of the tree.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/strings.h"
#include "kernel/compat.h"
#include "workspace/tree.h"

#define STAGE ABOX_STAGE_WORKSPACE
#define READ_BITS(st) (S_ISDIR((st)->st_mode) ? 0700 : 0400)

static int change_mode(int path_fd, mode_t mode)
{
	char self[40];

	snprintf(self, sizeof(self), "/proc/self/fd/%d", path_fd);
	return fchmodat(AT_FDCWD, self, mode & 07777, 0) < 0 ? -errno : 0;
}

int tree_open(int dir_fd, const char *name, const struct stat *st)
{
	_cleanup_(fd_closep) int path_fd = -EBADF, fd = -EBADF;
	int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (S_ISDIR(st->st_mode) ? O_DIRECTORY : 0);
	struct stat now;
	char self[40];

	path_fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (path_fd < 0 || fstat(path_fd, &now) < 0)
		return -errno;
	if (now.st_ino != st->st_ino || now.st_dev != st->st_dev ||
		(now.st_mode & S_IFMT) != (st->st_mode & S_IFMT))
		return -ESTALE;
	if (!S_ISREG(now.st_mode) && !S_ISDIR(now.st_mode))
		return -EINVAL; /* Security: opening a device or a fifo may do something */
	if ((now.st_mode & READ_BITS(st)) != READ_BITS(st) && geteuid() != 0 && now.st_uid == geteuid()) {
		int r = change_mode(path_fd, now.st_mode | READ_BITS(st));

		if (r < 0)
			return r;
	}
	snprintf(self, sizeof(self), "/proc/self/fd/%d", path_fd);
	fd = open(self, flags | O_NOATIME);
	if (fd < 0 && errno == EPERM) /* not ours */
		fd = open(self, flags);
	if (fd < 0) {
		int r = -errno;

		tree_give_back(path_fd, st);
		return r;
	}
	if (!S_ISDIR(st->st_mode))
		tree_give_back(path_fd, st);
	return steal_fd(fd);
}

void tree_give_back(int fd, const struct stat *st)
{
	if ((st->st_mode & READ_BITS(st)) != READ_BITS(st) && geteuid() != 0 && st->st_uid == geteuid())
		(void)change_mode(fd, st->st_mode);
}

/* The names of one directory, sorted. */
struct listing {
	char **names;
	size_t n;
	size_t next;
	size_t path_len; /* of the path of the directory */
	struct stat st;
};

static void listing_clear(struct listing *listing)
{
	for (size_t i = 0; i < listing->n; i++)
		free(listing->names[i]);
	free(listing->names);
	*listing = (struct listing){0};
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int listing_add(struct listing *listing, size_t *allocated, const char *name)
{
	if (listing->n == *allocated) {
		size_t more = *allocated ? *allocated * 2 : 32;
		char **names = reallocarray(listing->names, more, sizeof(*names));

		if (!names)
			return -ENOMEM;
		listing->names = names;
		*allocated = more;
	}
	listing->names[listing->n] = strdup(name);
	if (!listing->names[listing->n])
		return -ENOMEM;
	listing->n++;
	return 0;
}

static int listing_read(struct listing *listing, int dir_fd)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	size_t allocated = 0;

	if (!dir) {
		r = -errno;
		fd_close(fd);
		return r;
	}
	while (r >= 0 && (errno = 0, entry = readdir(dir))) {
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = listing_add(listing, &allocated, entry->d_name);
	}
	if (r >= 0 && errno != 0)
		r = -errno;
	closedir(dir);
	if (r >= 0 && listing->n > 1)
		qsort(listing->names, listing->n, sizeof(char *), compare_names);
	return r;
}

struct walk {
	const struct tree_visitor *visitor;
	const char *place;
	abox_error **reterr;
	struct descent descent;
	struct listing *levels; /* as many as the descent has */
	size_t n_levels, allocated;
	struct text path;
	uint64_t mnt_id;
};

static void walk_clear(struct walk *walk)
{
	/* A walk that ended early gives back what was lent, as far as the directories are still open. */
	for (size_t i = walk->n_levels; i > 0; i--) {
		if (walk->descent.levels[i - 1].fd >= 0)
			tree_give_back(walk->descent.levels[i - 1].fd, &walk->levels[i - 1].st);
		listing_clear(&walk->levels[i - 1]);
	}
	free(walk->levels);
	descent_clear(&walk->descent);
	text_clear(&walk->path);
}

static int walk_fail(struct walk *walk, int sys_errno, const char *what)
{
	return error_set_errno(walk->reterr, ABOX_E_IO, STAGE, walk->place, sys_errno, "cannot %s '%.200s'",
		what, walk->path.data && walk->path.data[0] ? walk->path.data : ".");
}

static int mount_of(int dir_fd, const char *name, uint64_t *ret)
{
	struct sys_statx stx;

	if (sys_statx(dir_fd, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, SYS_STATX_MNT_ID, &stx) < 0)
		return -errno;
	*ret = stx.mnt_id;
	return 0;
}

static int walk_push(struct walk *walk, int fd_taken, const struct stat *st)
{
	_cleanup_(fd_closep) int fd = fd_taken;
	struct listing *levels;
	int r;

	if (walk->n_levels == walk->allocated) {
		levels = reallocarray(walk->levels, walk->allocated + 32, sizeof(*levels));
		if (!levels)
			return -ENOMEM;
		walk->levels = levels;
		walk->allocated += 32;
	}
	walk->levels[walk->n_levels] = (struct listing){.path_len = walk->path.len, .st = *st};
	r = listing_read(&walk->levels[walk->n_levels], fd);
	if (r >= 0)
		r = descent_push(&walk->descent, steal_fd(fd));
	if (r < 0)
		listing_clear(&walk->levels[walk->n_levels]);
	else
		walk->n_levels++;
	return r;
}

static int walk_enter(struct walk *walk, const struct tree_entry *entry)
{
	int fd, r;

	fd = tree_open(entry->dir_fd, entry->name, &entry->st);
	if (fd < 0)
		return walk_fail(walk, -fd, "open");
	r = walk->visitor->enter ? walk->visitor->enter(walk->visitor->userdata, entry, fd) : 0;
	if (r == 0) {
		r = walk_push(walk, fd, &entry->st);
		return r < 0 ? walk_fail(walk, -r, "read") : 0;
	}
	tree_give_back(fd, &entry->st);
	fd_close(fd);
	return r < 0 ? r : 0;
}

static int walk_entry(struct walk *walk, const char *name)
{
	struct tree_entry entry = {.name = name, .dir_fd = descent_fd(&walk->descent)};
	uint64_t mnt_id = walk->mnt_id;
	int r = 0;

	if (walk->path.len > 0)
		text_add(&walk->path, "/");
	text_add(&walk->path, name);
	if (walk->path.failed)
		return ABOX_E_MEMORY;
	entry.path = walk->path.data;
	if (fstatat(entry.dir_fd, name, &entry.st, AT_SYMLINK_NOFOLLOW) < 0)
		return walk_fail(walk, errno, "look at");
	if (S_ISDIR(entry.st.st_mode))
		r = mount_of(entry.dir_fd, name, &mnt_id);
	if (r < 0)
		return walk_fail(walk, -r, "look at");
	entry.is_mount = mnt_id != walk->mnt_id;
	if (S_ISDIR(entry.st.st_mode) && !entry.is_mount)
		return walk_enter(walk, &entry);
	return walk->visitor->other ? walk->visitor->other(walk->visitor->userdata, &entry) : 0;
}

static void walk_cut(struct walk *walk, size_t len)
{
	walk->path.len = len;
	if (walk->path.data)
		walk->path.data[len] = 0;
}

static int walk_leave(struct walk *walk)
{
	struct listing *listing = &walk->levels[walk->n_levels - 1];
	struct tree_entry entry = {
		.path = walk->path.data ? walk->path.data : "", .dir_fd = -EBADF, .st = listing->st};
	const char *slash = strrchr(entry.path, '/');
	int fd = descent_fd(&walk->descent), r = 0;

	entry.name = slash ? slash + 1 : entry.path;
	if (walk->n_levels > 1)
		entry.dir_fd = walk->descent.levels[walk->n_levels - 2].fd;
	if (walk->visitor->leave)
		r = walk->visitor->leave(walk->visitor->userdata, &entry, fd);
	if (walk->n_levels > 1)
		tree_give_back(fd, &listing->st);
	listing_clear(listing);
	walk->n_levels--;
	if (r < 0)
		return r;
	r = descent_pop(&walk->descent);
	return r < 0 ? walk_fail(walk, -r, "go back from") : 0;
}

static int walk_run(struct walk *walk)
{
	int r = 0;

	while (r >= 0 && walk->n_levels > 0) {
		struct listing *listing = &walk->levels[walk->n_levels - 1];

		walk_cut(walk, listing->path_len);
		if (listing->next < listing->n)
			r = walk_entry(walk, listing->names[listing->next++]);
		else
			r = walk_leave(walk);
	}
	return r < 0 ? r : 0;
}

int tree_walk(int root_fd, const char *place, const struct tree_visitor *visitor, abox_error **reterr)
{
	_cleanup_(walk_clear) struct walk walk = {.visitor = visitor, .place = place, .reterr = reterr};
	struct tree_entry root = {.path = "", .name = "", .dir_fd = -EBADF};
	int fd, r;

	fd = openat(root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &root.st) < 0) {
		r = walk_fail(&walk, errno, "open");
		fd_close(fd);
		return r;
	}
	r = mount_of(fd, "", &walk.mnt_id);
	if (r < 0) {
		fd_close(fd);
		return walk_fail(&walk, -r, "look at");
	}
	r = visitor->enter ? visitor->enter(visitor->userdata, &root, fd) : 0;
	if (r != 0) {
		fd_close(fd);
		return r < 0 ? r : 0;
	}
	r = walk_push(&walk, fd, &root.st);
	if (r < 0)
		return walk_fail(&walk, -r, "read");
	return walk_run(&walk);
}
