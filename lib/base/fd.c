/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Descriptors and whole reads and writes. No policy: what a file means is the caller's business.
 */
#include "base/fd.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int fd_close(int fd)
{
	int saved = errno;

	if (fd >= 0)
		close(fd);	/* never retried: the number may belong to another thread already */
	errno = saved;
	return -EBADF;
}

void fd_closep(int *fd)
{
	*fd = fd_close(*fd);
}

int fd_move_above(int fd, int floor)
{
	int copy;

	if (fd >= floor)
		return fd;
	copy = fcntl(fd, F_DUPFD_CLOEXEC, floor);
	if (copy < 0)
		copy = -errno;
	fd_close(fd);
	return copy;
}

int fd_write_all(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int fd_pwrite_all(int fd, const void *data, size_t len, uint64_t offset)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = pwrite(fd, p, len, (off_t)offset);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		p += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

ssize_t fd_read_all(int fd, void *data, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = read(fd, (char *)data + done, len - done);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

ssize_t fd_pread_all(int fd, void *data, size_t len, uint64_t offset)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, (char *)data + done, len - done, (off_t)(offset + done));

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

int fd_read_text(int fd, size_t max, char **retdata, size_t *retlen)
{
	_cleanup_(freep) char *data = NULL;
	size_t size = 4096, len = 0;

	max = MIN(max, SIZE_MAX - 2);	/* room for the byte that shows that there is more, and the NUL */
	for (;;) {
		char *grown;
		ssize_t n;

		if (size > max + 1)
			size = max + 1;
		grown = realloc(data, size + 1);
		if (!grown)
			return -ENOMEM;
		data = grown;
		n = fd_read_all(fd, data + len, size - len);
		if (n < 0)
			return (int)n;
		len += (size_t)n;
		if (len < size)
			break;
		if (len > max)
			return -EFBIG;
		if (!size_mul(size, 2, &size))
			return -EFBIG;
	}
	data[len] = 0;
	if (retlen)
		*retlen = len;
	*retdata = steal_ptr(data);
	return 0;
}

int file_read_text(int dir_fd, const char *path, size_t max, char **retdata, size_t *retlen)
{
	_cleanup_(fd_closep) int fd = -EBADF;

	fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	return fd_read_text(fd, max, retdata, retlen);
}

int file_write_text(int dir_fd, const char *path, const char *text)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	size_t len = strlen(text);
	ssize_t n;

	fd = openat(dir_fd, path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return -errno;
	do
		n = write(fd, text, len);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return (size_t)n == len ? 0 : -EIO;
}
