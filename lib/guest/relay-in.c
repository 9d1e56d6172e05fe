/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The way in of a relay: frames of the other side become data in pipes, and messages with descriptors.
 *
 * Security: on the outside this reads what the box has sent. Every length and kind is checked against what may come
 * there; what a message means is checked by the keeper, as behind every wall.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memfd.h"
#include "guest/relay.h"

#ifndef TIOCSIG
#define TIOCSIG 0x40045436
#endif

ssize_t relay_frame_parse(const uint8_t *data, size_t len, struct relay_frame *ret)
{
	struct pack_reader reader = PACK_READER(data, len);

	if (len < RELAY_HEAD)
		return 0;
	ret->len = unpack_u32(&reader);
	ret->type = unpack_u32(&reader);
	ret->id = unpack_u32(&reader);
	ret->payload = data + RELAY_HEAD;
	if (ret->len > RELAY_PAYLOAD_MAX || ret->type < RELAY_MESSAGE || ret->type > RELAY_BLOB)
		return -EPROTO;
	return len - RELAY_HEAD < ret->len ? 0 : (ssize_t)(RELAY_HEAD + ret->len);
}

/* -- descriptors that are announced -- */

static int add_coming(struct relay *relay, int fd, uint32_t id)
{
	if (relay->n_coming == SOCKET_MAX_FDS) {
		fd_close(fd);
		return -EPROTO;
	}
	relay->coming_fds[relay->n_coming] = fd;
	relay->coming_ids[relay->n_coming++] = id;
	return 0;
}

static int open_pair(uint32_t kind, int *retours, int *rettheirs)
{
	int pair[2];

	if (kind == RELAY_TERMINAL || kind == RELAY_SOCKET) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
			return -errno;
	} else if (pipe2(pair, O_CLOEXEC) < 0) {
		return -errno;
	}
	*retours = kind == RELAY_INPUT ? pair[1] : pair[0];
	*rettheirs = kind == RELAY_INPUT ? pair[0] : pair[1];
	/* of our end alone: the two ends are open files of their own */
	if (fcntl(*retours, F_SETFL, (kind == RELAY_INPUT ? O_WRONLY : kind == RELAY_OUTPUT ? O_RDONLY : O_RDWR) | O_NONBLOCK) < 0) {
		fd_close(pair[0]);
		fd_close(pair[1]);
		return -errno;
	}
	return 0;
}

/* Numbers of the other side are those that are not ours, and none comes twice. */
static bool may_open(struct relay *relay, uint32_t id)
{
	return id != 0 && id % 2 != relay->next_id % 2 && !relay_stream_find(relay, id) && relay->n_streams < RELAY_STREAMS;
}

static int open_stream(struct relay *relay, uint32_t id, uint32_t kind)
{
	struct relay_stream *stream;
	int ours = -EBADF, theirs = -EBADF, r;

	r = open_pair(kind, &ours, &theirs);
	if (r < 0)
		return r;
	stream = relay_stream_new(relay, id, ours, 0);
	stream->source = kind != RELAY_INPUT;
	stream->sink = kind != RELAY_OUTPUT;
	stream->terminal = kind == RELAY_TERMINAL || kind == RELAY_SOCKET;
	return add_coming(relay, theirs, id);
}

static int open_same(struct relay *relay)
{
	int fd;

	if (!relay->n_coming)
		return -EPROTO;
	fd = fcntl(relay->coming_fds[relay->n_coming - 1], F_DUPFD_CLOEXEC, 0);
	return fd < 0 ? -errno : add_coming(relay, fd, 0);
}

static int close_blob(struct relay *relay)
{
	int r;

	if (relay->blob_fd < 0) {
		relay->blob_fd = memfd_begin("order", 0555);
		if (relay->blob_fd < 0)
			return relay->blob_fd;
	}
	r = memfd_seal(relay->blob_fd, 0555);
	if (r < 0)
		return r;
	relay->blob_len = 0;
	return add_coming(relay, steal_fd(relay->blob_fd), 0);
}

