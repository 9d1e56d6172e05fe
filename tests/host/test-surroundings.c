/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Hosts that lack something: control groups, a capability, a whole /proc, the right to map ids, an init that
 * reaps. A box starts there as promised or the refusal names the cause. Each host is made of a forked child
 * in namespaces of its own.
 */
#include <criterion/criterion.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <agentbox/probe.h>

#include "support/support.h"

enum { CANNOT = 77 }; /* a child's answer: this host cannot be turned into that one */

static int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), r;

	if (fd < 0)
		return -errno;
	r = write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return r;
}

static char *read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

	text[n < 0 ? 0 : n] = 0;
	if (fd >= 0)
		close(fd);
	return text;
}

/* A mount namespace of our own, for a plain user within a user namespace in which its ids stay what they are.
 */
static int enter_namespaces(int flags)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char map[64];

	if (uid != 0)
		flags |= CLONE_NEWUSER;
	if (unshare(flags | CLONE_NEWNS) < 0)
		return -errno;
	if (uid != 0) {
		if (write_text("/proc/self/setgroups", "deny") < 0)
			return -EPERM;
		snprintf(map, sizeof(map), "%u %u 1", gid, gid);
		if (write_text("/proc/self/gid_map", map) < 0)
			return -EPERM;
		snprintf(map, sizeof(map), "%u %u 1", uid, uid);
		if (write_text("/proc/self/uid_map", map) < 0)
			return -EPERM;
	}
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ? -errno : 0;
}

/* What compiling answers: the plan, or message and remedy, as one text. */
static int compile(const char *json, char *text, size_t size)
{
	abox_spec *spec = NULL;
	abox_plan *plan = NULL;
	abox_error *error = NULL;
	char *dump = NULL;
	int r;

	text[0] = 0;
	r = abox_spec_from_json(json, &spec, &error);
	if (r >= 0)
		r = abox_plan_compile(spec, &plan, &error);
	if (r >= 0 && abox_plan_dump(plan, &dump, NULL) >= 0)
		snprintf(text, size, "%s", dump);
	else if (error)
		snprintf(text, size, "%s; %s", abox_error_get_message(error),
			abox_error_get_remedy(error) ? abox_error_get_remedy(error) : "");
	abox_free(dump);
	abox_error_free(error);
	abox_plan_unref(plan);
	abox_spec_unref(spec);
	return r;
}

/* Starts a box, runs a command, proves the walls if asked to, stops. 0 or the failed call's code. */
static int live_once(bool verify)
{
	static const char *const words[] = { "true", NULL };
	abox_sandbox *box = NULL;
	char *json = NULL;
	int r, code = -1;

	r = try_box("{}", &box);
	if (r >= 0)
		r = try_run(box, words, &code);
	if (r >= 0 && code != 0)
		r = ABOX_E_SYSTEM;
	if (r >= 0 && verify)
		r = abox_sandbox_verify(box, &json, NULL);
	if (r < 0 && json)
		apart_say("%.900s", json);
	abox_free(json);
	if (box) {
		int q = abox_sandbox_stop(box, ABOX_STOP_CANCEL, NULL, NULL);

		r = r < 0 ? r : q;
	}
	abox_sandbox_unref(box);
	return r;
}

/* In the test: the child must answer 0, or that it could not make such a host. */
static void judge(int (*function)(void *), void *argument, unsigned seconds, const char *lacking)
{
	char text[4096];
	int answer = apart_run(function, argument, seconds, text, sizeof(text));

	if (answer == CANNOT)
		cr_skip_test("needs %s", lacking);
	cr_assert_eq(answer, 0, "%s", text);
	cr_log_info("%s", text);
}

/* -- T16-1: layouts of control groups -- */

enum { KEEP_V1 = 1, KEEP_V2 = 2 };

/* Takes the hierarchies that are not to be kept out of our mount namespace; how many of each kind are left.
 */
