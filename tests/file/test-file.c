/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Files from outside: the same calls with the same answers on a running box and on workspaces at rest.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "places.h"

TestSuite(file, .timeout = 300);

static const char lines[] = "w README.md hello\nw src/main.c int main;\nd empty\ns README.md link\ns src/main.c deep-link\n";

#define BEGIN(scene, kind, place)                                                                            \
	abox_error *error = NULL;                                                                            \
	int begin_r = place_begin(scene, kind, lines, place, &error);                                        \
	if (begin_r < 0) {                                                                                   \
		scene_fail(scene, __FILE__, __LINE__, place_names[kind], error);                             \
		return;                                                                                      \
	}

static bool text_is(abox_files *files, const char *path, const char *wanted)
{
	char *text = place_text(files, path);
	bool is = text && strcmp(text, wanted) == 0;

	if (!is)
		fprintf(stderr, "%s is '%s', not '%s'\n", path, text ? text : "(nothing)", wanted);
	abox_free(text);
	return is;
}

static int type_of(abox_files *files, const char *path)
{
	struct abox_file_entry entry = ABOX_FILE_ENTRY_INIT;

	return abox_files_stat(files, path, ABOX_FILE_NO_FOLLOW, &entry, NULL) < 0 ? ABOX_FILE_NONE : entry.type;
}

static void read_and_stat(struct scene *scene, struct place *place)
{
	struct abox_file_entry entry = ABOX_FILE_ENTRY_INIT;
	abox_error *error = NULL;
	char *data = NULL;
	size_t len = 0;

	CHECK(scene, text_is(place->files, "README.md", "hello"));
	CHECK(scene, text_is(place->files, "link", "hello"));
	CHECK(scene, text_is(place->files, "./src//main.c", "int main;"));
	CALL(scene, abox_files_stat(place->files, "link", ABOX_FILE_NO_FOLLOW, &entry, &error));
	CHECK(scene, entry.type == ABOX_FILE_LINK && strcmp(entry.target, "README.md") == 0);
	CALL(scene, abox_files_stat(place->files, "link", 0, &entry, &error));
	CHECK(scene, entry.type == ABOX_FILE_REGULAR && entry.size_bytes == 5 && !entry.target);
	CALL(scene, abox_files_stat(place->files, "", 0, &entry, &error));
	CHECK(scene, entry.type == ABOX_FILE_FOLDER);
	REFUSED(scene, ABOX_E_NOT_FOUND, abox_files_stat(place->files, "none", 0, &entry, &error));
	REFUSED(scene, ABOX_E_NOT_FOUND, abox_files_read(place->files, "README.md/x", 0, 0, &data, &len, &error));
	REFUSED(scene, ABOX_E_ESCAPE, abox_files_read(place->files, "../x", 0, 0, &data, &len, &error));
	REFUSED(scene, ABOX_E_ESCAPE, abox_files_read(place->files, "/etc/hostname", 0, 0, &data, &len, &error));
	REFUSED(scene, ABOX_E_LIMIT, abox_files_read(place->files, "README.md", 0, 4, &data, &len, &error));
	REFUSED(scene, ABOX_E_UNSUPPORTED, abox_files_read(place->files, "src", 0, 0, &data, &len, &error));
	REFUSED(scene, ABOX_E_UNSUPPORTED,
		abox_files_read(place->files, "link", ABOX_FILE_NO_FOLLOW, 0, &data, &len, &error));
}

