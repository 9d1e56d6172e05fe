/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a git push updates, read from the beginning of its body: packet lines up to a flush. Two pushes that update the
 * same refs from the same to the same objects are the same push, however git has packed what they name.
 */
#include <string.h>

#include "egress/exchange.h"

#define REFS_MAX (48U * 1024) /* of what is told of a push */

static bool is_hex(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

/* One packet line: its payload; *retlen 0 for a flush. NULL: there is none. */
static const char *pkt_line(const char **data, size_t *left, size_t *retlen)
{
	const char *payload = *data + 4;
	size_t len = 0;

	if (*left < 4)
		return NULL;
	for (int i = 0; i < 4; i++) {
		char c = (*data)[i];

		if (!is_hex(c))
			return NULL;
		len = len * 16 + (size_t)(c <= '9' ? c - '0' : c - 'a' + 10);
	}
	if ((len > 0 && len < 5) || len > *left)
		return NULL;
	*data += len ? len : 4;
	*left -= len ? len : 4;
	*retlen = len ? len - 4 : 0;
	return payload;
}

static bool is_update(const char *line, size_t len)
{
	size_t n = 0, m;

	while (n < len && is_hex(line[n]))
		n++;
	if ((n != 40 && n != 64) || len < 2 * n + 3 || line[n] != ' ' || line[2 * n + 1] != ' ')
		return false;
	for (m = n + 1; m < 2 * n + 1 && is_hex(line[m]);)
		m++;
	/* Security: a line end in a name, which git has none of, would make one update look like two. */
	for (size_t i = 2 * n + 2; i < len; i++)
		if ((unsigned char)line[i] <= 0x20 || line[i] == 0x7f)
			return false;
	return m == 2 * n + 1;
}

const char *refs_read(const char *data, size_t len, struct buffer *out, bool *retnone)
{
	const char *line;
	size_t line_len, end;

	while ((line = pkt_line(&data, &len, &line_len)) && line_len > 0) {
		const char *nul = memchr(line, 0, line_len); /* behind it: what the client can do */

		end = nul ? (size_t)(nul - line) : line_len;
		while (end > 0 && line[end - 1] == '\n')
			end--;
		if (end > 8 && memcmp(line, "shallow ", 8) == 0)
			continue;
		if (!is_update(line, end))
			return "key git-refs: a push that is not understood, or is signed";
		if (buffer_len(out) + end > REFS_MAX)
			return "key git-refs: a push of too many refs";
		if (!buffer_add(out, line, end) || !buffer_add(out, "\n", 1))
			return "no memory";
	}
	if (!line)
		return "key git-refs: a push that is not understood";
	/* What git sends before a large push, to see whether it may. */
	*retnone = buffer_len(out) == 0;
	return *retnone && len > 0 ? "key git-refs: a push that updates nothing" : NULL;
}
