/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From the table to a program. What is promised: for every number, architecture and argument the program
 * answers as the table says; the tests run it in an interpreter for all of them. Which call gets which answer
 * is the table's.
 *
 * The program is small, since the cost of loading follows its length: neighbouring numbers with the same
 * answer are one range, a few single numbers in it are told apart one by one, and the rest is a balanced
 * search. Up to the search only such instructions are used as the kernel can run ahead of time: for calls
 * that need no look at arguments it keeps a bitmap, and the filter costs them next to nothing.
 *
 * Code is made from its end to its beginning, so that the target of each jump is known when the jump is made.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernel/compat.h"
#include "kernel/seccomp-table.h"
#include "kernel/seccomp.h"

#if defined(__x86_64__)
#define NATIVE_ARCH 0xc000003eU
#elif defined(__aarch64__)
#define NATIVE_ARCH 0xc00000b7U
#endif

#define MAX_INSNS 1024
#define MAX_NUMBER 512 /* of system calls; what is above answers ENOSYS, the x32 numbers among them */

/* The instructions of classic BPF that are used. */
enum {
	OP_LOAD = 0x20,		/* A = word of struct seccomp_data at k */
	OP_JUMP = 0x05,		/* to pc + 1 + k */
	OP_EQUAL = 0x15,	/* A == k ? jt : jf */
	OP_GREATER = 0x25,	/* A > k */
	OP_AT_LEAST = 0x35,	/* A >= k */
	OP_ANY_BIT = 0x45,	/* A & k */
	OP_AND = 0x54,		/* A &= k */
	OP_RETURN = 0x06,
};
enum { DATA_NUMBER = 0, DATA_ARCH = 4 };
/* Security: only the low half of an argument is looked at, because the kernel looks at no more of those that
 * are checked here (int, unsigned int). Both architectures are little-endian. */
#define DATA_ARGUMENT(n) (16 + 8 * (uint32_t)(n))

#define RETURN_ALLOW 0x7fff0000U
#define RETURN_ERRNO(e) (0x00050000U | (uint32_t)(e))

/* insns[first] .. insns[MAX_INSNS - 1] is what there is; a place is counted from the end and stays valid. */
struct code {
	struct filter_insn insns[MAX_INSNS];
	uint32_t first;
	bool failed;
};
typedef uint32_t place;

static place emit(struct code *code, uint16_t op, uint32_t k, uint8_t jt, uint8_t jf)
{
	if (code->first == 0) {
		code->failed = true;
		return MAX_INSNS;
	}
	code->insns[--code->first] = (struct filter_insn){ .code = op, .jt = jt, .jf = jf, .k = k };
	return MAX_INSNS - code->first;
}

static uint32_t distance(const struct code *code, place target)
{
	return MAX_INSNS - code->first - target;
}

/* A place from where `target` is near enough for a conditional jump, even behind another instruction or two.
 */
static place bring_near(struct code *code, place target)
{
	if (distance(code, target) <= 250)
		return target;
	return emit(code, OP_JUMP, distance(code, target), 0, 0);
}

static place emit_branch(struct code *code, uint16_t op, uint32_t k, place if_true, place if_false)
{
	if_true = bring_near(code, if_true);
	if_false = bring_near(code, if_false);
	return emit(code, op, k, (uint8_t)distance(code, if_true), (uint8_t)distance(code, if_false));
}

/* A is one of the values ? if_true : if_false */
static place emit_one_of(struct code *code, const uint32_t *values, size_t n, place if_true, place if_false)
{
	place here = if_false;

	for (size_t i = n; i > 0; i--)
		here = emit_branch(code, OP_EQUAL, values[i - 1], if_true, here);
	return here;
}

static place emit_load(struct code *code, uint32_t offset, place next)
{
	/* Loads fall through, so what follows must lie right behind. */
	if (distance(code, next) != 0)
		emit(code, OP_JUMP, distance(code, next), 0, 0);
	return emit(code, OP_LOAD, offset, 0, 0);
}

static place emit_socket(struct code *code, place allow, place eperm)
{
	static const uint32_t unix_family = 1, netlink_family = 16, inet_families[] = { 2, 10 },
			      types[] = { 1, 2 };
	place no_family = emit(code, OP_RETURN, RETURN_ERRNO(EAFNOSUPPORT), 0, 0);
	place no_protocol = emit(code, OP_RETURN, RETURN_ERRNO(EPROTONOSUPPORT), 0, 0);
	place inet, netlink, here;

	here = emit_one_of(code, filter_inet_protocols, n_filter_inet_protocols, allow, no_protocol);
	inet = emit_load(code, DATA_ARGUMENT(2), here);
	here = emit_one_of(code, types, ELEMENTSOF(types), inet, eperm);
	if (distance(code, here) != 0)
		here = emit(code, OP_JUMP, distance(code, here), 0, 0);
	emit(code, OP_AND, 0xf, 0, 0);	/* above are SOCK_CLOEXEC and SOCK_NONBLOCK */
	inet = emit(code, OP_LOAD, DATA_ARGUMENT(1), 0, 0);
	/* NETLINK_ROUTE alone: interfaces and addresses of the box's own network. */
	here = emit_branch(code, OP_EQUAL, 0, allow, no_protocol);
	netlink = emit_load(code, DATA_ARGUMENT(2), here);
	here = emit_one_of(code, inet_families, ELEMENTSOF(inet_families), inet, no_family);
	here = emit_one_of(code, &netlink_family, 1, netlink, here);
	here = emit_one_of(code, &unix_family, 1, allow, here);
	return emit_load(code, DATA_ARGUMENT(0), here);
}

