/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Files of a box that does its worst meanwhile: links in the way, swapped folders, fifos, deep trees, odd names, an end in
 * the middle. Nothing of the host is touched, and no call hangs.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <agentbox/command.h>

#include "base/clock.h"
#include "places.h"

TestSuite(hostile, .timeout = 600);

#define FAST_USEC (5 * USEC_PER_SEC)	/* "does not hang" on a busy machine */

static unsigned int rounds(void)
{
	return getenv("ABOX_TEST_LONG") ? 10000 : 200;
}

#define BEGIN(scene, kind, lines, place)                                                                     \
	abox_error *error = NULL;                                                                            \
	int begin_r = place_begin(scene, kind, lines, place, &error);                                        \
	if (begin_r < 0) {                                                                                   \
		scene_fail(scene, __FILE__, __LINE__, place_names[kind], error);                             \
		return;                                                                                      \
	}

static void play_links(struct scene *scene)
{
	char host[128], lines[512], target[128];
	struct stat st;
	int host_fd;

	mkdirat(scene->root_fd, "host", 0777);
	host_fd = openat(scene->root_fd, "host", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	put_file(host_fd, "secret", "of the host");
	snprintf(host, sizeof(host), "%s/host", scene->root);
	snprintf(lines, sizeof(lines),
		"w in/file inside\ns / out\ns %s/secret one\ns %s dir\ns ../../../../../../.. up\ns in near\ns loop2 loop1\ns loop1 "
		"loop2\n",
		host, host);
	EACH_PLACE(scene, kind)
	{
		char *data = NULL;
		size_t len;
		struct place place;
		struct abox_file_entry entry = ABOX_FILE_ENTRY_INIT;
		abox_file_list *list = NULL;

		BEGIN(scene, kind, lines, &place);
		/* the control: a link that stays inside leads on */
		CALL(scene, abox_files_read(place.files, "near/file", 0, 0, &data, &len, &error));
		CHECK(scene, strcmp(data, "inside") == 0);
		abox_free(data);
		REFUSED(scene, ABOX_E_ESCAPE, abox_files_read(place.files, "out/etc/hostname", 0, 0, &data, &len, &error));
		REFUSED(scene, ABOX_E_ESCAPE, abox_files_read(place.files, "one", 0, 0, &data, &len, &error));
		REFUSED(scene, ABOX_E_ESCAPE, abox_files_read(place.files, "dir/secret", 0, 0, &data, &len, &error));
		REFUSED(scene, ABOX_E_ESCAPE, abox_files_read(place.files, "up/etc/passwd", 0, 0, &data, &len, &error));
		REFUSED(scene, ABOX_E_INVALID, abox_files_read(place.files, "loop1", 0, 0, &data, &len, &error));
		REFUSED(scene, ABOX_E_ESCAPE, abox_files_stat(place.files, "out/etc", 0, &entry, &error));
		REFUSED(scene, ABOX_E_ESCAPE, abox_files_list(place.files, "dir", &list, &error));
		REFUSED(scene, ABOX_E_ESCAPE, abox_files_write(place.files, "one", 0, 0644, "x", 1, &error));
		REFUSED(scene, ABOX_E_ESCAPE, abox_files_write(place.files, "dir/new", 0, 0644, "x", 1, &error));
		REFUSED(scene, ABOX_E_ESCAPE,
			abox_files_write(place.files, "dir/new", ABOX_FILE_ATOMIC | ABOX_FILE_PARENTS, 0644, "x", 1, &error));
		REFUSED(scene, ABOX_E_ESCAPE, abox_files_make_folder(place.files, "dir/sub", 0, 0755, &error));
		REFUSED(scene, ABOX_E_ESCAPE, abox_files_make_folder(place.files, "dir/a/b", ABOX_FILE_PARENTS, 0755, &error));
		REFUSED(scene, ABOX_E_ESCAPE,
			abox_files_remove(place.files, "dir/secret", ABOX_FILE_RECURSIVE, NULL, &error));
		REFUSED(scene, ABOX_E_ESCAPE, abox_files_rename(place.files, "in/file", "dir/taken", 0, &error));
		REFUSED(scene, ABOX_E_ESCAPE, abox_files_rename(place.files, "dir/secret", "in/taken", 0, &error));
		/* a copy holds the links and nothing of what they lead to; removing takes the links alone */
		snprintf(target, sizeof(target), "%s/copy-%s", scene->root, place_names[kind]);
		CALL(scene, abox_files_download(place.files, "", target, NULL, NULL, &error));
		strcat(target, "/dir");
		CHECK(scene, lstat(target, &st) == 0 && S_ISLNK(st.st_mode));
		CALL(scene, abox_files_remove(place.files, "dir", ABOX_FILE_RECURSIVE, NULL, &error));
		CHECK(scene, fstatat(host_fd, "secret", &st, 0) == 0 && st.st_size == 11 && st.st_nlink == 1);
		CHECK(scene, faccessat(host_fd, "new", F_OK, 0) < 0 && faccessat(host_fd, "sub", F_OK, 0) < 0);
		place_end(&place);
	}
	close(host_fd);
}

/* T1-2: `out -> /` and its like are refused with an error of their own, and nothing of the host is read or made. */
Test(hostile, T1_2_links_out_are_refused)
{
	scene_play(play_links, 120);
}

static void play_swap(struct scene *scene)
{
	unsigned int n = rounds(), n_written = 0, n_refused = 0;
	const char *script = "import ctypes, os\nswap = ctypes.CDLL(None).renameat2\nos.chdir('/workspace')\nos.mkdir('d')\n"
			     "os.symlink(os.environ['HOST'], 'l')\nopen('started', 'w')\n"
			     "while not os.path.exists('stop'):\n  for i in range(100): swap(-100, b'd', -100, b'l', 2)\n";
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT };
	abox_command *command = NULL;
	char host[128], env[256], spec[512];
	struct place place = { 0 };
	abox_error *error = NULL;
	struct stat st;

	mkdirat(scene->root_fd, "hostdir", 0777);
	fchmodat(scene->root_fd, "hostdir", 0777, 0);
	snprintf(host, sizeof(host), "%s/hostdir", scene->root);
	snprintf(env, sizeof(env), "HOST=%s", host);
	/* the host's folder is at hand in the box as well: a server that followed the link would find it */
	snprintf(spec, sizeof(spec), "{\"version\":1,\"mounts\":[{\"source\":\"%s\",\"target\":\"%s\",\"mode\":\"rw\"}]}", host,
		host);
	CALL(scene, place_box(spec, &place.box, &error));
	CALL(scene, abox_files_open_sandbox(place.box, ABOX_FILES_WRITE, &place.files, &error));
	options.argv = (const char *const[]){ "python3", "-c", script, NULL };
	options.env = (const char *const[]){ env, NULL };
	CALL(scene, abox_command_start(place.box, &options, &command, &error));
	for (uint64_t until = clock_monotonic_usec() + 4 * FAST_USEC; clock_monotonic_usec() < until;)
		if (abox_files_stat(place.files, "started", 0, &(struct abox_file_entry)ABOX_FILE_ENTRY_INIT, NULL) == 0)
			break;
	for (unsigned int i = 0; i < n || (n_refused == 0 && i < 200 * n); i++) {
		static const uint32_t flags[] = { 0, ABOX_FILE_ATOMIC, ABOX_FILE_PARENTS, ABOX_FILE_PARENTS | ABOX_FILE_ATOMIC };
		int r = abox_files_write(place.files, "d/x", flags[i % 4], 0644, "x", 1, &error);

		n_written += r == 0;
		n_refused += r == ABOX_E_ESCAPE;
		if (r < 0 && r != ABOX_E_ESCAPE && r != ABOX_E_NOT_FOUND && r != ABOX_E_CONFLICT && r != ABOX_E_EXISTS) {
			scene_fail(scene, __FILE__, __LINE__, "write", error);
			return;
		}
		error = abox_error_free(error);
		abox_files_remove(place.files, "d/x", 0, NULL, NULL);
		abox_files_make_folder(place.files, "d/y/z", ABOX_FILE_PARENTS, 0755, NULL);
		abox_files_remove(place.files, "d/y", ABOX_FILE_RECURSIVE, NULL, NULL);
	}
	/* both happened: the folder was written to, and the link was met */
	CHECK(scene, n_written > 0);
	CHECK(scene, n_refused > 0);
	CALL(scene, abox_files_write(place.files, "stop", 0, 0644, "", 0, &error));
	abox_command_unref(command);
	CHECK(scene, fstatat(scene->root_fd, "hostdir/x", &st, 0) < 0 && fstatat(scene->root_fd, "hostdir/y", &st, 0) < 0);
	/* the control: the box itself reaches the folder by the same name */
	snprintf(env, sizeof(env), "echo reached > %s/control", host);
	CHECK(scene, place_shell(place.box, env) == 0 && fstatat(scene->root_fd, "hostdir/control", &st, 0) == 0);
	place_end(&place);
}

