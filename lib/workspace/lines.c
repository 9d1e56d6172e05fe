/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The shortest way from one text to another, after Myers ("An O(ND) difference algorithm", 1986), greedy and
 * forward. The number of steps is bounded: texts that have little in common are told as one large
 * replacement, which is longer and as true. A line is compared by a hash first; equal hashes are looked at.
 */
#include "workspace/lines.h"

#include <stdlib.h>
#include <string.h>

#include <agentbox/error.h>

#define CONTEXT 3
#define MAX_STEPS 1000 /* memory goes with its square: 4 MB */

struct line {
	const char *data;
	size_t len; /* with its newline */
	uint64_t hash;
};

struct lines {
	struct line *items;
	size_t n;
};

/* A run of lines that are gone and the lines that stand in their place. */
struct edit {
	size_t was, n_was;
	size_t now, n_now;
};

struct edits {
	struct edit *items;
	size_t n;
	size_t allocated;
};

static int split(const char *data, size_t len, struct lines *ret)
{
	size_t n = 0, used = 0;

	for (const char *p = data; p < data + len; n++) {
		const char *end = memchr(p, '\n', (size_t)(data + len - p));

		p = end ? end + 1 : data + len;
	}
	ret->items = malloc((n + 1) * sizeof(*ret->items));
	if (!ret->items)
		return ABOX_E_MEMORY;
	for (const char *p = data; p < data + len;) {
		const char *end = memchr(p, '\n', (size_t)(data + len - p));
		struct line *line = &ret->items[used++];

		line->data = p;
		p = end ? end + 1 : data + len;
		line->len = (size_t)(p - line->data);
		line->hash = 14695981039346656037ULL;
		for (size_t i = 0; i < line->len; i++)
			line->hash = (line->hash ^ (unsigned char)line->data[i]) * 1099511628211ULL;
	}
	ret->n = used;
	return 0;
}

