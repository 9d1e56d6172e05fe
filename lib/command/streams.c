/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Streams between a command and this process. The box never gets a descriptor of the caller unless the caller
 * asks for just that: output comes through pipes of ours, input goes through a pipe or a sealed memory file.
 * Nothing here waits.
 */
#include "command/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memfd.h"

#define PIPE_BYTES (1 << 20)
#define CHUNK_BYTES 65536
#define MOVES_AT_ONCE 64 /* so that one loud stream cannot keep the others and the end from being seen */

/*
 * Programs open /dev/stdin and /dev/stdout by name, as another uid than the one that made the pipe; the way
 * to it through /proc/PID/fd is guarded by itself.
 */
static int make_pipe(int ret[2])
{
	if (pipe2(ret, O_CLOEXEC) < 0)
		return -errno;
	fchmod(ret[0], 0666);
	fcntl(ret[0], F_SETPIPE_SZ,
		PIPE_BYTES); /* refused when the user holds many: a smaller pipe works too */
	return 0;
}

static int set_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

static int system_error(abox_error **reterr, int r, const char *what)
{
	return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_COMMAND, what, -r, "cannot make the stream");
}

static int invalid(abox_error **reterr, const char *what, const char *why)
{
	return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_COMMAND, what, "%s", why);
}

static int open_output(
	struct streams *streams, int i, int mode, int fd, struct stream_ends *ends, abox_error **reterr)
{
	static const char *const names[] = { "stdout_mode", "stderr_mode" };
	struct output_stream *out = &streams->out[i];
	struct stat st;
	int pair[2], r;

	out->mode = mode;
	if (mode == ABOX_STREAM_NULL || mode == ABOX_STREAM_SPOOL)
		return 0;
	if ((mode == ABOX_STREAM_FD || mode == ABOX_STREAM_COPY) && fcntl(fd, F_GETFD) < 0)
		return invalid(reterr, names[i], "the descriptor is not open");
	if (mode == ABOX_STREAM_FD) {
		ends->fds[i + 1] = fd;
		return 0;
	}
	if (mode != ABOX_STREAM_CAPTURE && mode != ABOX_STREAM_COPY)
		return invalid(reterr, names[i], "unknown mode");
	r = make_pipe(pair);
	if (r < 0)
		return system_error(reterr, r, names[i]);
	out->fd = pair[0];
	ends->fds[i + 1] = pair[1];
	ends->owned[i + 1] = true;
	if (mode == ABOX_STREAM_COPY && (out->target_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0)
		return system_error(reterr, -errno, names[i]);
	out->can_splice = mode == ABOX_STREAM_COPY && !streams->on_output && fstat(fd, &st) == 0 &&
		(S_ISFIFO(st.st_mode) || (S_ISREG(st.st_mode) && !(fcntl(fd, F_GETFL) & O_APPEND)));
	r = set_nonblocking(out->fd);
	return r < 0 ? system_error(reterr, r, names[i]) : 0;
}

static int open_input(struct streams *streams, const struct abox_command_options *options,
	struct stream_ends *ends, abox_error **reterr)
{
	int pair[2], r;