/* T1-3: while the box swaps a folder and a link to a folder of the host, nothing is ever made in the latter. */
Test(hostile, T1_3_swapped_folders)
{
	scene_play(play_swap, 300);
}

static void play_fifos(struct scene *scene)
{
	uint64_t begin = clock_monotonic_usec();
	char target[128], *data = NULL, *json = NULL;
	struct place place;
	size_t len;

	BEGIN(scene, PLACE_BOX, "w file x\n", &place);
	CHECK(scene, place_shell(place.box, "cd /workspace && mkfifo README.md && (exec 3<>README.md; sleep 1000) & "
					    "python3 -c 'import socket;s=socket.socket(socket.AF_UNIX);s.bind(\"/workspace/sock\")' "
					    "|| mkfifo /workspace/sock; ln -s README.md /workspace/link") == 0);
	REFUSED(scene, ABOX_E_UNSUPPORTED, abox_files_read(place.files, "README.md", 0, 0, &data, &len, &error));
	REFUSED(scene, ABOX_E_UNSUPPORTED, abox_files_read(place.files, "link", 0, 0, &data, &len, &error));
	REFUSED(scene, ABOX_E_UNSUPPORTED, abox_files_read(place.files, "sock", 0, 0, &data, &len, &error));
	REFUSED(scene, ABOX_E_UNSUPPORTED, abox_files_write(place.files, "README.md", 0, 0644, "x", 1, &error));
	REFUSED(scene, ABOX_E_UNSUPPORTED, abox_files_write(place.files, "sock", 0, 0644, "x", 1, &error));
	snprintf(target, sizeof(target), "%s/fifos", scene->root);
	CALL(scene, abox_files_download(place.files, "", target, NULL, &json, &error));
	CHECK(scene, strstr(json, "\"n_left_out\":2") && strstr(json, "README.md"));
	abox_free(json);
	CALL(scene, abox_files_write(place.files, "README.md", ABOX_FILE_ATOMIC, 0644, "a file now", 10, &error));
	CALL(scene, abox_files_read(place.files, "link", 0, 0, &data, &len, &error));
	abox_free(data);
	CHECK(scene, clock_monotonic_usec() - begin < 6 * FAST_USEC);
	place_end(&place);
}