static void write_and_move(struct scene *scene, struct place *place)
{
	struct abox_file_entry entry = ABOX_FILE_ENTRY_INIT;
	abox_files *files = place->files;
	abox_error *error = NULL;
	size_t len = 300000;
	char *long_text = malloc(len + 1);

	memset(long_text, 'x', len);
	long_text[len] = 0;
	CALL(scene, abox_files_write(files, "new", 0, 0600, "one", 3, &error));
	CALL(scene, abox_files_stat(files, "new", 0, &entry, &error));
	CHECK(scene, entry.mode == 0600 && entry.uid == 1000 && entry.gid == 1000);
	CALL(scene, abox_files_write(files, "new", ABOX_FILE_SYNC, UINT32_MAX, long_text, len, &error));
	CHECK(scene, text_is(files, "new", long_text));
	CALL(scene, abox_files_write(files, "new", ABOX_FILE_ATOMIC, UINT32_MAX, "two", 3, &error));
	CHECK(scene, text_is(files, "new", "two"));
	CALL(scene, abox_files_stat(files, "new", 0, &entry, &error));
	CHECK(scene, entry.mode == 0600);
	REFUSED(scene, ABOX_E_EXISTS, abox_files_write(files, "new", ABOX_FILE_NEW, 0644, "", 0, &error));
	REFUSED(scene, ABOX_E_EXISTS,
		abox_files_write(files, "new", ABOX_FILE_NEW | ABOX_FILE_ATOMIC, 0644, "", 0, &error));
	REFUSED(scene, ABOX_E_NOT_FOUND, abox_files_write(files, "a/b/c", 0, 0644, "c", 1, &error));
	CALL(scene, abox_files_write(files, "a/b/c", ABOX_FILE_PARENTS, 0644, "c", 1, &error));
	CALL(scene, abox_files_make_folder(files, "d", 0, 0750, &error));
	REFUSED(scene, ABOX_E_EXISTS, abox_files_make_folder(files, "d", 0, 0750, &error));
	CALL(scene, abox_files_make_folder(files, "d/e/f", ABOX_FILE_PARENTS, 0750, &error));
	CALL(scene, abox_files_make_folder(files, "d/e/f", ABOX_FILE_PARENTS, 0750, &error));
	/* writing through a link that stays inside; replacing the link itself */
	CALL(scene, abox_files_write(files, "link", 0, 0644, "through", 7, &error));
	CHECK(scene, text_is(files, "README.md", "through") && type_of(files, "link") == ABOX_FILE_LINK);
	CALL(scene, abox_files_write(files, "link", ABOX_FILE_ATOMIC, 0644, "instead", 7, &error));
	CHECK(scene, text_is(files, "README.md", "through") && type_of(files, "link") == ABOX_FILE_REGULAR);
	CALL(scene, abox_files_rename(files, "new", "d/newer", 0, &error));
	CHECK(scene, type_of(files, "new") == ABOX_FILE_NONE && text_is(files, "d/newer", "two"));
	REFUSED(scene, ABOX_E_EXISTS, abox_files_rename(files, "README.md", "d/newer", ABOX_FILE_NEW, &error));
	CALL(scene, abox_files_rename(files, "README.md", "d/newer", 0, &error));
	CHECK(scene, text_is(files, "d/newer", "through"));
	REFUSED(scene, ABOX_E_ESCAPE, abox_files_rename(files, "d/newer", "../out", 0, &error));
	REFUSED(scene, ABOX_E_STATE, abox_files_remove(files, "d", 0, NULL, &error));
	CALL(scene, abox_files_remove(files, "d", ABOX_FILE_RECURSIVE, NULL, &error));
	CHECK(scene, type_of(files, "d") == ABOX_FILE_NONE);
	CALL(scene, abox_files_remove(files, "deep-link", 0, NULL, &error));
	CHECK(scene, text_is(files, "src/main.c", "int main;"));
	CALL(scene, abox_files_remove(files, "empty", 0, NULL, &error));
	REFUSED(scene, ABOX_E_INVALID, abox_files_remove(files, "", ABOX_FILE_RECURSIVE, NULL, &error));
	REFUSED(scene, ABOX_E_ESCAPE, abox_files_remove(files, "src/..", ABOX_FILE_RECURSIVE, NULL, &error));
	free(long_text);
}

