/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Resolve-under-root. What is promised: the descriptor that path_open_under() returns names something that
 * was below root_fd when it was reached, whatever other processes rename, link or replace meanwhile. What
 * kind of file it is, and whether its bytes may be trusted, is left to the caller.
 *
 * Two ways with the same answers: openat2(2), and a walk for kernels or outer filters that do not have it.
 * The walk never opens `..`: it goes from the root downwards one component at a time, never through a link,
 * and takes `..` by dropping a component and beginning at the root again. So there is no moment at which a
 * rename could let it climb.
 */
#include "base/path.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <agentbox/error.h>

#include "base/fd.h"
#include "kernel/compat.h"

#define MAX_LINKS 40	/* as the kernel */
#define MAX_STEPS 65536	/* opens of one walk: `..` restarts it, and a path may have 1,365 of them */
#define MAX_RETRIES 64	/* of openat2, which answers EAGAIN when a rename disturbed a `..` */

static int open_flags_of(int open_flags)
{
	open_flags |= O_CLOEXEC;
	if (open_flags & O_PATH)	/* openat2 refuses any other flag beside these */
		return open_flags & (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return open_flags | O_NOCTTY | O_NONBLOCK;
}

/* True when a component is `..`. */
static bool has_dotdot(const char *path)
{
	while (*path) {
		size_t len = strcspn(path, "/");

		if (len == 2 && path[0] == '.' && path[1] == '.')
			return true;
		path += len;
		path += strspn(path, "/");
	}
	return false;
}

static int open_by_kernel(int root_fd, const char *path, int open_flags, uint32_t mode, int flags)
{
	struct sys_open_how how = {
		.flags = (uint64_t)(unsigned int)open_flags,
		.mode = open_flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY)) ? mode : 0,	/* else refused */
		.resolve = SYS_RESOLVE_NO_MAGICLINKS,
	};

	how.resolve |= flags & PATH_IN_ROOT ? SYS_RESOLVE_IN_ROOT : SYS_RESOLVE_BENEATH;
	if (!(flags & PATH_FOLLOW))
		how.resolve |= SYS_RESOLVE_NO_SYMLINKS;
	if (flags & PATH_NO_XDEV)
		how.resolve |= SYS_RESOLVE_NO_XDEV;
	for (int i = 0; i < MAX_RETRIES; i++) {
		int fd = sys_openat2(root_fd, path, &how);

		if (fd >= 0)
			return fd;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
	}
	return -EAGAIN;
}

/* The state of one walk. `here` is the path from the root to fd, without leading slash, made of directories
 * only. */
struct walk {
	int root_fd;
	int fd;			/* directory reached so far; root_fd itself at the start, then ours */
	uint64_t mnt_id;	/* of the root */
	int flags;
	unsigned int n_links;
	unsigned int n_steps;
	char here[PATH_MAX];
	char rest[2 * PATH_MAX];	/* what is still to come; links are expanded into it */
};

static void walk_to_root(struct walk *walk)
{
	if (walk->fd != walk->root_fd)
		fd_close(walk->fd);
	walk->fd = walk->root_fd;
	walk->here[0] = 0;
}

static int check_mount(const struct walk *walk, int fd)
{
	struct sys_statx stx;

	if (!(walk->flags & PATH_NO_XDEV))
		return 0;
	if (sys_statx(fd, "", AT_EMPTY_PATH, SYS_STATX_MNT_ID, &stx) < 0)
		return -errno;
	if (!(stx.mask & SYS_STATX_MNT_ID))
		return -EOPNOTSUPP;
	return stx.mnt_id == walk->mnt_id ? 0 : -EXDEV;
}

static int walk_begin(struct walk *walk, int root_fd, const char *path, int flags)
{
	struct sys_statx stx;

	walk->root_fd = root_fd;
	walk->fd = root_fd;
	walk->flags = flags;
	walk->n_links = 0;
	walk->n_steps = 0;
	walk->here[0] = 0;
	if (strlen(path) >= PATH_MAX)
		return -ENAMETOOLONG;
	strcpy(walk->rest, path);
	if (sys_statx(root_fd, "", AT_EMPTY_PATH, SYS_STATX_TYPE | SYS_STATX_MNT_ID, &stx) < 0)
		return -errno;
	walk->mnt_id = stx.mnt_id;
	return S_ISDIR(stx.mode) ? 0 : -ENOTDIR;
}

