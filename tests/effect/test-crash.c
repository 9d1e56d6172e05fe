/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The loops of effects 5, over a whole life of a task: killed before, in and after every write of the
 * journal, before and after every sync; the N-th write, sync, rename, open and allocation failing, for each N
 * until nothing is touched. After each: the journal verifies, what was told is true and there, nothing
 * happened twice, and the next attempts bring the task to its end. ABOX_TEST_LONG=1 takes every allocation,
 * else one in seven.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "journal/inject.h"
#include "support.h"

TestSuite(crash, .init = test_setup_in_memory, .fini = test_teardown, .timeout = 3000);

/* ---- failure points: the journal's calls, wrapped by the linker ---- */

enum what { KILL_BEFORE, KILL_HALF, KILL_AFTER, FAIL, FAIL_ALLOCATION };

static struct {
	bool armed;
	enum what what;
	int at; /* N */
	int count;
	int code; /* errno of FAIL */
	bool struck;
	int *counted;	/* shared with the parent: how much there was to fail in a life */
} fault;

int __real_jio_open(int dir_fd, const char *name, int flags, mode_t mode);
int __real_jio_pwrite(int fd, const void *data, size_t len, uint64_t offset);
int __real_jio_datasync(int fd);
int __real_jio_sync(int fd);
int __real_jio_rename(int dir_fd, const char *from, const char *to);
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *memory, size_t size);
char *__real_strdup(const char *text);
int __wrap_jio_open(int dir_fd, const char *name, int flags, mode_t mode);
int __wrap_jio_pwrite(int fd, const void *data, size_t len, uint64_t offset);
int __wrap_jio_datasync(int fd);
int __wrap_jio_sync(int fd);
int __wrap_jio_rename(int dir_fd, const char *from, const char *to);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *memory, size_t size);
char *__wrap_strdup(const char *text);

static bool strikes(void)
{
	if (!fault.armed || fault.what == FAIL_ALLOCATION || ++fault.count != fault.at)
		return false;
	fault.struck = true;
	return true;
}

static int around(bool strike, int r)
{
	if (strike && fault.what == KILL_AFTER)
		raise(SIGKILL);
	return r;
}

static int before(bool strike)
{
	if (strike && (fault.what == KILL_BEFORE || fault.what == KILL_HALF))
		raise(SIGKILL);
	return strike && fault.what == FAIL ? -fault.code : 0;
}

int __wrap_jio_open(int dir_fd, const char *name, int flags, mode_t mode)
{
	bool strike = strikes();
	int r = before(strike);

	return r ? r : around(strike, __real_jio_open(dir_fd, name, flags, mode));
}

int __wrap_jio_pwrite(int fd, const void *data, size_t len, uint64_t offset)
{
	bool strike = strikes();
	int r;

	if (strike && (fault.what == KILL_HALF || fault.what == FAIL))
		__real_jio_pwrite(fd, data, len / 2, offset);
	r = before(strike);
	return r ? r : around(strike, __real_jio_pwrite(fd, data, len, offset));
}

int __wrap_jio_datasync(int fd)
{
	bool strike = strikes();
	int r = before(strike);

	return r ? r : around(strike, __real_jio_datasync(fd));
}

int __wrap_jio_sync(int fd)
{
	bool strike = strikes();
	int r = before(strike);

	return r ? r : around(strike, __real_jio_sync(fd));
}

int __wrap_jio_rename(int dir_fd, const char *from, const char *to)
{
	bool strike = strikes();
	int r = before(strike);

	return r ? r : around(strike, __real_jio_rename(dir_fd, from, to));
}

static bool allocation_fails(void)
{
	if (!fault.armed || fault.what != FAIL_ALLOCATION || ++fault.count != fault.at)
		return false;
	fault.struck = true;
	return true;
}

void *__wrap_malloc(size_t size)
{
	return allocation_fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return allocation_fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
	return allocation_fails() ? NULL : __real_realloc(memory, size);
}

char *__wrap_strdup(const char *text)
{
	return allocation_fails() ? NULL : __real_strdup(text);
}

/* ---- a life ---- */

static const char *const keys[] = {"opaque", "checkable", "idempotent"};

static void told(const char *what)
{
	char line[64];

	snprintf(line, sizeof(line), "told %s", what);
	outside_happen(line);
}

static int send(abox_effect *effect, void *userdata)
{
	outside_happen(abox_effect_get_key(effect));
	abox_effect_set_result(effect, "answer", 6, 200);
	return ABOX_DONE_COMMITTED;
}

static int look_outside(abox_effect *effect, void *userdata)
{
	if (outside_count(abox_effect_get_key(effect)) == 0)
		return ABOX_FOUND_ABSENT;
	abox_effect_set_result(effect, "answer", 6, 200);
	return ABOX_FOUND_COMMITTED;
}

