/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef CLI_ANSWER_H
#define CLI_ANSWER_H

#include "console.h"

/*
 * The answer of run and exec for programs: the result file (--result) and --json. Either what abox_result_dump()
 * gives, with "teardown" and (where one is kept) "workspace" added, or {"error": {...}}.
 */
struct answer {
	const struct cli_settings *settings;
	struct whole_file file;
	char *teardown;		/* JSON; owned, abox_free() */
};
int answer_open(struct answer *answer, const struct cli_settings *settings);	/* 0 or CLI_EXIT_NO_BOX, told */
int answer_error(struct answer *answer, int exit_code, int code, const abox_error *error);	/* returns the exit code */
int answer_result(struct answer *answer, const struct console *console);	/* returns the exit code */
void answer_clear(struct answer *answer);

#endif
