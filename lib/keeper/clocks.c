/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The clocks of a box: wall, idle, the owner's grace, and those of commands and waiting requests. They run
 * here, so that they strike when the program that started the box is long dead. A running command is not
 * idle. While the box is paused the wall clock goes on and the others stand still.
 */
#include "keeper/keeper.h"

#include <signal.h>

#include <agentbox/command.h>
#include <agentbox/error.h>
#include <agentbox/sandbox.h>

#include "base/clock.h"
#include "keeper/network.h"

#define FREEZE_USEC (2 * USEC_PER_SEC)

static uint64_t command_next(const struct keeper *keeper, const struct command *command)
{
	uint64_t next;

	if (keeper->paused_usec)
		return UINT64_MAX;
	next = MIN(command->timeout_at, command->kill_at);
	if (command->state == COMMAND_EXITED) {
		bool waits_for_tree = command->survivors == ABOX_SURVIVORS_KILL && !command->tree_gone;

		next = MIN(next, waits_for_tree ? command->gone_at : command->drain_at);
	}
	return next;
}

uint64_t clocks_next(struct keeper *keeper)
{
	uint64_t next = MIN(MIN(MIN(keeper->wall_at, keeper->owner_at), keeper->stop_at), network_next());

	if (!keeper->paused_usec)
		next = MIN(next, keeper->idle_at);
	for (struct command *command = keeper->commands; command; command = command->next)
		next = MIN(next, command_next(keeper, command));
	for (struct client *client = keeper->clients; client; client = client->next) {
		for (struct waiter *waiter = client->waiters; waiter; waiter = waiter->next)
			next = MIN(next, waiter->deadline);
	}
	return next;
}

static void strike(struct keeper *keeper, uint32_t cause, uint32_t limit)
{
	for (struct command *command = keeper->commands; command; command = command->next) {
		if (command->state <= COMMAND_RUNNING && !command->cause) {
			command->cause = cause;
			command->struck |= limit;
		}
	}
	stop_begin(keeper, ABOX_STOP_FAILURE, cause, keeper->plan.limits.grace_usec);
}

static void expire_readers(struct keeper *keeper, uint64_t now)
{
	for (struct client *client = keeper->clients; client; client = client->next) {
		struct waiter *waiter = client->waiters, *next;

		for (; waiter; waiter = next) {
			struct command *command;

			next = waiter->next;
			if (waiter->type != WIRE_READ || now < waiter->deadline)
				continue;
			command = command_find(keeper, waiter->command);
			if (command)
				pump_answer_read(keeper, client, waiter, command, true);
		}
	}
}

void clocks_run(struct keeper *keeper, uint64_t now)
{
	struct command *command, *next;

	if (now >= keeper->wall_at) {
		keeper->wall_at = UINT64_MAX;
		strike(keeper, ABOX_CAUSE_TIMEOUT, ABOX_LIMIT_WALL);
	}
	if (!keeper->paused_usec && now >= keeper->idle_at) {
		keeper->idle_at = UINT64_MAX;
		strike(keeper, ABOX_CAUSE_IDLE, ABOX_LIMIT_IDLE);
	}
	if (now >= keeper->owner_at) {
		keeper->owner_at = UINT64_MAX;
		stop_begin(keeper, ABOX_STOP_CANCEL, ABOX_CAUSE_CANCELED, keeper->plan.limits.grace_usec);
	}
	for (command = keeper->commands; command; command = next) {
		next = command->next;
		if (now >= command_next(keeper, command))
			command_check(command, now);
	}
	expire_readers(keeper, now);
	network_late(keeper, now);
}

/* Called when a command starts or ends. */
void clocks_touch_idle(struct keeper *keeper)
{
	uint64_t idle = keeper->plan.limits.idle_usec;

	if (!idle || keeper->n_running > 0 || keeper->stop_phase != STOP_NONE)
		keeper->idle_at = UINT64_MAX;
	else
		keeper->idle_at = clock_deadline(clock_monotonic_usec(), idle);
}

/* -- pause -- */

static int freeze(struct keeper *keeper, bool frozen, struct fault *fault)
{
	if (keeper->has_group && keeper->group.tree_fd >= 0)
		return cgroup_freeze(&keeper->group, frozen, FREEZE_USEC, fault);
	if (link_signal_all(keeper, frozen ? SIGSTOP : SIGCONT) < 0)
		return fault_set(fault, ABOX_E_GONE, 0, "guest", "it does not take the order");
	return 0;
}

int clocks_pause(struct keeper *keeper, struct fault *fault)
{
	int r;

	if (keeper->state == ABOX_SANDBOX_PAUSED)
		return 0;
	r = freeze(keeper, true, fault);
	if (r < 0)
		return r;
	keeper->paused_usec = clock_monotonic_usec();
	state_set(keeper, ABOX_SANDBOX_PAUSED);
	return 0;
}

static void shift(uint64_t *deadline, uint64_t by)
{
	*deadline = clock_deadline(*deadline, *deadline == UINT64_MAX ? 0 : by);
}

int clocks_resume(struct keeper *keeper, struct fault *fault)
{
	uint64_t by;
	int r;

	if (!keeper->paused_usec)
		return 0;
	r = freeze(keeper, false, fault);
	if (r < 0)
		return r;
	by = clock_monotonic_usec() - keeper->paused_usec;
	keeper->paused_usec = 0;
	shift(&keeper->idle_at, by);
	for (struct command *command = keeper->commands; command; command = command->next) {
		shift(&command->timeout_at, by);
		shift(&command->kill_at, by);
		shift(&command->drain_at, by);
		shift(&command->gone_at, by);
	}
	state_set(keeper, ABOX_SANDBOX_RUNNING);
	return 0;
}
