/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Keeping a template of a machine, which the first box that could have used one sends. Promises that a template appears
 * under its name only when it is whole, that one box at a time makes one, and that nothing which fails here ends the start.
 *
 * Security: it comes from outside of the guest before that was told anything. Later nothing is taken.
 */
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <agentbox/sandbox.h>

#include "base/fd.h"
#include "base/memfd.h"
#include "guest/message.h"

#define CHUNK (256U << 10)

static const char *place_of(const struct flat_plan *plan)
{
	for (uint32_t i = 0; i < plan->n_steps; i++) {
		const struct flat_step *step = &plan->steps[i];

		if ((step->attr & FLAT_ATTR_OUTER) && step->source >= 0 && strcmp(step->target, FLAT_TEMPLATE) == 0)
			return plan->sources[step->source].path;
	}
	return NULL;
}

/* The folder is the owner's own, closed to everybody else; the library has made it. */
static int open_folder(const char *place, const char **retname)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	const char *slash = strrchr(place, '/');
	char folder[PATH_MAX];
	struct stat st;

	if (!slash || (size_t)(slash - place) >= sizeof(folder))
		return -EINVAL;
	snprintf(folder, sizeof(folder), "%.*s", (int)(slash - place), place);
	fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_uid != geteuid() || (st.st_mode & 077))
		return -EACCES;
	*retname = slash + 1;
	return steal_fd(fd);
}

void template_begin(struct keeper *keeper)
{
	const char *place = place_of(&keeper->plan), *name;
	_cleanup_(fd_closep) int fd = place ? open_folder(place, &name) : -EBADF;

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return;	/* somebody else is about to make one */
	keeper->template_fd = steal_fd(fd);
	keeper->plan.template_wanted = 1;
}

void template_end(struct keeper *keeper)
{
	keeper->template_fd = fd_close(keeper->template_fd);
	keeper->plan.template_wanted = 0;
}

/* Holes stay holes. */
static int copy(int from_fd, int to_fd)
{
	static uint8_t chunk[CHUNK];
	off_t at = 0, end = lseek(from_fd, 0, SEEK_END), hole;
	int r = end < 0 || ftruncate(to_fd, end) < 0 ? -errno : 0;

	while (r == 0 && at < end) {
		at = lseek(from_fd, at, SEEK_DATA);
		if (at < 0)
			return errno == ENXIO ? 0 : -errno;
		hole = lseek(from_fd, at, SEEK_HOLE);
		for (; r == 0 && at < hole; at += (off_t)MIN((uint64_t)(hole - at), CHUNK)) {
			size_t len = (size_t)MIN((uint64_t)(hole - at), CHUNK);
			ssize_t n = fd_pread_all(from_fd, chunk, len, (uint64_t)at);

			if (n != (ssize_t)len)
				return n < 0 ? (int)n : -EIO;
			r = fd_pwrite_all(to_fd, chunk, len, (uint64_t)at);
		}
	}
	return r;
}

/* What is there is of no use, or it would not have been made. Whoever goes on from it keeps it open. */
static int keep(int folder_fd, const char *name, int image_fd)
{
	_cleanup_(fd_closep) int fd = openat(folder_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0400);
	char self[32];
	int r;

	if (fd < 0)
		return -errno;
	r = copy(image_fd, fd);
	if (r < 0)
		return r;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	if (fchmod(fd, 0444) < 0 || (unlinkat(folder_fd, name, 0) < 0 && errno != ENOENT) ||
		linkat(AT_FDCWD, self, folder_fd, name, AT_SYMLINK_FOLLOW) < 0)
		return -errno;
	return 0;
}

void template_take(struct keeper *keeper, const struct guest_message *message)
{
	const char *place = place_of(&keeper->plan);
	int r;

	if (keeper->template_fd < 0 || !place || message->n_fds != 1 || !memfd_is_sealed(message->fds[0]))
		return;
	r = keep(keeper->template_fd, strrchr(place, '/') + 1, message->fds[0]);
	if (r < 0)
		keeper_log(keeper, ABOX_LOG_WARNING, "the template of the machine cannot be kept: %s", strerror(-r));
	else
		keeper_log(keeper, ABOX_LOG_INFO, "a template of the machine is kept");
}
