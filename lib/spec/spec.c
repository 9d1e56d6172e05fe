/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The spec: a tree of what was written, that at any moment has only keys of the table with values that they
 * take. It begins empty or from a text, is changed by setters (set.c), and read by read.c. It knows nothing
 * of the host.
 */
#include "spec/tree.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct json_bounds bounds = {
	.max_bytes = ABOX_SPEC_MAX_BYTES,
	.max_depth = ABOX_SPEC_MAX_DEPTH,
	.stage = ABOX_STAGE_SPEC,
};

static int spec_make(struct json *root_taken, abox_spec **ret)
{
	abox_spec *spec = root_taken ? calloc(1, sizeof(*spec)) : NULL;

	if (!spec) {
		json_unref(root_taken);
		return ABOX_E_MEMORY;
	}
	spec->refs = 1;
	spec->root = root_taken;
	*ret = spec;
	return 0;
}

int abox_spec_new(abox_spec **ret)
{
	if (!ret)
		return ABOX_E_INVALID;
	return spec_make(json_new_object(), ret);
}

static int keep_text(abox_spec *spec, const char *text, size_t len)
{
	spec->text = malloc(len + 1);
	if (!spec->text)
		return ABOX_E_MEMORY;
	memcpy(spec->text, text, len);
	spec->text[len] = 0;
	spec->text_len = len;
	return 0;
}

/* Checks key by key; what stands between keys too when `complete`. */
static int spec_check_tree(const abox_spec *spec, struct json **root, bool complete, abox_error **reterr)
{
	_cleanup_(text_clear) struct text pointer = TEXT_INIT;
	struct origin origin = { .text = spec->n_changed == 0 ? spec->text : NULL, .len = spec->text_len };

	text_add(&pointer, "");
	if (pointer.failed)
		return ABOX_E_MEMORY;
	return tree_check(spec_key_find(""), root, &pointer, &origin, complete, reterr);
}

int abox_spec_from_bytes(const void *data, size_t size, abox_spec **ret, abox_error **reterr)
{
	_cleanup_(spec_unrefp) abox_spec *spec = NULL;
	struct json *root;
	int r;

	if ((!data && size > 0) || !ret)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_SPEC, NULL, "text and ret are required");
	r = json_parse(size > 0 ? data : "", size, &bounds, &root, reterr);
	if (r == ABOX_E_LIMIT)
		return error_remedy(reterr, r, "a spec has at most %d bytes and %d levels",
			ABOX_SPEC_MAX_BYTES, ABOX_SPEC_MAX_DEPTH);
	if (r < 0)
		return r;
	r = spec_make(root, &spec);
	if (r < 0)
		return r;
	r = keep_text(spec, data, size);
	if (r < 0)
		return r;
	r = spec_check_tree(spec, &spec->root, true, reterr);
	if (r < 0)
		return r;
	r = check_across(spec, reterr);
	if (r < 0)
		return r;
	*ret = steal_ptr(spec);
	return 0;
}

int abox_spec_from_json(const char *text, abox_spec **ret, abox_error **reterr)
{
	if (!text || !ret)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_SPEC, NULL, "text and ret are required");
	/* However long the text is, no more than the bound is looked at. */
	return abox_spec_from_bytes(text, strnlen(text, ABOX_SPEC_MAX_BYTES + 1), ret, reterr);
}

static int copy_changed(abox_spec *copy, const abox_spec *spec)
{
	if (spec->n_changed == 0)
		return 0;
	copy->changed = calloc(spec->n_changed, sizeof(*copy->changed));
	if (!copy->changed)
		return ABOX_E_MEMORY;
	for (; copy->n_changed < spec->n_changed; copy->n_changed++) {
		copy->changed[copy->n_changed] = strdup(spec->changed[copy->n_changed]);
		if (!copy->changed[copy->n_changed])
			return ABOX_E_MEMORY;
	}
	return 0;
}

int abox_spec_copy(const abox_spec *spec, abox_spec **ret)
{
	_cleanup_(spec_unrefp) abox_spec *copy = NULL;
	int r;

	if (!spec || !ret)
		return ABOX_E_INVALID;
	r = spec_make(json_clone(spec->root), &copy);
	if (r >= 0 && spec->text)
		r = keep_text(copy, spec->text, spec->text_len);
	if (r >= 0)
		r = copy_changed(copy, spec);
	if (r < 0)
		return r;
	*ret = steal_ptr(copy);
	return 0;
}

abox_spec *abox_spec_ref(abox_spec *spec)
{
	if (spec)
		__atomic_add_fetch(&spec->refs, 1, __ATOMIC_RELAXED);
	return spec;
}

abox_spec *abox_spec_unref(abox_spec *spec)
{
	if (!spec || __atomic_sub_fetch(&spec->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return NULL;
	for (size_t i = 0; i < spec->n_changed; i++)
		free(spec->changed[i]);
	free(spec->changed);
	free(spec->text);
	json_unref(spec->root);
	free(spec);
	return NULL;
}

void spec_unrefp(abox_spec **spec)
{
	*spec = abox_spec_unref(*spec);
}

int abox_spec_check(const abox_spec *spec, abox_error **reterr)
{
	struct json *root;
	int r;

	if (!spec)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_SPEC, NULL, "spec is required");
	/* Every value is in its normal form already: the root stays what it is. */
	root = spec->root;
	r = spec_check_tree(spec, &root, true, reterr);
	if (r < 0)
		return r;
	return check_across(spec, reterr);
}

/* A setter touched the value itself or something that contains it. */
static bool was_changed(const abox_spec *spec, const char *pointer)
{
	for (size_t i = 0; i < spec->n_changed; i++) {
		size_t len = strlen(spec->changed[i]);

		if (strncmp(pointer, spec->changed[i], len) == 0 && (pointer[len] == '/' || !pointer[len]))
			return true;
	}
	return false;
}

bool spec_position(const abox_spec *spec, const char *pointer, uint32_t *retline, uint32_t *retcolumn)
{
	if (!spec->text || was_changed(spec, pointer))
		return false;
	return json_locate(spec->text, spec->text_len, pointer, retline, retcolumn);
}

int spec_refuse(const abox_spec *spec, abox_error **reterr, int code, int stage, const char *pointer,
	const char *format, ...)
{
	_cleanup_(freep) char *message = NULL;
	uint32_t line, column;
	va_list args;
	int n;

	va_start(args, format);
	n = vasprintf(&message, format, args);
	va_end(args);
	if (n < 0) {
		message = NULL;
		return code;
	}
	error_set(reterr, code, stage, pointer, "%s", message);
	if (spec_position(spec, pointer, &line, &column))
		error_position(reterr, code, line, column);
	return code;
}

const struct json *spec_tree(const abox_spec *spec)
{
	return spec->root;
}

int abox_spec_dump(const abox_spec *spec, char **retjson)
{
	_cleanup_(json_unrefp) struct json *root = NULL;
	int r;

	if (!spec || !retjson)
		return ABOX_E_INVALID;
	root = json_clone(spec->root);
	if (!root)
		return ABOX_E_MEMORY;
	r = json_put_member(root, "version", json_new_integer(ABOX_SPEC_VERSION));
	if (r < 0)
		return r;
	return json_print_new(root, retjson);
}

int abox_spec_dump_resolved(const abox_spec *spec, char **retjson)
{
	_cleanup_(json_unrefp) struct json *root = NULL;
	int r;

	if (!spec || !retjson)
		return ABOX_E_INVALID;
	r = spec_resolve(spec, &root);
	if (r < 0)
		return r;
	return json_print_new(root, retjson);
}
