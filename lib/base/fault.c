/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Faults: failures in fixed memory. No allocation, no locks; texts are cut, never overrun.
 */
#include "base/fault.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <agentbox/error.h>

#include <agentbox/error.h>

void fault_init(struct fault *fault, int stage)
{
	memset(fault, 0, sizeof(*fault));
	fault->stage = stage;
}

int code_of_errno(int code, int sys_errno)
{
	if (code != ABOX_E_SYSTEM && code != ABOX_E_IO)
		return code;
	switch (sys_errno) {
	case ENOMEM:
		return ABOX_E_MEMORY;
	case ENOSPC:
	case EDQUOT:
		return ABOX_E_NOSPACE;
	case EACCES:
	case EPERM:
	case EROFS:
		return ABOX_E_PERMISSION;
	default:
		return code;
	}
}

int fault_set(struct fault *fault, int code, int sys_errno, const char *place, const char *format, ...)
{
	va_list args;
	size_t used;

	code = code_of_errno(code, sys_errno);
	if (!fault)
		return code;
	fault->code = code;
	fault->sys_errno = sys_errno;
	fault->remedy[0] = 0;
	snprintf(fault->place, sizeof(fault->place), "%s", place ? place : "");
	va_start(args, format);
	vsnprintf(fault->message, sizeof(fault->message), format, args);
	va_end(args);
	used = strlen(fault->message);
	if (sys_errno)
		snprintf(fault->message + used, sizeof(fault->message) - used, ": %s", strerror(sys_errno));
	return code;
}

int fault_remedy(struct fault *fault, const char *format, ...)
{
	va_list args;

	if (!fault)
		return 0;
	va_start(args, format);
	vsnprintf(fault->remedy, sizeof(fault->remedy), format, args);
	va_end(args);
	return fault->code;
}

void fault_pack(const struct fault *fault, struct pack_writer *writer)
{
	pack_i32(writer, fault->code);
	pack_i32(writer, fault->stage);
	pack_i32(writer, fault->sys_errno);
	pack_u8(writer, fault->retryable ? 1 : 0);
	pack_string(writer, fault->place);
	pack_string(writer, fault->message);
	pack_string(writer, fault->remedy);
}

void fault_unpack(struct fault *fault, struct pack_reader *reader)
{
	*fault = (struct fault){ 0 };
	fault->code = unpack_i32(reader);
	fault->stage = unpack_i32(reader);
	fault->sys_errno = unpack_i32(reader);
	fault->retryable = unpack_u8(reader);
	snprintf(fault->place, sizeof(fault->place), "%s", unpack_string(reader));
	snprintf(fault->message, sizeof(fault->message), "%s", unpack_string(reader));
	snprintf(fault->remedy, sizeof(fault->remedy), "%s", unpack_string(reader));
	if (fault->code >= 0)
		fault->code = ABOX_E_PROTOCOL;	/* a fault that says "fine" is none */
}
