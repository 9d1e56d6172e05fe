/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Streams that the keeper carries: output into spools, input out of requests, and the terminal, which is
 * both. Promises exact bytes, a bound on what is kept (the rest is counted and dropped), and that a reader
 * who comes back goes on where it was.
 */
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <agentbox/command.h>
#include <agentbox/error.h>

#include "base/clock.h"
#include "base/fd.h"
#include "kernel/compat.h"

#define CHUNK 65536
#define TURN_CHUNKS 8		/* how much of one stream is taken before others get their turn */
#define VEOF_BYTE 4
#define BUDGET_BYTES (256U << 20)	/* of all spools of a box together */

static uint8_t chunk[CHUNK];

static int open_spool_file(struct command *command, int stream)
{
	char name[32];

	if (!command->keeper->plan.detach)
		return sys_memfd_create("spool", MFD_CLOEXEC);
	snprintf(name, sizeof(name), "%u.%s", command->id, stream == 0 ? "out" : "err");
	return openat(command->keeper->box_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

/* Room for what came: where the budget is used up, the oldest command that has ended gives up what it wrote.
 */
static size_t make_room(struct keeper *keeper, size_t len)
{
	while (keeper->spooled_bytes + len > BUDGET_BYTES) {
		struct command *oldest = NULL;

		for (struct command *command = keeper->commands; command; command = command->next) {
			if (command->state == COMMAND_ENDED &&
				command->spools[0].kept + command->spools[1].kept > 0)
				oldest = command;
		}
		if (!oldest)
			return BUDGET_BYTES - MIN(BUDGET_BYTES, keeper->spooled_bytes);
		for (int i = 0; i < 2; i++) {
			struct spool *spool = &oldest->spools[i];

			if (spool->fd >= 0 && ftruncate(spool->fd, 0) < 0)
				return 0;
			keeper->spooled_bytes -= spool->kept;
			spool->kept = spool->cap = 0;
		}
	}
	return len;
}

static void keep(struct command *command, struct spool *spool, size_t len)
{
	size_t room = make_room(command->keeper, MIN((uint64_t)len, spool->cap - spool->kept));

	spool->total += len;
	if (!room)
		return;
	if (fd_pwrite_all(spool->fd, chunk, room, spool->kept) < 0) {
		spool->cap = spool->kept;	/* no room: from here on the bytes are counted only */
		return;
	}
	spool->kept += room;
	command->keeper->spooled_bytes += room;
	if (room < len)
		spool->cap = spool->kept;	/* what comes later is not put behind a hole */
}

/* Takes what has come. true when the stream has ended. */
static bool take_output(struct command *command, int stream, size_t max_chunks)
{
	struct spool *spool = &command->spools[stream];

	for (size_t i = 0; i < max_chunks; i++) {
		ssize_t n = read(command->out[stream].fd, chunk, sizeof(chunk));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno != EAGAIN;	/* EIO: the last user of the terminal is gone */
		if (n == 0)
			return true;
		keep(command, spool, (size_t)n);
	}
	return false;
}

static void close_output(struct command *command, int stream)
{
	struct io *io = &command->out[stream];

	if (io->fd < 0)
		return;
	keeper_watch(command->keeper, io, 0);
	io->fd = fd_close(io->fd);
	command->spools[stream].open = false;
}

static void check_limit(struct command *command, int stream)
{
	const struct spool *spool = &command->spools[stream];

	if (spool->total > spool->kept && command->output_kill && !(command->struck & ABOX_LIMIT_OUTPUT)) {
		command->struck |= ABOX_LIMIT_OUTPUT;
		command_kill(command, ABOX_CAUSE_OUTPUT, ABOX_LIMIT_OUTPUT, command->grace_usec);
	}
}

static void output_ready(struct keeper *keeper, struct io *io, uint32_t events)
{
	struct command *command = io->owner;
	int stream = io == &command->out[1];
	bool ended;

	if (command->pty && (events & EPOLLOUT)) {
		pump_input(keeper, NULL, NULL);
		if (!(events & ~(uint32_t)EPOLLOUT))
			return;
	}
	ended = take_output(command, stream, TURN_CHUNKS);
	if (ended)
		close_output(command, stream);
	check_limit(command, stream);
	pump_answer_readers(command);
	if (ended)
		command_check(command, clock_monotonic_usec());
}

static int watch_output(struct command *command, int stream, int fd)
{
	command->out[stream] = (struct io){ .fd = fd, .ready = output_ready, .owner = command };
	command->spools[stream].open = true;
	return keeper_watch(command->keeper, &command->out[stream], EPOLLIN);
}

int pump_open_spool(struct command *command, int stream, int *retwrite_fd, struct fault *fault)
{
	struct spool *spool = &command->spools[stream];
	int pipe_fds[2], r;

	spool->fd = open_spool_file(command, stream);
	if (spool->fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "spool", "cannot be made");
	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "spool", "no pipe for it");
	r = fcntl(pipe_fds[0], F_SETFL, O_RDONLY | O_NONBLOCK) < 0
		    ? -errno
		    : watch_output(command, stream, pipe_fds[0]);
	if (r < 0) {
		fd_close(pipe_fds[0]);
		command->out[stream].fd = -EBADF;
		fd_close(pipe_fds[1]);
		return fault_set(fault, ABOX_E_SYSTEM, -r, "spool", "cannot be watched");
	}
	*retwrite_fd = pipe_fds[1];
	return 0;
}

/* -- terminal -- */

void pump_take_master(struct command *command, int master_fd)
{
	command->spools[0].fd = open_spool_file(command, 0);
	if (master_fd < 0 || command->spools[0].fd < 0 ||
		fcntl(master_fd, F_SETFL, O_RDWR | O_NONBLOCK) < 0 ||
		watch_output(command, 0, master_fd) < 0) {
		fd_close(master_fd);
		command->out[0].fd = -EBADF;
		command_kill(command, ABOX_CAUSE_CANCELED, 0, 0);
	}
}

/* -- input -- */

static int input_fd(const struct command *command)
{
	return command->pty ? command->out[0].fd : command->in.fd;
}

static void close_input(struct command *command)
{
	if (command->in.fd < 0)
		return;
	keeper_watch(command->keeper, &command->in, 0);
	command->in.fd = fd_close(command->in.fd);
}

static void input_ready(struct keeper *keeper, struct io *io, uint32_t events)
{
	if (events & EPOLLERR)	/* nobody reads it any more */
		close_input(io->owner);
	pump_input(keeper, NULL, NULL);
}

int pump_open_input(struct command *command, int *retread_fd, struct fault *fault)
{
	int pipe_fds[2];

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "stdin", "no pipe for it");
	command->in = (struct io){ .fd = pipe_fds[1], .ready = input_ready, .owner = command };
	*retread_fd = pipe_fds[0];
	if (fcntl(pipe_fds[1], F_SETFL, O_WRONLY | O_NONBLOCK) < 0) {
		fd_close(pipe_fds[0]);
		return fault_set(fault, ABOX_E_SYSTEM, errno, "stdin", "cannot be set up");
	}
	return 0;
}

