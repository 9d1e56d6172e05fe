/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef CLI_LEDGER_H
#define CLI_LEDGER_H

/* What effect, approval, task and report have in common: a journal, names, and answers as lists. */
#include <agentbox/effect.h>
#include <agentbox/journal.h>
#include <agentbox/report.h>
#include <agentbox/task.h>
#include <jansson.h>

#include "cli.h"

/* Places in cli_settings.text and cli_settings.flag. */
enum ledger_text {
	LEDGER_JOURNAL,
	LEDGER_TASK,
	LEDGER_BY,
	LEDGER_NOTE,
	LEDGER_KEY,
	LEDGER_CLASS,
	LEDGER_TARGET,
	LEDGER_OF,
	LEDGER_WAIT,
	LEDGER_APPROVE,
	LEDGER_TAKEOVER,
	LEDGER_OUTCOME,
	LEDGER_SETTLE,
};
enum ledger_flag {
	LEDGER_ALL,
	LEDGER_COMMITTED,
	LEDGER_ABSENT,
	LEDGER_ABANDON,
	LEDGER_NEW,
};
#define LEDGER_TEXT(place) (offsetof(struct cli_settings, text) + (place) * sizeof(const char *))
#define LEDGER_FLAG(place) (offsetof(struct cli_settings, flag) + (place) * sizeof(bool))

extern const struct cli_option options_ledger[];	/* --journal */
extern const struct cli_option options_by[];		/* --by, --note */

static inline void abox_journal_unrefp(abox_journal **journal) { abox_journal_unref(*journal); }
static inline void abox_task_unrefp(abox_task **task) { abox_task_unref(*task); }
static inline void abox_effect_unrefp(abox_effect **effect) { abox_effect_unref(*effect); }
static inline void abox_report_unrefp(abox_report **report) { abox_report_unref(*report); }

/* One verb of a sub-command: `agentbox effect list`. */
struct ledger_verb {
	const char *name;
	unsigned int words;	/* behind the verb; LEDGER_ANY: whatever comes */
	bool append;		/* the journal is opened for append */
	bool by;		/* needs --by */
	int (*run)(struct cli_settings *settings, abox_journal *journal);
};
#define LEDGER_ANY (~0u)

/* Finds the verb, opens the journal of --journal or ABOX_JOURNAL, runs it. settings->words[0] is the verb. */
int ledger_run_verb(struct cli_settings *settings, const struct ledger_verb *verb);
int ledger_run(struct cli_settings *settings, const struct ledger_verb *verbs, const char *command);

/* An array of objects: as JSON, or one line for each with these members. Takes the JSON. */
int ledger_print_list(const struct cli_settings *settings, char *json_taken, const char *const *members);
int ledger_print_json(char *json_taken);

#endif
