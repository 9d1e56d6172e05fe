/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The workspace of a box, the keeper's side of it: the recorder opens, holds and settles it. The keeper has a
 * copy of its lock, and so has the guest: it is free only when nobody of the box lives that could write.
 *
 * The file "workspace" in the folder of the box names what has to be settled. It is there from the moment on
 * in which there is something, until it was done, so that a gc finds it when everything else of the box was
 * killed.
 */
#include "keeper/keeper.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <agentbox/command.h>
#include <agentbox/error.h>
#include <agentbox/sandbox.h>

#include "base/clock.h"
#include "base/fd.h"
#include "recorder/wire.h"

#define BEGIN_USEC                                                                                           \
	(6 * 3600 * USEC_PER_SEC) /* a copy of a large folder; whoever waits for the start gives up earlier  \
				   */
#define SETTLE_USEC (6 * 3600 * USEC_PER_SEC)
#define SNAPSHOT_USEC (600 * USEC_PER_SEC)
#define SEND_USEC (10 * USEC_PER_SEC)
#define EVIDENCE_MAX 32768
#define COMMANDS_MAX 8
#define LAYERS_MAX 512

/* One answer of the recorder, read into memory that is the keeper's until the next one. */
struct answer {
	struct pack_reader reader;
	uint8_t *data;
	int fds[SOCKET_MAX_FDS];
	size_t n_fds;
};

static void close_fds(struct answer *answer)
{
	for (size_t i = 0; i < answer->n_fds; i++)
		fd_close(answer->fds[i]);
	answer->n_fds = 0;
}

static void answer_clear(struct answer *answer)
{
	close_fds(answer);
	free(answer->data);
	*answer = (struct answer){ 0 };
}

static int lost(struct fault *fault, int sys_errno)
{
	return fault_set(fault, ABOX_E_GONE, sys_errno, "workspace", "the recorder does not answer");
}

/* Sends a request and waits for its answer; what the recorder says unasked meanwhile is heard all the same.
 */
static int ask(struct keeper *keeper, const struct pack_writer *writer, uint64_t timeout_usec,
	struct answer *ret, struct fault *fault)
{
	uint64_t now = clock_monotonic_usec(), deadline = clock_deadline(now, timeout_usec);
	_cleanup_(answer_clear) struct answer answer = { 0 };
	uint32_t type = RECORDER_CANCELED, serial;
	ssize_t n;
	int r;

	if (writer->failed)
		return fault_set(fault, ABOX_E_MEMORY, 0, "workspace", "no memory for the request");
	r = socket_send_until(
		keeper->recorder.fd, writer->data, writer->len, NULL, 0, clock_deadline(now, SEND_USEC));
	if (r < 0)
		return lost(fault, -r);
	answer.data = malloc(RECORDER_PACKET_MAX);
	if (!answer.data)
		return fault_set(fault, ABOX_E_MEMORY, 0, "workspace", "no memory for the answer");
	while (type == RECORDER_CANCELED || type == RECORDER_EFFECT_ANSWER) {
		close_fds(&answer);
		answer.n_fds = SOCKET_MAX_FDS;
		n = socket_recv_until(keeper->recorder.fd, answer.data, RECORDER_PACKET_MAX, answer.fds,
			&answer.n_fds, deadline);
		if (n <= 0)
			answer.n_fds = 0;
		if (n <= 0)
			return lost(fault, n < 0 ? (int)-n : EPIPE);
		answer.reader = PACK_READER(answer.data, (size_t)n);
		type = unpack_u32(&answer.reader);
		serial = unpack_u32(&answer.reader);
		if (type == RECORDER_CANCELED)
			stop_begin(keeper, ABOX_STOP_CANCEL, ABOX_CAUSE_CANCELED,
				keeper->plan.limits.grace_usec);
		if (type == RECORDER_EFFECT_ANSWER)
			effect_answer(keeper, serial, &answer.reader, answer.fds, answer.n_fds);
	}
	if (type == RECORDER_FAULT) {
		fault_unpack(fault, &answer.reader);
		return fault->code < 0 ? fault->code : lost(fault, 0);
	}
	if (type != RECORDER_OK)
		return lost(fault, EPROTO);
	*ret = answer;
	answer = (struct answer){ 0 };
	return 0;
}

static void begin_request(struct pack_writer *writer, uint32_t type)
{
	*writer = PACK_WRITER_INIT;
	pack_u32(writer, type);
	pack_u32(writer, 1);
}

static void take_layer(struct pack_reader *reader, struct flat_layer *layer)
{
	layer->path = unpack_string(reader);
	layer->device = unpack_u64(reader);
	layer->inode = unpack_u64(reader);
	if (!layer->path[0])
		layer->path = NULL;
}

static bool wants_names(const struct keeper *keeper)
{
	return keeper->plan.network.mode != FLAT_NETWORK_NONE;
}

