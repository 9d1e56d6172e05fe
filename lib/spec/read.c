/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reading a spec: written value, or the default of its row. Pointers come from our own code here; one that is
 * not in the table, or of another type than the function reads, is a mistake in it and asserted.
 */
#include "spec/tree.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	POINTER_MAX = 1024, /* longest pattern, and room for the longest name of a map, escaped */
};

static const struct spec_key *look_up(
	const abox_spec *spec, char *pointer, const char *format, va_list args, const struct json **retvalue)
{
	const struct spec_key *key;
	int n;

	n = vsnprintf(pointer, POINTER_MAX, format, args);
	assert(n >= 0 && n < POINTER_MAX);
	(void)n;
	key = spec_key_find(pointer);
	assert(key);
	*retvalue = json_at(spec->root, pointer);
	return key;
}

#define LOOK_UP(spec, format)                                                                                \
	char pointer_text[POINTER_MAX];                                                                      \
	const struct json *value;                                                                            \
	const struct spec_key *key;                                                                          \
	va_list args;                                                                                        \
	va_start(args, format);                                                                              \
	key = look_up(spec, pointer_text, format, args, &value);                                             \
	va_end(args)

const char *tree_fallback(const abox_spec *spec, const struct spec_key *key)
{
	const struct json *value;
	const char *other;

	if (!key->fallback || key->fallback[0] != '=')
		return key->fallback;
	other = key->fallback + 1;
	value = json_at(spec->root, other);
	return value ? json_text(value) : tree_fallback(spec, spec_key_find(other));
}

struct json *tree_get(const abox_spec *spec, const struct spec_key *key, const char *pointer)
{
	const char *fallback;
	struct json *value = json_at(spec->root, pointer);

	if (value)
		return json_ref(value);
	fallback = tree_fallback(spec, key);
	return fallback ? type_fallback(key, fallback) : NULL;
}

bool spec_written(const abox_spec *spec, const char *pointer, ...)
{
	LOOK_UP(spec, pointer);

	return key && value;
}

bool spec_has(const abox_spec *spec, const char *pointer, ...)
{
	LOOK_UP(spec, pointer);

	return value || key->fallback;
}

const char *spec_string(const abox_spec *spec, const char *pointer, ...)
{
	LOOK_UP(spec, pointer);

	assert(key->type >= SPEC_ENUM);
	return value ? json_text(value) : tree_fallback(spec, key);
}

bool spec_boolean(const abox_spec *spec, const char *pointer, ...)
{
	LOOK_UP(spec, pointer);

	assert(key->type == SPEC_BOOLEAN);
	if (value)
		return json_truth(value);
	return key->fallback && strcmp(key->fallback, "true") == 0;
}

uint64_t spec_u64(const abox_spec *spec, const char *pointer, ...)
{
	LOOK_UP(spec, pointer);

	assert(key->type >= SPEC_INTEGER && key->type <= SPEC_DURATION_OFF);
	if (value)
		return type_number(key, value);
	return key->fallback ? type_number_of_text(key, key->fallback) : 0;
}

int spec_enum(const abox_spec *spec, const char *pointer, ...)
{
	const char *word;
	LOOK_UP(spec, pointer);

	assert(key->type == SPEC_ENUM);
	word = value ? json_text(value) : tree_fallback(spec, key);
	return word ? type_word(key, word) : 0;
}

size_t spec_count(const abox_spec *spec, const char *pointer, ...)
{
	LOOK_UP(spec, pointer);

	assert(key->type == SPEC_LIST || key->type == SPEC_MAP);
	(void)key;
	return json_count(value);
}

bool spec_map_string(const abox_spec *spec, size_t i, const char **retname, const char **retvalue,
	const char *pointer, ...)
{
	_cleanup_(freep) const char **names = NULL;
	LOOK_UP(spec, pointer);

	assert(key->type == SPEC_MAP);
	(void)key;
	if (i >= json_count(value) || json_member_names(value, &names) < 0)
		return false;
	*retname = names[i];
	*retvalue = json_text(json_member(value, names[i]));
	return true;
}

uint32_t spec_user(const abox_spec *spec)
{
	const struct json *value = json_at(spec->root, "/user");

	if (json_kind(value) == JSON_KIND_INTEGER)
		return (uint32_t)json_number(value);
	return value && strcmp(json_text(value), "root") == 0 ? 0 : SPEC_UID_AGENT;
}

static bool is_container(const struct spec_key *key)
{
	return key->type == SPEC_OBJECT || key->type == SPEC_LIST || key->type == SPEC_MAP;
}

