/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The egress of a box: every connection that the box makes ends here, and goes on only where a rule allows
 * it. Started by the library with two sockets (3: the library's, once; 4: the keeper's), it makes what it
 * needs, gives up what it does not, and serves until the keeper's socket ends.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "egress/egress.h"

#define LIBRARY_FD 3
#define KEEPER_FD 4
#define EVENTS_AT_ONCE 64

int watch_add(struct egress *egress, struct watch *watch)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = watch };

	if (epoll_ctl(egress->epoll_fd, EPOLL_CTL_ADD, watch->fd, &event) == 0)
		return 0;
	watch->fd = fd_close(watch->fd);
	return -ENOMEM;
}

void watch_close(struct watch *watch)
{
	watch->fd = fd_close(watch->fd);
}

void connection_wake(struct connection *connection)
{
	if (connection->dead || connection->is_ready)
		return;
	connection->is_ready = true;
	connection->next_ready = connection->egress->ready;
	connection->egress->ready = connection;
}

/* Those that were ready at the beginning; what they wake runs in the next round. */
static void run_ready(struct egress *egress)
{
	struct connection *list = egress->ready;

	egress->ready = NULL;
	while (list) {
		struct connection *connection = list;

		list = connection->next_ready;
		connection->is_ready = false;
		if (!connection->dead)
			connection_run(connection);
	}
}

static void round_once(struct egress *egress)
{
	struct epoll_event events[EVENTS_AT_ONCE];
	int timeout = egress->ready ? 0 : clock_poll_msec(clock_monotonic_usec(), egress->next_usec), n;

	n = epoll_wait(egress->epoll_fd, events, EVENTS_AT_ONCE, timeout);
	egress->now_usec = clock_monotonic_usec();
	for (int i = 0; i < n; i++) {
		struct watch *watch = events[i].data.ptr;

		/* Closed in this round: its memory stays until the burial below. */
		if (watch->fd >= 0)
			watch->ready(egress, watch, events[i].events);
	}
	run_ready(egress);
	if (egress->now_usec >= egress->next_usec) {
		connections_late(egress);
		listeners_late(egress);
		events_flush(egress, false);
	}
	connections_bury(egress);
	upstreams_bury(egress);
	publish_bury(egress);
}

static int set_up(struct egress *egress)
{
	egress->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	egress->names = names_new();
	egress->relay = malloc(RELAY_BYTES);
	egress->denials = denials_new();
	if (egress->epoll_fd < 0 || !egress->names || !egress->relay || !egress->denials)
		return -ENOMEM;
	egress->messages_end = &egress->messages;
	egress->now_usec = egress->tokens_usec = clock_monotonic_usec();
	egress->next_usec = UINT64_MAX;
	egress->keeper = (struct watch){ KEEPER_FD, control_ready };
	egress->resolver = (struct watch){ -EBADF, resolver_ready };
	egress->minter = (struct watch){ -EBADF, minter_ready };
	egress->executor_fd = -EBADF;
	return 0;
}

int main(void)
{
	static struct egress egress;

	prctl(PR_SET_DUMPABLE, 0);
	prctl(PR_SET_NAME, "agentbox-egress");
	signal(SIGPIPE, SIG_IGN);
	if (set_up(&egress) < 0 || control_open(&egress, LIBRARY_FD) < 0)
		return 1;
	if (control_tell_ready(&egress) < 0 || watch_add(&egress, &egress.keeper) < 0 ||
		watch_add(&egress, &egress.resolver) < 0 ||
		(egress.minter.fd >= 0 && watch_add(&egress, &egress.minter) < 0))
		return 1;
	for (;;)
		round_once(&egress);
}
