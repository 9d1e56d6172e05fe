/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Answers: those of servers, read as strictly as requests and written anew, without what was injected; and
 * our own, which say what was refused, and by which rule.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "egress/exchange.h"

#define OUT_MAX (256 * 1024)

static void goodbye_late(struct connection *connection)
{
	connection_end(connection);
}

static void goodbye(struct connection *connection)
{
	end_close(&connection->server, true);
	connection->step = step_goodbye;
	connection_deadline(connection, LINGER_USEC, goodbye_late);
}

static const char *phrase_of(unsigned int status)
{
	switch (status) {
	case 202:
		return "Accepted";
	case 409:
		return "Conflict";
	case 424:
		return "Failed Dependency";
	case 400:
		return "Bad Request";
	case 413:
		return "Content Too Large";
	case 417:
		return "Expectation Failed";
	case 431:
		return "Request Header Fields Too Large";
	case 502:
		return "Bad Gateway";
	default:
		return "Forbidden by agentbox policy";
	}
}

void exchange_respond(
	struct connection *connection, unsigned int status, const char *reason, const char *place, bool keep)
{
	_cleanup_(text_clear) struct text body = TEXT_INIT, head = TEXT_INIT;
	struct exchange *exchange = connection->exchange;
	bool is_head = strcmp(exchange->method, "HEAD") == 0;
	const char *effect = effect_id(exchange), *approval = effect_approval(exchange);

	if (effect_holds_answer(connection, status, reason, place))
		return;
	upstream_free(connection);
	text_add(&body, status == 403	  ? "{\"error\":\"agentbox policy\",\"reason\":"
			: status == 202 ? "{\"state\":\"deferred\",\"reason\":"
					  : "{\"error\":\"agentbox\",\"reason\":");
	text_add_json(&body, reason, strlen(reason));
	text_add(&body, ",\"rule\":");
	text_add_json(&body, place, strlen(place));
	text_add(&body, ",\"host\":");
	text_add_json(&body, connection_name(connection), strlen(connection_name(connection)));
	text_printf(&body, ",\"port\":%u", connection->target.port);
	if (effect[0])
		text_printf(&body, ",\"effect\":\"%s\"", effect);
	if (approval[0])
		text_printf(&body, ",\"approval\":\"%s\"", approval);
	text_add(&body, "}\n");
	/* The phrase is what npm and others show; the number alone is what git and curl -f do. */
	text_printf(&head,
		"HTTP/1.1 %u %s: %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nAbox-%s: %s\r\n"
		"Cache-Control: no-store\r\n",
		status, phrase_of(status), reason, body.len, status == 403 ? "Denied" : status == 202 ? "Rule" : "Error",
		place);
	if (effect[0])
		text_printf(&head, "Abox-Effect: %s\r\n", effect);
	if (approval[0])
		text_printf(&head, "Abox-Approval: %s\r\n", approval);
	text_printf(&head, "Connection: %s\r\n\r\n", keep ? "keep-alive" : "close");
	if (body.failed || head.failed || !buffer_add(&connection->client.out, head.data, head.len) ||
		(!is_head && !buffer_add(&connection->client.out, body.data, body.len))) {
		connection_reset(connection);
		return;
	}
	exchange->status = status;
	if (keep && end_flush(&connection->client) == 1) {
		exchange_next(connection);
		return;
	}
	goodbye(connection);
}

/* -- heads -- */

static bool add_text(struct buffer *out, const char *text)
{
	return buffer_add(out, text, strlen(text));
}

static bool passes_length(const struct connection *connection)
{
	const struct exchange *exchange = connection->exchange;

	return exchange->answer.framing == HTTP_NONE &&
	       (exchange->answer.status == 304 || strcmp(exchange->method, "HEAD") == 0);
}

static bool add_framing(struct connection *connection, struct buffer *out)
{
	struct exchange *exchange = connection->exchange;
	const struct http_head *answer = &exchange->answer;
	char text[64];

	exchange->chunked = answer->framing == HTTP_CHUNKED && exchange->request.minor == 1;
	if (answer->framing == HTTP_CLOSE || (answer->framing == HTTP_CHUNKED && !exchange->chunked))
		exchange->keep = false;
	if (exchange->chunked && !add_text(out, "Transfer-Encoding: chunked\r\n"))
		return false;
	if (answer->framing == HTTP_LENGTH) {
		snprintf(text, sizeof(text), "Content-Length: %llu\r\n", (unsigned long long)answer->length);
		if (!add_text(out, text))
			return false;
	}
	if (answer->status == 101)
		return add_text(out, "Connection: upgrade\r\nUpgrade: ") &&
		       buffer_add(out, answer->upgrade.data, answer->upgrade.len) && add_text(out, "\r\n");
	if (answer->status < 200)
		return true;
	if (!exchange->keep)
		return add_text(out, "Connection: close\r\n");
	return exchange->request.minor == 1 || add_text(out, "Connection: keep-alive\r\n");
}

