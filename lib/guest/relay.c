/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The loop of a relay. Promises that each side is read only as far as there is room for what it says, so that memory is
 * bounded, and that it never waits while something can be done. One thread; nothing is allocated but windows of streams.
 */
#include "guest/relay.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

enum { SLOT_LOCAL, SLOT_IN, SLOT_OUT, SLOT_WAKE, SLOTS };

void relay_init(struct relay *relay, bool inside, int local_fd, int in_fd, int out_fd)
{
	memset(relay, 0, sizeof(*relay));
	relay->inside = inside;
	relay->local_fd = local_fd;
	relay->in_fd = in_fd;
	relay->out_fd = out_fd;
	relay->ready_fd = relay->blob_fd = relay->cell_fd = -EBADF;
	relay->next_id = inside ? 2 : 1;
	fd_init_array(relay->coming_fds, ELEMENTSOF(relay->coming_fds));
}

static bool may_take_local(const struct relay *relay)
{
	return !relay->sending.active && relay->n_held < RELAY_HELD && relay_room(relay) > RELAY_OUT_BYTES / 2;
}

static bool may_read(const struct relay *relay)
{
	return !relay->waiting_len && relay->in_len < sizeof(relay->in);
}

static short stream_events(const struct relay *relay, const struct relay_stream *stream)
{
	short events = 0;

	if (stream->source && stream->credit && relay_room(relay) > RELAY_OUT_BYTES / 4)
		events |= POLLIN;
	if (stream->sink && stream->len)
		events |= POLLOUT;
	return events;
}

static size_t fill_polls(struct relay *relay, int wake_fd)
{
	struct pollfd *polls = relay->polls;

	polls[SLOT_LOCAL] = (struct pollfd){ .fd = relay->local_fd };
	if (may_take_local(relay))
		polls[SLOT_LOCAL].events |= POLLIN;
	if (relay->waiting_len || relay->local_full)
		polls[SLOT_LOCAL].events |= POLLOUT;
	/* a hang-up that cannot be dealt with now would only keep us awake */
	polls[SLOT_IN] = (struct pollfd){ .fd = may_read(relay) ? relay->in_fd : -1, .events = POLLIN };
	polls[SLOT_OUT] = (struct pollfd){ .fd = relay->out_len ? relay->out_fd : -1, .events = POLLOUT };
	polls[SLOT_WAKE] = (struct pollfd){ .fd = wake_fd, .events = POLLIN };
	for (size_t i = 0; i < relay->n_streams; i++) {
		const struct relay_stream *stream = &relay->streams[i];
		short events = stream_events(relay, stream);

		/* a source without room is left alone: its hang-up comes again */
		polls[SLOTS + i] = (struct pollfd){ .fd = events || stream->sink ? stream->fd : -1, .events = events };
	}
	return SLOTS + relay->n_streams;
}

/* Everything that is whole, as far as there is room behind it. */
static int take_frames(struct relay *relay)
{
	size_t used = 0;
	int r = 0;

	while (r == 0 && !relay->waiting_len) {
		struct relay_frame frame;
		ssize_t n = relay_frame_parse(relay->in + used, relay->in_len - used, &frame);

		if (n <= 0) {
			r = (int)n;
			break;
		}
		r = relay_handle_frame(relay, &frame);
		used += (size_t)n;
	}
	relay->in_len -= used;
	memmove(relay->in, relay->in + used, relay->in_len);
	return r;
}

static int read_in(struct relay *relay)
{
	ssize_t n;

	do
		n = read(relay->in_fd, relay->in + relay->in_len, sizeof(relay->in) - relay->in_len);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? 0 : -errno;
	if (n == 0)
		return -ECONNRESET;
	relay->in_len += (size_t)n;
	return take_frames(relay);
}

/* From the end: dropping a stream moves only the last one, which has been looked at. */
static void serve_streams(struct relay *relay, size_t n)
{
	for (size_t i = n; i-- > 0;) {
		struct relay_stream *stream = &relay->streams[i];
		short events = relay->polls[SLOTS + i].revents;

		if (!events)
			continue;
		if (stream->sink && (events & (POLLOUT | POLLERR | POLLHUP)) && stream->len)
			relay_stream_flush(relay, stream);
		else if (stream->sink && (events & POLLERR) && !stream->terminal) {
			/* nobody reads it any more */
			stream->sink = false;
			stream->shut_owed = true;
			stream->fd = fd_close(stream->fd);
		} else if (stream->sink && (events & POLLHUP) && stream->terminal && !relay->inside) {
			stream->sink = false;	/* closed outside, which nothing from inside can reach any more */
		} else if (stream->connection && !stream->source && (events & (POLLERR | POLLHUP))) {
			stream->sink = false;
			stream->shut_owed = true;
		}
		if (stream->source && (events & (POLLIN | POLLHUP | POLLERR)))
			relay_stream_pull(relay, stream);
	}
}

/* Output that goes before the end of its command. */
static void serve_held(struct relay *relay)
{
	for (size_t i = 0; i < relay->n_streams; i++) {
		struct relay_stream *stream = &relay->streams[i];

		while (stream->source && stream->hold && stream->credit && relay_room(relay) > RELAY_OUT_BYTES / 4) {
			uint32_t before = stream->hold;

			relay_stream_pull(relay, stream);
			if (stream->hold == before && stream->source)
				break;
		}
	}
}

static int settle(struct relay *relay)
{
	bool full;
	int r = 0;

	if (relay->waiting_len)
		r = relay_deliver(relay);
	if (r < 0 && r != -EAGAIN)
		return r;
	if (!relay->waiting_len) {
		r = take_frames(relay);
		if (r < 0)
			return r;
	}
	do {
		relay_advance(relay);
		serve_held(relay);
		for (size_t i = relay->n_streams; i-- > 0;)
			relay_stream_settle(relay, &relay->streams[i]);
		relay_release(relay);
		full = relay->sending.active || relay_room(relay) < RELAY_OUT_BYTES / 4;
		r = relay_flush(relay);
		/* once more when everything went at once: no event will tell that there is room again */
	} while (r == 0 && full && !relay->out_len);
	return r;
}

int relay_turn(struct relay *relay, int wake_fd, uint64_t deadline_usec)
{
	size_t n = fill_polls(relay, wake_fd), n_streams = relay->n_streams;
	struct pollfd *polls = relay->polls;
	int r;

	if (poll(polls, n, clock_poll_msec(clock_monotonic_usec(), deadline_usec)) < 0)
		return errno == EINTR ? 1 : -errno;
	serve_streams(relay, n_streams);
	if (polls[SLOT_IN].revents && may_read(relay)) {
		r = read_in(relay);
		if (r < 0)
			return r;
	}
	if (polls[SLOT_LOCAL].revents & (POLLIN | POLLHUP | POLLERR)) {
		r = may_take_local(relay) ? relay_take_local(relay) : polls[SLOT_LOCAL].revents & POLLHUP ? 0 : -EAGAIN;
		if (r <= 0 && r != -EAGAIN)
			return r == -EPROTO || r == 0 ? r : 0;
	}
	r = settle(relay);
	return r < 0 ? r : 1;
}
