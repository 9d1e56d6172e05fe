/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One pass over the records of a task. Bodies come from recorders and harnesses: what is missing or of
 * another kind is left out, never guessed; every list is bounded, as a box can make any number of records.
 */
#include "report/collect.h"

#include <stdlib.h>
#include <string.h>

#include "effect/write.h"

#define MAX_FAILURES 20
#define MAX_LIST_BYTES (256u << 10)

enum { COUNT_USES, COUNT_MINTS, COUNT_REVOKES, COUNT_FAILURES };

void collection_clear(struct collection *collection)
{
	struct text *texts[] = {&collection->attempts, &collection->boxes, &collection->box_ends,
		&collection->receipts, &collection->failures, &collection->changes, &collection->decisions,
		&collection->end};
	struct tally *tallies[] = {&collection->allowed, &collection->denied, &collection->credentials};

	for (size_t i = 0; i < ELEMENTSOF(texts); i++)
		text_clear(texts[i]);
	for (size_t i = 0; i < ELEMENTSOF(tallies); i++) {
		for (size_t k = 0; k < tallies[i]->n; k++) {
			free(tallies[i]->list[k].name);
			free(tallies[i]->list[k].detail);
		}
		free(tallies[i]->list);
	}
	*collection = (struct collection){0};
}

static int tally_count(struct tally *tally, const char *name, const char *detail, int which)
{
	size_t i = 0;
	void *more;

	while (i < tally->n && strcmp(tally->list[i].name, name) != 0)
		i++;
	if (i == TALLY_MAX) {
		tally->others++;
		return 0;
	}
	if (i == tally->n) {
		more = realloc(tally->list, (tally->n + 1) * sizeof(*tally->list));
		if (!more)
			return ABOX_E_MEMORY;
		tally->list = more;
		memset(&tally->list[i], 0, sizeof(tally->list[i]));
		tally->list[i].name = strdup(name);
		tally->list[i].detail = detail ? strdup(detail) : NULL;
		if (!tally->list[i].name)
			return ABOX_E_MEMORY;
		tally->n++;
	}
	tally->list[i].counts[which]++;
	return 0;
}

static bool has_room(const struct text *text)
{
	return text->len < MAX_LIST_BYTES;
}

/* The first of these members that is a text. */
static const char *text_of(const struct json *body, const char *const *names)
{
	for (size_t i = 0; names[i]; i++)
		if (json_text(json_member(body, names[i])))
			return json_text(json_member(body, names[i]));
	return NULL;
}

static void write_json(struct text *text, const char *name, const struct json *value)
{
	_cleanup_(text_clear) struct text printed = TEXT_INIT;

	if (!value)
		return;
	json_print(&printed, value);
	if (printed.failed || !printed.data)
		text->failed = true;
	else
		write_raw(text, name, printed.data);
}

/* ---- kinds of records ---- */

typedef int (*collect_fn)(
	struct collection *collection, const struct journal_record *record, const struct json *body);

static int collect_attempt(
	struct collection *collection, const struct journal_record *record, const struct json *body)
{
	struct text *text = &collection->attempts;

	if (!has_room(text))
		return 0;
	write_open(text, NULL, '{');
	write_number(text, "number", record->epoch);
	write_number(text, "time_usec", record->time_usec);
	write_text(text, "host", json_text(json_member(body, "host")));
	write_number(text, "pid", (uint64_t)json_number(json_member(body, "pid")));
	write_close(text, '}');
	return 0;
}

static void write_not_enforced(struct text *text, const struct json *plan)
{
	const struct json *list = json_member(plan, "enforcement");

	write_open(text, "not_enforced", '[');
	for (size_t i = 0; i < json_count(list); i++) {
		const struct json *entry = json_element(list, i);
		const char *status = json_text(json_member(entry, "status")),
			   *name = json_text(json_member(entry, "name"));

		if (status && name && strcmp(status, "enforced") != 0)
			write_element(text, name);
	}
	write_close(text, ']');
}

static int collect_box_start(
	struct collection *collection, const struct journal_record *record, const struct json *body)
{
	const struct json *box = json_member(body, "record"), *plan = json_member(body, "plan");
	const struct json *spec = json_member(plan, "spec");
	struct text *text = &collection->boxes;

