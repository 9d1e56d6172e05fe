/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/path.h"
#include "scene.h"
#include "workspace/settle.h"

TestSuite(store, .timeout = 300);

static struct abox_workspace_options options_of(
	struct scene *scene, const char *folder, uint32_t mode, char path[128])
{
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;

	snprintf(path, 128, "%s/%s", scene->root, folder);
	options.source_kind = ABOX_SOURCE_DIR;
	options.source = path;
	options.mode = mode;
	return options;
}

static int count_in(struct scene *scene, const char *folder)
{
	char path[128];
	int fd, n = 0;
	struct stat st;

	snprintf(path, sizeof(path), "state/%s", folder);
	fd = openat(scene->root_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* Every folder has two links and one for each folder in it (ext4, tmpfs). */
	if (fd < 0 || fstat(fd, &st) < 0)
		return -1;
	n = (int)st.st_nlink - 2;
	close(fd);
	return n;
}

static bool same(char *a, char *b)
{
	bool equal = a && b && strcmp(a, b) == 0;

	if (!equal)
		fprintf(stderr, "--- is\n%s--- should be\n%s---\n", a ? a : "(none)\n", b ? b : "(none)\n");
	free(a);
	free(b);
	return equal;
}

static bool has_line(abox_workspace *workspace, const char *snapshot, const char *line, bool wanted)
{
	char *text = workspace_text(workspace, snapshot), whole[256];
	bool found;

	snprintf(whole, sizeof(whole), "\n%s", line);
	found = text && strstr(text, whole);
	if (!text || found != wanted)
		fprintf(stderr, "'%s' %s in\n%s", line, wanted ? "is not" : "is", text ? text : "(none)\n");
	free(text);
	return text && found == wanted;
}

static void names_body(struct scene *scene)
{
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	abox_workspace *first = NULL, *second = NULL;
	abox_error *error = NULL;
	char *json = NULL, id[STORE_ID_BYTES];

	options.name = "task-1";
	options.task = "t";
	CALL(scene, abox_workspace_create(&options, &first, &error));
	memcpy(id, abox_workspace_get_id(first), sizeof(id));
	REFUSED(scene, ABOX_E_EXISTS, abox_workspace_create(&options, &second, &error));
	CALL(scene, abox_workspace_open("task-1", &second, &error));
	CHECK(scene, strcmp(abox_workspace_get_id(second), id) == 0);
	second = abox_workspace_unref(second);
	CALL(scene, abox_workspace_open(id, &second, &error));
	CHECK(scene, strcmp(abox_workspace_get_name(second), "task-1") == 0);
	CALL(scene, abox_workspace_list(&json, &error));
	CHECK(scene, strstr(json, id) && strstr(json, "\"task\":\"t\""));
	abox_free(json);
	options.name = "-x";
	REFUSED(scene, ABOX_E_INVALID, abox_workspace_create(&options, &second, &error));
	options.name = id; /* a name that looks like an id could stand for another workspace */
	REFUSED(scene, ABOX_E_INVALID, abox_workspace_create(&options, &second, &error));
	REFUSED(scene, ABOX_E_INVALID, abox_workspace_open("../etc", &second, &error));
	CALL(scene, abox_workspace_remove("task-1", &error));
	REFUSED(scene, ABOX_E_NOT_FOUND, abox_workspace_open("task-1", &second, &error));
	REFUSED(scene, ABOX_E_NOT_FOUND, abox_workspace_dump(first, &json, &error));
	CHECK(scene, count_in(scene, "workspaces") == 0 && count_in(scene, "layers") == 0);
	options.name = "task-1";
	CALL(scene, abox_workspace_create(&options, &second, &error));
}

/* A name belongs to one workspace, leads to it, and is free again when it is removed; nothing stays on the
 * disk. */
Test(store, names_and_ids)
{
	scene_play(names_body, 60);
}

static void rounds_body(struct scene *scene)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL;
	struct abox_workspace_options options;
	char path[128], id[STORE_ID_BYTES], *before, *after;
	abox_error *error = NULL;
	int source;

	CHECK(scene, put_file(scene->root_fd, "src/a", "a") == 0 &&
			     put_file(scene->root_fd, "src/dir/b", "b") == 0);
	source = openat(scene->root_fd, "src", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	before = tree_text(source);
	options = options_of(scene, "src", ABOX_WORKSPACE_OVERLAY, path);
	CALL(scene, abox_workspace_create(&options, &workspace, &error));
	memcpy(id, abox_workspace_get_id(workspace), sizeof(id));
	for (int round = 0; round < 3; round++) {
		char lines[128];

		workspace = abox_workspace_unref(workspace);
		CALL(scene, abox_workspace_open(id, &workspace, &error));
		snprintf(lines, sizeof(lines), "w round-%d %d\nw a %d", round, round, round);
		CHECK(scene, in_workspace(workspace, write_lines, lines) == 0);
	}
	CHECK(scene, in_workspace(workspace, write_lines, "r dir/b") == 0);
	CHECK(scene, has_line(workspace, NULL, "round-0 100644 1 0", true));
	CHECK(scene, has_line(workspace, NULL, "round-2 100644 1 2", true));
	CHECK(scene, has_line(workspace, NULL, "a 100644 1 2", true));
	CHECK(scene, has_line(workspace, NULL, "dir/b", false));
	after = tree_text(source);
	CHECK(scene, same(after, before)); /* the source is only read */
}

/* Three rounds of write, stop and resume keep every file, and the folder below stays as it was. */
Test(store, rounds_keep_every_file)
{
	scene_play(rounds_body, 60);
}

static void generations_body(struct scene *scene, uint32_t mode, uint32_t flags)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL;
	struct abox_snapshot_options named = ABOX_SNAPSHOT_OPTIONS_INIT;
	struct abox_workspace_options options;
	abox_error *error = NULL;
	char path[128], *third = NULL;

	CHECK(scene, put_file(scene->root_fd, "src/base", "base") == 0);
	options = options_of(scene, "src", mode, path);
	options.flags = flags;
	CALL(scene, abox_workspace_create(&options, &workspace, &error));
	CHECK(scene, in_workspace(workspace, write_lines, "w A a") == 0);
	named.name = "one";
	CALL(scene, abox_workspace_snapshot(workspace, &named, NULL, &error));
	REFUSED(scene, ABOX_E_EXISTS, abox_workspace_snapshot(workspace, &named, NULL, &error));
	CHECK(scene, in_workspace(workspace, write_lines, "w B b\nr A\nr base") == 0);
	named.name = "two";
	CALL(scene, abox_workspace_snapshot(workspace, &named, NULL, &error));
	for (int i = 0; i < 2; i++) {
		CALL(scene, abox_workspace_restore(workspace, "one", &error));
		CHECK(scene, has_line(workspace, NULL, "A 100644 1 a", true));
		CHECK(scene, has_line(workspace, NULL, "base 100644 4 base", true));
		CHECK(scene, has_line(workspace, NULL, "B ", false));
		CHECK(scene, in_workspace(workspace, write_lines, "w B other\nw A changed") == 0);
	}
	CALL(scene, abox_workspace_snapshot(workspace, NULL, &third, &error));
	CHECK(scene, in_workspace(workspace, write_lines, "r B") == 0);
	CALL(scene, abox_workspace_restore(workspace, "two", &error));
	CHECK(scene, has_line(workspace, NULL, "B 100644 1 b", true));
	CHECK(scene, has_line(workspace, NULL, "A ", false));
	CHECK(scene, has_line(workspace, NULL, "base ", false));
	CALL(scene, abox_workspace_restore(workspace, third, &error));
	CHECK(scene, has_line(workspace, NULL, "B 100644 5 other", true));
	CHECK(scene, has_line(workspace, NULL, "A 100644 7 changed", true));
	CHECK(scene, has_line(workspace, "one", "A 100644 1 a", true)); /* untouched by all that came after */
	CALL(scene, abox_workspace_verify(workspace, "one", &error));
	CALL(scene, abox_workspace_verify(workspace, third, &error));
	REFUSED(scene, ABOX_E_NOT_FOUND, abox_workspace_restore(workspace, "four", &error));
	abox_free(third);
}

