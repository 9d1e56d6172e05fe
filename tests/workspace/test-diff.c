/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/path.h"
#include "base/strings.h"
#include "support.h"
#include "workspace/changes.h"
#include "workspace/content.h"

static struct scene scene;
static int low = -EBADF, top = -EBADF;
static struct view_layer layers[2];
static const struct view now = {layers, 2}, was = {layers + 1, 1};
static abox_changes *changes;
static abox_error *error;

static void set_up(void)
{
	cr_assert_eq(scene_begin(&scene), 0);
	low = make_root(&scene, "low");
	top = make_root(&scene, "top");
	cr_assert(low >= 0 && top >= 0);
	layers[0] = (struct view_layer){top, VIEW_USER};
	layers[1] = (struct view_layer){low, VIEW_PLAIN};
}

static void tear_down(void)
{
	changes = abox_changes_unref(changes);
	error = abox_error_free(error);
	fd_close(low);
	fd_close(top);
	scene_end(&scene);
}

static void compare(void)
{
	int r;

	changes = abox_changes_unref(changes);
	r = changes_between(&now, &was, &changes, &error);
	cr_assert_eq(r, 0, "%s: %s", abox_error_get_place(error), abox_error_get_message(error));
}

/* "A path" lines of the summary, without what follows the blank line. */
static bool summary_is(const char *wanted)
{
	_cleanup_(freep) char *text = NULL;
	char *end;

	if (abox_changes_format(changes, &text) < 0)
		return false;
	end = strstr(text, "\n\n");
	if (end)
		end[1] = 0;
	else
		text[0] = 0;
	if (strcmp(text, wanted) == 0)
		return true;
	fprintf(stderr, "wanted:\n%sgot:\n%s", wanted, text);
	return false;
}

static const char *risk_of(const char *path)
{
	for (size_t i = 0; i < changes->n_items; i++)
		if (strcmp(changes->items[i].path, path) == 0)
			return changes->items[i].risks[0] ? changes->items[i].risks[0] : "";
	return "(not listed)";
}

/* Each kind of change is listed once, and what was only copied up is not. */
Test(diff, lists_each_kind, .init = set_up, .fini = tear_down)
{
	put(low, "d/same", "same");
	put(low, "d/changed", "one\n");
	put(low, "gone", "g");
	put(low, "mode", "m");
	put(low, "type", "t");
	put(low, "old-name", "moved content");
	put_link(low, "link", "here");
	put(low, "deep/a/b", "x");
	put(top, "d/same", "same");
	put(top, "d/changed", "two\n");
	put(top, "d/new", "n");
	put_whiteout(top, "gone");
	put_whiteout(top, "never-was");
	put_mode(top, "mode", "m", 0755);
	put_link(top, "type", "elsewhere");
	put_whiteout(top, "old-name");
	put(top, "new-name", "moved content");
	put_link(top, "link", "there");
	put_whiteout(top, "deep");
	put_dir(top, "empty");
	compare();
	cr_expect(summary_is("M  d/changed\n"
			     "A  d/new\n"
			     "D  deep/\n"
			     "D  deep/a/\n"
			     "D  deep/a/b\n"
			     "A  empty/\n"
			     "D  gone\n"
			     "M  link  (to there)\n"
			     "P  mode  (mode 0755, was 0644)\n"
			     "R  old-name -> new-name\n"
			     "T  type  (link, was file)  (mode 0777, was 0644)  (to elsewhere)\n"));
}

/* A folder that was removed and made again holds only what is new. */
Test(diff, sees_through_opaque_folders, .init = set_up, .fini = tear_down)
{
	put(low, "d/old", "o");
	put(low, "d/kept", "k");
	put_opaque(top, "d");
	put(top, "d/new", "n");
	put(top, "d/kept", "k");
	compare();
	cr_expect(summary_is("A  d/new\nD  d/old\n"));
}

/* The cost is that of the changes: folders that only the base has are not read. */
Test(diff, does_not_read_the_base, .init = set_up, .fini = tear_down)
{
	put(low, "locked/file", "l");
	put(low, "d/file", "l");
	put(top, "d/file", "changed");
	cr_assert_eq(fchmodat(low, "locked", 0, 0), 0);
	compare();
	cr_expect(summary_is("M  d/file\n"));
	cr_assert_eq(fchmodat(low, "locked", 0755, 0), 0);
}

