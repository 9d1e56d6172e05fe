/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A command from the guest's "it runs" to its final result. Promises exactly one result, with the reason for
 * its end on the ground of what was done or counted; and that its whole tree is gone with it, where survivors
 * are not to be kept.
 */
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <agentbox/command.h>
#include <agentbox/error.h>

#include "base/clock.h"
#include "base/fd.h"
#include "guest/wire.h"
#include "kernel/pidfd.h"

#define DRAIN_USEC (100 * USEC_PER_MSEC)
#define TREE_USEC (10 * USEC_PER_SEC)	/* how long a killed tree is waited for before the result is final */

struct command *command_find(struct keeper *keeper, uint32_t id)
{
	struct command *command = keeper->commands;

	while (command && command->id != id)
		command = command->next;
	return command;
}

struct command *command_find_ref(struct keeper *keeper, const char *ref)
{
	char *end;
	unsigned long id;

	for (struct command *command = keeper->commands; command; command = command->next) {
		if (command->token && strcmp(command->token, ref) == 0)
			return command;
	}
	errno = 0;
	id = strtoul(ref, &end, 10);
	if (errno || *end || ref[0] < '0' || ref[0] > '9' || id > UINT32_MAX)
		return NULL;
	return command_find(keeper, (uint32_t)id);
}

int command_watch(struct keeper *keeper, struct command *command, int fd)
{
	struct client *watcher = client_new(keeper, fd, CLIENT_WATCHER);

	if (!watcher)
		return ABOX_E_MEMORY;
	watcher->command = command->id;
	if (command->state == COMMAND_ENDED)
		result_send(keeper, watcher, command);
	return 0;
}

/* Everyone who waits for its start: the one who asked for it, and those who came with the same token
 * meanwhile. */
static void answer_start(struct command *command, const struct fault *fault)
{
	struct keeper *keeper = command->keeper;

	for (struct client *client = keeper->clients; client; client = client->next) {
		struct waiter *waiter = client->waiters, *next;

		for (; waiter; waiter = next) {
			uint8_t buffer[32];
			struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));
			uint32_t serial = waiter->serial;
			bool existing = waiter->existing;

			next = waiter->next;
			if (waiter->type != WIRE_EXEC || waiter->command != command->id)
				continue;
			client_waiter_free(client, waiter);
			if (fault) {
				client_answer_fault(keeper, client, serial, fault);
				continue;
			}
			client_begin(&writer, WIRE_OK, serial);
			pack_u32(&writer, command->id);
			pack_u8(&writer, existing);
			client_send(keeper, client, &writer);
		}
	}
}

void command_spawned(struct command *command, pid_t pid, int master_fd)
{
	command->state = COMMAND_RUNNING;
	command->pid = pid;
	if (command->pty)
		pump_take_master(command, master_fd);
	else
		fd_close(master_fd);
	if (command->timeout_usec && command->timeout_usec != UINT64_MAX)
		command->timeout_at = clock_deadline(command->started_usec, command->timeout_usec);
	record_command_start(command);
	answer_start(command, NULL);
	if (command->cause)	/* the box is being stopped, or it was canceled by token */
		command_kill_now(command);
}

static void remove_groups(struct command *command)
{
	struct fault fault;

	fault_init(&fault, ABOX_STAGE_COMMAND);
	if (command->has_limits)
		cgroup_remove(&command->limits, USEC_PER_SEC, &fault);
	if (command->has_tree)
		cgroup_remove(&command->tree, USEC_PER_SEC, &fault);
	command->has_limits = command->has_tree = false;
}

/* It did not come to be: nothing of it stays. */
void command_refused(struct command *command, const struct fault *fault)
{
	struct keeper *keeper = command->keeper;
	struct command **p = &keeper->commands;

	answer_start(command, fault);
	for (struct client *client = keeper->clients; client; client = client->next) {
		if (client->kind == CLIENT_WATCHER && client->command == command->id)
			client_drop(keeper, client);
	}
	while (*p != command)
		p = &(*p)->next;
	*p = command->next;
	keeper->n_commands--;
	keeper->n_running--;
	clocks_touch_idle(keeper);
	command_free(command);
}

/* -- kill -- */

/* TERM to each process of its group. A pid can be reused between the look and the signal, so it is looked at
 * again through a descriptor; what is missed here is taken by KILL. */
static void signal_group(struct command *command, int signal)
{
	_cleanup_(freep) char *text = NULL;
	size_t len;

	if (file_read_text(command->tree.tree_fd, "cgroup.procs", 1 << 20, &text, &len) < 0)
		return;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		_cleanup_(fd_closep) int pidfd = pidfd_new((pid_t)atoi(line));
		_cleanup_(freep) char *again = NULL;
		size_t again_len, line_len = strlen(line);
		const char *found;

		if (pidfd < 0 || file_read_text(command->tree.tree_fd, "cgroup.procs", 1 << 20, &again,
					 &again_len) < 0)
			continue;
		for (found = again; found; found = strchr(found, '\n') ? strchr(found, '\n') + 1 : NULL) {
			if (strncmp(found, line, line_len) == 0 && found[line_len] == '\n') {
				pidfd_signal(pidfd, signal);
				break;
			}
		}
	}
}

static void signal_tree(struct command *command, int signal)
{
	struct keeper *keeper = command->keeper;

	if (keeper->plan.landlock_scope || !command->has_tree)
		link_signal(keeper, command->id, signal, GUEST_SCOPE_TREE);
	else
		signal_group(command, signal);
}

