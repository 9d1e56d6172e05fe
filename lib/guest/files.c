/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One process for each way, so that neither waits for the other: whatever the kernel asks, its answers are always taken.
 *
 * Security: what is carried is looked at only as far as its length. The kernel checks the answers, the server on the host
 * the requests, which the box may have made up.
 */
#include "guest/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "base/fd.h"
#include "kernel/compat.h"

#define OPCODE_INTERRUPT 36	/* has no answer; the server finishes what it has begun anyway */

static uint8_t buffer[FILES_REQUEST_MAX];

/* Without its files the machine is of no use. */
_noreturn_ static void files_die(const char *what)
{
	int fd = open("/dev/console", O_WRONLY | O_NOCTTY | O_CLOEXEC);

	dprintf(fd, "agentbox-guest: files: %s: %s\n", what, strerror(errno));
	reboot(RB_AUTOBOOT);
	_exit(1);
}

_noreturn_ static void carry_requests(int fuse_fd, int port_fd)
{
	for (;;) {
		uint32_t opcode;
		ssize_t n = read(fuse_fd, buffer, sizeof(buffer));

		if (n < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
			continue;	/* ENOENT: it was taken back meanwhile */
		if (n < FILES_REQUEST_HEAD)
			files_die("requests");
		memcpy(&opcode, buffer + 4, sizeof(opcode));
		if (opcode != OPCODE_INTERRUPT && fd_write_all(port_fd, buffer, (size_t)n) < 0)
			files_die("port");
	}
}

_noreturn_ static void carry_answers(int fuse_fd, int port_fd)
{
	for (;;) {
		uint32_t len;

		if (fd_read_all(port_fd, buffer, FILES_ANSWER_HEAD) != FILES_ANSWER_HEAD)
			files_die("port");
		memcpy(&len, buffer, sizeof(len));
		if (len < FILES_ANSWER_HEAD || len > sizeof(buffer) ||
			fd_read_all(port_fd, buffer + FILES_ANSWER_HEAD, len - FILES_ANSWER_HEAD) != (ssize_t)(len - FILES_ANSWER_HEAD))
			files_die("answer");
		if (write(fuse_fd, buffer, len) < 0 && errno != ENOENT && errno != EINTR)	/* ENOENT: nobody waits for it any more */
			files_die("answers");
	}
}

static int carry(int fuse_fd, int port_fd, void (*way)(int fuse_fd, int port_fd), struct fault *fault)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_NAME, "agentbox-files");
		if (fuse_fd > 2 && port_fd > 2)
			way(fuse_fd, port_fd);
		_exit(1);
	}
	return pid < 0 ? fault_set(fault, ABOX_E_SYSTEM, errno, "files", "cannot start a process") : 0;
}

int guest_files_mount(int port_fd, const char *target, uint64_t flags, struct fault *fault)
{
	_cleanup_(fd_closep) int fuse_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char options[128];
	int r;

	if (fuse_fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "/dev/fuse", "cannot be opened");
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions", fuse_fd);
	if (mount("files", target, "fuse", flags, options) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, target, "cannot mount the files of the box");
	r = carry(fuse_fd, port_fd, carry_requests, fault);
	return r < 0 ? r : carry(fuse_fd, port_fd, carry_answers, fault);
}
