/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A failure in fixed memory, for code that may not allocate: keeper, guest, and everything between clone and
 * exec. It travels over the wire as it is; the library turns it into an abox_error.
 */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include "base/macro.h"
#include "base/pack.h"

struct fault {
	int32_t code;		/* enum abox_code */
	int32_t stage;		/* enum abox_stage */
	int32_t sys_errno;
	int32_t retryable;
	char place[256];	/* step, path or field; cut when longer */
	char message[384];
	char remedy[256];	/* empty when nothing is known */
};

/*
 * Fills *fault (which may be NULL) and returns code, so that a failure is told in one line:
 *	return fault_set(fault, ABOX_E_SYSTEM, errno, "mount /proc", "cannot mount proc");
 * The stage is the one the fault was initialised with. strerror(sys_errno) is appended when it is not 0, and
 * ABOX_E_SYSTEM or ABOX_E_IO becomes NOSPACE, PERMISSION or MEMORY where the errno says so.
 */
int code_of_errno(int code, int sys_errno);
void fault_init(struct fault *fault, int stage);
int fault_set(struct fault *fault, int code, int sys_errno, const char *place, const char *format, ...)
	_printf_(5, 6);
int fault_remedy(struct fault *fault, const char *format, ...) _printf_(2, 3);	/* returns fault->code */

/* As it travels: i32 code, i32 stage, i32 errno, u8 retryable, str place, str message, str remedy. */
void fault_pack(const struct fault *fault, struct pack_writer *writer);
void fault_unpack(struct fault *fault, struct pack_reader *reader);	/* long texts are cut; see reader->failed */

#endif
