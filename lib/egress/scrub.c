/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What was injected does not come back: a server that echoes its request would hand the box its own
 * credential. Values found in an answer are overwritten in place, so that lengths stay what they were. Values
 * that a server has encoded in some other way are not found; that is why such answers are asked for without
 * content coding.
 */
#include <string.h>

#include "egress/egress.h"

#define SHORTEST 4 /* shorter values would be found everywhere */

static bool add_pattern(struct scrub *scrub, const char *data, size_t len)
{
	if (len < SHORTEST)
		return true;
	for (size_t i = 0; i < scrub->n; i++)
		if (buffer_len(&scrub->patterns[i]) == len &&
			memcmp(buffer_at(&scrub->patterns[i]), data, len) == 0)
			return true;
	if (scrub->n == SCRUB_PATTERNS || !buffer_add(&scrub->patterns[scrub->n], data, len))
		return false;
	scrub->n++;
	return true;
}

/* As JSON writers write a slash, where they do. */
static bool add_escaped(struct scrub *scrub, const char *data, size_t len)
{
	struct buffer escaped = { 0 };
	bool good = true;

	if (!memchr(data, '/', len))
		return true;
	for (size_t i = 0; i < len && good; i++)
		good = (data[i] != '/' || buffer_add(&escaped, "\\", 1)) && buffer_add(&escaped, data + i, 1);
	good = good && add_pattern(scrub, buffer_at(&escaped), buffer_len(&escaped));
	buffer_clear(&escaped, true);
	return good;
}

bool scrub_also(struct scrub *scrub, const char *data, size_t len)
{
	return add_pattern(scrub, data, len) && add_escaped(scrub, data, len);
}

bool scrub_set(struct scrub *scrub, const char *secret, size_t len, const char *injected, size_t injected_len)
{
	const char *blank = memrchr(injected, ' ', injected_len);

	scrub_clear(scrub);
	if (blank) { /* "Basic ...": what is behind it */
		injected_len -= (size_t)(blank + 1 - injected);
		injected = blank + 1;
	}
	return scrub_also(scrub, secret, len) && scrub_also(scrub, injected, injected_len);
}

void scrub_clear(struct scrub *scrub)
{
	for (size_t i = 0; i < scrub->n; i++)
		buffer_clear(&scrub->patterns[i], true);
	buffer_clear(&scrub->held, true);
	scrub->n = 0;
}

bool scrub_once(const struct scrub *scrub, char *data, size_t len)
{
	bool found = false;

	for (size_t i = 0; i < scrub->n; i++) {
		const char *pattern = buffer_at(&scrub->patterns[i]);
		size_t n = buffer_len(&scrub->patterns[i]), left = len;
		char *at = data;

		while (left >= n && (at = memmem(at, left, pattern, n))) {
			memset(at, '*', n);
			at += n;
			left = len - (size_t)(at - data);
			found = true;
		}
	}
	return found;
}

/* How many bytes at the end could be the beginning of a value. */
static size_t open_end(const struct scrub *scrub, const char *data, size_t len)
{
	size_t best = 0;

	for (size_t i = 0; i < scrub->n; i++) {
		size_t n = tail_of(data, len, buffer_at(&scrub->patterns[i]), buffer_len(&scrub->patterns[i]));

		best = MAX(best, n);
	}
	return best;
}

bool scrub_pass(struct scrub *scrub, const char *data, size_t len, bool end, struct buffer *out)
{
	size_t keep, have;

	if (scrub->n == 0)
		return buffer_add(out, data, len);
	if (!buffer_add(&scrub->held, data, len))
		return false;
	have = buffer_len(&scrub->held);
	scrub_once(scrub, buffer_at(&scrub->held), have);
	keep = end ? 0 : open_end(scrub, buffer_at(&scrub->held), have);
	if (!buffer_add(out, buffer_at(&scrub->held), have - keep))
		return false;
	buffer_take(&scrub->held, have - keep);
	return true;
}
