/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Leaks: lists of everything that a box can leave on a host, taken before and after. Processes count when they are in
 * another pid namespace than ours or carry our helpers' names: those are boxes.
 */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support.h"

struct leaks {
	char **lines;
	size_t n;
};

static void add(struct leaks *leaks, const char *kind, const char *what)
{
	char **grown = reallocarray(leaks->lines, leaks->n + 1, sizeof(*grown));

	if (!grown || asprintf(&grown[leaks->n], "%s %s", kind, what) < 0)
		abort();
	leaks->lines = grown;
	leaks->n++;
}

static void add_lines(struct leaks *leaks, const char *kind, const char *path, const char *with, unsigned column)
{
	FILE *file = fopen(path, "re");
	char line[8192];

	while (file && fgets(line, sizeof(line), file)) {
		char *at = line;

		line[strcspn(line, "\n")] = 0;
		if (with && !strstr(line, with))
			continue;
		for (unsigned i = 0; i < column && at; i++) {
			at = strchr(at, ' ');
			at = at ? at + 1 : NULL;
		}
		if (at)
			add(leaks, kind, at);
	}
	if (file)
		fclose(file);
}

static void add_folder(struct leaks *leaks, const char *kind, const char *path, const char *with)
{
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		char full[4096];

		if (entry->d_name[0] == '.' || (with && !strstr(entry->d_name, with)))
			continue;
		snprintf(full, sizeof(full), "%s/%s", path, entry->d_name);
		add(leaks, kind, full);
	}
	if (dir)
		closedir(dir);
}

static struct leaks *walking;

static int add_group(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)ftw;
	if (type == FTW_D && strstr(path, "agentbox"))
		add(walking, "control group", path);
	return 0;
}

/* Somebody else's boxes on a machine that is shared are told apart by the folder that their keeper holds. */
static bool is_foreign(const char *pid)
{
	const char *home = getenv("ABOX_HOME");
	char path[128], target[4096];
	struct dirent *entry;
	bool other = false, ours = false;
	DIR *dir;

	if (!home || !getenv("ABOX_TEST_SHARED"))
		return false;
	snprintf(path, sizeof(path), "/proc/%.16s/fd", pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		ssize_t n = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);

		if (n <= 0)
			continue;
		target[n] = 0;
		ours = ours || !strncmp(target, home, strlen(home));
		other = other || strstr(target, "/boxes/");
	}
	if (dir)
		closedir(dir);
	return !ours || other;
}

static void add_processes(struct leaks *leaks)
{
	char own[64], path[64], ns[64], comm[64], what[160];
	struct dirent *entry;
	DIR *dir = opendir("/proc");
	ssize_t n = readlink("/proc/self/ns/pid", own, sizeof(own) - 1);

	own[n < 0 ? 0 : n] = 0;
	while (dir && (entry = readdir(dir))) {
		FILE *file;

		if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%.16s/ns/pid", entry->d_name);
		n = readlink(path, ns, sizeof(ns) - 1);
		ns[n < 0 ? 0 : n] = 0;
		snprintf(path, sizeof(path), "/proc/%.16s/comm", entry->d_name);
		comm[0] = 0;
		file = fopen(path, "re");
		if (file) {
			if (fgets(comm, sizeof(comm), file))
				comm[strcspn(comm, "\n")] = 0;
			fclose(file);
		}
		if (!strstr(comm, "agentbox") && (n < 0 || !strcmp(ns, own)))
			continue;
		/* The command itself and the tests are no boxes. */
		if (n >= 0 && !strcmp(ns, own) && (!strcmp(comm, "agentbox") || strstr(comm, "test")))
			continue;
		if (pid_is_gone(atoi(entry->d_name)) || is_foreign(entry->d_name))
			continue;
		snprintf(what, sizeof(what), "%.16s (%s)", entry->d_name, comm);
		add(leaks, "process", what);
	}
	if (dir)
		closedir(dir);
}

static struct leaks *take(void)
{
	struct leaks *leaks = calloc(1, sizeof(*leaks));
	const char *home = getenv("ABOX_HOME"), *runtime = getenv("XDG_RUNTIME_DIR");
	char path[4096];

	if (!leaks)
		abort();
	add_lines(leaks, "mount", "/proc/self/mountinfo", NULL, 3);
	add_lines(leaks, "socket", "/proc/net/unix", "agentbox", 7);
	add_lines(leaks, "keyring", "/proc/key-users", NULL, 0);
	if (!getenv("ABOX_TEST_SHARED")) {
		walking = leaks;
		nftw("/sys/fs/cgroup", add_group, 32, FTW_PHYS);
		add_folder(leaks, "state", "/run/agentbox/boxes", NULL);
	}
	if (home) {
		snprintf(path, sizeof(path), "%s/boxes", home);
		add_folder(leaks, "state", path, NULL);
		snprintf(path, sizeof(path), "%s/run/boxes", home);
		add_folder(leaks, "state", path, NULL);
	}
	if (runtime) {
		snprintf(path, sizeof(path), "%s/agentbox/boxes", runtime);
		add_folder(leaks, "state", path, NULL);
	}
	add_folder(leaks, "file", "/dev/shm", "agentbox");
	add_processes(leaks);
	return leaks;
}

struct leaks *leaks_take(void)
{
	return take();
}

static void release(struct leaks *leaks)
{
	for (size_t i = 0; i < leaks->n; i++)
		free(leaks->lines[i]);
	free(leaks->lines);
	free(leaks);
}

/* What is in after and not in before, one a line; keys are counted by the kernel a little late and never leak alone. */
static char *difference(const struct leaks *before, const struct leaks *after)
{
	char *text = NULL;

	for (size_t i = 0; i < after->n; i++) {
		bool known = !strncmp(after->lines[i], "keyring", 7);
		char *grown;

		for (size_t j = 0; j < before->n && !known; j++)
			known = !strcmp(after->lines[i], before->lines[j]);
		if (known)
			continue;
		if (asprintf(&grown, "%s%s%s", text ? text : "", text ? "; " : "", after->lines[i]) < 0)
			abort();
		free(text);
		text = grown;
	}
	return text;
}

char *leaks_check(struct leaks *before)
{
	char *text = NULL;

	for (int round = 0; round < 40; round++) {
		struct leaks *after = take();

		free(text);
		text = difference(before, after);
		release(after);
		if (!text)
			break;
		pause_msec(100);
	}
	release(before);
	return text;
}
