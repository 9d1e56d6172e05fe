/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Places in JSON: pointers (RFC 6901), and the way from a pointer to line and column and back. It judges
 * nothing: what is not JSON has simply no place, and every loop ends with the text.
 */
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

/* Deeper texts are refused by json_parse() long before; here it bounds the memory of a hostile text's place.
 */
enum {
	MAX_LEVELS = 64,
};

struct json *json_at(const struct json *root, const char *pointer)
{
	struct json *value = (struct json *)(uintptr_t)root;
	char name[512];
	size_t i;

	while (value && *pointer) {
		if (!json_pointer_next(&pointer, name, sizeof(name)))
			return NULL;
		if (json_kind(value) == JSON_KIND_ARRAY)
			value = json_index_parse(name, &i) ? json_element(value, i) : NULL;
		else
			value = json_member(value, name);
	}
	return value;
}

bool json_pointer_valid(const char *pointer)
{
	if (*pointer && *pointer != '/')
		return false;
	for (; *pointer; pointer++)
		if (*pointer == '~' && pointer[1] != '0' && pointer[1] != '1')
			return false;
	return true;
}

void json_pointer_add(struct text *pointer, const char *name)
{
	text_add(pointer, "/");
	for (; *name; name++) {
		if (*name == '~')
			text_add(pointer, "~0");
		else if (*name == '/')
			text_add(pointer, "~1");
		else
			text_add_bytes(pointer, name, 1);
	}
}

void json_pointer_add_index(struct text *pointer, size_t i)
{
	text_printf(pointer, "/%zu", i);
}

bool json_pointer_next(const char **pointer, char *name, size_t size)
{
	const char *p = *pointer;
	bool fine = *p == '/';
	size_t n = 0;

	if (*p == '/')
		p++;
	for (; *p && *p != '/'; p++) {
		char c = *p;

		if (c == '~') {
			if (p[1] != '0' && p[1] != '1') {
				fine = false;
				continue;
			}
			c = *++p == '0' ? '~' : '/';
		}
		if (n + 1 < size)
			name[n++] = c;
		else
			fine = false;
	}
	name[n] = 0;
	*pointer = p;
	return fine;
}

bool json_index_parse(const char *name, size_t *reti)
{
	size_t i = 0;

	if (!*name || (name[0] == '0' && name[1]))
		return false;
	for (; *name; name++) {
		if (*name < '0' || *name > '9')
			return false;
		if (!size_mul(i, 10, &i) || !size_add(i, (size_t)(*name - '0'), &i))
			return false;
	}
	*reti = i;
	return true;
}

