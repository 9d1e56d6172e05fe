/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Helpers beside a box: their sockets, their start, their first answer.
 */
#include "sandbox/peer.h"

#include <errno.h>

#include "base/fd.h"
#include "base/socket.h"
#include "kernel/spawn.h"

int peer_start(const struct peer *peer, int program_fd, int *retfd, int *retother_fd, int *retpidfd,
	abox_error **reterr)
{
	const char *const argv[] = { peer->program, NULL };
	_cleanup_(fd_closep) int fd = -EBADF, far_fd = -EBADF, other_fd = -EBADF, other_far_fd = -EBADF;
	int pair[2], r;
	pid_t pid;

	r = socket_pair(pair);
	if (r == 0) {
		fd = pair[0];
		far_fd = pair[1];
		r = socket_pair(pair);
	}
	if (r < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_START, "socketpair", -r, "cannot reach %s",
			peer->reach);
	other_fd = pair[0];
	other_far_fd = pair[1];
	r = spawn_helper(&(struct spawn_request){ .program_fd = program_fd,
				 .argv = argv,
				 .fds = (const int[]){ far_fd, other_far_fd },
				 .n_fds = 2,
				 .stage = ABOX_STAGE_START },
		retpidfd, &pid, reterr);
	if (r < 0)
		return r;
	*retfd = steal_fd(fd);
	*retother_fd = steal_fd(other_fd);
	return 0;
}

int peer_answer(const struct peer *peer, int fd, uint64_t deadline_usec, abox_error **reterr)
{
	uint8_t buffer[4096];
	struct pack_reader reader;
	struct fault fault;
	uint32_t type;
	ssize_t n;

	n = socket_recv_until(fd, buffer, sizeof(buffer), NULL, NULL, deadline_usec);
	if (n <= 0)
		return error_set_errno(reterr, ABOX_E_GONE, ABOX_STAGE_START, peer->name, n < 0 ? (int)-n : EPIPE,
			"it did not start");
	reader = PACK_READER(buffer, (size_t)n);
	type = unpack_u32(&reader);
	unpack_u32(&reader);
	if (type == peer->ok)
		return 0;
	fault_unpack(&fault, &reader);
	if (type != peer->fault || reader.failed || fault.code >= 0)
		return error_set(
			reterr, ABOX_E_PROTOCOL, ABOX_STAGE_START, peer->name, "it answered what it must not");
	return error_from_fault(reterr, &fault);
}
