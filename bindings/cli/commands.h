/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "cli.h"

/* commands.list has one line for each sub-command, in the order of the overview: COMMAND(name) means cli_name. */
#define COMMAND(name) extern const struct cli_command cli_##name;
#include "commands.list"
#undef COMMAND

#endif
