/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The file server: what is in files. Promises that only regular files are read and written, whatever stands at the name;
 * that holes stay holes; and that a file which is written whole appears whole or not at all.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "base/fd.h"
#include "base/path.h"
#include "file/server.h"

#define NO_TIME UINT32_MAX
#define NO_MODE UINT32_MAX
#define NEW_MODE 0644
#define MAX_NAMES 64	/* that are tried for a temporary file */

static int not_regular(struct server *server, const char *path)
{
	return fault_set(&server->fault, ABOX_E_UNSUPPORTED, 0, path, "is not a regular file");
}

int server_read_begin(struct server *server)
{
	uint32_t place = unpack_u32(&server->in), number = 0;
	const char *path = unpack_string(&server->in);
	uint8_t follow = unpack_u8(&server->in);
	_cleanup_(fd_closep) int fd = -EBADF;
	struct file_entry entry;
	struct slot *slot;
	struct stat st;
	int place_fd;

	if (!unpack_done(&server->in))
		return server_protocol(server);
	place_fd = server_place(server, place);
	if (place_fd < 0)
		return ABOX_E_PROTOCOL;
	/* Security: O_NONBLOCK comes with it, so that a fifo answers at once; it is closed unread below */
	fd = path_open_under(
		place_fd, path[0] ? path : ".", O_RDONLY | (follow ? 0 : O_NOFOLLOW), 0, PATH_FOLLOW);
	if (fd == -ENXIO || (fd == -ELOOP && !follow))	/* a socket; a link */
		return not_regular(server, path);
	if (fd < 0 || fstat(fd, &st) < 0)
		return server_fail(server, fd < 0 ? -fd : errno, path, "cannot be opened");
	if (!S_ISREG(st.st_mode))
		return not_regular(server, path);
	slot = server_new_slot(server, SLOT_READER, &number);
	if (!slot)
		return ABOX_E_LIMIT;
	slot->fd = steal_fd(fd);
	slot->data_end = (uint64_t)st.st_blocks * 512 < (uint64_t)st.st_size ? 0 : UINT64_MAX;
	server_entry(&st, &entry);
	pack_u32(&server->out, number);
	file_entry_pack(&entry, &server->out);
	return 0;
}

/* How far the hole at the offset goes, 0 when there is none. */
static uint64_t skip_hole(struct slot *slot)
{
	off_t at = (off_t)slot->offset, data, end;

	if (slot->offset < slot->data_end)
		return 0;
	data = lseek(slot->fd, at, SEEK_DATA);
	if (data < 0 && errno == ENXIO) {
		struct stat st;

		slot->data_end = UINT64_MAX;
		if (fstat(slot->fd, &st) < 0 || st.st_size <= at)
			return 0;
		return (uint64_t)(st.st_size - at);
	}
	end = data < 0 ? -1 : lseek(slot->fd, data, SEEK_HOLE);
	slot->data_end = end < 0 ? UINT64_MAX : (uint64_t)end;
	return data < 0 ? 0 : (uint64_t)(data - at);
}

int server_read(struct server *server)
{
	uint32_t number = unpack_u32(&server->in), max = unpack_u32(&server->in);
	struct slot *slot = server_slot(server, number, SLOT_READER);
	static uint8_t data[FILE_DATA_MAX];
	uint64_t hole;
	ssize_t n;

	if (!unpack_done(&server->in) || !slot || max == 0)
		return server_protocol(server);
	max = MIN(max, (uint32_t)sizeof(data));
	hole = skip_hole(slot);
	slot->offset += hole;
	if (slot->offset < slot->data_end && slot->data_end - slot->offset < max)
		max = (uint32_t)(slot->data_end - slot->offset);
	n = fd_pread_all(slot->fd, data, max, slot->offset);
	if (n < 0)
		return server_fail(server, (int)-n, "file", "cannot be read");
	slot->offset += (uint64_t)n;
	pack_u64(&server->out, hole);
	pack_u8(&server->out, n == 0);
	pack_bytes(&server->out, data, (size_t)n);
	return 0;
}

static int open_temporary(struct slot *slot)
{
	for (int i = 0; i < MAX_NAMES; i++) {
		uint64_t number = 0;
		int fd;

		if (getrandom(&number, sizeof(number), 0) != sizeof(number))
			return -errno;
		snprintf(slot->temporary, sizeof(slot->temporary), ".agentbox-%016llx", (unsigned long long)number);
		fd = openat(slot->parent_fd, slot->temporary,
			O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC, 0600);
		if (fd >= 0) {
			slot->fd = fd;
			return 0;
		}
		slot->temporary[0] = 0;
		if (errno != EEXIST)
			return -errno;
	}
	return -EEXIST;
}

