/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Views: what others of the library know from the records, kept up to date by the handle, and written into
 * the head of each segment so that nobody has to read the ones before.
 *
 * A head names, for each view, the segment whose head holds its summary: its own, or, when it was written by
 * somebody who did not know the view, an older one. Reading starts there.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "journal/handle.h"

/* One line for each kind of view that summarises. Named here without its header: the journal knows no
 * effects. */
extern const struct journal_view_ops effect_view_ops;

const struct journal_view_ops *const journal_views[] = {
	&effect_view_ops,
	NULL,
};

/* The "views" member of a head, NULL when there is none. */
static int parse_views(const struct journal_record *head, struct json **retviews, abox_error **reterr)
{
	const struct json_bounds bounds = {
		.max_bytes = RECORD_LINE_MAX, .max_depth = 64, .stage = ABOX_STAGE_JOURNAL
	};
	_cleanup_(json_unrefp) struct json *body = NULL;
	struct json *views;
	int r;

	r = json_parse(head->body, head->body_len, &bounds, &body, reterr);
	if (r < 0)
		return error_prefix(reterr, r == ABOX_E_MEMORY ? r : ABOX_E_DAMAGED,
			"head of segment %" PRIu64, head->segment);
	views = json_member(body, "views");
	*retviews = views ? json_ref(views) : NULL;
	return 0;
}

/* Where a view begins to read, and its summary there (NULL: none). */
static int find_start(
	abox_journal *journal, const char *name, uint64_t *retnumber, char **retsummary, abox_error **reterr)
{
	_cleanup_(json_unrefp) struct json *views = NULL;
	_cleanup_(segment_unrefp) struct segment *segment = NULL;
	struct segment_reader reader = SEGMENT_READER_INIT;
	uint64_t number = journal->tail->number, *numbers = NULL;
	struct journal_record head;
	struct chain chain;
	struct json *entry, *summary;
	size_t n = 0;
	int r;

	for (;;) {
		r = segment_read_head(journal->dir_fd, number, &reader, &segment, &chain, &head, reterr);
		if (r < 0)
			break;
		views = json_unref(views);
		segment = segment_unref(segment);
		r = parse_views(&head, &views, reterr);
		if (r < 0)
			break;
		entry = json_member(views, name);
		summary = json_member(entry, "summary");
		if (summary) {
			r = json_print_new(summary, retsummary);
			*retnumber = number;
			break;
		}
		if (entry) {
			uint64_t from = (uint64_t)json_number(json_member(entry, "from"));

			if (from == 0 || from >= number) {
				r = error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, NULL,
					"the head of segment %" PRIu64 " misleads about view %s", number,
					name);
				break;
			}
			number = from;
			continue;
		}
		/* nobody has ever summarised it: from the first record there is */
		r = segment_list(journal->dir_fd, &numbers, &n, reterr);
		if (r == 0 && n > 0)
			*retnumber = numbers[0];
		free(numbers);
		break;
	}
	segment_reader_clear(&reader);
	return r;
}

static int show_record(
	struct view_slot *slot, struct text *body, const struct journal_record *record, abox_error **reterr)
{
	struct journal_record shown = *record;

	body->len = 0;
	text_add_bytes(body, record->body, record->body_len);
	if (body->failed)
		return ABOX_E_MEMORY;
	shown.body = body->data;
	return slot->ops->observe(slot->view, &shown, reterr);
}

/* Shows one segment from behind its head up to the end of the handle's chain. 1 when that end was reached. */
static int replay_segment(abox_journal *journal, struct view_slot *slot, uint64_t number, bool with_head,
	struct segment_reader *reader, struct text *body, abox_error **reterr)
{
	_cleanup_(segment_unrefp) struct segment *segment = NULL;
	struct journal_record record;
	struct chain chain;
	int r;

	r = segment_read_head(journal->dir_fd, number, reader, &segment, &chain, &record, reterr);
	if (r < 0)
		return r;
	if (with_head) {
		r = show_record(slot, body, &record, reterr);
		if (r < 0)
			return r;
	}
	while (chain.seq < journal->chain.seq && !chain.closed) {
		r = segment_reader_next(reader, &chain, true, &record, reterr);
		if (r < 0)
			return r;
		if (r != SEGMENT_RECORD)
			return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, NULL,
				"record %" PRIu64 " in segment %" PRIu64 " is damaged: %s", chain.seq + 1,
				number, reader->why ? reader->why : "it is missing");
		r = show_record(slot, body, &record, reterr);
		if (r < 0)
			return r;
	}
	return chain.seq >= journal->chain.seq;
}

