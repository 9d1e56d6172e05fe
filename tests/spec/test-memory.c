/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Lack of memory at every allocation, one after the other. The allocator of this program is replaced for it,
 * so the test is a program of its own, and left out under sanitizers, which bring theirs.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include <agentbox/spec.h>

#include "spec/spec.h"

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);

static long countdown; /* 0: never fails; else the how many-th allocation from now fails, once */

static bool fails(void)
{
	return countdown > 0 && --countdown == 0;
}

void *malloc(size_t size)
{
	return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *old, size_t size)
{
	return fails() ? NULL : __libc_realloc(old, size);
}

static const char whole[] =
	"{\"name\":\"a\",\"env\":{\"A\":\"1\",\"B\":\"2\"},\"mounts\":[{\"source\":\"/x\",\"target\":\"//x/./"
	"y\"}],"
	"\"network\":{\"mode\":\"allow\",\"allow\":[{\"host\":\"A.test\",\"ports\":[1,2]}]},"
	"\"limits\":{\"memory\":\"1GiB\",\"cpus\":0.5}}";

/* Read, copy, check, dump; 0 or the first failure. What was made is released either way. */
static int read_and_dump(void)
{
	_cleanup_(spec_unrefp) abox_spec *spec = NULL, *copy = NULL;
	_cleanup_(freep) char *dump = NULL, *resolved = NULL, *value = NULL, *keys = NULL;
	_cleanup_(error_freep) abox_error *error = NULL;
	int r;

	r = abox_spec_from_json(whole, &spec, &error);
	if (r >= 0)
		r = abox_spec_copy(spec, &copy);
	if (r >= 0)
		r = abox_spec_check(copy, &error);
	if (r >= 0)
		r = abox_spec_dump(copy, &dump);
	if (r >= 0)
		r = abox_spec_dump_resolved(copy, &resolved);
	if (r >= 0)
		r = abox_spec_get(copy, "/limits/pids", &value, &error);
	if (r >= 0)
		r = abox_spec_describe_keys(ABOX_KEYS_MARKDOWN, &keys);
	return r;
}

/* Each failed allocation is answered with ABOX_E_MEMORY, until none is left to fail. */
Test(memory, reading_survives_lack_of_memory)
{
	int r = -1;
	long n;

	for (n = 1; n < 100000; n++) {
		countdown = n;
		r = read_and_dump();
		if (countdown > 0)
			break;
		cr_assert_eq(r, ABOX_E_MEMORY, "allocation %ld: %d", n, r);
	}
	countdown = 0;
	cr_assert_eq(r, 0);
	cr_assert_gt(n, 100);
}

/* A refusal stays one when there is no memory to say why. */
Test(memory, refusals_survive_lack_of_memory)
{
	static const char text[] = "{\"name\":\"a\",\"limits\":{\"memory\":0}}";

	for (long n = 1;; n++) {
		_cleanup_(error_freep) abox_error *error = NULL;
		abox_spec *spec = NULL;
		int r;

		countdown = n;
		r = abox_spec_from_json(text, &spec, &error);
		cr_assert_null(spec);
		cr_assert(r == ABOX_E_MEMORY || r == ABOX_E_INVALID, "allocation %ld: %d", n, r);
		if (countdown > 0)
			break;
	}
	countdown = 0;
}

/* A setter that failed for lack of memory has changed nothing that counts, and works the next time. */
Test(memory, setters_survive_lack_of_memory)
{
	_cleanup_(spec_unrefp) abox_spec *spec = NULL;
	_cleanup_(freep) char *before = NULL;

	cr_assert_eq(abox_spec_from_json(whole, &spec, NULL), 0);
	cr_assert_eq(abox_spec_dump(spec, &before), 0);
	for (long n = 1;; n++) {
		_cleanup_(freep) char *after = NULL;
		bool done;
		int r;

		countdown = n;
		r = abox_spec_set_json(spec, "/network/deny/-", "{\"host\":\"B.test\",\"ports\":[3]}", NULL);
		if (r == 0)
			r = abox_spec_clear(spec, "/network/deny", NULL);
		done = countdown > 0;
		countdown = 0;
		cr_assert(r == 0 || r == ABOX_E_MEMORY, "allocation %ld: %d", n, r);
		cr_assert_eq(abox_spec_clear(spec, "/network/deny", NULL), 0);
		cr_assert_eq(abox_spec_dump(spec, &after), 0);
		cr_assert_str_eq(before, after);
		if (done)
			break;
	}
}
