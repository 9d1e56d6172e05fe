/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Credentials on their way into a request: kept here only as long as the request takes, and wiped. What would end
 * a header or a line is refused, whoever it comes from.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "egress/egress.h"

/* -- values -- */

void injection_clear(struct injection *injection)
{
	if (injection->secret)
		explicit_bzero(injection->secret, injection->secret_len);
	if (injection->value)
		explicit_bzero(injection->value, injection->value_len);
	if (injection->text)
		explicit_bzero(injection->text, injection->text_len);
	free(injection->secret);
	free(injection->value);
	free(injection->text);
	*injection = (struct injection){ 0 };
}

static char *base64(const char *user, const char *secret, size_t len, const char *scheme, size_t *retlen)
{
	size_t user_len = strlen(user), plain_len = user_len + 1 + len, scheme_len = strlen(scheme);
	uint8_t *plain = malloc(plain_len);
	char *text = malloc(scheme_len + plain_len * 4 / 3 + 8);

	if (plain && text) {
		memcpy(plain, user, user_len);
		plain[user_len] = ':';
		memcpy(plain + user_len + 1, secret, len);
		memcpy(text, scheme, scheme_len);
		*retlen = scheme_len +
			  (size_t)EVP_EncodeBlock((uint8_t *)text + scheme_len, plain, (int)plain_len);
		explicit_bzero(plain, plain_len);
		free(plain);
		return text;
	}
	free(plain);
	free(text);
	return NULL;
}

static char *percent(const char *secret, size_t len, size_t *retlen)
{
	struct buffer out = { .secret = true };
	char *text = add_percent(&out, secret, len) ? malloc(buffer_len(&out) + 1) : NULL;

	if (text) {
		memcpy(text, buffer_at(&out), buffer_len(&out));
		*retlen = buffer_len(&out);
	}
	buffer_clear(&out, true);
	return text;
}

static char *prefixed(const char *prefix, const char *secret, size_t len, size_t *retlen)
{
	size_t n = strlen(prefix);
	char *text = malloc(n + len + 1);

	if (!text)
		return NULL;
	memcpy(text, prefix, n);
	memcpy(text + n, secret, len);
	*retlen = n + len;
	return text;
}

const char *injection_set(struct injection *injection, const struct rules_credential *credential,
	const char *secret, size_t len)
{
	injection_clear(injection);
	if (len == 0 || len > SECRET_MAX)
		return "its value is empty or too long";
	/* Security: CR and LF would end the header, NUL and other controls are read differently. */
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)secret[i] < 0x20 || secret[i] == 0x7f)
			return "its value has a control character";
	injection->secret = malloc(len);
	if (!injection->secret)
		return "no memory";
	memcpy(injection->secret, secret, len);
	injection->secret_len = len;
	if (credential->inject == RULES_INJECT_QUERY)
		injection->value = percent(secret, len, &injection->value_len);
	else if (credential->inject == RULES_INJECT_PLACEHOLDER || credential->scheme == RULES_RAW)
		injection->value = prefixed("", secret, len, &injection->value_len);
	else if (credential->scheme == RULES_BASIC)
		injection->value = base64(credential->user, secret, len, "Basic ", &injection->value_len);
	else
		injection->value = prefixed("Bearer ", secret, len, &injection->value_len);
	return injection->value ? NULL : "no memory";
}

bool injection_is_set(const struct injection *injection)
{
	return injection->value || injection->n_fields > 0;
}