	if (!has_room(text))
		return 0;
	write_open(text, NULL, '{');
	write_text(text, "box", record->box);
	write_number(text, "time_usec", record->time_usec);
	write_text(text, "name", json_text(json_member(box, "name")));
	write_text(text, "backend", text_of(box, (const char *const[]){"backend", NULL}));
	write_text(text, "plan_digest", text_of(box, (const char *const[]){"plan_digest", NULL}));
	write_json(text, "identity", json_member(spec, "identity"));
	write_json(text, "network", json_member(spec, "network"));
	write_json(text, "credentials", json_member(spec, "credentials"));
	write_json(text, "waived", json_member(plan, "waived"));
	write_not_enforced(text, plan);
	write_close(text, '}');
	return 0;
}

static int collect_box_stop(
	struct collection *collection, const struct journal_record *record, const struct json *body)
{
	struct text *text = &collection->box_ends;

	if (!has_room(text))
		return 0;
	write_open(text, NULL, '{');
	write_text(text, "box", record->box);
	write_number(text, "time_usec", record->time_usec);
	write_text(text, "outcome", json_text(json_member(body, "outcome")));
	write_text(text, "evidence", json_text(json_member(body, "evidence")));
	write_close(text, '}');
	return 0;
}

static int collect_receipt(
	struct collection *collection, const struct journal_record *record, const struct json *body)
{
	struct text *text = &collection->receipts;

	if (!has_room(text))
		return 0;
	write_open(text, NULL, '{');
	write_text(text, "box", record->box);
	write_number(text, "proven", json_count(json_member(body, "proven")));
	write_json(text, "mismatches", json_member(body, "mismatches"));
	write_close(text, '}');
	return 0;
}

static int collect_command(
	struct collection *collection, const struct journal_record *record, const struct json *body)
{
	collection->n_commands++;
	return 0;
}

static int collect_command_end(
	struct collection *collection, const struct journal_record *record, const struct json *body)
{
	const char *cause = json_text(json_member(body, "cause"));
	const struct json *code = json_member(body, "exit_code");
	struct text *text = &collection->failures;

	if (cause && strcmp(cause, "exited") == 0 && json_kind(code) == JSON_KIND_INTEGER &&
		json_number(code) == 0)
		return 0;
	if (++collection->n_failed > MAX_FAILURES)
		return 0;
	write_open(text, NULL, '{');
	write_text(text, "box", record->box);
	write_number(text, "command", (uint64_t)json_number(json_member(body, "command")));
	write_text(text, "cause", cause);
	write_json(text, "exit_code", code);
	write_text(text, "stderr_tail", json_text(json_member(body, "stderr_tail")));
	write_close(text, '}');
	return 0;
}

static const char *const host_names[] = {"host", "name", "address", "destination", NULL};

static int collect_allow(
	struct collection *collection, const struct journal_record *record, const struct json *body)
{
	const char *host = text_of(body, host_names);

	return host ? tally_count(&collection->allowed, host, NULL, COUNT_USES) : 0;
}

static int collect_deny(
	struct collection *collection, const struct journal_record *record, const struct json *body)
{
	const char *host = text_of(body, host_names);

	return host ? tally_count(&collection->denied, host,
			      text_of(body, (const char *const[]){"rule", "reason", NULL}), COUNT_USES)
		    : 0;
}

static int collect_credential(
	struct collection *collection, const struct journal_record *record, const struct json *body)
{
	const char *name = text_of(body, (const char *const[]){"credential", "name", NULL});
	const char *verb = record->type + strlen("credential.");
	int which = strcmp(verb, "mint") == 0     ? COUNT_MINTS
		    : strcmp(verb, "revoke") == 0 ? COUNT_REVOKES
		    : strcmp(verb, "fail") == 0   ? COUNT_FAILURES
						  : COUNT_USES;

	return name ? tally_count(&collection->credentials, name, text_of(body, host_names), which) : 0;
}

static int collect_change(
	struct collection *collection, const struct journal_record *record, const struct json *body)
{
	struct text *text = &collection->changes;

	if (!has_room(text))
		return 0;
	write_open(text, NULL, '{');
	write_text(text, "type", record->type);
	write_number(text, "seq", record->seq);
	write_json(text, "record", body);
	write_close(text, '}');
	return 0;
}

static int collect_boundary(
	struct collection *collection, const struct journal_record *record, const struct json *body)
{
	struct text *text = &collection->changes;