static void overlay_body(struct scene *scene)
{
	generations_body(scene, ABOX_WORKSPACE_OVERLAY, 0);
}
static void copy_body(struct scene *scene)
{
	generations_body(scene, ABOX_WORKSPACE_COPY, 0);
}
static void whole_body(struct scene *scene)
{
	generations_body(scene, ABOX_WORKSPACE_COPY, ABOX_WORKSPACE_NO_OVERLAY);
}

/* T17-1: three generations, each restored exactly, twice, in every mode. */
Test(store, restores_each_generation)
{
	scene_play(overlay_body, 60);
	scene_play(copy_body, 60);
	scene_play(whole_body, 60);
}

static void opaque_body(struct scene *scene)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL, *fork = NULL;
	struct abox_workspace_options options;
	abox_error *error = NULL;
	char path[128], *snapshot = NULL;

	CHECK(scene, put_file(scene->root_fd, "src/d/old", "old") == 0 &&
			     put_file(scene->root_fd, "src/e/x", "x") == 0);
	options = options_of(scene, "src", ABOX_WORKSPACE_OVERLAY, path);
	CALL(scene, abox_workspace_create(&options, &workspace, &error));
	CHECK(scene, in_workspace(workspace, write_lines, "r d\nd d\nw d/new new\nr e") == 0);
	CALL(scene, abox_workspace_snapshot(workspace, NULL, &snapshot, &error));
	CALL(scene, abox_workspace_fork(workspace, snapshot, NULL, &fork, &error));
	CHECK(scene, has_line(fork, NULL, "d/old", false));
	CHECK(scene, has_line(fork, NULL, "d/new 100644 3 new", true));
	CHECK(scene, has_line(fork, NULL, "e/", false));
	CALL(scene, abox_workspace_restore(workspace, snapshot, &error));
	CHECK(scene, has_line(workspace, NULL, "d/old", false));
	CHECK(scene, has_line(workspace, NULL, "e/", false));
	abox_free(snapshot);
}

