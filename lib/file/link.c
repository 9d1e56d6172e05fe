/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The library's end of the connection to a file server. Promises that every call comes back: with the answer, or with an
 * error when the box was paused or has ended, when nothing is heard for a minute, or when what is heard is no answer.
 *
 * Security: the server stands inside the wall. Whatever it says is a message of bounded size whose fields are checked;
 * after the first that is wrong nothing more is read from it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "file/files.h"
#include "keeper/wire.h"
#include "sandbox/sandbox.h"

#define LOOK_USEC (250 * USEC_PER_MSEC)	/* of silence, then the box is looked at */
#define SILENCE_USEC (60 * USEC_PER_SEC)

int files_new(int fd_taken, abox_files **ret, abox_error **reterr)
{
	abox_files *files = calloc(1, sizeof(*files));

	(void)reterr;
	if (files)
		files->stream = calloc(1, sizeof(*files->stream));
	if (!files || !files->stream) {
		free(files);
		fd_close(fd_taken);
		return ABOX_E_MEMORY;
	}
	atomic_init(&files->n_refs, 1);
	files->fd = files->stream->fd = fd_taken;
	files->pidfd = -EBADF;
	*ret = files;
	return 0;
}

static int broken(abox_files *files, int code)
{
	files->broken = true;
	return code;
}

int files_protocol(abox_files *files, abox_error **reterr)
{
	return broken(files,
		error_set(reterr, ABOX_E_PROTOCOL, FILE_STAGE, NULL, "the file server answered what it must not"));
}

static int gone(abox_files *files, abox_error **reterr)
{
	return broken(files,
		error_set(reterr, ABOX_E_GONE, FILE_STAGE, NULL,
			files->box ? "the file server of the box has ended, or the box with it"
				   : "the file server has ended"));
}

static int transport_error(abox_files *files, int r, abox_error **reterr)
{
	if (r == -EPIPE || r == -ECONNRESET || r == -ENOTCONN)
		return gone(files, reterr);
	if (r == -EMSGSIZE)
		return files_protocol(files, reterr);
	return broken(files,
		error_set_errno(reterr, ABOX_E_SYSTEM, FILE_STAGE, NULL, -r, "cannot talk to the file server"));
}

/* Nothing was heard for a while: is there a reason? */
static int look_at_box(abox_files *files, abox_error **reterr)
{
	struct client client;
	struct pack_writer writer;
	struct pack_reader reader;
	uint64_t epoch;
	uint32_t state = 0;
	int r;

	if (!files->box)
		return 0;
	r = sandbox_connect(files->box, ABOX_OPEN_READ, &client, &epoch, NULL);
	if (r < 0)
		return gone(files, reterr);
	client_begin(&client, &writer, WIRE_INFO);
	r = client_call(&client, &writer, NULL, 0, clock_monotonic_usec() + SILENCE_USEC, &reader, NULL);
	if (r == 0)
		state = unpack_u32(&reader);
	client_end(&client, &writer);
	client_clear(&client);
	if (r < 0)
		return gone(files, reterr);
	if (state == ABOX_SANDBOX_PAUSED)
		return broken(files, error_set(reterr, ABOX_E_STATE, FILE_STAGE, NULL, "the box is paused"));
	return 0;
}

/* One message: its length, or an error. */
static int take_message(abox_files *files, uint64_t *silent_until, struct pack_reader *reader, abox_error **reterr)
{
	for (;;) {
		uint64_t now = clock_monotonic_usec();
		const uint8_t *message = NULL;
		ssize_t n;
		int r;

		n = file_stream_recv(files->stream, MIN(now + LOOK_USEC, *silent_until), &message);
		if (n == 0)
			return gone(files, reterr);
		if (n > 0) {
			*reader = PACK_READER(message, (size_t)n);
			return 0;
		}
		if (n != -ETIMEDOUT)
			return transport_error(files, (int)n, reterr);
		r = look_at_box(files, reterr);
		if (r < 0)
			return r;
		if (clock_monotonic_usec() >= *silent_until)
			return broken(files,
				error_set(reterr, ABOX_E_TIMEOUT, FILE_STAGE, NULL,
					"the file server has not answered for a minute"));
	}
}

