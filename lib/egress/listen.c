/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The doors: transparent listeners, where the address of an accepted socket is the one that the box asked
 * for, and the name server's sockets. Caps are held here: what comes too fast waits in the kernel's queue,
 * what is too many is reset.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/pack.h"
#include "egress/egress.h"
#include "egress/wire.h"
#include "network/dns.h"

#define DNS_CLIENTS_MAX 32
#define DNS_IDLE_USEC (5ULL * 1000000)

struct listener {
	struct watch watch;
	struct listener *next;
	uint32_t kind;
	uint16_t port;
	bool again; /* stopped by a cap */
	/* of a TCP client of the name server */
	struct listener *of;
	uint64_t until_usec;
	uint32_t n_clients;
	struct buffer in;
};

/* -- connections -- */

static bool may_accept(struct egress *egress)
{
	uint64_t passed = egress->now_usec - egress->tokens_usec;
	uint64_t full = (uint64_t)egress->max_rate * 2000;

	egress->tokens_usec = egress->now_usec;
	egress->tokens_milli = MIN(full, egress->tokens_milli + passed * egress->max_rate / 1000);
	return egress->tokens_milli >= 1000;
}

static void refuse(int fd)
{
	struct linger linger = { .l_onoff = 1 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	fd_close(fd);
}

static void accept_one(struct egress *egress, struct listener *listener, int fd)
{
	struct sockaddr_storage local;
	socklen_t size = sizeof(local);
	struct connection *connection;
	struct net_address wanted;
	uint16_t port;
	int on = 1;

	egress->accepted++;
	egress->tokens_milli -= 1000;
	if (egress->n_connections >= egress->max_connections ||
		egress->n_half_open >= egress->max_half_open) {
		event_capped(egress, egress->n_connections >= egress->max_connections
					     ? "too many connections"
					     : "too many connections that have not said what they want");
		refuse(fd);
		return;
	}
	if (getsockname(fd, (struct sockaddr *)&local, &size) < 0 ||
		!address_from_sockaddr((struct sockaddr *)&local, &wanted, &port)) {
		refuse(fd);
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	connection = connection_new(egress, fd);
	if (!connection) {
		refuse(fd);
		return;
	}
	if (listener->kind == EGRESS_LISTENER_PROXY)
		proxy_listen_start(connection);
	else
		connection_start(connection, &wanted, port);
	if (!connection->dead)
		connection_wake(connection);
}

static void tcp_ready(struct egress *egress, struct watch *watch, uint32_t events)
{
	struct listener *listener = (struct listener *)watch;

	listener->again = false;
	for (int i = 0; i < 64; i++) {
		int fd;

		if (!may_accept(egress)) {
			listener->again = true;
			egress->next_usec =
				MIN(egress->next_usec, egress->now_usec + 1000000 / egress->max_rate + 1);
			return;
		}
		fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (fd < 0) {
			listener->again =
				errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
			return;
		}
		accept_one(egress, listener, fd);
	}
	listener->again = true;
	egress->next_usec = egress->now_usec;
}

void listeners_again(struct egress *egress)
{
	for (struct listener *listener = egress->listeners; listener; listener = listener->next)
		if (listener->again && !listener->of)
			egress->next_usec = egress->now_usec;
}

/* -- names -- */

static bool name_exists(const char *name, void *userdata)
{
	struct egress *egress = userdata;

	return rules_name_exists(egress->rules, name);
}

static size_t answer(struct egress *egress, const void *query, size_t len, uint8_t ret[DNS_ANSWER_MAX])
{
	struct dns_policy policy = { .names = egress->names, .userdata = egress };
	struct dns_question question = { 0 };
	size_t n;

	if (rules_denied(egress->rules) == RULES_NXDOMAIN)
		policy.exists = name_exists;
	n = dns_answer(&policy, query, len, ret, &question);
	if (n > 0 && question.fresh) {
		_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;

		pack_u32(&writer, EGRESS_NAME);
		pack_u32(&writer, 0);
		pack_string(&writer, question.name);
		if (!writer.failed)
			keeper_send(egress, writer.data, writer.len, -EBADF);
	}
	return n;
}

static void udp_ready(struct egress *egress, struct watch *watch, uint32_t events)
{
	uint8_t query[DNS_QUERY_MAX + 1], reply[DNS_ANSWER_MAX];

	for (int i = 0; i < 64; i++) {
		struct sockaddr_storage from;
		union {
			struct cmsghdr header;
			char bytes[CMSG_SPACE(sizeof(struct in6_pktinfo)) +
				   CMSG_SPACE(sizeof(struct in_pktinfo))];
		} control;
		struct iovec iov = { .iov_base = query, .iov_len = sizeof(query) };
		struct msghdr message = { .msg_name = &from,
			.msg_namelen = sizeof(from),
			.msg_iov = &iov,
			.msg_iovlen = 1,
			.msg_control = &control,
			.msg_controllen = sizeof(control) };
		ssize_t n = recvmsg(watch->fd, &message, MSG_DONTWAIT);
		size_t len;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return;
		len = answer(egress, query, (size_t)n, reply);
		if (len == 0)
			continue;
		/* The control data goes back as it came: the reply leaves from the address that was asked. */
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
			if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
				struct in_pktinfo info;

				memcpy(&info, CMSG_DATA(c), sizeof(info));
				info.ipi_spec_dst = info.ipi_addr;
				info.ipi_ifindex = 0;
				memcpy(CMSG_DATA(c), &info, sizeof(info));
			} else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
				struct in6_pktinfo info;

				memcpy(&info, CMSG_DATA(c), sizeof(info));
				info.ipi6_ifindex = 0;
				memcpy(CMSG_DATA(c), &info, sizeof(info));
			}
		}
		iov = (struct iovec){ .iov_base = reply, .iov_len = len };
		sendmsg(watch->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	egress->next_usec = egress->now_usec;
	((struct listener *)watch)->again = true;
}

static void dns_client_end(struct listener *client)
{
	watch_close(&client->watch); /* freed in the next round */
	client->until_usec = 0;
	client->of->n_clients--;
}

static void dns_client_ready(struct egress *egress, struct watch *watch, uint32_t events)
{
	struct listener *client = (struct listener *)watch;
	uint8_t reply[2 + DNS_ANSWER_MAX];

	while (watch->fd >= 0) {
		char *room = buffer_room(&client->in, DNS_QUERY_MAX);
		ssize_t n = room ? recv(watch->fd, room, DNS_QUERY_MAX, MSG_DONTWAIT) : -1;

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			dns_client_end(client);
			return;
		}
		buffer_grow(&client->in, (size_t)n);
		while (buffer_len(&client->in) >= 2) {
			const uint8_t *data = (const uint8_t *)buffer_at(&client->in);
			size_t len = (size_t)data[0] << 8 | data[1], got;

			if (len > DNS_QUERY_MAX) {
				dns_client_end(client);
				return;
			}
			if (buffer_len(&client->in) < 2 + len)
				break;
			got = answer(egress, data + 2, len, reply + 2);
			buffer_take(&client->in, 2 + len);
			reply[0] = (uint8_t)(got >> 8);
			reply[1] = (uint8_t)got;
			if (got == 0 || send(watch->fd, reply, 2 + got, MSG_DONTWAIT | MSG_NOSIGNAL) !=
						(ssize_t)(2 + got)) {
				dns_client_end(client);
				return;
			}
		}
	}
}

