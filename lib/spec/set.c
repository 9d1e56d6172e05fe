/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Setters: one door by JSON pointer, with the checks that a text goes through. A value is checked before
 * anything is touched, and what stands above it is built apart and hung in with one step, so that a failure
 * changes nothing.
 */
#include "spec/tree.h"

#include <stdlib.h>
#include <string.h>

static const struct origin nowhere;

/* A pointer taken apart: its key, and the pointer with `-` replaced by the index it stands for. */
struct place {
	const struct spec_key *key;
	struct text pointer;
};

static void place_clear(struct place *place)
{
	text_clear(&place->pointer);
}

static int refuse_pointer(const char *pointer, abox_error **reterr, const char *why)
{
	error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_SPEC, pointer, "%s", why);
	return error_remedy(reterr, ABOX_E_INVALID, "write a JSON pointer, such as /limits/memory");
}

/* Goes one name down: *value is what is written there, NULL for nothing. */
static int place_descend(
	struct place *place, const char *name, const struct json **value, abox_error **reterr)
{
	size_t n = json_count(*value), i = n;
	struct type_fault fault;
	const struct spec_key *child;
	int r = 0;

	if (place->key->type == SPEC_LIST) {
		if (strcmp(name, "-") != 0 && (!json_index_parse(name, &i) || i > n))
			return refuse_pointer(
				place->pointer.data, reterr, "there is no such entry in this list");
		json_pointer_add_index(&place->pointer, i);
		*value = json_element(*value, i);
	} else {
		json_pointer_add(&place->pointer, name);
		*value = json_member(*value, name);
	}
	if (place->pointer.failed)
		return ABOX_E_MEMORY;
	child = spec_key_child(place->key, name);
	if (!child)
		return tree_refuse_unknown(place->key, name, place->pointer.data, &nowhere, reterr);
	if (place->key->type == SPEC_MAP)
		r = type_check_name(place->key, name, &fault);
	if (r == ABOX_E_INVALID) {
		error_set(reterr, r, ABOX_STAGE_SPEC, place->pointer.data, "%s", fault.message);
		return error_remedy(reterr, r, "%s", fault.remedy);
	}
	place->key = child;
	return r;
}

/* JSON holds UTF-8 only: a path or name that is not cannot be said in a spec. */
static int check_utf8(const char *text, const char *pointer, abox_error **reterr)
{
	for (size_t i = 0, n, len = strlen(text); i < len; i += n) {
		n = utf8_char_len(text + i, len - i);
		if (n > 0)
			continue;
		error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_SPEC, pointer, "not valid UTF-8");
		return error_remedy(reterr, ABOX_E_INVALID, "use a name that is");
	}
	return 0;
}