void command_kill_now(struct command *command)
{
	command->kill_at = UINT64_MAX;
	if (command->has_tree)
		cgroup_kill(&command->tree, 0, NULL);
	else
		link_signal(command->keeper, command->id, SIGKILL, GUEST_SCOPE_TREE);
}

void command_kill(struct command *command, uint32_t cause, uint32_t struck, uint64_t grace_usec)
{
	uint64_t now = clock_monotonic_usec();

	if (command->tree_gone ||
		(command->state == COMMAND_ENDED && command->survivors == ABOX_SURVIVORS_KILL))
		return;
	/* the first reason counts; a main process that ended before by itself was not ended by us */
	if (command->state <= COMMAND_RUNNING && !command->cause) {
		command->cause = cause;
		command->struck |= struck;
	}
	if (command->state == COMMAND_STARTING)
		return;	/* command_spawned() looks at the cause */
	if (grace_usec == 0) {
		command_kill_now(command);
		return;
	}
	if (command->kill_at != UINT64_MAX) {	/* a second kill only shortens the grace of the first */
		command->kill_at = MIN(command->kill_at, clock_deadline(now, grace_usec));
		return;
	}
	signal_tree(command, SIGTERM);
	signal_tree(command, SIGCONT);	/* a stopped process takes its TERM when it goes on */
	command->kill_at = clock_deadline(now, grace_usec);
}

/* -- end -- */

void command_exited(
	struct command *command, int status, uint64_t cpu_usec, uint64_t rss_bytes, uint32_t survivors)
{
	uint64_t now = clock_monotonic_usec();

	if (command->state != COMMAND_RUNNING)
		return;
	command->state = COMMAND_EXITED;
	command->exited_usec = now;
	command->timeout_at = UINT64_MAX;
	command->wait_status = status;
	command->result.cpu_usec = cpu_usec;
	command->result.memory_peak_bytes = rss_bytes;
	command->result.survivors = survivors;
	command->drain_at = clock_deadline(now, DRAIN_USEC);
	command->gone_at = clock_deadline(now, TREE_USEC);
	if (command->survivors == ABOX_SURVIVORS_KILL && command->has_tree && survivors != 0)
		command_kill_now(command);
	command_check(command, now);
}

void command_tree_gone(struct command *command, uint32_t n_killed, uint64_t cpu_usec, uint64_t rss_bytes)
{
	if (command->state < COMMAND_EXITED || command->tree_gone)
		return;
	command->tree_gone = true;
	command->kill_at = UINT64_MAX;
	if (command->state == COMMAND_EXITED && command->survivors == ABOX_SURVIVORS_KILL) {
		command->result.survivors = n_killed;
		command->result.cpu_usec = cpu_usec;
		command->result.memory_peak_bytes = rss_bytes;
	}
	command_check(command, clock_monotonic_usec());
}

static void finish(struct command *command)
{
	struct keeper *keeper = command->keeper;

	command->state = COMMAND_ENDED;
	result_make(command);
	if (command->tree_gone || command->survivors == ABOX_SURVIVORS_KILL) {
		pump_close(command);
		remove_groups(command);
	}
	keeper->n_running--;
	clocks_touch_idle(keeper);
	result_store(command);
	record_command_end(command);
	for (struct client *client = keeper->clients; client; client = client->next) {
		if (client->kind == CLIENT_WATCHER && client->command == command->id)
			result_send(keeper, client, command);
	}
	pump_answer_readers(command);
}

/* Deadlines first, then whether everything that the result waits for has come. */
void command_check(struct command *command, uint64_t now)
{
	if (now >= command->kill_at)
		command_kill_now(command);
	if (now >= command->timeout_at) {
		command->timeout_at = UINT64_MAX;
		command_kill(command, ABOX_CAUSE_TIMEOUT, ABOX_LIMIT_TIMEOUT, command->grace_usec);
	}
	if (command->state == COMMAND_EXITED) {
		bool tree_done = command->survivors == ABOX_SURVIVORS_KEEP || command->tree_gone ||
				 now >= command->gone_at;

		if (!tree_done)
			return;
		pump_drain(command);
		if (pump_is_dry(command) || now >= command->drain_at)
			finish(command);
	} else if (command->state == COMMAND_ENDED &&
		   command->tree_gone) { /* survivors that were kept, until now */
		pump_drain(command);
		pump_close(command);
		remove_groups(command);
	}
}

/* The guest is gone, or the box comes down and it did not die in time: what is known by now is the result. */
void command_lost(struct command *command, uint32_t cause)
{
	if (command->state == COMMAND_ENDED)
		return;
	if (command->state == COMMAND_STARTING) {
		struct fault fault;

		fault_init(&fault, ABOX_STAGE_COMMAND);
		fault_set(&fault, ABOX_E_GONE, 0, "guest", "the box ended before the command ran");
		answer_start(command, &fault);
	}
	if (command->state != COMMAND_EXITED) {
		command->exited_usec = clock_monotonic_usec();
		command->wait_status = SIGKILL;
		if (!command->cause)
			command->cause = cause;
	}
	command->state = COMMAND_EXITED;
	command->tree_gone = true;
	pump_drain(command);
	finish(command);
}

void command_free(struct command *command)
{
	remove_groups(command);
	pump_close(command);
	pump_forget(command);
	free(command->token);
	free(command->argv0);
	free(command->record);
	free(command);
}
