/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/strings.h"
#include "support.h"
#include "workspace/apply.h"

static struct scene scene;
static int low = -EBADF, top = -EBADF, journal = -EBADF;
static char target_path[128];
static struct view_layer layers[2];
static const struct view now = {layers, 2}, was = {layers + 1, 1};
static abox_changes *changes;
static abox_error *error;
static char *report;
static struct apply_options options;

static int make_folder(const char *name)
{
	int fd;

	if (mkdirat(scene.fd, name, 0755) < 0)
		return -errno;
	fd = openat(scene.fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static void make_trees(void)
{
	low = make_folder("low");
	top = make_folder("top");
	journal = make_folder("journal");
	layers[0] = (struct view_layer){top, VIEW_USER};
	layers[1] = (struct view_layer){low, VIEW_PLAIN};
}

static void set_up_in(const char *directory)
{
	cr_assert_eq(scene_begin_in(&scene, directory), 0);
	snprintf(target_path, sizeof(target_path), "%s/low", scene.path);
	options = (struct apply_options){.owner_uid = UINT32_MAX, .owner_gid = UINT32_MAX};
	make_trees();
	cr_assert(low >= 0 && top >= 0 && journal >= 0);
}

static void set_up(void)
{
	set_up_in("/tmp");
}

/* Where a sync costs nothing, so that a random moment is as likely between two steps as anywhere. */
static void set_up_in_memory(void)
{
	set_up_in("/dev/shm");
}

static void clear_trees(void)
{
	fd_close(low);
	fd_close(top);
	fd_close(journal);
	path_remove_tree(scene.fd, "low");
	path_remove_tree(scene.fd, "top");
	path_remove_tree(scene.fd, "journal");
}

static void tear_down(void)
{
	changes = abox_changes_unref(changes);
	error = abox_error_free(error);
	free(report);
	report = NULL;
	clear_trees();
	scene_end(&scene);
}

static void compare(void)
{
	changes = abox_changes_unref(changes);
	cr_assert_eq(changes_between(&now, &was, &changes, &error), 0);
}

static int apply(void)
{
	error = abox_error_free(error);
	free(report);
	report = NULL;
	return apply_changes(changes, &now, target_path, low, journal, &options, &report, &error);
}

/* Nothing of ours is in the target or the journal. */
static bool is_clean(void)
{
	_cleanup_(freep) char *list = list_tree(low);

	return !strstr(list, ".agentbox-apply") && !there(journal, "steps") && !there(journal, "commit");
}

/* Every kind of change arrives, with modes, and a second comparison finds nothing. */
Test(apply, brings_every_kind, .init = set_up, .fini = tear_down)
{
	_cleanup_(freep) char *wanted = NULL, *got = NULL;

	put(low, "d/changed", "one\n");
	put(low, "gone", "g");
	put(low, "mode", "m");
	put(low, "to-link", "t");
	put(low, "to-folder", "t");
	put(low, "to-file/a/b", "t");
	put(low, "dir/a/b", "x");
	put_link(low, "link", "here");
	put_mode(top, "d/changed", "two\n", 0640);
	put(top, "d/new", "n");
	put_whiteout(top, "gone");
	put_mode(top, "mode", "m", 0755);
	put_link(top, "to-link", "elsewhere");
	put(top, "to-folder/x/y", "t");
	put(top, "to-file", "f");
	put_whiteout(top, "dir");
	put_link(top, "link", "there");
	put(top, "read-only/file", "r");
	cr_assert_eq(fchmodat(top, "read-only", 0555, 0), 0);
	put_dir(top, "empty");
	cr_assert_eq(mkfifoat(top, "fifo", 0600), 0);
	compare();
	wanted = list_view(&now);
	cr_assert_eq(apply(), 0, "%s: %s", abox_error_get_place(error), abox_error_get_message(error));
	got = list_tree(low);
	cr_expect_str_eq(got, wanted);
	cr_expect(is_clean());
	cr_expect(strstr(report, "\"drift\":[],\"skipped\":[],\"kept\":[]"), "%s", report);
	compare();
	cr_expect_eq(changes->n_items, 0);
	fchmodat(top, "read-only", 0755, 0);
	fchmodat(low, "read-only", 0755, 0);
}

/* What would run on the host is refused until it is accepted; set-user-id never arrives. */
Test(apply, refuses_what_would_run, .init = set_up, .fini = tear_down)
{
	put(top, "a", "x");
	put_mode(top, ".git/hooks/post-checkout", "#!/bin/sh\n", 0755);
	put_mode(top, "suid", "x", 04755);
	compare();
	cr_expect_eq(apply(), ABOX_E_DENIED);
	cr_expect_str_eq(abox_error_get_place(error), ".git/hooks/post-checkout");
	cr_expect_not(there(low, "a"));
	options.flags = APPLY_ACCEPT_RISKY;
	cr_assert_eq(apply(), 0);
	cr_expect(there(low, ".git/hooks/post-checkout"));
	cr_expect_eq(mode_of(low, "suid") & 07777, 0755);
}

/* A source that is no longer what the set says is refused with a list, and nothing is touched. */
Test(apply, refuses_drift, .init = set_up, .fini = tear_down)
{
	_cleanup_(freep) char *before = NULL, *after = NULL;

	put(low, "a", "old");
	put(low, "b", "old");
	put(low, "c", "old");
	put(top, "a", "new");
	put_whiteout(top, "b");
	put_mode(top, "c", "old", 0755);
	put(top, "d", "new");
	put(top, "fine", "new");
	compare();
	put(low, "a", "of another");
	put(low, "b", "of another");
	fchmodat(low, "c", 0600, 0);
	put(low, "d", "of another");
	before = list_tree(low);
	cr_expect_eq(apply(), ABOX_E_CONFLICT);
	after = list_tree(low);
	cr_expect_str_eq(before, after);
	cr_expect(is_clean());
	options.flags = APPLY_DRY_RUN;
	cr_assert_eq(apply(), 0);
	cr_expect(strstr(report, "{\"path\":\"a\",\"reason\":\"has other content\"}"), "%s", report);
	cr_expect(strstr(report, "{\"path\":\"b\",\"reason\":\"has other content\"}"), "%s", report);
	cr_expect(strstr(report, "{\"path\":\"c\",\"reason\":\"has another mode\"}"), "%s", report);
	cr_expect(strstr(report, "{\"path\":\"d\",\"reason\":\"is there now\"}"), "%s", report);
	cr_expect_not(strstr(report, "fine"));
	cr_expect_not(there(low, "fine"));
	options.flags = APPLY_ACCEPT_DRIFT;
	cr_assert_eq(apply(), 0, "%s", abox_error_get_message(error));
	cr_expect_str_eq(get(low, "a"), "new");
	cr_expect_str_eq(get(low, "d"), "new");
}

/* A file that was touched after the base was taken has drifted even with the same bytes; our own applies are
 * known. */
Test(apply, knows_its_own_writes_from_those_of_others, .init = set_up, .fini = tear_down)
{
	struct timespec since;

	put(low, "a", "one");
	put(low, "b", "one");
	usleep(20000);
	clock_gettime(CLOCK_REALTIME_COARSE, &since);
	options.has_since = true;
	options.since_sec = since.tv_sec;
	options.since_nsec = (uint32_t)since.tv_nsec;
	usleep(20000);
	put(top, "a", "two");
	compare();
	cr_assert_eq(apply(), 0, "%s", abox_error_get_message(error));
	put(top, "a", "three");
	compare();
	cr_assert_eq(apply(), 0, "%s", abox_error_get_message(error));
	cr_expect_str_eq(get(low, "a"), "three");
	put(low, "b", "one"); /* somebody else wrote the same again */
	put(top, "b", "two");
	compare();
	cr_expect_eq(apply(), ABOX_E_CONFLICT);
	cr_expect_str_eq(abox_error_get_place(error), "b");
}

/* A link in the place of a folder of the source leads nowhere: nothing is written outside of the target. */
Test(apply, never_follows_links, .init = set_up, .fini = tear_down)
{
	int outside = make_folder("outside");

	put(low, "d/file", "old");
	put(top, "d/file", "new");
	put(top, "d/other", "new");
	compare();
	path_remove_tree(low, "d");
	put(outside, "file", "old");
	put_link(low, "d", "../outside");
	options.flags = APPLY_ACCEPT_DRIFT;
	cr_expect_lt(apply(), 0);
	cr_expect_str_eq(get(outside, "file"), "old");
	cr_expect_not(there(outside, "other"));
	cr_expect(is_clean());
	close(outside);
}

/* A folder that goes keeps what the set does not know. */
Test(apply, keeps_folders_with_foreign_files, .init = set_up, .fini = tear_down)
{
	put(low, "d/known", "k");
	put_whiteout(top, "d");
	compare();
	put(low, "d/foreign", "f");
	cr_assert_eq(apply(), 0, "%s", abox_error_get_message(error));
	cr_expect_not(there(low, "d/known"));
	cr_expect_str_eq(get(low, "d/foreign"), "f");
	cr_expect(strstr(report, "\"kept\":[\"d\"]"), "%s", report);
}

/* A set that was made before the workspace went on is refused: it says what is applied. */
Test(apply, refuses_a_stale_set, .init = set_up, .fini = tear_down)
{
	put(low, "a", "old");
	put(top, "a", "new");
	compare();
	put(top, "a", "newer");
	cr_expect_eq(apply(), ABOX_E_CONFLICT);
	cr_expect_str_eq(get(low, "a"), "old");
	cr_expect(is_clean());
}

/* Owner's own attributes and a long, deep path survive. */
Test(apply, keeps_attributes_and_depth, .init = set_up, .fini = tear_down)
{
	char value[8] = "", deep[6100] = "";
	int fd;

	put(low, "a", "old");
	fd = openat(low, "a", O_RDONLY);
	cr_assert_eq(fsetxattr(fd, "user.note", "kept", 4, 0), 0);
	close(fd);
	put(top, "a", "new");
	fd = openat(top, ".", O_RDONLY | O_DIRECTORY);
	for (int i = 0; i < 60; i++) {
		char name[101];
		int next;

		memset(name, 'a' + i % 26, 100);
		name[100] = 0;
		mkdirat(fd, name, 0755);
		next = openat(fd, name, O_RDONLY | O_DIRECTORY);
		close(fd);
		fd = next;
		strcat(deep, name);
		strcat(deep, "/");
	}
	put(fd, "end", "deep");
	close(fd);
	compare();
	cr_assert_eq(changes->n_items, 62);
	cr_assert_eq(apply(), 0, "%s", abox_error_get_message(error));
	fd = openat(low, "a", O_RDONLY);
	cr_expect_eq(fgetxattr(fd, "user.note", value, sizeof(value)), 4);
	close(fd);
	compare();
	cr_expect_eq(changes->n_items, 0);
}

static void random_path(uint64_t *state, char *ret)
{
	int parts = 1 + (int)(random_next(state) % 3);

	ret[0] = 0;
	for (int i = 0; i < parts; i++) {
		char part[8];

		snprintf(part, sizeof(part), "%s%c", i ? "/" : "", 'a' + (int)(random_next(state) % 5));
		strcat(ret, part);
	}
}

static void random_trees(uint64_t *state, int n)
{
	char path[32], other[32];

	for (int i = 0; i < n; i++) {
		int fd = i < n / 2 ? low : top;

		random_path(state, path);
		random_path(state, other);
		switch (random_next(state) % 8) {
		case 0:
			put_dir(fd, path);
			break;
		case 1:
			put_link(fd, path, other);
			break;
		case 2:
			if (i >= n / 2)
				put_whiteout(fd, path);
			break;
		case 3:
			if (i >= n / 2)
				put_opaque(fd, path);
			break;
		default:
			put_mode(fd, path, other, random_next(state) % 3 ? 0644 : 0755);
			break;
		}
	}
}

static unsigned long long first_seed(void)
{
	return getenv("ABOX_TEST_SEED") ? strtoull(getenv("ABOX_TEST_SEED"), NULL, 0) : 1;
}

/* Random trees: what was applied is what the box had. */
Test(apply, random_sets_arrive_whole, .init = set_up, .fini = tear_down, .timeout = 300)
{
	int n = getenv("ABOX_TEST_LONG") ? 1000 : 60;

	options.flags = APPLY_ACCEPT_RISKY;
	for (int i = 0; i < n; i++) {
		_cleanup_(freep) char *wanted = NULL, *got = NULL;
		uint64_t state = first_seed() + (uint64_t)i;

		clear_trees();
		make_trees();
		random_trees(&state, 60);
		compare();
		wanted = list_view(&now);
		cr_assert_eq(apply(), 0, "seed %llu: %s: %s", first_seed() + (unsigned)i,
			abox_error_get_place(error), abox_error_get_message(error));
		got = list_tree(low);
		cr_assert_str_eq(got, wanted, "seed %llu", first_seed() + (unsigned)i);
		cr_assert(is_clean());
	}
}

/* kill -9 at a random moment: after recovery the folder is as before or as wanted, never a mix, and nothing
 * is left. */
Test(apply, survives_being_killed, .init = set_up_in_memory, .fini = tear_down, .timeout = 600)
{
	int n = getenv("ABOX_TEST_LONG") ? 200 : 20, n_old = 0, n_new = 0;
	uint64_t usual = 4000;

	options.flags = APPLY_ACCEPT_RISKY;
	for (int i = 0; i < n; i++) {
		_cleanup_(freep) char *before = NULL, *wanted = NULL, *got = NULL;
		uint64_t state = first_seed() * 1000 + (uint64_t)i, began;
		unsigned long long seed = first_seed() * 1000 + (unsigned)i;
		int status, r;
		pid_t pid;

		clear_trees();
		make_trees();
		random_trees(&state, 400);
		compare();
		before = list_tree(low);
		wanted = list_view(&now);
		began = clock_monotonic_usec();
		pid = fork();
		if (pid == 0) {
			alarm(60);
			_exit(apply() == 0 ? 0 : 1);
		}
		cr_assert_gt(pid, 0);
		if (i > 0) {
			usleep(random_next(&state) % (unsigned)(usual * 12 / 10));
			kill(pid, SIGKILL);
		}
		cr_assert_eq(waitpid(pid, &status, 0), pid);
		if (i == 0) /* the first runs through and tells how long it takes */
			usual = clock_monotonic_usec() - began;
		r = apply_recover(journal, &error);
		cr_assert_geq(r, 0, "seed %llu: %s: %s", seed, abox_error_get_place(error),
			abox_error_get_message(error));
		got = list_tree(low);
		n_old += strcmp(got, before) == 0;
		n_new += strcmp(got, wanted) == 0;
		cr_assert(strcmp(got, before) == 0 || strcmp(got, wanted) == 0,
			"seed %llu:\nbefore:\n%s\nwanted:\n%s\ngot:\n%s", seed, before, wanted, got);
		cr_assert(is_clean(), "seed %llu", seed);
	}
	cr_log_info("killed %d times: %d old, %d new", n, n_old, n_new);
}
