/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/strings.h"
#include "scene.h"
#include "workspace/layer.h"

TestSuite(chain, .timeout = 900);

static bool long_run(void)
{
	return getenv("ABOX_TEST_LONG") != NULL;
}

/* A failure is repeated with ABOX_TEST_SEED. */
static unsigned int seed_of_run(void)
{
	const char *seed = getenv("ABOX_TEST_SEED");

	return seed ? (unsigned int)strtoul(seed, NULL, 10) : (unsigned int)time(NULL);
}

/* A change that can be done in the mirror, done there, as a line for the workspace. */
static void random_line(int mirror_fd, struct text *lines)
{
	static const char *const places[] = {
		"a", "b", "d1", "d2", "d1/x", "d1/y", "d2/x", "d1/s", "d1/s/z", "c"};
	const char *place = places[rand() % ELEMENTSOF(places)];
	char line[128], *copy;

	switch (rand() % 5) {
	case 0:
	case 1:
		snprintf(line, sizeof(line), "w %s %d", place, rand() % 1000);
		break;
	case 2:
		snprintf(line, sizeof(line), "r %s", place);
		break;
	case 3:
		snprintf(line, sizeof(line), "d %s", place);
		break;
	default:
		snprintf(line, sizeof(line), "c %s %o", place, 0700 | (rand() % 8 << 3) | rand() % 8);
		break;
	}
	copy = strdup(line);
	if (write_lines(mirror_fd, copy) >= 0)
		text_printf(lines, "%s\n", line);
	free(copy);
}

static size_t chain_len(abox_workspace *workspace)
{
	struct layer_chain chain = {0};
	size_t n;

	if (layer_chain_read(workspace->home_fd, workspace->record.parent, workspace->record.flavour, &chain,
		    NULL) < 0)
		return SIZE_MAX;
	n = chain.n;
	layer_chain_clear(&chain);
	return n;
}

#define MAX_ROUNDS 200

static bool equal(const char *is, const char *wanted)
{
	if (is && wanted && strcmp(is, wanted) == 0)
		return true;
	fprintf(stderr, "--- is\n%s--- should be\n%s---\n", is ? is : "(none)\n",
		wanted ? wanted : "(none)\n");
	return false;
}

static void chain_body(struct scene *scene)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL;
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	unsigned int seed = seed_of_run(), n_rounds = long_run() ? MAX_ROUNDS : 40;
	char path[128], *json = NULL, *snapshots[MAX_ROUNDS], *texts[MAX_ROUNDS];
	abox_error *error = NULL;
	int mirror_fd;

	fprintf(stderr, "seed %u\n", seed);
	srand(seed);
	umask(022);
	CHECK(scene, put_file(scene->root_fd, "src/a", "0") == 0 &&
			     put_file(scene->root_fd, "src/d1/x", "0") == 0);
	CHECK(scene, put_file(scene->root_fd, "mirror/a", "0") == 0 &&
			     put_file(scene->root_fd, "mirror/d1/x", "0") == 0);
	mirror_fd = openat(scene->root_fd, "mirror", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(path, sizeof(path), "%s/src", scene->root);
	options.source_kind = ABOX_SOURCE_DIR;
	options.source = path;
	CALL(scene, abox_workspace_create(&options, &workspace, &error));
	for (unsigned int i = 0; i < n_rounds; i++) {
		struct text lines = TEXT_INIT;
		char *is;

		for (int k = 0; k < 6; k++)
			random_line(mirror_fd, &lines);
		CHECK(scene, in_workspace(workspace, write_lines, lines.data ? lines.data : "") == 0);
		text_clear(&lines);
		CALL(scene, abox_workspace_snapshot(workspace, NULL, &snapshots[i], &error));
		texts[i] = tree_text(mirror_fd);
		is = workspace_text(workspace, NULL);
		CHECK(scene, equal(is, texts[i]));
		free(is);
		CHECK(scene, chain_len(workspace) <= STORE_MERGE_ABOVE);
	}
	/* Snapshots from before a merge are what they were. */
	for (unsigned int i = 0; i < n_rounds; i += 7) {
		char *is = workspace_text(workspace, snapshots[i]);

		CHECK(scene, equal(is, texts[i]));
		free(is);
		CALL(scene, abox_workspace_verify(workspace, snapshots[i], &error));
	}
	/* And when all but the last are gone, so are their layers. */
	for (unsigned int i = 0; i + 1 < n_rounds; i++) {
		CALL(scene, abox_workspace_remove_snapshot(workspace, snapshots[i], &error));
		free(snapshots[i]);
	}
	CALL(scene, abox_workspace_gc(&json, &error));
	CHECK(scene, strstr(json, "\"layers\":0"));
	abox_free(json);
	json = workspace_text(workspace, snapshots[n_rounds - 1]);
	CHECK(scene, equal(json, texts[n_rounds - 1]));
	free(json);
	free(snapshots[n_rounds - 1]);
	for (unsigned int i = 0; i < n_rounds; i++)
		free(texts[i]);
	close(mirror_fd);
}

