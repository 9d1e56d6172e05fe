/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Output as text that cannot drive a terminal. Exact bytes are the result's; this is the view for people and
 * logs.
 */
#include <string.h>

#include <agentbox/command.h>
#include <agentbox/error.h>

#include "base/strings.h"

/* The first bytes of a character whose rest may still come. */
static bool unfinished(const char *data, size_t len)
{
	unsigned char first = (unsigned char)data[0];
	size_t need = first >= 0xf0 && first <= 0xf4 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;

	if (len >= need || need == 0 || first > 0xf4)
		return false;
	for (size_t i = 1; i < len; i++)
		if (((unsigned char)data[i] & 0xc0) != 0x80)
			return false;
	return true;
}

static bool harmless(const char *data, size_t n)
{
	unsigned char c = (unsigned char)data[0];

	if (n == 1)
		return (c >= 0x20 && c != 0x7f) || c == '\n' || c == '\t';
	return n != 2 || c != 0xc2 || (unsigned char)data[1] >= 0xa0;	/* C1 is U+0080..U+009F */
}

int abox_text_safe(const void *data, size_t len, int final, char **rettext, size_t *rettaken)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	const char *bytes = data;
	size_t i = 0, n;

	if ((!data && len) || !rettext)
		return ABOX_E_INVALID;
	while (i < len) {
		n = utf8_char_len(bytes + i, len - i);
		if (n > 0) {
			if (harmless(bytes + i, n))
				text_add_bytes(&text, bytes + i, n);
			i += n;
			continue;
		}
		if (!final && unfinished(bytes + i, len - i))
			break;
		text_add(&text, "\xef\xbf\xbd");
		i++;
	}
	if (rettaken)
		*rettaken = i;
	return text_take(&text, rettext);
}
