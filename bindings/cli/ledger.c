/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The common part of the sub-commands over a journal.
 */
#include "ledger.h"

#include <stdlib.h>
#include <string.h>

const struct cli_option options_ledger[] = {
	{"journal", 0, "DIR", "the journal; else the variable ABOX_JOURNAL", OPTION_TEXT,
		LEDGER_TEXT(LEDGER_JOURNAL), NULL, NULL},
	{0}};

const struct cli_option options_by[] = {{"by", 0, "NAME", "who says so; recorded, not checked", OPTION_TEXT,
						LEDGER_TEXT(LEDGER_BY), NULL, NULL},
	{"note", 0, "TEXT", "why", OPTION_TEXT, LEDGER_TEXT(LEDGER_NOTE), NULL, NULL}, {0}};

/* 1: there is none to open, and that was said. */
static int open_journal(
	const struct cli_settings *settings, bool append, abox_journal **ret, abox_error **reterr)
{
	struct abox_journal_options options = ABOX_JOURNAL_OPTIONS_INIT;
	const char *path =
		settings->text[LEDGER_JOURNAL] ? settings->text[LEDGER_JOURNAL] : getenv("ABOX_JOURNAL");

	if (!path || !path[0]) {
		say("--journal DIR is needed, or the variable ABOX_JOURNAL");
		return 1;
	}
	options.mode = append ? ABOX_JOURNAL_APPEND : ABOX_JOURNAL_READ;
	options.flags = append ? ABOX_JOURNAL_CREATE : 0;
	return abox_journal_open(path, &options, ret, reterr);
}

int ledger_run_verb(struct cli_settings *settings, const struct ledger_verb *verb)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_journal_unrefp) abox_journal *journal = NULL;
	int r;

	r = open_journal(settings, verb->append, &journal, &error);
	if (r > 0)
		return CLI_EXIT_USAGE;
	if (r < 0)
		return fail(settings, r, error);
	return verb->run(settings, journal);
}

int ledger_run(struct cli_settings *settings, const struct ledger_verb *verbs, const char *command)
{
	const struct ledger_verb *verb = verbs;

	while (verb->name && strcmp(verb->name, settings->words[0]))
		verb++;
	if (!verb->name) {
		say("agentbox %s has no '%s'; see agentbox %s --help", command, settings->words[0], command);
		return CLI_EXIT_USAGE;
	}
	if (verb->words != LEDGER_ANY && settings->n_words - 1 != verb->words) {
		say("agentbox %s %s takes %u words", command, verb->name, verb->words);
		return CLI_EXIT_USAGE;
	}
	if (verb->by && (!settings->text[LEDGER_BY] || !settings->text[LEDGER_BY][0])) {
		say("agentbox %s %s needs --by NAME", command, verb->name);
		return CLI_EXIT_USAGE;
	}
	return ledger_run_verb(settings, verb);
}

int ledger_print_json(char *json_taken)
{
	int r = print_json_text(json_taken);

	abox_free(json_taken);
	return r;
}

/* Bytes from outside never reach a terminal as they are: the JSON printer escapes what is not printable
 * ASCII. */
static void print_value(const json_t *value, int width)
{
	char *text = NULL;

	if (json_is_string(value)) {
		text = json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
		if (text && strlen(text) >= 2) {
			text[strlen(text) - 1] = 0;
			printf("%-*s  ", width, text + 1);
			free(text);
			return;
		}
	} else if (value) {
		text = json_dumps(value, JSON_ENCODE_ANY);
	}
	printf("%-*s  ", width, text ? text : "-");
	free(text);
}

int ledger_print_list(const struct cli_settings *settings, char *json_taken, const char *const *members)
{
	json_t *list, *entry;
	size_t i;

	if (settings->json)
		return ledger_print_json(json_taken);
	list = json_loads(json_taken, JSON_ALLOW_NUL, NULL);
	abox_free(json_taken);
	json_array_foreach(list, i, entry)
	{
		for (size_t k = 0; members[k]; k++)
			print_value(json_object_get(entry, members[k]), members[k + 1] ? 10 : 0);
		putchar('\n');
	}
	json_decref(list);
	return finish_stdout();
}
