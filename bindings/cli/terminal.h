/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>

bool terminal_is_ours(int fd);		/* a terminal, and we are in its foreground process group */
bool terminal_size(int fd, uint32_t *retrows, uint32_t *retcolumns);
int terminal_make_raw(int fd);		/* 0 or -errno; only when it is ours */
void terminal_restore(void);		/* what make_raw changed, when it is still ours; safe in a signal handler */
bool terminal_is_raw(void);

#endif
