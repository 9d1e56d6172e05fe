/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reading JSON (RFC 8259), strictly: one value, no key twice, valid UTF-8, no NUL, bounded depth and numbers.
 * The tree is jansson's, its reader is not used: where an allocation fails it drops bytes of the string it
 * reads and goes on, it quotes the text in its messages, it knows no pointers, and numbers go by the locale.
 */
#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"

struct parser {
	const char *text;
	size_t len;
	size_t at;
	unsigned int depth;
	const struct json_bounds *bounds;
	abox_error **reterr;
};

static int refuse(const struct parser *parser, size_t offset, int code, const char *message)
{
	_cleanup_(freep) char *pointer = NULL;
	uint32_t line, column;

	/* Where the pointer cannot be had (no memory, too deep), line and column still say it. */
	if (json_pointer_at(parser->text, parser->len, &offset, &pointer) < 0)
		pointer = NULL;
	json_line_column(parser->text, offset, &line, &column);
	error_set(parser->reterr, code, parser->bounds->stage, pointer, "%s", message);
	return error_position(parser->reterr, code, line, column);
}

static int refuse_syntax(const struct parser *parser, size_t offset, const char *message)
{
	return refuse(
		parser, offset, ABOX_E_SYNTAX, offset < parser->len ? message : "the text ends too early");
}

static int check_bytes(const struct parser *parser)
{
	size_t n;

	for (size_t i = 0; i < parser->len; i += n) {
		n = utf8_char_len(parser->text + i, parser->len - i);
		if (n == 0)
			return refuse(parser, i, ABOX_E_SYNTAX, "not valid UTF-8");
		if (parser->text[i] == 0)
			return refuse(parser, i, ABOX_E_SYNTAX, "NUL byte");
	}
	return 0;
}

/* The byte that is read next, 0 at the end: no text has a NUL in it. */
static char peek(const struct parser *parser)
{
	return parser->at < parser->len ? parser->text[parser->at] : 0;
}

static bool take(struct parser *parser, char c)
{
	if (peek(parser) != c)
		return false;
	parser->at++;
	return true;
}

static void skip_blanks(struct parser *parser)
{
	while (peek(parser) && strchr(" \t\n\r", peek(parser)))
		parser->at++;
}

static int parse_hex(struct parser *parser, uint32_t *ret)
{
	uint32_t code = 0;

	for (int i = 0; i < 4; i++) {
		char c = peek(parser);

		if (c >= '0' && c <= '9')
			code = code << 4 | (uint32_t)(c - '0');
		else if ((c | 32) >= 'a' && (c | 32) <= 'f')
			code = code << 4 | (uint32_t)((c | 32) - 'a' + 10);
		else
			return refuse_syntax(parser, parser->at, "four hexadecimal digits must follow \\u");
		parser->at++;
	}
	*ret = code;
	return 0;
}

/* Behind `\u`. A lone half of a surrogate pair is no character, and NUL would cut the string short for C. */
static int parse_unicode(struct parser *parser, struct text *out)
{
	uint32_t code = 0, low = 0;
	int r;

	r = parse_hex(parser, &code);
	if (r < 0)
		return r;
	if (code >= 0xd800 && code < 0xdc00 && take(parser, '\\') && take(parser, 'u')) {
		r = parse_hex(parser, &low);
		if (r < 0)
			return r;
		if (low >= 0xdc00 && low < 0xe000)
			code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
	}
	if (code == 0)
		return refuse(parser, parser->at - 1, ABOX_E_SYNTAX, "NUL character in a string");
	if (code >= 0xd800 && code < 0xe000)
		return refuse(parser, parser->at - 1, ABOX_E_SYNTAX, "half of a surrogate pair");
	text_add_code(out, code);
	return 0;
}

static int parse_escape(struct parser *parser, struct text *out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	char c = peek(parser);
	const char *at = c ? strchr(from, c) : NULL;

	if (c == 'u') {
		parser->at++;
		return parse_unicode(parser, out);
	}
	if (!at)
		return refuse_syntax(parser, parser->at, "there is no such escape");
	parser->at++;
	text_add_bytes(out, &to[at - from], 1);
	return 0;
}

