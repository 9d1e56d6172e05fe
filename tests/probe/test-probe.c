/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/json.h"
#include "kernel/caps.h"
#include "kernel/mount.h"
#include "kernel/seccomp.h"
#include "probe/probe.h"
#include "support/child.h"

static struct host_facts good_facts(void)
{
	return (struct host_facts){ .uid = 1000,
		.gid = 1000,
		.release = "6.1.0",
		.arch = "x86_64",
		.version_major = 6,
		.version_minor = 1,
		.userns = USERNS_SINGLE,
		.namespaces = true,
		.proc_mount = true,
		.new_mount_api = true,
		.openat2 = true,
		.overlay = true,
		.landlock_abi = 2,
		.seccomp = true,
		.kill = KILL_PIDNS,
		.cgroup = { .reason = "nothing is delegated", .remedy = "delegate" } };
}

static int status_of(const abox_host *host, const char *name)
{
	for (uint32_t i = 0; abox_host_capability_name(host, i); i++)
		if (strcmp(abox_host_capability_name(host, i), name) == 0)
			return abox_host_capability_status(host, i);
	return -1;
}

/* A plain user without delegation: memory and cpus are not enforced and it says why; pids are, by another
 * way. */
Test(probe, tells_what_a_plain_user_cannot_have)
{
	struct host_facts facts = good_facts();
	abox_host *host = NULL;

	cr_assert_eq(host_new(&facts, NULL, NULL, NULL, &host), 0);
	cr_assert_str_eq(abox_host_backend_name(host, 0), "namespaces");
	cr_assert_eq(abox_host_backend_usable(host, 0), 1);
	cr_assert_null(abox_host_backend_blocker(host, 0));
	cr_assert_eq(status_of(host, "limits.memory"), ABOX_NOT_ENFORCED);
	cr_assert_eq(status_of(host, "limits.cpus"), ABOX_NOT_ENFORCED);
	cr_assert_eq(status_of(host, "limits.pids"), ABOX_ENFORCED);
	cr_assert_eq(status_of(host, "pause"), ABOX_APPROXIMATED);
	cr_assert_eq(status_of(host, "landlock"), ABOX_ENFORCED);
	for (uint32_t i = 0; abox_host_capability_name(host, i); i++)
		if (strcmp(abox_host_capability_name(host, i), "limits.memory") == 0) {
			cr_assert_str_eq(abox_host_capability_detail(host, i), "nothing is delegated");
			cr_assert_str_eq(abox_host_capability_remedy(host, i), "delegate");
		}
	/* The other two walls are named, with the reason. */
	cr_assert_str_eq(abox_host_backend_name(host, 1), "gvisor");
	cr_assert_str_eq(abox_host_backend_name(host, 2), "microvm");
	cr_assert_null(abox_host_backend_name(host, 3));
	cr_assert_not_null(abox_host_backend_blocker(host, 2));
	host = abox_host_unref(host);
	cr_assert_null(host);
}

/* A host where no wall can be used promises nothing at all. */
Test(probe, promises_nothing_without_a_wall)
{
	struct host_facts facts = good_facts();
	abox_host *host = NULL;

	strcpy(facts.blocker, "no");
	cr_assert_eq(host_new(&facts, NULL, NULL, NULL, &host), 0);
	cr_assert_eq(abox_host_backend_usable(host, 0), 0);
	cr_assert_null(abox_host_capability_name(host, 0));
	abox_host_unref(host);
	cr_assert_null(abox_host_backend_name(NULL, 0));
	cr_assert_eq(abox_probe(NULL, NULL), ABOX_E_INVALID);
	cr_assert_eq(abox_host_dump(NULL, NULL), ABOX_E_INVALID);
}

/* This host: the report is JSON, and agrees with the getters. */
Test(probe, reports_this_host)
{
	_cleanup_(error_freep) abox_error *error = NULL;
	struct json_bounds bounds = { .max_bytes = 1 << 20, .max_depth = 8, .stage = ABOX_STAGE_PROBE };
	_cleanup_(json_unrefp) struct json *root = NULL;
	_cleanup_(freep) char *text = NULL;
	abox_host *host = NULL;

	cr_assert_eq(abox_probe(&host, &error), 0);
	cr_assert_eq(abox_host_dump(host, &text), 0);
	cr_assert_eq(json_parse(text, strlen(text), &bounds, &root, &error), 0, "%s", text);
	cr_assert_str_eq(json_text(json_at(root, "/backends/0/name")), "namespaces");
	cr_assert_eq(json_truth(json_at(root, "/backends/0/usable")), abox_host_backend_usable(host, 0));
	cr_assert_eq(json_number(json_at(root, "/host/uid")), geteuid());
	cr_assert_eq(json_kind(json_at(root, "/host/control_groups/controllers")), JSON_KIND_ARRAY);
	abox_host_unref(host);
}

