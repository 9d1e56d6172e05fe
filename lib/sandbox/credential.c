/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The minter's start. It gets the slots of the plan and the environment of the harness, whose programs and
 * variables it is to use, in a memory file that nobody else has; what it mints goes to egress and never comes
 * back here.
 */
#include "sandbox/credential.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memfd.h"
#include "base/pack.h"
#include "base/socket.h"
#include "credential/wire.h"
#include "kernel/spawn.h"

static int pack_set_up(const struct plan_view *view, int *retfd)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT, whole = PACK_WRITER_INIT;
	uint8_t *joined;
	int r;

	pack_strings(&writer, (const char *const *)environ);
	if (writer.failed)
		return -ENOMEM;
	joined = malloc(view->slots_len + writer.len);
	if (!joined)
		return -ENOMEM;
	memcpy(joined, view->slots, view->slots_len);
	memcpy(joined + view->slots_len, writer.data, writer.len);
	whole.data = joined;
	whole.len = view->slots_len + writer.len;
	r = memfd_new_sealed("agentbox-slots", whole.data, whole.len, 0400, retfd);
	explicit_bzero(writer.data, writer.len);
	explicit_bzero(joined, whole.len);
	return r;
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
		return error_set_errno(reterr, ABOX_E_GONE, ABOX_STAGE_START, "minter",
			n < 0 ? (int)-n : EPIPE, "it did not start");
	reader = PACK_READER(buffer, (size_t)n);
	type = unpack_u32(&reader);
	unpack_u32(&reader);
	if (type == MINTER_OK)
		return 0;
	fault_unpack(&fault, &reader);
	if (type != MINTER_FAULT || reader.failed || fault.code >= 0)
		return error_set(
			reterr, ABOX_E_PROTOCOL, ABOX_STAGE_START, "minter", "it answered what it must not");
	return error_from_fault(reterr, &fault);
}

int credential_start(const struct plan_view *view, uint64_t deadline_usec, int *retfd, abox_error **reterr)
{
	static const char *const argv[] = { "agentbox-minter", NULL };
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	_cleanup_(fd_closep) int near_fd = -EBADF, far_fd = -EBADF, asking_fd = -EBADF, asked_fd = -EBADF;
	_cleanup_(fd_closep) int set_up_fd = -EBADF, pidfd = -EBADF;
	int pair[2], fds[2], r;
	pid_t pid;

	if (!view->slots)
		return 0;
	r = socket_pair(pair);
	if (r == 0) {
		near_fd = pair[0];
		far_fd = pair[1];
		r = socket_pair(pair);
	}
	if (r == 0) {
		asking_fd = pair[0];
		asked_fd = pair[1];
		r = pack_set_up(view, &set_up_fd);
	}
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_START, "socketpair", -r, "cannot reach a minter");
	fds[0] = far_fd;
	fds[1] = asked_fd;
	r = spawn_helper(&(struct spawn_request){ .program_fd = view->minter_fd,
				 .argv = argv,
				 .fds = fds,
				 .n_fds = 2,
				 .stage = ABOX_STAGE_START },
		&pidfd, &pid, reterr);
	if (r < 0)
		return r;
	far_fd = fd_close(far_fd);
	asked_fd = fd_close(asked_fd);
	pack_u32(&writer, MINTER_OPEN);
	pack_u32(&writer, 1);
	pack_u32(&writer, MINTER_VERSION);
	if (writer.failed)
		return ABOX_E_MEMORY;
	r = socket_send_until(near_fd, writer.data, writer.len, &set_up_fd, 1, deadline_usec);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_GONE, ABOX_STAGE_START, "minter", -r, "it cannot be reached");
	r = read_answer(near_fd, deadline_usec, reterr);
	if (r < 0)
		return r;
	*retfd = steal_fd(asking_fd);
	return 0;
}
