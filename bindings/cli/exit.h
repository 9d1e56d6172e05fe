/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef CLI_EXIT_H
#define CLI_EXIT_H

#include <agentbox/command.h>
#include <agentbox/error.h>
#include <stdio.h>

/* Exit codes of `agentbox`. The table with their meanings is in exit.c; --help prints it from there. */
enum cli_exit {
	CLI_EXIT_DONE = 0,
	CLI_EXIT_FAILED = 1,
	CLI_EXIT_USAGE = 2,
	CLI_EXIT_TIMEOUT = 124,
	CLI_EXIT_NO_BOX = 125,
	CLI_EXIT_NOT_EXECUTABLE = 126,
	CLI_EXIT_NOT_FOUND = 127,
	CLI_EXIT_SIGNAL = 128,
	CLI_EXIT_BROKEN_PIPE = 141,
};

void exit_print_table(FILE *out);
int exit_of_result(const abox_result *result);	/* the code of run, exec and wait for a command that ended */
int exit_of_start_error(int code);		/* the same for one that could not be started */

#endif
