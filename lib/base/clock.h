/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

/* Microseconds. Monotonic does not count suspend, boot does: deadlines of boxes use monotonic, leases boot. */
uint64_t clock_monotonic_usec(void);
uint64_t clock_boot_usec(void);
uint64_t clock_wall_usec(void);
/* now + delta, UINT64_MAX ("never") on overflow or when delta is UINT64_MAX. */
uint64_t clock_deadline(uint64_t now_usec, uint64_t delta_usec);
/* Milliseconds for poll(2) until the deadline: -1 for never, rounded up, at most INT32_MAX. */
int clock_poll_msec(uint64_t now_usec, uint64_t deadline_usec);

#endif
