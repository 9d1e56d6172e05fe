/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The system calls of the journal that can fail or be cut short, each behind one name, so that a build with
 * -Dfault_injection=true can make the N-th of them fail, kill the process around it, or keep a model of what
 * the disk holds. In every other build these are the plain calls.
 */
#ifndef JOURNAL_INJECT_H
#define JOURNAL_INJECT_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macro.h"

enum inject_op {
	INJECT_OPEN = 0,
	INJECT_WRITE = 1, /* a write into the page cache */
	INJECT_SYNC = 2,  /* of a file or folder */
	INJECT_RENAME = 3,
	INJECT_UNLINK = 4,
	INJECT_TRUNCATE = 5,
};

struct inject_event {
	int op;
	int fd;               /* WRITE, SYNC, TRUNCATE: the file; OPEN, RENAME, UNLINK: the folder */
	const char *name;     /* OPEN, UNLINK; RENAME: old */
	const char *new_name; /* RENAME */
	const void *data;     /* WRITE */
	size_t len;
	uint64_t offset; /* WRITE, TRUNCATE */
};

#ifdef ABOX_FAULT_INJECTION
/* before the call (done false): 0 lets it happen, a positive errno fails it without doing it. After a
 * successful call (done true) the answer is ignored. Set by a test, before threads start. */
extern int (*inject_hook)(const struct inject_event *event, bool done);

static inline int inject(const struct inject_event *event, bool done)
{
	return inject_hook ? inject_hook(event, done) : 0;
}
#else
#define inject(event, done) (0)
#endif

/* All return 0 (or a descriptor) or -errno. */
int jio_open(int dir_fd, const char *name, int flags, mode_t mode);
int jio_pwrite(int fd, const void *data, size_t len, uint64_t offset);
int jio_datasync(int fd);
int jio_sync(int fd);
int jio_rename(int dir_fd, const char *from, const char *to);
int jio_unlink(int dir_fd, const char *name);
int jio_truncate(int fd, uint64_t len);

#endif
