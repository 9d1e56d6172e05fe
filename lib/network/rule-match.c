/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Matching of paths, query parameters and values. Three forms of a path are looked at: with %2F and the like
 * kept as they are, with everything decoded, and then without what `;` begins in a part; servers do any of
 * these. Patterns are run as sets of states: time
 * is length of the pattern times length of the text, whatever an attacker writes.
 */
#include "network/rule-match.h"

#include <string.h>
#include <sys/types.h>

bool match_host(const char *pattern, const char *host)
{
	size_t len, host_len;

	if (strncmp(pattern, "*.", 2) != 0)
		return strcmp(pattern, host) == 0;
	pattern++; /* ".example.test" */
	len = strlen(pattern);
	host_len = strlen(host);
	return host_len > len && strcmp(host + host_len - len, pattern) == 0;
}

enum {
	TOKEN_ANY_PART = 256, /* `*`: anything but a slash */
	TOKEN_ANY, /* `**` */
};

struct pattern {
	size_t n;
	uint16_t tokens[MATCH_PATTERN_MAX];
};

static void reach(const struct pattern *pattern, uint8_t *states, size_t i)
{
	while (i <= pattern->n && !states[i]) {
		states[i] = 1;
		if (i == pattern->n || pattern->tokens[i] < TOKEN_ANY_PART)
			return;
		/* a double star between slashes is a single slash too */
		if (pattern->tokens[i] == TOKEN_ANY && i > 0 && i + 1 < pattern->n &&
			pattern->tokens[i - 1] == '/' && pattern->tokens[i + 1] == '/')
			reach(pattern, states, i + 2);
		i++;
	}
}

