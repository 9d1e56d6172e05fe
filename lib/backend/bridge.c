/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The bridge. Promises that a wall which does not come up, or goes down, is told with the stage it was in and with the
 * last line of its program; and that nothing of the wall outlives it, since it is PID 1 of all of that.
 *
 * Security: what it reads comes from inside the box. It runs as nobody of the host, in namespaces of the box, without
 * capabilities and behind the system call filter of commands.
 */
#include "backend/bridge.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <agentbox/error.h>
#include <agentbox/sandbox.h>

#include "base/clock.h"
#include "base/fd.h"
#include "guest/boot.h"
#include "guest/guest.h"
#include "guest/relay.h"
#include "kernel/caps.h"
#include "kernel/compat.h"

#define END_USEC (2 * USEC_PER_SEC)	/* from the end of the channel to that of the program, to tell how it ended */
#define LOG_BYTES 4096
#define STAGE_BYTES 32
#define PANIC "Kernel panic"
#define CHANNEL_BYTES (1 << 20)
#define CELL_FD (GUEST_FD_CHANNEL + 1)	/* of the process that may widen the cell */

struct state {
	const struct bridge *bridge;
	int wake_fd, signal_fd;
	bool ended, second_ended;
	bool told;		/* the setup is on its way */
	int status, second_status;
	char log[LOG_BYTES];	/* the end of what it has said */
	size_t log_len;
	char stage[STAGE_BYTES];	/* how far the start has come */
};

static struct relay relay;

/* Both ends; the one that stays here is non-blocking. */
static int make_pipe(int ret[2], int ours, const char *name, struct fault *fault)
{
	if (pipe2(ret, O_CLOEXEC) < 0 ||
		fcntl(ret[ours], F_SETFL, (ours ? O_WRONLY : O_RDONLY) | O_NONBLOCK) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, name, "no pipe for it");
	fcntl(ret[ours], F_SETPIPE_SZ, CHANNEL_BYTES);	/* fewer switches; the default does as well */
	return 0;
}

/* What is left open when one fails ends with the process, which does then too. */
int bridge_make_channel(struct bridge *bridge, struct bridge_pipes *ret, struct fault *fault)
{
	int in[2], out[2], r;

	r = make_pipe(in, 1, bridge->name, fault);
	if (r == 0)
		r = make_pipe(out, 0, bridge->name, fault);
	if (r < 0)
		return r;
	*ret = (struct bridge_pipes){ in[0], out[1], -EBADF };
	bridge->out_fd = in[1];
	bridge->in_fd = out[0];
	return 0;
}

int bridge_make_pipes(struct bridge *bridge, struct bridge_pipes *ret, struct fault *fault)
{
	int err[2], r;

	r = bridge_make_channel(bridge, ret, fault);
	if (r == 0)
		r = make_pipe(err, 0, bridge->name, fault);
	if (r < 0)
		return r;
	ret->err_fd = err[1];
	bridge->log_fd = err[0];
	return 0;
}

static int keep_fourth(int fd)
{
	if (fd < 0)
		return 0;
	return fd == 3 ? fcntl(fd, F_SETFD, 0) : dup2(fd, 3);
}

pid_t bridge_spawn(const char *const *argv, int in_fd, int out_fd, int err_fd, int fourth_fd)
{
	static const char *const env[] = { "PATH=/usr/bin:/bin", "HOME=/", NULL };
	pid_t pid = fork();
	sigset_t none;

	if (pid != 0)
		return pid < 0 ? -errno : pid;
	sigemptyset(&none);
	if (dup2(in_fd, 0) < 0 || dup2(out_fd, 1) < 0 || dup2(err_fd, 2) < 0 || keep_fourth(fourth_fd) < 0 ||
		sys_close_range(fourth_fd < 0 ? 3 : 4, CLOSE_RANGE_REST, 0) < 0 ||
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ||
		sigprocmask(SIG_SETMASK, &none, NULL) < 0)
		_exit(126);
	execve(argv[0], (char *const *)argv, (char *const *)env);
	dprintf(2, "%s cannot be executed: %s\n", argv[0], strerror(errno));
	_exit(127);
}

