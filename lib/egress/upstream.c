/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The way to a server: addresses of its name from the resolver, each held against the rules; connections to
 * these and no others, the next one tried besides when one is slow; or through the host's own HTTP proxy,
 * where the address that the proxy takes cannot be looked at, which the events say.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/socket.h"
#include "egress/egress.h"
#include "network/rule-inner.h"

#define PROXY_ANSWER_MAX 16384

struct proxy {
	char host[HOST_MAX];
	uint16_t port;
	char *authorization; /* "Basic ...", or NULL */
	char *exceptions; /* NO_PROXY */
};

struct attempt {
	struct watch watch;
	struct connection *connection;
	uint8_t address;
	bool failed;
};

struct upstream {
	struct upstream *next_dead;
	void (*then)(struct connection *connection);
	void (*failed)(struct connection *connection, const char *reason);
	struct net_address addresses[ADDRESSES_MAX];
	uint8_t n_addresses, next;
	struct attempt attempts[ATTEMPTS_MAX];
	uint8_t n_attempts;
	uint64_t give_up_usec;
	uint16_t port;
	bool to_proxy; /* the addresses are the proxy's */
	bool tunnel; /* by CONNECT */
	bool checked; /* the name itself was looked at, as far as that goes */
	bool tls;
	size_t scanned;
};

static void fail(struct connection *connection, const char *reason)
{
	void (*failed)(struct connection *, const char *) = connection->upstream->failed;

	connection_deadline(connection, UINT64_MAX, NULL);
	upstream_free(connection);
	failed(connection, reason);
	if (!connection->dead)
		connection_wake(connection);
}

void upstream_free(struct connection *connection)
{
	struct upstream *upstream = connection->upstream;

	if (!upstream)
		return;
	for (uint8_t i = 0; i < upstream->n_attempts; i++)
		watch_close(&upstream->attempts[i].watch);
	/* An event of this round may still point to one of the attempts. */
	upstream->next_dead = connection->egress->dead_upstreams;
	connection->egress->dead_upstreams = upstream;
	connection->upstream = NULL;
}

void upstreams_bury(struct egress *egress)
{
	while (egress->dead_upstreams) {
		struct upstream *upstream = egress->dead_upstreams;

		egress->dead_upstreams = upstream->next_dead;
		free(upstream);
	}
}

/* -- connected -- */

static void done(struct connection *connection)
{
	void (*then)(struct connection *) = connection->upstream->then;

	upstream_free(connection);
	connection_deadline(connection, UINT64_MAX, NULL);
	then(connection);
	if (!connection->dead)
		connection_wake(connection);
}

static bool step_handshake(struct connection *connection)
{
	const char *why = NULL;
	int r = tls_handshake(&connection->server, &why);

	if (r == 0) {
		if (connection->client.broken)
			connection_reset(connection);
		return false;
	}
	if (r < 0)
		fail(connection, why);
	else
		done(connection);
	return false;
}

static void secure(struct connection *connection)
{
	if (!connection->upstream->tls) {
		done(connection);
		return;
	}
	if (tls_connect(&connection->server, connection_name(connection),
		    connection->target.host ? NULL : &connection->target.literal) < 0) {
		fail(connection, "no memory");
		return;
	}
	connection->step = step_handshake;
	connection_wake(connection);
}

/* The proxy's answer to CONNECT. */
static bool step_tunnel(struct connection *connection)
{
	struct end *server = &connection->server;
	struct http_head *head;
	const char *why;
	unsigned int status;
	long len;
	ssize_t n;

	if (end_flush(server) < 0) {
		fail(connection, "the host's proxy ended the connection");
		return false;
	}
	n = end_fill(server, PROXY_ANSWER_MAX);
	if (n == -EAGAIN)
		return false;
	if (n <= 0) {
		fail(connection, "the host's proxy ended the connection");
		return false;
	}
	len = http_head_find(buffer_at(&server->in), buffer_len(&server->in), &connection->upstream->scanned);
	if (len == 0)
		return true;
	head = len > 0 ? malloc(sizeof(*head)) : NULL;
	why = head ? http_read_answer(buffer_at(&server->in), (size_t)len, "HEAD", head) : "";
	status = why ? 0 : head->status;
	free(head);
	if (status != 200) {
		fail(connection, "upstream proxy refused");
		return false;
	}
	buffer_take(&server->in, (size_t)len);
	secure(connection);
	return false;
}