/* T17-2, T17-3, B50: a folder that was made anew does not bring its old files back, and a deletion stays one.
 */
Test(store, deletions_survive_a_snapshot)
{
	scene_play(opaque_body, 60);
}

static void fork_body(struct scene *scene)
{
	_cleanup_(workspace_unrefp) abox_workspace *parent = NULL, *fork = NULL, *second = NULL;
	struct abox_workspace_options options;
	struct abox_workspace_options named = ABOX_WORKSPACE_OPTIONS_INIT;
	char path[128], *json = NULL, *before, *after;
	abox_error *error = NULL;

	CHECK(scene, put_file(scene->root_fd, "src/f", "f") == 0);
	options = options_of(scene, "src", ABOX_WORKSPACE_OVERLAY, path);
	options.task = "secret-task";
	CALL(scene, abox_workspace_create(&options, &parent, &error));
	CHECK(scene, in_workspace(parent, write_lines, "w g g") == 0);
	named.name = "fork";
	CALL(scene, abox_workspace_fork(parent, NULL, &named, &fork, &error));
	before = workspace_text(parent, NULL);
	CHECK(scene, in_workspace(fork, write_lines, "w g changed\nr f\nw h h") == 0);
	after = workspace_text(parent, NULL);
	CHECK(scene, same(after, before));
	CHECK(scene, in_workspace(parent, write_lines, "w only-parent p") == 0);
	CHECK(scene, has_line(fork, NULL, "only-parent", false));
	CALL(scene, abox_workspace_dump(fork, &json, &error));
	CHECK(scene, !strstr(json, "secret-task")); /* nothing of the run before */
	abox_free(json);
	CALL(scene, abox_workspace_fork(fork, NULL, NULL, &second, &error));
	CALL(scene, abox_workspace_remove(abox_workspace_get_id(parent), &error));
	CHECK(scene, has_line(second, NULL, "g 100644 7 changed", true));
	CHECK(scene, has_line(second, NULL, "h 100644 1 h", true));
	CALL(scene, abox_workspace_remove("fork", &error));
	CHECK(scene, has_line(second, NULL, "g 100644 7 changed", true));
	CHECK(scene, count_in(scene, "layers") == 3); /* g; its change; live */
	CALL(scene, abox_workspace_remove(abox_workspace_get_id(second), &error));
	CHECK(scene, count_in(scene, "layers") == 0 && count_in(scene, "workspaces") == 0);
}

/* A fork shares nothing that can change, inherits nothing but files, and outlives what it came from. */
Test(store, fork_shares_nothing_mutable)
{
	scene_play(fork_body, 60);
}

static void direct_body(struct scene *scene)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL, *fork = NULL;
	struct abox_workspace_options options;
	char path[128], *snapshot = NULL;
	abox_error *error = NULL;
	struct stat st;

	CHECK(scene, put_file(scene->root_fd, "src/f", "f") == 0);
	options = options_of(scene, "src", ABOX_WORKSPACE_DIRECT, path);
	CALL(scene, abox_workspace_create(&options, &workspace, &error));
	CHECK(scene, in_workspace(workspace, write_lines, "w g g") == 0);
	CHECK(scene, fstatat(scene->root_fd, "src/g", &st, 0) == 0);
	CALL(scene, abox_workspace_snapshot(workspace, NULL, &snapshot, &error));
	CHECK(scene, in_workspace(workspace, write_lines, "r g") == 0);
	REFUSED(scene, ABOX_E_UNSUPPORTED, abox_workspace_restore(workspace, snapshot, &error));
	CALL(scene, abox_workspace_fork(workspace, snapshot, NULL, &fork, &error));
	CHECK(scene, has_line(fork, NULL, "g 100644 1 g", true));
	CHECK(scene, in_workspace(fork, write_lines, "w f other") == 0);
	CHECK(scene, fstatat(scene->root_fd, "src/f", &st, 0) == 0 && st.st_size == 1);
	abox_free(snapshot);
}

