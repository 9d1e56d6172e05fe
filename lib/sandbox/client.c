/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Requests to a keeper. The keeper is trusted, yet its answers are read as carefully as anybody's: a library
 * of another version may be on the other end.
 */
#include "sandbox/client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/socket.h"
#include "keeper/wire.h"

int client_init(struct client *client, int fd_taken, int stage)
{
	*client = (struct client){ .fd = fd_taken, .stage = stage };
	client->buffer = malloc(WIRE_PACKET_MAX);
	if (!client->buffer) {
		client->fd = fd_close(client->fd);
		return ABOX_E_MEMORY;
	}
	pthread_mutex_init(&client->lock, NULL);
	return 0;
}

void client_clear(struct client *client)
{
	client->fd = fd_close(client->fd);
	if (!client->buffer)
		return;
	free(client->buffer);
	client->buffer = NULL;
	pthread_mutex_destroy(&client->lock);
}

void client_begin(struct client *client, struct pack_writer *writer, uint32_t type)
{
	pthread_mutex_lock(&client->lock);
	*writer = PACK_WRITER_INIT;
	pack_u32(writer, type);
	pack_u32(writer, ++client->serial);
}

void client_end(struct client *client, struct pack_writer *writer)
{
	pack_writer_clear(writer);
	pthread_mutex_unlock(&client->lock);
}

static int gone(struct client *client, abox_error **reterr)
{
	return error_set(reterr, ABOX_E_GONE, client->stage, NULL, "the keeper of the box is gone");
}

static int transport_error(struct client *client, int r, abox_error **reterr)
{
	if (r == -ETIMEDOUT)
		return error_retryable(reterr, error_set(reterr, ABOX_E_TIMEOUT, client->stage, NULL,
			"the keeper of the box did not answer in time"));
	if (r == -EPIPE || r == -ECONNRESET || r == -ENOTCONN)
		return gone(client, reterr);
	return error_set_errno(
		reterr, ABOX_E_SYSTEM, client->stage, NULL, -r, "cannot talk to the keeper of the box");
}

/* The code of the fault, 0 when it cannot be read. */
static int take_fault(struct pack_reader *reader, abox_error **reterr)
{
	struct fault fault;

	fault_unpack(&fault, reader);
	return reader->failed ? 0 : error_from_fault(reterr, &fault);
}

static void take_log(struct client *client, struct pack_reader *reader)
{
	uint32_t level = unpack_u32(reader);
	const char *message = unpack_string(reader);

	if (client->log && !reader->failed)
		client->log((int)level, message, client->log_userdata);
}

/* One message into the buffer. Its head in *rettype and *retserial; 1, 0 when the keeper hung up, -errno. */
static int take_message(struct client *client, uint64_t deadline_usec, struct pack_reader *reader,
	uint32_t *rettype, uint32_t *retserial)
{
	ssize_t n;

	n = socket_recv_until(client->fd, client->buffer, WIRE_PACKET_MAX, NULL, NULL, deadline_usec);
	if (n < 0)
		return (int)n;
	if (n == 0)
		return 0;
	*reader = PACK_READER(client->buffer, (size_t)n);
	*rettype = unpack_u32(reader);
	*retserial = unpack_u32(reader);
	return 1;
}

static int await_answer(
	struct client *client, uint64_t deadline_usec, struct pack_reader *reader, abox_error **reterr)
{
	uint32_t type = 0, serial = 0;
	int r;

	for (;;) {
		r = take_message(client, deadline_usec, reader, &type, &serial);
		if (r == 0)
			return gone(client, reterr);
		if (r < 0)
			return transport_error(client, r, reterr);
		if (type == WIRE_LOG) {
			take_log(client, reader);
			continue;
		}
		if (serial != client->serial)
			continue;	/* answer to a request that was given up */
		if (type == WIRE_OK && !reader->failed)
			return 0;
		r = type == WIRE_FAULT ? take_fault(reader, reterr) : 0;
		if (r < 0)
			return r;
		return error_set(reterr, ABOX_E_PROTOCOL, client->stage, NULL,
			"the keeper of the box answered what it must not");
	}
}

int client_call(struct client *client, struct pack_writer *writer, const int *fds, size_t n_fds,
	uint64_t deadline_usec, struct pack_reader *retreader, abox_error **reterr)
{
	int r;

	if (writer->failed)
		return ABOX_E_MEMORY;
	if (client->fd < 0)
		return error_set(reterr, ABOX_E_STATE, client->stage, NULL, "the box has ended");
	r = socket_send_until(client->fd, writer->data, writer->len, fds, n_fds, deadline_usec);
	if (r == -EPIPE || r == -ECONNRESET)	/* it may have said why before it went */
		return await_answer(client, clock_monotonic_usec(), retreader, reterr);
	if (r < 0)
		return transport_error(client, r, reterr);
	return await_answer(client, deadline_usec, retreader, reterr);
}

int client_simple(struct client *client, struct pack_writer *writer, abox_error **reterr)
{
	struct pack_reader reader;
	int r;

	r = client_call(client, writer, NULL, 0, UINT64_MAX, &reader, reterr);
	client_end(client, writer);
	return r;
}

int client_drain(struct client *client)
{
	struct pack_reader reader;
	uint32_t type = 0, serial = 0;
	int r;

	if (client->fd < 0)
		return 0;
	pthread_mutex_lock(&client->lock);
	for (;;) {
		r = take_message(client, 0, &reader, &type, &serial);
		if (r <= 0)
			break;
		if (type == WIRE_LOG)
			take_log(client, &reader);
	}
	pthread_mutex_unlock(&client->lock);
	return r == -ETIMEDOUT || r == -EAGAIN ? 1 : 0;
}
