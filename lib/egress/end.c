/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Ends of connections. A read or write that cannot go on is -EAGAIN whatever the reason; the next event on
 * the socket tries again. An end that TLS did not announce is an error: what was cut off must not look
 * complete.
 */
#include <errno.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "egress/egress.h"

#define FILL_BYTES 32768

static void end_ready(struct egress *egress, struct watch *watch, uint32_t events)
{
	struct end *end = (struct end *)((char *)watch - offsetof(struct end, watch));

	/* A reset tells that nobody reads on; a half-closed peer may still. The event may be that of an
	 * earlier socket. */
	if (events & EPOLLERR && end->watch.fd >= 0) {
		struct pollfd now = { .fd = end->watch.fd, .events = POLLIN };

		if (poll(&now, 1, 0) == 1 && now.revents & POLLERR)
			end->broken = true;
	}
	connection_wake(end->connection);
}

void end_init(struct end *end, struct connection *connection)
{
	*end = (struct end){ .watch = { .fd = -EBADF, .ready = end_ready }, .connection = connection };
}

void end_close(struct end *end, bool wipe)
{
	SSL_free(end->ssl);
	end->ssl = NULL;
	watch_close(&end->watch);
	buffer_clear(&end->prefix, false);
	buffer_clear(&end->in, wipe);
	buffer_clear(&end->out, wipe);
	end->in_ended = end->out_ended = end->broken = false;
}

static ssize_t tls_result(struct end *end, int answer)
{
	switch (SSL_get_error(end->ssl, answer)) {
	case SSL_ERROR_WANT_READ:
	case SSL_ERROR_WANT_WRITE:
		return -EAGAIN;
	case SSL_ERROR_ZERO_RETURN:
		return 0;
	default:
		end->broken = true;
		return -EIO;
	}
}

ssize_t end_read(struct end *end, void *data, size_t len)
{
	size_t got;
	ssize_t n;

	if (end->in_ended)
		return 0;
	if (end->watch.fd < 0)
		return -EIO;
	if (end->ssl) {
		ERR_clear_error();
		int r = SSL_read_ex(end->ssl, data, len, &got);

		n = r > 0 ? (ssize_t)got : tls_result(end, r);
	} else {
		do
			n = recv(end->watch.fd, data, len, MSG_DONTWAIT);
		while (n < 0 && errno == EINTR);
		if (n < 0)
			n = errno == EAGAIN ? -EAGAIN : -EIO;
	}
	if (n == 0)
		end->in_ended = true;
	if (n > 0)
		end->received += (uint64_t)n;
	if (n == -EIO)
		end->broken = true;
	return n;
}

ssize_t end_write(struct end *end, const void *data, size_t len)
{
	size_t put;
	ssize_t n;

	if (end->out_ended || end->watch.fd < 0)
		return -EIO;
	if (end->ssl) {
		ERR_clear_error();
		int r = SSL_write_ex(end->ssl, data, len, &put);

		n = r > 0 ? (ssize_t)put : tls_result(end, r);
		if (n == 0)
			n = -EIO;
	} else {
		do
			n = send(end->watch.fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
		while (n < 0 && errno == EINTR);
		if (n < 0)
			n = errno == EAGAIN ? -EAGAIN : -EIO;
	}
	if (n > 0)
		end->sent += (uint64_t)n;
	if (n == -EIO)
		end->broken = true;
	return n;
}

ssize_t end_fill(struct end *end, size_t max)
{
	size_t have = buffer_len(&end->in);
	char *room;
	ssize_t n;

	if (have >= max)
		return -ENOBUFS;
	room = buffer_room(&end->in, MIN(max - have, FILL_BYTES));
	if (!room)
		return -EIO;
	n = end_read(end, room, MIN(max - have, FILL_BYTES));
	if (n > 0)
		buffer_grow(&end->in, (size_t)n);
	else if (have == 0)
		buffer_clear(&end->in, false);
	return n;
}

int end_flush(struct end *end)
{
	while (buffer_len(&end->out) > 0) {
		ssize_t n = end_write(end, buffer_at(&end->out), buffer_len(&end->out));

		if (n == -EAGAIN)
			return 0;
		if (n < 0)
			return -EIO;
		buffer_take(&end->out, (size_t)n);
	}
	buffer_clear(&end->out, false);
	return 1;
}

void end_finish(struct end *end)
{
	if (end->out_ended || end->watch.fd < 0)
		return;
	end->out_ended = true;
	if (end->ssl) {
		ERR_clear_error();
		SSL_shutdown(end->ssl);
	}
	shutdown(end->watch.fd, SHUT_WR);
}