/* The next directory on the way down; `name` is one component. */
static int walk_enter(struct walk *walk, const char *name, int fd)
{
	size_t used = strlen(walk->here), len = strlen(name);

	if (used + len + 2 > sizeof(walk->here))
		return -ENAMETOOLONG;
	if (used > 0)
		walk->here[used++] = '/';
	memcpy(walk->here + used, name, len + 1);
	if (walk->fd != walk->root_fd)
		fd_close(walk->fd);
	walk->fd = fd;
	return 0;
}

/* `..`: the components before it are put in front of what is still to come, and the walk begins again. */
static int walk_up(struct walk *walk)
{
	char *slash = strrchr(walk->here, '/');
	size_t keep, rest = strlen(walk->rest);

	if (walk->here[0] == 0)
		return walk->flags & PATH_IN_ROOT ? 0 : -EXDEV;
	keep = slash ? (size_t)(slash - walk->here) : 0;
	if (keep + 1 + rest + 1 > sizeof(walk->rest))
		return -ENAMETOOLONG;
	/* With a `/.` when nothing else is left, the rest stays what it was: a directory. */
	memmove(walk->rest + keep + 1, walk->rest, rest + 1);
	memcpy(walk->rest, walk->here, keep);
	walk->rest[keep] = '/';
	if (keep == 0)
		walk->rest[0] = '.';
	if (keep == 0 && rest > 0)
		walk->rest[0] = '/';
	walk_to_root(walk);
	return 0;
}

/* Replaces the component that was found to be a link by its target. */
static int walk_link(struct walk *walk, int link_fd)
{
	char target[PATH_MAX];
	struct statfs fs;
	size_t rest = strlen(walk->rest);
	ssize_t len;

	if (!(walk->flags & PATH_FOLLOW) || ++walk->n_links > MAX_LINKS)
		return -ELOOP;
	if (fstatfs(link_fd, &fs) < 0)
		return -errno;
	/* Security: the links of these filesystems jump instead of naming a path. */
	if ((uint64_t)fs.f_type == SYS_MAGIC_PROC || (uint64_t)fs.f_type == SYS_MAGIC_SECURITYFS)
		return -ELOOP;
	len = readlinkat(link_fd, "", target, sizeof(target));
	if (len < 0)
		return -errno;
	if (len == 0)
		return -ENOENT;
	if ((size_t)len >= sizeof(target) || (size_t)len + 1 + rest + 1 > sizeof(walk->rest))
		return -ENAMETOOLONG;
	if (target[0] == '/') {
		if (!(walk->flags & PATH_IN_ROOT))
			return -EXDEV;
		walk_to_root(walk);
	}
	memmove(walk->rest + len, walk->rest, rest + 1);	/* the rest begins with a slash or is empty */
	memcpy(walk->rest, target, (size_t)len);
	return 0;
}

/* Cuts the next component off. Returns its length, 0 when nothing is left; *retlast when it is the final one
 * with no slash behind it, *retslash when only slashes follow. */
