/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The channel to the guest. Promises that nothing which comes from inside the wall is believed beyond what a
 * guest may say: an unknown command, a second end, a message that is none are dropped or end the box.
 */
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>

#include <agentbox/command.h>
#include <agentbox/error.h>
#include <agentbox/sandbox.h>

#include "base/clock.h"
#include "base/fd.h"
#include "guest/message.h"
#include "keeper/network.h"

#define MESSAGES_A_TURN 8

static uint8_t packet[GUEST_PACKET_MAX];

static void take_log(struct keeper *keeper, struct guest_message *message)
{
	uint32_t level = unpack_u32(&message->body);
	const char *text = unpack_string(&message->body);

	if (unpack_done(&message->body) && level <= ABOX_LOG_DEBUG)
		keeper_log(keeper, (int)level, "%s", text);
}

static int take_fault(struct guest_message *message, struct fault *fault)
{
	fault_unpack(fault, &message->body);
	if (message->body.failed || fault->code >= 0)
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "guest", "it failed without a reason");
	return fault->code;
}

/* READY hands over the scratch's root, by which the keeper tells how full it is, where that lies on this host. 1 when it has
 * come. */
static int take_early(struct keeper *keeper, struct guest_message *message, struct fault *fault)
{
	switch (message->type) {
	case GUEST_LOG:
		take_log(keeper, message);
		return 0;
	case GUEST_FAULT:
		return take_fault(message, fault);
	case GUEST_TEMPLATE:
		template_take(keeper, message);
		return 0;
	case GUEST_READY:
		if (message->n_fds > 1)
			return fault_set(fault, ABOX_E_PROTOCOL, 0, "guest", "it hands over more than its scratch");
		keeper->scratch_fd = message->n_fds ? message->fds[0] : -EBADF;
		message->fds[0] = -EBADF;
		return 1;
	case GUEST_LISTENERS:
	case GUEST_LISTENING:
		return network_take(keeper, message, fault);
	default:
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "guest", "it sent what it must not");
	}
}

int link_wait_ready(struct keeper *keeper, uint64_t deadline_usec, struct fault *fault)
{
	int fd = keeper->backend_wall.channel_fd, r;

	if (fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "guest", "its channel cannot be set up");
	for (;;) {
		struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
		uint64_t now = clock_monotonic_usec();
		struct guest_message message;

		if (now >= deadline_usec)
			return fault_set(fault, ABOX_E_TIMEOUT, 0, "guest", "it is not ready in time");
		if (poll(&poll_fd, 1, clock_poll_msec(now, deadline_usec)) < 0 && errno != EINTR)
			return fault_set(fault, ABOX_E_SYSTEM, errno, "guest", "cannot wait for it");
		r = guest_message_recv(fd, packet, &message);
		if (r == -EAGAIN)
			continue;
		if (r <= 0)
			return fault_set(fault, ABOX_E_GONE, 0, "guest", "it ended before it was ready");
		r = take_early(keeper, &message, fault);
		guest_message_close_fds(&message);
		if (r != 0)
			return r < 0 ? r : 0;
	}
}

/* Counters of a kernel that is not ours: what it says of itself is believed as far as a cause goes. */
static void take_struck(struct command *command, struct guest_message *message)
{
	uint64_t n_oom = unpack_u64(&message->body), n_denied = unpack_u64(&message->body);

	if (!unpack_done(&message->body))
		return;
	command->behind_oom_kills = n_oom;
	command->behind_forks_denied = n_denied;
}

static void take_exited(struct command *command, struct guest_message *message)
{
	int status = unpack_i32(&message->body);
	uint64_t cpu_usec = unpack_u64(&message->body), rss = unpack_u64(&message->body);
	uint32_t survivors = unpack_u32(&message->body);

	if (unpack_done(&message->body))
		command_exited(command, status, cpu_usec, rss, survivors);
}

static void take_gone(struct command *command, struct guest_message *message)
{
	uint32_t n_killed = unpack_u32(&message->body);
	uint64_t cpu_usec = unpack_u64(&message->body), rss = unpack_u64(&message->body);

	if (unpack_done(&message->body))
		command_tree_gone(command, n_killed, cpu_usec, rss);
}

static void take_spawned(struct command *command, struct guest_message *message)
{
	uint32_t pid = unpack_u32(&message->body);
	int master_fd = message->n_fds ? message->fds[0] : -EBADF;

	if (!unpack_done(&message->body) || command->state != COMMAND_STARTING)
		return;
	if (message->n_fds)
		message->fds[0] = -EBADF;
	command_spawned(command, (pid_t)pid, master_fd);
}