/* At the opening quote; *out gets what stands between the quotes. */
static int parse_string(struct parser *parser, struct text *out)
{
	int r;

	parser->at++;
	text_add(out, "");
	while (parser->at < parser->len) {
		size_t start = parser->at;

		while (parser->at < parser->len && (unsigned char)peek(parser) >= 0x20 &&
			peek(parser) != '"' && peek(parser) != '\\')
			parser->at++;
		text_add_bytes(out, parser->text + start, parser->at - start);
		if (take(parser, '"'))
			return out->failed ? ABOX_E_MEMORY : 0;
		if (!take(parser, '\\'))
			return refuse_syntax(parser, parser->at, "control character in a string");
		r = parse_escape(parser, out);
		if (r < 0)
			return r;
	}
	return refuse_syntax(parser, parser->len, "");
}

static size_t skip_digits(struct parser *parser)
{
	size_t start = parser->at;

	while (peek(parser) >= '0' && peek(parser) <= '9')
		parser->at++;
	return parser->at - start;
}

/* Goes over a number as the grammar has it. */
static int scan_number(struct parser *parser, bool *retinteger)
{
	size_t start = parser->at, digits_at;
	bool integer = true, fine;

	take(parser, '-');
	digits_at = parser->at;
	fine = skip_digits(parser) > 0 && (parser->text[digits_at] != '0' || parser->at == digits_at + 1);
	if (fine && take(parser, '.')) {
		integer = false;
		fine = skip_digits(parser) > 0;
	}
	if (fine && (take(parser, 'e') || take(parser, 'E'))) {
		integer = false;
		if (!take(parser, '+'))
			take(parser, '-');
		fine = skip_digits(parser) > 0;
	}
	if (!fine)
		return refuse_syntax(parser, start, "not a number");
	*retinteger = integer;
	return 0;
}

static bool parse_int64(const char *text, size_t len, int64_t *ret)
{
	bool negative = text[0] == '-';
	int64_t value = 0;

	for (size_t i = negative; i < len; i++) {
		int digit = text[i] - '0';

		if (__builtin_mul_overflow(value, 10, &value) ||
			(negative ? __builtin_sub_overflow(value, digit, &value)
				  : __builtin_add_overflow(value, digit, &value)))
			return false;
	}
	*ret = value;
	return true;
}

/* Whatever the locale of the host is. The text is copied because it need not end where the number does. */
static int parse_double(const char *text, size_t len, double *ret)
{
	_cleanup_(freep) char *copy = strndup(text, len);
	locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);

	if (copy && plain)
		*ret = strtod_l(copy, NULL, plain);
	if (plain)
		freelocale(plain);
	return copy && plain ? 0 : ABOX_E_MEMORY;
}

static int parse_number(struct parser *parser, json_t **ret)
{
	size_t start = parser->at;
	int64_t integer = 0;
	double decimal = 0;
	bool is_integer = false;
	int r;

	r = scan_number(parser, &is_integer);
	if (r < 0)
		return r;
	if (is_integer) {
		if (!parse_int64(parser->text + start, parser->at - start, &integer))
			return refuse(parser, start, ABOX_E_SYNTAX, "the number is too large");
		*ret = json_integer(integer);
	} else {
		r = parse_double(parser->text + start, parser->at - start, &decimal);
		if (r < 0)
			return r;
		if (!isfinite(decimal))
			return refuse(parser, start, ABOX_E_SYNTAX, "the number is too large");
		*ret = json_real(decimal);
	}
	return *ret ? 0 : ABOX_E_MEMORY;
}

static int parse_word(struct parser *parser, json_t **ret)
{
	static const char *const words[] = { "null", "true", "false" };
	size_t start = parser->at, len;

	while ((peek(parser) | 32) >= 'a' && (peek(parser) | 32) <= 'z')
		parser->at++;
	len = parser->at - start;
	for (size_t i = 0; i < ELEMENTSOF(words); i++) {
		if (len != strlen(words[i]) || memcmp(parser->text + start, words[i], len) != 0)
			continue;
		*ret = i == 0 ? json_null() : json_boolean(i == 1);
		return 0;
	}
	return refuse_syntax(parser, start, "not a value");
}

