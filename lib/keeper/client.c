/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Connections. Promises that no client holds the keeper up: what it does not read waits in a bounded queue,
 * its next request is looked at when that is empty, and beyond the bound it is dropped. What requests mean is
 * left to request.c.
 */
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <agentbox/error.h>
#include <agentbox/sandbox.h>

#include "base/clock.h"
#include "base/fd.h"

#define OUT_MAX_BYTES (1U << 20)
#define MAX_CLIENTS 1024
#define MAX_WAITERS 64

static uint8_t packet[WIRE_PACKET_MAX];

static bool counts_as_owner(const struct client *client)
{
	return client->kind == CLIENT_OWNER ||
		(client->kind == CLIENT_VISITOR && client->greeted && client->mode == ABOX_OPEN_CONTROL);
}

static void update_events(struct keeper *keeper, struct client *client)
{
	/* requests are left in the socket while answers wait: the client feels it, and memory stays bounded
	 */
	if (!client->gone)
		keeper_watch(keeper, &client->io, client->out_head ? EPOLLOUT : EPOLLIN);
}

static void flush(struct keeper *keeper, struct client *client)
{
	while (client->out_head) {
		struct outgoing *out = client->out_head;
		int r = socket_send(client->io.fd, out->data, out->len, NULL, 0);

		if (r == -EAGAIN)
			break;
		if (r < 0) {
			client_drop(keeper, client);
			return;
		}
		client->out_head = out->next;
		if (!client->out_head)
			client->out_tail = NULL;
		client->out_bytes -= out->len;
		free(out);
	}
	update_events(keeper, client);
}

void client_begin(struct pack_writer *writer, uint32_t type, uint32_t serial)
{
	pack_u32(writer, type);
	pack_u32(writer, serial);
}

void client_send(struct keeper *keeper, struct client *client, const struct pack_writer *message)
{
	struct outgoing *out;

	if (client->gone)
		return;
	if (message->failed || message->len > WIRE_PACKET_MAX ||
		client->out_bytes + message->len > OUT_MAX_BYTES) {
		client_drop(keeper, client);
		return;
	}
	if (!client->out_head) {
		int r = socket_send(client->io.fd, message->data, message->len, NULL, 0);

		if (r == 0)
			return;
		if (r != -EAGAIN) {
			client_drop(keeper, client);
			return;
		}
	}
	out = malloc(sizeof(*out) + message->len);
	if (!out) {
		client_drop(keeper, client);
		return;
	}
	out->next = NULL;
	out->len = message->len;
	memcpy(out->data, message->data, message->len);
	if (client->out_tail)
		client->out_tail->next = out;
	else
		client->out_head = out;
	client->out_tail = out;
	client->out_bytes += out->len;
	update_events(keeper, client);
}

void client_answer_ok(struct keeper *keeper, struct client *client, uint32_t serial)
{
	uint8_t buffer[16];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));

	client_begin(&writer, WIRE_OK, serial);
	client_send(keeper, client, &writer);
}

void client_answer_fault(
	struct keeper *keeper, struct client *client, uint32_t serial, const struct fault *fault)
{
	uint8_t buffer[sizeof(*fault) + 64];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));

	client_begin(&writer, WIRE_FAULT, serial);
	fault_pack(fault, &writer);
	client_send(keeper, client, &writer);
}

struct waiter *client_wait(struct client *client, uint32_t type, uint32_t serial)
{
	struct waiter *waiter;
	size_t n = 0;

	for (struct waiter *w = client->waiters; w; w = w->next)
		n++;
	if (n >= MAX_WAITERS)
		return NULL;
	waiter = calloc(1, sizeof(*waiter));
	if (!waiter)
		return NULL;
	waiter->type = type;
	waiter->serial = serial;
	waiter->deadline = UINT64_MAX;
	waiter->next = client->waiters;
	client->waiters = waiter;
	return waiter;
}

void client_waiter_free(struct client *client, struct waiter *waiter)
{
	struct waiter **p = &client->waiters;

	while (*p != waiter)
		p = &(*p)->next;
	*p = waiter->next;
	free(waiter->data);
	free(waiter);
}

