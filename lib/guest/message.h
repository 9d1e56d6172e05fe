/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Messages of guest/wire.h, one per packet, for both ends. Helper code; answers -errno or negative codes as said.
 */
#ifndef GUEST_MESSAGE_H
#define GUEST_MESSAGE_H

#include "base/fault.h"
#include "base/pack.h"
#include "base/socket.h"
#include "guest/wire.h"

#define GUEST_PACKET_MAX 65536	/* a blob above GUEST_INLINE_MAX travels in a sealed memory file */
#define GUEST_INLINE_MAX 32768
#define GUEST_BLOB_MAX (8U << 20)

struct guest_message {
	uint32_t type;
	uint32_t command;
	struct pack_reader body;
	int fds[SOCKET_MAX_FDS];
	size_t n_fds;
};
/* Receives into buffer (GUEST_PACKET_MAX bytes), which the body points to. 1, 0 at the end of the channel, or -errno:
 * -EAGAIN when there is nothing, -EPROTO for a message without a head. Descriptors are the caller's. */
int guest_message_recv(int fd, uint8_t *buffer, struct guest_message *ret);
void guest_message_close_fds(struct guest_message *message);

/* Writes the head into a writer, then the caller the fields, then guest_message_send(). */
void guest_message_begin(struct pack_writer *writer, uint32_t type, uint32_t command);
int guest_message_send(int fd, const struct pack_writer *writer, const int *fds, size_t n_fds);
int guest_message_send_fault(int fd, uint32_t type, uint32_t command, const struct fault *fault);

/* What is to be started, as in GUEST_SPAWN. Texts point into the packed bytes. */
struct guest_order {
	const char **argv, **env;	/* NULL-ended; allocated by unpacking */
	const char *cwd;
	uint32_t uid, gid;
	uint8_t pty;
	uint32_t rows, columns;
	uint64_t cpu_usec, file_bytes;
	uint32_t open_files;
	uint64_t pids;
	uint64_t address_bytes;	/* RLIMIT_AS */
	uint32_t survivors;
};
void guest_order_pack(struct pack_writer *writer, const struct guest_order *order);
int guest_order_unpack(const void *data, size_t len, struct guest_order *ret);	/* 0, ABOX_E_PROTOCOL, ABOX_E_MEMORY */
void guest_order_clear(struct guest_order *order);

#endif