static void list_all(struct scene *scene, struct place *place)
{
	struct abox_file_entry entry = ABOX_FILE_ENTRY_INIT;
	abox_file_list *list = NULL;
	abox_error *error = NULL;
	char name[32], odd[] = "odd \xff\n\t\x1b*";
	int n = 0, n_odd = 0, r;

	CALL(scene, abox_files_make_folder(place->files, "many", 0, 0755, &error));
	for (int i = 0; i < 600; i++) {
		snprintf(name, sizeof(name), "many/file-%d", i);
		CALL(scene, abox_files_write(place->files, name, 0, 0644, "x", 1, &error));
	}
	snprintf(name, sizeof(name), "many/%s", odd);
	CALL(scene, abox_files_write(place->files, name, 0, 0644, "x", 1, &error));
	CALL(scene, abox_files_list(place->files, "many", &list, &error));
	while ((r = abox_file_list_next(list, &entry, &error)) > 0) {
		n += entry.type == ABOX_FILE_REGULAR && entry.size_bytes == 1;
		n_odd += strcmp(entry.name, odd) == 0;
		/* other calls come between */
		CALL(scene, abox_files_stat(place->files, "many", 0, &(struct abox_file_entry)ABOX_FILE_ENTRY_INIT, &error));
	}
	CALL(scene, r);
	CHECK(scene, n == 601 && n_odd == 1);
	abox_file_list_free(list);
	REFUSED(scene, ABOX_E_NOT_FOUND, abox_files_list(place->files, "many/file-1", &list, &error));
}

static void play_all(struct scene *scene)
{
	EACH_PLACE(scene, kind)
	{
		struct place place;

		BEGIN(scene, kind, &place);
		read_and_stat(scene, &place);
		if (!scene->failed)
			write_and_move(scene, &place);
		if (!scene->failed)
			list_all(scene, &place);
		if (!scene->failed)
			CALL(scene, abox_files_close(place.files, &error));
		REFUSED(scene, ABOX_E_STATE, abox_files_write(place.files, "x", 0, 0644, "x", 1, &error));
		if (scene->failed)
			dprintf(scene->report_fd, "in: %s\n", place_names[kind]);
		place_end(&place);
	}
}

/* Reading, writing, moving, removing, listing: the same answers everywhere, and files of the box's user. */
Test(file, is_the_same_in_boxes_and_at_rest)
{
	scene_play(play_all, 120);
}

static void play_walls(struct scene *scene)
{
	static const char *const walls[] = { "gvisor", "microvm" };

	for (size_t i = 0; i < 2; i++) {
		struct place place = { 0 };
		abox_error *error = NULL;
		char spec[64];
		int r;

		snprintf(spec, sizeof(spec), "{\"version\":1,\"backend\":\"%s\"}", walls[i]);
		r = place_box(spec, &place.box, &error);
		if (r == ABOX_E_UNAVAILABLE || r == ABOX_E_UNSUPPORTED || r == ABOX_E_NOT_FOUND) {
			fprintf(stderr, "skipped: %s: %s\n", walls[i], abox_error_get_message(error));
			abox_error_free(error);
			continue;
		}
		CALL(scene, r);
		CALL(scene, abox_files_open_sandbox(place.box, ABOX_FILES_WRITE, &place.files, &error));
		CALL(scene, abox_files_write(place.files, "README.md", 0, 0644, "hello", 5, &error));
		CALL(scene, abox_files_write(place.files, "src/main.c", ABOX_FILE_PARENTS, 0644, "int main;", 9, &error));
		CALL(scene, abox_files_make_folder(place.files, "empty", 0, 0755, &error));
		CHECK(scene, place_shell(place.box, "cd /workspace && ln -s README.md link && ln -s src/main.c deep-link") == 0);
		read_and_stat(scene, &place);
		if (!scene->failed)
			write_and_move(scene, &place);
		if (scene->failed)
			dprintf(scene->report_fd, "in: %s\n", walls[i]);
		place_end(&place);
	}
}

/* The same behind walls through which only bytes go. */
Test(file, is_the_same_behind_every_wall)
{
	scene_play_as(play_walls, 240, geteuid());
}