/* setpriority(which, who) and ioprio_set(which, who): a greater `which` means all processes of a user. */
static place emit_priority(struct code *code, uint32_t max_which, place allow, place eperm)
{
	place who = emit_load(code, DATA_ARGUMENT(1), emit_branch(code, OP_EQUAL, 0, allow, eperm));

	return emit_load(code, DATA_ARGUMENT(0), emit_branch(code, OP_GREATER, max_which, eperm, who));
}

static place emit_socketpair(struct code *code, place allow)
{
	place no_family = emit(code, OP_RETURN, RETURN_ERRNO(EAFNOSUPPORT), 0, 0);

	return emit_load(code, DATA_ARGUMENT(0), emit_branch(code, OP_EQUAL, 1, allow, no_family));
}

static void emit_actions(struct code *code, place actions[N_ACTIONS])
{
	place allow = emit(code, OP_RETURN, RETURN_ALLOW, 0, 0);
	place eperm = emit(code, OP_RETURN, RETURN_ERRNO(EPERM), 0, 0);

	actions[ACTION_ALLOW] = allow;
	actions[ACTION_EPERM] = eperm;
	actions[ACTION_ENOSYS] = emit(code, OP_RETURN, RETURN_ERRNO(ENOSYS), 0, 0);
	actions[ACTION_CLONE] = emit_load(
		code, DATA_ARGUMENT(0), emit_branch(code, OP_ANY_BIT, FILTER_CLONE_NEW, eperm, allow));
	actions[ACTION_IOCTL] = emit_load(code, DATA_ARGUMENT(1),
		emit_one_of(code, filter_ioctls_denied, n_filter_ioctls_denied, eperm, allow));
	actions[ACTION_SELF] =
		emit_load(code, DATA_ARGUMENT(0), emit_branch(code, OP_EQUAL, 0, allow, eperm));
	actions[ACTION_PRIORITY] = emit_priority(code, 1, allow, eperm);
	actions[ACTION_IOPRIO] = emit_priority(code, 2, allow, eperm);
	actions[ACTION_SOCKET] = emit_socket(code, allow, eperm);
	actions[ACTION_SOCKETPAIR] = emit_socketpair(code, allow);
	actions[ACTION_PERSONALITY] = emit_load(code, DATA_ARGUMENT(0),
		emit_one_of(code, filter_personalities, n_filter_personalities, allow, eperm));
}

struct range {
	uint32_t first;
	uint32_t last;
	enum filter_action action;
};

/* Neighbouring ranges that are told apart without a search: one action for all but a few single numbers. */
struct group {
	size_t low, high;	/* ranges[low] .. ranges[high - 1] */
	size_t base;		/* the range whose action is that of all but the single numbers */
};
#define MAX_SINGLES 4

static bool is_single(const struct range *range)
{
	return range->first == range->last;
}

/* True when ranges[low] .. ranges[high - 1] are one action (that of `base`) and at most MAX_SINGLES single
 * numbers. */
static bool fits(const struct range *ranges, const struct group *group)
{
	size_t n_singles = 0;

	for (size_t i = group->low; i < group->high; i++) {
		if (ranges[i].action == ranges[group->base].action)
			continue;
		if (!is_single(&ranges[i]) || ++n_singles > MAX_SINGLES)
			return false;
	}
	return true;
}

/* Longest group that begins at ranges[low]. */
static struct group make_group(const struct range *ranges, size_t low, size_t n)
{
	struct group group = { .low = low, .high = low + 1, .base = low };

	while (group.high < n) {
		struct group longer = group;

		longer.high++;
		if (!fits(ranges, &longer) && !is_single(&ranges[longer.high - 1]))
			longer.base = longer.high - 1;
		if (!fits(ranges, &longer))
			break;
		group = longer;
	}
	return group;
}

static place emit_group(
	struct code *code, const struct range *ranges, const struct group *group, const place *actions)
{
	enum filter_action base = ranges[group->base].action;
	place here = actions[base];

