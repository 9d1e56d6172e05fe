/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Freezing, killing and removing groups. What is promised: each is bounded in time, and removing tells what
 * stayed.
 *
 * With cgroup.kill one write ends a whole tree, fork bombs included. Without it, forks are stopped first
 * (pids.max) and the members are killed until none is left; a tree without both is killed in passes, which a
 * fork bomb can outrun: then the bound in time is what ends it, with an error.
 */
#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <agentbox/error.h>

#include "base/clock.h"
#include "base/fd.h"
#include "kernel/cgroup-files.h"
#include "kernel/cgroup.h"
#include "kernel/compat.h"

#define MAX_DEPTH 32	/* of groups below ours; a box has no way to make any, its keeper makes one level */

static void pause_usec(long usec)
{
	struct timespec delay = { .tv_nsec = usec * 1000 };

	nanosleep(&delay, NULL);
}

/* Calls fn for each directory below dir_fd, deepest first, then for dir_fd itself. */
static void for_each_group(
	int dir_fd, unsigned int depth, void (*fn)(int dir_fd, void *argument), void *argument)
{
	int copy = depth < MAX_DEPTH ? openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
	struct dirent *entry;

	if (!dir)
		fd_close(copy);
	while (dir && (entry = readdir(dir))) {
		int sub_fd;

		if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
			continue;
		sub_fd = openat(dir_fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (sub_fd < 0)
			continue;
		for_each_group(sub_fd, depth + 1, fn, argument);
		fd_close(sub_fd);
	}
	if (dir)
		closedir(dir);
	fn(dir_fd, argument);
}

struct members {
	int signal;	/* 0: only count */
	size_t n;
};

static void signal_members(int dir_fd, void *argument)
{
	struct members *members = argument;
	FILE *file;
	int fd, pid;

	fd = openat(dir_fd, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	file = fd >= 0 ? fdopen(fd, "re") : NULL;
	if (!file) {
		fd_close(fd);
		return;
	}
	while (fscanf(file, "%d", &pid) == 1) {
		members->n++;
		/* 0 is a process that our pid namespace does not show; 1 is never a member that we may end
		 * so. */
		if (members->signal && pid > 1)
			kill(pid, members->signal);
	}
	fclose(file);
}

static int any_dir(const struct cgroup_group *group)
{
	if (group->tree_fd >= 0)
		return group->tree_fd;
	for (int i = 0; i < CGROUP_N_CONTROLLERS; i++)
		if (group->dir_fds[i] >= 0)
			return group->dir_fds[i];
	return -EBADF;
}

/* A process is either in all directories of a group or, when its joining was cut short, in the first of them:
 * so each is asked. */
static size_t signal_group(const struct cgroup_group *group, int signal)
{
	struct members members = { .signal = signal };

	for (int i = 0; i < CGROUP_N_CONTROLLERS; i++)
		if (group->dir_fds[i] >= 0)
			for_each_group(group->dir_fds[i], 0, signal_members, &members);
	if (group->tree_fd >= 0)
		for_each_group(group->tree_fd, 0, signal_members, &members);
	return members.n;
}

bool cgroup_is_populated(const struct cgroup_group *group)
{
	uint64_t populated = 0;

	if (group->tree_fd >= 0 &&
		cgroup_read_key(group->tree_fd, "cgroup.events", "populated", &populated) == 0 && populated)
		return true;
	if (group->version == 1 || group->tree_fd < 0)
		return signal_group(group, 0) > 0;
	return populated != 0;
}

/* Waits for a change in cgroup.events until the deadline; the file is read again by the caller. */
static void wait_for_event(int tree_fd, uint64_t deadline_usec)
{
	_cleanup_(fd_closep) int fd = openat(tree_fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
	struct pollfd entry = { .fd = fd, .events = POLLPRI };
	char text[128];
	int msec = clock_poll_msec(clock_monotonic_usec(), deadline_usec);

	/* A change between the caller's look and the open is missed: hence never longer than a moment. */
	if (fd < 0 || read(fd, text, sizeof(text)) < 0) {
		pause_usec(1000);
		return;
	}
	poll(&entry, 1, msec < 0 || msec > 10 ? 10 : msec);
}

int cgroup_freeze(const struct cgroup_group *group, bool frozen, uint64_t timeout_usec, struct fault *fault)
{
	uint64_t deadline_usec = clock_deadline(clock_monotonic_usec(), timeout_usec), state = 0;
	int r;

	if (group->tree_fd < 0)
		return fault_set(fault, ABOX_E_UNSUPPORTED, 0, "cgroup",
			"no cgroup2 tree to freeze the group '%s' with", group->name);
	r = file_write_text(group->tree_fd, "cgroup.freeze", frozen ? "1" : "0");
	while (r == 0) {
		r = cgroup_read_key(group->tree_fd, "cgroup.events", "frozen", &state);
		if (r < 0 || (state != 0) == frozen)
			break;
		if (clock_monotonic_usec() >= deadline_usec)
			return fault_set(fault, ABOX_E_TIMEOUT, 0, "cgroup", "the group '%s' does not %s",
				group->name, frozen ? "freeze" : "thaw");
		wait_for_event(group->tree_fd, deadline_usec);
	}
	if (r < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -r, "cgroup", "cannot freeze or thaw the group '%s'",
			group->name);
	return 0;
}

int cgroup_kill(const struct cgroup_group *group, uint64_t timeout_usec, struct fault *fault)
{
	uint64_t deadline_usec = clock_deadline(clock_monotonic_usec(), timeout_usec);
	int dir_fd = group->dir_fds[CGROUP_PIDS], r = 0;

	if (any_dir(group) < 0)
		return 0;
	if (group->has_kill) {
		r = file_write_text(group->tree_fd, "cgroup.kill", "1");
		if (r < 0 && r != -ENODEV)	/* removed meanwhile */
			return fault_set(fault, ABOX_E_SYSTEM, -r, "cgroup", "cannot kill the group '%s'",
				group->name);
		/* On a hybrid host somebody may have joined the limits and died before the tree; the loop
		 * ends at once else. */
		if (group->version != 1)
			return 0;
	} else {
		if (dir_fd >= 0)
			(void)!file_write_text(dir_fd, "pids.max", "0");
		if (group->tree_fd >= 0) /* a frozen process does not die by a signal before it thaws */
			(void)!file_write_text(group->tree_fd, "cgroup.freeze", "0");
	}
	while (signal_group(group, SIGKILL) > 0) {
		if (clock_monotonic_usec() >= deadline_usec)
			return fault_set(fault, ABOX_E_TIMEOUT, 0, "cgroup",
				"processes of the group '%s' do not end", group->name);
		pause_usec(500);
	}
	return 0;
}

static void remove_children(int dir_fd, void *argument)
{
	DIR *dir;
	struct dirent *entry;
	int copy = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	dir = copy >= 0 ? fdopendir(copy) : NULL;
	if (!dir) {
		fd_close(copy);
		return;
	}
	while ((entry = readdir(dir)))
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
			unlinkat(dir_fd, entry->d_name, AT_REMOVEDIR);
	closedir(dir);
}

/* 0 when the directory is gone. */
static int remove_one(int parent_fd, int dir_fd, const char *name)
{
	if (parent_fd < 0)
		return 0;
	if (unlinkat(parent_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	if (errno == EBUSY || errno == ENOTEMPTY) {
		for_each_group(dir_fd, 0, remove_children, NULL);
		if (unlinkat(parent_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
			return 0;
	}
	return -errno;
}

static int remove_all(const struct cgroup_group *group)
{
	int first = 0, r;

	for (int i = 0; i < CGROUP_N_CONTROLLERS; i++) {
		r = remove_one(group->parent_fds[i], group->dir_fds[i], group->name);
		first = first ? first : r;
	}
	r = remove_one(group->tree_parent_fd, group->tree_fd, group->name);
	return first ? first : r;
}

int cgroup_remove(struct cgroup_group *group, uint64_t timeout_usec, struct fault *fault)
{
	uint64_t deadline_usec = clock_deadline(clock_monotonic_usec(), timeout_usec);
	long delay_usec = 200;
	int r;

	/* What has ended already needs no killing: the usual case, one rmdir each. */
	r = remove_all(group);
	if (r < 0) {
		(void)cgroup_kill(group, timeout_usec, NULL);	/* what it could not do shows below */
		while ((r = remove_all(group)) < 0 && clock_monotonic_usec() < deadline_usec) {
			pause_usec(delay_usec);
			delay_usec = MIN(delay_usec * 2, 20000);
		}
	}
	if (r < 0)
		fault_set(fault, ABOX_E_LEFT_BEHIND, -r, "cgroup",
			"the control group '%s' could not be removed", group->name);
	cgroup_close(group);
	return r < 0 ? ABOX_E_LEFT_BEHIND : 0;
}
