/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The report of a task from its journal alone. */
#include <agentbox/report.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "effect/support.h"

TestSuite(report, .init = test_setup, .fini = test_teardown, .timeout = 60);

static int done(abox_effect *effect, void *userdata)
{
	abox_effect_set_result(effect, "https://forge.test/pulls/7", 26, 201);
	return ABOX_DONE_COMMITTED;
}

static int unclear(abox_effect *effect, void *userdata)
{
	return ABOX_DONE_UNCLEAR;
}

static void note(abox_journal *journal, const char *task, const char *type, const char *body)
{
	struct abox_journal_entry entry = ABOX_JOURNAL_ENTRY_INIT;

	entry.task = task;
	entry.box = "box-1";
	entry.type = type;
	entry.body = body;
	cr_assert_eq(abox_journal_append(journal, &entry, NULL, NULL), 0, "%s", type);
}

/* A whole run: who, where, what was reachable, used, changed, approved, verified, how it ended, what is
 * unknown. */
static void live_a_life(abox_journal *journal)
{
	struct abox_task_options options;
	struct abox_effect_options wish;
	abox_effect *effect = NULL;
	abox_error *error = NULL;
	abox_task *task = NULL;

	abox_task_options_init(&options);
	options.access = ABOX_TASK_CONTROL;
	options.identity = "user:1842";
	options.description = "fix issue 17";
	cr_assert_eq(abox_task_open(journal, "job", &options, &task, NULL), ABOX_TASK_NEW);
	note(journal, "job", "box.start",
		"{\"record\":{\"backend\":\"namespaces\",\"plan_digest\":\"abc\"},\"plan\":{\"spec\":{"
		"\"network\":{\"mode\":"
		"\"allow\",\"allow\":[{\"host\":\"forge.test\"}]}},\"waived\":[\"disk\"],\"enforcement\":[{"
		"\"name\":\"pids\","
		"\"status\":\"watched\"}]}}");
	note(journal, "job", "box.verify", "{\"proven\":[1,2,3],\"mismatches\":[]}");
	note(journal, "job", "command.start", "{\"command\":1}");
	note(journal, "job", "command.end",
		"{\"command\":1,\"cause\":\"exited\",\"exit_code\":1,\"stderr_tail\":\"bad "
		"\\u001b[31mred\"}");
	note(journal, "job", "net.allow", "{\"host\":\"forge.test\"}");
	note(journal, "job", "net.allow", "{\"host\":\"forge.test\"}");
	note(journal, "job", "net.deny", "{\"host\":\"evil.test\",\"rule\":\"default\"}");
	note(journal, "job", "credential.use", "{\"name\":\"forge\",\"host\":\"forge.test\"}");
	note(journal, "job", "artifact", "{\"path\":\"report.xml\",\"digest\":\"sha256:1\"}");
	note(journal, "job", "box.stop", "{\"outcome\":\"success\"}");
	cr_assert_eq(abox_task_stage_begin(task, "run", ABOX_STAGE_REPEATABLE, NULL, NULL), 1);
	cr_assert_eq(abox_task_stage_done(task, "run", NULL), 0);
	cr_assert_eq(abox_task_add_resource(task, "branch", "agent/17", "git push --delete", 1, NULL), 0);
	test_options(&wish, ABOX_EFFECT_OPAQUE, "pr", "forge.test/pulls", "body");
	wish.approval_text = "open the pull request";
	cr_assert_eq(abox_effect_run(task, &wish, done, NULL, NULL, &effect, &error), ABOX_E_APPROVAL);
	cr_assert_eq(abox_approval_grant(journal, abox_error_get_place(error) + strlen("approval "),
			     "\xff ann", "fine", NULL),
		0);
	abox_error_free(error);
	cr_assert_eq(abox_effect_run(task, &wish, done, NULL, NULL, &effect, NULL), ABOX_EFFECT_COMMITTED);
	abox_effect_unref(effect);
	test_options(&wish, ABOX_EFFECT_OPAQUE, "mail", "mail.test", "body\x1b[2J");
	cr_assert_eq(abox_effect_run(task, &wish, unclear, NULL, NULL, &effect, NULL), ABOX_E_UNKNOWN);
	cr_assert_eq(abox_task_end(task, "merged", NULL), 0);
	abox_task_unref(task);
}