static void dns_tcp_ready(struct egress *egress, struct watch *watch, uint32_t events)
{
	struct listener *listener = (struct listener *)watch;

	for (;;) {
		int fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		struct listener *client;

		if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (fd < 0)
			return;
		client = listener->n_clients < DNS_CLIENTS_MAX ? calloc(1, sizeof(*client)) : NULL;
		if (!client) {
			refuse(fd);
			continue;
		}
		*client = (struct listener){ .watch = { .fd = fd, .ready = dns_client_ready },
			.of = listener,
			.until_usec = egress->now_usec + DNS_IDLE_USEC };
		if (watch_add(egress, &client->watch) < 0) {
			free(client);
			continue;
		}
		listener->n_clients++;
		client->next = egress->listeners;
		egress->listeners = client;
		egress->next_usec = MIN(egress->next_usec, client->until_usec);
	}
}

/* -- all -- */

int listener_add(struct egress *egress, uint32_t kind, uint16_t port, int fd_taken)
{
	struct listener *listener = calloc(1, sizeof(*listener));
	int flags = fcntl(fd_taken, F_GETFL);

	if (!listener || flags < 0 || fcntl(fd_taken, F_SETFL, flags | O_NONBLOCK) < 0) {
		free(listener);
		fd_close(fd_taken);
		return -ENOMEM;
	}
	listener->kind = kind;
	listener->port = port;
	listener->watch.fd = fd_taken;
	listener->watch.ready = kind == EGRESS_LISTENER_DNS_UDP   ? udp_ready
				: kind == EGRESS_LISTENER_DNS_TCP ? dns_tcp_ready
								  : tcp_ready;
	if (watch_add(egress, &listener->watch) < 0) {
		free(listener);
		return -ENOMEM;
	}
	listener->next = egress->listeners;
	egress->listeners = listener;
	return 0;
}

void listeners_late(struct egress *egress)
{
	struct listener **link = &egress->listeners;

	while (*link) {
		struct listener *listener = *link;

		if (listener->of) {
			if (listener->watch.fd >= 0 && egress->now_usec >= listener->until_usec)
				dns_client_end(listener);
			if (listener->watch.fd < 0) {
				*link = listener->next;
				buffer_clear(&listener->in, false);
				free(listener);
				continue;
			}
			egress->next_usec = MIN(egress->next_usec, listener->until_usec);
		} else if (listener->again) {
			listener->watch.ready(egress, &listener->watch, EPOLLIN);
			/* It may have put others before it: the list is walked again next time. */
		}
		link = &listener->next;
	}
}
