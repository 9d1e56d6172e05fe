/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the library and a file server say to each other, over a stream: no descriptor goes either way, so that it passes
 * any channel that carries bytes. A message is {u32 type, u32 serial} and the fields listed at each type, in order
 * (base/pack.h), with its u32 length before it (file/packet.h).
 *
 * The server speaks first: READY or FAULT, of serial 0. From then on each request gets exactly one answer, which carries
 * its serial, before the next is looked at. While it removes, the server tells PROGRESS now and then, and takes CANCEL.
 *
 * Places are told by a number and a path below it. Number 0 is the root of the workspace; more come from OPEN. A path is
 * never absolute, holds no `..`, follows links that stay below the place, and "" is the place itself.
 *
 * Security: the server stands inside the wall. The library checks every field of what comes from it.
 */
#ifndef FILE_WIRE_H
#define FILE_WIRE_H

#include "base/fault.h"
#include "base/macro.h"
#include "base/pack.h"

#define FILE_WIRE_VERSION 1
#define FILE_PACKET_MAX 61440	/* one message */
#define FILE_DATA_MAX 57344	/* bytes of content in one message */
#define FILE_SLOTS 32		/* numbers of one server, the root included */
#define FILE_NAME_MAX 255
#define FILE_LINK_MAX 4095

enum file_type {
	/* server to library */
	FILE_OK = 1,		/* fields by request, see there */
	FILE_FAULT = 2,		/* i32 code, i32 stage, i32 errno, u8 retryable, str place, str message, str remedy */
	FILE_READY = 3,		/* u32 version */
	FILE_PROGRESS = 4,	/* -. Something was done */

	/* library to server */
	FILE_STAT = 10,		/* u32 place, str path, u8 follow. OK: entry */
	FILE_OPEN = 11,		/* u32 place, str path: of a folder. OK: u32 number, entry */
	FILE_LIST = 12,		/* u32 place, u8 restart. OK: u8 end, u32 n, n x {str name, entry} */
	FILE_ENTER = 13,	/* u32 place, str name: the place becomes the folder of that name in it, never a link. OK */
	FILE_LEAVE = 14,	/* u32 place: back to the folder that it was before. OK */
	FILE_CLOSE = 15,	/* u32 number. What was not ended is taken back. OK */
	FILE_READ_BEGIN = 20,	/* u32 place, str path, u8 follow: of a regular file. OK: u32 number, entry */
	FILE_READ = 21,		/* u32 number, u32 max. OK: u64 hole before the bytes, u8 end, bytes */
	FILE_WRITE_BEGIN = 22,	/* u32 place, str path, u32 flags, u32 mode (UINT32_MAX: as it was, or 0644). OK: u32 number */
	FILE_WRITE = 23,	/* u32 number, u64 hole before the bytes, bytes. OK */
	FILE_WRITE_END = 24,	/* u32 number, u8 sync, u64 seconds, u32 nanoseconds (UINT32_MAX: now). OK: entry */
	FILE_MAKE_FOLDER = 30,	/* u32 place, str path, u32 mode, u8 parents. OK: u8 made */
	FILE_REMOVE = 31,	/* u32 place, str path, u8 recursive. OK */
	FILE_RENAME = 32,	/* str from, str to, u8 replace: below the root both. OK */
	FILE_LINK = 33,		/* u32 place, str path, str target, u8 replace: a symbolic link. OK */
	FILE_DRESS = 34,	/* u32 place, u32 mode, u64 seconds, u32 nanoseconds (UINT32_MAX: leave): the folder. OK */
	FILE_CANCEL = 35,	/* of the serial that is being carried out; it has no answer of its own */
};

enum {			/* flags of WRITE_BEGIN */
	FILE_WRITE_ATOMIC = 1 << 0,	/* the old file stays until END, which puts the new one in its place */
	FILE_WRITE_NEW = 1 << 1,	/* nothing may be there */
	FILE_WRITE_PARENTS = 1 << 2,	/* missing folders above it are made */
	FILE_WRITE_ALL = (1 << 3) - 1,
};

/* As it travels: u32 mode (with type), u64 size, u64 allocated, u64 seconds, u32 nanoseconds, u32 uid, u32 gid, u32 links,
 * str target. */
struct file_entry {
	uint32_t mode;
	uint64_t size;
	uint64_t allocated;
	int64_t seconds;
	uint32_t nanoseconds;
	uint32_t uid, gid;
	uint32_t n_links;
	const char *target;	/* of a symbolic link, else "" */
};
void file_entry_pack(const struct file_entry *entry, struct pack_writer *writer);
/* Marks the reader failed when a field is out of its range. */
void file_entry_unpack(struct file_entry *entry, struct pack_reader *reader);
/* A name that a folder can hold, and no other. */
bool file_name_is_good(const char *name);

#endif
