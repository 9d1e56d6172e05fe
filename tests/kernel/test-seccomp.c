/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "kernel/seccomp-table.h"
#include "kernel/seccomp.h"

#if defined(__x86_64__)
#define NATIVE 0xc000003eU
#else
#define NATIVE 0xc00000b7U
#endif
#define ALLOWED 0x7fff0000U
#define ERRNO(e) (0x00050000U | (uint32_t)(e))
#define BROKEN 0xdeadbeefU	/* the program left its bounds or did not end */

/* As the kernel lays it out for a filter. */
struct data {
	uint32_t number;
	uint32_t arch;
	uint64_t ip;
	uint64_t args[6];
};

/* What the kernel would answer; counts the steps. */
static uint32_t interpret(
	const struct filter_insn *program, size_t n, const struct data *data, unsigned int *retsteps)
{
	uint32_t a = 0;
	size_t pc = 0;

	for (*retsteps = 0; *retsteps < 4096; ++*retsteps) {
		const struct filter_insn *insn;
		bool jump;

		if (pc >= n)
			return BROKEN;
		insn = &program[pc++];
		switch (insn->code) {
		case 0x20:
			if (insn->k % 4 != 0 || insn->k > sizeof(*data) - 4)
				return BROKEN;
			memcpy(&a, (const char *)data + insn->k, 4);
			continue;
		case 0x05:
			pc += insn->k;
			continue;
		case 0x54:
			a &= insn->k;
			continue;
		case 0x06:
			return insn->k;
		case 0x15:
			jump = a == insn->k;
			break;
		case 0x25:
			jump = a > insn->k;
			break;
		case 0x35:
			jump = a >= insn->k;
			break;
		case 0x45:
			jump = a & insn->k;
			break;
		default:
			return BROKEN;
		}
		pc += jump ? insn->jt : insn->jf;
	}
	return BROKEN;
}

static bool one_of(uint64_t value, const uint32_t *values, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((uint32_t)value == values[i])
			return true;
	return false;
}

static uint32_t answer_socket(const uint64_t *args)
{
	switch ((uint32_t)args[0]) {
	case 1:
		return ALLOWED;
	case 16:
		return (uint32_t)args[2] == 0 ? ALLOWED : ERRNO(EPROTONOSUPPORT);
	case 2:
	case 10:
		if ((args[1] & 0xf) != 1 && (args[1] & 0xf) != 2)
			return ERRNO(EPERM);
		return one_of(args[2], filter_inet_protocols, n_filter_inet_protocols)
			       ? ALLOWED
			       : ERRNO(EPROTONOSUPPORT);
	default:
		return ERRNO(EAFNOSUPPORT);
	}
}

/* What the table says, written a second time and in another way. */
static uint32_t answer(enum filter_action action, const uint64_t *args)
{
	bool good = false;

	switch (action) {
	case ACTION_ENOSYS:
	case N_ACTIONS:
		return ERRNO(ENOSYS);
	case ACTION_EPERM:
		return ERRNO(EPERM);
	case ACTION_ALLOW:
		return ALLOWED;
	case ACTION_SOCKET:
		return answer_socket(args);
	case ACTION_SOCKETPAIR:
		return (uint32_t)args[0] == 1 ? ALLOWED : ERRNO(EAFNOSUPPORT);
	case ACTION_CLONE:
		good = !(args[0] & (0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 |
					   0x40000000));
		break;
	case ACTION_IOCTL:
		good = !one_of(args[1], filter_ioctls_denied, n_filter_ioctls_denied);
		break;
	case ACTION_SELF:
		good = (uint32_t)args[0] == 0;
		break;
	case ACTION_PRIORITY:
		good = (uint32_t)args[0] <= 1 && (uint32_t)args[1] == 0;
		break;
	case ACTION_IOPRIO:
		good = (uint32_t)args[0] <= 2 && (uint32_t)args[1] == 0;
		break;
	case ACTION_PERSONALITY:
		good = one_of(args[0], filter_personalities, n_filter_personalities);
		break;
	}
	return good ? ALLOWED : ERRNO(EPERM);
}

