/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Streams of a relay. Promises exact bytes in order, no more in memory than one window a stream, and that neither a
 * writer nor a reader who stalls holds up another stream.
 */
#include "guest/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define CREDIT_STEP (RELAY_WINDOW / 2)	/* taken bytes are told of in halves of a window */
#define PIPE_ROOM 4096			/* what a pipe takes without waiting when poll(2) calls it writable */
#define CONTROL_ROOM (RELAY_HEAD + sizeof(uint32_t))

struct relay_stream *relay_stream_find(struct relay *relay, uint32_t id)
{
	for (size_t i = 0; i < relay->n_streams; i++) {
		if (relay->streams[i].id == id)
			return &relay->streams[i];
	}
	return NULL;
}

struct relay_stream *relay_stream_new(struct relay *relay, uint32_t id, int fd, uint32_t command)
{
	struct relay_stream *stream;

	if (relay->n_streams == RELAY_STREAMS)
		return NULL;
	stream = &relay->streams[relay->n_streams++];
	*stream = (struct relay_stream){ .id = id, .fd = fd, .command = command, .credit = RELAY_WINDOW };
	return stream;
}

void relay_stream_drop(struct relay *relay, struct relay_stream *stream)
{
	fd_close(stream->fd);
	free(stream->buffer);
	*stream = relay->streams[--relay->n_streams];
}

int relay_stream_take(struct relay_stream *stream, const uint8_t *data, uint32_t len)
{
	uint32_t tail, first;

	if (!stream->sink)
		return 0;	/* shut meanwhile: the other side did not know yet */
	if (stream->eof_came || len > RELAY_WINDOW - stream->len)
		return -EPROTO;
	if (!stream->buffer) {
		stream->buffer = malloc(RELAY_WINDOW);
		if (!stream->buffer)
			return -ENOMEM;
	}
	tail = (stream->head + stream->len) % RELAY_WINDOW;
	first = MIN(len, RELAY_WINDOW - tail);
	memcpy(stream->buffer + tail, data, first);
	memcpy(stream->buffer, data + first, len - first);
	stream->len += len;
	return 0;
}

/* How much goes into fd without waiting, given that poll(2) calls it writable. The descriptor may be a caller's, whose
 * open file is not ours to make non-blocking. */
static size_t room_of(int fd, size_t wanted)
{
	struct stat st;
	int filled, size;

	if (fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode))
		return wanted;
	size = fcntl(fd, F_GETPIPE_SZ);
	if (size > 0 && ioctl(fd, FIONREAD, &filled) == 0 && filled == 0)
		return MIN(wanted, (size_t)size);
	return MIN(wanted, PIPE_ROOM);
}

static bool is_writable(int fd)
{
	struct pollfd entry = { .fd = fd, .events = POLLOUT };

	return poll(&entry, 1, 0) > 0;	/* an error is found by writing */
}

static ssize_t write_some(int fd, const uint8_t *data, size_t len)
{
	ssize_t n = send(fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n >= 0 || errno != ENOTSOCK)
		return n;
	return write(fd, data, room_of(fd, len));
}

static void end_sink(struct relay_stream *stream)
{
	stream->sink = false;
	stream->len = 0;
	if (!stream->terminal) {
		stream->fd = fd_close(stream->fd);
		return;
	}
	/* the other way may still have something */
	shutdown(stream->fd, SHUT_WR);
}

void relay_stream_flush(struct relay *relay, struct relay_stream *stream)
{
	while (stream->sink && stream->len > 0 && is_writable(stream->fd)) {
		ssize_t n = write_some(stream->fd, stream->buffer + stream->head,
			MIN(stream->len, RELAY_WINDOW - stream->head));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {	/* nobody reads it any more */
			end_sink(stream);
			stream->shut_owed = true;
			return;
		}
		stream->head = (stream->head + (uint32_t)n) % RELAY_WINDOW;
		stream->len -= (uint32_t)n;
		stream->owed += (uint32_t)n;
	}
	if (stream->sink && stream->len == 0 && stream->eof_came)
		end_sink(stream);
}

static void end_source(struct relay_stream *stream)
{
	stream->source = false;
	stream->hold = 0;
	if (!stream->terminal)
		stream->fd = fd_close(stream->fd);
}

void relay_stream_pull(struct relay *relay, struct relay_stream *stream)
{
	static uint8_t chunk[RELAY_CHUNK];
	size_t room = relay_room(relay), max;
	ssize_t n;

	if (!stream->source || room <= 2 * RELAY_HEAD || !stream->credit)
		return;
	max = MIN(MIN((size_t)stream->credit, sizeof(chunk)), room - 2 * RELAY_HEAD);
	do
		n = read(stream->fd, chunk, max);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN) {
		stream->hold = 0;
		return;
	}
	if (n <= 0) {	/* EIO: the last user of a terminal is gone */
		end_source(stream);
		stream->eof_owed = true;
		return;
	}
	relay_put(relay, RELAY_DATA, stream->id, chunk, (size_t)n);
	stream->credit -= (uint32_t)n;
	stream->hold -= MIN(stream->hold, (uint32_t)n);
}

bool relay_stream_settle(struct relay *relay, struct relay_stream *stream)
{
	uint8_t buffer[4];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));

	if (relay_room(relay) < 3 * CONTROL_ROOM)
		return true;
	if (stream->sink && (stream->owed >= CREDIT_STEP || (stream->owed && !stream->len))) {
		pack_u32(&writer, stream->owed);
		relay_put(relay, RELAY_CREDIT, stream->id, writer.data, writer.len);
		stream->owed = 0;
	}
	if (stream->eof_owed)
		relay_put(relay, RELAY_EOF, stream->id, NULL, 0);
	if (stream->shut_owed)
		relay_put(relay, RELAY_SHUT, stream->id, NULL, 0);
	stream->eof_owed = stream->shut_owed = false;
	if (stream->source || stream->sink)
		return true;
	relay_stream_drop(relay, stream);
	return false;
}

/* -- the end of a command waits for what it has written -- */

void relay_command_hold(struct relay *relay, uint32_t command)
{
	for (size_t i = 0; i < relay->n_streams; i++) {
		struct relay_stream *stream = &relay->streams[i];
		int filled = 0;

		if (!stream->source || stream->command != command || !relay->inside)
			continue;
		if (ioctl(stream->fd, FIONREAD, &filled) < 0 || filled < 0)
			filled = 0;
		/* one more than is there: the look that finds nothing, or the end */
		stream->hold = (uint32_t)filled + 1;
	}
}

bool relay_command_drained(struct relay *relay, uint32_t command)
{
	for (size_t i = 0; i < relay->n_streams; i++) {
		const struct relay_stream *stream = &relay->streams[i];

		if (stream->command != command)
			continue;
		if ((relay->inside && (stream->hold || stream->eof_owed)) || (!relay->inside && stream->sink && stream->len))
			return false;
	}
	return true;
}
