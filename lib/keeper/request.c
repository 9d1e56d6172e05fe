/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Requests: one table of what may be asked, by whom, and who carries it out. Promises that a request is
 * answered exactly once, at once or through a waiter, unless its connection ends.
 */
#include "keeper/keeper.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <agentbox/command.h>
#include <agentbox/error.h>
#include <agentbox/sandbox.h>

#include "base/clock.h"
#include "base/fd.h"
#include "guest/message.h"
#include "keeper/network.h"

#ifndef TIOCSIG
#define TIOCSIG 0x40045436
#endif

/* What a connection must be opened for. */
enum right {
	RIGHT_LOOK,
	RIGHT_ACT,	/* attach or control */
	RIGHT_CONTROL,	/* control, and no newer controller: the request begins with the epoch */
};

struct request_type {
	uint32_t type;
	enum right right;
	/* 0 when it has answered or will; a negative code with *fault set is answered by the caller. */
	int (*handle)(struct keeper *keeper, struct request *request, struct fault *fault);
};

static int protocol(struct fault *fault)
{
	return fault_set(fault, ABOX_E_PROTOCOL, 0, "request", "its fields are not what they must be");
}

static int wait_for(struct request *request, struct waiter **ret, struct fault *fault)
{
	*ret = client_wait(request->client, request->type, request->serial);
	return *ret ? 0
		    : fault_set(
			      fault, ABOX_E_LIMIT, 0, "request", "too many requests of this connection wait");
}

static struct command *find_or_fault(struct keeper *keeper, uint32_t id, struct fault *fault)
{
	struct command *command = command_find(keeper, id);

	if (!command)
		fault_set(fault, ABOX_E_NOT_FOUND, 0, "command", "there is no command %u", id);
	return command;
}

static int handle_info(struct keeper *keeper, struct request *request, struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	_cleanup_(text_clear) struct text text = TEXT_INIT;

	command_list_json(keeper, &text);
	if (text.failed)
		return fault_set(fault, ABOX_E_MEMORY, 0, "info", "no memory for the answer");
	client_begin(&writer, WIRE_OK, request->serial);
	pack_u32(&writer, keeper->state);
	pack_u64(&writer, keeper->epoch);
	pack_u64(&writer, keeper->started_wall_usec);
	pack_u32(&writer, keeper->n_owners);
	pack_string(&writer, text.data);
	client_send(keeper, request->client, &writer);
	return 0;
}

static int handle_stats(struct keeper *keeper, struct request *request, struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct cgroup_stats stats = { 0 };
	uint64_t disk = UINT64_MAX, inodes = UINT64_MAX;
	struct statfs fs;

	if (keeper->has_group)
		cgroup_read(&keeper->group, &stats);
	if (keeper->scratch_fd >= 0 && fstatfs(keeper->scratch_fd, &fs) == 0) {
		disk = ((uint64_t)fs.f_blocks - (uint64_t)fs.f_bfree) * (uint64_t)fs.f_bsize;
		inodes = (uint64_t)fs.f_files - (uint64_t)fs.f_ffree;
	}
	client_begin(&writer, WIRE_OK, request->serial);
	pack_u64(&writer, stats.has_cpu ? stats.cpu_usec : UINT64_MAX);
	pack_u64(&writer, stats.has_memory ? stats.memory_bytes : UINT64_MAX);
	pack_u64(&writer, stats.has_memory ? stats.memory_peak_bytes : UINT64_MAX);
	pack_u64(&writer, stats.has_pids ? stats.n_pids : UINT64_MAX);
	pack_u64(&writer, disk);
	pack_u64(&writer, inodes);
	pack_u64(&writer, stats.has_memory ? stats.n_oom_kills : UINT64_MAX);
	pack_u64(&writer, clock_monotonic_usec() - keeper->started_usec);
	pack_u64(&writer, keeper->n_running);
	pack_u64(&writer, keeper->n_started);
	client_send(keeper, request->client, &writer);
	return 0;
}

static int handle_wait(struct keeper *keeper, struct request *request, struct fault *fault)
{
	struct waiter *waiter;

	return wait_for(request, &waiter, fault);
}

static int handle_snapshot(struct keeper *keeper, struct request *request, struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	const char *name = unpack_string(&request->body);
	uint64_t ttl_usec = unpack_u64(&request->body);
	uint32_t keep_last = unpack_u32(&request->body);
	char id[33];
	int r;

	if (!unpack_done(&request->body))
		return protocol(fault);
	r = workspace_snapshot(keeper, name, ttl_usec, keep_last, id, fault);
	if (r < 0)
		return r;
	client_begin(&writer, WIRE_OK, request->serial);
	pack_string(&writer, id);
	client_send(keeper, request->client, &writer);
	return 0;
}