	switch (options->stdin_mode) {
	case ABOX_STDIN_EMPTY:
	case ABOX_STDIN_STREAM:
		return 0;
	case ABOX_STDIN_BYTES:
		if (options->stdin_len && !options->stdin_data)
			return invalid(reterr, "stdin_data", "a length without data");
		r = memfd_new_sealed("stdin", options->stdin_data ? options->stdin_data : "",
			options->stdin_len, 0444, &ends->fds[0]);
		if (r < 0)
			return system_error(reterr, r, "stdin_data");
		ends->owned[0] = true;
		streams->in.bytes_fd = fcntl(ends->fds[0], F_DUPFD_CLOEXEC, 0);
		return 0;
	case ABOX_STDIN_FD:
		if (fcntl(options->stdin_fd, F_GETFD) < 0)
			return invalid(reterr, "stdin_fd", "the descriptor is not open");
		ends->fds[0] = options->stdin_fd;
		return 0;
	case ABOX_STDIN_COPY:
		if (fcntl(options->stdin_fd, F_GETFD) < 0)
			return invalid(reterr, "stdin_fd", "the descriptor is not open");
		r = make_pipe(pair);
		if (r < 0)
			return system_error(reterr, r, "stdin");
		ends->fds[0] = pair[0];
		ends->owned[0] = true;
		streams->in.fd = pair[1];
		streams->in.source_fd = fcntl(options->stdin_fd, F_DUPFD_CLOEXEC, 0);
		streams->in.source_polls = true;
		r = streams->in.source_fd < 0 ? -errno : set_nonblocking(pair[1]);
		return r < 0 ? system_error(reterr, r, "stdin") : 0;
	default:
		return invalid(reterr, "stdin_mode", "unknown mode");
	}
}

/* Captured output is always bounded; copied output only where a limit was asked for. */
static uint64_t limit_of(
	int mode, const struct abox_command_options *options, uint64_t output_bytes, bool output_written)
{
	if (options->output_bytes)
		return options->output_bytes;
	if (mode == ABOX_STREAM_CAPTURE || output_written)
		return output_bytes ? output_bytes : UINT64_MAX;
	return UINT64_MAX;
}

void streams_init(struct streams *streams)
{
	*streams = (struct streams){ 0 };
	for (int i = 0; i < 2; i++)
		streams->out[i] =
			(struct output_stream){ .fd = -EBADF, .target_fd = -EBADF, .watch.fd = -EBADF };
	streams->in.fd = streams->in.source_fd = streams->in.bytes_fd = streams->in.watch.fd = -EBADF;
}

int streams_open(struct streams *streams, const struct abox_command_options *options, uint64_t output_bytes,
	bool output_written, struct stream_ends *ends, abox_error **reterr)
{
	int modes[2] = { options->stdout_mode, options->stderr_mode },
	    fds[2] = { options->stdout_fd, options->stderr_fd };
	int r = 0;

	*ends = (struct stream_ends){ .fds = { -EBADF, -EBADF, -EBADF } };
	streams->on_output = options->on_output;
	streams->userdata = options->on_output_userdata;
	if (options->pty)
		return 0;	/* a terminal is the keeper's */
	for (int i = 0; i < 2 && r == 0; i++) {
		if (i == 1 && options->stderr_to_stdout)
			continue;
		if (modes[i] == ABOX_STREAM_FD && output_written)
			r = error_remedy(reterr,
				error_set(reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_COMMAND,
					i ? "stderr_mode" : "stdout_mode",
					"output through a descriptor of the caller cannot be limited, and the spec limits output"),
				"use ABOX_STREAM_COPY");
		else
			r = open_output(streams, i, modes[i], fds[i], ends, reterr);
		streams->out[i].limit_bytes = limit_of(modes[i], options, output_bytes, output_written);
	}
	return r < 0 ? r : open_input(streams, options, ends, reterr);
}

void stream_ends_close(struct stream_ends *ends)
{
	for (size_t i = 0; i < ELEMENTSOF(ends->fds); i++)
		if (ends->owned[i])
			ends->fds[i] = fd_close(ends->fds[i]);
}

void streams_close(struct streams *streams)
{
	for (int i = 0; i < 2; i++) {
		streams->out[i].fd = fd_close(streams->out[i].fd);
		streams->out[i].target_fd = fd_close(streams->out[i].target_fd);
		text_clear(&streams->out[i].kept);
	}
	streams->in.fd = fd_close(streams->in.fd);
	streams->in.source_fd = fd_close(streams->in.source_fd);
	streams->in.bytes_fd = fd_close(streams->in.bytes_fd);
}

/* A closed descriptor left the epoll set by itself; its number must be forgotten before it is used again. */
static int watch_set(int epoll_fd, struct watch *watch, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events };