/* The digest follows the content, not times or the layer it lies in; the dump is JSON and holds it. */
Test(diff, digest_names_the_content, .init = set_up, .fini = tear_down)
{
	_cleanup_(freep) char *json = NULL;
	_cleanup_(json_unrefp) struct json *tree = NULL;
	const struct json_bounds bounds = {1 << 20, 16, ABOX_STAGE_WORKSPACE};
	char first[65], text[65];
	const char *array;

	put(low, "a", "1");
	put(top, "a", "2");
	put(top, "z \"quoted\"", "3");
	compare();
	strcpy(first, abox_changes_get_digest(changes));
	utimensat(top, "a", (struct timespec[]){{1, 0}, {1, 0}}, 0);
	compare();
	cr_expect_str_eq(first, abox_changes_get_digest(changes));
	cr_assert_eq(abox_changes_dump(changes, &json), 0);
	cr_assert_eq(json_parse(json, strlen(json), &bounds, &tree, &error), 0);
	cr_expect_str_eq(json_text(json_at(tree, "/digest")), first);
	cr_expect_str_eq(json_text(json_at(tree, "/changes/1/path")), "z \"quoted\"");
	array = strstr(json, "\"changes\":") + strlen("\"changes\":");
	cr_assert_eq(digest_sha256_text(array, strlen(array) - 1, text), 0);
	cr_expect_str_eq(text, first);
	put(top, "a", "4");
	compare();
	cr_expect_str_neq(first, abox_changes_get_digest(changes));
}

/* What would run on the host is named, with the keys of a git config but never their values (T3-1, T3-2,
 * T3-4). */
Test(diff, names_what_would_run_on_the_host, .init = set_up, .fini = tear_down)
{
	_cleanup_(freep) char *text = NULL;

	put(low, ".git/HEAD", "ref: refs/heads/main\n");
	put(top, ".git/config",
		"[core]\n\tfsmonitor = touch /tmp/PWNED\n\tbare = false\n[filter \"x\"]\n clean = "
		"secret-value\n"
		"[alias] s = !sh\n");
	put_mode(top, ".git/hooks/post-checkout", "#!/bin/sh\n", 0755);
	put(top, "sub/HEAD", "ref: refs/heads/main\n");
	put(top, "sub/config", "[core]\nhooksPath = x\n");
	put(top, "deep/.vscode/tasks.json", "{}");
	put(top, ".envrc", "x");
	put(top, "w/.git", "gitdir: /elsewhere\n");
	put_mode(top, "tool", "x", 0755);
	put_link(top, "out", "../../etc/passwd");
	put_link(top, "d/in", "../plain");
	put(top, "plain", "x");
	put(top, ".some/hooks/x", "x");
	compare();
	cr_expect_str_eq(risk_of(".git/config"), "git-config");
	cr_expect_str_eq(risk_of(".git/hooks/post-checkout"), "git-hook");
	cr_expect_str_eq(risk_of("sub/HEAD"), "bare-repository");
	cr_expect_str_eq(risk_of("sub/config"), "bare-repository");
	cr_expect_str_eq(risk_of("deep/.vscode/tasks.json"), "editor-task");
	cr_expect_str_eq(risk_of(".envrc"), "shell-start");
	cr_expect_str_eq(risk_of("w/.git"), "git-link");
	cr_expect_str_eq(risk_of("tool"), "executable");
	cr_expect_str_eq(risk_of("out"), "link-outside");
	cr_expect_str_eq(risk_of("d/in"), "");
	cr_expect_str_eq(risk_of("plain"), "");
	cr_expect_str_eq(risk_of(".some/hooks/x"), "agent-config");
	cr_assert_eq(abox_changes_format(changes, &text), 0);
	cr_expect(strstr(text, "core.fsmonitor, filter.x.clean, alias.s"), "%s", text);
	cr_expect_not(strstr(text, "secret-value"));
	cr_expect_not(strstr(text, "core.bare"));
}

