/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One pass over JSON text that is to become, or is, part of a record: is it strict JSON (RFC 8259), and what
 * is it without the blanks between tokens? Values are never built: a body is stored and handed out as text.
 * Depth and time are bounded whatever the input.
 */
#include <agentbox/error.h>
#include <string.h>

#include "journal/format.h"

#define DEPTH_MAX 64

struct scan {
	const char *data;
	size_t len;
	size_t at;
	struct text *out; /* NULL: check only */
	int depth;
};

static void emit(struct scan *scan, size_t from)
{
	if (scan->out)
		text_add_bytes(scan->out, scan->data + from, scan->at - from);
}

static void skip_blanks(struct scan *scan)
{
	while (scan->at < scan->len && strchr(" \t\r\n", scan->data[scan->at]) && scan->data[scan->at])
		scan->at++;
}

static bool take(struct scan *scan, char c)
{
	if (scan->at >= scan->len || scan->data[scan->at] != c)
		return false;
	scan->at++;
	emit(scan, scan->at - 1);
	return true;
}

static bool scan_escape(struct scan *scan)
{
	char c = scan->at < scan->len ? scan->data[scan->at++] : 0;

	if (c != 'u')
		return c && strchr("\"\\/bfnrt", c);
	for (int i = 0; i < 4; i++) {
		c = scan->at < scan->len ? scan->data[scan->at++] : 0;
		if (!c || !strchr("0123456789abcdefABCDEF", c))
			return false;
	}
	return true;
}

/* U+2028 and U+2029 end a line for some readers: they leave as escapes. */
static bool scan_char(struct scan *scan)
{
	const char *at = scan->data + scan->at;
	size_t n = utf8_char_len(at, scan->len - scan->at);

	if (n == 0)
		return false;
	scan->at += n;
	if (scan->out && n == 3 && memcmp(at, "\xe2\x80", 2) == 0 && (at[2] == '\xa8' || at[2] == '\xa9'))
		text_add(scan->out, at[2] == '\xa8' ? "\\u2028" : "\\u2029");
	else
		emit(scan, scan->at - n);
	return true;
}

static bool scan_string(struct scan *scan)
{
	size_t from;

	if (!take(scan, '"'))
		return false;
	for (;;) {
		from = scan->at;
		while (scan->at < scan->len && (unsigned char)scan->data[scan->at] >= 0x20 &&
			(unsigned char)scan->data[scan->at] < 0x7f && scan->data[scan->at] != '"' &&
			scan->data[scan->at] != '\\')
			scan->at++;
		emit(scan, from);
		if (scan->at >= scan->len || (unsigned char)scan->data[scan->at] < 0x20)
			return false;
		if (take(scan, '"'))
			return true;
		if (scan->data[scan->at] != '\\') {
			if (!scan_char(scan))
				return false;
			continue;
		}
		from = scan->at++;
		if (!scan_escape(scan))
			return false;
		emit(scan, from);
	}
}

static size_t skip_digits(struct scan *scan)
{
	size_t from = scan->at;

	while (scan->at < scan->len && scan->data[scan->at] >= '0' && scan->data[scan->at] <= '9')
		scan->at++;
	return scan->at - from;
}

static bool scan_number(struct scan *scan)
{
	size_t from = scan->at, first;

	if (scan->data[scan->at] == '-')
		scan->at++;
	first = scan->at;
	if (skip_digits(scan) == 0 || (scan->data[first] == '0' && scan->at - first > 1))
		return false;
	if (scan->at < scan->len && scan->data[scan->at] == '.') {
		scan->at++;
		if (skip_digits(scan) == 0)
			return false;
	}
	if (scan->at < scan->len && (scan->data[scan->at] == 'e' || scan->data[scan->at] == 'E')) {
		scan->at++;
		if (scan->at < scan->len && (scan->data[scan->at] == '+' || scan->data[scan->at] == '-'))
			scan->at++;
		if (skip_digits(scan) == 0)
			return false;
	}
	emit(scan, from);
	return true;
}

static bool scan_word(struct scan *scan, const char *word)
{
	size_t n = strlen(word), from = scan->at;

	if (scan->len - scan->at < n || memcmp(scan->data + scan->at, word, n) != 0)
		return false;
	scan->at += n;
	emit(scan, from);
	return true;
}

static bool scan_value(struct scan *scan);

static bool scan_list(struct scan *scan, char open, char close)
{
	if (!take(scan, open))
		return false;
	skip_blanks(scan);
	if (take(scan, close))
		return true;
	for (;;) {
		skip_blanks(scan);
		if (open == '{') {
			if (!scan_string(scan))
				return false;
			skip_blanks(scan);
			if (!take(scan, ':'))
				return false;
		}
		if (!scan_value(scan))
			return false;
		skip_blanks(scan);
		if (take(scan, close))
			return true;
		if (!take(scan, ','))
			return false;
	}
}

static bool scan_value(struct scan *scan)
{
	bool good = false;

	skip_blanks(scan);
	if (scan->at >= scan->len || ++scan->depth > DEPTH_MAX)
		return false;
	switch (scan->data[scan->at]) {
	case '{':
		good = scan_list(scan, '{', '}');
		break;
	case '[':
		good = scan_list(scan, '[', ']');
		break;
	case '"':
		good = scan_string(scan);
		break;
	case 't':
		good = scan_word(scan, "true");
		break;
	case 'f':
		good = scan_word(scan, "false");
		break;
	case 'n':
		good = scan_word(scan, "null");
		break;
	case '-':
	case '0' ... '9':
		good = scan_number(scan);
		break;
	}
	scan->depth--;
	return good;
}

static bool scan_all(struct scan *scan, bool want_object)
{
	skip_blanks(scan);
	if (want_object && (scan->at >= scan->len || scan->data[scan->at] != '{'))
		return false;
	if (!scan_value(scan))
		return false;
	skip_blanks(scan);
	return scan->at == scan->len;
}

int json_text_compact(struct text *text, const char *json, size_t len, bool want_object, size_t *retoffset)
{
	struct scan scan = { .data = json, .len = len, .out = text };

	if (!scan_all(&scan, want_object)) {
		if (retoffset)
			*retoffset = scan.at;
		return ABOX_E_SYNTAX;
	}
	return text->failed ? ABOX_E_MEMORY : 0;
}

bool json_text_is_object(const char *json, size_t len)
{
	struct scan scan = { .data = json, .len = len };

	return scan_all(&scan, true);
}
