/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The ends of a command's streams that this process holds: captured and copied output, copied or given input.
 */
#ifndef COMMAND_STREAMS_H
#define COMMAND_STREAMS_H

#include <agentbox/command.h>

#include "base/error.h"
#include "base/strings.h"

/* What an end is waited for: descriptors change sides, so that one that cannot move on never keeps a wait
 * awake. */
struct watch {
	int fd;			/* in the epoll set now; -EBADF for none */
	uint32_t events;
};

struct output_stream {
	int mode;		/* enum abox_stream */
	int fd; /* our end of the pipe, non-blocking; -EBADF when there is none, or it has ended */
	int target_fd;		/* COPY: a copy of the caller's descriptor */
	bool target_full;	/* waits for the target, not for the command */
	struct watch watch;
	uint64_t limit_bytes;	/* UINT64_MAX: none */
	uint64_t total_bytes;
	struct text kept;	/* CAPTURE */
	bool can_splice;
	bool target_broken;	/* nobody reads it any more: the rest is dropped */
};

struct input_stream {
	int fd;			/* our end, non-blocking; -EBADF */
	int source_fd;		/* a copy of the caller's descriptor */
	bool source_polls;	/* false for regular files, which epoll refuses: always ready */
	struct watch watch;
	int bytes_fd;		/* the memory file of ABOX_STDIN_BYTES, whose offset tells what was read */
	char pending[4096];
	size_t pending_len, pending_offset;
};

struct streams {
	struct output_stream out[2];
	struct input_stream in;
	abox_output_fn on_output;
	void *userdata;
};
/* What a stream of the command gets: fds[0..2] for stdin, stdout, stderr, -EBADF where the box provides it
 * itself. */
struct stream_ends {
	int fds[3];
	bool owned[3];
};
void streams_init(struct streams *streams);
int streams_open(struct streams *streams, const struct abox_command_options *options, uint64_t output_bytes,
	bool output_written, struct stream_ends *ends, abox_error **reterr);
void stream_ends_close(struct stream_ends *ends);
void streams_close(struct streams *streams);

/* Brings the epoll set up to what each end waits for now. Called after the start and after each move. */
int streams_watch(struct streams *streams, int epoll_fd);
/* Moves what can be moved without waiting. *retstop: the callback wants the command to end; *retlimit: stream
 * (1, 2) that has just reached its limit, else 0. */
int streams_move(struct streams *streams, bool *retstop, int *retlimit);
/* True while an output end of ours is open. */
bool streams_open_output(const struct streams *streams);
#endif
