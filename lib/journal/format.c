/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One record, one line: how it is written and how it is read back. README.md in this folder describes the
 * format for other programs. The reader takes exactly what the writer writes, member order included: a line
 * that merely means the same is not a record. Chain and place are the business of segment.c; what a body
 * means, of others.
 */
#include "journal/format.h"

#include <agentbox/error.h>
#include <string.h>

#define SUFFIX_LEN (9 + 64 + 10 + 64 + 2) /* ,"prev":"…","hash":"…"} */
#define HASH_PART_LEN (9 + 64 + 2)        /* ,"hash":"…"} */

static bool is_hex(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f')))
			return false;
	return true;
}

static bool type_is_valid(const char *type, size_t len)
{
	if (len == 0 || len > RECORD_TYPE_MAX)
		return false;
	for (size_t i = 0; i < len; i++) {
		char c = type[i];

		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-'))
			return false;
	}
	return true;
}

struct cursor {
	const char *at;
	const char *end;
};

static bool expect(struct cursor *cursor, const char *text)
{
	size_t n = strlen(text);

	if ((size_t)(cursor->end - cursor->at) < n || memcmp(cursor->at, text, n) != 0)
		return false;
	cursor->at += n;
	return true;
}

/* As written: decimal, no sign, no leading zero. */
static bool read_u64(struct cursor *cursor, uint64_t *ret)
{
	const char *from = cursor->at;
	uint64_t value = 0;

	while (cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9') {
		if (__builtin_mul_overflow(value, 10, &value) ||
			__builtin_add_overflow(value, (uint64_t)(*cursor->at - '0'), &value))
			return false;
		cursor->at++;
	}
	if (cursor->at == from || (*from == '0' && cursor->at - from > 1))
		return false;
	*ret = value;
	return true;
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

/* \uXXXX as text_add_json() writes it: a byte that was no UTF-8 (dc80..dcff), a control, or a line separator.
 */
static size_t read_escape(struct cursor *cursor, char ret[3])
{
	unsigned int code = 0;

	if (cursor->end - cursor->at < 4)
		return 0;
	for (int i = 0; i < 4; i++) {
		int value = hex_value(*cursor->at++);

		if (value < 0)
			return 0;
		code = code << 4 | (unsigned int)value;
	}
	if (code >= 0xdc80 && code <= 0xdcff) {
		ret[0] = (char)(code - 0xdc00);
		return 1;
	}
	if (code > 0 && code < 0x80) {
		ret[0] = (char)code;
		return 1;
	}
	if (code >= 0x80 && code < 0xa0) {
		ret[0] = (char)0xc2;
		ret[1] = (char)code;
		return 2;
	}
	if (code == 0x2028 || code == 0x2029) {
		memcpy(ret, code == 0x2028 ? "\xe2\x80\xa8" : "\xe2\x80\xa9", 3);
		return 3;
	}
	return 0;
}

/* A JSON string of at most max bytes once decoded; no NUL. */
static bool read_string(struct cursor *cursor, char *ret, size_t max)
{
	size_t len = 0;

	if (!expect(cursor, "\""))
		return false;
	while (cursor->at < cursor->end && *cursor->at != '"') {
		char bytes[4];
		size_t n = utf8_char_len(cursor->at, (size_t)(cursor->end - cursor->at));

		if (n == 0 || (unsigned char)*cursor->at < 0x20)
			return false;
		memcpy(bytes, cursor->at, n);
		cursor->at += n;
		if (bytes[0] == '\\') {
			char c = cursor->at < cursor->end ? *cursor->at++ : 0;

			bytes[0] = c;
			if (c == 'u')
				n = read_escape(cursor, bytes);
			else if (c != '"' && c != '\\')
				return false;
			if (n == 0)
				return false;
		}
		if (len + n > max)
			return false;
		memcpy(ret + len, bytes, n);
		len += n;
	}
	ret[len] = 0;
	return expect(cursor, "\"");
}

static bool read_name(struct cursor *cursor, char *buffer, const char **ret)
{
	if (expect(cursor, "null")) {
		*ret = NULL;
		return true;
	}
	*ret = buffer;
	return read_string(cursor, buffer, RECORD_NAME_MAX);
}

static bool read_room(struct cursor *cursor, int64_t *ret)
{
	uint64_t value;
	bool negative;

	*ret = 0;
	if (!expect(cursor, "\"room\":"))
		return true;
	negative = expect(cursor, "-");
	if (!read_u64(cursor, &value) || value == 0 || value > INT32_MAX)
		return false;
	*ret = negative ? -(int64_t)value : (int64_t)value;
	return expect(cursor, ",");
}

static int refuse(const char **retwhy, const char *why)
{
	if (retwhy)
		*retwhy = why;
	return ABOX_E_SYNTAX;
}

static bool read_envelope(struct cursor *cursor, struct journal_record *ret, struct record_texts *texts)
{
	if (!expect(cursor, "{\"seq\":") || !read_u64(cursor, &ret->seq))
		return false;
	if (!expect(cursor, ",\"known\":") || !read_u64(cursor, &ret->known))
		return false;
	if (!expect(cursor, ",\"epoch\":") || !read_u64(cursor, &ret->epoch))
		return false;
	if (!expect(cursor, ",\"time\":") || !read_u64(cursor, &ret->time_usec))
		return false;
	if (!expect(cursor, ",\"type\":") || !read_string(cursor, texts->type, RECORD_TYPE_MAX))
		return false;
	if (!expect(cursor, ",\"task\":") || !read_name(cursor, texts->task, &ret->task))
		return false;
	if (!expect(cursor, ",\"box\":") || !read_name(cursor, texts->box, &ret->box))
		return false;
	return expect(cursor, ",") && read_room(cursor, &ret->room_bytes) && expect(cursor, "\"body\":");
}

int record_parse(const char *line, size_t len, struct journal_record *ret, struct record_texts *texts,
	const char **retwhy)
{
	struct cursor cursor = { line, line + len };
	char hash[DIGEST_TEXT_BYTES];
	const char *suffix;

	if (len < SUFFIX_LEN + 60 || len > RECORD_LINE_MAX)
		return refuse(retwhy, "not a record");
	suffix = line + len - SUFFIX_LEN;
	if (memcmp(suffix, ",\"prev\":\"", 9) != 0 || memcmp(suffix + 73, "\",\"hash\":\"", 10) != 0 ||
		memcmp(suffix + 147, "\"}", 2) != 0 || !is_hex(suffix + 9, 64) || !is_hex(suffix + 83, 64))
		return refuse(retwhy, "not a record");
	/* The hash first: what is torn or flipped is told as that, not as bad syntax. */
	if (digest_sha256_text(line, len - HASH_PART_LEN, hash) < 0 || memcmp(hash, suffix + 83, 64) != 0)
		return refuse(retwhy, "hash does not match");
	if (!read_envelope(&cursor, ret, texts) || cursor.at > suffix)
		return refuse(retwhy, "malformed record");
	if (!type_is_valid(texts->type, strlen(texts->type)))
		return refuse(retwhy, "malformed type");
	ret->body = cursor.at;
	ret->body_len = (size_t)(suffix - cursor.at);
	if (!json_text_is_object(ret->body, ret->body_len))
		return refuse(retwhy, "body is not one JSON object");
	if (ret->known >= ret->seq && ret->seq > 0)
		return refuse(retwhy, "claims to know the future");
	memcpy(texts->prev, suffix + 9, 64);
	texts->prev[64] = 0;
	memcpy(texts->hash, hash, sizeof(hash));
	ret->type = texts->type;
	ret->prev = texts->prev;
	ret->hash = texts->hash;
	ret->line = line;
	ret->line_len = len;
	return 0;
}

static void add_u64(struct text *text, uint64_t value)
{
	char digits[20];
	size_t n = sizeof(digits);

	do
		digits[--n] = (char)('0' + value % 10);
	while ((value /= 10) > 0);
	text_add_bytes(text, digits + n, sizeof(digits) - n);
}

static void add_name(struct text *text, const char *name)
{
	if (name)
		text_add_json(text, name, strlen(name));
	else
		text_add_bytes(text, "null", 4);
}

static void add_number(struct text *text, const char *member, uint64_t value)
{
	text_add(text, member);
	add_u64(text, value);
}

int record_build(struct text *text, const struct record_fields *fields, const struct journal_entry *entry,
	char rethash[DIGEST_TEXT_BYTES], const char **retwhy)
{
	const char *body = entry->body ? entry->body : "{}";
	size_t body_len = entry->body_len ? entry->body_len : strlen(body);
	int r;

	if (!entry->type || !type_is_valid(entry->type, strlen(entry->type))) {
		*retwhy = "type must be 1 to 64 of [a-z0-9._-]";
		return ABOX_E_INVALID;
	}
	if ((entry->task && strlen(entry->task) > RECORD_NAME_MAX) ||
		(entry->box && strlen(entry->box) > RECORD_NAME_MAX)) {
		*retwhy = "task and box have at most 255 bytes";
		return ABOX_E_INVALID;
	}
	text->len = 0;
	add_number(text, "{\"seq\":", fields->seq);
	add_number(text, ",\"known\":", fields->known);
	add_number(text, ",\"epoch\":", entry->epoch);
	add_number(text, ",\"time\":", fields->time_usec);
	text_add(text, ",\"type\":\"");
	text_add(text, entry->type);
	text_add(text, "\",\"task\":");
	add_name(text, entry->task);
	text_add(text, ",\"box\":");
	add_name(text, entry->box);
	if (entry->room_bytes)
		add_number(text, entry->room_bytes < 0 ? ",\"room\":-" : ",\"room\":",
			(uint64_t)(entry->room_bytes < 0 ? -entry->room_bytes : entry->room_bytes));
	text_add(text, ",\"body\":");
	r = json_text_compact(text, body, body_len, true, NULL);
	if (r < 0) {
		*retwhy = "body is not one JSON object";
		return r;
	}
	text_add(text, ",\"prev\":\"");
	text_add_bytes(text, fields->prev, 64);
	text_add(text, "\"");
	if (text->failed)
		return ABOX_E_MEMORY;
	r = digest_sha256_text(text->data, text->len, rethash);
	if (r < 0)
		return r;
	text_add(text, ",\"hash\":\"");
	text_add_bytes(text, rethash, 64);
	text_add(text, "\"}\n");
	return text->failed ? ABOX_E_MEMORY : 0;
}
