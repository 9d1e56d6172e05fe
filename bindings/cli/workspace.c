/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox workspace: the list of its verbs. Each is a command of its own, with options and help.
 */
#include "commands.h"
#include "workspace.h"

static const struct cli_command *const verbs[] = {
#define VERB(name) &cli_workspace_##name,
#include "workspace.list"
#undef VERB
	NULL,
};

static int run(struct cli_settings *settings)
{
	return cli_run_verb(settings, verbs, "workspace", "VERB [OPTIONS]");
}

const struct cli_command cli_workspace = {
	.name = "workspace",
	.usage = "VERB ...",
	.summary = "files that outlive a box: layers, snapshots, forks",
	.help =
	"A workspace is the files that a task works on, kept between boxes. `agentbox workspace help` lists what can be\n"
	"done with them.\n",
	.words_min = 0,
	.words_max = CLI_WORDS_ANY,
	.stops_at_word = true,
	.run = run,
};
