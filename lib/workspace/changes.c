/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A change set as others see it: fields, JSON, a summary. The digest is that of the canonical JSON of its
 * entries: members in a fixed order, no blanks, nothing of this host in it (no times, owners or inode
 * numbers).
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "workspace/changes.h"
#include "workspace/content.h"

static const char *kind_name(int kind)
{
	static const char *const names[] = {"?", "added", "modified", "deleted", "type", "mode"};

	return kind > 0 && (size_t)kind < ELEMENTSOF(names) ? names[kind] : names[0];
}

static void add_text(struct text *json, const char *key, const char *value)
{
	text_printf(json, ",\"%s\":", key);
	text_add_json(json, value, strlen(value));
}

/* The members of one side, each with a comma before it. */
static void add_side(struct text *json, const struct change_side *side)
{
	add_text(json, "type", file_type_name(side->type));
	if (side->type != ABOX_FILE_LINK)
		text_printf(json, ",\"mode\":\"%04o\"", side->mode);
	if (side->type == ABOX_FILE_REGULAR) {
		text_printf(json, ",\"size\":%llu", (unsigned long long)side->size_bytes);
		add_text(json, content_digest_name(side->size_bytes), side->digest);
	}
	if (side->target)
		add_text(json, "target", side->target);
}

static void add_change(struct text *json, const struct change *change)
{
	text_add(json, "{\"path\":");
	text_add_json(json, change->path, strlen(change->path));
	add_text(json, "kind", kind_name(change->kind));
	if (change->now.type != ABOX_FILE_NONE)
		add_side(json, &change->now);
	if (change->was.type != ABOX_FILE_NONE) {
		struct text side = TEXT_INIT;

		add_side(&side, &change->was);
		text_add(json, ",\"old\":{");
		text_add(json, side.data ? side.data + 1 : "");
		text_add(json, "}");
		json->failed |= side.failed;
		text_clear(&side);
	}
	if (change->other)
		add_text(json, change->kind == ABOX_CHANGE_ADDED ? "from" : "to", change->other);
	if (change->risks[0]) {
		text_add(json, ",\"runs_on_host\":[");
		for (size_t i = 0; change->risks[i]; i++)
			text_printf(json, "%s\"%s\"", i ? "," : "", change->risks[i]);
		text_add(json, "]");
	}
	if (change->detail)
		add_text(json, "keys", change->detail);
	text_add(json, "}");
}

static void add_changes(struct text *json, const abox_changes *changes)
{
	text_add(json, "[");
	for (size_t i = 0; i < changes->n_items; i++) {
		if (i > 0)
			text_add(json, ",");
		add_change(json, &changes->items[i]);
	}
	text_add(json, "]");
}

int changes_seal(abox_changes *changes)
{
	struct text json = TEXT_INIT;
	int r;

	add_changes(&json, changes);
	r = json.failed ? ABOX_E_MEMORY : digest_sha256_text(json.data, json.len, changes->digest);
	text_clear(&json);
	return r;
}

struct counts {
	size_t kinds[ABOX_CHANGE_MODE + 1];
	size_t risky;
};

static struct counts count(const abox_changes *changes)
{
	struct counts counts = {0};

	for (size_t i = 0; i < changes->n_items; i++) {
		counts.kinds[changes->items[i].kind]++;
		counts.risky += changes->items[i].risks[0] != NULL;
	}
	return counts;
}

int abox_changes_dump(const abox_changes *changes, char **retjson)
{
	struct text json = TEXT_INIT;
	struct counts counts;

	if (!changes || !retjson)
		return ABOX_E_INVALID;
	counts = count(changes);
	text_printf(&json, "{\"format\":1,\"digest\":\"%s\",\"counts\":{", changes->digest);
	for (int kind = ABOX_CHANGE_ADDED; kind <= ABOX_CHANGE_MODE; kind++)
		text_printf(&json, "\"%s\":%zu,", kind_name(kind), counts.kinds[kind]);
	text_printf(&json, "\"runs_on_host\":%zu},\"changes\":", counts.risky);
	add_changes(&json, changes);
	text_add(&json, "}");
	return text_take(&json, retjson);
}