/* While somebody waits to write, the loop watches for room. */
static void watch_input(struct command *command, bool waiting)
{
	struct keeper *keeper = command->keeper;

	if (command->pty && command->out[0].fd >= 0)
		keeper_watch(keeper, &command->out[0], waiting ? EPOLLIN | EPOLLOUT : EPOLLIN);
	else if (!command->pty && command->in.fd >= 0)
		keeper_watch(keeper, &command->in, waiting ? EPOLLOUT : 0);
}

/* Bytes taken, or -EAGAIN, or -EPIPE when the command takes no input any more. A terminal's end of input is
 * its EOF character. */
static ssize_t write_input(struct command *command, const struct waiter *waiter)
{
	static const uint8_t eof_byte = VEOF_BYTE;
	int fd = input_fd(command);
	ssize_t n = 0;

	if (fd < 0 || command->state >= COMMAND_EXITED)
		return -EPIPE;
	if (command->state == COMMAND_STARTING && command->pty)
		return -EAGAIN;
	if (waiter->len > 0) {
		n = write(fd, waiter->data, waiter->len); /* SIGPIPE is blocked for good in the keeper */
		if (n < 0)
			return errno == EAGAIN ? -EAGAIN : -EPIPE;
	}
	if (waiter->existing && (size_t)n == waiter->len) {
		if (!command->pty)
			close_input(command);
		else if (write(fd, &eof_byte, 1) < 0 && waiter->len == 0)
			return errno == EAGAIN ? -EAGAIN : -EPIPE;
	}
	return n;
}

