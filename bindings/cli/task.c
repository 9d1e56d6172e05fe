/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox task: tasks of a journal, what a resume would do, cancel, give up, end.
 */
#include <string.h>

#include "commands.h"
#include "ledger.h"

static int run_list(struct cli_settings *settings, abox_journal *journal)
{
	static const char *const members[] = {"status", "id", "attempts", "identity", "description", NULL};
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	char *json = NULL;
	int r;

	r = abox_task_list(journal, !settings->flag[LEDGER_ALL], &json, &error);
	return r < 0 ? fail(settings, r, error) : ledger_print_list(settings, json, members);
}

static int run_show(struct cli_settings *settings, abox_journal *journal)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	char *json = NULL;
	int r;

	r = abox_task_show(journal, settings->words[1], &json, &error);
	return r < 0 ? fail(settings, r, error) : ledger_print_json(json);
}

static int print_plan(const struct cli_settings *settings, char *json_taken)
{
	static const char *const kinds[] = {"stages", "effects"};
	json_t *plan, *entry;
	size_t i;

	if (settings->json)
		return ledger_print_json(json_taken);
	plan = json_loads(json_taken, 0, NULL);
	abox_free(json_taken);
	for (size_t kind = 0; kind < 2; kind++)
		json_array_foreach(json_object_get(plan, kinds[kind]), i, entry)
		{
			const char *name = json_string_value(json_object_get(entry, kind ? "id" : "name"));

			printf("%-10s %-7s %s: %s\n", json_string_value(json_object_get(entry, "do")),
				kind ? "effect" : "stage", name ? name : "",
				json_string_value(json_object_get(entry, "why")));
		}
	json_decref(plan);
	return finish_stdout();
}

static int run_plan(struct cli_settings *settings, abox_journal *journal)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	char *json = NULL;
	int r;

	r = abox_task_resume_plan(journal, settings->words[1], &json, &error);
	return r < 0 ? fail(settings, r, error) : print_plan(settings, json);
}

/* none, fence, kill */
static int takeover(const char *text)
{
	static const char *const names[] = {"none", "fence", "kill"};

	for (int i = 0; i < 3; i++)
		if (text && strcmp(text, names[i]) == 0)
			return i;
	return text ? -1 : 0;
}

static int run_resume(struct cli_settings *settings, abox_journal *journal)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_task_unrefp) abox_task *task = NULL;
	struct abox_task_options options;
	char *json = NULL;
	int r;

	abox_task_options_init(&options);
	r = takeover(settings->text[LEDGER_TAKEOVER]);
	if (r < 0) {
		say("--takeover is none, fence or kill");
		return CLI_EXIT_USAGE;
	}
	options.takeover = (uint32_t)r;
	r = abox_task_resume(journal, settings->words[1], &options, NULL, NULL, &task, &json, &error);
	return r < 0 ? fail(settings, r, error) : print_plan(settings, json);
}

static int run_cancel(struct cli_settings *settings, abox_journal *journal)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	char *json = NULL;
	int r;

	r = abox_task_cancel(journal, settings->words[1], settings->text[LEDGER_BY],
		settings->text[LEDGER_NOTE], &json, &error);
	return r < 0 ? fail(settings, r, error) : ledger_print_json(json);
}

static int run_abandon(struct cli_settings *settings, abox_journal *journal)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	int r;

	r = abox_task_abandon(
		journal, settings->words[1], settings->text[LEDGER_BY], settings->text[LEDGER_NOTE], &error);
	return r < 0 ? fail(settings, r, error) : CLI_EXIT_DONE;
}

/* For harnesses that are shell scripts: each `effect run` was an owner of its own. */
static int run_end(struct cli_settings *settings, abox_journal *journal)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_task_unrefp) abox_task *task = NULL;
	struct abox_task_options options;
	int r;

	abox_task_options_init(&options);
	options.access = ABOX_TASK_CONTROL;
	options.must_exist = 1;
	r = abox_task_open(journal, settings->words[1], &options, &task, &error);
	if (r >= 0)
		r = abox_task_end(task, settings->text[LEDGER_OUTCOME], &error);
	return r < 0 ? fail(settings, r, error) : CLI_EXIT_DONE;
}

static int run(struct cli_settings *settings)
{
	static const struct ledger_verb verbs[] = {{"list", 0, false, false, run_list},
		{"show", 1, false, false, run_show}, {"plan", 1, false, false, run_plan},
		{"resume", 1, true, false, run_resume}, {"cancel", 1, true, true, run_cancel},
		{"abandon", 1, true, true, run_abandon}, {"end", 1, true, false, run_end}, {0}};

	return ledger_run(settings, verbs, "task");
}

static const struct cli_option options_task[] = {
	{"all", 0, NULL, "list: also tasks that are over", OPTION_FLAG, LEDGER_FLAG(LEDGER_ALL), NULL, NULL},
	{"takeover", 0, "HOW", "resume: none, fence or kill an owner that lives", OPTION_TEXT,
		LEDGER_TEXT(LEDGER_TAKEOVER), NULL, NULL},
	{"outcome", 0, "TEXT", "end: what whoever opens the task again is given", OPTION_TEXT,
		LEDGER_TEXT(LEDGER_OUTCOME), NULL, NULL},
	{0}};
static const struct cli_option *const groups[] = {options_ledger, options_task, options_by, NULL};

const struct cli_command cli_task = {
	.name = "task",
	.usage = "list|show ID|plan ID|resume ID|cancel ID|abandon ID|end ID --journal DIR",
	.summary = "tasks of a journal: resume, cancel, give up",
	.help = "`plan` says what a resume would do and changes nothing; `resume` begins a new attempt, "
		"calls UNKNOWN what a dead\n"
		"owner left in flight, and prints what is left to do. `cancel` closes admission for good, "
		"from any process, and tells\n"
		"what was done and what was not. `abandon` gives up a task whose owner is dead. cancel and "
		"abandon need --by NAME.\n",
	.groups = groups,
	.words_min = 1,
	.words_max = 2,
	.run = run,
};
