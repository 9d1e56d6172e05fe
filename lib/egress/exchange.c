/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Requests: each is read whole as far as its head goes, judged on its own, given its credential, and written
 * anew for the server; nothing of the client's bytes gets there but what was understood. Bodies are streamed.
 */
#include "egress/exchange.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/digest.h"
#include "egress/wire.h"

#define OUT_MAX (256 * 1024) /* then the other side is waited for */

/* -- life -- */

static void request_clear(struct connection *connection)
{
	struct exchange *exchange = connection->exchange;

	if (exchange->text)
		explicit_bzero(exchange->text, exchange->text_len);
	free(exchange->text);
	exchange->text = NULL;
	effect_free(connection);
	injection_clear(&exchange->injection);
	scrub_clear(&exchange->scrub);
	swap_clear(&exchange->swap);
	buffer_clear(&exchange->held, true);
	connection->egress->held_bytes -= exchange->held_bytes;
	exchange->held_bytes = 0;
	exchange->holds = false;
	http_body_clear(&exchange->up);
	http_body_clear(&exchange->down);
}

void exchange_free(struct connection *connection)
{
	if (!connection->exchange)
		return;
	request_clear(connection);
	free(connection->exchange);
	connection->exchange = NULL;
}

static void head_late(struct connection *connection)
{
	if (!connection->exchange->first && buffer_len(&connection->client.in) == 0) {
		connection_end(connection); /* idle */
		return;
	}
	event_deny(connection, "http", "a request that did not come to its end in time");
	connection_reset(connection);
}

/* Ready for a request. */
void exchange_next(struct connection *connection)
{
	struct exchange *exchange = connection->exchange;

	request_clear(connection);
	exchange->phase = PHASE_HEAD;
	exchange->scanned = exchange->answer_scanned = 0;
	exchange->up_done = exchange->down_done = exchange->answered = exchange->upgrade = false;
	exchange->reused = exchange->chunked = false;
	exchange->status = 0;
	exchange->method[0] = 0;
	connection_deadline(connection,
		exchange->first || buffer_len(&connection->client.in) > 0 ? (uint64_t)HEAD_USEC : IDLE_USEC,
		head_late);
}

static void start(struct connection *connection, bool denied)
{
	struct exchange *exchange = calloc(1, sizeof(*exchange));

	if (!exchange) {
		connection_reset(connection);
		return;
	}
	connection->exchange = exchange;
	exchange->denied = denied;
	exchange->first = true;
	connection->step = step_exchange;
	if (!connection->tls) {
		exchange_next(connection);
		return;
	}
	exchange->phase = PHASE_ACCEPT;
	connection_deadline(connection, HELLO_USEC, head_late);
	if (tls_accept(&connection->client, connection_name(connection),
		    connection->target.host ? NULL : &connection->target.literal) < 0)
		connection_reset(connection);
}

void exchange_start(struct connection *connection)
{
	start(connection, false);
}

void exchange_deny(struct connection *connection)
{
	if (connection->kind == KIND_TLS)
		connection->tls = true;
	event_deny(connection, connection->verdict.place, connection->verdict.reason);
	start(connection, true);
}

static bool step_accept(struct connection *connection)
{
	const char *why = NULL;
	int r = tls_handshake(&connection->client, &why);

	if (r == 0)
		return false;
	if (r < 0) {
		char reason[160];

		snprintf(reason, sizeof(reason), "TLS with the client: %s", why);
		event_deny(connection, "tls", reason);
		end_flush(&connection->client);
		connection_end(connection);
		return false;
	}
	exchange_next(connection);
	return true;
}

/* -- towards the server -- */

static bool add_text(struct buffer *out, const char *text)
{
	return buffer_add(out, text, strlen(text));
}

static bool add_format(struct buffer *out, const char *format, unsigned long long number)
{
	char text[64];

	snprintf(text, sizeof(text), format, number);
	return add_text(out, text);
}

static bool add_host(struct connection *connection, struct buffer *out)
{
	bool brackets = !connection->target.host && connection->target.literal.len == 16;
	bool usual = connection->target.port == (connection->tls ? 443 : 80);

	return add_text(out, brackets ? "Host: [" : "Host: ") && add_text(out, connection_name(connection)) &&
	       add_text(out, brackets ? "]" : "") &&
	       (usual || add_format(out, ":%llu", connection->target.port)) && add_text(out, "\r\n");
}

