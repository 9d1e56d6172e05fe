/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * T16-4, B79: groups that somebody has made below a box's own, with processes in them, go with the box, in
 * bounded time. T5-7: a part of a processor by the kernel's own count.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/support.h"

#define MAX_GROUPS 8
#define LEVELS 2

struct groups {
	char id[64];
	char paths[MAX_GROUPS][512]; /* the box's own group in each hierarchy */
	int n;
	pid_t sleepers[MAX_GROUPS * LEVELS];
	int n_sleepers;
};

static struct groups *walking;

static int add_group(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	if (type == FTW_D && strstr(path + ftw->base, walking->id) && walking->n < MAX_GROUPS)
		snprintf(walking->paths[walking->n++], sizeof(walking->paths[0]), "%s", path);
	return 0;
}

static void find_groups(struct groups *groups, abox_sandbox *box)
{
	memset(groups, 0, sizeof(*groups));
	snprintf(groups->id, sizeof(groups->id), "%s", abox_sandbox_get_id(box));
	walking = groups;
	nftw("/sys/fs/cgroup", add_group, 32, FTW_PHYS);
	if (groups->n == 0)
		cr_skip_test("needs control groups that root may make");
}

static int write_file(const char *folder, const char *name, const char *text)
{
	char path[800];
	int fd, r;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	r = write(fd, text, strlen(text)) < 0 ? -1 : 0;
	close(fd);
	return r;
}

/* A process in the group; below the fork only calls, the answer is its membership. */
static pid_t sleeper_in(const char *folder)
{
	pid_t pid = fork();
	char text[16];

	if (pid == 0) {
		alarm(120);
		for (;;)
			pause();
	}
	snprintf(text, sizeof(text), "%d", (int)pid);
	if (pid > 0 && write_file(folder, "cgroup.procs", text) < 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		return -1;
	}
	return pid;
}

/* Two levels below each of the box's groups, a process in each. */
static void fill_groups(struct groups *groups)
{
	for (int i = 0; i < groups->n; i++) {
		char folder[700];

		snprintf(folder, sizeof(folder), "%s", groups->paths[i]);
		for (int level = 0; level < LEVELS; level++) {
			pid_t pid;

			strcat(folder, level ? "/lower" : "/upper");
			cr_assert_eq(mkdir(folder, 0755), 0, "%s: %s", folder, strerror(errno));
			pid = sleeper_in(folder);
			cr_assert_gt(pid, 0, "%s: %s", folder, strerror(errno));
			groups->sleepers[groups->n_sleepers++] = pid;
		}
	}
}

/* The control of what follows: all of it is there and lives. */
static void assert_filled(const struct groups *groups)
{
	for (int i = 0; i < groups->n; i++)
		cr_assert_eq(access(groups->paths[i], F_OK), 0, "%s", groups->paths[i]);
	for (int i = 0; i < groups->n_sleepers; i++)
		cr_assert(!pid_is_gone(groups->sleepers[i]));
}

/* Ends what is left, so that a failed test leaves nothing either; says how many had to be. */
static int clear_up(struct groups *groups)
{
	int alive = 0;

	for (int i = 0; i < groups->n; i++)
		for (int level = LEVELS; level >= 0; level--) {
			char folder[700];

			snprintf(folder, sizeof(folder), "%s%s", groups->paths[i],
				level == 2 ? "/upper/lower"
				: level    ? "/upper"
					   : "");
			write_file(folder, "cgroup.freeze", "0");
		}
	for (int i = 0; i < groups->n_sleepers; i++) {
		alive += !pid_is_gone(groups->sleepers[i]);
		kill(groups->sleepers[i], SIGKILL);
		waitpid(groups->sleepers[i], NULL, 0);
	}
	for (int i = 0; i < groups->n; i++)
		for (int level = LEVELS; level >= 0; level--) {
			char folder[700];

			snprintf(folder, sizeof(folder), "%s%s", groups->paths[i],
				level == 2 ? "/upper/lower"
				: level    ? "/upper"
					   : "");
			rmdir(folder);
		}
	return alive;
}

static void expect_removed(const struct groups *groups)
{
	for (int i = 0; i < groups->n; i++)
		cr_expect(access(groups->paths[i], F_OK) < 0, "%s is still there", groups->paths[i]);
}

