/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Tar archives, plain or in gzip: what an entry is, and the two streams. Written is the pax format with
 * sparse files as GNU tar has them (1.0); read are that, ustar, and GNU's own (long names, sparse).
 */
#ifndef WORKSPACE_ARCHIVE_H
#define WORKSPACE_ARCHIVE_H

#include <agentbox/change.h>

#include "workspace/change.h"
#include "workspace/content.h"

#define ARCHIVE_NAME_MAX 65536           /* bytes of a path or target */
#define ARCHIVE_HEADER_MAX (1024 * 1024) /* bytes of one extended header */
#define ARCHIVE_XATTRS_MAX 256

struct archive_xattr {
	char *name;
	void *value;
	size_t len;
};

struct archive_entry {
	char *path;   /* relative, normal: no empty, `.` or `..` part, no trailing slash */
	char *target; /* of a symbolic link; of a hard link: the path it is another name of */
	int type;     /* enum abox_file_type; ABOX_FILE_NONE: an end, nothing was read */
	bool hard_link;
	uint32_t mode; /* permission bits */
	uint32_t uid, gid;
	int64_t mtime_sec;
	uint32_t mtime_nsec;
	uint64_t size; /* of the file, holes counted */
	bool sparse;
	struct content_run *runs; /* of a sparse file: what the archive holds, in order */
	size_t n_runs;
	struct archive_xattr *xattrs; /* in the order of their names when written */
	size_t n_xattrs;
};
void archive_entry_clear(struct archive_entry *entry);

/* Appends the line of the manifest, digest in hexadecimal for regular files. */
void archive_manifest_line(struct text *line, const struct archive_entry *entry, const char *digest);

/* Writing. An error sticks and is told by every later call. */
struct archive_writer;
int archive_writer_new(int fd, struct archive_writer **ret);
int archive_writer_entry(
	struct archive_writer *writer, const struct archive_entry *entry, abox_error **reterr);
int archive_writer_data(struct archive_writer *writer, const void *data, size_t len, abox_error **reterr);
int archive_writer_finish(struct archive_writer *writer, abox_error **reterr);
void archive_writer_freep(struct archive_writer **writer);

/* Reading. Everything in it is hostile until it was checked. */
struct archive_reader;
int archive_reader_new(int fd, struct archive_reader **ret);
int archive_reader_new_memory(const void *data, size_t len, struct archive_reader **ret);
/* 1 with an entry, 0 at the end (nothing but padding follows), or a code. What was not read of the last is
 * skipped. */
int archive_reader_next(struct archive_reader *reader, struct archive_entry *ret, abox_error **reterr);
/* The next piece of the last entry's content: 1 with its place in the file, 0 when there is no more. */
int archive_reader_data(struct archive_reader *reader, const void **retdata, size_t *retlen,
	uint64_t *retoffset, abox_error **reterr);
void archive_reader_freep(struct archive_reader **reader);

/* A path as an archive gives it, made normal in place. False: absolute, `..`, empty, too long. "." gives "".
 */
bool archive_path_normalize(char *path);

#endif
