/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The recorder's start. A journal that cannot be opened refuses the start of the box: what was to be recorded
 * does not run unrecorded.
 */
#include "sandbox/record.h"

#include <errno.h>

#include "base/fd.h"
#include "base/helper.h"
#include "base/pack.h"
#include "base/socket.h"
#include "kernel/spawn.h"
#include "recorder/wire.h"

static int spawn_recorder(int fd, int keeper_fd, abox_error **reterr)
{
	static const char *const argv[] = { "agentbox-recorder", NULL };
	_cleanup_(fd_closep) int program_fd = -EBADF, pidfd = -EBADF;
	int fds[2] = { fd, keeper_fd }, r;
	pid_t pid;

	r = helper_open("recorder", &program_fd, reterr);
	if (r < 0)
		return r;
	return spawn_helper(&(struct spawn_request){ .program_fd = program_fd,
				    .argv = argv,
				    .fds = fds,
				    .n_fds = 2,
				    .stage = ABOX_STAGE_START },
		&pidfd, &pid, reterr);
}

static int read_answer(int fd, uint64_t deadline_usec, abox_error **reterr)
{
	uint8_t buffer[4096];
	struct pack_reader reader;
	struct fault fault;
	uint32_t type;
	ssize_t n;

	n = socket_recv_until(fd, buffer, sizeof(buffer), NULL, NULL, deadline_usec);
	if (n <= 0)
		return error_set_errno(reterr, ABOX_E_GONE, ABOX_STAGE_START, "journal",
			n < 0 ? (int)-n : EPIPE, "the recorder did not open the journal");
	reader = PACK_READER(buffer, (size_t)n);
	type = unpack_u32(&reader);
	unpack_u32(&reader);
	if (type == RECORDER_OK)
		return 0;
	fault_unpack(&fault, &reader);
	if (type != RECORDER_FAULT || reader.failed)
		return error_set(reterr, ABOX_E_PROTOCOL, ABOX_STAGE_START, "journal",
			"the recorder answered what it must not");
	return error_from_fault(reterr, &fault);
}

static int open_journal(
	int fd, const struct plan_view *view, const char *id, uint64_t deadline_usec, abox_error **reterr)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	int r;

	pack_u32(&writer, RECORDER_OPEN);
	pack_u32(&writer, 1);
	pack_u32(&writer, RECORDER_VERSION);
	pack_string(&writer, view->journal);
	pack_string(&writer, view->task);
	pack_string(&writer, id);
	if (writer.failed)
		return ABOX_E_MEMORY;
	r = socket_send_until(fd, writer.data, writer.len, NULL, 0, deadline_usec);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_GONE, ABOX_STAGE_START, "journal", -r, "cannot talk to the recorder");
	return read_answer(fd, deadline_usec, reterr);
}

int record_start(const struct plan_view *view, const char *id, uint64_t deadline_usec, int *retkeeper_fd,
	abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF, far_fd = -EBADF, keeper_fd = -EBADF, keeper_far_fd = -EBADF;
	int pair[2], r;

	*retkeeper_fd = -EBADF;
	if (!view->journal)
		return 0;
	r = socket_pair(pair);
	if (r == 0) {
		fd = pair[0];
		far_fd = pair[1];
		r = socket_pair(pair);
	}
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_START, "socketpair", -r, "cannot reach a recorder");
	keeper_fd = pair[0];
	keeper_far_fd = pair[1];
	r = spawn_recorder(far_fd, keeper_far_fd, reterr);
	if (r < 0)
		return r;
	far_fd = fd_close(far_fd);
	keeper_far_fd = fd_close(keeper_far_fd);
	r = open_journal(fd, view, id, deadline_usec, reterr);
	if (r < 0)
		return r;
	*retkeeper_fd = steal_fd(keeper_fd);
	return 0;
}