static bool add_framing(struct exchange *exchange, struct buffer *out)
{
	const struct http_head *request = &exchange->request;

	if (exchange->holds)
		return add_format(out, "Content-Length: %llu\r\n", buffer_len(&exchange->held));
	if (request->framing == HTTP_CHUNKED)
		return add_text(out, "Transfer-Encoding: chunked\r\n");
	if (request->framing == HTTP_LENGTH)
		return add_format(out, "Content-Length: %llu\r\n", request->length);
	return true;
}

/* The credential of the verdict, where one is put in. */
static const struct rules_credential *credential_of(struct connection *connection)
{
	return injection_is_set(&connection->exchange->injection) ? connection->verdict.credential : NULL;
}

/* Security: of an answer in parts, as of one in a coding, the value could not be taken out. */
static bool asks_for_parts(const struct http_field *field)
{
	return http_is(field->name, "accept-encoding") || http_is(field->name, "range") ||
	       http_is(field->name, "if-range");
}

static bool add_signature(const struct injection *injection, struct buffer *out)
{
	for (size_t i = 0; i < injection->n_fields; i++)
		if (!buffer_add(out, injection->fields[i].name.data, injection->fields[i].name.len) ||
			!add_text(out, ": ") ||
			!buffer_add(out, injection->fields[i].value.data, injection->fields[i].value.len) ||
			!add_text(out, "\r\n"))
			return false;
	return true;
}

static bool write_head(struct connection *connection)
{
	const struct rules_credential *credential = credential_of(connection);
	struct exchange *exchange = connection->exchange;
	const struct http_head *request = &exchange->request;
	struct buffer *out = &connection->server.out;
	bool used = false;

	if (!add_text(out, exchange->method) || !add_text(out, " ") ||
		!injection_path(&exchange->injection, credential, request, out) ||
		!add_text(out, " HTTP/1.1\r\n") || !add_host(connection, out))
		return false;
	for (size_t i = 0; i < request->n_fields; i++) {
		const struct http_field *field = &request->fields[i];

		if (field->hop || http_is(field->name, "host") ||
			((credential || exchange->effect) && asks_for_parts(field)) ||
			(http_is(field->name, "expect") && (request->framing == HTTP_NONE || exchange->holds)))
			continue;
		if (!injection_field(&exchange->injection, credential, field, &exchange->scrub, out, &used))
			return false;
	}
	if (credential && credential->inject == RULES_INJECT_HEADER &&
		(!add_text(out, credential->field) || !add_text(out, ": ") ||
			!buffer_add(out, exchange->injection.value, exchange->injection.value_len) ||
			!add_text(out, "\r\n")))
		return false;
	if (!add_signature(&exchange->injection, out) ||
		((credential || exchange->effect) && !add_text(out, "Accept-Encoding: identity\r\n")) ||
		!effect_add_key(connection, out))
		return false;
	if (exchange->upgrade && (!add_text(out, "Connection: upgrade\r\nUpgrade: ") ||
					 !buffer_add(out, request->upgrade.data, request->upgrade.len) ||
					 !add_text(out, "\r\n")))
		return false;
	return add_framing(exchange, out) && add_text(out, "\r\n");
}

static void activate(struct connection *connection)
{
	struct exchange *exchange = connection->exchange;

	connection->step = step_exchange;
	connection_deadline(connection, UINT64_MAX, NULL);
	effect_sent(connection);
	if (!exchange->holds)
		http_body_init(&exchange->up, exchange->request.framing, exchange->request.length);
	exchange->up_done = exchange->request.framing == HTTP_NONE;
	exchange->received_before = connection->server.received;
	connection->server.out.secret = injection_is_set(&exchange->injection);
	if (connection->server.out.secret)
		event_credential(connection, connection->verdict.credential->name, "credential.use");
	if (!write_head(connection)) {
		connection_reset(connection);
		return;
	}
	exchange->phase = PHASE_ACTIVE;
}

static void connect_failed(struct connection *connection, const char *reason)
{
	connection->step = step_exchange;
	if (connection->verdict.action == RULES_DENY) {
		event_deny(connection, connection->verdict.place, reason);
		exchange_respond(connection, 403, reason, connection->verdict.place, false);
		return;
	}
	if (connection->server.ssl && SSL_get_verify_result(connection->server.ssl) != X509_V_OK) {
		event_deny(connection, "certificate", reason);
		exchange_respond(connection, 403, reason, "certificate", false);
		return;
	}
	exchange_over(connection, reason);
}

