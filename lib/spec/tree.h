/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef SPEC_TREE_H
#define SPEC_TREE_H

#include "spec/spec.h"
#include "spec/types.h"

/* The inside of a spec, for the files of this folder. */
struct abox_spec {
	int refs;		/* atomic */
	struct json *root;	/* what was written, each value checked and in its normal form */
	char *text;		/* what it was read from; NULL when it began empty */
	size_t text_len;
	char **changed;		/* pointers that setters touched: their places in the text say nothing now */
	size_t n_changed;
};

/* Where the values being checked come from, so that an error can show the place. */
struct origin {
	const char *text;	/* NULL: from nowhere */
	size_t len;
	size_t base_len;	/* length of the pointer at which the text stands in the spec */
};

/*
 * Checks *value and all below it against key, and brings it to its normal form (which may replace *value).
 * pointer is where it stands; it is as before on return. With `complete` required members must be there.
 */
int tree_check(const struct spec_key *key, struct json **value, struct text *pointer,
	const struct origin *origin, bool complete, abox_error **reterr);
/* An unknown key at `pointer` (of the name, not of its parent). */
int tree_refuse_unknown(const struct spec_key *parent, const char *name, const char *pointer,
	const struct origin *origin, abox_error **reterr);

/* Value at a pointer as written, or a new value of its default; NULL for neither. For json_unref(). */
struct json *tree_get(const abox_spec *spec, const struct spec_key *key, const char *pointer);
/* The default of a key as text, an `=` followed; what is written at the other key counts. NULL for none. */
const char *tree_fallback(const abox_spec *spec, const struct spec_key *key);

int check_across(const abox_spec *spec, abox_error **reterr);

#endif
