/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * RFC 8785 (JSON Canonicalization Scheme): members sorted by UTF-16 code units, numbers as ECMAScript prints
 * them, strings with the fewest escapes. Used for fingerprints only: equal meaning, equal bytes.
 */
#include "effect/canonical.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define CANONICAL_MAX_BYTES (16u << 20)
#define MAX_SAFE_INTEGER 9007199254740991LL

/* Supplementary characters (UTF-8 from 0xf0) are surrogates in UTF-16: they sort before U+E000 (0xee, 0xef).
 */
static int utf16_rank(unsigned char c)
{
	if (c >= 0xf0)
		return c - 2;
	return c >= 0xee ? c + 5 : c;
}

static int compare_names(const void *a, const void *b)
{
	const unsigned char *left = *(const unsigned char *const *)a,
			    *right = *(const unsigned char *const *)b;

	while (*left && *left == *right) {
		left++;
		right++;
	}
	return utf16_rank(*left) - utf16_rank(*right);
}

static void add_string(struct text *text, const char *string)
{
	static const char names[] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};

	text_add(text, "\"");
	for (const char *s = string; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (c == '"' || c == '\\')
			text_printf(text, "\\%c", c);
		else if (c < sizeof(names) && names[c])
			text_printf(text, "\\%c", names[c]);
		else if (c < 0x20)
			text_printf(text, "\\u%04x", c);
		else
			text_add_bytes(text, s, 1);
	}
	text_add(text, "\"");
}

/* The fewest digits that read back as the same number; value = 0.DIGITS * 10^exponent. Any locale's point is
 * skipped. */
static void shortest_digits(double value, char digits[32], int *retexponent)
{
	char buffer[64];
	size_t n = 0;
	int exponent;

	for (int precision = 0; precision <= 16; precision++) {
		snprintf(buffer, sizeof(buffer), "%.*e", precision, value);
		if (strtod(buffer, NULL) == value)
			break;
	}
	for (const char *s = buffer; *s && *s != 'e'; s++)
		if (*s >= '0' && *s <= '9' && n < 31)
			digits[n++] = *s;
	exponent = atoi(strchr(buffer, 'e') + 1) + 1;
	while (n > 1 && digits[n - 1] == '0')
		n--;
	digits[n] = 0;
	*retexponent = exponent;
}

static void add_zeros(struct text *text, int n)
{
	for (; n > 0; n--)
		text_add(text, "0");
}

/* ECMAScript's Number::toString. */
static void add_double(struct text *text, double value)
{
	char digits[32];
	int n, k;

	if (value == 0) {
		text_add(text, "0");
		return;
	}
	if (value < 0) {
		text_add(text, "-");
		value = -value;
	}
	shortest_digits(value, digits, &n);
	k = (int)strlen(digits);
	if (k <= n && n <= 21) {
		text_add(text, digits);
		add_zeros(text, n - k);
	} else if (0 < n && n <= 21) {
		text_add_bytes(text, digits, (size_t)n);
		text_add(text, ".");
		text_add(text, digits + n);
	} else if (-6 < n && n <= 0) {
		text_add(text, "0.");
		add_zeros(text, -n);
		text_add(text, digits);
	} else {
		text_add_bytes(text, digits, 1);
		if (k > 1) {
			text_add(text, ".");
			text_add(text, digits + 1);
		}
		text_printf(text, "e%c%d", n - 1 < 0 ? '-' : '+', abs(n - 1));
	}
}

static int add_value(struct text *text, const struct json *value);

static int add_object(struct text *text, const struct json *object)
{
	_cleanup_(freep) const char **names = NULL;
	size_t n = json_count(object);
	int r;

	r = json_member_names(object, &names);
	if (r < 0)
		return r;
	qsort(names, n, sizeof(*names), compare_names);
	text_add(text, "{");
	for (size_t i = 0; i < n; i++) {
		if (i > 0)
			text_add(text, ",");
		add_string(text, names[i]);
		text_add(text, ":");
		r = add_value(text, json_member(object, names[i]));
		if (r <= 0)
			return r;
	}
	text_add(text, "}");
	return 1;
}

