/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef COMMAND_COMMAND_H
#define COMMAND_COMMAND_H

#include <stdatomic.h>

#include <agentbox/command.h>

#include "command/streams.h"
#include "sandbox/sandbox.h"

struct abox_command {
	atomic_uint n_refs;
	abox_sandbox *box;
	uint32_t id;
	int event_fd;		/* the keeper's word about this command; -EBADF after the last */
	int epoll_fd;
	struct streams streams;
	struct client reader,
		writer; /* connections for abox_command_read() and _write(), made when they are needed */
	bool has_reader, has_writer;
	bool spooled[2];
	bool stdin_stream;	/* ABOX_STDIN_STREAM or a terminal */
	uint64_t drain_until_usec;	/* after the end: so long the pipes may still be drained */
	abox_result *result;	/* set at the end, streams not yet in it until they are done */
	bool finished;
};

void command_unrefp(abox_command **command);

/* As abox_command_start(), with a sealed program that is executed instead of a file of the box (-EBADF:
 * none). */
int command_start_program(abox_sandbox *box, const struct abox_command_options *options, int program_fd,
	abox_command **retcommand, abox_error **reterr);

/* result.c */
struct abox_result {
	atomic_uint n_refs;
	int cause;
	int exit_code;
	int signal;
	uint64_t wall_usec;
	uint64_t cpu_usec;
	uint64_t memory_peak_bytes;
	uint32_t survivors;
	uint32_t limits_struck;
	uint64_t total_bytes[2];
	bool truncated[2];
	uint64_t stdin_taken_bytes;
	struct text output[2];
	char *evidence;
	char sandbox[STATE_ID_LEN + 1];
	uint32_t command;
	char *plan_digest;
};
void result_unrefp(abox_result **result);
int result_new(const abox_sandbox *box, uint32_t command, abox_result **ret);
/* Fills it from a WIRE_ENDED message whose head was read. 0, ABOX_E_PROTOCOL, ABOX_E_MEMORY. */
int result_read(abox_result *result, struct pack_reader *reader);
/* The same from what the keeper of a detached box has left as N.json (lib/keeper/result.c). */
int result_read_json(abox_result *result, const struct json *json);

#endif
