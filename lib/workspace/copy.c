/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Copying a tree. What is promised: contents, modes, times, attributes, holes and hard links arrive, or the
 * place is told as lost; nothing in the target is anybody's but the box's; a file that was swapped for
 * another while it was looked at is noticed. Left to the caller: an empty target of his own, syncing, and
 * removing what a failure leaves.
 *
 * Bytes are shared with the source where the filesystem can, else copied in the kernel, else read and
 * written.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/strings.h"
#include "workspace/attribute.h"
#include "workspace/tree.h"

#define STAGE ABOX_STAGE_WORKSPACE
#define SHARE_RANGE 0x40049409UL /* FICLONE of linux/fs.h */
#define CHUNK (16U << 20)
#define PROGRESS_USEC (100 * USEC_PER_MSEC)
/* Where the first name of a file with several is remembered while the tree is copied; no name of the source,
 * since the target is empty and this folder goes before the root is left. */
#define LINKS ".agentbox-links"

struct copying {
	struct tree_copy *copy;
	abox_error **reterr;
	struct descent target;
	int to_fd;
	int from_root_fd;
	int links_fd;
	char links[48];
	uint64_t told_usec;
};

static int fail(const struct copying *copying, int sys_errno, const char *path, const char *what)
{
	return error_set_errno(
		copying->reterr, ABOX_E_IO, STAGE, path[0] ? path : ".", sys_errno, "cannot copy: %s", what);
}

static void lose(const struct copying *copying, const char *path, const char *what)
{
	struct tree_copy *copy = copying->copy;
	size_t used = strlen(copy->lost);
	int n;

	copy->n_lost++;
	n = snprintf(copy->lost + used, sizeof(copy->lost) - used, "%s: %s\n", path[0] ? path : ".", what);
	if (n < 0 || (size_t)n >= sizeof(copy->lost) - used)
		copy->lost[used] = 0; /* does not fit: it is counted */
}

static int tell(struct copying *copying, bool now)
{
	struct tree_copy *copy = copying->copy;
	uint64_t usec;

	if (!copy->progress)
		return 0;
	usec = clock_monotonic_usec();
	if (!now && usec - copying->told_usec < PROGRESS_USEC)
		return 0;
	copying->told_usec = usec;
	if (copy->progress(copy->userdata, copy->n_entries, copy->n_bytes) < 0)
		return error_set(copying->reterr, ABOX_E_CANCELED, STAGE, NULL, "the copy was canceled");
	return 0;
}

static int count_entry(struct copying *copying, const char *path)
{
	struct tree_copy *copy = copying->copy;

	copy->n_entries++;
	if (copy->max_entries && copy->n_entries > copy->max_entries)
		return error_set(copying->reterr, ABOX_E_LIMIT, STAGE, path, "more than %llu files",
			(unsigned long long)copy->max_entries);
	return tell(copying, false);
}

static int count_bytes(struct copying *copying, const char *path, uint64_t n)
{
	struct tree_copy *copy = copying->copy;

	copy->n_bytes += n;
	if (copy->max_bytes && copy->n_bytes > copy->max_bytes)
		return error_set(copying->reterr, ABOX_E_LIMIT, STAGE, path, "more than %llu bytes",
			(unsigned long long)copy->max_bytes);
	return tell(copying, false);
}

/* An id of the host in the box's range. Security: files of anybody else but the owner become nobody's, as
 * they would be in a box that sees the folder itself; else a copy made by root would hand out what only root
 * may read. */
static uint32_t id_from_host(uint32_t id, uint32_t owner, uint32_t inside)
{
	return id == owner ? inside : 65534;
}

