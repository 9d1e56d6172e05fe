/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/progress.h"

#include "base/clock.h"

#define TELL_USEC (100 * USEC_PER_MSEC)

bool progress_tick(struct progress *progress, bool now)
{
	uint64_t usec;

	if (!progress->fn)
		return true;
	usec = clock_monotonic_usec();
	if (!now && usec - progress->told_usec < TELL_USEC)
		return true;
	progress->told_usec = usec;
	return progress->fn(progress->userdata, progress->n_entries, progress->n_bytes) >= 0;
}

bool progress_add(struct progress *progress, uint64_t entries, uint64_t bytes)
{
	if (!progress)
		return true;
	progress->n_entries += entries;
	progress->n_bytes += bytes;
	return progress_tick(progress, false);
}
