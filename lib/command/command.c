/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A command as the caller holds it: its end comes over a socket of its own, its streams through pipes of
 * ours, and one epoll descriptor tells of both. Starting, killing and counting are the keeper's.
 */
#include "command/command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memfd.h"
#include "base/socket.h"
#include "keeper/wire.h"

#define RESULT_MAX 65536

void abox_command_options_init(struct abox_command_options *options)
{
	if (options)
		*options = (struct abox_command_options){ .size = sizeof(*options) };
}

abox_command *abox_command_ref(abox_command *command)
{
	if (command)
		atomic_fetch_add_explicit(&command->n_refs, 1, memory_order_relaxed);
	return command;
}

abox_command *abox_command_unref(abox_command *command)
{
	if (!command || atomic_fetch_sub_explicit(&command->n_refs, 1, memory_order_acq_rel) != 1)
		return NULL;
	streams_close(&command->streams);
	if (command->has_reader)
		client_clear(&command->reader);
	if (command->has_writer)
		client_clear(&command->writer);
	fd_close(command->event_fd);
	fd_close(command->epoll_fd);
	abox_result_unref(command->result);
	abox_sandbox_unref(command->box);
	free(command);
	return NULL;
}

void command_unrefp(abox_command **command)
{
	*command = abox_command_unref(*command);
}

static int command_new(abox_sandbox *box, abox_command **ret)
{
	abox_command *command = calloc(1, sizeof(*command));

	if (!command)
		return ABOX_E_MEMORY;
	atomic_init(&command->n_refs, 1);
	command->box = abox_sandbox_ref(box);
	command->event_fd = -EBADF;
	command->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	streams_init(&command->streams);
	if (command->epoll_fd < 0) {
		abox_command_unref(command);
		return ABOX_E_SYSTEM;
	}
	*ret = command;
	return 0;
}

uint32_t abox_command_get_id(const abox_command *command)
{
	return command ? command->id : 0;
}

int abox_command_get_fd(const abox_command *command)
{
	return command ? command->epoll_fd : ABOX_E_INVALID;
}

/* The fields of WIRE_EXEC that do not fit a packet when arguments are long. */
static void pack_exec(struct pack_writer *blob, const struct abox_command_options *options, bool own_program)
{
	pack_string(blob, options->token);
	pack_strings(blob, options->argv);
	pack_strings(blob, options->env);
	pack_string(blob, options->cwd);
	pack_string(blob, options->user);
	pack_u32(blob, (uint32_t)options->stdin_mode);
	pack_u32(blob, (uint32_t)options->stdout_mode);
	pack_u32(blob, (uint32_t)options->stderr_mode);
	pack_u8(blob, options->stderr_to_stdout != 0);
	pack_u8(blob, options->pty != 0);
	pack_u32(blob, options->pty_rows);
	pack_u32(blob, options->pty_columns);
	pack_u32(blob, (uint32_t)options->survivors);
	pack_u8(blob, options->output_kill != 0);
	pack_u64(blob, options->timeout_usec);
	pack_u64(blob, options->grace_usec);
	pack_u64(blob,
		own_program ? 0
			    : options->output_bytes); /* a probe's output is ours, not the box's to bound */
	pack_u64(blob, options->memory_bytes);
	pack_u64(blob, options->pids);
	pack_u64(blob, options->cpu_usec);
	pack_u64(blob, options->file_bytes);
	pack_u32(blob, options->open_files);
}

struct exec_request {
	const struct abox_command_options *options;
	const struct stream_ends *ends;
	int program_fd;
	int event_fd;
};

static int call_exec(abox_command *command, const struct exec_request *request,
	const struct pack_writer *blob, int blob_fd, abox_error **reterr)
{
	static const uint32_t io_bits[] = { WIRE_IO_STDIN, WIRE_IO_STDOUT, WIRE_IO_STDERR };
	struct client *client = &command->box->client;
	uint32_t io = request->program_fd >= 0 ? WIRE_IO_PROGRAM : 0;
	struct pack_writer writer;
	struct pack_reader reader;
	int fds[SOCKET_MAX_FDS], r;
	size_t n = 0;

	if (blob_fd >= 0)
		fds[n++] = blob_fd;
	fds[n++] = request->event_fd;
	for (size_t i = 0; i < ELEMENTSOF(io_bits); i++) {
		if (request->ends->fds[i] < 0)
			continue;
		io |= io_bits[i];
		fds[n++] = request->ends->fds[i];
	}
	if (request->program_fd >= 0)
		fds[n++] = request->program_fd;
	client_begin(client, &writer, WIRE_EXEC);
	pack_u64(&writer, command->box->mode == ABOX_OPEN_CONTROL ? command->box->epoch : 0);
	pack_u32(&writer, io);
	pack_bytes(&writer, blob->data, blob_fd >= 0 ? 0 : blob->len);
	r = client_call(client, &writer, fds, n, UINT64_MAX, &reader, reterr);
	if (r == 0) {
		command->id = unpack_u32(&reader);
		r = unpack_u8(&reader);	/* 1: it was there already */
		if (reader.failed)
			r = ABOX_E_PROTOCOL;
	}
	client_end(client, &writer);
	return r;
}