static void play_kept(struct scene *scene)
{
	for (enum place_kind kind = PLACE_EMPTY; kind < PLACE_DIRECT; kind++) {
		struct place place;
		abox_changes *changes = NULL;
		char *id = NULL, *text;

		BEGIN(scene, kind, &place);
		CALL(scene, abox_files_write(place.files, "README.md", 0, UINT32_MAX, "changed", 7, &error));
		CALL(scene, abox_files_remove(place.files, "src", ABOX_FILE_RECURSIVE, NULL, &error));
		CALL(scene, abox_files_close(place.files, &error));
		CALL(scene, abox_workspace_diff(place.workspace, NULL, &changes, &error));
		CHECK(scene, abox_changes_get_count(changes) == (kind == PLACE_EMPTY ? 4U : 3U));
		abox_changes_unref(changes);
		CALL(scene, abox_workspace_snapshot(place.workspace, NULL, &id, &error));
		abox_files_unref(place.files);
		/* a snapshot is read as any state, and never written */
		CALL(scene, abox_files_open_workspace(place.workspace, NULL, ABOX_FILES_WRITE, &place.files, &error));
		CALL(scene, abox_files_write(place.files, "README.md", 0, UINT32_MAX, "later", 5, &error));
		place.files = abox_files_unref(place.files);
		CALL(scene, abox_files_open_workspace(place.workspace, id, 0, &place.files, &error));
		text = place_text(place.files, "README.md");
		CHECK(scene, text && strcmp(text, "changed") == 0);
		REFUSED(scene, ABOX_E_STATE, abox_files_write(place.files, "x", 0, 0644, "", 0, &error));
		REFUSED(scene, ABOX_E_STATE, abox_files_remove(place.files, "x", 0, NULL, &error));
		abox_free(text);
		place.files = abox_files_unref(place.files);
		REFUSED(scene, ABOX_E_INVALID,
			abox_files_open_workspace(place.workspace, id, ABOX_FILES_WRITE, &place.files, &error));
		abox_free(id);
		place_end(&place);
	}
}

/* What is changed at rest is a change like any other: diff, snapshot and the next opening see it. */
Test(file, changes_at_rest_are_kept)
{
	scene_play(play_kept, 120);
}

static void play_locks(struct scene *scene)
{
	abox_files *reader = NULL, *second = NULL, *writer = NULL;
	abox_workspace *other = NULL;
	struct place place;

	BEGIN(scene, PLACE_OVERLAY, &place);
	CALL(scene, abox_workspace_open(abox_workspace_get_id(place.workspace), &other, &error));
	REFUSED(scene, ABOX_E_BUSY, abox_files_open_workspace(other, NULL, 0, &reader, &error));
	CALL(scene, abox_files_close(place.files, &error));
	CALL(scene, abox_files_open_workspace(other, NULL, 0, &reader, &error));
	CALL(scene, abox_files_open_workspace(other, NULL, 0, &second, &error));
	REFUSED(scene, ABOX_E_BUSY, abox_files_open_workspace(place.workspace, NULL, ABOX_FILES_WRITE, &writer, &error));
	abox_files_unref(reader);
	abox_files_unref(second);
	CALL(scene, abox_files_open_workspace(place.workspace, NULL, ABOX_FILES_WRITE, &writer, &error));
	abox_files_unref(writer);
	abox_workspace_unref(other);
	place_end(&place);
}

/* One writes or several read. */
Test(file, a_writer_is_alone)
{
	scene_play(play_locks, 60);
}

static void play_rights(struct scene *scene)
{
	abox_sandbox *looking = NULL, *attached = NULL;
	abox_files *files = NULL;
	struct place place;

	BEGIN(scene, PLACE_BOX, &place);
	CALL(scene, abox_sandbox_open(abox_sandbox_get_id(place.box), ABOX_OPEN_READ, &looking, &error));
	REFUSED(scene, ABOX_E_STATE, abox_files_open_sandbox(looking, ABOX_FILES_WRITE, &files, &error));
	CALL(scene, abox_files_open_sandbox(looking, 0, &files, &error));
	CHECK(scene, text_is(files, "README.md", "hello"));
	REFUSED(scene, ABOX_E_STATE, abox_files_write(files, "x", 0, 0644, "", 0, &error));
	REFUSED(scene, ABOX_E_STATE, abox_files_make_folder(files, "x", 0, 0755, &error));
	REFUSED(scene, ABOX_E_STATE, abox_files_rename(files, "README.md", "x", 0, &error));
	files = abox_files_unref(files);
	CALL(scene, abox_sandbox_open(abox_sandbox_get_id(place.box), ABOX_OPEN_ATTACH, &attached, &error));
	CALL(scene, abox_files_open_sandbox(attached, ABOX_FILES_WRITE, &files, &error));
	CALL(scene, abox_files_write(files, "x", 0, 0644, "yes", 3, &error));
	CHECK(scene, place_shell(place.box, "test $(cat /workspace/x) = yes && echo more >> /workspace/x") == 0);
	abox_files_unref(files);
	abox_sandbox_unref(looking);
	abox_sandbox_unref(attached);
	place_end(&place);
}

