/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/fd.h"
#include "command/streams.h"

static struct streams streams;
static struct stream_ends ends;

static int open_streams(struct abox_command_options *options)
{
	streams_init(&streams);
	return streams_open(&streams, options, 1000, false, &ends, NULL);
}

static void move(bool *retstop, int *retlimit)
{
	cr_assert_eq(streams_move(&streams, retstop, retlimit), 0);
}

/* Captured output is kept up to the limit; what comes behind it is counted and dropped, and the limit told
 * once. */
Test(streams, captures_up_to_the_limit)
{
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT,
		.stdout_mode = ABOX_STREAM_CAPTURE };
	char data[800];
	bool stop;
	int limit;

	memset(data, 'x', sizeof(data));
	cr_assert_eq(open_streams(&options), 0);
	cr_assert_eq(fd_write_all(ends.fds[1], data, sizeof(data)), 0);
	move(&stop, &limit);
	cr_assert_eq(limit, 0);
	cr_assert_eq(fd_write_all(ends.fds[1], data, sizeof(data)), 0);
	move(&stop, &limit);
	cr_assert_eq(limit, 1);
	cr_assert_eq(fd_write_all(ends.fds[1], data, sizeof(data)), 0);
	stream_ends_close(&ends);
	move(&stop, &limit);
	cr_assert_eq(limit, 0);
	cr_assert_eq(streams.out[0].kept.len, 1000);
	cr_assert_eq(streams.out[0].total_bytes, 2400);
	cr_assert_not(streams_open_output(&streams));
	streams_close(&streams);
}

/* T4-2: while the target of a copy is full, the epoll set is quiet: nobody spins. It wakes when the target is
 * read. */
Test(streams, T4_2_full_target_does_not_spin)
{
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .stdout_mode = ABOX_STREAM_COPY };
	int target[2], epoll_fd = epoll_create1(EPOLL_CLOEXEC), limit;
	_cleanup_(freep) char *buffer = malloc(1 << 20);
	struct epoll_event event;
	bool stop;

	cr_assert_eq(pipe2(target, O_CLOEXEC), 0);
	fcntl(target[1], F_SETPIPE_SZ, 4096);
	options.stdout_fd = target[1];
	cr_assert_eq(open_streams(&options), 0);
	memset(buffer, 'y', 1 << 20);
	fcntl(ends.fds[1], F_SETFL, O_WRONLY | O_NONBLOCK);
	while (write(ends.fds[1], buffer, 4096) > 0)
		;
	for (int i = 0; i < 8; i++)
		move(&stop, &limit);
	cr_assert_eq(streams_watch(&streams, epoll_fd), 0);
	cr_assert_eq(epoll_wait(epoll_fd, &event, 1, 0), 0, "ready although nothing can move");
	cr_assert_gt(read(target[0], buffer, 1 << 20), 0);
	cr_assert_eq(epoll_wait(epoll_fd, &event, 1, 1000), 1);
	stream_ends_close(&ends);
	streams_close(&streams);
	close(target[0]);
	close(target[1]);
	close(epoll_fd);
}

/* A target that nobody reads stops the command and raises no signal here. */
Test(streams, broken_target_is_told)
{
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .stdout_mode = ABOX_STREAM_COPY };
	int target[2], limit;
	bool stop;

	cr_assert_eq(pipe2(target, O_CLOEXEC), 0);
	options.stdout_fd = target[1];
	cr_assert_eq(open_streams(&options), 0);
	close(target[0]);
	cr_assert_eq(fd_write_all(ends.fds[1], "z", 1), 0);
	move(&stop, &limit);
	cr_assert(stop);
	stream_ends_close(&ends);
	streams_close(&streams);
	close(target[1]);
}

/* Descriptors of the caller are only ever used as such when asked for, and must be open. */
Test(streams, refuses_closed_descriptors)
{
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .stdout_mode = ABOX_STREAM_FD,
		.stdout_fd = 900 };

	cr_assert_eq(open_streams(&options), ABOX_E_INVALID);
	options.stdout_mode = 77;
	cr_assert_eq(open_streams(&options), ABOX_E_INVALID);
	options.stdout_mode = ABOX_STREAM_NULL;
	options.stdin_mode = ABOX_STDIN_COPY;
	options.stdin_fd = 900;
	cr_assert_eq(open_streams(&options), ABOX_E_INVALID);
}

/* Input in memory is a sealed file: any size, no pump, and its offset tells what was read. */
Test(streams, bytes_are_a_file)
{
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .stdin_mode = ABOX_STDIN_BYTES,
		.stdin_data = "hello", .stdin_len = 5 };
	char data[8] = { 0 };

	cr_assert_eq(open_streams(&options), 0);
	cr_assert_eq(read(ends.fds[0], data, 3), 3);
	cr_assert_eq(lseek(streams.in.bytes_fd, 0, SEEK_CUR), 3);
	cr_assert_lt(write(ends.fds[0], "x", 1), 0, "sealed input could be written");
	stream_ends_close(&ends);
	streams_close(&streams);
}
