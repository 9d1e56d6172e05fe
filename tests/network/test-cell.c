/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The cell as a program inside of it finds it. Each test is a child in user and network namespaces of its
 * own, made by whoever runs the tests, root or not; the parent is what stands for egress, in the same
 * namespace.
 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "egress/wire.h"
#include "kernel/userns.h"
#include "network/cell.h"
#include "network/names.h"

#define PORT 443
#define HIGH_PORT 8080

static struct cell_shape shape;
static struct cell_listener listeners[CELL_LISTENERS_MAX(2)];
static size_t n_listeners;

/* In the child: what fails there is told by its exit code and a line. */
#define CHECK(what)                                                                                          \
	do {                                                                                                 \
		if (!(what)) {                                                                               \
			fprintf(stderr, "%s:%d: %s: %s\n", __func__, __LINE__, #what, strerror(errno));      \
			_exit(1);                                                                            \
		}                                                                                            \
	} while (0)

static void enter(void)
{
	struct id_range uid = { 0, geteuid(), 1 }, gid = { 0, getegid(), 1 };

	CHECK(unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0);
	CHECK(userns_write_maps(0, &uid, 1, &gid, 1, true, NULL) == 0);
}

static void make_cell(void)
{
	static const uint16_t ports[] = { PORT, HIGH_PORT };
	struct fault fault;

	fault_init(&fault, ABOX_STAGE_START);
	enter();
	CHECK(cell_try(&shape) == 0);
	CHECK(unshare(CLONE_NEWNET) == 0);
	if (cell_make(&shape, &fault) < 0 ||
		cell_listen(&shape, ports, ELEMENTSOF(ports), true, listeners, &n_listeners, &fault) < 0) {
		fprintf(stderr, "%s: %s\n", fault.place, fault.message);
		_exit(1);
	}
	CHECK(n_listeners == 8);
}

/* Runs body in a child. What the host cannot do is skipped by name. */
static void in_child(void (*body)(void))
{
	int status;
	pid_t pid = fork();

	cr_assert_geq(pid, 0);
	if (pid == 0) {
		alarm(30);
		body();
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", status);
}

static bool cells_work(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 ? 0 : 1);
	return waitpid(pid, &status, 0) == pid && status == 0;
}

#define CELL_TEST(name)                                                                                      \
	static void name##_body(void);                                                                       \
	Test(cell, name)                                                                                     \
	{                                                                                                    \
		if (!cells_work())                                                                           \
			cr_skip_test("this host makes no namespaces for this user");                         \
		in_child(name##_body);                                                                       \
	}                                                                                                    \
	static void name##_body(void)

static socklen_t address_of(const char *text, uint16_t port, struct sockaddr_storage *ret)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;

	memset(ret, 0, sizeof(*ret));
	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		return sizeof(*v4);
	}
	CHECK(inet_pton(AF_INET6, text, &v6->sin6_addr) == 1);
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons(port);
	return sizeof(*v6);
}

/* The error of a connect; 0 when it stands, with the socket in *retfd. At once: nothing here may wait. */
static int try_connect(const char *text, uint16_t port, int type, int *retfd)
{
	struct sockaddr_storage address;
	socklen_t len = address_of(text, port, &address);
	int fd = socket(address.ss_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error = 0;
	socklen_t error_len = sizeof(error);

	CHECK(fd >= 0);
	if (connect(fd, (const struct sockaddr *)&address, len) < 0)
		error = errno;
	if (error == EINPROGRESS) {
		struct pollfd poll_fd = { .fd = fd, .events = POLLOUT };

		CHECK(poll(&poll_fd, 1, 3000) == 1);
		CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_len) == 0);
	}
	if (error == 0 && retfd)
		*retfd = fd;
	else
		close(fd);
	return error;
}

