/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Groups: made, limited, joined, removed. What is promised: a limit that is asked for is set or the call
 * fails; only processes that join themselves are in a group, nobody else's is ever moved; removing is bounded
 * in time and tells what it left. Where groups may be made is decided by cgroup_detect().
 */
#include "kernel/cgroup.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <agentbox/error.h>

#include "base/clock.h"
#include "base/fd.h"
#include "kernel/cgroup-files.h"
#include "kernel/compat.h"

static bool name_is_good(const char *name)
{
	return name[0] && strlen(name) < sizeof(((struct cgroup_group *)NULL)->name) && !strchr(name, '/') &&
		strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static int copy_fd(int fd)
{
	return fd < 0 ? fd : fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

/* The controller whose directory was taken before this one is the same (cpu and cpuacct are often mounted
 * together, in v2 all are), or -1. */
static int same_dir_before(const struct cgroup_layout *layout, int controller)
{
	for (int i = 0; i < controller; i++)
		if ((layout->controllers & CGROUP_BIT(i)) &&
			strcmp(layout->limits_dir[i], layout->limits_dir[controller]) == 0)
			return i;
	return -1;
}

static int open_directory(int parent_fd, const char *path, int *retfd)
{
	int fd = openat(parent_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return -errno;
	*retfd = fd;
	return 0;
}

/* One directory of a group: parent, directory, and the file through which processes join. With `make` it is
 * made, and it must not be there yet. */
static int open_one(const char *parent, const char *name, const char *join_file, bool make, int *retparent_fd,
	int *retdir_fd, int *retjoin_fd)
{
	_cleanup_(fd_closep) int parent_fd = -EBADF, dir_fd = -EBADF;
	int r, join_fd;

	r = open_directory(AT_FDCWD, parent, &parent_fd);
	if (r < 0)
		return r;
	if (make && mkdirat(parent_fd, name, 0755) < 0)
		return -errno;
	r = open_directory(parent_fd, name, &dir_fd);
	join_fd = r < 0 ? r : openat(dir_fd, join_file, O_WRONLY | O_CLOEXEC);
	if (r == 0 && join_fd < 0)
		r = -errno;
	if (r < 0 && make)
		unlinkat(parent_fd, name, AT_REMOVEDIR);
	if (r < 0)
		return r;
	*retparent_fd = steal_fd(parent_fd);
	*retdir_fd = steal_fd(dir_fd);
	*retjoin_fd = join_fd;
	return 0;
}

/* Switches on what the parent does not pass on. Possible only while it holds no process, which detection has
 * seen. */
static int enable_controllers(const struct cgroup_layout *layout)
{
	static const char *const names[] = {
		[CGROUP_MEMORY] = "memory", [CGROUP_PIDS] = "pids", [CGROUP_CPU] = "cpu"
	};
	_cleanup_(fd_closep) int fd = -EBADF;
	char enabled[256], text[16];
	int r;

	r = open_directory(AT_FDCWD, layout->tree_dir, &fd);
	if (r < 0)
		return r;
	r = cgroup_read_file(fd, "cgroup.subtree_control", enabled, sizeof(enabled));
	if (r < 0)
		return r;
	for (size_t i = 0; i < ELEMENTSOF(names); i++) {
		if (!(layout->controllers & CGROUP_BIT(i)) || cgroup_has_word(enabled, names[i]))
			continue;
		snprintf(text, sizeof(text), "+%s", names[i]);
		r = file_write_text(fd, "cgroup.subtree_control", text);
		if (r < 0)
			return r;
	}
	return 0;
}

static int open_limit_dirs(const struct cgroup_layout *layout, bool make, struct cgroup_group *group)
{
	for (int i = 0; i < CGROUP_N_CONTROLLERS; i++) {
		int same, r;

		if (!(layout->controllers & CGROUP_BIT(i)) || layout->limits_version != 1)
			continue;
		same = same_dir_before(layout, i);
		if (same >= 0) {
			group->dir_fds[i] = copy_fd(group->dir_fds[same]);
			if (group->dir_fds[same] >= 0 && group->dir_fds[i] < 0)
				return -errno;
			continue;
		}
		r = open_one(layout->limits_dir[i], group->name, "tasks", make, &group->parent_fds[i],
			&group->dir_fds[i], &group->join_fds[i]);
		if (r < 0 && (make || r != -ENOENT))
			return r;
	}
	return 0;
}

static int open_kill_tree(const struct cgroup_layout *layout, bool make, struct cgroup_group *group)
{
	int r;

	if (!layout->tree_dir[0])
		return 0;
	if (make && layout->limits_version == 2) {
		r = enable_controllers(layout);
		if (r < 0)
			return r;
	}
	r = open_one(layout->tree_dir, group->name, "cgroup.procs", make, &group->tree_parent_fd,
		&group->tree_fd, &group->tree_join_fd);
	if (r < 0)
		return !make && r == -ENOENT ? 0 : r;
	group->has_kill = faccessat(group->tree_fd, "cgroup.kill", F_OK, 0) == 0;
	for (int i = 0; i < CGROUP_N_CONTROLLERS && layout->limits_version == 2; i++)
		if (layout->controllers & CGROUP_BIT(i)) {
			group->dir_fds[i] = copy_fd(group->tree_fd);
			if (group->dir_fds[i] < 0)
				return -errno;
		}
	return 0;
}

/* Takes back what was made before the failure; nobody has joined yet. */
static void undo_limits(struct cgroup_group *group)
{
	for (int i = 0; i < CGROUP_N_CONTROLLERS; i++) {
		if (group->parent_fds[i] >= 0)
			unlinkat(group->parent_fds[i], group->name, AT_REMOVEDIR);
		if (group->version == 2)
			continue;	/* copies of the tree's */
		group->parent_fds[i] = fd_close(group->parent_fds[i]);
		group->dir_fds[i] = fd_close(group->dir_fds[i]);
		group->join_fds[i] = fd_close(group->join_fds[i]);
	}
}

static void undo(struct cgroup_group *group)
{
	undo_limits(group);
	if (group->tree_parent_fd >= 0)
		unlinkat(group->tree_parent_fd, group->name, AT_REMOVEDIR);
	cgroup_close(group);
}

static int cannot_make(const char *name, int r, struct fault *fault)
{
	return fault_set(fault, r == -EEXIST ? ABOX_E_EXISTS : ABOX_E_SYSTEM, -r, "cgroup",
		"cannot make the control group '%s'", name);
}

int cgroup_begin(
	const struct cgroup_layout *layout, const char *name, struct cgroup_group *ret, struct fault *fault)
{
	struct cgroup_group group = CGROUP_GROUP_INIT;
	int r;

	if (!name_is_good(name))
		return fault_set(fault, ABOX_E_INVALID, 0, "cgroup", "'%s' is no name for a group", name);
	if (layout->limits_version == 0 && !layout->tree_dir[0])
		return fault_set(
			fault, ABOX_E_UNSUPPORTED, 0, "cgroup", "no control groups: %s", layout->reason);
	strcpy(group.name, name);
	group.version = layout->limits_version;
	r = open_kill_tree(layout, true, &group);
	if (r < 0) {
		undo(&group);
		return cannot_make(name, r, fault);
	}
	*ret = group;
	return 0;
}

int cgroup_complete(const struct cgroup_layout *layout, struct cgroup_group *group, struct fault *fault)
{
	int r = open_limit_dirs(layout, true, group);

	if (r == 0)
		return 0;
	undo_limits(group);
	return cannot_make(group->name, r, fault);
}

bool cgroup_has_rest(const struct cgroup_layout *layout)
{
	return layout->limits_version == 1;
}

int cgroup_create(
	const struct cgroup_layout *layout, const char *name, struct cgroup_group *ret, struct fault *fault)
{
	struct cgroup_group group;
	int r = cgroup_begin(layout, name, &group, fault);

	if (r < 0)
		return r;
	r = cgroup_complete(layout, &group, fault);
	if (r < 0) {
		undo(&group);
		return r;
	}
	*ret = group;
	return 0;
}

int cgroup_create_child(
	const struct cgroup_group *parent, const char *name, struct cgroup_group *ret, struct fault *fault)
{
	struct cgroup_group group = CGROUP_GROUP_INIT;
	int r;

	if (!name_is_good(name))
		return fault_set(fault, ABOX_E_INVALID, 0, "cgroup", "'%s' is no name for a group", name);
	if (parent->tree_fd < 0)
		return fault_set(
			fault, ABOX_E_UNSUPPORTED, 0, "cgroup", "no cgroup2 tree for groups of commands");
	strcpy(group.name, name);
	group.tree_parent_fd = copy_fd(parent->tree_fd);
	if (group.tree_parent_fd < 0)
		return fault_set(
			fault, ABOX_E_SYSTEM, errno, "cgroup", "cannot make the control group '%s'", name);
	if (mkdirat(parent->tree_fd, name, 0755) < 0) {
		r = errno;
		cgroup_close(&group);
		return fault_set(fault, r == EEXIST ? ABOX_E_EXISTS : ABOX_E_SYSTEM, r, "cgroup",
			"cannot make the control group '%s'", name);
	}
	r = open_directory(parent->tree_fd, name, &group.tree_fd);
	group.tree_join_fd = r < 0 ? -EBADF : openat(group.tree_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);
	if (group.tree_join_fd < 0) {
		r = r < 0 ? -r : errno;
		undo(&group);
		return fault_set(
			fault, ABOX_E_SYSTEM, r, "cgroup", "cannot open the control group '%s'", name);
	}
	group.has_kill = parent->has_kill;
	*ret = group;
	return 0;
}

int cgroup_open(
	const struct cgroup_layout *layout, const char *name, struct cgroup_group *ret, struct fault *fault)
{
	struct cgroup_group group = CGROUP_GROUP_INIT;
	bool found;
	int r;

	if (!name_is_good(name))
		return fault_set(fault, ABOX_E_INVALID, 0, "cgroup", "'%s' is no name for a group", name);
	strcpy(group.name, name);
	group.version = layout->limits_version;
	r = open_limit_dirs(layout, false, &group);
	if (r == 0)
		r = open_kill_tree(layout, false, &group);
	found = group.tree_fd >= 0;
	for (int i = 0; i < CGROUP_N_CONTROLLERS; i++)
		found = found || group.dir_fds[i] >= 0;
	if (r < 0 || !found) {
		cgroup_close(&group);
		if (r == 0)
			return fault_set(
				fault, ABOX_E_NOT_FOUND, 0, "cgroup", "there is no control group '%s'", name);
		return fault_set(
			fault, ABOX_E_SYSTEM, -r, "cgroup", "cannot open the control group '%s'", name);
	}
	*ret = group;
	return 0;
}

void cgroup_close(struct cgroup_group *group)
{
	for (int i = 0; i < CGROUP_N_CONTROLLERS; i++) {
		group->parent_fds[i] = fd_close(group->parent_fds[i]);
		group->dir_fds[i] = fd_close(group->dir_fds[i]);
		group->join_fds[i] = fd_close(group->join_fds[i]);
	}
	group->tree_parent_fd = fd_close(group->tree_parent_fd);
	group->tree_fd = fd_close(group->tree_fd);
	group->tree_join_fd = fd_close(group->tree_join_fd);
}

static int write_number(int dir_fd, const char *file, uint64_t number)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
	return file_write_text(dir_fd, file, text);
}

/* v1 has one bound for memory and one for memory with swap, which may never be the smaller: so the order
 * depends on the direction. The second is missing where the kernel does not count swap, and then there is
 * none to bound. */
static int set_memory_v1(int dir_fd, uint64_t bytes)
{
	int r = write_number(dir_fd, "memory.limit_in_bytes", bytes), q;

	q = write_number(dir_fd, "memory.memsw.limit_in_bytes", bytes);
	if (q < 0 && q != -ENOENT)
		return q;
	if (r == -EINVAL)
		r = write_number(dir_fd, "memory.limit_in_bytes", bytes);
	return r;
}

static int set_memory_v2(int dir_fd, uint64_t bytes)
{
	int r = write_number(dir_fd, "memory.max", bytes);

	if (r < 0)
		return r;
	r = write_number(dir_fd, "memory.swap.max", 0);
	return r == -ENOENT ? 0 : r;
}

#define CPU_PERIOD_USEC 100000

static int set_cpu(const struct cgroup_group *group, uint64_t millis)
{
	uint64_t quota_usec = millis * (CPU_PERIOD_USEC / 1000);
	int dir_fd = group->dir_fds[CGROUP_CPU], r;
	char text[48];

	if (group->version == 2) {
		snprintf(text, sizeof(text), "%llu %d", (unsigned long long)quota_usec, CPU_PERIOD_USEC);
		return file_write_text(dir_fd, "cpu.max", text);
	}
	r = write_number(dir_fd, "cpu.cfs_period_us", CPU_PERIOD_USEC);
	return r < 0 ? r : write_number(dir_fd, "cpu.cfs_quota_us", quota_usec);
}

static int set_limit(const struct cgroup_group *group, enum cgroup_controller controller, uint64_t value,
	const char *name, struct fault *fault)
{
	int dir_fd = group->dir_fds[controller], r;

	if (value == 0)
		return 0;
	if (dir_fd < 0)	/* Security: a limit that cannot be set is never left out in silence */
		return fault_set(fault, ABOX_E_UNSUPPORTED, 0, "cgroup",
			"no %s controller to limit the group '%s' with", name, group->name);
	if (controller == CGROUP_MEMORY)
		r = group->version == 2 ? set_memory_v2(dir_fd, value) : set_memory_v1(dir_fd, value);
	else if (controller == CGROUP_PIDS)
		r = write_number(dir_fd, "pids.max", value);
	else
		r = set_cpu(group, value);
	if (r < 0)
		return fault_set(fault, r == -EBUSY ? ABOX_E_BUSY : ABOX_E_SYSTEM, -r, "cgroup",
			"cannot limit %s of the group '%s' to %llu", name, group->name,
			(unsigned long long)value);
	return 0;
}

int cgroup_set_limits(
	const struct cgroup_group *group, const struct cgroup_limits *limits, struct fault *fault)
{
	int r;

	r = set_limit(group, CGROUP_MEMORY, limits->memory_bytes, "memory", fault);
	if (r == 0)
		r = set_limit(group, CGROUP_PIDS, limits->pids, "pids", fault);
	if (r == 0)
		r = set_limit(group, CGROUP_CPU, limits->cpu_millis, "cpu", fault);
	return r;
}

int cgroup_clone_fd(const struct cgroup_group *group)
{
	return group->tree_fd;
}

int cgroup_allow_clone(const struct cgroup_group *group, uid_t uid, gid_t gid, struct fault *fault)
{
	if (group->tree_fd < 0)
		return fault_set(
			fault, ABOX_E_UNSUPPORTED, 0, "cgroup", "no cgroup2 tree to start commands in");
	if (fchownat(group->tree_fd, "cgroup.procs", uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "cgroup", "cannot hand over the group '%s'",
			group->name);
	return 0;
}

static int write_zero(int fd)
{
	ssize_t n;

	do
		n = write(fd, "0", 1);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

int cgroup_join(const struct cgroup_group *group, bool in_tree, struct fault *fault)
{
	int r = 0;

	for (int i = 0; i < CGROUP_N_CONTROLLERS && r == 0; i++)
		if (group->join_fds[i] >= 0)
			r = write_zero(group->join_fds[i]);
	if (r == 0 && !in_tree && group->tree_join_fd >= 0)
		r = write_zero(group->tree_join_fd);
	if (r < 0)
		return fault_set(
			fault, ABOX_E_SYSTEM, -r, "cgroup", "cannot join the group '%s'", group->name);
	return 0;
}

size_t cgroup_join_fds(const struct cgroup_group *group, int retfds[CGROUP_N_CONTROLLERS])
{
	size_t n = 0;

	for (int i = 0; i < CGROUP_N_CONTROLLERS; i++)
		if (group->join_fds[i] >= 0)
			retfds[n++] = group->join_fds[i];
	return n;
}

int cgroup_join_by(const int *fds, size_t n_fds, struct fault *fault)
{
	int r = 0;

	for (size_t i = 0; i < n_fds && r == 0; i++)
		r = write_zero(fds[i]);
	return r < 0 ? fault_set(fault, ABOX_E_SYSTEM, -r, "cgroup", "cannot join the group of the box") : 0;
}
