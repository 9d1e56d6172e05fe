/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Removing a tree that somebody hostile may have made: of any depth, with modes that lock its owner out, with
 * links and mount points in it, changing while we work. What is promised: nothing outside of the tree is
 * touched, the number of descriptors in use is bounded, and a failure at one place does not keep the rest
 * from going.
 *
 * Depth: directories below level MAX_DEPTH are moved up into the top directory under a new name before they
 * are emptied, so that a chain of 100,000 directories needs no more descriptors than one of 50.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "kernel/compat.h"

#define MAX_DEPTH 48
#define MAX_DEPTH_UNLIFTED 256	/* where moving up fails (another filesystem, no permission) */
#define NO_REPLACE 1		/* RENAME_NOREPLACE */
#define MAX_PASSES 1024		/* over one directory to which somebody keeps adding */

struct removal {
	int top_fd;		/* directory that is being removed */
	uint64_t mnt_id;
	uint32_t n_lifted;
	int first_error;
	int (*tick)(void *userdata);	/* may be NULL */
	void *userdata;
	bool stopped;
};

static void note(struct removal *removal, int r)
{
	if (r < 0 && removal->first_error == 0)
		removal->first_error = r;
}

static int mount_of(int fd, uint64_t *ret)
{
	struct sys_statx stx;
	struct stat st;

	if (sys_statx(fd, "", AT_EMPTY_PATH, SYS_STATX_MNT_ID, &stx) == 0 && (stx.mask & SYS_STATX_MNT_ID)) {
		*ret = stx.mnt_id;
		return 0;
	}
	/* a kernel that does not number its mounts (gVisor): the filesystem is the next best */
	if (fstat(fd, &st) < 0)
		return -errno;
	*ret = st.st_dev;
	return 0;
}

/* Opens a directory for reading although its owner may have taken all rights from it. */
static int open_directory(const struct removal *removal, int parent_fd, const char *name)
{
	_cleanup_(fd_closep) int path_fd = -EBADF;
	char self[32];
	uint64_t mnt_id = 0;
	struct stat st;
	int fd, r;

	path_fd = openat(parent_fd, name, O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
	if (path_fd < 0)
		return -errno;
	r = mount_of(path_fd, &mnt_id);
	if (r < 0)
		return r;
	if (mnt_id != removal->mnt_id)
		return -EBUSY;	/* Security: never empty what is mounted here */
	if (fstat(path_fd, &st) < 0)
		return -errno;
	if ((st.st_mode & 0700) != 0700) {
		snprintf(self, sizeof(self), "/proc/self/fd/%d", path_fd);
		/* A failure shows in the next call, unless we are root and need no rights at all. */
		(void)!fchmodat(AT_FDCWD, self, 0700, 0);
	}
	fd = openat(path_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static void remove_entries(struct removal *removal, int dir_fd, unsigned int depth);

/* Moves a directory that lies too deep to the top. True when it is no longer in dir_fd. */
static bool lift(struct removal *removal, int dir_fd, const char *name)
{
	char lifted[48];
	int sub_fd;

	/* Moving a directory needs write permission on itself. */
	sub_fd = open_directory(removal, dir_fd, name);
	fd_close(sub_fd);
	if (sub_fd < 0)
		return false;
	for (int i = 0; i < 16; i++) {
		snprintf(
			lifted, sizeof(lifted), ".lifted-%u-%u", (unsigned int)getpid(), removal->n_lifted++);
		if (syscall(SYS_renameat2, dir_fd, name, removal->top_fd, lifted, NO_REPLACE) == 0)
			return true;
		if (errno != EEXIST)
			return false;
	}
	return false;
}

static int remove_directory(struct removal *removal, int dir_fd, const char *name, unsigned int depth)
{
	int sub_fd;

	if (unlinkat(dir_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	if (errno == EBUSY)
		return -EBUSY;
	if (depth >= MAX_DEPTH && lift(removal, dir_fd, name))
		return 0;
	if (depth >= MAX_DEPTH_UNLIFTED)
		return -ELOOP;
	sub_fd = open_directory(removal, dir_fd, name);
	if (sub_fd < 0)
		return sub_fd;
	remove_entries(removal, sub_fd, depth + 1);	/* closes it */
	return unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

/* What the tick answers ends it all, and is what is told. */
static bool goes_on(struct removal *removal)
{
	int r = !removal->stopped && removal->tick ? removal->tick(removal->userdata) : 0;

	if (r < 0) {
		removal->stopped = true;
		removal->first_error = r;
	}
	return !removal->stopped;
}

static int remove_entry(struct removal *removal, int dir_fd, const char *name, unsigned int depth)
{
	if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
		return 0;
	/* EPERM: the answer of POSIX for a directory, or a real one. */
	if (errno == EISDIR || errno == EPERM) {
		int saved = -errno, r = remove_directory(removal, dir_fd, name, depth);

		return r == -ENOTDIR ? saved : r;
	}
	return -errno;
}

/* Empties a directory and closes its descriptor. Goes over it again while that gets on, since filesystems may
 * skip names while others are removed, and lifted directories arrive in the top one. */
static void remove_entries(struct removal *removal, int dir_fd, unsigned int depth)
{
	DIR *dir = fdopendir(dir_fd);
	bool removed = true;
	int first = 0;

	if (!dir) {
		note(removal, -errno);
		fd_close(dir_fd);
		return;
	}
	for (int pass = 0; pass < MAX_PASSES && removed && !removal->stopped; pass++) {
		struct dirent *entry;

		removed = false;
		first = 0;
		rewinddir(dir);
		while (goes_on(removal) && (entry = readdir(dir))) {
			int r;

			if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
				continue;
			r = remove_entry(removal, dir_fd, entry->d_name, depth);
			if (r == 0)
				removed = true;
			else if (first == 0)
				first = r;
		}
	}
	note(removal, first);
	closedir(dir);
}

int path_remove_tree(int dir_fd, const char *name)
{
	return path_remove_tree_ticking(dir_fd, name, NULL, NULL);
}

int path_remove_tree_ticking(int dir_fd, const char *name, int (*tick)(void *userdata), void *userdata)
{
	struct removal removal = { .top_fd = -EBADF, .tick = tick, .userdata = userdata };
	int r;

	if (name[0] == 0 || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return -EINVAL;
	if (unlinkat(dir_fd, name, 0) == 0)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	r = mount_of(dir_fd, &removal.mnt_id);
	if (r < 0)
		return r;
	removal.top_fd = open_directory(&removal, dir_fd, name);
	if (removal.top_fd < 0)
		return removal.top_fd == -ENOTDIR ? -EPERM : removal.top_fd;
	remove_entries(&removal, removal.top_fd, 1);
	if (unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return removal.first_error < 0 ? removal.first_error : -errno;
	return 0;
}
