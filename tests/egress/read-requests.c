/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * For the differential test: requests on standard input, each with its length (4 bytes, little-endian) before
 * it; for each a line of JSON, what egress would take it for, or "null" where it is refused or not whole.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strings.h"
#include "egress/buffer.h"
#include "egress/http.h"

static void add_hex(struct text *text, const char *data, size_t len)
{
	text_add(text, "\"");
	for (size_t i = 0; i < len; i++)
		text_printf(text, "%02x", (unsigned char)data[i]);
	text_add(text, "\"");
}

static bool read_body(
	const struct http_head *head, const char *data, size_t len, struct buffer *out, size_t *retused)
{
	enum http_answer answer = HTTP_MORE;
	struct http_text piece;
	struct http_body body;
	size_t at = 0, used;

	http_body_init(&body, head->framing, head->length);
	do {
		answer = http_body_feed(&body, data + at, len - at, &used, &piece);
		at += used;
		if (answer == HTTP_DATA)
			buffer_add(out, piece.data, piece.len);
	} while (answer == HTTP_DATA);
	http_body_clear(&body);
	*retused = at;
	return answer == HTTP_END;
}

static void read_one(const char *data, size_t len, struct text *text)
{
	static struct http_head head;
	struct buffer body = { 0 };
	size_t scanned = 0, used;
	unsigned int status;
	long n;

	n = http_head_find(data, len, &scanned);
	if (n <= 0 || http_read_request(data, (size_t)n, &head, &status) ||
		!read_body(&head, data + n, len - (size_t)n, &body, &used)) {
		text_add(text, "null\n");
		buffer_clear(&body, false);
		return;
	}
	text_add(text, "{\"method\":");
	add_hex(text, head.method.data, head.method.len);
	text_add(text, ",\"target\":");
	add_hex(text, head.target.data, head.target.len);
	text_add(text, ",\"fields\":[");
	for (size_t i = 0; i < head.n_fields; i++) {
		text_add(text, i ? "," : "");
		add_hex(text, head.fields[i].name.data, head.fields[i].name.len);
		text_add(text, ",");
		add_hex(text, head.fields[i].value.data, head.fields[i].value.len);
	}
	text_add(text, "],\"body\":");
	add_hex(text, buffer_at(&body), buffer_len(&body));
	text_printf(text, ",\"used\":%zu}\n", (size_t)n + used);
	buffer_clear(&body, false);
}

int main(void)
{
	static char data[1 << 17];
	uint8_t size[4];

	while (fread(size, 1, 4, stdin) == 4) {
		size_t len = size[0] | (size_t)size[1] << 8 | (size_t)size[2] << 16;
		struct text text = TEXT_INIT;
		char *copy;

		if (len > sizeof(data) || fread(data, 1, len, stdin) != len)
			return 1;
		copy = malloc(len ? len : 1); /* exact, so that a sanitizer sees a read beyond */
		memcpy(copy, data, len);
		read_one(copy, len, &text);
		fputs(text.data, stdout);
		text_clear(&text);
		free(copy);
	}
	return 0;
}
