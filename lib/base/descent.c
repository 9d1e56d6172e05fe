/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Going down a tree of any depth with few descriptors. What is promised: a folder that is found again through `..` is
 * the one that was left, or the way back ends with an error; never another one.
 */
#include "base/descent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/fd.h"

int descent_push(struct descent *descent, int fd_taken)
{
	_cleanup_(fd_closep) int fd = fd_taken;
	struct descent_level *levels;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (descent->n == descent->allocated) {
		levels = realloc(descent->levels, (descent->allocated + 32) * sizeof(*levels));
		if (!levels)
			return -ENOMEM;
		descent->levels = levels;
		descent->allocated += 32;
	}
	/* The first levels stay open, and so does the parent, which the caller may be reading. */
	if (descent->n > DESCENT_OPEN_LEVELS)
		descent->levels[descent->n - 2].fd = fd_close(descent->levels[descent->n - 2].fd);
	descent->levels[descent->n++] = (struct descent_level){steal_fd(fd), st.st_dev, st.st_ino};
	return 0;
}

int descent_pop(struct descent *descent)
{
	struct descent_level *above;
	struct stat st;

	fd_close(descent->levels[--descent->n].fd);
	if (descent->n < 2 || descent->levels[descent->n - 2].fd >= 0)
		return 0;
	/* The parent is open; it is its own parent that was closed. */
	above = &descent->levels[descent->n - 2];
	above->fd = openat(above[1].fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (above->fd < 0)
		return -errno;
	/* Security: a directory that was moved while we were in it has another parent. */
	if (fstat(above->fd, &st) < 0 || st.st_dev != above->device || st.st_ino != above->inode)
		return -ESTALE;
	return 0;
}

void descent_clear(struct descent *descent)
{
	for (size_t i = 0; i < descent->n; i++)
		fd_close(descent->levels[i].fd);
	freep(&descent->levels);
	*descent = DESCENT_INIT;
}
