/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The recorder of a box: the one process between a keeper, which links no library, and a journal. It writes
 * what the keeper tells, watches for the cancellation of the task, and ends with the keeper; when the keeper
 * ends without having told the end of the box, the recorder says so in the journal.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <agentbox/journal.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/pack.h"
#include "base/socket.h"
#include "recorder/wire.h"

#define LIBRARY_FD 3
#define KEEPER_FD 4

struct recorder {
	abox_journal *journal;
	abox_journal_reader *reader;	/* follows the journal for the cancellation; NULL without a task */
	char *task, *box;
	bool ended;			/* the keeper told the end of the box */
	bool canceled;			/* and was told of the cancellation */
	uint8_t buffer[RECORDER_PACKET_MAX];
};

static int answer(int fd, uint32_t serial, uint64_t seq, int code, const abox_error *error)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct fault fault;

	pack_u32(&writer, code < 0 ? RECORDER_FAULT : RECORDER_OK);
	pack_u32(&writer, serial);
	if (code < 0) {
		fault_init(&fault, ABOX_STAGE_JOURNAL);
		fault_set(&fault, code, 0, abox_error_get_place(error), "%s",
			error ? abox_error_get_message(error) : abox_code_name(code));
		fault.sys_errno = abox_error_get_errno(error);
		if (abox_error_get_remedy(error))
			fault_remedy(&fault, "%s", abox_error_get_remedy(error));
		fault_pack(&fault, &writer);
	} else {
		pack_u64(&writer, seq);
	}
	return writer.failed ? -ENOMEM : socket_send(fd, writer.data, writer.len, NULL, 0);
}

/* From the newest record on: a task that was canceled before is refused by the library that starts the box.
 */
static int follow(struct recorder *recorder, abox_error **reterr)
{
	char hash[ABOX_DIGEST_TEXT_BYTES];
	uint64_t seq;
	int r;

	r = abox_journal_get_position(recorder->journal, &seq, hash, reterr);
	if (r < 0)
		return r;
	return abox_journal_reader_new(recorder->journal, seq + 1, 0, &recorder->reader, reterr);
}

static int open_journal(struct recorder *recorder, struct pack_reader *reader, abox_error **reterr)
{
	struct abox_journal_options options = ABOX_JOURNAL_OPTIONS_INIT;
	uint32_t version = unpack_u32(reader);
	const char *path = unpack_string(reader), *task = unpack_string(reader), *box = unpack_string(reader);
	int r;

	if (!unpack_done(reader) || version != RECORDER_VERSION)
		return error_set(reterr, ABOX_E_PROTOCOL, ABOX_STAGE_JOURNAL, NULL,
			"library and recorder do not fit together");
	recorder->task = strdup(task);
	recorder->box = strdup(box);
	if (!recorder->task || !recorder->box)
		return ABOX_E_MEMORY;
	options.mode = ABOX_JOURNAL_APPEND;
	options.flags = ABOX_JOURNAL_CREATE;
	r = abox_journal_open(path, &options, &recorder->journal, reterr);
	if (r < 0 || !task[0])
		return r;
	return follow(recorder, reterr);
}

static int serve_library(struct recorder *recorder)
{
	_cleanup_(error_freep) abox_error *error = NULL;
	struct pack_reader reader;
	uint32_t type, serial;
	ssize_t n;
	int r;

	n = socket_recv(LIBRARY_FD, recorder->buffer, sizeof(recorder->buffer), NULL, NULL);
	if (n <= 0)
		return -EPIPE;
	reader = PACK_READER(recorder->buffer, (size_t)n);
	type = unpack_u32(&reader);
	serial = unpack_u32(&reader);
	if (type != RECORDER_OPEN)
		return -EPROTO;
	r = open_journal(recorder, &reader, &error);
	answer(LIBRARY_FD, serial, 0, r, error);
	fd_close(LIBRARY_FD);
	return r;
}

static int append(struct recorder *recorder, const char *type, const char *body, uint32_t durability,
	uint64_t *retseq, abox_error **reterr)
{
	struct abox_journal_entry entry = ABOX_JOURNAL_ENTRY_INIT;

	entry.type = type;
	entry.task = recorder->task[0] ? recorder->task : NULL;
	entry.box = recorder->box;
	entry.body = body;
	entry.durability = durability;
	return abox_journal_append(recorder->journal, &entry, retseq, reterr);
}

/*
 * A record that cannot be written ends the recorder, whether or not an answer was wanted: a box that was to
 * be recorded does not go on unrecorded (the keeper stops it when the recorder is gone).
 */
static int serve_keeper(struct recorder *recorder)
{
	_cleanup_(error_freep) abox_error *error = NULL;
	uint32_t type, serial, durability;
	const char *record, *body;
	struct pack_reader reader;
	uint64_t seq = 0;
	ssize_t n;
	int r;

	n = socket_recv(KEEPER_FD, recorder->buffer, sizeof(recorder->buffer), NULL, NULL);
	if (n <= 0)
		return -EPIPE;
	reader = PACK_READER(recorder->buffer, (size_t)n);
	type = unpack_u32(&reader);
	serial = unpack_u32(&reader);
	durability = unpack_u32(&reader);
	record = unpack_string(&reader);
	body = unpack_string(&reader);
	if (type != RECORDER_APPEND || !unpack_done(&reader))
		return -EPROTO;
	r = append(recorder, record, body, durability, &seq, &error);
	if (r == 0 && strcmp(record, "box.stop") == 0)
		recorder->ended = true;
	if (serial)
		answer(KEEPER_FD, serial, seq, r, error);
	return r;
}

static void tell_canceled(struct recorder *recorder)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;

	pack_u32(&writer, RECORDER_CANCELED);
	pack_u32(&writer, 0);
	if (!writer.failed)
		socket_send(KEEPER_FD, writer.data, writer.len, NULL, 0);
	recorder->canceled = true;
}

static int look_for_cancel(struct recorder *recorder)
{
	struct abox_journal_record record = ABOX_JOURNAL_RECORD_INIT;
	int r;

	while ((r = abox_journal_reader_next(recorder->reader, &record, NULL)) == 1)
		if (record.task && strcmp(record.task, recorder->task) == 0 &&
			strcmp(record.type, "task.cancel") == 0 && !recorder->canceled)
			tell_canceled(recorder);
	return r;
}

static int loop(struct recorder *recorder)
{
	struct pollfd fds[2] = { { .fd = KEEPER_FD, .events = POLLIN }, { .fd = -EBADF, .events = POLLIN } };
	int r;

	if (recorder->reader)
		fds[1].fd = abox_journal_reader_get_fd(recorder->reader, NULL);
	for (;;) {
		if (poll(fds, ELEMENTSOF(fds), -1) < 0 && errno != EINTR)
			return -errno;
		if (fds[0].revents) {
			r = serve_keeper(recorder);
			if (r < 0)
				return r;
		}
		if (fds[1].revents && look_for_cancel(recorder) < 0)
			return -EIO;
	}
}

int main(void)
{
	static struct recorder recorder;
	uint64_t seq;

	prctl(PR_SET_DUMPABLE, 0);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_NAME, "agentbox-record");
	if (serve_library(&recorder) < 0)
		return 1;
	loop(&recorder);
	if (!recorder.ended)
		append(&recorder, "box.stop",
			"{\"outcome\":\"lost\",\"evidence\":\"the keeper ended without a word\"}",
			ABOX_DURABILITY_FULL, &seq, NULL);
	abox_journal_reader_unref(recorder.reader);
	abox_journal_unref(recorder.journal);
	return recorder.ended ? 0 : 1;
}
