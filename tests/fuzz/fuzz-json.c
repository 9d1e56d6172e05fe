/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * JSON from anywhere, against a second reader: what we take, jansson takes, as the same tree, and the other
 * way round within our bounds. What is taken prints to a text that reads back; every value of it is found at
 * its pointer.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct json_bounds bounds = { .max_bytes = 1 << 20, .max_depth = 32, .stage = ABOX_STAGE_SPEC };

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void check_print(const struct json *value)
{
	_cleanup_(json_unrefp) struct json *back = NULL, *copy = json_clone(value);
	_cleanup_(freep) char *printed = NULL, *again = NULL;

	require(json_print_new(value, &printed) == 0);
	require(json_parse(printed, strlen(printed), &bounds, &back, NULL) == 0);
	require(json_same(value, back) && json_same(value, copy));
	require(json_print_new(back, &again) == 0 && strcmp(printed, again) == 0);
}

static void check_places(
	const char *text, size_t len, const struct json *root, const struct json *value, struct text *pointer)
{
	_cleanup_(freep) const char **names = NULL;
	size_t pointer_len = pointer->len;
	uint32_t line, column;

	/* Names are bounded where pointers are followed. */
	if (pointer_len < 500) {
		require(json_at(root, pointer->data) == value);
		require(json_locate(text, len, pointer->data, &line, &column));
		require(json_locate_name(text, len, pointer->data, &line, &column));
	}
	if (json_kind(value) == JSON_KIND_OBJECT)
		require(json_member_names(value, &names) == 0);
	for (size_t i = 0; i < json_count(value); i++) {
		if (names)
			json_pointer_add(pointer, names[i]);
		else
			json_pointer_add_index(pointer, i);
		require(json_pointer_valid(pointer->data));
		check_places(text, len, root, names ? json_member(value, names[i]) : json_element(value, i),
			pointer);
		pointer->len = pointer_len;
		pointer->data[pointer_len] = 0;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(text_clear) struct text pointer = TEXT_INIT;
	_cleanup_(error_freep) abox_error *error = NULL;
	_cleanup_(json_unrefp) struct json *value = NULL;
	_cleanup_(freep) char *text = malloc(size + !size); /* no NUL behind it: reading further is seen */
	json_t *other;
	int r;

	require(text);
	if (size > 0)
		memcpy(text, data, size);
	r = json_parse(text, size, &bounds, &value, &error);
	other = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
	require(r == 0 || r == ABOX_E_SYNTAX || r == ABOX_E_LIMIT);
	require((r == 0) == !error);
	if (r == 0) {
		require(other && json_equal(other, (json_t *)value));
		check_print(value);
		text_add(&pointer, "");
		check_places(text, size, value, value, &pointer);
	} else {
		/* jansson lets a NUL behind a number pass. */
		require(!other || r == ABOX_E_LIMIT || memchr(text, 0, size));
		require(abox_error_get_line(error) > 0 && abox_error_get_column(error) <= size + 1);
	}
	json_decref(other);
	return 0;
}
