/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef SPEC_TYPES_H
#define SPEC_TYPES_H

#include "base/json.h"
#include "spec/keys.h"

/* What is wrong with a value and what to write instead; the value itself is never quoted. */
struct type_fault {
	char message[160];
	char remedy[256];
};

/*
 * Checks one value that is no container against its row. *retnormal is NULL when the value is in its normal
 * form, else the normal form (a path without `//`, a host in lower case). 0, ABOX_E_INVALID with *fault,
 * ABOX_E_MEMORY.
 */
int type_check(const struct spec_key *key, const struct json *value, struct json **retnormal,
	struct type_fault *fault);
/* The name of a member of a map. */
int type_check_name(const struct spec_key *map, const char *name, struct type_fault *fault);
/* Fills *fault for a value of the wrong kind; returns ABOX_E_INVALID. */
int type_mismatch(const struct spec_key *key, const struct json *value, struct type_fault *fault);

/* The number behind a value that was checked, or behind the default of its row. */
uint64_t type_number(const struct spec_key *key, const struct json *value);
uint64_t type_number_of_text(const struct spec_key *key, const char *text);
/* The default as a value: NULL for none or no memory. */
struct json *type_fallback(const struct spec_key *key, const char *text);
/* Position of an enum's word in its row, -1 for another word. */
int type_word(const struct spec_key *key, const char *word);

/* Digits without sign, blank or leading zeros; the rest of the text stays in *text. False on overflow. */
bool type_parse_digits(const char **text, uint64_t *ret);

/* Types that are strings and no numbers. */
enum text_answer {
	TEXT_FINE = 0,
	TEXT_WRONG,		/* *retwhy says it better than the wording of the type, where it was set */
	TEXT_NORMALIZED,	/* *rettext holds the one form of it */
	TEXT_NO_MEMORY,
};
bool text_type(enum spec_type type);
enum text_answer text_check(
	const struct spec_key *key, const char *text, char **rettext, const char **retwhy);

/* For people: "a size, at least 4MiB, such as \"2GiB\"". */
void type_describe(struct text *text, const struct spec_key *key);
const char *type_name(enum spec_type type);
/* The bounds as written in a spec; NULL when the type has none. For free(). */
int type_bound(const struct spec_key *key, uint64_t bound, char **rettext);
bool type_has_bounds(const struct spec_key *key);

#endif