/* Mode direct writes the folder itself; its snapshots are copies, and a fork leaves the folder alone. */
Test(store, direct_is_the_folder)
{
	scene_play(direct_body, 60);
}

static void lock_body(struct scene *scene)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL, *again = NULL, *fork = NULL;
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	char *snapshot = NULL, who[32];
	abox_error *error = NULL;
	int fd;

	CALL(scene, abox_workspace_create(&options, &workspace, &error));
	CALL(scene, abox_workspace_snapshot(workspace, NULL, &snapshot, &error));
	CALL(scene, abox_workspace_open(abox_workspace_get_id(workspace), &again, &error));
	CALL(scene, workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, &error));
	CHECK(scene, workspace_lock(again, WORKSPACE_SHARED, 1000, &error) == ABOX_E_BUSY);
	snprintf(who, sizeof(who), "process %d", (int)getpid());
	CHECK(scene, strstr(abox_error_get_message(error), who) && abox_error_get_retryable(error));
	error = abox_error_free(error);
	REFUSED(scene, ABOX_E_BUSY, abox_workspace_remove(abox_workspace_get_id(workspace), &error));
	CALL(scene,
		abox_workspace_fork(again, snapshot, NULL, &fork, &error)); /* a snapshot does not change */
	/* A helper holds it on by the duplicate, whatever the handle does. */
	fd = workspace_lock_fd(workspace);
	CHECK(scene, fd >= 0);
	workspace_unlock(workspace);
	REFUSED(scene, ABOX_E_BUSY, workspace_lock(again, WORKSPACE_SHARED, 1000, &error));
	close(fd);
	CALL(scene, workspace_lock(again, WORKSPACE_SHARED, 0, &error));
	CALL(scene, workspace_lock(workspace, WORKSPACE_SHARED, 0, &error));
	REFUSED(scene, ABOX_E_STATE, workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, &error));
	abox_free(snapshot);
}

/* One writer, or several readers; who has it is told, and a lock lives as long as its last descriptor. */
Test(store, locks_exclude)
{
	scene_play(lock_body, 60);
}

static int change_record(struct scene *scene, const char *id, const char *from, const char *to)
{
	char path[128], *text, *at, *changed;
	size_t len;
	int r;

	snprintf(path, sizeof(path), "state/workspaces/%s/workspace.json", id);
	if (file_read_text(scene->root_fd, path, 1 << 20, &text, &len) < 0)
		return -EIO;
	at = from ? strstr(text, from) : text;
	if (!at)
		return -ENOENT;
	if (asprintf(&changed, "%.*s%s%s", (int)(at - text), text, to, from ? at + strlen(from) : "") < 0)
		return -ENOMEM;
	r = put_file(scene->root_fd, path, changed);
	free(changed);
	free(text);
	return r;
}

static void damage_body(struct scene *scene)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL, *other = NULL;
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	char *json = NULL, id[STORE_ID_BYTES];
	abox_error *error = NULL;
	int n_layers;

	CALL(scene, abox_workspace_create(&options, &workspace, &error));
	memcpy(id, abox_workspace_get_id(workspace), sizeof(id));
	CALL(scene, abox_workspace_snapshot(workspace, NULL, NULL, &error));
	CALL(scene, abox_workspace_create(&options, &other, &error));
	n_layers = count_in(scene, "layers");
	CHECK(scene, change_record(scene, id, "\"format\":1", "\"format\":2") == 0);
	REFUSED(scene, ABOX_E_UNSUPPORTED, abox_workspace_dump(workspace, &json, &error));
	CHECK(scene, change_record(scene, id, "\"format\":2", "\"format\":1") == 0);
	CHECK(scene, change_record(scene, id, "\"live\":\"", "\"live\":\"../") == 0);
	REFUSED(scene, ABOX_E_DAMAGED, abox_workspace_dump(workspace, &json, &error));
	CHECK(scene, change_record(scene, id, NULL, "{") == 0);
	REFUSED(scene, ABOX_E_DAMAGED, abox_workspace_dump(workspace, &json, &error));
	/* What the damaged one leads to is not known: its layers stay. The others can be used as ever. */
	CALL(scene, abox_workspace_gc(&json, &error));
	CHECK(scene, strstr(json, "\"unreadable\":1") && count_in(scene, "layers") == n_layers);
	CALL(scene, abox_workspace_snapshot(other, NULL, NULL, &error));
	abox_free(json);
}

/* A damaged record is refused with its place, a newer one by name, and neither lets gc take a layer. */
Test(store, damage_is_refused)
{
	scene_play(damage_body, 60);
}

