/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include <agentbox/command.h>
#include <agentbox/error.h>

static char *safe(const char *data, size_t len, int final, size_t *rettaken)
{
	char *text = NULL;

	cr_assert_eq(abox_text_safe(data, len, final, &text, rettaken), 0);
	return text;
}

/* T4-3: nothing that drives a terminal gets through; newline, tab and printable text do. */
Test(text, T4_3_drops_controls)
{
	static const char hostile[] = "a\x1b]52;c;eA==\x07"
				      "b\x1b]8;;x\x1b\\c\x1b"
				      "c\x9b"
				      "31m\x9d"
				      "d\xc2\x9b"
				      "e\0f\n\tg\x7f";
	char *text = safe(hostile, sizeof(hostile) - 1, 1, NULL);

	cr_assert_str_eq(text, "a]52;c;eA==b]8;;x\\cc\xef\xbf\xbd" "31m\xef\xbf\xbd" "d" "ef\n\tg");
	abox_free(text);
}

/* T4-4, B15: a character that comes in two pieces comes out once, whole, wherever it is cut. */
Test(text, T4_4_keeps_split_characters)
{
	static const char bytes[] = "x\xf0\x9f\x98\x80y\xe2\x98\x95z";
	size_t len = sizeof(bytes) - 1;

	for (size_t cut = 0; cut <= len; cut++) {
		size_t taken;
		char joined[64], *first = safe(bytes, cut, 0, &taken),
				 *second = safe(bytes + taken, len - taken, 1, NULL);

		cr_assert_leq(taken, cut);
		cr_assert_leq(cut - taken, 3);
		strcpy(joined, first);
		strcat(joined, second);
		cr_assert_str_eq(joined, bytes, "cut at %zu", cut);
		abox_free(first);
		abox_free(second);
	}
}

/* Bytes that never become a character are replaced, one by one, and do not hold back what follows. */
Test(text, replaces_invalid_bytes)
{
	char *text = safe("\xe2\x28\xa1\xff", 4, 1, NULL);

	cr_assert_str_eq(text, "\xef\xbf\xbd(\xef\xbf\xbd\xef\xbf\xbd");
	abox_free(text);
	text = safe("\xf0\x9f", 2, 1, NULL);
	cr_assert_str_eq(text, "\xef\xbf\xbd\xef\xbf\xbd");
	abox_free(text);
}