static int give_owner(const struct copying *copying, int fd, const struct stat *st)
{
	const struct layer_ids *ids = &copying->copy->ids;
	uint32_t uid = st->st_uid, gid = st->st_gid;

	if (ids->kind == LAYER_IDS_OWN)
		return 0; /* it is ours already */
	if (!(copying->copy->flags & TREE_COPY_LAYER)) {
		uid = layer_uid_on_disk(ids, id_from_host(uid, ids->owner_uid, ids->inside_uid));
		gid = layer_gid_on_disk(ids, id_from_host(gid, ids->owner_gid, ids->inside_gid));
	}
	return fchownat(fd, "", uid, gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

static bool keeps_attribute(const struct copying *copying, const char *name)
{
	if (attribute_is_portable(name))
		return true;
	if (!(copying->copy->flags & TREE_COPY_LAYER))
		return false;
	/* `origin` and `uuid` tell of files of the layer that was copied from; a copy has none. */
	return string_starts_with(name, layer_attribute_prefix(copying->copy->flavour)) &&
	       strcmp(name + strlen(layer_attribute_prefix(copying->copy->flavour)), "origin") != 0 &&
	       strcmp(name + strlen(layer_attribute_prefix(copying->copy->flavour)), "uuid") != 0 &&
	       strcmp(name + strlen(layer_attribute_prefix(copying->copy->flavour)), "impure") != 0;
}

/* Attributes that nobody misses: overlayfs makes them anew. */
static bool is_bookkeeping(const struct copying *copying, const char *name)
{
	return (copying->copy->flags & TREE_COPY_LAYER) &&
	       string_starts_with(name, layer_attribute_prefix(copying->copy->flavour));
}

static int copy_attributes(const struct copying *copying, int from_fd, int to_fd, const char *path)
{
	_cleanup_(attribute_list_clear) struct attribute_list list = {0};
	int r;

	r = attribute_list_read(from_fd, &list);
	if (r < 0)
		return fail(copying, -r, path, "its attributes cannot be read");
	for (size_t i = 0; i < list.n; i++) {
		_cleanup_(freep) void *value = NULL;
		size_t len;

		if (!keeps_attribute(copying, list.names[i])) {
			if (!is_bookkeeping(copying, list.names[i]))
				lose(copying, path, list.names[i]);
			continue;
		}
		r = attribute_read(from_fd, list.names[i], &value, &len);
		if (r >= 0)
			r = attribute_write(to_fd, list.names[i], value, len);
		if (r < 0 && string_starts_with(list.names[i], "user.") &&
			!is_bookkeeping(copying, list.names[i]))
			lose(copying, path, list.names[i]);
		else if (r < 0)
			return fail(copying, -r, path, list.names[i]);
	}
	return 0;
}

/* Mode and times last: writing and chown change both. */
static int copy_facts(const struct copying *copying, int to_fd, const struct stat *st, const char *path)
{
	struct timespec times[2] = {st->st_atim, st->st_mtim};
	mode_t mode = st->st_mode & 07777;
	int r;

	r = give_owner(copying, to_fd, st);
	if (r < 0)
		return fail(copying, -r, path, "its owner cannot be set");
	if (!(copying->copy->flags & TREE_COPY_LAYER) && !S_ISDIR(st->st_mode) && (mode & 06000)) {
		mode &= 01777;
		lose(copying, path, "set-id mode");
	}
	if (fchmod(to_fd, mode) < 0 || futimens(to_fd, times) < 0)
		return fail(copying, errno, path, "mode or times cannot be set");
	return 0;
}

static int copy_by_hand(int from_fd, int to_fd, off_t at, size_t len)
{
	_cleanup_(freep) char *buffer = malloc(1U << 16);

	if (!buffer)
		return -ENOMEM;
	while (len > 0) {
		ssize_t n = pread(from_fd, buffer, MIN(len, (size_t)1 << 16), at);
		int r;

		if (n <= 0)
			return n < 0 ? -errno : 0;
		r = fd_pwrite_all(to_fd, buffer, (size_t)n, (uint64_t)at);
		if (r < 0)
			return r;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

/* One piece that holds data, at the same place of the target. */
static int copy_range(int from_fd, int to_fd, off_t at, size_t len)
{
	off_t in = at, out = at;

	while (len > 0) {
		ssize_t n = copy_file_range(from_fd, &in, to_fd, &out, len, 0);

		if (n == 0)
			return 0; /* it became shorter meanwhile */
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EIO || errno == EFBIG))
			return -errno;
		if (n < 0)
			return copy_by_hand(from_fd, to_fd, in, len);
		len -= (size_t)n;
	}
	return 0;
}

static int copy_content(
	struct copying *copying, int from_fd, int to_fd, const struct stat *st, const char *path)
{
	off_t at = 0, end;
	int r;

	if (!(copying->copy->flags & TREE_COPY_NO_CLONE) && st->st_size > 0 &&
		ioctl(to_fd, SHARE_RANGE, from_fd) == 0)
		return count_bytes(copying, path, (uint64_t)st->st_blocks * 512);
	if (st->st_size > 0 && ftruncate(to_fd, st->st_size) < 0)
		return fail(copying, errno, path, "its size");
	while (at < st->st_size) {
		at = lseek(from_fd, at, SEEK_DATA);
		if (at < 0 && errno == ENXIO)
			return 0; /* a hole up to the end */
		end = at < 0 ? -1 : lseek(from_fd, at, SEEK_HOLE);
		if (end < 0)
			return fail(copying, errno, path, "its holes");
		for (end = MIN(end, st->st_size); at < end; at += CHUNK) {
			size_t len = (size_t)MIN((off_t)CHUNK, end - at);

			r = copy_range(from_fd, to_fd, at, len);
			if (r < 0)
				return fail(copying, -r, path, "its content");
			r = count_bytes(copying, path, len);
			if (r < 0)
				return r;
		}
		at = end;
	}
	return 0;
}

/* 1 when the file has been linked to its first copy, 0 when this is the first. */
static int link_to_first(const struct copying *copying, const struct tree_entry *entry, char name[48])
{
	snprintf(name, 48, "%llx-%llx", (unsigned long long)entry->st.st_dev,
		(unsigned long long)entry->st.st_ino);
	if (linkat(copying->links_fd, name, descent_fd(&copying->target), entry->name, 0) == 0)
		return 1;
	if (errno == ENOENT)
		return 0;
	if (errno != EMLINK)
		return fail(copying, errno, entry->path, "a hard link");
	/* The filesystem allows no further link: a new first copy. */
	lose(copying, entry->path, "hard link");
	return unlinkat(copying->links_fd, name, 0) < 0 ? fail(copying, errno, entry->path, "a hard link")
							: 0;
}

static int copy_regular(struct copying *copying, const struct tree_entry *entry)
{
	_cleanup_(fd_closep) int from_fd = -EBADF, to_fd = -EBADF;
	char first[48] = "";
	int r;

	if (entry->st.st_nlink > 1) {
		r = link_to_first(copying, entry, first);
		if (r != 0)
			return r;
	}
	from_fd = tree_open(entry->dir_fd, entry->name, &entry->st);
	if (from_fd < 0)
		return fail(copying, -from_fd, entry->path, "it cannot be opened");
	to_fd = openat(descent_fd(&copying->target), entry->name,
		O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (to_fd < 0)
		return fail(copying, errno, entry->path, "it cannot be made");
	r = copy_content(copying, from_fd, to_fd, &entry->st, entry->path);
	if (r >= 0)
		r = copy_attributes(copying, from_fd, to_fd, entry->path);
	if (r >= 0)
		r = copy_facts(copying, to_fd, &entry->st, entry->path);
	if (r >= 0 && first[0] &&
		linkat(descent_fd(&copying->target), entry->name, copying->links_fd, first, 0) < 0)
		r = fail(copying, errno, entry->path, "a hard link");
	return r;
}

static int copy_symlink(struct copying *copying, const struct tree_entry *entry)
{
	struct timespec times[2] = {entry->st.st_atim, entry->st.st_mtim};
	_cleanup_(fd_closep) int fd = -EBADF;
	char target[4097];
	ssize_t n;
	int r;

	n = readlinkat(entry->dir_fd, entry->name, target, sizeof(target));
	if (n <= 0 || (size_t)n >= sizeof(target))
		return fail(copying, n < 0 ? errno : ENAMETOOLONG, entry->path, "the link cannot be read");
	target[n] = 0;
	if (symlinkat(target, descent_fd(&copying->target), entry->name) < 0)
		return fail(copying, errno, entry->path, "the link cannot be made");
	fd = openat(descent_fd(&copying->target), entry->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return fail(copying, errno, entry->path, "the link cannot be opened");
	r = give_owner(copying, fd, &entry->st);
	if (r < 0)
		return fail(copying, -r, entry->path, "its owner cannot be set");
	if (utimensat(descent_fd(&copying->target), entry->name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return fail(copying, errno, entry->path, "its times cannot be set");
	return 0;
}

/* A fifo or a whiteout: no content, and not to be opened. */
static int copy_node(struct copying *copying, const struct tree_entry *entry)
{
	struct timespec times[2] = {entry->st.st_atim, entry->st.st_mtim};
	int dir_fd = descent_fd(&copying->target), r = 0;
	bool whiteout = layer_is_whiteout(&entry->st);
	_cleanup_(fd_closep) int fd = -EBADF;

	if (whiteout)
		r = layer_make_whiteout(dir_fd, entry->name);
	else if (mkfifoat(dir_fd, entry->name, 0600) < 0)
		r = -errno;
	if (r < 0)
		return fail(copying, -r, entry->path, "it cannot be made");
	if (whiteout)
		return 0;
	fd = openat(dir_fd, entry->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	r = fd < 0 ? -errno : give_owner(copying, fd, &entry->st);
	if (r >= 0 && (fchmodat(dir_fd, entry->name, entry->st.st_mode & 0777, 0) < 0 ||
			      utimensat(dir_fd, entry->name, times, AT_SYMLINK_NOFOLLOW) < 0))
		r = -errno;
	return r < 0 ? fail(copying, -r, entry->path, "owner, mode or times cannot be set") : 0;
}

static int on_other(void *userdata, const struct tree_entry *entry)
{
	struct copying *copying = userdata;
	int r;

	r = count_entry(copying, entry->path);
	if (r < 0)
		return r;
	if (S_ISREG(entry->st.st_mode))
		return copy_regular(copying, entry);
	if (S_ISLNK(entry->st.st_mode))
		return copy_symlink(copying, entry);
	if (S_ISFIFO(entry->st.st_mode) ||
		((copying->copy->flags & TREE_COPY_LAYER) && layer_is_whiteout(&entry->st)))
		return copy_node(copying, entry);
	lose(copying, entry->path,
		entry->is_mount               ? "what is mounted there"
		: S_ISSOCK(entry->st.st_mode) ? "socket"
					      : "device");
	return 0;
}

static int on_enter(void *userdata, const struct tree_entry *entry, int fd)
{
	struct copying *copying = userdata;
	int dir_fd = descent_fd(&copying->target), sub_fd, r;

	if (entry->dir_fd < 0)
		return 0; /* the root is there */
	r = count_entry(copying, entry->path);
	if (r < 0)
		return r;
	if (mkdirat(dir_fd, entry->name, 0700) < 0)
		return fail(copying, errno, entry->path, "the folder cannot be made");
	sub_fd = openat(dir_fd, entry->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = sub_fd < 0 ? -errno : descent_push(&copying->target, sub_fd);
	return r < 0 ? fail(copying, -r, entry->path, "the folder cannot be opened") : 0;
}

static int on_leave(void *userdata, const struct tree_entry *entry, int fd)
{
	struct copying *copying = userdata;
	_cleanup_(fd_closep) int to_fd = -EBADF;
	int r;

	/* Before its times are set, since it lies in the root. */
	if (entry->dir_fd < 0 && unlinkat(copying->to_fd, copying->links, AT_REMOVEDIR) < 0) {
		r = path_remove_tree(copying->to_fd, copying->links);
		if (r < 0)
			return fail(copying, -r, "", "the table of links cannot be removed");
	}
	to_fd = fcntl(descent_fd(&copying->target), F_DUPFD_CLOEXEC, 0);
	r = to_fd < 0 ? -errno : descent_pop(&copying->target);
	if (r < 0)
		return fail(copying, -r, entry->path, "the folder above cannot be found again");
	r = copy_attributes(copying, fd, to_fd, entry->path);
	return r < 0 ? r : copy_facts(copying, to_fd, &entry->st, entry->path);
}

/* The folder of first names has a name that the source does not use in its root. */
static int make_links(struct copying *copying)
{
	struct stat st;

	for (unsigned int i = 0; i < 1000; i++) {
		snprintf(copying->links, sizeof(copying->links), LINKS "-%u", i);
		if (fstatat(copying->from_root_fd, copying->links, &st, AT_SYMLINK_NOFOLLOW) == 0)
			continue;
		if (mkdirat(copying->to_fd, copying->links, 0700) < 0)
			break;
		copying->links_fd = openat(
			copying->to_fd, copying->links, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		return copying->links_fd < 0 ? fail(copying, errno, "", "the target cannot be written") : 0;
	}
	return fail(copying, errno, "", "the target cannot be written");
}

int tree_copy(int from_fd, int to_fd, struct tree_copy *copy, abox_error **reterr)
{
	struct copying copying = {
		.copy = copy, .reterr = reterr, .to_fd = to_fd, .from_root_fd = from_fd, .links_fd = -EBADF};
	struct tree_visitor visitor = {
		.enter = on_enter, .leave = on_leave, .other = on_other, .userdata = &copying};
	int fd, r;

	copy->n_entries = copy->n_bytes = copy->n_lost = 0;
	copy->lost[0] = 0;
	r = make_links(&copying);
	if (r < 0)
		return r;
	fd = openat(to_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = fd < 0 ? -errno : descent_push(&copying.target, fd);
	if (r < 0)
		r = fail(&copying, -r, "", "the target cannot be opened");
	if (r >= 0)
		r = tree_walk(from_fd, "source", &visitor, reterr);
	if (r >= 0)
		r = tell(&copying, true);
	fd_close(copying.links_fd);
	descent_clear(&copying.target);
	return r;
}
