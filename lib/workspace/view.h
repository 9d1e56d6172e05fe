/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The merged tree of some layers, read without mounting anything: what an overlay mount of the same layers
 * would show, whiteouts, opaque and moved folders understood, for root's layers and a plain user's alike. It
 * works beside any number of threads, and on the layers of a workspace that no box runs on.
 *
 * Nothing here follows a symbolic link, opens a device or waits for a fifo. Where a box has closed a folder or a file of
 * a layer to its owner, who is us, the right is lent for as long as it is open.
 */
#ifndef WORKSPACE_VIEW_H
#define WORKSPACE_VIEW_H

#include <sys/stat.h>

#include <agentbox/error.h>

#include "base/macro.h"
#include "base/progress.h"

#define VIEW_MAX_LAYERS 512 /* the kernel stacks 500 */

enum view_flavour {
	VIEW_PLAIN = 0, /* a folder as it is: no mark of an overlay means anything in it */
	VIEW_TRUSTED,   /* marks are trusted.overlay.* */
	VIEW_USER,      /* marks are user.overlay.* */
};

struct view_layer {
	int root_fd; /* borrowed; O_PATH is enough */
	enum view_flavour flavour;
	bool host_ids; /* its files have owners of the host, not those of our layers */
};

struct view {
	const struct view_layer *layers; /* newest first */
	size_t n_layers;
	struct progress *progress; /* of a walk: told at each step; may be NULL */
};

/* One folder of the merged tree: the folders of the layers that take part, newest first. */
struct view_part {
	int fd;
	unsigned int layer;
	dev_t device;
	ino_t inode;
	mode_t lent; /* the mode it had before it was opened to us; 0: it is as it was */
};
struct view_dir {
	struct view_part *parts;
	size_t n_parts;
};
#define VIEW_DIR_INIT ((struct view_dir){0})
void view_dir_clear(struct view_dir *dir);

int view_open_root(const struct view *view, struct view_dir *ret); /* 0 or -errno */

/* What a name is in a folder: st_mode 0 when there is nothing (or it was deleted). */
struct view_entry {
	struct stat st;
	unsigned int layer; /* the newest that has it */
	bool deleted;       /* a newer layer says it is gone */
};
int view_lookup(
	const struct view *view, const struct view_dir *dir, const char *name, struct view_entry *ret);
int view_open_dir(
	const struct view *view, const struct view_dir *dir, const char *name, struct view_dir *ret);
/* A regular file for reading, or an O_PATH descriptor of anything but a folder; checked to be what the entry
 * says. */
int view_open_file(const struct view *view, const struct view_dir *dir, const char *name,
	const struct view_entry *entry, int *retfd);
int view_read_link(const struct view *view, const struct view_dir *dir, const char *name,
	const struct view_entry *entry, char **rettarget);

/* A path from the root: the folder it is in, its last part (which points into `path`), and what it is. 0 or
 * -errno. */
int view_find(const struct view *view, const char *path, struct view_dir *retdir, struct view_entry *ret,
	const char **retname);

/*
 * A walk through one tree, or two at once: each name in the order of its bytes, a folder before what is in
 * it. With an `old` tree whose layers are the lower ones of `new`, folders that both have alike are passed
 * by, so that the cost is that of the changes.
 */
struct view_walk;
struct view_step {
	const char *path; /* from the root, no leading slash; belongs to the walk, until the next step */
	const char *name;
	struct view_entry now; /* in the new tree */
	struct view_entry was; /* in the old tree */
	const struct view_dir
		*now_dir; /* the folders that hold the name; NULL when not even the folder is there */
	const struct view_dir *was_dir;
};
int view_walk_new(const struct view *now, const struct view *was, struct view_walk **ret);
/* 1 with a step, 0 at the end, or a negative code with *reterr. */
int view_walk_next(struct view_walk *walk, struct view_step *ret, abox_error **reterr);
/* The folder of the last step is not gone into. */
void view_walk_skip(struct view_walk *walk);
struct view_walk *view_walk_free(struct view_walk *walk);
void view_walk_freep(struct view_walk **walk);

#endif
