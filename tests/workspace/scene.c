/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "scene.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/strings.h"
#include "kernel/mount.h"
#include "kernel/userns.h"
#include "workspace/tree.h"

void scene_fail(struct scene *scene, const char *file, int line, const char *what, const abox_error *error)
{
	char *text = NULL;

	if (error)
		(void)abox_error_format(error, &text);
	dprintf(scene->report_fd, "%s:%d: %s%s%s\n", file, line, what, text ? ": " : "", text ? text : "");
	abox_free(text);
	scene->failed = 1;
}

/* In the child: never returns. */
static void play_child(scene_fn body, struct scene *scene, unsigned int uid)
{
	alarm(600);
	if (uid != 0 && geteuid() == 0 &&
		(setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0))
		_exit(3);
	if (chdir("/") < 0 || setenv("ABOX_HOME", scene->root, 1) < 0)
		_exit(3);
	body(scene);
	_exit(scene->failed);
}

static void wait_for(pid_t pid, int fd, unsigned int seconds, char *report, size_t size)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	size_t used = 0;

	for (;;) {
		ssize_t n;

		if (poll(&poll_fd, 1, (int)seconds * 1000) <= 0) {
			kill(-pid, SIGKILL);
			kill(pid, SIGKILL);
			snprintf(report, size, "not done in %u s", seconds);
			return;
		}
		n = read(fd, report + used, size - 1 - used);
		if (n <= 0)
			break;
		used += (size_t)n;
	}
	report[used] = 0;
}

