/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Clocks in microseconds, and deadlines that cannot overflow.
 */
#include "base/clock.h"

#include <time.h>

#include "base/macro.h"

static uint64_t clock_usec(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * USEC_PER_SEC + (uint64_t)ts.tv_nsec / NSEC_PER_USEC;
}

uint64_t clock_monotonic_usec(void)
{
	return clock_usec(CLOCK_MONOTONIC);
}

uint64_t clock_boot_usec(void)
{
	return clock_usec(CLOCK_BOOTTIME);
}

uint64_t clock_wall_usec(void)
{
	return clock_usec(CLOCK_REALTIME);
}

uint64_t clock_deadline(uint64_t now_usec, uint64_t delta_usec)
{
	uint64_t sum;

	if (delta_usec == UINT64_MAX || __builtin_add_overflow(now_usec, delta_usec, &sum))
		return UINT64_MAX;
	return sum;
}

int clock_poll_msec(uint64_t now_usec, uint64_t deadline_usec)
{
	uint64_t msec;

	if (deadline_usec == UINT64_MAX)
		return -1;
	if (deadline_usec <= now_usec)
		return 0;
	msec = (deadline_usec - now_usec + USEC_PER_MSEC - 1) / USEC_PER_MSEC;
	return msec > INT32_MAX ? INT32_MAX : (int)msec;
}