static volatile sig_atomic_t n_sigchld;

static void count_sigchld(int signal)
{
	n_sigchld++;
}

static void *probe_often(void *argument)
{
	uintptr_t failed = 0;

	for (int i = 0; i < 10; i++) {
		abox_host *host = NULL;

		failed += abox_probe(&host, NULL) != 0 || !abox_host_backend_name(host, 0);
		abox_host_unref(host);
	}
	return (void *)failed;
}

static int first_free(void)
{
	int fd = dup(0);

	close(fd);
	return fd;
}

/* Several threads probe at once: no signal, no child, no descriptor stays. */
Test(probe, leaves_the_host_alone)
{
	struct sigaction action = { .sa_handler = count_sigchld };
	int before = first_free();
	pthread_t threads[4];

	sigaction(SIGCHLD, &action, NULL);
	n_sigchld = 0;
	for (size_t i = 0; i < ELEMENTSOF(threads); i++)
		pthread_create(&threads[i], NULL, probe_often, NULL);
	for (size_t i = 0; i < ELEMENTSOF(threads); i++) {
		void *failed;

		pthread_join(threads[i], &failed);
		cr_expect_eq((uintptr_t)failed, 0);
	}
	cr_assert_eq(n_sigchld, 0);
	cr_assert_eq(waitpid(-1, NULL, WNOHANG | __WALL), -1);
	cr_assert_eq(first_free(), before);
}

static int check_nested(struct child *child)
{
	struct host_facts facts;
	struct verdict verdict;

	CHECK(host_facts_read(&facts, NULL) == 0);
	CHECK(facts.in_userns);
	CHECK(facts.namespaces);
	verdict_recall(&verdict);
	CHECK(!verdict.key[0]);	/* the number of this namespace will be another's */
	CHECK(facts.userns == USERNS_SINGLE);	/* root of a namespace has no range of ids to give */
	CHECK(facts.blocker[0] == 0);
	return 0;
}

static int check_switched_off(struct child *child)
{
	struct host_facts facts;

	CHECK(file_write_text(AT_FDCWD, "/proc/sys/user/max_user_namespaces", "0") == 0);
	CHECK(host_facts_read(&facts, NULL) == 0);
	CHECK(facts.userns == USERNS_NONE && !facts.namespaces);
	CHECK(strstr(facts.blocker, "max_user_namespaces is 0") != NULL);
	CHECK(strstr(facts.remedy, "sysctl -w user.max_user_namespaces=") != NULL);
	return 0;
}

static int check_no_net(struct child *child)
{
	struct host_facts facts;

	CHECK(file_write_text(AT_FDCWD, "/proc/sys/user/max_net_namespaces", "0") == 0);
	CHECK(host_facts_read(&facts, NULL) == 0);
	CHECK(!facts.namespaces);
	CHECK(strstr(facts.blocker, "max_net_namespaces is 0") != NULL);
	return 0;
}

static int check_masked_proc(struct child *child)
{
	struct host_facts facts;
	struct fault fault = { 0 };
	int fd = -EBADF;

	CHECK_FAULT(mount_clone(AT_FDCWD, "/dev/null", 0, "null", &fd, &fault), &fault);
	CHECK_FAULT(mount_attach(fd, open("/proc/version", O_PATH | O_CLOEXEC), "version", &fault), &fault);
	CHECK(host_facts_read(&facts, NULL) == 0);
	CHECK(facts.namespaces && !facts.proc_mount);
	CHECK(strstr(facts.blocker, "masks parts of its own /proc") != NULL);
	CHECK(facts.remedy[0]);
	return 0;
}

static int check_chroot(struct child *child)
{
	struct host_facts facts;
	struct fault fault = { 0 };
	int fd = -EBADF;

	CHECK_FAULT(mount_clone(AT_FDCWD, "/", MOUNT_RECURSIVE, "root", &fd, &fault), &fault);
	CHECK_FAULT(mount_attach(fd, open("/mnt", O_PATH | O_CLOEXEC), "mnt", &fault), &fault);
	CHECK(chroot("/mnt") == 0 && chdir("/") == 0);
	CHECK(host_facts_read(&facts, NULL) == 0);
	CHECK(!facts.namespaces);
	CHECK(strstr(facts.blocker, "chroot") != NULL);
	return 0;
}

static int check_filtered(struct child *child)
{
	struct filter_policy policy = { .allow = NULL };
	struct filter_insn *program;
	struct host_facts facts;
	struct fault fault = { 0 };
	size_t n;

	CHECK(filter_compile(&policy, &program, &n, NULL) == 0);
	CHECK_FAULT(caps_no_new_privs(&fault), &fault);
	CHECK_FAULT(filter_load(program, n, &fault), &fault);
	CHECK(host_facts_read(&facts, NULL) == 0);
	CHECK(!facts.namespaces && facts.outer_seccomp);
	CHECK(strstr(facts.blocker, "system call filter") != NULL);
	CHECK(strstr(facts.remedy, "seccomp=unconfined") != NULL);
	return 0;
}

