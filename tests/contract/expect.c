/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Expectations of a row, one function each:
 *
 *   exit, signal, cause           of the command
 *   error                         { "code", "stage", "place", "message" (a pattern) }: it must not run at all
 *   stdout, stderr                a list of patterns (extended regular expressions on lines); each must match
 *   not_stdout, not_stderr        none may match
 *   stdout_is                     exactly this text
 *   stdout_bytes                  how many were kept; a number, or [least, most]
 *   count                         [ { "match", "min", "max" } ]: lines of stdout that match
 *   limits                        names that must be among those that struck; no_limits: true for none
 *   seconds                       [least, most]
 *   result                        members of the result with these values
 */
#include <regex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner.h"

void complain(struct complaints *complaints, const char *format, ...)
{
	va_list args;
	char *line, *grown;
	int n;

	va_start(args, format);
	n = vasprintf(&line, format, args);
	va_end(args);
	if (n < 0)
		abort();
	grown = realloc(complaints->text, complaints->len + (size_t)n + 2);
	if (!grown)
		abort();
	memcpy(grown + complaints->len, line, (size_t)n);
	complaints->len += (size_t)n;
	grown[complaints->len++] = '\n';
	grown[complaints->len] = 0;
	complaints->text = grown;
	free(line);
}

/* Lines of the text that match; -1 when the pattern is no pattern. */
static long count_matches(const char *text, size_t len, const char *pattern)
{
	const char *line = text, *end = text + len;
	char *copy = NULL;
	long n = 0;
	regex_t regex;

	if (regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB) != 0)
		return -1;
	while (line < end) {
		const char *stop = memchr(line, '\n', (size_t)(end - line));
		size_t line_len = stop ? (size_t)(stop - line) : (size_t)(end - line);

		copy = realloc(copy, line_len + 1);
		memcpy(copy, line, line_len);
		copy[line_len] = 0;
		for (size_t i = 0; i < line_len; i++)
			if (!copy[i])
				copy[i] = '?';
		n += regexec(&regex, copy, 0, NULL, 0) == 0;
		line += line_len + 1;
	}
	free(copy);
	regfree(&regex);
	return n;
}

static void expect_patterns(const json_t *patterns, const char *text, size_t len, const char *name, bool wanted,
	struct complaints *complaints)
{
	const json_t *pattern;
	size_t i;

	json_array_foreach(patterns, i, pattern) {
		long n = count_matches(text ? text : "", len, json_string_value(pattern));

		if (n < 0)
			complain(complaints, "not a pattern: %s", json_string_value(pattern));
		else if (wanted && n == 0)
			complain(complaints, "%s has no line like: %s", name, json_string_value(pattern));
		else if (!wanted && n > 0)
			complain(complaints, "%s has %ld lines like: %s", name, n, json_string_value(pattern));
	}
}

static void expect_counts(const json_t *counts, const struct outcome *outcome, struct complaints *complaints)
{
	const json_t *one;
	size_t i;

	json_array_foreach(counts, i, one) {
		const char *pattern = json_string_value(json_object_get(one, "match"));
		const json_t *min = json_object_get(one, "min"), *max = json_object_get(one, "max");
		long n = count_matches(outcome->out ? outcome->out : "", outcome->out_len, pattern);

		if (min && n < json_integer_value(min))
			complain(complaints, "%ld lines like %s, fewer than %lld", n, pattern, json_integer_value(min));
		if (max && n > json_integer_value(max))
			complain(complaints, "%ld lines like %s, more than %lld", n, pattern, json_integer_value(max));
	}
}

static bool in_range(const json_t *range, double value)
{
	if (json_is_number(range))
		return value == json_number_value(range);
	return value >= json_number_value(json_array_get(range, 0)) && value <= json_number_value(json_array_get(range, 1));
}

static void expect_error(const json_t *expect, const struct outcome *outcome, struct complaints *complaints)
{
	static const char *const members[] = { "code", "stage", "place" };
	const json_t *wanted = json_object_get(expect, "error"), *error = json_object_get(outcome->result, "error");
	const char *pattern, *message;

	if (!wanted) {
		if (error)
			complain(complaints, "error %s at %s: %s", json_string_value(json_object_get(error, "code")),
				 json_string_value(json_object_get(error, "place")),
				 json_string_value(json_object_get(error, "message")));
		return;
	}
	if (!error) {
		complain(complaints, "it ran, but must have been refused");
		return;
	}
	for (size_t i = 0; i < 3; i++) {
		const char *want = json_string_value(json_object_get(wanted, members[i]));
		const char *have = json_string_value(json_object_get(error, members[i]));

		if (want && (!have || strcmp(want, have)))
			complain(complaints, "error's %s is %s, not %s", members[i], have ? have : "missing", want);
	}
	pattern = json_string_value(json_object_get(wanted, "message"));
	message = json_string_value(json_object_get(error, "message"));
	if (pattern && (!message || count_matches(message, strlen(message), pattern) <= 0))
		complain(complaints, "error's message '%s' is not like: %s", message ? message : "", pattern);
}

