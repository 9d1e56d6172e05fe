/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where this process may make groups. What is promised: nothing is changed while looking, the host's own
 * process is never asked to move, and when something is not possible the reason names it. Library code.
 *
 * v1: below our own group of each controller, if we may write there. v2: a group with processes in it cannot
 * pass controllers on (the root can), so we climb from our own group to the nearest that holds none. Killing
 * and freezing need no controllers: for them our own v2 group is good enough.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/fd.h"
#include "base/strings.h"
#include "kernel/cgroup-files.h"
#include "kernel/cgroup.h"
#include "kernel/compat.h"

#define MAX_TEXT (1 << 20)
#define MAX_HIERARCHIES 32

struct hierarchy {
	char mount[512];	/* where it is mounted */
	char root[512];		/* which part of it */
	char options[256];	/* v1: the controllers are among them */
	bool v2;
};

struct hierarchies {
	struct hierarchy list[MAX_HIERARCHIES];
	size_t n;
	char *own;	/* /proc/self/cgroup */
};

static void clear(struct hierarchies *hierarchies)
{
	free(hierarchies->own);
}

/* mountinfo writes blanks and others as \ooo. */
static bool unescape(const char *text, size_t len, char *ret, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; i < len; i++) {
		char c = text[i];

		if (c == '\\' && i + 3 < len && text[i + 1] >= '0' && text[i + 1] <= '3') {
			c = (char)((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
			i += 3;
		}
		if (used + 1 >= size)
			return false;
		ret[used++] = c;
	}
	ret[used] = 0;
	return true;
}

/* "36 35 98:0 /root /mount options opt... - type source superoptions" */
static void parse_mount(struct hierarchies *hierarchies, char *line)
{
	struct hierarchy *hierarchy = &hierarchies->list[hierarchies->n];
	char *separator = strstr(line, " - "), *fields[6] = { NULL }, *type, *source, *options, *state;

	if (!separator || hierarchies->n == MAX_HIERARCHIES)
		return;
	type = separator + 3;
	if (strncmp(type, "cgroup ", 7) != 0 && strncmp(type, "cgroup2 ", 8) != 0)
		return;
	*separator = 0;
	state = line;
	for (size_t i = 0; i < 5; i++)
		fields[i] = strtok_r(i ? NULL : line, " ", &state);
	type = strtok_r(type, " ", &state);
	source = strtok_r(NULL, " ", &state);
	options = strtok_r(NULL, " ", &state);
	if (!fields[4] || !type || !source || !options)
		return;
	hierarchy->v2 = strcmp(type, "cgroup2") == 0;
	if (unescape(fields[3], strlen(fields[3]), hierarchy->root, sizeof(hierarchy->root)) &&
		unescape(fields[4], strlen(fields[4]), hierarchy->mount, sizeof(hierarchy->mount)) &&
		strlen(options) < sizeof(hierarchy->options)) {
		strcpy(hierarchy->options, options);
		hierarchies->n++;
	}
}

static int read_hierarchies(const char *mountinfo, const char *own, struct hierarchies *ret)
{
	_cleanup_(freep) char *mounts = NULL;
	char *line, *state;
	int r;

	r = file_read_text(AT_FDCWD, mountinfo, MAX_TEXT, &mounts, NULL);
	if (r < 0)
		return r;
	for (line = strtok_r(mounts, "\n", &state); line; line = strtok_r(NULL, "\n", &state))
		parse_mount(ret, line);
	return file_read_text(AT_FDCWD, own, MAX_TEXT, &ret->own, NULL);
}

/* True when `name` is in a list with commas. */
static bool in_list(const char *list, size_t len, const char *name)
{
	size_t want = strlen(name);

	while (len > 0) {
		size_t n = 0;

		while (n < len && list[n] != ',')
			n++;
		if (n == want && memcmp(list, name, n) == 0)
			return true;
		list += MIN(n + 1, len);
		len -= MIN(n + 1, len);
	}
	return false;
}

/* Our own group: the path of the line "7:cpu,cpuacct:/path" that has the controller ("" for v2: "0::/path").
 */
static bool own_path(const char *own, const char *controller, char *ret, size_t size)
{
	for (const char *line = own; *line;) {
		size_t len = strcspn(line, "\n");
		const char *list = memchr(line, ':', len), *path;

		path = list ? memchr(list + 1, ':', len - (size_t)(list + 1 - line)) : NULL;
		if (path) {
			size_t n = (size_t)(path - list - 1), path_len = len - (size_t)(path + 1 - line);

			if (controller[0] ? in_list(list + 1, n, controller) : n == 0 && line[0] == '0') {
				if (path_len >= size)
					return false;
				memcpy(ret, path + 1, path_len);
				ret[path_len] = 0;
				return true;
			}
		}
		line += len + (line[len] == '\n');
	}
	return false;
}

/* Where our own group can be seen: mount point and path, less what the mount leaves out. */
static bool own_dir(const struct hierarchy *hierarchy, const char *path, char *ret, size_t size)
{
	size_t root_len = strcmp(hierarchy->root, "/") == 0 ? 0 : strlen(hierarchy->root);
	int n;

	if (strncmp(path, "/..", 3) == 0)
		return false;	/* above the root of our cgroup namespace */
	if (root_len > 0 && strncmp(path, hierarchy->root, root_len) == 0 &&
		(path[root_len] == '/' || path[root_len] == 0))
		path += root_len;
	else if (root_len > 0 && strcmp(path, "/") != 0)
		return false;
	if (strcmp(path, "/") == 0)
		path = "";
	n = snprintf(ret, size, "%s%s", hierarchy->mount, path);
	return n > 0 && (size_t)n < size;
}

static bool may_write(const char *dir, const char *file)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s%s%s", dir, file[0] ? "/" : "", file);

	return n > 0 && (size_t)n < sizeof(path) && faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0;
}

