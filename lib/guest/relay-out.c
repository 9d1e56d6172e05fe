/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The way out of a relay: messages of the local side, their descriptors turned into streams, into one buffer that is
 * written as the other side takes it.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "base/fd.h"
#include "base/memfd.h"
#include "guest/relay.h"

#define KCMP_FILE_TYPE 0

size_t relay_room(const struct relay *relay)
{
	return sizeof(relay->out) - relay->out_len;
}

static void put_bytes(struct relay *relay, const void *data, size_t len)
{
	size_t tail = (relay->out_head + relay->out_len) % sizeof(relay->out);
	size_t first = MIN(len, sizeof(relay->out) - tail);

	if (!len)
		return;
	memcpy(relay->out + tail, data, first);
	memcpy(relay->out, (const uint8_t *)data + first, len - first);
	relay->out_len += len;
}

bool relay_put(struct relay *relay, uint32_t type, uint32_t id, const void *payload, size_t len)
{
	uint8_t head[RELAY_HEAD];
	struct pack_writer writer = PACK_WRITER_FIXED(head, sizeof(head));

	if (relay_room(relay) < RELAY_HEAD + len)
		return false;
	pack_u32(&writer, (uint32_t)len);
	pack_u32(&writer, type);
	pack_u32(&writer, id);
	put_bytes(relay, head, sizeof(head));
	put_bytes(relay, payload, len);
	return true;
}