static bool is_fallback(const abox_spec *spec, const struct spec_key *key, const struct json *value)
{
	const char *fallback = tree_fallback(spec, key);

	if (!fallback)
		return false;
	switch (key->type) {
	case SPEC_BOOLEAN:
		return json_truth(value) == (strcmp(fallback, "true") == 0);
	case SPEC_INTEGER:
	case SPEC_DECIMAL:
	case SPEC_SIZE:
	case SPEC_DURATION:
	case SPEC_DURATION_OFF:
		return type_number(key, value) == type_number_of_text(key, fallback);
	case SPEC_USER:
		return json_kind(value) == JSON_KIND_INTEGER ? json_number(value) == SPEC_UID_AGENT
							     : strcmp(json_text(value), fallback) == 0;
	default:
		return strcmp(json_text(value), fallback) == 0;
	}
}

static int visit_value(const abox_spec *spec, const struct spec_key *key, const struct json *value,
	struct text *pointer, spec_visit_fn visit, void *userdata);

static int visit_children(const abox_spec *spec, const struct spec_key *key, const struct json *value,
	struct text *pointer, spec_visit_fn visit, void *userdata)
{
	_cleanup_(freep) const char **names = NULL;
	bool is_list = key->type == SPEC_LIST;
	size_t len = pointer->len;
	int r = 0;

	if (!is_list)
		r = json_member_names(value, &names);
	for (size_t i = 0; r == 0 && i < json_count(value); i++) {
		const struct spec_key *child = spec_key_child(key, is_list ? "*" : names[i]);

		if (is_list)
			json_pointer_add_index(pointer, i);
		else
			json_pointer_add(pointer, names[i]);
		if (pointer->failed)
			return ABOX_E_MEMORY;
		r = visit_value(spec, child, is_list ? json_element(value, i) : json_member(value, names[i]),
			pointer, visit, userdata);
		pointer->len = len;
		pointer->data[len] = 0;
	}
	return r;
}

static int visit_value(const abox_spec *spec, const struct spec_key *key, const struct json *value,
	struct text *pointer, spec_visit_fn visit, void *userdata)
{
	if (is_container(key))
		return visit_children(spec, key, value, pointer, visit, userdata);
	if (is_fallback(spec, key, value))
		return 0;
	return visit(key, pointer->data, userdata);
}

int spec_visit(const abox_spec *spec, spec_visit_fn visit, void *userdata)
{
	_cleanup_(text_clear) struct text pointer = TEXT_INIT;

	text_add(&pointer, "");
	if (pointer.failed)
		return ABOX_E_MEMORY;
	return visit_value(spec, spec_key_find(""), spec->root, &pointer, visit, userdata);
}

static int resolve(
	const abox_spec *spec, const struct spec_key *key, const struct json *value, struct json **ret);

/* One member of the table: *ret stays NULL where there is nothing written and nothing to fill in. */
static int resolve_member(
	const abox_spec *spec, const struct spec_key *key, const struct json *value, struct json **ret)
{
	const char *fallback;

	if (value)
		return resolve(spec, key, value, ret);
	if (key->type == SPEC_OBJECT && !(key->flags & SPEC_PRESENCE)) {
		int r = resolve(spec, key, NULL, ret);

		if (r >= 0 && json_count(*ret) == 0)
			*ret = json_unref(*ret);
		return r;
	}
	fallback = tree_fallback(spec, key);
	if (!fallback)
		return 0;
	*ret = type_fallback(key, fallback);
	return *ret ? 0 : ABOX_E_MEMORY;
}

static int resolve_object(
	const abox_spec *spec, const struct spec_key *key, const struct json *value, struct json *object)
{
	const struct spec_key *child = NULL;

	while ((child = spec_key_next_child(key, child))) {
		struct json *member = NULL;
		int r;

		r = resolve_member(spec, child, json_member(value, spec_key_name(child)), &member);
		if (r >= 0 && member)
			r = json_put_member(object, spec_key_name(child), member);
		if (r < 0)
			return r;
	}
	return 0;
}

static int resolve_list(
	const abox_spec *spec, const struct spec_key *key, const struct json *value, struct json *array)
{
	const struct spec_key *child = spec_key_child(key, "*");

	for (size_t i = 0; i < json_count(value); i++) {
		struct json *element = NULL;
		int r;

		r = resolve(spec, child, json_element(value, i), &element);
		if (r >= 0)
			r = json_append_element(array, element);
		if (r < 0)
			return r;
	}
	return 0;
}

static int resolve(
	const abox_spec *spec, const struct spec_key *key, const struct json *value, struct json **ret)
{
	_cleanup_(json_unrefp) struct json *made = NULL;
	int r = 0;

	if (key->type == SPEC_OBJECT)
		made = json_new_object();
	else if (key->type == SPEC_LIST)
		made = json_new_array();
	else
		made = json_clone(value); /* maps have no defaults inside */
	if (!made)
		return ABOX_E_MEMORY;
	if (key->type == SPEC_OBJECT)
		r = resolve_object(spec, key, value, made);
	else if (key->type == SPEC_LIST)
		r = resolve_list(spec, key, value, made);
	if (r < 0)
		return r;
	*ret = steal_ptr(made);
	return 0;
}

int spec_resolve(const abox_spec *spec, struct json **ret)
{
	return resolve(spec, spec_key_find(""), spec->root, ret);
}