static int walk_next(struct walk *walk, char *name, bool *retlast, bool *retslash)
{
	size_t skip = strspn(walk->rest, "/"), len = strcspn(walk->rest + skip, "/"), after;

	if (len > NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(name, walk->rest + skip, len);
	name[len] = 0;
	after = skip + len;
	*retlast = walk->rest[after] == 0;
	*retslash = !*retlast && walk->rest[after + strspn(walk->rest + after, "/")] == 0;
	memmove(walk->rest, walk->rest + after, strlen(walk->rest + after) + 1);
	return (int)len;
}

/* The end of the walk is the directory that was reached: the root, `.`, or after `..`. */
static int open_here(struct walk *walk, int open_flags, uint32_t mode)
{
	int fd;

	if (open_flags & O_CREAT)
		return open_flags & O_EXCL ? -EEXIST : -EISDIR;
	fd = openat(walk->fd, ".", open_flags | O_NOFOLLOW, mode);
	return fd < 0 ? -errno : fd;
}

static int open_last(struct walk *walk, const char *name, int open_flags, uint32_t mode)
{
	int fd, r;

	fd = openat(walk->fd, name, open_flags | O_NOFOLLOW, mode);
	if (fd < 0)
		return -errno;
	r = check_mount(walk, fd);
	if (r < 0) {
		fd_close(fd);
		return r;
	}
	return fd;
}

/* One component. Returns a descriptor when it was the end, -EAGAIN when the walk goes on, or an error. */
static int walk_step(
	struct walk *walk, const char *name, bool last, bool slash, int open_flags, uint32_t mode)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	struct stat st;
	int r;

	if (slash && (open_flags & O_CREAT))
		return -EISDIR;
	fd = openat(walk->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT && last && (open_flags & O_CREAT))
		return open_last(walk, name, open_flags, mode);
	if (fd < 0)
		return -errno;
	r = check_mount(walk, fd);
	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (last && (open_flags & O_CREAT) && (open_flags & O_EXCL))
		return -EEXIST;
	if (S_ISLNK(st.st_mode)) {
		if (last && (open_flags & O_PATH) && (open_flags & O_NOFOLLOW))
			return open_flags & O_DIRECTORY ? -ENOTDIR : steal_fd(fd);
		if (last && (open_flags & O_NOFOLLOW))
			return -ELOOP;
		r = walk_link(walk, fd);
		return r < 0 ? r : -EAGAIN;
	}
	if (last)
		return open_last(walk, name, open_flags, mode);
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	r = walk_enter(walk, name, fd);
	if (r < 0)
		return r;
	fd = -EBADF;	/* the walk has it */
	return -EAGAIN;
}

static int walk_run(struct walk *walk, int open_flags, uint32_t mode)
{
	char name[NAME_MAX + 1];
	bool last, slash;
	int r;

	for (;;) {
		r = walk_next(walk, name, &last, &slash);
		if (r < 0)
			return r;
		if (r == 0)
			return open_here(walk, open_flags, mode);
		if (++walk->n_steps > MAX_STEPS)
			return -ELOOP;
		if (strcmp(name, ".") == 0)
			continue;
		if (strcmp(name, "..") == 0)
			r = walk_up(walk);
		else
			r = walk_step(walk, name, last, slash, open_flags, mode);
		if (r >= 0 && strcmp(name, "..") != 0)
			return r;
		if (r < 0 && r != -EAGAIN)
			return r;
	}
}

static int open_by_walk(int root_fd, const char *path, int open_flags, uint32_t mode, int flags)
{
	struct walk walk;
	int r;

	if (path[0] == '/' && !(flags & PATH_IN_ROOT))
		return -EXDEV;
	r = walk_begin(&walk, root_fd, path, flags);
	if (r < 0)
		return r;
	r = walk_run(&walk, open_flags, mode);
	walk_to_root(&walk);
	return r;
}

int path_open_under(int root_fd, const char *path, int open_flags, uint32_t mode, int flags)
{
	int r;

	if (path[0] == 0)
		return -ENOENT;
	if (!(flags & PATH_IN_ROOT) && (path[0] == '/' || has_dotdot(path)))
		return -EXDEV;
	open_flags = open_flags_of(open_flags);
	if (!(flags & PATH_FORCE_WALK)) {
		r = open_by_kernel(root_fd, path, open_flags, mode, flags);
		/* EPERM may come from an outer filter that does not know the call; the walk gives the same
		 * answer when it was meant. */
		if (r != -ENOSYS && r != -EPERM && r != -EAGAIN)
			return r;
	}
	return open_by_walk(root_fd, path, open_flags, mode, flags);
}

