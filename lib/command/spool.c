/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Streams that the keeper holds: reading spooled output from a cursor, writing to a stream or terminal. Both
 * may have to wait for the other side, so they use a connection of their own; signals and kills go past them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "command/command.h"
#include "keeper/wire.h"

#define SLACK_USEC (5 * USEC_PER_SEC)	/* a keeper that is alive answers so soon after the time asked for */

static int open_connection(
	abox_command *command, struct client *client, bool *has, int mode, abox_error **reterr)
{
	uint64_t epoch;
	int r;

	if (*has)
		return 0;
	r = sandbox_connect(command->box, mode, client, &epoch, reterr);
	*has = r == 0;
	return r;
}

/* A box that has ended and was detached keeps its spools as files beside its record. */
static int read_file(abox_command *command, int stream, uint64_t cursor, void *buffer, size_t buffer_len,
	struct abox_output *output, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	char name[32];
	ssize_t n;
	off_t size;

	snprintf(name, sizeof(name), "%u.%s", command->id, stream == 1 ? "out" : "err");
	fd = openat(command->box->box_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return error_set_errno(
			reterr, ABOX_E_GONE, ABOX_STAGE_COMMAND, name, errno, "the output is gone");
	size = lseek(fd, 0, SEEK_END);
	n = size < 0 ? -errno : cursor >= (uint64_t)size ? 0 : fd_pread_all(fd, buffer, buffer_len, cursor);
	if (n < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_COMMAND, name, (int)-n, "cannot read the output");
	output->cursor = cursor;
	output->next_cursor = cursor + (uint64_t)n;
	output->total_bytes = (uint64_t)size;
	output->len = (size_t)n;
	output->gap = 0;
	output->end = output->next_cursor >= (uint64_t)size;
	return 1;
}

static int take_read(struct pack_reader *reader, void *buffer, size_t buffer_len, struct abox_output *output)
{
	const void *data;
	size_t len;

	output->cursor = unpack_u64(reader);
	output->next_cursor = unpack_u64(reader);
	output->total_bytes = unpack_u64(reader);
	output->gap = unpack_u8(reader);
	output->end = unpack_u8(reader);
	data = unpack_bytes(reader, &len);
	if (!unpack_done(reader) || len > buffer_len)
		return ABOX_E_PROTOCOL;
	memcpy(buffer, data, len);
	output->len = len;
	return len > 0 || output->end;
}

int abox_command_read(abox_command *command, int stream, uint64_t cursor, void *buffer, size_t buffer_len,
	struct abox_output *output, uint64_t timeout_usec, abox_error **reterr)
{
	struct abox_output full = { .size = sizeof(full) };
	struct pack_writer writer;
	struct pack_reader reader;
	size_t size;
	int r;

	if (!command || (stream != 1 && stream != 2) || !buffer || buffer_len == 0 || !output ||
		output->size < sizeof(size_t))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_COMMAND, NULL,
			"command, stream, buffer, output are required");
	if (command->box->client.fd < 0) {
		r = read_file(command, stream, cursor, buffer, buffer_len, &full, reterr);
	} else {
		if (!command->spooled[stream - 1])
			return error_set(reterr, ABOX_E_STATE, ABOX_STAGE_COMMAND, NULL,
				"stream %d is not spooled", stream);
		r = open_connection(command, &command->reader, &command->has_reader, ABOX_OPEN_READ, reterr);
		if (r < 0)
			return r;
		client_begin(&command->reader, &writer, WIRE_READ);
		pack_u32(&writer, command->id);
		pack_u32(&writer, (uint32_t)stream);
		pack_u64(&writer, cursor);
		pack_u32(&writer, (uint32_t)MIN(buffer_len, (size_t)WIRE_READ_MAX));
		pack_u64(&writer, timeout_usec);
		r = client_call(&command->reader, &writer, NULL, 0,
			clock_deadline(clock_deadline(clock_monotonic_usec(), timeout_usec), SLACK_USEC),
			&reader, reterr);
		if (r == 0)
			r = take_read(&reader, buffer, buffer_len, &full);
		client_end(&command->reader, &writer);
	}
	if (r < 0)
		return r;
	size = output->size;
	memcpy(output, &full, MIN(size, sizeof(full)));
	output->size = size;
	return r;
}

/* One request; *rettaken of len bytes. */
static int send_input(
	abox_command *command, bool end, const char *data, size_t len, size_t *rettaken, abox_error **reterr)
{
	struct pack_writer writer;
	struct pack_reader reader;
	int r;

	client_begin(&command->writer, &writer, WIRE_INPUT);
	pack_u32(&writer, command->id);
	pack_u8(&writer, end);
	pack_bytes(&writer, data, len);
	r = client_call(&command->writer, &writer, NULL, 0, UINT64_MAX, &reader, reterr);
	if (r == 0) {
		*rettaken = unpack_u32(&reader);
		if (!unpack_done(&reader) || *rettaken > len || (len > 0 && *rettaken == 0))
			r = error_set(reterr, ABOX_E_PROTOCOL, ABOX_STAGE_COMMAND, NULL,
				"the keeper took an impossible part");
	}
	client_end(&command->writer, &writer);
	return r;
}

static int open_input(abox_command *command, abox_error **reterr)
{
	if (!command)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_COMMAND, NULL, "a command is required");
	if (!command->stdin_stream)
		return error_set(reterr, ABOX_E_STATE, ABOX_STAGE_COMMAND, "stdin",
			"the command has no input that can be written");
	return open_connection(command, &command->writer, &command->has_writer, ABOX_OPEN_ATTACH, reterr);
}

int abox_command_write(abox_command *command, const void *data, size_t len, abox_error **reterr)
{
	const char *bytes = data;
	size_t taken = 0;
	int r = open_input(command, reterr);

	while (r == 0 && len > 0) {
		r = send_input(command, false, bytes, MIN(len, (size_t)WIRE_INLINE_MAX), &taken, reterr);
		if (r < 0)
			return r;
		bytes += taken;
		len -= taken;
	}
	return r;
}

int abox_command_close_stdin(abox_command *command, abox_error **reterr)
{
	size_t taken = 0;
	int r = open_input(command, reterr);

	return r < 0 ? r : send_input(command, true, "", 0, &taken, reterr);
}
