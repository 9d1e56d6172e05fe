/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A journal in a folder of its own, an outside world that counts, and children that report by exit status. */
#ifndef TESTS_EFFECT_SUPPORT_H
#define TESTS_EFFECT_SUPPORT_H

#include <agentbox/effect.h>
#include <agentbox/journal.h>
#include <agentbox/task.h>

/* Makes a temporary folder; its path is below. Removed by teardown. */
extern char test_folder[];
void test_setup(void);
void test_setup_in_memory(void);	/* for loops that would wait for a disk thousands of times */
void test_teardown(void);
/* None of these assert: they are used below forks too. NULL or a negative code on failure. */
abox_journal *test_open(void);
abox_task *test_control(abox_journal *journal, const char *id, int takeover, int *retstatus);
void test_options(struct abox_effect_options *options, int effect_class, const char *key, const char *target,
	const char *body);

/* The outside world: a file to which each effect adds a line. Counted across processes and crashes. */
void outside_happen(const char *line);
int outside_count(const char *line);	/* NULL: all */

/* Runs fn in a forked child and waits, bounded: its answer (0..100), -signal, or -1000 when it took too long. */
int test_child(int (*fn)(void *userdata), void *userdata);
int test_start(int (*fn)(void *userdata), void *userdata);	/* pid */
int test_join(int pid, unsigned int seconds);
int test_long(void);	/* 1 with ABOX_TEST_LONG */
/* 1 when the journal verifies. */
int test_verify(void);

#endif