static int handle_pause(struct keeper *keeper, struct request *request, struct fault *fault)
{
	int r = request->type == WIRE_PAUSE ? clocks_pause(keeper, fault) : clocks_resume(keeper, fault);

	if (r == 0)
		client_answer_ok(keeper, request->client, request->serial);
	return r;
}

static int change_group(struct keeper *keeper, const char *name, uint64_t value, struct fault *fault)
{
	struct cgroup_limits limits = keeper->plan.cgroup_limits;
	uint32_t controller;
	int r;

	if (strcmp(name, "memory") == 0) {
		controller = CGROUP_BIT(CGROUP_MEMORY);
		limits.memory_bytes = value;
	} else if (strcmp(name, "pids") == 0) {
		controller = CGROUP_BIT(CGROUP_PIDS);
		limits.pids = value;
	} else if (strcmp(name, "cpus") == 0) {
		controller = CGROUP_BIT(CGROUP_CPU);
		limits.cpu_millis = value;
	} else {
		return fault_set(fault, ABOX_E_INVALID, 0, "name", "there is no limit \"%.64s\"", name);
	}
	if (!keeper->has_group || !(keeper->plan.cgroup.controllers & controller))
		return fault_set(fault, ABOX_E_UNSUPPORTED, 0, name, "this host has no control group for it");
	r = cgroup_set_limits(&keeper->group, &limits, fault);
	if (r == 0)
		keeper->plan.cgroup_limits = limits;
	return r;
}

static int handle_set_limit(struct keeper *keeper, struct request *request, struct fault *fault)
{
	const char *name = unpack_string(&request->body);
	uint64_t value = unpack_u64(&request->body);
	int r = 0;

	if (!unpack_done(&request->body))
		return protocol(fault);
	if (!value)
		return fault_set(fault, ABOX_E_INVALID, 0, "value", "0 is no limit");
	if (strcmp(name, "wall") == 0)
		keeper->wall_at = clock_deadline(clock_monotonic_usec(), value);
	else
		r = change_group(keeper, name, value, fault);
	if (r == 0)
		client_answer_ok(keeper, request->client, request->serial);
	return r;
}

static int handle_verified(struct keeper *keeper, struct request *request, struct fault *fault)
{
	size_t len;
	const void *json = unpack_bytes(&request->body, &len);
	int r;

	if (!unpack_done(&request->body))
		return protocol(fault);
	r = record_verify(keeper, json, len, fault);
	if (r == 0)
		client_answer_ok(keeper, request->client, request->serial);
	return r;
}

static int handle_stop(struct keeper *keeper, struct request *request, struct fault *fault)
{
	uint32_t mode = unpack_u32(&request->body);
	uint64_t grace = unpack_u64(&request->body);
	struct waiter *waiter;
	int r;

	if (!unpack_done(&request->body) || mode > ABOX_STOP_SUCCESS)
		return protocol(fault);
	r = wait_for(request, &waiter, fault);
	if (r < 0)
		return r;
	keeper->stop_requested = keeper->stop_requested || keeper->stop_phase == STOP_NONE;
	stop_begin(keeper, mode, ABOX_CAUSE_CANCELED,
		grace == UINT64_MAX ? keeper->plan.limits.grace_usec : grace);
	return 0;
}

static int handle_open_command(struct keeper *keeper, struct request *request, struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	const char *ref = unpack_string(&request->body);
	struct command *command;
	int r;

	if (!unpack_done(&request->body) || request->n_fds != 1)
		return protocol(fault);
	command = command_find_ref(keeper, ref);
	if (!command)
		return fault_set(fault, ABOX_E_NOT_FOUND, 0, "command", "there is no command \"%.64s\"", ref);
	client_begin(&writer, WIRE_OK, request->serial);
	pack_u32(&writer, command->id);
	pack_u32(&writer, command->stdin_mode);
	pack_u32(&writer, command->stdout_mode);
	pack_u32(&writer, command->stderr_mode);
	pack_u8(&writer, command->pty);
	client_send(keeper, request->client, &writer);
	r = command_watch(keeper, command, request->fds[0]);
	request->fds[0] = -EBADF;
	if (r < 0)
		keeper_log(keeper, ABOX_LOG_WARNING, "command %u cannot be watched", command->id);
	return 0;
}

