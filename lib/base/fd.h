/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef BASE_FD_H
#define BASE_FD_H

#include <errno.h>
#include <sys/types.h>

#include "base/macro.h"

/* Descriptors are close-on-exec from birth and -EBADF when empty. */
static inline void fd_init_array(int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		fds[i] = -EBADF;
}
int fd_close(int fd);		/* takes a negative fd; keeps errno; returns -EBADF */
void fd_closep(int *fd);	/* for _cleanup_ */
int fd_move_above(int fd, int floor);	/* a close-on-exec copy numbered >= floor, the old one closed; or -errno */

/* All of it or an errno: EINTR is retried, a short count goes on. Return 0 or -errno. */
int fd_write_all(int fd, const void *data, size_t len);
int fd_pwrite_all(int fd, const void *data, size_t len, uint64_t offset);
/* Reads until len or the end; returns the count or -errno. */
ssize_t fd_read_all(int fd, void *data, size_t len);
ssize_t fd_pread_all(int fd, void *data, size_t len, uint64_t offset);
/* The whole of a small file, NUL-terminated, at most max bytes: 0, -errno, -EFBIG when longer. */
int fd_read_text(int fd, size_t max, char **retdata, size_t *retlen);
int file_read_text(int dir_fd, const char *path, size_t max, char **retdata, size_t *retlen);
/* Writes a text into an existing file such as a sysctl or cgroup knob with one write(2): 0 or -errno. */
int file_write_text(int dir_fd, const char *path, const char *text);

#endif
