/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox spec: look at specs without running anything.
 */
#include <string.h>

#include "commands.h"

static int spec_check(const struct cli_settings *settings, const char *path)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_spec_unrefp) abox_spec *spec = NULL;
	_cleanup_(text_freep) char *json = NULL;
	int r;

	r = spec_read_file(path, &spec, &error);
	if (r < 0)
		return fail(settings, r, error);
	if (!settings->json) {
		printf("%s: a correct spec\n", path);
		return finish_stdout();
	}
	r = abox_spec_dump_resolved(spec, &json);
	if (r < 0)
		return fail(settings, r, NULL);
	return print_json_text(json);
}

static int spec_keys(const struct cli_settings *settings)
{
	_cleanup_(text_freep) char *text = NULL;
	int r;

	r = abox_spec_describe_keys(settings->json ? ABOX_KEYS_JSON : ABOX_KEYS_MARKDOWN, &text);
	if (r < 0)
		return fail(settings, r, NULL);
	if (settings->json)
		return print_json_text(text);
	fputs(text, stdout);
	return finish_stdout();
}

static int run(struct cli_settings *settings)
{
	if (!strcmp(settings->words[0], "check") && settings->n_words == 2)
		return spec_check(settings, settings->words[1]);
	if (!strcmp(settings->words[0], "keys") && settings->n_words == 1)
		return spec_keys(settings);
	say("usage: agentbox spec check FILE, or agentbox spec keys");
	return CLI_EXIT_USAGE;
}

const struct cli_command cli_spec = {
	.name = "spec",
	.usage = "check FILE | keys",
	.summary = "check a spec file, list the keys of a spec",
	.help =
	"check  reads FILE (- is standard input) and says whether it is a spec, with line and column where it is not.\n"
	"       The host is not asked; `agentbox plan --spec FILE` does that. --json prints it with all defaults.\n"
	"keys   prints every key with its type, range, default and meaning.\n",
	.words_min = 1,
	.words_max = 2,
	.run = run,
};