static const uint64_t cases[] = {
	0,
	1,
	2,
	3,
	4,
	5,
	6,
	8,
	9,
	10,
	11,
	15,
	16,
	17,
	38,
	40,
	44,
	58,
	132,
	262,
	256,
	0x80,
	0x802,
	0x80001,
	0x80003,
	0x20000,
	0x40000,
	0x20008,
	0x3d0f00,
	0x1200011,
	0x10000011,
	0x2000000,
	0x4000000,
	0x8000000,
	0x20000000,
	0x40000000,
	0x7e020000,
	0x5401,
	0x5412,
	0x541c,
	0x541d,
	0x5423,
	0xffffffff,
	0x100005412,
	0x7fffffff00005412,
	0xffffffff00000000,
	0x100000000,
	0x100000001,
	0xffffffffffffffff,
};

static void actions_by_number(uint8_t *actions, size_t n, const char *const *allow)
{
	memset(actions, 0, n);
	for (size_t i = 0; i < n_filter_table; i++) {
		int number = filter_number_of(&filter_table[i]);

		if (number >= 0 && (size_t)number < n)
			actions[number] = (uint8_t)filter_table[i].action;
		for (size_t j = 0; allow && allow[j]; j++)
			if (number >= 0 && strcmp(allow[j], filter_table[i].name) == 0)
				actions[number] = ACTION_ALLOW;
	}
}

static struct filter_insn *compile(const char *const *allow, size_t *retn)
{
	_cleanup_(error_freep) abox_error *error = NULL;
	struct filter_policy policy = { .allow = allow };
	struct filter_insn *program = NULL;

	cr_assert_eq(filter_compile(&policy, &program, retn, &error), 0, "%s",
		error ? abox_error_get_message(error) : "");
	return program;
}

static void check_all(const char *const *allow)
{
	static const uint32_t arches[] = { NATIVE, 0x40000003, 0x40000028, 0xc00000b7, 0xc000003e, 0,
		0xffffffff };
	uint8_t actions[2048];
	struct filter_insn *program;
	unsigned int steps, longest = 0;
	size_t n, n_checked = 0;

	program = compile(allow, &n);
	actions_by_number(actions, sizeof(actions), allow);
	for (size_t a = 0; a < ELEMENTSOF(arches); a++)
		for (uint32_t number = 0; number < 2048 + 700 + 3; number++) {
			struct data data = { .arch = arches[a] };
			enum filter_action action;

			/* 0..2047, the x32 numbers, and the greatest ones */
			data.number = number < 2048   ? number
				      : number < 2748 ? 0x40000000 + number - 2048
						      : UINT32_MAX - (number - 2748);
			action = arches[a] == NATIVE && data.number < 2048
					 ? (enum filter_action)actions[data.number]
					 : ACTION_ENOSYS;
			for (size_t i = 0;
				i < ELEMENTSOF(cases) * (action > ACTION_ALLOW ? ELEMENTSOF(cases) : 1);
				i++) {
				uint32_t got;

				data.args[0] = cases[i % ELEMENTSOF(cases)];
				data.args[1] = cases[i / ELEMENTSOF(cases)];
				data.args[2] = cases[(i * 7 + 3) % ELEMENTSOF(cases)];
				got = interpret(program, n, &data, &steps);
				if (got !=
					answer(action,
						data.args)) /* an assertion each would be most of the time */
					cr_assert_fail("number %u arch %x args %llx %llx %llx: %x",
						data.number, data.arch, (unsigned long long)data.args[0],
						(unsigned long long)data.args[1],
						(unsigned long long)data.args[2], got);
				if (action <= ACTION_ALLOW && steps > longest)
					longest = steps;
				n_checked++;
			}
		}
	cr_assert_gt(n_checked, 200000);
	cr_assert_leq(longest, 14, "%u steps for a call without a look at arguments", longest);
	cr_assert_leq(n, 200, "%zu instructions", n);
	free(program);
}

/* The program answers as the table for every number, architecture and argument, and stays small. */
Test(seccomp, program_answers_as_the_table)
{
	check_all(NULL);
}

/* The same with calls allowed by name, each of those that can be. */
Test(seccomp, program_answers_as_the_table_with_allowed_names)
{
	const char *names[64];
	size_t n = 0;

	check_all((const char *const[]){ "ptrace", NULL });
	for (size_t i = 0; i < n_filter_table; i++)
		if (filter_table[i].allowable && n < ELEMENTSOF(names) - 1)
			names[n++] = filter_table[i].name;
	names[n] = NULL;
	cr_assert_gt(n, 10);
	check_all(names);
}

