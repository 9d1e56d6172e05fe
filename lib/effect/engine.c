/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Between the journal and the rules: turns records into facts for the view and facts into records, gives
 * decisions their clock and their oracle of who lives, and keeps the order append, sync, answer (effects 0.2,
 * 0.3).
 */
#include "effect/engine.h"

#include <errno.h>
#include <inttypes.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/fd.h"
#include "effect/owner.h"

/* ---- the view of a handle ---- */

static int view_create(abox_journal *journal, void **retview)
{
	struct view *view = malloc(sizeof(*view));

	(void)journal;
	if (!view)
		return ABOX_E_MEMORY;
	view_init(view);
	*retview = view;
	return 0;
}

static void view_destroy(void *userdata)
{
	view_clear(userdata);
	free(userdata);
}

static int view_load(void *userdata, const char *summary, size_t len, abox_error **reterr)
{
	/* Bounded by what a head may hold, which is the journal's to say. */
	static const struct json_bounds bounds = {1u << 30, 8, ABOX_STAGE_JOURNAL};
	_cleanup_(json_unrefp) struct json *array = NULL;
	int r;

	r = json_parse(summary, len, &bounds, &array, reterr);
	if (r < 0)
		return r;
	for (size_t i = 0; i < json_count(array); i++) {
		struct fact fact = {0};

		r = fact_read_tree(&fact, json_ref(json_element(array, i)), reterr);
		if (r >= 0)
			r = view_apply(userdata, &fact);
		fact_clear(&fact);
		if (r == 1)
			r = error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, NULL,
				"a summary contradicts itself");
		if (r < 0)
			return r;
	}
	return 0;
}

int engine_read(struct fact *fact, const struct journal_record *record, abox_error **reterr)
{
	int kind = fact_kind_of(record->type), r = 0;

	fact->seq = record->seq;
	if (kind != FACT_NONE)
		r = fact_read(fact, kind, record->body, record->body_len, reterr);
	/* Anybody may write resources and notes; what is no fact of ours is a free record. */
	if (r < 0 && r != ABOX_E_MEMORY && (kind == FACT_RESOURCE_CREATED || kind == FACT_RESOURCE_REMOVED)) {
		fact_clear(fact);
		if (reterr)
			*reterr = abox_error_free(*reterr);
		r = 0;
	}
	fact->seq = record->seq;
	fact->epoch = record->epoch;
	fact->time_usec = record->time_usec;
	fact->task = record->task;
	fact->room = record->room_bytes;
	return r;
}

static int apply_record(struct view *view, const struct journal_record *record, abox_error **reterr)
{
	struct fact fact = {0};
	int r;

	r = engine_read(&fact, record, reterr);
	if (r >= 0)
		r = view_apply(view, &fact);
	fact_clear(&fact);
	return r < 0 ? r : 0;
}

static int view_observe(void *userdata, const struct journal_record *record, abox_error **reterr)
{
	return apply_record(userdata, record, reterr);
}

static int view_write(void *userdata, struct text *text)
{
	view_summarize(userdata, text);
	return text->failed ? ABOX_E_MEMORY : 0;
}

static uint64_t view_keep(void *userdata)
{
	return view_keep_from(userdata);
}

/* The end of a task is its tombstone and is kept for ever (effects 1.11). */
static bool view_carry(void *userdata, const struct journal_record *record)
{
	(void)userdata;
	return strcmp(record->type, fact_type(FACT_TASK_END)) == 0;
}

static void view_keys(const struct journal_record *record,
	void (*emit)(void *userdata, const char *key, size_t len), void *userdata)
{
	if (fact_kind_of(record->type) == FACT_JOURNAL_ADOPTED)
		emit(userdata, "adopted", strlen("adopted"));
}

const struct journal_view_ops effect_view_ops = {
	.name = "effects",
	.create = view_create,
	.destroy = view_destroy,
	.load = view_load,
	.observe = view_observe,
	.summarize = view_write,
	.keep_from = view_keep,
	.carry = view_carry,
	.keys = view_keys,
};

int engine_view(abox_journal *journal, struct view **retview, abox_error **reterr)
{
	void *view = NULL;
	int r;

	r = journal_view(journal, &effect_view_ops, &view, reterr);
	if (r < 0)
		return r;
	*retview = view;
	return 0;
}

/* ---- clock and life ---- */

static pthread_once_t boot_once = PTHREAD_ONCE_INIT;
static char boot_id[40];

static void read_boot_id(void)
{
	char *text = NULL;
	size_t len = 0;

	if (file_read_text(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 128, &text, &len) == 0 && len >= 36) {
		memcpy(boot_id, text, 36);
		boot_id[36] = 0;
	}
	free(text);
}

