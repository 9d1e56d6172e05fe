/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The names that a box has asked for, kept beside its workspace: one a line, in the order in which they got
 * their addresses. A later box on the same workspace takes them up, so that what programs have written down
 * there leads to nobody else. Each line is written when its name is new: a keeper that is killed loses none.
 */
#include "keeper/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memfd.h"
#include "egress/wire.h"

int names_read(int fd, int *retfd)
{
	_cleanup_(freep) char *data = malloc(EGRESS_NAMES_MAX);
	const char *end;
	ssize_t n;

	if (!data)
		return -ENOMEM;
	n = fd_pread_all(fd, data, EGRESS_NAMES_MAX, 0);
	if (n < 0)
		return (int)n;
	/* a line that was not written whole was told to nobody */
	end = memrchr(data, '\n', (size_t)n);
	n = end ? end + 1 - data : 0;
	if (ftruncate(fd, n) < 0)
		return -errno;
	return memfd_new_sealed("names", data, (size_t)n, 0400, retfd);
}

int names_append(int fd, const char *name)
{
	char line[256];
	size_t len = strlen(name);

	if (len == 0 || len >= sizeof(line) || strchr(name, '\n'))
		return -EINVAL;
	memcpy(line, name, len);
	line[len] = '\n';
	return fd_write_all(fd, line, len + 1);
}