int bridge_start(struct bridge *bridge, const char *const *argv, const struct bridge_pipes *pipes, struct fault *fault)
{
	bridge->pid = bridge_spawn(argv, pipes->in_fd, pipes->out_fd, pipes->err_fd, -EBADF);
	fd_close(pipes->in_fd);
	fd_close(pipes->out_fd);
	fd_close(pipes->err_fd);
	return bridge->pid < 0 ? fault_set(fault, ABOX_E_SYSTEM, -bridge->pid, bridge->name, "cannot start a process") : 0;
}

static int watch(int epoll_fd, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	return fd < 0 ? 0 : epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static int prepare(struct state *state, struct fault *fault)
{
	sigset_t set;

	sigfillset(&set);
	if (sigprocmask(SIG_SETMASK, &set, NULL) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "signals", "cannot block signals");
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	state->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	state->wake_fd = epoll_create1(EPOLL_CLOEXEC);
	if (state->signal_fd < 0 || state->wake_fd < 0 || watch(state->wake_fd, state->signal_fd) < 0 ||
		watch(state->wake_fd, state->bridge->log_fd) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, state->bridge->name, "cannot be watched");
	return 0;
}

int bridge_confine(const struct flat_plan *plan, uint64_t caps, struct fault *fault)
{
	static struct filter_insn filter[8192];
	int r;

	if (!plan->filter_len || plan->filter_len > sizeof(filter))
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "filter", "the plan has none that fits");
	memcpy(filter, plan->filter, plan->filter_len);
	r = caps ? caps_keep(caps, false, fault) : caps_drop_all(fault);
	if (r == 0)
		r = caps_no_new_privs(fault);
	return r < 0 ? r : filter_load(filter, plan->filter_len / sizeof(*filter), fault);
}

/* -- the cell, which may get wider -- */

/* Security: only here are the rights for it, and nothing that the box has sent is read. It hands its sockets to the
 * keeper over the same channel; a message is one packet, so that two may write. */
_noreturn_ static void serve_cell(const struct flat_plan *plan, int fd)
{
	static uint8_t packet[GUEST_PACKET_MAX];
	struct guest_message message;
	struct fault fault;

	fault_init(&fault, ABOX_STAGE_START);
	prctl(PR_SET_NAME, "agentbox-cell");
	if ((fd != CELL_FD && dup3(fd, CELL_FD, O_CLOEXEC) < 0) || sys_close_range(CELL_FD + 1, CLOSE_RANGE_REST, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ||
		bridge_confine(plan, CAPS_BIT(CAPS_NET_ADMIN) | CAPS_BIT(CAPS_NET_BIND_SERVICE), &fault) < 0)
		_exit(1);
	while (guest_message_recv(CELL_FD, packet, &message) > 0) {
		if (message.type == GUEST_LISTEN && guest_network_handle(&plan->network, GUEST_FD_CHANNEL, &message) < 0)
			_exit(0);
		guest_message_close_fds(&message);
	}
	_exit(0);
}

int bridge_start_cell(struct bridge *bridge, const struct flat_plan *plan, struct fault *fault)
{
	int pair[2];
	pid_t pid;

	bridge->cell_fd = -EBADF;
	if (plan->network.mode == FLAT_NETWORK_NONE)
		return 0;
	if (socket_pair(pair) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "network", "no socket for the cell");
	pid = fork();
	if (pid == 0) {
		fd_close(pair[0]);
		serve_cell(plan, pair[1]);
	}
	fd_close(pair[1]);
	if (pid < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "network", "cannot start the process of the cell");
	bridge->cell_fd = pair[0];
	return 0;
}

/* -- what the program says, and how it ends -- */

/* What the guest says of its way to the channel (guest/boot.h) is no part of what has to be told. */
static void take_stages(struct state *state)
{
	char *mark;

	while ((mark = memmem(state->log, state->log_len, BOOT_STAGE, strlen(BOOT_STAGE)))) {
		char *name = mark + strlen(BOOT_STAGE), *log_end = state->log + state->log_len;
		char *end = memchr(name, '\n', (size_t)(log_end - name));
		size_t n = 0;

		if (!end)
			return;	/* the rest is still to come */
		while (n + 1 < STAGE_BYTES && name[n] >= 'a' && name[n] <= 'z')
			n++;
		memcpy(state->stage, name, n);
		state->stage[n] = 0;
		end++;
		memmove(mark, end, (size_t)(log_end - end));
		state->log_len -= (size_t)(end - mark);
	}
}

static void take_log(struct state *state)
{
	char text[1024];
	ssize_t n;

	while ((n = read(state->bridge->log_fd, text, sizeof(text))) > 0) {
		size_t len = (size_t)n, over;

		if (state->log_len + len > sizeof(state->log)) {
			over = state->log_len + len - sizeof(state->log);
			memmove(state->log, state->log + over, state->log_len - over);
			state->log_len -= over;
		}
		memcpy(state->log + state->log_len, text, len);
		state->log_len += len;
		if (!relay.ready)
			take_stages(state);
	}
}

static void reap(struct state *state)
{
	struct signalfd_siginfo info;
	int status;
	pid_t pid;

	while (read(state->signal_fd, &info, sizeof(info)) > 0)
		;
	while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0) {
		if (pid == state->bridge->pid) {
			state->ended = true;
			state->status = status;
		} else if (pid == state->bridge->second_pid) {
			state->second_ended = true;
			state->second_status = status;
		}
	}
}