static int hide_groups(int keep, int *retv1, int *retv2)
{
	char line[8192], paths[64][512];
	FILE *file = fopen("/proc/self/mountinfo", "re");
	int n = 0;

	*retv1 = *retv2 = 0;
	while (file && fgets(line, sizeof(line), file)) {
		bool v1 = strstr(line, " - cgroup ") != NULL, v2 = strstr(line, " - cgroup2 ") != NULL;

		*retv1 += v1 && (keep & KEEP_V1);
		*retv2 += v2 && (keep & KEEP_V2);
		if (((v1 && !(keep & KEEP_V1)) || (v2 && !(keep & KEEP_V2))) && n < 64 &&
			sscanf(line, "%*d %*d %*s %*s %511s", paths[n]) == 1)
			n++;
	}
	if (!file)
		return -1;
	fclose(file);
	while (n-- > 0)
		if (umount2(paths[n], MNT_DETACH) < 0)
			return -1;
	return 0;
}

/* The entry of the plan for one limit, as text: from its name to the end of the object. */
static bool entry_says(const char *dump, const char *name, const char *status)
{
	char want[128];
	const char *at, *end;

	snprintf(want, sizeof(want), "\"name\":\"%s\"", name);
	at = strstr(dump, want);
	end = at ? strchr(at, '}') : NULL;
	at = at ? strstr(at, status) : NULL;
	return at && end && at < end;
}

static int live_with_layout(void *argument)
{
	int keep = *(const int *)argument, v1, v2, r;
	bool memory, written;
	char *text = calloc(1, 1 << 20);

	apart_check(text != NULL);
	if (enter_namespaces(0) < 0)
		return CANNOT;
	apart_check(hide_groups(keep, &v1, &v2) == 0);
	if (((keep & KEEP_V1) && !v1) || ((keep & KEEP_V2) && !v2))
		return CANNOT;
	r = compile("{\"version\":1}", text, 1 << 20);
	apart_check(r >= 0);
	memory = entry_says(text, "limits.memory", "\"status\":\"enforced\"");
	if (!memory)
		apart_check(entry_says(text, "limits.memory", "not enforced (default)"));
	if (!keep)
		apart_check(!memory);
	/* What was written is enforced or refused. */
	r = compile("{\"version\":1,\"limits\":{\"memory\":\"64MiB\"}}", text, 1 << 20);
	written = r >= 0 && entry_says(text, "limits.memory", "\"status\":\"enforced\"");
	if (r < 0) {
		apart_check(r == ABOX_E_UNSUPPORTED);
		apart_check(strstr(text, "limits.memory") && strstr(text, "; ") &&
			    strlen(strstr(text, "; ")) > 4);
	}
	apart_say("v1 %d v2 %d: memory %s by default, %s when written", v1, v2,
		memory ? "enforced" : "not enforced",
		written ? "enforced"
		: r < 0 ? "refused"
			: "?");
	apart_check(written == memory && (r >= 0) == memory);
	if (memory && !v2)
		apart_check(strstr(text, "cgroup v1") != NULL);
	apart_check(live_once(false) >= 0);
	return 0;
}

static void live_in_layout(int keep)
{
	struct leaks *before = leaks_take();

	needs("root");
	judge(live_with_layout, &keep, 60, "a host with such control groups");
	assert_no_leaks(before);
}

/* T16-1: the control: with everything this host has, hidden or not, default and written limits agree. */
Test(surroundings, T16_1_all_groups)
{
	live_in_layout(KEEP_V1 | KEEP_V2);
}

/* T16-1: without cgroup2 limits are kept by v1, and commands are still ended as trees. */
Test(surroundings, T16_1_v1_only)
{
	live_in_layout(KEEP_V1);
}

/* T16-1: cgroup2 alone, with the controllers it happens to have. */
Test(surroundings, T16_1_v2_only)
{
	live_in_layout(KEEP_V2);
}

/* T16-1: none: memory is not enforced by default, a written limit is refused, the box works. */
Test(surroundings, T16_1_none)
{
	live_in_layout(0);
}

/* T16-1: groups that are not delegated are no reason to promise less silently, for a plain user as for root.
 */
