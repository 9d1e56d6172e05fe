/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Facts and their JSON form. Texts that a JSON string cannot carry unchanged (bytes that are not UTF-8, NUL)
 * are written in hexadecimal under the name with "_hex" behind it, so that keys and results survive to the
 * byte.
 */
#include "effect/fact.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <agentbox/task.h>

#include "base/error.h"

static const char *const fact_types[N_FACT_KINDS] = {
	[FACT_TASK_CONTROL] = "task.control",
	[FACT_TASK_HEARTBEAT] = "task.heartbeat",
	[FACT_TASK_CHECKPOINT] = "task.checkpoint",
	[FACT_TASK_CANCEL] = "task.cancel",
	[FACT_TASK_BOUNDARY] = "task.boundary",
	[FACT_TASK_STEP] = "task.step",
	[FACT_TASK_END] = "task.end",
	[FACT_STAGE_BEGIN] = "stage.begin",
	[FACT_STAGE_END] = "stage.end",
	[FACT_STAGE_DECIDED] = "stage.decided",
	[FACT_EFFECT_INTENDED] = "effect.intended",
	[FACT_EFFECT_AMBIGUOUS] = "effect.ambiguous",
	[FACT_EFFECT_ALLOWED] = "effect.allowed",
	[FACT_EFFECT_CLAIMED] = "effect.claimed",
	[FACT_EFFECT_DISPATCHED] = "effect.dispatched",
	[FACT_EFFECT_COMMITTED] = "effect.committed",
	[FACT_EFFECT_FAILED] = "effect.failed",
	[FACT_EFFECT_UNKNOWN] = "effect.unknown",
	[FACT_EFFECT_CANCELED] = "effect.canceled",
	[FACT_EFFECT_VERDICT] = "effect.verdict",
	[FACT_EFFECT_OVERRIDE] = "effect.override",
	[FACT_EFFECT_CONFLICT] = "effect.conflict",
	[FACT_EFFECT_LATE] = "effect.late",
	[FACT_EFFECT_REPLAY] = "effect.replay",
	[FACT_EFFECT_RELEASED] = "effect.released",
	[FACT_APPROVAL_REQUEST] = "approval.request",
	[FACT_APPROVAL_GRANT] = "approval.grant",
	[FACT_APPROVAL_DENY] = "approval.deny",
	[FACT_APPROVAL_REVOKE] = "approval.revoke",
	[FACT_RESOURCE_CREATED] = "resource.created",
	[FACT_RESOURCE_REMOVED] = "resource.removed",
	[FACT_JOURNAL_ADOPTED] = "journal.adopted",
	[FACT_STATE_TASK] = "task",
	[FACT_STATE_STAGE] = "stage",
	[FACT_STATE_EFFECT] = "effect",
	[FACT_STATE_ALIAS] = "alias",
	[FACT_STATE_APPROVAL] = "approval",
	[FACT_STATE_RESOURCE] = "resource",
};

/* Names of enum values in records. */
static const char *const class_names[] = {"opaque", "checkable", "idempotent", "pure"};
static const char *const state_names[] = {"NONE", "INTENDED", "DISPATCHED", "COMMITTED", "FAILED", "UNKNOWN",
	"CANCELED", "ABSENT", "ABANDONED"};
static const char *const status_names[] = {
	"new", "running", "resumable", "committing", "finished", "canceled", "abandoned"};
static const char *const cause_names[] = {"other", "worker_start", "source", "registry", "command", "tests",
	"limit", "canceled", "owner_lost", "policy"};

struct names {
	const char *const *names;
	size_t n;
};
static const struct names names_class = {class_names, ELEMENTSOF(class_names)};
static const struct names names_state = {state_names, ELEMENTSOF(state_names)};
static const struct names names_status = {status_names, ELEMENTSOF(status_names)};
static const struct names names_cause = {cause_names, ELEMENTSOF(cause_names)};

enum field_type { TEXT, BYTES, NUMBER, SIGNED, NAMED, LIST };

struct field {
	const char *name;
	size_t offset;
	enum field_type type;
	const struct names *names;
};
#define FIELD(member, type)                                                                                  \
	{                                                                                                    \
#member, offsetof(struct fact, member), type, NULL                                           \
	}
#define FIELD_NAMED(member, name, names)                                                                     \
	{                                                                                                    \
		name, offsetof(struct fact, member), NAMED, names                                            \
	}

