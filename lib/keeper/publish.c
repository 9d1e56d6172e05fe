/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The host's side of a published port: its listener, and the token that a box may want of who comes.
 */
#include "keeper/publish.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <agentbox/error.h>

#include "base/fd.h"
#include "base/strings.h"

int publish_bind(const char *address, uint32_t port, int *retfd, uint32_t *retport, struct fault *fault)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	bool is_v4 = inet_pton(AF_INET, address, &v4.sin_addr) == 1;
	const struct sockaddr *bound = is_v4 ? (const void *)&v4 : (const void *)&v6;
	socklen_t len = is_v4 ? sizeof(v4) : sizeof(v6);
	_cleanup_(fd_closep) int fd = -EBADF;
	const int on = 1;

	if (!is_v4 && inet_pton(AF_INET6, address, &v6.sin6_addr) != 1)
		return fault_set(fault, ABOX_E_INVALID, 0, "publish", "%s is no address", address);
	fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || (!is_v4 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) < 0))
		return fault_set(fault, ABOX_E_SYSTEM, errno, "publish", "no socket for it");
	/* only against what is left of closed connections: a port that is served stays taken */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, bound, len) < 0 || listen(fd, 128) < 0)
		return fault_set(fault, errno == EADDRINUSE ? ABOX_E_EXISTS : ABOX_E_SYSTEM, errno, "publish",
			"%s port %u cannot be taken on the host", address, port);
	if (getsockname(fd, is_v4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6, &len) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "publish", "its port cannot be told");
	*retport = ntohs(is_v4 ? v4.sin_port : v6.sin6_port);
	*retfd = steal_fd(fd);
	return 0;
}

int publish_token(char ret[TOKEN_BYTES + 1])
{
	uint8_t bytes[TOKEN_BYTES / 2];

	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		return -errno;
	hex_encode(bytes, sizeof(bytes), ret);
	return 0;
}
