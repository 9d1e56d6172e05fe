/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The view of a journal handle, and the steps that all of effect, approval and task are made of: decide under
 * the append lock, append one record, sync, answer.
 */
#ifndef EFFECT_ENGINE_H
#define EFFECT_ENGINE_H

#include "effect/decide.h"
#include "journal/journal.h"

#define ENGINE_ID_BYTES 40                       /* "eff-" and 32 digits, with NUL */
#define ENGINE_INLINE_BYTES 65536                /* results and payloads up to here stand in the record */
#define ENGINE_OUTCOME_ROOM (INT64_C(72) * 1024) /* what DISPATCHED reserves for its outcome */

extern const struct journal_view_ops effect_view_ops;

/* The view of this handle, caught up. */
int engine_view(abox_journal *journal, struct view **retview, abox_error **reterr);

/*
 * One locked step. decide() looks at the view, and fills *retfact (zero before) and *retpriority; it answers
 * 1 to append, 0 not to, or a negative code. It may be called more than once. The clock fields of the fact
 * are filled in.
 */
struct engine_step;
typedef int (*engine_decide_fn)(struct engine_step *step, struct fact *retfact, abox_error **reterr);
struct engine_step {
	abox_journal *journal;
	abox_task *asker; /* whose threads are told apart; may be NULL */
	engine_decide_fn decide;
	void *userdata;
	/* Set while decide() runs. */
	struct view *view;
	struct decide_context context;
	int64_t room; /* of the record; decide() sets it for those that reserve or give back */
	int priority; /* enum journal_priority */
	/* Afterwards. */
	uint64_t seq;
	/* Inner. */
	struct text body;
};
/* 1 appended, 0 not, negative code. step->seq must be synced before the answer is acted on. */
int engine_append(struct engine_step *step, abox_error **reterr);
int engine_append_durable(struct engine_step *step, abox_error **reterr);
void engine_step_clear(struct engine_step *step);

/* Looks at the view without the append lock; engine_sync() the returned seq before it is believed. */
int engine_look(abox_journal *journal, abox_task *asker,
	int (*look)(
		struct view *view, const struct decide_context *context, void *userdata, abox_error **reterr),
	void *userdata, uint64_t *retseq, abox_error **reterr);
int engine_sync(abox_journal *journal, uint64_t seq, abox_error **reterr);

/* Fills in now, in both clocks. */
void engine_clock(struct decide_context *context);
/* "eff-..." or "app-...": 128 random bits. */
int engine_make_id(const char *prefix, char ret[ENGINE_ID_BYTES], abox_error **reterr);
/* Of this boot; static. NULL with an error when the kernel does not tell. */
const char *engine_boot_id(abox_error **reterr);
void engine_executor_text(uint64_t number, char ret[17]);

/* A name that somebody gives: 1..255 bytes. */
int engine_check_name(const char *what, const char *name, size_t max, abox_error **reterr);
int engine_check_journal(abox_journal *journal, bool append, abox_error **reterr);

/* Bytes in a record or, above ENGINE_INLINE_BYTES, in a blob: fills *retbytes, or retblob ("sha256:..."). */
struct engine_blob {
	char text[8 + 65];
};
int engine_store(abox_journal *journal, const void *data, size_t len, struct fact_bytes *retbytes,
	struct engine_blob *retblob, abox_error **reterr);
/* The result (or payload) that the record at seq holds; NULL when it holds none. With a NUL behind. */
int engine_load(abox_journal *journal, uint64_t seq, bool payload, char **retdata, size_t *retlen,
	int32_t *retcode, char **retreason, abox_error **reterr);

/* The fact of a record, which is FACT_NONE for those of others; texts belong to both; fact_clear(). */
int engine_read(struct fact *fact, const struct journal_record *record, abox_error **reterr);
/* The bytes of a fact, or those of the blob it names. NULL when there are none; with a NUL behind. */
int engine_take(abox_journal *journal, const struct fact_bytes *bytes, const char *blob, char **retdata,
	size_t *retlen, abox_error **reterr);
/* The fact in the record at seq; release with fact_clear(). Its task is not set. */
int engine_fact(abox_journal *journal, uint64_t seq, struct fact *ret, abox_error **reterr);

/* A view of its own over one task (or all, NULL) that forgets nothing, for lists, plans and reports. */
int engine_history(abox_journal *journal, const char *task, struct view *retview, abox_error **reterr);

#endif
