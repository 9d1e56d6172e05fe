/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pruning: old segments go, but nothing that could still decide whether something may be done again.
 *
 * Views say from where on records are needed (effects of open tasks, unknown ones), and which must survive
 * their segment for ever (the ends of tasks, which refuse late duplicates). Those lines are copied, synced,
 * and named in a record which is synced too, before the first file is removed. LOCK_PRUNE keeps two of these
 * apart; appending and syncing go on meanwhile.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "journal/index.h"
#include "journal/inject.h"

#define CARRIED_TEMPORARY "carried.new"

struct pruning {
	abox_journal *journal;
	const struct abox_journal_prune_options *options;
	uint64_t *numbers; /* all segments */
	size_t n_numbers;
	size_t n_drop;    /* the first of them */
	uint64_t end_seq; /* of the last one that goes */
	char end_hash[DIGEST_TEXT_BYTES];
	uint64_t n_records, n_bytes, n_carried;
	const char *kept_for; /* why no more */
	struct text carried;  /* lines */
	size_t carried_bytes;
	char carried_digest[DIGEST_TEXT_BYTES];
};

/* The lowest seq that a view needs. Under mutex. */
static uint64_t keep_from(const abox_journal *journal)
{
	uint64_t lowest = UINT64_MAX;

	for (size_t i = 0; i < journal->n_views; i++)
		if (journal->views[i].ops->keep_from)
			lowest = MIN(lowest, journal->views[i].ops->keep_from(journal->views[i].view));
	return lowest;
}

static bool is_attached(const abox_journal *journal, const char *name)
{
	for (size_t i = 0; i < journal->n_views; i++)
		if (strcmp(journal->views[i].ops->name, name) == 0)
			return true;
	return false;
}

static int read_views(abox_journal *journal, uint64_t number, struct json **ret, abox_error **reterr)
{
	const struct json_bounds bounds = {
		.max_bytes = RECORD_LINE_MAX, .max_depth = 64, .stage = ABOX_STAGE_JOURNAL
	};
	_cleanup_(segment_unrefp) struct segment *segment = NULL;
	_cleanup_(json_unrefp) struct json *body = NULL;
	struct segment_reader reader = SEGMENT_READER_INIT;
	struct journal_record head;
	struct chain chain;
	int r;

	r = segment_read_head(journal->dir_fd, number, &reader, &segment, &chain, &head, reterr);
	if (r == 0)
		r = json_parse(head.body, head.body_len, &bounds, &body, reterr);
	segment_reader_clear(&reader);
	if (r == 0)
		*ret = json_ref(json_member(body, "views"));
	return r;
}

/* 1: the newest head holds a summary of every view, so that older segments are not needed for one; 0: not
 * yet. */
static int is_summarized(abox_journal *journal, uint64_t number, abox_error **reterr)
{
	_cleanup_(json_unrefp) struct json *views = NULL;
	_cleanup_(freep) const char **names = NULL;
	int r;

	r = read_views(journal, number, &views, reterr);
	if (r == 0)
		r = json_member_names(views, &names);
	if (r < 0)
		return r;
	for (size_t i = 0; names[i]; i++)
		if (!is_attached(journal, names[i]))
			return error_set(reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_JOURNAL, NULL,
				"only a newer library knows what '%s' still needs", names[i]);
	for (size_t i = 0; i < journal->n_views; i++)
		if (journal->views[i].ops->summarize &&
			!json_member(json_member(views, journal->views[i].ops->name), "summary"))
			return 0;
	return 1;
}

static int prepare(
	abox_journal *journal, bool dry_run, uint64_t *retnewest, uint64_t *retkeep, abox_error **reterr)
{
	uint64_t number;
	int r;

	r = views_attach_all(journal, reterr);
	for (int tries = 0; tries < 2 && r == 0; tries++) {
		r = journal_mutex_lock(journal, journal_deadline(journal), reterr);
		if (r < 0)
			return r;
		r = tail_catch_up(journal, false, reterr);
		number = journal->tail->number;
		*retkeep = keep_from(journal);
		journal_mutex_unlock(journal);
		if (r == 0)
			r = is_summarized(journal, number, reterr);
		if (r == 1 || (r == 0 && dry_run)) {
			*retnewest = number;
			return 1;
		}
		if (r == 0 && tries == 0)
			r = rotate_away(journal, number, 0, reterr);
	}
	return r < 0 ? r
		     : error_set(
			       reterr, ABOX_E_BUSY, ABOX_STAGE_JOURNAL, NULL, "the journal is being rotated");
}

