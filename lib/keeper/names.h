/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef KEEPER_NAMES_H
#define KEEPER_NAMES_H

/* The names so far as a sealed memory file for egress (EGRESS_NAMES). 0 or -errno. */
int names_read(int fd, int *retfd);
/* 0 or -errno */
int names_append(int fd, const char *name);

#endif
