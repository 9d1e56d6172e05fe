/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Fingerprints: whether two requests are equal (effects 1.2). SHA-256 over a versioned form in which every
 * field is a tag, its length as 64 bits, little-endian, and its bytes; a list is its tag, the count, and its
 * elements. No two different requests have the same form, whatever bytes they hold.
 *
 * Not in it: dates, attempt, box, plan digest, class. A changed plan must not make a new effect of an old
 * one.
 */
#include "effect/fingerprint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "effect/canonical.h"

#define FORM_VERSION "abox-effect-fingerprint-1"

/* Collects the first failure of many updates. */
struct form {
	struct digest *digest;
	int r;
};

static void form_raw(struct form *form, const void *data, size_t len)
{
	if (form->r >= 0 && len > 0)
		form->r = digest_update(form->digest, data, len);
}

static void form_number(struct form *form, uint64_t number)
{
	uint8_t bytes[8];

	for (int i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(number >> (8 * i));
	form_raw(form, bytes, sizeof(bytes));
}

static void form_bytes(struct form *form, char tag, const void *data, size_t len)
{
	form_raw(form, &tag, 1);
	form_number(form, len);
	form_raw(form, data, len);
}

/* NULL is left out, and so differs from "". */
static void form_text(struct form *form, char tag, const char *text)
{
	if (text)
		form_bytes(form, tag, text, strlen(text));
}

static size_t list_count(const char *const *list)
{
	size_t n = 0;

	while (list && list[n])
		n++;
	return n;
}

static void form_list(struct form *form, char tag, const char *const *list)
{
	size_t n = list_count(list);

	form_raw(form, &tag, 1);
	form_number(form, n);
	for (size_t i = 0; i < n; i++)
		form_bytes(form, tag, list[i], strlen(list[i]));
}

static int compare_texts(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void form_sorted(struct form *form, char tag, const char *const *list)
{
	size_t n = list_count(list);
	_cleanup_(freep) const char **copy = calloc(n + 1, sizeof(*copy));

	if (!copy) {
		form->r = ABOX_E_MEMORY;
		return;
	}
	for (size_t i = 0; i < n; i++)
		copy[i] = list[i];
	qsort(copy, n, sizeof(*copy), compare_texts);
	form_list(form, tag, copy);
}

static char ascii_lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static char *lower_dup(const char *text, size_t len)
{
	char *copy = strndup(text, len);

	for (char *s = copy; s && *s; s++)
		*s = ascii_lower(*s);
	return copy;
}

/* "name: value" with the name in lower case and without blanks around the value. */
static char *header_normal(const char *header)
{
	const char *colon = strchr(header, ':'), *value, *end;
	struct text text = TEXT_INIT;
	_cleanup_(freep) char *name = NULL;

	if (!colon || colon == header)
		return NULL;
	name = lower_dup(header, (size_t)(colon - header));
	value = colon + 1;
	value += strspn(value, " \t");
	end = value + strlen(value);
	while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
		end--;
	text_add(&text, name ? name : "");
	text_add(&text, ": ");
	text_add_bytes(&text, value, (size_t)(end - value));
	if (!name || text.failed) {
		text_clear(&text);
		return NULL;
	}
	return text.data;
}

static bool same_name(const char *a, const char *b)
{
	size_t len = strcspn(a, ":");

	return strcspn(b, ":") == len && memcmp(a, b, len) == 0;
}

static int compare_header_names(const char *a, const char *b)
{
	size_t left = strcspn(a, ":"), right = strcspn(b, ":");
	int r = memcmp(a, b, MIN(left, right));

	return r ? r : (left > right) - (left < right);
}

/* By name only, and stable: the order of equal names counts. There are few headers. */
static void sort_headers(char **headers, size_t n)
{
	for (size_t i = 1; i < n; i++)
		for (size_t k = i; k > 0 && !same_name(headers[k - 1], headers[k]) &&
				   compare_header_names(headers[k - 1], headers[k]) > 0;
			k--) {
			char *swap = headers[k];

			headers[k] = headers[k - 1];
			headers[k - 1] = swap;
		}
}

static int form_headers(struct form *form, const char *const *list, abox_error **reterr)
{
	size_t n = list_count(list), made = 0;
	char **headers = calloc(n + 1, sizeof(*headers));
	int r = 0;

	if (!headers)
		return ABOX_E_MEMORY;
	for (; made < n && r == 0; made++) {
		headers[made] = header_normal(list[made]);
		if (!headers[made])
			r = error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, NULL,
				"a header must be \"Name: value\"");
	}
	if (r == 0) {
		sort_headers(headers, n);
		form_list(form, 'H', (const char *const *)headers);
	}
	for (size_t i = 0; i < made; i++)
		free(headers[i]);
	free((void *)headers);
	return r;
}

/* ---- body ---- */

static int body_from_fd(int fd, char **retdata, size_t *retlen, bool *rettoo_long, abox_error **reterr)
{
	struct text text = TEXT_INIT;
	char buffer[65536];
	ssize_t n;

	for (;;) {
		n = pread(fd, buffer, sizeof(buffer), (off_t)text.len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		text_add_bytes(&text, buffer, (size_t)n);
		if (text.failed || text.len > FINGERPRINT_SPOOL_BYTES)
			break;
	}
	if (n < 0) {
		text_clear(&text);
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_EFFECT, NULL, errno, "cannot read the body");
	}
	*rettoo_long = text.len > FINGERPRINT_SPOOL_BYTES;
	*retlen = text.len;
	return text_take(&text, retdata);
}

static int form_body(
	struct form *form, const struct abox_effect_request *request, bool *rettoo_long, abox_error **reterr)
{
	_cleanup_(text_clear) struct text canonical = TEXT_INIT;
	_cleanup_(freep) char *spool = NULL;
	const char *data = request->body;
	size_t len = request->body_len;
	uint8_t digest[DIGEST_BYTES];
	char tag = 'B';
	int r;

	*rettoo_long = len > FINGERPRINT_SPOOL_BYTES;
	if (request->body_fd >= 0) {
		r = body_from_fd(request->body_fd, &spool, &len, rettoo_long, reterr);
		if (r < 0)
			return r;
		data = spool;
	}
	if (*rettoo_long) {
		form_bytes(form, 'L', NULL, 0);
		return 0;
	}
	if (!data)
		return 0;
	if (request->body_format == ABOX_BODY_JSON && canonical_keeps_numbers(data, len)) {
		r = canonical_json(data, len, &canonical);
		if (r < 0)
			return r;
		if (r == 1) {
			tag = 'J';
			data = canonical.data;
			len = canonical.len;
		}
	}
	r = digest_sha256(data, len, digest);
	if (r < 0)
		return r;
	form_bytes(form, tag, digest, sizeof(digest));
	return 0;
}

/* ---- the whole ---- */

static int check_request(const struct abox_effect_request *request, abox_error **reterr)
{
	size_t target_len;

	if (!request || request->size < sizeof(*request) || !request->target)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, "request",
			"a request with its size and target is required");
	target_len = strlen(request->target);
	if (target_len < 1 || target_len > 1024)
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, "target", "must have 1 to 1024 bytes");
	if (request->kind > ABOX_REQUEST_HTTP || request->body_format > ABOX_BODY_JSON ||
		request->port > 65535)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, "request",
			"kind, body format or port is out of range");
	if (!request->body && request->body_len)
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, "body", "has a length and no bytes");
	if (request->kind == ABOX_REQUEST_ARGV && (!request->argv || !request->argv[0]))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, "argv", "is empty");
	if (request->kind == ABOX_REQUEST_HTTP && (!request->method || !request->host || !request->path))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, "request",
			"method, host and path are required");
	return 0;
}

