/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Messages with descriptors. What is promised: a message comes whole or as an error, and no descriptor that
 * came with a message stays open unknown to the caller. What a message means is left to the caller.
 */
#include "base/socket.h"

#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

#define MAX_NAME 80

int socket_pair(int ret[2])
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret) < 0 ? -errno : 0;
}

/* sun_path has 108 bytes, a state directory may be deeper: the name is reached through the descriptor. */
static int address_at(int dir_fd, const char *name, struct sockaddr_un *ret)
{
	size_t len = strlen(name);

	if (len > MAX_NAME)
		return -ENAMETOOLONG;
	if (len == 0 || strchr(name, '/'))
		return -EINVAL;
	memset(ret, 0, sizeof(*ret));
	ret->sun_family = AF_UNIX;
	snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/%s", dir_fd, name);
	return 0;
}

int socket_listen_at(int dir_fd, const char *name, int backlog, int *retfd)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	struct sockaddr_un address;
	int r;

	r = address_at(dir_fd, name, &address);
	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	/* Security: bind() gives the name the mode of the socket's own inode, less the umask; so the name is
	 * private from birth, with no moment in between. */
	if (fchmod(fd, 0600) < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return errno == EADDRINUSE ? -EEXIST : -errno;
	if (listen(fd, backlog) < 0) {
		r = -errno;
		unlinkat(dir_fd, name, 0);
		return r;
	}
	*retfd = steal_fd(fd);
	return 0;
}

int socket_connect_at(int dir_fd, const char *name, int *retfd)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	struct sockaddr_un address;
	int r;

	r = address_at(dir_fd, name, &address);
	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	do
		r = connect(fd, (struct sockaddr *)&address, sizeof(address));
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return -errno;
	*retfd = steal_fd(fd);
	return 0;
}

static int send_flags(int fd, const void *data, size_t len, const int *fds, size_t n_fds, int flags)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int) * SOCKET_MAX_FDS)];
	} control;
	struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = len };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (len == 0 || n_fds > SOCKET_MAX_FDS)
		return -EINVAL;
	if (n_fds > 0) {
		memset(&control, 0, sizeof(control));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(&control.header), fds, sizeof(int) * n_fds);
	}
	do
		n = sendmsg(fd, &message, MSG_NOSIGNAL | flags);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return (size_t)n == len ? 0 : -EIO;
}

int socket_send(int fd, const void *data, size_t len, const int *fds, size_t n_fds)
{
	return send_flags(fd, data, len, fds, n_fds, 0);
}

/* 0 when there may be something, -ETIMEDOUT, -errno. */
static int wait_for(int fd, short events, uint64_t deadline_usec)
{
	struct pollfd entry = { .fd = fd, .events = events };
	int n;

	do
		n = poll(&entry, 1, clock_poll_msec(clock_monotonic_usec(), deadline_usec));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (n == 0 && clock_monotonic_usec() >= deadline_usec)
		return -ETIMEDOUT;
	return 0;
}

int socket_send_until(
	int fd, const void *data, size_t len, const int *fds, size_t n_fds, uint64_t deadline_usec)
{
	for (;;) {
		int r = send_flags(fd, data, len, fds, n_fds, MSG_DONTWAIT);

		if (r != -EAGAIN)
			return r;
		r = wait_for(fd, POLLOUT, deadline_usec);
		if (r < 0)
			return r;
	}
}

/* Takes the descriptors out of the control data: how many; all are the caller's from here on. */
static size_t take_fds(struct msghdr *message, int *fds)
{
	size_t n_fds = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (n_fds < SOCKET_MAX_FDS)
				fds[n_fds++] = fd;
			else
				fd_close(fd);	/* one such header comes; never leak if that changes */
		}
	}
	return n_fds;
}

static ssize_t recv_flags(int fd, void *data, size_t size, int *retfds, size_t *retn_fds, int flags)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int) * SOCKET_MAX_FDS)];
	} control;
	struct iovec iov = { .iov_base = data, .iov_len = size };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };
	int fds[SOCKET_MAX_FDS];
	bool reset = false;
	size_t n_fds;
	ssize_t n;

	if (retfds) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
	}
	for (;;) {
		n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | flags);
		if (n >= 0)
			break;
		/* a peer that closed before it had read all: told once, and before what it had sent */
		if (errno == ECONNRESET && !reset)
			reset = true;
		else if (errno != EINTR)
			return -errno;
	}
	n_fds = take_fds(&message, fds);
	if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		for (size_t i = 0; i < n_fds; i++)
			fd_close(fds[i]);
		return -EMSGSIZE;
	}
	if (retfds) {
		memcpy(retfds, fds, n_fds * sizeof(int));
		*retn_fds = n_fds;
	}
	return n;
}

ssize_t socket_recv(int fd, void *data, size_t size, int *retfds, size_t *retn_fds)
{
	return recv_flags(fd, data, size, retfds, retn_fds, 0);
}

ssize_t socket_recv_until(
	int fd, void *data, size_t size, int *retfds, size_t *retn_fds, uint64_t deadline_usec)
{
	for (;;) {
		ssize_t n = recv_flags(fd, data, size, retfds, retn_fds, MSG_DONTWAIT);
		int r;

		if (n != -EAGAIN)
			return n;
		r = wait_for(fd, POLLIN, deadline_usec);
		if (r < 0)
			return r;
	}
}

int socket_peer(int fd, pid_t *retpid, uid_t *retuid, gid_t *retgid)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return -errno;
	if (size != sizeof(peer))
		return -EIO;
	*retpid = peer.pid;
	*retuid = peer.uid;
	*retgid = peer.gid;
	return 0;
}