static const char *const v1_names[CGROUP_N_CONTROLLERS] = { "memory", "pids", "cpu", "cpuacct" };

static void detect_v1(const struct hierarchies *hierarchies, struct cgroup_layout *layout)
{
	for (size_t i = 0; i < hierarchies->n; i++) {
		const struct hierarchy *hierarchy = &hierarchies->list[i];

		for (int c = 0; c < CGROUP_N_CONTROLLERS && !hierarchy->v2; c++) {
			char path[512], dir[512];

			if (!in_list(hierarchy->options, strlen(hierarchy->options), v1_names[c]))
				continue;
			if (!own_path(hierarchies->own, v1_names[c], path, sizeof(path)) ||
				!own_dir(hierarchy, path, dir, sizeof(dir)))
				continue;
			if (!may_write(dir, "") || !may_write(dir, "tasks"))
				continue;
			layout->controllers |= CGROUP_BIT(c);
			strcpy(layout->limits_dir[c], dir);
		}
	}
	if (layout->controllers)
		layout->limits_version = 1;
}

/* The controllers of a v2 group that its children could have. */
static uint32_t v2_controllers(int dir_fd)
{
	char text[512];
	uint32_t controllers = 0;

	if (cgroup_read_file(dir_fd, "cgroup.controllers", text, sizeof(text)) < 0)
		return 0;
	for (int c = CGROUP_MEMORY; c <= CGROUP_CPU; c++)
		if (cgroup_has_word(text, v1_names[c]))
			controllers |= CGROUP_BIT(c);
	return controllers;
}

static uint32_t v2_passed_on(int dir_fd)
{
	char text[512];
	uint32_t controllers = 0;

	if (cgroup_read_file(dir_fd, "cgroup.subtree_control", text, sizeof(text)) < 0)
		return 0;
	for (int c = CGROUP_MEMORY; c <= CGROUP_CPU; c++)
		if (cgroup_has_word(text, v1_names[c]))
			controllers |= CGROUP_BIT(c);
	return controllers;
}

/* The root of the whole hierarchy has no cgroup.type and may hold processes and pass controllers on. */
static bool can_have_children(int dir_fd, bool *retroot)
{
	char text[64], first[2];

	*retroot = faccessat(dir_fd, "cgroup.type", F_OK, 0) < 0;
	if (*retroot)
		return true;
	if (cgroup_read_file(dir_fd, "cgroup.type", text, sizeof(text)) < 0 || strcmp(text, "domain\n") != 0)
		return false;
	return cgroup_read_file(dir_fd, "cgroup.procs", first, sizeof(first)) == 0 && first[0] == 0;
}

