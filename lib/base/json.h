/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <agentbox/error.h>

#include "base/macro.h"
#include "base/strings.h"

/*
 * JSON trees. Values are reference counted; a value inside a tree is borrowed from the tree. All accessors
 * take NULL and values of another kind, and answer NULL, 0 or false then. Strings are valid UTF-8 without
 * NUL.
 */
struct json;

enum json_kind {
	JSON_KIND_NONE = 0,	/* no value at all */
	JSON_KIND_NULL,
	JSON_KIND_BOOLEAN,
	JSON_KIND_INTEGER,
	JSON_KIND_DECIMAL,	/* a number written with a point or an exponent */
	JSON_KIND_STRING,
	JSON_KIND_ARRAY,
	JSON_KIND_OBJECT,
};

/* What a text may be. Everything beyond is refused before memory is spent on it. */
struct json_bounds {
	size_t max_bytes;
	unsigned int max_depth;	/* containers within containers; a lone value has depth 0 */
	int stage;		/* of the error */
};

/*
 * Parses exactly one value: duplicate keys, trailing bytes, NUL (also as \u0000), invalid UTF-8 and integers
 * beyond 64 bits are refused. The error is ABOX_E_SYNTAX (or ABOX_E_LIMIT for size and depth) with line,
 * column, and the pointer of the value where reading ended.
 */
int json_parse(const char *text, size_t len, const struct json_bounds *bounds, struct json **ret,
	abox_error **reterr);

/* Before the first object is made; see json.c. json_parse() and json_new_object() call it. */
void json_seed_once(void);
/* Adds a character as UTF-8. */
void text_add_code(struct text *text, uint32_t code);

struct json *json_ref(struct json *value);
struct json *json_unref(struct json *value);
void json_unrefp(struct json **value);

struct json *json_new_object(void);
struct json *json_new_array(void);
struct json *json_new_string(const char *string);	/* NULL when it is not UTF-8 or there is no memory */
struct json *json_new_integer(int64_t number);
struct json *json_new_decimal(double number);
struct json *json_new_boolean(bool value);
struct json *json_clone(const struct json *value);	/* deep */
bool json_same(const struct json *a, const struct json *b);

enum json_kind json_kind(const struct json *value);
const char *json_kind_name(enum json_kind kind);	/* "string", "whole number" ... for messages */
const char *json_text(const struct json *value);
int64_t json_number(const struct json *value);		/* integers only */
double json_decimal(const struct json *value);		/* integers and decimals */
bool json_truth(const struct json *value);

size_t json_count(const struct json *value);		/* elements or members */
struct json *json_element(const struct json *array, size_t i);
struct json *json_member(const struct json *object, const char *name);
/* The members in order of name (bytes): a NULL-terminated array for free(); the names belong to the
 * object. */
int json_member_names(const struct json *object, const char ***retnames);

/* Putting in takes the value, on failure too, and a NULL value counts as lack of memory: ABOX_E_MEMORY. An
 * element can only be put where there is one: ABOX_E_INVALID. The container is of the right kind. */
int json_put_member(struct json *object, const char *name, struct json *value_taken);
int json_put_element(struct json *array, size_t i, struct json *value_taken);
int json_append_element(struct json *array, struct json *value_taken);
bool json_remove_member(struct json *object, const char *name);
bool json_remove_element(struct json *array, size_t i);

/* Same tree, same bytes: members sorted by name, no blanks, pure printable text (text_add_json()). */
void json_print(struct text *text, const struct json *value);
int json_print_new(const struct json *value, char **rettext);

/* RFC 6901. A pointer is "" or "/" and escaped names; `-` is no index here. */
struct json *json_at(const struct json *root, const char *pointer);
bool json_pointer_valid(const char *pointer);
void json_pointer_add(struct text *pointer, const char *name);	/* adds "/" and the escaped name */
void json_pointer_add_index(struct text *pointer, size_t i);
/*
 * Takes the first name off a pointer that begins with "/": decoded into name (cut to size - 1 bytes; false
 * then, and at a bad escape). *pointer goes to the next "/" or the end.
 */
bool json_pointer_next(const char **pointer, char *name, size_t size);
/* An array index as RFC 6901 wants it: digits without leading zero. */
bool json_index_parse(const char *name, size_t *reti);

/* 1-based place of the value at pointer in the text it was parsed from; columns count bytes. False: not
 * there. */
bool json_locate(const char *text, size_t len, const char *pointer, uint32_t *retline, uint32_t *retcolumn);
/* As above, but of the name of a member, which is where an unknown key is best shown. */
bool json_locate_name(
	const char *text, size_t len, const char *pointer, uint32_t *retline, uint32_t *retcolumn);
/*
 * The other way: the token that begins at or before *offset, to which *offset is moved, and the pointer of
 * the value it belongs to. Takes text that is not valid JSON. 0, ABOX_E_MEMORY, ABOX_E_LIMIT (deeper than it
 * follows).
 */
int json_pointer_at(const char *text, size_t len, size_t *offset, char **retpointer);
void json_line_column(const char *text, size_t offset, uint32_t *retline, uint32_t *retcolumn);

#endif
