/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A box with a journal: what its records say, and that it does not run unrecorded.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <agentbox/agentbox.h>

static char folder[512], journal[600];

static void setup(void)
{
	snprintf(folder, sizeof(folder), "%s/agentbox-record-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	cr_assert_not_null(mkdtemp(folder));
	snprintf(journal, sizeof(journal), "%s/journal", folder);
}

static void teardown(void)
{
	char command[700];

	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	cr_expect_eq(system(command), 0);
}

TestSuite(record, .init = setup, .fini = teardown, .timeout = 60);

static abox_sandbox *start(void)
{
	char text[1200];
	abox_error *error = NULL;
	abox_spec *spec = NULL;
	abox_plan *plan = NULL;
	abox_sandbox *box = NULL;

	snprintf(text, sizeof(text),
		"{\"version\":1,\"journal\":\"%s\",\"task\":\"t-1\",\"env\":{\"API_TOKEN\":\"hunter2hunter2\"}}", journal);
	cr_assert_eq(abox_spec_from_json(text, &spec, &error), 0, "%s", abox_error_get_message(error));
	cr_assert_eq(abox_plan_compile(spec, &plan, &error), 0, "%s", abox_error_get_message(error));
	cr_assert_eq(abox_sandbox_start(plan, NULL, &box, &error), 0, "%s", abox_error_get_message(error));
	abox_plan_unref(plan);
	abox_spec_unref(spec);
	return box;
}

/* The types of all records one after the other, and all lines, each ended by a newline. */
static void read_all(char *types, size_t types_size, char *lines, size_t lines_size)
{
	struct abox_journal_record record = ABOX_JOURNAL_RECORD_INIT;
	abox_journal_reader *reader = NULL;
	abox_journal *handle = NULL;

	types[0] = lines[0] = 0;
	cr_assert_eq(abox_journal_open(journal, NULL, &handle, NULL), 0);
	cr_assert_eq(abox_journal_reader_new(handle, 0, 0, &reader, NULL), 0);
	while (abox_journal_reader_next(reader, &record, NULL) == 1) {
		snprintf(types + strlen(types), types_size - strlen(types), "%s ", record.type);
		snprintf(lines + strlen(lines), lines_size - strlen(lines), "%.*s\n", (int)record.line_bytes, record.line);
	}
	abox_journal_reader_unref(reader);
	abox_journal_unref(handle);
}

/* T4-6: box, command and end stand in the journal, one line each, without the secret that the box was given. */
Test(record, T4_6_box_is_recorded)
{
	static char types[4096], lines[262144];
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT,
		.argv = (const char *const[]){ "echo", "hunter2hunter2", "a\nb\"\xff\xe2\x80\xa8", NULL } };
	abox_sandbox *box = start();
	abox_result *result = NULL;
	char *found = NULL;
	size_t n_lines = 0;

	cr_assert_eq(abox_command_run(box, &options, &result, NULL), 0);
	cr_expect_eq(abox_result_get_exit_code(result), 0);
	abox_result_unref(result);
	cr_expect_eq(abox_sandbox_stop(box, ABOX_STOP_SUCCESS, NULL, NULL), 0);
	abox_sandbox_unref(box);
	read_all(types, sizeof(types), lines, sizeof(lines));
	cr_expect_str_eq(types, "journal.open box.start command.start command.end box.stop ");
	cr_expect_null(strstr(lines, "hunter2"), "a secret stands in the journal");
	cr_expect_not_null(strstr(lines, "[redacted API_TOKEN]"));
	cr_expect_not_null(strstr(lines, "\"outcome\":\"success\""));
	for (const char *p = lines; (p = strchr(p, '\n')); p++)
		n_lines++;
	cr_expect_eq(n_lines, 5);
	cr_expect_geq(abox_journal_verify(journal, NULL, &found, NULL), 0);
	abox_free(found);
}

/* A journal that cannot be opened refuses the start, and nothing is left; the same box with a place for it starts. */
Test(record, no_journal_no_box)
{
	char text[1200];
	abox_error *error = NULL;
	abox_spec *spec = NULL;
	abox_plan *plan = NULL;
	abox_sandbox *box = NULL;
	FILE *file;

	file = fopen(journal, "w");	/* a file where a folder should be */
	cr_assert_not_null(file);
	fclose(file);
	snprintf(text, sizeof(text), "{\"version\":1,\"journal\":\"%s\"}", journal);
	cr_assert_eq(abox_spec_from_json(text, &spec, &error), 0);
	cr_assert_eq(abox_plan_compile(spec, &plan, &error), 0);
	cr_expect_lt(abox_sandbox_start(plan, NULL, &box, &error), 0);
	cr_expect_not_null(error);
	abox_error_free(error);
	unlink(journal);
	cr_assert_eq(abox_sandbox_start(plan, NULL, &box, NULL), 0);
	cr_expect_eq(abox_sandbox_stop(box, ABOX_STOP_CANCEL, NULL, NULL), 0);
	abox_sandbox_unref(box);
	abox_plan_unref(plan);
	abox_spec_unref(spec);
}
