/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef JOURNAL_FORMAT_H
#define JOURNAL_FORMAT_H

#include "base/digest.h"
#include "journal/journal.h"

#define FORMAT_NUMBER 1
#define RECORD_TYPE_MAX 64
#define RECORD_NAME_MAX 255 /* task, box: bytes before escaping */
#define RECORD_BODY_MAX (2U * 1024 * 1024)
#define RECORD_LINE_MAX (4U * 1024 * 1024) /* a head holds the summaries: larger than any body of others */
#define RECORD_HASH_NONE "0000000000000000000000000000000000000000000000000000000000000000"

/* Texts of one parsed record. */
struct record_texts {
	char type[RECORD_TYPE_MAX + 1];
	char task[RECORD_NAME_MAX + 1];
	char box[RECORD_NAME_MAX + 1];
	char prev[DIGEST_TEXT_BYTES];
	char hash[DIGEST_TEXT_BYTES];
};

/* Checks a line (without newline) down to its hash, but not its place in the chain. The body is not
 * NUL-terminated: it points into the line. 0, or ABOX_E_SYNTAX with *retwhy (static text; may be NULL) saying
 * what is wrong. */
int record_parse(const char *line, size_t len, struct journal_record *ret, struct record_texts *texts,
	const char **retwhy);

/* Writes one whole line, with newline, and its hash. 0, ABOX_E_SYNTAX (body), ABOX_E_INVALID (names),
 * ABOX_E_LIMIT, ABOX_E_MEMORY. The text is cleared first. */
struct record_fields {
	uint64_t seq;
	uint64_t known;
	uint64_t time_usec;
	const char *prev;
};
int record_build(struct text *text, const struct record_fields *fields, const struct journal_entry *entry,
	char rethash[DIGEST_TEXT_BYTES], const char **retwhy);

/* Checks one JSON value and copies it without blanks between tokens: one line, valid UTF-8. want_object:
 * nothing else. 0, ABOX_E_SYNTAX with the offset of what is wrong, ABOX_E_MEMORY. */
int json_text_compact(struct text *text, const char *json, size_t len, bool want_object, size_t *retoffset);
/* The same without a copy. */
bool json_text_is_object(const char *json, size_t len);

#endif
