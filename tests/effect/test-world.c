/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the world does to a journal with effects in it: other pid namespaces, full disks, copied folders, pruned
 * segments, processes stopped at the wrong moment (effects 0.2, 0.6, 0.7, 0.8, 1.11, 5).
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

TestSuite(world, .init = test_setup, .fini = test_teardown, .timeout = 60);

enum { CANNOT = 77 };	/* exit code of a child that the host does not let do it */

static int do_it(abox_effect *effect, void *userdata)
{
	outside_happen(abox_effect_get_key(effect));
	return ABOX_DONE_COMMITTED;
}

static int run(abox_task *task, const char *key)
{
	struct abox_effect_options options;
	abox_effect *effect = NULL;
	int r;

	test_options(&options, ABOX_EFFECT_OPAQUE, key, "target", "body");
	r = abox_effect_run(task, &options, do_it, NULL, NULL, &effect, NULL);
	abox_effect_unref(effect);
	return r;
}

/* Begins and dispatches; the caller has the handle. */
static abox_effect *dispatch(abox_task *task, const char *key)
{
	struct abox_effect_options options;
	abox_effect *effect = NULL;

	test_options(&options, ABOX_EFFECT_OPAQUE, key, "target", "body");
	if (abox_effect_begin(task, &options, &effect, NULL) != ABOX_BEGIN_GO ||
		abox_effect_dispatch(effect, NULL) < 0)
		return abox_effect_unref(effect);
	return effect;
}

/* ---- another pid namespace ---- */

