/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * HTTP/1.1 heads and bodies, read strictly: whatever two readers could take differently is refused. No input,
 * no output: bytes in, facts out.
 */
#ifndef EGRESS_HTTP_H
#define EGRESS_HTTP_H

#include "base/macro.h"

#define HTTP_HEAD_MAX 65536
#define HTTP_FIELDS_MAX 256
#define HTTP_TRAILER_MAX 8192

struct http_text {
	const char *data; /* into the bytes that were read; no NUL behind */
	size_t len;
};
struct http_field {
	struct http_text name, value;
	bool hop; /* for this connection only: not to be passed on */
};

enum http_framing {
	HTTP_NONE = 0, /* no body */
	HTTP_LENGTH,
	HTTP_CHUNKED,
	HTTP_CLOSE, /* until the end of the connection; answers only */
};

struct http_head {
	/* request */
	struct http_text method, target;
	struct http_text path, query; /* of the target; query.data NULL without `?` */
	struct http_text authority; /* Host, or that of an absolute target (then both agree); len 0: none */
	/* answer */
	unsigned int status;
	struct http_text reason;

	unsigned int minor; /* HTTP/1.minor: 0 or 1 */
	struct http_field fields[HTTP_FIELDS_MAX];
	size_t n_fields;
	enum http_framing framing;
	uint64_t length;
	bool keep_alive;
	bool expects_continue;
	struct http_text upgrade; /* the Upgrade field, where Connection names it */
};

/*
 * Whether data begins with a whole head: its length with the empty line, 0 for "more is needed", -1 when no
 * head can come of it (a bare line feed, a control character). *scanned: where to go on; 0 at first.
 */
long http_head_find(const char *data, size_t len, size_t *scanned);

/* Reads a whole head. NULL, or why it is refused; *retstatus is then what a client is told. */
const char *http_read_request(const char *data, size_t len, struct http_head *ret, unsigned int *retstatus);
/* `method`: that of the request it answers. */
const char *http_read_answer(const char *data, size_t len, const char *method, struct http_head *ret);

bool http_is(struct http_text text, const char *word); /* without regard to case */
const struct http_field *http_find(
	const struct http_head *head, const char *name); /* the first of this name */

/* A body in pieces. */
struct http_body {
	enum http_framing framing;
	uint64_t left;
	int state;
	unsigned int digits;
	char *trailer; /* fields behind the last chunk, with their line ends; checked */
	size_t trailer_len;
	const char *refused; /* why, when http_body_feed() answers HTTP_BAD */
};
enum http_answer {
	HTTP_BAD = -1,
	HTTP_MORE = 0, /* all of data was taken, more is to come */
	HTTP_DATA, /* there is payload; feed the rest of data afterwards */
	HTTP_END, /* the body is complete; what follows in data is not part of it */
};
void http_body_init(struct http_body *body, enum http_framing framing, uint64_t length);
void http_body_clear(struct http_body *body);
/* *retused: bytes taken from data, of which the last retpayload->len are payload. */
enum http_answer http_body_feed(
	struct http_body *body, const char *data, size_t len, size_t *retused, struct http_text *retpayload);

#endif