static int send_exec(abox_command *command, const struct exec_request *request, abox_error **reterr)
{
	_cleanup_(pack_writer_clearp) struct pack_writer blob = PACK_WRITER_INIT;
	_cleanup_(fd_closep) int blob_fd = -EBADF;
	int r;

	pack_exec(&blob, request->options, request->program_fd >= 0);
	if (blob.failed)
		return ABOX_E_MEMORY;
	if (blob.len > WIRE_INLINE_MAX) {
		r = memfd_new_sealed("agentbox-exec", blob.data, blob.len, 0400, &blob_fd);
		if (r < 0)
			return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_COMMAND, "memfd", -r,
				"cannot pass the arguments");
	}
	return call_exec(command, request, &blob, blob_fd, reterr);
}

static int watch_events(abox_command *command)
{
	struct epoll_event event = { .events = EPOLLIN };

	if (epoll_ctl(command->epoll_fd, EPOLL_CTL_ADD, command->event_fd, &event) < 0)
		return -errno;
	return streams_watch(&command->streams, command->epoll_fd);
}

static int check_options(
	const abox_sandbox *box, const struct abox_command_options *options, abox_error **reterr)
{
	if (!options->argv || !options->argv[0] || !options->argv[0][0])
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_COMMAND, "argv", "a program is required");
	for (size_t i = 0; options->env && options->env[i]; i++)
		if (options->env[i][0] == '=' || !strchr(options->env[i], '='))
			return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_COMMAND, "env",
				"entry %zu is not NAME=VALUE", i);
	if (options->cwd && options->cwd[0] != '/')
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_COMMAND, "cwd", "'%s' is not absolute",
			options->cwd);
	if (options->pty && options->stdin_mode != ABOX_STDIN_EMPTY &&
		options->stdin_mode != ABOX_STDIN_STREAM)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_COMMAND, "stdin_mode",
			"a terminal is written with abox_command_write()");
	if (box->mode == ABOX_OPEN_READ)
		return error_set(reterr, ABOX_E_STATE, ABOX_STAGE_COMMAND, box->id,
			"the box was opened for reading only");
	return 0;
}

static int start(abox_command *command, const struct abox_command_options *options, int program_fd,
	abox_error **reterr)
{
	abox_sandbox *box = command->box;
	struct stream_ends ends;
	int pair[2], r;

	r = streams_open(&command->streams, options, box->output_bytes, box->output_written, &ends, reterr);
	if (r == 0) {
		r = socket_pair(pair);
		if (r < 0)
			r = error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_COMMAND, "socketpair", -r,
				"cannot hear of its end");
	}
	if (r == 0) {
		struct exec_request request = { options, &ends, program_fd, pair[1] };

		command->event_fd = pair[0];
		r = send_exec(command, &request, reterr);
		fd_close(pair[1]);
	}
	stream_ends_close(&ends);
	return r;
}

/* The streams of a command that had been started before are with whoever started it. */
static void leave_streams(abox_command *command)
{
	streams_close(&command->streams);
	streams_init(&command->streams);
}

int command_start_program(abox_sandbox *box, const struct abox_command_options *options, int program_fd,
	abox_command **retcommand, abox_error **reterr)
{
	struct abox_command_options full = { .size = sizeof(full) };
	_cleanup_(command_unrefp) abox_command *command = NULL;
	int existing, r;

	if (!box || !options || !retcommand || options->size < sizeof(size_t))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_COMMAND, NULL,
			"box, options and retcommand are required");
	memcpy(&full, options, MIN(options->size, sizeof(full)));
	r = check_options(box, &full, reterr);
	if (r < 0)
		return r;
	r = command_new(box, &command);
	if (r < 0)
		return r;
	existing = start(command, &full, program_fd, reterr);
	if (existing < 0)
		return existing;
	if (existing)
		leave_streams(command);
	command->spooled[0] = full.pty || full.stdout_mode == ABOX_STREAM_SPOOL;
	command->spooled[1] = !full.pty && !full.stderr_to_stdout && full.stderr_mode == ABOX_STREAM_SPOOL;
	command->stdin_stream = full.pty || full.stdin_mode == ABOX_STDIN_STREAM;
	r = watch_events(command);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_COMMAND, "epoll", -r, "cannot watch the command");
	*retcommand = steal_ptr(command);
	return existing;
}

