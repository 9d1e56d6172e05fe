/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The journal's calls to the system, with their failure points. No policy: what a failure means is decided
 * above.
 */
#include "journal/inject.h"

#ifdef ABOX_FAULT_INJECTION
int (*inject_hook)(const struct inject_event *event, bool done);
#endif

int jio_open(int dir_fd, const char *name, int flags, mode_t mode)
{
	const struct inject_event event _unused_ = { .op = INJECT_OPEN, .fd = dir_fd, .name = name };
	int r = inject(&event, false), fd;

	if (r)
		return -r;
	fd = openat(dir_fd, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, mode);
	if (fd < 0)
		return -errno;
	(void)inject(&event, true);
	return fd;
}

int jio_pwrite(int fd, const void *data, size_t len, uint64_t offset)
{
	const struct inject_event event _unused_ = {
		.op = INJECT_WRITE, .fd = fd, .data = data, .len = len, .offset = offset
	};
	int r = inject(&event, false);

	if (r)
		return -r;
	r = fd_pwrite_all(fd, data, len, offset);
	if (r == 0)
		(void)inject(&event, true);
	return r;
}

int jio_datasync(int fd)
{
	const struct inject_event event _unused_ = { .op = INJECT_SYNC, .fd = fd };
	int r = inject(&event, false);

	if (r)
		return -r;
	if (fdatasync(fd) <
		0) /* never again on EINTR: a failed sync may have thrown away what it did not write */
		return -errno;
	(void)inject(&event, true);
	return 0;
}

int jio_sync(int fd)
{
	const struct inject_event event _unused_ = { .op = INJECT_SYNC, .fd = fd };
	int r = inject(&event, false);

	if (r)
		return -r;
	if (fsync(fd) < 0)
		return -errno;
	(void)inject(&event, true);
	return 0;
}

int jio_rename(int dir_fd, const char *from, const char *to)
{
	const struct inject_event event _unused_ = {
		.op = INJECT_RENAME, .fd = dir_fd, .name = from, .new_name = to
	};
	int r = inject(&event, false);

	if (r)
		return -r;
	if (renameat(dir_fd, from, dir_fd, to) < 0)
		return -errno;
	(void)inject(&event, true);
	return 0;
}

int jio_unlink(int dir_fd, const char *name)
{
	const struct inject_event event _unused_ = { .op = INJECT_UNLINK, .fd = dir_fd, .name = name };
	int r = inject(&event, false);

	if (r)
		return -r;
	if (unlinkat(dir_fd, name, 0) < 0)
		return -errno;
	(void)inject(&event, true);
	return 0;
}

int jio_truncate(int fd, uint64_t len)
{
	const struct inject_event event _unused_ = { .op = INJECT_TRUNCATE, .fd = fd, .offset = len };
	int r = inject(&event, false);

	if (r)
		return -r;
	if (ftruncate(fd, (off_t)len) < 0)
		return -errno;
	(void)inject(&event, true);
	return 0;
}
