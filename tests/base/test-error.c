/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"

/* Every code of the closed list has a name of its own, and nothing behind the list has one. */
Test(error, names_every_code)
{
	for (int code = -1; code >= ABOX_E_LEFT_BEHIND; code--) {
		cr_assert_str_neq(abox_code_name(code), "?");
		for (int other = code - 1; other >= ABOX_E_LEFT_BEHIND; other--)
			cr_assert_str_neq(abox_code_name(code), abox_code_name(other));
	}
	cr_assert_str_eq(abox_code_name(ABOX_E_LEFT_BEHIND), "LEFT_BEHIND");
	cr_assert_str_eq(abox_code_name(ABOX_E_LEFT_BEHIND - 1), "?");
	cr_assert_str_eq(abox_code_name(0), "OK");
}

/* The one-line form names stage, place, message and remedy, and no byte of it can drive a terminal. */
Test(error, formats_safely)
{
	_cleanup_(error_freep) abox_error *error = NULL;
	_cleanup_(freep) char *line = NULL;

	error_set(&error, ABOX_E_INVALID, ABOX_STAGE_SPEC, "/env/A\x1b[2J", "bad\nvalue %d", 7);
	error_position(&error, ABOX_E_INVALID, 3, 14);
	error_remedy(&error, ABOX_E_INVALID, "use a number");
	cr_assert_eq(abox_error_format(error, &line), 0);
	cr_assert_str_eq(line,
		"spec: /env/A\\x1b[2J (line 3, column 14): bad\\x0avalue 7 (use a number)");
}

/* A full disk and a refusal are told apart from other system failures. */
Test(error, maps_errno)
{
	_cleanup_(error_freep) abox_error *error = NULL;

	cr_assert_eq(error_set_errno(&error, ABOX_E_SYSTEM, ABOX_STAGE_START, "x", ENOSPC, "cannot write"),
		ABOX_E_NOSPACE);
	cr_assert_eq(abox_error_get_errno(error), ENOSPC);
	cr_assert(strstr(abox_error_get_message(error), "cannot write: "));
	cr_assert_eq(error_set_errno(&error, ABOX_E_SYSTEM, ABOX_STAGE_START, "x", EACCES, "no"), ABOX_E_PERMISSION);
}

/* "No bound" is a bound like any other: reading ends with the file. */
Test(fd, reads_without_a_bound)
{
	char path[] = "/tmp/agentbox-test-XXXXXX";
	_cleanup_(freep) char *text = NULL;
	int fd = mkstemp(path);
	size_t len;

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, "hello", 5), 5);
	lseek(fd, 0, SEEK_SET);
	cr_assert_eq(fd_read_text(fd, SIZE_MAX, &text, &len), 0);
	cr_assert_eq(len, 5);
	close(fd);
	unlink(path);
}
