/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The channel of walls through which only bytes go (guest/wire.h has the messages). A relay stands at each end, one
 * outside and one inside the wall: towards its own side it is the SOCK_SEQPACKET peer with descriptors that keeper and
 * guest know, towards the other relay it sends frames. Descriptors become streams: a pipe at each end, and data frames
 * between, each stream within a window of its own, so that a reader who is slow holds up nobody else.
 *
 * Security: what comes from inside is not believed. A frame that may not come ends the relay, and the box with it.
 */
#ifndef GUEST_RELAY_H
#define GUEST_RELAY_H

#include <poll.h>

#include "guest/message.h"
#include "guest/network.h"

/* A frame is u32 length of the payload, u32 type, u32 id, payload. */
enum relay_type {
	RELAY_MESSAGE = 1,	/* a packet of guest/wire.h, with the descriptors announced since the last one */
	RELAY_FD = 2,		/* id of a new stream; u32 enum relay_kind */
	RELAY_DATA = 3,		/* of stream id, never more than its window */
	RELAY_CREDIT = 4,	/* u32 bytes of stream id that were taken: as many may come again */
	RELAY_EOF = 5,		/* no more data of stream id from the sender */
	RELAY_SHUT = 6,		/* the sender takes no more data of stream id */
	RELAY_BLOB = 7,		/* the next bytes of a file that RELAY_FD will name; to the inside only */
};

/* What the receiver of RELAY_FD hands on with the message that follows. */
enum relay_kind {
	RELAY_INPUT = 1,	/* the read end of a pipe; data comes from the announcer */
	RELAY_OUTPUT = 2,	/* the write end of a pipe; data goes to the announcer */
	RELAY_TERMINAL = 3,	/* both ways; from the inside only */
	RELAY_SAME = 4,		/* the descriptor before it once more */
	RELAY_FILE = 5,		/* a sealed memory file of the blob; to the inside only */
	RELAY_SOCKET = 6,	/* both ways; to the inside only */
	RELAY_CONNECT = 7,	/* both ways; to the inside only, and nothing is handed on: u32 port, the relay itself connects to
				 * that of its loopback */
};

#define RELAY_HEAD 12
#define RELAY_PAYLOAD_MAX GUEST_PACKET_MAX
#define RELAY_WINDOW 65536U
#define RELAY_CHUNK 32768U
#define RELAY_STREAMS 1024	/* alive at once */
#define RELAY_CONNECTS 512	/* of them connections to the box: commands keep room */
#define RELAY_BLOB_MAX (64U << 20)
#define RELAY_OUT_BYTES 262144U
#define RELAY_HELD 64

struct relay_frame {
	uint32_t type;
	uint32_t id;
	const uint8_t *payload;
	uint32_t len;
};
/* One frame off the front: its whole length, 0 when more bytes are needed, -EPROTO. */
ssize_t relay_frame_parse(const uint8_t *data, size_t len, struct relay_frame *ret);

struct relay_stream {
	uint32_t id;
	uint32_t command;
	int fd;
	bool terminal;		/* or a socket: one descriptor for both ways */
	bool connection;	/* such a socket whose ways end one by one */
	bool source, sink;	/* data goes from fd to the other relay; from there to fd */
	bool eof_owed, shut_owed, eof_came;
	uint32_t credit;	/* how much the other side takes now */
	uint32_t owed;		/* how much we have taken since we last said so */
	uint32_t hold;		/* of the source: bytes that go before a held message */
	uint8_t *buffer;	/* of the sink: RELAY_WINDOW bytes, from head on */
	uint32_t head, len;
};

/* The end of a command, kept back until its output has gone before it. */
struct relay_held {
	uint32_t command;
	uint32_t len;
	uint8_t packet[96];
};

/* A message on its way out: its descriptors first. */
struct relay_sending {
	bool active;
	uint32_t len;
	uint32_t command;
	struct {
		int fd;
		uint32_t kind;
	} fds[SOCKET_MAX_FDS];
	size_t n_fds, next;
	uint64_t offset;	/* into a file */
	uint8_t packet[GUEST_PACKET_MAX];
};