static bool write_head(struct connection *connection)
{
	struct exchange *exchange = connection->exchange;
	const struct http_head *answer = &exchange->answer;
	struct buffer head = { 0 };
	char line[32];
	bool good;

	snprintf(line, sizeof(line), "HTTP/1.1 %u ", answer->status);
	good = add_text(&head, line) && buffer_add(&head, answer->reason.data, answer->reason.len) &&
	       add_text(&head, "\r\n");
	for (size_t i = 0; good && i < answer->n_fields; i++) {
		const struct http_field *field = &answer->fields[i];
		bool length = http_is(field->name, "content-length") && passes_length(connection);

		if (field->hop && !length)
			continue;
		/* It would send the next request another way than through us (HTTP/3). */
		if (http_is(field->name, "alt-svc"))
			continue;
		/* That an answer is a stored one is ours to say. */
		if (exchange->effect && field->name.len > 5 && strncasecmp(field->name.data, "abox-", 5) == 0)
			continue;
		good = buffer_add(&head, field->name.data, field->name.len) && add_text(&head, ": ") &&
		       buffer_add(&head, field->value.data, field->value.len) && add_text(&head, "\r\n");
	}
	if (good && effect_id(exchange)[0])
		good = add_text(&head, "Abox-Effect: ") && add_text(&head, effect_id(exchange)) &&
		       add_text(&head, "\r\n");
	good = good && add_framing(connection, &head) && add_text(&head, "\r\n");
	if (good) {
		scrub_once(&exchange->scrub, buffer_at(&head), buffer_len(&head));
		good = buffer_add(effect_out(connection), buffer_at(&head), buffer_len(&head));
	}
	buffer_clear(&head, true);
	return good;
}

/* Why an answer is not passed on; NULL: it is. */
static const char *objection(struct connection *connection)
{
	struct exchange *exchange = connection->exchange;
	const struct http_head *answer = &exchange->answer;
	const struct http_field *coding = http_find(answer, "content-encoding");

	if (answer->status == 101 && (!exchange->upgrade || !http_is(answer->upgrade, "websocket")))
		return "the server changes to another protocol unasked";
	/* Security: a value could be read in halves that nobody recognizes. It was not asked
	 * for: that is taken out of requests that get a credential. */
	if (exchange->scrub.n > 0 && answer->status == 206)
		return "the server's answer is a part, and could hold a part of the credential";
	/* Security: what cannot be read cannot be scrubbed. */
	if (exchange->scrub.n > 0 && coding && !http_is(coding->value, "identity") &&
		answer->framing != HTTP_NONE)
		return "the server's answer is encoded, and could hold the credential";
	return NULL;
}

static int refuse(struct connection *connection, const char *why)
{
	char reason[256];

	snprintf(reason, sizeof(reason), "the server's answer is refused: %s", why);
	event_deny(connection, "answer", reason);
	end_close(&connection->server, true);
	if (connection->exchange->answered)
		connection_reset(connection);
	else
		exchange_respond(connection, 403, reason, "answer", false);
	return 1;
}

static int take_head(struct connection *connection, size_t len)
{
	struct exchange *exchange = connection->exchange;
	struct end *server = &connection->server;
	const char *why;

	why = http_read_answer(buffer_at(&server->in), len, exchange->method, &exchange->answer);
	if (!why)
		why = objection(connection);
	if (why)
		return refuse(connection, why);
	exchange->answer_scanned = 0;
	/* HTTP/1.0 knows no interim answers. */
	if (exchange->answer.status >= 200 && !effect_keep_head(connection))
		return -1;
	/* Nor does anybody wait for those of an effect, whose body was here before it was sent. */
	if ((exchange->answer.status >= 200 || (exchange->request.minor == 1 && !exchange->effect)) &&
		!write_head(connection))
		return -1;
	buffer_take(&server->in, len);
	if (exchange->answer.status == 101) {
		event_request(connection, &exchange->request, 101);
		connection->step = step_relay;
		exchange_free(connection);
		return 1;
	}
	if (exchange->answer.status < 200)
		return 1;
	exchange->status = exchange->answer.status;
	exchange->answered = true;
	event_request(connection, &exchange->request, exchange->status);
	http_body_init(&exchange->down, exchange->answer.framing, exchange->answer.length);
	return 1;
}

