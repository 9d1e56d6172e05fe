/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The `agentbox` command: the library from a shell. It uses the public API only. This file is the list of
 * sub-commands and the help around it; each sub-command is a file of its own.
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "commands.h"

static const struct cli_command *const commands[] = {
#define COMMAND(name) &cli_##name,
#include "commands.list"
#undef COMMAND
};

int cli_print_help(const struct cli_command *command, FILE *out)
{
	fprintf(out, "Usage: agentbox %s%s%s\n\n%s\n", command->name, command->usage[0] ? " " : "", command->usage,
		command->help);
	options_print(command->groups, out);
	if (command->usage_exit == CLI_EXIT_NO_BOX) {
		fputc('\n', out);
		exit_print_table(out);
	}
	return fflush(out) || ferror(out) ? CLI_EXIT_FAILED : CLI_EXIT_DONE;
}

int cli_dispatch(const struct cli_command *command, int argc, char **argv)
{
	struct cli_settings settings = { 0 };
	int usage_exit = command->usage_exit ? command->usage_exit : CLI_EXIT_USAGE;
	int r = options_parse(&settings, command->groups, command->stops_at_word, argc, argv);

	if (r > 0)
		r = cli_print_help(command, stdout);
	else if (r < 0)
		r = usage_exit;
	else if (settings.n_words < command->words_min
		 || settings.n_words > command->words_max) {
		say("usage: agentbox %s %s", command->name, command->usage);
		r = usage_exit;
	} else
		r = command->run(&settings);
	settings_clear(&settings);
	return r;
}

static int print_verbs(const struct cli_command *const *verbs, const char *command, const char *usage, FILE *out)
{
	fprintf(out, "Usage: agentbox %s %s\n\nVerbs:\n", command, usage);
	for (size_t i = 0; verbs[i]; i++)
		fprintf(out, "  %-10s%s\n", verbs[i]->name + strlen(command) + 1, verbs[i]->summary);
	fprintf(out, "\n`agentbox %s VERB --help` explains each.\n", command);
	return fflush(out) || ferror(out) ? CLI_EXIT_FAILED : CLI_EXIT_DONE;
}

int cli_run_verb(const struct cli_settings *settings, const struct cli_command *const *verbs, const char *command,
	const char *usage)
{
	if (settings->n_words == 0) {
		print_verbs(verbs, command, usage, stderr);
		return CLI_EXIT_USAGE;
	}
	if (strcmp(settings->words[0], "help") == 0)
		return print_verbs(verbs, command, usage, stdout);
	for (size_t i = 0; verbs[i]; i++)
		if (strcmp(settings->words[0], verbs[i]->name + strlen(command) + 1) == 0)
			return cli_dispatch(verbs[i], (int)settings->n_words, settings->words);
	say("unknown verb '%s'; `agentbox %s help` lists them", settings->words[0], command);
	return CLI_EXIT_USAGE;
}

static int print_overview(FILE *out)
{
	fputs("Usage: agentbox COMMAND [OPTIONS]\n\nRuns programs behind a wall, and tells what is enforced.\n\nCommands:\n", out);
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		fprintf(out, "  %-10s%s\n", commands[i]->name, commands[i]->summary);
	fputs("\n`agentbox COMMAND --help` explains each. `agentbox --version` prints versions and features.\n\n", out);
	exit_print_table(out);
	return fflush(out) || ferror(out) ? CLI_EXIT_FAILED : CLI_EXIT_DONE;
}

static int print_version(void)
{
	printf("agentbox %s (library %s)\nfeatures: %s\n", ABOX_VERSION, abox_version(), abox_features());
	return finish_stdout();
}

/* With 0, 1 or 2 closed, the next descriptor that is opened would be taken for a standard stream. */
static void open_standard_streams(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR | O_NOCTTY);
	while (fd >= 0 && fd <= 2);
	if (fd > 2)
		close(fd);
}

int main(int argc, char **argv)
{
	static char help[] = "--help";

	open_standard_streams();
	if (argc < 2) {
		print_overview(stderr);
		return CLI_EXIT_USAGE;
	}
	if (!strcmp(argv[1], "help") && argc == 3) {
		argv[1] = argv[2];	/* the same as COMMAND --help */
		argv[2] = help;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
		return print_overview(stdout);
	if (!strcmp(argv[1], "--version"))
		return print_version();
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(argv[1], commands[i]->name))
			return cli_dispatch(commands[i], argc - 1, argv + 1);
	say("unknown command '%s'; `agentbox --help` lists them", argv[1]);
	return CLI_EXIT_USAGE;
}
