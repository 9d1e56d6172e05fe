/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GUEST_COUNT_H
#define GUEST_COUNT_H

#include <stdint.h>

/* How many processes descend from the caller, by /proc of its pid namespace; zombies do not count. UINT32_MAX when
 * that cannot be told. A look, not a promise: processes come and go meanwhile. */
uint32_t count_descendants(void);

#endif
