/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * JSON trees: jansson behind our own names, and the one form in which they are printed. Reading is the
 * business of json-parse.c, places and pointers that of json-place.c; what a value means is the caller's.
 */
#include "base/json.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/error.h"

/* struct json is never defined: a pointer to it is a json_t pointer under our name. */
static json_t *inner(const struct json *value)
{
	return (json_t *)(uintptr_t)value;
}

static struct json *outer(json_t *value)
{
	return (struct json *)value;
}

/*
 * Left alone, jansson opens /dev/urandom for its first object, without close-on-exec; a host that forks in
 * that moment would hand the descriptor on.
 */
static void seed(void)
{
	size_t value = 0;

	if (getrandom(&value, sizeof(value), GRND_NONBLOCK) == (ssize_t)sizeof(value) && value != 0)
		json_object_seed(value);
}

void json_seed_once(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, seed);
}

struct json *json_ref(struct json *value)
{
	return outer(json_incref(inner(value)));
}

struct json *json_unref(struct json *value)
{
	json_decref(inner(value));
	return NULL;
}

void json_unrefp(struct json **value)
{
	*value = json_unref(*value);
}

struct json *json_new_object(void)
{
	json_seed_once();
	return outer(json_object());
}

struct json *json_new_array(void)
{
	return outer(json_array());
}

struct json *json_new_string(const char *string)
{
	return outer(json_string(string));
}

struct json *json_new_integer(int64_t number)
{
	return outer(json_integer(number));
}

struct json *json_new_decimal(double number)
{
	return outer(json_real(number));
}

struct json *json_new_boolean(bool value)
{
	return outer(json_boolean(value));
}

struct json *json_clone(const struct json *value)
{
	return outer(json_deep_copy(inner(value)));
}

bool json_same(const struct json *a, const struct json *b)
{
	return json_equal(inner(a), inner(b));
}

enum json_kind json_kind(const struct json *value)
{
	if (!value)
		return JSON_KIND_NONE;
	switch (json_typeof(inner(value))) {
	case JSON_OBJECT:
		return JSON_KIND_OBJECT;
	case JSON_ARRAY:
		return JSON_KIND_ARRAY;
	case JSON_STRING:
		return JSON_KIND_STRING;
	case JSON_INTEGER:
		return JSON_KIND_INTEGER;
	case JSON_REAL:
		return JSON_KIND_DECIMAL;
	case JSON_TRUE:
	case JSON_FALSE:
		return JSON_KIND_BOOLEAN;
	case JSON_NULL:
		return JSON_KIND_NULL;
	}
	return JSON_KIND_NONE;
}

const char *json_kind_name(enum json_kind kind)
{
	static const char *const names[] = {
		"nothing",
		"null",
		"true or false",
		"a whole number",
		"a decimal number",
		"a string",
		"a list",
		"an object",
	};

	return (size_t)kind < ELEMENTSOF(names) ? names[kind] : "?";
}

const char *json_text(const struct json *value)
{
	return json_string_value(inner(value));
}

int64_t json_number(const struct json *value)
{
	return json_integer_value(inner(value));
}

double json_decimal(const struct json *value)
{
	return json_number_value(inner(value));
}

bool json_truth(const struct json *value)
{
	return value && json_is_true(inner(value));
}

size_t json_count(const struct json *value)
{
	return json_kind(value) == JSON_KIND_ARRAY ? json_array_size(inner(value))
						   : json_object_size(inner(value));
}

struct json *json_element(const struct json *array, size_t i)
{
	return outer(json_array_get(inner(array), i));
}

struct json *json_member(const struct json *object, const char *name)
{
	return outer(json_object_get(inner(object), name));
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int json_member_names(const struct json *object, const char ***retnames)
{
	size_t n = json_object_size(inner(object)), i = 0;
	const char **names;

	names = calloc(n + 1, sizeof(*names));
	if (!names)
		return ABOX_E_MEMORY;
	for (void *iter = json_object_iter(inner(object)); iter && i < n;
		iter = json_object_iter_next(inner(object), iter))
		names[i++] = json_object_iter_key(iter);
	qsort(names, i, sizeof(*names), compare_names);
	*retnames = names;
	return 0;
}

int json_put_member(struct json *object, const char *name, struct json *value_taken)
{
	return json_object_set_new(inner(object), name, inner(value_taken)) == 0 ? 0 : ABOX_E_MEMORY;
}

int json_put_element(struct json *array, size_t i, struct json *value_taken)
{
	if (i >= json_count(array)) {
		json_unref(value_taken);
		return ABOX_E_INVALID;
	}
	return json_array_set_new(inner(array), i, inner(value_taken)) == 0 ? 0 : ABOX_E_MEMORY;
}

int json_append_element(struct json *array, struct json *value_taken)
{
	return json_array_append_new(inner(array), inner(value_taken)) == 0 ? 0 : ABOX_E_MEMORY;
}

bool json_remove_member(struct json *object, const char *name)
{
	return json_object_del(inner(object), name) == 0;
}

bool json_remove_element(struct json *array, size_t i)
{
	return json_array_remove(inner(array), i) == 0;
}

/* The shortest digits that read back as the same number, with a point whatever the locale says. */
static void print_decimal(struct text *text, double number)
{
	char digits[64], plain[64];
	bool is_integer = true;
	size_t n = 0;

	for (int precision = 15; precision <= 17; precision++) {
		snprintf(digits, sizeof(digits), "%.*g", precision, number);
		if (strtod(digits, NULL) == number)
			break;
	}
	for (size_t i = 0; digits[i]; i++) {
		if (strchr("0123456789+-e", digits[i])) {
			plain[n++] = digits[i];
			is_integer = is_integer && digits[i] != 'e';
		} else if (is_integer) {
			plain[n++] = '.';
			is_integer = false;
		}
	}
	plain[n] = 0;
	text_add(text, plain);
	if (is_integer)
		text_add(text, ".0");
}

static void print_object(struct text *text, const struct json *value)
{
	_cleanup_(freep) const char **names = NULL;

	if (json_member_names(value, &names) < 0) {
		text->failed = true;
		return;
	}
	text_add(text, "{");
	for (size_t i = 0; names[i]; i++) {
		if (i > 0)
			text_add(text, ",");
		text_add_json(text, names[i], strlen(names[i]));
		text_add(text, ":");
		json_print(text, json_member(value, names[i]));
	}
	text_add(text, "}");
}

/* Depth is bounded by what was parsed or built. */
void json_print(struct text *text, const struct json *value)
{
	switch (json_kind(value)) {
	case JSON_KIND_NONE:
	case JSON_KIND_NULL:
		text_add(text, "null");
		return;
	case JSON_KIND_BOOLEAN:
		text_add(text, json_truth(value) ? "true" : "false");
		return;
	case JSON_KIND_INTEGER:
		text_printf(text, "%lld", (long long)json_number(value));
		return;
	case JSON_KIND_DECIMAL:
		print_decimal(text, json_decimal(value));
		return;
	case JSON_KIND_STRING:
		text_add_json(text, json_text(value), json_string_length(inner(value)));
		return;
	case JSON_KIND_ARRAY:
		text_add(text, "[");
		for (size_t i = 0; i < json_count(value); i++) {
			if (i > 0)
				text_add(text, ",");
			json_print(text, json_element(value, i));
		}
		text_add(text, "]");
		return;
	case JSON_KIND_OBJECT:
		print_object(text, value);
		return;
	}
}

int json_print_new(const struct json *value, char **rettext)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;

	json_print(&text, value);
	return text_take(&text, rettext);
}