/* Climbs from our own group. What can be enabled at the nearest group without processes is taken. */
static void detect_v2_limits(const char *mount, const char *own, struct cgroup_layout *layout)
{
	char dir[512];
	bool has_root;

	strcpy(dir, own);
	for (;;) {
		_cleanup_(fd_closep) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		uint32_t controllers;

		/* Security: a process may only be born into a group when we may write to the first common
		 * ancestor too. */
		if (fd < 0 || !may_write(dir, "") || !may_write(dir, "cgroup.procs"))
			return;
		controllers = can_have_children(fd, &has_root) ? v2_controllers(fd) : 0;
		if (!may_write(dir, "cgroup.subtree_control"))
			controllers &= v2_passed_on(fd);
		if (controllers & (CGROUP_BIT(CGROUP_MEMORY) | CGROUP_BIT(CGROUP_PIDS))) {
			layout->limits_version = 2;
			layout->controllers = controllers;
			for (int c = 0; c < CGROUP_N_CONTROLLERS; c++)
				snprintf(layout->limits_dir[c], sizeof(layout->limits_dir[c]), "%s",
					controllers & CGROUP_BIT(c) ? dir : "");
			strcpy(layout->tree_dir, dir);
			return;
		}
		if (strlen(dir) <= strlen(mount) || !strrchr(dir, '/'))
			return;
		*strrchr(dir, '/') = 0;
	}
}

static bool kernel_has_kill(void)
{
	struct utsname name;
	int major = 0, minor = 0;

	if (uname(&name) < 0 || sscanf(name.release, "%d.%d", &major, &minor) != 2)
		return false;
	return major > 5 || (major == 5 && minor >= 14);
}

static void detect_v2(const struct hierarchies *hierarchies, struct cgroup_layout *layout)
{
	for (size_t i = 0; i < hierarchies->n; i++) {
		const struct hierarchy *hierarchy = &hierarchies->list[i];
		char path[512], own[512];

		if (!hierarchy->v2 || !own_path(hierarchies->own, "", path, sizeof(path)) ||
			!own_dir(hierarchy, path, own, sizeof(own)))
			continue;
		if (layout->limits_version == 0)
			detect_v2_limits(hierarchy->mount, own, layout);
		if (!layout->tree_dir[0] && may_write(own, "") && may_write(own, "cgroup.procs"))
			strcpy(layout->tree_dir, own);
		if (layout->tree_dir[0]) {
			layout->has_kill = kernel_has_kill();
			return;
		}
	}
}

/* A group of the tree counts its time as well, and each directory costs a start as much as it costs an end. */
static void drop_double(struct cgroup_layout *layout)
{
	if (layout->limits_version != 1 || !layout->tree_dir[0])
		return;
	layout->controllers &= ~CGROUP_BIT(CGROUP_CPUACCT);
	layout->limits_dir[CGROUP_CPUACCT][0] = 0;
}

static void explain(const struct hierarchies *hierarchies, struct cgroup_layout *layout)
{
	const char *reason = "", *remedy = "";

	if (layout->limits_version != 0 && layout->tree_dir[0])
		return;
	if (hierarchies->n == 0) {
		reason = "no cgroup filesystem is mounted";
		remedy = "mount cgroup2 at /sys/fs/cgroup";
	} else if (layout->limits_version != 0) {
		reason = "there is no cgroup2 tree that this process may use, so groups cannot be killed or "
			 "frozen at once";
		remedy = "mount cgroup2, at /sys/fs/cgroup/unified beside v1";
	} else if (geteuid() != 0) {
		reason = "no control group is delegated to this user with the memory and pids controllers";
		remedy = "run under: systemd-run --user --scope -p Delegate=yes, or have an administrator "
			 "delegate a group";
	} else {
		reason = "this process may not make groups with memory or pids below or above its own: they "
			 "are read-only, not passed on, or every group on the way holds processes";
		remedy = "in a container: mount /sys/fs/cgroup writable with a private cgroup namespace and "
			 "move its processes to a child group";
	}
	snprintf(layout->reason, sizeof(layout->reason), "%s", reason);
	snprintf(layout->remedy, sizeof(layout->remedy), "%s", remedy);
}

int cgroup_detect_by(const char *mountinfo, const char *own, struct cgroup_layout *ret)
{
	_cleanup_(clear) struct hierarchies hierarchies = { .n = 0 };
	int r;

	memset(ret, 0, sizeof(*ret));
	r = read_hierarchies(mountinfo, own, &hierarchies);
	if (r < 0) {
		snprintf(ret->reason, sizeof(ret->reason), "%s or %s cannot be read", mountinfo, own);
		return r == -ENOMEM ? r : 0;
	}
	detect_v1(&hierarchies, ret);
	detect_v2(&hierarchies, ret);
	drop_double(ret);
	explain(&hierarchies, ret);
	return 0;
}

int cgroup_detect(struct cgroup_layout *ret)
{
	return cgroup_detect_by("/proc/self/mountinfo", "/proc/self/cgroup", ret);
}
