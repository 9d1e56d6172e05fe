/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the rest of the library sees of a journal: transactions, syncs, views, executor locks.
 *
 * The order of a safe step is always the same:
 *	1. journal_transact(): under the lock, everything others appended is shown to the views, the check
 *function looks at its view and decides, at most one record is appended.
 *	2. journal_sync() up to the returned seq: covers the own record and everything the decision was based
 *on.
 *	3. Only now may anything be told, sent or believed.
 */
#ifndef JOURNAL_JOURNAL_H
#define JOURNAL_JOURNAL_H

#include <agentbox/journal.h>

#include "base/error.h"
#include "base/macro.h"
#include "base/strings.h"

/* ---- records ----------------------------------------------------------------------------------------------
 */

/* Texts are NUL-terminated, unescaped, and hold for the call in which they are given. */
struct journal_record {
	uint64_t seq;
	uint64_t known;
	uint64_t epoch;
	uint64_t time_usec;
	int64_t room_bytes; /* + reserves room for a later record, - gives it back */
	const char *type;
	const char *task; /* NULL: none */
	const char *box;  /* NULL: none */
	const char *body; /* JSON text, NUL-terminated */
	size_t body_len;
	const char *prev; /* 64 hexadecimal digits */
	const char *hash;
	const char *line; /* exact bytes without newline */
	size_t line_len;
	uint64_t segment;
	uint64_t offset;
};

enum journal_priority {
	JOURNAL_NORMAL = 0,   /* refused with ABOX_E_NOSPACE when room is short */
	JOURNAL_VITAL = 1,    /* cancel, epoch, UNKNOWN: from the room that every segment keeps for them */
	JOURNAL_RESERVED = 2, /* an outcome: from the room its DISPATCHED reserved (room_bytes is negative) */
};

struct journal_entry {
	const char *type;
	const char *task;
	const char *box;
	const char *body; /* JSON object, valid UTF-8; one line or not; copied */
	size_t body_len;  /* 0: strlen(body) */
	uint64_t epoch;
	int64_t room_bytes;
	int priority;
};

/*
 * Called under the append lock with every view caught up. Sets *retentry (its texts must hold until the
 * transaction returns) and answers 1 to append it, 0 to append nothing, or a negative code, which goes up.
 * It may be called more than once: a full segment is closed first, and the question asked again in the next
 * one. Security: no sync, no wait, no callback of the user, no other journal call in here; executor locks may
 * be tested.
 */
typedef int (*journal_check_fn)(
	void *userdata, uint64_t next_seq, struct journal_entry *retentry, abox_error **reterr);

/*
 * One locked step. *retseq is the record appended, or the last one there is when nothing was: sync up to it
 * before acting on the answer. The views have seen the own record when this returns. Return: 1 appended, 0
 * nothing appended, a negative code (what check answered; ABOX_E_BUSY, NOSPACE, POISONED, DAMAGED, STATE,
 * LIMIT, IO, MEMORY).
 */
int journal_transact(
	abox_journal *journal, journal_check_fn check, void *userdata, uint64_t *retseq, abox_error **reterr);
/* The same without a check. */
int journal_append(
	abox_journal *journal, const struct journal_entry *entry, uint64_t *retseq, abox_error **reterr);
/* Append and sync in one: the ordinary way to write a record that is acknowledged. */
int journal_append_durable(
	abox_journal *journal, const struct journal_entry *entry, uint64_t *retseq, abox_error **reterr);
/* Catches up without the append lock and calls look (under the handle's mutex, so that views hold still).
 * look may be NULL. *retseq: the last record seen; not covered by itself. Nothing may be acted on before
 * journal_sync(). */
int journal_look(abox_journal *journal, int (*look)(void *userdata, abox_error **reterr), void *userdata,
	uint64_t *retseq, abox_error **reterr);

/* Group commit. 0 when everything up to seq is on the disk; ABOX_E_POISONED when that can no longer be said.
 */
int journal_sync(abox_journal *journal, uint64_t seq, int durability, abox_error **reterr);
/* True when seq is known to be on the disk. Never waits; does not ask other processes. */
bool journal_is_covered(abox_journal *journal, uint64_t seq);
/* True once the handle is dead: closed by fork. */
bool journal_is_dead(const abox_journal *journal);
bool journal_is_poisoned(abox_journal *journal);
bool journal_can_append(const abox_journal *journal);

