/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Sealed memory files: bytes that no one can change any more, not even through /proc/PID/exe or a descriptor
 * that leaked. Helpers run from them, and filters and plans travel in them. Helper code; answers -errno.
 */
#ifndef BASE_MEMFD_H
#define BASE_MEMFD_H

#include "base/macro.h"

/* A close-on-exec, sealed memory file of these bytes. Mode 0111 for programs (whoever runs one is not
 * dumpable from its first instruction unless privileged), 0400 for data. The descriptor reads from offset 0.
 */
int memfd_new_sealed(const char *name, const void *data, size_t len, uint32_t mode, int *retfd);
/* The same in steps, for bytes that come one after the other: a descriptor or -errno; written by the caller; 0 or -errno. */
int memfd_begin(const char *name, uint32_t mode);
int memfd_seal(int fd, uint32_t mode);
/* True when fd is a memory file that cannot change any more (shrink, grow, write all sealed). */
bool memfd_is_sealed(int fd);
/* The bytes of a sealed memory file of at most max bytes, mapped read-only; -EINVAL when it is not sealed.
 * Released with memfd_unmap(). An empty file gives len 0 and a pointer that must not be read. */
int memfd_map_sealed(int fd, size_t max, const void **retdata, size_t *retlen);
void memfd_unmap(const void *data, size_t len);

#endif
