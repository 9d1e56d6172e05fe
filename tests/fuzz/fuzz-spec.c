/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Specs from anywhere. Nothing may crash, hang or leak; what is taken reads back from its dump as the same
 * spec and resolves to a spec of the same meaning; what is refused has an error object with a place that is
 * one. An input of two lines, the first beginning with `/`, is a setter's pointer and JSON value instead.
 */
#include <stdlib.h>
#include <string.h>

#include <agentbox/spec.h>

#include "spec/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void check_error(const abox_error *error, const char *text, size_t len)
{
	_cleanup_(freep) char *line = NULL, *dump = NULL;
	uint32_t lines = 1;

	require(error && abox_error_get_message(error));
	require(abox_error_format(error, &line) == 0 && abox_error_dump(error, &dump) == 0);
	for (size_t i = 0; i < len; i++)
		lines += text[i] == '\n';
	require(abox_error_get_line(error) <= lines && abox_error_get_column(error) <= len + 1);
}

static void check_spec(const abox_spec *spec)
{
	_cleanup_(freep) char *dump = NULL, *again = NULL, *resolved = NULL, *twice = NULL;
	_cleanup_(spec_unrefp) abox_spec *back = NULL, *whole = NULL, *copy = NULL;

	require(abox_spec_check(spec, NULL) == 0);
	require(abox_spec_dump(spec, &dump) == 0);
	require(abox_spec_from_json(dump, &back, NULL) == 0);
	require(abox_spec_dump(back, &again) == 0 && strcmp(dump, again) == 0);
	require(abox_spec_dump_resolved(spec, &resolved) == 0);
	require(abox_spec_from_json(resolved, &whole, NULL) == 0);
	require(abox_spec_dump_resolved(whole, &twice) == 0 && strcmp(resolved, twice) == 0);
	require(abox_spec_copy(spec, &copy) == 0);
	require(json_same(spec_tree(spec), spec_tree(copy)));
}

/* Whatever the setter answers, the spec holds only what its keys take; on failure it is as it was. */
static void check_setter(const char *pointer, const char *json)
{
	_cleanup_(spec_unrefp) abox_spec *spec = NULL;
	_cleanup_(error_freep) abox_error *error = NULL;
	_cleanup_(freep) char *before = NULL, *after = NULL, *value = NULL;
	int r;

	require(abox_spec_from_json("{\"env\":{\"A\":\"1\"},\"waive\":[\"x\"]}", &spec, NULL) == 0);
	require(abox_spec_dump(spec, &before) == 0);
	r = abox_spec_set_json(spec, pointer, json, &error);
	require(abox_spec_dump(spec, &after) == 0);
	if (r < 0) {
		check_error(error, json, strlen(json));
		require(strcmp(before, after) == 0);
	}
	error = abox_error_free(error);
	if (abox_spec_check(spec, &error) == 0)
		check_spec(spec);
	abox_spec_get(spec, pointer, &value, NULL);
	abox_spec_clear(spec, pointer, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(error_freep) abox_error *error = NULL;
	_cleanup_(spec_unrefp) abox_spec *spec = NULL;
	_cleanup_(freep) char *text = malloc(size + 1);
	uint32_t line, column;
	char *newline;

	require(text);
	if (size > 0)
		memcpy(text, data, size);
	text[size] = 0;
	newline = text[0] == '/' ? strchr(text, '\n') : NULL;
	if (newline) {
		*newline = 0;
		check_setter(text, newline + 1);
		return 0;
	}
	json_locate(text, size, "/mounts/0/source", &line, &column);
	if (abox_spec_from_bytes(data, size, &spec, &error) < 0)
		check_error(error, text, size);
	else
		check_spec(spec);
	return 0;
}
