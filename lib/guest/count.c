/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Counting the processes that outlive a command's main process, for the result. Nothing is decided by it.
 */
#include "guest/count.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/fd.h"

#define MAX_PROCESSES 8192

struct process {
	pid_t pid;
	pid_t parent;
	int8_t ours;	/* 1 yes, -1 no, 0 not looked at */
};

static void closedirp(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

/* "PID (name) S PPID ...": the name may hold anything, so the last parenthesis counts. */
static bool read_process(int proc_fd, const char *name, struct process *ret)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	char path[64], text[512];
	char *p;
	ssize_t n;

	snprintf(path, sizeof(path), "%.20s/stat", name);
	fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = fd_read_all(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return false;
	text[n] = 0;
	p = strrchr(text, ')');
	if (!p || p[1] != ' ' || !p[2] || p[2] == 'Z' || p[2] == 'X')
		return false;
	*ret = (struct process){ .pid = (pid_t)atoi(name), .parent = (pid_t)atoi(p + 3) };
	return true;
}

/* pids ascend in /proc, but a parent may be younger than its child (a subreaper): so until nothing changes.
 */
static uint32_t count_ours(struct process *list, size_t n, pid_t self)
{
	uint32_t count = 0;
	bool changed = true;

	while (changed) {
		changed = false;
		for (size_t i = 0; i < n; i++) {
			bool below = list[i].parent == self;

			if (list[i].ours || list[i].pid == self)
				continue;
			for (size_t k = 0; k < n && !below; k++)
				below = list[k].ours && list[k].pid == list[i].parent;
			if (below) {
				list[i].ours = 1;
				count++;
				changed = true;
			}
		}
	}
	return count;
}

/* Our number there: /proc may be that of a pid namespace above ours. */
static pid_t own_number(void)
{
	char text[16] = "";

	return readlink("/proc/self", text, sizeof(text) - 1) > 0 ? (pid_t)atoi(text) : getpid();
}

uint32_t count_descendants(void)
{
	_cleanup_(closedirp) DIR *dir = opendir("/proc");
	_cleanup_(freep) struct process *list = NULL;
	struct dirent *entry;
	size_t n = 0;

	list = calloc(MAX_PROCESSES, sizeof(*list));
	if (!dir || !list)
		return UINT32_MAX;
	while (n < MAX_PROCESSES && (entry = readdir(dir))) {
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
			read_process(dirfd(dir), entry->d_name, &list[n]))
			n++;
	}
	return count_ours(list, n, own_number());
}
