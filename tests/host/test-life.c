/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The life of a box through the API: misuse has defined answers, and what another process sees of it is right.
 */
#include <criterion/criterion.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/support.h"

static json_t *inspect(abox_sandbox *box)
{
	char *json = NULL;
	json_t *value;

	cr_assert_geq(abox_sandbox_inspect(box, &json, NULL), 0);
	value = json_loads(json, 0, NULL);
	cr_assert_not_null(value, "%s", json);
	abox_free(json);
	return value;
}

/* T15-10: stopping twice is fine and gives the same answer; what comes after has its code. */
Test(life, T15_10_stop_twice_and_use_afterwards)
{
	abox_sandbox *box = box_of("{}");
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT,
		.argv = (const char *const[]){ "true", NULL } };
	char *first = NULL, *second = NULL;
	abox_command *command = NULL;
	abox_error *error = NULL;
	int r;

	cr_assert_geq(abox_sandbox_stop(box, ABOX_STOP_SUCCESS, &first, NULL), 0);
	cr_assert_geq(abox_sandbox_stop(box, ABOX_STOP_SUCCESS, &second, NULL), 0);
	cr_expect_not_null(first);
	cr_expect_str_eq(first, second);
	r = abox_command_start(box, &options, &command, &error);
	cr_assert(r == ABOX_E_STATE || r == ABOX_E_GONE, "%s", abox_code_name(r));
	cr_assert_eq(abox_error_get_code(error), r);
	cr_assert_null(command);
	abox_error_free(error);
	cr_expect_eq(abox_sandbox_wait(box, 0, NULL), 1);
	cr_expect_eq(abox_sandbox_process(box, NULL), 0);
	r = abox_sandbox_pause(box, NULL);
	cr_expect(r == ABOX_E_STATE || r == ABOX_E_GONE, "%s", abox_code_name(r));
	abox_free(first);
	abox_free(second);
	abox_sandbox_unref(box);
}

