/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "kernel/cgroup.h"
#include "kernel/compat.h"
#include "support/child.h"

#define SECOND USEC_PER_SEC

static struct cgroup_layout layout;
static char name[32];

/* Groups need root here or a delegation; a host without says why, and the test is skipped by that name. */
static void set_up(void)
{
	cgroup_detect(&layout);
	snprintf(name, sizeof(name), "abox-test-%d", (int)getpid());
}

/* What a failed test has left. */
static void tear_down(void)
{
	struct cgroup_group group;

	if (cgroup_open(&layout, name, &group, NULL) == 0)
		cgroup_remove(&group, 5 * SECOND, NULL);
}

TestSuite(cgroup, .init = set_up, .fini = tear_down, .timeout = 60);

#define NEEDS_GROUPS()                                                                                       \
	if (layout.limits_version == 0 || !layout.tree_dir[0])                                               \
	cr_skip_test("no control groups here: %s", layout.reason)

static int make(struct child *child, struct cgroup_group *group)
{
	struct fault fault = { 0 };

	CHECK_FAULT(cgroup_create(&layout, name, group, &fault), &fault);
	return 0;
}

/* A child in the group (born into the tree, joined to the rest) that runs fn and leaves. */
static pid_t start_in(const struct cgroup_group *group, int (*fn)(void))
{
	struct sys_clone_args args = {
		.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)cgroup_clone_fd(group)
	};
	pid_t pid = (pid_t)sys_clone3(&args);

	if (pid == 0)
		_exit(cgroup_join(group, true, NULL) < 0 ? 99 : fn());
	return pid;
}

static int sleep_forever(void)
{
	for (;;)
		pause();
	return 0;
}

