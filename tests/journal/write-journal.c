/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Writes a journal of several segments for programs that read one: write-journal FOLDER RECORDS */
#include <stdio.h>
#include <stdlib.h>

#include <agentbox/agentbox.h>

int main(int argc, char **argv)
{
	struct abox_journal_options options = ABOX_JOURNAL_OPTIONS_INIT;
	struct abox_journal_entry entry = ABOX_JOURNAL_ENTRY_INIT;
	abox_journal *journal = NULL;
	char body[128];
	int r;

	if (argc != 3)
		return 2;
	options.mode = ABOX_JOURNAL_APPEND;
	options.flags = ABOX_JOURNAL_CREATE;
	options.segment_bytes = 64 * 1024;
	r = abox_journal_open(argv[1], &options, &journal, NULL);
	for (int i = 0; r == 0 && i < atoi(argv[2]); i++) {
		snprintf(body, sizeof(body), "{\"i\":%d,\"text\":\"\xc3\xa9 \\u2028 {\\\"seq\\\":\"}", i);
		entry.body = body;
		entry.task = i % 3 ? "job\xff\n" : NULL;
		entry.durability = i % 10 ? ABOX_DURABILITY_NONE : ABOX_DURABILITY_DATA;
		r = abox_journal_append(journal, &entry, NULL, NULL);
	}
	abox_journal_unref(journal);
	return r < 0;
}
