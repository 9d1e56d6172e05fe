/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Bodies. Chunks have plain hexadecimal sizes and end in CR LF; extensions are refused, since nobody needs
 * them and readers differ about them. Fields behind the last chunk are kept, unless they would have meant
 * something in the head.
 */
#include <stdlib.h>
#include <string.h>

#include "egress/http.h"

enum {
	CHUNK_SIZE = 0,
	CHUNK_SIZE_LF,
	CHUNK_DATA,
	CHUNK_DATA_CR,
	CHUNK_DATA_LF,
	CHUNK_TRAILER,
	CHUNK_END,
};

void http_body_init(struct http_body *body, enum http_framing framing, uint64_t length)
{
	memset(body, 0, sizeof(*body));
	body->framing = framing;
	body->left = framing == HTTP_LENGTH ? length : 0;
}

void http_body_clear(struct http_body *body)
{
	free(body->trailer);
	http_body_init(body, HTTP_NONE, 0);
}

static enum http_answer refuse(struct http_body *body, const char *why)
{
	body->refused = why;
	return HTTP_BAD;
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 32;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Security: no field may come late that would have decided something in the head. */
static bool is_late(struct http_text name)
{
	static const char *const names[] = { "authorization", "cookie", "set-cookie", "host",
		"content-length", "transfer-encoding", "content-encoding", "content-type", "content-range",
		"connection", "te", "trailer", "upgrade", "expect", "cache-control", "location", "age",
		"expires", "date", "vary" };

	for (size_t i = 0; i < ELEMENTSOF(names); i++)
		if (http_is(name, names[i]))
			return true;
	return name.len >= 6 && strncasecmp(name.data, "proxy-", 6) == 0;
}

/* The trailer is a head without its first line. */
static enum http_answer end_trailer(struct http_body *body)
{
	static const char prefix[] = "HTTP/1.1 200 x\r\n";
	struct http_head *head;
	enum http_answer answer = HTTP_END;
	const char *why = NULL;
	char *text;

	body->state = CHUNK_END;
	if (body->trailer_len == 2) {
		body->trailer_len = 0;
		return HTTP_END;
	}
	head = malloc(sizeof(*head));
	text = malloc(sizeof(prefix) - 1 + body->trailer_len);
	if (head && text) {
		memcpy(text, prefix, sizeof(prefix) - 1);
		memcpy(text + sizeof(prefix) - 1, body->trailer, body->trailer_len);
		why = http_read_answer(text, sizeof(prefix) - 1 + body->trailer_len, "GET", head);
	} else {
		why = "no memory";
	}
	for (size_t i = 0; !why && i < head->n_fields; i++)
		if (is_late(head->fields[i].name))
			why = "a field in the trailer that belongs into the head";
	if (why)
		answer = refuse(body, why);
	body->trailer_len -= 2; /* without the empty line */
	free(head);
	free(text);
	return answer;
}

static enum http_answer trailer_byte(struct http_body *body, char c)
{
	size_t n = body->trailer_len;

	if (!body->trailer)
		body->trailer = malloc(HTTP_TRAILER_MAX);
	if (!body->trailer)
		return refuse(body, "no memory");
	if (n == HTTP_TRAILER_MAX)
		return refuse(body, "a trailer that is too long");
	if ((c == '\n') != (n > 0 && body->trailer[n - 1] == '\r'))
		return refuse(body, "a line end that is none");
	if (c != '\r' && c != '\n' && c != '\t' && ((unsigned char)c < 0x20 || c == 0x7f))
		return refuse(body, "a control character");
	body->trailer[n] = c;
	body->trailer_len = n + 1;
	if (c != '\n')
		return HTTP_MORE;
	return n == 1 || body->trailer[n - 2] == '\n' ? end_trailer(body) : HTTP_MORE;
}

/* One byte that is no payload. */
static enum http_answer chunk_byte(struct http_body *body, char c)
{
	int digit;

	switch (body->state) {
	case CHUNK_SIZE:
		digit = hex_value(c);
		if (digit < 0 && (c != '\r' || body->digits == 0))
			return refuse(body, "a chunk size that is none");
		if (digit < 0) {
			body->state = CHUNK_SIZE_LF;
			return HTTP_MORE;
		}
		if (++body->digits > 15)
			return refuse(body, "a chunk that is too long");
		body->left = body->left * 16 + (uint64_t)digit;
		return HTTP_MORE;
	case CHUNK_SIZE_LF:
		body->state = body->left ? CHUNK_DATA : CHUNK_TRAILER;
		body->digits = 0;
		return c == '\n' ? HTTP_MORE : refuse(body, "a line end that is none");
	case CHUNK_DATA_CR:
		body->state = CHUNK_DATA_LF;
		return c == '\r' ? HTTP_MORE : refuse(body, "a chunk that is longer than its size");
	case CHUNK_DATA_LF:
		body->state = CHUNK_SIZE;
		return c == '\n' ? HTTP_MORE : refuse(body, "a line end that is none");
	default:
		return trailer_byte(body, c);
	}
}

static enum http_answer feed_chunked(
	struct http_body *body, const char *data, size_t len, size_t *retused, struct http_text *retpayload)
{
	enum http_answer answer;
	size_t i = 0;

	while (i < len) {
		if (body->state == CHUNK_DATA) {
			size_t n = MIN(body->left, len - i);

			*retpayload = (struct http_text){ data + i, n };
			*retused = i + n;
			body->left -= n;
			if (body->left == 0)
				body->state = CHUNK_DATA_CR;
			return HTTP_DATA;
		}
		answer = chunk_byte(body, data[i++]);
		*retused = i;
		if (answer != HTTP_MORE)
			return answer;
	}
	return HTTP_MORE;
}

enum http_answer http_body_feed(
	struct http_body *body, const char *data, size_t len, size_t *retused, struct http_text *retpayload)
{
	size_t n = len;

	*retused = 0;
	*retpayload = (struct http_text){ data, 0 };
	if (body->refused)
		return HTTP_BAD;
	switch (body->framing) {
	case HTTP_NONE:
		return HTTP_END;
	case HTTP_CHUNKED:
		return body->state == CHUNK_END ? HTTP_END
						: feed_chunked(body, data, len, retused, retpayload);
	case HTTP_LENGTH:
		if (body->left == 0)
			return HTTP_END;
		n = MIN(body->left, len);
		body->left -= n;
		break;
	case HTTP_CLOSE:
		break;
	}
	if (n == 0)
		return HTTP_MORE;
	*retused = n;
	*retpayload = (struct http_text){ data, n };
	return HTTP_DATA;
}
