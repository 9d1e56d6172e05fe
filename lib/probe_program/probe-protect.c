/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Probes of a protected name: every way to change what stands under it, to put something else there, or to move
 * the folder it is in away and make another. args: the name, a writable folder beside its folder, rounds of the
 * race. On a name that is not protected the same tricks are allowed: each begins by making what an earlier one has
 * destroyed.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "probe.h"

#define EXCHANGE (1 << 1)	/* RENAME_EXCHANGE */

static char parent[PATH_MAX], moved[PATH_MAX], own_file[PATH_MAX], own_folder[PATH_MAX], own_link[PATH_MAX];

static void touch(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd >= 0)
		close(fd);
}

static void prepare(const char **args)
{
	mkdir(parent, 0755);
	touch(args[0]);
	touch(own_file);
	mkdir(own_folder, 0755);
	unlink(own_link);
}

static long opened(int fd)
{
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static long try_write(const char **args)
{
	return opened(open(args[0], O_WRONLY | O_CLOEXEC));
}

static long try_append(const char **args)
{
	return opened(open(args[0], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
}

static long try_truncate(const char **args)
{
	return RAW(truncate(args[0], 0));
}

static long try_chmod(const char **args)
{
	return RAW(chmod(args[0], 0755));
}

static long try_times(const char **args)
{
	return RAW(utimensat(AT_FDCWD, args[0], NULL, 0));
}

static long try_setxattr(const char **args)
{
	return RAW(setxattr(args[0], "user.probe", "x", 1, 0));
}

static long try_unlink(const char **args)
{
	return RAW(unlink(args[0]));
}

static long try_rename_away(const char **args)
{
	return RAW(rename(args[0], own_link));
}

static long try_rename_beside(const char **args)
{
	char to[PATH_MAX + 8];

	snprintf(to, sizeof(to), "%s.old", args[0]);
	return RAW(rename(args[0], to));
}

static long try_rename_over(const char **args)
{
	return RAW(rename(own_file, args[0]));
}

/* From the same folder, so that it is not the border between two mounts that stands in the way. */
static long try_rename_over_beside(const char **args)
{
	char from[PATH_MAX + 8];
	long r;

	snprintf(from, sizeof(from), "%s.new", args[0]);
	touch(from);
	r = RAW(rename(from, args[0]));
	unlink(from);
	return r;
}

static long try_exchange(const char **args)
{
	return RAW(syscall(SYS_renameat2, AT_FDCWD, own_file, AT_FDCWD, args[0], EXCHANGE));
}

static long try_link_over(const char **args)
{
	unlink(args[0]);
	return RAW(link(own_file, args[0]));
}

static long try_link_out(const char **args)
{
	return RAW(link(args[0], own_link));
}

static long try_symlink(const char **args)
{
	unlink(args[0]);
	return RAW(symlink(own_file, args[0]));
}

static long try_parent_rename(const char **args)
{
	return RAW(rename(parent, moved));
}

static long try_parent_exchange(const char **args)
{
	return RAW(syscall(SYS_renameat2, AT_FDCWD, own_folder, AT_FDCWD, parent, EXCHANGE));
}

static long try_parent_symlink(const char **args)
{
	if (rename(parent, moved) < 0)
		return -errno;
	return RAW(symlink(own_folder, parent));
}

static long try_parent_remove(const char **args)
{
	unlink(args[0]);
	return RAW(rmdir(parent));
}

static long try_umount(const char **args)
{
	return RAW(umount2(args[0], MNT_DETACH));
}

static long try_remount(const char **args)
{
	return RAW(mount(NULL, args[0], NULL, MS_REMOUNT | MS_BIND, NULL));
}

static long try_bind(const char **args)
{
	return RAW(mount(own_file, args[0], NULL, MS_BIND, NULL));
}

static long try_bind_in_namespaces(const char **args)
{
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return -errno;
	return RAW(mount(own_file, args[0], NULL, MS_BIND, NULL));
}

static void race_folders(long rounds)
{
	for (long i = 0; i < rounds; i++) {
		rename(parent, moved);
		mkdir(parent, 0755);
		syscall(SYS_renameat2, AT_FDCWD, own_folder, AT_FDCWD, parent, EXCHANGE);
		rmdir(parent);
		symlink(own_folder, parent);
		rename(moved, parent);
	}
}

/* One that turns the folders, one that puts things under the name; allowed when once something got there. */
static long try_race(const char **args)
{
	long rounds = args[2] ? atol(args[2]) : 200, r = -EACCES;
	struct stat before, after;
	pid_t child;

	if (lstat(args[0], &before) < 0)
		return -errno;
	child = fork();
	if (child == 0) {
		race_folders(rounds);
		_exit(0);
	}
	for (long i = 0; i < rounds && child > 0; i++) {
		touch(own_file);
		if (rename(own_file, args[0]) == 0 || opened(open(args[0], O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) == 0 ||
			link(own_file, args[0]) == 0 || symlink(own_file, args[0]) == 0 || mkdir(args[0], 0755) == 0)
			r = 0;
		if (lstat(args[0], &after) < 0 || after.st_ino != before.st_ino || after.st_size != before.st_size ||
			after.st_ctim.tv_nsec != before.st_ctim.tv_nsec)
			r = 0;
	}
	if (child > 0) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	return r;
}

static const struct {
	const char *name;
	probe_function function;
} tricks[] = {
	{ "write", try_write }, { "append", try_append }, { "truncate", try_truncate }, { "chmod", try_chmod },
	{ "times", try_times }, { "setxattr", try_setxattr }, { "unlink", try_unlink },
	{ "rename-away", try_rename_away }, { "rename-beside", try_rename_beside }, { "rename-over", try_rename_over },
	{ "rename-over-beside", try_rename_over_beside }, { "exchange", try_exchange }, { "link-over", try_link_over },
	{ "link-out", try_link_out }, { "symlink", try_symlink }, { "parent-rename", try_parent_rename },
	{ "parent-exchange", try_parent_exchange }, { "parent-symlink", try_parent_symlink },
	{ "parent-remove", try_parent_remove }, { "race", try_race },
};
static const struct {
	const char *name;
	probe_function function;
} mount_tricks[] = {
	{ "umount", try_umount }, { "remount", try_remount }, { "bind", try_bind },
	{ "bind-in-namespaces", try_bind_in_namespaces },
};

/* What a trick has left is cleared away, for the next one. */
static void tidy(void)
{
	char path[PATH_MAX + 8];

	if (access(moved, F_OK) == 0) {
		unlink(parent);
		rmdir(parent);
		rename(moved, parent);
	}
	snprintf(path, sizeof(path), "%s/file", own_folder);
	unlink(path);
}

static int run_protect(const char **args)
{
	char label[64];
	char *slash;

	if (!args[0] || !args[1] || strlen(args[0]) + 16 > PATH_MAX || strlen(args[1]) + 16 > PATH_MAX)
		return 2;
	snprintf(parent, sizeof(parent), "%s", args[0]);
	slash = strrchr(parent, '/');
	if (!slash || slash == parent)
		return 2;
	*slash = 0;
	snprintf(moved, sizeof(moved), "%.4000s.moved", parent);
	snprintf(own_file, sizeof(own_file), "%s/own-file", args[1]);
	snprintf(own_folder, sizeof(own_folder), "%s/own-folder", args[1]);
	snprintf(own_link, sizeof(own_link), "%s/own-link", args[1]);
	for (size_t i = 0; i < sizeof(tricks) / sizeof(tricks[0]); i++) {
		prepare(args);
		snprintf(label, sizeof(label), "protect.%s", tricks[i].name);
		report(label, tricks[i].function, args);
		tidy();
	}
	for (size_t i = 0; i < sizeof(mount_tricks) / sizeof(mount_tricks[0]); i++) {
		snprintf(label, sizeof(label), "protect-mount.%s", mount_tricks[i].name);
		report(label, mount_tricks[i].function, args);
	}
	return 0;
}

const struct probe_group probe_protect_groups[] = {
	{ "protect", "NAME OWN-DIR [ROUNDS]", run_protect },
	{ 0 }
};