static int apply(const char *change_set, void *userdata, abox_error **reterr)
{
	outside_happen(change_set);
	return 0;
}

/* Why a step did not go on, for whoever looks into a failure of this test. */
static void explain(const char *step, int code, abox_error **error)
{
	if (getenv("ABOX_SEED") && !fault.armed)
		fprintf(stderr, "%s: %s: %s\n", step, abox_code_name(code), abox_error_get_message(*error));
	*error = abox_error_free(*error);
}

static int run_effects(abox_task *task)
{
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		struct abox_effect_options options;
		abox_effect *effect = NULL;
		abox_error *error = NULL;
		int r;

		test_options(&options, (int)i, keys[i], "target", "body");
		r = abox_effect_run(task, &options, send, look_outside, NULL, &effect, &error);
		/* A false answer: the stored result is not the true one. */
		if (r == ABOX_EFFECT_COMMITTED &&
			(!abox_effect_get_result(effect, NULL) ||
				strcmp(abox_effect_get_result(effect, NULL), "answer") != 0))
			_exit(99);
		abox_effect_unref(effect);
		if (r != ABOX_EFFECT_COMMITTED) {
			explain(keys[i], r, &error);
			return -1;
		}
		told(keys[i]);
	}
	return 0;
}

static int commit(abox_task *task)
{
	struct abox_effect_options options;
	struct abox_commit_options commit_options;
	abox_effect *effect = NULL;
	abox_error *error = NULL;
	int r;

	test_options(&options, ABOX_EFFECT_CHECKABLE, "deferred", "target", "later");
	options.defer = 1;
	r = abox_effect_begin(task, &options, &effect, &error);
	abox_effect_unref(effect);
	/* Killed while it was carried out: the commit asks the outside. */
	if (r < 0 && r != ABOX_E_UNKNOWN) {
		explain("defer", r, &error);
		return -1;
	}
	error = abox_error_free(error);
	abox_commit_options_init(&commit_options);
	commit_options.change_set = "change set";
	commit_options.apply = apply;
	commit_options.do_fn = send;
	commit_options.check_fn = look_outside;
	r = abox_task_commit(task, &commit_options, &error);
	if (r < 0) {
		explain("commit", r, &error);
		return -1;
	}
	told("commit");
	return 0;
}

static int finish(abox_task *task)
{
	const struct abox_retry_policy policy = {.size = sizeof(policy), .max_runs = 100};
	abox_error *error = NULL;
	int r;

	r = abox_task_stage_begin(task, "run", ABOX_STAGE_REPEATABLE, &policy, &error);
	if (r < 0) {
		explain("stage", r, &error);
		return 1;
	}
	if (run_effects(task) < 0)
		return 1;
	r = abox_task_checkpoint(task, "point", NULL, "state", 5, &error);
	if (r < 0) {
		explain("checkpoint", r, &error);
		return 1;
	}
	if (commit(task) < 0)
		return 1;
	r = abox_task_end(task, "ended", &error);
	if (r < 0) {
		explain("end", r, &error);
		return 1;
	}
	told("end");
	return 0;
}

/* 0: brought to its end; 1: something failed on the way; 2: it had ended before. */
static int live(abox_journal *journal)
{
	int status = 0, r = 1;
	abox_task *task = test_control(journal, "job", 0, &status);

	if (status == ABOX_TASK_FINISHED) {
		abox_task_unref(task);
		return 2;
	}
	if (!task)
		return 1;
	r = finish(task);
	abox_task_unref(task);
	return r;
}

static int life(void *userdata)
{
	abox_journal *journal;
	int r;

	fault.armed = true;
	journal = test_open();
	r = journal ? live(journal) : 1;
	abox_journal_unref(journal);
	fault.armed = false;
	if (fault.counted)
		*fault.counted = fault.count;
	return fault.struck ? r : r + 10; /* untouched: N is beyond the end */
}

/* Somebody who knows the truth decides about what is UNKNOWN. */
static void decide(abox_journal *journal)
{
	char *json = NULL, id[64], *at;
	bool happened = outside_count("opaque") > 0;

	if (abox_effect_list(journal, "job", 1, &json, NULL) < 0)
		return;
	at = strstr(json, "\"state\":\"UNKNOWN\"");
	if (at && strstr(json, "\"key\":\"opaque\"") && strstr(json, "\"key\":\"opaque\"") < at &&
		strstr(json, "\"class\":\"opaque\"")) {
		snprintf(id, sizeof(id), "%.36s", strstr(json, "eff-"));
		abox_effect_resolve(journal, id, happened ? ABOX_VERDICT_COMMITTED : ABOX_VERDICT_ABSENT,
			"ann", happened ? "answer" : NULL, happened ? 6 : 0, 200, NULL);
	}
	abox_free(json);
}

