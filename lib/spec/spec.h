/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef SPEC_SPEC_H
#define SPEC_SPEC_H

#include <agentbox/spec.h>

#include "base/error.h"
#include "base/json.h"
#include "base/macro.h"
#include "spec/keys.h"

/*
 * Reading a spec, for the plan. A spec that exists has been checked key by key; abox_spec_check() adds what
 * concerns several keys at once, and whoever reads a spec for good calls it first.
 *
 * Every `pointer` is a format: spec_string(spec, "/mounts/%zu/source", i). It must match a row of the key
 * table (asserted), of the type that the function reads. What was not written reads as its default, so that
 * no caller holds a default of its own. Texts belong to the spec and stay until it is changed or released.
 */
void spec_unrefp(abox_spec **spec);

/* The user wrote this value (or something below it); a default answers false. */
bool spec_written(const abox_spec *spec, const char *pointer, ...) _printf_(2, 3);
/* There is a value, written or default: false for an optional key without default, such as /journal. */
bool spec_has(const abox_spec *spec, const char *pointer, ...) _printf_(2, 3);

/* Texts of every kind, enums too; NULL when absent. */
const char *spec_string(const abox_spec *spec, const char *pointer, ...) _printf_(2, 3);
bool spec_boolean(const abox_spec *spec, const char *pointer, ...) _printf_(2, 3);
/* Integers as they are, sizes in bytes, durations in microseconds, decimals in thousandths, ports. 0 when
 * absent (no written value is ever 0 where the table does not allow it); UINT64_MAX for a duration written as
 * "off". */
uint64_t spec_u64(const abox_spec *spec, const char *pointer, ...) _printf_(2, 3);
/* Index into spec_key.words; an enum without value is 0, which is the most restrictive word. */
int spec_enum(const abox_spec *spec, const char *pointer, ...) _printf_(2, 3);

/* Lists and maps. Members of a map are in order of name; an index stays until the spec is changed. */
size_t spec_count(const abox_spec *spec, const char *pointer, ...) _printf_(2, 3);
/* The i-th member of a map of texts (/env, /identity/labels, rule query and headers). False behind
 * the end, and for lack of memory: spec_count() tells which. */
bool spec_map_string(const abox_spec *spec, size_t i, const char **retname, const char **retvalue,
	const char *pointer, ...) _printf_(5, 6);

/* /user as a number: agent is SPEC_UID_AGENT, root is 0. */
enum {
	SPEC_UID_AGENT = 1000,
};
uint32_t spec_user(const abox_spec *spec);

/*
 * Calls visit for every written value that is no container, in order of name, until it answers other than 0,
 * which is returned. The key tells the module that must enforce it. Values that are the same as their default
 * are passed over: they ask for nothing that an absent key does not ask for.
 */
typedef int (*spec_visit_fn)(const struct spec_key *key, const char *pointer, void *userdata);
int spec_visit(const abox_spec *spec, spec_visit_fn visit, void *userdata);

/* Place of a value in the text that the spec was read from. False when it came from a setter or is a
 * default. */
bool spec_position(const abox_spec *spec, const char *pointer, uint32_t *retline, uint32_t *retcolumn);
/* An error about one key, at any stage: error_set() with the pointer as place, and line and column where
 * known. */
int spec_refuse(const abox_spec *spec, abox_error **reterr, int code, int stage, const char *pointer,
	const char *format, ...) _printf_(6, 7);

/* A tree of the spec with every default filled in (lists and maps element by element). */
int spec_resolve(const abox_spec *spec, struct json **ret);
/* Borrowed: what was written. */
const struct json *spec_tree(const abox_spec *spec);

#endif
