/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Credentials on their way into a request. Asked for at each use, since who mints them knows until when they
 * hold; kept here only as long as the request takes, and wiped. What would end a header or a line is refused,
 * whoever it comes from.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/pack.h"
#include "base/socket.h"
#include "credential/wire.h"
#include "egress/egress.h"

/* -- the minter -- */

bool injection_ask(struct connection *connection)
{
	struct egress *egress = connection->egress;
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct question *question;

	if (egress->minter.fd < 0)
		return false;
	question = calloc(1, sizeof(*question));
	if (!question)
		return false;
	question->serial = ++egress->serial;
	question->connection = connection;
	pack_u32(&writer, MINTER_ASK);
	pack_u32(&writer, question->serial);
	pack_string(&writer, connection->verdict.credential->name);
	if (writer.failed || socket_send_until(egress->minter.fd, writer.data, writer.len, NULL, 0, 0) < 0) {
		free(question);
		return false;
	}
	question->next = egress->asks;
	egress->asks = question;
	return true;
}

static void minter_gone(struct egress *egress)
{
	watch_close(&egress->minter);
	while (egress->asks) {
		struct question *question = egress->asks;

		egress->asks = question->next;
		if (question->connection)
			exchange_credential(question->connection, NULL, 0, "nobody is there to mint it");
		free(question);
	}
}

static void answered(struct egress *egress, uint8_t *buffer, size_t len)
{
	struct pack_reader reader = PACK_READER(buffer, len);
	uint32_t type = unpack_u32(&reader), serial = unpack_u32(&reader);
	struct question **link = &egress->asks, *question;
	struct connection *connection;
	size_t secret_len;
	const char *secret = unpack_bytes(&reader, &secret_len);

	while (*link && (*link)->serial != serial)
		link = &(*link)->next;
	question = *link;
	if (!question)
		return;
	*link = question->next;
	connection = question->connection;
	free(question);
	if (!connection)
		return;
	if (type == MINTER_SECRET && unpack_done(&reader))
		exchange_credential(connection, secret, secret_len, NULL);
	else /* the text says why, and names no value */
		exchange_credential(connection, NULL, 0, reader.failed ? "it could not be minted" : secret);
}

void minter_ready(struct egress *egress, struct watch *watch, uint32_t events)
{
	static uint8_t buffer[MINTER_PACKET_MAX];
	ssize_t n;

	while ((n = socket_recv_until(watch->fd, buffer, sizeof(buffer), NULL, NULL, 0)) > 0) {
		answered(egress, buffer, (size_t)n);
		explicit_bzero(buffer, (size_t)n);
	}
	if (n != -ETIMEDOUT)
		minter_gone(egress);
}

/* -- values -- */

void injection_clear(struct injection *injection)
{
	if (injection->secret)
		explicit_bzero(injection->secret, injection->secret_len);
	if (injection->value)
		explicit_bzero(injection->value, injection->value_len);
	free(injection->secret);
	free(injection->value);
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
	static const char digits[] = "0123456789ABCDEF";
	char *text = malloc(len * 3 + 1), *p = text;

	for (size_t i = 0; text && i < len; i++) {
		unsigned char c = (unsigned char)secret[i];

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
			strchr("-._~", c)) {
			*p++ = (char)c;
		} else {
			*p++ = '%';
			*p++ = digits[c >> 4];
			*p++ = digits[c & 15];
		}
	}
	*retlen = text ? (size_t)(p - text) : 0;
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

static bool is_ours(const struct rules_credential *credential, struct http_text name)
{
	size_t len = strlen(credential->field);

	if (credential->inject != RULES_INJECT_HEADER || name.len != len)
		return false;
	for (size_t i = 0; i < len; i++)
		if (folded(name.data[i]) != folded(credential->field[i]))
			return false;
	return true;
}

bool injection_field(const struct injection *injection, const struct rules_credential *credential,
	const struct http_field *field, struct scrub *scrub, struct buffer *out, bool *retused)
{
	if (injection->value && is_ours(credential, field->name))
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