/* ---- views
 * ------------------------------------------------------------------------------------------------- */

/*
 * A view is what somebody knows from the records: open tasks, effects, approvals. Each handle has at most one
 * instance of a view. load() gets the summary of a segment head (not called when there is none: the view
 * starts empty at the first record), then observe() every record after it, in order, own and others' alike.
 * Both run under the handle's mutex and may not call the journal. Records are shown before they are covered.
 * load() may come again: a handle that slept while segments were pruned starts anew from a later head, and
 * the summary replaces all that the view knew.
 *
 * A kind of view that summarises must stand in the table of views.c, so that a handle which never asked for
 * it can still write the head of a segment.
 */
struct journal_view_ops {
	const char *name; /* member of the head's "views" object */
	int (*create)(abox_journal *journal, void **retview);
	void (*destroy)(void *view);
	int (*load)(void *view, const char *summary, size_t len, abox_error **reterr);
	int (*observe)(void *view, const struct journal_record *record, abox_error **reterr);
	/* Writes one JSON value: what load() needs to know all that matters without the records before. */
	int (*summarize)(void *view, struct text *text);
	/* The lowest seq that must not be pruned; UINT64_MAX: none. May be NULL. */
	uint64_t (*keep_from)(void *view);
	/* True when a record must survive the pruning of its segment (a task's end). May be NULL. */
	bool (*carry)(void *view, const struct journal_record *record);
	/* Names under which a record is found by journal_find(), besides "task:NAME"; emit may be called
	 * several times. May be NULL. */
	void (*keys)(const struct journal_record *record,
		void (*emit)(void *userdata, const char *key, size_t len), void *userdata);
};

extern const struct journal_view_ops *const journal_views[]; /* NULL-ended; views.c */

/* The instance of this handle, made and caught up when it is not there yet; it goes with the handle. */
int journal_view(
	abox_journal *journal, const struct journal_view_ops *ops, void **retview, abox_error **reterr);

/*
 * Visits, oldest first, the records that carry a key ("task:NAME", or what a view's keys() emitted),
 * carried-over ones of pruned segments included (offset UINT64_MAX then). Uses the key index of sealed
 * segments, rebuilding what is missing, and scans the newest one. visit answers 0 to go on, 1 to stop, or a
 * negative code. Call it outside of transactions. What it shows of the newest segment is not covered by
 * itself.
 */
int journal_find(abox_journal *journal, const char *key,
	int (*visit)(void *userdata, const struct journal_record *record, abox_error **reterr),
	void *userdata, abox_error **reterr);

/* Reads records first..last again (bodies kept out of memory by a view). Same visit. */
int journal_read_range(abox_journal *journal, uint64_t first_seq, uint64_t last_seq,
	int (*visit)(void *userdata, const struct journal_record *record, abox_error **reterr),
	void *userdata, abox_error **reterr);

/* ---- executor locks
 * ---------------------------------------------------------------------------------------- */

/*
 * Alive = holds its executor lock: an OFD lock on one byte of the lock file, taken through an open file
 * description of its own. Pass the descriptor (fork, SCM_RIGHTS) and the lock is shared: free only when all
 * copies are closed. The number is random, never reused, and goes into records.
 */
int journal_executor_open(abox_journal *journal, uint64_t *retnumber, int *retfd, abox_error **reterr);
/* 1 alive, 0 dead, negative code. May be called inside a check. */
int journal_executor_alive(abox_journal *journal, uint64_t number, abox_error **reterr);
/* For people only: "pid 12 (start 345, boot ..., pid namespace ...)" as JSON members without braces. */
int journal_describe_self(struct text *text);

/* ---- blobs
 * ------------------------------------------------------------------------------------------------- */

/* abox_journal_blob_put() and _get() serve the library too. */
/* From a file: from its current position to the end. */
int journal_blob_put_fd(abox_journal *journal, int fd, char retdigest[ABOX_DIGEST_TEXT_BYTES],
	uint64_t *retlen, abox_error **reterr);

void journal_unrefp(abox_journal **journal);

#endif
