/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The network of a box behind a wall of bytes. Its cell is at the outside, and orders for it end at the outer relay. Where
 * the box has a network of its own besides, with a link to the cell (a machine), a connection to one of its servers goes
 * through the channel: egress gets a socket whose other end is a stream, and the inner relay connects at home.
 */
#include "guest/relay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "base/clock.h"
#include "base/fd.h"

#define PAIR_USEC USEC_PER_SEC
#define PAIR_BACKLOG 16

/* -- outside -- */

static int listen_anywhere(struct sockaddr_in *ret)
{
	_cleanup_(fd_closep) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	socklen_t len = sizeof(*ret);

	*ret = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	if (fd < 0 || bind(fd, (struct sockaddr *)ret, len) < 0 || listen(fd, PAIR_BACKLOG) < 0 ||
		getsockname(fd, (struct sockaddr *)ret, &len) < 0)
		return -errno;
	return steal_fd(fd);
}

/* Security: programs of the box reach this listener too, as long as it is there; only our own end is taken. */
static int accept_own(int listener_fd, const struct sockaddr_in *own)
{
	uint64_t deadline = clock_deadline(clock_monotonic_usec(), PAIR_USEC), now;

	while ((now = clock_monotonic_usec()) < deadline) {
		struct pollfd entry = { .fd = listener_fd, .events = POLLIN };
		struct sockaddr_in peer;
		socklen_t len = sizeof(peer);
		int fd;

		if (poll(&entry, 1, clock_poll_msec(now, deadline)) < 0 && errno != EINTR)
			return -errno;
		fd = accept4(listener_fd, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
			return -errno;
		if (fd >= 0 && peer.sin_port == own->sin_port && peer.sin_addr.s_addr == own->sin_addr.s_addr)
			return fd;
		fd_close(fd);
	}
	return -ETIMEDOUT;
}

/* A pair that is a TCP socket at egress's end, as it wants one: both in the cell, on its loopback. */
static int make_pair(int ret[2])
{
	struct sockaddr_in address, own;
	_cleanup_(fd_closep) int listener_fd = listen_anywhere(&address), fd = -EBADF;
	socklen_t len = sizeof(own);
	int r;

	if (listener_fd < 0)
		return listener_fd;
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 && errno != EINPROGRESS) ||
		getsockname(fd, (struct sockaddr *)&own, &len) < 0)
		return -errno;
	r = accept_own(listener_fd, &own);
	if (r < 0)
		return r;
	ret[0] = r;
	ret[1] = steal_fd(fd);
	return 0;
}

static bool has_room(const struct relay *relay)
{
	size_t n = 0;

	for (size_t i = 0; i < relay->n_streams; i++)
		n += relay->streams[i].connection;
	return n < RELAY_CONNECTS && relay->n_streams + SOCKET_MAX_FDS < RELAY_STREAMS;
}

static struct relay_stream *connect_stream(struct relay *relay, uint32_t id, int fd)
{
	struct relay_stream *stream = relay_stream_new(relay, id, fd, 0);

	if (stream)
		stream->source = stream->sink = stream->terminal = stream->connection = true;
	return stream;
}

/* -EBADF when there is none to be had: whoever wants to connect is refused. */
static int reach_inside(struct relay *relay, uint32_t port)
{
	uint8_t buffer[8];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));
	uint32_t id = relay->next_id;
	int pair[2] = { -EBADF, -EBADF };

	if (port == 0 || port > 65535 || !has_room(relay) || make_pair(pair) < 0)
		return -EBADF;
	pack_u32(&writer, RELAY_CONNECT);
	pack_u32(&writer, port);
	if (!relay_put(relay, RELAY_FD, id, writer.data, writer.len)) {
		fd_close(pair[0]);
		fd_close(pair[1]);
		return -EBADF;
	}
	relay->next_id += 2;
	connect_stream(relay, id, pair[1]);
	return pair[0];
}

static int hand_out_socket(struct relay *relay, const struct guest_message *message)
{
	uint8_t buffer[16];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));
	struct pack_reader body = message->body;
	int fd = reach_inside(relay, unpack_u32(&body)), r;

	guest_message_begin(&writer, GUEST_SOCKET_MADE, message->command);
	r = guest_message_send(relay->local_fd, &writer, &fd, fd >= 0);
	fd_close(fd);
	return r;
}

/* Whoever stands in the cell with the rights to it answers; inside is told too, where that has ports to lead there. */
static int widen(struct relay *relay, const struct guest_message *message, const uint8_t *packet, size_t len)
{
	struct fault fault;

	if (relay->far && !relay_put(relay, RELAY_MESSAGE, 0, packet, len))
		return -EPROTO;	/* cannot be: half of the room is free whenever an order is taken */
	if (socket_send(relay->cell_fd, packet, len, NULL, 0) >= 0)
		return 1;
	fault_init(&fault, ABOX_STAGE_COMMAND);
	fault_set(&fault, ABOX_E_GONE, 0, "network", "the cell of the box can no longer be changed");
	return guest_message_send_fault(relay->local_fd, GUEST_LISTEN_FAULT, message->command, &fault);
}

int relay_cell_order(struct relay *relay, struct guest_message *message, const uint8_t *packet, size_t len)
{
	if (message->type == GUEST_LISTEN)
		return widen(relay, message, packet, len);
	return relay->far ? hand_out_socket(relay, message) : guest_network_handle(relay->network, relay->local_fd, message);
}

/* -- inside -- */

int relay_open_connect(struct relay *relay, uint32_t id, uint32_t port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct relay_stream *stream;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool begun = fd >= 0 && (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 || errno == EINPROGRESS);

	if (!begun)
		fd = fd_close(fd);
	stream = connect_stream(relay, id, fd);
	if (stream && !begun) {
		stream->source = stream->sink = false;
		stream->eof_owed = stream->shut_owed = true;
	}
	return 0;
}