Test(surroundings, T16_1_not_delegated)
{
	char *text = calloc(1, 1 << 20);
	bool enforced;
	int r;

	cr_assert_not_null(text);
	r = compile("{\"version\":1}", text, 1 << 20);
	cr_assert_geq(r, 0, "%s", text);
	enforced = entry_says(text, "limits.memory", "\"status\":\"enforced\"");
	cr_expect(enforced || entry_says(text, "limits.memory", "not enforced (default)"));
	r = compile("{\"version\":1,\"limits\":{\"memory\":\"64MiB\"}}", text, 1 << 20);
	cr_expect_eq(r, enforced ? 0 : ABOX_E_UNSUPPORTED, "%s", text);
	free(text);
}

/* -- B80: the host stays where it is -- */

static int live_in_group(void *argument)
{
	const char *folder = argument;
	char path[600], before[8192], after[8192];

	if (folder) {
		snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
		apart_check(write_text(path, "0") == 0);
	}
	read_text("/proc/self/cgroup", before, sizeof(before));
	apart_check(before[0] != 0);
	if (folder)
		apart_check(strstr(before, strrchr(folder, '/')) != NULL);
	apart_check(live_once(false) >= 0);
	read_text("/proc/self/cgroup", after, sizeof(after));
	if (strcmp(before, after) != 0)
		apart_say("before:\n%safter:\n%s", before, after);
	return strcmp(before, after) != 0;
}

/* B80: a start moves nobody but its own helpers. */
Test(surroundings, B80_host_is_not_moved)
{
	assert_apart(live_in_group, NULL, 60);
}

static bool group_of_v2(char *path, size_t size)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	char line[8192], mount_point[400];
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file))
		found = strstr(line, " - cgroup2 ") &&
			sscanf(line, "%*d %*d %*s %*s %399s", mount_point) == 1;
	if (file)
		fclose(file);
	if (found)
		snprintf(path, size, "%s/rows-test-%d", mount_point, (int)getpid());
	return found;
}

static bool group_is_removed(void *path)
{
	return rmdir(path) == 0 || errno == ENOENT;
}

/* B80: the same from a group that holds the host process, where controllers cannot be passed on. */
Test(surroundings, B80_host_in_a_group_of_its_own)
{
	char folder[512], text[4096];
	int answer;

	needs("root");
	if (!group_of_v2(folder, sizeof(folder)) || mkdir(folder, 0755) < 0)
		cr_skip_test("needs cgroup2 that can be written");
	answer = apart_run(live_in_group, folder, 60, text, sizeof(text));
	cr_expect(wait_until(group_is_removed, folder, 5000), "%s is still in use", folder);
	cr_assert_eq(answer, 0, "%s", text);
}

/* -- B33: root without CAP_SYS_ADMIN -- */

enum { ONLY_SYS_ADMIN, ALL_CAPABILITIES };

static int drop_capabilities(int which)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	/* The helpers are programs that root executes: what is still in the bounding set would come back. */
	for (int c = 0; c <= CAP_LAST_CAP; c++)
		if ((which == ALL_CAPABILITIES || c == CAP_SYS_ADMIN) &&
			prctl(PR_CAPBSET_READ, c, 0, 0, 0) == 1 && prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0)
			return -1;
	if (syscall(SYS_capget, &header, data) < 0)
		return -1;
	if (which == ALL_CAPABILITIES)
		memset(data, 0, sizeof(data));
	data[0].effective &= ~(1U << CAP_SYS_ADMIN);
	data[0].permitted &= ~(1U << CAP_SYS_ADMIN);
	data[0].inheritable &= ~(1U << CAP_SYS_ADMIN);
	return (int)syscall(SYS_capset, &header, data);
}

static int live_without_capabilities(void *argument)
{
	int which = *(const int *)argument, r;
	char text[2048];

	if (drop_capabilities(which) < 0)
		return CANNOT;
	apart_check(unshare(CLONE_NEWNS) < 0 && errno == EPERM); /* it is really gone */
	r = compile("{\"version\":1}", text, sizeof(text));
	if (r < 0) {
		apart_say("%s: %s", abox_code_name(r), text);
		/* Without CAP_SETFCAP the kernel maps no uid 0: then that is said. */
		apart_check(
			which == ALL_CAPABILITIES && r == ABOX_E_UNAVAILABLE && strstr(text, "CAP_SETFCAP"));
		return 0;
	}
	r = live_once(true);
	apart_say("start: %s", r < 0 ? abox_code_name(r) : "good");
	return r < 0;
}

