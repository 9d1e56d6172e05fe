/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The report of a task from its journal alone: who, where, what was reachable, used, changed, approved,
 * verified, how it ended, and what needs a person. It holds what the records hold and no secret, as those
 * hold none.
 */
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

#include "effect/write.h"
#include "report/collect.h"

struct making {
	abox_journal *journal;
	const char *task;
	struct collection collection;
	struct view history;
	struct decide_context context;
	struct text text;
	uint32_t undecided;
};

/* ---- reading ---- */

static int visit(void *userdata, const struct journal_record *record, abox_error **reterr)
{
	struct making *making = userdata;

	return collect_record(&making->collection, record, reterr);
}

/* A report does not ask who lives: it tells what the records say. */
static int nobody_asks(void *userdata, const char *executor, uint64_t handle, abox_error **reterr)
{
	return 1;
}

static int read_task(struct making *making, abox_error **reterr)
{
	_cleanup_(text_clear) struct text key = TEXT_INIT;

	text_add(&key, "task:");
	text_add(&key, making->task);
	if (key.failed)
		return ABOX_E_MEMORY;
	return journal_find(making->journal, key.data, visit, making, reterr);
}

static int read_taskless(struct making *making, abox_error **reterr)
{
	struct abox_journal_record record = ABOX_JOURNAL_RECORD_INIT;
	abox_journal_reader *reader = NULL;
	int r;

	r = abox_journal_reader_new(making->journal, 0, 0, &reader, reterr);
	if (r < 0)
		return r;
	while ((r = abox_journal_reader_next(reader, &record, reterr)) > 0) {
		const struct journal_record inner = {.seq = record.seq,
			.epoch = record.epoch,
			.time_usec = record.time_usec,
			.type = record.type,
			.box = record.box,
			.body = record.body,
			.body_len = strlen(record.body)};

		if (record.task || string_starts_with(record.type, "journal."))
			continue;
		r = collect_record(&making->collection, &inner, reterr);
		if (r < 0)
			break;
	}
	abox_journal_reader_unref(reader);
	return r;
}

/* ---- what needs a person ---- */

static void undecided(
	struct making *making, const char *kind, const char *id, const char *what, const char *why)
{
	write_open(&making->text, NULL, '{');
	write_text(&making->text, "kind", kind);
	write_text(&making->text, "id", id);
	write_text(&making->text, "what", what);
	write_text(&making->text, "why", why);
	write_close(&making->text, '}');
	making->undecided++;
}

static void write_undecided_effect(struct making *making, const struct view_effect *effect)
{
	const char *what = effect->what ? effect->what : effect->target;

	if (effect->misfit)
		undecided(making, "effect", effect->id, what, "its records fit no rule");
	else if (effect->state == ABOX_EFFECT_NONE && !effect->bound_away && !effect->allowed && !effect->task->ended)
		undecided(making, "effect", effect->id, what,
			"may be a repeat of an earlier one: claim or allow it");
	else if (effect->state == ABOX_EFFECT_UNKNOWN && !effect->overridden)
		undecided(making, "effect", effect->id, what, "whether it happened is not known: resolve it");
	else if (effect->state == ABOX_EFFECT_DISPATCHED)
		undecided(making, "effect", effect->id, what, "was sent and has no outcome yet");
}

static void write_undecided(struct making *making, const struct view_task *task)
{
	write_open(&making->text, "undecided", '[');
	for (const struct view_effect *effect = task ? task->effects : NULL; effect; effect = effect->next)
		write_undecided_effect(making, effect);
	for (const struct view_approval *approval = task ? task->approvals : NULL; approval;
		approval = approval->next)
		if (decide_approval_state(&making->history, approval, &making->context) ==
			ABOX_APPROVAL_PENDING)
			undecided(making, "approval", approval->id,
				approval->text ? approval->text : approval->what, "waits for an answer");
	for (const struct view_stage *stage = task ? task->stages : NULL; stage; stage = stage->next)
		if (stage->running && !stage->repeatable && (task->ended || stage->epoch < task->epoch))
			undecided(making, "stage", stage->name, stage->name,
				"has consequences, was begun and has no end");
	for (const struct view_resource *resource = task ? task->resources : NULL; resource;
		resource = resource->next)
		if (resource->duty)
			undecided(making, "resource", resource->id,
				resource->cleanup ? resource->cleanup : resource->kind, "has to be removed");
	write_close(&making->text, ']');
}

/* ---- writing ---- */

static void write_array(struct making *making, const char *name, const struct text *inside)
{
	write_open(&making->text, name, '[');
	if (inside->data)
		text_add_bytes(&making->text, inside->data, inside->len);
	making->text.failed = making->text.failed || inside->failed;
	write_close(&making->text, ']');
}