/* Where the line begins that says most of an end: what our own program in there said, else how its kernel ended, else
 * the last one with anything in it (of several programs, that of whoever was left alone). */
static size_t telling_line(const struct state *state)
{
	static const char *const marks[] = { BOOT_FAULT, PANIC };
	size_t end = state->log_len, begin;

	for (size_t i = 0; i < ELEMENTSOF(marks); i++) {
		const char *found = memmem(state->log, state->log_len, marks[i], strlen(marks[i]));

		if (found)
			return (size_t)(found - state->log);
	}
	while (end > 0 && (state->log[end - 1] == '\n' || state->log[end - 1] == ' '))
		end--;
	for (begin = end; begin > 0 && state->log[begin - 1] != '\n'; begin--)
		;
	return begin;
}

/* The same, printable. */
static void end_line(const struct state *state, char *ret, size_t size)
{
	size_t n = 0;

	for (size_t at = telling_line(state); at < state->log_len && state->log[at] != '\n' && n + 1 < size; at++) {
		char byte = state->log[at];

		if (byte != '\r')
			ret[n++] = (char)(byte >= ' ' && byte < 127 ? byte : '?');
	}
	ret[n] = 0;
}

/* What else it has said, one message a line, for who asked for a log. */
static void tell_log(const struct state *state)
{
	size_t begin = 0;

	while (begin < state->log_len) {
		const char *newline = memchr(state->log + begin, '\n', state->log_len - begin);
		size_t end = newline ? (size_t)(newline - state->log) : state->log_len, n = 0;
		uint8_t buffer[512];
		struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));
		char line[256];

		for (; begin < end && n + 1 < sizeof(line); begin++) {
			if (state->log[begin] >= ' ' && state->log[begin] < 127)
				line[n++] = state->log[begin];
		}
		line[n] = 0;
		begin = end + 1;
		if (!n)
			continue;
		guest_message_begin(&writer, GUEST_LOG, 0);
		pack_u32(&writer, ABOX_LOG_INFO);
		pack_string(&writer, line);
		guest_message_send(GUEST_FD_CHANNEL, &writer, NULL, 0);
	}
}

static void how_it_ended(const struct state *state, bool second, char *ret, size_t size)
{
	int status = second ? state->second_status : state->status;

	if (!state->ended && !second)
		snprintf(ret, size, "it closed the channel");
	else if (WIFSIGNALED(status))
		snprintf(ret, size, "it was ended by signal %d", WTERMSIG(status));
	else if (second || WEXITSTATUS(status) || !state->bridge->setup->own_kernel)
		snprintf(ret, size, "it ended with %d", WEXITSTATUS(status));
	else if (memmem(state->log, state->log_len, PANIC, strlen(PANIC)))
		snprintf(ret, size, "the machine's kernel panicked");
	else
		snprintf(ret, size, "the machine was reset or switched off");
}

static int tell_end(struct state *state, struct fault *fault)
{
	bool second = !state->ended && state->second_ended;	/* the first may have ended for want of it, or it of the first */
	const char *name = second ? state->bridge->second_name : state->bridge->name;
	int code = relay.ready ? ABOX_E_GONE : ABOX_E_UNAVAILABLE;
	char how[64], when[96] = "", line[256];

	take_log(state);
	how_it_ended(state, second, how, sizeof(how));
	if (!relay.ready)
		snprintf(when, sizeof(when), " before the guest answered, at stage %s", state->stage);
	tell_log(state);
	end_line(state, line, sizeof(line));
	return fault_set(fault, code, 0, name, "%s%s%s%s", how, when, line[0] ? ": " : "", line);
}