/* A long chain of random changes: after each snapshot and merge the tree is that of a plain folder with the
 * same changes, and so is each snapshot. */
Test(chain, merging_changes_nothing)
{
	scene_play(chain_body, 800);
}

/*
 * The crash loop. A child does one thing; it is killed after a random time; whatever it left is opened by the
 * parent.
 */
enum crash_kind { CRASH_SNAPSHOT, CRASH_FORK, CRASH_RESTORE, CRASH_GC, CRASH_COPY, CRASH_MERGE, N_CRASHES };

static void crash_act(struct scene *scene, enum crash_kind kind, const char *id)
{
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	abox_workspace *workspace = NULL, *other = NULL;
	char path[128];

	if (abox_workspace_open(id, &workspace, NULL) < 0)
		_exit(1);
	snprintf(path, sizeof(path), "%s/src", scene->root);
	for (;;) {
		switch (kind) {
		case CRASH_SNAPSHOT:
			(void)abox_workspace_snapshot(workspace,
				&(struct abox_snapshot_options){
					sizeof(struct abox_snapshot_options), .keep_last = 20},
				NULL, NULL);
			break;
		case CRASH_FORK:
			if (abox_workspace_fork(workspace, "first", NULL, &other, NULL) >= 0 &&
				abox_workspace_remove(abox_workspace_get_id(other), NULL) < 0)
				_exit(1);
			other = abox_workspace_unref(other);
			break;
		case CRASH_RESTORE:
			(void)abox_workspace_restore(workspace, "first", NULL);
			break;
		case CRASH_GC:
			(void)abox_workspace_snapshot(workspace, NULL, NULL, NULL);
			(void)abox_workspace_remove_snapshot(workspace, workspace->record.head, NULL);
			(void)abox_workspace_gc(NULL, NULL);
			break;
		case CRASH_COPY:
			options.source_kind = ABOX_SOURCE_DIR;
			options.mode = ABOX_WORKSPACE_COPY;
			options.source = path;
			if (abox_workspace_create(&options, &other, NULL) >= 0)
				(void)abox_workspace_remove(abox_workspace_get_id(other), NULL);
			other = abox_workspace_unref(other);
			break;
		default:
			(void)abox_workspace_snapshot(workspace,
				&(struct abox_snapshot_options){sizeof(struct abox_snapshot_options),
					.flags = ABOX_SNAPSHOT_DEFER_MERGE},
				NULL, NULL);
			(void)workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, NULL);
			(void)workspace_merge(workspace, NULL);
			workspace_unlock(workspace);
			break;
		}
	}
}