/* T16-4, B79: stop ends the processes and removes both levels. */
Test(groups, T16_4_stop_removes_lower_groups, .timeout = 60)
{
	struct leaks *before = leaks_take();
	abox_sandbox *box;
	struct groups groups;
	char *report = NULL;
	double start;
	int r;

	needs("root");
	box = box_of("{}");
	find_groups(&groups, box);
	fill_groups(&groups);
	assert_filled(&groups);
	start = clock_seconds();
	r = abox_sandbox_stop(box, ABOX_STOP_CANCEL, &report, NULL);
	cr_expect_eq(r, 0, "%s: %s", abox_code_name(r), report ? report : "");
	cr_expect_lt(clock_seconds() - start, 20);
	abox_free(report);
	expect_removed(&groups);
	cr_expect_eq(clear_up(&groups), 0);
	abox_sandbox_unref(box);
	assert_no_leaks(before);
}

/* B79: what is frozen thaws to die. */
Test(groups, B79_stop_removes_frozen_groups, .timeout = 60)
{
	struct leaks *before = leaks_take();
	abox_sandbox *box;
	struct groups groups;
	char *report = NULL;
	int frozen = 0, r;

	needs("root");
	box = box_of("{}");
	find_groups(&groups, box);
	fill_groups(&groups);
	for (int i = 0; i < groups.n; i++) {
		char folder[700];

		snprintf(folder, sizeof(folder), "%s/upper/lower", groups.paths[i]);
		frozen += write_file(folder, "cgroup.freeze", "1") == 0;
	}
	assert_filled(&groups);
	r = abox_sandbox_stop(box, ABOX_STOP_CANCEL, &report, NULL);
	cr_expect_eq(r, 0, "%d frozen: %s: %s", frozen, abox_code_name(r), report ? report : "");
	abox_free(report);
	expect_removed(&groups);
	cr_expect_eq(clear_up(&groups), 0);
	abox_sandbox_unref(box);
	assert_no_leaks(before);
	if (!frozen)
		cr_skip_test("needs cgroup2 to freeze with");
}

/* A process of this name in the group; 0: there is none. */
static pid_t member_called(const char *folder, const char *name)
{
	char path[800], comm[32];
	pid_t found = 0;
	FILE *list;
	int pid;

	snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
	list = fopen(path, "r");
	while (list && !found && fscanf(list, "%d", &pid) == 1) {
		FILE *file;

		snprintf(path, sizeof(path), "/proc/%d/comm", pid);
		file = fopen(path, "r");
		if (file && fgets(comm, sizeof(comm), file) && strncmp(comm, name, strlen(name)) == 0)
			found = pid;
		if (file)
			fclose(file);
	}
	if (list)
		fclose(list);
	return found;
}

/* What is joined last: PID 1 of the box is in each of its groups, and none of its user ids, the saved one neither, is root's. */
Test(groups, pid_1_is_in_all_of_them_and_nobody_of_the_host, .timeout = 60)
{
	struct leaks *before = leaks_take();
	unsigned int ids[4] = { 0 };
	struct groups groups;
	abox_sandbox *box;
	char path[64], line[256];
	pid_t guest;
	FILE *file;

	needs("root");
	box = box_of("{}");
	find_groups(&groups, box);
	guest = member_called(groups.paths[0], "agentbox-guest");
	cr_assert_gt(guest, 1);
	for (int i = 1; i < groups.n; i++)
		cr_expect_eq(member_called(groups.paths[i], "agentbox-guest"), guest, "%s", groups.paths[i]);
	snprintf(path, sizeof(path), "/proc/%d/status", (int)guest);
	file = fopen(path, "r");
	cr_assert_not_null(file);
	while (fgets(line, sizeof(line), file) && sscanf(line, "Uid: %u %u %u %u", &ids[0], &ids[1], &ids[2], &ids[3]) != 4)
		;
	fclose(file);
	for (int i = 0; i < 4; i++)
		cr_expect(ids[i] != 0 && ids[i] == ids[0], "%u", ids[i]);
	cr_expect_eq(abox_sandbox_stop(box, ABOX_STOP_CANCEL, NULL, NULL), 0);
	abox_sandbox_unref(box);
	assert_no_leaks(before);
}

static bool pid_gone(void *pid)
{
	return pid_is_gone(*(pid_t *)pid);
}