static int place_find(const abox_spec *spec, const char *pointer, struct place *place, abox_error **reterr)
{
	const struct json *value = spec->root;
	char name[512];
	int r;

	r = check_utf8(pointer, pointer, reterr);
	if (r < 0)
		return r;
	place->key = spec_key_find("");
	text_add(&place->pointer, "");
	if (place->pointer.failed)
		return ABOX_E_MEMORY;
	if (!*pointer)
		return refuse_pointer(pointer, reterr, "the spec as a whole cannot be set");
	if (*pointer != '/')
		return refuse_pointer(pointer, reterr, "not a JSON pointer");
	while (*pointer) {
		if (!json_pointer_next(&pointer, name, sizeof(name)))
			return refuse_pointer(place->pointer.data, reterr, "not a JSON pointer");
		r = place_descend(place, name, &value, reterr);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Puts at an index, which may be the one behind the end; or under a name. */
static int put_at(struct json *container, const char *name, struct json *value_taken)
{
	size_t i;

	if (json_kind(container) != JSON_KIND_ARRAY)
		return json_put_member(container, name, value_taken);
	if (!json_index_parse(name, &i) || i > json_count(container)) {
		json_unref(value_taken);
		return ABOX_E_INVALID;
	}
	if (i == json_count(container))
		return json_append_element(container, value_taken);
	return json_put_element(container, i, value_taken);
}

static int wrap(const struct spec_key *key, const char *name, struct json **value)
{
	struct json *container = key->type == SPEC_LIST ? json_new_array() : json_new_object();
	struct json *inner = steal_ptr(*value);
	int r;

	if (!container) {
		json_unref(inner);
		return ABOX_E_MEMORY;
	}
	r = put_at(container, name, inner);
	if (r < 0)
		json_unref(container);
	else
		*value = container;
	return r;
}

/*
 * Walks up from the place, making what is missing around the value, to the first container that is there. The
 * count of a list or map that gets one more is checked there.
 */
static int hang_in(abox_spec *spec, const struct place *place, struct json *value_taken, abox_error **reterr)
{
	_cleanup_(json_unrefp) struct json *value = value_taken;
	_cleanup_(freep) char *path = strdup(place->pointer.data);
	char name[512];
	int r;

	if (!path)
		return ABOX_E_MEMORY;
	for (;;) {
		char *slash = strrchr(path, '/');
		const char *part = slash;
		const struct spec_key *key;
		struct json *container;

		json_pointer_next(&part, name, sizeof(name));
		*slash = 0;
		key = spec_key_find(path);
		container = json_at(spec->root, path);
		if (!container) {
			r = wrap(key, name, &value);
			if (r < 0)
				return r;
			continue;
		}
		if (key->type != SPEC_OBJECT && json_count(container) >= key->max &&
			!json_at(spec->root, place->pointer.data)) {
			error_set(reterr, ABOX_E_LIMIT, ABOX_STAGE_SPEC, path, "too many entries");
			return error_remedy(
				reterr, ABOX_E_LIMIT, "at most %llu", (unsigned long long)key->max);
		}
		return put_at(container, name, steal_ptr(value));
	}
}

/* From now on the text says nothing about this place. */
static int note_change(abox_spec *spec, const char *pointer)
{
	char **changed, *copy;

	if (!spec->text)
		return 0;
	changed = reallocarray(spec->changed, spec->n_changed + 1, sizeof(*changed));
	if (!changed)
		return ABOX_E_MEMORY;
	spec->changed = changed;
	copy = strdup(pointer);
	if (!copy)
		return ABOX_E_MEMORY;
	spec->changed[spec->n_changed++] = copy;
	return 0;
}

static int put(
	abox_spec *spec, const char *pointer, struct json *value_taken, const char *text, abox_error **reterr)
{
	_cleanup_(place_clear) struct place place = {0};
	_cleanup_(json_unrefp) struct json *value = value_taken;
	struct origin origin = {.text = text, .len = text ? strlen(text) : 0};
	int r;

	if (!value)
		return ABOX_E_MEMORY;
	r = place_find(spec, pointer, &place, reterr);
	if (r < 0)
		return r;
	origin.base_len = place.pointer.len;
	r = tree_check(place.key, &value, &place.pointer, &origin, false, reterr);
	if (r < 0)
		return r;
	r = note_change(spec, place.pointer.data);
	if (r < 0)
		return r;
	return hang_in(spec, &place, steal_ptr(value), reterr);
}

static int refuse_arguments(abox_error **reterr)
{
	return error_set(
		reterr, ABOX_E_INVALID, ABOX_STAGE_SPEC, NULL, "spec, pointer and value are required");
}

int abox_spec_set_string(abox_spec *spec, const char *pointer, const char *value, abox_error **reterr)
{
	int r;

	if (!spec || !pointer || !value)
		return refuse_arguments(reterr);
	r = check_utf8(value, pointer, reterr);
	if (r < 0)
		return r;
	return put(spec, pointer, json_new_string(value), NULL, reterr);
}

int abox_spec_set_integer(abox_spec *spec, const char *pointer, int64_t value, abox_error **reterr)
{
	if (!spec || !pointer)
		return refuse_arguments(reterr);
	return put(spec, pointer, json_new_integer(value), NULL, reterr);
}

int abox_spec_set_boolean(abox_spec *spec, const char *pointer, int value, abox_error **reterr)
{
	if (!spec || !pointer)
		return refuse_arguments(reterr);
	if (value != 0 && value != 1)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_SPEC, pointer, "a boolean is 0 or 1");
	return put(spec, pointer, json_new_boolean(value), NULL, reterr);
}

int abox_spec_set_json(abox_spec *spec, const char *pointer, const char *json, abox_error **reterr)
{
	static const struct json_bounds bounds = {
		.max_bytes = ABOX_SPEC_MAX_BYTES,
		.max_depth = ABOX_SPEC_MAX_DEPTH,
		.stage = ABOX_STAGE_SPEC,
	};
	struct json *value;
	int r;

	if (!spec || !pointer || !json)
		return refuse_arguments(reterr);
	r = json_parse(json, strnlen(json, ABOX_SPEC_MAX_BYTES + 1), &bounds, &value, reterr);
	if (r < 0)
		return r;
	return put(spec, pointer, value, json, reterr);
}

int abox_spec_clear(abox_spec *spec, const char *pointer, abox_error **reterr)
{
	_cleanup_(place_clear) struct place place = {0};
	struct json *container;
	const char *part;
	char name[512];
	char *slash;
	size_t i;
	int r;

	if (!spec || !pointer)
		return refuse_arguments(reterr);
	r = place_find(spec, pointer, &place, reterr);
	if (r < 0)
		return r;
	if (!json_at(spec->root, place.pointer.data))
		return 0;
	slash = strrchr(place.pointer.data, '/');
	part = slash;
	json_pointer_next(&part, name, sizeof(name));
	/* What follows in a list gets another index: the text says nothing about any of it then. */
	if (json_index_parse(name, &i))
		*slash = 0;
	r = note_change(spec, place.pointer.data);
	if (r < 0)
		return r;
	*slash = 0;
	container = json_at(spec->root, place.pointer.data);
	if (json_kind(container) == JSON_KIND_ARRAY)
		json_remove_element(container, i);
	else
		json_remove_member(container, name);
	return 0;
}

int abox_spec_add_mount(
	abox_spec *spec, const char *source, const char *target, int mode, abox_error **reterr)
{
	static const char *const modes[] = {"ro", "rw", "tmpfs"};
	struct json *mount;
	int r;

	if (!spec || !target)
		return refuse_arguments(reterr);
	if (mode < 0 || (size_t)mode >= ELEMENTSOF(modes))
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_SPEC, "/mounts", "unknown mode of a mount");
	if ((mode == ABOX_MOUNT_TMPFS) != !source)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_SPEC, "/mounts",
			source ? "a tmpfs has no source" : "a mount needs a source");
	r = check_utf8(source ? source : "", "/mounts/-/source", reterr);
	if (r >= 0)
		r = check_utf8(target, "/mounts/-/target", reterr);
	if (r < 0)
		return r;
	mount = json_new_object();
	if (!mount)
		return ABOX_E_MEMORY;
	if (source)
		r = json_put_member(mount, "source", json_new_string(source));
	if (r >= 0)
		r = json_put_member(mount, "target", json_new_string(target));
	if (r >= 0)
		r = json_put_member(mount, "mode", json_new_string(modes[mode]));
	if (r < 0) {
		json_unref(mount);
		return r;
	}
	return put(spec, "/mounts/-", mount, NULL, reterr);
}

