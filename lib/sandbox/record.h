/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef SANDBOX_RECORD_H
#define SANDBOX_RECORD_H

#include "base/error.h"
#include "plan/plan.h"

/*
 * Starts the recorder of a box, before anything is changed on the host for the box itself: it opens the journal and
 * hears what is done with the workspace. *retkeeper_fd is the keeper's end of its socket (-EBADF when the plan needs no
 * recorder); the recorder ends when all copies of that are closed. Its errors go up as they are.
 */
int record_start(const struct plan_view *view, const char *plan_digest, const char *id, uint64_t deadline_usec,
	int *retkeeper_fd, abox_error **reterr);

/* Settles the workspace of a box of which nothing lives. *retleft says what could not be done (NULL: nothing); a
 * workspace that was settled before, or that is gone, is fine. end: enum recorder_end, N_ENDS when nobody knows it. */
int record_recover(const char *id, const char *workspace, uint32_t end, const char *plan_digest, const char *order,
	char **retleft, abox_error **reterr);

#endif
