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
	struct effect *effect; /* NULL: it is none */

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
/* effect.c: requests that are effects. Nothing where the exchange has none */
void effect_ask(struct connection *connection); /* the body is held: exchange_admitted(), or an answer */
void effect_free(struct connection *connection);
bool effect_outlives(struct connection *connection);
void effect_sent(struct connection *connection); /* from here on it may have happened */
bool effect_add_key(struct connection *connection, struct buffer *out);
struct buffer *effect_out(struct connection *connection); /* where the answer for the client goes */
bool effect_is_held(const struct connection *connection); /* the client gets nothing yet */
bool effect_keep_head(struct connection *connection);
bool effect_keep(struct connection *connection, const char *data, size_t len);
bool effect_let_through(struct connection *connection);
/* The answer has ended. False: its outcome is not on disk yet. */
bool effect_finish(struct connection *connection);
/* An answer of our own has to wait until it is on disk that there is no other. */
bool effect_holds_answer(struct connection *connection, unsigned int status, const char *reason, const char *place);
const char *effect_id(const struct exchange *exchange); /* "" for none */
const char *effect_approval(const struct exchange *exchange);
/* refs.c: "OLD NEW REF\n" of each update, added to out. NULL, or why not; *retnone: the probe before a push */
const char *refs_read(const char *data, size_t len, struct buffer *out, bool *retnone);
/* exchange.c */
void exchange_admitted(struct connection *connection); /* nothing is in its way but a credential */
void exchange_next(struct connection *connection);
void exchange_over(struct connection *connection, const char *reason);

#endif
