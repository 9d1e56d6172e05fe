/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Placeholders in bodies. Bytes in, bytes out: whatever is not the placeholder stays what it is, and where a read
 * has cut one in two it is found all the same. How the value is written depends on what kind of body it is; a body
 * in a coding of its own hides its placeholder, which is then worthless where it arrives.
 */
#include <string.h>

#include "egress/egress.h"

size_t tail_of(const char *data, size_t len, const char *pattern, size_t n)
{
	size_t most = MIN(n - 1, len);

	for (; most > 0; most--)
		if (data[len - most] == pattern[0] && memcmp(data + len - most, pattern, most) == 0)
			return most;
	return 0;
}

static bool is_kind(const struct http_text type, const char *kind)
{
	size_t len = strlen(kind);

	return type.len >= len && strncasecmp(type.data, kind, len) == 0 &&
	       (type.len == len || strchr("; \t", type.data[len]));
}

/* application/json, application/problem+json and their like. */
static bool is_json(const struct http_text type)
{
	const char *end = memchr(type.data, ';', type.len);
	size_t len = end ? (size_t)(end - type.data) : type.len;

	while (len > 0 && (type.data[len - 1] == ' ' || type.data[len - 1] == '\t'))
		len--;
	return len > 5 && (strncasecmp(type.data + len - 5, "/json", 5) == 0 ||
				  strncasecmp(type.data + len - 5, "+json", 5) == 0);
}

bool add_percent(struct buffer *out, const char *value, size_t len)
{
	static const char digits[] = "0123456789ABCDEF";

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)value[i];
		char text[3] = { '%', digits[c >> 4], digits[c & 15] };
		bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
			     strchr("-._~", c);

		if (!buffer_add(out, plain ? value + i : text, plain ? 1 : sizeof(text)))
			return false;
	}
	return true;
}

static bool add_json(struct buffer *out, const char *value, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (((value[i] == '"' || value[i] == '\\') && !buffer_add(out, "\\", 1)) ||
			!buffer_add(out, value + i, 1))
			return false;
	return true;
}

bool swap_set(struct swap *swap, const char *placeholder, struct http_text type, const char *value, size_t len)
{
	swap_clear(swap);
	swap->value.secret = true;
	swap->placeholder = placeholder;
	if (is_kind(type, "application/x-www-form-urlencoded"))
		return add_percent(&swap->value, value, len);
	if (is_json(type))
		return add_json(&swap->value, value, len);
	return buffer_add(&swap->value, value, len);
}

void swap_clear(struct swap *swap)
{
	buffer_clear(&swap->value, true);
	buffer_clear(&swap->held, false);
	swap->placeholder = NULL;
	swap->grown = 0;
}

/* Security: a long value and a body of nothing but placeholders would be some hundred times what the box has sent. */
static bool may_grow(struct swap *swap, size_t n)
{
	size_t value = buffer_len(&swap->value);

	swap->grown += value > n ? value - n : 0;
	return swap->grown <= SWAP_GROWTH_MAX;
}

bool swap_pass(struct swap *swap, const char *data, size_t len, bool end, struct buffer *out)
{
	size_t n = strlen(swap->placeholder), keep;
	const char *at, *found;

	if (!buffer_add(&swap->held, data, len))
		return false;
	at = buffer_at(&swap->held);
	len = buffer_len(&swap->held);
	while ((found = memmem(at, len, swap->placeholder, n))) {
		size_t before = (size_t)(found - at);

		if (!may_grow(swap, n) || !buffer_add(out, at, before) ||
			!buffer_add(out, buffer_at(&swap->value), buffer_len(&swap->value)))
			return false;
		at = found + n;
		len -= before + n;
	}
	keep = end ? 0 : tail_of(at, len, swap->placeholder, n);
	if (!buffer_add(out, at, len - keep))
		return false;
	buffer_take(&swap->held, buffer_len(&swap->held) - keep);
	return true;
}
