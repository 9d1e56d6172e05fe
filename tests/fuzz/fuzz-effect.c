/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Records as the state machine takes them: lines of "TYPE TASK EPOCH BODY". Whatever they say, the view holds together,
 * its summary can be read again, and leads to the same summary.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "effect/canonical.h"
#include "effect/decide.h"
#include "effect/view.h"

static int alive(void *userdata, const char *executor, uint64_t handle, abox_error **reterr)
{
	return executor && executor[0] == 'e';
}

static void apply_line(struct view *view, const char *line, size_t len, uint64_t seq)
{
	char type[32] = "", task[16] = "";
	unsigned long long epoch = 0;
	char *copy = strndup(line, len);
	int at = 0;

	if (copy && sscanf(copy, "%31s %15s %llu %n", type, task, &epoch, &at) == 3 && at > 0) {
		struct fact fact = { .seq = seq };

		if (fact_read(&fact, fact_kind_of(type), copy + at, strlen(copy + at), NULL) >= 0) {
			fact.seq = seq;
			fact.task = task[0] == '-' ? NULL : task;
			fact.epoch = epoch;
			fact.time_usec = seq;
			view_apply(view, &fact);
		}
		fact_clear(&fact);
	}
	free(copy);
}

static void restore(struct view *view, const struct text *summary)
{
	static const struct json_bounds bounds = { 1u << 24, 8, ABOX_STAGE_JOURNAL };
	struct json *array = NULL;

	if (json_parse(summary->data, summary->len, &bounds, &array, NULL) < 0)
		abort();
	for (size_t i = 0; i < json_count(array); i++) {
		struct fact fact = { 0 };

		if (fact_read_tree(&fact, json_ref(json_element(array, i)), NULL) < 0 || view_apply(view, &fact) != 0)
			abort();
		fact_clear(&fact);
	}
	json_unref(array);
}

static void ask(const struct view *view)
{
	struct decide_context context = { "boot", 1000, 1000, alive, NULL };

	for (const struct view_task *task = view->first_task; task; task = task->next) {
		decide_status(view, task, &context, NULL);
		for (const struct view_effect *effect = task->effects; effect; effect = effect->next) {
			struct view_approval *approval;

			decide_dispatch(view, effect, 1, task->epoch, "e", 1, &context, &approval, NULL);
			decide_verdict(effect, ABOX_EFFECT_ABSENT, &context, NULL);
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct text first = TEXT_INIT, second = TEXT_INIT, canonical = TEXT_INIT;
	const char *at = (const char *)data, *end = at + size, *newline;
	struct view view, copy;
	uint64_t seq = 0;

	view_init(&view);
	view_init(&copy);
	for (; at < end; at = newline + 1) {
		newline = memchr(at, '\n', (size_t)(end - at));
		if (!newline)
			newline = end;
		apply_line(&view, at, (size_t)(newline - at), ++seq);
	}
	ask(&view);
	view_summarize(&view, &first);
	restore(&copy, &first);
	view_summarize(&copy, &second);
	if (first.len != second.len || memcmp(first.data, second.data, first.len) != 0)
		abort();
	view_clear(&view);
	view_clear(&copy);
	canonical_json((const char *)data, size, &canonical);
	text_clear(&first);
	text_clear(&second);
	text_clear(&canonical);
	return 0;
}