static int listener_of(uint32_t kind, uint32_t port, int family)
{
	struct sockaddr_storage address;

	for (size_t i = 0; i < n_listeners; i++) {
		socklen_t len = sizeof(address);

		CHECK(getsockname(listeners[i].fd, (struct sockaddr *)&address, &len) == 0);
		if (listeners[i].kind == kind && listeners[i].port == port && address.ss_family == family)
			return listeners[i].fd;
	}
	CHECK(!"a listener");
	return -1;
}

/* Any address on a policy port arrives, and the listener learns which was meant and that it came from the
 * cell. */
CELL_TEST(every_address_arrives)
{
	static const char *const addresses[] = { "203.0.113.9", "8.8.8.8", "10.0.0.1", "198.18.1.1",
		"127.0.0.1", "192.0.2.1", "169.254.169.254", "2001:db8::1", "2001:4860:4860::8888",
		"fd5a:b0c5:1d7e::1:0:100" };

	make_cell();
	for (size_t i = 0; i < ELEMENTSOF(addresses); i++) {
		for (const uint16_t *port = (const uint16_t[]){ PORT, HIGH_PORT, 0 }; *port; port++) {
			struct sockaddr_storage wanted, got, peer;
			socklen_t len = address_of(addresses[i], *port, &wanted), got_len = sizeof(got),
				  peer_len = sizeof(peer);
			char text[64] = "";
			int fd, in;

			if (wanted.ss_family == AF_INET6 && !shape.v6)
				continue;
			errno = try_connect(addresses[i], *port, SOCK_STREAM, &fd);
			if (errno)
				fprintf(stderr, "%s\n", addresses[i]);
			CHECK(errno == 0);
			in = accept(listener_of(EGRESS_LISTENER_TCP, *port, wanted.ss_family),
				(struct sockaddr *)&peer, &peer_len);
			CHECK(in >= 0 && getsockname(in, (struct sockaddr *)&got, &got_len) == 0);
			CHECK(got_len == len && memcmp(&got, &wanted, len) == 0);
			if (wanted.ss_family == AF_INET)
				inet_ntop(AF_INET, &((struct sockaddr_in *)&peer)->sin_addr, text,
					sizeof(text));
			else
				inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&peer)->sin6_addr, text,
					sizeof(text));
			CHECK(strncmp(addresses[i], "127.", 4) == 0 ||
				strcmp(text, wanted.ss_family == AF_INET ? "192.0.2.1"
									 : "fd5a:b0c5:1d7e::1") == 0);
			close(in);
			close(fd);
		}
	}
}

/* Every other port is unreachable at once, whatever the protocol; a server of the box does not answer for
 * others. */
