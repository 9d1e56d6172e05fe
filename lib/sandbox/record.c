/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The recorder's start, and its help when everything of a box was killed. A journal that cannot be opened refuses the
 * start of the box: what was to be recorded does not run unrecorded.
 */
#include "sandbox/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/helper.h"
#include "base/memfd.h"
#include "base/pack.h"
#include "base/socket.h"
#include "kernel/spawn.h"
#include "recorder/wire.h"

#define RECOVER_USEC (600 * USEC_PER_SEC)

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

static int read_answer(int fd, uint64_t deadline_usec, uint8_t *buffer, size_t size, struct pack_reader *ret,
	abox_error **reterr)
{
	struct fault fault;
	uint32_t type;
	ssize_t n;

	n = socket_recv_until(fd, buffer, size, NULL, NULL, deadline_usec);
	if (n <= 0)
		return error_set_errno(reterr, ABOX_E_GONE, ABOX_STAGE_START, "recorder",
			n < 0 ? (int)-n : EPIPE, "the recorder does not answer");
	*ret = PACK_READER(buffer, (size_t)n);
	type = unpack_u32(ret);
	unpack_u32(ret);
	if (type == RECORDER_OK)
		return 0;
	fault_unpack(&fault, ret);
	if (type != RECORDER_FAULT || ret->failed)
		return error_set(reterr, ABOX_E_PROTOCOL, ABOX_STAGE_START, "recorder",
			"the recorder answered what it must not");
	return error_from_fault(reterr, &fault);
}

static void begin(struct pack_writer *writer, uint32_t type)
{
	*writer = PACK_WRITER_INIT;
	pack_u32(writer, type);
	pack_u32(writer, 1);
	pack_u32(writer, RECORDER_VERSION);
}

/* Where the store is, which the recorder is to find at the place at which we would. */
static void pack_environment(struct pack_writer *writer)
{
	static const char *const names[] = { "ABOX_HOME", "XDG_STATE_HOME", "HOME" };
	uint32_t n = 0;

	for (size_t i = 0; i < ELEMENTSOF(names); i++)
		n += secure_getenv(names[i]) != NULL;
	pack_u32(writer, n);
	for (size_t i = 0; i < ELEMENTSOF(names); i++) {
		const char *value = secure_getenv(names[i]);
		char *variable = NULL;

		if (!value)
			continue;
		if (asprintf(&variable, "%s=%s", names[i], value) < 0) {
			writer->failed = true;
			return;
		}
		pack_string(writer, variable);
		free(variable);
	}
}

static int send_request(int fd, const struct pack_writer *writer, const int *fds, size_t n_fds,
	uint64_t deadline_usec, abox_error **reterr)
{
	int r;

	if (writer->failed)
		return ABOX_E_MEMORY;
	r = socket_send_until(fd, writer->data, writer->len, fds, n_fds, deadline_usec);
	return r < 0 ? error_set_errno(reterr, ABOX_E_GONE, ABOX_STAGE_START, "recorder", -r,
			       "cannot talk to the recorder")
		     : 0;
}

static int open_recorder(int fd, const struct plan_view *view, const char *plan_digest, const char *id,
	uint64_t deadline_usec, abox_error **reterr)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct pack_reader reader;
	uint8_t buffer[4096];
	int r;

	begin(&writer, RECORDER_OPEN);
	pack_string(&writer, view->journal);
	pack_string(&writer, view->task);
	pack_string(&writer, id);
	pack_string(&writer, plan_digest);
	pack_environment(&writer);
	pack_u8(&writer, view->effects);
	r = send_request(fd, &writer, &view->workspace_fd, view->workspace_fd >= 0, deadline_usec, reterr);
	return r < 0 ? r : read_answer(fd, deadline_usec, buffer, sizeof(buffer), &reader, reterr);
}

int record_start(const struct plan_view *view, const char *plan_digest, const char *id, uint64_t deadline_usec,
	int *retkeeper_fd, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF, far_fd = -EBADF, keeper_fd = -EBADF, keeper_far_fd = -EBADF;
	int pair[2], r;

	*retkeeper_fd = -EBADF;
	if (!view->journal && view->workspace_fd < 0)
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
	r = open_recorder(fd, view, plan_digest, id, deadline_usec, reterr);
	if (r < 0)
		return r;
	*retkeeper_fd = steal_fd(keeper_fd);
	return 0;
}

int record_recover(const char *id, const char *workspace, uint32_t end, const char *plan_digest, const char *order,
	char **retleft, abox_error **reterr)
{
	uint64_t deadline = clock_deadline(clock_monotonic_usec(), RECOVER_USEC);
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	_cleanup_(fd_closep) int fd = -EBADF, far_fd = -EBADF, null_fd = -EBADF;
	_cleanup_(freep) uint8_t *buffer = malloc(RECORDER_PACKET_MAX);
	static const char *const no_secrets[] = { NULL };
	_cleanup_(pack_writer_clearp) struct pack_writer blob = PACK_WRITER_INIT;
	_cleanup_(fd_closep) int order_fd = -EBADF;
	struct pack_reader reader;
	const char *left;
	int pair[2], r;

	pack_string(&blob, order);
	pack_strings(&blob, no_secrets);
	if (!buffer || blob.failed)
		return ABOX_E_MEMORY;
	r = memfd_new_sealed("agentbox-workspace", blob.data, blob.len, 0400, &order_fd);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_STOP, "memfd", -r, "cannot tell the recorder");
	r = socket_pair(pair);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_STOP, "socketpair", -r, "cannot reach a recorder");
	fd = pair[0];
	far_fd = pair[1];
	null_fd = fcntl(far_fd, F_DUPFD_CLOEXEC, 3);	/* in the place of a keeper */
	if (null_fd < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_STOP, "socketpair", errno, "cannot reach a recorder");
	r = spawn_recorder(far_fd, null_fd, reterr);
	if (r < 0)
		return r;
	far_fd = fd_close(far_fd);
	null_fd = fd_close(null_fd);
	begin(&writer, RECORDER_RECOVER);
	pack_u32(&writer, end);
	pack_string(&writer, id);
	pack_string(&writer, workspace);
	pack_string(&writer, plan_digest);
	pack_environment(&writer);
	r = send_request(fd, &writer, &order_fd, 1, deadline, reterr);
	if (r == 0)
		r = read_answer(fd, deadline, buffer, RECORDER_PACKET_MAX, &reader, reterr);
	if (r < 0)
		return r;
	left = unpack_string(&reader);
	unpack_string(&reader);
	if (!unpack_done(&reader))
		return ABOX_E_PROTOCOL;
	*retleft = left[0] ? strdup(left) : NULL;
	return left[0] && !*retleft ? ABOX_E_MEMORY : 0;
}
