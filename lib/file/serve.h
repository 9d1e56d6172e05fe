/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The file server: carries out what file/wire.h asks for, below one folder and nowhere else. It knows nothing of walls:
 * whoever starts it has entered one before. Helper code.
 */
#ifndef FILE_SERVE_H
#define FILE_SERVE_H

#include <sys/types.h>

#include "base/fault.h"
#include "base/macro.h"

/* Serves until the other end closes, or for good when that breaks the rules. Both descriptors are the caller's. */
void file_serve(int socket_fd, int root_fd, bool writes);
/* For whoever cannot serve: says why, in place of READY. */
void file_serve_fault(int socket_fd, const struct fault *fault);

/* The last steps before file_serve(): files that are made belong to uid and gid, rights over files of the box's ids and
 * nothing else are kept. Needs the capabilities of the box's user namespace. */
int file_serve_confine(uid_t uid, gid_t gid, struct fault *fault);

#endif