const char *engine_boot_id(abox_error **reterr)
{
	pthread_once(&boot_once, read_boot_id);
	if (!boot_id[0]) {
		error_set(reterr, ABOX_E_SYSTEM, ABOX_STAGE_EFFECT, NULL,
			"cannot read the id of this boot: expiry and settle times would mean nothing");
		return NULL;
	}
	return boot_id;
}

void engine_executor_text(uint64_t number, char ret[17])
{
	snprintf(ret, 17, "%016" PRIx64, number);
}

void engine_clock(struct decide_context *context)
{
	context->boot_usec = clock_boot_usec();
	context->wall_usec = clock_wall_usec();
}

struct alive_query {
	abox_journal *journal;
	abox_task *asker;
};

static int is_alive(void *userdata, const char *executor, uint64_t handle, abox_error **reterr)
{
	const struct alive_query *query = userdata;
	char *end = NULL;
	uint64_t number;

	if (!executor || !executor[0])
		return 0;
	/* Our own lock is ours to look through: a thread of this process that gave up is no executor any
	 * more. */
	if (query->asker && owner_has_executor(query->asker, executor))
		return handle == 0 || owner_handle_lives(query->asker, handle);
	number = strtoull(executor, &end, 16);
	if (!end || *end || !number)
		return error_set(
			reterr, ABOX_E_DAMAGED, ABOX_STAGE_EFFECT, NULL, "'%s' is no executor", executor);
	return journal_executor_alive(query->journal, number, reterr);
}

static int make_context(struct decide_context *context, struct alive_query *query, abox_error **reterr)
{
	const char *boot = engine_boot_id(reterr);

	if (!boot)
		return ABOX_E_SYSTEM;
	*context = (struct decide_context){boot, clock_boot_usec(), clock_wall_usec(), is_alive, query};
	return 0;
}

/* ---- steps ---- */

struct step_call {
	struct engine_step *step;
	struct alive_query query;
	struct fact fact;
};

static int step_check(void *userdata, uint64_t next_seq, struct journal_entry *retentry, abox_error **reterr)
{
	struct step_call *call = userdata;
	struct engine_step *step = call->step;
	struct fact *fact = &call->fact;
	int r;

	(void)next_seq;
	r = make_context(&step->context, &call->query, reterr);
	if (r < 0)
		return r;
	*fact = (struct fact){0};
	step->room = 0;
	step->priority = JOURNAL_NORMAL;
	r = step->decide(step, fact, reterr);
	if (r <= 0)
		return r;
	fact->boot = step->context.boot;
	fact->boot_usec = step->context.boot_usec;
	/* A record that cannot be read again would stop every view of this journal. */
	if (!fact_fits(fact))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, NULL,
			"a number is larger than a record can hold (63 bits)");
	step->body.len = 0;
	fact_write(&step->body, fact);
	if (step->body.failed)
		return ABOX_E_MEMORY;
	*retentry = (struct journal_entry){.type = fact_type(fact->kind),
		.task = fact->task,
		.body = step->body.data,
		.body_len = step->body.len,
		.epoch = fact->epoch,
		.room_bytes = step->room,
		.priority = step->priority};
	return 1;
}

int engine_append(struct engine_step *step, abox_error **reterr)
{
	struct step_call call = {.step = step, .query = {step->journal, step->asker}};
	int r;

	r = engine_view(step->journal, &step->view, reterr);
	if (r < 0)
		return r;
	return journal_transact(step->journal, step_check, &call, &step->seq, reterr);
}

int engine_sync(abox_journal *journal, uint64_t seq, abox_error **reterr)
{
	if (seq == 0 || journal_is_covered(journal, seq))
		return 0;
	return journal_sync(journal, seq, ABOX_DURABILITY_DATA, reterr);
}

int engine_append_durable(struct engine_step *step, abox_error **reterr)
{
	int r, synced;

	r = engine_append(step, reterr);
	if (r < 0)
		return r;
	/* Also when nothing was appended: the answer rests on what was read (effects 0.3). */
	synced = engine_sync(step->journal, step->seq, reterr);
	return synced < 0 ? synced : r;
}

void engine_step_clear(struct engine_step *step)
{
	text_clear(&step->body);
}

struct look_call {
	struct view *view;
	struct decide_context context;
	struct alive_query query;
	int (*look)(
		struct view *view, const struct decide_context *context, void *userdata, abox_error **reterr);
	void *userdata;
};

static int look_inside(void *userdata, abox_error **reterr)
{
	struct look_call *call = userdata;

	return call->look(call->view, &call->context, call->userdata, reterr);
}

