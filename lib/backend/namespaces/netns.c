/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The network namespace of the box. Making one takes the kernel as long as all the others together, and nothing
 * of the tree needs it: so a process beside the guest, in its memory and with its descriptors, makes it while
 * the guest builds, and hands it over.
 *
 * Security: the guest goes no further than netns_enter() before a program of the box or a socket of the cell is
 * there. It fails unless the helper has told its success, so a race for errno between the two can spoil no more
 * than the start.
 */
#include "backend/namespaces/namespaces.h"

#include <errno.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <agentbox/error.h>
#include <agentbox/sandbox.h>

#include "base/fd.h"
#include "guest/network.h"
#include "kernel/clone.h"

#ifndef SIOCGSKNS
#define SIOCGSKNS 0x894C
#endif

#define STACK_BYTES 16384

static struct {
	long pid;
	bool lo_up;
	int fd;
	struct fault fault;
} making = { .fd = -EBADF };

static int make(struct fault *fault)
{
	_cleanup_(fd_closep) int socket_fd = -EBADF;

	if (unshare(CLONE_NEWNET) < 0)
		return fault_set(fault, errno == EPERM ? ABOX_E_UNAVAILABLE : ABOX_E_SYSTEM, errno, "namespaces",
			"cannot make the network namespace of the box");
	if (making.lo_up && guest_loopback_up(fault) < 0)
		return fault->code;
	/* by a socket: no /proc is needed, and a non-dumpable process may not be looked at by another */
	socket_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	making.fd = socket_fd < 0 ? -1 : ioctl(socket_fd, SIOCGSKNS);
	if (making.fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "namespaces", "cannot hold the network namespace");
	return 0;
}

static int make_main(void *userdata)
{
	return make(userdata) < 0 ? 1 : 0;
}

int netns_begin(bool lo_up, struct fault *fault)
{
	static uint8_t stack[STACK_BYTES] __attribute__((aligned(16)));

	making.lo_up = lo_up;
	fault_init(&making.fault, fault->stage);
	/* no exit signal: nobody but netns_enter() waits for it */
	making.pid = clone_run(CLONE_VM | CLONE_FILES, stack, sizeof(stack), make_main, &making.fault);
	if (making.pid < 0)
		return fault_set(fault, ABOX_E_SYSTEM, (int)-making.pid, "namespaces",
			"cannot start who makes the network namespace");
	return 0;
}

int netns_enter(struct fault *fault)
{
	int status = -1, r;

	while (waitpid((pid_t)making.pid, &status, __WALL) < 0) {
		if (errno != EINTR)
			return fault_set(fault, ABOX_E_SYSTEM, errno, "namespaces", "cannot wait for the network namespace");
	}
	if (status != 0) {
		if (making.fault.code < 0)
			*fault = making.fault;
		else
			fault_set(fault, ABOX_E_SYSTEM, 0, "namespaces", "who made the network namespace was killed");
		return fault->code;
	}
	r = setns(making.fd, CLONE_NEWNET) < 0 ? -errno : 0;
	making.fd = fd_close(making.fd);
	return r < 0 ? fault_set(fault, ABOX_E_SYSTEM, -r, "namespaces", "cannot enter the network namespace") : 0;
}
