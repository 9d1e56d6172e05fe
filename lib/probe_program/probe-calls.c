/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Probes of single system calls, foreign system call tables, and numbers that do not exist. Arguments are such that a
 * kernel that lets the call in answers EFAULT, EBADF or EINVAL and changes nothing.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "probe.h"

#define BAD ((long)-4096)	/* no address, no descriptor */

struct call {
	const char *name;
	long number;
	long args[5];
};

static const struct call dangerous_calls[] = {
	{ "userfaultfd", SYS_userfaultfd, { ~0L } },
	{ "bpf", SYS_bpf, { 0, BAD, 8 } },
	{ "perf_event_open", SYS_perf_event_open, { BAD, 0, -1, -1, 0 } },
	{ "fanotify_init", SYS_fanotify_init, { ~0L, 0 } },
	{ "open_by_handle_at", SYS_open_by_handle_at, { -1, BAD, 0 } },
	{ "name_to_handle_at", SYS_name_to_handle_at, { -1, BAD, BAD, BAD, 0 } },
	{ "lookup_dcookie", 212, { 0, BAD, 0 } },
	{ "kexec_load", 246, { 0, 0, BAD, ~0L } },
	{ "kexec_file_load", 320, { -1, -1, 0, BAD, ~0L } },
	{ "init_module", SYS_init_module, { BAD, 0, BAD } },
	{ "finit_module", SYS_finit_module, { -1, BAD, 0 } },
	{ "delete_module", SYS_delete_module, { BAD, 0 } },
	{ "swapon", SYS_swapon, { BAD, 0 } },
	{ "swapoff", SYS_swapoff, { BAD } },
	{ "reboot", SYS_reboot, { 0, 0, 0, 0 } },
	{ "settimeofday", SYS_settimeofday, { BAD, 0 } },
	{ "clock_settime", SYS_clock_settime, { 0, BAD } },
	{ "clock_adjtime", SYS_clock_adjtime, { 0, BAD } },
	{ "adjtimex", SYS_adjtimex, { BAD } },
	{ "acct", SYS_acct, { BAD } },
	{ "quotactl", SYS_quotactl, { ~0L, 0, 0, 0 } },
	{ "syslog", SYS_syslog, { 10, 0, 0 } },
	{ "vhangup", -1, { 0 } },
	{ "sethostname", SYS_sethostname, { BAD, 65 } },
	{ "setdomainname", SYS_setdomainname, { BAD, 65 } },
	{ "personality", SYS_personality, { 0x0040000 /* ADDR_NO_RANDOMIZE */ } },
	{ "personality-read-implies-exec", SYS_personality, { 0x0400000 } },
	{ "move_pages", SYS_move_pages, { 0, 1, BAD, BAD, BAD } },
	{ "migrate_pages", SYS_migrate_pages, { 0, 1, BAD, BAD } },
	{ "mbind", SYS_mbind, { 0, 0, ~0L, BAD, 1 } },
	{ "kcmp", SYS_kcmp, { 1, 1, ~0L, 0, 0 } },
	{ "process_vm_readv", SYS_process_vm_readv, { 1, BAD, 1, BAD, 1 } },
	{ "process_vm_writev", SYS_process_vm_writev, { 1, BAD, 1, BAD, 1 } },
	{ "pidfd_getfd", 438, { -1, 0, 0 } },
	{ "process_madvise", 440, { -1, BAD, 1, 0, 0 } },
	{ "io_uring_setup", 425, { 1, BAD } },
	{ "io_uring_enter", 426, { -1, 0, 0, 0, 0 } },
	{ "io_uring_register", 427, { -1, 0, 0, 0 } },
	{ "add_key", SYS_add_key, { BAD, BAD, 0, 0, 0 } },
	{ "request_key", SYS_request_key, { BAD, BAD, 0, 0 } },
	{ "keyctl-session", SYS_keyctl, { 0 /* GET_KEYRING_ID */, -3, 0 } },
	{ "keyctl-join", SYS_keyctl, { 1, BAD } },
#if defined(__x86_64__)
	{ "modify_ldt", SYS_modify_ldt, { 0, BAD, 1 } },
	{ "iopl", SYS_iopl, { 4 } },
	{ "ioperm", SYS_ioperm, { 0x80, ~0L, 1 } },
	{ "nfsservctl", 180, { 0 } },
	{ "uselib", 134, { BAD } },
	{ "_sysctl", 156, { BAD } },
	{ "create_module", 174, { BAD } },
#endif
};