/* The attempts after: with no fault, up to the end. */
static int recover(void *userdata)
{
	for (int i = 0; i < 4; i++) {
		abox_journal *journal = test_open();
		int r;

		if (!journal)
			return 50;
		r = live(journal);
		if (r == 1)
			decide(journal);
		abox_journal_unref(journal);
		if (r != 1)
			return r;
	}
	return 51;
}

/* What was told stays true whatever came after. */
static int believe(void *userdata)
{
	abox_journal *journal = test_open();
	char *json = NULL;
	int r = 0;

	if (!journal)
		return 60;
	if (abox_effect_list(journal, "job", 0, &json, NULL) < 0)
		return 61;
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys) && r == 0; i++) {
		char line[64], key[64], *at;

		snprintf(line, sizeof(line), "told %s", keys[i]);
		snprintf(key, sizeof(key), "\"key\":\"%s\"", keys[i]);
		if (!outside_count(line))
			continue;
		at = strstr(json, key);
		at = at ? strstr(at, "\"state\":\"") : NULL;
		if (!at || strncmp(at, "\"state\":\"COMMITTED\"", strlen("\"state\":\"COMMITTED\"")) != 0)
			r = 62;
	}
	if (outside_count("told end")) {
		abox_task *task = NULL;

		if (abox_task_open(journal, "job", NULL, &task, NULL) != ABOX_TASK_FINISHED)
			r = 63;
		abox_task_unref(task);
	}
	abox_free(json);
	abox_journal_unref(journal);
	return r;
}

static void check_world(const char *when, int n)
{
	int r;

	r = test_child(believe, NULL);
	cr_assert_eq(r, 0, "%s %d: what was told is not there: %d", when, n, r);
	r = test_child(recover, NULL);
	cr_assert(r == 0 || r == 2, "%s %d: no way on: %d", when, n, r);
	cr_assert_eq(outside_count("opaque"), 1, "%s %d: opaque %d times", when, n, outside_count("opaque"));
	cr_assert_eq(outside_count("checkable"), 1, "%s %d: checkable %d times", when, n,
		outside_count("checkable"));
	cr_assert_geq(outside_count("idempotent"), 1);
	cr_assert_eq(
		outside_count("deferred"), 1, "%s %d: deferred %d times", when, n, outside_count("deferred"));
	cr_assert_geq(outside_count("change set"), 1);
	cr_assert(test_verify(), "%s %d", when, n);
}

/* How much there is in a life that can fail so. */
static int points(enum what what)
{
	int n;

	fault.counted = mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(fault.counted, MAP_FAILED);
	test_teardown();
	test_setup_in_memory();
	fault.what = what;
	fault.at = INT_MAX;
	cr_assert_eq(test_child(life, NULL), 10);
	n = *fault.counted;
	munmap(fault.counted, sizeof(int));
	fault.counted = NULL;
	return n;
}

/* For N = 1, 2, 3 ... until a life is untouched. Returns the last N. */
static int loop(enum what what, int code, int stride, const char *when)
{
	int n = 1 + (stride > 1 ? (int)(what * 7 + code) % stride : 0);

	for (;; n += stride) {
		int r;

		test_teardown();
		test_setup_in_memory();
		fault.what = what;
		fault.code = code;
		fault.at = n;
		r = test_child(life, NULL);
		cr_assert_neq(r, 99, "%s %d: a false result was told", when, n);
		if (r == 10) {
			check_world(when, n);
			return n;
		}
		if (what <= KILL_AFTER)
			cr_assert_eq(r, -SIGKILL, "%s %d: %d", when, n, r);
		else
			cr_assert(r >= 0 && r < 10, "%s %d: ended with %d", when, n, r);
		check_world(when, n);
	}
}

/* kill -9 before the write, in it, after it; before the sync and after it. */
Test(crash, killed_at_every_point)
{
	int stride = 1;

	cr_assert_gt(loop(KILL_BEFORE, 0, stride, "killed before"), 40, "the life is too short to be a test");
	cr_assert_gt(loop(KILL_HALF, 0, stride, "killed in"), 40);
	cr_assert_gt(loop(KILL_AFTER, 0, stride, "killed after"), 40);
}

/* The N-th write, sync, rename, open fails; the half of a failed write may stand. */
Test(crash, failing_at_every_point)
{
	int stride = 1;

	loop(FAIL, EIO, stride, "EIO at");
	loop(FAIL, ENOSPC, stride, "ENOSPC at");
}

/* The N-th allocation fails: an error, never a crash, nothing forgotten. */
Test(crash, failing_allocations)
{
	int stride = test_long() ? 1 : 7, n = points(FAIL_ALLOCATION);

	cr_log_info("%d allocations in a life", n);
	cr_assert_gt(n, 100, "the life is too short to be a test");
	/* lives differ by a few: a longer number makes a text grow once more */
	cr_assert_gt(loop(FAIL_ALLOCATION, 0, stride, "no memory at"), n - n / 10, "the loop ended before the life");
}