/* Odd names and a fifo neither stop nor blind the comparison, nor does the terminal get a control byte. */
Test(diff, stands_odd_names_and_fifos, .init = set_up, .fini = tear_down, .timeout = 10)
{
	_cleanup_(freep) char *json = NULL, *text = NULL;
	struct abox_change change = {.size = sizeof(change)};

	put(top, "\xff\n\t\x1b[31m", "x");
	put(top, ".wh.x", "x");
	cr_assert_eq(mkfifoat(top, "README.md", 0644), 0);
	compare();
	cr_assert_eq(abox_changes_get_count(changes), 3);
	cr_assert_eq(abox_changes_get(changes, 2, &change), 0);
	cr_expect_str_eq(change.path, "\xff\n\t\x1b[31m");
	cr_assert_eq(abox_changes_get(changes, 1, &change), 0);
	cr_expect_eq(change.type, ABOX_FILE_FIFO);
	cr_expect_eq(abox_changes_get(changes, 3, &change), ABOX_E_NOT_FOUND);
	cr_assert_eq(abox_changes_dump(changes, &json), 0);
	cr_expect(strstr(json, "\\udcff\\u000a\\u0009\\u001b[31m"));
	cr_assert_eq(abox_changes_format(changes, &text), 0);
	cr_expect_not(strchr(text, '\x1b'));
}

/* 8 TiB of holes are compared at once, and one byte at the far end is seen. */
Test(diff, passes_over_holes, .init = set_up, .fini = tear_down, .timeout = 10)
{
	char digest[65];
	int fd;

	put(top, "big", "");
	fd = openat(top, "big", O_RDWR);
	cr_assert_eq(ftruncate(fd, (off_t)8 << 40), 0);
	compare();
	cr_assert_eq(changes->items[0].now.size_bytes, (uint64_t)8 << 40);
	strcpy(digest, changes->items[0].now.digest);
	cr_assert_eq(pwrite(fd, "x", 1, ((off_t)8 << 40) - 1), 1);
	compare();
	cr_expect_str_neq(digest, changes->items[0].now.digest);
	close(fd);
}

/* Part of a set is a set: chosen paths with the folders they need, and a digest of its own. */
Test(diff, selects_by_pattern, .init = set_up, .fini = tear_down)
{
	const char *patterns[] = {"a/b/**", "x", NULL}, *bad[] = {"../x", NULL};
	abox_changes *chosen = NULL;

	put(top, "a/b/c", "1");
	put(top, "a/d", "1");
	put(top, "x", "1");
	put(top, "y", "1");
	compare();
	cr_assert_eq(changes_select(changes, patterns, &chosen, &error), 0);
	abox_changes_unref(changes);
	changes = chosen;
	cr_expect(summary_is("A  a/\nA  a/b/\nA  a/b/c\nA  x\n"));
	cr_expect_eq(changes_select(changes, bad, &chosen, &error), ABOX_E_INVALID);
}

