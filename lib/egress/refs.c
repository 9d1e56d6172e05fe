/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a git push updates, read from the beginning of its body: packet lines up to a flush, and its options up to
 * another. Two pushes that update the same refs from the same to the same objects, with the same options, are the same
 * push, however git has packed what they name.
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

/* Security: what the push asks the server for besides (to merge it, to run nothing) is a part of what is approved. */
static const char *read_options(const char **data, size_t *left, struct buffer *out)
{
	static const char mark[] = "option ";
	const char *line;
	size_t len;

	while ((line = pkt_line(data, left, &len)) && len > 0) {
		len -= line[len - 1] == '\n';
		for (size_t i = 0; i < len; i++)
			if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
				return "key git-refs: a push with an option that is none";
		if (buffer_len(out) + len > REFS_MAX)
			return "key git-refs: a push of too many options";
		if (!buffer_add(out, mark, sizeof(mark) - 1) || !buffer_add(out, line, len) || !buffer_add(out, "\n", 1))
			return "no memory";
	}
	return line ? NULL : "key git-refs: a push that is not understood";
}

const char *refs_read(const char *data, size_t len, struct buffer *out, bool *retnone)
{
	static const char options[] = "push-options";
	const char *line;
	size_t line_len, end;
	bool has_options = false;

	while ((line = pkt_line(&data, &len, &line_len)) && line_len > 0) {
		const char *nul = memchr(line, 0, line_len); /* behind it: what the client can do */

		end = nul ? (size_t)(nul - line) : line_len;
		has_options = has_options || memmem(line + end, line_len - end, options, sizeof(options) - 1);
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
	if (*retnone)
		return len > 0 ? "key git-refs: a push that updates nothing" : NULL;
	return has_options ? read_options(&data, &len, out) : NULL;
}