#define NEEDS_USERNS()                                                                                       \
	if (!child_has_userns(CHILD_PLAIN))                                                                  \
	cr_skip_test("no user namespaces here")

/* Root of a container with a user namespace of its own has one id to give, and can use the wall. */
Test(probe, knows_when_it_is_nested)
{
	NEEDS_USERNS();
	cr_assert_child(check_nested, CHILD_USERNS, NULL);
	cr_assert_child(check_nested, CHILD_USERNS | CHILD_PLAIN, NULL);
}

/* Namespaces that the administrator switched off are named with the sysctl. */
Test(probe, names_namespaces_that_are_switched_off)
{
	NEEDS_USERNS();
	cr_assert_child(check_switched_off, CHILD_USERNS, NULL);
	cr_assert_child(check_switched_off, CHILD_USERNS | CHILD_PLAIN, NULL);
	cr_assert_child(check_no_net, CHILD_USERNS, NULL);
}

/* A host that masks parts of /proc, as container runtimes do. */
Test(probe, names_a_masked_proc)
{
	NEEDS_USERNS();
	cr_assert_child(check_masked_proc, CHILD_USERNS, NULL);
	cr_assert_child(check_masked_proc, CHILD_USERNS | CHILD_PLAIN, NULL);
}

/* In a chroot the kernel gives no user namespace. */
Test(probe, names_a_chroot)
{
	NEEDS_USERNS();
	cr_assert_child(check_chroot, CHILD_USERNS, NULL);
}

/* A filter around us, as a container runtime sets it. */
Test(probe, names_an_outer_filter)
{
	cr_assert_child(check_filtered, 0, NULL);
	cr_assert_child(check_filtered, CHILD_PLAIN, NULL);
}

/* -- verdicts -- */

/* A plan's way to the facts, twice; the second does not try again. In a home of its own. */
static int recall_twice(struct child *child)
{
	struct verdict first, second;
	struct host_facts facts, again;
	char cache[64], path[128], text[4096] = "";
	struct stat st;
	int fd;

	snprintf(cache, sizeof(cache), "/tmp/verdict-XXXXXX");
	CHECK(mkdtemp(cache) && setenv("ABOX_HOME", cache, 1) == 0);
	CHECK(host_facts_recall(&facts, &first, NULL) == 0);
	if (!first.key[0] || !trial_is_good(&first.trial))
		return 0;	/* here nothing may be kept */
	CHECK(!first.known && first.changed);
	verdict_keep(&first);
	snprintf(path, sizeof(path), "%s/cache/host", cache);
	CHECK(stat(path, &st) == 0 && (st.st_mode & 07777) == 0600);
	CHECK(host_facts_recall(&again, &second, NULL) == 0);
	CHECK(second.known && !second.changed);
	CHECK(memcmp(&facts, &again, sizeof(facts)) == 0);

	/* another boot, another user, a trial that failed, a torn or a long file, one that others can write */
	fd = open(path, O_RDWR);
	CHECK(fd >= 0 && read(fd, text, sizeof(text)) > 0);
	for (int i = 0; i < 6; i++) {
		char changed[4096 + 8];
		size_t len;

		memcpy(changed, text, sizeof(text));
		len = strcspn(changed, "\n");
		if (i == 0)
			changed[len - 1] ^= 1;
		else if (i == 1)
			changed[0] = '2';
		else if (i == 2)
			changed[len + 1] = '1';	/* no clone */
		else if (i == 3)
			changed[len + 4] = 0;
		CHECK(ftruncate(fd, 0) == 0);
		CHECK(pwrite(fd, changed, i == 4 ? sizeof(text) + 8 : (size_t)st.st_size, 0) > 0);
		CHECK(fchmod(fd, i == 5 ? 0644 : 0600) == 0);
		verdict_recall(&second);
		CHECK(!second.known && second.n_idmaps == 0);
	}
	CHECK(fchmod(fd, 0600) == 0 && ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)st.st_size, 0) == st.st_size);
	verdict_recall(&second);
	CHECK(second.known);
	verdict_forget(&second);
	CHECK(stat(path, &st) < 0);
	close(fd);
	snprintf(path, sizeof(path), "%s/cache", cache);
	CHECK(rmdir(path) == 0 && rmdir(cache) == 0);
	return 0;
}

Test(probe, a_verdict_is_kept_for_those_whom_it_is_about)
{
	cr_assert_child(recall_twice, 0, NULL);
}