static int parse_value(struct parser *parser, json_t **ret);

static int parse_array(struct parser *parser, json_t *array)
{
	json_t *element = NULL;
	int r;

	skip_blanks(parser);
	if (take(parser, ']'))
		return 0;
	for (;;) {
		r = parse_value(parser, &element);
		if (r < 0)
			return r;
		if (json_array_append_new(array, element) < 0)
			return ABOX_E_MEMORY;
		skip_blanks(parser);
		if (take(parser, ']'))
			return 0;
		if (!take(parser, ','))
			return refuse_syntax(parser, parser->at, "`,` or `]` must stand here");
	}
}

static int parse_member(struct parser *parser, json_t *object)
{
	_cleanup_(text_clear) struct text name = TEXT_INIT;
	size_t start;
	json_t *value = NULL;
	int r;

	skip_blanks(parser);
	start = parser->at;
	if (peek(parser) != '"')
		return refuse_syntax(parser, start, "a name in quotes must stand here");
	r = parse_string(parser, &name);
	if (r < 0)
		return r;
	if (json_object_get(object, name.data))
		return refuse(parser, start, ABOX_E_SYNTAX, "this key is given twice");
	skip_blanks(parser);
	if (!take(parser, ':'))
		return refuse_syntax(parser, parser->at, "`:` must stand here");
	r = parse_value(parser, &value);
	if (r < 0)
		return r;
	return json_object_set_new_nocheck(object, name.data, value) < 0 ? ABOX_E_MEMORY : 0;
}

static int parse_object(struct parser *parser, json_t *object)
{
	int r;

	skip_blanks(parser);
	if (take(parser, '}'))
		return 0;
	for (;;) {
		r = parse_member(parser, object);
		if (r < 0)
			return r;
		skip_blanks(parser);
		if (take(parser, '}'))
			return 0;
		if (!take(parser, ','))
			return refuse_syntax(parser, parser->at, "`,` or `}` must stand here");
	}
}

static int parse_container(struct parser *parser, json_t **ret)
{
	bool is_array = peek(parser) == '[';
	json_t *value = NULL;
	int r;

	if (parser->depth >= parser->bounds->max_depth)
		return refuse(parser, parser->at, ABOX_E_LIMIT, "nested too deeply");
	value = is_array ? json_array() : json_object();
	if (!value)
		return ABOX_E_MEMORY;
	parser->at++;
	parser->depth++;
	r = is_array ? parse_array(parser, value) : parse_object(parser, value);
	parser->depth--;
	if (r < 0)
		json_decref(value);
	else
		*ret = value;
	return r;
}

static int parse_text(struct parser *parser, json_t **ret)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	int r;

	r = parse_string(parser, &text);
	if (r < 0)
		return r;
	*ret = json_stringn_nocheck(text.data, text.len);
	return *ret ? 0 : ABOX_E_MEMORY;
}

/* The recursion is as deep as max_depth. */
static int parse_value(struct parser *parser, json_t **ret)
{
	char c;

	skip_blanks(parser);
	c = peek(parser);
	if (c == '{' || c == '[')
		return parse_container(parser, ret);
	if (c == '"')
		return parse_text(parser, ret);
	if (c == '-' || (c >= '0' && c <= '9'))
		return parse_number(parser, ret);
	return parse_word(parser, ret);
}

int json_parse(const char *text, size_t len, const struct json_bounds *bounds, struct json **ret,
	abox_error **reterr)
{
	struct parser parser = { .text = text, .len = len, .bounds = bounds, .reterr = reterr };
	json_t *value = NULL;
	int r;

	if (len > bounds->max_bytes)
		return error_set(reterr, ABOX_E_LIMIT, bounds->stage, NULL, "longer than %zu bytes",
			bounds->max_bytes);
	r = check_bytes(&parser);
	if (r < 0)
		return r;
	json_seed_once();
	r = parse_value(&parser, &value);
	if (r < 0)
		return r;
	skip_blanks(&parser);
	if (parser.at < len) {
		json_decref(value);
		return refuse(&parser, parser.at, ABOX_E_SYNTAX, "something follows the end of the value");
	}
	*ret = (struct json *)value;
	return 0;
}
