/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Resolve-under-root for paths of any length: piece by piece, each from the descriptor of the one before.
 */
#include "workspace/deep.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "base/fd.h"
#include "base/path.h"

#define PIECE_MAX 2048 /* the kernel takes 4,095 bytes */

int deep_open_parent(int root_fd, const char *path, const char **retname)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	char piece[PIECE_MAX + NAME_MAX + 2];

	fd = openat(root_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	for (;;) {
		const char *end = strrchr(path, '/');
		int next;

		if (!end) {
			*retname = path;
			return steal_fd(fd);
		}
		if ((size_t)(end - path) > PIECE_MAX) {
			end = strchr(path + PIECE_MAX, '/');
			if (!end || (size_t)(end - path) >= sizeof(piece))
				return -ENAMETOOLONG;
		}
		memcpy(piece, path, (size_t)(end - path));
		piece[end - path] = 0;
		next = path_open_under(fd, piece, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0, PATH_NO_XDEV);
		if (next < 0)
			return next;
		fd_close(fd);
		fd = next;
		path = end + 1;
	}
}