static void reboot_body(struct scene *scene)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL;
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	struct layer_stack stack = LAYER_STACK_INIT;
	char *snapshot = NULL;
	abox_error *error = NULL;

	CALL(scene, abox_workspace_create(&options, &workspace, &error));
	CHECK(scene, in_workspace(workspace, write_lines, "w kept k") == 0);
	CALL(scene, abox_workspace_snapshot(workspace, NULL, &snapshot, &error));
	CALL(scene, workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, &error));
	CALL(scene, workspace_begin_use(workspace, &error));
	workspace_unlock(workspace);
	/* The same life of the machine: a process died, nothing is lost. */
	CHECK(scene, has_line(workspace, NULL, "kept 100644 1 k", true));
	CALL(scene, workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, &error));
	CALL(scene, workspace_begin_use(workspace, &error));
	workspace_unlock(workspace);
	CHECK(scene, change_record(scene, abox_workspace_get_id(workspace), workspace->record.boot,
			     "another-life") == 0);
	CALL(scene, workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, &error));
	REFUSED(scene, ABOX_E_DAMAGED, workspace_open_stack(workspace, NULL, &stack, &error));
	REFUSED(scene, ABOX_E_DAMAGED, workspace_begin_use(workspace, &error));
	REFUSED(scene, ABOX_E_DAMAGED, abox_workspace_snapshot(workspace, NULL, NULL, &error));
	CALL(scene, abox_workspace_restore(workspace, snapshot, &error));
	workspace_unlock(workspace);
	CHECK(scene, has_line(workspace, NULL, "kept 100644 1 k", true));
	abox_free(snapshot);
}

/* A live layer that was not synced when the machine went down is not taken for whole; its snapshots are. */
Test(store, unsynced_layer_is_not_trusted_after_a_reboot)
{
	scene_play(reboot_body, 60);
}

static void seal_body(struct scene *scene)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL;
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	char *snapshot = NULL, path[128];
	abox_error *error = NULL;
	struct stat st;

	CALL(scene, abox_workspace_create(&options, &workspace, &error));
	CHECK(scene, in_workspace(workspace, write_lines, "w file content") == 0);
	CALL(scene, abox_workspace_snapshot(workspace, NULL, &snapshot, &error));
	CALL(scene, abox_workspace_verify(workspace, snapshot, &error));
	snprintf(path, sizeof(path), "state/layers/%s/data/file", workspace->record.parent);
	CHECK(scene, fstatat(scene->root_fd, path, &st, 0) == 0);
	CHECK(scene, put_file(scene->root_fd, path, "c0ntent") == 0);
	CHECK(scene, utimensat(scene->root_fd, path, (struct timespec[2]){st.st_atim, st.st_mtim}, 0) == 0);
	REFUSED(scene, ABOX_E_DAMAGED, abox_workspace_verify(workspace, snapshot, &error));
	CHECK(scene, put_file(scene->root_fd, path, "content") == 0);
	CHECK(scene, utimensat(scene->root_fd, path, (struct timespec[2]){st.st_atim, st.st_mtim}, 0) == 0);
	CALL(scene, abox_workspace_verify(workspace, snapshot, &error));
	abox_free(snapshot);
}

/* The seal of a snapshot tells one changed byte, even with the old time put back. */
Test(store, seal_tells_a_changed_byte)
{
	scene_play(seal_body, 60);
}

static void expiry_body(struct scene *scene)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL, *brief = NULL;
	struct abox_snapshot_options snapshot = ABOX_SNAPSHOT_OPTIONS_INIT;
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	abox_error *error = NULL;
	char *json = NULL;

	CALL(scene, abox_workspace_create(&options, &workspace, &error));
	snapshot.keep_last = 3;
	for (int i = 0; i < 6; i++) {
		char lines[32];

		snprintf(lines, sizeof(lines), "w f %d", i);
		CHECK(scene, in_workspace(workspace, write_lines, lines) == 0);
		CALL(scene, abox_workspace_snapshot(workspace, &snapshot, NULL, &error));
	}
	CHECK(scene, workspace->record.n_snapshots == 3);
	CHECK(scene, has_line(workspace, NULL, "f 100644 1 5", true));
	snapshot = (struct abox_snapshot_options)ABOX_SNAPSHOT_OPTIONS_INIT;
	snapshot.name = "brief";
	snapshot.ttl_usec = 1;
	CALL(scene, abox_workspace_snapshot(workspace, &snapshot, NULL, &error));
	options.ttl_usec = 1;
	CALL(scene, abox_workspace_create(&options, &brief, &error));
	CALL(scene, abox_workspace_gc(&json, &error));
	CHECK(scene, strstr(json, "\"workspaces\":1") && strstr(json, "\"snapshots\":1"));
	abox_free(json);
	REFUSED(scene, ABOX_E_NOT_FOUND, abox_workspace_dump(brief, &json, &error));
	CHECK(scene, has_line(workspace, NULL, "f 100644 1 5", true));
	CALL(scene, abox_workspace_gc(&json, &error));
	CHECK(scene, strstr(json, "\"layers\":0") && strstr(json, "\"left_behind\":0"));
	abox_free(json);
}