/* T2-6: a fifo named README.md holds nobody up, whatever is asked of it. */
Test(hostile, T2_6_fifos_hold_nobody_up)
{
	scene_play(play_fifos, 120);
}

static void play_closed(struct scene *scene)
{
	char target[128];
	struct place place;
	struct stat st;
	char *data;

	BEGIN(scene, PLACE_BOX, "w a/b/file inside\n", &place);
	CHECK(scene, place_shell(place.box, "cd /workspace; chmod 000 a/b/file a/b a; mkdir ro; echo x > ro/f; chmod 0500 ro; chmod "
					    "0400 ro/f; cp /bin/true suid; chmod 06777 suid") == 0);
	data = place_text(place.files, "a/b/file");
	CHECK(scene, data && strcmp(data, "inside") == 0);
	abox_free(data);
	CALL(scene, abox_files_write(place.files, "ro/new", 0, 0644, "x", 1, &error));
	snprintf(target, sizeof(target), "%s/closed", scene->root);
	CALL(scene, abox_files_download(place.files, "", target, NULL, NULL, &error));
	CHECK(scene, fstatat(scene->root_fd, "closed/a/b/file", &st, 0) == 0 && (st.st_mode & 0777) == 0600);
	CHECK(scene, fstatat(scene->root_fd, "closed/suid", &st, 0) == 0 && (st.st_mode & 07777) == 0755 &&
			     st.st_uid == geteuid());
	CALL(scene, abox_files_remove(place.files, "a", ABOX_FILE_RECURSIVE, NULL, &error));
	CALL(scene, abox_files_remove(place.files, "ro", ABOX_FILE_RECURSIVE, NULL, &error));
	place_end(&place);
}