/* The paths point into the answer, which stays as long as the box. */
static int take_opened(struct keeper *keeper, struct answer *answer, struct fault *fault)
{
	struct flat_workspace *workspace = &keeper->workspace;
	struct pack_reader *reader = &answer->reader;
	const char *id = unpack_string(reader);
	uint8_t how = unpack_u8(reader);
	bool mounted = how != 0;

	snprintf(keeper->workspace_id, sizeof(keeper->workspace_id), "%s", id);
	if (!mounted) {
		take_layer(reader, &workspace->top);
		take_layer(reader, &workspace->work);
		workspace->n_lowers = unpack_count(reader, 20);
		if (!reader->failed && workspace->n_lowers <= LAYERS_MAX)
			workspace->lowers = calloc(workspace->n_lowers + 1, sizeof(*workspace->lowers));
		for (uint32_t i = 0; workspace->lowers && i < workspace->n_lowers; i++)
			take_layer(reader, &workspace->lowers[i]);
	}
	if (!unpack_done(reader) || answer->n_fds != (mounted ? 2U : 1U) + wants_names(keeper) ||
		strlen(id) != 32 ||
		(!mounted && (!workspace->lowers || !workspace->top.path)))
		return fault_set(
			fault, ABOX_E_PROTOCOL, 0, "workspace", "the recorder answered what it must not");
	workspace->lock_fd = answer->fds[0];
	if (mounted)
		workspace->mount_fd = answer->fds[1];
	if (wants_names(keeper))
		keeper->names_fd = answer->fds[answer->n_fds - 1];
	keeper->layer_is_bounded = how == 2;
	answer->n_fds = 0;
	keeper->workspace_memory = answer->data;
	answer->data = NULL;
	keeper->plan.workspace = workspace;
	return 0;
}

int workspace_begin(struct keeper *keeper, struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	_cleanup_(answer_clear) struct answer answer = { 0 };
	int r;

	keeper->workspace.lock_fd = keeper->workspace.mount_fd = -EBADF;
	if (!keeper->keeps_workspace)
		return 0;
	begin_request(&writer, RECORDER_BEGIN);
	pack_u8(&writer, wants_names(keeper));
	r = ask(keeper, &writer, BEGIN_USEC, &answer, fault);
	if (r == 0)
		r = take_opened(keeper, &answer, fault);
	if (r < 0)
		return r;
	r = state_write(keeper, STATE_WORKSPACE, keeper->workspace_id, strlen(keeper->workspace_id));
	if (r < 0) {
		fault_set(fault, ABOX_E_SYSTEM, -r, STATE_WORKSPACE, "cannot be written");
		workspace_settle(keeper, NULL);
	}
	return r < 0 ? fault->code : 0;
}