/* Only the last N snapshots stay, expired ones go, and what is in use is whole all the while. */
Test(store, expiry_and_keep_last)
{
	scene_play(expiry_body, 60);
}

static void replaced_body(struct scene *scene)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL;
	struct layer_stack stack = LAYER_STACK_INIT;
	struct abox_workspace_options options;
	abox_error *error = NULL;
	char path[128];

	CHECK(scene, put_file(scene->root_fd, "src/f", "f") == 0);
	options = options_of(scene, "src", ABOX_WORKSPACE_OVERLAY, path);
	CALL(scene, abox_workspace_create(&options, &workspace, &error));
	CHECK(scene, renameat(scene->root_fd, "src", scene->root_fd, "old") == 0);
	CHECK(scene, put_file(scene->root_fd, "src/f", "another") == 0);
	CALL(scene, workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, &error));
	REFUSED(scene, ABOX_E_STATE, workspace_open_stack(workspace, NULL, &stack, &error));
	CHECK(scene, path_remove_tree(scene->root_fd, "src") == 0);
	REFUSED(scene, ABOX_E_STATE, workspace_open_stack(workspace, NULL, &stack, &error));
	options.source = scene->root; /* which holds the store */
	REFUSED(scene, ABOX_E_DENIED, abox_workspace_create(&options, &workspace, &error));
}

/* B55: a base that is not the folder of then is refused, never taken for it. */
Test(store, replaced_base_is_refused)
{
	scene_play(replaced_body, 60);
}

static void settle_body(struct scene *scene)
{
	static const char *const scratch[] = {"tmp/**", "d/old", NULL}, *const keep[] = {"tmp/wanted", NULL};
	static const char *const never[] = {".env", NULL};
	struct scan_secret secret = {"s3cret-t0ken-value", 18};
	struct settle_policy policy = {.action = SETTLE_SNAPSHOT, .scratch = scratch, .keep = keep};
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL;
	struct abox_workspace_options options;
	struct settle_result result;
	abox_error *error = NULL;
	char path[128];

	CHECK(scene, put_file(scene->root_fd, "src/tmp/base", "base") == 0);
	CHECK(scene, put_file(scene->root_fd, "src/d/old", "old") == 0);
	options = options_of(scene, "src", ABOX_WORKSPACE_OVERLAY, path);
	CALL(scene, abox_workspace_create(&options, &workspace, &error));
	CHECK(scene, in_workspace(workspace, write_lines,
			     "w tmp/a a\nw tmp/sub/b b\nw tmp/wanted w\nr tmp/base\nr d/old\nw kept k") == 0);
	CALL(scene, workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, &error));
	CALL(scene, workspace_settle(workspace, &policy, &result, &error));
	CHECK(scene, result.snapshot[0] && result.n_pruned == 5);
	workspace_unlock(workspace);
	CHECK(scene, has_line(workspace, result.snapshot, "tmp/a", false));
	CHECK(scene, has_line(workspace, result.snapshot, "tmp/sub", false));
	CHECK(scene, has_line(workspace, result.snapshot, "tmp/wanted 100644 1 w", true));
	CHECK(scene, has_line(workspace, result.snapshot, "tmp/base 100644 4 base", true));
	CHECK(scene, has_line(workspace, result.snapshot, "d/old 100644 3 old", true));
	CHECK(scene, has_line(workspace, result.snapshot, "kept 100644 1 k", true));

	/* The gate: the path is named, the value is not, and nothing was frozen. */
	policy.gate = (struct scan_rules){.never = never, .secrets = &secret, .n_secrets = 1};
	CHECK(scene, in_workspace(workspace, write_lines, "w log/out before s3cret-t0ken-value after") == 0);
	CALL(scene, workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, &error));
	CHECK(scene, workspace_settle(workspace, &policy, &result, &error) == ABOX_E_DENIED);
	CHECK(scene, strstr(abox_error_get_place(error), "log/out"));
	CHECK(scene, !strstr(abox_error_get_message(error), "s3cret"));
	error = abox_error_free(error);
	CHECK(scene, workspace->record.n_snapshots == 1);
	workspace_unlock(workspace);
	CHECK(scene, in_workspace(workspace, write_lines, "r log\nw .env x") == 0);
	CALL(scene, workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, &error));
	REFUSED(scene, ABOX_E_DENIED, workspace_settle(workspace, &policy, &result, &error));
	policy.action = SETTLE_DISCARD;
	CALL(scene, workspace_settle(workspace, &policy, &result, &error));
	workspace_unlock(workspace);
	CHECK(scene, has_line(workspace, NULL, ".env", false));
	CHECK(scene, has_line(workspace, NULL, "kept 100644 1 k", true));
	policy.action = SETTLE_KEEP;
	CHECK(scene, in_workspace(workspace, write_lines, "w more m\nw tmp/a a") == 0);
	CALL(scene, workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, &error));
	CALL(scene, workspace_settle(workspace, &policy, &result, &error));
	workspace_unlock(workspace);
	CHECK(scene, !result.snapshot[0] && has_line(workspace, NULL, "more 100644 1 m", true));
	CHECK(scene, has_line(workspace, NULL, "tmp/a", false));
	policy.action = SETTLE_DISCARD;
	policy.is_brief = true;
	CALL(scene, workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, &error));
	CALL(scene, workspace_settle(workspace, &policy, &result, &error));
	CHECK(scene, count_in(scene, "workspaces") == 0 && count_in(scene, "layers") == 0);
}