static int owner_elsewhere(void *userdata)
{
	const int *fds = userdata;
	abox_journal *journal;
	abox_task *task;
	char c;
	int status;
	pid_t pid;

	if (unshare((geteuid() ? CLONE_NEWUSER : 0) | CLONE_NEWPID) < 0)
		return CANNOT;
	pid = fork();
	if (pid == 0) {	/* pid 1 of a namespace of its own */
		journal = test_open();
		task = test_control(journal, "job", 0, NULL);
		if (!dispatch(task, "k") || write(fds[1], "x", 1) != 1 || read(fds[2], &c, 1) != 1)
			_exit(1);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	return 0;
}

/* From another pid namespace the living are not called dead: the lock tells, not the pid (effects 0.8). */
Test(world, sees_the_living_of_another_pid_namespace)
{
	abox_journal *journal;
	abox_effect *effect = NULL;
	struct abox_effect_options options;
	abox_task *task;
	int fds[4], pid, status, r;
	char c;

	cr_assert(pipe(fds) == 0 && pipe(fds + 2) == 0);
	pid = test_start(owner_elsewhere, fds);
	close(fds[1]);
	if (read(fds[0], &c, 1) != 1) {
		cr_assert_eq(test_join(pid, 10), CANNOT);
		cr_skip_test("no pid namespaces here");
	}
	journal = test_open();
	cr_assert_null(test_control(journal, "job", ABOX_TAKEOVER_NONE, &status));
	cr_assert_eq(status, ABOX_E_BUSY);
	cr_assert_null(test_control(journal, "job", ABOX_TAKEOVER_KILL, &status));
	cr_assert_eq(status, ABOX_E_BUSY, "a pid of another namespace is nobody's to kill");
	task = test_control(journal, "job", ABOX_TAKEOVER_FENCE, &status);
	cr_assert_eq(status, ABOX_TASK_RUNNING);
	test_options(&options, ABOX_EFFECT_OPAQUE, "k", "target", "body");
	r = abox_effect_begin(task, &options, &effect, NULL);
	cr_assert_eq(r, ABOX_E_IN_PROGRESS, "%d", r);
	cr_assert_eq(write(fds[3], "x", 1), 1);
	cr_assert_eq(test_join(pid, 10), 0);
	cr_assert_eq(abox_effect_begin(task, &options, &effect, NULL), ABOX_E_UNKNOWN, "now it is dead");
	abox_task_unref(task);
	abox_journal_unref(journal);
}

/* ---- a full disk ---- */

static int fill(const char *path)
{
	static const char zeros[4096];
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	while (fd >= 0 && write(fd, zeros, sizeof(zeros)) == (ssize_t)sizeof(zeros))
		;
	while (fd >= 0 && write(fd, zeros, 1) == 1)
		;
	close(fd);
	return fd < 0 ? -1 : 0;
}

static int on_a_full_disk(void *userdata)
{
	static char answer[60000];
	abox_journal *journal;
	abox_task *task, *next;
	abox_effect *first, *second;
	char path[96];
	int refused = 0, status;

	if (unshare((geteuid() ? CLONE_NEWUSER : 0) | CLONE_NEWNS) < 0 ||
		mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("small", test_folder, "tmpfs", 0, "size=2m,mode=700") < 0)
		return CANNOT;
	journal = test_open();
	task = test_control(journal, "job", 0, NULL);
	first = dispatch(task, "first");
	second = dispatch(task, "second");
	if (!first || !second)
		return 1;
	snprintf(path, sizeof(path), "%s/filler", test_folder);
	if (fill(path) < 0)
		return 2;
	for (int i = 0; i < 10000 && !refused; i++) {	/* until the segment is full as well */
		struct abox_effect_options options;
		abox_effect *effect = NULL;
		char key[16];
		int r;

		snprintf(key, sizeof(key), "more-%d", i);
		test_options(&options, ABOX_EFFECT_OPAQUE, key, "target", "body");
		r = abox_effect_begin(task, &options, &effect, NULL);
		if (r == ABOX_BEGIN_GO)
			r = abox_effect_dispatch(effect, NULL);
		if (r == 0)
			r = abox_effect_finish(effect, ABOX_DONE_COMMITTED, NULL, NULL) < 0;
		refused = r == ABOX_E_NOSPACE;
		if (r && !refused)
			return 3;
		abox_effect_unref(effect);
	}
	if (!refused)
		return 4;
	/* What was let out may come home, with a large answer. */
	memset(answer, 'a', sizeof(answer));
	abox_effect_set_result(first, answer, sizeof(answer), 200);
	if (abox_effect_finish(first, ABOX_DONE_COMMITTED, NULL, NULL) != ABOX_EFFECT_COMMITTED)
		return 5;
	if (abox_effect_finish(second, ABOX_DONE_FAILED, "no", NULL) != ABOX_EFFECT_FAILED)
		return 6;
	/* A takeover and a cancel find room too. */
	next = test_control(test_open(), "job", ABOX_TAKEOVER_FENCE, &status);
	if (!next)
		return 7;
	if (abox_task_cancel(journal, "job", "ann", NULL, NULL, NULL) != 0)
		return 8;
	unlink(path);
	return test_verify() ? 0 : 9;
}

/* A full disk refuses new effects, never an outcome, an epoch or a cancel (effects 0.6). */
Test(world, keeps_room_for_outcomes)
{
	int r = test_child(on_a_full_disk, NULL);

	if (r == CANNOT)
		cr_skip_test("no mount namespaces here");
	cr_assert_eq(r, 0, "%d", r);
}

/* ---- a copied folder ---- */

static void copy_journal(void)
{
	char command[256];

	snprintf(command, sizeof(command), "cd %s && cp -a journal copy && mv journal original && mv copy journal",
		test_folder);
	cr_assert_eq(system(command), 0);
}

static int dies_in_flight(void *userdata)
{
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);
	struct abox_effect_options options;
	abox_effect *effect = NULL;

	if (run(task, "done") != ABOX_EFFECT_COMMITTED || !dispatch(task, "sent"))
		return 1;
	test_options(&options, ABOX_EFFECT_OPAQUE, "intended", "target", "body");
	if (abox_effect_begin(task, &options, &effect, NULL) != ABOX_BEGIN_GO)
		return 2;
	raise(SIGKILL);
	return 3;
}

