/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef REPORT_COLLECT_H
#define REPORT_COLLECT_H

#include "effect/engine.h"

/* Names that were counted, such as hosts; what comes after the bound is counted together. */
#define TALLY_MAX 256
struct tally {
	struct {
		char *name;
		char *detail;
		uint64_t counts[4];
	} *list;
	size_t n;
	uint64_t others;
};

/*
 * What the records of boxes, commands, connections and credentials say, gathered in one pass and in bounded memory.
 * Each `struct text` is the inside of a JSON array.
 */
struct collection {
	uint64_t records;
	uint64_t first_seq, last_seq;
	uint64_t first_usec, last_usec;
	uint64_t n_commands, n_failed, n_tools, n_notes, n_conflicts;
	struct text attempts;
	struct text boxes;
	struct text box_ends;
	struct text receipts;
	struct text failures;		/* commands that did not end well, the first ones */
	struct text changes;		/* apply, artifact, snapshot, steps behind the boundary */
	struct text decisions;		/* by name: verdicts, overrides, claims, stages */
	struct text end;		/* one object, or empty */
	struct tally allowed, denied, credentials;
};

int collect_record(struct collection *collection, const struct journal_record *record, abox_error **reterr);
void collection_clear(struct collection *collection);

#endif
