/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox approval: see what waits for a person, and answer.
 */
#include "commands.h"
#include "ledger.h"

static int run_list(struct cli_settings *settings, abox_journal *journal)
{
	static const char *const members[] = {
		"state", "id", "task", "class", "target", "what", "text", "by", NULL};
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	char *json = NULL;
	int r;

	r = abox_approval_list(
		journal, settings->text[LEDGER_TASK], !settings->flag[LEDGER_ALL], &json, &error);
	return r < 0 ? fail(settings, r, error) : ledger_print_list(settings, json, members);
}

typedef int (*answer_fn)(
	abox_journal *journal, const char *id, const char *by, const char *note, abox_error **reterr);

static int answer(struct cli_settings *settings, abox_journal *journal, answer_fn fn, const char *done)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	int r;

	r = fn(journal, settings->words[1], settings->text[LEDGER_BY], settings->text[LEDGER_NOTE], &error);
	if (r < 0)
		return fail(settings, r, error);
	if (settings->json)
		printf("{\"state\": \"%s\"}\n", done);
	return finish_stdout();
}

static int run_grant(struct cli_settings *settings, abox_journal *journal)
{
	return answer(settings, journal, abox_approval_grant, "GRANTED");
}

static int run_deny(struct cli_settings *settings, abox_journal *journal)
{
	return answer(settings, journal, abox_approval_deny, "DENIED");
}

static int run_revoke(struct cli_settings *settings, abox_journal *journal)
{
	return answer(settings, journal, abox_approval_revoke, "REVOKED");
}

static int run(struct cli_settings *settings)
{
	static const struct ledger_verb verbs[] = {{"list", 0, false, false, run_list},
		{"grant", 1, true, true, run_grant}, {"deny", 1, true, true, run_deny},
		{"revoke", 1, true, true, run_revoke}, {0}};

	return ledger_run(settings, verbs, "approval");
}

static const struct cli_option options_approval[] = {
	{"task", 0, "ID", "only requests of this task", OPTION_TEXT, LEDGER_TEXT(LEDGER_TASK), NULL, NULL},
	{"all", 0, NULL, "also those that were answered", OPTION_FLAG, LEDGER_FLAG(LEDGER_ALL), NULL, NULL},
	{0}};
static const struct cli_option *const groups[] = {options_ledger, options_approval, options_by, NULL};

const struct cli_command cli_approval = {
	.name = "approval",
	.usage = "list|grant ID|deny ID|revoke ID --journal DIR",
	.summary = "see what waits for a person, and answer",
	.help = "An effect that needs an approval waits until somebody answers its request, from any "
		"process. `list` shows target\n"
		"and digest beside the requester's own words, which may say something else. Deny and revoke "
		"win until the approval\n"
		"is used. The name after --by is recorded, not checked.\n",
	.groups = groups,
	.words_min = 1,
	.words_max = 2,
	.run = run,
};
