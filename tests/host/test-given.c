/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a host gives a box: folders whose files come and go, names with odd characters, and much of
 * everything.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/support.h"

static char *folder_new(char *path, size_t size)
{
	const char *base = getenv("TMPDIR");

	snprintf(path, size, "%s/given-XXXXXX", base ? base : "/tmp");
	cr_assert_not_null(mkdtemp(path), "%s: %s", path, strerror(errno));
	chmod(path, 0755);
	return path;
}

static void put(const char *folder, const char *name, const char *text)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	cr_assert_geq(fd, 0, "%s: %s", path, strerror(errno));
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void drop(const char *folder, const char *name)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	cr_expect_eq(remove(path), 0, "%s: %s", path, strerror(errno));
}

static char *spec_of(json_t *spec)
{
	char *text = json_dumps(spec, 0);

	json_decref(spec);
	cr_assert_not_null(text);
	return text;
}

/* -- B40 -- */

struct flicker {
	char path[4096];
	atomic_bool end;
	atomic_ulong n;
};

static void *come_and_go(void *argument)
{
	struct flicker *flicker = argument;

	while (!atomic_load(&flicker->end)) {
		int fd = open(flicker->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

		if (fd >= 0)
			close(fd);
		unlink(flicker->path);
		atomic_fetch_add(&flicker->n, 1);
		usleep(200);
	}
	return NULL;
}

/* B40: files that come and go in a mounted folder and in a workspace fail no start. */
Test(given, B40_files_come_and_go, .timeout = 600)
{
	struct leaks *before = leaks_take();
	int rounds = is_long() ? 300 : 60;
	struct flicker flicker = { .n = 0 };
	char folder[1024], git[1200], *spec;
	pthread_t thread;

	folder_new(folder, sizeof(folder));
	snprintf(git, sizeof(git), "%s/.git", folder);
	cr_assert_eq(mkdir(git, 0755), 0);
	put(git, "config", "[core]\n");
	snprintf(flicker.path, sizeof(flicker.path), "%s/config.lock", git);
	spec = spec_of(json_pack("{s:i,s:[{s:s,s:s}],s:{s:{s:s,s:s},s:s}}", "version", 1, "mounts", "source",
		folder, "target", "/given", "workspace", "source", "kind", "dir", "path", folder, "mode",
		"overlay"));
	cr_assert_eq(pthread_create(&thread, NULL, come_and_go, &flicker), 0);
	for (int i = 0; i < rounds; i++) {
		abox_sandbox *box = NULL;
		int r = try_box(spec, &box), code = -1;

		cr_expect_geq(r, 0, "start %d: %s", i, abox_code_name(r));
		if (r < 0)
			break;
		r = try_run(box,
			(const char *const[]){ "cat", "/given/.git/config", "/workspace/.git/config", NULL },
			&code);
		cr_expect(r >= 0 && code == 0, "start %d: %d, exit %d", i, r, code);
		cr_expect_geq(abox_sandbox_stop(box, ABOX_STOP_CANCEL, NULL, NULL), 0);
		abox_sandbox_unref(box);
	}
	atomic_store(&flicker.end, true);
	pthread_join(thread, NULL);
	cr_expect_gt(atomic_load(&flicker.n), (unsigned long)rounds);
	drop(git, "config");
	drop(folder, ".git");
	drop(folder, "");
	free(spec);
	assert_no_leaks(before);
}

/* -- T1-10 -- */

/* A folder of the given name, written with a suffix, at the given target: its file is there, and only there.
 */
static void mount_and_look(const char *name, const char *suffix, const char *target)
{
	char base[1024], folder[2048], source[2100], path[8300], *spec;
	abox_sandbox *box = NULL;
	abox_result *result;
	int r;

	folder_new(base, sizeof(base));
	snprintf(folder, sizeof(folder), "%s/%s", base, name);
	cr_assert_eq(mkdir(folder, 0755), 0, "%s", folder);
	put(folder, "mark", "mark");
	snprintf(source, sizeof(source), "%s%s", folder, suffix);
	spec = spec_of(json_pack("{s:i,s:[{s:s,s:s}],s:{s:{s:s,s:s},s:s}}", "version", 1, "mounts", "source",
		source, "target", target, "workspace", "source", "kind", "dir", "path", source, "mode",
		"overlay"));
	r = try_box(spec, &box);
	cr_expect_geq(r, 0, "'%s' at '%s': %s", name, target, abox_code_name(r));
	if (r >= 0) {
		snprintf(path, sizeof(path), "%s/mark", target);
		result = run_words(box, "cat", path, "/workspace/mark");
		cr_expect_str_eq(output_of(result, 1), "markmark", "'%s' at '%s': %s", name, target,
			output_of(result, 2));
		abox_result_unref(result);
		/* Never at another place: the parts of the name stand alone. */
		result = run_words(box, "find", "/", "-xdev", "-maxdepth", "1", "-name", "odd*");
		cr_expect_str_eq(output_of(result, 1), "/odd\n", "'%s'", output_of(result, 1));
		abox_result_unref(result);
		result = run_words(box, "sh", "-c", "ls -A /odd | wc -l");
		cr_expect_str_eq(output_of(result, 1), "1\n", "'%s'", target);
		abox_result_unref(result);
		stop_box(box);
	}
	free(spec);
	drop(folder, "mark");
	drop(base, name);
	drop(base, "");
}

/* T1-10: what separates options of an overlay, and escapes, is part of a name like any other character. */
Test(given, T1_10_separators_in_names, .timeout = 60)
{
	struct leaks *before = leaks_take();

	mount_and_look("plain", "", "/odd/plain");
	mount_and_look("a:b", "", "/odd/a:b");
	mount_and_look("a,b=c", "", "/odd/a,b=c");
	mount_and_look("a\\b", "", "/odd/a\\b");
	mount_and_look("a\\072b", "", "/odd/a\\072b");
	mount_and_look("a b\"c'd", "", "/odd/a b\"c'd");
	mount_and_look("-o,upperdir=", "", "/odd/-o,upperdir=");
	assert_no_leaks(before);
}

/* T1-10: slashes and dots that change nothing change nothing. */
Test(given, T1_10_slashes_and_dots, .timeout = 60)
{
	mount_and_look("slash", "/", "/odd/slash/");
	mount_and_look("dots", "/.", "/odd/./dots");
	mount_and_look("twice", "//", "//odd///twice");
}

static int start_with(const char *source, const char *target)
{
	abox_sandbox *box = NULL;
	char *spec = spec_of(
		json_pack("{s:i,s:[{s:s,s:s}]}", "version", 1, "mounts", "source", source, "target", target));
	int r = try_box(spec, &box);

	free(spec);
	if (r >= 0)
		stop_box(box);
	return r;
}

/* T1-10: what cannot be a place is refused as invalid, before anything is started. */
Test(given, T1_10_impossible_names, .timeout = 60)
{
	struct leaks *before = leaks_take();
	char base[1024], folder[1200], longest[4200];

	folder_new(base, sizeof(base));
	cr_expect_geq(start_with(base, "/odd"), 0); /* the control */
	snprintf(folder, sizeof(folder), "%s/a\nb", base);
	cr_assert_eq(mkdir(folder, 0755), 0);
	cr_expect_eq(start_with(folder, "/odd"), ABOX_E_INVALID);
	cr_expect_eq(start_with(base, "/odd/a\nb"), ABOX_E_INVALID);
	cr_expect_eq(start_with(base, "/odd/../etc"), ABOX_E_INVALID);
	cr_expect_eq(start_with(base, "odd"), ABOX_E_INVALID);
	cr_expect_eq(start_with(base, ""), ABOX_E_INVALID);
	cr_expect_eq(start_with("", "/odd"), ABOX_E_INVALID);
	snprintf(folder, sizeof(folder), "%s/../..", base);
	cr_expect_eq(start_with(folder, "/odd"), ABOX_E_INVALID);
	memset(longest, 'a', sizeof(longest));
	for (size_t i = 0; i < sizeof(longest); i += 200)
		longest[i] = '/';
	longest[4096] = 0;
	cr_expect_eq(start_with(base, longest), ABOX_E_INVALID);
	longest[4095] = 0;
	cr_log_info("4095 bytes: %s", abox_code_name(start_with(base, longest)));
	longest[3000] = 0;
	cr_expect_geq(start_with(base, longest), 0, "3000 bytes");
	drop(base, "a\nb");
	drop(base, "");
	assert_no_leaks(before);
}

/* -- B42 -- */

#define MANY 20000

/* B42: more mounts than a spec takes are refused as what they are; as many as it takes work. */
Test(given, B42_many_mounts, .timeout = 120)
{
	struct leaks *before = leaks_take();
	char base[1024], target[64], *text;
	int wanted[] = { 250, MANY };
	abox_sandbox *box = NULL;
	abox_result *result;
	int answers[2];

	folder_new(base, sizeof(base));
	for (int k = 0; k < 2; k++) {
		json_t *mounts = json_array();

		for (int i = 0; i < wanted[k]; i++) {
			snprintf(target, sizeof(target), "/many/%d", i);
			json_array_append_new(
				mounts, json_pack("{s:s,s:s}", "source", base, "target", target));
		}
		text = spec_of(json_pack("{s:i,s:o}", "version", 1, "mounts", mounts));
		answers[k] = try_box(text, &box);
		free(text);
		if (k == 0 && answers[k] >= 0) {
			result = run_words(box, "sh", "-c", "ls /many | wc -l");
			cr_expect_str_eq(output_of(result, 1), "250\n");
			abox_result_unref(result);
			stop_box(box);
		}
	}
	cr_expect_geq(answers[0], 0, "%s", abox_code_name(answers[0]));
	cr_log_info("%d mounts: %s", MANY, abox_code_name(answers[1]));
	cr_expect(
		answers[1] == ABOX_E_LIMIT || answers[1] == ABOX_E_INVALID, "%s", abox_code_name(answers[1]));
	drop(base, "");
	assert_no_leaks(before);
}

/* B42: a spec's 1,000 variables and a command's 20,000 reach it: neither travels in the arguments of a
 * helper. */
Test(given, B42_many_variables, .timeout = 60)
{
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT,
		.argv = (const char *const[]){
			"sh", "-c", "env | grep -c ^MANY_; env | grep -c ^FEW_", NULL } };
	json_t *few = json_object();
	char **many = calloc(MANY + 1, sizeof(*many)), name[32], *text;
	abox_result *result = NULL;
	abox_error *error = NULL;
	abox_sandbox *box;
	int r;

	cr_assert_not_null(many);
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "FEW_%d", i);
		json_object_set_new(few, name, json_string("value"));
	}
	for (int i = 0; i < MANY; i++)
		cr_assert_gt(asprintf(&many[i], "MANY_%d=%d", i, i), 0);
	text = spec_of(json_pack("{s:i,s:o}", "version", 1, "env", few));
	box = box_of(text);
	options.env = (const char *const *)many;
	r = abox_command_run(box, &options, &result, &error);
	cr_assert_geq(r, 0, "%s: %s", abox_code_name(r), error ? abox_error_get_message(error) : "");
	cr_expect_str_eq(output_of(result, 1), "20000\n1000\n", "%s", output_of(result, 2));
	abox_result_unref(result);
	stop_box(box);
	for (int i = 0; i < MANY; i++)
		free(many[i]);
	free(many);
	free(text);
}