static void expect_end(const json_t *expect, const struct outcome *outcome, struct complaints *complaints)
{
	const json_t *exit_code = json_object_get(expect, "exit"), *signal_number = json_object_get(expect, "signal");
	const char *cause = json_string_value(json_object_get(expect, "cause"));
	const json_t *result = outcome->result;
	const char *have = json_string_value(json_object_get(result, "cause"));

	if (exit_code && json_integer_value(exit_code) != json_integer_value(json_object_get(result, "exit_code")))
		complain(complaints, "exit code %lld, not %lld", json_integer_value(json_object_get(result, "exit_code")),
			 json_integer_value(exit_code));
	if (signal_number && json_integer_value(signal_number) != json_integer_value(json_object_get(result, "signal")))
		complain(complaints, "signal %lld, not %lld", json_integer_value(json_object_get(result, "signal")),
			 json_integer_value(signal_number));
	if (cause && have && strcmp(cause, have))
		complain(complaints, "cause %s (%s), not %s", have, json_string_value(json_object_get(result, "evidence")), cause);
}

static void expect_limits(const json_t *expect, const struct outcome *outcome, struct complaints *complaints)
{
	const json_t *wanted = json_object_get(expect, "limits"), *have = json_object_get(outcome->result, "limits"), *one, *other;
	size_t i, j;

	json_array_foreach(wanted, i, one) {
		bool found = false;

		json_array_foreach(have, j, other)
			found = found || json_equal(one, other);
		if (!found)
			complain(complaints, "limit %s is not among those that struck", json_string_value(one));
	}
	if (json_is_true(json_object_get(expect, "no_limits")) && json_array_size(have) > 0)
		complain(complaints, "%zu limits struck, none should have", json_array_size(have));
}

static void expect_members(const json_t *wanted, const json_t *result, struct complaints *complaints)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)wanted, key, value) {
		json_t *have = json_object_get(result, key);
		char *text;

		if (have && (json_is_array(value) && json_is_number(have) ? in_range(value, json_number_value(have))
									  : json_equal(have, value)))
			continue;
		text = have ? json_dumps(have, JSON_ENCODE_ANY) : NULL;
		complain(complaints, "result's %s is %s", key, text ? text : "missing");
		free(text);
	}
}

void expect_outcome(const json_t *expect, const struct outcome *outcome, struct complaints *complaints)
{
	const char *exact = json_string_value(json_object_get(expect, "stdout_is"));
	const json_t *bytes = json_object_get(expect, "stdout_bytes"), *seconds = json_object_get(expect, "seconds");

	if (!outcome->result) {
		complain(complaints, "there is no result: %s", outcome->err ? outcome->err : "");
		return;
	}
	expect_error(expect, outcome, complaints);
	if (json_object_get(outcome->result, "error"))
		return;
	expect_end(expect, outcome, complaints);
	expect_limits(expect, outcome, complaints);
	expect_patterns(json_object_get(expect, "stdout"), outcome->out, outcome->out_len, "stdout", true, complaints);
	expect_patterns(json_object_get(expect, "stderr"), outcome->err, outcome->err_len, "stderr", true, complaints);
	expect_patterns(json_object_get(expect, "not_stdout"), outcome->out, outcome->out_len, "stdout", false, complaints);
	expect_patterns(json_object_get(expect, "not_stderr"), outcome->err, outcome->err_len, "stderr", false, complaints);
	expect_counts(json_object_get(expect, "count"), outcome, complaints);
	if (exact && (strlen(exact) != outcome->out_len || memcmp(exact, outcome->out ? outcome->out : "", outcome->out_len)))
		complain(complaints, "stdout is not exactly what it should be, but: %.200s", outcome->out ? outcome->out : "");
	if (bytes && !in_range(bytes, (double)outcome->out_len))
		complain(complaints, "%zu bytes of stdout", outcome->out_len);
	if (seconds && !in_range(seconds, outcome->seconds))
		complain(complaints, "it took %.1f seconds", outcome->seconds);
	expect_members(json_object_get(expect, "result"), outcome->result, complaints);
}

bool outcome_refused(const json_t *refused, bool plain, const struct outcome *outcome)
{
	const json_t *error = json_object_get(outcome->result, "error"), *place = json_object_get(refused, "place");
	const char *as = json_string_value(json_object_get(refused, "as"));

	if (!refused || !error || (as && strcmp(as, plain ? "plain" : "root")))
		return false;
	return json_equal(json_object_get(refused, "code"), json_object_get(error, "code"))
	       && (!place || json_equal(place, json_object_get(error, "place")));
}

void outcome_clear(struct outcome *outcome)
{
	json_decref(outcome->result);
	free(outcome->out);
	free(outcome->err);
	outcome->result = NULL;
	outcome->out = outcome->err = NULL;
}
