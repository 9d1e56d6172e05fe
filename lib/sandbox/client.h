/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A connection to a keeper: one request at a time, its answer awaited. The wire itself is keeper/wire.h.
 */
#ifndef SANDBOX_CLIENT_H
#define SANDBOX_CLIENT_H

#include <pthread.h>

#include <agentbox/sandbox.h>

#include "base/error.h"
#include "base/pack.h"

struct client {
	int fd;
	uint32_t serial;
	int stage;		/* of errors */
	uint8_t *buffer;	/* WIRE_PACKET_MAX bytes: the answer stays here until the next request */
	pthread_mutex_t lock;	/* held by client_begin() .. client_end() */
	abox_log_fn log;
	void *log_userdata;
};

int client_init(struct client *client, int fd_taken, int stage);
void client_clear(struct client *client);

/* client_begin() takes the lock and starts a request in `writer`; client_call() sends it with descriptors
 * (which stay the caller's) and reads the answer; the reader stands behind the head of an OK. A fault becomes
 * the error. client_end() lets the lock go, after the answer was read. Return: 0, the fault's code,
 * ABOX_E_GONE, ABOX_E_TIMEOUT. */
void client_begin(struct client *client, struct pack_writer *writer, uint32_t type);
int client_call(struct client *client, struct pack_writer *writer, const int *fds, size_t n_fds,
	uint64_t deadline_usec, struct pack_reader *retreader, abox_error **reterr);
void client_end(struct client *client, struct pack_writer *writer);

/* For requests with no more than OK in the answer. */
int client_simple(struct client *client, struct pack_writer *writer, abox_error **reterr);

/* Takes unsolicited messages without waiting. 1 while the keeper is there, 0 when it has hung up. */
int client_drain(struct client *client);

#endif