static void format_change(struct text *text, const struct change *change)
{
	static const char letters[] = "?AMDTP";
	bool renamed = change->kind == ABOX_CHANGE_ADDED && change->other;

	text_printf(text, "%c  ", renamed ? 'R' : letters[change->kind]);
	if (renamed) {
		text_add_escaped(text, change->other, strlen(change->other));
		text_add(text, " -> ");
	}
	text_add_escaped(text, change->path, strlen(change->path));
	if (change->now.type == ABOX_FILE_FOLDER ||
		(change->was.type == ABOX_FILE_FOLDER && !change->now.type))
		text_add(text, "/");
	if (change->kind == ABOX_CHANGE_TYPE)
		text_printf(text, "  (%s, was %s)", file_type_name(change->now.type),
			file_type_name(change->was.type));
	if (change->now.type && change->was.type && change->now.mode != change->was.mode)
		text_printf(text, "  (mode %04o, was %04o)", change->now.mode, change->was.mode);
	if (change->now.target) {
		text_add(text, "  (to ");
		text_add_escaped(text, change->now.target, strlen(change->now.target));
		text_add(text, ")");
	}
	text_add(text, "\n");
}

static void format_risks(struct text *text, const abox_changes *changes)
{
	text_add(text, "\nWould run on the host:\n");
	for (size_t i = 0; i < changes->n_items; i++) {
		const struct change *change = &changes->items[i];

		if (!change->risks[0])
			continue;
		text_add(text, "   ");
		text_add_escaped(text, change->path, strlen(change->path));
		for (size_t k = 0; change->risks[k]; k++)
			text_printf(text, "%s%s", k ? ", " : "  ", change->risks[k]);
		if (change->detail) {
			text_add(text, ": ");
			text_add_escaped(text, change->detail, strlen(change->detail));
		}
		text_add(text, "\n");
	}
}

int abox_changes_format(const abox_changes *changes, char **rettext)
{
	struct text text = TEXT_INIT;
	struct counts counts;

	if (!changes || !rettext)
		return ABOX_E_INVALID;
	counts = count(changes);
	for (size_t i = 0; i < changes->n_items; i++) {
		const struct change *change = &changes->items[i];

		/* A renamed file is one line, at its new name. */
		if (change->kind != ABOX_CHANGE_DELETED || !change->other)
			format_change(&text, change);
	}
	text_printf(&text,
		"%s%zu added, %zu modified, %zu deleted, %zu of another type, %zu of another mode\n",
		changes->n_items ? "\n" : "", counts.kinds[ABOX_CHANGE_ADDED],
		counts.kinds[ABOX_CHANGE_MODIFIED], counts.kinds[ABOX_CHANGE_DELETED],
		counts.kinds[ABOX_CHANGE_TYPE], counts.kinds[ABOX_CHANGE_MODE]);
	if (counts.risky > 0)
		format_risks(&text, changes);
	return text_take(&text, rettext);
}

size_t abox_changes_get_count(const abox_changes *changes)
{
	return changes ? changes->n_items : 0;
}

const char *abox_changes_get_digest(const abox_changes *changes)
{
	return changes ? changes->digest : NULL;
}

int abox_changes_get(const abox_changes *changes, size_t i, struct abox_change *ret)
{
	struct abox_change change = {0};
	const struct change *item;

	if (!changes || !ret || ret->size < offsetof(struct abox_change, path) + sizeof(ret->path))
		return ABOX_E_INVALID;
	if (i >= changes->n_items)
		return ABOX_E_NOT_FOUND;
	item = &changes->items[i];
	change = (struct abox_change){
		.size = ret->size,
		.path = item->path,
		.other_path = item->other,
		.kind = item->kind,
		.type = item->now.type,
		.old_type = item->was.type,
		.mode = item->now.mode,
		.old_mode = item->was.mode,
		.size_bytes = item->now.size_bytes,
		.old_size_bytes = item->was.size_bytes,
		.digest = item->now.digest[0] ? item->now.digest : NULL,
		.old_digest = item->was.digest[0] ? item->was.digest : NULL,
		.risk = item->risks[0],
	};
	memcpy(ret, &change, MIN(ret->size, sizeof(change)));
	return 0;
}