/* May this record be dropped only if it is carried over? Without a view nobody can tell what tasks and
 * effects need. */
static int judge_record(struct pruning *pruning, const struct journal_record *record, abox_error **reterr)
{
	static const char *const needs_view[] = { "task.", "stage.", "effect.", "approval." };
	abox_journal *journal = pruning->journal;
	struct journal_record shown = *record;
	_cleanup_(freep) char *body = NULL;
	bool carry = false;

	if (journal->n_views == 0) {
		for (size_t i = 0; i < ELEMENTSOF(needs_view); i++)
			if (string_starts_with(record->type, needs_view[i]))
				return error_set(reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_JOURNAL, NULL,
					"nobody here knows what record %" PRIu64 " (%s) is still needed for",
					record->seq, record->type);
		return 0;
	}
	body = strndup(record->body, record->body_len);
	if (!body)
		return ABOX_E_MEMORY;
	shown.body = body;
	pthread_mutex_lock(&journal->mutex);
	for (size_t i = 0; i < journal->n_views; i++)
		if (journal->views[i].ops->carry &&
			journal->views[i].ops->carry(journal->views[i].view, &shown))
			carry = true;
	pthread_mutex_unlock(&journal->mutex);
	return carry;
}

/* Reads one segment to its end; 1: it may go, and its lines were carried; 0: it stays, and pruning ends here.
 */
static int judge_segment(struct pruning *pruning, uint64_t number, uint64_t keep_seq, abox_error **reterr)
{
	_cleanup_(segment_unrefp) struct segment *segment = NULL;
	const struct abox_journal_prune_options *options = pruning->options;
	struct segment_reader reader = SEGMENT_READER_INIT;
	size_t carried_before = pruning->carried.len;
	uint64_t n_records = 1, n_carried = 0;
	struct journal_record record;
	struct chain chain;
	int r;

	r = segment_read_head(pruning->journal->dir_fd, number, &reader, &segment, &chain, &record, reterr);
	while (r >= 0 && !chain.closed) {
		r = segment_reader_next(&reader, &chain, true, &record, reterr);
		if (r >= 0 && r != SEGMENT_RECORD)
			r = error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, NULL,
				"record %" PRIu64 " in segment %" PRIu64
				" is damaged; nothing beyond it can be pruned",
				chain.seq + 1, number);
		if (r < 0)
			break;
		n_records++;
		r = judge_record(pruning, &record, reterr);
		if (r > 0) {
			text_add_bytes(&pruning->carried, record.line, record.line_len);
			text_add(&pruning->carried, "\n");
			n_carried++;
		}
	}
	segment_reader_clear(&reader);
	if (r < 0)
		return r;
	pruning->kept_for = chain.seq >= keep_seq                                     ? "open"
			    : options->before_seq && chain.seq >= options->before_seq ? "before_seq"
			    : options->before_time_usec && record.time_usec >= options->before_time_usec
				    ? "before_time"
				    : NULL;
	if (pruning->kept_for) {
		pruning->carried.len = carried_before;
		return 0;
	}
	pruning->n_records += n_records;
	pruning->n_carried += n_carried;
	pruning->n_bytes += chain.offset;
	pruning->end_seq = chain.seq;
	memcpy(pruning->end_hash, chain.hash, sizeof(chain.hash));
	return 1;
}

static int judge_all(struct pruning *pruning, uint64_t newest, uint64_t keep_seq, abox_error **reterr)
{
	size_t n_sealed = 0;
	int r = 1;

	while (n_sealed < pruning->n_numbers && pruning->numbers[n_sealed] < newest)
		n_sealed++;
	pruning->kept_for = "newest";
	while (r > 0 && pruning->n_drop < n_sealed) {
		if (pruning->n_drop + pruning->options->keep_segments >= n_sealed) {
			pruning->kept_for = "keep_segments";
			break;
		}
		r = judge_segment(pruning, pruning->numbers[pruning->n_drop], keep_seq, reterr);
		if (r > 0) {
			pruning->n_drop++;
			pruning->kept_for = "newest";
		}
	}
	return r < 0 ? r : 0;
}