	if (watch->fd == fd && watch->events == events)
		return 0;
	if (watch->fd >= 0)
		epoll_ctl(epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
	watch->fd = -EBADF;
	if (fd < 0)
		return 0;
	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
		return -errno;
	*watch = (struct watch){ fd, events };
	return 0;
}

static int watch_input(struct input_stream *in, int epoll_fd)
{
	int r;

	if (in->fd < 0)
		return watch_set(epoll_fd, &in->watch, -EBADF, 0);
	if (in->pending_len > 0 || !in->source_polls)
		return watch_set(epoll_fd, &in->watch, in->fd, EPOLLOUT);
	r = watch_set(epoll_fd, &in->watch, in->source_fd, EPOLLIN);
	if (r != -EPERM)
		return r;
	in->source_polls = false;
	return watch_set(epoll_fd, &in->watch, in->fd, EPOLLOUT);
}

int streams_watch(struct streams *streams, int epoll_fd)
{
	int r;

	for (int i = 0; i < 2; i++) {
		struct output_stream *out = &streams->out[i];

		if (out->target_full && out->fd >= 0)
			r = watch_set(epoll_fd, &out->watch, out->target_fd, EPOLLOUT);
		else
			r = watch_set(epoll_fd, &out->watch, out->fd, EPOLLIN);
		if (r < 0)
			return r;
	}
	return watch_input(&streams->in, epoll_fd);
}

static bool target_ready(int fd)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLOUT };

	return poll(&poll_fd, 1, 0) == 1;
}

/* A target that nobody reads any more costs the command nothing, nor the host a SIGPIPE (splice(2) sends it
 * as well). */
struct pipe_guard {
	sigset_t old;
	bool was_pending;
};

static void pipe_guard_begin(struct pipe_guard *guard)
{
	sigset_t set, pending;

	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &set, &guard->old);
	sigpending(&pending);
	guard->was_pending = sigismember(&pending, SIGPIPE);
}

static void pipe_guard_end(const struct pipe_guard *guard, ssize_t n)
{
	struct timespec none = { 0 };
	int saved = errno;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	if (n < 0 && saved == EPIPE && !guard->was_pending)
		sigtimedwait(&set, NULL, &none);
	pthread_sigmask(SIG_SETMASK, &guard->old, NULL);
	errno = saved;
}

static ssize_t write_target(int fd, const void *data, size_t len)
{
	struct pipe_guard guard;
	ssize_t n;

	pipe_guard_begin(&guard);
	n = write(fd, data, len);
	pipe_guard_end(&guard, n);
	return n;
}

static ssize_t splice_target(int from_fd, int fd, size_t len)
{
	struct pipe_guard guard;
	ssize_t n;

	pipe_guard_begin(&guard);
	n = splice(from_fd, NULL, fd, NULL, len, SPLICE_F_NONBLOCK);
	pipe_guard_end(&guard, n);
	return n;
}

/* The part of a piece that is within the limit; the count goes on behind it. */
static size_t within_limit(struct output_stream *out, size_t n, bool *retreached)
{
	uint64_t room = out->total_bytes < out->limit_bytes ? out->limit_bytes - out->total_bytes : 0;

	*retreached = out->total_bytes <= out->limit_bytes && out->total_bytes + n > out->limit_bytes;
	out->total_bytes += n;
	return n > room ? (size_t)room : n;
}