static void connected(struct connection *connection, struct attempt *attempt)
{
	struct upstream *upstream = connection->upstream;
	struct end *server = &connection->server;
	int fd = attempt->watch.fd, on = 1;

	connection->pinned = upstream->addresses[attempt->address];
	connection->by_proxy = upstream->to_proxy;
	upstream->next = upstream->n_addresses; /* no other is tried any more */
	attempt->watch.fd = -EBADF;
	epoll_ctl(connection->egress->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	server->watch.fd = fd;
	if (watch_add(connection->egress, &server->watch) < 0) {
		fail(connection, "no memory");
		return;
	}
	for (uint8_t i = 0; i < upstream->n_attempts; i++)
		watch_close(&upstream->attempts[i].watch);
	if (upstream->to_proxy)
		connection->pinned.len = 0;
	if (!upstream->tunnel) {
		secure(connection);
		return;
	}
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	const char *name = connection_name(connection);
	bool brackets = !connection->target.host && connection->target.literal.len == 16;
	char authority[HOST_MAX + 16];

	snprintf(authority, sizeof(authority), brackets ? "[%s]:%u" : "%s:%u", name, connection->target.port);
	text_printf(&text, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", authority, authority);
	if (connection->egress->proxy->authorization)
		text_printf(&text, "Proxy-Authorization: %s\r\n", connection->egress->proxy->authorization);
	text_add(&text, "\r\n");
	if (text.failed || !buffer_add(&server->out, text.data, text.len)) {
		fail(connection, "no memory");
		return;
	}
	if (text.data)
		explicit_bzero(text.data, text.len);
	connection->step = step_tunnel;
	connection_wake(connection);
}

/* -- connecting -- */

static bool attempt_next(struct connection *connection);

static void attempt_ready(struct egress *egress, struct watch *watch, uint32_t events)
{
	struct attempt *attempt = (struct attempt *)((char *)watch - offsetof(struct attempt, watch));
	struct connection *connection = attempt->connection;
	struct upstream *upstream = connection->upstream;
	socklen_t size = sizeof(int);
	int error = 0;

	if (watch->fd < 0)
		return;
	if (getsockopt(watch->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
		error = errno;
	if (error == 0 && (events & EPOLLOUT)) {
		connected(connection, attempt);
		return;
	}
	if (error == 0)
		return;
	watch_close(watch);
	attempt->failed = true;
	if (attempt_next(connection))
		return;
	for (uint8_t i = 0; i < upstream->n_attempts; i++)
		if (upstream->attempts[i].watch.fd >= 0)
			return;
	fail(connection, upstream->to_proxy      ? "the host's proxy cannot be reached"
			 : error == ECONNREFUSED ? "connection refused by the server"
						 : "the server cannot be reached");
}

static void attempts_late(struct connection *connection)
{
	struct upstream *upstream = connection->upstream;
	uint64_t now = connection->egress->now_usec;

	if (now >= upstream->give_up_usec) {
		fail(connection, "the server cannot be reached in time");
		return;
	}
	attempt_next(connection);
	if (connection->upstream && connection->deadline_usec == UINT64_MAX)
		connection_deadline(connection, upstream->give_up_usec - now, attempts_late);
}

/* Starts one more. False: there is none left. */
static bool attempt_next(struct connection *connection)
{
	struct upstream *upstream = connection->upstream;
	struct attempt *attempt = NULL;

	for (uint8_t i = 0; i < ATTEMPTS_MAX && !attempt; i++) {
		if (i == upstream->n_attempts) {
			attempt = &upstream->attempts[upstream->n_attempts++];
			attempt->watch.fd = -EBADF;
		} else if (upstream->attempts[i].failed) {
			attempt = &upstream->attempts[i];
		}
	}
	while (attempt && upstream->next < upstream->n_addresses) {
		const struct net_address *address = &upstream->addresses[upstream->next];
		struct sockaddr_storage sockaddr;
		socklen_t len = address_to_sockaddr(address, upstream->port, &sockaddr);
		int fd = socket(sockaddr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		attempt->address = upstream->next++;
		if (fd < 0)
			continue;
		if (connect(fd, (struct sockaddr *)&sockaddr, len) < 0 && errno != EINPROGRESS) {
			fd_close(fd);
			continue;
		}
		*attempt = (struct attempt){ .watch = { .fd = fd, .ready = attempt_ready },
			.connection = connection,
			.address = attempt->address };
		if (watch_add(connection->egress, &attempt->watch) < 0)
			continue;
		if (upstream->next < upstream->n_addresses)
			connection_deadline(connection, STAGGER_USEC, attempts_late);
		else
			connection_deadline(connection,
				upstream->give_up_usec -
					MIN(upstream->give_up_usec, connection->egress->now_usec),
				attempts_late);
		return true;
	}
	return false;
}

/* Families by turns, in the order of the answer: a dead family costs one stagger. */
static void interleave(struct upstream *upstream)
{
	struct net_address sorted[ADDRESSES_MAX];
	uint8_t n = 0, taken[ADDRESSES_MAX] = { 0 };
	uint8_t family = upstream->n_addresses ? upstream->addresses[0].len : 0;

	while (n < upstream->n_addresses) {
		uint8_t found = upstream->n_addresses;

		for (uint8_t i = 0; i < upstream->n_addresses && found == upstream->n_addresses; i++)
			if (!taken[i] && upstream->addresses[i].len == family)
				found = i;
		if (found < upstream->n_addresses) {
			taken[found] = 1;
			sorted[n++] = upstream->addresses[found];
		}
		family = family == 4 ? 16 : 4;
	}
	memcpy(upstream->addresses, sorted, n * sizeof(sorted[0]));
}

static void connect_all(struct connection *connection)
{
	interleave(connection->upstream);
	if (!attempt_next(connection))
		fail(connection, "the server cannot be reached");
}

/* -- names -- */

static void lookup_late(struct connection *connection)
{
	fail(connection, "the name could not be looked up in time");
}

static void to_proxy(struct connection *connection);

static void proxy_lookup_late(struct connection *connection)
{
	for (struct question *question = connection->egress->lookups; question; question = question->next)
		if (question->connection == connection)
			question->connection = NULL;
	connection->upstream->checked = true;
	to_proxy(connection);
}

static bool ask(struct connection *connection, const char *name)
{
	struct egress *egress = connection->egress;
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct question *question = calloc(1, sizeof(*question));

	if (!question)
		return false;
	question->serial = ++egress->serial;
	question->connection = connection;
	pack_u32(&writer, question->serial);
	pack_string(&writer, name);
	if (writer.failed || egress->resolver.fd < 0 ||
		socket_send_until(egress->resolver.fd, writer.data, writer.len, NULL, 0, 0) < 0) {
		free(question);
		return false;
	}
	question->next = egress->lookups;
	egress->lookups = question;
	return true;
}

/* The host's proxy, by its name or address. */
static void to_proxy(struct connection *connection)
{
	struct upstream *upstream = connection->upstream;
	struct proxy *proxy = connection->egress->proxy;

	upstream->to_proxy = true;
	upstream->port = proxy->port;
	upstream->n_addresses = upstream->next = 0;
	if (address_parse(proxy->host, strlen(proxy->host), &upstream->addresses[0])) {
		upstream->n_addresses = 1;
		connect_all(connection);
		return;
	}
	connection_deadline(connection, CONNECT_USEC, lookup_late);
	if (!ask(connection, proxy->host))
		fail(connection, "the host's proxy cannot be looked up");
}

/* Takes what the rules let through. */
static void resolved(struct connection *connection, const struct net_address *addresses, uint8_t n)
{
	struct upstream *upstream = connection->upstream;
	struct rules_verdict verdict, denial = { 0 };
	bool denied = false;

	upstream->n_addresses = 0;
	for (uint8_t i = 0; i < n; i++) {
		verdict = connection->verdict;
		if (rules_judge_address(connection->rules, &connection->target, &addresses[i], &verdict)) {
			upstream->addresses[upstream->n_addresses++] = addresses[i];
		} else if (!denied) {
			denial = verdict;
			denied = true;
		}
	}
	/* Security: behind a proxy all must be good, since it takes whichever it likes. */
	if (denied && (upstream->n_addresses == 0 || upstream->tunnel)) {
		connection->verdict = denial;
		fail(connection, denial.reason);
		return;
	}
	if (!upstream->checked) {
		upstream->checked = true;
		to_proxy(connection);
		return;
	}
	if (upstream->n_addresses == 0)
		fail(connection, "the name does not exist");
	else
		connect_all(connection);
}

void resolver_ready(struct egress *egress, struct watch *watch, uint32_t events)
{
	uint8_t buffer[1024];
	ssize_t n;

	while ((n = socket_recv_until(watch->fd, buffer, sizeof(buffer), NULL, NULL, 0)) > 0) {
		struct pack_reader reader = PACK_READER(buffer, (size_t)n);
		struct net_address addresses[ADDRESSES_MAX];
		struct question **link = &egress->lookups, *question;
		uint32_t serial = unpack_u32(&reader), count = unpack_count(&reader, 5);
		struct connection *connection;
		uint8_t got = 0;

		for (uint32_t i = 0; i < count && i < ADDRESSES_MAX; i++) {
			size_t len;
			const void *bytes = unpack_bytes(&reader, &len);

			if (reader.failed || (len != 4 && len != 16))
				break;
			addresses[got] = (struct net_address){ .len = (uint8_t)len };
			memcpy(addresses[got++].bytes, bytes, len);
		}
		while (*link && (*link)->serial != serial)
			link = &(*link)->next;
		question = *link;
		if (!question)
			continue;
		*link = question->next;
		connection = question->connection;
		free(question);
		if (!connection || !connection->upstream)
			continue;
		if (!connection->upstream->to_proxy) {
			resolved(connection, addresses, got);
			continue;
		}
		memcpy(connection->upstream->addresses, addresses, got * sizeof(addresses[0]));
		connection->upstream->n_addresses = got;
		connect_all(connection);
	}
	if (n != -ETIMEDOUT &&
		n != -EMSGSIZE) /* nothing is looked up any more; those that wait run into their deadline */
		watch_close(watch);
}

/* -- the host's proxy -- */

static bool excepted(const struct proxy *proxy, const char *host)
{
	const char *rest = proxy->exceptions;
	size_t host_len = strlen(host);

	while (*rest) {
		size_t len = strcspn(rest, ", ");
		const char *entry = rest;

		rest += len;
		rest += strspn(rest, ", ");
		if (len == 1 && entry[0] == '*')
			return true;
		if (len > 1 && entry[0] == '*')
			entry++, len--;
		if (len > 0 && entry[0] == '.')
			entry++, len--;
		if (len == 0 || len > host_len || strncasecmp(host + host_len - len, entry, len) != 0)
			continue;
		if (len == host_len || host[host_len - len - 1] == '.')
			return true;
	}
	return false;
}

static char *basic(const char *user, size_t len)
{
	uint8_t plain[512];
	size_t n = 0;
	char *text;

	for (size_t i = 0; i < len && n < sizeof(plain); i++) {
		unsigned int byte;

		if (user[i] == '%' && i + 2 < len && sscanf(user + i + 1, "%2x", &byte) == 1) {
			plain[n++] = (uint8_t)byte;
			i += 2;
		} else {
			plain[n++] = (uint8_t)user[i];
		}
	}
	text = malloc(sizeof("Basic ") + n * 4 / 3 + 4);
	if (!text)
		return NULL;
	memcpy(text, "Basic ", 6);
	EVP_EncodeBlock((uint8_t *)text + 6, plain, (int)n);
	explicit_bzero(plain, sizeof(plain));
	return text;
}

void proxy_set(struct egress *egress, const char *url, const char *no_proxy, struct fault *fault)
{
	struct proxy *proxy;
	const char *at, *colon;
	size_t len;

	if (!url[0])
		return;
	if (strncasecmp(url, "http://", 7) == 0)
		url += 7;
	proxy = calloc(1, sizeof(*proxy));
	if (!proxy) {
		fault_set(fault, ABOX_E_MEMORY, 0, "proxy", "no memory");
		return;
	}
	len = strcspn(url, "/");
	at = memrchr(url, '@', len);
	if (at) {
		proxy->authorization = basic(url, (size_t)(at - url));
		len -= (size_t)(at + 1 - url);
		url = at + 1;
	}
	colon = memrchr(url, ':', len);
	proxy->port = colon ? (uint16_t)strtoul(colon + 1, NULL, 10) : 80;
	len = colon ? (size_t)(colon - url) : len;
	proxy->exceptions = strdup(no_proxy);
	if (len > 2 && url[0] == '[') {
		url++;
		len -= 2;
	}
	if (len == 0 || len >= sizeof(proxy->host) || proxy->port == 0 || !proxy->exceptions ||
		strstr(url, "://")) {
		fault_set(fault, ABOX_E_INVALID, 0, "proxy", "the proxy of the host is not http://host:port");
		free(proxy->authorization);
		free(proxy->exceptions);
		free(proxy);
		return;
	}
	memcpy(proxy->host, url, len);
	egress->proxy = proxy;
}

const char *upstream_proxy_authorization(const struct connection *connection)
{
	return connection->egress->proxy ? connection->egress->proxy->authorization : NULL;
}

void upstream_start(struct connection *connection, bool tls, void (*then)(struct connection *),
	void (*failed)(struct connection *, const char *))
{
	static const struct net_address host_loopback = { 4, { 127, 0, 0, 1 } };
	struct upstream *upstream = calloc(1, sizeof(*upstream));
	struct egress *egress = connection->egress;
	const char *host = connection->target.host;

	if (!upstream) {
		failed(connection, "no memory");
		return;
	}
	end_close(&connection->server, true);
	connection->upstream = upstream;
	upstream->then = then;
	upstream->failed = failed;
	upstream->tls = tls;
	upstream->port = connection->target.port;
	upstream->give_up_usec = egress->now_usec + CONNECT_USEC;
	if (host && strcmp(host, RULES_HOST_SERVICE) == 0) {
		upstream->checked = true;
		resolved(connection, &host_loopback, 1);
		return;
	}
	if (egress->proxy && !excepted(egress->proxy, connection_name(connection)))
		upstream->tunnel = true;
	else
		upstream->checked = true;
	if (!host) {
		resolved(connection, &connection->target.literal, 1);
		return;
	}
	connection_deadline(connection, upstream->checked ? CONNECT_USEC : PROXY_LOOKUP_USEC,
		upstream->checked ? lookup_late : proxy_lookup_late);
	if (!ask(connection, host))
		fail(connection, "the resolver is gone");
}