static int git(int dir_fd, const char *arguments)
{
	char command[512];
	int status;

	snprintf(command, sizeof(command),
		"cd /proc/self/fd/%d && HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null "
		"GIT_CEILING_DIRECTORIES=/ "
		"GIT_DIR=/nonexistent git %s",
		dir_fd, arguments);
	status = system(command);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Writes the patch, copies the base, lets git apply it there, and compares with the new tree. Modes but for
 * the executable bit are not part of a patch. */
static void apply_by_git(const char *what)
{
	_cleanup_(freep) char *wanted = NULL, *got = NULL;
	char command[256];
	int fd, copy_fd, r;

	fd = openat(scene.fd, "patch", O_RDWR | O_CREAT | O_TRUNC, 0644);
	r = patch_write(changes, &now, &was, fd, &error);
	cr_assert_eq(r, 0, "%s: %s: %s", what, abox_error_get_place(error), abox_error_get_message(error));
	close(fd);
	snprintf(command, sizeof(command), "rm -rf %s/copy && cp -a %s/low %s/copy", scene.path, scene.path,
		scene.path);
	cr_assert_eq(system(command), 0);
	copy_fd = openat(scene.fd, "copy", O_RDONLY | O_DIRECTORY);
	cr_assert(
		changes->n_items == 0 || git(copy_fd, "apply --whitespace=nowarn ../patch") == 0, "%s", what);
	wanted = list_view(&now);
	got = list_tree(copy_fd);
	close(copy_fd);
	cr_assert_str_eq(got, wanted, "%s", what);
}

/* The patch gives git what the box has: text, binary, links, renames, modes, odd names, no newline at the
 * end. */
Test(patch, is_taken_by_git, .init = set_up, .fini = tear_down, .timeout = 60)
{
	put(low, "text", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm\nn\n");
	put(low, "no-newline", "x");
	put(low, "gone", "g\n");
	put(low, "bin", "");
	put(low, "mode", "m\n");
	put(low, "to-link", "t\n");
	put_link(low, "link", "here");
	put(low, "old name", "some content that moves\n");
	put(low, "empty-to-full", "");
	put(top, "text", "a\nB\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm\nn\no\n");
	put(top, "no-newline", "x\ny");
	put_whiteout(top, "gone");
	put_mode(top, "mode", "m\n", 0755);
	put_link(top, "link", "there");
	put_link(top, "to-link", "text");
	put_whiteout(top, "old name");
	put_mode(top, "dir/new \xc3\xa4 \"name\"\\", "some content that moves\n", 0755);
	put(top, "empty-to-full", "full\n");
	put(top, "empty", "");
	put(top, "sp ace/f ile", "x\n");
	put(top, "bin", "");
	{
		char bytes[70000];
		uint64_t state = 7;
		int fd = openat(top, "bin", O_WRONLY);

		for (size_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = (char)random_next(&state);
		cr_assert_eq(fd_write_all(fd, bytes, sizeof(bytes)), 0);
		close(fd);
	}
	compare();
	apply_by_git("all kinds");
}

static void random_text(uint64_t *state, char *text, size_t size)
{
	size_t n = random_next(state) % 40, used = 0;

	text[0] = 0;
	for (size_t i = 0; i < n && used + 4 < size; i++) {
		text[used++] = (char)('a' + random_next(state) % 5);
		if (random_next(state) % 8)
			text[used++] = '\n';
	}
	text[used] = 0;
}

/* Random trees and edits: git and the set agree on each. */
Test(patch, random_edits_are_taken_by_git, .init = set_up, .fini = tear_down, .timeout = 300)
{
	uint64_t seed = getenv("ABOX_TEST_SEED") ? strtoull(getenv("ABOX_TEST_SEED"), NULL, 0) : 1;
	int n = getenv("ABOX_TEST_LONG") ? 300 : 25;

	for (int round = 0; round < n; round++) {
		uint64_t state = seed + (uint64_t)round;
		char text[128], path[16], what[64];

		fd_close(low);
		fd_close(top);
		cr_assert(path_remove_tree(scene.fd, "low") == 0 && path_remove_tree(scene.fd, "top") == 0);
		low = layers[1].root_fd = make_root(&scene, "low");
		top = layers[0].root_fd = make_root(&scene, "top");
		for (int i = 0; i < 30; i++) {
			bool folder = random_next(&state) % 2;

			snprintf(path, sizeof(path), folder ? "%c/%c" : "%c%c",
				'a' + (int)(random_next(&state) % 4), 'A' + (int)(random_next(&state) % 4));
			random_text(&state, text, sizeof(text));
			put_mode(i < 15 ? low : top, path, text, random_next(&state) % 4 ? 0644 : 0755);
			if (i >= 15 && random_next(&state) % 4 == 0) {
				snprintf(path, sizeof(path), "%c/%c", 'a' + (int)(random_next(&state) % 4),
					'A' + (int)(random_next(&state) % 4));
				put_whiteout(top, path);
			}
		}
		compare();
		snprintf(what, sizeof(what), "seed %llu",
			(unsigned long long)seed + (unsigned long long)round);
		/* git removes folders that become empty; ours stay: a comparison needs none of those. */
		for (char c = 'a'; c <= 'd'; c++) {
			char name[8] = {c, '/', 'k', 0};

			put(low, name, "keeps the folder\n");
		}
		compare();
		apply_by_git(what);
	}
}