/* T2-12: what the box closed to itself is read, copied and removed all the same; set-id bits stay behind. */
Test(hostile, T2_12_closed_folders)
{
	scene_play(play_closed, 120);
}

static void play_deep(struct scene *scene)
{
	const char *script = "import os\nos.chdir('/workspace')\nos.mkdir('deep')\nos.chdir('deep')\n"
			     "for i in range(2000): os.mkdir('d'); os.chdir('d')\nopen('end','w').write('deep')\n"
			     "os.chdir('/workspace')\nf=open('sparse','w'); f.truncate(8<<40)\n"
			     "f.seek(4<<40); f.write('middle'); f.close()\nos.mkdir('odd')\n"
			     "for n in (b'\\xff', b'a\\nb', b'-rf', b'*', b'.wh.foo', b'.wh..wh..opq', b'e\\x1b[31m', b'n'*255):"
			     " open(b'odd/'+n,'wb').write(n)\n";
	char target[128], source[128], *was, *is;
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT,
		.argv = (const char *const[]){ "python3", "-c", script, NULL } };
	abox_result *result = NULL;
	struct place place;
	struct stat st;
	int fd;

	BEGIN(scene, PLACE_BOX, "", &place);
	CALL(scene, abox_command_run(place.box, &options, &result, &error));
	CHECK(scene, abox_result_get_exit_code(result) == 0);
	abox_result_unref(result);
	snprintf(target, sizeof(target), "%s/deep", scene->root);
	CALL(scene, abox_files_download(place.files, "", target, NULL, NULL, &error));
	CHECK(scene, fstatat(scene->root_fd, "deep/sparse", &st, 0) == 0 && st.st_size == 8LL << 40 && st.st_blocks < 2048);
	/* and back, and down again: the same */
	snprintf(source, sizeof(source), "%s/deep", scene->root);
	CALL(scene, abox_files_upload(place.files, source, "again", NULL, NULL, &error));
	snprintf(target, sizeof(target), "%s/deep2", scene->root);
	CALL(scene, abox_files_download(place.files, "again", target, NULL, NULL, &error));
	unlinkat(scene->root_fd, "deep/sparse", 0);
	unlinkat(scene->root_fd, "deep2/sparse", 0);
	fd = openat(scene->root_fd, "deep", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	was = tree_text(fd);
	close(fd);
	fd = openat(scene->root_fd, "deep2", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	is = tree_text(fd);
	close(fd);
	CHECK(scene, was && is && strcmp(was, is) == 0);
	free(was);
	free(is);
	CALL(scene, abox_files_remove(place.files, "deep", ABOX_FILE_RECURSIVE, NULL, &error));
	CALL(scene, abox_files_remove(place.files, "again", ABOX_FILE_RECURSIVE, NULL, &error));
	place_end(&place);
}

/* T2-7, T2-8, T2-9: 2,000 levels, 8 TiB of holes, odd names go up and down, and away. */
Test(hostile, T2_8_deep_sparse_odd)
{
	scene_play(play_deep, 240);
}

static void play_growing(struct scene *scene)
{
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT,
		.argv = (const char *const[]){ "sh", "-c",
			"cd /workspace; mkdir many; echo x > log; : > started; i=0; while [ ! -e stop ]; do head -c 100000 /dev/zero >> log; "
			"[ $(stat -c %s log) -gt 8000000 ] && echo x > log; : > many/$i; mv many/$i many/x$i; rm many/x$i; i=$((i+1)); done",
			NULL } };
	abox_command *command = NULL;
	char target[128];
	struct place place;

	BEGIN(scene, PLACE_BOX, "", &place);
	CALL(scene, abox_command_start(place.box, &options, &command, &error));
	while (abox_files_stat(place.files, "started", 0, &(struct abox_file_entry)ABOX_FILE_ENTRY_INIT, NULL) < 0)
		;
	for (int i = 0; i < 20; i++) {
		char *data = NULL;

		CALL(scene, abox_files_read(place.files, "log", 0, 0, &data, NULL, &error));
		abox_free(data);
		snprintf(target, sizeof(target), "%s/growing-%d", scene->root, i);
		CALL(scene, abox_files_download(place.files, "", target, NULL, NULL, &error));
	}
	CALL(scene, abox_files_write(place.files, "stop", 0, 0644, "", 0, &error));
	abox_command_unref(command);
	place_end(&place);
}

