/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Synthetic addresses: inside a box each name has one IPv4 and one IPv6 address of its own for the life of
 * the box, and no name is ever looked up before a connection to it is allowed. Clients cache for hours, so an
 * address is never given to a second name; it follows from the name and the names before it, so that a box
 * which takes up the saved list of an earlier one has the same addresses.
 *
 * Names here are canonical: lower case, without a dot at the end, at most NAMES_TEXT_MAX bytes.
 */
#ifndef NETWORK_NAMES_H
#define NETWORK_NAMES_H

#include "base/macro.h"

#define NAMES_MAX 4096 /* a box has no more; then names do not exist */
#define NAMES_TEXT_MAX 253
#define NAMES_LABEL_MAX 63

/* 198.18.0.0/15 (kept for tests of network devices: no host of the world has one); the first /24 is the
 * cell's own. */
#define NAMES_V4_BASE 0xc6120000U
#define NAMES_V4_SLOTS 131072U
#define NAMES_V4_RESERVED 256U
/* A unique local prefix of this library: the cell's own address is ::1 in it, names are above 1:0:0. */
#define NAMES_V6_PREFIX                                                                                      \
	{                                                                                                    \
		0xfd, 0x5a, 0xb0, 0xc5, 0x1d, 0x7e, 0, 0                                                     \
	}

struct names;

struct names *names_new(void); /* NULL: no memory */
struct names *names_free(struct names *names); /* takes NULL, returns NULL */
void names_freep(struct names **names);

/* Whether it is a host name with at least two labels of letters, digits, '-' and '_', and neither an address
 * in any spelling (its last label is no number) nor below localhost. */
bool names_is_host(const char *name);

/*
 * The addresses of a name, made on first use. ret4 and ret6 in network order; either may be NULL.
 * Return: 1 when the name is new, 0 when it was there, -EINVAL (names_is_host()), -ENOSPC (NAMES_MAX),
 * -ENOMEM
 */
int names_add(struct names *names, const char *name, uint8_t ret4[4], uint8_t ret6[16]);

/* Whose address it is: AF_INET with 4 bytes, or AF_INET6 with 16 (mapped ones included); NULL: nobody's. The
 * text belongs to the table. */
const char *names_find(const struct names *names, int family, const void *address);

/* Whether an address is in one of the two pools, given out or not: such a one leads to nobody but a name. */
bool names_in_pool(int family, const void *address);

size_t names_count(const struct names *names);
/* In the order in which they came; i below names_count(). */
const char *names_get(const struct names *names, size_t i);

/* The names of an earlier life, in their order, one a line, into an empty table: 0, -EPROTO (they are none,
 * the table is empty then), -ENOMEM. */
int names_restore(struct names *names, const void *data, size_t len);

#endif