/* In the order in which they are written. */
static const struct field fields[] = {
	FIELD(effect, TEXT),
	FIELD(approval, TEXT),
	FIELD(name, TEXT),
	FIELD(try, NUMBER),
	FIELD_NAMED(state, "state", &names_state),
	FIELD_NAMED(status, "status", &names_status),
	FIELD_NAMED(effect_class, "class", &names_class),
	FIELD_NAMED(cause, "cause", &names_cause),
	FIELD(key, BYTES),
	FIELD(derived, NUMBER),
	FIELD(wish, NUMBER),
	FIELD(target, BYTES),
	FIELD(what, TEXT),
	FIELD(fingerprint, TEXT),
	FIELD(plan, TEXT),
	FIELD(by, TEXT),
	FIELD(reason, TEXT),
	FIELD(identity, TEXT),
	FIELD(description, TEXT),
	FIELD(attempt, NUMBER),
	FIELD(max_tries, NUMBER),
	FIELD(settle_usec, NUMBER),
	FIELD(deferred, NUMBER),
	FIELD(needs_approval, NUMBER),
	FIELD(of, TEXT),
	FIELD(candidates, LIST),
	FIELD(retryable, NUMBER),
	FIELD(maybe, NUMBER),
	FIELD(payload, BYTES),
	FIELD(payload_blob, TEXT),
	FIELD(result, BYTES),
	FIELD(result_blob, TEXT),
	FIELD(result_len, NUMBER),
	FIELD(has_result, NUMBER),
	FIELD(code, SIGNED),
	FIELD(body_digest, TEXT),
	FIELD(uses, NUMBER),
	FIELD(used, NUMBER),
	FIELD(ttl_usec, NUMBER),
	FIELD(wall, NUMBER),
	FIELD(snapshot, TEXT),
	FIELD(change_set, TEXT),
	FIELD(artifacts, LIST),
	FIELD(effects, LIST),
	FIELD(approvals, LIST),
	FIELD(step, NUMBER),
	FIELD(repeatable, NUMBER),
	FIELD(max_runs, NUMBER),
	FIELD(causes, NUMBER),
	FIELD(backoff_usec, NUMBER),
	FIELD(max_backoff_usec, NUMBER),
	FIELD(jitter_percent, NUMBER),
	FIELD(done, NUMBER),
	FIELD(cleanup, TEXT),
	FIELD(duty, NUMBER),
	FIELD(claimed, NUMBER),
	FIELD(first_seq, NUMBER),
	FIELD(state_seq, NUMBER),
	FIELD(result_seq, NUMBER),
	FIELD(payload_seq, NUMBER),
	FIELD(override, NUMBER),
	FIELD(credit, NUMBER),
	FIELD(allowed, NUMBER),
	FIELD(canceled_seq, NUMBER),
	FIELD(boundary_seq, NUMBER),
	FIELD(checkpoint_seq, NUMBER),
	FIELD(runs, NUMBER),
	FIELD(adopted, NUMBER),
	FIELD(owner_epoch, NUMBER),
	FIELD(executor, TEXT),
	FIELD(handle, NUMBER),
	FIELD(lease_usec, NUMBER),
	FIELD(host, TEXT),
	FIELD(boot, TEXT),
	FIELD(boot_usec, NUMBER),
	FIELD(pid, NUMBER),
	FIELD(pid_start, NUMBER),
	FIELD(pid_namespace, NUMBER),
};

/* Members of a summary that are not part of a record's body, as there they stand outside of it. */
static const struct field envelope[] = {
	FIELD(task, TEXT), FIELD(epoch, NUMBER), FIELD(time_usec, NUMBER), FIELD(room, SIGNED)};

static const char *name_of(const struct names *names, int value)
{
	return value >= 0 && (size_t)value < names->n ? names->names[value] : "?";
}

const char *abox_effect_class_name(int effect_class)
{
	return name_of(&names_class, effect_class);
}

int abox_effect_class_from_name(const char *name)
{
	for (size_t i = 0; name && i < ELEMENTSOF(class_names); i++)
		if (strcmp(class_names[i], name) == 0)
			return (int)i;
	return ABOX_E_INVALID;
}

const char *abox_effect_state_name(int state)
{
	return name_of(&names_state, state);
}

const char *abox_task_status_name(int status)
{
	return name_of(&names_status, status);
}

const char *abox_stage_cause_name(int cause)
{
	return name_of(&names_cause, cause);
}

const char *fact_type(int kind)
{
	return fact_types[kind];
}

int fact_kind_of(const char *type)
{
	for (int i = FACT_NONE + 1; i < FACT_STATE_TASK; i++)
		if (strcmp(fact_types[i], type) == 0)
			return i;
	return FACT_NONE;
}

