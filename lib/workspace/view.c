/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The merged tree of some layers: one folder of it is the list of the folders that take part, and a name is
 * looked up in them from the newest on, by the rules of the kernel's overlay: a character device 0:0 is a
 * deletion, a folder marked opaque hides what is below, a folder marked as moved goes on elsewhere in the
 * layers below.
 *
 * What is promised: the answer is that of a mount of the same layers, and no name leads out of a layer. What
 * is left to others: that the layers do not change meanwhile (the lock of the workspace, or a frozen box).
 */
#include "workspace/view.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"

static const char *const mark_prefixes[] = {
	[VIEW_PLAIN] = NULL,
	[VIEW_TRUSTED] = "trusted.overlay.",
	[VIEW_USER] = "user.overlay.",
};

static bool is_whiteout(const struct stat *st)
{
	return S_ISCHR(st->st_mode) && st->st_rdev == 0;
}

void view_dir_clear(struct view_dir *dir)
{
	for (size_t i = 0; i < dir->n_parts; i++) {
		/* where it fails the box finds its folder open to itself: nothing that others gain by */
		if (dir->parts[i].lent)
			(void)!fchmod(dir->parts[i].fd, dir->parts[i].lent & 07777);
		fd_close(dir->parts[i].fd);
	}
	free(dir->parts);
	*dir = VIEW_DIR_INIT;
}

/* Takes the descriptor, on failure too. */
static int dir_add(struct view_dir *dir, int fd, mode_t lent, unsigned int layer)
{
	struct view_part *parts;
	struct stat st;

	if (fstat(fd, &st) < 0) {
		int r = -errno;

		fd_close(fd);
		return r;
	}
	/* In steps of powers of two, as most folders have few parts. */
	if ((dir->n_parts & (dir->n_parts - 1)) == 0) {
		parts = realloc(dir->parts, (dir->n_parts ? dir->n_parts * 2 : 1) * sizeof(*parts));
		if (!parts) {
			fd_close(fd);
			return -ENOMEM;
		}
		dir->parts = parts;
	}
	dir->parts[dir->n_parts++] = (struct view_part){fd, layer, st.st_dev, st.st_ino, lent};
	return 0;
}

/* Reads a mark. Its length, 0 when it is not there, or -errno; value is NUL-terminated. */
static ssize_t read_mark(
	const struct view *view, unsigned int layer, int fd, const char *name, char *value, size_t size)
{
	const char *prefix = mark_prefixes[view->layers[layer].flavour];
	char attribute[64];
	ssize_t len;

	value[0] = 0;
	if (!prefix)
		return 0;
	strcpy(attribute, prefix);
	strcat(attribute, name);
	len = fgetxattr(fd, attribute, value, size - 1);
	if (len < 0)
		return errno == ENODATA || errno == EOPNOTSUPP ? 0 : -errno;
	value[len] = 0;
	return len;
}

/* 1 when nothing below this folder shows through. The lowest layer has nothing below. */
static int is_opaque(const struct view *view, unsigned int layer, int fd)
{
	char value[8];
	ssize_t len;

	if (layer + 1 >= view->n_layers)
		return 0;
	len = read_mark(view, layer, fd, "opaque", value, sizeof(value));
	if (len == -ERANGE)
		return 0;
	return len < 0 ? (int)len : len == 1 && value[0] == 'y';
}

