/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Messages over a stream, for both ends. Promises that no length from outside is believed beyond the buffer.
 */
#include "file/packet.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/clock.h"

/* 0, -ETIMEDOUT or -errno. */
static int wait_for(int fd, short events, uint64_t deadline_usec)
{
	struct pollfd entry = { .fd = fd, .events = events };
	uint64_t now = clock_monotonic_usec();
	int n;

	n = poll(&entry, 1, clock_poll_msec(now, deadline_usec));
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	return n == 0 && clock_monotonic_usec() >= deadline_usec ? -ETIMEDOUT : 0;
}

/* How many bytes the message has with its head, as far as that is known. */
static ssize_t whole_length(const struct file_stream *stream)
{
	struct pack_reader reader = PACK_READER(stream->buffer, FILE_PACKET_HEAD);
	uint32_t len;

	if (stream->have < FILE_PACKET_HEAD)
		return FILE_PACKET_HEAD;
	len = unpack_u32(&reader);
	return len == 0 || len > FILE_PACKET_MAX ? -EMSGSIZE : (ssize_t)(FILE_PACKET_HEAD + len);
}

ssize_t file_stream_recv(struct file_stream *stream, uint64_t deadline_usec, const uint8_t **retmessage)
{
	for (;;) {
		ssize_t whole = whole_length(stream), n;
		int r;

		if (whole < 0)
			return whole;
		if (stream->have == (size_t)whole && stream->have > FILE_PACKET_HEAD) {
			stream->have = 0;
			*retmessage = stream->buffer + FILE_PACKET_HEAD;
			return whole - FILE_PACKET_HEAD;
		}
		n = recv(stream->fd, stream->buffer + stream->have, (size_t)whole - stream->have, MSG_DONTWAIT);
		if (n > 0) {
			stream->have += (size_t)n;
			continue;
		}
		if (n == 0)
			return 0;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		r = wait_for(stream->fd, POLLIN, deadline_usec);
		if (r < 0)
			return r;
	}
}

int file_stream_send(int fd, const void *message, size_t len, uint64_t deadline_usec)
{
	uint8_t head[FILE_PACKET_HEAD];
	struct pack_writer writer = PACK_WRITER_FIXED(head, sizeof(head));
	struct iovec parts[2] = { { head, sizeof(head) }, { (void *)(uintptr_t)message, len } };
	struct msghdr vector = { .msg_iov = parts, .msg_iovlen = 2 };

	pack_u32(&writer, (uint32_t)len);
	while (parts[0].iov_len + parts[1].iov_len > 0) {
		ssize_t n = sendmsg(fd, &vector, MSG_NOSIGNAL | MSG_DONTWAIT);
		int r;

		for (size_t i = 0; n > 0 && i < ELEMENTSOF(parts); i++) {
			size_t done = MIN((size_t)n, parts[i].iov_len);

			parts[i].iov_base = (uint8_t *)parts[i].iov_base + done;
			parts[i].iov_len -= done;
			n -= (ssize_t)done;
		}
		if (n >= 0)
			continue;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		r = wait_for(fd, POLLOUT, deadline_usec);
		if (r < 0)
			return r;
	}
	return 0;
}
