/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the tests of workspaces share. A body runs in a forked child of one thread, as root and as a plain user, with a
 * store and a folder of its own, and reports by pipe: no criterion assertion below the fork.
 */
#ifndef TESTS_WORKSPACE_SCENE_H
#define TESTS_WORKSPACE_SCENE_H

#include <agentbox/workspace.h>

#include "workspace/workspace.h"

#define PLAIN_UID 12345

struct scene {
	int root_fd;		/* a fresh folder; the store is below it, in "home" */
	char root[64];
	int report_fd;
	int failed;
};
typedef void (*scene_fn)(struct scene *scene);

/* Ends the body with a message when the condition does not hold. */
#define CHECK(scene, condition)                                                                              \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			scene_fail(scene, __FILE__, __LINE__, #condition, NULL);                             \
			return;                                                                              \
		}                                                                                            \
	} while (0)
/* The same for calls of the library: the error is told. Needs `abox_error *error` in the body. */
#define CALL(scene, call)                                                                                    \
	do {                                                                                                 \
		int call_r = (call);                                                                         \
		if (call_r < 0) {                                                                            \
			scene_fail(scene, __FILE__, __LINE__, #call, error);                                 \
			return;                                                                              \
		}                                                                                            \
	} while (0)
#define REFUSED(scene, code, call)                                                                           \
	do {                                                                                                 \
		int call_r = (call);                                                                         \
		if (call_r != (code)) {                                                                      \
			scene_fail(scene, __FILE__, __LINE__, #call " is not " #code, error);                \
			return;                                                                              \
		}                                                                                            \
		error = abox_error_free(error);                                                              \
	} while (0)

void scene_fail(struct scene *scene, const char *file, int line, const char *what, const abox_error *error);
/* Runs the body as root (when the tests run as root) and as a plain user; at most `seconds` each. */
void scene_play(scene_fn body, unsigned int seconds);
void scene_play_as(scene_fn body, unsigned int seconds, unsigned int uid);

/* Files below a directory; missing folders are made. */
int put_file(int dir_fd, const char *path, const char *content);
int put_folder(int dir_fd, const char *path);
/* The whole tree as text, one entry a line with type, mode and content (a digest when long); malloc. */
char *tree_text(int dir_fd);

/* Carries a change out in the mounted live workspace, as a box would: in a child, for a plain user in a user namespace.
 * 0, or the first errno, negative. */
typedef int (*change_fn)(int dir_fd, const void *userdata);
int in_workspace(abox_workspace *workspace, change_fn change, const void *userdata);
/* What the mounted workspace (or a snapshot of it) looks like; malloc; NULL when it could not be mounted. */
char *workspace_text(abox_workspace *workspace, const char *snapshot);
/* A change given as lines: "w PATH CONTENT", "d PATH" (mkdir), "r PATH" (rm -r), "l OLD NEW" (link), "s TARGET PATH",
 * "m OLD NEW" (rename), "c PATH MODE" */
int write_lines(int dir_fd, const void *lines);

#endif
