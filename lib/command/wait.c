/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Waiting for a command, and moving its data meanwhile: in abox_command_wait(), or step by step in the
 * caller's own loop with abox_command_get_fd() and abox_command_process().
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/socket.h"
#include "command/command.h"
#include "keeper/wire.h"

#define DRAIN_USEC (100 * USEC_PER_MSEC)	/* documented at abox_command_wait() */
#define EVENT_MAX 4096

static void tell_output_limit(abox_command *command, int stream)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;

	pack_u32(&writer, WIRE_OUTPUT_LIMIT);
	pack_u32(&writer, 0);
	pack_u32(&writer, (uint32_t)stream);
	if (!writer.failed && command->event_fd >= 0)
		socket_send(command->event_fd, writer.data, writer.len, NULL, 0);
}

/* The keeper hung up without a last word: it was killed, and the box with it. */
static int keeper_lost(abox_command *command)
{
	command->result->cause = ABOX_CAUSE_KEEPER_LOST;
	command->result->evidence = strdup("the keeper hung up without telling an end");
	return command->result->evidence ? 0 : ABOX_E_MEMORY;
}

static int take_end(abox_command *command, struct pack_reader *reader, abox_error **reterr)
{
	int r;

	r = result_new(command->box, command->id, &command->result);
	if (r == 0)
		r = reader ? result_read(command->result, reader) : keeper_lost(command);
	if (r < 0) {
		command->result = abox_result_unref(command->result);
		return error_set(reterr, r, ABOX_STAGE_COMMAND, NULL, "cannot read the end of the command");
	}
	command->event_fd = fd_close(command->event_fd);
	command->drain_until_usec = clock_deadline(clock_monotonic_usec(), DRAIN_USEC);
	return 0;
}

static int take_events(abox_command *command, abox_error **reterr)
{
	uint8_t buffer[EVENT_MAX];
	struct pack_reader reader;
	ssize_t n;

	while (command->event_fd >= 0) {
		n = socket_recv_until(command->event_fd, buffer, sizeof(buffer), NULL, NULL, 0);
		if (n == -EAGAIN || n == -ETIMEDOUT)
			return 0;
		if (n <= 0)
			return take_end(command, NULL, reterr);
		reader = PACK_READER(buffer, (size_t)n);
		if (unpack_u32(&reader) != WIRE_ENDED)
			continue;	/* a kind of event that this version does not know */
		unpack_u32(&reader);
		return take_end(command, &reader, reterr);
	}
	return 0;
}

static void finish(abox_command *command)
{
	abox_result *result = command->result;
	struct streams *streams = &command->streams;
	off_t offset;

	for (int i = 0; i < 2; i++) {
		struct output_stream *out = &streams->out[i];

		if (out->mode != ABOX_STREAM_CAPTURE && out->mode != ABOX_STREAM_COPY)
			continue;
		result->total_bytes[i] = out->total_bytes;
		result->truncated[i] = out->total_bytes > out->limit_bytes;
		if (result->truncated[i])
			result->limits_struck |= ABOX_LIMIT_OUTPUT;
		result->output[i] = out->kept;
		out->kept = TEXT_INIT;
	}
	offset = streams->in.bytes_fd >= 0 ? lseek(streams->in.bytes_fd, 0, SEEK_CUR) : 0;
	result->stdin_taken_bytes = offset > 0 ? (uint64_t)offset : 0;
	streams_close(streams);
	streams_watch(streams, command->epoll_fd);
	command->finished = true;
}

/* 1 when it has ended and its streams are drained, or may not be drained any longer. */
int abox_command_process(abox_command *command, abox_error **reterr)
{
	bool stop;
	int limit, r;

	if (!command)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_COMMAND, NULL, "a command is required");
	if (command->finished)
		return 1;
	r = streams_move(&command->streams, &stop, &limit);
	if (r < 0)
		return error_set(reterr, r < ABOX_E_LEFT_BEHIND ? ABOX_E_IO : r, ABOX_STAGE_COMMAND, NULL,
			"cannot move the data of the command");
	if (limit)
		tell_output_limit(command, limit);
	if (stop && command->event_fd >= 0)
		abox_command_kill(command, 0, NULL);
	r = take_events(command, reterr);
	if (r < 0)
		return r;
	if (command->result && (!streams_open_output(&command->streams) ||
				       clock_monotonic_usec() >= command->drain_until_usec)) {
		finish(command);
		return 1;
	}
	r = streams_watch(&command->streams, command->epoll_fd);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_COMMAND, "epoll", -r, "cannot watch the command");
	return 0;
}

static int hand_out(abox_command *command, abox_result **retresult)
{
	if (retresult)
		*retresult = abox_result_ref(command->result);
	return 1;
}

int abox_command_wait(
	abox_command *command, uint64_t timeout_usec, abox_result **retresult, abox_error **reterr)
{
	uint64_t deadline = clock_deadline(clock_monotonic_usec(), timeout_usec), now, until;
	struct epoll_event event;
	int r;

	for (;;) {
		r = abox_command_process(command, reterr);
		if (r < 0)
			return r;
		if (r == 1)
			return hand_out(command, retresult);
		now = clock_monotonic_usec();
		if (now >= deadline)
			return 0;
		until = command->result ? MIN(deadline, command->drain_until_usec) : deadline;
		r = epoll_wait(command->epoll_fd, &event, 1, clock_poll_msec(now, until));
		if (r < 0 && errno != EINTR)
			return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_COMMAND, "epoll", errno,
				"cannot wait for the command");
	}
}

int abox_command_run(abox_sandbox *box, const struct abox_command_options *options, abox_result **retresult,
	abox_error **reterr)
{
	struct abox_command_options full = { .size = sizeof(full) };
	_cleanup_(command_unrefp) abox_command *command = NULL;
	int r;

	if (!options || !retresult || options->size < sizeof(size_t))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_COMMAND, NULL,
			"options and retresult are required");
	memcpy(&full, options, MIN(options->size, sizeof(full)));
	full.size = sizeof(full);
	if (full.stdout_mode == ABOX_STREAM_NULL)
		full.stdout_mode = ABOX_STREAM_CAPTURE;
	if (full.stderr_mode == ABOX_STREAM_NULL)
		full.stderr_mode = ABOX_STREAM_CAPTURE;
	r = abox_command_start(box, &full, &command, reterr);
	if (r < 0)
		return r;
	r = abox_command_wait(command, ABOX_FOREVER, retresult, reterr);
	return r < 0 ? r : 0;
}
