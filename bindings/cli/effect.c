/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox effect: effects of a journal, and decisions about those whose outcome is not known.
 */
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "effect_run.h"

static int run_list(struct cli_settings *settings, abox_journal *journal)
{
	static const char *const members[] = {"state", "id", "task", "class", "try", "what", NULL};
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	char *json = NULL;
	int r;

	r = abox_effect_list(
		journal, settings->text[LEDGER_TASK], !settings->flag[LEDGER_ALL], &json, &error);
	return r < 0 ? fail(settings, r, error) : ledger_print_list(settings, json, members);
}

static int run_show(struct cli_settings *settings, abox_journal *journal)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	char *json = NULL;
	int r;

	r = abox_effect_show(journal, settings->words[1], &json, &error);
	return r < 0 ? fail(settings, r, error) : ledger_print_json(json);
}

static int run_claim(struct cli_settings *settings, abox_journal *journal)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	int r;

	if (!settings->text[LEDGER_OF]) {
		say("agentbox effect claim needs --of ID: the effect that it is a repeat of");
		return CLI_EXIT_USAGE;
	}
	r = abox_effect_claim(
		journal, settings->words[1], settings->text[LEDGER_OF], settings->text[LEDGER_BY], &error);
	return r < 0 ? fail(settings, r, error) : CLI_EXIT_DONE;
}

static int run_new(struct cli_settings *settings, abox_journal *journal)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	int r;

	r = abox_effect_allow(journal, settings->words[1], settings->text[LEDGER_BY], &error);
	return r < 0 ? fail(settings, r, error) : CLI_EXIT_DONE;
}

static int run_retry(struct cli_settings *settings, abox_journal *journal)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	int r;

	r = abox_effect_retry(journal, settings->words[1], settings->text[LEDGER_BY], &error);
	return r < 0 ? fail(settings, r, error) : CLI_EXIT_DONE;
}

static int read_file(const char *path, char **retdata, size_t *retlen)
{
	FILE *file = fopen(path, "re");
	char *data = NULL, *more;
	size_t len = 0, n;

	if (!file) {
		say("cannot open %s: %m", path);
		return -1;
	}
	do {
		more = realloc(data, len + 65536);
		if (!more)
			break;
		data = more;
		n = fread(data + len, 1, 65536, file);
		len += n;
	} while (n > 0);
	if (!more || ferror(file)) {
		say("cannot read %s", path);
		free(data);
		data = NULL;
	}
	fclose(file);
	*retdata = data;
	*retlen = len;
	return data ? 0 : -1;
}

static int run_resolve(struct cli_settings *settings, abox_journal *journal)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	int chosen = settings->flag[LEDGER_COMMITTED] + settings->flag[LEDGER_ABSENT] +
		     settings->flag[LEDGER_ABANDON];
	int verdict = settings->flag[LEDGER_COMMITTED] ? ABOX_VERDICT_COMMITTED
		      : settings->flag[LEDGER_ABSENT]  ? ABOX_VERDICT_ABSENT
						       : ABOX_VERDICT_ABANDONED;
	char *data = NULL;
	size_t len = 0;
	int r;

	if (chosen != 1) {
		say("agentbox effect resolve needs one of --committed, --absent, --abandon");
		return CLI_EXIT_USAGE;
	}
	if (settings->result_file && read_file(settings->result_file, &data, &len) < 0)
		return CLI_EXIT_FAILED;
	r = abox_effect_resolve(
		journal, settings->words[1], verdict, settings->text[LEDGER_BY], data, len, 0, &error);
	free(data);
	return r < 0 ? fail(settings, r, error) : CLI_EXIT_DONE;
}

static int run(struct cli_settings *settings)
{
	static const struct ledger_verb verbs[] = {{"list", 0, false, false, run_list},
		{"show", 1, false, false, run_show}, {"claim", 1, true, true, run_claim},
		{"new", 1, true, true, run_new}, {"retry", 1, true, true, run_retry},
		{"resolve", 1, true, true, run_resolve}, {"run", LEDGER_ANY, true, false, effect_run}, {0}};

	return ledger_run(settings, verbs, "effect");
}

static const struct cli_option options_effect[] = {
	{"task", 0, "ID", "run: the task it belongs to; list: only its effects", OPTION_TEXT,
		LEDGER_TEXT(LEDGER_TASK), NULL, NULL},
	{"all", 0, NULL, "list: also those that are final", OPTION_FLAG, LEDGER_FLAG(LEDGER_ALL), NULL, NULL},
	{"of", 0, "ID", "claim: the effect that it is a repeat of", OPTION_TEXT, LEDGER_TEXT(LEDGER_OF), NULL,
		NULL},
	{"committed", 0, NULL, "resolve: it happened", OPTION_FLAG, LEDGER_FLAG(LEDGER_COMMITTED), NULL,
		NULL},
	{"absent", 0, NULL, "resolve: it did not, and cannot any more", OPTION_FLAG,
		LEDGER_FLAG(LEDGER_ABSENT), NULL, NULL},
	{"abandon", 0, NULL, "resolve: nobody will find out", OPTION_FLAG, LEDGER_FLAG(LEDGER_ABANDON), NULL,
		NULL},
	{"result", 0, "FILE", "resolve --committed: what the effect gave", OPTION_TEXT,
		offsetof(struct cli_settings, result_file), NULL, NULL},
	{"key", 0, "KEY", "run: its key in the task; else made of the command itself", OPTION_TEXT,
		LEDGER_TEXT(LEDGER_KEY), NULL, NULL},
	{"class", 0, "CLASS", "run: opaque (as if not given), idempotent or pure", OPTION_TEXT,
		LEDGER_TEXT(LEDGER_CLASS), NULL, NULL},
	{"target", 0, "TEXT", "run: what it aims at; else the program", OPTION_TEXT,
		LEDGER_TEXT(LEDGER_TARGET), NULL, NULL},
	{"approve", 0, "TEXT", "run: only when somebody approves; TEXT tells what", OPTION_TEXT,
		LEDGER_TEXT(LEDGER_APPROVE), NULL, NULL},
	{"wait", 0, "TIME", "run: for approval, and for others that run the same", OPTION_TEXT,
		LEDGER_TEXT(LEDGER_WAIT), NULL, NULL},
	{"settle", 0, "TIME", "run: how long what it sent may still arrive when it is dead", OPTION_TEXT,
		LEDGER_TEXT(LEDGER_SETTLE), NULL, NULL},
	{0}};
static const struct cli_option *const groups[] = {options_ledger, options_effect, options_by, NULL};

const struct cli_command cli_effect = {
	.name = "effect",
	.usage = "list|show ID|claim ID|new ID|retry ID|resolve ID|run -- CMD... --journal DIR",
	.summary = "actions with consequences: run once, look, decide",
	.help = "`run --task T [--key K] -- CMD...` runs CMD once: when it has run to its end before, its "
		"stored output and exit code\n"
		"are given again and nothing runs. CMD gets no input, and finds the id of the effect in "
		"ABOX_EFFECT_ID. Ended by a\n"
		"signal, or by a crash in between, the effect is UNKNOWN and not run again until somebody "
		"decides: `resolve` says\n"
		"what happened, `retry` lets it run again though it may have happened. `claim ID --of ID` "
		"and `new ID` answer\n"
		"whether an ambiguous wish is a repeat. These need --by NAME. `run` exits as CMD did, 125 "
		"when it did not run it. All\n"
		"runs of a task are one attempt until `agentbox task resume` begins the next.\n",
	.groups = groups,
	.words_min = 1,
	.words_max = CLI_WORDS_ANY,
	.run = run,
};
