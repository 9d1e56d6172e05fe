/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The runner behind tsan/criterion/criterion.h. Takes no options; prints a last line like criterion's.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_FAILED = 1, EXIT_SKIPPED = 77, DEFAULT_SECONDS = 120 };

static struct shim_test *tests;
static bool failed;

void shim_register(struct shim_test *test)
{
	test->next = tests;
	tests = test;
}

void shim_check(bool fatal, bool good, const char *file, int line, const char *text, const char *format, ...)
{
	va_list args;

	if (good)
		return;
	fprintf(stderr, "%s:%d: %s: ", file, line, text);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	__atomic_store_n(&failed, true, __ATOMIC_RELAXED);
	if (fatal)
		exit(EXIT_FAILED);
}

_Noreturn void shim_skip(const char *format, ...)
{
	va_list args;

	fputs("[SKIP] ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(EXIT_SKIPPED);
}

static const struct shim_test *suite_of(const struct shim_test *test)
{
	for (const struct shim_test *suite = tests; suite; suite = suite->next)
		if (!suite->name && !strcmp(suite->suite, test->suite))
			return suite;
	return test;
}

static void run_in_child(const struct shim_test *test)
{
	const struct shim_test *suite = suite_of(test);
	void (*init)(void) = test->options.init ? test->options.init : suite->options.init;
	void (*fini)(void) = test->options.fini ? test->options.fini : suite->options.fini;

	if (init)
		init();
	test->function();
	if (fini)
		fini();
	exit(failed ? EXIT_FAILED : 0);
}

static int wait_bounded(pid_t child, double seconds)
{
	int status;

	for (double waited = 0; waited < seconds; waited += 0.005) {
		if (waitpid(child, &status, WNOHANG) == child)
			return status;
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	}
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	return status;
}

/* 0 passed, 1 failed, 2 skipped */
static int run(const struct shim_test *test)
{
	double seconds = test->options.timeout > 0 ? test->options.timeout * 8 : DEFAULT_SECONDS;
	pid_t child;
	int status;

	fflush(NULL);
	child = fork();
	if (child == 0)
		run_in_child(test);
	status = child < 0 ? EXIT_FAILED << 8 : wait_bounded(child, seconds);
	if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIPPED)
		return 2;
	if (test->options.signal && WIFSIGNALED(status) && WTERMSIG(status) == test->options.signal)
		return 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == test->options.exit_code)
		return 0;
	fprintf(stderr, "[FAIL] %s::%s: status %#x\n", test->suite, test->name, (unsigned)status);
	return 1;
}

#undef main	/* a test that has a program's own file in it calls that one's something else */
int main(void)
{
	unsigned counts[3] = { 0 };

	for (const struct shim_test *test = tests; test; test = test->next)
		if (test->name && !test->options.disabled)
			counts[run(test)]++;
	fprintf(stderr, "[====] Synthesis: Tested: %u | Passing: %u | Failing: %u | Crashing: 0\n",
		counts[0] + counts[1], counts[0], counts[1]);
	return counts[1] > 0;
}