/* Where the guest has laid a layer in the scratch over what the recorder has opened: what the box writes lies there. */
static int open_upper(const struct keeper *keeper)
{
	const struct flat_plan *plan = &keeper->plan;

	for (uint32_t i = 0; i < plan->n_steps; i++) {
		const struct flat_step *step = &plan->steps[i];

		int fd;

		if (step->op != FLAT_OP_OVERLAY || plan->sources[step->source].kind != FLAT_WORKSPACE)
			continue;
		fd = openat(keeper->scratch_fd, "workspace/upper",
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		return fd < 0 ? (errno == ENOENT ? -ENODEV : -errno) : fd;
	}
	return -ENOENT;
}

/* So that the recorder knows when nobody writes any more, should the keeper be killed. */
int workspace_tell_wall(struct keeper *keeper, struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	_cleanup_(fd_closep) int upper_fd = -EBADF;
	int fds[2], r;

	if (!keeper->workspace_id[0])
		return 0;
	if (keeper->layer_is_bounded) /* the box has the mount; here it serves to ask how full it is */
		keeper->layer_fd = steal_fd(keeper->workspace.mount_fd);
	keeper->workspace.mount_fd = fd_close(keeper->workspace.mount_fd);
	upper_fd = open_upper(keeper);
	if (upper_fd < 0 && upper_fd != -ENOENT)
		return fault_set(fault, ABOX_E_SYSTEM, -upper_fd, "workspace", "its bounded layer cannot be opened");
	begin_request(&writer, RECORDER_WALL);
	fds[0] = keeper->backend_wall.pidfd;
	fds[1] = upper_fd;
	r = writer.failed ? -ENOMEM
			  : socket_send_until(keeper->recorder.fd, writer.data, writer.len, fds,
				    upper_fd >= 0 ? 2 : 1, clock_deadline(clock_monotonic_usec(), SEND_USEC));
	return r < 0 ? lost(fault, -r) : 0;
}

static uint32_t end_of(const struct keeper *keeper)
{
	if (keeper->state == ABOX_SANDBOX_STARTING)
		return RECORDER_UNBORN;
	if (keeper->stop_cause == ABOX_CAUSE_TIMEOUT || keeper->stop_cause == ABOX_CAUSE_IDLE)
		return RECORDER_TIMEOUT;
	if (keeper->stop_cause == ABOX_CAUSE_WALL_LOST)
		return RECORDER_FAILURE;
	switch (keeper->stop_mode) {
	case ABOX_STOP_SUCCESS:
		return RECORDER_SUCCESS;
	case ABOX_STOP_FAILURE:
		return RECORDER_FAILURE;
	default:
		return RECORDER_CANCEL;
	}
}

/* What a bundle of diagnostics tells of the commands: how they ended, and the tails of their output. Newest
 * first. */
static void make_evidence(struct keeper *keeper, struct text *text)
{
	uint32_t n = 0;

	text_add(text, "{\"commands\":[");
	for (struct command *command = keeper->commands; command && n < COMMANDS_MAX;
		command = command->next) {
		_cleanup_(text_clear) struct text one = TEXT_INIT;

		record_command_json(command, &one);
		if (one.failed || text->len + one.len + 64 > EVIDENCE_MAX)
			break;
		text_add(text, n++ ? "," : "");
		text_add_bytes(text, one.data, one.len);
	}
	text_printf(text, "],\"n_commands\":%u}", keeper->n_commands);
}

/* For whoever settles the workspace in the place of a recorder that is gone: how the box has ended is known. */
static void leave_end(struct keeper *keeper)
{
	uint32_t end = keeper->recorder_was_first ? RECORDER_FAILURE : end_of(keeper);
	char digit = (char)('0' + end);
	int r = state_write(keeper, STATE_END, &digit, 1);

	if (r < 0)
		keeper_log(keeper, -r, "how the box has ended cannot be written down: its workspace is settled as that of a failure");
}

static void release(struct keeper *keeper)
{
	keeper->names_fd = fd_close(keeper->names_fd);
	keeper->plan.workspace = NULL;
	keeper->workspace.lock_fd = fd_close(keeper->workspace.lock_fd);
	keeper->workspace.mount_fd = fd_close(keeper->workspace.mount_fd);
}

int workspace_settle(struct keeper *keeper, struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	_cleanup_(answer_clear) struct answer answer = { 0 };
	_cleanup_(text_clear) struct text evidence = TEXT_INIT;
	const char *left, *json;
	size_t left_len, json_len;
	int r;

	if (!keeper->workspace_id[0])
		return 0;
	if (keeper->recorder.fd < 0) {
		leave_end(keeper);
		release(keeper);
		return lost(fault, 0);
	}
	make_evidence(keeper, &evidence);
	begin_request(&writer, RECORDER_SETTLE);
	pack_u32(&writer, end_of(keeper));
	pack_bytes(&writer, evidence.failed ? "{\"commands\":[]}" : evidence.data,
		evidence.failed ? strlen("{\"commands\":[]}") : evidence.len);
	r = ask(keeper, &writer, SETTLE_USEC, &answer, fault);
	if (r < 0)
		leave_end(keeper);
	release(keeper);
	if (r < 0)
		return r;
	left = unpack_bytes(&answer.reader, &left_len);
	json = unpack_bytes(&answer.reader, &json_len);
	if (!unpack_done(&answer.reader))
		return lost(fault, EPROTO);
	text_clear(&keeper->workspace_report);
	text_add_bytes(&keeper->workspace_report, json, json_len);
	keeper->workspace_kept = memmem(json, json_len, "\"outcome\":\"kept\"", 16) ||
				 memmem(json, json_len, "\"outcome\":\"snapshot\"", 20);
	if (keeper->box_fd >= 0)
		unlinkat(keeper->box_fd, STATE_WORKSPACE, 0);
	keeper->workspace_id[0] = 0;
	if (left_len > 0)
		return fault_set(
			fault, ABOX_E_DENIED, 0, "workspace", "%.*s", (int)MIN(left_len, (size_t)300), left);
	return 0;
}

/* The box stands still meanwhile, and so does the keeper. */
int workspace_snapshot(struct keeper *keeper, const char *name, uint64_t ttl_usec, uint32_t keep_last,
	char retid[33], struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	_cleanup_(answer_clear) struct answer answer = { 0 };
	bool was_paused = keeper->paused_usec != 0;
	int r;

	if (!keeper->workspace_id[0])
		return fault_set(fault, ABOX_E_STATE, 0, "workspace", "the box keeps no workspace");
	if (keeper->stop_phase != STOP_NONE)
		return fault_set(fault, ABOX_E_STATE, 0, "workspace", "the box is being stopped");
	r = clocks_pause(keeper, fault);
	if (r < 0)
		return r;
	begin_request(&writer, RECORDER_SNAPSHOT);
	pack_string(&writer, name);
	pack_u64(&writer, ttl_usec);
	pack_u32(&writer, keep_last);
	r = ask(keeper, &writer, SNAPSHOT_USEC, &answer, fault);
	if (!was_paused)
		clocks_resume(keeper, NULL);
	if (r < 0)
		return r;
	snprintf(retid, 33, "%s", unpack_string(&answer.reader));
	return unpack_done(&answer.reader) ? 0 : lost(fault, EPROTO);
}
