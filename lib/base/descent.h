/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef BASE_DESCENT_H
#define BASE_DESCENT_H

#include <errno.h>
#include <sys/types.h>

#include "base/macro.h"

/* A way down from a directory and back. At most DESCENT_OPEN_LEVELS and two descriptors are open: what lies above is
 * found again through `..`, and is believed only when it is the same directory. */
#define DESCENT_OPEN_LEVELS 64
struct descent {
	struct descent_level {
		int fd;
		dev_t device;
		ino_t inode;
	} *levels;
	size_t n;
	size_t allocated;
};
#define DESCENT_INIT ((struct descent){ 0 })
int descent_push(struct descent *descent, int fd_taken);	/* 0 or -errno; fd is closed on failure too */
int descent_pop(struct descent *descent);			/* 0 or -errno (ESTALE: the tree was changed) */
static inline int descent_fd(const struct descent *descent)
{
	return descent->n > 0 ? descent->levels[descent->n - 1].fd : -EBADF;
}
void descent_clear(struct descent *descent);

#endif