int relay_flush(struct relay *relay)
{
	while (relay->out_len > 0) {
		size_t len = MIN(relay->out_len, sizeof(relay->out) - relay->out_head);
		ssize_t n = write(relay->out_fd, relay->out + relay->out_head, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		relay->out_head = (relay->out_head + (size_t)n) % sizeof(relay->out);
		relay->out_len -= (size_t)n;
	}
	return 0;
}

bool relay_send(struct relay *relay, const struct pack_writer *message)
{
	return !message->failed && relay_put(relay, RELAY_MESSAGE, 0, message->data, message->len);
}

/* -- a message with descriptors -- */

/* The same open file twice: then what is written through both keeps its order. */
static bool is_same_file(int a, int b)
{
	struct stat left, right;
	long r = syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE_TYPE, a, b);

	if (r >= 0)
		return r == 0;
	return fstat(a, &left) == 0 && fstat(b, &right) == 0 && S_ISFIFO(left.st_mode) &&
		left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

/* Input that cannot change any more is a file inside too, as behind every wall. */
static bool is_whole_file(int fd)
{
	struct stat st;

	return memfd_is_sealed(fd) && fstat(fd, &st) == 0 && (uint64_t)st.st_size <= RELAY_BLOB_MAX;
}

static void add(struct relay_sending *sending, struct guest_message *message, size_t i, uint32_t kind)
{
	sending->fds[sending->n_fds].fd = message->fds[i];
	sending->fds[sending->n_fds++].kind = kind;
	message->fds[i] = -EBADF;
}

/* Which descriptor is what, by the flags of the order. -EPROTO for what cannot go through a wall of bytes. */
static int sort_spawn(struct relay_sending *sending, struct guest_message *message)
{
	uint32_t io = unpack_u32(&message->body);
	size_t blob_len, next = 0, stdout_at = SIZE_MAX;

	unpack_bytes(&message->body, &blob_len);
	if (message->body.failed || (io & ~(uint32_t)(GUEST_IO_STDIN | GUEST_IO_STDOUT | GUEST_IO_STDERR | GUEST_IO_PROGRAM)) ||
		message->n_fds != (size_t)__builtin_popcount(io) + (blob_len == 0))
		return -EPROTO;
	if (blob_len == 0)
		add(sending, message, next++, RELAY_FILE);
	if (io & GUEST_IO_STDIN) {
		add(sending, message, next, is_whole_file(message->fds[next]) ? RELAY_FILE : RELAY_INPUT);
		next++;
	}
	if (io & GUEST_IO_STDOUT) {
		stdout_at = sending->n_fds;
		add(sending, message, next++, RELAY_OUTPUT);
	}
	if (io & GUEST_IO_STDERR) {
		bool same = stdout_at != SIZE_MAX && is_same_file(sending->fds[stdout_at].fd, message->fds[next]);

		add(sending, message, next++, same ? RELAY_SAME : RELAY_OUTPUT);
	}
	if (io & GUEST_IO_PROGRAM)
		add(sending, message, next++, RELAY_FILE);
	return 0;
}

static int sort_fds(struct relay *relay, struct guest_message *message)
{
	struct relay_sending *sending = &relay->sending;

	if (message->type == GUEST_SPAWN && !relay->inside)
		return sort_spawn(sending, message);
	if (message->type == GUEST_FILES && !relay->inside && message->n_fds)
		add(sending, message, 0, RELAY_SOCKET);
	if (message->type == GUEST_SPAWNED && relay->inside && message->n_fds)
		add(sending, message, 0, RELAY_TERMINAL);
	return 0;
}

static int refuse(struct relay *relay, uint32_t command)
{
	struct fault fault;

	fault_init(&fault, ABOX_STAGE_COMMAND);
	fault_set(&fault, ABOX_E_LIMIT, 0, "streams", "too many streams are open behind this wall");
	return guest_message_send_fault(relay->local_fd, GUEST_SPAWN_FAULT, command, &fault);
}

static int begin(struct relay *relay, struct guest_message *message, const uint8_t *packet, size_t len)
{
	struct relay_sending *sending = &relay->sending;
	int r;

	*sending = (struct relay_sending){ .len = (uint32_t)len, .command = message->command };
	memcpy(sending->packet, packet, len);
	r = sort_fds(relay, message);
	if (r < 0)
		return r;
	sending->active = true;
	relay_advance(relay);
	return 0;
}

int relay_take_local(struct relay *relay)
{
	static uint8_t packet[GUEST_PACKET_MAX];
	struct guest_message message;
	int r;

	r = guest_message_recv(relay->local_fd, packet, &message);
	if (r <= 0)
		return r;
	r = 1;
	if (message.type == GUEST_SPAWN && !relay->inside && relay->n_streams + SOCKET_MAX_FDS > RELAY_STREAMS) {
		r = refuse(relay, message.command);
	} else if (relay->network && (message.type == GUEST_LISTEN || message.type == GUEST_SOCKET)) {
		r = relay_cell_order(relay, &message, packet, message.body.len);
	} else if (message.type == GUEST_FILES && !relay->inside && relay->n_streams == RELAY_STREAMS) {
		/* whoever holds the other end sees it closed */
	} else if ((message.type == GUEST_EXITED || message.type == GUEST_TREE_GONE) && relay->inside &&
		   relay->n_held < RELAY_HELD && message.body.len <= sizeof(relay->held->packet)) {
		struct relay_held *held = &relay->held[relay->n_held++];

		held->command = message.command;
		held->len = (uint32_t)message.body.len;
		memcpy(held->packet, packet, held->len);
		relay_command_hold(relay, message.command);
	} else {
		r = begin(relay, &message, packet, message.body.len);
	}
	guest_message_close_fds(&message);
	return r < 0 ? r : 1;
}

/* A file goes as bytes; false while there is more of it to come. */
static bool advance_file(struct relay *relay, int fd)
{
	static uint8_t chunk[RELAY_CHUNK];
	struct relay_sending *sending = &relay->sending;
	uint8_t kind[4];
	struct pack_writer writer = PACK_WRITER_FIXED(kind, sizeof(kind));

	while (relay_room(relay) >= sizeof(chunk) + 4 * RELAY_HEAD) {
		ssize_t n = fd_pread_all(fd, chunk, sizeof(chunk), sending->offset);

		if (n > 0) {
			relay_put(relay, RELAY_BLOB, 0, chunk, (size_t)n);
			sending->offset += (uint64_t)n;
			continue;
		}
		sending->offset = 0;
		pack_u32(&writer, RELAY_FILE);
		return relay_put(relay, RELAY_FD, 0, writer.data, writer.len);
	}
	return false;
}

static bool announce(struct relay *relay, int *fd, uint32_t kind)
{
	struct relay_sending *sending = &relay->sending;
	struct relay_stream *stream;
	uint8_t buffer[4];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));
	uint32_t id = relay->next_id;

	pack_u32(&writer, kind);
	if (kind == RELAY_SAME)
		return relay_put(relay, RELAY_FD, 0, writer.data, writer.len);
	if (!relay_put(relay, RELAY_FD, id, writer.data, writer.len))
		return false;
	relay->next_id += 2;
	stream = relay_stream_new(relay, id, *fd, sending->command);
	if (!stream)
		return true;	/* cannot be: there was room for all of a message */
	/* the master is the guest's copy, which it has closed, as has the library the socket: nobody else uses that open file */
	if ((kind == RELAY_TERMINAL || kind == RELAY_SOCKET) && fcntl(*fd, F_SETFL, O_RDWR | O_NONBLOCK) < 0)
		return true;
	*fd = -EBADF;
	stream->source = kind != RELAY_OUTPUT;
	stream->sink = kind != RELAY_INPUT;
	stream->terminal = kind == RELAY_TERMINAL || kind == RELAY_SOCKET;
	return true;
}

void relay_advance(struct relay *relay)
{
	struct relay_sending *sending = &relay->sending;

	while (sending->active && sending->next < sending->n_fds) {
		uint32_t kind = sending->fds[sending->next].kind;
		int *fd = &sending->fds[sending->next].fd;
		bool done;

		done = kind == RELAY_FILE ? advance_file(relay, *fd) : announce(relay, fd, kind);
		if (!done)
			return;
		*fd = fd_close(*fd);
		sending->next++;
	}
	if (sending->active && relay_put(relay, RELAY_MESSAGE, 0, sending->packet, sending->len))
		sending->active = false;
}
