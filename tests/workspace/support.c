/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/strings.h"
#include "workspace/content.h"

int scene_begin(struct scene *scene)
{
	return scene_begin_in(scene, "/tmp");
}

int scene_begin_in(struct scene *scene, const char *directory)
{
	snprintf(scene->path, sizeof(scene->path), "%s/abox-workspace-XXXXXX", directory);
	if (!mkdtemp(scene->path))
		return -errno;
	scene->fd = open(scene->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return scene->fd < 0 ? -errno : 0;
}

void scene_end(struct scene *scene)
{
	char *slash = strrchr(scene->path, '/');
	int parent_fd;

	fd_close(scene->fd);
	*slash = 0;
	parent_fd = open(scene->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (path_remove_tree(parent_fd, slash + 1) < 0)
		fprintf(stderr, "%s could not be removed\n", slash + 1);
	fd_close(parent_fd);
}

static int open_parent(int dir_fd, const char *path, const char **retname)
{
	const char *slash = strrchr(path, '/');
	char parent[4096];

	*retname = slash ? slash + 1 : path;
	if (!slash)
		return openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	memcpy(parent, path, (size_t)(slash - path));
	parent[slash - path] = 0;
	return path_make_dirs_under(dir_fd, parent, 0755, 0);
}

int put_mode(int dir_fd, const char *path, const char *text, mode_t mode)
{
	_cleanup_(fd_closep) int parent_fd = -EBADF;
	_cleanup_(fd_closep) int fd = -EBADF;
	const char *name;

	parent_fd = open_parent(dir_fd, path, &name);
	if (parent_fd < 0)
		return parent_fd;
	fd = openat(parent_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (fchmod(fd, mode) < 0)
		return -errno;
	return fd_write_all(fd, text, strlen(text));
}

int put(int dir_fd, const char *path, const char *text)
{
	return put_mode(dir_fd, path, text, 0644);
}

int put_dir(int dir_fd, const char *path)
{
	int fd = path_make_dirs_under(dir_fd, path, 0755, 0);

	fd_close(fd);
	return fd < 0 ? fd : 0;
}

int put_link(int dir_fd, const char *path, const char *target)
{
	_cleanup_(fd_closep) int parent_fd = -EBADF;
	const char *name;

	parent_fd = open_parent(dir_fd, path, &name);
	return parent_fd < 0 ? parent_fd : symlinkat(target, parent_fd, name) < 0 ? -errno : 0;
}

int put_whiteout(int dir_fd, const char *path)
{
	_cleanup_(fd_closep) int parent_fd = -EBADF;
	const char *name;

	parent_fd = open_parent(dir_fd, path, &name);
	return parent_fd < 0 ? parent_fd : mknodat(parent_fd, name, S_IFCHR, makedev(0, 0)) < 0 ? -errno : 0;
}

int put_opaque(int dir_fd, const char *path)
{
	_cleanup_(fd_closep) int fd = path_make_dirs_under(dir_fd, path, 0755, 0);

	return fd < 0 ? fd : fsetxattr(fd, "user.overlay.opaque", "y", 1, 0) < 0 ? -errno : 0;
}

int make_root(struct scene *scene, const char *name)
{
	int fd;

	if (mkdirat(scene->fd, name, 0755) < 0)
		return -errno;
	fd = openat(scene->fd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

const char *get(int dir_fd, const char *path)
{
	static char text[65536];
	_cleanup_(fd_closep) int fd = path_open_under(dir_fd, path, O_RDONLY | O_NOFOLLOW, 0, 0);
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return NULL;
	n = fd_read_all(fd, text, sizeof(text) - 1);
	if (n < 0)
		return NULL;
	text[n] = 0;
	return text;
}

bool there(int dir_fd, const char *path)
{
	_cleanup_(fd_closep) int fd = path_open_under(dir_fd, path, O_PATH | O_NOFOLLOW, 0, 0);

	return fd >= 0;
}

uint32_t mode_of(int dir_fd, const char *path)
{
	struct stat st;

	return fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 ? 0 : st.st_mode;
}

static void list_step(const struct view *view, const struct view_step *step, struct text *list)
{
	_cleanup_(freep) char *target = NULL;
	_cleanup_(fd_closep) int fd = -EBADF;
	uint8_t digest[DIGEST_BYTES];
	char hex[DIGEST_TEXT_BYTES] = "";
	uint64_t len = 0;

	if (S_ISLNK(step->now.st.st_mode) &&
		view_read_link(view, step->now_dir, step->name, &step->now, &target) < 0)
		text_add(list, "(no target) ");
	if (S_ISREG(step->now.st.st_mode)) {
		if (view_open_file(view, step->now_dir, step->name, &step->now, &fd) < 0 ||
			content_digest(fd, digest, &len) < 0)
			text_add(list, "(cannot be read) ");
		else
			hex_encode(digest, sizeof(digest), hex);
	}
	text_add_escaped(list, step->path, strlen(step->path));
	text_printf(list, " %o %llu %s%s\n", step->now.st.st_mode, (unsigned long long)len, hex,
		target ? target : "");
}

char *list_view(const struct view *view)
{
	struct text list = TEXT_INIT;
	struct view_walk *walk;
	struct view_step step;
	char *result;
	int r;

	if (view_walk_new(view, NULL, &walk) < 0)
		return NULL;
	while ((r = view_walk_next(walk, &step, NULL)) > 0)
		list_step(view, &step, &list);
	view_walk_free(walk);
	if (r < 0)
		text_printf(&list, "error %d\n", r);
	text_add(&list, "");
	return text_take(&list, &result) < 0 ? NULL : result;
}

char *list_tree(int dir_fd)
{
	struct view_layer layer = {.root_fd = dir_fd, .flavour = VIEW_PLAIN};

	return list_view(&(struct view){&layer, 1});
}

int in_child(int (*fn)(int report_fd, void *data), void *data, char *ret, size_t size)
{
	size_t used = 0;
	int pipe_fds[2], status;
	pid_t pid;

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		alarm(60); /* bounded, whatever happens */
		close(pipe_fds[0]);
		_exit(fn(pipe_fds[1], data) == 0 ? 0 : 1);
	}
	close(pipe_fds[1]);
	while (used + 1 < size) {
		ssize_t n = read(pipe_fds[0], ret + used, size - used - 1);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		used += (size_t)n;
	}
	ret[used] = 0;
	close(pipe_fds[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status) && used == 0)
		snprintf(ret, size, "killed by signal %d", WTERMSIG(status));
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 && used == 0 ? 0 : -1;
}

uint32_t random_next(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15ULL;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return (uint32_t)((x ^ (x >> 31)) >> 16);
}