/* The terminal's foreground group changes as its shell wishes, and only the terminal knows it; the kernel
 * takes three signals this way. Others go to the group of the main process. */
static bool signal_foreground(struct keeper *keeper, const struct command *command, int number)
{
	if (!command->pty || command->out[0].fd < 0 ||
		(number != SIGINT && number != SIGQUIT && number != SIGTSTP))
		return false;
	if (ioctl(command->out[0].fd, TIOCSIG, number) == 0)
		return true;
	return errno == ENOTTY && link_tty_signal(keeper, command->id, number) == 0;
}

static int handle_signal(struct keeper *keeper, struct request *request, struct fault *fault)
{
	uint32_t id = unpack_u32(&request->body);
	int number = unpack_i32(&request->body);
	struct command *command;

	if (!unpack_done(&request->body))
		return protocol(fault);
	if (number < 1 || number > 64)
		return fault_set(fault, ABOX_E_INVALID, 0, "signal", "there is no signal %d", number);
	command = find_or_fault(keeper, id, fault);
	if (!command)
		return fault->code;
	if (command->state <= COMMAND_RUNNING && !signal_foreground(keeper, command, number))
		link_signal(keeper, id, number, command->pty ? GUEST_SCOPE_GROUP : GUEST_SCOPE_MAIN);
	client_answer_ok(keeper, request->client, request->serial);
	return 0;
}

static int handle_kill(struct keeper *keeper, struct request *request, struct fault *fault)
{
	uint32_t id = unpack_u32(&request->body);
	uint64_t grace = unpack_u64(&request->body);
	struct command *command;

	if (!unpack_done(&request->body))
		return protocol(fault);
	command = find_or_fault(keeper, id, fault);
	if (!command)
		return fault->code;
	command_kill(command, ABOX_CAUSE_CANCELED, 0, grace == UINT64_MAX ? command->grace_usec : grace);
	client_answer_ok(keeper, request->client, request->serial);
	return 0;
}

static int handle_input(struct keeper *keeper, struct request *request, struct fault *fault)
{
	uint32_t id = unpack_u32(&request->body);
	uint8_t eof = unpack_u8(&request->body);
	size_t len;
	const void *data = unpack_bytes(&request->body, &len);
	struct command *command;
	struct waiter *waiter;
	int r;

	if (!unpack_done(&request->body))
		return protocol(fault);
	command = find_or_fault(keeper, id, fault);
	if (!command)
		return fault->code;
	r = wait_for(request, &waiter, fault);
	if (r < 0)
		return r;
	waiter->command = id;
	waiter->existing = eof;
	waiter->len = len;
	waiter->data = malloc(len + 1);
	if (!waiter->data) {
		client_waiter_free(request->client, waiter);
		return fault_set(fault, ABOX_E_MEMORY, 0, "input", "no memory for it");
	}
	memcpy(waiter->data, data, len);
	pump_input(keeper, request->client, waiter);
	return 0;
}

static int handle_resize(struct keeper *keeper, struct request *request, struct fault *fault)
{
	uint32_t id = unpack_u32(&request->body), rows = unpack_u32(&request->body),
		 columns = unpack_u32(&request->body);
	struct winsize size = { .ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns };
	struct command *command;

	if (!unpack_done(&request->body))
		return protocol(fault);
	if (!rows || !columns || rows > UINT16_MAX || columns > UINT16_MAX)
		return fault_set(fault, ABOX_E_INVALID, 0, "size", "not the size of a terminal");
	command = find_or_fault(keeper, id, fault);
	if (!command)
		return fault->code;
	if (!command->pty)
		return fault_set(fault, ABOX_E_STATE, 0, "command", "it has no terminal");
	if (command->out[0].fd >= 0 && ioctl(command->out[0].fd, TIOCSWINSZ, &size) < 0 &&
		(errno != ENOTTY || link_tty_size(keeper, id, rows, columns) < 0))
		return fault_set(fault, ABOX_E_SYSTEM, errno, "size", "cannot be set");
	client_answer_ok(keeper, request->client, request->serial);
	return 0;
}

