/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Trees for the tests of workspaces: made below one folder of its own in /tmp, from a list of lines, and
 * removed again whole. No function here asserts; each returns a negative errno or false.
 */
#ifndef TESTS_WORKSPACE_SUPPORT_H
#define TESTS_WORKSPACE_SUPPORT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "workspace/view.h"

struct scene {
	char path[64];
	int fd; /* readable */
};
int scene_begin(struct scene *scene);
int scene_begin_in(
	struct scene *scene, const char *directory); /* /dev/shm: in memory, a sync costs nothing */
void scene_end(struct scene *scene);

/* Writes a file below dir_fd; folders above it are made. */
int put(int dir_fd, const char *path, const char *text);
int put_mode(int dir_fd, const char *path, const char *text, mode_t mode);
int put_dir(int dir_fd, const char *path);
int put_link(int dir_fd, const char *path, const char *target);
int put_whiteout(int dir_fd, const char *path);       /* character device 0:0; a plain user may make it too */
int put_opaque(int dir_fd, const char *path);         /* user.overlay.opaque */
int make_root(struct scene *scene, const char *name); /* a folder of the scene, opened O_PATH */
/* The text of a file, static storage; NULL when it is not there or no regular file. */
const char *get(int dir_fd, const char *path);
bool there(int dir_fd, const char *path);
uint32_t mode_of(int dir_fd, const char *path);

/* One line a path, sorted: type, mode, content digest or target. For comparing trees. free(). */
char *list_view(const struct view *view);
char *list_tree(int dir_fd);

/* A forked single-threaded child runs fn, which writes its complaints to fd; 0 when there were none and it
 * ended in time with status 0. The text of the complaints is copied to ret. */
int in_child(int (*fn)(int report_fd, void *data), void *data, char *ret, size_t size);

/* A seeded generator: the same numbers everywhere. */
uint32_t random_next(uint64_t *state);

#endif
