/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Effects of the box's requests: egress asks, the recorder writes, and the keeper stands between them. It reads
 * nothing of what is said; it knows which egress asked, so that no answer gets to another one, and how many requests
 * were let go without an outcome, so that what is under way at the end of the box gets its grace.
 */
#include <errno.h>
#include <poll.h>

#include <agentbox/error.h>

#include "base/clock.h"
#include "egress/wire.h"
#include "keeper/network.h"
#include "recorder/wire.h"

#define SLICE_USEC (50 * USEC_PER_MSEC)

static void pack_rest(struct pack_writer *writer, const struct pack_reader *body)
{
	for (size_t i = body->offset; i < body->len; i++)
		pack_u8(writer, body->data[i]);
}

/* Nothing starts that nobody writes down. */
static void refuse(struct keeper *keeper, uint32_t serial, const char *why)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;

	pack_u32(&writer, EGRESS_EFFECT_ANSWER);
	pack_u32(&writer, serial);
	pack_u32(&writer, EFFECT_REFUSED);
	pack_string(&writer, "");
	pack_string(&writer, "");
	pack_u32(&writer, 403);
	pack_string(&writer, why);
	network_send(keeper, &writer, NULL, 0);
}

void effect_ask(
	struct keeper *keeper, uint32_t type, uint32_t serial, struct pack_reader *body, const int *fds, size_t n_fds)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;

	pack_u32(&writer,
		type == EGRESS_EFFECT	     ? RECORDER_EFFECT
		: type == EGRESS_EFFECT_DONE ? RECORDER_EFFECT_DONE
					     : RECORDER_EFFECT_LEAVE);
	pack_u32(&writer, serial);
	pack_u32(&writer, keeper->egress_life);
	pack_rest(&writer, body);
	/* An outcome that cannot be told is UNKNOWN: the recorder is gone then, and the box with it. */
	if (!keeper->records || record_send(keeper, &writer, fds, n_fds) < 0) {
		if (type == EGRESS_EFFECT)
			refuse(keeper, serial, "nobody can record it");
		return;
	}
	if (type == EGRESS_EFFECT_LEAVE && unpack_u8(body) > 0)
		keeper->n_effects -= keeper->n_effects > 0;
}

void effect_answer(struct keeper *keeper, uint32_t serial, struct pack_reader *body, const int *fds, size_t n_fds)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct pack_reader look;
	uint32_t what;

	if (unpack_u32(body) != keeper->egress_life || body->failed)
		return; /* Security: the one that asked is gone; another one may use the same number */
	look = *body;
	what = unpack_u32(&look);
	keeper->n_effects += what == EFFECT_GO;
	if (what == EFFECT_RECORDED || what == EFFECT_UNRECORDED)
		keeper->n_effects -= keeper->n_effects > 0;
	pack_u32(&writer, EGRESS_EFFECT_ANSWER);
	pack_u32(&writer, serial);
	pack_rest(&writer, body);
	network_send(keeper, &writer, fds, n_fds);
}

void effects_lost(struct keeper *keeper)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;

	keeper->egress_life++;
	keeper->n_effects = 0;
	if (!keeper->records || keeper->recorder.fd < 0)
		return;
	pack_u32(&writer, RECORDER_EFFECTS_LOST);
	pack_u32(&writer, 0);
	record_send(keeper, &writer, NULL, 0);
}

void effects_drain(struct keeper *keeper)
{
	uint64_t deadline = clock_deadline(clock_monotonic_usec(), keeper->plan.limits.grace_usec);

	while (keeper->n_effects > 0 && keeper->egress.fd >= 0 && keeper->recorder.fd >= 0 &&
		clock_monotonic_usec() < deadline) {
		struct pollfd fds[2] = { { .fd = keeper->egress.fd, .events = POLLIN },
			{ .fd = keeper->recorder.fd, .events = POLLIN } };

		if (poll(fds, 2, (int)(SLICE_USEC / USEC_PER_MSEC)) < 0 && errno != EINTR)
			return;
		if (fds[0].revents)
			network_take_egress(keeper);
		if (fds[1].revents)
			record_take(keeper);
	}
}