static int end_of(pid_t pid)
{
	int status = -1;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

/* Joining and the end of a process show after a moment. */
static bool counts(const struct cgroup_group *group, uint64_t n)
{
	struct cgroup_stats stats = { 0 };

	for (int i = 0; i < 2000; i++) {
		if (cgroup_read(group, &stats) == 0 && stats.n_pids == n)
			return true;
		usleep(1000);
	}
	return false;
}

static int check_life(struct child *child)
{
	struct cgroup_group group, again, sub;
	struct fault fault = { 0 };
	struct cgroup_stats stats;
	int status;
	pid_t pid;

	if (make(child, &group) != 0)
		return 1;
	CHECK(cgroup_create(&layout, name, &again, &fault) == ABOX_E_EXISTS);
	CHECK(cgroup_create(&layout, "a/b", &again, &fault) == ABOX_E_INVALID);
	CHECK(cgroup_create(&layout, "..", &again, &fault) == ABOX_E_INVALID);
	CHECK(!cgroup_is_populated(&group));
	pid = start_in(&group, sleep_forever);
	CHECK(pid > 0);
	CHECK(cgroup_is_populated(&group));
	CHECK_FAULT(cgroup_create_child(&group, "c-1", &sub, &fault), &fault);
	pid_t inner = start_in(&sub, sleep_forever);
	CHECK(inner > 0);
	CHECK(cgroup_is_populated(&sub));
	CHECK_FAULT(cgroup_freeze(&sub, true, 2 * SECOND, &fault), &fault);
	/* Killing one command leaves the other; a frozen one dies too. */
	CHECK_FAULT(cgroup_kill(&sub, 2 * SECOND, &fault), &fault);
	status = end_of(inner);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	CHECK(waitpid(pid, &status, WNOHANG) == 0);
	CHECK_FAULT(cgroup_remove(&sub, 2 * SECOND, &fault), &fault);
	CHECK(cgroup_read(&group, &stats) == 0);
	CHECK(stats.has_cpu);
	/* Taken again by name, as after a crash of the keeper; removed with what is in it. */
	cgroup_close(&group);
	CHECK_FAULT(cgroup_open(&layout, name, &again, &fault), &fault);
	CHECK_FAULT(cgroup_create_child(&again, "left", &sub, &fault), &fault);
	cgroup_close(&sub);
	/* The zombie must be reaped before its group can go on some kernels: so do it beside. */
	CHECK_FAULT(cgroup_kill(&again, 2 * SECOND, &fault), &fault);
	status = end_of(pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	CHECK_FAULT(cgroup_remove(&again, 2 * SECOND, &fault), &fault);
	CHECK(cgroup_open(&layout, name, &again, &fault) == ABOX_E_NOT_FOUND);
	return 0;
}

/* Made, joined at birth, frozen, killed by command and as a whole, opened again, removed with leftovers
 * below. */
Test(cgroup, life_of_a_group)
{
	NEEDS_GROUPS();
	cr_assert_child(check_life, 0, NULL);
}

static int eat_memory(void)
{
	size_t len = 64 << 20;
	char *data = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memset(data, 1, len);
	return 0;
}

static int fork_many(void)
{
	int failed = 0;

	for (int i = 0; i < 20; i++) {
		pid_t pid = fork();

		if (pid == 0)
			for (;;)
				pause();
		failed += pid < 0;
	}
	return failed;
}

static int spin(void)
{
	uint64_t end = clock_monotonic_usec() + 600000;

	while (clock_monotonic_usec() < end)
		;
	return 0;
}

static int check_limits(struct child *child)
{
	struct cgroup_limits limits = { .memory_bytes = 16 << 20, .pids = 8, .cpu_millis = 300 };
	struct cgroup_group group;
	struct fault fault = { 0 };
	struct cgroup_stats stats;
	int status;

	if (make(child, &group) != 0)
		return 1;
	/* Positive control: without limits all three run through. */
	CHECK(end_of(start_in(&group, eat_memory)) == 0);
	CHECK_FAULT(cgroup_set_limits(&group, &limits, &fault), &fault);
	status = end_of(start_in(&group, eat_memory));
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	CHECK(cgroup_read(&group, &stats) == 0);
	CHECK(stats.has_memory && stats.n_oom_kills == 1);
	CHECK(stats.memory_peak_bytes >= 15 << 20);
	CHECK(stats.n_pids_denied == 0);
	status = end_of(start_in(&group, fork_many));
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 13);	/* itself and seven */
	CHECK(cgroup_read(&group, &stats) == 0);
	CHECK(stats.has_pids && stats.n_pids_denied >= 1 && stats.n_pids == 7);
	CHECK_FAULT(cgroup_kill(&group, 5 * SECOND, &fault), &fault);
	CHECK_FAULT(cgroup_remove(&group, 5 * SECOND, &fault), &fault);
	return 0;
}

static int check_cpu(struct child *child)
{
	struct cgroup_limits limits = { .cpu_millis = 300 };
	struct cgroup_group group;
	struct fault fault = { 0 };
	struct cgroup_stats stats;

	if (make(child, &group) != 0)
		return 1;
	CHECK_FAULT(cgroup_set_limits(&group, &limits, &fault), &fault);
	CHECK(end_of(start_in(&group, spin)) == 0);
	CHECK(cgroup_read(&group, &stats) == 0 && stats.has_cpu);
	/* 600 ms of wall at 0.3 cpus are 180 ms; generous, the machine is shared. */
	CHECK(stats.cpu_usec > 10000 && stats.cpu_usec < 400000);
	/* Raised and lowered again while it lives. */
	limits = (struct cgroup_limits){ .memory_bytes = 64 << 20 };
	CHECK_FAULT(cgroup_set_limits(&group, &limits, &fault), &fault);
	limits.memory_bytes = 32 << 20;
	CHECK_FAULT(cgroup_set_limits(&group, &limits, &fault), &fault);
	CHECK_FAULT(cgroup_remove(&group, 5 * SECOND, &fault), &fault);
	return 0;
}

/* Memory, pids and cpu are held, with the evidence for each. */
Test(cgroup, limits_hold_and_leave_evidence)
{
	NEEDS_GROUPS();
	if ((layout.controllers & 7) != 7)
		cr_skip_test("not all controllers here");
	cr_assert_child(check_limits, 0, NULL);
	cr_assert_child(check_cpu, 0, NULL);
}

static int check_missing(struct child *child)
{
	struct cgroup_limits limits = { .memory_bytes = 16 << 20 };
	struct cgroup_layout less = layout;
	struct cgroup_group group;
	struct fault fault = { 0 };

	less.controllers &= ~CGROUP_BIT(CGROUP_MEMORY);
	CHECK_FAULT(cgroup_create(&less, name, &group, &fault), &fault);
	CHECK(cgroup_set_limits(&group, &limits, &fault) == ABOX_E_UNSUPPORTED);
	CHECK_FAULT(cgroup_remove(&group, SECOND, &fault), &fault);
	less = (struct cgroup_layout){ .reason = "none" };
	CHECK(cgroup_create(&less, name, &group, &fault) == ABOX_E_UNSUPPORTED);
	return 0;
}

/* A limit without its controller is an error, not a shrug. */
Test(cgroup, missing_controller_is_an_error)
{
	NEEDS_GROUPS();
	cr_assert_child(check_missing, 0, NULL);
}

static int fork_bomb(void)
{
	signal(SIGTERM, SIG_IGN);
	for (;;) {
		if (fork() == 0)
			setsid();
		usleep(100);
	}
	return 0;
}

static int check_bomb(struct child *child)
{
	struct cgroup_limits limits = { .pids = 64 };
	struct cgroup_group group;
	struct fault fault = { 0 };
	bool without_kill = child->argument;
	pid_t pid;

	if (make(child, &group) != 0)
		return 1;
	CHECK_FAULT(cgroup_set_limits(&group, &limits, &fault), &fault);
	if (without_kill)
		group.has_kill = false;
	pid = start_in(&group, fork_bomb);
	CHECK(pid > 0);
	usleep(100000);
	CHECK_FAULT(cgroup_kill(&group, 10 * SECOND, &fault), &fault);
	CHECK(WIFSIGNALED(end_of(pid)));
	CHECK_FAULT(cgroup_remove(&group, 5 * SECOND, &fault), &fault);
	return 0;
}

/* A fork bomb ends, with cgroup.kill and without. */
Test(cgroup, kills_a_fork_bomb)
{
	NEEDS_GROUPS();
	if (!(layout.controllers & CGROUP_BIT(CGROUP_PIDS)))
		cr_skip_test("no pids controller here");
	cr_assert_child(check_bomb, 0, NULL);
	cr_assert_child(check_bomb, 0, &layout);
}

static int check_without_tree(struct child *child)
{
	struct cgroup_limits limits = { .pids = 64 };
	struct cgroup_layout less = layout;
	struct cgroup_group group, sub;
	struct fault fault = { 0 };
	int status;
	pid_t pid;

	less.tree_dir[0] = 0;
	CHECK_FAULT(cgroup_create(&less, name, &group, &fault), &fault);
	CHECK(cgroup_clone_fd(&group) < 0);
	CHECK(cgroup_create_child(&group, "c-1", &sub, &fault) == ABOX_E_UNSUPPORTED);
	CHECK(cgroup_freeze(&group, true, SECOND, &fault) == ABOX_E_UNSUPPORTED);
	CHECK_FAULT(cgroup_set_limits(&group, &limits, &fault), &fault);
	pid = fork();
	if (pid == 0)
		_exit(cgroup_join(&group, false, NULL) < 0 ? 99 : fork_bomb());
	usleep(100000);
	CHECK(cgroup_is_populated(&group));
	CHECK_FAULT(cgroup_kill(&group, 10 * SECOND, &fault), &fault);
	status = end_of(pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	CHECK_FAULT(cgroup_remove(&group, 5 * SECOND, &fault), &fault);
	return 0;
}

/* v1 alone: no freezing and no groups for commands, said so; a fork bomb still ends. */
Test(cgroup, works_without_a_v2_tree)
{
	NEEDS_GROUPS();
	if (layout.limits_version != 1 || !(layout.controllers & CGROUP_BIT(CGROUP_PIDS)))
		cr_skip_test("no v1 groups here");
	cr_assert_child(check_without_tree, 0, NULL);
}

static int check_leftover(struct child *child)
{
	struct cgroup_group group;
	struct fault fault = { 0 };
	uint64_t before = clock_monotonic_usec();
	pid_t pid;

	if (make(child, &group) != 0)
		return 1;
	/* A process that cannot be killed is not to be had; a group object without its directories cannot see
	 * one. */
	pid = start_in(&group, sleep_forever);
	CHECK(pid > 0);
	CHECK(!(layout.controllers & CGROUP_BIT(CGROUP_PIDS)) || counts(&group, 1));
	usleep(100000);	/* pids is not the last that it joins */
	group.has_kill = false;
	for (int i = 0; i < CGROUP_N_CONTROLLERS; i++)
		group.dir_fds[i] = fd_close(group.dir_fds[i]);
	group.tree_fd = fd_close(group.tree_fd);
	CHECK(cgroup_remove(&group, 200 * USEC_PER_MSEC, &fault) == ABOX_E_LEFT_BEHIND);
	CHECK(clock_monotonic_usec() - before < 5 * SECOND);
	CHECK(strstr(fault.message, name) != NULL);
	CHECK_FAULT(cgroup_open(&layout, name, &group, &fault), &fault);
	CHECK_FAULT(cgroup_kill(&group, 2 * SECOND, &fault), &fault);
	end_of(pid);
	CHECK_FAULT(cgroup_remove(&group, 2 * SECOND, &fault), &fault);
	return 0;
}

/* Removing is bounded in time and names what stays. */
Test(cgroup, removal_is_bounded_and_tells_what_stays)
{
	NEEDS_GROUPS();
	cr_assert_child(check_leftover, 0, NULL);
}

static int check_handed_over(struct child *child)
{
	struct cgroup_group group, sub;
	struct fault fault = { 0 };
	int status;
	pid_t pid;

	if (make(child, &group) != 0)
		return 1;
	CHECK_FAULT(cgroup_create_child(&group, "c-1", &sub, &fault), &fault);
	CHECK_FAULT(cgroup_allow_clone(&group, 12345, 12345, &fault), &fault);
	CHECK_FAULT(cgroup_allow_clone(&sub, 12345, 12345, &fault), &fault);
	/* The guest: in the group, with other ids; it starts a command in a group below. */
	pid = fork();
	if (pid == 0) {
		pid_t inner;

		if (setresgid(12345, 12345, 12345) < 0 || setresuid(12345, 12345, 12345) < 0)
			_exit(1);
		/* The descriptors were opened by root and work for the new ids. */
		if (cgroup_join(&group, false, NULL) < 0)
			_exit(2);
		inner = start_in(&sub, getppid);
		if (inner < 0)
			_exit(3);
		_exit(end_of(inner) == -1 ? 4 : 0);
	}
	status = end_of(pid);
	CHECK(WIFEXITED(status));
	CHECK(WEXITSTATUS(status) == 0);
	CHECK_FAULT(cgroup_remove(&sub, SECOND, &fault), &fault);
	CHECK_FAULT(cgroup_remove(&group, SECOND, &fault), &fault);
	return 0;
}

/* Joining works after a change of ids, and a handed-over group lets its own processes start commands below.
 */
Test(cgroup, guest_of_other_ids_joins_and_starts_commands)
{
	NEEDS_GROUPS();
	if (geteuid() != 0)
		cr_skip_test("needs root");
	cr_assert_child(check_handed_over, 0, NULL);
}

/* ------------------------------------------------------------------------------------------------------------
 * Hosts that are not this one: a folder with the files that detection reads. */

static char host[] = "/tmp/abox-host-XXXXXX";

static void put(const char *path, const char *text)
{
	char full[256];
	int fd;

	snprintf(full, sizeof(full), "%s/%s", host, path);
	for (char *slash = full + strlen(host) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = 0;
		mkdir(full, 0755);
		*slash = '/';
	}
	fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	cr_assert_geq(fd, 0);
	cr_assert_eq(fd_write_all(fd, text, strlen(text)), 0);
	close(fd);
}

static void put_group(
	const char *path, const char *controllers, const char *passed_on, const char *procs, bool root)
{
	char file[256];

	snprintf(file, sizeof(file), "cg%s/cgroup.controllers", path);
	put(file, controllers);
	snprintf(file, sizeof(file), "cg%s/cgroup.subtree_control", path);
	put(file, passed_on);
	snprintf(file, sizeof(file), "cg%s/cgroup.procs", path);
	put(file, procs);
	snprintf(file, sizeof(file), "cg%s/cgroup.type", path);
	if (!root)
		put(file, "domain\n");
}

static void look(const char *root, const char *own, struct cgroup_layout *ret)
{
	char text[512], mountinfo[64], self[64];

	snprintf(text, sizeof(text),
		"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:26 %s %s/cg rw,nosuid shared:9 - cgroup2 "
		"cgroup2 rw,nsdelegate\n",
		root, host);
	put("mountinfo", text);
	put("own", own);
	snprintf(mountinfo, sizeof(mountinfo), "%s/mountinfo", host);
	snprintf(self, sizeof(self), "%s/own", host);
	cgroup_detect_by(mountinfo, self, ret);
}

static bool ends_with(const char *text, const char *end)
{
	return strlen(text) >= strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0;
}

static void clear_host(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", host);
	cr_assert_eq(system(command), 0);
}

/* v2 with systemd: the scope holds us, the slice above holds nobody and passes the controllers on. */
Test(cgroup_detect, climbs_to_a_group_without_processes)
{
	struct cgroup_layout found;

	cr_assert_not_null(mkdtemp(host));
	put_group("", "cpu io memory pids\n", "cpu io memory pids\n", "1\n", true);
	put_group("/user.slice", "cpu memory pids\n", "cpu memory pids\n", "", false);
	put_group("/user.slice/app.slice", "cpu memory pids\n", "memory pids\n", "", false);
	put_group("/user.slice/app.slice/my.scope", "memory pids\n", "", "77\n", false);
	look("/", "0::/user.slice/app.slice/my.scope\n", &found);
	cr_assert_eq(found.limits_version, 2);
	cr_assert(ends_with(found.tree_dir, "/cg/user.slice/app.slice"), "%s", found.tree_dir);
	cr_assert_eq(found.controllers,
		CGROUP_BIT(CGROUP_MEMORY) | CGROUP_BIT(CGROUP_PIDS) | CGROUP_BIT(CGROUP_CPU));
	cr_assert(ends_with(found.limits_dir[CGROUP_MEMORY], "/cg/user.slice/app.slice"));
	cr_assert_str_eq(found.limits_dir[CGROUP_CPUACCT], "");
	cr_assert_str_eq(found.reason, "");
	clear_host();
}

/* A container: all groups that can be seen hold processes. Nothing is moved; killing still works; the reason
 * is told. */
Test(cgroup_detect, never_asks_the_host_process_to_move)
{
	struct cgroup_layout found;

	cr_assert_not_null(mkdtemp(host));
	put_group("", "cpu memory pids\n", "", "1\n77\n", false);
	look("/", "0::/\n", &found);
	cr_assert_eq(found.limits_version, 0);
	cr_assert_eq(found.controllers, 0);
	cr_assert(ends_with(found.tree_dir, "/cg"));
	cr_assert_gt(strlen(found.reason), 0);
	cr_assert_gt(strlen(found.remedy), 0);
	clear_host();
}

/* The root of the hierarchy may hold processes and pass controllers on all the same. */
Test(cgroup_detect, takes_the_root_of_the_hierarchy)
{
	struct cgroup_layout found;

	cr_assert_not_null(mkdtemp(host));
	put_group("", "memory pids\n", "", "1\n77\n", true);
	look("/", "0::/\n", &found);
	cr_assert_eq(found.limits_version, 2);
	cr_assert(ends_with(found.tree_dir, "/cg"));
	clear_host();
}

/* A mount that shows a part of the hierarchy, our group below it or outside of it, and one above the
 * namespace. */
Test(cgroup_detect, knows_what_a_partial_mount_shows)
{
	struct cgroup_layout found;

	cr_assert_not_null(mkdtemp(host));
	put_group("", "memory pids\n", "memory pids\n", "", false);
	put_group("/leaf", "memory pids\n", "", "7\n", false);
	look("/docker/abc", "0::/docker/abc/leaf\n", &found);
	cr_assert_eq(found.limits_version, 2);
	cr_assert(ends_with(found.tree_dir, "/cg"));
	look("/docker/abc", "0::/docker/abcdef\n", &found);
	cr_assert_eq(found.limits_version, 0);
	cr_assert_str_eq(found.tree_dir, "");
	look("/", "0::/../other\n", &found);
	cr_assert_str_eq(found.tree_dir, "");
	put_group("/leaf", "memory pids\n", "", "", false);
	put("cg/leaf/cgroup.type", "threaded\n");
	look("/", "0::/leaf\n", &found);
	cr_assert(ends_with(found.tree_dir, "/cg"), "%s", found.tree_dir);
	clear_host();
}

/* v1 beside a v2 tree: time is counted by the tree, so there is no directory for that; without a tree there is. */
Test(cgroup_detect, counts_time_once)
{
	static const char v1[] = "30 22 0:26 / %s/memory rw - cgroup cgroup rw,memory\n"
				 "31 22 0:27 / %s/cpuacct rw - cgroup cgroup rw,cpuacct\n";
	static const char *const files[] = { "memory/tasks", "cpuacct/tasks", "cg/cgroup.procs" };
	char text[512], mountinfo[64], self[64];
	struct cgroup_layout found;
	int n;

	cr_assert_not_null(mkdtemp(host));
	for (size_t i = 0; i < ELEMENTSOF(files); i++)
		put(files[i], "");
	put("own", "2:memory:/\n1:cpuacct:/\n0::/\n");
	n = snprintf(text, sizeof(text), v1, host, host);
	put("mountinfo", text);
	snprintf(mountinfo, sizeof(mountinfo), "%s/mountinfo", host);
	snprintf(self, sizeof(self), "%s/own", host);
	cgroup_detect_by(mountinfo, self, &found);
	cr_assert_eq(found.limits_version, 1);
	cr_assert_eq(found.controllers, CGROUP_BIT(CGROUP_MEMORY) | CGROUP_BIT(CGROUP_CPUACCT));
	snprintf(text + n, sizeof(text) - (size_t)n, "32 22 0:28 / %s/cg rw - cgroup2 cgroup2 rw\n", host);
	put("mountinfo", text);
	cgroup_detect_by(mountinfo, self, &found);
	cr_assert(ends_with(found.tree_dir, "/cg"), "%s", found.tree_dir);
	cr_assert_eq(found.controllers, CGROUP_BIT(CGROUP_MEMORY));
	cr_assert_str_eq(found.limits_dir[CGROUP_CPUACCT], "");
	clear_host();
}

/* No cgroup filesystem at all, or files that cannot be read: told, not guessed. */
Test(cgroup_detect, tells_when_there_is_nothing)
{
	struct cgroup_layout found;
	char mountinfo[64], self[64];

	cr_assert_not_null(mkdtemp(host));
	put("mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\nnonsense\n\n1 - cgroup2\n");
	put("own", "");
	snprintf(mountinfo, sizeof(mountinfo), "%s/mountinfo", host);
	snprintf(self, sizeof(self), "%s/own", host);
	cgroup_detect_by(mountinfo, self, &found);
	cr_assert_eq(found.limits_version, 0);
	cr_assert_not_null(strstr(found.reason, "no cgroup filesystem"));
	cgroup_detect_by("/missing", self, &found);
	cr_assert_not_null(strstr(found.reason, "/missing"));
	clear_host();
}

/* The flat form comes back as it was, and a broken one is refused. */
Test(cgroup_detect, layout_travels)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct cgroup_layout here, there;
	struct pack_reader reader;

	cgroup_detect(&here);
	cgroup_layout_pack(&writer, &here);
	reader = PACK_READER(writer.data, writer.len);
	cgroup_layout_unpack(&reader, &there);
	cr_assert(unpack_done(&reader));
	cr_assert_str_eq(here.tree_dir, there.tree_dir);
	cr_assert_str_eq(here.limits_dir[0], there.limits_dir[0]);
	cr_assert_eq(here.controllers, there.controllers);
}
