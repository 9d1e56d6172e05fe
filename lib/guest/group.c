/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Limits that the guest's own kernel keeps. Promises that the box has them before anything of it runs, or does not start.
 */
#include "guest/group.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "base/fd.h"

#define GROUPS "/groups"

static int set_limit(int group_fd, const char *name, uint64_t value, struct fault *fault)
{
	char text[32];
	int r;

	if (!value)
		return 0;
	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	r = file_write_text(group_fd, name, text);
	return r < 0 ? fault_set(fault, ABOX_E_SYSTEM, -r, name, "the kernel of the machine has no such limit") : 0;
}

int group_make(uint64_t memory_bytes, uint64_t pids, struct fault *fault)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	int r;

	if ((mkdir(GROUPS, 0700) < 0 && errno != EEXIST) || mount("groups", GROUPS, "cgroup2", 0, NULL) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "groups", "cannot be mounted");
	r = file_write_text(AT_FDCWD, GROUPS "/cgroup.subtree_control", "+memory +pids");
	if (r < 0 || mkdir(GROUPS "/box", 0700) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, r < 0 ? -r : errno, "groups", "cannot be made");
	fd = open(GROUPS "/box", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "groups", "cannot be opened");
	r = set_limit(fd, "memory.max", memory_bytes, fault);
	if (r == 0)
		r = set_limit(fd, "pids.max", pids, fault);
	return r < 0 ? r : steal_fd(fd);
}

/* A line "name number" of a small file. */
static uint64_t read_count(int group_fd, const char *file, const char *name)
{
	_cleanup_(fd_closep) int fd = openat(group_fd, file, O_RDONLY | O_CLOEXEC);
	char text[512], *line, *state = NULL;
	size_t len = strlen(name);
	ssize_t n = fd < 0 ? -1 : fd_read_all(fd, text, sizeof(text) - 1);

	if (n <= 0)
		return 0;
	text[n] = 0;
	for (line = strtok_r(text, "\n", &state); line; line = strtok_r(NULL, "\n", &state)) {
		if (strncmp(line, name, len) == 0 && line[len] == ' ')
			return strtoull(line + len, NULL, 10);
	}
	return 0;
}

void group_read(int group_fd, struct group_counts *ret)
{
	ret->n_oom_kills = read_count(group_fd, "memory.events", "oom_kill");
	ret->n_forks_denied = read_count(group_fd, "pids.events", "max");
}
