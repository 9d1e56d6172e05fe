/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Matching of path patterns. The time is bounded by length of pattern times length of path: a star only ever
 * goes back to the newest star of its kind, which is enough, as an earlier one can gain nothing that the
 * newest cannot.
 */
#include "workspace/pattern.h"

#include <string.h>

/* One `[...]` at *pattern, which is moved behind it. False when it does not hold c, or is not closed. */
static bool match_set(const char **pattern, const char *end, unsigned char c)
{
	const char *p = *pattern + 1;
	bool negated = false, found = false, first = true;

	if (p < end && (*p == '!' || *p == '^')) {
		negated = true;
		p++;
	}
	while (p < end && (*p != ']' || first)) {
		unsigned char low, high;

		first = false;
		if (*p == '\\' && p + 1 < end)
			p++;
		low = high = (unsigned char)*p++;
		if (p + 1 < end && *p == '-' && p[1] != ']') {
			p++;
			if (*p == '\\' && p + 1 < end)
				p++;
			high = (unsigned char)*p++;
		}
		if (c >= low && c <= high)
			found = true;
	}
	if (p >= end)
		return false;
	*pattern = p + 1;
	return found != negated;
}

/* One part against one part, neither with a slash. */
static bool match_part(const char *pattern, const char *pattern_end, const char *text, const char *text_end)
{
	const char *star = NULL, *star_text = NULL;

	while (text < text_end || pattern < pattern_end) {
		if (pattern < pattern_end && *pattern == '*') {
			star = ++pattern;
			star_text = text;
			continue;
		}
		if (pattern < pattern_end && text < text_end) {
			const char *next = pattern;
			bool same;

			if (*next == '?') {
				same = true;
				next++;
			} else if (*next == '[')
				same = match_set(&next, pattern_end, (unsigned char)*text);
			else {
				if (*next == '\\' && next + 1 < pattern_end)
					next++;
				same = *next++ == *text;
			}
			if (same) {
				pattern = next;
				text++;
				continue;
			}
		}
		if (!star || star_text >= text_end)
			return false;
		pattern = star;
		text = ++star_text;
	}
	return true;
}

static const char *part_end(const char *path)
{
	return strchrnul(path, '/'); /* strcspn() makes a table of its bytes first */
}

static const char *next_part(const char *end)
{
	return *end == '/' ? end + 1 : end;
}

static bool is_double_star(const char *part, const char *end)
{
	return end - part == 2 && part[0] == '*' && part[1] == '*';
}

bool pattern_match(const char *pattern, const char *path)
{
	const char *star = NULL, *star_path = NULL;

	for (;;) {
		const char *pattern_end = part_end(pattern), *path_end = part_end(path);

		if (*pattern && is_double_star(pattern, pattern_end)) {
			pattern = star = next_part(pattern_end);
			star_path = path;
			/* At the end it means what is in the folder, not the folder: it needs one part at
			 * least. */
			if (!*pattern)
				return *path != 0;
			continue;
		}
		if (*pattern && *path && match_part(pattern, pattern_end, path, path_end)) {
			pattern = next_part(pattern_end);
			path = next_part(path_end);
			if (!*pattern)
				return true; /* all of the path, or a folder above it */
			continue;
		}
		if (!star || !*star_path)
			return false;
		star_path = next_part(part_end(star_path));
		pattern = star;
		path = star_path;
	}
}

bool pattern_match_any(const char *const *patterns, const char *path)
{
	for (; patterns && *patterns; patterns++)
		if (pattern_match(*patterns, path))
			return true;
	return false;
}

bool pattern_is_valid(const char *pattern)
{
	if (!*pattern || *pattern == '/')
		return false;
	while (*pattern) {
		const char *end = part_end(pattern);
		size_t len = (size_t)(end - pattern);

		if (len == 0 || (len == 1 && pattern[0] == '.') ||
			(len == 2 && pattern[0] == '.' && pattern[1] == '.'))
			return false;
		for (const char *p = pattern; p < end; p++) {
			const char *set = p;

			if (*p == '\\' && p + 1 < end) {
				p++;
				continue;
			}
			if (*p != '[')
				continue;
			/* Moves behind the set when that is closed, whatever it matches. */
			if (!match_set(&set, end, 'x') && set == p)
				return false;
			p = set - 1;
		}
		pattern = next_part(end);
		if (*end == '/' && !*pattern)
			return true; /* a trailing slash is no more than emphasis */
	}
	return true;
}