/* ---- writing ---- */

static bool bytes_are_text(const struct fact_bytes *bytes)
{
	const char *data = bytes->data;
	size_t n;

	for (size_t i = 0; i < bytes->len; i += n) {
		n = utf8_char_len(data + i, bytes->len - i);
		if (n == 0 || data[i] == 0)
			return false;
	}
	return true;
}

static void member_name(struct text *text, const char *name, const char *suffix)
{
	char last = text->len ? text->data[text->len - 1] : 0;

	text_printf(text, "%s\"%s%s\":", last == '{' ? "" : ",", name, suffix);
}

static void write_bytes(struct text *text, const char *name, const struct fact_bytes *bytes)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *data = bytes->data;
	char pair[2];

	if (bytes_are_text(bytes)) {
		member_name(text, name, "");
		text_add_json(text, bytes->data, bytes->len);
		return;
	}
	member_name(text, name, "_hex");
	text_add(text, "\"");
	for (size_t i = 0; i < bytes->len; i++) {
		pair[0] = digits[data[i] >> 4];
		pair[1] = digits[data[i] & 15];
		text_add_bytes(text, pair, 2);
	}
	text_add(text, "\"");
}

static void write_list(struct text *text, const char *name, const char *const *list)
{
	member_name(text, name, "");
	text_add(text, "[");
	for (size_t i = 0; list[i]; i++) {
		if (i > 0)
			text_add(text, ",");
		text_add_json(text, list[i], strlen(list[i]));
	}
	text_add(text, "]");
}

static void write_field(struct text *text, const struct fact *fact, const struct field *field)
{
	const void *at = (const char *)fact + field->offset;

	switch (field->type) {
	case TEXT: {
		const char *value = *(const char *const *)at;

		/* Texts for people are made UTF-8 here, so that every record can be read again. */
		if (value)
			write_bytes(text, field->name, &(struct fact_bytes){value, strlen(value)});
		break;
	}
	case BYTES:
		if (((const struct fact_bytes *)at)->data)
			write_bytes(text, field->name, at);
		break;
	case NUMBER:
		if (*(const uint64_t *)at) {
			member_name(text, field->name, "");
			/* Of a summary: times without end are held back by fact_fits() everywhere else. */
			text_printf(text, "%llu",
				(unsigned long long)MIN(*(const uint64_t *)at, (uint64_t)INT64_MAX));
		}
		break;
	case SIGNED:
		if (*(const int64_t *)at) {
			member_name(text, field->name, "");
			text_printf(text, "%lld", (long long)*(const int64_t *)at);
		}
		break;
	case NAMED:
		if (*(const uint32_t *)at || field->names == &names_class) {
			member_name(text, field->name, "");
			text_printf(text, "\"%s\"", name_of(field->names, (int)*(const uint32_t *)at));
		}
		break;
	case LIST:
		if (*(const char *const *const *)at)
			write_list(text, field->name, *(const char *const *const *)at);
		break;
	}
}

static bool has_class(int kind)
{
	return kind == FACT_EFFECT_INTENDED || kind == FACT_EFFECT_AMBIGUOUS ||
	       kind == FACT_APPROVAL_REQUEST || kind == FACT_STATE_EFFECT || kind == FACT_STATE_APPROVAL;
}

bool fact_fits(const struct fact *fact)
{
	for (size_t i = 0; i < ELEMENTSOF(fields); i++)
		if (fields[i].type == NUMBER &&
			*(const uint64_t *)((const char *)fact + fields[i].offset) > INT64_MAX)
			return false;
	return fact->epoch <= INT64_MAX;
}

void fact_write(struct text *text, const struct fact *fact)
{
	text_add(text, "{");
	if (fact->kind >= FACT_STATE_TASK) {
		text_printf(text, "\"of_kind\":\"%s\"", fact_types[fact->kind]);
		for (size_t i = 0; i < ELEMENTSOF(envelope); i++)
			write_field(text, fact, &envelope[i]);
	}
	for (size_t i = 0; i < ELEMENTSOF(fields); i++)
		if (fields[i].names != &names_class || has_class(fact->kind))
			write_field(text, fact, &fields[i]);
	text_add(text, "}");
}

/* ---- reading ---- */

static int own(struct fact *fact, void *memory)
{
	if (!memory)
		return ABOX_E_MEMORY;
	if (fact->n_owned == ELEMENTSOF(fact->owned)) {
		free(memory);
		return ABOX_E_LIMIT;
	}
	fact->owned[fact->n_owned++] = memory;
	return 0;
}