/* false: it still waits. */
static bool try_input(struct keeper *keeper, struct client *client, struct waiter *waiter)
{
	struct command *command = command_find(keeper, waiter->command);
	uint8_t buffer[32];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));
	uint32_t serial = waiter->serial;
	ssize_t n = command ? write_input(command, waiter) : -EPIPE;

	if (n == -EAGAIN)
		return false;
	client_waiter_free(client, waiter);
	if (n < 0) {
		struct fault fault;

		fault_init(&fault, ABOX_STAGE_COMMAND);
		fault_set(&fault, ABOX_E_GONE, 0, "stdin", "the command takes no input any more");
		client_answer_fault(keeper, client, serial, &fault);
		return true;
	}
	client_begin(&writer, WIRE_OK, serial);
	pack_u32(&writer, (uint32_t)n);
	client_send(keeper, client, &writer);
	return true;
}

/* Gives input that waits a try: one waiter, or all of them when none is named. */
void pump_input(struct keeper *keeper, struct client *client, struct waiter *waiter)
{
	if (waiter) {
		struct command *command = command_find(keeper, waiter->command);

		if (!try_input(keeper, client, waiter))
			watch_input(command, true);
		return;
	}
	for (struct command *command = keeper->commands; command; command = command->next)
		watch_input(command, false);
	for (client = keeper->clients; client; client = client->next) {
		struct waiter *next;

		for (waiter = client->waiters; waiter; waiter = next) {
			struct command *command = command_find(keeper, waiter->command);

			next = waiter->next;
			if (waiter->type == WIRE_INPUT && !try_input(keeper, client, waiter))
				watch_input(command, true);
		}
	}
}

/* -- readers -- */

/* Answers when there is something to say: bytes, the end, or (timeout) that there is nothing. */
bool pump_answer_read(struct keeper *keeper, struct client *client, struct waiter *waiter,
	struct command *command, bool timeout)
{
	const struct spool *spool = &command->spools[waiter->stream - 1];
	uint64_t cursor = waiter->cursor, next = cursor;
	uint32_t serial = waiter->serial;
	bool gap = false, end = false;
	size_t len = 0;

	if (cursor < spool->kept) {
		ssize_t n = fd_pread_all(
			spool->fd, chunk, MIN((uint64_t)waiter->max, spool->kept - cursor), cursor);

		len = n > 0 ? (size_t)n : 0;
		next = cursor + len;
	}
	if (len == 0 && !spool->open) {
		/* behind what was kept come bytes that were dropped: their number is known, they are not */
		gap = cursor < spool->total;
		cursor = next = spool->total;
	}
	end = !spool->open && next >= spool->total;
	if (len == 0 && !end && !timeout)
		return false;
	client_waiter_free(client, waiter);
	{
		_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;

		client_begin(&writer, WIRE_OK, serial);
		pack_u64(&writer, cursor);
		pack_u64(&writer, next);
		pack_u64(&writer, spool->total);
		pack_u8(&writer, gap);
		pack_u8(&writer, end);
		pack_bytes(&writer, chunk, len);
		client_send(keeper, client, &writer);
	}
	return true;
}

void pump_answer_readers(struct command *command)
{
	struct keeper *keeper = command->keeper;

	for (struct client *client = keeper->clients; client; client = client->next) {
		struct waiter *waiter = client->waiters, *next;

		for (; waiter; waiter = next) {
			next = waiter->next;
			if (waiter->type == WIRE_READ && waiter->command == command->id)
				pump_answer_read(keeper, client, waiter, command, false);
		}
	}
}

/* -- end -- */

void pump_drain(struct command *command)
{
	for (int stream = 0; stream < 2; stream++) {
		/* a pipe holds 64 KiB, or 1 MiB when its owner made it larger */
		if (command->out[stream].fd >= 0 && take_output(command, stream, 32))
			close_output(command, stream);
		check_limit(command, stream);
	}
	pump_answer_readers(command);
}

bool pump_is_dry(const struct command *command)
{
	return command->out[0].fd < 0 && command->out[1].fd < 0;
}

void pump_close(struct command *command)
{
	close_input(command);
	for (int stream = 0; stream < 2; stream++)
		close_output(command, stream);
	pump_answer_readers(command);
}

void pump_forget(struct command *command)
{
	for (int stream = 0; stream < 2; stream++) {
		struct spool *spool = &command->spools[stream];

		spool->fd = fd_close(spool->fd);
		command->keeper->spooled_bytes -= spool->kept;
		spool->kept = spool->cap = 0;
	}
}