static int take_fd(struct relay *relay, const struct relay_frame *frame)
{
	struct pack_reader reader = PACK_READER(frame->payload, frame->len);
	uint32_t kind = unpack_u32(&reader), port = kind == RELAY_CONNECT ? unpack_u32(&reader) : 0;

	if (!unpack_done(&reader) || kind < RELAY_INPUT || kind > RELAY_CONNECT)
		return -EPROTO;
	/* Security: the box hands over nothing but the other end of a terminal */
	if ((kind == RELAY_TERMINAL) == relay->inside)
		return -EPROTO;
	if (kind == RELAY_SAME)
		return open_same(relay);
	if (kind == RELAY_FILE)
		return close_blob(relay);
	if (!may_open(relay, frame->id) || (kind == RELAY_CONNECT && !relay->far))
		return -EPROTO;
	return kind == RELAY_CONNECT ? relay_open_connect(relay, frame->id, port) : open_stream(relay, frame->id, kind);
}

static int take_blob(struct relay *relay, const struct relay_frame *frame)
{
	int r;

	if (!relay->inside || frame->len > RELAY_BLOB_MAX - relay->blob_len)
		return -EPROTO;
	if (relay->blob_fd < 0) {
		relay->blob_fd = memfd_begin("order", 0555);
		if (relay->blob_fd < 0)
			return relay->blob_fd;
	}
	r = fd_pwrite_all(relay->blob_fd, frame->payload, frame->len, relay->blob_len);
	relay->blob_len += frame->len;
	return r;
}

/* -- streams -- */

static int take_stream(struct relay *relay, const struct relay_frame *frame)
{
	struct relay_stream *stream = relay_stream_find(relay, frame->id);
	struct pack_reader reader = PACK_READER(frame->payload, frame->len);
	uint32_t credit;
	int r = 0;

	if (!stream)
		return 0;	/* gone at this end already */
	switch (frame->type) {
	case RELAY_DATA:
		r = relay_stream_take(stream, frame->payload, frame->len);
		break;
	case RELAY_CREDIT:
		credit = unpack_u32(&reader);
		if (!unpack_done(&reader) || credit > RELAY_WINDOW - stream->credit)
			return -EPROTO;
		stream->credit += credit;
		return 0;
	case RELAY_EOF:
		stream->eof_came = true;
		/* the other end of a terminal was closed by the keeper: then it hangs up */
		if (stream->terminal && !stream->connection && relay->inside) {
			relay_stream_drop(relay, stream);
			return 0;
		}
		break;
	default:	/* RELAY_SHUT */
		if (!stream->source)
			return 0;
		stream->source = false;
		stream->hold = 0;
		if (!stream->terminal)
			stream->fd = fd_close(stream->fd);
		return 0;
	}
	if (r == 0)
		relay_stream_flush(relay, stream);
	return r;
}

/* -- messages -- */

static void set_size(struct relay *relay, uint32_t command, struct pack_reader *reader)
{
	struct winsize size = { .ws_row = (unsigned short)unpack_u32(reader) };

	size.ws_col = (unsigned short)unpack_u32(reader);
	for (size_t i = 0; i < relay->n_streams; i++) {
		if (relay->streams[i].terminal && relay->streams[i].command == command)
			ioctl(relay->streams[i].fd, TIOCSWINSZ, &size);
	}
}

/* The foreground group is known to the terminal alone; a kernel that does not tell it gets the main group's. */
static bool signal_foreground(struct relay *relay, uint32_t command, struct pack_reader *reader)
{
	int signal = unpack_i32(reader);
	struct pack_writer writer = PACK_WRITER_FIXED(relay->waiting, sizeof(relay->waiting));

	for (size_t i = 0; i < relay->n_streams; i++) {
		if (relay->streams[i].terminal && relay->streams[i].command == command &&
			ioctl(relay->streams[i].fd, TIOCSIG, signal) == 0)
			return true;
	}
	guest_message_begin(&writer, GUEST_SIGNAL, command);
	pack_i32(&writer, signal);
	pack_u32(&writer, GUEST_SCOPE_GROUP);
	relay->waiting_len = writer.len;
	return false;
}

