/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Published ports: who connects to a listener of the host is led to the box's own loopback, over a socket
 * that the guest made there. With a token, the first request of a connection must bring it as a bearer; what
 * follows on that connection is from the same client.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/pack.h"
#include "egress/egress.h"
#include "egress/wire.h"

#define WANT_USEC (10ULL * 1000000)
#define TOKEN_MAX 128

struct publish {
	struct watch watch;
	struct publish *next;
	uint32_t id;
	uint16_t port;
	bool gone; /* freed when nothing of this round points to it any more */
	char token[TOKEN_MAX];
};

static void late(struct connection *connection)
{
	connection_reset(connection);
}

static bool step_asleep(struct connection *connection)
{
	if (connection->client.broken)
		connection_reset(connection);
	return false;
}

/* -- a socket of the box -- */

static void want(struct connection *connection)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct egress *egress = connection->egress;
	struct question *question = calloc(1, sizeof(*question));

	connection->step = step_asleep;
	connection_known(connection);
	connection_deadline(connection, WANT_USEC, late);
	if (question)
		question->serial = ++egress->serial;
	pack_u32(&writer, EGRESS_WANT);
	pack_u32(&writer, question ? question->serial : 0);
	pack_u32(&writer, connection->published);
	if (!question || writer.failed) {
		free(question);
		connection_reset(connection);
		return;
	}
	question->connection = connection;
	question->next = egress->wants;
	egress->wants = question;
	keeper_send(egress, writer.data, writer.len, -EBADF);
}

static int connect_inside(struct connection *connection)
{
	struct sockaddr_storage address;
	struct net_address loopback = { 4, { 127, 0, 0, 1 } };
	socklen_t len = address_to_sockaddr(&loopback, connection->published_port, &address);

	return connect(connection->server.watch.fd, (struct sockaddr *)&address, len) < 0 ? -errno : 0;
}

static bool step_connect(struct connection *connection)
{
	int r = connect_inside(connection);

	if (r == -EALREADY || r == -EINPROGRESS)
		return false;
	if (r < 0 && r != -EISCONN) {
		connection_reset(connection);
		return false;
	}
	connection_deadline(connection, UINT64_MAX, NULL);
	connection->step = step_relay;
	return true;
}

void publish_socket(struct egress *egress, uint32_t serial, int fd_taken)
{
	struct question **link = &egress->wants, *question;
	struct connection *connection;
	int flags, on = 1;

	while (*link && (*link)->serial != serial)
		link = &(*link)->next;
	question = *link;
	connection = question ? question->connection : NULL;
	if (question)
		*link = question->next;
	free(question);
	flags = fd_taken >= 0 ? fcntl(fd_taken, F_GETFL) : -1;
	if (!connection || flags < 0 || fcntl(fd_taken, F_SETFL, flags | O_NONBLOCK) < 0) {
		fd_close(fd_taken);
		if (connection)
			connection_reset(connection);
		return;
	}
	setsockopt(fd_taken, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	connection->server.watch.fd = fd_taken;
	if (watch_add(egress, &connection->server.watch) < 0) {
		connection_reset(connection);
		return;
	}
	connection->step = step_connect;
	connection_wake(connection);
}

/* -- the token -- */

static struct publish *find(struct egress *egress, uint32_t id)
{
	struct publish *publish = egress->publish;

	while (publish && (publish->id != id || publish->gone))
		publish = publish->next;
	return publish;
}

static bool brings(const struct http_head *head, const char *token)
{
	size_t len = strlen(token), n = 0;
	bool good = false;

	for (size_t i = 0; i < head->n_fields; i++) {
		struct http_text value = head->fields[i].value;

		if (!http_is(head->fields[i].name, "authorization"))
			continue;
		n++;
		good = value.len == 7 + len && strncasecmp(value.data, "Bearer ", 7) == 0 &&
		       CRYPTO_memcmp(value.data + 7, token, len) == 0;
	}
	return n == 1 && good;
}

static void refuse(struct connection *connection)
{
	static const char text[] =
		"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\n"
		"Connection: close\r\n\r\n";

	if (!buffer_add(&connection->client.out, text, sizeof(text) - 1)) {
		connection_reset(connection);
		return;
	}
	connection->step = step_goodbye;
	connection_deadline(connection, LINGER_USEC, late);
}

static bool step_token(struct connection *connection)
{
	struct publish *publish = find(connection->egress, connection->published);
	struct end *client = &connection->client;
	struct http_head *head;
	unsigned int status;
	bool good;
	long len;
	ssize_t n;

	n = end_fill(client, HTTP_HEAD_MAX);
	if (n == -EAGAIN)
		return false;
	if (n <= 0 || !publish) {
		connection_reset(connection);
		return false;
	}
	len = http_head_find(buffer_at(&client->in), buffer_len(&client->in), &connection->scanned);
	if (len == 0)
		return true;
	head = len > 0 ? malloc(sizeof(*head)) : NULL;
	good = head && !http_read_request(buffer_at(&client->in), (size_t)len, head, &status) &&
	       brings(head, publish->token);
	free(head);
	if (good)
		want(connection);
	else
		refuse(connection);
	return true;
}

/* -- listeners -- */

static void publish_ready(struct egress *egress, struct watch *watch, uint32_t events)
{
	struct publish *publish = (struct publish *)watch;

	for (;;) {
		int fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), on = 1;
		struct connection *connection;

		if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (fd < 0)
			return;
		connection =
			egress->n_connections < egress->max_connections ? connection_new(egress, fd) : NULL;
		if (!connection) {
			fd_close(fd);
			continue;
		}
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		connection->published = publish->id;
		connection->published_port = publish->port;
		if (publish->token[0]) {
			connection->step = step_token;
			connection_deadline(connection, HELLO_USEC, late);
			connection_wake(connection);
		} else {
			want(connection);
		}
	}
}

int publish_add(struct egress *egress, uint32_t id, uint16_t port, const char *token, int fd_taken)
{
	struct publish *publish = calloc(1, sizeof(*publish));
	int flags = fcntl(fd_taken, F_GETFL);

	if (!publish || strlen(token) >= TOKEN_MAX || flags < 0 ||
		fcntl(fd_taken, F_SETFL, flags | O_NONBLOCK) < 0) {
		free(publish);
		fd_close(fd_taken);
		return -EINVAL;
	}
	*publish = (struct publish){ .watch = { fd_taken, publish_ready }, .id = id, .port = port };
	snprintf(publish->token, sizeof(publish->token), "%s", token);
	if (watch_add(egress, &publish->watch) < 0) {
		free(publish);
		return -ENOMEM;
	}
	publish->next = egress->publish;
	egress->publish = publish;
	return 0;
}

bool publish_remove(struct egress *egress, uint32_t id)
{
	struct publish *publish = find(egress, id);
	struct connection *next;

	if (!publish)
		return false;
	watch_close(&publish->watch);
	publish->gone = true;
	for (struct connection *connection = egress->connections; connection; connection = next) {
		next = connection->next;
		if (connection->published == id)
			connection_reset(connection);
	}
	return true;
}

void publish_bury(struct egress *egress)
{
	struct publish **link = &egress->publish;

	while (*link) {
		struct publish *publish = *link;

		if (!publish->gone) {
			link = &publish->next;
			continue;
		}
		*link = publish->next;
		free(publish);
	}
}
