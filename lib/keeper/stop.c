/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The end of a box: admission is closed, commands get TERM and after the grace time KILL, every stage is
 * undone, and everybody who asked hears what was removed, kept and left behind.
 */
#include "keeper/keeper.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <agentbox/command.h>
#include <agentbox/error.h>
#include <agentbox/sandbox.h>

#include "base/clock.h"

#define KILL_USEC (2 * USEC_PER_SEC)	/* how long killed commands are waited for, to know how they ended */
#define ANSWER_USEC USEC_PER_SEC

static const char *const mode_names[] = {
	[ABOX_STOP_CANCEL] = "cancel", [ABOX_STOP_FAILURE] = "failure", [ABOX_STOP_SUCCESS] = "success",
};

static const char *cause_name(uint32_t cause)
{
	switch (cause) {
	case ABOX_CAUSE_TIMEOUT:
		return "timeout";
	case ABOX_CAUSE_IDLE:
		return "idle";
	case ABOX_CAUSE_WALL_LOST:
		return "wall_lost";
	default:
		return "canceled";
	}
}

/* null when somebody asked for the end, which `mode` tells. */
static void report_cause(const struct keeper *keeper, struct text *text)
{
	if (keeper->stop_requested)
		text_add(text, ",\"cause\":null");
	else
		text_printf(text, ",\"cause\":\"%s\"", cause_name(keeper->stop_cause));
}

void report_add(struct keeper *keeper, enum report_kind kind, const char *what, const char *error)
{
	struct report *report = &keeper->report;

	if (report->n == REPORT_MAX)
		return;
	report->entries[report->n].kind = kind;
	snprintf(report->entries[report->n].what, sizeof(report->entries->what), "%s", what);
	snprintf(report->entries[report->n].error, sizeof(report->entries->error), "%s", error ? error : "");
	report->n++;
}

static void report_list(
	const struct report *report, struct text *text, const char *name, enum report_kind kind)
{
	const char *separator = "";

	text_printf(text, ",\"%s\":[", name);
	for (uint32_t i = 0; i < report->n; i++) {
		const char *what = report->entries[i].what, *error = report->entries[i].error;

		if (report->entries[i].kind != kind)
			continue;
		text_add(text, separator);
		separator = ",";
		if (kind != REPORT_LEFT) {
			text_add_json(text, what, strlen(what));
			continue;
		}
		text_add(text, "{\"what\":");
		text_add_json(text, what, strlen(what));
		text_add(text, ",\"error\":");
		text_add_json(text, error, strlen(error));
		text_add(text, "}");
	}
	text_add(text, "]");
}

static uint32_t report_count(const struct report *report, enum report_kind kind)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < report->n; i++)
		n += report->entries[i].kind == kind;
	return n;
}

static void report_json(struct keeper *keeper, struct text *text)
{
	text_printf(text, "{\"sandbox\":\"%s\",\"mode\":\"%s\"", keeper->id, mode_names[keeper->stop_mode]);
	report_cause(keeper, text);
	text_printf(text, ",\"killed\":%u", keeper->n_killed);
	report_list(&keeper->report, text, "removed", REPORT_REMOVED);
	report_list(&keeper->report, text, "kept", REPORT_KEPT);
	text_printf(text, ",\"revoked\":%s", keeper->revoked.data && !keeper->revoked.failed ? keeper->revoked.data : "[]");
	if (keeper->workspace_report.len) {
		text_add(text, ",\"workspace\":");
		text_add_bytes(text, keeper->workspace_report.data, keeper->workspace_report.len);
	}
	report_list(&keeper->report, text, "left_behind", REPORT_LEFT);
	text_printf(text, ",\"wall_usec\":%llu}",
		(unsigned long long)(clock_monotonic_usec() - keeper->stop_began_usec));
}

void owner_lost(struct keeper *keeper)
{
	if (!keeper->epoch) {	/* it never came to START */
		keeper->stop_phase = STOP_DONE;
		return;
	}
	if (keeper->plan.detach)
		keeper->owner_at = clock_deadline(clock_monotonic_usec(), keeper->plan.owner_grace_usec);
	else
		stop_begin(keeper, ABOX_STOP_CANCEL, ABOX_CAUSE_CANCELED, keeper->plan.limits.grace_usec);
}

