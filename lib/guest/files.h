/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The files of a box over a port: the machine's kernel asks for them as of any FUSE filesystem, and what it asks and is
 * answered goes as it is through a port, whose other end is the host's server of files. Unlike the device for shared
 * files, a port can be part of a machine that is stopped and gone on with elsewhere. Helper code.
 */
#ifndef GUEST_FILES_H
#define GUEST_FILES_H

#include "base/fault.h"
#include "base/macro.h"

#define FILES_REQUEST_MAX ((1U << 20) + 65536)	/* the longest request or answer: data of 1 MiB, and what is about it */
#define FILES_REQUEST_HEAD 40	/* struct fuse_in_header; begins with u32 length, u32 opcode */
#define FILES_ANSWER_HEAD 16	/* struct fuse_out_header; begins with u32 length */

/* Mounts them at target, and starts the two processes that carry requests and answers. The machine ends with them. */
int guest_files_mount(int port_fd, const char *target, uint64_t flags, struct fault *fault);

#endif