/* B33: root without CAP_SYS_ADMIN makes a user namespace like everybody else, and the walls are whole. */
Test(surroundings, B33_root_without_sys_admin)
{
	struct leaks *before = leaks_take();
	int which = ONLY_SYS_ADMIN;

	needs("root");
	judge(live_without_capabilities, &which, 60, "capabilities that can be dropped");
	assert_no_leaks(before);
}

/* B33: a root that has none at all does so too, or is told which one is in the way. */
Test(surroundings, B33_root_without_capabilities)
{
	struct leaks *before = leaks_take();
	int which = ALL_CAPABILITIES;

	needs("root");
	judge(live_without_capabilities, &which, 60, "capabilities that can be dropped");
	assert_no_leaks(before);
}

/* -- B32: a /proc that is partly masked -- */

static int live_with_proc(void *argument)
{
	bool masked = *(const bool *)argument;
	char text[2048];
	abox_host *host = NULL;
	int r;

	if (enter_namespaces(0) < 0)
		return CANNOT;
	if (!masked)
		return live_once(false) < 0;
	apart_check(mount("/dev/null", "/proc/cmdline", NULL, MS_BIND, NULL) == 0);
	r = compile("{\"version\":1}", text, sizeof(text));
	if (r != ABOX_E_UNAVAILABLE || !strstr(text, "/proc") || !strstr(text, "mask") ||
		!strstr(text, "systempaths")) {
		apart_say("%d: %.900s", r, text);
		return 1;
	}
	apart_check(abox_probe(&host, NULL) >= 0);
	apart_check(!abox_host_backend_usable(host, 0));
	apart_check(strstr(abox_host_backend_blocker(host, 0), "masks parts of its own /proc") != NULL);
	abox_host_unref(host);
	return 0;
}

/* B32: the kernel's "mount too revealing" is told as what it means, before anything is started. */
Test(surroundings, B32_masked_proc_is_named)
{
	bool masked = true;

	judge(live_with_proc, &masked, 60, "a mount namespace");
}

/* The control: in the same namespaces with a whole /proc a box starts. */
Test(surroundings, B32_control_whole_proc)
{
	bool masked = false;

	judge(live_with_proc, &masked, 60, "a mount namespace");
}

/* -- B35: user namespaces that get no rights -- */

enum { REFUSE_MAPS = 1, BY_APPARMOR = 2 };

/* Files that are opened for writing only: the maps are, and nothing else that compiling needs. */
static int refuse_maps(void)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	int r;

	if (!filter)
		return -1;
	r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(openat), 1,
		SCMP_A2(SCMP_CMP_MASKED_EQ, O_ACCMODE, O_WRONLY));
	if (r == 0)
		r = seccomp_load(filter);
	seccomp_release(filter);
	return r;
}

/* The switch of Ubuntu's kernels, which others do not have. */
static int switch_on_restriction(void)
{
	const char *path = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";
	int fd;

	if (mount("tmpfs", "/proc/sys/kernel", "tmpfs", 0, "size=64k") < 0)
		return -1;
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0444);
	if (fd < 0 || write(fd, "1\n", 2) != 2)
		return -1;
	return close(fd);
}

static int compile_without_maps(void *argument)
{
	int how = *(const int *)argument, r;
	abox_host *host = NULL;
	char text[2048];

	if (enter_namespaces(0) < 0)
		return CANNOT;
	if (how & BY_APPARMOR)
		apart_check(switch_on_restriction() == 0);
	if (geteuid() == 0)
		apart_check(setgroups(0, NULL) == 0 && setresgid(12345, 12345, 12345) == 0 &&
			    setresuid(12345, 12345, 12345) == 0 && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0);
	if (how & REFUSE_MAPS)
		apart_check(refuse_maps() == 0);
	r = compile("{\"version\":1}", text, sizeof(text));
	if (!(how & REFUSE_MAPS)) {
		if (r < 0)
			apart_say("%d: %.900s", r, text);
		return r < 0;
	}
	if (r != ABOX_E_UNAVAILABLE || strlen(text) < 20 ||
		((how & BY_APPARMOR) && (!strstr(text, "AppArmor") ||
						!strstr(text, "apparmor_restrict_unprivileged_userns=0")))) {
		apart_say("%d: %.900s", r, text);
		return 1;
	}
	apart_check(abox_probe(&host, NULL) >= 0);
	apart_check(!abox_host_backend_usable(host, 0));
	if (how & BY_APPARMOR)
		apart_check(strstr(abox_host_backend_remedy(host, 0), "AppArmor profile") != NULL);
	abox_host_unref(host);
	return 0;
}