static int add_array(struct text *text, const struct json *array)
{
	int r;

	text_add(text, "[");
	for (size_t i = 0; i < json_count(array); i++) {
		if (i > 0)
			text_add(text, ",");
		r = add_value(text, json_element(array, i));
		if (r <= 0)
			return r;
	}
	text_add(text, "]");
	return 1;
}

static int add_value(struct text *text, const struct json *value)
{
	switch (json_kind(value)) {
	case JSON_KIND_NULL:
		text_add(text, "null");
		return 1;
	case JSON_KIND_BOOLEAN:
		text_add(text, json_truth(value) ? "true" : "false");
		return 1;
	case JSON_KIND_INTEGER:
		if (json_number(value) > MAX_SAFE_INTEGER || json_number(value) < -MAX_SAFE_INTEGER)
			return 0;
		text_printf(text, "%lld", (long long)json_number(value));
		return 1;
	case JSON_KIND_DECIMAL:
		if (!isfinite(json_decimal(value)))
			return 0;
		add_double(text, json_decimal(value));
		return 1;
	case JSON_KIND_STRING:
		add_string(text, json_text(value));
		return 1;
	case JSON_KIND_ARRAY:
		return add_array(text, value);
	case JSON_KIND_OBJECT:
		return add_object(text, value);
	case JSON_KIND_NONE:
		break;
	}
	return 0;
}

/* At most 15 digits are kept by each double that is neither huge nor tiny. Whole numbers are looked at in add_value(). */
static bool keeps_number(const char *token, size_t len)
{
	size_t digits = 0, zeros = 0, i = 0;
	long exponent = 0;
	bool whole = true;

	if (len > 64)
		return false;
	for (; i < len && (token[i] | 32) != 'e'; i++) {
		whole = whole && token[i] != '.';
		if (token[i] == '0') {
			zeros += digits > 0;
		} else if (token[i] >= '1' && token[i] <= '9') {
			digits += zeros + 1;
			zeros = 0;
		}
	}
	if (whole && i == len)
		return true;
	for (; i < len; i++)
		if (token[i] >= '0' && token[i] <= '9' && exponent <= 200)
			exponent = exponent * 10 + (token[i] - '0');
	return digits <= 15 && exponent <= 200;
}

bool canonical_keeps_numbers(const char *data, size_t len)
{
	bool in_string = false;

	for (size_t i = 0, n; i < len; i += n) {
		n = 1;
		if (data[i] == '"') {
			in_string = !in_string;
		} else if (in_string) {
			n += data[i] == '\\';
		} else if (data[i] == '-' || (data[i] >= '0' && data[i] <= '9')) {
			while (i + n < len && data[i + n] && strchr("0123456789+-.eE", data[i + n]))
				n++;
			if (!keeps_number(data + i, n))
				return false;
		}
	}
	return true;
}

int canonical_json(const char *data, size_t len, struct text *text)
{
	static const struct json_bounds bounds = {CANONICAL_MAX_BYTES, 64, ABOX_STAGE_EFFECT};
	_cleanup_(json_unrefp) struct json *tree = NULL;
	_cleanup_(text_clear) struct text form = TEXT_INIT;
	int r;

	if (!data || len > CANONICAL_MAX_BYTES)
		return 0;
	r = json_parse(data, len, &bounds, &tree, NULL);
	if (r < 0)
		return r == ABOX_E_MEMORY ? r : 0;
	r = add_value(&form, tree);
	if (r <= 0)
		return r;
	if (form.failed)
		return ABOX_E_MEMORY;
	text_add_bytes(text, form.data, form.len);
	return text->failed ? ABOX_E_MEMORY : 1;
}
