/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Many boxes: one after the other, and at once. Nothing is left behind, and no descriptor of the host either.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

static unsigned open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

/* T5-6: boxes one after the other leave no folder, group, mount, descriptor, process or socket. */
Test(many, T5_6_one_after_the_other, .timeout = 600)
{
	struct leaks *before = leaks_take();
	unsigned fds = open_descriptors();
	int rounds = am_root() ? 1000 : 100;

	for (int i = 0; i < rounds; i++) {
		abox_sandbox *box = box_of("{}");
		abox_result *result = run_words(box, "true");

		cr_assert_eq(abox_result_get_exit_code(result), 0);
		abox_result_unref(result);
		stop_box(box);
	}
	cr_expect_eq(open_descriptors(), fds);
	assert_no_leaks(before);
}

/* Two hundred boxes live at once, each answers, and all go. */
Test(many, two_hundred_at_once, .timeout = 300)
{
	enum { N = 200 };
	struct leaks *before = leaks_take();
	int n = am_root() ? N : N / 4;
	abox_sandbox *boxes[N];

	for (int i = 0; i < n; i++)
		boxes[i] = box_of("{}");
	for (int i = 0; i < n; i++) {
		char word[16], expected[16];
		abox_result *result;

		snprintf(word, sizeof(word), "%d", i);
		snprintf(expected, sizeof(expected), "%d\n", i);
		result = run_words(boxes[i], "echo", word);
		cr_assert_str_eq(output_of(result, 1), expected);
		abox_result_unref(result);
	}
	for (int i = 0; i < n; i++)
		stop_box(boxes[i]);
	assert_no_leaks(before);
}

/* Boxes whose handle is let go without a stop are gone as well: on_owner_death is stop. */
Test(many, letting_go_is_enough, .timeout = 60)
{
	struct leaks *before = leaks_take();

	for (int i = 0; i < 20; i++)
		abox_sandbox_unref(box_of("{}"));
	assert_no_leaks(before);
}
