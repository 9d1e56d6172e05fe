/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Why a command ended. Promises that each cause rests on something that was done or counted, said in one
 * line; counters are read before the groups are removed. What is not known is not guessed: a program that
 * fails for want of disk or processes has exited, and the limit stands beside it in limits_struck.
 */
#include "keeper/keeper.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/wait.h>

#include <agentbox/command.h>

#define LAYER_SPARE_BLOCKS 32

static const char *const cause_names[] = {
	[ABOX_CAUSE_NONE] = "none",
	[ABOX_CAUSE_EXITED] = "exited",
	[ABOX_CAUSE_SIGNALED] = "signaled",
	[ABOX_CAUSE_TIMEOUT] = "timeout",
	[ABOX_CAUSE_IDLE] = "idle",
	[ABOX_CAUSE_MEMORY] = "memory",
	[ABOX_CAUSE_PIDS] = "pids",
	[ABOX_CAUSE_DISK] = "disk",
	[ABOX_CAUSE_OUTPUT] = "output",
	[ABOX_CAUSE_POLICY] = "policy",
	[ABOX_CAUSE_CANCELED] = "canceled",
	[ABOX_CAUSE_WALL_LOST] = "wall_lost",
	[ABOX_CAUSE_KEEPER_LOST] = "keeper_lost",
};

static const char *why_we_ended(const struct command *command)
{
	if (command->struck & ABOX_LIMIT_WALL)
		return "the wall clock of the box ran out";
	switch (command->cause) {
	case ABOX_CAUSE_TIMEOUT:
		return "its time ran out";
	case ABOX_CAUSE_IDLE:
		return "the idle clock of the box ran out";
	case ABOX_CAUSE_OUTPUT:
		return "it wrote more than its output limit";
	case ABOX_CAUSE_WALL_LOST:
		return command->keeper->guest_fault.code < 0 ? "the wall went down" : "the guest ended under it";
	default:
		return "it was killed on request, or the box was stopped";
	}
}

/* Differences of the counters of the group that limits it, since it was started. */
static uint64_t oom_kills(const struct command *command, const struct cgroup_stats *after)
{
	return after->has_memory && after->n_oom_kills > command->before.n_oom_kills ?
		after->n_oom_kills - command->before.n_oom_kills : 0;
}

static uint64_t forks_denied(const struct command *command, const struct cgroup_stats *after)
{
	return after->has_pids && after->n_pids_denied > command->before.n_pids_denied ?
		after->n_pids_denied - command->before.n_pids_denied : 0;
}

/* An ext4 refuses a write that would need its last blocks for its own records: `spare` of them. */
static void note_full(int fd, uint64_t spare, struct command_result *result)
{
	struct statfs fs;

	if (fd < 0 || fstatfs(fd, &fs) < 0)
		return;
	if (fs.f_bavail <= spare)
		result->limits_struck |= ABOX_LIMIT_DISK;
	if (fs.f_ffree == 0)
		result->limits_struck |= ABOX_LIMIT_INODES;
}

static void note_disk(const struct command *command, struct command_result *result)
{
	note_full(command->keeper->scratch_fd, 0, result);
	note_full(command->keeper->layer_fd, LAYER_SPARE_BLOCKS, result);
}

static void explain_exit(const struct command *command, struct command_result *result)
{
	const char *limit = "";

	if (result->limits_struck & ABOX_LIMIT_MEMORY)
		limit = "; processes of the box were killed at the memory limit meanwhile";
	else if (result->limits_struck & ABOX_LIMIT_PIDS)
		limit = "; forks were refused at the limit of processes meanwhile";
	else if (result->limits_struck & ABOX_LIMIT_DISK)
		limit = "; the writable space of the box is full";
	else if (result->limits_struck & ABOX_LIMIT_INODES)
		limit = "; the box has no inode left";
	result->cause = ABOX_CAUSE_EXITED;
	snprintf(result->evidence, sizeof(result->evidence), "exit code %d%s", result->exit_code, limit);
}

static void explain_signal(const struct command *command, struct command_result *result, uint64_t n_oom)
{
	int number = result->signal;

	result->cause = ABOX_CAUSE_SIGNALED;
	if (number == SIGSYS) {
		result->cause = ABOX_CAUSE_POLICY;
		snprintf(result->evidence, sizeof(result->evidence),
			"killed by the system call filter (SIGSYS)");
	} else if (number == SIGKILL && n_oom) {
		result->cause = ABOX_CAUSE_MEMORY;
		snprintf(result->evidence, sizeof(result->evidence),
			"killed by the kernel at the memory limit: the group's oom_kill counter rose by %llu",
			(unsigned long long)n_oom);
	} else if (command->cpu_limit_usec && (number == SIGXCPU || number == SIGKILL)) {
		result->limits_struck |= ABOX_LIMIT_CPU;
		snprintf(result->evidence, sizeof(result->evidence),
			"signal %d, with a limit of processor time", number);
	} else {
		snprintf(result->evidence, sizeof(result->evidence), "signal %d", number);
	}
}

static void explain_end(const struct command *command, struct command_result *result)
{
	const struct fault *fault = &command->keeper->guest_fault;
	int n = snprintf(result->evidence, sizeof(result->evidence), "%s", why_we_ended(command));

	/* what it said last itself, or what its program did */
	if (command->cause == ABOX_CAUSE_WALL_LOST && fault->code < 0)
		snprintf(result->evidence + n, sizeof(result->evidence) - (size_t)n, ": %.40s: %.110s", fault->place,
			fault->message);
}