Test(report, tells_the_whole_story)
{
	static const char *const in_json[] = {"\"identity\":\"user:1842\"", "\"backend\":\"namespaces\"",
		"\"host\":\"forge.test\",\"count\":2", "\"host\":\"evil.test\"", "\"name\":\"forge\"",
		"report.xml", "\"by\":\"\\\\xff ann\"", "https://forge.test/pulls/7", "\"proven\":3",
		"\"status\":\"finished\"", "\"outcome\":\"merged\"", "\"not_enforced\":[\"pids\"]",
		"agent/17"};
	static const char *const in_text[] = {"user:1842", "namespaces", "forge.test (2)", "evil.test",
		"by \\xff ann", "3 probes proven", "! effect eff-", "not known", "! resource agent/17",
		"merged", "1 of them failed", "COMMITTED", "UNKNOWN"};
	abox_journal *journal = test_open();
	abox_report *report = NULL;
	char *json = NULL, *text = NULL;

	live_a_life(journal);
	cr_assert_eq(abox_report_new(journal, "job", &report, NULL), 0);
	cr_assert_eq(abox_report_dump(report, &json), 0);
	cr_assert_eq(abox_report_format(report, &text), 0);
	for (size_t i = 0; i < sizeof(in_json) / sizeof(*in_json); i++)
		cr_assert_not_null(strstr(json, in_json[i]), "%s is not in %s", in_json[i], json);
	for (size_t i = 0; i < sizeof(in_text) / sizeof(*in_text); i++)
		cr_assert_not_null(strstr(text, in_text[i]), "%s is not in\n%s", in_text[i], text);
	cr_assert_eq(abox_report_get_undecided(report), 2);
	cr_assert_null(strchr(text, 0x1b), "nothing a terminal would act on");
	cr_assert_lt(strlen(text), 4000, "a person reads it in a minute");
	abox_free(json);
	abox_free(text);
	abox_report_unref(report);
	abox_journal_unref(journal);
}

/* It needs no writer: a journal that is only read tells the same. */
Test(report, is_made_from_a_journal_that_is_only_read)
{
	struct abox_journal_options options = ABOX_JOURNAL_OPTIONS_INIT;
	abox_journal *journal = test_open();
	abox_report *report = NULL;
	char path[128];

	live_a_life(journal);
	abox_journal_unref(journal);
	snprintf(path, sizeof(path), "%s/journal", test_folder);
	cr_assert_eq(abox_journal_open(path, &options, &journal, NULL), 0);
	cr_assert_eq(abox_report_new(journal, "job", &report, NULL), 0);
	cr_assert_eq(abox_report_get_undecided(report), 2);
	abox_report_unref(report);
	abox_journal_unref(journal);
}

/* Nobody's records have a report too; a task that is not there has none. */
Test(report, knows_what_is_not_there)
{
	abox_journal *journal = test_open();
	abox_report *report = NULL;
	char *json = NULL;

	note(journal, NULL, "box.start", "{\"record\":{\"backend\":\"gvisor\"}}");
	cr_assert_eq(abox_report_new(journal, "job", &report, NULL), ABOX_E_NOT_FOUND);
	cr_assert_eq(abox_report_new(journal, NULL, &report, NULL), 0);
	cr_assert_eq(abox_report_dump(report, &json), 0);
	cr_assert_not_null(strstr(json, "gvisor"));
	abox_free(json);
	abox_report_unref(report);
	abox_journal_unref(journal);
}

/* Bodies of any shape make no wrong report and no crash. */
Test(report, bears_odd_bodies)
{
	static const char *const types[] = {"box.start", "box.stop", "box.verify", "command.end", "net.allow",
		"net.deny", "credential.use", "artifact", "snapshot", "apply", "tool.call", "note",
		"resource.created"};
	static const char *const bodies[] = {"{}", "{\"host\":7,\"name\":[],\"record\":null,\"plan\":\"x\"}",
		"{\"exit_code\":\"0\",\"cause\":{},\"proven\":5,\"duty\":\"no\"}"};
	abox_journal *journal = test_open();
	abox_report *report = NULL;
	char *text = NULL;

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		for (size_t k = 0; k < sizeof(bodies) / sizeof(*bodies); k++)
			note(journal, "job", types[i], bodies[k]);
	cr_assert_eq(abox_report_new(journal, "job", &report, NULL), 0);
	cr_assert_eq(abox_report_format(report, &text), 0);
	abox_free(text);
	abox_report_unref(report);
	abox_journal_unref(journal);
}