/* The original may have gone on: nothing that is not final is believed, and no key it does not know (effects 0.7). */
Test(world, distrusts_a_copy)
{
	struct abox_effect_options options;
	abox_effect *effect = NULL;
	abox_journal *journal;
	abox_error *error = NULL;
	abox_task *task;
	char path[96];

	cr_assert_eq(test_child(dies_in_flight, NULL), -SIGKILL);
	copy_journal();
	cr_assert_null(test_open(), "not before somebody adopts it");
	snprintf(path, sizeof(path), "%s/journal", test_folder);
	cr_assert_eq(abox_journal_adopt(path, "ann", &error), 0, "%s", abox_error_get_message(error));
	journal = test_open();
	task = test_control(journal, "job", 0, NULL);
	cr_assert_eq(run(task, "done"), ABOX_EFFECT_COMMITTED, "what is final is");
	cr_assert_eq(outside_count("done"), 1);
	cr_assert_eq(run(task, "sent"), ABOX_E_UNKNOWN);
	cr_assert_eq(run(task, "intended"), ABOX_E_UNKNOWN, "the original may have sent it");
	cr_assert_eq(run(task, "never seen"), ABOX_E_AMBIGUOUS);
	test_options(&options, ABOX_EFFECT_OPAQUE, "never seen", "target", "body");
	options.new_by = "ann";
	cr_assert_eq(abox_effect_run(task, &options, do_it, NULL, NULL, &effect, NULL), ABOX_EFFECT_COMMITTED);
	abox_effect_unref(effect);
	abox_task_unref(task);
	abox_journal_unref(journal);
	cr_assert(test_verify());
}

/* ---- pruning ---- */

static void turn_over(abox_journal *journal, int times)
{
	for (int i = 0; i < times; i++)
		cr_assert_eq(abox_journal_rotate(journal, NULL), 0);
}

/* Open tasks and unknown effects stay; the end of a task stays for ever and refuses duplicates (effects 1.11). */
Test(world, prunes_what_is_over_and_nothing_else)
{
	abox_journal *journal = test_open();
	abox_task *over = test_control(journal, "over", 0, NULL), *open, *late = NULL;
	abox_error *error = NULL;
	char *json = NULL, *text = NULL;

	cr_assert_eq(run(over, "k"), ABOX_EFFECT_COMMITTED);
	cr_assert_eq(abox_task_end(over, "the outcome", NULL), 0);
	abox_task_unref(over);
	turn_over(journal, 2);
	open = test_control(journal, "open", 0, NULL);
	cr_assert_eq(run(open, "o"), ABOX_EFFECT_COMMITTED);
	turn_over(journal, 3);
	cr_assert_eq(abox_journal_prune(journal, NULL, &json, &error), 0, "%s", abox_error_get_message(error));
	cr_assert_null(strstr(json, "\"segments\":0"), "%s", json);
	abox_free(json);
	cr_assert_eq(run(open, "o"), ABOX_EFFECT_COMMITTED);
	cr_assert_eq(outside_count("o"), 1);
	abox_task_unref(open);
	abox_journal_unref(journal);

	journal = test_open();
	cr_assert_eq(abox_task_open(journal, "over", NULL, &late, NULL), ABOX_TASK_FINISHED);
	cr_assert_eq(run(late, "k"), ABOX_E_ALREADY);
	cr_assert_eq(outside_count("k"), 1);
	cr_assert_eq(abox_task_get_outcome(late, &text, NULL), 0);
	cr_assert_str_eq(text, "the outcome");
	abox_free(text);
	abox_task_unref(late);
	open = test_control(journal, "open", 0, NULL);
	cr_assert_eq(run(open, "o"), ABOX_EFFECT_COMMITTED);
	cr_assert_eq(outside_count("o"), 1);
	cr_assert_eq(abox_effect_list(journal, NULL, 0, &json, NULL), 0);
	cr_assert_not_null(strstr(json, "\"key\":\"o\""));
	abox_free(json);
	abox_task_unref(open);
	abox_journal_unref(journal);
	cr_assert(test_verify());
}

/* ---- processes that stop ---- */

static int stopped_after_sending(void *userdata)
{
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);
	abox_effect *effect = dispatch(task, "k");

	if (!effect)
		return 1;
	outside_happen("k");
	if (write(*(int *)userdata, "x", 1) != 1)
		return 2;
	raise(SIGSTOP);
	return abox_effect_finish(effect, ABOX_DONE_COMMITTED, NULL, NULL) == ABOX_EFFECT_COMMITTED ? 0 : 3;
}