static int remove_index(abox_journal *journal, const char *name)
{
	char file[48];
	int r;

	snprintf(file, sizeof(file), "%.*s.idx", (int)(strlen(name) - 4), name);
	r = jio_unlink(journal->dir_fd, file);
	return r == -ENOENT ? 0 : r;
}

/* Of what was carried before, the lines whose segments are gone: those of a prune that was cut short are
 * still there and come again. */
static int copy_carried(
	struct pruning *pruning, int fd, uint64_t bytes, struct text *ret, abox_error **reterr)
{
	struct segment_reader reader = SEGMENT_READER_INIT;
	_cleanup_(segment_unrefp) struct segment *segment = NULL;
	struct journal_record record;
	uint64_t first_seq, offset = 0;
	struct chain chain;
	int r;

	r = segment_read_head(
		pruning->journal->dir_fd, pruning->numbers[0], &reader, &segment, &chain, &record, reterr);
	first_seq = record.seq;
	if (r == 0)
		segment_reader_start(&reader, fd, 0, 0);
	while (r >= 0 && offset < bytes) {
		r = segment_reader_line(&reader, &offset, &record, reterr);
		if (r >= 0 && r != SEGMENT_RECORD)
			r = error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, NULL,
				"a carried record is damaged");
		if (r < 0 || record.seq >= first_seq)
			continue;
		text_add_bytes(ret, record.line, record.line_len);
		text_add(ret, "\n");
	}
	segment_reader_clear(&reader);
	return r < 0 ? r : 0;
}

/* All that was carried before, and what is carried now, in one new file under the number of the first segment
 * kept. */
static int write_carried(struct pruning *pruning, uint64_t number, abox_error **reterr)
{
	_cleanup_(fd_closep) int old_fd = -EBADF, fd = -EBADF;
	_cleanup_(text_clear) struct text all = TEXT_INIT;
	int dir_fd = pruning->journal->dir_fd, r;
	uint64_t old_number, old_bytes = 0;
	char name[40];

	r = carried_open(dir_fd, &old_fd, &old_number, &old_bytes, reterr);
	if (r == 0 && old_fd >= 0)
		r = copy_carried(pruning, old_fd, old_bytes, &all, reterr);
	if (r < 0)
		return r;
	text_add_bytes(&all, pruning->carried.data, pruning->carried.len);
	if (all.failed || pruning->carried.failed)
		return ABOX_E_MEMORY;
	pruning->carried_bytes = all.len;
	r = digest_sha256_text(all.data, all.len, pruning->carried_digest);
	if (r == 0)
		r = rotate_write_spare(
			pruning->journal, CARRIED_TEMPORARY, all.data, all.len, 0, &fd, reterr);
	if (r < 0)
		return r;
	carried_name(number, name);
	r = remove_index(pruning->journal, name);
	if (r == 0)
		r = jio_rename(dir_fd, CARRIED_TEMPORARY, name);
	if (r == 0)
		r = jio_sync(dir_fd);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, name, -r, "cannot store carried records");
	return 0;
}

struct pruned_entry {
	struct pruning *pruning;
	const char *body;
};

/* In the same locked step as the record: is what was judged still true? */
static int check_still_true(
	void *userdata, uint64_t next_seq, struct journal_entry *retentry, abox_error **reterr)
{
	const struct pruned_entry *pruned = userdata;

	if (keep_from(pruned->pruning->journal) <= pruned->pruning->end_seq)
		return error_retryable(reterr, error_set(reterr, ABOX_E_BUSY, ABOX_STAGE_JOURNAL, NULL,
						       "a record that was to be pruned is needed again"));
	*retentry = (struct journal_entry){
		.type = "journal.pruned", .body = pruned->body, .priority = JOURNAL_VITAL
	};
	return 1;
}

