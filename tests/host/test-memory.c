/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * T18-6: lack of memory at every allocation of a box's life, one after the other, through the public API.
 * Each call ends with a code and gives all memory back, what it had begun is undone, and the box is still the
 * caller's to stop. The allocator of this program is replaced for it, so the test is a program of its own,
 * left out under sanitizers, which bring theirs.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);
void __libc_free(void *memory);

/* Of this thread: the others of the test framework are none of the library's. */
static _Thread_local long countdown; /* 0: never fails; else the how many-th allocation from now fails */
static _Thread_local bool lasting; /* and all after it */
static _Thread_local bool out; /* it has */
static _Thread_local long live; /* allocations that were not released */

static bool fails(void)
{
	if (countdown > 0 && --countdown == 0)
		out = true;
	else if (!out || !lasting)
		return false;
	errno = ENOMEM;
	return true;
}

static void *counted(void *memory)
{
	live += memory != NULL;
	return memory;
}

void *malloc(size_t size)
{
	return fails() ? NULL : counted(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
	return fails() ? NULL : counted(__libc_calloc(n, size));
}

void *realloc(void *old, size_t size)
{
	void *memory;

	if (fails())
		return NULL;
	memory = __libc_realloc(old, size);
	if (!old)
		counted(memory);
	else if (!memory && size == 0)
		live--;
	return memory;
}

void free(void *memory)
{
	live -= memory != NULL;
	__libc_free(memory);
}

#define MOST 20000

static const char spec_text[] =
	"{\"version\":1,\"env\":{\"A\":\"1\"},\"mounts\":[{\"source\":\"/usr\",\"target\":\"/data\"}]}";

static abox_spec *spec_new(void)
{
	abox_spec *spec = NULL;

	cr_assert_eq(abox_spec_from_json(spec_text, &spec, NULL), 0);
	return spec;
}

static void arm(long n, bool for_good)
{
	out = false;
	lasting = for_good;
	countdown = n;
}

/* Ends the lack and tells whether it was reached. */
static bool struck(void)
{
	bool reached = out;

	countdown = 0;
	out = false;
	return reached;
}

/*
 * One try with the n-th allocation failing, once or from then on. Answers whether it was reached; what the
 * try has answered must be a result or an error, and all memory back.
 */
typedef bool (*attempt_fn)(void *subject, long n, bool for_good, int *retanswer);

/* Tries n = 1, 2, ... until none is left to fail: then the answer must be good. */
static void exhaust(attempt_fn attempt, void *subject, int least_refused)
{
	struct leaks *before = leaks_take();

	for (int for_good = 0; for_good < 2; for_good++) {
		int refused = 0, r = -1;
		bool reached = true;
		long n = 0;

		attempt(subject, 0, false, &r); /* what is made once and kept, is made here */
		cr_assert_eq(r, 0, "%s", abox_code_name(r));
		while (reached && ++n < MOST) {
			long had = live;

			reached = attempt(subject, n, for_good, &r);
			cr_expect_eq(live, had, "allocation %ld: %ld are lost", n, live - had);
			refused += r < 0;
		}
		cr_assert_eq(r, 0, "%s", abox_code_name(r));
		cr_assert_lt(n, MOST);
		cr_assert_geq(refused, least_refused);
		cr_log_info("%ld allocations, %d refusals", n - 1, refused);
	}
	assert_no_leaks(before);
}

struct compiling {
	abox_spec *spec;
	char digest[128]; /* of the plan as it must be */
};

static bool try_compile(void *subject, long n, bool for_good, int *retanswer)
{
	struct compiling *compiling = subject;
	abox_plan *plan = NULL;
	abox_error *error = NULL;
	bool reached;
	int r;

	arm(n, for_good);
	r = abox_plan_compile(compiling->spec, &plan, &error);
	reached = struck();
	cr_assert(r < 0 ? !plan : plan && !error, "allocation %ld: %d", n, r);
	if (plan && n == 0)
		snprintf(compiling->digest, sizeof(compiling->digest), "%s", abox_plan_get_digest(plan));
	/* Security: a plan that was made with less memory promises all that it would have promised with more.
	 */
	if (plan)
		cr_expect_str_eq(abox_plan_get_digest(plan), compiling->digest, "allocation %ld", n);
	abox_plan_unref(plan);
	abox_error_free(error);
	*retanswer = r;
	return reached;
}

/* A plan or a code, never both. */
Test(memory, T18_6_compile, .timeout = 300)
{
	struct compiling compiling = { .spec = spec_new() };

	exhaust(try_compile, &compiling, 20);
	abox_spec_unref(compiling.spec);
}

static bool try_start(void *plan, long n, bool for_good, int *retanswer)
{
	abox_sandbox *box = NULL;
	abox_error *error = NULL;
	bool reached;
	int r;

	arm(n, for_good);
	r = abox_sandbox_start(plan, NULL, &box, &error);
	reached = struck();
	cr_assert(r < 0 ? !box : box && !error, "allocation %ld: %d", n, r);
	if (box)
		stop_box(box);
	abox_error_free(error);
	*retanswer = r;
	return reached;
}

/* What a failed start answers is no box; nothing of one is left either. */
Test(memory, T18_6_start, .timeout = 600)
{
	abox_spec *spec = spec_new();
	abox_plan *plan = NULL;

	cr_assert_eq(abox_plan_compile(spec, &plan, NULL), 0);
	exhaust(try_start, plan, 4);
	abox_plan_unref(plan);
	abox_spec_unref(spec);
}

static bool try_command(void *box, long n, bool for_good, int *retanswer)
{
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT,
		.argv = (const char *const[]){ "echo", "hello", NULL } };
	abox_result *result = NULL;
	abox_error *error = NULL;
	bool reached;
	int r;

	arm(n, for_good);
	r = abox_command_run(box, &options, &result, &error);
	reached = struck();
	cr_assert(r < 0 ? !result : result && !error, "allocation %ld: %d", n, r);
	/* An answer that is good is whole. */
	if (r >= 0) {
		cr_expect_eq(abox_result_get_exit_code(result), 0, "allocation %ld", n);
		cr_expect_str_eq(output_of(result, 1), "hello\n", "allocation %ld", n);
	}
	abox_result_unref(result);
	abox_error_free(error);
	*retanswer = r;
	return reached;
}

