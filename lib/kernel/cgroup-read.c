/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a group says about itself: use, peaks, and the counters that are evidence for how a command ended.
 * What is promised: a figure comes with its `has_` flag or not at all. memory.failcnt is not read: page cache
 * alone raises it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "kernel/cgroup-files.h"
#include "kernel/cgroup.h"
#include "kernel/compat.h"

int cgroup_read_file(int dir_fd, const char *file, char *ret, size_t size)
{
	_cleanup_(fd_closep) int fd = openat(dir_fd, file, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = fd_read_all(fd, ret, size - 1);
	if (n < 0)
		return (int)n;
	ret[n] = 0;
	return 0;
}

int cgroup_read_number(int dir_fd, const char *file, uint64_t *ret)
{
	char text[32], *end;
	unsigned long long number;
	int r;

	r = cgroup_read_file(dir_fd, file, text, sizeof(text));
	if (r < 0)
		return r;
	number = strtoull(text, &end, 10);
	if (end == text)
		return -EINVAL;
	*ret = number;
	return 0;
}

int cgroup_read_key(int dir_fd, const char *file, const char *key, uint64_t *ret)
{
	size_t len = strlen(key);
	char text[1024];
	int r;

	r = cgroup_read_file(dir_fd, file, text, sizeof(text));
	if (r < 0)
		return r;
	for (char *line = text; *line; line += strspn(line, "\n")) {
		if (strncmp(line, key, len) == 0 && line[len] == ' ') {
			*ret = strtoull(line + len + 1, NULL, 10);
			return 0;
		}
		line += strcspn(line, "\n");
	}
	return -ENODATA;
}

bool cgroup_has_word(const char *text, const char *word)
{
	size_t len = strlen(word);

	while (*text) {
		size_t n;

		text += strspn(text, " \n");
		n = strcspn(text, " \n");
		if (n == len && memcmp(text, word, len) == 0)
			return true;
		text += n;
	}
	return false;
}

static int read_memory(const struct cgroup_group *group, struct cgroup_stats *stats)
{
	bool v2 = group->version == 2;
	int fd = group->dir_fds[CGROUP_MEMORY], r;

	if (fd < 0)
		return 0;
	r = cgroup_read_key(fd, v2 ? "memory.events" : "memory.oom_control", "oom_kill", &stats->n_oom_kills);
	if (r == 0)
		r = cgroup_read_number(
			fd, v2 ? "memory.current" : "memory.usage_in_bytes", &stats->memory_bytes);
	if (r < 0)
		return r;
	stats->has_memory = 1;
	/* memory.peak came with Linux 5.19; before, the present use is the best that is known. */
	r = cgroup_read_number(
		fd, v2 ? "memory.peak" : "memory.max_usage_in_bytes", &stats->memory_peak_bytes);
	if (r < 0)
		stats->memory_peak_bytes = stats->memory_bytes;
	return 0;
}

static int read_pids(const struct cgroup_group *group, struct cgroup_stats *stats)
{
	int fd = group->dir_fds[CGROUP_PIDS], r;

	if (fd < 0)
		return 0;
	r = cgroup_read_number(fd, "pids.current", &stats->n_pids);
	if (r == 0)
		r = cgroup_read_key(fd, "pids.events", "max", &stats->n_pids_denied);
	stats->has_pids = r == 0;
	return r;
}

static int read_cpu(const struct cgroup_group *group, struct cgroup_stats *stats)
{
	uint64_t nsec;
	int r;

	if (group->dir_fds[CGROUP_CPUACCT] >= 0 && group->version == 1) {
		r = cgroup_read_number(group->dir_fds[CGROUP_CPUACCT], "cpuacct.usage", &nsec);
		if (r < 0)
			return r;
		stats->cpu_usec = nsec / NSEC_PER_USEC;
		stats->has_cpu = 1;
		return 0;
	}
	if (group->tree_fd < 0)
		return 0;
	/* Every v2 group counts its time, with the controller or without. */
	r = cgroup_read_key(group->tree_fd, "cpu.stat", "usage_usec", &stats->cpu_usec);
	stats->has_cpu = r == 0;
	return r == -ENOENT ? 0 : r;
}

int cgroup_read(const struct cgroup_group *group, struct cgroup_stats *ret)
{
	struct cgroup_stats stats = { 0 };
	int r;

	r = read_memory(group, &stats);
	if (r == 0)
		r = read_pids(group, &stats);
	if (r == 0)
		r = read_cpu(group, &stats);
	if (r < 0)
		return r;
	*ret = stats;
	return 0;
}

int cgroup_read_evidence(const struct cgroup_group *group, struct cgroup_stats *ret)
{
	int memory_fd = group->dir_fds[CGROUP_MEMORY], pids_fd = group->dir_fds[CGROUP_PIDS], r = 0;
	struct cgroup_stats stats = { 0 };

	if (memory_fd >= 0) {
		r = cgroup_read_key(memory_fd, group->version == 2 ? "memory.events" : "memory.oom_control", "oom_kill",
			&stats.n_oom_kills);
		stats.has_memory = r == 0;
	}
	if (r == 0 && pids_fd >= 0) {
		r = cgroup_read_key(pids_fd, "pids.events", "max", &stats.n_pids_denied);
		stats.has_pids = r == 0;
	}
	if (r == 0)
		*ret = stats;
	return r;
}