static int deliver(struct streams *streams, int i, const char *data, size_t len, bool *retstop)
{
	struct output_stream *out = &streams->out[i];

	if (len == 0)
		return 0;
	if (streams->on_output && streams->on_output(i + 1, data, len, streams->userdata) != 0)
		*retstop = true;
	if (out->mode != ABOX_STREAM_COPY || out->target_broken)
		return 0;
	while (len > 0) {
		ssize_t n = write_target(out->target_fd, data, len);

		if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
			struct pollfd poll_fd = { .fd = out->target_fd, .events = POLLOUT };

			poll(&poll_fd, 1, -1);	/* only the rest of one chunk, whose beginning was taken */
			continue;
		}
		if (n < 0) {
			out->target_broken = true;
			*retstop = true;
			return 0;
		}
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

/* 1 moved something, 0 nothing to do now, negative on failure. */
static int splice_output(struct output_stream *out)
{
	uint64_t room = out->limit_bytes - MIN(out->limit_bytes, out->total_bytes);
	ssize_t n;

	if (!out->can_splice || out->target_broken || room == 0)
		return -EINVAL;
	n = splice_target(out->fd, out->target_fd, room < PIPE_BYTES ? (size_t)room : PIPE_BYTES);
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n < 0)
		return -EINVAL;	/* whatever it is, write(2) will tell */
	if (n == 0)
		out->fd = fd_close(out->fd);
	out->total_bytes += (uint64_t)n;
	return n > 0;
}

static int move_output(struct streams *streams, int i, bool *retstop, int *retlimit)
{
	struct output_stream *out = &streams->out[i];
	char chunk[CHUNK_BYTES], *data = chunk;
	size_t want = sizeof(chunk), len;
	bool reached;
	ssize_t n;
	int r;

	out->target_full =
		out->mode == ABOX_STREAM_COPY && !out->target_broken && !target_ready(out->target_fd);
	if (out->target_full)
		return 0;
	r = splice_output(out);
	if (r >= 0)
		return r;
	if (out->mode == ABOX_STREAM_COPY)
		want = PIPE_BUF;	/* a target that is ready takes so much without making us wait */
	if (out->mode == ABOX_STREAM_CAPTURE && out->kept.len >= CHUNK_BYTES) {
		/* much comes: straight to where it stays, and more at once, since each read that makes room wakes the writer */
		want = MIN(out->kept.len, (size_t)PIPE_BYTES);
		data = text_room(&out->kept, want);
		if (!data)
			return ABOX_E_MEMORY;
	}
	n = read(out->fd, data, want);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0) {
		out->fd = fd_close(out->fd);
		return 0;
	}
	len = within_limit(out, (size_t)n, &reached);
	if (reached)
		*retlimit = i + 1;
	if (data != chunk)
		text_grow(&out->kept, len);
	else if (out->mode == ABOX_STREAM_CAPTURE)
		text_add_bytes(&out->kept, data, len);
	if (out->kept.failed)
		return ABOX_E_MEMORY;
	r = deliver(streams, i, data, len, retstop);
	return r < 0 ? r : 1;
}

static void close_input(struct input_stream *in)
{
	in->fd = fd_close(in->fd);
}

static int move_input(struct input_stream *in)
{
	struct pollfd source = { .fd = in->source_fd, .events = POLLIN };
	ssize_t n;

	if (in->pending_len == 0) {
		if (poll(&source, 1, 0) != 1)
			return 0;
		n = read(in->source_fd, in->pending, sizeof(in->pending));
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return 0;
		if (n <= 0) {
			close_input(in);
			return 0;
		}
		in->pending_len = (size_t)n;
		in->pending_offset = 0;
	}
	n = write_target(in->fd, in->pending + in->pending_offset, in->pending_len);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n < 0) {
		close_input(in);	/* the command does not read: its affair */
		return 0;
	}
	in->pending_offset += (size_t)n;
	in->pending_len -= (size_t)n;
	return 1;
}

int streams_move(struct streams *streams, bool *retstop, int *retlimit)
{
	int r, moved;

	*retstop = false;
	*retlimit = 0;
	for (int round = 0; round < MOVES_AT_ONCE; round++) {
		moved = 0;
		for (int i = 0; i < 2; i++) {
			if (streams->out[i].fd < 0)
				continue;
			r = move_output(streams, i, retstop, retlimit);
			if (r < 0)
				return r;
			moved |= r;
		}
		if (streams->in.fd >= 0)
			moved |= move_input(&streams->in);
		if (!moved || *retstop || *retlimit)
			break;
	}
	return 0;
}

bool streams_open_output(const struct streams *streams)
{
	return streams->out[0].fd >= 0 || streams->out[1].fd >= 0;
}
