/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is told of a push, and so approved, and taken for the same one. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "egress/exchange.h"

#define OLD "0123456789012345678901234567890123456789"
#define NEW "abcdefabcdefabcdefabcdefabcdefabcdefabcd"
#define UPDATE OLD " " NEW " refs/heads/main"

struct body {
	char data[1024];
	size_t len;
};

static void add(struct body *body, const char *line, size_t len)
{
	body->len += (size_t)snprintf(body->data + body->len, 5, "%04zx", len + 4);
	memcpy(body->data + body->len, line, len);
	body->len += len;
}

static void add_bytes(struct body *body, const char *bytes)
{
	memcpy(body->data + body->len, bytes, strlen(bytes));
	body->len += strlen(bytes);
}

/* NULL: refused */
static const char *read_body(const struct body *body, char ret[1024])
{
	struct buffer out = { 0 };
	bool none = false;
	const char *why = refs_read(body->data, body->len, &out, &none);

	snprintf(ret, 1024, "%.*s", (int)buffer_len(&out), buffer_len(&out) ? buffer_at(&out) : "");
	buffer_clear(&out, false);
	cr_assert(!none);
	return why ? NULL : ret;
}

/* Security: an option makes the server do more than the update that somebody has seen. */
Test(refs, options_are_told)
{
	static const char plain[] = UPDATE "\0 report-status agent=x", with[] = UPDATE "\0 report-status push-options agent=x";
	struct body none = { .len = 0 }, one = { .len = 0 }, cut = { .len = 0 }, bad = { .len = 0 };
	char text[1024];

	add(&none, plain, sizeof(plain) - 1);
	add_bytes(&none, "0000PACK...");
	cr_assert_str_eq(read_body(&none, text), UPDATE "\n");
	add(&one, with, sizeof(with) - 1);
	add_bytes(&one, "0000");
	add(&one, "merge_request.create\n", 21);
	add(&one, "ci.skip", 7);
	add_bytes(&one, "0000PACK...");
	cr_assert_str_eq(read_body(&one, text), UPDATE "\noption merge_request.create\noption ci.skip\n");
	add(&cut, with, sizeof(with) - 1);
	add_bytes(&cut, "0000PACK...");
	cr_assert_null(read_body(&cut, text), "none, where there must be a list");
	add(&bad, with, sizeof(with) - 1);
	add_bytes(&bad, "0000");
	add(&bad, "a\n" UPDATE, 2 + sizeof(UPDATE) - 1);
	add_bytes(&bad, "0000");
	cr_assert_null(read_body(&bad, text), "a line in a line");
}

/* A line end in a name would make one update look like two; signed ones are not understood. */
Test(refs, updates_are_whole_lines)
{
	struct body two = { .len = 0 }, inner = { .len = 0 }, cert = { .len = 0 };
	char text[1024];

	add(&two, UPDATE, sizeof(UPDATE) - 1);
	add(&two, UPDATE "\n", sizeof(UPDATE));
	add_bytes(&two, "0000");
	cr_assert_str_eq(read_body(&two, text), UPDATE "\n" UPDATE "\n");
	add(&inner, UPDATE "\n" UPDATE, 2 * sizeof(UPDATE) - 1);
	add_bytes(&inner, "0000");
	cr_assert_null(read_body(&inner, text));
	add(&cert, "push-cert\0x", 11);
	add_bytes(&cert, "0000");
	cr_assert_null(read_body(&cert, text));
}