/* B35: Ubuntu's restriction is called by its name and comes with the remedy. */
Test(surroundings, B35_apparmor_restriction_is_named)
{
	int how = REFUSE_MAPS | BY_APPARMOR;

	judge(compile_without_maps, &how, 30, "a mount namespace");
}

/* B35: maps that are refused for another reason are not blamed on AppArmor, and refused all the same. */
Test(surroundings, B35_refused_maps)
{
	int how = REFUSE_MAPS;

	judge(compile_without_maps, &how, 30, "a mount namespace");
}

/* The control: the same user in the same namespaces, without a filter, gets a plan. */
Test(surroundings, B35_control_maps_are_written)
{
	int how = 0;

	judge(compile_without_maps, &how, 30, "a mount namespace");
}

/* -- B18: an init that reaps nobody -- */

static bool line_of(pid_t pid, const char *file, char *text, size_t size)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	return read_text(path, text, size)[0] != 0;
}

/* Zombies in our pid namespace; keepers among them are counted apart. */
static int count_zombies(int *retkeepers)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	int n = 0;

	*retkeepers = 0;
	while (dir && (entry = readdir(dir))) {
		char stat[512], *bracket;

		if (!isdigit((unsigned char)entry->d_name[0]) ||
			!line_of(atoi(entry->d_name), "stat", stat, sizeof(stat)))
			continue;
		bracket = strrchr(stat, ')');
		if (!bracket || bracket[2] != 'Z')
			continue;
		n++;
		*retkeepers += strstr(stat, "agentbox-keeper") != NULL || strstr(stat, "(agentbox") != NULL;
		apart_say("zombie: %.120s", stat);
	}
	if (dir)
		closedir(dir);
	return n;
}

#define ROUNDS 3

static int live_below_lazy_init(void)
{
	int n, keepers, r = 0;

	for (int i = 0; i < ROUNDS && r >= 0; i++)
		r = live_once(false);
	if (r < 0) {
		apart_say("%s", abox_code_name(r));
		return 1;
	}
	pause_msec(500);
	n = count_zombies(&keepers);
	/*
	 * The keeper has no parent but init, by design: it outlives the host. So one per box is init's to
	 * reap, and where init does not, it stays; everything below a keeper must have been reaped by it.
	 */
	apart_say("%d zombies, %d keepers after %d boxes", n, keepers, ROUNDS);
	return n > keepers || keepers > ROUNDS;
}

/* Process 1 of the namespace: makes the host and then waits for nobody, but looks for its end in a pipe. */
static int lazy_init(void)
{
	int fds[2];
	char answer = 1;
	pid_t host;

	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 ||
		pipe2(fds, O_CLOEXEC) < 0)
		return CANNOT;
	host = fork();
	if (host < 0)
		return CANNOT;
	if (host == 0) {
		answer = (char)live_below_lazy_init();
		(void)!write(fds[1], &answer, 1);
		_exit(0);
	}
	close(fds[1]);
	return read(fds[0], &answer, 1) == 1 ? answer : 1;
}

static int live_in_pid_namespace(void *unused)
{
	int status;
	pid_t init;

	(void)unused;
	if (enter_namespaces(CLONE_NEWPID) < 0)
		return CANNOT;
	init = fork();
	apart_check(init >= 0);
	if (init == 0)
		_exit(prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ? 1 : lazy_init());
	apart_check(waitpid(init, &status, 0) == init); /* bounded by the test, which kills us and so init */
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* B18: no zombie of a box stays with an init that never waits, but for its keeper. */
Test(surroundings, B18_init_that_never_waits)
{
	judge(live_in_pid_namespace, NULL, 60, "pid and mount namespaces");
}