/* The server cannot answer. Not a refusal of ours: what a proxy says then. */
void exchange_over(struct connection *connection, const char *reason)
{
	if (!connection->exchange->answered)
		exchange_respond(connection, 502, reason, "server", false);
	else
		connection_reset(connection);
}

static void send_request(struct connection *connection)
{
	struct exchange *exchange = connection->exchange;
	struct rules_verdict verdict = connection->verdict;

	/* A server that closes an idle connection just then would leave it unknown whether an effect happened. */
	exchange->reused = connection->server.watch.fd >= 0 && !exchange->effect;
	/* A server that has closed meanwhile, or speaks unasked, is not gone on with. */
	if (exchange->reused && (buffer_len(&connection->server.in) > 0 ||
					end_fill(&connection->server, 1024) != -EAGAIN))
		exchange->reused = false;
	/* Another rule may allow fewer addresses. */
	if (exchange->reused && connection->pinned.len &&
		!rules_judge_address(connection->rules, &connection->target, &connection->pinned, &verdict))
		exchange->reused = false;
	if (exchange->reused) {
		activate(connection);
		return;
	}
	exchange->phase = PHASE_WAIT;
	upstream_start(connection, connection->tls, activate, connect_failed);
}

/* -- judging -- */

static void deny(struct connection *connection, unsigned int status, const char *place, const char *reason)
{
	const struct exchange *exchange = connection->exchange;

	event_deny(connection, place, reason);
	exchange_respond(connection, status, reason, place,
		status == 403 && exchange->request.framing == HTTP_NONE && exchange->request.keep_alive);
}

/* What is to be looked for in the answer: every form in which the value leaves. */
static bool scrub_signature(struct exchange *exchange)
{
	scrub_clear(&exchange->scrub);
	for (size_t i = 0; i < exchange->injection.n_fields; i++)
		if (!scrub_also(&exchange->scrub, exchange->injection.fields[i].value.data,
			    exchange->injection.fields[i].value.len))
			return false;
	return true;
}

/* The body that is there, or will come, with the value where its placeholder stands. */
static bool swap_body(struct connection *connection)
{
	struct exchange *exchange = connection->exchange;
	const struct http_field *type = http_find(&exchange->request, "content-type");
	struct buffer swapped = { .secret = true };

	if (!connection->verdict.swap_bodies || exchange->request.framing == HTTP_NONE)
		return true;
	if (!swap_set(&exchange->swap, connection->verdict.credential->placeholder,
		    type ? type->value : (struct http_text){ "", 0 }, exchange->injection.secret,
		    exchange->injection.secret_len) ||
		!scrub_also(&exchange->scrub, buffer_at(&exchange->swap.value), buffer_len(&exchange->swap.value)))
		return false;
	if (!exchange->holds)
		return true;
	if (!swap_pass(&exchange->swap, buffer_at(&exchange->held), buffer_len(&exchange->held), true, &swapped)) {
		buffer_clear(&swapped, true);
		return false;
	}
	buffer_clear(&exchange->held, false);
	exchange->held = swapped;
	return true;
}

/* The credential is there, or `why` it is not. */
static void injected(struct connection *connection, const char *why)
{
	struct exchange *exchange = connection->exchange;
	const char *name = connection->verdict.credential->name;
	char reason[512];

	if (!why) {
		send_request(connection);
	} else {
		snprintf(reason, sizeof(reason), "credential '%.128s' cannot be used: %.256s", name, why);
		for (char *p = reason; *p; p++)
			if ((unsigned char)*p < 0x20 || *p == 0x7f)
				*p = ' ';
		injection_clear(&exchange->injection);
		event_credential(connection, name, "credential.fail");
		deny(connection, 403, connection->verdict.place, reason);
	}
	if (!connection->dead)
		connection_wake(connection);
}

static bool waits(const struct connection *connection)
{
	const struct exchange *exchange = connection->exchange;

	return exchange && exchange->phase == PHASE_WAIT && connection->verdict.credential;
}