static void kill_commands(struct keeper *keeper, uint64_t grace_usec)
{
	for (struct command *command = keeper->commands; command; command = command->next) {
		if (command->state != COMMAND_ENDED)
			command_kill(command, keeper->stop_cause, 0, grace_usec);
	}
}

void stop_begin(struct keeper *keeper, uint32_t mode, uint32_t cause, uint64_t grace_usec)
{
	uint64_t now = clock_monotonic_usec();

	if (!keeper->epoch) {
		keeper->stop_phase = STOP_DONE;
		return;
	}
	if (keeper->stop_phase != STOP_NONE) {	/* a second stop only shortens the grace of the first */
		if (keeper->stop_phase == STOP_TERM)
			keeper->stop_at = MIN(keeper->stop_at, clock_deadline(now, grace_usec));
		return;
	}
	if (keeper->paused_usec)
		clocks_resume(keeper, NULL);
	keeper->stop_phase = STOP_TERM;
	keeper->stop_mode = mode;
	keeper->stop_cause = cause;
	keeper->stop_began_usec = now;
	keeper->stop_at = clock_deadline(now, grace_usec);
	keeper->wall_at = keeper->idle_at = keeper->owner_at = UINT64_MAX;
	keeper->n_killed = keeper->n_running;
	state_set(keeper, ABOX_SANDBOX_STOPPING);
	kill_commands(keeper, grace_usec);
}

/* A detached box leaves its report; the state comes last, as it says that everything else is written. */
static uint32_t store_end(struct keeper *keeper, const struct text *json)
{
	uint32_t state =
		keeper->stop_cause == ABOX_CAUSE_WALL_LOST ? ABOX_SANDBOX_FAILED : ABOX_SANDBOX_STOPPED;

	if ((keeper->plan.detach || keeper->workspace_id[0]) && keeper->box_fd >= 0) {
		state_write(keeper, STATE_REPORT, json->data, json->len);
		state_set(keeper, state);
	}
	return state;
}

static void answer_waiters(struct keeper *keeper, const struct text *json, uint32_t state)
{
	for (struct client *client = keeper->clients; client; client = client->next) {
		while (client->waiters) {
			_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
			struct waiter *waiter = client->waiters;
			uint32_t type = waiter->type, serial = waiter->serial;

			client_waiter_free(client, waiter);
			client_begin(&writer, WIRE_OK, serial);
			if (type == WIRE_STOP) {
				pack_bytes(&writer, json->data, json->len);
				pack_u32(&writer, report_count(&keeper->report, REPORT_LEFT));
			} else if (type == WIRE_WAIT) {
				pack_u32(&writer, state);
			} else {
				continue;	/* the connection's end is the answer */
			}
			client_send(keeper, client, &writer);
		}
	}
}

static const char *outcome_name(const struct keeper *keeper)
{
	if (keeper->stop_cause == ABOX_CAUSE_TIMEOUT || keeper->stop_cause == ABOX_CAUSE_IDLE ||
		keeper->stop_cause == ABOX_CAUSE_WALL_LOST)
		return cause_name(keeper->stop_cause);
	return mode_names[keeper->stop_mode];
}

static void finish(struct keeper *keeper)
{
	_cleanup_(text_clear) struct text json = TEXT_INIT;
	uint32_t state;

	for (struct command *command = keeper->commands; command; command = command->next)
		command_lost(command, keeper->stop_cause);
	keeper->state = ABOX_SANDBOX_STOPPING;
	stages_undo(keeper);
	report_json(keeper, &json);
	if (keeper->recorder.fd >= 0 && keeper->records) {
		record_end(keeper, outcome_name(keeper), &json);
		text_clear(&json);	/* again, with what could not be recorded */
		report_json(keeper, &json);
	}
	state = store_end(keeper, &json);
	answer_waiters(keeper, &json, state);
	client_flush_all(keeper, ANSWER_USEC);
	keeper->stop_phase = STOP_DONE;
}

void stop_check(struct keeper *keeper, uint64_t now)
{
	if (keeper->stop_phase == STOP_NONE || keeper->stop_phase == STOP_DONE)
		return;
	if (keeper->n_running == 0 || (keeper->stop_phase == STOP_KILL && now >= keeper->stop_at)) {
		finish(keeper);
		return;
	}
	if (keeper->stop_phase == STOP_TERM && now >= keeper->stop_at) {
		keeper->stop_phase = STOP_KILL;
		keeper->stop_at = clock_deadline(now, KILL_USEC);
		kill_commands(keeper, 0);
	}
}