/* Calls that newer C libraries try first: denied or not, the answer must let them fall back. */
static const struct call newer_calls[] = {
	{ "faccessat2", 439, { -100, BAD, 0, 0 } },
	{ "openat2", 437, { -100, BAD, BAD, 24 } },
	{ "statx", SYS_statx, { -100, BAD, 0, 0, BAD } },
	{ "rseq", 334, { BAD, 32, 0, 0 } },
	{ "futex_waitv", 449, { BAD, ~0L, 0, 0, 0 } },
	{ "close_range", 436, { 100, 99, 0 } },
	{ "pidfd_open", 434, { -1, 0 } },
	{ "cachestat", 451, { -1, BAD, BAD, 0 } },
	{ "fchmodat2", 452, { -100, BAD, 0, 0 } },
	{ "mseal", 462, { 0, 0, ~0L } },
};

static const struct call *chosen;

static long make_chosen(const char **args)
{
	return RAW(syscall(chosen->number, chosen->args[0], chosen->args[1], chosen->args[2], chosen->args[3], chosen->args[4], 0));
}

static void run_table(const struct call *table, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char name[64];

		if (table[i].number < 0)
			continue;
		chosen = &table[i];
		snprintf(name, sizeof(name), "call:%s", table[i].name);
		report(name, make_chosen, NULL);
	}
}

static int run_calls(const char **args)
{
	run_table(dangerous_calls, sizeof(dangerous_calls) / sizeof(dangerous_calls[0]));
	return 0;
}

static int run_newer(const char **args)
{
	run_table(newer_calls, sizeof(newer_calls) / sizeof(newer_calls[0]));
	return 0;
}

static int run_unknown(const char **args)
{
	static const long numbers[] = { 600, 999, 1000000, -1, 511, 512, 547 };

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		struct call call = { "", numbers[i], { 0 } };
		char name[64];

		chosen = &call;
		snprintf(name, sizeof(name), "unknown:%ld", numbers[i]);
		report(name, make_chosen, NULL);
	}
	return 0;
}

/* -- foreign tables -- */

#if defined(__x86_64__)
static long int80_number;

/* With bad pointers and descriptors in every register: a call that gets in fails for them. */
static long int80(const char **args)
{
	long r;

	__asm__ volatile("push %%rbp\n\tmov $-4096, %%ebp\n\tint $0x80\n\tpop %%rbp"
			 : "=a"(r)
			 : "a"(int80_number), "b"(-4096L), "c"(-4096L), "d"(-4096L), "S"(-4096L), "D"(-4096L)
			 : "memory", "r8", "r9", "r10", "r11");
	return (int)r < 0 && (int)r > -4096 ? (int)r : 0;
}

static long x32_call(const char **args)
{
	long r;

	__asm__ volatile("syscall" : "=a"(r) : "a"(int80_number | 0x40000000L), "D"(-4096L), "S"(-4096L), "d"(-4096L)
			 : "rcx", "r11", "memory");
	return r < 0 && r > -4096 ? r : 0;
}

/* Numbers that end, stop or fork the caller whatever their arguments: they say nothing here that the others do not. */
static bool is_answerless(long number, bool x32)
{
	static const long in_32[] = { 1, 2, 29, 119, 173, 190, 252 };
	static const long in_x32[] = { 15, 34, 57, 58, 60, 231, 513 };

	for (size_t i = 0; i < 7; i++)
		if ((x32 ? in_x32 : in_32)[i] == number)
			return true;
	return false;
}

static void scan(const char *name, probe_function function, long last, bool x32)
{
	unsigned killed = 0, unknown = 0, entered = 0;

	for (long number = 0; number <= last; number++) {
		int signal_number;
		long r;

		if (is_answerless(number, x32))
			continue;
		int80_number = number;
		r = attempt(function, NULL, &signal_number);
		if (signal_number == SIGSYS)
			killed++;
		else if (!signal_number && r == -ENOSYS)
			unknown++;
		else {
			entered++;
			printf("%s:%ld entered %s\n", name, number, signal_number ? "signal" : errno_name((int)-r));
		}
	}
	printf("%s:summary killed=%u enosys=%u entered=%u\n", name, killed, unknown, entered);
}

static int run_foreign(const char **args)
{
	scan("int80", int80, 470, false);
	scan("x32", x32_call, 560, true);
	return 0;
}
#else
static int run_foreign(const char **args)
{
	puts("int80:summary killed=0 enosys=0 entered=0\nx32:summary killed=0 enosys=0 entered=0");
	return 0;
}
#endif

const struct probe_group probe_calls_groups[] = {
	{ "calls", "", run_calls },
	{ "newer", "", run_newer },
	{ "unknown", "", run_unknown },
	{ "foreign", "", run_foreign },
	{ 0 }
};
