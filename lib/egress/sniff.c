/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The beginning of a connection: whom is it for? Three things may say so: the address it was made to (a
 * synthetic one stands for a name), the name in a TLS hello, the host of an HTTP request. Those that are
 * there must agree.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "egress/egress.h"

#define LINE_MAX_BYTES 8192

static void refuse(struct connection *connection, const char *reason)
{
	event_deny(connection, connection->verdict.place[0] ? connection->verdict.place : "address", reason);
	connection_reset(connection);
}

/* -- decisions -- */

static void opaque_connected(struct connection *connection)
{
	event_allow(connection, connection->kind == KIND_TLS ? "tls" : "bytes");
	connection_deadline(connection, UINT64_MAX, NULL);
	connection->step = step_relay;
}

static void connect_failed(struct connection *connection, const char *reason)
{
	if (connection->verdict.action == RULES_DENY &&
		rules_denied(connection->egress->rules) == RULES_EXPLAIN && connection->kind == KIND_TLS) {
		exchange_deny(connection);
		return;
	}
	refuse(connection, reason);
}

static bool step_wait(struct connection *connection)
{
	if (connection->client.broken)
		connection_reset(connection);
	return false;
}

static void pass(struct connection *connection)
{
	connection_known(connection);
	connection->step = step_wait;
	upstream_start(connection, false, opaque_connected, connect_failed);
}

/* Lower case, without the dot at the end. */
static bool same_host(const char *host, const char *text, size_t len)
{
	if (len > 1 && text[len - 1] == '.')
		len--;
	return strlen(host) == len && strncasecmp(host, text, len) == 0;
}

/* HOST[:PORT]. Without one *port stays as it is; an empty host or port is none. */
static bool split_port(struct http_text authority, struct http_text *rethost, unsigned int *port)
{
	const char *colon = NULL, *end = authority.data + authority.len;

	for (size_t i = 0; i < authority.len; i++)
		if (authority.data[i] == ':' && (authority.data[0] != '[' || memchr(authority.data, ']', i)))
			colon = authority.data + i;
	*rethost = authority;
	if (colon) {
		rethost->len = (size_t)(colon - authority.data);
		*port = 0;
		for (const char *p = colon + 1; p < end; p++) {
			if (*p < '0' || *p > '9')
				return false;
			*port = *port * 10 + (unsigned int)(*p - '0');
			if (*port > 65535)
				return false;
		}
		if (colon + 1 == end)
			return false;
	}
	return rethost->len > 0;
}

/* Of IPv6 in brackets, too. */
static bool read_literal(struct http_text host, struct net_address *ret)
{
	if (host.data[0] != '[')
		return address_parse(host.data, host.len, ret);
	return host.len > 2 && host.data[host.len - 1] == ']' && address_parse(host.data + 1, host.len - 2, ret);
}

bool authority_agrees(const struct connection *connection, struct http_text authority)
{
	const struct rules_target *target = &connection->target;
	unsigned int port = connection->tls ? 443 : 80;
	struct net_address literal;
	struct http_text host;

	if (!split_port(authority, &host, &port) || port != target->port)
		return false;
	if (target->host)
		return same_host(target->host, host.data, host.len);
	return read_literal(host, &literal) && address_same(&literal, &target->literal);
}

static void decide_tls(struct connection *connection)
{
	struct rules_verdict *verdict = &connection->verdict;
	const struct hello *hello = &connection->hello;
	size_t len = strlen(hello->name);

	if (len > 0 && (!connection->target.host || !same_host(connection->target.host, hello->name, len))) {
		refuse(connection, "the name in the TLS hello is not that of the address");
		return;
	}
	if (verdict->action != RULES_DENY && verdict->refuse_ech && hello->ech) {
		refuse(connection, "the TLS hello is encrypted (ECH)");
		return;
	}
	if (verdict->action == RULES_PASS) {
		pass(connection);
		return;
	}
	if (verdict->action == RULES_DENY && rules_denied(connection->egress->rules) != RULES_EXPLAIN) {
		refuse(connection, verdict->reason);
		return;
	}
	if (hello->has_alpn && !hello->alpn_http1)
		event_deny(connection, verdict->place,
			"the client offers no HTTP/1.1, and this host is looked into");
	connection->tls = true;
	connection_known(connection);
	if (verdict->action == RULES_DENY)
		exchange_deny(connection);
	else
		exchange_start(connection);
}

static void decide_http(struct connection *connection)
{
	if (connection->verdict.action == RULES_DENY &&
		rules_denied(connection->egress->rules) != RULES_EXPLAIN)
		refuse(connection, connection->verdict.reason);
	else if (connection->verdict.action == RULES_DENY)
		exchange_deny(connection);
	else
		exchange_start(connection);
}

static void decide_opaque(struct connection *connection)
{
	if (connection->verdict.action == RULES_DENY)
		refuse(connection, connection->verdict.reason);
	else if (connection->verdict.action == RULES_INSPECT)
		refuse(connection, "neither TLS nor HTTP/1.1, and each request is to be judged");
	else if (connection->target.port == 80 || connection->target.port == 443)
		refuse(connection, "neither TLS nor HTTP on a port that is for these");
	else
		pass(connection);
}

