/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Errors: what happened, where, and what helps. An error holds texts only, never a secret; it has one owner.
 * Lack of memory while an error is made is not an error of its own: the code goes up without an object.
 */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strings.h"

struct abox_error {
	int code;
	int stage;
	int sys_errno;
	int retryable;
	uint32_t line;
	uint32_t column;
	char *place;
	char *message;
	char *remedy;
};

static const char *const code_names[] = {
	"OK",
	"INVALID",
	"MEMORY",
	"SYNTAX",
	"UNSUPPORTED",
	"UNAVAILABLE",
	"PERMISSION",
	"NOT_FOUND",
	"EXISTS",
	"BUSY",
	"STATE",
	"TIMEOUT",
	"IO",
	"SYSTEM",
	"PROTOCOL",
	"GONE",
	"FENCED",
	"CONFLICT",
	"LIMIT",
	"DENIED",
	"ESCAPE",
	"EXEC_NOT_FOUND",
	"EXEC_FORMAT",
	"EXEC_INTERPRETER",
	"MISMATCH",
	"NOSPACE",
	"DAMAGED",
	"POISONED",
	"CLONED",
	"IN_PROGRESS",
	"UNKNOWN",
	"AMBIGUOUS",
	"APPROVAL",
	"CANCELED",
	"ALREADY",
	"UNRECORDED",
	"LEFT_BEHIND",
};

static const char *const stage_names[] = {
	"none",
	"spec",
	"probe",
	"plan",
	"start",
	"command",
	"file",
	"stop",
	"open",
	"verify",
	"journal",
	"effect",
	"task",
	"report",
	"workspace",
	"network",
	"credential",
};

const char *abox_code_name(int code)
{
	if (code >= 0)
		return code_names[0];
	if (code < -(int)(ELEMENTSOF(code_names) - 1))
		return "?";
	return code_names[-code];
}

const char *abox_stage_name(int stage)
{
	if (stage < 0 || (size_t)stage >= ELEMENTSOF(stage_names))
		return "?";
	return stage_names[stage];
}

abox_error *abox_error_free(abox_error *error)
{
	if (!error)
		return NULL;
	free(error->place);
	free(error->message);
	free(error->remedy);
	free(error);
	return NULL;
}

void error_freep(abox_error **error)
{
	*error = abox_error_free(*error);
}

static int error_make(
	abox_error **reterr, int code, int stage, const char *place, int sys_errno, char *message)
{
	abox_error *error;

	if (!reterr || !message) {
		free(message);
		return code;
	}
	error = calloc(1, sizeof(*error));
	if (!error) {
		free(message);
		return code;
	}
	error->code = code;
	error->stage = stage;
	error->sys_errno = sys_errno;
	error->message = message;
	error->place = place ? strdup(place) : NULL;
	abox_error_free(*reterr);
	*reterr = error;
	return code;
}

int error_set(abox_error **reterr, int code, int stage, const char *place, const char *format, ...)
{
	char *message = NULL;
	va_list args;

	va_start(args, format);
	if (vasprintf(&message, format, args) < 0)
		message = NULL;
	va_end(args);
	return error_make(reterr, code, stage, place, 0, message);
}

int error_set_errno(
	abox_error **reterr, int code, int stage, const char *place, int sys_errno, const char *format, ...)
{
	char *text = NULL, *message = NULL;
	va_list args;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	if (text && asprintf(&message, "%s: %s", text, strerror(sys_errno)) < 0)
		message = NULL;
	free(text);
	return error_make(reterr, code_of_errno(code, sys_errno), stage, place, sys_errno, message);
}

int error_from_fault(abox_error **reterr, const struct fault *fault)
{
	int r;

	r = error_set(reterr, fault->code, fault->stage, fault->place[0] ? fault->place : NULL, "%s",
		fault->message);
	if (!reterr || !*reterr)
		return r;
	(*reterr)->sys_errno = fault->sys_errno;
	(*reterr)->retryable = !!fault->retryable;
	if (fault->remedy[0])
		(*reterr)->remedy = strdup(fault->remedy);
	return r;
}