CELL_TEST(unnamed_ports_are_unreachable)
{
	static const char *const foreign[] = { "203.0.113.9", "8.8.8.8", "198.18.1.1", "10.0.0.1",
		"224.0.0.1", "255.255.255.255", "2001:db8::1", "ff02::1", "fd5a:b0c5:1d7e::1:0:100" };
	struct sockaddr_storage any4, any6;
	int own4, own6, one = 1;

	make_cell();
	CHECK(shape.port_rules);
	own4 = socket(AF_INET, SOCK_STREAM, 0);
	own6 = socket(AF_INET6, SOCK_STREAM, 0);
	CHECK(bind(own4, (struct sockaddr *)&any4, address_of("0.0.0.0", 3000, &any4)) == 0 &&
		listen(own4, 9) == 0);
	setsockopt(own6, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	CHECK(bind(own6, (struct sockaddr *)&any6, address_of("::", 3000, &any6)) == 0 &&
		listen(own6, 9) == 0);
	for (size_t i = 0; i < ELEMENTSOF(foreign); i++)
		for (const uint16_t *port = (const uint16_t[]){ 3000, 22, 8081, 0 }; *port; port++)
			for (int type = SOCK_STREAM; type <= SOCK_DGRAM; type++) {
				int error = try_connect(foreign[i], *port, type, NULL);

				if (error != ENETUNREACH && error != EACCES && error != EINVAL)
					fprintf(stderr, "%s:%u %s\n", foreign[i], *port, strerror(error));
				CHECK(error == ENETUNREACH || error == EACCES || error == EINVAL);
			}
	/* and the box's own addresses lead to its own server */
	CHECK(try_connect("127.0.0.1", 3000, SOCK_STREAM, NULL) == 0);
	CHECK(try_connect("192.0.2.1", 3000, SOCK_STREAM, NULL) == 0);
	CHECK(try_connect("::1", 3000, SOCK_STREAM, NULL) == 0);
	CHECK(try_connect("fd5a:b0c5:1d7e::1", 3000, SOCK_STREAM, NULL) == 0);
	CHECK(try_connect("127.0.0.1", 3001, SOCK_STREAM, NULL) == ECONNREFUSED);
}

/* Address selection sees a host with both families. */
CELL_TEST(programs_believe_they_are_online)
{
	struct addrinfo hints = { .ai_flags = AI_ADDRCONFIG | AI_NUMERICHOST, .ai_socktype = SOCK_STREAM },
			*list;

	make_cell();
	hints.ai_family = AF_INET;
	CHECK(getaddrinfo("198.18.1.1", "443", &hints, &list) == 0);
	hints.ai_family = AF_INET6;
	CHECK(getaddrinfo("2001:db8::1", "443", &hints, &list) == 0);
	CHECK(shape.link == CELL_LINK_NONE || if_nametoindex("eth0") > 0);
}

/* No program of the box gets a connection that is meant for egress: not with any option, any address, the
 * same user. */
CELL_TEST(listeners_cannot_be_stolen)
{
	static const char *const addresses[] = { "0.0.0.0", "127.0.0.1", "192.0.2.1", "203.0.113.9",
		"::", "::1", "fd5a:b0c5:1d7e::1", "::ffff:0.0.0.0", "::ffff:127.0.0.1" };

	make_cell();
	for (size_t i = 0; i < ELEMENTSOF(addresses); i++)
		for (int options = 0; options < 8; options++)
			for (int udp = 0; udp < 2; udp++) {
				struct sockaddr_storage address;
				socklen_t len = address_of(addresses[i], udp ? 53 : HIGH_PORT, &address);
				int fd = socket(address.ss_family, udp ? SOCK_DGRAM : SOCK_STREAM, 0), on = 1,
				    off = 0;

				CHECK(fd >= 0);
				setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
				if (options & 1)
					setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
				if (options & 2)
					setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
				if (options & 4)
					setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &on, sizeof(on));
				if (bind(fd, (struct sockaddr *)&address, len) == 0) {
					/* TCP lets a bind stand beside; then it must not be able to listen */
					if (udp || listen(fd, 1) == 0)
						fprintf(stderr, "%s options %d udp %d\n", addresses[i],
							options, udp);
					CHECK(!udp && listen(fd, 1) < 0);
				}
				close(fd);
			}
	/* the mark that such a probe can bind at all */
	CHECK(try_connect("127.0.0.1", HIGH_PORT, SOCK_STREAM, NULL) == 0);
	{
		struct sockaddr_storage address;
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		CHECK(bind(fd, (struct sockaddr *)&address, address_of("127.0.0.1", 3000, &address)) == 0);
		CHECK(listen(fd, 1) == 0);
	}
}

/* When egress is gone its listeners are: refused at once, nothing hangs, names included. */
CELL_TEST(refused_without_egress)
{
	char byte = 0;
	int fd;

	make_cell();
	CHECK(try_connect("203.0.113.9", PORT, SOCK_STREAM, NULL) == 0);
	for (size_t i = 0; i < n_listeners; i++)
		close(listeners[i].fd);
	for (const char *const *address =
			(const char *const[]){ "203.0.113.9", "127.0.0.1", "2001:db8::1", NULL };
		*address; address++) {
		CHECK(try_connect(*address, PORT, SOCK_STREAM, NULL) == ECONNREFUSED);
		CHECK(try_connect(*address, HIGH_PORT, SOCK_STREAM, NULL) == ECONNREFUSED);
	}
	CHECK(try_connect("198.18.0.1", 53, SOCK_DGRAM, &fd) == 0);
	CHECK(send(fd, &byte, 1, 0) == 1);
	CHECK(poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 3000) == 1);
	CHECK(recv(fd, &byte, 1, 0) < 0 && errno == ECONNREFUSED);
}