static int read_hex(struct fact *fact, const char *hex, struct fact_bytes *ret)
{
	size_t len = strlen(hex) / 2;
	char *data = calloc(1, len + 1);
	int r;

	r = own(fact, data);
	if (r < 0)
		return r;
	r = hex_decode(hex, data, len);
	if (r < 0)
		return r;
	*ret = (struct fact_bytes){data, len};
	return 0;
}

static int read_bytes(struct fact *fact, const struct json *tree, const char *name, struct fact_bytes *ret)
{
	const char *text = json_text(json_member(tree, name));
	char hex_name[64];

	if (text) {
		*ret = (struct fact_bytes){text, strlen(text)};
		return 0;
	}
	snprintf(hex_name, sizeof(hex_name), "%s_hex", name);
	text = json_text(json_member(tree, hex_name));
	return text ? read_hex(fact, text, ret) : 0;
}

static int read_list(struct fact *fact, const struct json *array, const char *const **ret)
{
	size_t n = json_count(array);
	const char **list;
	int r;

	if (json_kind(array) != JSON_KIND_ARRAY)
		return 0;
	list = calloc(n + 1, sizeof(*list));
	r = own(fact, (void *)list);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		list[i] = json_text(json_element(array, i));
		if (!list[i])
			return ABOX_E_SYNTAX;
	}
	*ret = list;
	return 0;
}

static int read_named(const struct names *names, const char *text, uint32_t *ret)
{
	for (size_t i = 0; text && i < names->n; i++)
		if (strcmp(names->names[i], text) == 0) {
			*ret = (uint32_t)i;
			return 0;
		}
	return text ? ABOX_E_SYNTAX : 0;
}

static int read_field(struct fact *fact, const struct json *tree, const struct field *field)
{
	const struct json *value = json_member(tree, field->name);
	void *at = (char *)fact + field->offset;
	struct fact_bytes bytes = {0};
	int r;

	switch (field->type) {
	case TEXT:
		r = read_bytes(fact, tree, field->name, &bytes);
		if (r < 0)
			return r;
		*(const char **)at = bytes.data;
		return 0;
	case BYTES:
		return read_bytes(fact, tree, field->name, at);
	case NUMBER:
		if (value && (json_kind(value) != JSON_KIND_INTEGER || json_number(value) < 0))
			return ABOX_E_SYNTAX;
		*(uint64_t *)at = (uint64_t)json_number(value);
		return 0;
	case SIGNED:
		*(int64_t *)at = json_number(value);
		return 0;
	case NAMED:
		return read_named(field->names, json_text(value), at);
	case LIST:
		return read_list(fact, value, at);
	}
	return 0;
}

static int read_fields(struct fact *fact, const struct field *table, size_t n, abox_error **reterr)
{
	int r;

	for (size_t i = 0; i < n; i++) {
		r = read_field(fact, fact->tree, &table[i]);
		if (r == ABOX_E_MEMORY)
			return r;
		if (r < 0)
			return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, NULL,
				"record %llu: \"%s\" is not what it must be", (unsigned long long)fact->seq,
				table[i].name);
	}
	return 0;
}

int fact_read(struct fact *fact, int kind, const char *body, size_t len, abox_error **reterr)
{
	static const struct json_bounds bounds = {
		.max_bytes = 4u << 20, .max_depth = 8, .stage = ABOX_STAGE_JOURNAL};
	int r;

	r = json_parse(body, len, &bounds, &fact->tree, reterr);
	if (r < 0)
		return r;
	fact->kind = kind;
	return read_fields(fact, fields, ELEMENTSOF(fields), reterr);
}

int fact_read_tree(struct fact *fact, struct json *tree_taken, abox_error **reterr)
{
	const char *kind = json_text(json_member(tree_taken, "of_kind"));
	int r;

	fact->tree = tree_taken;
	for (int i = FACT_STATE_TASK; kind && i < N_FACT_KINDS; i++)
		if (strcmp(kind, fact_types[i]) == 0)
			fact->kind = i;
	if (fact->kind == FACT_NONE)
		return error_set(
			reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, NULL, "unknown part of a summary");
	r = read_fields(fact, envelope, ELEMENTSOF(envelope), reterr);
	if (r < 0)
		return r;
	return read_fields(fact, fields, ELEMENTSOF(fields), reterr);
}

void fact_clear(struct fact *fact)
{
	for (size_t i = 0; i < fact->n_owned; i++)
		free(fact->owned[i]);
	fact->tree = json_unref(fact->tree);
	*fact = (struct fact){0};
}
