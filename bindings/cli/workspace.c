/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox workspace: the list of its verbs. Each is a command of its own, with options and help.
 */
#include <string.h>

#include "commands.h"
#include "workspace.h"

static const struct cli_command *const verbs[] = {
#define VERB(name) &cli_workspace_##name,
#include "workspace.list"
#undef VERB
};

static int print_verbs(FILE *out)
{
	fputs("Usage: agentbox workspace VERB [OPTIONS]\n\nVerbs:\n", out);
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		fprintf(out, "  %-10s%s\n", verbs[i]->name + strlen("workspace "), verbs[i]->summary);
	fputs("\n`agentbox workspace VERB --help` explains each.\n", out);
	return fflush(out) || ferror(out) ? CLI_EXIT_FAILED : CLI_EXIT_DONE;
}

static int run(struct cli_settings *settings)
{
	if (settings->n_words == 0) {
		print_verbs(stderr);
		return CLI_EXIT_USAGE;
	}
	if (strcmp(settings->words[0], "help") == 0)
		return print_verbs(stdout);
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strcmp(settings->words[0], verbs[i]->name + strlen("workspace ")) == 0)
			return cli_dispatch(verbs[i], (int)settings->n_words, settings->words);
	say("unknown verb '%s'; `agentbox workspace help` lists them", settings->words[0]);
	return CLI_EXIT_USAGE;
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
