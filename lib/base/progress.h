/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <agentbox/types.h>

#include "base/macro.h"

/* Of what takes long: counts, and a callback that is told of them about ten times a second. */
struct progress {
	abox_progress_fn fn;	/* NULL: nobody is told */
	void *userdata;
	uint64_t n_entries, n_bytes;
	uint64_t told_usec;
};

/* More has been done. NULL is fine. False when the callback wants an end. */
bool progress_add(struct progress *progress, uint64_t entries, uint64_t bytes);
/* False when the callback wants an end. `now` tells whatever the time. */
bool progress_tick(struct progress *progress, bool now);

#endif
