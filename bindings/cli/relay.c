/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Relays: threads that move bytes between a command's spool and our descriptors. Each has a connection to the box
 * of its own, because a handle serves one thread and a read of the spool waits. A relay that still waits when the
 * program ends is left behind with it; nothing in the box depends on it.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "console.h"
#include "terminal.h"

#define DETACH_KEY 0x1d		/* Ctrl-] */
#define PIECE 61440

struct relay {
	pthread_t thread;
	char sandbox[64];
	char command[16];
	int stream;
	uint64_t cursor;
	int fd;
	bool follow;
	bool safe;
	bool detachable;
	int done_fd;
	atomic_int write_errno;
	atomic_int code;
	atomic_bool detach_asked;
};

static int write_out(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EAGAIN) {
			struct pollfd p = { .fd = fd, .events = POLLOUT };

			poll(&p, 1, -1);
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

/* With safe, a character that a piece has cut is kept until the next one comes. Returns bytes taken or -errno. */
static ssize_t put_piece(const struct relay *relay, const char *data, size_t len, bool last)
{
	size_t taken = len;
	char *text = NULL;
	int r;

	if (!relay->safe) {
		r = write_out(relay->fd, data, len);
		return r < 0 ? r : (ssize_t)len;
	}
	if (abox_text_safe(data, len, last, &text, &taken) < 0)
		return -ENOMEM;
	r = write_out(relay->fd, text, strlen(text));
	abox_free(text);
	return r < 0 ? r : (ssize_t)taken;
}

static void say_gap(const struct relay *relay, uint64_t lost)
{
	say("%llu bytes of %s are gone: more than the output limit was written", (unsigned long long)lost,
	    relay->stream == 1 ? "stdout" : "stderr");
}

static int copy_spool(struct relay *relay, abox_command *command)
{
	char *buffer = malloc(PIECE);
	size_t held = 0;
	int r = buffer ? 1 : ABOX_E_MEMORY;

	while (r > 0) {
		struct abox_output output = { .size = sizeof(output) };
		ssize_t taken;

		r = abox_command_read(command, relay->stream, relay->cursor, buffer + held, PIECE - held, &output,
				      relay->follow ? ABOX_FOREVER : 0, NULL);
		if (r <= 0)
			break;
		if (output.gap)
			say_gap(relay, output.cursor - relay->cursor);
		relay->cursor = output.next_cursor;
		held += output.len;
		taken = put_piece(relay, buffer, held, output.end || held == PIECE);
		if (taken < 0) {
			relay->write_errno = (int)-taken;
			break;
		}
		held -= (size_t)taken;
		memmove(buffer, buffer + taken, held);
		if (output.end)
			break;
	}
	if (held > 0 && !relay->write_errno)
		put_piece(relay, buffer, held, true);
	free(buffer);
	return r < 0 ? r : 0;
}

static void *output_main(void *argument)
{
	struct relay *relay = argument;
	_cleanup_(abox_sandbox_unrefp) abox_sandbox *box = NULL;
	_cleanup_(abox_command_unrefp) abox_command *command = NULL;
	int r;

	r = abox_sandbox_open(relay->sandbox, ABOX_OPEN_READ, &box, NULL);
	if (r >= 0)
		r = abox_command_open(box, relay->command, &command, NULL);
	if (r >= 0)
		r = copy_spool(relay, command);
	relay->code = r;
	(void)!write(relay->done_fd, &(uint64_t){ 1 }, 8);
	return NULL;
}

/* Returns bytes read, 0 at the end, or -1 when there is nothing now. */
static ssize_t read_input(const struct relay *relay, char *buffer, size_t len)
{
	struct pollfd p = { .fd = relay->fd, .events = POLLIN };

	/* A terminal in whose background we are is looked at again each second: reading it would stop us. */
	if (isatty(relay->fd) && !terminal_is_ours(relay->fd)) {
		poll(NULL, 0, 1000);
		return -1;
	}
	if (poll(&p, 1, 1000) <= 0)
		return -1;
	if (isatty(relay->fd) && !terminal_is_ours(relay->fd))
		return -1;
	for (;;) {
		ssize_t n = read(relay->fd, buffer, len);

		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			return -1;
		return n < 0 ? 0 : n;
	}
}

static int copy_input(struct relay *relay, abox_command *command)
{
	char buffer[4096];

	for (;;) {
		ssize_t n = read_input(relay, buffer, sizeof(buffer));
		const char *key;
		int r;

		if (n < 0)
			continue;
		if (n == 0)
			return abox_command_close_stdin(command, NULL);
		key = relay->detachable ? memchr(buffer, DETACH_KEY, (size_t)n) : NULL;
		r = abox_command_write(command, buffer, key ? (size_t)(key - buffer) : (size_t)n, NULL);
		if (key) {
			relay->detach_asked = true;
			return 0;
		}
		if (r < 0)
			return r;
	}
}

static void *input_main(void *argument)
{
	struct relay *relay = argument;
	_cleanup_(abox_sandbox_unrefp) abox_sandbox *box = NULL;
	_cleanup_(abox_command_unrefp) abox_command *command = NULL;
	int r;

	r = abox_sandbox_open(relay->sandbox, ABOX_OPEN_ATTACH, &box, NULL);
	if (r >= 0)
		r = abox_command_open(box, relay->command, &command, NULL);
	if (r >= 0)
		r = copy_input(relay, command);
	relay->code = r;
	(void)!write(relay->done_fd, &(uint64_t){ 1 }, 8);
	return NULL;
}

static int relay_start(const char *sandbox, uint32_t command, int fd, void *(*function)(void *), struct relay *relay,
	struct relay **ret)
{
	if (!relay)
		return ABOX_E_MEMORY;
	snprintf(relay->sandbox, sizeof(relay->sandbox), "%s", sandbox);
	snprintf(relay->command, sizeof(relay->command), "%u", command);
	relay->fd = fd;
	relay->done_fd = eventfd(0, EFD_CLOEXEC);
	if (relay->done_fd < 0 || pthread_create(&relay->thread, NULL, function, relay) != 0) {
		if (relay->done_fd >= 0)
			close(relay->done_fd);
		free(relay);
		return ABOX_E_SYSTEM;
	}
	*ret = relay;
	return 0;
}

int relay_output_start(const char *sandbox, uint32_t command, int stream, uint64_t cursor, int fd, bool follow, bool safe,
	struct relay **ret)
{
	struct relay *relay = calloc(1, sizeof(*relay));

	if (relay) {
		relay->stream = stream;
		relay->cursor = cursor;
		relay->follow = follow;
		relay->safe = safe;
	}
	return relay_start(sandbox, command, fd, output_main, relay, ret);
}

int relay_input_start(const char *sandbox, uint32_t command, int fd, bool detachable, struct relay **ret)
{
	struct relay *relay = calloc(1, sizeof(*relay));

	if (relay)
		relay->detachable = detachable;
	return relay_start(sandbox, command, fd, input_main, relay, ret);
}

int relay_get_fd(const struct relay *relay)
{
	return relay->done_fd;
}

bool relay_wait(struct relay *relay, int timeout_msec)
{
	struct pollfd p = { .fd = relay->done_fd, .events = POLLIN };

	return poll(&p, 1, timeout_msec) > 0;
}

int relay_get_errno(const struct relay *relay)
{
	return relay->write_errno;
}

int relay_get_code(const struct relay *relay)
{
	return relay->code;
}

bool relay_detach_asked(const struct relay *relay)
{
	return relay->detach_asked;
}

struct relay *relay_forget(struct relay *relay)
{
	if (relay && relay_wait(relay, 0)) {
		pthread_join(relay->thread, NULL);
		close(relay->done_fd);
		free(relay);
	}
	return NULL;
}