int abox_command_start(abox_sandbox *box, const struct abox_command_options *options,
	abox_command **retcommand, abox_error **reterr)
{
	return command_start_program(box, options, -EBADF, retcommand, reterr);
}

/* A command of a detached box that has ended: its result and spools lie beside the record. */
static int open_ended(abox_command *command, const char *ref, abox_error **reterr)
{
	_cleanup_(json_unrefp) struct json *json = NULL;
	_cleanup_(freep) char *text = NULL;
	struct json_bounds bounds = { .max_bytes = RESULT_MAX, .max_depth = 8, .stage = ABOX_STAGE_COMMAND };
	char name[32], *end;
	unsigned long id = strtoul(ref, &end, 10);
	size_t len;
	int r;

	snprintf(name, sizeof(name), "%u.json", (unsigned int)id);
	if (*end || id == 0 || id > UINT32_MAX ||
		file_read_text(command->box->box_fd, name, RESULT_MAX, &text, &len) < 0)
		return error_set(reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_COMMAND, ref,
			"the box has ended and left no such command");
	command->id = (uint32_t)id;
	r = json_parse(text, len, &bounds, &json, reterr);
	if (r == 0)
		r = result_new(command->box, command->id, &command->result);
	if (r == 0)
		r = result_read_json(command->result, json);
	command->finished = r == 0;
	return r < 0 ? error_set(reterr, r, ABOX_STAGE_COMMAND, name, "the stored result cannot be read") : 0;
}

int abox_command_open(abox_sandbox *box, const char *ref, abox_command **retcommand, abox_error **reterr)
{
	_cleanup_(command_unrefp) abox_command *command = NULL;
	struct pack_writer writer;
	struct pack_reader reader;
	int pair[2], r;

	if (!box || string_empty(ref) || !retcommand)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_COMMAND, NULL,
			"box, ref and retcommand are required");
	r = command_new(box, &command);
	if (r < 0)
		return r;
	if (box->client.fd < 0) {
		r = open_ended(command, ref, reterr);
		if (r == 0)
			*retcommand = steal_ptr(command);
		return r;
	}
	r = socket_pair(pair);
	if (r < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_COMMAND, "socketpair", -r,
			"cannot hear of its end");
	command->event_fd = pair[0];
	client_begin(&box->client, &writer, WIRE_OPEN_COMMAND);
	pack_string(&writer, ref);
	r = client_call(&box->client, &writer, &pair[1], 1, UINT64_MAX, &reader, reterr);
	fd_close(pair[1]);
	if (r == 0) {
		command->id = unpack_u32(&reader);
		command->stdin_stream = unpack_u32(&reader) == ABOX_STDIN_STREAM;
		for (int i = 0; i < 2; i++)
			command->spooled[i] = unpack_u32(&reader) == ABOX_STREAM_SPOOL;
		if (unpack_u8(&reader))
			command->stdin_stream = command->spooled[0] = true;
		r = reader.failed ? ABOX_E_PROTOCOL : 0;
	}
	client_end(&box->client, &writer);
	if (r < 0)
		return r;
	r = watch_events(command);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_COMMAND, "epoll", -r, "cannot watch the command");
	*retcommand = steal_ptr(command);
	return 0;
}

static int begin(abox_command *command, struct pack_writer *writer, uint32_t type, abox_error **reterr)
{
	if (!command)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_COMMAND, NULL, "a command is required");
	client_begin(&command->box->client, writer, type);
	pack_u32(writer, command->id);
	return 0;
}

int abox_command_signal(abox_command *command, int signal_number, abox_error **reterr)
{
	struct pack_writer writer;
	int r;

	if (signal_number < 1 || signal_number > 64)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_COMMAND, "signal",
			"there is no signal %d", signal_number);
	r = begin(command, &writer, WIRE_SIGNAL, reterr);
	if (r < 0)
		return r;
	pack_i32(&writer, signal_number);
	return client_simple(&command->box->client, &writer, reterr);
}

int abox_command_kill(abox_command *command, uint64_t grace_usec, abox_error **reterr)
{
	struct pack_writer writer;
	int r = begin(command, &writer, WIRE_KILL, reterr);

	if (r < 0)
		return r;
	pack_u64(&writer, grace_usec);
	return client_simple(&command->box->client, &writer, reterr);
}

int abox_command_resize(abox_command *command, uint32_t rows, uint32_t columns, abox_error **reterr)
{
	struct pack_writer writer;
	int r;

	if (rows == 0 || columns == 0 || rows > UINT16_MAX || columns > UINT16_MAX)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_COMMAND, "size",
			"%u x %u is no size of a terminal", rows, columns);
	r = begin(command, &writer, WIRE_RESIZE, reterr);
	if (r < 0)
		return r;
	pack_u32(&writer, rows);
	pack_u32(&writer, columns);
	return client_simple(&command->box->client, &writer, reterr);
}