/* What a start that goes no further means, by the stage that it has come to; else the guest hangs. */
static const char *what_hangs(const char *stage)
{
	if (strcmp(stage, "kernel") == 0)
		return "the machine's kernel does not come to its first program";
	if (strcmp(stage, "container") == 0)
		return "the first program of the container is not started";
	return strcmp(stage, "setup") == 0 ? "the guest is silent" : "the guest hangs";
}

static int tell_hang(struct state *state, struct fault *fault)
{
	char line[256];

	tell_log(state);
	end_line(state, line, sizeof(line));
	return fault_set(fault, ABOX_E_TIMEOUT, 0, state->bridge->name, "it runs, but at stage %s %s%s%s", state->stage,
		what_hangs(state->stage), line[0] ? ": " : "", line);
}

/* The channel may end a moment before the program does. */
static void wait_for_end(struct state *state)
{
	uint64_t deadline = clock_deadline(clock_monotonic_usec(), END_USEC);

	while (!state->ended) {
		struct pollfd entry = { .fd = state->signal_fd, .events = POLLIN };
		uint64_t now = clock_monotonic_usec();

		if (now >= deadline || poll(&entry, 1, clock_poll_msec(now, deadline)) < 0)
			return;
		reap(state);
	}
}

/*
 * A machine's clock begins to run some time after the machine was started, and files are dated by this host: what the guest
 * made must not be of tomorrow there. So the setup goes, with the time of now, when its guest has said that it waits.
 */
static int send_setup(struct state *state, struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct guest_setup setup = *state->bridge->setup;

	if (state->told || (setup.own_kernel && strcmp(state->stage, "setup") != 0))
		return 0;
	if (setup.wall_usec && strcmp(state->bridge->stage, "setup") != 0)
		setup.wall_usec = clock_wall_usec();
	setup_pack(&writer, &setup);
	if (!relay_send(&relay, &writer))
		return fault_set(fault, ABOX_E_MEMORY, 0, "setup", "no memory for it");
	state->told = true;
	return 0;
}

static int loop(struct state *state, struct fault *fault)
{
	const struct bridge *bridge = state->bridge;
	/* the keeper knows less of it, and so gives up last */
	uint64_t wait_usec = bridge->ready_usec - MIN(bridge->ready_usec / 8, USEC_PER_SEC),
		 deadline = clock_deadline(clock_monotonic_usec(), wait_usec);

	for (;;) {
		int r = relay_turn(&relay, state->wake_fd, relay.ready ? UINT64_MAX : deadline);

		if (r == 0)
			_exit(0);	/* the keeper is gone, and the box with it */
		if (r == -EPROTO)
			return fault_set(fault, ABOX_E_PROTOCOL, 0, "guest", "what came from inside the wall is no message");
		take_log(state);
		reap(state);
		if (send_setup(state, fault) < 0)
			return fault->code;
		if (r < 0 || state->second_ended)
			wait_for_end(state);
		if (r < 0 || state->ended || state->second_ended)
			return tell_end(state, fault);
		if (!relay.ready && clock_monotonic_usec() >= deadline)
			return tell_hang(state, fault);
		if (relay.ready)
			fault->stage = ABOX_STAGE_COMMAND;
	}
}

int bridge_run(const struct flat_plan *plan, const struct bridge *bridge, struct fault *fault)
{
	static struct state state;
	int r;

	state.bridge = bridge;
	snprintf(state.stage, sizeof(state.stage), "%s", bridge->stage);
	r = prepare(&state, fault);
	if (r == 0)
		r = bridge_confine(plan, 0, fault);
	if (r < 0)
		return r;
	relay_init(&relay, false, GUEST_FD_CHANNEL, bridge->in_fd, bridge->out_fd);
	relay.ready_fd = bridge->scratch_fd;
	relay.network = plan->network.mode != FLAT_NETWORK_NONE ? &plan->network : NULL;
	relay.cell_fd = bridge->cell_fd;
	relay.far = bridge->setup->link;
	r = send_setup(&state, fault);
	return r < 0 ? r : loop(&state, fault);
}
