/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Texts that grow, and the ways bytes from outside are made safe to show or store.
 */
#include "base/strings.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <agentbox/error.h>

static bool text_reserve(struct text *text, size_t more)
{
	size_t need, size = text->allocated ? text->allocated : 64;
	char *data;

	if (text->failed || !size_add(text->len, more, &need) || !size_add(need, 1, &need))
		goto fail;
	if (need <= text->allocated)
		return true;
	while (size < need)
		if (!size_mul(size, 2, &size))
			goto fail;
	data = realloc(text->data, size);
	if (!data)
		goto fail;
	text->data = data;
	text->allocated = size;
	return true;
fail:
	text->failed = true;
	return false;
}

char *text_room(struct text *text, size_t len)
{
	return text_reserve(text, len) ? text->data + text->len : NULL;
}

void text_grow(struct text *text, size_t len)
{
	text->len += len;
	text->data[text->len] = 0;
}

void text_add_bytes(struct text *text, const void *data, size_t len)
{
	if (!text_reserve(text, len))
		return;
	if (len)
		memcpy(text->data + text->len, data, len);
	text->len += len;
	text->data[text->len] = 0;
}

void text_add(struct text *text, const char *string)
{
	text_add_bytes(text, string, strlen(string));
}

void text_printf(struct text *text, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (n < 0 || !text_reserve(text, (size_t)n)) {
		text->failed = true;
		return;
	}
	va_start(args, format);
	vsnprintf(text->data + text->len, (size_t)n + 1, format, args);
	va_end(args);
	text->len += (size_t)n;
}

size_t utf8_char_len(const char *data, size_t len)
{
	const unsigned char *s = (const unsigned char *)data;
	uint32_t code;
	size_t n;

	if (len == 0)
		return 0;
	if (s[0] < 0x80)
		return 1;
	if (s[0] >= 0xc2 && s[0] <= 0xdf)
		n = 2;
	else if ((s[0] & 0xf0) == 0xe0)
		n = 3;
	else if (s[0] >= 0xf0 && s[0] <= 0xf4)
		n = 4;
	else
		return 0;
	if (len < n)
		return 0;
	code = s[0] & (0xff >> (n + 1));
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (s[i] & 0x3f);
	}
	if ((n == 3 && code < 0x800) || (n == 4 && (code < 0x10000 || code > 0x10ffff)) ||
		(code >= 0xd800 && code <= 0xdfff))
		return 0;
	return n;
}

/* C1 controls are the characters U+0080..U+009F, two bytes in UTF-8: 0xc2 0x80..0x9f. */
static bool is_control(const char *data, size_t n)
{
	const unsigned char *s = (const unsigned char *)data;

	if (n == 1)
		return s[0] < 0x20 || s[0] == 0x7f;
	return n == 2 && s[0] == 0xc2 && s[1] < 0xa0;
}

void text_add_escaped(struct text *text, const char *data, size_t len)
{
	size_t n;

	for (size_t i = 0; i < len; i += n) {
		n = utf8_char_len(data + i, len - i);
		if (n > 0 && !is_control(data + i, n)) {
			text_add_bytes(text, data + i, n);
			continue;
		}
		if (n == 0)
			n = 1;
		for (size_t k = 0; k < n; k++)
			text_printf(text, "\\x%02x", (unsigned char)data[i + k]);
	}
}

void text_add_json(struct text *text, const char *data, size_t len)
{
	size_t n;

	text_add(text, "\"");
	for (size_t i = 0; i < len; i += n) {
		unsigned char c = (unsigned char)data[i];

		n = utf8_char_len(data + i, len - i);
		if (n == 0) {
			text_printf(text, "\\udc%02x", c);
			n = 1;
		} else if (c == '"' || c == '\\') {
			text_printf(text, "\\%c", c);
		} else if (c < 0x20 || c == 0x7f) {
			text_printf(text, "\\u%04x", c);
		} else if (n == 3 && memcmp(data + i, "\xe2\x80\xa8", 3) == 0) {
			text_add(text, "\\u2028");
		} else if (n == 3 && memcmp(data + i, "\xe2\x80\xa9", 3) == 0) {
			text_add(text, "\\u2029");
		} else if (n == 2 && is_control(data + i, n)) {
			text_printf(text, "\\u%04x", (unsigned char)data[i + 1]);
		} else {
			text_add_bytes(text, data + i, n);
		}
	}
	text_add(text, "\"");
}

int text_take(struct text *text, char **rettext)
{
	if (!text->failed && !text->data)
		text_add_bytes(text, "", 0);
	if (text->failed) {
		text_clear(text);
		return ABOX_E_MEMORY;
	}
	*rettext = text->data;
	*text = TEXT_INIT;
	return 0;
}

void text_clear(struct text *text)
{
	free(text->data);
	*text = TEXT_INIT;
}

void hex_encode(const void *data, size_t len, char *ret)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *bytes = data;

	for (size_t i = 0; i < len; i++) {
		ret[2 * i] = digits[bytes[i] >> 4];
		ret[2 * i + 1] = digits[bytes[i] & 15];
	}
	ret[2 * len] = 0;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

int hex_decode(const char *hex, void *ret, size_t len)
{
	unsigned char *bytes = ret;

	if (strlen(hex) != 2 * len)
		return ABOX_E_SYNTAX;
	for (size_t i = 0; i < len; i++) {
		int high = hex_digit(hex[2 * i]), low = hex_digit(hex[2 * i + 1]);

		if (high < 0 || low < 0)
			return ABOX_E_SYNTAX;
		bytes[i] = (unsigned char)(high << 4 | low);
	}
	return 0;
}

bool string_starts_with(const char *string, const char *prefix)
{
	return strncmp(string, prefix, strlen(prefix)) == 0;
}