/* Marks it gone; the loop frees it, so that callers on the way up still hold a valid pointer. */
void client_drop(struct keeper *keeper, struct client *client)
{
	bool owner = counts_as_owner(client);

	if (client->gone)
		return;
	keeper_watch(keeper, &client->io, 0);
	client->gone = true;
	client->io.fd = fd_close(client->io.fd);
	if (owner) {
		keeper->n_owners--;
		if (keeper->n_owners == 0)
			owner_lost(keeper);
	}
}

static void client_free(struct client *client)
{
	while (client->waiters)
		client_waiter_free(client, client->waiters);
	while (client->out_head) {
		struct outgoing *out = client->out_head;

		client->out_head = out->next;
		free(out);
	}
	free(client);
}

void client_sweep(struct keeper *keeper)
{
	struct client **p = &keeper->clients;

	while (*p) {
		struct client *client = *p;

		if (!client->gone) {
			p = &client->next;
			continue;
		}
		*p = client->next;
		client_free(client);
	}
}

static void client_ready(struct keeper *keeper, struct io *io, uint32_t events)
{
	struct client *client = io->owner;
	struct request request = { .client = client };
	ssize_t n;

	if (events & EPOLLOUT) {
		flush(keeper, client);
		return;
	}
	fd_init_array(request.fds, ELEMENTSOF(request.fds));
	n = socket_recv(io->fd, packet, sizeof(packet), request.fds, &request.n_fds);
	if (n == -EAGAIN)
		return;
	if (n <= 0) {
		client_drop(keeper, client);
		return;
	}
	request.body = PACK_READER(packet, (size_t)n);
	request.type = unpack_u32(&request.body);
	request.serial = unpack_u32(&request.body);
	if (request.body.failed)
		client_drop(keeper, client);
	else
		request_handle(keeper, &request);
	for (size_t i = 0; i < ELEMENTSOF(request.fds); i++)
		fd_close(request.fds[i]);
}

struct client *client_new(struct keeper *keeper, int fd, enum client_kind kind)
{
	struct client *client = calloc(1, sizeof(*client));
	int flags = fcntl(fd, F_GETFL);

	if (!client || flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
		fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
		free(client);
		fd_close(fd);
		return NULL;
	}
	client->io = (struct io){ .fd = fd, .ready = client_ready, .owner = client };
	client->kind = kind;
	client->greeted = kind != CLIENT_VISITOR;
	client->mode = kind == CLIENT_OWNER ? ABOX_OPEN_CONTROL : ABOX_OPEN_READ;
	client->next = keeper->clients;
	if (keeper_watch(keeper, &client->io, EPOLLIN) < 0) {
		fd_close(fd);
		free(client);
		return NULL;
	}
	keeper->clients = client;
	if (kind == CLIENT_OWNER)
		keeper->n_owners++;
	return client;
}

void client_accept(struct keeper *keeper, struct io *io, uint32_t events)
{
	size_t n = 0;
	uid_t uid;
	pid_t pid;
	gid_t gid;
	int fd;

	fd = accept4(io->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return;
	for (struct client *client = keeper->clients; client; client = client->next)
		n++;
	/* Security: the folder is private already; this holds where somebody opened it up */
	if (n >= MAX_CLIENTS || socket_peer(fd, &pid, &uid, &gid) < 0 || (uid != geteuid() && uid != 0)) {
		fd_close(fd);
		return;
	}
	client_new(keeper, fd, CLIENT_VISITOR);
}

/* At the end: what is queued goes out, within bounds. */
void client_flush_all(struct keeper *keeper, uint64_t timeout_usec)
{
	uint64_t deadline = clock_deadline(clock_monotonic_usec(), timeout_usec);

	for (struct client *client = keeper->clients; client; client = client->next) {
		while (!client->gone && client->out_head) {
			struct pollfd poll_fd = { .fd = client->io.fd, .events = POLLOUT };
			uint64_t now = clock_monotonic_usec();

			if (now >= deadline || poll(&poll_fd, 1, clock_poll_msec(now, deadline)) < 0)
				break;
			flush(keeper, client);
		}
	}
}