static int record_pruned(struct pruning *pruning, uint64_t number, abox_error **reterr)
{
	struct pruned_entry pruned = { .pruning = pruning };
	char body[512], name[40];
	uint64_t seq;
	int r;

	carried_name(number, name);
	snprintf(body, sizeof(body),
		"{\"before_segment\":%" PRIu64 ",\"seq\":%" PRIu64 ",\"hash\":\"%s\",\"carried\":"
		"{\"file\":\"%s\",\"bytes\":%zu,\"sha256\":\"%s\"}}",
		number, pruning->end_seq, pruning->end_hash, name, pruning->carried_bytes,
		pruning->carried_digest);
	pruned.body = body;
	r = journal_transact(pruning->journal, check_still_true, &pruned, &seq, reterr);
	if (r < 0)
		return r;
	return journal_sync(pruning->journal, seq, ABOX_DURABILITY_DATA, reterr);
}

static int remove_files(struct pruning *pruning, uint64_t number, abox_error **reterr)
{
	abox_journal *journal = pruning->journal;
	char name[40];
	int r = 0;

	for (size_t i = 0; i < pruning->n_drop && r == 0; i++) {
		segment_name(pruning->numbers[i], name);
		r = jio_unlink(journal->dir_fd, name);
		if (r == 0)
			r = remove_index(journal, name);
	}
	if (r == 0)
		r = carried_remove_below(journal->dir_fd, number);
	if (r == 0)
		r = jio_sync(journal->dir_fd);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, name, -r, "cannot remove what was pruned");
	return 0;
}

static int drop(struct pruning *pruning, abox_error **reterr)
{
	uint64_t number = pruning->numbers[pruning->n_drop - 1] + 1;
	int r;

	r = write_carried(pruning, number, reterr);
	if (r == 0)
		r = record_pruned(pruning, number, reterr);
	if (r == 0)
		r = remove_files(pruning, number, reterr);
	return r;
}

static int prune_locked(struct pruning *pruning, uint64_t *retn_blobs, abox_error **reterr)
{
	uint64_t newest = 0, keep_seq = 0;
	int r;

	r = prepare(pruning->journal, pruning->options->dry_run, &newest, &keep_seq, reterr);
	if (r < 0)
		return r;
	r = segment_list(pruning->journal->dir_fd, &pruning->numbers, &pruning->n_numbers, reterr);
	if (r == 0)
		r = judge_all(pruning, newest, keep_seq, reterr);
	if (r == 0 && pruning->n_drop > 0 && !pruning->options->dry_run)
		r = drop(pruning, reterr);
	if (r == 0)
		r = blobs_prune(pruning->journal, pruning->options->blob_age_usec, pruning->options->dry_run,
			retn_blobs, reterr);
	return r;
}

int abox_journal_prune(abox_journal *journal, const struct abox_journal_prune_options *options,
	char **retjson, abox_error **reterr)
{
	const struct abox_journal_prune_options defaults = ABOX_JOURNAL_PRUNE_OPTIONS_INIT;
	struct pruning pruning = { .journal = journal, .options = options ? options : &defaults };
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	uint64_t n_blobs = 0;
	int r;

	r = journal_check(journal, true, reterr);
	if (r < 0)
		return r;
	if (pruning.options->size < sizeof(*options))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, "/options", "size is not set");
	pthread_mutex_lock(&journal->prune_mutex);
	r = lock_take(&journal->lock, LOCK_PRUNE, journal_deadline(journal), reterr);
	if (r == 0) {
		r = prune_locked(&pruning, &n_blobs, reterr);
		lock_release(&journal->lock, LOCK_PRUNE);
	}
	pthread_mutex_unlock(&journal->prune_mutex);
	if (r == 0 && retjson) {
		text_printf(&text,
			"{\"segments\":%zu,\"records\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"carried\":%" PRIu64
			",\"blobs\":%" PRIu64 ",\"kept_for\":\"%s\",\"dry_run\":%s}",
			pruning.n_drop, pruning.n_records, pruning.n_bytes, pruning.n_carried, n_blobs,
			pruning.kept_for ? pruning.kept_for : "nothing",
			pruning.options->dry_run ? "true" : "false");
		r = text_take(&text, retjson);
	}
	free(pruning.numbers);
	text_clear(&pruning.carried);
	return r;
}
