/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef SANDBOX_RECORD_H
#define SANDBOX_RECORD_H

#include "base/error.h"
#include "plan/plan.h"

/*
 * Starts the recorder of a box and lets it open the journal, before anything is changed on the host for the
 * box itself. *retkeeper_fd is the keeper's end of its socket (-EBADF when the plan has no journal); the
 * recorder ends when all copies of that are closed. The journal's own errors go up as they are.
 */
int record_start(const struct plan_view *view, const char *id, uint64_t deadline_usec, int *retkeeper_fd,
	abox_error **reterr);

#endif