void exchange_credential(struct connection *connection, const char *secret, size_t len, const char *why)
{
	struct exchange *exchange = connection->exchange;

	if (!waits(connection))
		return;
	if (!why && connection->verdict.credential->inject == RULES_INJECT_SIGN)
		why = "it was not signed";
	if (!why)
		why = injection_set(&exchange->injection, connection->verdict.credential, secret, len);
	if (!why && (!scrub_set(&exchange->scrub, exchange->injection.secret, exchange->injection.secret_len,
			     exchange->injection.value, exchange->injection.value_len) ||
			    !swap_body(connection)))
		why = exchange->swap.grown > SWAP_GROWTH_MAX ? "its placeholder is in the body too often" : "no memory";
	injected(connection, why);
}

void exchange_signed(struct connection *connection, struct pack_reader *reader)
{
	struct exchange *exchange = connection->exchange;
	const char *why = NULL;

	if (!waits(connection))
		return;
	if (connection->verdict.credential->inject != RULES_INJECT_SIGN)
		why = "it was signed, which nobody wanted";
	if (!why)
		why = injection_set_fields(&exchange->injection, reader);
	if (!why && !scrub_signature(exchange))
		why = "no memory";
	injected(connection, why);
}

bool exchange_pack(struct connection *connection, const struct rules_credential *credential, struct pack_writer *writer)
{
	struct exchange *exchange = connection->exchange;
	const struct http_head *request = &exchange->request;
	struct buffer host = { 0 };
	uint8_t digest[DIGEST_BYTES];
	uint32_t n = 0;
	bool good;

	good = add_host(connection, &host) &&
	       digest_sha256(buffer_at(&exchange->held), buffer_len(&exchange->held), digest) == 0;
	pack_string(writer, exchange->method);
	/* "Host: NAME\r\n", as it will be sent */
	pack_bytes(writer, buffer_at(&host) + 6, good ? buffer_len(&host) - 8 : 0);
	buffer_clear(&host, false);
	pack_u32(writer, connection->target.port);
	pack_u8(writer, connection->tls);
	pack_bytes(writer, request->path.data, request->path.len);
	pack_bytes(writer, request->query.data ? request->query.data : "", request->query.len);
	for (int way = 0; way < 2; way++) {
		if (way == 1)
			pack_u32(writer, n);
		for (size_t i = 0; i < request->n_fields; i++) {
			const struct http_field *field = &request->fields[i];
			size_t k = 0;

			while (credential->sign[k] && !http_is(field->name, credential->sign[k]))
				k++;
			if (!credential->sign[k] || field->hop || asks_for_parts(field))
				continue;
			n += way == 0;
			if (way == 1) {
				pack_bytes(writer, field->name.data, field->name.len);
				pack_bytes(writer, field->value.data, field->value.len);
			}
		}
	}
	pack_u64(writer, buffer_len(&exchange->held));
	pack_bytes(writer, digest, sizeof(digest));
	return good;
}

static void credential_late(struct connection *connection)
{
	/* Security: its answer may still come, and the connection wait for another credential by then. */
	for (struct question *ask = connection->egress->asks; ask; ask = ask->next)
		if (ask->connection == connection)
			ask->connection = NULL;
	exchange_credential(connection, NULL, 0, "it was not minted in time");
}

static bool wants_websocket(const struct http_head *request)
{
	return request->upgrade.len > 0 && http_is(request->upgrade, "websocket") && request->minor == 1 &&
	       request->framing == HTTP_NONE && http_is(request->method, "GET");
}

static void ask(struct connection *connection)
{
	connection->exchange->phase = PHASE_WAIT;
	connection_deadline(connection, CREDENTIAL_USEC, credential_late);
	if (!injection_ask(connection))
		exchange_credential(connection, NULL, 0, "nobody is there to mint it");
}

/* -- a body that must be known before its head is sent -- */

static void body_late(struct connection *connection)
{
	deny(connection, 403, "http", "a body that did not come to its end in time");
}

static bool hold_more(struct connection *connection, uint64_t len)
{
	struct exchange *exchange = connection->exchange;
	size_t max = connection->verdict.effect ? EFFECT_SPOOL_BYTES : HELD_MAX;

	if (len > max - exchange->held_bytes) {
		deny(connection, 413, "http", "a body that is too long to be held until it is whole");
		return false;
	}
	if (len > HELD_ALL_MAX - connection->egress->held_bytes) {
		deny(connection, 403, "http", "too many bodies are held at a time");
		return false;
	}
	exchange->held_bytes += len;
	connection->egress->held_bytes += len;
	return true;
}

