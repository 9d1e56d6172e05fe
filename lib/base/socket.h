/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Messages with descriptors between processes of one machine: AF_UNIX, SOCK_SEQPACKET, so that a message
 * arrives whole or not at all. Helper code; answers -errno.
 */
#ifndef BASE_SOCKET_H
#define BASE_SOCKET_H

#include <sys/types.h>

#include "base/macro.h"

#define SOCKET_MAX_FDS 8

int socket_pair(int ret[2]);	/* SEQPACKET, close-on-exec, blocking */
/* Listens on a path socket of a name relative to dir_fd, mode 0600 from birth (the umask is not touched).
 * Works whatever the length of the directory's path. The name must not exist. -ENAMETOOLONG above 80 bytes.
 */
int socket_listen_at(int dir_fd, const char *name, int backlog, int *retfd);
int socket_connect_at(int dir_fd, const char *name, int *retfd);

/* One message of len >= 1 bytes with n_fds <= SOCKET_MAX_FDS descriptors (which stay the caller's). 0 or
 * -errno: -EAGAIN on a non-blocking socket that is full, -EPIPE when the peer is gone (never SIGPIPE). */
int socket_send(int fd, const void *data, size_t len, const int *fds, size_t n_fds);
/* Waits for room until the deadline (monotonic): -ETIMEDOUT then. */
int socket_send_until(
	int fd, const void *data, size_t len, const int *fds, size_t n_fds, uint64_t deadline_usec);

/*
 * One message. retfds has room for SOCKET_MAX_FDS, received ones are close-on-exec and the caller's;
 * *retn_fds their number. Return: length, 0 at the end, or -errno. A message longer than size or more
 * descriptors than there is room for is -EMSGSIZE, and every descriptor that came along is closed; the socket
 * stays usable. `retfds` NULL: no descriptor is expected and one that comes is -EMSGSIZE too. What a peer sent
 * before it closed is received, also when it had left something unread (the kernel tells that by ECONNRESET first).
 */
ssize_t socket_recv(int fd, void *data, size_t size, int *retfds, size_t *retn_fds);
ssize_t socket_recv_until(
	int fd, void *data, size_t size, int *retfds, size_t *retn_fds, uint64_t deadline_usec);

/* Who made the other end (at connect, listen or socketpair time). *retpid is 0 when it is in no visible
 * namespace. */
int socket_peer(int fd, pid_t *retpid, uid_t *retuid, gid_t *retgid);

#endif