/* What is there now may give its mode. -EISDIR: a folder is not replaced by a file. */
static int begin_atomic(struct slot *slot)
{
	struct stat st;

	if (fstatat(slot->parent_fd, slot->name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (slot->flags & FILE_WRITE_NEW)
			return -EEXIST;
		if (S_ISDIR(st.st_mode))
			return -EISDIR;
		if (slot->mode == NO_MODE && S_ISREG(st.st_mode))
			slot->mode = st.st_mode & 0777;
	} else if (errno != ENOENT) {
		return -errno;
	}
	if (slot->mode == NO_MODE)
		slot->mode = NEW_MODE;
	return open_temporary(slot);
}

/* The name may be a link that stays below the place; what it leads to is looked at before anything is cut off. */
static int begin_in_place(int place_fd, const char *path, struct slot *slot)
{
	int flags = O_WRONLY | O_CREAT | (slot->flags & FILE_WRITE_NEW ? O_EXCL : 0);
	struct stat st;

	slot->fd = path_open_under(
		place_fd, path, flags, slot->mode == NO_MODE ? NEW_MODE : slot->mode & 0777, PATH_FOLLOW);
	if (slot->fd == -ENXIO)
		return -ENOTSUP;
	if (slot->fd < 0)
		return slot->fd;
	if (fstat(slot->fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOTSUP;
	return ftruncate(slot->fd, 0) < 0 ? -errno : 0;
}

int server_write_begin(struct server *server)
{
	uint32_t place = unpack_u32(&server->in), number = 0;
	const char *path = unpack_string(&server->in);
	uint32_t flags = unpack_u32(&server->in), mode = unpack_u32(&server->in);
	struct slot *slot;
	int place_fd, r;

	if (!unpack_done(&server->in) || (flags & ~(uint32_t)FILE_WRITE_ALL))
		return server_protocol(server);
	place_fd = server_place(server, place);
	if (place_fd < 0)
		return ABOX_E_PROTOCOL;
	slot = server_new_slot(server, SLOT_WRITER, &number);
	if (!slot)
		return ABOX_E_LIMIT;
	slot->flags = flags;
	slot->mode = mode;
	r = server_parent(place_fd, path, flags & FILE_WRITE_PARENTS, &slot->parent_fd, slot->name);
	if (r == 0)
		r = flags & FILE_WRITE_ATOMIC ? begin_atomic(slot) : begin_in_place(place_fd, path, slot);
	if (r < 0) {
		server_free_slot(slot);
		return r == -ENOTSUP ? not_regular(server, path) : server_fail(server, -r, path, "cannot be written");
	}
	pack_u32(&server->out, number);
	return 0;
}

int server_write(struct server *server)
{
	uint32_t number = unpack_u32(&server->in);
	uint64_t hole = unpack_u64(&server->in), offset;
	size_t len;
	const void *data = unpack_bytes(&server->in, &len);
	struct slot *slot = server_slot(server, number, SLOT_WRITER);
	int r;

	if (!unpack_done(&server->in) || !slot || __builtin_add_overflow(slot->offset, hole, &offset) ||
		offset > (uint64_t)INT64_MAX - len)
		return server_protocol(server);
	r = fd_pwrite_all(slot->fd, data, len, offset);
	if (r < 0)
		return server_fail(server, -r, slot->name, "cannot be written");
	slot->offset = offset + len;
	return 0;
}

/* Puts what was written whole in its place, and looks whether it is there. */
static int put_in_place(struct slot *slot)
{
	struct stat ours, there;
	int r;

	if (fchmod(slot->fd, slot->mode & 0777) < 0)
		return -errno;
	r = server_rename(slot->parent_fd, slot->temporary, slot->parent_fd, slot->name, !(slot->flags & FILE_WRITE_NEW));
	if (r < 0)
		return r;
	slot->temporary[0] = 0;
	/* Security: the box knows the name, too, and may have put something else under it */
	if (fstat(slot->fd, &ours) < 0 || fstatat(slot->parent_fd, slot->name, &there, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? -ESTALE : -errno;
	return ours.st_dev == there.st_dev && ours.st_ino == there.st_ino ? 0 : -ESTALE;
}

static int end_writing(struct slot *slot, bool sync, const struct timespec times[2], struct stat *ret)
{
	int r = 0;

	if (ftruncate(slot->fd, (off_t)slot->offset) < 0)
		return -errno;
	if (times[1].tv_nsec != UTIME_OMIT && futimens(slot->fd, times) < 0)
		return -errno;
	if (sync && fsync(slot->fd) < 0)
		return -errno;
	if (slot->temporary[0])
		r = put_in_place(slot);
	if (r == 0 && sync) {
		_cleanup_(fd_closep) int fd = openat(slot->parent_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		r = fd < 0 || fsync(fd) < 0 ? -errno : 0;
	}
	return r == 0 && fstat(slot->fd, ret) < 0 ? -errno : r;
}

int server_write_end(struct server *server)
{
	uint32_t number = unpack_u32(&server->in);
	uint8_t sync = unpack_u8(&server->in);
	uint64_t seconds = unpack_u64(&server->in);
	uint32_t nanoseconds = unpack_u32(&server->in);
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = UTIME_OMIT } };
	struct slot *slot = server_slot(server, number, SLOT_WRITER);
	struct file_entry entry;
	struct stat st;
	int r;

	if (!unpack_done(&server->in) || !slot)
		return server_protocol(server);
	if (nanoseconds != NO_TIME)
		times[1] = (struct timespec){ (time_t)seconds, (long)nanoseconds };
	r = end_writing(slot, sync, times, &st);
	if (r < 0)
		server_fail(server, -r, slot->name, "cannot be written");
	server_free_slot(slot);
	if (r < 0)
		return server->fault.code;
	server_entry(&st, &entry);
	file_entry_pack(&entry, &server->out);
	return 0;
}
