/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Protected names of a writable place. A name is held by a read-only mount over itself: nobody in the box can
 * write through it, and what is a mount point can be neither renamed, replaced nor removed. The folders above
 * it, up to the place, become mount points for the same reason: else the folder could be renamed away and
 * another one put in its stead.
 *
 * Security: what lies in the place may be a box's own work. No link is followed, and a name that is not what
 * the plan saw ends the start.
 */
#include "backend/namespaces/namespaces.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "base/fd.h"
#include "base/path.h"
#include "kernel/compat.h"
#include "kernel/mount.h"

#define MASK_MODE 0755
#define MASK_FILE_MODE 0444
#define SYS_STATX_ATTR_MOUNT_ROOT 0x2000

static int fail(const struct flat_step *step, int sys_errno, const char *what, struct fault *fault)
{
	return fault_set(fault, ABOX_E_SYSTEM, sys_errno, step->target, "%s", what);
}

static int give(const struct flat_plan *plan, int dir_fd, const char *name)
{
	if (plan->map == FLAT_MAP_SINGLE)
		return 0;
	return fchownat(dir_fd, name, plan->inside_uid, plan->inside_gid, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH);
}

static int make_folder(const struct flat_plan *plan, int dir_fd, const char *name)
{
	if (mkdirat(dir_fd, name, MASK_MODE) < 0)
		return errno == EEXIST ? 0 : -errno;
	return give(plan, dir_fd, name) < 0 ? -errno : 0;
}

static int make_file(const struct flat_plan *plan, const struct flat_step *step, int dir_fd, const char *name)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	_cleanup_(fd_closep) int fd = openat(dir_fd, name, flags, MASK_FILE_MODE);
	int r;

	if (fd < 0)
		return errno == EEXIST ? 0 : -errno;
	r = fd_write_all(fd, step->content, step->content_len);
	if (r == 0 && give(plan, fd, "") < 0)
		r = -errno;
	return r;
}

/* The next part of *at, which is moved behind it. 0 at the end. */
static size_t next_part(const char **at, char part[NAME_MAX + 1])
{
	size_t len;

	*at += strspn(*at, "/");
	len = strcspn(*at, "/");
	if (len > NAME_MAX)
		return 0;
	memcpy(part, *at, len);
	part[len] = 0;
	*at += len;
	return len;
}

static bool is_last(const char *at)
{
	return !at[strspn(at, "/")];
}

static bool is_mount_root(int fd)
{
	struct sys_statx answer;

	if (sys_statx(fd, "", AT_EMPTY_PATH, 0, &answer) < 0)
		return false;
	return answer.attributes & SYS_STATX_ATTR_MOUNT_ROOT;
}

static int open_name(int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static bool is_folder(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
}

/* One part of the way, made where the plan says so. *retfd has it. */
static int enter(const struct flat_plan *plan, const struct flat_step *step, int dir_fd, const char *name,
	bool last, int *retfd, struct fault *fault)
{
	int fd = open_name(dir_fd, name), r;

	if (fd == -ENOENT && (step->attr & FLAT_ATTR_MAKE)) {
		if (last && !(step->attr & FLAT_ATTR_FOLDER))
			r = make_file(plan, step, dir_fd, name);
		else
			r = make_folder(plan, dir_fd, name);
		if (r < 0)
			return fail(step, -r, "cannot be made to be held", fault);
		fd = open_name(dir_fd, name);
	}
	if (fd == -ENOENT)
		return fault_set(fault, ABOX_E_NOT_FOUND, 0, step->target,
			"is protected, and is not there any more");
	if (fd < 0)
		return fail(step, -fd, "cannot be opened", fault);
	if (!last && !is_folder(fd)) {
		fd_close(fd);
		return fault_set(fault, ABOX_E_NOT_FOUND, 0, step->target,
			"is protected, and a folder above it is none any more");
	}
	*retfd = fd;
	return 0;
}

/* Binds what is at fd onto itself. */
static int pin(const struct flat_step *step, int fd, uint32_t flags, struct fault *fault)
{
	_cleanup_(fd_closep) int mount_fd = -EBADF;
	int r;

	r = mount_clone(fd, "", flags | MOUNT_NOSUID | MOUNT_NODEV, step->target, &mount_fd, fault);
	return r < 0 ? r : mount_attach(mount_fd, fd, step->target, fault);
}

/* Every part is opened anew once something was mounted on it: what is below is reached through the mount. */
int protect_hold(const struct flat_plan *plan, const struct flat_step *step, int root_fd, struct fault *fault)
{
	_cleanup_(fd_closep) int dir_fd = -EBADF;
	char place[PATH_MAX], part[NAME_MAX + 1];
	const char *at = step->target + step->size_bytes;

	if (step->size_bytes >= sizeof(place))
		return fail(step, ENAMETOOLONG, "its place", fault);
	memcpy(place, step->target, step->size_bytes);
	place[step->size_bytes] = 0;
	dir_fd = path_open_under(root_fd, place, O_PATH | O_DIRECTORY, 0, PATH_IN_ROOT | PATH_FOLLOW);
	if (dir_fd < 0)
		return fail(step, -dir_fd, "its place cannot be opened", fault);
	while (next_part(&at, part)) {
		_cleanup_(fd_closep) int fd = -EBADF;
		bool last = is_last(at);
		int r;

		r = enter(plan, step, dir_fd, part, last, &fd, fault);
		if (r == 0 && last)
			return pin(step, fd, MOUNT_READONLY, fault);
		if (r == 0 && !is_mount_root(fd)) {
			r = pin(step, fd, 0, fault);
			fd = fd_close(fd);
			if (r == 0)
				r = enter(plan, step, dir_fd, part, false, &fd, fault);
		}
		if (r < 0)
			return r;
		fd_close(dir_fd);
		dir_fd = steal_fd(fd);
	}
	return fail(step, EINVAL, "has no name", fault);
}

static int mask_one(const struct flat_plan *plan, const struct flat_step *step, int mask_fd, struct fault *fault)
{
	_cleanup_(fd_closep) int dir_fd = fcntl(mask_fd, F_DUPFD_CLOEXEC, 0);
	const char *at = step->target + step->size_bytes;
	char part[NAME_MAX + 1];

	if (dir_fd < 0)
		return fail(step, errno, "no descriptor left", fault);
	while (next_part(&at, part)) {
		_cleanup_(fd_closep) int fd = -EBADF;
		int r = enter(plan, step, dir_fd, part, is_last(at), &fd, fault);

		if (r < 0 || is_last(at))
			return r;
		fd_close(dir_fd);
		dir_fd = steal_fd(fd);
	}
	return 0;
}

int protect_mask(const struct flat_plan *plan, const char *place, int mask_fd, struct fault *fault)
{
	int n = 0;

	for (uint32_t i = 0; i < plan->n_steps; i++) {
		const struct flat_step *step = &plan->steps[i];
		int r;

		if (step->op != FLAT_OP_PROTECT || !(step->attr & FLAT_ATTR_MAKE) ||
			step->size_bytes != strlen(place) ||
			strncmp(step->target, place, step->size_bytes) != 0)
			continue;
		n++;
		if (mask_fd < 0)
			continue;
		r = mask_one(plan, step, mask_fd, fault);
		if (r < 0)
			return r;
	}
	return n;
}