/* A port that a program of the box has taken is not taken from it, nor is the policy said to be in force. */
CELL_TEST(a_taken_port_is_told)
{
	struct cell_listener more[CELL_LISTENERS_MAX(1)];
	struct sockaddr_storage address;
	const uint16_t taken = 9000, free_port = 9001;
	int fd = -1;
	struct fault fault;
	size_t n;

	make_cell();
	fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(bind(fd, (struct sockaddr *)&address, address_of("127.0.0.1", taken, &address)) == 0 &&
		listen(fd, 1) == 0);
	CHECK(cell_listen(&shape, &taken, 1, false, more, &n, &fault) == ABOX_E_EXISTS);
	CHECK(try_connect("203.0.113.9", free_port, SOCK_STREAM, NULL) == ENETUNREACH);
	CHECK(cell_listen(&shape, &free_port, 1, false, more, &n, &fault) == 0 && n == (shape.v6 ? 2 : 1));
	CHECK(try_connect("203.0.113.9", free_port, SOCK_STREAM, NULL) == 0);
	/* once more, as after a change of policy and back */
	for (size_t i = 0; i < n; i++)
		close(more[i].fd);
	CHECK(cell_listen(&shape, &free_port, 1, false, more, &n, &fault) == 0);
}

/* A name server that is asked at any address, over IPv4 and IPv6, answers from it: connected sockets hear
 * nothing else. */
CELL_TEST(answers_come_from_the_address_asked)
{
	static const char *const servers[] = { CELL_NAMESERVER, "8.8.8.8", "127.0.0.53",
		"2001:4860:4860::8888", "::1" };

	make_cell();
	for (size_t i = 0; i < ELEMENTSOF(servers); i++) {
		struct sockaddr_storage address, from;
		uint8_t control[256], byte = (uint8_t)i, answer = 0;
		struct iovec iov = { &byte, 1 };
		struct msghdr message = { .msg_name = &from,
			.msg_namelen = sizeof(from),
			.msg_iov = &iov,
			.msg_iovlen = 1,
			.msg_control = control,
			.msg_controllen = sizeof(control) };
		int client, server;

		address_of(servers[i], 53, &address);
		server = listener_of(EGRESS_LISTENER_DNS_UDP, 53, address.ss_family);
		CHECK(try_connect(servers[i], 53, SOCK_DGRAM, &client) == 0);
		CHECK(send(client, &byte, 1, 0) == 1);
		CHECK(poll(&(struct pollfd){ .fd = server, .events = POLLIN }, 1, 3000) == 1);
		CHECK(recvmsg(server, &message, 0) == 1);
		/* what came along says where it was sent to; given back, it says where the answer comes from.
		 * Never with the link: answers that were bound to eth0 would leave the cell */
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
			struct in_pktinfo *info = (struct in_pktinfo *)CMSG_DATA(c);

			if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
				info->ipi_spec_dst = info->ipi_addr;
				info->ipi_ifindex = 0;
			}
			if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO)
				((struct in6_pktinfo *)CMSG_DATA(c))->ipi6_ifindex = 0;
		}
		CHECK(sendmsg(server, &message, 0) == 1);
		CHECK(poll(&(struct pollfd){ .fd = client, .events = POLLIN }, 1, 3000) == 1);
		CHECK(recv(client, &answer, 1, 0) == 1 && answer == byte);
		close(client);
	}
}