static void hold(struct connection *connection)
{
	struct exchange *exchange = connection->exchange;
	const struct http_head *request = &exchange->request;

	if (request->framing == HTTP_LENGTH && !hold_more(connection, request->length))
		return;
	exchange->holds = true;
	exchange->phase = PHASE_BODY;
	http_body_init(&exchange->up, request->framing, request->length);
	connection_deadline(connection, BODY_USEC, body_late);
	if (request->expects_continue && !add_text(&connection->client.out, "HTTP/1.1 100 Continue\r\n\r\n"))
		connection_reset(connection);
}

static bool step_body(struct connection *connection)
{
	struct exchange *exchange = connection->exchange;
	struct end *client = &connection->client;
	struct http_text payload;
	enum http_answer answer;
	size_t used;
	ssize_t n;

	if (end_flush(client) < 0) {
		connection_reset(connection);
		return false;
	}
	answer = http_body_feed(&exchange->up, buffer_at(&client->in), buffer_len(&client->in), &used, &payload);
	if (answer == HTTP_DATA) {
		if (exchange->request.framing == HTTP_CHUNKED && !hold_more(connection, payload.len))
			return true;
		if (!buffer_add(&exchange->held, payload.data, payload.len)) {
			connection_reset(connection);
			return false;
		}
	}
	buffer_take(&client->in, used);
	if (answer == HTTP_DATA)
		return true;
	if (answer == HTTP_BAD) {
		deny(connection, 400, "http", exchange->up.refused);
		return true;
	}
	if (answer == HTTP_END) {
		if (connection->verdict.effect)
			effect_ask(connection);
		else
			ask(connection);
		return true;
	}
	n = end_fill(client, OUT_MAX);
	if (n == -EAGAIN)
		return false;
	if (n <= 0) {
		connection_reset(connection);
		return false;
	}
	connection_deadline(connection, BODY_USEC, body_late);
	return true;
}

/* Of a chunked body placeholders are swapped as it goes by; one whose length has been said is known first. */
static bool must_hold(const struct connection *connection)
{
	enum http_framing framing = connection->exchange->request.framing;

	return connection->verdict.credential->inject == RULES_INJECT_SIGN
		       ? framing != HTTP_NONE
		       : connection->verdict.swap_bodies && framing == HTTP_LENGTH;
}

void exchange_admitted(struct connection *connection)
{
	if (connection->verdict.credential)
		ask(connection);
	else
		send_request(connection);
}

static bool may_get_credential(struct connection *connection)
{
	const struct rules_verdict *verdict = &connection->verdict;

	/* Security: the box chooses the port, and without TLS anybody on the way would read it. */
	if (!connection->tls && !verdict->plain) {
		deny(connection, 403, verdict->place,
			"no credential is sent without TLS, unless the rule says \"plain\"");
		return false;
	}
	if (verdict->require && injection_brought(verdict->credential, &connection->exchange->request)) {
		deny(connection, 403, verdict->place, "the request brings a credential of its own");
		return false;
	}
	return true;
}

static void admit(struct connection *connection)
{
	struct exchange *exchange = connection->exchange;
	const struct rules_verdict *verdict = &connection->verdict;

	if (wants_websocket(&exchange->request)) {
		if (!verdict->upgrade) {
			deny(connection, 403, verdict->place, "the rule allows requests, and no WebSocket");
			return;
		}
		if (verdict->effect) {
			deny(connection, 403, verdict->place, "an effect has one answer, and a WebSocket has none");
			return;
		}
		exchange->upgrade = true;
	}
	if (verdict->credential && !may_get_credential(connection))
		return;
	if (verdict->effect) {
		if (exchange->request.framing == HTTP_NONE)
			effect_ask(connection);
		else
			hold(connection);
	} else if (verdict->credential && must_hold(connection)) {
		hold(connection);
	} else {
		exchange_admitted(connection);
	}
}
/* Security: what is judged is what the server will see. A field that is for this connection only, or that
 * `Connection` has made so, is not sent on and fulfils no condition. */
static bool is_sent(const struct http_head *head, const struct http_field *field)
{
	return !field->hop || http_is(field->name, "content-length") ||
	       http_is(field->name, "transfer-encoding") ||
	       (http_is(field->name, "upgrade") && wants_websocket(head));
}