/* Streams that were announced before the message belong to its command. */
static void give_streams(struct relay *relay, uint32_t command)
{
	for (size_t i = 0; i < relay->n_coming; i++) {
		struct relay_stream *stream = relay->coming_ids[i] ? relay_stream_find(relay, relay->coming_ids[i]) : NULL;

		if (stream)
			stream->command = command;
	}
}

static int add_ready(struct relay *relay)
{
	if (relay->n_coming || relay->ready)
		return -EPROTO;
	relay->ready = true;
	return relay->ready_fd >= 0 ? add_coming(relay, steal_fd(relay->ready_fd), 0) : 0;
}

static int take_message(struct relay *relay, const struct relay_frame *frame)
{
	struct pack_reader reader = PACK_READER(frame->payload, frame->len);
	uint32_t type = unpack_u32(&reader), command = unpack_u32(&reader);
	int r = 0;

	if (reader.failed || frame->len > sizeof(relay->waiting))
		return -EPROTO;
	if (relay->inside && type == GUEST_TTY_SIZE) {
		set_size(relay, command, &reader);
		return 0;
	}
	if (relay->inside && type == GUEST_TTY_SIGNAL) {
		if (!signal_foreground(relay, command, &reader))
			relay_deliver(relay);
		return 0;
	}
	if (!relay->inside && relay->n_coming && type != GUEST_SPAWNED)
		return -EPROTO;
	give_streams(relay, command);
	if (!relay->inside && type == GUEST_READY)
		r = add_ready(relay);
	if (r < 0)
		return r;
	if (!relay->inside && (type == GUEST_EXITED || type == GUEST_TREE_GONE) && relay->n_held < RELAY_HELD &&
		frame->len <= sizeof(relay->held->packet)) {
		struct relay_held *held = &relay->held[relay->n_held++];

		held->command = command;
		held->len = frame->len;
		memcpy(held->packet, frame->payload, frame->len);
		return 0;
	}
	memcpy(relay->waiting, frame->payload, frame->len);
	relay->waiting_len = frame->len;
	r = relay_deliver(relay);
	return r == -EAGAIN ? 0 : r;
}

int relay_deliver(struct relay *relay)
{
	int r;

	if (!relay->waiting_len)
		return 0;
	r = socket_send_until(relay->local_fd, relay->waiting, relay->waiting_len, relay->coming_fds, relay->n_coming, 0);
	if (r == -ETIMEDOUT)
		return -EAGAIN;
	for (size_t i = 0; i < relay->n_coming; i++)
		relay->coming_fds[i] = fd_close(relay->coming_fds[i]);
	relay->n_coming = 0;
	relay->waiting_len = 0;
	return r;
}

int relay_handle_frame(struct relay *relay, const struct relay_frame *frame)
{
	switch (frame->type) {
	case RELAY_MESSAGE:
		return take_message(relay, frame);
	case RELAY_FD:
		return take_fd(relay, frame);
	case RELAY_BLOB:
		return take_blob(relay, frame);
	default:
		return take_stream(relay, frame);
	}
}

/* -- held messages -- */

static bool release_one(struct relay *relay, size_t i)
{
	struct relay_held *held = &relay->held[i];

	for (size_t k = 0; k < i; k++) {
		if (relay->held[k].command == held->command)
			return false;	/* in their order */
	}
	if (!relay_command_drained(relay, held->command))
		return false;
	if (relay->inside)
		return relay_put(relay, RELAY_MESSAGE, 0, held->packet, held->len);
	relay->local_full = socket_send_until(relay->local_fd, held->packet, held->len, NULL, 0, 0) == -ETIMEDOUT;
	return !relay->local_full;
}

void relay_release(struct relay *relay)
{
	for (size_t i = 0; i < relay->n_held;) {
		if (!release_one(relay, i)) {
			i++;
			continue;
		}
		relay->n_held--;
		memmove(&relay->held[i], &relay->held[i + 1], (relay->n_held - i) * sizeof(*relay->held));
	}
}