/* What a box would have written; the layers are the same whoever wrote them. */
static int fill_live(abox_workspace *workspace, unsigned int n)
{
	struct layer_stack stack = LAYER_STACK_INIT;
	char name[32];
	int fd, r;

	r = workspace_open_stack(workspace, NULL, &stack, NULL);
	if (r < 0)
		return r;
	fd = openat(stack.top_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (unsigned int i = 0; r >= 0 && i < 20; i++) {
		snprintf(name, sizeof(name), "dir/%u-%u", n, i);
		r = put_file(fd, name, name);
	}
	close(fd);
	layer_stack_clear(&stack);
	return r;
}

static bool no_left_overs(struct scene *scene)
{
	char *json = NULL;
	DIR *dir;
	int fd, n = 0;

	if (abox_workspace_gc(NULL, NULL) < 0 || abox_workspace_gc(&json, NULL) < 0)
		return false;
	fd = openat(scene->root_fd, "state/trash", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = fdopendir(fd);
	while (dir && readdir(dir))
		n++;
	closedir(dir);
	if (n != 2 || !strstr(json, "\"layers\":0") || !strstr(json, "\"unreadable\":0"))
		fprintf(stderr, "%d in the trash, %s\n", n - 2, json);
	n = n == 2 && strstr(json, "\"layers\":0") && strstr(json, "\"unreadable\":0");
	abox_free(json);
	return n;
}

static bool all_snapshots_whole(abox_workspace *workspace)
{
	abox_error *error = NULL;

	for (size_t i = 0; i < workspace->record.n_snapshots; i++) {
		char id[STORE_ID_BYTES];

		memcpy(id, workspace->record.snapshots[i].id, sizeof(id)); /* the record is read again */
		if (abox_workspace_verify(workspace, id, &error) < 0) {
			fprintf(stderr, "snapshot %zu: %s\n", i, abox_error_get_message(error));
			abox_error_free(error);
			return false;
		}
	}
	return true;
}

static void crash_body(struct scene *scene)
{
	unsigned int seed = seed_of_run(), n_points = long_run() ? 200 : 20;
	struct abox_snapshot_options first = ABOX_SNAPSHOT_OPTIONS_INIT;
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	abox_workspace *workspace = NULL;
	char id[STORE_ID_BYTES], name[32];
	abox_error *error = NULL;
	char *text;

	fprintf(stderr, "seed %u\n", seed);
	srand(seed);
	for (unsigned int i = 0; i < 30; i++) {
		snprintf(name, sizeof(name), "src/d%u/f", i);
		CHECK(scene, put_file(scene->root_fd, name, name) == 0);
	}
	CALL(scene, abox_workspace_create(&options, &workspace, &error));
	memcpy(id, abox_workspace_get_id(workspace), sizeof(id));
	CHECK(scene, fill_live(workspace, 9999) == 0);
	first.name = "first";
	CALL(scene, abox_workspace_snapshot(workspace, &first, NULL, &error));
	for (unsigned int point = 0; point < n_points; point++) {
		enum crash_kind kind = (enum crash_kind)(point % N_CRASHES);
		useconds_t after = (useconds_t)(rand() % 30000);
		int status;
		pid_t pid;

		CHECK(scene, fill_live(workspace, point) == 0);
		fflush(NULL);
		pid = fork();
		if (pid == 0)
			crash_act(scene, kind, id);
		usleep(after);
		kill(pid, SIGKILL);
		CHECK(scene, waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
		workspace = abox_workspace_unref(workspace);
		CALL(scene, abox_workspace_open(id, &workspace, &error));
		text = workspace_text(workspace, NULL);
		if (!text || !strstr(text, "\ndir/9999-19 "))
			fprintf(stderr, "seed %u point %u kind %d after %u us\n", seed, point, (int)kind,
				(unsigned int)after);
		CHECK(scene, text && strstr(text, "\ndir/9999-19 "));
		/* The change was there before and is in any state but the restored one. */
		snprintf(name, sizeof(name), "\ndir/%u-0 ", point);
		CHECK(scene, strstr(text, name) || kind == CRASH_RESTORE);
		snprintf(name, sizeof(name), "\ndir/%u-19 ", point);
		CHECK(scene, strstr(text, name) || kind == CRASH_RESTORE);
		free(text);
		CHECK(scene, all_snapshots_whole(workspace));
		CHECK(scene, no_left_overs(scene));
	}
	abox_workspace_unref(workspace);
	CALL(scene, abox_workspace_remove(id, &error));
}

/* T17-5: kill -9 in the middle of snapshot, fork, restore, gc, copy and merge: old state or new, and gc finds
 * the rest. */
Test(chain, crash_leaves_old_or_new)
{
	scene_play(crash_body, 800);
}

/* One of several processes that use the store at once; ends by itself. */
static void race_act(struct scene *scene, unsigned int who, const char *id, uint64_t until_usec)
{
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	abox_workspace *workspace = NULL, *other = NULL;
	abox_error *error = NULL;
	char path[128];
	int r = abox_workspace_open(id, &workspace, &error);

	snprintf(path, sizeof(path), "%s/src", scene->root);
	while (r >= 0 && clock_monotonic_usec() < until_usec) {
		char *snapshot = NULL;

		switch (who % 4) {
		case 0:
			r = abox_workspace_fork(workspace, "first", NULL, &other, &error);
			if (r >= 0)
				r = abox_workspace_snapshot(other, NULL, NULL, &error);
			if (r >= 0)
				r = abox_workspace_verify(other, other->record.head, &error);
			if (r >= 0)
				r = abox_workspace_remove(abox_workspace_get_id(other), &error);
			break;
		case 1:
			r = abox_workspace_gc(NULL, &error);
			break;
		case 2:
			options.source_kind = ABOX_SOURCE_DIR;
			options.mode = ABOX_WORKSPACE_COPY;
			options.source = path;
			r = abox_workspace_create(&options, &other, &error);
			if (r >= 0)
				r = abox_workspace_remove(abox_workspace_get_id(other), &error);
			break;
		default:
			r = abox_workspace_snapshot(workspace, NULL, &snapshot, &error);
			if (r >= 0)
				r = abox_workspace_remove_snapshot(workspace, snapshot, &error);
			abox_free(snapshot);
			break;
		}
		other = abox_workspace_unref(other);
	}
	if (r < 0)
		scene_fail(scene, __FILE__, __LINE__, "a process of the race", error);
	_exit(r < 0);
}

static void race_body(struct scene *scene)
{
	uint64_t until_usec = clock_monotonic_usec() + (long_run() ? 60 : 4) * USEC_PER_SEC;
	struct abox_snapshot_options first = ABOX_SNAPSHOT_OPTIONS_INIT;
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	abox_workspace *workspace = NULL;
	char id[STORE_ID_BYTES], name[32];
	abox_error *error = NULL;
	pid_t pids[5];

	for (unsigned int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "src/d%u/f", i);
		CHECK(scene, put_file(scene->root_fd, name, name) == 0);
	}
	CALL(scene, abox_workspace_create(&options, &workspace, &error));
	memcpy(id, abox_workspace_get_id(workspace), sizeof(id));
	CHECK(scene, fill_live(workspace, 1) == 0);
	first.name = "first";
	CALL(scene, abox_workspace_snapshot(workspace, &first, NULL, &error));
	fflush(NULL);
	for (unsigned int i = 0; i < ELEMENTSOF(pids); i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			race_act(scene, i, id, until_usec);
	}
	for (unsigned int i = 0; i < ELEMENTSOF(pids); i++) {
		int status;

		CHECK(scene, waitpid(pids[i], &status, 0) == pids[i] && status == 0);
	}
	CALL(scene, abox_workspace_verify(workspace, "first", &error));
	CHECK(scene, no_left_overs(scene));
	CALL(scene, abox_workspace_remove(id, &error));
	abox_workspace_unref(workspace);
}

/* Forks, snapshots, copies, removals and gc of several processes at once: no layer goes that somebody needs,
 * and none stays that nobody does. */
Test(chain, processes_share_the_store)
{
	scene_play(race_body, 300);
}
