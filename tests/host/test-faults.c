/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * T18: fail closed. When a system call that sets a box up fails, the start fails, or the box is all that its plan
 * promises; there is no third way. The calls are made to fail by a filter that the host itself is under, which its
 * helpers inherit.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "support/support.h"

/* Calls of the set-up. What glibc and the loader need as well (mmap, openat) would break the host first. */
static const char *const setup_calls[] = {
	"mount", "pivot_root", "setgroups", "seccomp", "landlock_create_ruleset", "landlock_add_rule",
	"landlock_restrict_self", "openat2", "setns", "unshare", "clone", "clone3", "vfork", "move_mount", "open_tree", "fsopen",
	"fsconfig", "fsmount", "mount_setattr", "umount2", "sethostname", "setresuid", "setresgid", "setuid", "setgid", "capset",
	"pidfd_open", "pidfd_send_signal", "close_range", "memfd_create", "execveat", "signalfd4", "socketpair", "mkdirat", "mkdir",
	"symlinkat", "unlinkat", "fchmodat", "fchownat", "prlimit64", "epoll_create1", "timerfd_create", "setsid", "chroot",
	"fchdir", "renameat", "renameat2", "linkat", "bind", "listen", "ftruncate", "statfs", "mknodat", "prctl",
};

struct fault {
	const char *call;
	int error;
};

static int load_filter(const struct fault *fault)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	int number = seccomp_syscall_resolve_name(fault->call), r;

	if (!filter || number == __NR_SCMP_ERROR)
		return -1;
	r = seccomp_rule_add(filter, SCMP_ACT_ERRNO((unsigned)fault->error), number, 0);
	if (r == 0)
		r = seccomp_load(filter);
	seccomp_release(filter);
	return r;
}

/* Under the filter: a box that starts must prove its walls; a command that runs must have no capabilities. */
static int start_under_fault(void *argument)
{
	const struct fault *fault = argument;
	static const char *const words[] = { "sh", "-c",
		"grep -q '^CapEff:.0000000000000000' /proc/self/status && grep -q '^NoNewPrivs:.1' /proc/self/status &&"
		" grep -q '^Seccomp:.2' /proc/self/status && ! ls /boot /srv >/dev/null 2>&1 || exit 99", NULL };
	abox_sandbox *box = NULL;
	char *json = NULL;
	int r, code = -1;

	if (load_filter(fault) < 0)
		return 77;
	r = try_box("{}", &box);
	if (r < 0)
		return 0;
	r = try_run(box, words, &code);
	if (r >= 0 && code == 99) {
		apart_say("%s %s: a command ran with less than promised", fault->call, strerror(fault->error));
		return 1;
	}
	r = abox_sandbox_verify(box, &json, NULL);
	/* The host's own filter is one more in the box; what is judged is that nothing is open which should not be. */
	if (r == ABOX_E_MISMATCH && json && strstr(json, "\"expected\":\"denied\",\"outcome\":\"allowed\"")) {
		apart_say("%s %s: %s", fault->call, strerror(fault->error), json);
		return 1;
	}
	abox_free(json);
	abox_sandbox_stop(box, ABOX_STOP_CANCEL, NULL, NULL);
	abox_sandbox_unref(box);
	return 0;
}

static void fail_each_with(int error)
{
	char text[4096];

	for (size_t i = 0; i < sizeof(setup_calls) / sizeof(setup_calls[0]); i++) {
		struct fault fault = { setup_calls[i], error };
		int r = apart_run(start_under_fault, &fault, 60, text, sizeof(text));

		cr_expect(r == 0 || r == 77, "%s: %d %s", setup_calls[i], r, text);
	}
	cr_assert_geq(abox_sandbox_gc(NULL, NULL), 0);
}

/* T18-1: each set-up call fails with EPERM. */
Test(faults, T18_1_eperm, .timeout = 600)
{
	struct leaks *before = leaks_take();

	fail_each_with(EPERM);
	assert_no_leaks(before);
}

/* T18-1: with ENOSYS, as on an older kernel: a fallback must be as good. */
Test(faults, T18_1_enosys, .timeout = 600)
{
	struct leaks *before = leaks_take();

	fail_each_with(ENOSYS);
	assert_no_leaks(before);
}

/* T18-1: with ENOMEM. */
Test(faults, T18_1_enomem, .timeout = 600)
{
	struct leaks *before = leaks_take();

	fail_each_with(ENOMEM);
	assert_no_leaks(before);
}

/* The control of the above: the same child without a filter starts a box and proves it. */
static int start_without_fault(void *unused)
{
	abox_sandbox *box = NULL;
	char *json = NULL;

	(void)unused;
	apart_check(try_box("{}", &box) >= 0);
	apart_check(abox_sandbox_verify(box, &json, NULL) == 0);
	apart_check(abox_sandbox_stop(box, ABOX_STOP_CANCEL, NULL, NULL) >= 0);
	return 0;
}

Test(faults, control_starts_and_verifies)
{
	assert_apart(start_without_fault, NULL, 60);
}
