/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Messages of file/wire.h over a stream: each with its u32 length before it. Helper code; answers -errno.
 */
#ifndef FILE_PACKET_H
#define FILE_PACKET_H

#include <sys/types.h>

#include "file/wire.h"

#define FILE_PACKET_HEAD 4

struct file_stream {
	int fd;			/* a stream socket; the caller's */
	size_t have;		/* of the message that is coming */
	uint8_t buffer[FILE_PACKET_HEAD + FILE_PACKET_MAX];
};
/* Waits until the deadline (monotonic): the length of the message, which *retmessage points to until the next call; 0 at the
 * end; -ETIMEDOUT, after which it may be called again; -EMSGSIZE for a message that is too long, or empty. */
ssize_t file_stream_recv(struct file_stream *stream, uint64_t deadline_usec, const uint8_t **retmessage);
/* The whole of it: 0, -ETIMEDOUT (the stream is of no more use), -EPIPE when the other end is gone (never SIGPIPE). */
int file_stream_send(int fd, const void *message, size_t len, uint64_t deadline_usec);

#endif