static int form_request(
	struct form *form, const struct abox_effect_request *request, bool *rettoo_long, abox_error **reterr)
{
	_cleanup_(freep) char *host = NULL;
	int r;

	form_text(form, 'V', FORM_VERSION);
	form_raw(form, "K", 1);
	form_number(form, request->kind);
	form_text(form, 'T', request->target);
	form_sorted(form, 'C', request->credentials);
	if (request->kind == ABOX_REQUEST_ARGV) {
		form_list(form, 'A', request->argv);
		form_sorted(form, 'E', request->env);
		form_text(form, 'D', request->cwd);
	} else if (request->kind == ABOX_REQUEST_HTTP) {
		host = lower_dup(request->host, strlen(request->host));
		if (!host)
			return ABOX_E_MEMORY;
		form_text(form, 'M', request->method);
		form_text(form, 'N', host);
		form_raw(form, "P", 1);
		form_number(form, request->port);
		form_text(form, 'U', request->path);
		form_text(form, 'Q', request->query);
		r = form_headers(form, request->headers, reterr);
		if (r < 0)
			return r;
	}
	r = form_body(form, request, rettoo_long, reterr);
	return r < 0 ? r : form->r;
}

int fingerprint_make(const struct abox_effect_request *request, struct fingerprint *ret, abox_error **reterr)
{
	_cleanup_(digest_freep) struct digest *digest = NULL;
	uint8_t bytes[DIGEST_BYTES];
	struct form form = {0};
	bool too_long = false;
	int r;

	r = check_request(request, reterr);
	if (r < 0)
		return r;
	r = digest_new(&digest);
	if (r < 0)
		return r;
	form.digest = digest;
	r = form_request(&form, request, &too_long, reterr);
	if (r < 0)
		return r;
	r = digest_final(digest, bytes);
	if (r < 0)
		return r;
	hex_encode(bytes, sizeof(bytes), ret->hex);
	ret->without_body = too_long;
	return 0;
}