void json_line_column(const char *text, size_t offset, uint32_t *retline, uint32_t *retcolumn)
{
	uint32_t line = 1, column = 1;

	for (size_t i = 0; i < offset; i++) {
		if (text[i] == '\n') {
			line++;
			column = 1;
		} else {
			column++;
		}
	}
	*retline = line;
	*retcolumn = column;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static size_t skip_blanks(const char *text, size_t len, size_t i)
{
	while (i < len && is_blank(text[i]))
		i++;
	return i;
}

/* i is at the opening quote; the answer is behind the closing one, or len. */
static size_t skip_string(const char *text, size_t len, size_t i)
{
	for (i++; i < len && text[i] != '"'; i++)
		if (text[i] == '\\')
			i++;
	return i < len ? i + 1 : len;
}

/* A number, true, false, null, or whatever stands there instead; strchr() ends it at NUL too.
 * Always goes on by one byte at least. */
static size_t skip_word(const char *text, size_t len, size_t i)
{
	for (i++; i < len && !is_blank(text[i]) && !strchr("{}[],:\"", text[i]); i++)
		;
	return i;
}

static size_t skip_token(const char *text, size_t len, size_t i)
{
	if (text[i] == '"')
		return skip_string(text, len, i);
	if (text[i] && strchr("{}[],:", text[i]))
		return i + 1;
	return skip_word(text, len, i);
}

/* Behind the value that begins at i, containers with all that is in them. */
static size_t skip_value(const char *text, size_t len, size_t i)
{
	size_t depth = 0;

	while (i < len) {
		char c = text[i];

		i = skip_token(text, len, i);
		if (c == '{' || c == '[')
			depth++;
		else if ((c == '}' || c == ']') && depth > 0)
			depth--;
		if (depth == 0)
			return i;
		i = skip_blanks(text, len, i);
	}
	return len;
}

static int hex_value(const char *text, size_t len, size_t i, uint32_t *ret)
{
	uint32_t value = 0;

	if (len - i < 4)
		return -1;
	for (size_t k = 0; k < 4; k++) {
		char c = text[i + k];

		value <<= 4;
		if (c >= '0' && c <= '9')
			value |= (uint32_t)(c - '0');
		else if ((c | 32) >= 'a' && (c | 32) <= 'f')
			value |= (uint32_t)((c | 32) - 'a' + 10);
		else
			return -1;
	}
	*ret = value;
	return 0;
}

void text_add_code(struct text *text, uint32_t code)
{
	char bytes[4];
	size_t n = 0;

	if (code < 0x80) {
		bytes[n++] = (char)code;
	} else if (code < 0x800) {
		bytes[n++] = (char)(0xc0 | code >> 6);
		bytes[n++] = (char)(0x80 | (code & 0x3f));
	} else if (code < 0x10000) {
		bytes[n++] = (char)(0xe0 | code >> 12);
		bytes[n++] = (char)(0x80 | (code >> 6 & 0x3f));
		bytes[n++] = (char)(0x80 | (code & 0x3f));
	} else {
		bytes[n++] = (char)(0xf0 | code >> 18);
		bytes[n++] = (char)(0x80 | (code >> 12 & 0x3f));
		bytes[n++] = (char)(0x80 | (code >> 6 & 0x3f));
		bytes[n++] = (char)(0x80 | (code & 0x3f));
	}
	text_add_bytes(text, bytes, n);
}

/* One escape, i at the byte behind the backslash; behind it on return. */
static size_t decode_escape(const char *text, size_t len, size_t i, struct text *out)
{
	static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
	uint32_t code, low;
	const char *at;

	if (text[i] == 'u' && hex_value(text, len, i + 1, &code) == 0) {
		i += 5;
		if (code >= 0xd800 && code < 0xdc00 && len - i >= 6 && text[i] == '\\' &&
			text[i + 1] == 'u' && hex_value(text, len, i + 2, &low) == 0 && low >= 0xdc00 &&
			low < 0xe000) {
			code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
			i += 6;
		}
		text_add_code(out, code);
		return i;
	}
	at = text[i] ? strchr(from, text[i]) : NULL;
	text_add_bytes(out, at ? &to[at - from] : &text[i], 1);
	return i + 1;
}

/* The string between start (its opening quote) and end, decoded. */
static void decode_string(const char *text, size_t start, size_t end, struct text *out)
{
	size_t i = start + 1;

	if (end > i && text[end - 1] == '"')
		end--;
	while (i < end) {
		if (text[i] == '\\' && i + 1 < end)
			i = decode_escape(text, end, i + 1, out);
		else
			text_add_bytes(out, &text[i++], 1);
	}
}

/* From the `{` at i to the value of that member, and where its name begins. */
static bool find_member(const char *text, size_t len, size_t *i, const char *name, size_t *retname_at)
{
	size_t at = skip_blanks(text, len, *i + 1);

	while (at < len && text[at] == '"') {
		_cleanup_(text_clear) struct text key = TEXT_INIT;
		size_t name_at = at;

		at = skip_string(text, len, at);
		decode_string(text, name_at, at, &key);
		at = skip_blanks(text, len, at);
		if (at >= len || text[at] != ':')
			return false;
		at = skip_blanks(text, len, at + 1);
		if (!key.failed && strcmp(key.data ? key.data : "", name) == 0) {
			*i = at;
			*retname_at = name_at;
			return at < len;
		}
		at = skip_blanks(text, len, skip_value(text, len, at));
		if (at >= len || text[at] != ',')
			return false;
		at = skip_blanks(text, len, at + 1);
	}
	return false;
}

static bool find_element(const char *text, size_t len, size_t *i, size_t index)
{
	size_t at = skip_blanks(text, len, *i + 1);

	for (; index > 0 && at < len; index--) {
		at = skip_blanks(text, len, skip_value(text, len, at));
		if (at >= len || text[at] != ',')
			return false;
		at = skip_blanks(text, len, at + 1);
	}
	*i = at;
	return at < len && text[at] != ']';
}

static bool find(const char *text, size_t len, const char *pointer, size_t *retvalue_at, size_t *retname_at)
{
	size_t at = skip_blanks(text, len, 0), name_at = at, index;
	char name[512];

	while (*pointer) {
		if (at >= len || !json_pointer_next(&pointer, name, sizeof(name)))
			return false;
		if (text[at] == '{') {
			if (!find_member(text, len, &at, name, &name_at))
				return false;
		} else if (text[at] == '[') {
			if (!json_index_parse(name, &index) || !find_element(text, len, &at, index))
				return false;
			name_at = at;
		} else {
			return false;
		}
	}
	*retvalue_at = at;
	*retname_at = name_at;
	return at < len;
}

bool json_locate(const char *text, size_t len, const char *pointer, uint32_t *retline, uint32_t *retcolumn)
{
	size_t value_at, name_at;

	if (!find(text, len, pointer, &value_at, &name_at))
		return false;
	json_line_column(text, value_at, retline, retcolumn);
	return true;
}

bool json_locate_name(
	const char *text, size_t len, const char *pointer, uint32_t *retline, uint32_t *retcolumn)
{
	size_t value_at, name_at;

	if (!find(text, len, pointer, &value_at, &name_at))
		return false;
	json_line_column(text, name_at, retline, retcolumn);
	return true;
}

struct level {
	bool is_object;
	bool wants_name;
	size_t index;
	size_t name_start, name_end; /* equal: no name yet */
};

/* Follows one token; the number of levels afterwards, or -1 when there are too many. */
static int follow_token(struct level *levels, int n, const char *text, size_t start, size_t end)
{
	struct level *top = n > 0 ? &levels[n - 1] : NULL;

	switch (text[start]) {
	case '{':
	case '[':
		if (n >= MAX_LEVELS)
			return -1;
		levels[n] = (struct level){ .is_object = text[start] == '{' };
		levels[n].wants_name = levels[n].is_object;
		return n + 1;
	case '}':
	case ']':
		return n > 0 ? n - 1 : 0;
	case ',':
		if (top) {
			top->index++;
			top->wants_name = top->is_object;
			top->name_start = top->name_end = 0;
		}
		return n;
	case ':':
		if (top)
			top->wants_name = false;
		return n;
	case '"':
		if (top && top->wants_name) {
			top->name_start = start;
			top->name_end = end;
		}
		return n;
	default:
		return n;
	}
}

static int build_pointer(const struct level *levels, int n, const char *text, char **retpointer)
{
	_cleanup_(text_clear) struct text pointer = TEXT_INIT;

	for (int i = 0; i < n; i++) {
		_cleanup_(text_clear) struct text name = TEXT_INIT;

		if (!levels[i].is_object) {
			json_pointer_add_index(&pointer, levels[i].index);
			continue;
		}
		if (levels[i].name_end == 0)
			break;
		decode_string(text, levels[i].name_start, levels[i].name_end, &name);
		if (name.failed)
			return ABOX_E_MEMORY;
		json_pointer_add(&pointer, name.data ? name.data : "");
	}
	return text_take(&pointer, retpointer);
}

int json_pointer_at(const char *text, size_t len, size_t *offset, char **retpointer)
{
	struct level levels[MAX_LEVELS];
	size_t at = skip_blanks(text, len, 0), token_at = at;
	int n = 0;

	while (at < len && at <= *offset) {
		size_t end = skip_token(text, len, at);

		token_at = at;
		n = follow_token(levels, n, text, at, end);
		if (n < 0)
			return ABOX_E_LIMIT;
		at = skip_blanks(text, len, end);
	}
	if (token_at < *offset)
		*offset = token_at;
	return build_pointer(levels, n, text, retpointer);
}