static int handle_read(struct keeper *keeper, struct request *request, struct fault *fault)
{
	uint32_t id = unpack_u32(&request->body), stream = unpack_u32(&request->body);
	uint64_t cursor = unpack_u64(&request->body);
	uint32_t max = unpack_u32(&request->body);
	uint64_t timeout = unpack_u64(&request->body);
	struct command *command;
	struct waiter *waiter;
	int r;

	if (!unpack_done(&request->body) || (stream != 1 && stream != 2) || !max)
		return protocol(fault);
	command = find_or_fault(keeper, id, fault);
	if (!command)
		return fault->code;
	if (command->spools[stream - 1].fd < 0)
		return fault_set(fault, ABOX_E_STATE, 0, "stream", "stream %u is not kept", stream);
	r = wait_for(request, &waiter, fault);
	if (r < 0)
		return r;
	waiter->command = id;
	waiter->stream = stream;
	waiter->cursor = cursor;
	waiter->max = MIN(max, WIRE_READ_MAX);
	waiter->deadline = clock_deadline(clock_monotonic_usec(), timeout);
	pump_answer_read(keeper, request->client, waiter, command, timeout == 0);
	return 0;
}

static int handle_hello(struct keeper *keeper, struct request *request, struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	uint32_t version = unpack_u32(&request->body), mode = unpack_u32(&request->body);

	if (!unpack_done(&request->body) || version != WIRE_VERSION || mode > ABOX_OPEN_CONTROL)
		return protocol(fault);
	if (request->client->kind != CLIENT_VISITOR || request->client->greeted)
		return fault_set(fault, ABOX_E_STATE, 0, "hello", "this connection is open already");
	request->client->greeted = true;
	request->client->mode = mode;
	if (mode == ABOX_OPEN_CONTROL) {
		keeper->epoch++;
		keeper->n_owners++;
		keeper->owner_at = UINT64_MAX;
	}
	client_begin(&writer, WIRE_OK, request->serial);
	pack_u64(&writer, keeper->epoch);
	pack_u32(&writer, keeper->state);
	client_send(keeper, request->client, &writer);
	return 0;
}

static int handle_exec(struct keeper *keeper, struct request *request, struct fault *fault)
{
	uint64_t epoch = unpack_u64(&request->body);

	/* the epoch of an attached handle is 0: it raises nothing and is never fenced */
	if (epoch && epoch < keeper->epoch)
		return fault_set(fault, ABOX_E_FENCED, 0, "epoch", "a newer controller has taken over");
	if (keeper->state == ABOX_SANDBOX_PAUSED)
		return fault_set(fault, ABOX_E_STATE, 0, "exec", "the box is paused");
	return command_start(keeper, request, fault);
}

/* The socket goes on to the guest; what is said over it is between library and file server. */
static int handle_files(struct keeper *keeper, struct request *request, struct fault *fault)
{
	uint8_t buffer[32];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));
	bool writes = request->type == WIRE_CHANGE_FILES;
	uint64_t epoch = writes ? unpack_u64(&request->body) : 0;
	int r;

	if (!unpack_done(&request->body) || request->n_fds != 1)
		return protocol(fault);
	if (epoch && epoch < keeper->epoch)
		return fault_set(fault, ABOX_E_FENCED, 0, "epoch", "a newer controller has taken over");
	if (keeper->state != ABOX_SANDBOX_RUNNING)
		return fault_set(fault, ABOX_E_STATE, 0, "files",
			keeper->state == ABOX_SANDBOX_PAUSED ? "the box is paused" : "the box is not running");
	guest_message_begin(&writer, GUEST_FILES, 0);
	pack_u8(&writer, writes);
	pack_u32(&writer, keeper->plan.inside_uid);
	pack_u32(&writer, keeper->plan.inside_gid);
	r = guest_message_send(keeper->guest.fd, &writer, request->fds, 1);
	if (r == -EAGAIN)
		return fault_set(fault, ABOX_E_BUSY, 0, "files", "the guest of the box has too much to do");
	if (r < 0)
		return fault_set(fault, ABOX_E_GONE, -r, "files", "the guest of the box is gone");
	client_answer_ok(keeper, request->client, request->serial);
	return 0;
}

