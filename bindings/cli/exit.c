/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Exit codes: the one table of them. A command's own code and ours share one byte, so the codes that `run` and
 * `exec` add are those that shells, env(1) and timeout(1) use for the same things; --result tells them apart.
 */
#include "exit.h"

static const struct {
	const char *code;
	const char *meaning;
} exit_table[] = {
	{ "0-255", "run, exec, wait: the exit code of the command itself" },
	{ "124", "run, exec, wait: the wall, idle or command clock ended it" },
	{ "125", "run, exec: the box could not be made or kept, or the call was wrong; one line on stderr says what" },
	{ "126", "run, exec: the program was found but cannot be executed (or its interpreter is missing)" },
	{ "127", "run, exec: the program was not found" },
	{ "128+n", "run, exec, wait: signal n ended it, also when a limit sent it; run and exec say which on stderr" },
	{ "141", "run, exec: the reader of our output went away; the command was killed" },
	{ "0", "all others: done" },
	{ "1", "all others: it failed, or the answer is no (doctor: no usable wall; verify: less than promised)" },
	{ "2", "all others: the call was wrong" },
};

void exit_print_table(FILE *out)
{
	fputs("Exit codes:\n", out);
	for (size_t i = 0; i < sizeof(exit_table) / sizeof(exit_table[0]); i++)
		fprintf(out, "  %-8s%s\n", exit_table[i].code, exit_table[i].meaning);
}

int exit_of_result(const abox_result *result)
{
	switch (abox_result_get_cause(result)) {
	case ABOX_CAUSE_TIMEOUT:
	case ABOX_CAUSE_IDLE:
		return CLI_EXIT_TIMEOUT;
	case ABOX_CAUSE_WALL_LOST:
	case ABOX_CAUSE_KEEPER_LOST:
		return CLI_EXIT_NO_BOX;
	default:
		break;
	}
	if (abox_result_get_signal(result) > 0)
		return CLI_EXIT_SIGNAL + abox_result_get_signal(result);
	if (abox_result_get_exit_code(result) >= 0)
		return abox_result_get_exit_code(result);
	return CLI_EXIT_NO_BOX;
}

int exit_of_start_error(int code)
{
	if (code == ABOX_E_EXEC_NOT_FOUND)
		return CLI_EXIT_NOT_FOUND;
	if (code == ABOX_E_EXEC_FORMAT || code == ABOX_E_EXEC_INTERPRETER)
		return CLI_EXIT_NOT_EXECUTABLE;
	return CLI_EXIT_NO_BOX;
}
