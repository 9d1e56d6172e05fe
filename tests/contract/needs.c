/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a row may need. What is not there is named together with what would bring it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner.h"

static bool in_path(const char *program)
{
	const char *path = getenv("PATH");
	char *copy = strdup(path ? path : "/usr/bin:/bin"), *at = copy, *folder;
	char file[4096];
	bool found = false;

	while (!found && (folder = strsep(&at, ":"))) {
		snprintf(file, sizeof(file), "%s/%s", folder, program);
		/* In a box only the system's own folders are seen. */
		found = !strncmp(folder, "/usr/", 5) ? access(file, X_OK) == 0 : !strcmp(folder, "/bin") && access(file, X_OK) == 0;
	}
	free(copy);
	return found;
}

static bool file_has(const char *path, const char *text)
{
	size_t len;
	char *data = read_whole_file(path, &len);
	FILE *file;
	char line[4096];
	bool found = false;

	/* Files of /proc have no size. */
	free(data);
	file = fopen(path, "re");
	while (file && !found && fgets(line, sizeof(line), file))
		found = strstr(line, text) != NULL;
	if (file)
		fclose(file);
	return found;
}

static bool has_root(void) { return geteuid() == 0; }
static bool has_overlay(void) { return file_has("/proc/filesystems", "overlay"); }
static bool has_landlock(void) { return file_has("/sys/kernel/security/lsm", "landlock") || access("/proc/self/status", R_OK) == 0; }
static bool has_memory_cgroup(void)
{
	return geteuid() == 0 && (access("/sys/fs/cgroup/memory/tasks", W_OK) == 0
				  || file_has("/sys/fs/cgroup/cgroup.subtree_control", "memory"));
}

static const struct {
	const char *name;
	bool (*test)(void);
	const char *remedy;
} conditions[] = {
	{ "root", has_root, "run as root" },
	{ "overlay", has_overlay, "a kernel with overlayfs" },
	{ "landlock", has_landlock, "a kernel with Landlock" },
	{ "memory-cgroup", has_memory_cgroup, "root and a memory controller" },
};

static const struct {
	const char *program;
	const char *remedy;
} programs[] = {
	{ "python3", "apt-get install python3" }, { "node", "apt-get install nodejs" }, { "java", "apt-get install default-jre-headless" },
	{ "git", "apt-get install git" }, { "gcc", "apt-get install gcc" }, { "make", "apt-get install make" },
	{ "chromium", "apt-get install chromium" }, { "zsh", "apt-get install zsh" }, { "bash", "apt-get install bash" },
	{ "strace", "apt-get install strace" }, { "ssh", "apt-get install openssh-client" }, { "cargo", "apt-get install cargo" },
	{ "perl", "apt-get install perl" }, { "curl", "apt-get install curl" }, { "setpriv", "apt-get install util-linux" },
};

const char *needs_missing(const char *what)
{
	for (size_t i = 0; i < sizeof(conditions) / sizeof(conditions[0]); i++)
		if (!strcmp(what, conditions[i].name))
			return conditions[i].test() ? NULL : conditions[i].remedy;
	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
		if (!strcmp(what, programs[i].program))
			return in_path(what) ? NULL : programs[i].remedy;
	return "nobody knows what this is: see needs.c";
}