/* A command that could not be begun, or whose end could not be told, harms neither the box nor the next
 * command. */
Test(memory, T18_6_run, .timeout = 300)
{
	abox_sandbox *box = box_of("{}");

	exhaust(try_command, box, 4);
	stop_box(box);
}

static bool try_stop(void *unused, long n, bool for_good, int *retanswer)
{
	abox_sandbox *box = box_of("{}");
	char *json = NULL;
	char id[64];
	bool reached;
	int r;

	snprintf(id, sizeof(id), "%s", abox_sandbox_get_id(box));
	arm(n, for_good);
	r = abox_sandbox_stop(box, ABOX_STOP_CANCEL, &json, NULL);
	reached = struck();
	cr_assert(r < 0 || json, "allocation %ld: %d", n, r);
	abox_free(json);
	*retanswer = r;
	if (r < 0)
		r = abox_sandbox_stop(box, ABOX_STOP_CANCEL, NULL, NULL);
	cr_expect(r >= 0 || r == ABOX_E_GONE, "allocation %ld: %s", n, abox_code_name(r));
	abox_sandbox_unref(box);
	cr_assert(wait_until(box_is_gone, id, 10000), "allocation %ld: the box is still there", n);
	return reached;
}

/* A stop that failed for lack of memory can be asked for again; the box ends either way. */
Test(memory, T18_6_stop, .timeout = 600)
{
	exhaust(try_stop, NULL, 1);
}
