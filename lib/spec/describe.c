/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The key table as text: JSON for tools, Markdown for people (KEYS.md in this folder is made from it).
 */
#include "spec/tree.h"

#include <stdlib.h>
#include <string.h>

static void add_json_text(struct text *text, const char *name, const char *value)
{
	text_printf(text, ",\"%s\":", name);
	text_add_json(text, value, strlen(value));
}

static void add_json_bounds(struct text *text, const struct spec_key *key)
{
	_cleanup_(freep) char *min = NULL, *max = NULL;

	if (!type_has_bounds(key))
		return;
	if (type_bound(key, key->min, &min) < 0 || type_bound(key, key->max, &max) < 0) {
		text->failed = true;
		return;
	}
	add_json_text(text, "min", min);
	add_json_text(text, "max", max);
}

static void add_json_words(struct text *text, const struct spec_key *key)
{
	if (!key->words)
		return;
	text_add(text, ",\"words\":[");
	for (size_t i = 0; key->words[i]; i++) {
		text_add(text, i > 0 ? "," : "");
		text_add_json(text, key->words[i], strlen(key->words[i]));
	}
	text_add(text, "]");
}

static void describe_json(struct text *text)
{
	text_add(text, "[");
	for (size_t i = 1; i < spec_n_keys; i++) {
		const struct spec_key *key = &spec_keys[i];

		text_add(text, i > 1 ? ",\n{\"key\":" : "\n{\"key\":");
		text_add_json(text, key->pattern, strlen(key->pattern));
		add_json_text(text, "type", type_name(key->type));
		add_json_text(text, "module", spec_module_name(key->module));
		if (key->fallback)
			add_json_text(text, key->fallback[0] == '=' ? "default_of" : "default",
				key->fallback + (key->fallback[0] == '='));
		if (key->flags & SPEC_REQUIRED)
			text_add(text, ",\"required\":true");
		add_json_bounds(text, key);
		add_json_words(text, key);
		add_json_text(text, "doc", key->doc);
		text_add(text, "}");
	}
	text_add(text, "\n]\n");
}

static void add_markdown_type(struct text *text, const struct spec_key *key)
{
	_cleanup_(freep) char *min = NULL, *max = NULL;

	if (key->words) {
		for (size_t i = 0; key->words[i]; i++)
			text_printf(text, "%s`%s`", i > 0 ? ", " : "", key->words[i]);
		return;
	}
	text_add(text, type_name(key->type));
	if (!type_has_bounds(key))
		return;
	if (type_bound(key, key->min, &min) < 0 || type_bound(key, key->max, &max) < 0)
		text->failed = true;
	else
		text_printf(text, " (%s to %s)", min, max);
}

static void add_markdown_default(struct text *text, const struct spec_key *key)
{
	if (key->flags & SPEC_REQUIRED)
		text_add(text, "required");
	else if (key->fallback && key->fallback[0] == '=')
		text_printf(text, "that of `%s`", key->fallback + 1);
	else if (key->fallback)
		text_printf(text, "`%s`", key->fallback);
}

static void describe_markdown(struct text *text)
{
	text_add(text, "# Keys of a spec\n\n"
		       "Made from the table in `keys.c`; `agentbox spec keys` and "
		       "`abox_spec_describe_keys()` print it.\n\n"
		       "`*` stands for an index or a name. Durations are texts with a unit (`ms`, `s`, `m`, "
		       "`h`, `d`) or whole\n"
		       "seconds; sizes are texts with a unit (`KiB`, `MiB`, `GiB`, `TiB`) or whole bytes. "
		       "The bounds of texts are\n"
		       "in bytes, those of lists and maps in entries. A key that is absent has its default; "
		       "`null` is refused.\n"
		       "*Module* is the part of the library that makes a key true; where it is not in a "
		       "build, the key is refused.\n"
		       "\n| key | type | default | module | meaning |\n| --- | --- | --- | --- | --- |\n");
	for (size_t i = 1; i < spec_n_keys; i++) {
		const struct spec_key *key = &spec_keys[i];

		text_printf(text, "| `%s` | ", key->pattern);
		add_markdown_type(text, key);
		text_add(text, " | ");
		add_markdown_default(text, key);
		text_printf(text, " | %s | %s |\n", spec_module_name(key->module), key->doc);
	}
}

int abox_spec_describe_keys(int format, char **rettext)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;

	if (!rettext)
		return ABOX_E_INVALID;
	if (format == ABOX_KEYS_JSON)
		describe_json(&text);
	else if (format == ABOX_KEYS_MARKDOWN)
		describe_markdown(&text);
	else
		return ABOX_E_INVALID;
	return text_take(&text, rettext);
}

int abox_spec_get(const abox_spec *spec, const char *pointer, char **retjson, abox_error **reterr)
{
	_cleanup_(json_unrefp) struct json *root = NULL;
	const struct json *value;
	int r;

	if (!spec || !pointer || !retjson)
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_SPEC, NULL, "spec, pointer and ret are required");
	if (!spec_key_find(pointer))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_SPEC, pointer, "there is no such key");
	r = spec_resolve(spec, &root);
	if (r < 0)
		return r;
	value = json_at(root, pointer);
	if (!value)
		return error_set(reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_SPEC, pointer,
			"not written, and without default");
	return json_print_new(value, retjson);
}