/* Stopped after the first byte while another takes over: in progress, and its outcome is welcome later (effects 5). */
Test(world, waits_for_the_stopped)
{
	struct abox_effect_options options;
	abox_effect *effect = NULL;
	abox_journal *journal;
	abox_task *task;
	int fds[2], pid, status;
	char c;

	cr_assert_eq(pipe(fds), 0);
	pid = test_start(stopped_after_sending, &fds[1]);
	cr_assert_eq(read(fds[0], &c, 1), 1);
	usleep(50000);
	journal = test_open();
	task = test_control(journal, "job", ABOX_TAKEOVER_FENCE, &status);
	cr_assert_eq(status, ABOX_TASK_RUNNING);
	test_options(&options, ABOX_EFFECT_OPAQUE, "k", "target", "body");
	cr_assert_eq(abox_effect_run(task, &options, do_it, NULL, NULL, &effect, NULL), ABOX_E_IN_PROGRESS);
	kill(pid, SIGCONT);
	cr_assert_eq(test_join(pid, 10), 0);
	cr_assert_eq(abox_effect_run(task, &options, do_it, NULL, NULL, &effect, NULL), ABOX_EFFECT_COMMITTED);
	cr_assert_eq(abox_effect_get_replayed(effect), 1);
	cr_assert_eq(outside_count("k"), 1);
	abox_effect_unref(effect);
	abox_task_unref(task);
	abox_journal_unref(journal);
}

static int holds_the_executor(void *userdata)
{
	usleep(400000);
	return 0;
}

/* A process that shares the executor lock keeps the effect in progress after its owner died (effects 0.8, 1.7). */
static int owner_with_helper(void *userdata)
{
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);
	int pid;

	if (!dispatch(task, "k"))
		return 1;
	pid = test_start(holds_the_executor, NULL);	/* inherits the descriptor, as egress does */
	if (pid < 0 || write(*(int *)userdata, "x", 1) != 1)
		return 2;
	raise(SIGKILL);
	return 3;
}

Test(world, counts_the_lock_and_not_the_owner)
{
	struct abox_effect_options options;
	abox_effect *effect = NULL;
	abox_error *error = NULL;
	abox_journal *journal;
	abox_task *task;
	int fds[2], pid, status;
	char c, id[64];

	cr_assert_eq(pipe(fds), 0);
	pid = test_start(owner_with_helper, &fds[1]);
	cr_assert_eq(read(fds[0], &c, 1), 1);
	cr_assert_eq(test_join(pid, 10), -SIGKILL);
	journal = test_open();
	task = test_control(journal, "job", ABOX_TAKEOVER_FENCE, &status);
	cr_assert_not_null(task);
	test_options(&options, ABOX_EFFECT_OPAQUE, "k", "target", "body");
	cr_assert_eq(abox_effect_begin(task, &options, &effect, &error), ABOX_E_IN_PROGRESS);
	snprintf(id, sizeof(id), "%s", abox_error_get_place(error) + strlen("effect "));
	abox_error_free(error);
	cr_assert_eq(abox_effect_wait(journal, id, 10000000, NULL), ABOX_EFFECT_UNKNOWN);
	abox_task_unref(task);
	abox_journal_unref(journal);
}

static int takes_what_was_released(void *userdata)
{
	abox_journal *journal = test_open();
	abox_task *task = NULL;

	if (abox_task_open(journal, "job", NULL, &task, NULL) != ABOX_TASK_RUNNING)
		return 1;
	return run(task, "k") == ABOX_EFFECT_COMMITTED ? 0 : 2;
}

/* A handle that is let go before the dispatch can be taken by a helper, though the owner lives (effects 1.6). */
Test(world, releases_what_was_only_intended)
{
	struct abox_effect_options options;
	abox_effect *effect = NULL;
	abox_journal *journal = test_open();
	abox_task *task = test_control(journal, "job", 0, NULL);

	test_options(&options, ABOX_EFFECT_OPAQUE, "k", "target", "body");
	cr_assert_eq(abox_effect_begin(task, &options, &effect, NULL), ABOX_BEGIN_GO);
	cr_assert_eq(test_child(takes_what_was_released, NULL), 2, "while it is held it is in progress");
	abox_effect_unref(effect);
	cr_assert_eq(test_child(takes_what_was_released, NULL), 0);
	cr_assert_eq(outside_count("k"), 1);
	abox_task_unref(task);
	abox_journal_unref(journal);
}