static int open_folder(int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* Ours to open: a plain user's own file in a layer. Never one of a folder of the host, which is only read. */
static bool may_lend(const struct view *view, unsigned int layer, const struct stat *st)
{
	return !view->layers[layer].host_ids && geteuid() != 0 && st->st_uid == geteuid();
}

static int change_mode(int path_fd, mode_t mode)
{
	char self[40];

	snprintf(self, sizeof(self), "/proc/self/fd/%d", path_fd);
	return fchmodat(AT_FDCWD, self, mode & 07777, 0) < 0 ? -errno : 0;
}

/* A folder that is to be read and searched. */
static int open_part(const struct view *view, unsigned int layer, int dir_fd, const char *name, mode_t *retlent)
{
	_cleanup_(fd_closep) int path_fd = -EBADF;
	int fd = open_folder(dir_fd, name), r;
	struct stat st;

	*retlent = 0;
	if (fd >= 0 && (fstat(fd, &st) < 0 || (st.st_mode & 0500) == 0500 || !may_lend(view, layer, &st)))
		return fd;
	if (fd < 0 && fd != -EACCES)
		return fd;
	if (fd < 0) {
		path_fd = strcmp(name, ".") == 0
			? fcntl(dir_fd, F_DUPFD_CLOEXEC, 0)
			: openat(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (path_fd < 0 || fstat(path_fd, &st) < 0 || !may_lend(view, layer, &st))
			return -EACCES;
	}
	r = change_mode(fd < 0 ? path_fd : fd, st.st_mode | 0700);
	if (r == 0 && fd < 0)
		fd = open_folder(path_fd, ".");
	if (r < 0)
		fd_close(fd);
	else
		*retlent = st.st_mode;
	return r < 0 ? r : fd;
}

int view_open_root(const struct view *view, struct view_dir *ret)
{
	struct view_dir dir = VIEW_DIR_INIT;

	if (view->n_layers == 0 || view->n_layers > VIEW_MAX_LAYERS)
		return -EINVAL;
	/* The roots are merged always: the kernel does not look for an opaque mark on them. */
	for (unsigned int i = 0; i < view->n_layers; i++) {
		mode_t lent;
		int fd = open_part(view, i, view->layers[i].root_fd, ".", &lent), r;

		r = fd < 0 ? fd : dir_add(&dir, fd, lent, i);
		if (r < 0) {
			view_dir_clear(&dir);
			return r;
		}
	}
	*ret = dir;
	return 0;
}

int view_lookup(const struct view *view, const struct view_dir *dir, const char *name, struct view_entry *ret)
{
	*ret = (struct view_entry){0};
	for (size_t i = 0; i < dir->n_parts; i++) {
		const struct view_part *part = &dir->parts[i];

		if (fstatat(part->fd, name, &ret->st, AT_SYMLINK_NOFOLLOW) < 0) {
			if (errno == ENOENT)
				continue;
			return -errno;
		}
		ret->layer = part->layer;
		if (is_whiteout(&ret->st)) {
			memset(&ret->st, 0, sizeof(ret->st));
			ret->deleted = true;
		}
		return 0;
	}
	memset(&ret->st, 0, sizeof(ret->st));
	return 0;
}

/* The state of one look-up of a folder through the layers. */
struct descent {
	const struct view *view;
	struct view_dir found;
	char name[NAME_MAX + 1]; /* in the folders of the parents */
	char path[PATH_MAX];     /* from the roots, once a folder was moved across; else empty */
	bool stop;
};

/*
 * What a moved folder is called further down: an absolute path, or another name beside it. `post` is what of
 * the path is still to come (with its slash): a folder above the one that is looked for may have been moved
 * as well.
 */
static int follow_redirect(struct descent *descent, unsigned int layer, int fd, const char *post)
{
	char value[PATH_MAX], path[PATH_MAX];
	size_t prefix = 0;
	ssize_t len;

	len = read_mark(descent->view, layer, fd, "redirect", value, sizeof(value));
	if (len <= 0)
		return (int)len;
	if (memchr(value, 0, (size_t)len))
		return -EUCLEAN;
	if (value[0] != '/' && (strchr(value, '/') || strlen(value) > NAME_MAX))
		return -EUCLEAN;
	if (value[0] != '/' && !descent->path[0]) {
		strcpy(descent->name, value);
		return 0;
	}
	if (value[0] != '/') {
		prefix = strlen(descent->path) - strlen(post);
		while (prefix > 0 && descent->path[prefix - 1] != '/')
			prefix--;
	}
	if (prefix + strlen(value) + strlen(post) >= sizeof(path))
		return -ENAMETOOLONG;
	memcpy(path, descent->path, prefix);
	strcpy(path + prefix, value);
	strcat(path, post);
	strcpy(descent->path, path);
	/* An opaque folder on the way counts no more: this one comes from elsewhere. */
	if (value[0] == '/')
		descent->stop = false;
	return 0;
}

/* `name` in one folder of one layer: adds it when it is a folder, and says when the layers below do not
 * count. */
static int descend_part(struct descent *descent, int dir_fd, const char *name, unsigned int layer)
{
	struct stat st;
	mode_t lent;
	int fd, r;

	fd = open_part(descent->view, layer, dir_fd, name, &lent);
	if (fd == -ENOENT)
		return 0;
	if (fd == -ENOTDIR || fd == -ELOOP) { /* a file or a deletion: it hides what is below */
		descent->stop = true;
		return 0;
	}
	if (fd < 0) {
		/* A whiteout answers ENXIO on some filesystems. */
		if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode)) {
			descent->stop = true;
			return 0;
		}
		return fd;
	}
	r = dir_add(&descent->found, fd, lent, layer);
	if (r < 0)
		return r;
	r = is_opaque(descent->view, layer, fd);
	if (r < 0)
		return r;
	if (r > 0) {
		descent->stop = true;
		return 0;
	}
	return layer + 1 < descent->view->n_layers ? follow_redirect(descent, layer, fd, "") : 0;
}

/* The moved folder in one layer, from its root. */
static int descend_path(struct descent *descent, unsigned int layer)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	char path[PATH_MAX], *rest = path + 1;

	strcpy(path, descent->path);
	fd = open_folder(descent->view->layers[layer].root_fd, ".");
	if (fd < 0)
		return fd;
	for (;;) {
		char *slash = strchr(rest, '/');
		int next, r;

		if (!slash)
			return descend_part(descent, fd, rest, layer);
		*slash = 0;
		if (strcmp(rest, "..") == 0 || !*rest) /* Security: never out of the layer */
			return -EUCLEAN;
		next = open_folder(fd, rest);
		if (next == -ENOENT)
			return 0;
		if (next == -ENOTDIR || next == -ELOOP || next == -ENXIO) {
			descent->stop = true;
			return 0;
		}
		if (next < 0)
			return next;
		fd_close(fd);
		fd = next;
		*slash = '/';
		r = is_opaque(descent->view, layer, fd);
		if (r > 0)
			descent->stop = true;
		else if (r == 0 && layer + 1 < descent->view->n_layers)
			r = follow_redirect(descent, layer, fd, slash);
		if (r < 0)
			return r;
		rest = slash + 1;
	}
}

