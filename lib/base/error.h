/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <agentbox/error.h>

#include "base/fault.h"
#include "base/macro.h"

/*
 * Set the error where the cause is known; above that only add context. Both return the code, so that
 *	return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_PLAN, "/cwd", "must be absolute");
 * is the whole of it. reterr may be NULL. An error that is already there is replaced.
 */
int error_set(abox_error **reterr, int code, int stage, const char *place, const char *format, ...) _printf_(5, 6);
int error_set_errno(abox_error **reterr, int code, int stage, const char *place, int sys_errno,
	const char *format, ...) _printf_(6, 7);	/* appends ": strerror" and picks NOSPACE, PERMISSION, MEMORY for
							 * ABOX_E_SYSTEM where errno says so */
int error_from_fault(abox_error **reterr, const struct fault *fault);

/* Context and details on what was set before; all take a NULL error. Return the code of the error. */
int error_prefix(abox_error **reterr, int code, const char *format, ...) _printf_(3, 4);
int error_remedy(abox_error **reterr, int code, const char *format, ...) _printf_(3, 4);
int error_position(abox_error **reterr, int code, uint32_t line, uint32_t column);
int error_retryable(abox_error **reterr, int code);

void error_freep(abox_error **error);

#endif