static int replay(abox_journal *journal, struct view_slot *slot, abox_error **reterr)
{
	_cleanup_(text_clear) struct text body = TEXT_INIT;
	_cleanup_(freep) char *summary = NULL;
	struct segment_reader reader = SEGMENT_READER_INIT;
	uint64_t number = 0;
	int r;

	r = find_start(journal, slot->ops->name, &number, &summary, reterr);
	if (r == 0 && summary)
		r = slot->ops->load(slot->view, summary, strlen(summary), reterr);
	for (bool with_head = !summary; r == 0; with_head = true)
		r = replay_segment(journal, slot, number++, with_head, &reader, &body, reterr);
	segment_reader_clear(&reader);
	return r < 0 ? r : 0;
}

int views_reload(abox_journal *journal, abox_error **reterr)
{
	int r = 0;

	for (size_t i = 0; i < journal->n_views && r == 0; i++)
		r = replay(journal, &journal->views[i], reterr);
	if (r < 0)
		journal->broken = r;
	return r;
}

static void *find_view(abox_journal *journal, const struct journal_view_ops *ops)
{
	for (size_t i = 0; i < journal->n_views; i++)
		if (journal->views[i].ops == ops)
			return journal->views[i].view;
	return NULL;
}

int journal_view(
	abox_journal *journal, const struct journal_view_ops *ops, void **retview, abox_error **reterr)
{
	struct view_slot slot = { .ops = ops };
	int r;

	r = journal_check(journal, false, reterr);
	if (r < 0)
		return r;
	r = journal_mutex_lock(journal, journal_deadline(journal), reterr);
	if (r < 0)
		return r;
	slot.view = find_view(journal, ops);
	if (!slot.view) {
		if (journal->n_views == JOURNAL_VIEWS_MAX)
			r = error_set(reterr, ABOX_E_LIMIT, ABOX_STAGE_JOURNAL, NULL,
				"too many views of one journal");
		else
			r = ops->create(journal, &slot.view);
		if (r == 0) {
			r = replay(journal, &slot, reterr);
			if (r < 0)
				ops->destroy(slot.view);
			else
				journal->views[journal->n_views++] = slot;
		}
	}
	journal_mutex_unlock(journal);
	if (r == 0 && retview)
		*retview = slot.view;
	return r;
}

int views_attach_all(abox_journal *journal, abox_error **reterr)
{
	int r = 0;

	for (size_t i = 0; journal_views[i] && r == 0; i++)
		r = journal_view(journal, journal_views[i], NULL, reterr);
	return r;
}

static void add_separator(struct text *text)
{
	if (text->data[text->len - 1] != '{')
		text_add(text, ",");
}

static bool is_attached(const abox_journal *journal, const char *name)
{
	for (size_t i = 0; i < journal->n_views; i++)
		if (strcmp(journal->views[i].ops->name, name) == 0)
			return true;
	return false;
}

/* Views of the last head that nobody here knows: the new head points back to where their summary is. */
static int carry_unknown(abox_journal *journal, struct text *text, abox_error **reterr)
{
	_cleanup_(segment_unrefp) struct segment *segment = NULL;
	_cleanup_(json_unrefp) struct json *views = NULL;
	_cleanup_(freep) const char **names = NULL;
	struct segment_reader reader = SEGMENT_READER_INIT;
	struct journal_record head;
	struct chain chain;
	int r;

	r = segment_read_head(
		journal->dir_fd, journal->tail->number, &reader, &segment, &chain, &head, reterr);
	if (r == 0)
		r = parse_views(&head, &views, reterr);
	segment_reader_clear(&reader);
	if (r == 0 && views)
		r = json_member_names(views, &names);
	if (r < 0 || !names)
		return r;
	for (size_t i = 0; names[i]; i++) {
		const struct json *entry = json_member(views, names[i]);
		uint64_t from = (uint64_t)json_number(json_member(entry, "from"));

		if (is_attached(journal, names[i]))
			continue;
		add_separator(text);
		text_add_json(text, names[i], strlen(names[i]));
		text_printf(text, ":{\"from\":%" PRIu64 "}",
			json_member(entry, "summary") ? journal->tail->number : from);
	}
	return 0;
}

int views_summarize(abox_journal *journal, struct text *text, abox_error **reterr)
{
	int r;

	text_add(text, "{");
	if (text->failed)
		return ABOX_E_MEMORY;
	for (size_t i = 0; i < journal->n_views; i++) {
		const struct view_slot *slot = &journal->views[i];

		if (!slot->ops->summarize)
			continue;
		add_separator(text);
		text_add_json(text, slot->ops->name, strlen(slot->ops->name));
		text_printf(text, ":{\"from\":%" PRIu64 ",\"summary\":", journal->tail->number + 1);
		r = slot->ops->summarize(slot->view, text);
		if (r < 0)
			return r;
		text_add(text, "}");
		if (text->failed)
			return ABOX_E_MEMORY;
	}
	r = carry_unknown(journal, text, reterr);
	if (r < 0)
		return r;
	text_add(text, "}");
	return text->failed ? ABOX_E_MEMORY : 0;
}