int fingerprint_derive_key(const char *target, const struct fingerprint *fingerprint, uint64_t wish,
	char rethex[DIGEST_TEXT_BYTES])
{
	_cleanup_(digest_freep) struct digest *digest = NULL;
	uint8_t bytes[DIGEST_BYTES];
	struct form form = {0};
	int r;

	r = digest_new(&digest);
	if (r < 0)
		return r;
	form.digest = digest;
	form_text(&form, 'V', "abox-effect-key-1");
	form_text(&form, 'T', target);
	form_text(&form, 'F', fingerprint->hex);
	form_raw(&form, "W", 1);
	form_number(&form, wish);
	if (form.r < 0)
		return form.r;
	r = digest_final(digest, bytes);
	if (r < 0)
		return r;
	hex_encode(bytes, sizeof(bytes), rethex);
	return 0;
}

/* At most max bytes of s, whole characters, escaped. */
static void add_bounded(struct text *text, const char *s, size_t max)
{
	size_t len = strlen(s), n = 0, step;

	while (n < len) {
		step = utf8_char_len(s + n, len - n);
		if (step == 0)
			step = 1;
		if (n + step > max)
			break;
		n += step;
	}
	text_add_escaped(text, s, n);
	if (n < len)
		text_add(text, "...");
}

void fingerprint_describe(const struct abox_effect_request *request, struct text *text)
{
	if (request->kind == ABOX_REQUEST_ARGV) {
		for (size_t i = 0; request->argv[i] && text->len < 300; i++) {
			if (i > 0)
				text_add(text, " ");
			add_bounded(text, request->argv[i], 100);
		}
	} else if (request->kind == ABOX_REQUEST_HTTP) {
		add_bounded(text, request->method, 16);
		text_add(text, " ");
		add_bounded(text, request->host, 100);
		if (request->port)
			text_printf(text, ":%u", request->port);
		add_bounded(text, request->path, 200);
	} else {
		add_bounded(text, request->target, 200);
	}
	if (request->body_fd >= 0)
		text_add(text, ", body from a file");
	else if (request->body)
		text_printf(text, ", %zu bytes", request->body_len);
}

int abox_effect_fingerprint(const struct abox_effect_request *request, char rethex[65], abox_error **reterr)
{
	struct fingerprint fingerprint;
	int r;

	if (!rethex)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, NULL, "rethex is required");
	r = fingerprint_make(request, &fingerprint, reterr);
	if (r < 0)
		return r;
	memcpy(rethex, fingerprint.hex, sizeof(fingerprint.hex));
	return fingerprint.without_body ? 1 : 0;
}

void abox_effect_request_init(struct abox_effect_request *request)
{
	*request = (struct abox_effect_request){.size = sizeof(*request), .body_fd = -1};
}

int abox_effect_judge_http(uint32_t status)
{
	if (status >= 200 && status < 400)
		return ABOX_DONE_COMMITTED;
	if (status == 425 || status == 429)
		return ABOX_DONE_FAILED_RETRY;
	if (status >= 400 && status < 500 && status != 408)
		return ABOX_DONE_FAILED;
	return ABOX_DONE_UNCLEAR;
}
