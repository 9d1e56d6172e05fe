/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Birth and loop of the keeper. It comes into the world with /dev/null in 0-2 and the owner's socket in 3,
 * and has nothing else: no arguments, no environment, no name of a file.
 */
#include "keeper/keeper.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <agentbox/command.h>
#include <agentbox/sandbox.h>

#include "base/clock.h"
#include "base/fd.h"
#include "file/stand.h"
#include "kernel/compat.h"

#define OWNER_FD 3

int keeper_watch(struct keeper *keeper, struct io *io, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = io };
	int op = !io->events ? EPOLL_CTL_ADD : events ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;

	if (io->events == events)
		return 0;
	if (epoll_ctl(keeper->epoll_fd, op, io->fd, &event) < 0)
		return -errno;
	io->events = events;
	return 0;
}

void keeper_log(struct keeper *keeper, int level, const char *format, ...)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	client_begin(&writer, WIRE_LOG, 0);
	pack_u32(&writer, (uint32_t)level);
	pack_string(&writer, text);
	for (struct client *client = keeper->clients; client; client = client->next) {
		if (client->kind == CLIENT_OWNER)
			client_send(keeper, client, &writer);
	}
}

static void signals_ready(struct keeper *keeper, struct io *io, uint32_t events)
{
	struct signalfd_siginfo info;

	if (read(io->fd, &info, sizeof(info)) != sizeof(info))
		return;
	/* an orderly end, as if the box had been canceled */
	stop_begin(keeper, ABOX_STOP_CANCEL, ABOX_CAUSE_CANCELED, keeper->plan.limits.grace_usec);
}

static int watch_signals(struct keeper *keeper)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGQUIT);
	sigaddset(&set, SIGPIPE);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -errno;
	sigdelset(
		&set, SIGPIPE); /* blocked for good: a command that closes its input is EPIPE, nothing more */
	keeper->signals.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (keeper->signals.fd < 0)
		return -errno;
	keeper->signals.ready = signals_ready;
	return keeper_watch(keeper, &keeper->signals, EPOLLIN);
}

/* Security: nobody but root looks into the keeper, and it gets no more rights than it was born with. No new
 * privileges comes later (stages.c), because the set-uid programs that write id maps would lose theirs. */
static int confine(void)
{
	struct rlimit limit;

	if (prctl(PR_SET_DUMPABLE, 0) < 0 || chdir("/") < 0)
		return -errno;
	umask(077);
	prctl(PR_SET_NAME, "agentbox-keeper");
	/* streams of many commands */
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	return sys_close_range(OWNER_FD + 1, ~0U, 0) < 0 ? -errno : 0;
}

static int init(struct keeper *keeper)
{
	struct client *owner;
	int r;

	r = confine();
	if (r < 0)
		return r;
	keeper->state_fd = keeper->boxes_fd = keeper->box_fd = keeper->lock_fd = keeper->scratch_fd = keeper->layer_fd = -EBADF;
	keeper->held_fd = keeper->names_fd = keeper->template_fd = -EBADF;
	keeper->listener.fd = keeper->guest.fd = keeper->wall.fd = keeper->recorder.fd = keeper->egress.fd =
		keeper->egress_pidfd = -EBADF;
	keeper->backend_wall = BACKEND_WALL_INIT;
	keeper->group = CGROUP_GROUP_INIT;
	keeper->wall_at = keeper->idle_at = keeper->owner_at = keeper->stop_at = UINT64_MAX;
	keeper->next_command = 1;
	fault_init(&keeper->guest_fault, 0);
	keeper->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (keeper->epoll_fd < 0)
		return -errno;
	r = watch_signals(keeper);
	if (r < 0)
		return r;
	owner = client_new(keeper, OWNER_FD, CLIENT_OWNER);
	return owner ? 0 : -ENOMEM;
}

/* One event at a time: a handler may free what another event of the same batch would point to. */
static void loop_once(struct keeper *keeper)
{
	struct epoll_event event;
	uint64_t now = clock_monotonic_usec();
	int n;

	n = epoll_wait(keeper->epoll_fd, &event, 1, clock_poll_msec(now, clocks_next(keeper)));
	if (n > 0) {
		struct io *io = event.data.ptr;

		io->ready(keeper, io, event.events);
	}
	now = clock_monotonic_usec();
	clocks_run(keeper, now);
	stop_check(keeper, now);
	client_sweep(keeper);
}

int main(int argc, char **argv)
{
	static struct keeper keeper;

	if (argc > 0 && strcmp(argv[0], FILE_STAND_NAME) == 0)
		return file_stand(OWNER_FD);
	if (init(&keeper) < 0)
		return 1;
	while (keeper.stop_phase != STOP_DONE)
		loop_once(&keeper);
	return 0;
}