/* Scratch does not survive, what it hid of the base shows again, the gate refuses by path, and to discard is
 * to have nothing of the run. */
Test(store, settles_by_policy)
{
	scene_play(settle_body, 60);
}

static void in_use_body(struct scene *scene)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL, *recorder = NULL, *fork = NULL;
	struct abox_workspace_options options;
	char path[128], snapshot[STORE_ID_BYTES];
	abox_error *error = NULL;
	int fd;

	CHECK(scene,
		put_file(scene->root_fd, "src/f", "f") == 0 && put_file(scene->root_fd, "src/g", "g") == 0);
	options = options_of(scene, "src", ABOX_WORKSPACE_OVERLAY, path);
	CALL(scene, abox_workspace_create(&options, &workspace, &error));
	CHECK(scene, in_workspace(workspace, write_lines, "w f changed\nr g\nd new") == 0);
	CALL(scene, workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, &error));
	fd = workspace_lock_fd(workspace);
	CALL(scene, abox_workspace_open(abox_workspace_get_id(workspace), &recorder, &error));
	REFUSED(scene, ABOX_E_INVALID,
		workspace_adopt_lock(recorder, openat(scene->root_fd, ".", O_RDONLY), &error));
	CALL(scene, workspace_adopt_lock(recorder, fd, &error));
	workspace_unlock(workspace);
	REFUSED(scene, ABOX_E_BUSY, workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, &error));
	CALL(scene, workspace_snapshot_in_use(recorder, -EBADF, NULL, snapshot, &error));
	workspace_unlock(recorder);
	CHECK(scene, in_workspace(workspace, write_lines, "w f later") == 0);
	CALL(scene, abox_workspace_fork(workspace, snapshot, NULL, &fork, &error));
	CHECK(scene, has_line(fork, NULL, "f 100644 7 changed", true));
	CHECK(scene, has_line(fork, NULL, "g ", false));
	CHECK(scene, has_line(workspace, NULL, "f 100644 5 later", true));
}

/* A helper that was given the lock takes a snapshot of layers that stay mounted. */
Test(store, snapshot_of_layers_in_use)
{
	scene_play(in_use_body, 60);
}

static void reset_body(struct scene *scene)
{
	struct settle_policy policy = {.action = SETTLE_DISCARD};
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL;
	struct abox_workspace_options options;
	struct settle_result result;
	abox_error *error = NULL;
	char path[128];

	CHECK(scene, put_file(scene->root_fd, "src/f", "f") == 0);
	options = options_of(scene, "src", ABOX_WORKSPACE_COPY, path);
	options.flags = ABOX_WORKSPACE_NO_OVERLAY;
	CALL(scene, abox_workspace_create(&options, &workspace, &error));
	CHECK(scene, in_workspace(workspace, write_lines, "w f changed\nw g g") == 0);
	CALL(scene, workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, &error));
	CALL(scene, workspace_settle(workspace, &policy, &result, &error));
	workspace_unlock(workspace);
	CHECK(scene,
		has_line(workspace, NULL, "f 100644 1 f", true) && has_line(workspace, NULL, "g", false));
	CHECK(scene, in_workspace(workspace, write_lines, "w f kept") == 0);
	CALL(scene, abox_workspace_snapshot(workspace, NULL, NULL, &error));
	CHECK(scene, in_workspace(workspace, write_lines, "w f lost") == 0);
	CALL(scene, workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, &error));
	CALL(scene, workspace_settle(workspace, &policy, &result, &error));
	workspace_unlock(workspace);
	CHECK(scene, has_line(workspace, NULL, "f 100644 4 kept", true));
}

