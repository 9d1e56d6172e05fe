/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Errors: a closed list of codes, and an object that says what, where, and what helps.
 */
#ifndef AGENTBOX_ERROR_H
#define AGENTBOX_ERROR_H

#include <agentbox/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * enum abox_code - every negative answer of the library
 *
 * The list is closed within a major version: new codes come with a new major version only. They are not errno
 * values; the errno behind a failure is a field of the error object.
 */
enum abox_code {
	ABOX_E_INVALID = -1,		/* an argument or a field is wrong */
	ABOX_E_MEMORY = -2,		/* out of memory; may come without an error object */
	ABOX_E_SYNTAX = -3,		/* text that cannot be parsed; place has line, column */
	ABOX_E_UNSUPPORTED = -4,	/* cannot be enforced here, or is not in this build */
	ABOX_E_UNAVAILABLE = -5,	/* no usable wall on this host; remedy says what is missing */
	ABOX_E_PERMISSION = -6,		/* the host refused */
	ABOX_E_NOT_FOUND = -7,		/* no such sandbox, command, file, record */
	ABOX_E_EXISTS = -8,		/* the name is taken */
	ABOX_E_BUSY = -9,		/* somebody else holds it; message names the holder */
	ABOX_E_STATE = -10,		/* not possible in this state (stopped, closed, forked child) */
	ABOX_E_TIMEOUT = -11,		/* bounded waiting ended */
	ABOX_E_IO = -12,		/* reading or writing failed */
	ABOX_E_SYSTEM = -13,		/* another system call failed; see errno */
	ABOX_E_PROTOCOL = -14,		/* a helper answered what it must not */
	ABOX_E_GONE = -15,		/* keeper or wall ended */
	ABOX_E_FENCED = -16,		/* a newer controller has taken over */
	ABOX_E_CONFLICT = -17,		/* same key or token, other content */
	ABOX_E_LIMIT = -18,		/* a bound of the library or the policy was reached */
	ABOX_E_DENIED = -19,		/* the policy says no */
	ABOX_E_ESCAPE = -20,		/* a path leads outside its root */
	ABOX_E_EXEC_NOT_FOUND = -21,	/* the program does not exist */
	ABOX_E_EXEC_FORMAT = -22,	/* found but not executable, or a directory */
	ABOX_E_EXEC_INTERPRETER = -23,	/* found, but its interpreter or loader is missing */
	ABOX_E_MISMATCH = -24,		/* verify found less than the plan promises */
	ABOX_E_NOSPACE = -25,		/* no room left */
	ABOX_E_DAMAGED = -26,		/* stored data is damaged; place names it */
	ABOX_E_POISONED = -27,		/* a sync failed; nothing may be acknowledged until repaired */
	ABOX_E_CLONED = -28,		/* this journal is a copy; adopt it by name */
	ABOX_E_IN_PROGRESS = -29,	/* the effect is being executed elsewhere */
	ABOX_E_UNKNOWN = -30,		/* the outcome is not known; needs a decision */
	ABOX_E_AMBIGUOUS = -31,		/* may be a repeat of an earlier effect; claim it or say it is new */
	ABOX_E_APPROVAL = -32,		/* approval is missing, denied, expired or used up */
	ABOX_E_CANCELED = -33,		/* the task or command was canceled */
	ABOX_E_ALREADY = -34,		/* too late: final, or beyond the commit boundary */
	ABOX_E_UNRECORDED = -35,	/* done, but it could not be recorded; the result is returned all the same */
	ABOX_E_LEFT_BEHIND = -36	/* teardown could not remove everything; the report lists it */
};

/** Where in the flow an error arose. */
enum abox_stage {
	ABOX_STAGE_NONE = 0,
	ABOX_STAGE_SPEC = 1,
	ABOX_STAGE_PROBE = 2,
	ABOX_STAGE_PLAN = 3,
	ABOX_STAGE_START = 4,
	ABOX_STAGE_COMMAND = 5,
	ABOX_STAGE_FILE = 6,
	ABOX_STAGE_STOP = 7,
	ABOX_STAGE_OPEN = 8,
	ABOX_STAGE_VERIFY = 9,
	ABOX_STAGE_JOURNAL = 10,
	ABOX_STAGE_EFFECT = 11,
	ABOX_STAGE_TASK = 12,
	ABOX_STAGE_REPORT = 13,
	ABOX_STAGE_WORKSPACE = 14,
	ABOX_STAGE_NETWORK = 15,
	ABOX_STAGE_CREDENTIAL = 16
};

/**
 * abox_code_name() - the name of a code, for logs and JSON
 * @code:     a value of enum abox_code, or 0
 *
 * Threads:  any
 * Return:   static text such as "FENCED"; "OK" for 0 and above; "?" for a code that is not in the list
 * Since:    0.1
 */
ABOX_API const char *abox_code_name(int code);

/** abox_stage_name() - the name of a stage, such as "start"; static text, "?" for an unknown one. Since 0.1. */
ABOX_API const char *abox_stage_name(int stage);

/**
 * abox_error_free() - release an error
 * @error:    owned; may be NULL
 *
 * Threads:  one
 * Return:   NULL, so that `err = abox_error_free(err)` leaves no stale pointer
 * Since:    0.1
 */
ABOX_API abox_error *abox_error_free(abox_error *error);

/**
 * Fields of an error. All take NULL and answer 0 or NULL then. The texts belong to the error and never hold a
 * secret: every error is safe to print and to store.
 *
 * abox_error_get_code()       a value of enum abox_code
 * abox_error_get_stage()      a value of enum abox_stage
 * abox_error_get_errno()      the errno behind it, 0 when there was none
 * abox_error_get_retryable()  1 when the same call may succeed later without any change, else 0
 * abox_error_get_place()      JSON pointer of the spec field, name of the plan step, path; NULL when there is none
 * abox_error_get_line()       1-based line of a syntax or spec error, 0 when there is none
 * abox_error_get_column()     1-based column in bytes, 0 when there is none
 * abox_error_get_message()    what happened, one line
 * abox_error_get_remedy()     what helps, one line; NULL when nothing is known
 * Since: 0.1
 */
ABOX_API int abox_error_get_code(const abox_error *error);
ABOX_API int abox_error_get_stage(const abox_error *error);
ABOX_API int abox_error_get_errno(const abox_error *error);
ABOX_API int abox_error_get_retryable(const abox_error *error);
ABOX_API const char *abox_error_get_place(const abox_error *error);
ABOX_API uint32_t abox_error_get_line(const abox_error *error);
ABOX_API uint32_t abox_error_get_column(const abox_error *error);
ABOX_API const char *abox_error_get_message(const abox_error *error);
ABOX_API const char *abox_error_get_remedy(const abox_error *error);

/**
 * abox_error_format() - the whole error as one line for people: "stage: place: message (remedy)"
 * @error:    borrowed; NULL gives "success"
 * @rettext:  released with abox_free()
 *
 * Control bytes are escaped, so that the line is safe on a terminal.
 *
 * Threads:  any
 * Return:   0, ABOX_E_INVALID, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_error_format(const abox_error *error, char **rettext);

/**
 * abox_error_dump() - the whole error as a JSON object
 * @error:    borrowed
 * @retjson:  {"code","stage","place","line","column","errno","message","remedy","retryable"}; abox_free()
 *
 * Threads:  any
 * Return:   0, ABOX_E_INVALID, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_error_dump(const abox_error *error, char **retjson);

#ifdef __cplusplus
}
#endif
#endif
