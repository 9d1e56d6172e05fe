/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Inside of the file server; for its own files only.
 */
#ifndef FILE_SERVER_H
#define FILE_SERVER_H

#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>

#include "base/descent.h"
#include "file/wire.h"

enum slot_kind {
	SLOT_FREE = 0,
	SLOT_FOLDER,
	SLOT_READER,
	SLOT_WRITER,
};

/* What a number stands for. */
struct slot {
	enum slot_kind kind;
	struct descent way;	/* FOLDER: from where it was opened to where it is */
	DIR *listing;		/* FOLDER: of where it is, NULL: not begun */
	char *held;		/* FOLDER: a name that was read and did not fit into the answer */
	int fd;			/* READER, WRITER */
	uint64_t offset;
	uint64_t data_end;	/* READER: what lies before it is no hole; UINT64_MAX: there are none */
	int parent_fd;		/* WRITER: of the folder */
	uint32_t flags, mode;
	char name[NAME_MAX + 1];
	char temporary[40];	/* "": written in place */
};

struct server {
	int socket_fd;
	bool writes;
	uint32_t serial;
	uint64_t told_usec;	/* of the last PROGRESS */
	struct slot slots[FILE_SLOTS];
	struct pack_reader in;
	struct pack_writer out;
	struct fault fault;
};

/* Answers of handlers: 0 with fields in `out`, or a negative code with the fault set. */
int server_protocol(struct server *server);
/* `sys_errno` from something done to `path`. */
int server_fail(struct server *server, int sys_errno, const char *path, const char *what);
/* The folder of a place; -EBADF after server_protocol(). */
int server_place(struct server *server, uint32_t number);
struct slot *server_slot(struct server *server, uint32_t number, enum slot_kind kind);
struct slot *server_new_slot(struct server *server, enum slot_kind kind, uint32_t *retnumber);
void server_free_slot(struct slot *slot);
/* The folder that `path` is in, and its last part. -errno; "" and what ends in `.` or `..` is -EINVAL. */
int server_parent(int place_fd, const char *path, bool make, int *retfd, char name[NAME_MAX + 1]);
void server_entry(const struct stat *st, struct file_entry *ret);
/* 0 or -errno. */
int server_rename(int from_fd, const char *from, int to_fd, const char *to, bool replace);

/* serve-content.c */
int server_read_begin(struct server *server);
int server_read(struct server *server);
int server_write_begin(struct server *server);
int server_write(struct server *server);
int server_write_end(struct server *server);

#endif