static void write_hosts(struct text *text, const char *name, const struct tally *tally)
{
	write_open(text, name, '[');
	for (size_t i = 0; i < tally->n; i++) {
		write_open(text, NULL, '{');
		write_text(text, "host", tally->list[i].name);
		write_number(text, "count", tally->list[i].counts[0]);
		write_text(text, "rule", tally->list[i].detail);
		write_close(text, '}');
	}
	if (tally->others) {
		write_open(text, NULL, '{');
		write_number(text, "other_hosts", tally->others);
		write_close(text, '}');
	}
	write_close(text, ']');
}

static void write_credentials(struct text *text, const struct tally *tally)
{
	static const char *const counts[] = {"uses", "mints", "revokes", "failures"};

	write_open(text, "credentials", '[');
	for (size_t i = 0; i < tally->n; i++) {
		write_open(text, NULL, '{');
		write_text(text, "name", tally->list[i].name);
		write_text(text, "first_host", tally->list[i].detail);
		for (size_t k = 0; k < ELEMENTSOF(counts); k++)
			write_number(text, counts[k], tally->list[i].counts[k]);
		write_close(text, '}');
	}
	write_close(text, ']');
}

static void write_stages(struct text *text, const struct view_task *task)
{
	write_open(text, "stages", '[');
	for (const struct view_stage *stage = task ? task->stages : NULL; stage; stage = stage->next) {
		write_open(text, NULL, '{');
		write_text(text, "name", stage->name);
		write_text(text, "state", stage->done ? "done" : stage->running ? "begun" : "failed");
		if (stage->last_failed)
			write_text(text, "cause", abox_stage_cause_name(stage->cause));
		write_number(text, "runs", stage->runs);
		write_close(text, '}');
	}
	write_close(text, ']');
}

static void write_resources(struct text *text, const struct view_task *task)
{
	write_open(text, "resources", '[');
	for (const struct view_resource *resource = task ? task->resources : NULL; resource;
		resource = resource->next) {
		write_open(text, NULL, '{');
		write_text(text, "kind", resource->kind);
		write_bytes_member(text, "id", resource->id, strlen(resource->id));
		write_text(text, "cleanup", resource->cleanup);
		write_flag(text, "duty", resource->duty);
		write_close(text, '}');
	}
	write_close(text, ']');
}

/* The result of each: short ones stand in the report, as they are what a person asks for first. */
static int write_report_effect(struct making *making, const struct view_effect *effect, abox_error **reterr)
{
	_cleanup_(freep) char *result = NULL, *reason = NULL;
	size_t len = 0;
	int32_t code = 0;
	int r = 0;

	write_open(&making->text, NULL, '{');
	write_effect(&making->text, effect, &making->context);
	if (effect->result_seq)
		r = engine_load(
			making->journal, effect->result_seq, false, &result, &len, &code, &reason, reterr);
	if (r == ABOX_E_NOT_FOUND) { /* a blob that was pruned: the report says so and goes on */
		if (reterr)
			*reterr = abox_error_free(*reterr);
		write_flag(&making->text, "result_missing", true);
		r = 0;
	}
	if (r < 0)
		return r;
	if (result && len <= 1024)
		write_bytes_member(&making->text, "result", result, len);
	else if (result)
		write_number(&making->text, "result_bytes", len);
	if (code)
		write_signed(&making->text, "code", code);
	write_text(&making->text, "reason", reason);
	write_close(&making->text, '}');
	return 0;
}

static int write_effects(struct making *making, const struct view_task *task, abox_error **reterr)
{
	int r;

	write_open(&making->text, "effects", '[');
	for (const struct view_effect *effect = task ? task->effects : NULL; effect; effect = effect->next) {
		r = write_report_effect(making, effect, reterr);
		if (r < 0)
			return r;
	}
	write_close(&making->text, ']');
	write_open(&making->text, "approvals", '[');
	for (const struct view_approval *approval = task ? task->approvals : NULL; approval;
		approval = approval->next) {
		write_open(&making->text, NULL, '{');
		write_approval(&making->text, &making->history, approval, &making->context);
		write_close(&making->text, '}');
	}
	write_close(&making->text, ']');
	return 0;
}

static const char *status_name(const struct making *making, const struct view_task *task)
{
	if (!task)
		return NULL;
	if (task->ended)
		return abox_task_status_name(task->ended);
	if (task->canceled_seq)
		return "canceled";
	if (task->boundary_seq && !view_task_is_published(&making->history, task))
		return "committing";
	return "open";
}