/* -- bodies -- */

static bool put(struct connection *connection, const char *data, size_t len, bool end)
{
	struct exchange *exchange = connection->exchange;
	struct buffer *out = effect_out(connection), piece = { 0 };
	char size[32];
	bool good;

	if (exchange->effect) {
		good = scrub_pass(&exchange->scrub, data, len, end, &piece) &&
		       effect_keep(connection, buffer_at(&piece), buffer_len(&piece));
		if (good && buffer_len(&piece) > 0) {
			snprintf(size, sizeof(size), "%zx\r\n", buffer_len(&piece));
			good = (!exchange->chunked || add_text(out, size)) &&
			       buffer_add(out, buffer_at(&piece), buffer_len(&piece)) &&
			       (!exchange->chunked || add_text(out, "\r\n"));
		}
		buffer_clear(&piece, true);
		return good && effect_let_through(connection);
	}
	if (!exchange->chunked)
		return scrub_pass(&exchange->scrub, data, len, end, out);
	if (exchange->scrub.n == 0 && len > 0) {
		snprintf(size, sizeof(size), "%zx\r\n", len);
		return add_text(out, size) && buffer_add(out, data, len) && add_text(out, "\r\n");
	}
	good = scrub_pass(&exchange->scrub, data, len, end, &piece);
	if (good && buffer_len(&piece) > 0) {
		snprintf(size, sizeof(size), "%zx\r\n", buffer_len(&piece));
		good = add_text(out, size) && buffer_add(out, buffer_at(&piece), buffer_len(&piece)) &&
		       add_text(out, "\r\n");
	}
	buffer_clear(&piece, true);
	return good;
}

static int end_answer(struct connection *connection)
{
	struct exchange *exchange = connection->exchange;
	struct buffer *out = effect_out(connection);

	exchange->down_done = true;
	if (!put(connection, "", 0, true))
		return -1;
	if (!exchange->chunked)
		return 1;
	if (exchange->down.trailer_len)
		scrub_once(&exchange->scrub, exchange->down.trailer, exchange->down.trailer_len);
	return add_text(out, "0\r\n") &&
			       buffer_add(out, exchange->down.trailer, exchange->down.trailer_len) &&
			       add_text(out, "\r\n")
		       ? 1
		       : -1;
}

static int finish(struct connection *connection)
{
	struct exchange *exchange = connection->exchange;

	if (!exchange->answer.keep_alive || !exchange->up_done)
		end_close(&connection->server, true);
	if (exchange->keep && exchange->up_done)
		exchange_next(connection);
	else
		goodbye(connection);
	return 1;
}

int exchange_down(struct connection *connection)
{
	struct exchange *exchange = connection->exchange;
	struct end *client = &connection->client, *server = &connection->server;
	struct http_text payload;
	enum http_answer answer;
	size_t used;
	long len;
	ssize_t n;
	int r;

	r = effect_is_held(connection) ? 1 : end_flush(client);
	if (r < 0 && effect_outlives(connection)) {
		buffer_clear(&client->out, true);
		r = 1;
	}
	if (r < 0) {
		connection_reset(connection);
		return 1;
	}
	if (r == 0)
		return 0;
	if (exchange->down_done)
		return effect_finish(connection) ? finish(connection) : 0;
	if (!exchange->answered) {
		len = http_head_find(
			buffer_at(&server->in), buffer_len(&server->in), &exchange->answer_scanned);
		if (len < 0)
			return refuse(connection, "a head that is none");
		if (len > 0)
			return take_head(connection, (size_t)len);
		n = end_fill(server, HTTP_HEAD_MAX);
		if (n == -ENOBUFS)
			return refuse(connection, "a head that is too long");
		return n == -EAGAIN ? 0 : n <= 0 ? -1 : 1;
	}
	answer = http_body_feed(
		&exchange->down, buffer_at(&server->in), buffer_len(&server->in), &used, &payload);
	if (answer == HTTP_BAD)
		return refuse(connection, exchange->down.refused);
	if (answer == HTTP_DATA && !put(connection, payload.data, payload.len, false))
		return -1;
	buffer_take(&server->in, used);
	if (answer == HTTP_DATA)
		return 1;
	if (answer == HTTP_END)
		return end_answer(connection);
	n = end_fill(server, OUT_MAX);
	if (n == -EAGAIN)
		return 0;
	if (n == 0 && exchange->down.framing == HTTP_CLOSE)
		return end_answer(connection);
	return n <= 0 ? -1 : 1;
}