static bool run(const struct pattern *pattern, const char *text, size_t len)
{
	uint8_t sets[2][MATCH_PATTERN_MAX + 1];
	uint8_t *now = sets[0], *next = sets[1];

	memset(now, 0, pattern->n + 1);
	reach(pattern, now, 0);
	for (size_t k = 0; k < len; k++) {
		bool any = false;

		memset(next, 0, pattern->n + 1);
		for (size_t i = 0; i < pattern->n; i++) {
			uint16_t token = pattern->tokens[i];

			if (!now[i])
				continue;
			if (token == TOKEN_ANY || (token == TOKEN_ANY_PART && text[k] != '/'))
				reach(pattern, next, i);
			else if (token == (uint8_t)text[k])
				reach(pattern, next, i + 1);
			else
				continue;
			any = true;
		}
		if (!any)
			return false;
		uint8_t *other = now;

		now = next;
		next = other;
	}
	return now[pattern->n];
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 32;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte that %XX at text stands for, or -1. */
static int escape_value(const char *text, size_t len)
{
	int high, low;

	if (len < 3 || text[0] != '%')
		return -1;
	high = hex_value(text[1]);
	low = hex_value(text[2]);
	return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static bool is_unreserved(int c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       (c && strchr("-._~", c));
}

/*
 * One form of a path: with `whole` every escape decoded, else only those that never needed to be, and the
 * others in upper case. Length, or -1 for what no two programs read alike.
 */
static ssize_t path_form(const char *path, size_t len, bool whole, char *ret, size_t size)
{
	static const char digits[] = "0123456789ABCDEF";
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		int c = (uint8_t)path[i];

		if (n + 3 > size)
			return -1;
		if (c != '%') {
			ret[n++] = (char)c;
			continue;
		}
		c = escape_value(path + i, len - i);
		if (c <= 0 || (c == '%' && i + 5 <= len && hex_value(path[i + 3]) >= 0 &&
				      hex_value(path[i + 4]) >= 0))
			return -1;
		if (whole || is_unreserved(c)) {
			ret[n++] = (char)c;
		} else {
			ret[n++] = '%';
			ret[n++] = digits[c >> 4];
			ret[n++] = digits[c & 15];
		}
		i += 2;
	}
	return (ssize_t)n;
}

/* Dot parts, empty parts, backslashes: what lies behind them is up to the server. */
static bool is_plain(const char *path, size_t len)
{
	size_t start = 1;

	if (len == 0 || path[0] != '/')
		return false;
	for (size_t i = 1; i <= len; i++) {
		size_t part;

		if (i < len && (path[i] == '\\' || (uint8_t)path[i] < 0x20 || path[i] == 0x7f))
			return false;
		if (i < len && path[i] != '/')
			continue;
		part = i - start;
		for (size_t k = 0; k < part; k++)
			if (path[start + k] == ';') /* some servers drop what follows in a part */
				part = k;
		if (part == 0 && i < len)
			return false;
		if ((part == 1 && path[start] == '.') ||
			(part == 2 && path[start] == '.' && path[start + 1] == '.'))
			return false;
		start = i + 1;
	}
	return true;
}

enum {
	FORM_KEPT = 0,
	FORM_DECODED,
	FORM_BARE, /* decoded, without the parameters of its parts */
	FORMS,
};

static ssize_t form_of(int form, const char *path, size_t len, char *ret, size_t size)
{
	ssize_t all = path_form(path, len, form != FORM_KEPT, ret, size);
	bool parameter = false;
	size_t n = 0;

	if (all < 0 || form != FORM_BARE)
		return all;
	for (ssize_t i = 0; i < all; i++) {
		parameter = ret[i] != '/' && (parameter || ret[i] == ';');
		if (!parameter)
			ret[n++] = ret[i];
	}
	return (ssize_t)n;
}

static bool pattern_form(const char *text, int which, struct pattern *ret)
{
	char form[MATCH_PATTERN_MAX + 3];
	ssize_t len = form_of(which, text, strlen(text), form, sizeof(form));

	if (len < 0 || len > MATCH_PATTERN_MAX)
		return false;
	ret->n = 0;
	for (ssize_t i = 0; i < len; i++) {
		if (form[i] != '*') {
			ret->tokens[ret->n++] = (uint8_t)form[i];
		} else if (i + 1 < len && form[i + 1] == '*') {
			ret->tokens[ret->n++] = TOKEN_ANY;
			while (i + 1 < len && form[i + 1] == '*')
				i++;
		} else {
			ret->tokens[ret->n++] = TOKEN_ANY_PART;
		}
	}
	return true;
}

enum match match_path(const char *const *patterns, const char *path, size_t len)
{
	char forms[FORMS][MATCH_PATH_MAX + 3];
	ssize_t lens[FORMS];
	struct pattern pattern;
	bool any = false;

	for (int form = 0; form < FORMS; form++) {
		lens[form] = form_of(form, path, len, forms[form], sizeof(forms[form]));
		if (lens[form] < 0 || !is_plain(forms[form], (size_t)lens[form]))
			return MATCH_UNSURE;
	}
	for (size_t i = 0; patterns[i]; i++) {
		bool all = true;

		for (int form = 0; form < FORMS; form++) {
			bool yes = pattern_form(patterns[i], form, &pattern) &&
				   run(&pattern, forms[form], (size_t)lens[form]);

			any = any || yes;
			all = all && yes;
		}
		if (all)
			return MATCH_YES;
	}
	return any ? MATCH_UNSURE : MATCH_NO;
}

bool match_value(const char *pattern, const char *value, size_t len)
{
	struct pattern compiled = { 0 };

	if (!strchr(pattern, '*'))
		return strlen(pattern) == len && memcmp(pattern, value, len) == 0;
	for (size_t i = 0; pattern[i]; i++) {
		if (compiled.n == MATCH_PATTERN_MAX)
			return false;
		compiled.tokens[compiled.n++] = pattern[i] == '*' ? TOKEN_ANY : (uint8_t)pattern[i];
	}
	return run(&compiled, value, len);
}

/* A part of a query, decoded: false when it is no proper text. */
static bool query_decode(const char *text, size_t len, char *ret, size_t size, size_t *retlen)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		int c = (uint8_t)text[i];

		if (n == size)
			return false;
		if (c == '%') {
			c = escape_value(text + i, len - i);
			if (c < 0)
				return false;
			i += 2;
		} else if (c == '+') {
			c = ' ';
		}
		ret[n++] = (char)c;
	}
	*retlen = n;
	return true;
}

enum match match_query(const char *name, const char *pattern, const char *query, size_t len)
{
	char buffer[MATCH_PATH_MAX];
	size_t found = 0, good = 0, n, start = 0;
	bool unsure = false;

	for (size_t i = 0; i <= len; i++) {
		const char *part = query + start, *equals;
		size_t part_len, name_len;

		if (i < len && query[i] != '&' && query[i] != ';')
			continue;
		if (i < len && query[i] == ';') /* some servers take it for `&` */
			unsure = true;
		part_len = i - start;
		start = i + 1;
		equals = memchr(part, '=', part_len);
		name_len = equals ? (size_t)(equals - part) : part_len;
		if (!query_decode(part, name_len, buffer, sizeof(buffer), &n)) {
			unsure = true;
			continue;
		}
		if (n != strlen(name) || memcmp(buffer, name, n) != 0)
			continue;
		found++;
		if (!equals)
			n = 0;
		else if (!query_decode(equals + 1, part_len - name_len - 1, buffer, sizeof(buffer), &n)) {
			unsure = true;
			continue;
		}
		good += match_value(pattern, buffer, n);
	}
	if (unsure || (found > 1 && good > 0))
		return MATCH_UNSURE;
	return good == 1 ? MATCH_YES : MATCH_NO;
}
