/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "kernel/caps.h"
#include "kernel/landlock.h"
#include "kernel/userns.h"
#include "support/child.h"

static const int ways[] = { 0, CHILD_PLAIN };

static int check_drop(struct child *child)
{
	struct fault fault = { 0 };
	struct caps caps;

	CHECK(caps_read(&caps) == 0);
	CHECK(caps.permitted != 0 && caps.bounding != 0);	/* positive control */
	CHECK(sethostname("x", 1) == 0 || unshare(CLONE_NEWUTS) == 0);
	CHECK_FAULT(caps_drop_all(&fault), &fault);
	CHECK(caps_read(&caps) == 0);
	CHECK((caps.effective | caps.permitted | caps.inheritable | caps.bounding | caps.ambient) == 0);
	CHECK(sethostname("x", 1) < 0 && errno == EPERM);
	CHECK(prctl(PR_GET_SECUREBITS) == (0x3 | 0x20 | 0xc0));
	CHECK(prctl(PR_SET_SECUREBITS, 0) < 0);
	return 0;
}

/* Nothing is left in any set, and no way back. */
Test(caps, drops_everything)
{
	if (!child_has_userns(CHILD_PLAIN))
		cr_skip_test("no user namespaces here");
	for (size_t i = 0; i < ELEMENTSOF(ways); i++)
		cr_assert_child(check_drop, ways[i] | CHILD_USERNS, NULL);
}

static int check_drop_refused(struct child *child)
{
	struct fault fault = { 0 };

	/* A plain user has no capabilities, but a full bounding set, which it may not empty. */
	CHECK(caps_drop_all(&fault) == ABOX_E_PERMISSION);
	return 0;
}

/* When the bounding set cannot be emptied that is an error, not a shrug. */
Test(caps, refuses_when_bounding_stays)
{
	if (geteuid() != 0)
		cr_skip_test("needs root to become the plain user with a full bounding set");
	cr_assert_child(check_drop_refused, CHILD_PLAIN, NULL);
}

static int check_keep(struct child *child)
{
	uint64_t mask = CAPS_BIT(CAPS_NET_ADMIN) | CAPS_BIT(CAPS_SYS_ADMIN);
	struct fault fault = { 0 };
	struct caps caps;

	CHECK_FAULT(caps_keep(mask, true, &fault), &fault);
	CHECK(caps_read(&caps) == 0);
	CHECK(caps.effective == mask && caps.permitted == mask && caps.ambient == mask &&
		caps.bounding == mask);
	CHECK(caps_keep(CAPS_BIT(CAPS_SETUID), false, &fault) == ABOX_E_PERMISSION);	/* gone already */
	return 0;
}

/* Exactly the asked ones stay. */
Test(caps, keeps_exactly_the_mask)
{
	if (!child_has_userns(CHILD_PLAIN))
		cr_skip_test("no user namespaces here");
	for (size_t i = 0; i < ELEMENTSOF(ways); i++)
		cr_assert_child(check_keep, ways[i] | CHILD_USERNS, NULL);
}

static int check_maps_undumpable(struct child *child)
{
	struct id_range uid = { 1000, geteuid(), 1 }, gid = { 1000, getegid(), 1 };
	struct fault fault = { 0 };

	CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
	CHECK(unshare(CLONE_NEWUSER) == 0);
	CHECK_FAULT(userns_write_maps(0, &uid, 1, &gid, 1, true, &fault), &fault);
	CHECK(geteuid() == 1000 && getegid() == 1000);
	CHECK(prctl(PR_GET_DUMPABLE) == 0);
	return 0;
}

/* A helper that is not dumpable still writes its own maps, and stays not dumpable. */
Test(userns, maps_itself_while_not_dumpable)
{
	if (!child_has_userns(CHILD_PLAIN))
		cr_skip_test("no user namespaces here");
	for (size_t i = 0; i < ELEMENTSOF(ways); i++)
		cr_assert_child(check_maps_undumpable, ways[i], NULL);
}

static int check_ranges(struct child *child)
{
	struct id_range two[2] = { { 0, 100000, 10 }, { 50, 200000, 5 } }, outside = { 0, 0, 10 };
	struct fault fault = { 0 };

	CHECK(userns_write_maps(0, two, 0, two, 1, false, &fault) == ABOX_E_INVALID);
	CHECK(unshare(CLONE_NEWUSER) == 0);
	/* From inside, an unprivileged writer may map only itself. */
	CHECK(userns_write_maps(0, two, 2, two, 2, true, &fault) < 0);
	CHECK(userns_write_maps(0, &outside, 1, &outside, 1, true, &fault) < 0);
	return 0;
}

/* Ranges that the kernel does not grant are an error. */
Test(userns, refuses_foreign_ranges)
{
	if (!child_has_userns(CHILD_PLAIN))
		cr_skip_test("no user namespaces here");
	cr_assert_child(check_ranges, CHILD_PLAIN, NULL);
}