static const struct request_type types[] = {
	{ WIRE_INFO, RIGHT_LOOK, handle_info },
	{ WIRE_STATS, RIGHT_LOOK, handle_stats },
	{ WIRE_WAIT, RIGHT_LOOK, handle_wait },
	{ WIRE_READ, RIGHT_LOOK, handle_read },
	{ WIRE_OPEN_COMMAND, RIGHT_LOOK, handle_open_command },
	{ WIRE_LOOK_AT_FILES, RIGHT_LOOK, handle_files },
	{ WIRE_CHANGE_FILES, RIGHT_ACT, handle_files },
	{ WIRE_PAUSE, RIGHT_CONTROL, handle_pause },
	{ WIRE_RESUME, RIGHT_CONTROL, handle_pause },
	{ WIRE_SET_LIMIT, RIGHT_CONTROL, handle_set_limit },
	{ WIRE_VERIFIED, RIGHT_CONTROL, handle_verified },
	{ WIRE_STOP, RIGHT_CONTROL, handle_stop },
	{ WIRE_SNAPSHOT, RIGHT_ACT, handle_snapshot },
	{ WIRE_NET_INFO, RIGHT_LOOK, network_info },
	{ WIRE_NET_RULES, RIGHT_CONTROL, network_rules },
	{ WIRE_NET_PUBLISH, RIGHT_CONTROL, network_publish },
	{ WIRE_NET_UNPUBLISH, RIGHT_CONTROL, network_unpublish },
	{ WIRE_CREDENTIAL_SERVE, RIGHT_CONTROL, credential_request },
	{ WIRE_CREDENTIAL_REVOKE, RIGHT_CONTROL, credential_request },
	{ WIRE_EXEC, RIGHT_ACT, handle_exec },
	{ WIRE_SIGNAL, RIGHT_ACT, handle_signal },
	{ WIRE_KILL, RIGHT_ACT, handle_kill },
	{ WIRE_INPUT, RIGHT_ACT, handle_input },
	{ WIRE_RESIZE, RIGHT_ACT, handle_resize },
};

static int check_right(struct keeper *keeper, struct request *request, enum right right, struct fault *fault)
{
	uint64_t epoch;

	if (!keeper->epoch)
		return fault_set(fault, ABOX_E_STATE, 0, "request", "the box was not started");
	if (right == RIGHT_LOOK)
		return 0;
	if (request->client->mode == ABOX_OPEN_READ)
		return fault_set(fault, ABOX_E_STATE, 0, "request", "the box was opened for reading only");
	if (keeper->stop_phase != STOP_NONE && request->type != WIRE_STOP)
		return fault_set(fault, ABOX_E_STATE, 0, "request", "the box is being stopped");
	if (right == RIGHT_ACT)
		return 0;
	if (request->client->mode != ABOX_OPEN_CONTROL)
		return fault_set(fault, ABOX_E_STATE, 0, "request", "the box was not opened for control");
	epoch = unpack_u64(&request->body);
	if (epoch < keeper->epoch)
		return fault_set(fault, ABOX_E_FENCED, 0, "epoch", "a newer controller has taken over");
	return 0;
}

static int dispatch(struct keeper *keeper, struct request *request, struct fault *fault)
{
	if (request->type == WIRE_START && request->client->kind == CLIENT_OWNER)
		return request_start(keeper, request, fault);
	if (request->type == WIRE_HELLO)
		return handle_hello(keeper, request, fault);
	if (!request->client->greeted)
		return fault_set(fault, ABOX_E_STATE, 0, "request", "say hello first");
	for (size_t i = 0; i < ELEMENTSOF(types); i++) {
		if (types[i].type == request->type) {
			int r = check_right(keeper, request, types[i].right, fault);

			return r < 0 ? r : types[i].handle(keeper, request, fault);
		}
	}
	return fault_set(fault, ABOX_E_PROTOCOL, 0, "request", "there is no request %u", request->type);
}

/* The other end of an event socket says one thing only. */
static void handle_watcher(struct keeper *keeper, struct request *request)
{
	struct command *command = command_find(keeper, request->client->command);

	if (request->type == WIRE_OUTPUT_LIMIT && command && command->output_kill)
		command_kill(command, ABOX_CAUSE_OUTPUT, ABOX_LIMIT_OUTPUT, command->grace_usec);
}

void request_handle(struct keeper *keeper, struct request *request)
{
	struct fault fault;
	int r;

	if (request->client->kind == CLIENT_WATCHER) {
		handle_watcher(keeper, request);
		return;
	}
	fault_init(&fault, ABOX_STAGE_COMMAND);
	if (request->type == WIRE_START)
		fault.stage = ABOX_STAGE_START;
	else if (request->type == WIRE_STOP)
		fault.stage = ABOX_STAGE_STOP;
	else if (request->type == WIRE_HELLO)
		fault.stage = ABOX_STAGE_OPEN;
	r = dispatch(keeper, request, &fault);
	if (r < 0 && fault.code >= 0)
		fault_set(&fault, r, 0, "request", "failed without a reason");
	if (r < 0)
		client_answer_fault(keeper, request->client, request->serial, &fault);
}