/* Without overlay, to discard is to go back to the newest snapshot, or to the base. */
Test(store, discard_of_a_whole_tree)
{
	scene_play(reset_body, 60);
}

static void archive_body(struct scene *scene)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL, *none = NULL;
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	char command[512], path[128];
	abox_error *error = NULL;

	CHECK(scene, put_file(scene->root_fd, "src/d/f", "f") == 0);
	snprintf(command, sizeof(command),
		"cd %s && tar -czf good.tgz -C src . && tar -cPf evil.tar src ../../tmp/../etc/hostname "
		"&& echo no > text",
		scene->root);
	CHECK(scene, system(command) == 0);
	snprintf(path, sizeof(path), "%s/good.tgz", scene->root);
	options.source_kind = ABOX_SOURCE_TAR;
	options.source = path;
	CALL(scene, abox_workspace_create(&options, &workspace, &error));
	CHECK(scene, has_line(workspace, NULL, "d/f 100644 1 f", true));
	CHECK(scene, in_workspace(workspace, write_lines, "w d/f other") == 0);
	snprintf(path, sizeof(path), "%s/evil.tar", scene->root);
	CHECK(scene, abox_workspace_create(&options, &none, &error) < 0 && !none);
	error = abox_error_free(error);
	snprintf(path, sizeof(path), "%s/text", scene->root);
	CHECK(scene, abox_workspace_create(&options, &none, &error) < 0 && !none);
	error = abox_error_free(error);
	CHECK(scene, count_in(scene, "workspaces") == 1 && count_in(scene, "layers") == 2);
}

/* T2-1: a workspace from an archive; a hostile one leaves nothing behind. */
Test(store, from_an_archive)
{
	scene_play(archive_body, 60);
}

static int fill_upper(int dir_fd, const void *userdata)
{
	return write_lines(dir_fd, "w f upper\nr g\nr d\nd d\nw d/new n");
}

static void elsewhere_body(struct scene *scene)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL, *other = NULL;
	struct layer_stack stack = LAYER_STACK_INIT;
	struct layer_paths paths = {0};
	struct abox_workspace_options options;
	abox_error *error = NULL;
	char path[128], *is, *wanted;
	int fd;

	CHECK(scene,
		put_file(scene->root_fd, "src/f", "f") == 0 && put_file(scene->root_fd, "src/g", "g") == 0);
	CHECK(scene, put_file(scene->root_fd, "src/d/old", "old") == 0);
	options = options_of(scene, "src", ABOX_WORKSPACE_OVERLAY, path);
	CALL(scene, abox_workspace_create(&options, &workspace, &error));
	CALL(scene, abox_workspace_create(&options, &other, &error));
	CHECK(scene, in_workspace(workspace, write_lines, "w before b") == 0);
	/* The upper of another workspace stands for the bounded one of a box. */
	CHECK(scene, in_workspace(other, fill_upper, NULL) == 0);
	CALL(scene, workspace_lock(workspace, WORKSPACE_EXCLUSIVE, 0, &error));
	CALL(scene, workspace_push(workspace, &error));
	CALL(scene, workspace_push(workspace, &error)); /* the second has nothing to push */
	CALL(scene, workspace_open_stack(workspace, NULL, &stack, &error));
	CHECK(scene, stack.n_lowers == 2 && stack.n_base == 1 && stack.base_is_host);
	CALL(scene, layer_stack_paths(&stack, &paths, &error));
	CHECK(scene, paths.n_lowers == 2 && strstr(paths.top, workspace->record.live) && paths.work);
	CHECK(scene, strstr(paths.lowers[0], workspace->record.parent) && strcmp(paths.lowers[1], path) == 0);
	layer_paths_clear(&paths);
	layer_stack_clear(&stack);
	CALL(scene, workspace_open_stack(other, NULL, &stack, &error));
	fd = openat(stack.top_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CALL(scene, workspace_replace_live(workspace, fd, false, &error));
	layer_stack_clear(&stack);
	workspace_unlock(workspace);
	CHECK(scene, has_line(workspace, NULL, "before 100644 1 b", true));
	CHECK(scene, in_workspace(workspace, write_lines, "r before") == 0);
	is = workspace_text(workspace, NULL);
	wanted = workspace_text(other, NULL);
	CHECK(scene, same(is, wanted));
	CALL(scene, abox_workspace_snapshot(workspace, NULL, NULL, &error));
	CHECK(scene, has_line(workspace, NULL, "d/old", false));
	close(fd);
}

/* What a box wrote into an upper that lies elsewhere becomes the live layer, with its deletions. */
Test(store, takes_an_upper_from_elsewhere)
{
	scene_play(elsewhere_body, 60);
}
