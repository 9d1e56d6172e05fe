/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * START: the orders arrive, the stages run, and the owner hears how it went. A box that did not come to be
 * leaves nothing, the keeper included.
 */
#include "keeper/keeper.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <agentbox/command.h>
#include <agentbox/error.h>
#include <agentbox/sandbox.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memfd.h"

#define BLOB_MAX (16U << 20)
#define RECORD_MAX (1U << 20)

static bool id_is_sound(const char *id)
{
	size_t n = strspn(id, "0123456789abcdef");

	return n == 32 && !id[32];
}

/* The blob outlives the message it came with: the plan points into it for the life of the box. */
static int take_blob(struct keeper *keeper, struct request *request, const void *inline_blob,
	size_t inline_len, struct fault *fault)
{
	int r;

	if (inline_len > 0) {
		keeper->start_memory = malloc(inline_len);
		if (!keeper->start_memory)
			return fault_set(fault, ABOX_E_MEMORY, 0, "start", "no memory for the plan");
		memcpy(keeper->start_memory, inline_blob, inline_len);
		keeper->start_blob = keeper->start_memory;
		keeper->start_blob_len = inline_len;
		return 0;
	}
	if (request->n_fds < 2)
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "start", "no plan came along");
	r = memfd_map_sealed(request->fds[0], BLOB_MAX, &keeper->start_blob, &keeper->start_blob_len);
	return r < 0 ? fault_set(fault, ABOX_E_PROTOCOL, -r, "start", "the plan cannot be read") : 0;
}

static int take_plan(struct keeper *keeper, struct fault *fault)
{
	struct pack_reader reader = PACK_READER(keeper->start_blob, keeper->start_blob_len);
	const void *flat;
	size_t flat_len;

	keeper->plan_json = unpack_bytes(&reader, &keeper->plan_json_len);
	flat = unpack_bytes(&reader, &flat_len);
	if (!unpack_done(&reader))
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "start", "not a plan");
	return flat_unpack(flat, flat_len, &keeper->plan, fault);
}

static int take_record(struct keeper *keeper, const void *record, size_t len, struct fault *fault)
{
	char *copy = malloc(len + 1);

	if (!copy)
		return fault_set(fault, ABOX_E_MEMORY, 0, "start", "no memory for the record");
	memcpy(copy, record, len);
	copy[len] = 0;
	keeper->record = copy;
	keeper->record_len = len;
	return 0;
}

static int take_start(struct keeper *keeper, struct request *request, struct fault *fault)
{
	struct pack_reader *body = &request->body;
	uint32_t version = unpack_u32(body);
	const char *id = unpack_string(body);
	size_t record_len, blob_len;
	const void *record = unpack_bytes(body, &record_len);
	uint32_t helpers = unpack_u8(body);
	uint64_t ready_usec = unpack_u64(body);
	size_t n_recorder = helpers & (WIRE_RECORDER_JOURNAL | WIRE_RECORDER_WORKSPACE) ? 1 : 0,
	       n_egress = helpers & WIRE_EGRESS ? 2 : 0;
	const void *blob = unpack_bytes(body, &blob_len);
	int r;

	if (!unpack_done(body) || version != WIRE_VERSION || !id_is_sound(id) || record_len > RECORD_MAX ||
		request->n_fds != (blob_len ? 0U : 1U) + n_recorder + n_egress + 1)
		return fault_set(
			fault, ABOX_E_PROTOCOL, 0, "start", "not a start of version %d", WIRE_VERSION);
	memcpy(keeper->id, id, sizeof(keeper->id));
	keeper->state_fd = request->fds[request->n_fds - 1];
	request->fds[request->n_fds - 1] = -EBADF;
	keeper->ready_usec = ready_usec;
	keeper->records = helpers & WIRE_RECORDER_JOURNAL;
	keeper->keeps_workspace = helpers & WIRE_RECORDER_WORKSPACE;
	if (n_egress) {
		keeper->egress.fd = steal_fd(request->fds[request->n_fds - 3]);
		keeper->egress_pidfd = steal_fd(request->fds[request->n_fds - 2]);
	}
	if (n_recorder)
		keeper->recorder.fd = steal_fd(request->fds[request->n_fds - 2 - n_egress]);
	r = take_record(keeper, record, record_len, fault);
	if (r == 0)
		r = take_blob(keeper, request, blob, blob_len, fault);
	if (r == 0)
		r = take_plan(keeper, fault);
	if (r < 0)
		return r;
	keeper->backend = backend_find(keeper->plan.backend);
	if (!keeper->backend)
		return fault_set(fault, ABOX_E_UNSUPPORTED, 0, "/backend",
			"\"%s\" is not available in this build", keeper->plan.backend);
	return 0;
}

static void set_clocks(struct keeper *keeper)
{
	const struct flat_limits *limits = &keeper->plan.limits;
	uint64_t now = clock_monotonic_usec();

	keeper->started_usec = now;
	keeper->started_wall_usec = clock_wall_usec();
	if (limits->wall_usec)
		keeper->wall_at = clock_deadline(now, limits->wall_usec);
	clocks_touch_idle(keeper);
}

int request_start(struct keeper *keeper, struct request *request, struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	int r;

	if (keeper->stages_done || keeper->epoch)
		return fault_set(fault, ABOX_E_STATE, 0, "start", "the box was started before");
	r = take_start(keeper, request, fault);
	if (r == 0)
		r = stages_do(keeper, fault);
	if (r < 0) {
		if (fault->code >= 0)
			fault_set(fault, r, 0, "start", "failed without a reason");
		client_answer_fault(keeper, request->client, request->serial, fault);
		client_flush_all(keeper, USEC_PER_SEC);
		keeper->stop_phase = STOP_DONE;
		return 0;
	}
	keeper->epoch = 1;
	set_clocks(keeper);
	client_begin(&writer, WIRE_OK, request->serial);
	pack_u64(&writer, keeper->epoch);
	client_send(keeper, request->client, &writer);
	return 0;
}