	write_open(text, NULL, '{');
	write_text(text, "type", record->type);
	write_number(text, "seq", record->seq);
	write_text(text, "change_set", json_text(json_member(body, "change_set")));
	write_json(text, "artifacts", json_member(body, "artifacts"));
	write_close(text, '}');
	return 0;
}

static int collect_decision(
	struct collection *collection, const struct journal_record *record, const struct json *body)
{
	struct text *text = &collection->decisions;

	if (!has_room(text))
		return 0;
	write_open(text, NULL, '{');
	write_text(text, "type", record->type);
	write_number(text, "time_usec", record->time_usec);
	write_text(text, "by", json_text(json_member(body, "by")));
	write_text(text, "effect", json_text(json_member(body, "effect")));
	write_text(text, "approval", json_text(json_member(body, "approval")));
	write_text(text, "stage", json_text(json_member(body, "name")));
	write_text(text, "of", json_text(json_member(body, "of")));
	write_text(text, "state", json_text(json_member(body, "state")));
	write_text(text, "reason", json_text(json_member(body, "reason")));
	write_close(text, '}');
	return 0;
}

static int collect_end(
	struct collection *collection, const struct journal_record *record, const struct json *body)
{
	struct text *text = &collection->end;

	text_clear(text);
	write_open(text, NULL, '{');
	write_text(text, "status", json_text(json_member(body, "status")));
	write_number(text, "time_usec", record->time_usec);
	write_text(text, "by", json_text(json_member(body, "by")));
	write_text(text, "reason", json_text(json_member(body, "reason")));
	write_text(text, "outcome", json_text(json_member(body, "payload")));
	write_close(text, '}');
	return 0;
}

static int collect_tool(
	struct collection *collection, const struct journal_record *record, const struct json *body)
{
	collection->n_tools++;
	return 0;
}

static int collect_note(
	struct collection *collection, const struct journal_record *record, const struct json *body)
{
	collection->n_notes++;
	return 0;
}

static int collect_conflict(
	struct collection *collection, const struct journal_record *record, const struct json *body)
{
	collection->n_conflicts++;
	return 0;
}

static const struct {
	const char *type;
	collect_fn collect;
} kinds[] = {
	{"task.control", collect_attempt},
	{"task.boundary", collect_boundary},
	{"task.step", collect_change},
	{"task.cancel", collect_decision},
	{"task.end", collect_end},
	{"stage.decided", collect_decision},
	{"effect.verdict", collect_decision},
	{"effect.override", collect_decision},
	{"effect.claimed", collect_decision},
	{"effect.allowed", collect_decision},
	{"effect.late", collect_decision},
	{"effect.conflict", collect_conflict},
	{"approval.grant", collect_decision},
	{"approval.deny", collect_decision},
	{"approval.revoke", collect_decision},
	{"box.start", collect_box_start},
	{"box.verify", collect_receipt},
	{"box.stop", collect_box_stop},
	{"command.start", collect_command},
	{"command.end", collect_command_end},
	{"net.allow", collect_allow},
	{"net.deny", collect_deny},
	{"credential.mint", collect_credential},
	{"credential.use", collect_credential},
	{"credential.revoke", collect_credential},
	{"credential.fail", collect_credential},
	{"artifact", collect_change},
	{"snapshot", collect_change},
	{"apply", collect_change},
	{"tool.call", collect_tool},
	{"note", collect_note},
};

int collect_record(struct collection *collection, const struct journal_record *record, abox_error **reterr)
{
	static const struct json_bounds bounds = {4u << 20, 64, ABOX_STAGE_REPORT};
	_cleanup_(json_unrefp) struct json *body = NULL;
	int r;

	if (!collection->records++) {
		collection->first_seq = record->seq;
		collection->first_usec = record->time_usec;
	}
	collection->last_seq = record->seq;
	collection->last_usec = record->time_usec;
	for (size_t i = 0; i < ELEMENTSOF(kinds); i++) {
		if (strcmp(kinds[i].type, record->type) != 0)
			continue;
		r = json_parse(record->body, record->body_len, &bounds, &body, reterr);
		if (r < 0)
			return error_prefix(reterr, r, "record %llu", (unsigned long long)record->seq);
		return kinds[i].collect(collection, record, body);
	}
	return 0;
}
