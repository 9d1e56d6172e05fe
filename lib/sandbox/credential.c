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
#include "sandbox/peer.h"

static const struct peer minter = { .name = "minter",
	.reach = "a minter",
	.program = "agentbox-minter",
	.ok = MINTER_OK,
	.fault = MINTER_FAULT };

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

int credential_start(const struct plan_view *view, uint64_t deadline_usec, int *retfd, abox_error **reterr)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	_cleanup_(fd_closep) int fd = -EBADF, asking_fd = -EBADF, set_up_fd = -EBADF, pidfd = -EBADF;
	int r;

	if (!view->slots)
		return 0;
	r = pack_set_up(view, &set_up_fd);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_START, "memfd", -r, "cannot reach a minter");
	r = peer_start(&minter, view->minter_fd, &fd, &asking_fd, &pidfd, reterr);
	if (r < 0)
		return r;
	pack_u32(&writer, MINTER_OPEN);
	pack_u32(&writer, 1);
	pack_u32(&writer, MINTER_VERSION);
	if (writer.failed)
		return ABOX_E_MEMORY;
	r = socket_send_until(fd, writer.data, writer.len, &set_up_fd, 1, deadline_usec);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_GONE, ABOX_STAGE_START, "minter", -r, "it cannot be reached");
	r = peer_answer(&minter, fd, deadline_usec, reterr);
	if (r < 0)
		return r;
	*retfd = steal_fd(asking_fd);
	return 0;
}