static int take_fault(abox_files *files, struct pack_reader *reader, abox_error **reterr)
{
	struct fault fault;

	fault_unpack(&fault, reader);
	if (reader->failed || fault.code >= 0 || fault.code < ABOX_E_LEFT_BEHIND)
		return files_protocol(files, reterr);
	return error_from_fault(reterr, &fault);
}

static void ask_to_cancel(abox_files *files)
{
	uint8_t buffer[16];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));

	pack_u32(&writer, FILE_CANCEL);
	pack_u32(&writer, files->serial);
	file_stream_send(files->fd, writer.data, writer.len, clock_monotonic_usec() + LOOK_USEC);
}

static int await(abox_files *files, uint32_t serial, uint32_t wanted, struct progress *ticking,
	struct pack_reader *reader, abox_error **reterr)
{
	uint64_t silent_until = clock_monotonic_usec() + SILENCE_USEC;
	bool canceled = false;

	for (;;) {
		uint32_t type, got;
		int r = take_message(files, &silent_until, reader, reterr);

		if (r < 0)
			return r;
		type = unpack_u32(reader);
		got = unpack_u32(reader);
		if (reader->failed || got != serial)
			return files_protocol(files, reterr);
		if (type == wanted)
			return 0;
		if (type == FILE_FAULT)
			return take_fault(files, reader, reterr);
		if (type != FILE_PROGRESS || !ticking)
			return files_protocol(files, reterr);
		silent_until = clock_monotonic_usec() + SILENCE_USEC;
		if (!canceled && !progress_tick(ticking, true)) {
			canceled = true;
			ask_to_cancel(files);
		}
	}
}

int files_await_ready(abox_files *files, abox_error **reterr)
{
	struct pack_reader reader;
	uint32_t version;
	int r;

	r = await(files, 0, FILE_READY, NULL, &reader, reterr);
	if (r < 0)
		return r;
	version = unpack_u32(&reader);
	if (!unpack_done(&reader) || version != FILE_WIRE_VERSION)
		return files_protocol(files, reterr);
	return 0;
}

void files_begin(abox_files *files, struct pack_writer *writer, uint32_t type)
{
	*writer = PACK_WRITER_INIT;
	pack_u32(writer, type);
	pack_u32(writer, ++files->serial);
}

int files_call(abox_files *files, struct pack_writer *writer, struct progress *ticking, struct pack_reader *retreader,
	abox_error **reterr)
{
	int r = 0;

	if (writer->failed)
		r = ABOX_E_MEMORY;
	else if (files->fd < 0 || files->broken)
		r = error_set(reterr, ABOX_E_STATE, FILE_STAGE, NULL,
			files->fd < 0 ? "the files are closed" : "the files are of no more use after an earlier failure");
	else if (writer->len > FILE_PACKET_MAX)
		r = error_set(reterr, ABOX_E_INVALID, FILE_STAGE, NULL, "the path is too long");
	if (r == 0) {
		r = file_stream_send(
			files->fd, writer->data, writer->len, clock_monotonic_usec() + SILENCE_USEC);
		if (r < 0)
			r = transport_error(files, r, reterr);
	}
	pack_writer_clear(writer);
	return r < 0 ? r : await(files, files->serial, FILE_OK, ticking, retreader, reterr);
}

int files_call_plain(abox_files *files, struct pack_writer *writer, abox_error **reterr)
{
	struct pack_reader reader;
	int r = files_call(files, writer, NULL, &reader, reterr);

	return r == 0 && !unpack_done(&reader) ? files_protocol(files, reterr) : r;
}

int files_call_entry(abox_files *files, struct pack_writer *writer, uint32_t *retnumber, struct file_entry *ret,
	abox_error **reterr)
{
	struct pack_reader reader;
	int r = files_call(files, writer, NULL, &reader, reterr);

	if (r < 0)
		return r;
	if (retnumber)
		*retnumber = unpack_u32(&reader);
	file_entry_unpack(ret, &reader);
	return unpack_done(&reader) ? 0 : files_protocol(files, reterr);
}

void files_close_number(abox_files *files, uint32_t number)
{
	struct pack_writer writer;

	if (files->broken || files->fd < 0)
		return;
	files_begin(files, &writer, FILE_CLOSE);
	pack_u32(&writer, number);
	files_call_plain(files, &writer, NULL);
}