void result_make(struct command *command)
{
	struct command_result *result = &command->result;
	struct cgroup_stats after = { 0 };
	uint64_t n_oom;

	if (command->has_limits)
		cgroup_read(&command->limits, &after);
	else if (command->keeper->has_group)
		cgroup_read_evidence(&command->keeper->group, &after);
	n_oom = oom_kills(command, &after) + command->behind_oom_kills;
	result->limits_struck = command->struck;
	if (n_oom)
		result->limits_struck |= ABOX_LIMIT_MEMORY;
	if (forks_denied(command, &after) || command->behind_forks_denied)
		result->limits_struck |= ABOX_LIMIT_PIDS;
	note_disk(command, result);
	if (command->has_limits && after.has_memory && after.memory_peak_bytes)
		result->memory_peak_bytes = after.memory_peak_bytes;
	result->wall_usec = command->exited_usec - command->started_usec;
	result->exit_code = WIFEXITED(command->wait_status) ? WEXITSTATUS(command->wait_status) : -1;
	result->signal = WIFSIGNALED(command->wait_status) ? WTERMSIG(command->wait_status) : 0;
	for (int i = 0; i < 2; i++) {
		if (command->spools[i].total > command->spools[i].kept) {
			result->truncated |= (uint8_t)(1 << i);
			result->limits_struck |= ABOX_LIMIT_OUTPUT;
		}
	}
	if (command->cause) {
		result->cause = command->cause;
		explain_end(command, result);
	} else if (result->signal) {
		explain_signal(command, result, n_oom);
	} else {
		explain_exit(command, result);
	}
	if (result->survivors == UINT32_MAX)
		result->survivors = 0;
}

void result_send(struct keeper *keeper, struct client *watcher, const struct command *command)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	const struct command_result *result = &command->result;

	client_begin(&writer, WIRE_ENDED, 0);
	pack_u32(&writer, result->cause);
	pack_i32(&writer, result->exit_code);
	pack_i32(&writer, result->signal);
	pack_u64(&writer, result->wall_usec);
	pack_u64(&writer, result->cpu_usec);
	pack_u64(&writer, result->memory_peak_bytes);
	pack_u32(&writer, result->survivors);
	pack_u32(&writer, result->limits_struck);
	pack_u64(&writer, command->spools[0].total);
	pack_u64(&writer, command->spools[1].total);
	pack_u8(&writer, result->truncated);
	pack_string(&writer, result->evidence);
	client_send(keeper, watcher, &writer);
}

static void add_text(struct text *text, const char *name, const char *value)
{
	text_printf(text, ",\"%s\":", name);
	if (value)
		text_add_json(text, value, strlen(value));
	else
		text_add(text, "null");
}

/* What the caller itself has read is not known here. */
static void add_total(struct text *text, const char *name, bool spooled, const struct spool *spool)
{
	if (spooled)
		text_printf(text, ",\"%s\":%llu", name, (unsigned long long)spool->total);
	else
		text_printf(text, ",\"%s\":null", name);
}

void result_add_json(const struct command *command, struct text *text)
{
	const struct command_result *result = &command->result;

	text_printf(text, ",\"cause\":\"%s\",\"exit_code\":%d,\"signal\":%d", cause_names[result->cause],
		result->exit_code, result->signal);
	text_printf(text, ",\"wall_usec\":%llu,\"cpu_usec\":%llu,\"memory_peak_bytes\":%llu",
		(unsigned long long)result->wall_usec, (unsigned long long)result->cpu_usec,
		(unsigned long long)result->memory_peak_bytes);
	add_total(text, "stdout_bytes", command->pty || command->stdout_mode == ABOX_STREAM_SPOOL,
		&command->spools[0]);
	add_total(text, "stderr_bytes", !command->pty && command->stderr_mode == ABOX_STREAM_SPOOL,
		&command->spools[1]);
	text_printf(text, ",\"truncated\":%u,\"survivors\":%u", result->truncated, result->survivors);
	text_printf(text, ",\"limits_struck\":%u", result->limits_struck);
	add_text(text, "evidence", result->evidence);
}

/* Of a detached box the results stay to be read when the keeper is gone. */
void result_store(struct command *command)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	char name[32];

	if (!command->keeper->plan.detach)
		return;
	text_printf(&text, "{\"id\":%u", command->id);
	add_text(&text, "token", command->token);
	add_text(&text, "argv0", command->argv0);
	result_add_json(command, &text);
	text_printf(&text, ",\"pty\":%u,\"stdin_mode\":%u,\"stdout_mode\":%u,\"stderr_mode\":%u}\n",
		command->pty, command->stdin_mode, command->stdout_mode, command->stderr_mode);
	snprintf(name, sizeof(name), "%u.json", command->id);
	if (text.failed || state_write(command->keeper, name, text.data, text.len) < 0)
		keeper_log(command->keeper, 0, "the result of command %u cannot be written", command->id);
}

void command_list_json(struct keeper *keeper, struct text *text)
{
	static const char *const states[] = { "starting", "running", "running", "ended" };
	const char *separator = "";

	text_add(text, "[");
	for (struct command *command = keeper->commands; command; command = command->next) {
		bool ended = command->state == COMMAND_ENDED;

		/* an answer has a bound: the newest are told, the others are found by their number */
		if (text->len > WIRE_INLINE_MAX)
			break;
		text_printf(text, "%s{\"id\":%u", separator, command->id);
		add_text(text, "token", command->token);
		add_text(text, "argv0", command->argv0);
		add_text(text, "state", states[command->state]);
		add_text(text, "cause", ended ? cause_names[command->result.cause] : NULL);
		if (ended)
			text_printf(text, ",\"exit_code\":%d,\"signal\":%d}", command->result.exit_code,
				command->result.signal);
		else
			text_add(text, ",\"exit_code\":null,\"signal\":null}");
		separator = ",";
	}
	text_add(text, "]");
}