static void judge(struct connection *connection)
{
	struct exchange *exchange = connection->exchange;
	const struct http_head *head = &exchange->request;
	struct rules_field fields[HTTP_FIELDS_MAX];
	struct rules_request request = { .method = exchange->method,
		.path = head->path.data,
		.path_len = head->path.len,
		.query = head->query.data,
		.query_len = head->query.len,
		.fields = fields };

	if (exchange->denied) {
		exchange_respond(connection, 403, connection->verdict.reason, connection->verdict.place,
			head->framing == HTTP_NONE && head->keep_alive);
		return;
	}
	if (http_is(head->method, "connect")) {
		deny(connection, 403, "http", "CONNECT inside of a connection");
		return;
	}
	if (head->authority.len > 0 ? !authority_agrees(connection, head->authority)
				    : !connection->target.host) {
		deny(connection, 403, "http", "the host of the request is not that of the connection");
		return;
	}
	for (size_t i = 0; i < head->n_fields; i++) {
		const struct http_field *field = &head->fields[i];

		if (is_sent(head, field))
			fields[request.n_fields++] = (struct rules_field){ field->name.data,
				field->value.data, field->name.len, field->value.len };
	}
	rules_judge_request(
		connection_rules(connection), &connection->target, &request, &connection->verdict);
	if (connection->verdict.action == RULES_DENY)
		deny(connection, 403, connection->verdict.place, connection->verdict.reason);
	else
		admit(connection);
}

static bool step_head(struct connection *connection)
{
	struct exchange *exchange = connection->exchange;
	struct end *client = &connection->client;
	const char *why = "a head that is none";
	unsigned int status = 400;
	bool had = buffer_len(&client->in) > 0;
	long len;
	ssize_t n;

	len = http_head_find(buffer_at(&client->in), buffer_len(&client->in), &exchange->scanned);
	if (len == 0) {
		n = end_fill(client, HTTP_HEAD_MAX);
		if (n == -EAGAIN)
			return false;
		if (n == -ENOBUFS) {
			exchange->request = (struct http_head){ 0 };
			deny(connection, 431, "http", "a head that is too long");
			return true;
		}
		if (n <= 0) {
			end_finish(client);
			connection_end(connection);
			return false;
		}
		if (!had && !exchange->first)
			connection_deadline(connection, HEAD_USEC, head_late);
		return true;
	}
	connection_known(connection);
	exchange->first = false;
	exchange->text_len = len > 0 ? (size_t)len : 0;
	exchange->text = malloc(exchange->text_len + 1);
	if (len > 0 && exchange->text) {
		memcpy(exchange->text, buffer_at(&client->in), exchange->text_len);
		buffer_take(&client->in, exchange->text_len);
		why = http_read_request(exchange->text, exchange->text_len, &exchange->request, &status);
	} else {
		exchange->request = (struct http_head){ 0 };
	}
	if (why) {
		exchange->request.keep_alive = false;
		deny(connection, status, "http", why);
		return true;
	}
	snprintf(exchange->method, sizeof(exchange->method), "%.*s", (int)exchange->request.method.len,
		exchange->request.method.data);
	/* A proxy's client may ask for another host next: it gets a connection of its own for that. */
	exchange->keep = exchange->request.keep_alive && !(connection->proxied && !connection->tls);
	judge(connection);
	return true;
}

/* -- the body of the request -- */

static int put_chunk(struct connection *connection, const char *data, size_t len)
{
	struct buffer *out = &connection->server.out;

	if (len == 0)
		return 1;
	return add_format(out, "%llx\r\n", len) && buffer_add(out, data, len) && add_text(out, "\r\n") ? 1 : -1;
}

/* A piece of a chunked body in which placeholders are swapped. */
static int put_swapped(struct connection *connection, struct http_text payload, bool end)
{
	struct exchange *exchange = connection->exchange;
	struct buffer piece = { .secret = true };
	int r = -1;

	if (swap_pass(&exchange->swap, payload.data, payload.len, end, &piece))
		r = put_chunk(connection, buffer_at(&piece), buffer_len(&piece));
	buffer_clear(&piece, true);
	return r;
}

static int up_held(struct connection *connection)
{
	struct exchange *exchange = connection->exchange;
	size_t len = MIN(buffer_len(&exchange->held), (size_t)OUT_MAX);

	if (!buffer_add(&connection->server.out, buffer_at(&exchange->held), len))
		return -1;
	buffer_take(&exchange->held, len);
	exchange->up_done = buffer_len(&exchange->held) == 0;
	return 1;
}

