/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef CLI_JOURNAL_H
#define CLI_JOURNAL_H

#include <agentbox/journal.h>

#include "cli.h"

/* Slots of struct cli_settings for the sub-commands that work on a journal. */
enum journal_text {
	JOURNAL_TEXT_PATH = 0,   /* --journal */
	JOURNAL_TEXT_BY,         /* --by */
	JOURNAL_TEXT_TASK,       /* --task */
	JOURNAL_TEXT_TYPE,       /* --type */
	JOURNAL_TEXT_FROM,       /* --from */
	JOURNAL_TEXT_TO,         /* --to */
	JOURNAL_TEXT_KEEP,       /* --keep */
	JOURNAL_TEXT_PUBLIC_KEY, /* --public-key */
	JOURNAL_TEXT_CHECKPOINT, /* --checkpoint */
	JOURNAL_TEXT_DURABILITY, /* --durability */
};
enum journal_flag {
	JOURNAL_FLAG_CREATE = 0, /* --create */
	JOURNAL_FLAG_DRY_RUN,    /* --dry-run */
	JOURNAL_FLAG_BLOBS,      /* --blobs */
	JOURNAL_FLAG_UNSYNCED,   /* --unsynced */
};

extern const struct cli_option options_journal[]; /* --journal DIR and --by NAME */

static inline void abox_journal_unrefp(abox_journal **journal)
{
	abox_journal_unref(*journal);
}
static inline void abox_journal_reader_unrefp(abox_journal_reader **reader)
{
	abox_journal_reader_unref(*reader);
}

/* Opens what --journal (or ABOX_JOURNAL) names. Tells what opening had to set aside or repair. */
int journal_open(const struct cli_settings *settings, bool append, bool create, abox_journal **ret,
	abox_error **reterr);
const char *journal_path(const struct cli_settings *settings); /* NULL after it has said that there is none */

#endif
