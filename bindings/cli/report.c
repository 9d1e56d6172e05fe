/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox report: what a task was, from its journal.
 */
#include "commands.h"
#include "ledger.h"

static int run_report(struct cli_settings *settings, abox_journal *journal)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_report_unrefp) abox_report *report = NULL;
	_cleanup_(text_freep) char *text = NULL;
	int r;

	r = abox_report_new(journal, settings->n_words ? settings->words[0] : NULL, &report, &error);
	if (r < 0)
		return fail(settings, r, error);
	r = settings->json ? abox_report_dump(report, &text) : abox_report_format(report, &text);
	if (r < 0)
		return fail(settings, r, NULL);
	if (settings->json)
		return print_json_text(text);
	fputs(text, stdout);
	return finish_stdout();
}

static int run(struct cli_settings *settings)
{
	static const struct ledger_verb verb = {NULL, LEDGER_ANY, false, false, run_report};

	return ledger_run_verb(settings, &verb);
}

static const struct cli_option *const groups[] = {options_ledger, NULL};

const struct cli_command cli_report = {
	.name = "report",
	.usage = "[TASK] --journal DIR [--json]",
	.summary = "what a task was, from its journal",
	.help = "Who started it, where it ran, what was reachable, used, changed, approved and verified, how "
		"it ended; first of all\n"
		"what needs a decision. Without TASK: the records that belong to no task.\n",
	.groups = groups,
	.words_max = 1,
	.run = run,
};
