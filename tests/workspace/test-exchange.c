/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <agentbox/change.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "scene.h"
#include "workspace/apply.h"

static int create(struct scene *scene, const char *source, uint32_t mode, uint32_t flags,
	abox_workspace **ret, abox_error **reterr)
{
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", scene->root, source);
	options.source_kind = ABOX_SOURCE_DIR;
	options.source = path;
	options.mode = mode;
	options.flags = flags;
	return abox_workspace_create(&options, ret, reterr);
}

/* Runs a command in the scene's folder; its exit status. */
static int shell(struct scene *scene, const char *command)
{
	char line[1024];
	int status;

	snprintf(line, sizeof(line),
		"cd %s && export HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a "
		"GIT_AUTHOR_EMAIL=a@b.test "
		"GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.test; %s",
		scene->root, command);
	status = system(line);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static char *text_of(struct scene *scene, const char *name)
{
	char *text = NULL;
	size_t len;

	return file_read_text(scene->root_fd, name, 1 << 20, &text, &len) < 0 ? NULL : text;
}

static void play_workflow(struct scene *scene)
{
	static const char lines[] = "w src/a.c int a(void);\nw src/new.c int n(void);\nr src/gone.c\nm "
				    "README docs\nw .git/HEAD x\n";
	abox_workspace *workspace = NULL;
	abox_changes *changes = NULL, *wanted = NULL;
	abox_error *error = NULL;
	const char *const patterns[] = {"src/**", "docs", "README", NULL};
	struct abox_diff_options options = ABOX_DIFF_OPTIONS_INIT;
	struct abox_change change = {.size = sizeof(change)};
	char *report = NULL, *status;
	int fd;

	CHECK(scene,
		shell(scene,
			"mkdir src && cd src && git init -q . && mkdir src && echo 'int b(void);' > src/a.c "
			"&& "
			"echo g > src/gone.c && echo read > README && git add -A && git commit -qm one") ==
			0);
	CALL(scene, create(scene, "src", ABOX_WORKSPACE_OVERLAY, 0, &workspace, &error));
	CALL(scene, abox_workspace_diff(workspace, NULL, &changes, &error));
	CHECK(scene, abox_changes_get_count(changes) == 0);
	changes = abox_changes_unref(changes);
	CHECK(scene, in_workspace(workspace, write_lines, lines) == 0);
	CALL(scene, abox_workspace_diff(workspace, NULL, &changes, &error));
	CHECK(scene, abox_changes_get_count(changes) == 6);
	CALL(scene, abox_changes_get(changes, 0, &change));
	CHECK(scene, strcmp(change.path, ".git/HEAD") == 0 && change.kind == ABOX_CHANGE_MODIFIED);
	CALL(scene, abox_changes_select(changes, patterns, &wanted, &error));
	CHECK(scene, abox_changes_get_count(wanted) == 5);
	/* git takes the patch of the same set, and says what apply says */
	fd = openat(scene->root_fd, "patch", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	CALL(scene, abox_workspace_patch(workspace, &options, wanted, fd, &error));
	close(fd);
	CHECK(scene, shell(scene, "git -C src apply ../patch && git -C src add -A && git -C src status "
				  "--short > by-git && "
				  "git -C src reset -q --hard && git -C src clean -fdq") == 0);
	/* git has touched what it wrote: the source has drifted, by time, though it is what it was */
	REFUSED(scene, ABOX_E_CONFLICT, abox_workspace_apply(workspace, wanted, NULL, &report, &error));
	CHECK(scene, report == NULL);
	abox_workspace_unref(workspace);
	CALL(scene, create(scene, "src", ABOX_WORKSPACE_OVERLAY, 0, &workspace, &error));
	CHECK(scene, in_workspace(workspace, write_lines, lines) == 0);
	abox_changes_unref(changes);
	abox_changes_unref(wanted);
	CALL(scene, abox_workspace_diff(workspace, NULL, &changes, &error));
	CALL(scene, abox_changes_select(changes, patterns, &wanted, &error));
	CALL(scene, abox_workspace_apply(workspace, wanted, NULL, &report, &error));
	CHECK(scene, strstr(report, abox_changes_get_digest(wanted)) != NULL);
	abox_free(report);
	CHECK(scene,
		shell(scene, "git -C src add -A && git -C src status --short > by-us && cmp by-git by-us") ==
			0);
	status = text_of(scene, "by-us");
	CHECK(scene, status && strcmp(status,
				       "R  README -> docs\nM  src/a.c\nD  src/gone.c\nA  src/new.c\n") == 0);
	free(status);
	/* what was left out is all that is still different, and going on works */
	changes = abox_changes_unref(changes);
	CALL(scene, abox_workspace_diff(workspace, NULL, &changes, &error));
	CHECK(scene, abox_changes_get_count(changes) == 1);
	CHECK(scene, in_workspace(workspace, write_lines, "w src/a.c int again(void);\n") == 0);
	abox_changes_unref(changes);
	abox_changes_unref(wanted);
	CALL(scene, abox_workspace_diff(workspace, NULL, &changes, &error));
	CALL(scene, abox_changes_select(changes, patterns, &wanted, &error));
	CALL(scene, abox_workspace_apply(workspace, wanted, NULL, NULL, &error));
	abox_changes_unref(changes);
	abox_changes_unref(wanted);
	abox_workspace_unref(workspace);
}

/* A repository is edited in a workspace: diff, patch and apply tell the same as git on the host. */
Test(exchange, serves_a_real_workflow, .timeout = 120)
{
	scene_play(play_workflow, 60);
}

static void play_closed(struct scene *scene)
{
	abox_workspace *workspace = NULL;
	abox_error *error = NULL;
	char path[128];
	int fd;

	CHECK(scene, put_file(scene->root_fd, "source/d/base", "1") == 0);
	CALL(scene, create(scene, "source", ABOX_WORKSPACE_OVERLAY, 0, &workspace, &error));
	CHECK(scene, in_workspace(workspace, write_lines, "w d/e/f text\nw g text\nc d/e/f 000\nc d/e 000\nc d 100\nc g 000\n") == 0);
	snprintf(path, sizeof(path), "%s/closed.tgz", scene->root);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	/* twice: what was lent was given back */
	for (int i = 0; i < 2; i++) {
		struct abox_change change = {.size = sizeof(change)};
		abox_changes *changes = NULL;

		CALL(scene, abox_workspace_diff(workspace, NULL, &changes, &error));
		CHECK(scene, abox_changes_get_count(changes) == 4);
		CALL(scene, abox_changes_get(changes, 0, &change));
		CHECK(scene, strcmp(change.path, "d") == 0 && (change.mode & 0777) == 0100);
		CALL(scene, abox_changes_get(changes, 2, &change));
		CHECK(scene, strcmp(change.path, "d/e/f") == 0 && (change.mode & 0777) == 0 && change.digest);
		abox_changes_unref(changes);
		CALL(scene, abox_workspace_export(workspace, NULL, fd, NULL, &error));
	}
	close(fd);
	abox_workspace_unref(workspace);
}

/* What a box closed to its own user is compared and packed all the same, and stays closed. */
Test(exchange, reads_what_is_closed, .timeout = 120)
{
	scene_play(play_closed, 60);
}

static int stop_at_once(void *userdata, uint64_t entries, uint64_t bytes)
{
	(void)bytes;
	*(uint64_t *)userdata = entries;
	return -1;
}

static int count_on(void *userdata, uint64_t entries, uint64_t bytes)
{
	(void)bytes;
	*(uint64_t *)userdata = entries;
	return 0;
}

static void play_progress(struct scene *scene)
{
	struct abox_diff_options diff = ABOX_DIFF_OPTIONS_INIT;
	struct abox_apply_options apply = ABOX_APPLY_OPTIONS_INIT;
	struct abox_export_options export = ABOX_EXPORT_OPTIONS_INIT;
	struct abox_import_options import = ABOX_IMPORT_OPTIONS_INIT;
	struct abox_artifact_options artifacts = ABOX_ARTIFACT_OPTIONS_INIT;
	static const char *const patterns[] = { "**", NULL };
	abox_workspace *workspace = NULL, *other = NULL;
	abox_changes *changes = NULL;
	abox_error *error = NULL;
	uint64_t n = 0, seen = 0;
	char path[128], *was, *is;
	int fd, source_fd;

	CHECK(scene, put_file(scene->root_fd, "source/d/base", "1") == 0);
	source_fd = openat(scene->root_fd, "source", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CALL(scene, create(scene, "source", ABOX_WORKSPACE_OVERLAY, 0, &workspace, &error));
	CHECK(scene, in_workspace(workspace, write_lines, "w d/e/f text\nw g text\n") == 0);
	snprintf(path, sizeof(path), "%s/told.tgz", scene->root);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	diff.progress = apply.progress = export.progress = import.progress = stop_at_once;
	diff.progress_userdata = apply.progress_userdata = export.progress_userdata = import.progress_userdata = &n;
	REFUSED(scene, ABOX_E_CANCELED, abox_workspace_diff(workspace, &diff, &changes, &error));
	REFUSED(scene, ABOX_E_CANCELED, abox_workspace_export(workspace, &export, fd, NULL, &error));
	CHECK(scene, ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0);
	CALL(scene, abox_workspace_diff(workspace, NULL, &changes, &error));
	was = tree_text(source_fd);
	REFUSED(scene, ABOX_E_CANCELED, abox_workspace_apply(workspace, changes, &apply, NULL, &error));
	is = tree_text(source_fd);
	CHECK(scene, was && is && strcmp(was, is) == 0);
	free(was);
	free(is);
	CALL(scene, abox_workspace_export(workspace, NULL, fd, NULL, &error));
	CHECK(scene, lseek(fd, 0, SEEK_SET) == 0);
	REFUSED(scene, ABOX_E_CANCELED, abox_workspace_import(fd, &import, &other, NULL, &error));
	REFUSED(scene, ABOX_E_CANCELED, abox_workspace_patch(workspace, &diff, changes, fd, &error));
	artifacts.patterns = patterns;
	artifacts.progress = stop_at_once;
	artifacts.progress_userdata = &n;
	snprintf(path, sizeof(path), "%s/collected", scene->root);
	REFUSED(scene, ABOX_E_CANCELED, abox_workspace_collect(workspace, &artifacts, path, NULL, &error));
	CHECK(scene, access(path, F_OK) < 0);
	/* and told without an end it goes on */
	diff.progress = apply.progress = artifacts.progress = count_on;
	artifacts.progress_userdata = &seen;
	CALL(scene, abox_workspace_collect(workspace, &artifacts, path, NULL, &error));
	CHECK(scene, seen > 0 && access(path, F_OK) == 0);
	seen = 0;
	diff.progress_userdata = &seen;
	changes = abox_changes_unref(changes);
	CALL(scene, abox_workspace_diff(workspace, &diff, &changes, &error));
	CHECK(scene, seen > 0);
	CALL(scene, abox_workspace_apply(workspace, changes, &apply, NULL, &error));
	abox_changes_unref(changes);
	abox_workspace_unref(workspace);
	close(source_fd);
	close(fd);
}

/* Diff, patch, apply, export, import and the collecting of artifacts tell how far they are, and end when they are told to, leaving nothing half done. */
Test(exchange, tells_and_ends_on_demand, .timeout = 120)
{
	scene_play(play_progress, 60);
}

static void play_since(struct scene *scene)
{
	abox_workspace *workspace = NULL, *fork = NULL;
	abox_changes *changes = NULL;
	abox_error *error = NULL;
	struct abox_diff_options options = ABOX_DIFF_OPTIONS_INIT;
	struct abox_change change = {.size = sizeof(change)};
	char *first = NULL, *second = NULL;

	CHECK(scene, put_file(scene->root_fd, "source/d/base", "1") == 0);
	CALL(scene, create(scene, "source", ABOX_WORKSPACE_OVERLAY, 0, &workspace, &error));
	CHECK(scene, in_workspace(workspace, write_lines, "w d/one 1\n") == 0);
	CALL(scene, abox_workspace_snapshot(workspace, NULL, &first, &error));
	CHECK(scene, in_workspace(workspace, write_lines, "w d/two 2\nr d/base\n") == 0);
	CALL(scene, abox_workspace_snapshot(workspace, NULL, &second, &error));
	CHECK(scene, in_workspace(workspace, write_lines, "r d\nd d\nw d/three 3\n") == 0);
	CALL(scene, abox_workspace_diff(workspace, NULL, &changes, &error));
	CHECK(scene, abox_changes_get_count(changes) == 2); /* base gone, three there */
	abox_changes_unref(changes);
	options.since = second;
	CALL(scene, abox_workspace_diff(workspace, &options, &changes, &error));
	CHECK(scene, abox_changes_get_count(changes) == 3); /* one and two gone, three there */
	abox_changes_unref(changes);
	options.since = first;
	options.snapshot = second;
	CALL(scene, abox_workspace_diff(workspace, &options, &changes, &error));
	CHECK(scene, abox_changes_get_count(changes) == 2);
	CALL(scene, abox_changes_get(changes, 0, &change));
	CHECK(scene, strcmp(change.path, "d/base") == 0 && change.kind == ABOX_CHANGE_DELETED);
	abox_changes_unref(changes);
	options.since = "none";
	REFUSED(scene, ABOX_E_NOT_FOUND, abox_workspace_diff(workspace, &options, &changes, &error));
	CALL(scene, abox_workspace_fork(workspace, first, NULL, &fork, &error));
	CALL(scene, abox_workspace_diff(fork, NULL, &changes, &error));
	CHECK(scene, abox_changes_get_count(changes) == 1);
	abox_changes_unref(changes);
	abox_free(first);
	abox_free(second);
	abox_workspace_unref(fork);
	abox_workspace_unref(workspace);
}

/* Snapshots are compared with each other, with the present and with the beginning; folders made anew hide the
 * old. */
Test(exchange, compares_snapshots, .timeout = 120)
{
	scene_play(play_since, 60);
}

static void play_copies(struct scene *scene)
{
	static const uint32_t flags[] = {0, ABOX_WORKSPACE_NO_OVERLAY};
	abox_error *error = NULL;

	CHECK(scene, put_file(scene->root_fd, "source/a", "1") == 0 &&
			     put_file(scene->root_fd, "source/b", "1") == 0);
	for (size_t i = 0; i < 2; i++) {
		abox_workspace *workspace = NULL;
		abox_changes *changes = NULL;
		const char *line = i == 0 ? "w a 2\nr b\nw c 1\n" : "w a 3\nw c 1\n";

		CALL(scene, create(scene, "source", ABOX_WORKSPACE_COPY, flags[i], &workspace, &error));
		CHECK(scene, in_workspace(workspace, write_lines, line) == 0);
		CALL(scene, abox_workspace_diff(workspace, NULL, &changes, &error));
		CHECK(scene, abox_changes_get_count(changes) == (i == 0 ? 3 : 1));
		CALL(scene, abox_workspace_apply(workspace, changes, NULL, NULL, &error));
		abox_changes_unref(changes);
		abox_workspace_unref(workspace);
		/* the second round starts from what the first has applied */
		if (i == 0)
			CHECK(scene, faccessat(scene->root_fd, "source/b", F_OK, 0) < 0);
	}
}

/* A copy of the folder, with overlay or without, is compared and applied all the same. */
Test(exchange, works_on_copies, .timeout = 120)
{
	scene_play(play_copies, 60);
}

static void play_bundles(struct scene *scene)
{
	struct abox_export_options export = ABOX_EXPORT_OPTIONS_INIT;
	struct abox_import_options import = ABOX_IMPORT_OPTIONS_INIT;
	const struct abox_secret secrets[] = {{"correct horse", 13}};
	abox_workspace *workspace = NULL, *again = NULL, *tar = NULL;
	abox_error *error = NULL;
	char *report = NULL, *list = NULL, *a, *b;
	int fd;

	CHECK(scene, put_file(scene->root_fd, "source/d/base", "1") == 0);
	CALL(scene, create(scene, "source", ABOX_WORKSPACE_OVERLAY, 0, &workspace, &error));
	CHECK(scene,
		in_workspace(workspace, write_lines, "w d/new 1\nl d/new link\ns /etc/passwd soft\n") == 0);
	fd = openat(scene->root_fd, "one.tgz", O_RDWR | O_CREAT, 0600);
	CALL(scene, abox_workspace_export(workspace, NULL, fd, &report, &error));
	CHECK(scene, strstr(report, "\"n_lost\":0,\"lost\":[]}"));
	CHECK(scene, lseek(fd, 0, SEEK_SET) == 0);
	import.name = "again";
	CALL(scene, abox_workspace_import(fd, &import, &again, NULL, &error));
	close(fd);
	a = workspace_text(workspace, NULL);
	b = workspace_text(again, NULL);
	CHECK(scene, a && b && strcmp(a, b) == 0);
	free(a);
	free(b);
	fd = openat(scene->root_fd, "two.tgz", O_RDWR | O_CREAT, 0600);
	CALL(scene, abox_workspace_export(again, NULL, fd, NULL, &error));
	close(fd);
	CHECK(scene, shell(scene, "cmp one.tgz two.tgz") == 0);
	/* the gate */
	CHECK(scene, in_workspace(workspace, write_lines, "w leak this is the correct horse\n") == 0);
	export.secrets = secrets;
	export.n_secrets = 1;
	fd = openat(scene->root_fd, "leak.tgz", O_RDWR | O_CREAT, 0600);
	REFUSED(scene, ABOX_E_DENIED, abox_workspace_export(workspace, &export, fd, NULL, &error));
	close(fd);
	/* a tar of another program, and one that is refused: no workspace is left of it */
	CHECK(scene, shell(scene, "tar -cf plain.tar source && tar -cPf bad.tar /etc/hostname") == 0);
	fd = openat(scene->root_fd, "plain.tar", O_RDONLY);
	REFUSED(scene, ABOX_E_DAMAGED, abox_workspace_import(fd, NULL, &tar, NULL, &error));
	CHECK(scene, lseek(fd, 0, SEEK_SET) == 0);
	import.name = "tar";
	import.flags = ABOX_IMPORT_ANY;
	CALL(scene, abox_workspace_import(fd, &import, &tar, NULL, &error));
	close(fd);
	abox_workspace_unref(tar);
	fd = openat(scene->root_fd, "bad.tar", O_RDONLY);
	import.name = "bad";
	REFUSED(scene, ABOX_E_ESCAPE, abox_workspace_import(fd, &import, &tar, NULL, &error));
	close(fd);
	CALL(scene, abox_workspace_list(&list, &error));
	CHECK(scene, !strstr(list, "\"bad\"") && strstr(list, "\"tar\""));
	abox_free(list);
	abox_free(report);
	abox_workspace_unref(again);
	abox_workspace_unref(workspace);
}

/* A workspace goes out and comes in again, byte for byte; what may not leave or come in leaves nothing
 * behind. */
Test(exchange, exports_and_imports, .timeout = 120)
{
	scene_play(play_bundles, 60);
}

static void play_killed_import(struct scene *scene)
{
	int n = getenv("ABOX_TEST_LONG") ? 200 : 20;
	uint64_t state = getenv("ABOX_TEST_SEED") ? strtoull(getenv("ABOX_TEST_SEED"), NULL, 0) : 1,
		 usual = 20000;
	abox_error *error = NULL;

	CHECK(scene, shell(scene, "mkdir t && cd t && for i in $(seq 200); do echo $i > f$i; done && tar -cf "
				  "../t.tar .") == 0);
	for (int i = 0; i < n; i++) {
		uint64_t began = clock_monotonic_usec();
		char *list = NULL, *text;
		pid_t pid = fork();
		int status;

		if (pid == 0) {
			struct abox_import_options import = ABOX_IMPORT_OPTIONS_INIT;
			abox_workspace *workspace;

			import.flags = ABOX_IMPORT_ANY;
			import.name = "new";
			_exit(abox_workspace_import(openat(scene->root_fd, "t.tar", O_RDONLY), &import,
				      &workspace, NULL, NULL) < 0);
		}
		state = state * 6364136223846793005ULL + 1442695040888963407ULL;
		if (i > 0) {
			usleep((useconds_t)((state >> 33) % (usual * 12 / 10)));
			kill(pid, SIGKILL);
		}
		CHECK(scene, waitpid(pid, &status, 0) == pid);
		if (i == 0)
			usual = clock_monotonic_usec() - began;
		CALL(scene, abox_workspace_list(&list, &error));
		if (strstr(list, "\"new\"")) {
			abox_workspace *workspace;

			CALL(scene, abox_workspace_open("new", &workspace, &error));
			text = workspace_text(workspace, NULL);
			CHECK(scene, text && strstr(text, "f200") && strstr(text, "f1 "));
			free(text);
			abox_workspace_unref(workspace);
			CALL(scene, abox_workspace_remove("new", &error));
		}
		abox_free(list);
		CALL(scene, abox_workspace_gc(NULL, &error));
		CHECK(scene, shell(scene, "test -z \"$(find . -path '*layers/*' -type f)\"") == 0);
	}
}

/* kill -9 in the middle of an import: the workspace is there whole or not at all, and gc finds the rest. */
Test(exchange, import_survives_being_killed, .timeout = 600)
{
	scene_play(play_killed_import, 300);
}

static void play_artifacts(struct scene *scene)
{
	static const char *const patterns[] = {"dist/**", "report.xml", NULL}, *const never[] = {
										       "dist/*.key", NULL};
	static const char *const escaping[] = {"../*", NULL};
	struct abox_artifact_options options = ABOX_ARTIFACT_OPTIONS_INIT;
	const struct abox_secret secrets[] = {{"correct horse", 13}};
	abox_workspace *workspace = NULL;
	abox_error *error = NULL;
	char *json = NULL, *text, folder[512], huge[20001];
	struct stat st;

	memset(huge, 'h', sizeof(huge) - 1);
	huge[sizeof(huge) - 1] = 0;
	CHECK(scene, put_file(scene->root_fd, "source/dist/old", "base") == 0);
	CHECK(scene, put_file(scene->root_fd, "source/dist/huge", huge) == 0);
	CHECK(scene, put_file(scene->root_fd, "shadow", "of the host") == 0);
	CALL(scene, create(scene, "source", ABOX_WORKSPACE_OVERLAY, 0, &workspace, &error));
	snprintf(folder, sizeof(folder),
		"s %s/shadow dist/link\nw dist/sub/tool run\nc dist/sub/tool 4755\nw other x\n"
		"w report.xml ok\ns %s dist/sub/up\n",
		scene->root, scene->root);
	CHECK(scene, in_workspace(workspace, write_lines, folder) == 0);
	snprintf(folder, sizeof(folder), "%s/out", scene->root);
	options.patterns = patterns;
	options.never = never;
	options.secrets = secrets;
	options.n_secrets = 1;
	options.max_file_bytes = 10000;
	options.task = "task-1";
	CALL(scene, abox_workspace_collect(workspace, &options, folder, &json, &error));
	CHECK(scene, strstr(json, "\"task\":\"task-1\"") &&
			     strstr(json, "{\"path\":\"dist/link\",\"reason\":\"a link\"}"));
	CHECK(scene, strstr(json, "{\"path\":\"dist/huge\",\"reason\":\"too long\"}"));
	CHECK(scene, strstr(json, "\"path\":\"dist/sub/tool\"") && strstr(json, "\"n_left_out\":3}"));
	text = text_of(scene, "out/artifacts.json");
	CHECK(scene, text && strcmp(text, json) == 0);
	free(text);
	text = text_of(scene, "out/files/dist/old");
	CHECK(scene, text && strcmp(text, "base") == 0);
	free(text);
	CHECK(scene, fstatat(scene->root_fd, "out/files/dist/sub/tool", &st, 0) == 0 &&
			     (st.st_mode & 07777) == 0755);
	CHECK(scene, fstatat(scene->root_fd, "out/files/dist/link", &st, AT_SYMLINK_NOFOLLOW) < 0);
	CHECK(scene, fstatat(scene->root_fd, "out/files/other", &st, AT_SYMLINK_NOFOLLOW) < 0);
	REFUSED(scene, ABOX_E_EXISTS, abox_workspace_collect(workspace, &options, folder, NULL, &error));
	snprintf(folder, sizeof(folder), "%s/none", scene->root);
	options.patterns = escaping;
	REFUSED(scene, ABOX_E_INVALID, abox_workspace_collect(workspace, &options, folder, NULL, &error));
	options.patterns = patterns;
	CHECK(scene, in_workspace(workspace, write_lines, "w dist/leak the correct horse\n") == 0);
	REFUSED(scene, ABOX_E_DENIED, abox_workspace_collect(workspace, &options, folder, NULL, &error));
	CHECK(scene, in_workspace(workspace, write_lines, "r dist/leak\nw dist/x.key k\n") == 0);
	REFUSED(scene, ABOX_E_DENIED, abox_workspace_collect(workspace, &options, folder, NULL, &error));
	CHECK(scene, shell(scene, "test -z \"$(ls -A | grep none)\"") == 0);
	abox_free(json);
	abox_workspace_unref(workspace);
}

/* T2-14: results come out as regular files of the workspace, never by a planted link, with caps and the gate.
 */
Test(exchange, collects_artifacts, .timeout = 120)
{
	scene_play(play_artifacts, 60);
}