/* Security: a signer adds fields; what frames the request, says whom it is for or how it is answered is ours. */
static bool may_be_signed(struct http_text name)
{
	static const char *const ours[] = { "host", "content-length", "transfer-encoding", "connection", "keep-alive",
		"upgrade", "te", "trailer", "expect", "accept-encoding", "range", "if-range" };

	for (size_t i = 0; i < ELEMENTSOF(ours); i++)
		if (http_is(name, ours[i]))
			return false;
	if (name.len >= 6 && strncasecmp(name.data, "proxy-", 6) == 0)
		return false;
	for (size_t i = 0; i < name.len; i++) {
		char c = name.data[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-'))
			return false;
	}
	return name.len > 0 && name.len <= 128;
}

const char *injection_set_fields(struct injection *injection, struct pack_reader *reader)
{
	uint32_t n = unpack_count(reader, 10);
	const char *why = NULL;

	injection_clear(injection);
	if (n == 0 || n > SIGN_FIELDS_MAX)
		return n ? "it made too many headers" : "it made no header";
	injection->text_len = reader->len;
	injection->text = malloc(reader->len);
	if (!injection->text)
		return "no memory";
	memcpy(injection->text, reader->data, reader->len);
	reader->data = (const uint8_t *)injection->text;
	for (uint32_t i = 0; !why && i < n; i++) {
		struct http_field *field = &injection->fields[i];

		field->name.data = unpack_bytes(reader, &field->name.len);
		field->value.data = unpack_bytes(reader, &field->value.len);
		if (reader->failed || !may_be_signed(field->name))
			why = "it made a header that is not its to make";
		else if (field->value.len == 0 || field->value.len > SECRET_MAX)
			why = "its value is empty or too long";
		for (size_t k = 0; !why && k < field->value.len; k++)
			if ((unsigned char)field->value.data[k] < 0x20 || field->value.data[k] == 0x7f)
				why = "its value has a control character";
	}
	if (!why && !unpack_done(reader))
		why = "its answer cannot be read";
	injection->n_fields = why ? 0 : n;
	return why;
}

/* -- into a request -- */

static bool is_parameter(const char *part, size_t len, const char *name)
{
	size_t n = 0, name_len = strlen(name);

	for (size_t i = 0; i < len && part[i] != '='; i++) {
		int c = (unsigned char)part[i];
		char hex[3] = { 0 };

		if (c == '%' && i + 2 < len) {
			memcpy(hex, part + i + 1, 2);
			c = (int)strtoul(hex, NULL, 16);
			i += 2;
		}
		if (n >= name_len || name[n] != (char)c)
			return false;
		n++;
	}
	return n == name_len;
}

static bool add_text(struct buffer *out, const char *text)
{
	return buffer_add(out, text, strlen(text));
}

/* The query without the parameter, then the parameter as it is to be. */
static bool query_replace(
	const struct injection *injection, const char *name, struct http_text query, struct buffer *out)
{
	size_t start = 0;
	char separator = '?';

	for (size_t i = 0; query.data && i <= query.len; i++) {
		if (i < query.len && query.data[i] != '&')
			continue;
		if (i > start && !is_parameter(query.data + start, i - start, name)) {
			if (!buffer_add(out, &separator, 1) ||
				!buffer_add(out, query.data + start, i - start))
				return false;
			separator = '&';
		}
		start = i + 1;
	}
	return buffer_add(out, &separator, 1) && add_text(out, name) && add_text(out, "=") &&
	       buffer_add(out, injection->value, injection->value_len);
}

bool injection_path(const struct injection *injection, const struct rules_credential *credential,
	const struct http_head *head, struct buffer *out)
{
	if (!buffer_add(out, head->path.data, head->path.len))
		return false;
	if (injection->value && credential->inject == RULES_INJECT_QUERY)
		return query_replace(injection, credential->field, head->query, out);
	if (!head->query.data)
		return true;
	return add_text(out, "?") && buffer_add(out, head->query.data, head->query.len);
}

static bool swap(const struct injection *injection, const char *placeholder, const char *data, size_t len,
	struct buffer *out, bool *retused)
{
	size_t n = strlen(placeholder);
	const char *end = data + len, *at;

	while ((at = memmem(data, (size_t)(end - data), placeholder, n))) {
		if (!buffer_add(out, data, (size_t)(at - data)) ||
			!buffer_add(out, injection->value, injection->value_len))
			return false;
		data = at + n;
		*retused = true;
	}
	return buffer_add(out, data, (size_t)(end - data));
}

/* git and curl put the value that they have into "Basic base64(user:value)". */
static bool swap_basic(const struct injection *injection, const char *placeholder, struct http_text value,
	struct scrub *scrub, struct buffer *out, bool *retused)
{
	uint8_t plain[1024];
	struct buffer swapped = { .secret = true };
	size_t len = value.len - 6, encoded;
	bool good = false;
	char *text;
	int n;

	if (len == 0 || len % 4 || len > sizeof(plain))
		return buffer_add(out, value.data, value.len);
	n = EVP_DecodeBlock(plain, (const uint8_t *)value.data + 6, (int)len);
	for (size_t i = 0; n > 0 && i < 2 && value.data[value.len - 1 - i] == '='; i++)
		n--;
	if (n <= 0 || !memmem(plain, (size_t)n, placeholder, strlen(placeholder)))
		return buffer_add(out, value.data, value.len);
	if (swap(injection, placeholder, (char *)plain, (size_t)n, &swapped, retused)) {
		encoded = buffer_len(&swapped) * 4 / 3 + 8;
		text = malloc(encoded);
		if (text) {
			encoded = (size_t)EVP_EncodeBlock((uint8_t *)text,
				(const uint8_t *)buffer_at(&swapped), (int)buffer_len(&swapped));
			/* Security: whoever reads this form has the value. */
			good = scrub_also(scrub, text, encoded) && buffer_add(out, "Basic ", 6) &&
			       buffer_add(out, text, encoded);
			explicit_bzero(text, encoded);
		}
		free(text);
	}
	buffer_clear(&swapped, true);
	return good;
}

/* Some servers read `_` as `-`. */
static char folded(char c)
{
	if (c == '_')
		return '-';
	return c >= 'A' && c <= 'Z' ? (char)(c | 32) : c;
}

static bool is_same(struct http_text name, const char *other, size_t len)
{
	if (name.len != len)
		return false;
	for (size_t i = 0; i < len; i++)
		if (folded(name.data[i]) != folded(other[i]))
			return false;
	return true;
}

static bool is_ours(const struct rules_credential *credential, struct http_text name)
{
	return credential->inject == RULES_INJECT_HEADER &&
	       is_same(name, credential->field, strlen(credential->field));
}

static bool is_signed(const struct injection *injection, struct http_text name)
{
	for (size_t i = 0; i < injection->n_fields; i++)
		if (is_same(name, injection->fields[i].name.data, injection->fields[i].name.len))
			return true;
	return false;
}

bool injection_field(const struct injection *injection, const struct rules_credential *credential,
	const struct http_field *field, struct scrub *scrub, struct buffer *out, bool *retused)
{
	if ((injection->value && is_ours(credential, field->name)) || is_signed(injection, field->name))
		return true; /* ours comes instead */
	if (!buffer_add(out, field->name.data, field->name.len) || !add_text(out, ": "))
		return false;
	if (!injection->value || credential->inject != RULES_INJECT_PLACEHOLDER) {
		if (!buffer_add(out, field->value.data, field->value.len))
			return false;
	} else if (http_is(field->name, "authorization") && field->value.len > 6 &&
		   strncasecmp(field->value.data, "Basic ", 6) == 0) {
		if (!swap_basic(injection, credential->placeholder, field->value, scrub, out, retused))
			return false;
	} else if (!swap(injection, credential->placeholder, field->value.data, field->value.len, out,
			   retused)) {
		return false;
	}
	return add_text(out, "\r\n");
}

bool injection_brought(const struct rules_credential *credential, const struct http_head *head)
{
	size_t start = 0;

	if (credential->inject == RULES_INJECT_QUERY) {
		for (size_t i = 0; head->query.data && i <= head->query.len; i++) {
			if (i < head->query.len && head->query.data[i] != '&')
				continue;
			if (is_parameter(head->query.data + start, i - start, credential->field))
				return true;
			start = i + 1;
		}
		return false;
	}
	for (size_t i = 0; i < head->n_fields; i++) {
		const struct http_field *field = &head->fields[i];

		if (is_ours(credential, field->name))
			return true;
		if (credential->inject == RULES_INJECT_SIGN && http_is(field->name, "authorization"))
			return true;
		/* With a placeholder: a value in the usual place that is not it. (Basic hides it; that is
		 * decoded later.) */
		if (credential->inject == RULES_INJECT_PLACEHOLDER && http_is(field->name, "authorization") &&
			strncasecmp(field->value.data, "Basic ", MIN(field->value.len, 6U)) != 0 &&
			!memmem(field->value.data, field->value.len, credential->placeholder,
				strlen(credential->placeholder)))
			return true;
	}
	return false;
}