static int up(struct connection *connection)
{
	struct exchange *exchange = connection->exchange;
	struct end *client = &connection->client, *server = &connection->server;
	struct http_text payload;
	enum http_answer answer;
	size_t used;
	ssize_t n;
	int r;

	r = end_flush(server);
	if (r <= 0)
		return r; /* a server that takes no more may still have answered: the other direction will see
			   */
	if (exchange->up_done)
		return 0;
	if (exchange->down_done)
		return 0; /* answered already: the rest is not wanted */
	if (exchange->holds)
		return up_held(connection);
	answer = http_body_feed(
		&exchange->up, buffer_at(&client->in), buffer_len(&client->in), &used, &payload);
	if (answer == HTTP_DATA) {
		if (exchange->swap.placeholder)
			r = put_swapped(connection, payload, false);
		else if (exchange->request.framing == HTTP_CHUNKED)
			r = put_chunk(connection, payload.data, payload.len);
		else
			r = buffer_add(&server->out, payload.data, payload.len) ? 1 : -1;
		if (r < 0)
			return -1;
		buffer_take(&client->in, used);
		return 1;
	}
	buffer_take(&client->in, used);
	if (answer == HTTP_END) {
		exchange->up_done = true;
		if (exchange->request.framing != HTTP_CHUNKED)
			return 1;
		if (exchange->swap.placeholder && put_swapped(connection, (struct http_text){ "", 0 }, true) < 0)
			return -1;
		return add_text(&server->out, "0\r\n") &&
				       buffer_add(&server->out, exchange->up.trailer,
					       exchange->up.trailer_len) &&
				       add_text(&server->out, "\r\n")
			       ? 1
			       : -1;
	}
	if (answer == HTTP_BAD) {
		/* Security: the server has the beginning of a request that never ends; so does the
		 * connection. */
		end_close(server, true);
		event_deny(connection, "http", exchange->up.refused);
		if (!exchange->answered)
			exchange_respond(connection, 400, exchange->up.refused, "http", false);
		else
			connection_reset(connection);
		return 1;
	}
	n = end_fill(client, OUT_MAX);
	if (n == -EAGAIN)
		return 0;
	if (n <= 0) { /* cut off: the server must not take it for whole */
		connection_reset(connection);
		return 1;
	}
	return 1;
}

/* A server that closed an idle connection just when it was used again: asked once more where that is
 * harmless. */
static bool again(struct connection *connection)
{
	struct exchange *exchange = connection->exchange;

	if (!exchange->reused || exchange->answered || exchange->request.framing != HTTP_NONE ||
		connection->server.received > exchange->received_before ||
		buffer_len(&connection->server.in) > 0 ||
		(strcmp(exchange->method, "GET") != 0 && strcmp(exchange->method, "HEAD") != 0))
		return false;
	exchange->phase = PHASE_WAIT;
	exchange->answer_scanned = 0;
	upstream_start(connection, connection->tls, activate, connect_failed);
	return true;
}

static bool step_active(struct connection *connection)
{
	struct exchange *exchange = connection->exchange;
	int sent, got;

	sent = up(connection);
	if (connection->dead || connection->exchange != exchange || exchange->phase != PHASE_ACTIVE ||
		connection->step != step_exchange)
		return !connection->dead;
	got = exchange_down(connection);
	if (connection->dead || connection->step != step_exchange || exchange->phase != PHASE_ACTIVE)
		return !connection->dead;
	/* A server that has answered may be gone before all of an effect's body was sent: its outcome is being
	 * written. */
	if (sent < 0 && exchange->effect && exchange->down_done)
		sent = 0;
	if (got < 0 || (sent < 0 && got == 0)) {
		if (!again(connection))
			exchange_over(connection, "the server ended the connection without an answer");
		return !connection->dead;
	}
	if (connection->client.broken && !effect_outlives(connection)) {
		connection_reset(connection);
		return false;
	}
	return sent > 0 || got > 0;
}

bool step_exchange(struct connection *connection)
{
	switch (connection->exchange->phase) {
	case PHASE_ACCEPT:
		return step_accept(connection);
	case PHASE_HEAD:
		return step_head(connection);
	case PHASE_BODY:
		return step_body(connection);
	case PHASE_WAIT:
		if (connection->client.broken && !effect_outlives(connection))
			connection_reset(connection);
		return false;
	case PHASE_ACTIVE:
		return step_active(connection);
	}
	return false;
}