static int check_landlock(struct child *child)
{
	const char *base = child->argument;
	struct fault fault = { 0 };
	struct landlock_rule rules[3];
	int base_fd, ruleset = -EBADF;

	base_fd = open(base, O_PATH | O_DIRECTORY | O_CLOEXEC);
	CHECK(base_fd >= 0);
	rules[0] = (struct landlock_rule){ openat(base_fd, "rw1", O_PATH | O_CLOEXEC), "rw1", LANDLOCK_RW };
	rules[1] = (struct landlock_rule){ openat(base_fd, "rw2", O_PATH | O_CLOEXEC), "rw2", LANDLOCK_RW };
	rules[2] = (struct landlock_rule){ openat(base_fd, "ro", O_PATH | O_CLOEXEC), "ro", LANDLOCK_RO };
	CHECK_FAULT(caps_no_new_privs(&fault), &fault);
	/* A scope layer first: it must not bring EXDEV. */
	if (landlock_abi() >= 6) {
		int root = open("/", O_PATH | O_CLOEXEC);

		CHECK_FAULT(landlock_new_scope(root, LANDLOCK_SCOPE_SIGNALS, &ruleset, &fault), &fault);
		CHECK_FAULT(landlock_restrict(ruleset, &fault), &fault);
		fd_close(ruleset);
	}
	CHECK(openat(base_fd, "other/file", O_RDONLY) >= 0);	/* positive control */
	CHECK_FAULT(
		landlock_new(rules, 3,
			landlock_abi() >= 6 ? LANDLOCK_SCOPE_SIGNALS | LANDLOCK_SCOPE_ABSTRACT_SOCKETS : 0,
			&ruleset, &fault),
		&fault);
	CHECK_FAULT(landlock_restrict(ruleset, &fault), &fault);
	CHECK(openat(base_fd, "other/file", O_RDONLY) < 0 && errno == EACCES);
	CHECK(openat(base_fd, "ro/file", O_RDONLY) >= 0);
	CHECK(openat(base_fd, "ro/file", O_WRONLY) < 0 && errno == EACCES);
	CHECK(openat(base_fd, "ro/new", O_WRONLY | O_CREAT, 0644) < 0 && errno == EACCES);
	CHECK(openat(base_fd, "rw1/file", O_RDWR) >= 0);
	CHECK(renameat(base_fd, "rw1/file", base_fd, "rw2/file") == 0);	/* no EXDEV over both layers */
	CHECK(linkat(base_fd, "rw2/file", base_fd, "rw1/hard", 0) == 0);
	CHECK(renameat(base_fd, "rw2/file", base_fd, "other/out") < 0);
	CHECK(mkdirat(base_fd, "rw1/dir", 0755) == 0 && unlinkat(base_fd, "rw1/dir", AT_REMOVEDIR) == 0);
	CHECK(symlinkat("../other/file", base_fd, "rw1/link") == 0);
	CHECK(openat(base_fd, "rw1/link", O_RDONLY) < 0 && errno == EACCES);
	if (landlock_abi() >= 6)
		CHECK(kill(getppid(), 0) < 0 && errno == EPERM);
	return 0;
}

/* A layer grants what its rules say and nothing else; renames between granted directories work over two
 * layers. */
Test(landlock, limits_files_and_keeps_renames)
{
	char base[] = "/tmp/abox-ll-XXXXXX";
	int tmp_fd = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC), base_fd;

	if (landlock_abi() < 2)
		cr_skip_test("no Landlock with REFER here");
	for (size_t i = 0; i < ELEMENTSOF(ways); i++) {
		static const char *const dirs[] = { "rw1", "rw2", "ro", "other" };

		strcpy(base, "/tmp/abox-ll-XXXXXX");
		cr_assert_not_null(mkdtemp(base));
		chmod(base, 0755);
		base_fd = open(base, O_PATH | O_DIRECTORY | O_CLOEXEC);
		for (size_t j = 0; j < ELEMENTSOF(dirs); j++) {
			char file[32];

			mkdirat(base_fd, dirs[j], 0777);
			fchmodat(base_fd, dirs[j], 0777, 0);
			snprintf(file, sizeof(file), "%s/file", dirs[j]);
			close(openat(base_fd, file, O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
			fchmodat(base_fd, file, 0666, 0);
		}
		if (ways[i] & CHILD_PLAIN && geteuid() == 0)
			fchownat(base_fd, "rw1/file", 12345, 12345,
				0); /* protected_hardlinks asks for the owner */
		close(base_fd);
		cr_expect_child(check_landlock, ways[i], base);
		path_remove_tree(tmp_fd, base + 5);
	}
	close(tmp_fd);
}

static int check_kill_scope(struct child *child)
{
	struct fault fault = { 0 };
	int ruleset = -EBADF, root = open("/", O_PATH | O_CLOEXEC), status;
	pid_t outside, inside;

	outside = fork();
	if (outside == 0)
		for (;;)
			pause();
	CHECK_FAULT(caps_no_new_privs(&fault), &fault);
	CHECK_FAULT(landlock_new_scope(root, LANDLOCK_SCOPE_SIGNALS, &ruleset, &fault), &fault);
	CHECK_FAULT(landlock_restrict(ruleset, &fault), &fault);
	inside = fork();
	if (inside == 0)
		for (;;)
			pause();
	CHECK(kill(outside, SIGKILL) < 0 && errno == EPERM);
	CHECK(kill(-1, SIGKILL) == 0);	/* the whole domain but ourselves */
	CHECK(waitpid(inside, &status, 0) == inside);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	CHECK(waitpid(outside, &status, WNOHANG) == 0);
	return 0;
}

static int check_kill_scope_in_pidns(struct child *child)
{
	struct child inner = { .argument = NULL };
	int r = child_run(&inner, check_kill_scope, 0);

	memcpy(child->report, inner.report, sizeof(inner.report));
	return r;
}

/* kill(-1) in a signal scope reaches the scope and nothing else. */
Test(landlock, signal_scope_bounds_kill)
{
	if (landlock_abi() < 6 || !child_has_userns(CHILD_PIDNS))
		cr_skip_test("no Landlock scopes here");
	/* In a pid namespace: were the scope broken, kill(-1) would meet the whole machine. */
	cr_assert_child(check_kill_scope_in_pidns, CHILD_USERNS | CHILD_PIDNS, NULL);
}
