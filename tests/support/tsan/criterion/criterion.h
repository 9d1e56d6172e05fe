/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What our tests use of criterion, for builds with the thread sanitizer only: criterion keeps its data at an
 * address that the sanitizer reserves, so a test program linked to it does not start there. Each test runs in a
 * forked process here as well; asserts end it, expectations only mark it.
 */
#ifndef TSAN_CRITERION_H
#define TSAN_CRITERION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct shim_options {
	void (*init)(void);
	void (*fini)(void);
	double timeout;
	int signal;
	int exit_code;
	bool disabled;
	const char *description;
};

struct shim_test {
	const char *suite;
	const char *name;	/* NULL: options of the whole suite */
	void (*function)(void);
	struct shim_options options;
	struct shim_test *next;
};

void shim_register(struct shim_test *test);
void shim_check(bool fatal, bool good, const char *file, int line, const char *text, const char *format, ...);
_Noreturn void shim_skip(const char *format, ...);

#define Test(suite_, name_, ...)                                                                            \
	static void shim_function_##suite_##_##name_(void);                                                 \
	static struct shim_test shim_test_##suite_##_##name_ = { #suite_, #name_,                           \
		shim_function_##suite_##_##name_, { __VA_ARGS__ }, NULL };                                  \
	__attribute__((constructor)) static void shim_register_##suite_##_##name_(void)                     \
	{                                                                                                   \
		shim_register(&shim_test_##suite_##_##name_);                                               \
	}                                                                                                   \
	static void shim_function_##suite_##_##name_(void)

#define TestSuite(suite_, ...)                                                                              \
	static struct shim_test shim_suite_##suite_ = { #suite_, NULL, NULL, { __VA_ARGS__ }, NULL };       \
	__attribute__((constructor)) static void shim_register_suite_##suite_(void)                         \
	{                                                                                                   \
		shim_register(&shim_suite_##suite_);                                                        \
	}                                                                                                   \
	struct shim_test

#define shim_condition(fatal, text, good, ...) shim_check(fatal, good, __FILE__, __LINE__, text, "" __VA_ARGS__)
static inline bool shim_texts(const char *a, const char *b)
{
	return a && b && !strcmp(a, b);
}

#define cr_assert(c, ...) shim_condition(true, #c, (c) ? true : false, __VA_ARGS__)
#define cr_assert_not(c, ...) shim_condition(true, "not " #c, !(c), __VA_ARGS__)
#define cr_assert_eq(a, b, ...) shim_condition(true, #a " == " #b, (a) == (b), __VA_ARGS__)
#define cr_assert_neq(a, b, ...) shim_condition(true, #a " != " #b, (a) != (b), __VA_ARGS__)
#define cr_assert_lt(a, b, ...) shim_condition(true, #a " < " #b, (a) < (b), __VA_ARGS__)
#define cr_assert_gt(a, b, ...) shim_condition(true, #a " > " #b, (a) > (b), __VA_ARGS__)
#define cr_assert_leq(a, b, ...) shim_condition(true, #a " <= " #b, (a) <= (b), __VA_ARGS__)
#define cr_assert_geq(a, b, ...) shim_condition(true, #a " >= " #b, (a) >= (b), __VA_ARGS__)
#define cr_assert_null(p, ...) shim_condition(true, #p " is NULL", !(p), __VA_ARGS__)
#define cr_assert_not_null(p, ...) shim_condition(true, #p " is not NULL", !!(p), __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) shim_condition(true, #a " is " #b, shim_texts(a, b), __VA_ARGS__)
#define cr_assert_str_neq(a, b, ...) shim_condition(true, #a " is not " #b, !shim_texts(a, b), __VA_ARGS__)
#define cr_assert_arr_eq(a, b, n, ...) shim_condition(true, #a " is " #b, !memcmp((a), (b), (n)), __VA_ARGS__)
#define cr_assert_fail(...) shim_condition(true, "fail", false, __VA_ARGS__)
#define cr_fatal(...) cr_assert_fail(__VA_ARGS__)

#define cr_expect(c, ...) shim_condition(false, #c, (c) ? true : false, __VA_ARGS__)
#define cr_expect_not(c, ...) shim_condition(false, "not " #c, !(c), __VA_ARGS__)
#define cr_expect_eq(a, b, ...) shim_condition(false, #a " == " #b, (a) == (b), __VA_ARGS__)
#define cr_expect_neq(a, b, ...) shim_condition(false, #a " != " #b, (a) != (b), __VA_ARGS__)
#define cr_expect_lt(a, b, ...) shim_condition(false, #a " < " #b, (a) < (b), __VA_ARGS__)
#define cr_expect_gt(a, b, ...) shim_condition(false, #a " > " #b, (a) > (b), __VA_ARGS__)
#define cr_expect_leq(a, b, ...) shim_condition(false, #a " <= " #b, (a) <= (b), __VA_ARGS__)
#define cr_expect_geq(a, b, ...) shim_condition(false, #a " >= " #b, (a) >= (b), __VA_ARGS__)
#define cr_expect_null(p, ...) shim_condition(false, #p " is NULL", !(p), __VA_ARGS__)
#define cr_expect_not_null(p, ...) shim_condition(false, #p " is not NULL", !!(p), __VA_ARGS__)
#define cr_expect_str_eq(a, b, ...) shim_condition(false, #a " is " #b, shim_texts(a, b), __VA_ARGS__)
#define cr_expect_str_neq(a, b, ...) shim_condition(false, #a " is not " #b, !shim_texts(a, b), __VA_ARGS__)
#define cr_expect_arr_eq(a, b, n, ...) shim_condition(false, #a " is " #b, !memcmp((a), (b), (n)), __VA_ARGS__)
#define cr_expect_fail(...) shim_condition(false, "fail", false, __VA_ARGS__)
#define cr_fail(...) cr_expect_fail(__VA_ARGS__)

#define cr_skip_test(...) shim_skip("" __VA_ARGS__)
#define cr_skip(...) shim_skip("" __VA_ARGS__)
#define cr_log_info(...) shim_log(__VA_ARGS__)
#define cr_log_warn(...) shim_log(__VA_ARGS__)
#define shim_log(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr))

#endif