void scene_play_as(scene_fn body, unsigned int seconds, unsigned int uid)
{
	struct scene scene = {.root = "/tmp/abox-workspace-XXXXXX"};
	char report[4096] = "", *base;
	int ends[2], status = 0;
	pid_t pid;

	cr_assert_not_null(mkdtemp(scene.root));
	cr_assert_eq(chown(scene.root, uid, uid), 0);
	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	fflush(NULL);
	pid = fork();
	cr_assert_geq(pid, 0);
	if (pid == 0) {
		setpgid(0, 0);
		scene.report_fd = ends[1];
		scene.root_fd = open(scene.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		play_child(body, &scene, uid);
	}
	close(ends[1]);
	wait_for(pid, ends[0], seconds, report, sizeof(report));
	close(ends[0]);
	kill(-pid, SIGKILL); /* nobody that it started stays */
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	base = strrchr(scene.root, '/');
	*base = 0;
	scene.root_fd = open(scene.root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	cr_expect_eq(
		path_remove_tree(scene.root_fd, base + 1), 0, "the folder of the test cannot be removed");
	close(scene.root_fd);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0 && !report[0], "uid %u: %s (status %x)", uid,
		report, status);
}

void scene_play(scene_fn body, unsigned int seconds)
{
	scene_play_as(body, seconds, geteuid());
	if (geteuid() == 0)
		scene_play_as(body, seconds, PLAIN_UID);
}

int put_folder(int dir_fd, const char *path)
{
	int fd = path_make_dirs_under(dir_fd, path, 0755, 0);

	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

int put_file(int dir_fd, const char *path, const char *content)
{
	_cleanup_(freep) char *folder = strdup(path);
	char *slash = strrchr(folder, '/');
	int fd, r;

	if (slash) {
		*slash = 0;
		r = put_folder(dir_fd, folder);
		if (r < 0)
			return r;
	}
	fd = path_open_under(dir_fd, path, O_WRONLY | O_CREAT | O_TRUNC, 0644, 0);
	if (fd < 0)
		return fd;
	r = fd_write_all(fd, content, strlen(content));
	close(fd);
	return r;
}

static int text_enter(void *userdata, const struct tree_entry *entry, int fd)
{
	text_printf(userdata, "%s/ %o\n", entry->path, (unsigned int)entry->st.st_mode & 07777);
	return 0;
}

static int text_other(void *userdata, const struct tree_entry *entry)
{
	char content[64] = "", hex[DIGEST_TEXT_BYTES] = "";
	uint8_t digest[DIGEST_BYTES];
	uint64_t len;
	int fd;

	if (S_ISREG(entry->st.st_mode)) {
		fd = tree_open(entry->dir_fd, entry->name, &entry->st);
		if (fd < 0)
			return fd;
		if (entry->st.st_size < (off_t)sizeof(content)) {
			(void)!read(fd, content, sizeof(content) - 1);
		} else if (entry->st.st_size < 1 << 30) {
			(void)digest_sha256_fd(fd, digest, &len);
			hex_encode(digest, sizeof(digest), hex);
		}
		close(fd);
	} else if (S_ISLNK(entry->st.st_mode)) {
		(void)!readlinkat(entry->dir_fd, entry->name, content, sizeof(content) - 1);
	}
	text_printf(userdata, "%s %o %lld %s%s\n", entry->path, (unsigned int)entry->st.st_mode,
		S_ISREG(entry->st.st_mode) ? (long long)entry->st.st_size : 0LL, content, hex);
	return 0;
}

char *tree_text(int dir_fd)
{
	struct text text = TEXT_INIT;
	struct tree_visitor visitor = {.enter = text_enter, .other = text_other, .userdata = &text};
	abox_error *error = NULL;
	char *result = NULL;

	if (tree_walk(dir_fd, "tree", &visitor, &error) < 0 || text_take(&text, &result) < 0) {
		fprintf(stderr, "no text of the tree: %s\n", error ? abox_error_get_message(error) : "");
		abox_error_free(error);
		text_clear(&text);
	}
	return result;
}

/* In the child. A plain user needs a user namespace to mount; a box would be there as well. */
static int enter_namespaces(void)
{
	struct id_range uid = {.inside = geteuid(), .outside = geteuid(), .count = 1};
	struct id_range gid = {.inside = getegid(), .outside = getegid(), .count = 1};

	if (geteuid() == 0)
		return unshare(CLONE_NEWNS) < 0 ? -errno : 0;
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return -errno;
	return userns_write_maps(0, &uid, 1, &gid, 1, true, NULL) < 0 ? -EPERM : 0;
}

/* The layers are opened in the mount namespace that mounts them: the kernel refuses others. */
static int mount_workspace(const char *id, const char *snapshot, int *retfd)
{
	struct layer_stack stack = LAYER_STACK_INIT;
	abox_workspace *workspace = NULL;
	abox_error *error = NULL;
	struct fault fault;
	int r;

	r = enter_namespaces();
	if (r < 0)
		return r;
	fault_init(&fault, ABOX_STAGE_WORKSPACE);
	if (abox_workspace_open(id, &workspace, &error) < 0 ||
		workspace_open_stack(workspace, snapshot, &stack, &error) < 0) {
		fprintf(stderr, "%s\n", abox_error_get_message(error));
		return -EIO;
	}
	r = layer_stack_mount(&stack, MOUNT_OVERLAY_VOLATILE, 0, retfd, &fault);
	if (r < 0)
		fprintf(stderr, "%s: %s\n", fault.place, fault.message);
	layer_stack_clear(&stack);
	abox_workspace_unref(workspace);
	return r < 0 ? -(fault.sys_errno ? fault.sys_errno : EIO) : 0;
}

static void child_change(
	const char *id, const char *snapshot, change_fn change, const void *userdata, int out_fd)
{
	_cleanup_(freep) char *text = NULL;
	int mount_fd = -EBADF, r;

	alarm(300);
	umask(022);
	r = mount_workspace(id, snapshot, &mount_fd);
	if (r >= 0 && change)
		r = change(mount_fd, userdata);
	if (r >= 0 && !change) {
		text = tree_text(mount_fd);
		r = text ? fd_write_all(out_fd, text, strlen(text)) : -EIO;
	}
	_exit(r < 0 ? -r : 0);
}

static int in_stack(abox_workspace *workspace, const char *snapshot, change_fn change, const void *userdata,
	char **rettext)
{
	struct text text = TEXT_INIT;
	char buffer[65536];
	int ends[2], status, r;
	abox_error *error = NULL;
	ssize_t n;
	pid_t pid;

	r = workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, &error);
	if (r >= 0 && !snapshot)
		r = workspace_begin_use(workspace, &error);
	if (r < 0 || pipe2(ends, O_CLOEXEC) < 0) {
		fprintf(stderr, "%s\n", abox_error_get_message(error));
		abox_error_free(error);
		return -EIO;
	}
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		child_change(abox_workspace_get_id(workspace), snapshot, change, userdata, ends[1]);
	close(ends[1]);
	while ((n = read(ends[0], buffer, sizeof(buffer))) > 0)
		text_add_bytes(&text, buffer, (size_t)n);
	close(ends[0]);
	waitpid(pid, &status, 0);
	if (!snapshot && workspace_end_use(workspace, &error) < 0) {
		fprintf(stderr, "cannot end the use: %s\n", abox_error_get_message(error));
		abox_error_free(error);
		status = EIO << 8;
	}
	workspace_unlock(workspace);
	if (rettext)
		(void)text_take(&text, rettext);
	else
		text_clear(&text);
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EINTR;
}

int in_workspace(abox_workspace *workspace, change_fn change, const void *userdata)
{
	return in_stack(workspace, NULL, change, userdata, NULL);
}

char *workspace_text(abox_workspace *workspace, const char *snapshot)
{
	char *text = NULL;
	int r = in_stack(workspace, snapshot, NULL, NULL, &text);

	if (r < 0) {
		fprintf(stderr, "cannot look into the workspace: %s\n", strerror(-r));
		free(text);
		return NULL;
	}
	return text;
}

static int write_line(int dir_fd, char *line)
{
	char *op = strtok(line, " "), *a = strtok(NULL, " "), *b = strtok(NULL, "");

	switch (op[0]) {
	case 'w':
		return put_file(dir_fd, a, b ? b : "");
	case 'd':
		return put_folder(dir_fd, a);
	case 'r':
		/* What is removed has no slash here, or one level. */
		if (strchr(a, '/')) {
			char *slash = strrchr(a, '/');
			int fd, r;

			*slash = 0;
			fd = path_open_under(dir_fd, a, O_RDONLY | O_DIRECTORY, 0, 0);
			r = fd < 0 ? fd : path_remove_tree(fd, slash + 1);
			fd_close(fd);
			return r;
		}
		return path_remove_tree(dir_fd, a);
	case 'l':
		return linkat(dir_fd, a, dir_fd, b, 0) < 0 ? -errno : 0;
	case 's':
		return symlinkat(a, dir_fd, b) < 0 ? -errno : 0;
	case 'm':
		return renameat(dir_fd, a, dir_fd, b) < 0 ? -errno : 0;
	case 'c':
		return fchmodat(dir_fd, a, (mode_t)strtoul(b, NULL, 8), 0) < 0 ? -errno : 0;
	}
	return -EINVAL;
}

int write_lines(int dir_fd, const void *lines)
{
	_cleanup_(freep) char *copy = strdup(lines);
	int r = 0;

	for (char *line = copy, *end; r >= 0 && line && *line; line = end) {
		end = strchr(line, '\n');
		if (end)
			*end++ = 0;
		r = write_line(dir_fd, line);
	}
	return r;
}
