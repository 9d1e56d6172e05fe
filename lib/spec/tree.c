/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Checking a tree against the key table, key by key. What concerns several keys at once is check.c's.
 * The recursion is as deep as the longest row of the table, however deep the text is.
 */
#include "spec/tree.h"

#include <stdlib.h>
#include <string.h>

static void place_error(
	abox_error **reterr, int code, const struct origin *origin, const char *pointer, bool of_name)
{
	uint32_t line, column;
	bool found;

	if (!origin->text || strlen(pointer) < origin->base_len)
		return;
	pointer += origin->base_len;
	if (of_name)
		found = json_locate_name(origin->text, origin->len, pointer, &line, &column);
	else
		found = json_locate(origin->text, origin->len, pointer, &line, &column);
	if (found)
		error_position(reterr, code, line, column);
}

static int refuse_fault(const struct type_fault *fault, const char *pointer, const struct origin *origin,
	bool of_name, abox_error **reterr)
{
	error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_SPEC, pointer, "%s", fault->message);
	error_remedy(reterr, ABOX_E_INVALID, "%s", fault->remedy);
	place_error(reterr, ABOX_E_INVALID, origin, pointer, of_name);
	return ABOX_E_INVALID;
}

int tree_refuse_unknown(const struct spec_key *parent, const char *name, const char *pointer,
	const struct origin *origin, abox_error **reterr)
{
	_cleanup_(text_clear) struct text known = TEXT_INIT;
	const char *near = spec_key_suggest(parent, name);
	const struct spec_key *child = NULL;

	error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_SPEC, pointer, "there is no such key");
	place_error(reterr, ABOX_E_INVALID, origin, pointer, true);
	if (near)
		return error_remedy(reterr, ABOX_E_INVALID, "did you mean \"%s\"?", near);
	while ((child = spec_key_next_child(parent, child)))
		text_printf(&known, "%s %s", known.len > 0 ? "," : "known here:", spec_key_name(child));
	if (known.failed || known.len == 0)
		return ABOX_E_INVALID;
	return error_remedy(reterr, ABOX_E_INVALID, "%s", known.data);
}

static int check_count(const struct spec_key *key, const struct json *value, const char *pointer,
	const struct origin *origin, abox_error **reterr)
{
	size_t n = json_count(value);

	if (n >= key->min && n <= key->max)
		return 0;
	error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_SPEC, pointer,
		n < key->min ? "empty" : "too many entries");
	error_remedy(reterr, ABOX_E_INVALID,
		n < key->min ? "leave the key out, or give at least %llu" : "at most %llu",
		(unsigned long long)(n < key->min ? key->min : key->max));
	place_error(reterr, ABOX_E_INVALID, origin, pointer, false);
	return ABOX_E_INVALID;
}

static int check_required(const struct spec_key *key, const struct json *value, const char *pointer,
	const struct origin *origin, abox_error **reterr)
{
	const struct spec_key *child = NULL;

	while ((child = spec_key_next_child(key, child))) {
		if (!(child->flags & SPEC_REQUIRED) || json_member(value, spec_key_name(child)))
			continue;
		error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_SPEC, pointer, "\"%s\" is missing",
			spec_key_name(child));
		error_remedy(reterr, ABOX_E_INVALID, "add \"%s\": %s", spec_key_name(child), child->doc);
		place_error(reterr, ABOX_E_INVALID, origin, pointer, false);
		return ABOX_E_INVALID;
	}
	return 0;
}

/* Checks one member and puts it back when its normal form is another value. */
static int check_member(const struct spec_key *key, struct json *object, const char *name,
	struct text *pointer, const struct origin *origin, bool complete, abox_error **reterr)
{
	struct json *before = json_member(object, name);
	_cleanup_(json_unrefp) struct json *value = json_ref(before);
	struct type_fault fault;
	const struct spec_key *child = spec_key_child(key, name);
	int r;

	if (!child)
		return tree_refuse_unknown(key, name, pointer->data, origin, reterr);
	if (key->type == SPEC_MAP) {
		r = type_check_name(key, name, &fault);
		if (r == ABOX_E_INVALID)
			return refuse_fault(&fault, pointer->data, origin, true, reterr);
		if (r < 0)
			return r;
	}
	r = tree_check(child, &value, pointer, origin, complete, reterr);
	if (r < 0 || value == before)
		return r;
	return json_put_member(object, name, json_ref(value));
}

static void cut(struct text *text, size_t len)
{
	text->len = len;
	text->data[len] = 0;
}

static int check_members(const struct spec_key *key, struct json *object, struct text *pointer,
	const struct origin *origin, bool complete, abox_error **reterr)
{
	_cleanup_(freep) const char **names = NULL;
	size_t len = pointer->len;
	int r;

	r = json_member_names(object, &names);
	for (size_t i = 0; r >= 0 && names[i]; i++) {
		json_pointer_add(pointer, names[i]);
		if (pointer->failed)
			return ABOX_E_MEMORY;
		r = check_member(key, object, names[i], pointer, origin, complete, reterr);
		cut(pointer, len);
	}
	return r;
}

static int check_elements(const struct spec_key *key, struct json *array, struct text *pointer,
	const struct origin *origin, bool complete, abox_error **reterr)
{
	const struct spec_key *child = spec_key_child(key, "*");
	size_t len = pointer->len;
	int r = 0;

	for (size_t i = 0; r >= 0 && i < json_count(array); i++) {
		struct json *before = json_element(array, i);
		_cleanup_(json_unrefp) struct json *value = json_ref(before);

		json_pointer_add_index(pointer, i);
		if (pointer->failed)
			return ABOX_E_MEMORY;
		r = tree_check(child, &value, pointer, origin, complete, reterr);
		if (r >= 0 && value != before)
			r = json_put_element(array, i, json_ref(value));
		cut(pointer, len);
	}
	return r;
}

int tree_check(const struct spec_key *key, struct json **value, struct text *pointer,
	const struct origin *origin, bool complete, abox_error **reterr)
{
	bool is_list = key->type == SPEC_LIST, is_object = key->type == SPEC_OBJECT || key->type == SPEC_MAP;
	enum json_kind wanted = is_list ? JSON_KIND_ARRAY : JSON_KIND_OBJECT;
	struct json *normal = NULL;
	struct type_fault fault;
	int r;

	if (!is_list && !is_object)
		r = type_check(key, *value, &normal, &fault);
	else
		r = json_kind(*value) == wanted ? 0 : type_mismatch(key, *value, &fault);
	if (r == ABOX_E_INVALID)
		return refuse_fault(&fault, pointer->data, origin, false, reterr);
	if (r < 0)
		return r;
	if (normal) {
		json_unref(*value);
		*value = normal;
	}
	if (!is_list && !is_object)
		return 0;
	if (key->type != SPEC_OBJECT)
		r = check_count(key, *value, pointer->data, origin, reterr);
	else if (complete)
		r = check_required(key, *value, pointer->data, origin, reterr);
	if (r < 0)
		return r;
	return is_list ? check_elements(key, *value, pointer, origin, complete, reterr)
		       : check_members(key, *value, pointer, origin, complete, reterr);
}
