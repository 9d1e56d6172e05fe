/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Trees by descriptor: walking, and copying. Any depth, any name, odd modes, never through a link, never across a
 * mount, never blocking on a fifo.
 */
#ifndef WORKSPACE_TREE_H
#define WORKSPACE_TREE_H

#include <agentbox/error.h>
#include <sys/stat.h>

#include "base/descent.h"
#include "base/macro.h"
#include "workspace/store.h"

/* Opens what st tells of, by name, without following or blocking, and looks again that it is the same; where the
 * owner took the right to read from himself it is lent for the moment (a directory: until tree_give_back()).
 * Readable descriptor or -errno. */
int tree_open(int dir_fd, const char *name, const struct stat *st);
void tree_give_back(int fd, const struct stat *st);

struct tree_entry {
	const char *path;	/* from the root of the walk; "" for the root itself. For messages: it may be very long */
	const char *name;
	int dir_fd;		/* that holds it; -EBADF for the root */
	struct stat st;
	bool is_mount;		/* a directory on which something is mounted; not entered */
};
/* In order of name (bytes), each directory before what it holds. A negative answer ends the walk. */
struct tree_visitor {
	int (*enter)(void *userdata, const struct tree_entry *entry, int fd);	/* a directory, open for reading */
	int (*leave)(void *userdata, const struct tree_entry *entry, int fd);	/* after what it holds */
	int (*other)(void *userdata, const struct tree_entry *entry);		/* everything else, and mounts */
	void *userdata;
};
/* `place` names the tree in errors. The answer of a visitor goes up unchanged, TREE_SKIP from enter leaves the
 * directory out (leave is not called). */
#define TREE_SKIP 1
int tree_walk(int root_fd, const char *place, const struct tree_visitor *visitor, abox_error **reterr);

/* Progress of what takes long; a negative answer ends it with ABOX_E_CANCELED. Called about ten times a second. */
typedef int (*tree_progress_fn)(void *userdata, uint64_t n_entries, uint64_t n_bytes);

enum {
	TREE_COPY_LAYER = 1 << 0,	/* from a layer to a layer of the same flavour: whiteouts, marks and ids as they are */
	TREE_COPY_NO_CLONE = 1 << 1,	/* for tests: as on a filesystem without reflinks */
};
struct tree_copy {
	uint32_t flags;
	enum layer_flavour flavour;
	struct layer_ids ids;		/* of the target; without TREE_COPY_LAYER the source has host ids */
	uint64_t max_bytes;		/* of file content; 0: no bound. ABOX_E_LIMIT beyond */
	uint64_t max_entries;
	tree_progress_fn progress;	/* may be NULL */
	void *userdata;

	uint64_t n_entries, n_bytes;	/* answers */
	uint64_t n_lost;		/* attributes, special files and modes that were left out */
	char lost[512];			/* the first of them, "path: what", one a line */
};
/* The contents and the attributes of from_fd into to_fd, an empty directory. Hard links within the tree stay links,
 * holes stay holes. Devices, sockets, mounts, set-id bits, capabilities and marks of overlayfs are left out and
 * counted as lost. */
int tree_copy(int from_fd, int to_fd, struct tree_copy *copy, abox_error **reterr);

/* What a tree holds, byte by byte, in one digest: names, types, modes, ids, times, attributes, content. */
struct tree_seal {
	uint64_t n_entries, n_bytes;
	char digest[65];
};
/* Reads everything. With `sync` everything is on the disk when it returns. */
int tree_seal(int root_fd, const char *place, bool sync, struct tree_seal *ret, abox_error **reterr);

#endif