/* A file that grows, and names that come and go, are copied as they were met. */
Test(hostile, changing_files_are_copied_as_met)
{
	scene_play(play_growing, 120);
}

static void play_ends(struct scene *scene)
{
	uint64_t begin = clock_monotonic_usec();
	abox_files *second = NULL;
	char *data = NULL;
	struct place place;
	int r;

	BEGIN(scene, PLACE_BOX, "w file x\n", &place);
	CALL(scene, abox_files_open_sandbox(place.box, 0, &second, &error));
	CALL(scene, abox_sandbox_pause(place.box, &error));
	REFUSED(scene, ABOX_E_STATE, abox_files_open_sandbox(place.box, 0, &(abox_files *){ NULL }, &error));
	/* where all of the box is frozen, so is its file server: then it is told, and not waited for */
	r = abox_files_read(place.files, "file", 0, 0, &data, NULL, &error);
	CHECK(scene, r == 0 || r == ABOX_E_STATE);
	error = abox_error_free(error);
	abox_free(data);
	CALL(scene, abox_sandbox_resume(place.box, &error));
	data = NULL;
	CALL(scene, abox_files_read(second, "file", 0, 0, &data, NULL, &error));
	abox_free(data);
	CALL(scene, abox_sandbox_stop(place.box, ABOX_STOP_CANCEL, NULL, &error));
	REFUSED(scene, ABOX_E_GONE, abox_files_read(second, "file", 0, 0, &data, NULL, &error));
	r = abox_files_open_sandbox(place.box, 0, &(abox_files *){ NULL }, &error);
	CHECK(scene, r == ABOX_E_STATE || r == ABOX_E_GONE);
	error = abox_error_free(error);
	abox_files_unref(second);
	place_end(&place);
	CHECK(scene, clock_monotonic_usec() - begin < 8 * FAST_USEC);
}

/* A box that is paused, or ends, is an error and never a wait. */
Test(hostile, paused_and_ended_boxes_are_told)
{
	scene_play(play_ends, 120);
}

static void *stop_soon(void *box)
{
	usleep(30000);
	abox_sandbox_stop(box, ABOX_STOP_CANCEL, NULL, NULL);
	return NULL;
}

static void play_cut(struct scene *scene)
{
	char target[128];

	for (int i = 0; i < 5; i++) {
		abox_sandbox *other = NULL;
		struct place place;
		pthread_t thread;
		int r;

		BEGIN(scene, PLACE_BOX, "w a x\n", &place);
		CHECK(scene, place_shell(place.box, "cd /workspace; head -c 30000000 /dev/zero > big; for i in 1 2 3 4 5 6 7 8 9; do cp "
						    "big big$i; done") == 0);
		CALL(scene, abox_sandbox_open(abox_sandbox_get_id(place.box), ABOX_OPEN_CONTROL, &other, &error));
		snprintf(target, sizeof(target), "%s/cut-%d", scene->root, i);
		CHECK(scene, pthread_create(&thread, NULL, stop_soon, other) == 0);
		r = abox_files_download(place.files, "", target, NULL, NULL, &error);
		pthread_join(thread, NULL);
		CHECK(scene, r == 0 || r == ABOX_E_GONE);
		CHECK(scene, (access(target, F_OK) == 0) == (r == 0));
		error = abox_error_free(error);
		abox_sandbox_unref(other);
		place_end(&place);
	}
}

/* The box ends in the middle of a copy: an error of its own, and nothing at the target. */
Test(hostile, an_end_in_the_middle_leaves_nothing)
{
	scene_play(play_cut, 180);
}