/* The directory of `prefix`, made in parent_fd (the directory of the prefix before it) when it is missing. */
static int make_one(
	int root_fd, int parent_fd, const char *prefix, const char *name, uint32_t mode, int flags)
{
	int fd;

	fd = path_open_under(root_fd, prefix, O_PATH | O_DIRECTORY, 0, flags);
	if (fd != -ENOENT)
		return fd;
	if (mkdirat(parent_fd, name, mode) < 0 && errno != EEXIST)
		return -errno;
	return path_open_under(root_fd, prefix, O_PATH | O_DIRECTORY, 0, flags);
}

int path_make_dirs_under(int root_fd, const char *path, uint32_t mode, int flags)
{
	_cleanup_(fd_closep) int parent_fd = -EBADF;
	char prefix[PATH_MAX], name[NAME_MAX + 1];
	size_t end = 0;

	if (path[0] == 0)
		return -ENOENT;
	if (strlen(path) >= sizeof(prefix))
		return -ENAMETOOLONG;
	strcpy(prefix, path);
	for (;;) {
		size_t begin = end + strspn(path + end, "/"), len = strcspn(path + begin, "/");
		int fd;

		if (len == 0)
			break;
		if (len > NAME_MAX)
			return -ENAMETOOLONG;
		end = begin + len;
		memcpy(name, path + begin, len);
		name[len] = 0;
		prefix[end] = 0;
		fd = make_one(root_fd, parent_fd < 0 ? root_fd : parent_fd, prefix, name, mode, flags);
		prefix[end] = path[end];
		if (fd < 0)
			return fd;
		fd_close(parent_fd);
		parent_fd = fd;
	}
	/* The last one again, readable this time, from the descriptor: not by name. */
	return path_open_under(parent_fd < 0 ? root_fd : parent_fd, ".", O_RDONLY | O_DIRECTORY, 0,
		flags & ~(PATH_IN_ROOT | PATH_NO_XDEV));
}

bool path_is_normal(const char *path)
{
	if (path[0] != '/')
		return false;
	if (path[1] == 0)
		return true;
	while (*path) {
		size_t len;

		path++;	/* the slash */
		len = strcspn(path, "/");
		if (len == 0 || (len == 1 && path[0] == '.') ||
			(len == 2 && path[0] == '.' && path[1] == '.'))
			return false;
		path += len;
	}
	return true;
}

int path_normalize(const char *path, char **retpath)
{
	_cleanup_(freep) char *normal = NULL;
	size_t used = 0;

	if (path[0] != '/')
		return ABOX_E_INVALID;
	normal = malloc(strlen(path) + 1);
	if (!normal)
		return ABOX_E_MEMORY;
	while (*path) {
		size_t len;

		path += strspn(path, "/");
		len = strcspn(path, "/");
		if (len == 2 && path[0] == '.' && path[1] == '.')
			return ABOX_E_INVALID;
		if (len > 0 && !(len == 1 && path[0] == '.')) {
			normal[used++] = '/';
			memcpy(normal + used, path, len);
			used += len;
		}
		path += len;
	}
	if (used == 0)
		normal[used++] = '/';
	normal[used] = 0;
	*retpath = steal_ptr(normal);
	return 0;
}

bool path_is_under(const char *path, const char *prefix)
{
	size_t len = strlen(prefix);

	if (strcmp(prefix, "/") == 0)
		return path[0] == '/';
	return strncmp(path, prefix, len) == 0 && (path[len] == 0 || path[len] == '/');
}

int path_join(const char *directory, const char *name, char **retpath)
{
	size_t a = strlen(directory), b = strlen(name), size;
	char *path;

	while (a > 1 && directory[a - 1] == '/')
		a--;
	name += strspn(name, "/");
	b = strlen(name);
	if (!size_add(a, b, &size) || !size_add(size, 2, &size))
		return ABOX_E_MEMORY;
	path = malloc(size);
	if (!path)
		return ABOX_E_MEMORY;
	memcpy(path, directory, a);
	if (a > 0 && b > 0 && path[a - 1] != '/')
		path[a++] = '/';
	memcpy(path + a, name, b + 1);
	*retpath = path;
	return 0;
}