static void take_message(struct keeper *keeper, struct guest_message *message)
{
	struct command *command = message->command ? command_find(keeper, message->command) : NULL;
	struct fault fault;

	if (message->type >= GUEST_LISTENERS && message->type <= GUEST_SOCKET_MADE) {
		fault_init(&fault, ABOX_STAGE_COMMAND);
		network_take(keeper, message, &fault);
	} else if (message->type == GUEST_LOG) {
		take_log(keeper, message);
	} else if (message->type == GUEST_FAULT) {
		fault_init(&keeper->guest_fault, ABOX_STAGE_COMMAND);
		take_fault(message, &keeper->guest_fault);
		keeper_log(keeper, ABOX_LOG_ERROR, "guest: %s", keeper->guest_fault.message);
	} else if (!command || command->state == COMMAND_ENDED) {
		return;
	} else if (message->type == GUEST_SPAWNED) {
		take_spawned(command, message);
	} else if (message->type == GUEST_SPAWN_FAULT && command->state == COMMAND_STARTING) {
		fault_init(&fault, ABOX_STAGE_COMMAND);
		take_fault(message, &fault);
		command_refused(command, &fault);
	} else if (message->type == GUEST_STRUCK) {
		take_struck(command, message);
	} else if (message->type == GUEST_EXITED) {
		take_exited(command, message);
	} else if (message->type == GUEST_TREE_GONE) {
		take_gone(command, message);
	}
}

static void wall_lost(struct keeper *keeper)
{
	if (keeper->stop_phase != STOP_NONE)
		return;
	for (struct command *command = keeper->commands; command; command = command->next)
		command_lost(command, ABOX_CAUSE_WALL_LOST);
	stop_begin(keeper, ABOX_STOP_FAILURE, ABOX_CAUSE_WALL_LOST, 0);
}

void link_ready(struct keeper *keeper, struct io *io, uint32_t events)
{
	/* an end comes in several messages; a guest that never stops sending waits for its next turn */
	for (int i = 0; i < MESSAGES_A_TURN && io->events; i++) {
		struct guest_message message;
		int r = guest_message_recv(io->fd, packet, &message);

		if (r == -EAGAIN)
			return;
		if (r <= 0) {
			keeper_watch(keeper, io, 0);
			wall_lost(keeper);
			return;
		}
		take_message(keeper, &message);
		guest_message_close_fds(&message);
	}
}

/* PID 1 has ended. What it said last is still in the channel and comes first. */
void link_wall_ready(struct keeper *keeper, struct io *io, uint32_t events)
{
	keeper_watch(keeper, io, 0);
	while (keeper->guest.events) {
		struct guest_message message;

		if (guest_message_recv(keeper->guest.fd, packet, &message) <= 0)
			break;
		take_message(keeper, &message);
		guest_message_close_fds(&message);
	}
	wall_lost(keeper);
}

int link_signal(struct keeper *keeper, uint32_t command, int signal, uint32_t scope)
{
	uint8_t buffer[32];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));

	guest_message_begin(&writer, GUEST_SIGNAL, command);
	pack_i32(&writer, signal);
	pack_u32(&writer, scope);
	return guest_message_send(keeper->guest.fd, &writer, NULL, 0);
}

int link_tty_size(struct keeper *keeper, uint32_t command, uint32_t rows, uint32_t columns)
{
	uint8_t buffer[32];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));

	guest_message_begin(&writer, GUEST_TTY_SIZE, command);
	pack_u32(&writer, rows);
	pack_u32(&writer, columns);
	return guest_message_send(keeper->guest.fd, &writer, NULL, 0);
}

int link_tty_signal(struct keeper *keeper, uint32_t command, int signal)
{
	uint8_t buffer[32];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));

	guest_message_begin(&writer, GUEST_TTY_SIGNAL, command);
	pack_i32(&writer, signal);
	return guest_message_send(keeper->guest.fd, &writer, NULL, 0);
}

int link_signal_all(struct keeper *keeper, int signal)
{
	uint8_t buffer[32];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));

	guest_message_begin(&writer, GUEST_SIGNAL_ALL, 0);
	pack_i32(&writer, signal);
	return guest_message_send(keeper->guest.fd, &writer, NULL, 0);
}