static int write_report(struct making *making, abox_error **reterr)
{
	const struct view_task *task = making->task ? view_task_get(&making->history, making->task) : NULL;
	struct collection *seen = &making->collection;
	struct text *text = &making->text;
	int r;

	write_open(text, NULL, '{');
	write_text(text, "task", making->task);
	write_text(text, "status", status_name(making, task));
	write_text(text, "identity", task ? task->identity : NULL);
	write_text(text, "description", task ? task->description : NULL);
	write_number(text, "first_usec", seen->first_usec);
	write_number(text, "last_usec", seen->last_usec);
	/* A tombstone alone: what was before it was pruned. */
	write_flag(text, "incomplete", task && task->ended && !seen->attempts.len);
	write_array(making, "attempts", &seen->attempts);
	write_array(making, "boxes", &seen->boxes);
	write_array(making, "box_ends", &seen->box_ends);
	write_array(making, "verified", &seen->receipts);
	write_hosts(text, "allowed", &seen->allowed);
	write_hosts(text, "denied", &seen->denied);
	write_credentials(text, &seen->credentials);
	write_stages(text, task);
	write_open(text, "commands", '{');
	write_number(text, "count", seen->n_commands);
	write_number(text, "failed", seen->n_failed);
	write_array(making, "failures", &seen->failures);
	write_close(text, '}');
	write_array(making, "changes", &seen->changes);
	write_resources(text, task);
	r = write_effects(making, task, reterr);
	if (r < 0)
		return r;
	write_number(text, "conflicts", seen->n_conflicts);
	write_array(making, "decisions", &seen->decisions);
	if (seen->end.len)
		write_raw(text, "end", seen->end.data);
	write_undecided(making, task);
	write_number(text, "tool_calls", seen->n_tools);
	write_number(text, "notes", seen->n_notes);
	write_open(text, "journal", '{');
	write_text(text, "id", abox_journal_get_id(making->journal));
	write_number(text, "records", seen->records);
	write_number(text, "first_seq", seen->first_seq);
	write_number(text, "last_seq", seen->last_seq);
	write_close(text, '}');
	write_close(text, '}');
	return 0;
}

static int make(struct making *making, struct abox_report *report, abox_error **reterr)
{
	static const struct json_bounds bounds = {64u << 20, 64, ABOX_STAGE_REPORT};
	const char *boot = engine_boot_id(reterr);
	int r;

	if (!boot)
		return ABOX_E_SYSTEM;
	making->context = (struct decide_context){.boot = boot, .alive = nobody_asks};
	engine_clock(&making->context);
	r = making->task ? read_task(making, reterr) : read_taskless(making, reterr);
	if (r < 0)
		return r;
	if (making->task && !making->collection.records)
		return error_set(reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_REPORT, NULL,
			"the journal has no records of task '%s'", making->task);
	r = write_report(making, reterr);
	if (r < 0)
		return r;
	report->undecided = making->undecided;
	r = text_take(&making->text, &report->json);
	if (r < 0)
		return r;
	return json_parse(report->json, strlen(report->json), &bounds, &report->tree, reterr);
}

int abox_report_new(abox_journal *journal, const char *task, abox_report **ret, abox_error **reterr)
{
	struct making making = {.journal = journal, .task = task};
	struct abox_report *report;
	int r;

	r = engine_check_journal(journal, false, reterr);
	if (r < 0)
		return r;
	if (!ret)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_REPORT, NULL, "ret is required");
	report = calloc(1, sizeof(*report));
	if (!report)
		return ABOX_E_MEMORY;
	report->refs = 1;
	view_init(&making.history);
	if (task)
		r = engine_history(journal, task, &making.history, reterr);
	if (r >= 0)
		r = make(&making, report, reterr);
	view_clear(&making.history);
	collection_clear(&making.collection);
	text_clear(&making.text);
	if (r < 0) {
		abox_report_unref(report);
		return r;
	}
	*ret = report;
	return 0;
}

abox_report *abox_report_ref(abox_report *report)
{
	if (report)
		__atomic_add_fetch(&report->refs, 1, __ATOMIC_RELAXED);
	return report;
}

abox_report *abox_report_unref(abox_report *report)
{
	if (!report || __atomic_sub_fetch(&report->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return NULL;
	json_unref(report->tree);
	free(report->json);
	free(report);
	return NULL;
}

uint32_t abox_report_get_undecided(const abox_report *report)
{
	return report ? report->undecided : 0;
}

int abox_report_dump(const abox_report *report, char **retjson)
{
	if (!report || !retjson)
		return ABOX_E_INVALID;
	*retjson = strdup(report->json);
	return *retjson ? 0 : ABOX_E_MEMORY;
}

int abox_report_format(const abox_report *report, char **rettext)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	int r;

	if (!report || !rettext)
		return ABOX_E_INVALID;
	r = report_format(report->tree, &text);
	return r < 0 ? r : text_take(&text, rettext);
}