int engine_look(abox_journal *journal, abox_task *asker,
	int (*look)(
		struct view *view, const struct decide_context *context, void *userdata, abox_error **reterr),
	void *userdata, uint64_t *retseq, abox_error **reterr)
{
	struct look_call call = {.query = {journal, asker}, .look = look, .userdata = userdata};
	int r;

	r = engine_view(journal, &call.view, reterr);
	if (r < 0)
		return r;
	r = make_context(&call.context, &call.query, reterr);
	if (r < 0)
		return r;
	return journal_look(journal, look_inside, &call, retseq, reterr);
}

/* ---- names and bytes ---- */

int engine_make_id(const char *prefix, char ret[ENGINE_ID_BYTES], abox_error **reterr)
{
	uint8_t random[16];
	size_t len = strlen(prefix);

	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_EFFECT, NULL, errno, "cannot get random bytes");
	memcpy(ret, prefix, len);
	hex_encode(random, sizeof(random), ret + len);
	return 0;
}

int engine_check_name(const char *what, const char *name, size_t max, abox_error **reterr)
{
	size_t len = name ? strlen(name) : 0;

	if (len < 1 || len > max)
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, what, "must have 1 to %zu bytes", max);
	return 0;
}

int engine_check_journal(abox_journal *journal, bool append, abox_error **reterr)
{
	if (!journal)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, NULL, "a journal is required");
	if (journal_is_dead(journal))
		return error_set(reterr, ABOX_E_STATE, ABOX_STAGE_EFFECT, NULL,
			"this handle is of the process that forked; open the journal again");
	if (append && !journal_can_append(journal))
		return error_set(reterr, ABOX_E_STATE, ABOX_STAGE_EFFECT, NULL,
			"the journal is open for reading only");
	return 0;
}

/* Bytes that are no text take two digits each; what must go into the reserved room is measured by that. */
static bool fits_inline(const char *data, size_t len)
{
	size_t size = 0, n;

	for (size_t i = 0; i < len && size <= ENGINE_INLINE_BYTES; i += n) {
		unsigned char c = (unsigned char)data[i];

		n = utf8_char_len(data + i, len - i);
		if (n == 0 || c == 0)
			return 2 * len <= ENGINE_INLINE_BYTES;
		size += c < 0x20 || c == 0x7f || n > 1 ? 6 : c == '"' || c == '\\' ? 2 : 1;
	}
	return size <= ENGINE_INLINE_BYTES;
}

int engine_store(abox_journal *journal, const void *data, size_t len, struct fact_bytes *retbytes,
	struct engine_blob *retblob, abox_error **reterr)
{
	char digest[ABOX_DIGEST_TEXT_BYTES];
	int r;

	*retbytes = (struct fact_bytes){0};
	retblob->text[0] = 0;
	if (!data)
		return 0;
	if (fits_inline(data, len)) {
		*retbytes = (struct fact_bytes){data, len};
		return 0;
	}
	r = abox_journal_blob_put(journal, data, len, digest, reterr);
	if (r < 0)
		return r;
	snprintf(retblob->text, sizeof(retblob->text), "sha256:%s", digest);
	return 0;
}

struct fact_call {
	uint64_t seq;
	struct fact *fact;
	bool found;
};

static int fact_visit(void *userdata, const struct journal_record *record, abox_error **reterr)
{
	struct fact_call *call = userdata;
	int r;

	if (record->seq != call->seq)
		return 0;
	r = engine_read(call->fact, record, reterr);
	call->fact->task = NULL; /* belongs to the record */
	call->found = r >= 0;
	return r < 0 ? r : 1;
}

int engine_fact(abox_journal *journal, uint64_t seq, struct fact *ret, abox_error **reterr)
{
	struct fact_call call = {seq, ret, false};
	int r;

	*ret = (struct fact){0};
	r = journal_read_range(journal, seq, seq, fact_visit, &call, reterr);
	if (r >= 0 && !call.found)
		r = error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_EFFECT, NULL,
			"record %" PRIu64 " is not there", seq);
	if (r < 0)
		fact_clear(ret);
	return r < 0 ? r : 0;
}

int engine_take(abox_journal *journal, const struct fact_bytes *bytes, const char *blob, char **retdata,
	size_t *retlen, abox_error **reterr)
{
	*retdata = NULL;
	*retlen = 0;
	if (blob)
		return abox_journal_blob_get(journal, blob, UINT64_C(1) << 40, retdata, retlen, reterr);
	if (!bytes->data)
		return 0;
	*retdata = malloc(bytes->len + 1);
	if (!*retdata)
		return ABOX_E_MEMORY;
	memcpy(*retdata, bytes->data, bytes->len);
	(*retdata)[bytes->len] = 0;
	*retlen = bytes->len;
	return 0;
}