int view_open_dir(const struct view *view, const struct view_dir *dir, const char *name, struct view_dir *ret)
{
	_cleanup_(freep) struct descent *descent = calloc(1, sizeof(*descent));
	unsigned int layer = 0;
	size_t part = 0;
	int r = 0;

	if (!descent)
		return -ENOMEM;
	if (strlen(name) > NAME_MAX)
		return -ENAMETOOLONG;
	descent->view = view;
	strcpy(descent->name, name);
	while (r >= 0 && !descent->stop && layer < view->n_layers) {
		if (descent->path[0]) {
			r = descend_path(descent, layer++);
			continue;
		}
		if (part >= dir->n_parts)
			break;
		layer = dir->parts[part].layer;
		r = descend_part(descent, dir->parts[part].fd, descent->name, layer);
		layer++;
		part++;
	}
	if (r >= 0 && descent->found.n_parts == 0)
		r = -ENOENT;
	if (r < 0) {
		view_dir_clear(&descent->found);
		return r;
	}
	*ret = descent->found;
	return 0;
}

static const struct view_part *part_of_layer(const struct view_dir *dir, unsigned int layer)
{
	for (size_t i = 0; i < dir->n_parts; i++)
		if (dir->parts[i].layer == layer)
			return &dir->parts[i];
	return NULL;
}

/* A file whose owner took the right to read from himself: lent for the moment of opening it. */
static int open_closed(const struct view *view, const struct view_part *part, const char *name, int flags)
{
	_cleanup_(fd_closep) int path_fd = -EBADF;
	struct stat st;
	int fd, r;

	path_fd = openat(part->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (path_fd < 0 || fstat(path_fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || !may_lend(view, part->layer, &st))
		return -EACCES;
	r = change_mode(path_fd, st.st_mode | 0400);
	if (r < 0)
		return r;
	fd = openat(part->fd, name, flags);
	r = fd < 0 ? -errno : fd;
	(void)change_mode(path_fd, st.st_mode);
	return r;
}

int view_open_file(const struct view *view, const struct view_dir *dir, const char *name,
	const struct view_entry *entry, int *retfd)
{
	const struct view_part *part = part_of_layer(dir, entry->layer);
	_cleanup_(fd_closep) int fd = -EBADF;
	struct stat st;
	int flags = O_NOFOLLOW | O_CLOEXEC;

	if (!part)
		return -ENOENT;
	/* Security: nothing but a regular file is ever opened for reading; O_NONBLOCK in case it was
	 * replaced. */
	flags |= S_ISREG(entry->st.st_mode) ? O_RDONLY | O_NONBLOCK | O_NOCTTY : O_PATH;
	fd = openat(part->fd, name, flags);
	if (fd < 0 && errno == EACCES && S_ISREG(entry->st.st_mode))
		fd = open_closed(view, part, name, flags);
	else if (fd < 0)
		fd = -errno;
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_dev != entry->st.st_dev || st.st_ino != entry->st.st_ino ||
		(st.st_mode & S_IFMT) != (entry->st.st_mode & S_IFMT))
		return -ESTALE;
	*retfd = steal_fd(fd);
	return 0;
}

int view_read_link(const struct view *view, const struct view_dir *dir, const char *name,
	const struct view_entry *entry, char **rettarget)
{
	const struct view_part *part = part_of_layer(dir, entry->layer);
	char target[PATH_MAX];
	ssize_t len;

	(void)view;
	if (!part)
		return -ENOENT;
	len = readlinkat(part->fd, name, target, sizeof(target));
	if (len < 0)
		return -errno;
	if ((size_t)len >= sizeof(target))
		return -ENAMETOOLONG;
	target[len] = 0;
	*rettarget = strdup(target);
	return *rettarget ? 0 : -ENOMEM;
}

int view_find(const struct view *view, const char *path, struct view_dir *retdir, struct view_entry *ret,
	const char **retname)
{
	_cleanup_(view_dir_clear) struct view_dir dir = VIEW_DIR_INIT;
	char name[NAME_MAX + 1];
	int r;

	r = view_open_root(view, &dir);
	while (r >= 0) {
		size_t len = strcspn(path, "/");
		struct view_dir next = VIEW_DIR_INIT;

		if (len == 0 || len > NAME_MAX)
			return len ? -ENAMETOOLONG : -EINVAL;
		memcpy(name, path, len);
		name[len] = 0;
		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
			return -EINVAL;
		if (!path[len])
			break;
		r = view_open_dir(view, &dir, name, &next);
		view_dir_clear(&dir);
		dir = next;
		path += len + 1;
	}
	if (r >= 0)
		r = view_lookup(view, &dir, path, ret);
	if (r < 0)
		return r;
	*retdir = dir;
	dir = VIEW_DIR_INIT;
	*retname = path;
	return 0;
}
