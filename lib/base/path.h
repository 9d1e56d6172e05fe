/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef BASE_PATH_H
#define BASE_PATH_H

#include "base/macro.h"

/*
 * The one audited place where a name that somebody else chose becomes a descriptor.
 *
 * path_open_under() opens `path` below root_fd and nowhere else. An absolute path and `..` are taken as
 * relative to the root (chroot-like) with PATH_IN_ROOT, and refused with ABOX_E_ESCAPE otherwise. Magic links
 * are never followed; symbolic links only with PATH_FOLLOW; mount points are crossed unless PATH_NO_XDEV.
 * Uses openat2(2) where the kernel has it; else a walk with O_NOFOLLOW and O_PATH, one component at a time.
 * O_CLOEXEC, O_NOCTTY and O_NONBLOCK (for anything but O_PATH) are always added, so that a fifo cannot block.
 *
 * Security: callers look at what they got again (fstat) before they believe its type.
 * Return: a descriptor, or a negative errno; -EXDEV means "leads outside".
 */
enum {
	PATH_FOLLOW = 1 << 0,
	PATH_IN_ROOT = 1 << 1,
	PATH_NO_XDEV = 1 << 2,
	PATH_FORCE_WALK = 1 << 3,	/* for tests: as on a kernel without openat2 */
};
int path_open_under(int root_fd, const char *path, int open_flags, uint32_t mode, int flags);
/* mkdir -p below root_fd, each component by descriptor; existing directories are fine. Returns fd of the
 * last. */
int path_make_dirs_under(int root_fd, const char *path, uint32_t mode, int flags);

/* Lexical only. True when path is absolute, has no empty, `.` or `..` component and no trailing slash ("/" is
 * fine). */
bool path_is_normal(const char *path);
/* Lexically removes `//`, `.`, trailing slashes; refuses `..` and relative paths. 0, ABOX_E_INVALID,
 * ABOX_E_MEMORY. */
int path_normalize(const char *path, char **retpath);
/* True when path is prefix or lies below it; both normal. */
bool path_is_under(const char *path, const char *prefix);
int path_join(const char *directory, const char *name, char **retpath);

/* Removes everything below and including `name` in dir_fd by descriptor recursion: any depth, odd modes,
 * never through a link, never across a mount. 0 or the first -errno, having gone on past failures. */
int path_remove_tree(int dir_fd, const char *name);
/* The same, calling tick before each entry; a negative answer ends it and goes up. */
int path_remove_tree_ticking(int dir_fd, const char *name, int (*tick)(void *userdata), void *userdata);

#endif
