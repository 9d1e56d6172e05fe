/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Inside of abox_files, the library's end of file/wire.h.
 */
#ifndef FILE_FILES_H
#define FILE_FILES_H

#include <stdatomic.h>

#include <agentbox/file.h>

#include "base/error.h"
#include "base/progress.h"
#include "base/strings.h"
#include "file/packet.h"

#define FILE_STAGE ABOX_STAGE_FILE
#define FILE_NO_MODE UINT32_MAX
#define FILE_NO_TIME UINT32_MAX
#define FILE_MAX_ENTRIES 10000000U

struct abox_files {
	atomic_uint n_refs;
	int fd;			/* -EBADF: closed */
	int pidfd;		/* of a server that we started */
	uint32_t serial;
	struct file_stream *stream;	/* the answer stays in its buffer until the next call */
	char *name;		/* of the last stat */
	bool broken;
	abox_sandbox *box;	/* whose server it is; or */
	abox_workspace *workspace;	/* locked by us, and */
	bool in_use;		/* begun: workspace_end_use() is due */
};

void files_unrefp(abox_files **files);
/* A handle around the library's end of a pair, which is taken; waits for the server's first word. */
int files_new(int fd_taken, abox_files **ret, abox_error **reterr);
int files_await_ready(abox_files *files, abox_error **reterr);

/* files_begin() starts a request, to which the caller adds the fields; files_call() sends it and reads the answer; the
 * reader stands behind the head of an OK. `ticking` is told while the server removes; may be NULL. */
void files_begin(abox_files *files, struct pack_writer *writer, uint32_t type);
int files_call(abox_files *files, struct pack_writer *writer, struct progress *ticking, struct pack_reader *retreader,
	abox_error **reterr);
/* For answers without fields. */
int files_call_plain(abox_files *files, struct pack_writer *writer, abox_error **reterr);
/* For those that are an entry, behind a number where retnumber is not NULL. */
int files_call_entry(abox_files *files, struct pack_writer *writer, uint32_t *retnumber, struct file_entry *ret,
	abox_error **reterr);
/* An answer that is not what it must be. */
int files_protocol(abox_files *files, abox_error **reterr);
/* Gives a number back; what goes wrong with that is of no interest. */
void files_close_number(abox_files *files, uint32_t number);

int files_open_place(abox_files *files, uint32_t place, const char *path, uint32_t *retnumber, struct file_entry *ret,
	abox_error **reterr);
int files_stat(abox_files *files, uint32_t place, const char *path, bool follow, struct file_entry *ret,
	abox_error **reterr);
/* The reader stands before n entries; read each with files_next_entry() before the next call. */
int files_list(abox_files *files, uint32_t place, bool restart, bool *retend, uint32_t *retn, struct pack_reader *retreader,
	abox_error **reterr);
int files_next_entry(abox_files *files, struct pack_reader *reader, const char **retname, struct file_entry *ret,
	abox_error **reterr);

/* Content. The copying state of one call. */
struct copying {
	abox_files *files;
	const struct abox_copy_options *options;
	struct progress progress;
	struct text left_out;	/* members of a JSON array */
	uint64_t n_left_out;
	abox_error **reterr;
};
/* Checks the options, which may be NULL. */
int copying_begin(struct copying *copying, abox_files *files, const struct abox_copy_options *options,
	abox_error **reterr);
int copying_count(struct copying *copying, uint64_t entries, uint64_t bytes, const char *path);	/* bounds, cancel */
int copying_fail(struct copying *copying, abox_error **error_taken, int code);	/* hands the error up; returns the code */
void copying_leave_out(struct copying *copying, const char *path, const char *reason);
int copying_report(struct copying *copying, char **retjson);
void copying_clear(struct copying *copying);

/* From a file of the workspace, which has been begun, to a descriptor; `seeks` keeps holes. */
int content_get(struct copying *copying, uint32_t number, uint64_t size, int fd, bool seeks, const char *path);
/* From a descriptor into a file that has been begun; `seeks` looks for holes; at most `size` bytes (UINT64_MAX: to the end). */
int content_put(struct copying *copying, uint32_t number, int fd, bool seeks, uint64_t size, const char *path);
int content_read_begin(abox_files *files, uint32_t place, const char *path, bool follow, uint32_t *retnumber,
	struct file_entry *ret, abox_error **reterr);
int content_write_begin(abox_files *files, uint32_t place, const char *path, uint32_t flags, uint32_t mode,
	uint32_t *retnumber, abox_error **reterr);
int content_write_end(abox_files *files, uint32_t number, bool sync, int64_t seconds, uint32_t nanoseconds,
	abox_error **reterr);

#endif
