/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The verdict on KVM. QEMU is a script here that does what a host may do to a machine: starts it (by emulation), lets it panic,
 * ends at once. A kernel that hangs is met on hosts that have one.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "probe/kvm.h"

#define BOUND_USEC 100000000	/* by emulation, on a busy machine */

static char folder[] = "/tmp/agentbox-kvm-XXXXXX";
static struct machine_host machine;

static void setup(void)
{
	abox_error *error = NULL;

	cr_assert_geq(machine_host_read(NULL, ABOX_STAGE_PROBE, &machine, &error), 0, "%s", abox_error_get_message(error));
	if (machine.blocker[0])
		cr_skip_test("needs a virtual machine: %s: %s", machine.blocker, machine.remedy);
	machine.kvm_closed[0] = 0;
	cr_assert(mkdtemp(folder));
	cr_assert_eq(setenv("ABOX_HOME", folder, 1), 0);
}

static void teardown(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", folder);
	cr_expect_eq(system(command), 0);
}

TestSuite(kvm, .init = setup, .fini = teardown, .timeout = 120);

static void write_qemu(const char *body)
{
	FILE *file;

	snprintf(machine.qemu, sizeof(machine.qemu), "%s/qemu", folder);
	unlink(machine.qemu);
	file = fopen(machine.qemu, "we");
	cr_assert(file);
	fprintf(file, "#!/bin/sh\necho >>%s/starts\n%s\n", folder, body);
	cr_assert_eq(fclose(file), 0);
	cr_assert_eq(chmod(machine.qemu, 0755), 0);
}

static long n_starts(void)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "%s/starts", folder);
	return stat(path, &st) < 0 ? 0 : (long)st.st_size;
}

/* One that starts is started once; another QEMU is another question. */
Test(kvm, a_machine_that_starts_is_started_once)
{
	static const char by_emulation[] =
		"khz=$(awk '/cpu MHz/ { printf \"%d\", $4 * 1000; exit }' /proc/cpuinfo)\n"
		"n=$#\nwhile [ $n -gt 0 ]; do\n"
		"	case $1 in microvm,accel=kvm*) set -- \"$@\" \"microvm,accel=tcg${1#microvm,accel=kvm}\" ;;\n"
		"	console=*) set -- \"$@\" \"tsc=reliable tsc_early_khz=$khz $1\" ;; *) set -- \"$@\" \"$1\" ;; esac\n"
		"	shift\n	n=$((n - 1))\ndone\nexport PATH=/usr/bin:/bin\nexec qemu-system-x86_64 \"$@\"";
	struct kvm_verdict verdict;
	abox_error *error = NULL;

	setenv("PATH", "/usr/bin:/bin", 1);
	write_qemu(by_emulation);
	kvm_recall(&machine, &verdict);
	cr_expect(!verdict.works && strstr(verdict.text, "not tried"), "%s", verdict.text);
	cr_assert_eq(kvm_try(&machine, BOUND_USEC, &verdict, &error), 0, "%s", abox_error_get_message(error));
	cr_assert(verdict.works, "%s", verdict.text);
	memset(&verdict, 0, sizeof(verdict));
	kvm_recall(&machine, &verdict);
	cr_expect(verdict.works);
	cr_assert_eq(kvm_try(&machine, BOUND_USEC, &verdict, &error), 0);
	cr_expect_eq(n_starts(), 1, "it was started %ld times", n_starts());
	write_qemu("exit 1");
	kvm_recall(&machine, &verdict);
	cr_expect(!verdict.works && strstr(verdict.text, "not tried"), "%s", verdict.text);
}

/* What does not start is told with its stage and its last words, and is no machine for boxes. */
Test(kvm, a_machine_that_ends_is_told_with_its_stage)
{
	static const struct {
		const char *body, *told;
	} ends[] = {
		{ "echo 'qemu-system-x86_64: Could not access KVM kernel module' >&2; exit 1",
			"ends at stage kernel: qemu-system-x86_64: Could not access KVM kernel module" },
		{ "printf 'agentbox-guest at modules\\nKernel panic - not syncing: none\\r\\n' >&2", "ends at stage modules: Kernel panic - not syncing: none" },
	};
	struct kvm_verdict verdict;
	abox_error *error = NULL;

	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		write_qemu(ends[i].body);
		cr_assert_eq(kvm_try(&machine, BOUND_USEC, &verdict, &error), 0, "%s", abox_error_get_message(error));
		cr_expect(!verdict.works);
		cr_expect_str_eq(verdict.text, ends[i].told);
		memset(&verdict, 0, sizeof(verdict));
		kvm_recall(&machine, &verdict);
		cr_expect_str_eq(verdict.text, ends[i].told);
	}
	/* where the device does not open nothing is tried */
	snprintf(machine.kvm_closed, sizeof(machine.kvm_closed), "/dev/kvm is closed to this user");
	write_qemu("exit 1");
	cr_assert_eq(kvm_try(&machine, BOUND_USEC, &verdict, &error), 0);
	cr_expect_str_eq(verdict.text, machine.kvm_closed);
	cr_expect_eq(n_starts(), 2);
}