int abox_spec_add_env(abox_spec *spec, const char *name, const char *value, abox_error **reterr)
{
	_cleanup_(text_clear) struct text pointer = TEXT_INIT;

	if (!spec || !name || !value)
		return refuse_arguments(reterr);
	text_add(&pointer, "/env");
	json_pointer_add(&pointer, name);
	if (pointer.failed)
		return ABOX_E_MEMORY;
	return abox_spec_set_string(spec, pointer.data, value, reterr);
}

int abox_spec_set_workspace(abox_spec *spec, const char *directory, int mode, abox_error **reterr)
{
	static const char *const modes[] = {"overlay", "copy", "direct"};
	struct json *source;
	int r;

	if (!spec || !directory)
		return refuse_arguments(reterr);
	if (mode < 0 || (size_t)mode >= ELEMENTSOF(modes))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_SPEC, "/workspace/mode",
			"unknown mode of a workspace");
	r = check_utf8(directory, "/workspace/source/path", reterr);
	if (r < 0)
		return r;
	source = json_new_object();
	if (!source)
		return ABOX_E_MEMORY;
	r = json_put_member(source, "kind", json_new_string("dir"));
	if (r >= 0)
		r = json_put_member(source, "path", json_new_string(directory));
	if (r < 0) {
		json_unref(source);
		return r;
	}
	r = put(spec, "/workspace/source", source, NULL, reterr);
	if (r < 0)
		return r;
	return put(spec, "/workspace/mode", json_new_string(modes[mode]), NULL, reterr);
}