/* NULL is refused everywhere and never followed. */
Test(life, null_arguments_are_refused)
{
	abox_sandbox *box = NULL;
	abox_command *command = NULL;
	abox_result *result = NULL;
	abox_plan *plan = NULL;
	char *json = NULL;

	cr_expect_eq(abox_plan_compile(NULL, &plan, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_plan_dump(NULL, &json, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_sandbox_start(NULL, NULL, &box, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_sandbox_open(NULL, ABOX_OPEN_READ, &box, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_sandbox_stop(NULL, 0, NULL, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_sandbox_wait(NULL, 0, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_sandbox_remove(NULL, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_command_start(NULL, NULL, &command, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_command_run(NULL, NULL, &result, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_command_wait(NULL, 0, &result, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_command_kill(NULL, 0, NULL), ABOX_E_INVALID);
	cr_expect_null(abox_sandbox_unref(NULL));
	cr_expect_null(abox_command_unref(NULL));
	cr_expect_null(abox_result_unref(NULL));
	cr_expect_null(abox_plan_unref(NULL));
}

/* T15-10: killing twice, and after the end, is fine; the end is told once and stays the same. */
Test(life, T15_10_kill_twice)
{
	abox_sandbox *box = box_of("{}");
	abox_command *command = start_words(box, "sleep", "1000");
	abox_result *result = NULL, *again = NULL;

	cr_expect_eq(abox_command_kill(command, 0, NULL), 0);
	cr_expect_eq(abox_command_kill(command, 0, NULL), 0);
	cr_assert_eq(abox_command_wait(command, 10000000, &result, NULL), 1);
	cr_expect_eq(abox_result_get_cause(result), ABOX_CAUSE_CANCELED);
	cr_expect_eq(abox_result_get_signal(result), SIGKILL);
	cr_expect_eq(abox_command_kill(command, 0, NULL), 0);
	cr_assert_eq(abox_command_wait(command, 0, &again, NULL), 1);
	cr_expect_eq(abox_result_get_cause(again), ABOX_CAUSE_CANCELED);
	abox_result_unref(result);
	abox_result_unref(again);
	abox_command_unref(command);
	stop_box(box);
}

/* A timeout of the wait is 0 and changes nothing. */
Test(life, wait_timeout_leaves_command_running)
{
	abox_sandbox *box = box_of("{}");
	abox_command *command = start_words(box, "sh", "-c", "sleep 0.5; exit 3");
	abox_result *result = NULL;

	cr_assert_eq(abox_command_wait(command, 1000, &result, NULL), 0);
	cr_assert_null(result);
	cr_assert_eq(abox_command_wait(command, ABOX_FOREVER, &result, NULL), 1);
	cr_expect_eq(abox_result_get_exit_code(result), 3);
	abox_result_unref(result);
	abox_command_unref(command);
	stop_box(box);
}

static void *stop_soon(void *box)
{
	pause_msec(100);
	abox_sandbox_stop(box, ABOX_STOP_CANCEL, NULL, NULL);
	return NULL;
}

/* T15-10: a box that is stopped by another handle ends the wait of this one. */
Test(life, T15_10_stop_from_another_handle)
{
	abox_sandbox *box = box_of("{}"), *other = NULL;
	abox_command *command = start_words(box, "sleep", "1000");
	abox_result *result = NULL;
	pthread_t thread;
	int r;

	cr_assert_geq(abox_sandbox_open(abox_sandbox_get_id(box), ABOX_OPEN_CONTROL, &other, NULL), 0);
	cr_assert_eq(pthread_create(&thread, NULL, stop_soon, other), 0);
	r = abox_command_wait(command, 20000000, &result, NULL);
	pthread_join(thread, NULL);
	cr_assert(r == 1 || r == ABOX_E_GONE, "%d", r);
	if (r == 1)
		cr_expect_eq(abox_result_get_cause(result), ABOX_CAUSE_CANCELED);
	abox_result_unref(result);
	abox_command_unref(command);
	abox_sandbox_unref(other);
	abox_sandbox_unref(box);
}

struct racer {
	abox_command *command;
	unsigned after_usec;
};

static void *cancel_soon(void *argument)
{
	const struct racer *racer = argument;

	usleep(racer->after_usec);
	abox_command_kill(racer->command, 0, NULL);
	return NULL;
}

/* T15-5: a command ends by itself while it is canceled: the end is exactly one of the two, and always told. */
Test(life, T15_5_end_and_cancel_race, .timeout = 900)
{
	abox_sandbox *box = box_of("{}");
	int rounds = is_long() ? 10000 : 200, exited = 0, canceled = 0;

	for (int i = 0; i < rounds; i++) {
		struct racer racer = { start_words(box, "true"), (unsigned)(i * 37 % 1500) };
		abox_result *result = NULL;
		pthread_t thread;

		cr_assert_eq(pthread_create(&thread, NULL, cancel_soon, &racer), 0);
		cr_assert_eq(abox_command_wait(racer.command, 20000000, &result, NULL), 1);
		pthread_join(thread, NULL);
		if (abox_result_get_cause(result) == ABOX_CAUSE_EXITED && abox_result_get_exit_code(result) == 0)
			exited++;
		else if (abox_result_get_cause(result) == ABOX_CAUSE_CANCELED)
			canceled++;
		abox_result_unref(result);
		abox_command_unref(racer.command);
	}
	cr_assert_eq(exited + canceled, rounds, "%d exited, %d canceled", exited, canceled);
	stop_box(box);
}

/* Several commands run side by side in one box, each with its own end. */
Test(life, parallel_commands)
{
	abox_sandbox *box = box_of("{}");
	abox_command *commands[8];
	char number[16];

	for (int i = 0; i < 8; i++) {
		snprintf(number, sizeof(number), "exit %d", 10 + i);
		commands[i] = start_words(box, "sh", "-c", number);
	}
	for (int i = 7; i >= 0; i--) {
		abox_result *result = NULL;

		cr_assert_eq(abox_command_wait(commands[i], 20000000, &result, NULL), 1);
		cr_expect_eq(abox_result_get_exit_code(result), 10 + i);
		abox_result_unref(result);
		abox_command_unref(commands[i]);
	}
	stop_box(box);
}

/* The same token is the same command; with another argv it is a conflict. */
Test(life, token_starts_once)
{
	abox_sandbox *box = box_of("{}");
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .token = "once",
		.argv = (const char *const[]){ "sh", "-c", "echo x >> /tmp/count", NULL } };
	abox_command *first = NULL, *second = NULL, *third = NULL;
	abox_result *result;

	cr_assert_eq(abox_command_start(box, &options, &first, NULL), 0);
	cr_assert_eq(abox_command_start(box, &options, &second, NULL), 1);
	cr_expect_eq(abox_command_get_id(first), abox_command_get_id(second));
	options.argv = (const char *const[]){ "true", NULL };
	cr_expect_eq(abox_command_start(box, &options, &third, NULL), ABOX_E_CONFLICT);
	cr_assert_eq(abox_command_wait(first, 10000000, &result, NULL), 1);
	abox_result_unref(result);
	result = run_words(box, "wc", "-l", "/tmp/count");
	cr_expect_str_eq(output_of(result, 1), "1 /tmp/count\n");
	abox_result_unref(result);
	abox_command_unref(first);
	abox_command_unref(second);
	stop_box(box);
}

/* A reader that comes back goes on at its cursor, with exact bytes. */
Test(life, output_is_read_from_a_cursor)
{
	abox_sandbox *box = box_of("{}"), *other = NULL;
	abox_command *command = start_words(box, "sh", "-c", "seq 1000; sleep 0.3; echo end"), *again = NULL;
	char all[8192], ref[16];
	uint64_t cursor = 0;
	struct abox_output output = { .size = sizeof(output) };

	cr_assert_eq(abox_command_read(command, 1, 0, all, 100, &output, 5000000, NULL), 1);
	cr_assert_leq(output.len, 100);
	cursor = output.next_cursor;
	cr_assert_geq(abox_sandbox_open(abox_sandbox_get_id(box), ABOX_OPEN_READ, &other, NULL), 0);
	snprintf(ref, sizeof(ref), "%u", abox_command_get_id(command));
	cr_assert_geq(abox_command_open(other, ref, &again, NULL), 0);
	for (output.end = 0; !output.end;) {
		cr_assert_eq(abox_command_read(again, 1, cursor, all + cursor, sizeof(all) - cursor, &output, 5000000, NULL), 1);
		cr_assert_eq(output.gap, 0);
		cursor = output.next_cursor;
	}
	cr_assert_eq(cursor, 3893 + 4);
	cr_expect_eq(memcmp(all, "1\n2\n3\n", 6), 0);
	cr_expect_eq(memcmp(all + cursor - 9, "1000\nend\n", 9), 0);
	abox_command_unref(again);
	abox_sandbox_unref(other);
	abox_command_unref(command);
	stop_box(box);
}

/* Reading is for everybody, running for attach, stopping for control; a newer controller fences the older. */
Test(life, open_modes_and_fencing)
{
	abox_sandbox *box = box_of("{}"), *reader = NULL, *other = NULL;
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT,
		.argv = (const char *const[]){ "true", NULL } };
	abox_command *command = NULL;
	abox_result *result;

	cr_assert_eq(abox_sandbox_get_epoch(box), 1);
	cr_assert_geq(abox_sandbox_open(abox_sandbox_get_id(box), ABOX_OPEN_READ, &reader, NULL), 0);
	cr_expect_lt(abox_command_start(reader, &options, &command, NULL), 0);
	cr_expect_lt(abox_sandbox_stop(reader, ABOX_STOP_CANCEL, NULL, NULL), 0);
	cr_assert_eq(abox_sandbox_get_state(box, NULL), ABOX_SANDBOX_RUNNING);
	cr_assert_geq(abox_sandbox_open(abox_sandbox_get_id(box), ABOX_OPEN_CONTROL, &other, NULL), 0);
	cr_expect_gt(abox_sandbox_get_epoch(other), 1);
	cr_expect_eq(abox_sandbox_pause(box, NULL), ABOX_E_FENCED);
	cr_expect_eq(abox_sandbox_stop(box, ABOX_STOP_CANCEL, NULL, NULL), ABOX_E_FENCED);
	result = run_words(other, "true");
	cr_expect_eq(abox_result_get_exit_code(result), 0);
	abox_result_unref(result);
	abox_sandbox_unref(box);
	abox_sandbox_unref(reader);
	stop_box(other);
}

/* A paused box stands still and goes on where it was. */
Test(life, pause_and_resume)
{
	abox_sandbox *box = box_of("{}");
	abox_command *command = start_words(box, "sh", "-c", "while :; do echo x; sleep 0.02; done");
	struct abox_output output = { .size = sizeof(output) };
	uint64_t at_pause;
	char byte[1];

	cr_assert_eq(abox_command_read(command, 1, 0, byte, 1, &output, 30000000, NULL), 1);
	cr_assert_eq(abox_sandbox_pause(box, NULL), 0);
	cr_assert_eq(abox_sandbox_pause(box, NULL), 0);
	cr_expect_eq(abox_sandbox_get_state(box, NULL), ABOX_SANDBOX_PAUSED);
	pause_msec(100);
	cr_assert_eq(abox_command_read(command, 1, 0, byte, 1, &output, 0, NULL), 1);
	at_pause = output.total_bytes;
	pause_msec(300);
	cr_assert_eq(abox_command_read(command, 1, 0, byte, 1, &output, 0, NULL), 1);
	cr_expect_eq(output.total_bytes, at_pause);
	cr_assert_eq(abox_sandbox_resume(box, NULL), 0);
	/* what has not been written yet is waited for */
	cr_expect_eq(abox_command_read(command, 1, at_pause, byte, 1, &output, 30000000, NULL), 1);
	cr_expect_gt(output.total_bytes, at_pause);
	abox_command_unref(command);
	stop_box(box);
}

/* Names are unique, found, and free again afterwards. */
Test(life, names_are_unique)
{
	abox_sandbox *box = box_of("{\"name\": \"life-unique\"}"), *found = NULL, *second = NULL;
	abox_error *error = NULL;

	cr_assert_eq(abox_sandbox_open("life-unique", ABOX_OPEN_READ, &found, &error), 0, "%s",
		abox_error_get_message(error));
	cr_expect_str_eq(abox_sandbox_get_id(found), abox_sandbox_get_id(box));
	cr_expect_eq(try_box("{\"name\": \"life-unique\"}", &second), ABOX_E_EXISTS);
	cr_expect_null(second);
	abox_sandbox_unref(found);
	stop_box(box);
	cr_expect_eq(abox_sandbox_open("life-unique", ABOX_OPEN_READ, &found, NULL), ABOX_E_NOT_FOUND);
	box = box_of("{\"name\": \"life-unique\"}");
	stop_box(box);
}

/* An id that is the beginning of another's is not that other. */
Test(life, part_of_an_id_is_no_id)
{
	abox_sandbox *box = box_of("{}"), *found = NULL;
	char part[32];

	snprintf(part, sizeof(part), "%.31s", abox_sandbox_get_id(box));
	cr_expect_eq(abox_sandbox_open(part, ABOX_OPEN_READ, &found, NULL), ABOX_E_NOT_FOUND);
	cr_expect_lt(abox_sandbox_open("../boxes", ABOX_OPEN_READ, &found, NULL), 0);
	cr_expect_lt(abox_sandbox_open("", ABOX_OPEN_READ, &found, NULL), 0);
	stop_box(box);
}

/* Inspect, list and statistics tell of a running box. */
Test(life, inspect_list_and_stats)
{
	abox_sandbox *box = box_of("{\"name\": \"life-look\"}");
	abox_command *command = start_words(box, "sleep", "1000");
	struct abox_stats stats = { ABOX_STATS_INIT };
	json_t *all = inspect(box);

	cr_expect_str_eq(json_string_value(json_object_get(all, "id")), abox_sandbox_get_id(box));
	cr_expect_str_eq(json_string_value(json_object_get(all, "name")), "life-look");
	cr_expect_str_eq(json_string_value(json_object_get(all, "state")), "running");
	cr_expect_eq(json_array_size(json_object_get(all, "commands")), 1);
	cr_expect(json_is_object(json_object_get(all, "plan")));
	cr_expect_gt(keeper_pid(abox_sandbox_get_id(box)), 0);
	cr_assert_geq(abox_sandbox_stats(box, &stats, NULL), 0);
	cr_expect_eq(stats.commands_running, 1);
	cr_expect_eq(stats.commands_started, 1);
	cr_expect_gt(stats.uptime_usec, 0);
	json_decref(all);
	abox_command_unref(command);
	stop_box(box);
}

/* A detached box that has ended keeps its record and output until it is removed. */
Test(life, detached_record_stays_until_removed)
{
	abox_sandbox *box = box_of("{\"on_owner_death\": \"keep\"}"), *ended = NULL;
	abox_command *command = start_words(box, "sh", "-c", "echo kept; exit 4"), *again = NULL;
	struct abox_output output = { .size = sizeof(output) };
	abox_result *result = NULL;
	abox_error *error = NULL;
	char id[64], text[64], *report = NULL;

	snprintf(id, sizeof(id), "%s", abox_sandbox_get_id(box));
	cr_assert_eq(abox_command_wait(command, 10000000, &result, NULL), 1);
	abox_result_unref(result);
	abox_command_unref(command);
	cr_expect_eq(abox_sandbox_remove(id, NULL), ABOX_E_STATE);
	stop_box(box);
	/* The answer to stop comes a moment before the keeper's own end, and until then the record is busy. */
	for (int i = 0; i < 200 && abox_sandbox_open(id, ABOX_OPEN_READ, &ended, NULL) == ABOX_E_BUSY; i++)
		pause_msec(10);
	if (!ended)
		cr_assert_eq(abox_sandbox_open(id, ABOX_OPEN_READ, &ended, &error), 0, "%s",
			abox_error_get_message(error));
	cr_expect_eq(abox_sandbox_get_state(ended, NULL), ABOX_SANDBOX_STOPPED);
	/* Nothing of it is there but the record, so nothing is told as cleared away. */
	cr_assert_geq(abox_sandbox_gc(&report, NULL), 0);
	cr_expect_null(strstr(report, id), "%s", report);
	abox_free(report);
	cr_assert_geq(abox_command_open(ended, "1", &again, NULL), 0);
	cr_assert_eq(abox_command_wait(again, 0, &result, NULL), 1);
	cr_expect_eq(abox_result_get_exit_code(result), 4);
	cr_assert_eq(abox_command_read(again, 1, 0, text, sizeof(text), &output, 0, NULL), 1);
	cr_expect_eq(output.len, 5);
	abox_result_unref(result);
	abox_command_unref(again);
	abox_sandbox_unref(ended);
	cr_assert_eq(abox_sandbox_remove(id, NULL), 0);
	cr_expect_eq(abox_sandbox_open(id, ABOX_OPEN_READ, &ended, NULL), ABOX_E_NOT_FOUND);
}

/* The receipt proves every wall of a default box and has a control beside each kind. */
Test(life, verify_proves_the_walls)
{
	abox_sandbox *box = box_of("{}");
	char *json = NULL;
	abox_error *error = NULL;
	json_t *receipt;
	int r = abox_sandbox_verify(box, &json, &error);

	cr_assert_eq(r, 0, "%s: %s", abox_code_name(r), json ? json : "");
	receipt = json_loads(json, 0, NULL);
	cr_expect_geq(json_array_size(json_object_get(receipt, "proven")), 30);
	cr_expect_eq(json_array_size(json_object_get(receipt, "mismatches")), 0);
	cr_expect_eq(strlen(json_string_value(json_object_get(receipt, "plan_digest"))), 64);
	json_decref(receipt);
	abox_free(json);
	stop_box(box);
}

struct sum {
	uint64_t bytes;
	uint64_t sum;
};

static int add_bytes(int stream, const void *data, size_t len, void *userdata)
{
	struct sum *sum = userdata;

	(void)stream;
	for (size_t i = 0; i < len; i++)
		sum->sum += ((const unsigned char *)data)[i];
	sum->bytes += len;
	return 0;
}

/* T4-2: much output on both streams and a slow reader: nothing is lost and nothing stands still. */
Test(life, T4_2_large_output_with_callback, .timeout = 600)
{
	abox_sandbox *box = box_of("{}");
	struct sum sum = { 0 };
	uint64_t bytes = is_long() ? 1ULL << 30 : 64ULL << 20;
	char number[32];
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .stdout_mode = ABOX_STREAM_CAPTURE,
		.stderr_mode = ABOX_STREAM_CAPTURE, .output_bytes = 4096, .on_output = add_bytes, .on_output_userdata = &sum };
	abox_result *result = NULL;

	snprintf(number, sizeof(number), "%llu", (unsigned long long)bytes);
	options.argv = (const char *const[]){ PROBE_IN_BOX, "output", number, "both", NULL };
	cr_assert_geq(abox_command_run(box, &options, &result, NULL), 0);
	cr_expect_eq(abox_result_get_exit_code(result), 0);
	cr_expect_eq(abox_result_get_output_total(result, 1), bytes);
	cr_expect_eq(abox_result_get_output_total(result, 2), bytes);
	cr_expect_eq(abox_result_get_truncated(result, 1), 1);
	abox_result_unref(result);
	stop_box(box);
}

/* B84: 32 MiB of input arrive whole; a program that does not read them does no harm. */
Test(life, B84_large_input, .timeout = 60)
{
	abox_sandbox *box = box_of("{}");
	size_t len = 32 << 20;
	char *data = malloc(len);
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .stdin_mode = ABOX_STDIN_BYTES,
		.stdin_data = data, .stdin_len = len };
	abox_result *result = NULL;

	cr_assert_not_null(data);
	memset(data, 'a', len);
	options.argv = (const char *const[]){ "sh", "-c", "wc -c", NULL };
	cr_assert_geq(abox_command_run(box, &options, &result, NULL), 0);
	cr_expect_eq(atoll(output_of(result, 1)), 32 << 20);
	abox_result_unref(result);
	options.argv = (const char *const[]){ "true", NULL };
	cr_assert_geq(abox_command_run(box, &options, &result, NULL), 0);
	cr_expect_eq(abox_result_get_exit_code(result), 0);
	abox_result_unref(result);
	free(data);
	stop_box(box);
}

/* Processes of the box that run a loop of B16; the pattern does not find the one that looks. */
static int count_loops(abox_sandbox *box)
{
	abox_result *result = run_words(box, "sh", "-c",
		"cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c 'whil[e] :'");
	int n = atoi(output_of(result, 1));

	abox_result_unref(result);
	return n;
}

/* B16: commands that were ended by their timeout leave nothing that slows the next ones down. */
Test(life, B16_killed_commands_leave_no_load, .timeout = 60)
{
	abox_sandbox *box = box_of("{\"grace\": \"100ms\"}");
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT,
		.argv = (const char *const[]){ "sh", "-c", "while :;do :;done & wait", NULL } };
	abox_command *command = NULL;
	abox_result *result;

	/* control: one that lives is found */
	cr_assert_geq(abox_command_start(box, &options, &command, NULL), 0);
	cr_expect_geq(count_loops(box), 1);
	cr_expect_eq(abox_command_kill(command, 0, NULL), 0);
	cr_expect_eq(abox_command_wait(command, 30 * 1000000, NULL, NULL), 1);
	abox_command_unref(command);
	options.timeout_usec = 500000;
	for (int i = 0; i < 3; i++) {
		cr_assert_geq(abox_command_run(box, &options, &result, NULL), 0);
		cr_expect_eq(abox_result_get_cause(result), ABOX_CAUSE_TIMEOUT);
		abox_result_unref(result);
	}
	cr_expect_eq(count_loops(box), 0);
	stop_box(box);
}

/* What survives its command by option lives on and is told; it goes with the box. */
Test(life, survivors_are_kept_when_asked)
{
	struct leaks *before = leaks_take();
	abox_sandbox *box = box_of("{}");
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .survivors = ABOX_SURVIVORS_KEEP,
		.argv = (const char *const[]){ "sh", "-c", "sleep 987 >/dev/null 2>&1 & echo done", NULL } };
	abox_result *result = NULL;

	cr_assert_geq(abox_command_run(box, &options, &result, NULL), 0);
	cr_expect_eq(abox_result_get_survivors(result), 1);
	abox_result_unref(result);
	result = run_words(box, "sh", "-c", "grep -l 98[7] /proc/[0-9]*/cmdline | wc -l");
	cr_expect_eq(atoi(output_of(result, 1)), 1, "%s", output_of(result, 1));
	abox_result_unref(result);
	stop_box(box);
	assert_no_leaks(before);
}