	for (size_t i = group->low; i < group->high; i++)
		if (ranges[i].action != base)
			here = emit_branch(code, OP_EQUAL, ranges[i].first, actions[ranges[i].action], here);
	return here;
}

/* The group that A lies in, among groups[low] .. groups[high - 1]. */
static place emit_search(struct code *code, const struct range *ranges, const struct group *groups,
	size_t low, size_t high, const place *actions)
{
	size_t middle = (low + high) / 2;
	place upper, lower;

	if (high - low == 1)
		return emit_group(code, ranges, &groups[low], actions);
	upper = emit_search(code, ranges, groups, middle, high, actions);
	lower = emit_search(code, ranges, groups, low, middle, actions);
	return emit_branch(code, OP_AT_LEAST, ranges[groups[middle].low].first, upper, lower);
}

static size_t make_ranges(const uint8_t *actions, struct range *ranges)
{
	size_t n = 0;

	for (uint32_t number = 0; number <= MAX_NUMBER; number++) {
		enum filter_action action =
			number < MAX_NUMBER ? (enum filter_action)actions[number] : ACTION_ENOSYS;

		if (n == 0 || ranges[n - 1].action != action)
			ranges[n++] = (struct range){ .first = number, .action = action };
		ranges[n - 1].last = number;
	}
	ranges[n - 1].last = UINT32_MAX;
	return n;
}

static place emit_numbers(struct code *code, const uint8_t *actions, const place *places)
{
	struct range ranges[MAX_NUMBER + 1];
	struct group groups[MAX_NUMBER + 1];
	size_t n = make_ranges(actions, ranges), n_groups = 0;

	for (size_t low = 0; low < n; low = groups[n_groups++].high)
		groups[n_groups] = make_group(ranges, low, n);
	return emit_search(code, ranges, groups, 0, n_groups, places);
}

static void emit_program(struct code *code, const uint8_t *actions)
{
	place places[N_ACTIONS], here;

	code->first = MAX_INSNS;
	code->failed = false;
	emit_actions(code, places);
	here = emit_numbers(code, actions, places);
	here = emit_load(code, DATA_NUMBER, here);
	/* Security: the numbers mean other calls on another architecture; i386 is reached by int 0x80. */
	here = emit_branch(code, OP_EQUAL, NATIVE_ARCH, here, places[ACTION_ENOSYS]);
	emit_load(code, DATA_ARCH, here);
}

static int allow_names(const char *const *names, uint8_t *actions, abox_error **reterr)
{
	for (size_t i = 0; names && names[i]; i++) {
		const struct filter_entry *entry = filter_find(names[i]);
		char where[48];
		int number;

		snprintf(where, sizeof(where), "/seccomp/allow/%zu", i);
		if (!entry)
			return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_PLAN, where,
				"'%s' is no system call that can be allowed", names[i]);
		if (!entry->allowable && entry->action != ACTION_ALLOW)
			return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_PLAN, where,
				"the system call '%s' is never allowed, because the walls of a box depend on "
				"that",
				names[i]);
		number = filter_number_of(entry);
		if (number >= 0 && number < MAX_NUMBER)
			actions[number] = ACTION_ALLOW;
	}
	return 0;
}

int filter_compile(const struct filter_policy *policy, struct filter_insn **retprogram, size_t *retn_insns,
	abox_error **reterr)
{
	_cleanup_(freep) struct code *code = NULL;
	uint8_t actions[MAX_NUMBER] = { 0 };
	struct filter_insn *program;
	size_t n;
	int r;

	for (size_t i = 0; i < n_filter_table; i++) {
		int number = filter_number_of(&filter_table[i]);

		if (number >= 0 && number < MAX_NUMBER)
			actions[number] = (uint8_t)filter_table[i].action;
	}
	r = allow_names(policy->allow, actions, reterr);
	if (r < 0)
		return r;
	code = malloc(sizeof(*code));
	if (!code)
		return ABOX_E_MEMORY;
	emit_program(code, actions);
	if (code->failed)
		return error_set(reterr, ABOX_E_LIMIT, ABOX_STAGE_PLAN, "seccomp",
			"the system call filter is too long");
	n = MAX_INSNS - code->first;
	program = malloc(n * sizeof(*program));
	if (!program)
		return ABOX_E_MEMORY;
	memcpy(program, code->insns + code->first, n * sizeof(*program));
	*retprogram = program;
	*retn_insns = n;
	return 0;
}

enum filter_verdict filter_verdict_of(const char *name, bool *retallowable)
{
	const struct filter_entry *entry = filter_find(name);

	*retallowable = entry && (entry->allowable || entry->action == ACTION_ALLOW);
	if (!entry || entry->action == ACTION_ENOSYS)
		return FILTER_UNKNOWN;
	if (entry->action == ACTION_EPERM)
		return FILTER_DENY;
	return entry->action == ACTION_ALLOW ? FILTER_ALLOW : FILTER_CHECK;
}
