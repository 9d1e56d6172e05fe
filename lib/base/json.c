/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * JSON trees: jansson behind our own names. Reading is strict and bounded, printing is deterministic. Places
 * in the text and pointers are the business of json-place.c; what a value means is the caller's.
 *
 * A message about a text never quotes it: the text may hold what must not be printed.
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

static void seed_once(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, seed);
}

static int refuse(const char *text, size_t len, size_t offset, int code, int stage, abox_error **reterr,
	const char *message)
{
	_cleanup_(freep) char *pointer = NULL;
	uint32_t line, column;

	/* Where the pointer cannot be had (no memory, too deep), line and column still say it. */
	if (json_pointer_at(text, len, &offset, &pointer) < 0)
		pointer = NULL;
	json_line_column(text, offset, &line, &column);
	error_set(reterr, code, stage, pointer, "%s", message);
	return error_position(reterr, code, line, column);
}

/* What must not even reach the parser: NUL, bytes that are not UTF-8, too many levels. */
static int check_bytes(const char *text, size_t len, const struct json_bounds *bounds, abox_error **reterr)
{
	bool in_string = false;
	unsigned int depth = 0;
	size_t n;

	for (size_t i = 0; i < len; i += n) {
		n = utf8_char_len(text + i, len - i);
		if (n == 0)
			return refuse(text, len, i, ABOX_E_SYNTAX, bounds->stage, reterr, "not valid UTF-8");
		if (text[i] == 0)
			return refuse(text, len, i, ABOX_E_SYNTAX, bounds->stage, reterr, "NUL byte");
		if (in_string && text[i] == '\\' && i + 1 < len && (unsigned char)text[i + 1] < 0x80 &&
			text[i + 1])
			n = 2;
		else if (text[i] == '"')
			in_string = !in_string;
		else if (!in_string && (text[i] == '{' || text[i] == '['))
			depth++;
		else if (!in_string && (text[i] == '}' || text[i] == ']') && depth > 0)
			depth--;
		if (depth > bounds->max_depth)
			return refuse(text, len, i, ABOX_E_LIMIT, bounds->stage, reterr, "nested too deeply");
	}
	return 0;
}

static const char *message_of(const json_error_t *error)
{
	switch (json_error_code(error)) {
	case json_error_duplicate_key:
		return "this key is given twice";
	case json_error_end_of_input_expected:
		return "something follows the end of the value";
	case json_error_premature_end_of_input:
		return "the text ends too early";
	case json_error_numeric_overflow:
		return "the number is too large";
	case json_error_null_character:
	case json_error_null_byte_in_key:
		return "NUL character in a string";
	case json_error_invalid_utf8:
		return "not valid UTF-8";
	default:
		return "not valid JSON";
	}
}

int json_parse(const char *text, size_t len, const struct json_bounds *bounds, struct json **ret,
	abox_error **reterr)
{
	json_error_t error;
	json_t *value;
	int r;

	if (len > bounds->max_bytes)
		return error_set(reterr, ABOX_E_LIMIT, bounds->stage, NULL, "longer than %zu bytes",
			bounds->max_bytes);
	r = check_bytes(text, len, bounds, reterr);
	if (r < 0)
		return r;
	seed_once();
	value = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
	if (!value) {
		if (json_error_code(&error) == json_error_out_of_memory)
			return ABOX_E_MEMORY;
		return refuse(text, len, error.position > 0 ? (size_t)error.position - 1 : 0, ABOX_E_SYNTAX,
			bounds->stage, reterr, message_of(&error));
	}
	*ret = outer(value);
	return 0;
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
	seed_once();
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