/* Socket cases in full: the third argument goes through all values too. */
Test(seccomp, socket_families_types_protocols)
{
	int number = seccomp_syscall_resolve_name_arch(SCMP_ARCH_NATIVE, "socket");
	struct filter_insn *program;
	unsigned int steps;
	size_t n, n_allowed = 0;

	program = compile(NULL, &n);
	for (uint64_t family = 0; family < 64; family++)
		for (uint64_t type = 0; type < 16; type++)
			for (uint64_t protocol = 0; protocol < 300; protocol++) {
				struct data data = { .number = (uint32_t)number, .arch = NATIVE,
					.args = { family, type | 0x80800, protocol | 0x500000000 } };
				uint32_t got = interpret(program, n, &data, &steps);

				if (got != answer_socket(data.args))
					cr_assert_fail("family %u type %u protocol %u", (unsigned int)family,
						(unsigned int)type, (unsigned int)protocol);
				n_allowed += got == ALLOWED;
			}
	/* AF_UNIX of any type and protocol, two INET families of two types and six protocols, one netlink
	 * protocol */
	cr_assert_eq(n_allowed, 16 * 300 + 2 * 2 * 6 + 16);
	free(program);
}

static void add(
	scmp_filter_ctx ctx, uint32_t action, int number, unsigned int n, const struct scmp_arg_cmp *args)
{
	cr_assert_eq(seccomp_rule_add_exact_array(ctx, action, number, n, args), 0, "number %d", number);
}

#define LOW(argument, value) SCMP_CMP(argument, SCMP_CMP_MASKED_EQ, 0xffffffff, value)

static void add_checked(scmp_filter_ctx ctx, enum filter_action action, int number)
{
	if (action == ACTION_SELF)
		add(ctx, SCMP_ACT_ALLOW, number, 1, (struct scmp_arg_cmp[]){ LOW(0, 0) });
	if (action == ACTION_SOCKETPAIR)
		add(ctx, SCMP_ACT_ALLOW, number, 1, (struct scmp_arg_cmp[]){ LOW(0, 1) });
	if (action == ACTION_CLONE)
		add(ctx, SCMP_ACT_ALLOW, number, 1,
			(struct scmp_arg_cmp[]){ SCMP_CMP(0, SCMP_CMP_MASKED_EQ, FILTER_CLONE_NEW, 0) });
	for (unsigned int i = 0; action == ACTION_PERSONALITY && i < n_filter_personalities; i++)
		add(ctx, SCMP_ACT_ALLOW, number, 1,
			(struct scmp_arg_cmp[]){ LOW(0, filter_personalities[i]) });
	for (unsigned int which = 0; which < 3; which++)
		if ((action == ACTION_PRIORITY && which < 2) || action == ACTION_IOPRIO)
			add(ctx, SCMP_ACT_ALLOW, number, 2,
				(struct scmp_arg_cmp[]){ LOW(0, which), LOW(1, 0) });
	if (action == ACTION_SOCKET) {
		add(ctx, SCMP_ACT_ALLOW, number, 1, (struct scmp_arg_cmp[]){ LOW(0, 1) });
		add(ctx, SCMP_ACT_ALLOW, number, 2, (struct scmp_arg_cmp[]){ LOW(0, 16), LOW(2, 0) });
		for (unsigned int i = 0; i < 4 * n_filter_inet_protocols; i++)
			add(ctx, SCMP_ACT_ALLOW, number, 3,
				(struct scmp_arg_cmp[]){ LOW(0, i & 1 ? 2 : 10),
					SCMP_CMP(1, SCMP_CMP_MASKED_EQ, 0xf, i & 2 ? 1 : 2),
					LOW(2, filter_inet_protocols[i / 4]) });
	}
}

/* libseccomp's own filter from the same table. ioctl is left out: it is "all but", which libseccomp says
 * otherwise. */
static struct filter_insn *compile_by_libseccomp(size_t *retn)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
	int fd = memfd_create("bpf", MFD_CLOEXEC);
	struct filter_insn *program;
	off_t size;

	cr_assert_not_null(ctx);
	cr_assert_eq(seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS)), 0);
	for (size_t i = 0; i < n_filter_table; i++) {
		enum filter_action action = filter_table[i].action;
		int number = filter_number_of(&filter_table[i]);

		if (number < 0)
			continue;
		if (action == ACTION_ALLOW || action == ACTION_IOCTL)
			add(ctx, SCMP_ACT_ALLOW, number, 0, NULL);
		else if (action == ACTION_EPERM)
			add(ctx, SCMP_ACT_ERRNO(EPERM), number, 0, NULL);
		else
			add_checked(ctx, action, number);
	}
	cr_assert_eq(seccomp_export_bpf(ctx, fd), 0);
	seccomp_release(ctx);
	size = lseek(fd, 0, SEEK_END);
	program = malloc((size_t)size);
	cr_assert_eq(fd_pread_all(fd, program, (size_t)size, 0), size);
	close(fd);
	*retn = (size_t)size / sizeof(*program);
	return program;
}

