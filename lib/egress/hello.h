/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The first message of a TLS client, as far as it says for whom it is meant. Fed in pieces of any size; each
 * byte is looked at once.
 */
#ifndef EGRESS_HELLO_H
#define EGRESS_HELLO_H

#include "base/macro.h"

#define HELLO_MAX 65536 /* longer messages are refused */
#define HELLO_NAME_MAX 255

enum hello_answer {
	HELLO_MORE = 0,
	HELLO_DONE,
	HELLO_OTHER, /* no TLS at all: the first bytes say so */
	HELLO_BAD,
};

struct hello {
	uint8_t *message; /* the handshake message without the heads of records */
	size_t len, allocated;
	uint8_t record[5];
	size_t record_len; /* bytes of the head so far */
	size_t record_left; /* bytes of the record that are still to come */
	size_t total; /* bytes fed */
	enum hello_answer answer;

	/* when DONE */
	char name[HELLO_NAME_MAX + 1]; /* as sent; "" without SNI */
	bool has_alpn, alpn_http1, ech;
};

void hello_init(struct hello *hello);
void hello_clear(struct hello *hello);
enum hello_answer hello_feed(struct hello *hello, const void *data, size_t len);

#endif