int engine_load(abox_journal *journal, uint64_t seq, bool payload, char **retdata, size_t *retlen,
	int32_t *retcode, char **retreason, abox_error **reterr)
{
	_cleanup_(freep) char *data = NULL, *reason = NULL;
	struct fact fact;
	size_t len = 0;
	int32_t code;
	int r;

	r = engine_fact(journal, seq, &fact, reterr);
	if (r < 0)
		return r;
	r = engine_take(journal, payload ? &fact.payload : &fact.result,
		payload ? fact.payload_blob : fact.result_blob, &data, &len, reterr);
	if (r >= 0 && fact.reason && !(reason = strdup(fact.reason)))
		r = ABOX_E_MEMORY;
	code = (int32_t)fact.code;
	fact_clear(&fact);
	if (r < 0)
		return r;
	*retdata = steal_ptr(data);
	*retlen = len;
	if (retcode)
		*retcode = code;
	if (retreason)
		*retreason = steal_ptr(reason);
	return 0;
}

/* ---- history ---- */

struct history {
	struct view *view;
	struct {
		uint64_t seq;
		uint64_t time_usec;
	} * adoptions; /* records that concern all tasks, and so stand under none */
	size_t n_adoptions;
	size_t next;
};

static int note_adoption(void *userdata, const struct journal_record *record, abox_error **reterr)
{
	struct history *history = userdata;
	void *more = realloc(history->adoptions, (history->n_adoptions + 1) * sizeof(*history->adoptions));

	(void)reterr;
	if (!more)
		return ABOX_E_MEMORY;
	history->adoptions = more;
	history->adoptions[history->n_adoptions].seq = record->seq;
	history->adoptions[history->n_adoptions++].time_usec = record->time_usec;
	return 0;
}

static int apply_adoptions(struct history *history, uint64_t before_seq)
{
	int r = 0;

	for (; r >= 0 && history->next < history->n_adoptions &&
		history->adoptions[history->next].seq < before_seq;
		history->next++)
		r = view_apply(
			history->view, &(struct fact){.kind = FACT_JOURNAL_ADOPTED,
					       .seq = history->adoptions[history->next].seq,
					       .time_usec = history->adoptions[history->next].time_usec});
	return r;
}

static int visit_history(void *userdata, const struct journal_record *record, abox_error **reterr)
{
	struct history *history = userdata;
	int r;

	r = apply_adoptions(history, record->seq);
	return r < 0 ? r : apply_record(history->view, record, reterr);
}

static int history_of_task(abox_journal *journal, const char *task, struct view *view, abox_error **reterr)
{
	struct history history = {.view = view};
	_cleanup_(text_clear) struct text key = TEXT_INIT;
	int r;

	text_add(&key, "task:");
	text_add(&key, task);
	if (key.failed)
		return ABOX_E_MEMORY;
	r = journal_find(journal, "adopted", note_adoption, &history, reterr);
	if (r >= 0)
		r = journal_find(journal, key.data, visit_history, &history, reterr);
	if (r >= 0)
		r = apply_adoptions(&history, UINT64_MAX);
	free(history.adoptions);
	return r;
}

/* From the first record that was not pruned: what is open is whole, as its records are never pruned. */
static int history_of_all(abox_journal *journal, struct view *view, abox_error **reterr)
{
	struct abox_journal_record record = ABOX_JOURNAL_RECORD_INIT;
	abox_journal_reader *reader = NULL;
	int r;

	r = abox_journal_reader_new(journal, 0, 0, &reader, reterr);
	if (r < 0)
		return r;
	while ((r = abox_journal_reader_next(reader, &record, reterr)) > 0) {
		const struct journal_record inner = {.seq = record.seq,
			.epoch = record.epoch,
			.time_usec = record.time_usec,
			.type = record.type,
			.task = record.task,
			.body = record.body,
			.body_len = strlen(record.body)};

		r = apply_record(view, &inner, reterr);
		if (r < 0)
			break;
	}
	abox_journal_reader_unref(reader);
	return r;
}

static int look_at_nothing(
	struct view *view, const struct decide_context *context, void *userdata, abox_error **reterr)
{
	return 0;
}

int engine_history(abox_journal *journal, const char *task, struct view *retview, abox_error **reterr)
{
	uint64_t seq = 0;
	int r;

	/* Nothing is told before it is covered (effects 0.3). */
	r = engine_look(journal, NULL, look_at_nothing, NULL, &seq, reterr);
	if (r < 0)
		return r;
	if (journal_can_append(journal)) {
		r = engine_sync(journal, seq, reterr);
		if (r < 0)
			return r;
	}
	view_init(retview);
	retview->keep_all = true;
	if (task)
		r = history_of_task(journal, task, retview, reterr);
	else
		r = history_of_all(journal, retview, reterr);
	if (r < 0)
		view_clear(retview);
	return r < 0 ? r : 0;
}