static int run_with_argument(abox_sandbox *box, size_t len, abox_result **retresult, abox_error **reterr)
{
	char *argument = malloc(len + 1);
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT };
	int r;

	cr_assert_not_null(argument);
	memset(argument, 'a', len);
	argument[len] = 0;
	options.argv = (const char *const[]){ "sh", "-c", "echo ${#1}", "sh", argument, NULL };
	r = abox_command_run(box, &options, retresult, reterr);
	free(argument);
	return r;
}

/* B42: the longest argument that the kernel takes goes through whole, one byte more is refused as too long.
 */
Test(given, B42_longest_argument, .timeout = 60)
{
	abox_sandbox *box = box_of("{}");
	abox_result *result = NULL;
	abox_error *error = NULL;
	int r;

	r = run_with_argument(box, 131071, &result, &error);
	cr_assert_geq(r, 0, "%s: %s", abox_code_name(r), error ? abox_error_get_message(error) : "");
	cr_expect_str_eq(output_of(result, 1), "131071\n");
	abox_result_unref(result);
	result = NULL;
	r = run_with_argument(box, 131072, &result, &error);
	cr_expect_eq(r, ABOX_E_LIMIT, "%s", abox_code_name(r));
	cr_expect_null(result);
	cr_assert_not_null(error);
	cr_expect(strlen(abox_error_get_message(error)) > 5, "%s", abox_error_get_message(error));
	abox_error_free(error);
	error = NULL;
	/* The box has taken no harm. */
	r = run_with_argument(box, 10, &result, &error);
	cr_assert_geq(r, 0);
	cr_expect_str_eq(output_of(result, 1), "10\n");
	abox_result_unref(result);
	stop_box(box);
}
