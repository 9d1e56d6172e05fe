/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The resolver: a child of egress, forked before that is confined, which asks the host's C library for the
 * addresses of names that a rule allows. It has one socket, no secret, and nothing of the box; a few threads,
 * since a look-up blocks.
 *
 * Question: {u32 serial, str name}. Answer: {u32 serial, u32 n, n * bytes address}.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/pack.h"
#include "base/socket.h"
#include "egress/egress.h"
#include "kernel/compat.h"

#define THREADS 8
#define QUESTION_MAX 512

static void answer(int fd, uint32_t serial, const char *name)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct net_address addresses[ADDRESSES_MAX];
	uint32_t n = 0;
	uint16_t port;

	/* Without AI_ADDRCONFIG: what cannot be reached is found out by connecting. */
	if (getaddrinfo(name, NULL, &hints, &list) == 0) {
		for (struct addrinfo *entry = list; entry && n < ADDRESSES_MAX; entry = entry->ai_next)
			n += address_from_sockaddr(entry->ai_addr, &addresses[n], &port);
		freeaddrinfo(list);
	}
	pack_u32(&writer, serial);
	pack_u32(&writer, n);
	for (uint32_t i = 0; i < n; i++)
		pack_bytes(&writer, addresses[i].bytes, addresses[i].len);
	if (!writer.failed)
		socket_send(fd, writer.data, writer.len, NULL, 0);
}

static void *serve(void *argument)
{
	int fd = *(const int *)argument;
	uint8_t question[QUESTION_MAX];

	for (;;) {
		ssize_t n = socket_recv(fd, question, sizeof(question), NULL, NULL);
		struct pack_reader reader;
		const char *name;
		uint32_t serial;

		if (n <= 0)
			_exit(0);
		reader = PACK_READER(question, (size_t)n);
		serial = unpack_u32(&reader);
		name = unpack_string(&reader);
		if (unpack_done(&reader))
			answer(fd, serial, name);
	}
	return NULL;
}

static _noreturn_ void run(int fd, uint32_t uid, uint32_t gid)
{
	struct rlimit none = { 0, 0 };
	struct fault fault;
	pthread_t thread;
	static int own_fd;

	prctl(PR_SET_NAME, "agentbox-names");
	control_forget(); /* the proxy's password */
	/* Nothing else is kept: no socket of the keeper's, no file. */
	own_fd = dup2(fd, 3);
	if (own_fd < 0 || sys_close_range(4, ~0U, 0) < 0)
		_exit(1);
	fault_init(&fault, ABOX_STAGE_NETWORK);
	setrlimit(RLIMIT_CORE, &none);
	setrlimit(RLIMIT_FSIZE, &none);
	if (egress_become(uid, gid, &fault) < 0)
		_exit(1);
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of user clears it */
	for (int i = 1; i < THREADS; i++)
		if (pthread_create(&thread, NULL, serve, &own_fd) != 0)
			_exit(1);
	serve(&own_fd);
	_exit(0);
}

int resolver_start(uint32_t uid, uint32_t gid, int *retfd, struct fault *fault)
{
	int fds[2];
	pid_t pid;
	int r;

	r = socket_pair(fds);
	if (r < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -r, "resolver", "cannot reach a resolver");
	pid = fork();
	if (pid < 0) {
		r = fault_set(fault, ABOX_E_SYSTEM, errno, "resolver", "cannot start the resolver");
		fd_close(fds[0]);
		fd_close(fds[1]);
		return r;
	}
	if (pid == 0)
		run(fds[1], uid, gid);
	fd_close(fds[1]);
	*retfd = fds[0];
	return 0;
}