struct relay {
	bool inside;
	int local_fd, in_fd, out_fd;
	int ready_fd;		/* outside: goes with GUEST_READY */
	const struct flat_network *network;	/* outside: the cell is at this side of the wall, and its orders are carried out here */
	int cell_fd;		/* by this process, which may still widen it */
	bool far;		/* the box has a network of its own besides, which is linked to the cell; both sides know */
	bool ready;		/* GUEST_READY has passed */
	bool local_full;	/* a held message found no room */
	uint32_t next_id;

	struct relay_stream streams[RELAY_STREAMS];
	size_t n_streams;
	struct relay_held held[RELAY_HELD];
	size_t n_held;
	struct relay_sending sending;

	uint8_t out[RELAY_OUT_BYTES];
	size_t out_head, out_len;
	uint8_t in[2 * (RELAY_HEAD + RELAY_PAYLOAD_MAX)];
	size_t in_len;

	/* what has come for the next message */
	int coming_fds[SOCKET_MAX_FDS];
	uint32_t coming_ids[SOCKET_MAX_FDS];	/* of their streams; 0: none */
	size_t n_coming;
	int blob_fd;
	uint64_t blob_len;
	uint8_t waiting[GUEST_PACKET_MAX];	/* for room on the local side */
	size_t waiting_len;

	struct pollfd polls[RELAY_STREAMS + 8];
};

/* Descriptors stay the caller's; those towards the other relay must be non-blocking. */
void relay_init(struct relay *relay, bool inside, int local_fd, int in_fd, int out_fd);
/* A message for the other side's guest or keeper, before or between those of the local side. false: no room. */
bool relay_send(struct relay *relay, const struct pack_writer *message);

/*
 * Waits for whatever comes next and handles it; wake_fd (-EBADF for none) ends the wait too. 1; 0 when the local side has
 * gone; -ECONNRESET when the other relay has; -EPROTO for what must not come; another -errno.
 */
int relay_turn(struct relay *relay, int wake_fd, uint64_t deadline_usec);

/* relay-stream.c */
struct relay_stream *relay_stream_find(struct relay *relay, uint32_t id);
struct relay_stream *relay_stream_new(struct relay *relay, uint32_t id, int fd, uint32_t command);
void relay_stream_drop(struct relay *relay, struct relay_stream *stream);	/* closes; the last takes its place */
int relay_stream_take(struct relay_stream *stream, const uint8_t *data, uint32_t len);	/* -EPROTO: outside of the window */
void relay_stream_flush(struct relay *relay, struct relay_stream *stream);	/* sink: as much as goes without waiting */
void relay_stream_pull(struct relay *relay, struct relay_stream *stream);	/* source: one chunk at most */
bool relay_stream_settle(struct relay *relay, struct relay_stream *stream);	/* says what is owed; false: it was dropped */
bool relay_command_drained(struct relay *relay, uint32_t command);
void relay_command_hold(struct relay *relay, uint32_t command);

/* relay-out.c */
size_t relay_room(const struct relay *relay);
bool relay_put(struct relay *relay, uint32_t type, uint32_t id, const void *payload, size_t len);	/* false: no room */
int relay_flush(struct relay *relay);	/* 0 or -errno */
void relay_advance(struct relay *relay);	/* goes on with relay->sending */
int relay_take_local(struct relay *relay);	/* one message of the local side: as relay_turn(), -EAGAIN when there is none */

/* relay-cell.c */
int relay_cell_order(struct relay *relay, struct guest_message *message, const uint8_t *packet, size_t len);	/* LISTEN, SOCKET */
int relay_open_connect(struct relay *relay, uint32_t id, uint32_t port);	/* inside */

/* relay-in.c */
int relay_handle_frame(struct relay *relay, const struct relay_frame *frame);
int relay_deliver(struct relay *relay);	/* what waits for the local side: 0, -EAGAIN, -errno */
void relay_release(struct relay *relay);	/* held messages whose time has come */

#endif