/* B79: a keeper that was killed leaves them to gc, which has the same bound. */
Test(groups, B79_gc_removes_lower_groups, .timeout = 90)
{
	struct leaks *before = leaks_take();
	abox_sandbox *box;
	struct groups groups;
	char *report = NULL;
	pid_t keeper;
	double start;
	int r;

	needs("root");
	box = box_of("{}");
	find_groups(&groups, box);
	fill_groups(&groups);
	assert_filled(&groups);
	keeper = keeper_pid(groups.id);
	cr_assert_gt(keeper, 1);
	cr_assert_eq(kill(keeper, SIGKILL), 0);
	cr_assert(wait_until(pid_gone, &keeper, 10000));
	start = clock_seconds();
	r = abox_sandbox_gc(&report, NULL);
	cr_expect_eq(r, 0, "%s: %s", abox_code_name(r), report ? report : "");
	cr_expect_lt(clock_seconds() - start, 30);
	abox_free(report);
	expect_removed(&groups);
	cr_expect_eq(clear_up(&groups), 0);
	abox_sandbox_unref(box);
	cr_assert_geq(abox_sandbox_gc(NULL, NULL), 0);
	assert_no_leaks(before);
}

/* -- T5-7 -- */

/* A number that follows a name in a file of one of the groups; with no name, the file's first. -1: there is none. */
static long long number_in(const struct groups *groups, const char *file, const char *name)
{
	for (int i = 0; i < groups->n; i++) {
		char path[700], line[256];
		long long number = -1;
		FILE *stream;

		snprintf(path, sizeof(path), "%s/%s", groups->paths[i], file);
		stream = fopen(path, "r");
		while (stream && number < 0 && fgets(line, sizeof(line), stream)) {
			size_t len = name ? strlen(name) : 0;

			if (!name || (strncmp(line, name, len) == 0 && line[len] == ' '))
				number = strtoll(line + (name ? len + 1 : 0), NULL, 10);
		}
		if (stream)
			fclose(stream);
		if (number >= 0)
			return number;
	}
	return -1;
}

/* Microseconds of processor time of the box so far. */
static long long used_usec(const struct groups *groups)
{
	long long used = number_in(groups, "cpu.stat", "usage_usec");

	return used >= 0 ? used : number_in(groups, "cpuacct.usage", NULL) / 1000;
}

/*
 * T5-7: four that spin get a tenth of a processor, not less and not more. How much others leave them on a busy host says
 * nothing, the kernel's counters do: in each period in which the box was held back it had used up its share, but for what
 * the other processor had been handed out of it, and in no period could it use more.
 */
Test(groups, T5_7_a_tenth_of_a_processor_by_the_counters, .timeout = 180)
{
	abox_sandbox *box = NULL;
	struct groups groups;
	long long periods = 0, throttled = 0, used = 0, share, period;
	double end;

	needs("root");
	box = box_of("{\"version\": 1, \"limits\": {\"cpus\": 0.1, \"wall\": \"5m\"}}");
	find_groups(&groups, box);
	if (number_in(&groups, "cpu.stat", "nr_periods") < 0)
		cr_skip_test("needs a control group that limits processors");
	abox_command_unref(start_words(box, PROBE_IN_BOX, "spin", "4"));
	end = clock_seconds() + 120;
	while (throttled < 10 && clock_seconds() < end) {
		pause_msec(100);
		throttled = number_in(&groups, "cpu.stat", "nr_throttled");
	}
	throttled = number_in(&groups, "cpu.stat", "nr_throttled");
	used = used_usec(&groups);
	periods = number_in(&groups, "cpu.stat", "nr_periods");
	share = number_in(&groups, "cpu.cfs_quota_us", NULL);
	period = number_in(&groups, "cpu.cfs_period_us", NULL);
	if (share < 0) {
		share = number_in(&groups, "cpu.max", NULL);
		period = 100000;
	}
	cr_log_info("%lld periods, held back in %lld, %lld us used, %lld of %lld", periods, throttled, used, share, period);
	cr_expect_eq(share * 10, period, "%lld of %lld", share, period);
	cr_expect_geq(throttled, 10, "nothing was ever held back");
	cr_expect_geq(used, throttled * share / 2);
	cr_expect_leq(used, (periods + 2) * share * 12 / 10);
	stop_box(box);
}