static bool same(const struct line *a, const struct line *b)
{
	return a->hash == b->hash && a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

/* Edits come from the end to the beginning; those that touch become one. */
static int add_edit(struct edits *edits, size_t was, size_t n_was, size_t now, size_t n_now)
{
	struct edit *last = edits->n > 0 ? &edits->items[edits->n - 1] : NULL;

	if (last && last->was == was + n_was && last->now == now + n_now) {
		last->was = was;
		last->now = now;
		last->n_was += n_was;
		last->n_now += n_now;
		return 0;
	}
	if (edits->n == edits->allocated) {
		size_t allocated = edits->allocated ? edits->allocated * 2 : 32;
		struct edit *items = realloc(edits->items, allocated * sizeof(*items));

		if (!items)
			return ABOX_E_MEMORY;
		edits->items = items;
		edits->allocated = allocated;
	}
	edits->items[edits->n++] = (struct edit){was, n_was, now, n_now};
	return 0;
}

/* The furthest line of `was` on each diagonal after `step` steps; rows of all steps are kept for the way
 * back. */
struct search {
	const struct line *was, *now;
	int n, m;
	int *rows[MAX_STEPS + 1];
};

static int furthest(const struct search *search, int step, int k)
{
	const int *row = search->rows[step];

	return k < -step || k > step ? -1 : row[(k + step) / 2];
}

/* Returns the number of steps, -1 when there are too many, or ABOX_E_MEMORY - 1000. */
static int search_run(struct search *search)
{
	for (int step = 0; step <= MAX_STEPS; step++) {
		search->rows[step] = malloc((size_t)(step + 1) * sizeof(int));
		if (!search->rows[step])
			return ABOX_E_MEMORY - 1000;
		for (int k = -step; k <= step; k += 2) {
			int x, y;

			if (step == 0)
				x = 0;
			else if (k == -step || (k != step && furthest(search, step - 1, k - 1) <
								     furthest(search, step - 1, k + 1)))
				x = furthest(search, step - 1, k + 1);
			else
				x = furthest(search, step - 1, k - 1) + 1;
			y = x - k;
			while (x < search->n && y < search->m && y >= 0 &&
				same(&search->was[x], &search->now[y])) {
				x++;
				y++;
			}
			search->rows[step][(k + step) / 2] = x;
			if (x >= search->n && y >= search->m && k == search->n - search->m)
				return step;
		}
	}
	return -1;
}

static int walk_back(
	const struct search *search, int steps, size_t offset_was, size_t offset_now, struct edits *edits)
{
	int x = search->n, y = search->m, r = 0;

	for (int step = steps; step > 0 && r >= 0; step--) {
		int k = x - y, from;
		bool down = k == -step || (k != step && furthest(search, step - 1, k - 1) <
								furthest(search, step - 1, k + 1));

		from = down ? k + 1 : k - 1;
		x = furthest(search, step - 1, from);
		y = x - from;
		if (down)
			r = add_edit(edits, offset_was + (size_t)x, 0, offset_now + (size_t)y, 1);
		else
			r = add_edit(edits, offset_was + (size_t)x, 1, offset_now + (size_t)y, 0);
	}
	return r;
}

static int find_edits(const struct lines *was, const struct lines *now, struct edits *edits)
{
	_cleanup_(freep) struct search *search = calloc(1, sizeof(*search));
	size_t head = 0, tail = 0, n, m;
	int steps, r;

	if (!search)
		return ABOX_E_MEMORY;
	while (head < was->n && head < now->n && same(&was->items[head], &now->items[head]))
		head++;
	while (tail < was->n - head && tail < now->n - head &&
		same(&was->items[was->n - 1 - tail], &now->items[now->n - 1 - tail]))
		tail++;
	n = was->n - head - tail;
	m = now->n - head - tail;
	if (n == 0 && m == 0)
		return 0;
	if (n == 0 || m == 0 || n > INT32_MAX / 2 || m > INT32_MAX / 2)
		return add_edit(edits, head, n, head, m);
	*search =
		(struct search){.was = was->items + head, .now = now->items + head, .n = (int)n, .m = (int)m};
	steps = search_run(search);
	if (steps >= 0)
		r = walk_back(search, steps, head, head, edits);
	else
		r = steps == -1 ? add_edit(edits, head, n, head, m) : ABOX_E_MEMORY;
	for (int i = 0; i <= MAX_STEPS; i++)
		free(search->rows[i]);
	return r;
}

static void add_line(struct text *text, char sign, const struct line *line)
{
	text_add_bytes(text, &sign, 1);
	text_add_bytes(text, line->data, line->len);
	if (line->data[line->len - 1] != '\n')
		text_add(text, "\n\\ No newline at end of file\n");
}

static void add_range(struct text *text, char sign, size_t begin, size_t n)
{
	/* A range of no lines is named by the line before it. */
	text_printf(text, "%c%zu", sign, n > 0 ? begin + 1 : begin);
	if (n != 1)
		text_printf(text, ",%zu", n);
}

/* One hunk: edits first to last (an array that runs backwards), with context. */
static void add_hunk(struct text *text, const struct lines *was, const struct lines *now,
	const struct edit *first, const struct edit *last)
{
	size_t begin = first->was - MIN(first->was, CONTEXT), at;
	size_t end = MIN(last->was + last->n_was + CONTEXT, was->n);
	size_t now_begin = first->now - (first->was - begin);
	size_t now_end = last->now + last->n_now + (end - last->was - last->n_was);

	text_add(text, "@@ ");
	add_range(text, '-', begin, end - begin);
	text_add(text, " ");
	add_range(text, '+', now_begin, now_end - now_begin);
	text_add(text, " @@\n");
	at = begin;
	for (const struct edit *edit = first; edit >= last; edit--) {
		while (at < edit->was)
			add_line(text, ' ', &was->items[at++]);
		for (size_t i = 0; i < edit->n_was; i++)
			add_line(text, '-', &was->items[at++]);
		for (size_t i = 0; i < edit->n_now; i++)
			add_line(text, '+', &now->items[edit->now + i]);
	}
	while (at < end)
		add_line(text, ' ', &was->items[at++]);
}

int lines_diff(const char *was, size_t was_len, const char *now, size_t now_len, struct text *hunks)
{
	struct lines a = {0}, b = {0};
	struct edits edits = {0};
	int r;

	/* Nothing is an empty text. */
	was = was ? was : "";
	now = now ? now : "";
	r = split(was, was_len, &a);
	if (r >= 0)
		r = split(now, now_len, &b);
	if (r >= 0)
		r = find_edits(&a, &b, &edits);
	for (size_t i = edits.n; r >= 0 && i > 0;) {
		const struct edit *first = &edits.items[i - 1], *last = first;

		while (last > edits.items && last[-1].was - (last->was + last->n_was) <= 2 * CONTEXT)
			last--;
		add_hunk(hunks, &a, &b, first, last);
		i = (size_t)(last - edits.items);
	}
	free(a.items);
	free(b.items);
	free(edits.items);
	return r;
}