/* -- what the first bytes are -- */

static enum kind kind_of_line(const char *line, size_t len)
{
	static const char *const versions[] = { " HTTP/1.1\r\n", " HTTP/1.0\r\n", " HTTP/1.1\n",
		" HTTP/1.0\n" };

	for (size_t i = 0; i < ELEMENTSOF(versions); i++) {
		size_t n = strlen(versions[i]);

		if (len > n && memcmp(line + len - n, versions[i], n) == 0)
			return KIND_HTTP;
	}
	return KIND_OPAQUE;
}

/* The kind as soon as it is known; with `end` nothing more will come. */
static enum kind look(struct connection *connection, bool end)
{
	const char *data = buffer_at(&connection->client.in);
	size_t len = buffer_len(&connection->client.in);

	if (connection->kind != KIND_UNKNOWN || len == 0)
		return connection->kind;
	if (data[0] == 22)
		return KIND_TLS;
	for (; connection->scanned < len; connection->scanned++) {
		char c = data[connection->scanned];

		if (c == '\n')
			return kind_of_line(data, connection->scanned + 1);
		if (((unsigned char)c < 0x20 && c != '\r' && c != '\t') ||
			connection->scanned > LINE_MAX_BYTES)
			return KIND_OPAQUE;
	}
	return end ? KIND_OPAQUE : KIND_UNKNOWN;
}

static void silent(struct connection *connection);

static void late(struct connection *connection)
{
	refuse(connection, "nothing was said in time");
}

static void feed_hello(struct connection *connection, size_t from)
{
	size_t len = buffer_len(&connection->client.in);

	if (connection->hello.answer == HELLO_MORE)
		hello_feed(&connection->hello, buffer_at(&connection->client.in) + from, len - from);
}

static bool step_sniff(struct connection *connection)
{
	size_t before = connection->kind == KIND_TLS ? buffer_len(&connection->client.in) : 0;
	ssize_t n = end_fill(&connection->client, HELLO_MAX + 1024);

	if (n == -EAGAIN)
		return false;
	if (n < 0 && n != -ENOBUFS) {
		connection_end(connection);
		return false;
	}
	if (n == 0 && buffer_len(&connection->client.in) == 0) {
		connection_end(connection);
		return false;
	}
	connection->kind = look(connection, n <= 0);
	switch (connection->kind) {
	case KIND_UNKNOWN:
		return true;
	case KIND_HTTP:
		decide_http(connection);
		return true;
	case KIND_OPAQUE:
		decide_opaque(connection);
		return true;
	case KIND_TLS:
		break;
	}
	feed_hello(connection, before);
	switch (connection->hello.answer) {
	case HELLO_DONE:
		decide_tls(connection);
		break;
	case HELLO_MORE:
		if (n > 0)
			return true;
		/* fall through */
	case HELLO_OTHER:
	case HELLO_BAD:
		refuse(connection, "a TLS hello that is none");
		break;
	}
	return true;
}

/* -- a server that speaks first -- */

static void gate_connected(struct connection *connection)
{
	connection->gate = true;
	connection_deadline(connection, UINT64_MAX, NULL);
	connection->step = step_relay;
}

static void silent(struct connection *connection)
{
	/* The rules may have changed since it came. */
	if (buffer_len(&connection->client.in) > 0 || connection->client.in_ended ||
		connection->verdict.action != RULES_PASS) {
		connection_deadline(connection, HELLO_USEC, late);
		return;
	}
	connection->step = step_wait;
	connection_known(connection);
	upstream_start(connection, false, gate_connected, connect_failed);
}

/*
 * The server is connected, the client has said nothing so far. Its first bytes are looked at as they would
 * have been before. True: try again.
 */
bool sniff_gate(struct connection *connection)
{
	size_t before = buffer_len(&connection->client.in);
	ssize_t n = end_fill(&connection->client, HELLO_MAX + 1024);

	if (n == -EAGAIN)
		return false;
	if (n < 0 && n != -ENOBUFS) {
		connection_reset(connection);
		return false;
	}
	if (n == 0 && buffer_len(&connection->client.in) == 0) {
		connection->gate = false;
		connection->kind = KIND_OPAQUE;
		event_allow(connection, "bytes");
		return true;
	}
	if (connection->kind == KIND_UNKNOWN) {
		/* Where the server has spoken first it is no HTTP server. */
		connection->kind = look(connection, n <= 0 || connection->server.received > 0);
		before = 0;
	}
	if (connection->kind == KIND_UNKNOWN)
		return true;
	if (connection->kind == KIND_HTTP && connection->server.received == 0) {
		connection->gate = false;
		exchange_start(connection);
		return true;
	}
	if (connection->kind == KIND_TLS) {
		const char *name = connection->hello.name;

		feed_hello(connection, before);
		if (connection->hello.answer == HELLO_MORE && n > 0)
			return true;
		if (connection->hello.answer != HELLO_DONE ||
			(name[0] && (!connection->target.host ||
					    !same_host(connection->target.host, name, strlen(name)))) ||
			(connection->verdict.refuse_ech && connection->hello.ech)) {
			refuse(connection, "the name in the TLS hello is not that of the address");
			return false;
		}
	}
	connection->gate = false;
	event_allow(connection, connection->kind == KIND_TLS ? "tls" : "bytes");
	return true;
}