/* Reading needs a handle that may look, writing one that may act; and the box's user owns what was written. */
Test(file, rights_are_those_of_the_handle)
{
	scene_play(play_rights, 60);
}

static int count_calls(void *userdata, uint64_t entries, uint64_t bytes)
{
	(void)entries;
	(void)bytes;
	return ++*(int *)userdata >= 1 ? -1 : 0;
}

static const char source_lines[] =
	"w f one\nw sub/g two\nd sub/void\ns ../f sub/up\ns /etc/passwd sub/away\nw .hidden three\nc f 0600\nc sub 0750\n";

static void play_trees(struct scene *scene)
{
	char source[128], target[128], file[128];
	int source_fd;

	mkdirat(scene->root_fd, "source", 0755);
	source_fd = openat(scene->root_fd, "source", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(scene, write_lines(source_fd, source_lines) == 0);
	CHECK(scene, mkfifoat(source_fd, "fifo", 0600) == 0);
	snprintf(source, sizeof(source), "%s/source", scene->root);
	EACH_PLACE(scene, kind)
	{
		struct abox_copy_options options = ABOX_COPY_OPTIONS_INIT;
		char *json = NULL, *is, *was;
		struct place place;
		int fd, calls = 0;

		BEGIN(scene, kind, &place);
		snprintf(target, sizeof(target), "%s/target-%s", scene->root, place_names[kind]);
		CALL(scene, abox_files_upload(place.files, source, "up", NULL, &json, &error));
		CHECK(scene, strstr(json, "\"path\":\"fifo\"") && strstr(json, "\"n_left_out\":1"));
		abox_free(json);
		/* once more: what is there is replaced, what else is there stays */
		CALL(scene, abox_files_write(place.files, "up/other", 0, 0644, "mine", 4, &error));
		CALL(scene, abox_files_upload(place.files, source, "up", NULL, NULL, &error));
		CHECK(scene, text_is(place.files, "up/other", "mine"));
		CALL(scene, abox_files_remove(place.files, "up/other", 0, NULL, &error));
		CALL(scene, abox_files_download(place.files, "up", target, NULL, NULL, &error));
		fd = open(target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		unlinkat(source_fd, "fifo", 0);
		is = tree_text(fd);
		was = tree_text(source_fd);
		CHECK(scene, is && was && strcmp(is, was) == 0);
		CHECK(scene, mkfifoat(source_fd, "fifo", 0600) == 0);
		free(is);
		free(was);
		close(fd);
		REFUSED(scene, ABOX_E_EXISTS, abox_files_download(place.files, "up", target, NULL, NULL, &error));
		/* a file alone, and over another one */
		snprintf(file, sizeof(file), "%s/file-%s", scene->root, place_names[kind]);
		CALL(scene, abox_files_download(place.files, "up/f", file, NULL, NULL, &error));
		REFUSED(scene, ABOX_E_EXISTS, abox_files_download(place.files, "up/sub/g", file, NULL, NULL, &error));
		options.flags = ABOX_COPY_REPLACE;
		CALL(scene, abox_files_download(place.files, "up/sub/g", file, &options, NULL, &error));
		/* bounds and cancel leave nothing at the target */
		snprintf(target, sizeof(target), "%s/not-%s", scene->root, place_names[kind]);
		options.flags = 0;
		options.max_entries = 3;
		REFUSED(scene, ABOX_E_LIMIT, abox_files_download(place.files, "up", target, &options, NULL, &error));
		options.max_entries = 0;
		options.max_bytes = 4;
		REFUSED(scene, ABOX_E_LIMIT, abox_files_download(place.files, "up", target, &options, NULL, &error));
		options.max_bytes = 0;
		options.progress = count_calls;
		options.progress_userdata = &calls;
		REFUSED(scene, ABOX_E_CANCELED, abox_files_download(place.files, "up", target, &options, NULL, &error));
		CHECK(scene, calls == 1 && access(target, F_OK) < 0);
		place_end(&place);
	}
	close(source_fd);
}

/* Folders go in and come back as they were; a failed download leaves nothing. */
Test(file, trees_go_up_and_come_down)
{
	scene_play(play_trees, 120);
}
