/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/placeholder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/pack.h"
#include "base/path.h"

#define ENTRIES_MAX 65536

struct entry {
	bool folder;
	const char *path;
	uint64_t size_bytes;
};

/* Security: the folder above is reached without following a link; a box has had it in its hands. */
static int open_above(int root_fd, const char *path, const char **retname)
{
	const char *slash = strrchr(path, '/');
	char above[PATH_MAX];

	if (!slash) {
		*retname = path;
		return fcntl(root_fd, F_DUPFD_CLOEXEC, 3);
	}
	if ((size_t)(slash - path) >= sizeof(above))
		return -ENAMETOOLONG;
	memcpy(above, path, (size_t)(slash - path));
	above[slash - path] = 0;
	*retname = slash + 1;
	return path_open_under(root_fd, above, O_PATH | O_DIRECTORY, 0, 0);
}

/* True when nothing of ours is there any more. */
static bool take_back(int root_fd, const struct entry *entry)
{
	const char *name;
	_cleanup_(fd_closep) int fd = open_above(root_fd, entry->path, &name);
	struct stat st;

	if (fd < 0)
		return fd == -ENOENT || fd == -ENOTDIR;
	if (entry->folder)
		return unlinkat(fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT;
	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT;
	/* a kill between making and writing leaves it empty */
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1 ||
		(st.st_size != 0 && (uint64_t)st.st_size != entry->size_bytes))
		return false;
	return unlinkat(fd, name, 0) == 0;
}

int placeholder_remove(const void *record, size_t len)
{
	struct pack_reader reader = PACK_READER(record, len);
	const char *root = unpack_string(&reader);
	uint32_t n = unpack_count(&reader, 13);
	_cleanup_(fd_closep) int root_fd = -EBADF;
	_cleanup_(freep) struct entry *entries = NULL;
	int left = 0;

	if (reader.failed || n > ENTRIES_MAX || root[0] != '/')
		return -EBADMSG;
	entries = calloc((size_t)n + 1, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		entries[i].folder = unpack_u8(&reader) != 0;
		entries[i].path = unpack_string(&reader);
		entries[i].size_bytes = unpack_u64(&reader);
	}
	if (!unpack_done(&reader))
		return -EBADMSG;
	root_fd = open(root, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (root_fd < 0)
		return errno == ENOENT ? 0 : -errno;
	for (uint32_t i = n; i > 0; i--)
		left += !take_back(root_fd, &entries[i - 1]);
	return left;
}
