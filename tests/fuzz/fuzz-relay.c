/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a box sends through a wall of bytes: frames at the outer relay, which has announced a stream of its own before.
 * The first byte chooses: an even one the outside; an odd one the inside, which reads what the keeper's side sends; then
 * the rest is tried as a setup too.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "guest/relay.h"
#include "guest/setup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct relay relay;

static void close_all(int local_fd)
{
	uint8_t packet[GUEST_PACKET_MAX];
	struct guest_message message;

	while (guest_message_recv(local_fd, packet, &message) != 0 && message.n_fds)
		guest_message_close_fds(&message);
	while (relay.n_streams)
		relay_stream_drop(&relay, &relay.streams[0]);
	for (size_t i = 0; i < relay.n_coming; i++)
		fd_close(relay.coming_fds[i]);
	fd_close(relay.blob_fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct guest_setup setup;
	int local[2], in[2], out[2], given[2];
	struct relay_stream *stream;
	bool inside;

	if (size < 1 || size > 32768)
		return 0;
	inside = data[0] & 1;
	if (inside)
		setup_unpack(data + 1, size - 1, &setup);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, local) < 0 ||
		pipe2(in, O_CLOEXEC | O_NONBLOCK) < 0 || pipe2(out, O_CLOEXEC | O_NONBLOCK) < 0 ||
		pipe2(given, O_CLOEXEC | O_NONBLOCK) < 0)
		abort();
	relay_init(&relay, inside, local[0], in[0], out[1]);
	stream = relay_stream_new(&relay, relay.next_id, given[1], 1);
	relay.next_id += 2;
	stream->sink = true;
	if (write(in[1], data + 1, size - 1) < 0)
		abort();
	close(in[1]);
	for (int i = 0; i < 64 && relay_turn(&relay, -EBADF, 0) > 0; i++) {
		uint8_t sink[4096];

		while (read(out[0], sink, sizeof(sink)) > 0)
			;
		while (read(given[0], sink, sizeof(sink)) > 0)
			;
	}
	close_all(local[1]);
	close(local[0]);
	close(local[1]);
	close(in[0]);
	close(out[0]);
	close(out[1]);
	close(given[0]);
	return 0;
}