int error_prefix(abox_error **reterr, int code, const char *format, ...)
{
	char *prefix = NULL, *message = NULL;
	va_list args;

	if (!reterr || !*reterr)
		return code;
	va_start(args, format);
	if (vasprintf(&prefix, format, args) < 0)
		prefix = NULL;
	va_end(args);
	if (prefix && asprintf(&message, "%s: %s", prefix, (*reterr)->message) >= 0) {
		free((*reterr)->message);
		(*reterr)->message = message;
	}
	free(prefix);
	return code;
}

int error_remedy(abox_error **reterr, int code, const char *format, ...)
{
	char *remedy = NULL;
	va_list args;

	if (!reterr || !*reterr)
		return code;
	va_start(args, format);
	if (vasprintf(&remedy, format, args) < 0)
		remedy = NULL;
	va_end(args);
	if (remedy) {
		free((*reterr)->remedy);
		(*reterr)->remedy = remedy;
	}
	return code;
}

int error_position(abox_error **reterr, int code, uint32_t line, uint32_t column)
{
	if (reterr && *reterr) {
		(*reterr)->line = line;
		(*reterr)->column = column;
	}
	return code;
}

int error_retryable(abox_error **reterr, int code)
{
	if (reterr && *reterr)
		(*reterr)->retryable = 1;
	return code;
}

int abox_error_get_code(const abox_error *error)
{
	return error ? error->code : 0;
}

int abox_error_get_stage(const abox_error *error)
{
	return error ? error->stage : 0;
}

int abox_error_get_errno(const abox_error *error)
{
	return error ? error->sys_errno : 0;
}

int abox_error_get_retryable(const abox_error *error)
{
	return error ? error->retryable : 0;
}

const char *abox_error_get_place(const abox_error *error)
{
	return error ? error->place : NULL;
}

uint32_t abox_error_get_line(const abox_error *error)
{
	return error ? error->line : 0;
}

uint32_t abox_error_get_column(const abox_error *error)
{
	return error ? error->column : 0;
}

const char *abox_error_get_message(const abox_error *error)
{
	return error ? error->message : NULL;
}

const char *abox_error_get_remedy(const abox_error *error)
{
	return error ? error->remedy : NULL;
}

int abox_error_format(const abox_error *error, char **rettext)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;

	if (!rettext)
		return ABOX_E_INVALID;
	if (!error) {
		text_add(&text, "success");
		return text_take(&text, rettext);
	}
	text_add(&text, abox_stage_name(error->stage));
	text_add(&text, ": ");
	if (error->place) {
		text_add_escaped(&text, error->place, strlen(error->place));
		if (error->line)
			text_printf(&text, " (line %u, column %u)", error->line, error->column);
		text_add(&text, ": ");
	} else if (error->line) {
		text_printf(&text, "line %u, column %u: ", error->line, error->column);
	}
	text_add_escaped(&text, error->message, strlen(error->message));
	if (error->remedy) {
		text_add(&text, " (");
		text_add_escaped(&text, error->remedy, strlen(error->remedy));
		text_add(&text, ")");
	}
	return text_take(&text, rettext);
}

static void add_member(struct text *text, const char *name, const char *value)
{
	text_printf(text, ",\"%s\":", name);
	if (value)
		text_add_json(text, value, strlen(value));
	else
		text_add(text, "null");
}

int abox_error_dump(const abox_error *error, char **retjson)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;

	if (!error || !retjson)
		return ABOX_E_INVALID;
	text_printf(&text, "{\"code\":\"%s\",\"stage\":\"%s\"", abox_code_name(error->code),
		abox_stage_name(error->stage));
	add_member(&text, "place", error->place);
	text_printf(&text, ",\"line\":%u,\"column\":%u,\"errno\":%d", error->line, error->column,
		error->sys_errno);
	add_member(&text, "message", error->message);
	add_member(&text, "remedy", error->remedy);
	text_printf(&text, ",\"retryable\":%s}", error->retryable ? "true" : "false");
	return text_take(&text, retjson);
}