/* -- start -- */

static void judge(struct connection *connection)
{
	rules_judge_target(connection_rules(connection), &connection->target, &connection->verdict);
	connection->step = step_sniff;
	if (connection->verdict.action == RULES_PASS && connection->target.port != 80 &&
		connection->target.port != 443)
		connection_deadline(connection, SILENT_USEC, silent);
	else
		connection_deadline(connection, HELLO_USEC, late);
}

void connection_start(struct connection *connection, const struct net_address *wanted, uint16_t port)
{
	struct egress *egress = connection->egress;
	int family = wanted->len == 4 ? AF_INET : AF_INET6;
	const char *name = names_find(egress->names, family, wanted->bytes);
	const char *special = address_special(wanted, NULL);

	connection->target.port = port;
	connection->target.literal = *wanted;
	address_format(wanted, connection->literal);
	if (name) {
		snprintf(connection->host, sizeof(connection->host), "%s", name);
		connection->target.host = connection->host;
	} else if (names_in_pool(family, wanted->bytes)) {
		refuse(connection, "an address that was never given to a name");
		return;
	}
	judge(connection);
	/* The box's own loopback is the box's own: nobody is told a rule about it. */
	if (!name && connection->verdict.action == RULES_DENY && special &&
		(strcmp(special, "loopback") == 0 || strcmp(special, "this host") == 0))
		refuse(connection, connection->verdict.reason);
}

/* -- a listener for programs that insist on a proxy -- */

static bool proxy_host(struct connection *connection, struct http_text authority, bool needs_port)
{
	struct net_address literal;
	unsigned int port = needs_port ? 0 : 80;
	struct http_text text;
	char host[HOST_MAX];

	if (!split_port(authority, &text, &port) || port == 0)
		return false;
	connection->target.port = (uint16_t)port;
	if (!read_literal(text, &literal)) {
		size_t len = text.len;

		if (text.data[len - 1] == '.')
			len--;
		if (len >= sizeof(host) || text.data[0] == '[' || address_is_odd(text.data, len))
			return false;
		for (size_t i = 0; i < len; i++)
			host[i] = text.data[i] >= 'A' && text.data[i] <= 'Z' ? (char)(text.data[i] | 32) : text.data[i];
		host[len] = 0;
		if (!names_is_host(host))
			return false;
		memcpy(connection->host, host, len + 1);
		connection->target.host = connection->host;
		return true;
	}
	connection->target.literal = literal;
	address_format(&literal, connection->literal);
	return true;
}

static bool step_proxy(struct connection *connection)
{
	static const char established[] = "HTTP/1.1 200 Connection established\r\n\r\n";
	struct end *client = &connection->client;
	struct http_head *head;
	const char *why;
	unsigned int status;
	bool tunnel;
	long len;
	ssize_t n;

	n = end_fill(client, HTTP_HEAD_MAX);
	if (n == -EAGAIN)
		return false;
	if (n <= 0) {
		connection_end(connection);
		return false;
	}
	len = http_head_find(buffer_at(&client->in), buffer_len(&client->in), &connection->scanned);
	if (len == 0)
		return true;
	head = len > 0 ? malloc(sizeof(*head)) : NULL;
	why = head ? http_read_request(buffer_at(&client->in), (size_t)len, head, &status)
		   : "a head that is none";
	tunnel = !why && http_is(head->method, "connect");
	if (!why && !(tunnel ? proxy_host(connection, head->target, true)
			     : head->target.data[0] != '/' && proxy_host(connection, head->authority, false)))
		why = "a request for no host, or for one in an odd spelling";
	if (!why && tunnel && !http_is(head->authority, "") &&
		(head->authority.len != head->target.len ||
			strncasecmp(head->authority.data, head->target.data, head->target.len) != 0))
		why = "target and Host disagree";
	free(head);
	connection->scanned = 0;
	connection->proxied = true;
	if (why) {
		snprintf(connection->verdict.place, sizeof(connection->verdict.place), "proxy");
		refuse(connection, why);
		return false;
	}
	judge(connection);
	if (!tunnel) {
		decide_http(connection);
		return true;
	}
	if (connection->verdict.action == RULES_DENY) { /* told before the tunnel, as proxies do */
		connection->kind = KIND_HTTP;
		exchange_deny(connection);
		return true;
	}
	buffer_take(&client->in, (size_t)len);
	if (!buffer_add(&client->out, established, sizeof(established) - 1) || end_flush(client) != 1) {
		connection_reset(connection);
		return false;
	}
	/* The hello may have come with the request. */
	if (buffer_len(&client->in) > 0) {
		refuse(connection, "bytes behind a CONNECT that was not answered yet");
		return false;
	}
	return true;
}

void proxy_listen_start(struct connection *connection)
{
	connection->step = step_proxy;
	connection_deadline(connection, HELLO_USEC, late);
}
