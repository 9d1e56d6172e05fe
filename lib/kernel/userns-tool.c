/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Maps through newuidmap and newgidmap, the set-uid programs that let a plain user have the ranges which
 * /etc/subuid and /etc/subgid grant. What is promised: they are run by absolute path with an empty
 * environment, and a refusal is told with their exit code. Whether the ranges are granted is their business.
 */
#include <spawn.h>
#include <stdio.h>
#include <string.h>

#include <agentbox/error.h>

#include "kernel/compat.h"
#include "kernel/userns.h"

#define N_ARGUMENTS (3 + 3 * USERNS_MAX_RANGES)

static const char *const folders[] = { "/usr/bin/", "/bin/", "/usr/sbin/", "/usr/local/bin/" };

/* Security: absolute paths only, never $PATH: the program may have been planted there. */
static bool find_tool(const char *name, char *ret, size_t size)
{
	for (size_t i = 0; i < ELEMENTSOF(folders); i++) {
		snprintf(ret, size, "%s%s", folders[i], name);
		if (access(ret, X_OK) == 0)
			return true;
	}
	return false;
}

bool userns_has_tools(void)
{
	char path[64];

	return find_tool("newuidmap", path, sizeof(path)) && find_tool("newgidmap", path, sizeof(path));
}

static int run_tool(const char *path, char *const *argv, int *retstatus)
{
	static char *const no_environment[] = { NULL };
	posix_spawn_file_actions_t actions;
	pid_t pid;
	int r;

	r = posix_spawn_file_actions_init(&actions);
	if (r != 0)
		return -r;
	for (int fd = 0; fd < 3 && r == 0; fd++)
		r = posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
	if (r == 0)
		r = posix_spawn(&pid, path, &actions, NULL, argv, no_environment);
	posix_spawn_file_actions_destroy(&actions);
	if (r != 0)
		return -r;
	while (waitpid(pid, retstatus, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

static int map_by(const char *name, pid_t pid, const struct id_range *ranges, size_t n, struct fault *fault)
{
	char path[64], numbers[N_ARGUMENTS][12];
	char *argv[N_ARGUMENTS + 1];
	int argc = 0, status = 0, r;

	if (n == 0 || n > USERNS_MAX_RANGES)
		return fault_set(fault, ABOX_E_INVALID, 0, name, "%zu ranges of ids", n);
	if (!find_tool(name, path, sizeof(path))) {
		fault_set(fault, ABOX_E_UNSUPPORTED, 0, name, "%s is not installed", name);
		fault_remedy(fault, "install the package uidmap");
		return ABOX_E_UNSUPPORTED;
	}
	argv[argc++] = path;
	snprintf(numbers[argc], sizeof(numbers[argc]), "%d", (int)pid);
	for (size_t i = 0; i < n; i++) {
		snprintf(numbers[2 + 3 * i], sizeof(numbers[0]), "%u", ranges[i].inside);
		snprintf(numbers[3 + 3 * i], sizeof(numbers[0]), "%u", ranges[i].outside);
		snprintf(numbers[4 + 3 * i], sizeof(numbers[0]), "%u", ranges[i].count);
	}
	for (; argc < 2 + 3 * (int)n; argc++)
		argv[argc] = numbers[argc];
	argv[argc] = NULL;
	r = run_tool(path, argv, &status);
	if (r < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -r, name, "cannot run %s", path);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		fault_set(fault, ABOX_E_PERMISSION, 0, name, "%s refused the ranges (exit code %d)", path,
			WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
		fault_remedy(fault,
			"check the ranges of this user in /etc/subuid and /etc/subgid, and that %s is "
			"set-uid root",
			path);
		return ABOX_E_PERMISSION;
	}
	return 0;
}

int userns_write_maps_by_tool(pid_t pid, const struct id_range *uids, size_t n_uids,
	const struct id_range *gids, size_t n_gids, struct fault *fault)
{
	int r;

	r = map_by("newuidmap", pid, uids, n_uids, fault);
	if (r < 0)
		return r;
	return map_by("newgidmap", pid, gids, n_gids, fault);
}