/* Two compilers, one table: they allow the same calls and deny the same calls. (Which errno a failed check
 * gives is ours.) */
Test(seccomp, agrees_with_libseccomp)
{
	struct filter_insn *ours, *theirs;
	uint8_t actions[1024];
	size_t n_ours, n_theirs, n_allowed = 0;
	unsigned int steps;

	ours = compile(NULL, &n_ours);
	theirs = compile_by_libseccomp(&n_theirs);
	cr_assert_lt(n_ours, n_theirs);
	actions_by_number(actions, sizeof(actions), NULL);
	for (uint32_t number = 0; number < sizeof(actions); number++)
		for (size_t i = 0;
			i < ELEMENTSOF(cases) * (actions[number] > ACTION_ALLOW ? ELEMENTSOF(cases) : 2);
			i++) {
			struct data data = { .number = number, .arch = i % 97 == 5 ? 0x40000003 : NATIVE };
			uint32_t a, b;

			data.args[0] = cases[i % ELEMENTSOF(cases)];
			data.args[1] = cases[i / ELEMENTSOF(cases)];
			data.args[2] = cases[(i * 7 + 3) % ELEMENTSOF(cases)];
			if (number == (uint32_t)seccomp_syscall_resolve_name_arch(SCMP_ARCH_NATIVE, "ioctl"))
				continue;
			a = interpret(ours, n_ours, &data, &steps);
			b = interpret(theirs, n_theirs, &data, &steps);
			if (b == BROKEN || (a == ALLOWED) != (b == ALLOWED))
				cr_assert_fail("number %u: %x, libseccomp %x", number, a, b);
			n_allowed += a == ALLOWED;
		}
	cr_assert_gt(n_allowed, 20000);
	free(ours);
	free(theirs);
}

/* Each name is a system call somewhere, appears once, and the dangerous ones are not allowable. */
Test(seccomp, table_is_sound)
{
	static const char *const never[] = { "mount", "unshare", "setns", "keyctl", "add_key", "request_key",
		"bpf", "reboot", "open_by_handle_at", "clone", "socket", "init_module", "kexec_load",
		"swapon", "clock_settime", "pivot_root", "move_mount", "ioctl" };
	static const char *const unknown[] = { "clone3", "io_uring_setup", "io_uring_enter",
		"io_uring_register", "listmount", "nonsense" };
	bool allowable;

	for (size_t i = 0; i < n_filter_table; i++) {
		cr_expect_eq(filter_find(filter_table[i].name), &filter_table[i], "%s twice",
			filter_table[i].name);
		if (filter_table[i].number == 0)
			cr_expect_neq(seccomp_syscall_resolve_name(filter_table[i].name), __NR_SCMP_ERROR,
				"%s", filter_table[i].name);
	}
	for (size_t i = 0; i < ELEMENTSOF(never); i++) {
		cr_expect(filter_verdict_of(never[i], &allowable) == FILTER_DENY ||
				  filter_verdict_of(never[i], &allowable) == FILTER_CHECK,
			"%s", never[i]);
		cr_expect_not(allowable, "%s", never[i]);
	}
	for (size_t i = 0; i < ELEMENTSOF(unknown); i++)
		cr_expect_eq(filter_verdict_of(unknown[i], &allowable), FILTER_UNKNOWN, "%s", unknown[i]);
	cr_expect_eq(filter_verdict_of("ptrace", &allowable), FILTER_DENY);
	cr_expect(allowable);
}

/* A name that must not be allowed, or that is none, is refused at its place. */
Test(seccomp, refuses_names)
{
	static const char *const bad[] = { "unshare", "nonsense", "", "clone3", "mount", NULL };

	for (size_t i = 0; bad[i]; i++) {
		const char *const allow[] = { "ptrace", bad[i], NULL };
		struct filter_policy policy = { .allow = allow };
		_cleanup_(error_freep) abox_error *error = NULL;
		struct filter_insn *program = NULL;
		size_t n;

		cr_expect_eq(filter_compile(&policy, &program, &n, &error), ABOX_E_INVALID, "%s", bad[i]);
		cr_expect_str_eq(abox_error_get_place(error), "/seccomp/allow/1");
		cr_expect_null(program);
	}
}
