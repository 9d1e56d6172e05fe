/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One request and its answer, on a connection that is looked into. */
#ifndef EGRESS_EXCHANGE_H
#define EGRESS_EXCHANGE_H

#include "egress/egress.h"

enum phase {
	PHASE_ACCEPT = 0, /* TLS with the client */
	PHASE_HEAD,
	PHASE_BODY, /* the body is held until it is whole */
	PHASE_WAIT, /* for a credential or the server */
	PHASE_ACTIVE,
};

struct exchange {
	enum phase phase;
	bool denied; /* every request is answered by the connection's verdict */
	bool first; /* no request so far */

	/* the request */
	struct http_head request;
	char *text; /* of the head, which `request` points into */
	size_t text_len, scanned;
	char method[33];
	struct injection injection;
	struct http_body up;
	bool up_done, upgrade;
	bool holds; /* the body is in `held`, whole when the request is sent */
	struct buffer held;
	size_t held_bytes; /* counted in the egress's */
	struct swap swap;

	/* the answer */
	struct http_head answer;
	struct http_body down;
	struct scrub scrub;
	size_t answer_scanned;
	unsigned int status;
	bool answered, down_done, chunked; /* chunked: towards the client */
	bool reused, keep;
	uint64_t received_before; /* of the server's bytes: those of earlier answers */
};

/* answer.c: towards the client */
/* A final answer of our own; the connection ends after it unless `keep`. */
void exchange_respond(
	struct connection *connection, unsigned int status, const char *reason, const char *place, bool keep);
/* 1: got on, 0: nothing to do now, -1: the connection has been ended */
int exchange_down(struct connection *connection);
/* exchange.c */
void exchange_next(struct connection *connection);
void exchange_over(struct connection *connection, const char *reason);

#endif
