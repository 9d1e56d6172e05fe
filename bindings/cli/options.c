/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Options: their tables, and the parser that reads a command line with them. Most options of `run` only set a key
 * of the spec, so that what can be said here and what can be said in a spec file is checked at one place, in the
 * library. Options win over the file given with --spec, wherever they stand.
 */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "spec_options.h"

#define AT(member) offsetof(struct cli_settings, member)

const struct cli_option options_common[] = {
	{ "help", 'h', NULL, "show this text", OPTION_FLAG, 0, NULL, NULL },
	{ "json", 0, NULL, "answer as JSON", OPTION_FLAG, AT(json), NULL, NULL },
	{ 0 }
};

const struct cli_option options_box[] = {
	{ "spec", 0, "FILE", "start from this spec; the options below change it", OPTION_TEXT, AT(spec_file), NULL, NULL },
	{ "name", 0, "NAME", "a unique name for the box", OPTION_SPEC_TEXT, 0, "/name", NULL },
	{ "backend", 0, "NAME", "auto, namespaces, gvisor or microvm", OPTION_SPEC_TEXT, 0, "/backend", NULL },
	{ "floor", 0, "LEVEL", "the weakest wall that will do", OPTION_SPEC_TEXT, 0, "/isolation_floor", NULL },
	{ "waive", 0, "RULE", "do without this rule (again for more)", OPTION_SPEC_TEXT, 0, "/waive/-", NULL },
	{ "mount", 0, "SRC:DST[:ro|rw]", "show a host path in the box, read-only unless :rw; \\: is a colon in a path",
	  OPTION_SPEC_CALL, 0, NULL, spec_option_mount },
	{ "tmpfs", 0, "DST[:SIZE]", "an empty folder in memory", OPTION_SPEC_CALL, 0, NULL, spec_option_tmpfs },
	{ "env", 0, "NAME[=VALUE]", "set a variable; without a value it is taken from here", OPTION_SPEC_CALL, 0, NULL,
	  spec_option_env },
	{ "cwd", 0, "DIR", "working directory inside", OPTION_SPEC_TEXT, 0, "/cwd", NULL },
	{ "user", 0, "USER", "agent, root or a number: the user inside", OPTION_SPEC_QUANTITY, 0, "/user", NULL },
	{ "workspace", 0, "DIR[:overlay|copy|direct]",
	  "this folder at /workspace: a layer above it, a copy, or the folder itself, writable",
	  OPTION_SPEC_CALL, 0, NULL, spec_option_workspace },
	{ "net", 0, "none|open|HOST[:PORT],...", "what it may reach: nothing, any public host, or these hosts only",
	  OPTION_SPEC_CALL, 0, NULL, spec_option_net },
	{ "publish", 0, "[ADDR:]PORT:BOXPORT", "let the host reach a port of the box (again for more); PORT 0: any",
	  OPTION_SPEC_CALL, 0, NULL, spec_option_publish },
	{ "workspace-id", 0, "ID", "go on with a workspace that is there; its changes are kept", OPTION_SPEC_CALL, 0, NULL,
	  spec_option_workspace_id },
	{ "from-snapshot", 0, "ID", "begin as this snapshot", OPTION_SPEC_CALL, 0, NULL, spec_option_from_snapshot },
	{ "on-success", 0, "ACTION", "what becomes of the changes: discard, keep, snapshot, artifacts or diagnostics",
	  OPTION_SPEC_TEXT, 0, "/workspace/on_success", NULL },
	{ "on-failure", 0, "ACTION", "the same after failure", OPTION_SPEC_TEXT, 0, "/workspace/on_failure", NULL },
	{ "on-cancel", 0, "ACTION", "after cancel", OPTION_SPEC_TEXT, 0, "/workspace/on_cancel", NULL },
	{ "on-timeout", 0, "ACTION", "after --timeout or --idle; as --on-failure when absent", OPTION_SPEC_TEXT, 0,
	  "/workspace/on_timeout", NULL },
	{ "artifact", 0, "PATTERN", "a result that is collected (again for more)", OPTION_SPEC_TEXT, 0,
	  "/workspace/artifact/-", NULL },
	{ "scratch", 0, "PATTERN", "does not survive the box (again for more)", OPTION_SPEC_TEXT, 0,
	  "/workspace/scratch/-", NULL },
	{ "never", 0, "PATTERN", "refuse to keep anything while this is there (again for more)", OPTION_SPEC_TEXT, 0,
	  "/workspace/never/-", NULL },
	{ "workspace-ttl", 0, "TIME", "gc removes what was kept after so long, such as 7d", OPTION_SPEC_QUANTITY, 0,
	  "/workspace/ttl", NULL },
	{ "timeout", 0, "TIME", "wall clock of the box, such as 90s or 30m", OPTION_SPEC_QUANTITY, 0, "/limits/wall", NULL },
	{ "idle", 0, "TIME", "end the box after so long without a running command", OPTION_SPEC_QUANTITY, 0,
	  "/limits/idle", NULL },
	{ "memory", 0, "SIZE", "memory of the box, such as 512MiB", OPTION_SPEC_QUANTITY, 0, "/limits/memory", NULL },
	{ "cpus", 0, "N", "processors it may use, such as 1.5", OPTION_SPEC_NUMBER, 0, "/limits/cpus", NULL },
	{ "pids", 0, "N", "processes and threads", OPTION_SPEC_QUANTITY, 0, "/limits/pids", NULL },
	{ "disk", 0, "SIZE", "bytes in all writable places together", OPTION_SPEC_QUANTITY, 0, "/limits/disk", NULL },
	{ "inodes", 0, "N", "files in all writable places together", OPTION_SPEC_QUANTITY, 0, "/limits/inodes", NULL },
	{ "files", 0, "N", "open files of each process", OPTION_SPEC_QUANTITY, 0, "/limits/open_files", NULL },
	{ "output-limit", 0, "SIZE", "bytes of output kept of each stream", OPTION_SPEC_QUANTITY, 0, "/limits/output", NULL },
	{ "strict", 0, NULL, "refuse also where only a default cannot be enforced here", OPTION_SPEC_FLAG, 0, "/strict", NULL },
	{ 0 }
};

const struct cli_option options_start[] = {
	{ "keep", 0, NULL, "leave the box running when the command has ended", OPTION_FLAG, AT(keep), NULL, NULL },
	{ 0 }
};

const struct cli_option options_command[] = {
	{ "tty", 't', NULL, "give the command a terminal of its own", OPTION_FLAG, AT(tty), NULL, NULL },
	{ "interactive", 'i', NULL, "pass our standard input on; without it the command reads nothing", OPTION_FLAG,
	  AT(interactive), NULL, NULL },
	{ "detach", 'd', NULL, "do not wait; print the id and go", OPTION_FLAG, AT(detach), NULL, NULL },
	{ "result", 0, "FILE", "write the result, or the error, as JSON", OPTION_TEXT, AT(result_file), NULL, NULL },
	{ 0 }
};

const struct cli_option options_exec[] = {
	{ "env", 0, "NAME[=VALUE]", "set a variable; without a value it is taken from here", OPTION_ENV, 0, NULL, NULL },
	{ "cwd", 0, "DIR", "working directory inside", OPTION_TEXT, AT(cwd), NULL, NULL },
	{ "user", 0, "USER", "agent, root or a number: the user inside", OPTION_TEXT, AT(user), NULL, NULL },
	{ "timeout", 0, "TIME", "end this command after so long", OPTION_TEXT, AT(timeout), NULL, NULL },
	{ "token", 0, "TOKEN", "start it once: the same token means the command that runs already", OPTION_TEXT, AT(token),
	  NULL, NULL },
	{ 0 }
};

static const struct cli_option *find_option(const struct cli_option *const *groups, const char *name, size_t len,
	char letter)
{
	for (size_t g = 0; groups && groups[g]; g++)
		for (const struct cli_option *option = groups[g]; option->name; option++)
			if (letter ? option->letter == letter
				   : strlen(option->name) == len && !strncmp(option->name, name, len))
				return option;
	return NULL;
}

static const struct cli_option *find_any(const struct cli_option *const *groups, const char *name, size_t len, char letter)
{
	static const struct cli_option *const common[] = { options_common, NULL };
	const struct cli_option *option = find_option(groups, name, len, letter);

	return option ? option : find_option(common, name, len, letter);
}

static int add_env(struct cli_settings *settings, const char *value)
{
	const char **grown;
	char *joined = NULL;

	if (value[0] == '=' || !value[0]) {
		say("--env needs a name");
		return -1;
	}
	if (!strchr(value, '=')) {
		const char *ours = getenv(value);

		if (!ours) {
			say("--env %s: there is no such variable here; write %s=VALUE", value, value);
			return -1;
		}
		if (asprintf(&joined, "%s=%s", value, ours) < 0)
			return -1;
	} else
		joined = strdup(value);
	grown = reallocarray(settings->env, settings->n_env + 2, sizeof(*grown));
	if (!joined || !grown) {
		free(joined);
		say("out of memory");
		return -1;
	}
	settings->env = grown;
	grown[settings->n_env++] = joined;
	grown[settings->n_env] = NULL;
	return 0;
}

/* Takes one option. Those of the spec are only noted: --spec may stand behind them. */
static int take_option(struct cli_settings *settings, const struct cli_option *option, const char *value)
{
	struct cli_given *grown;

	switch (option->kind) {
	case OPTION_FLAG:
		*(bool *)((char *)settings + option->offset) = true;
		return 0;
	case OPTION_TEXT:
		*(const char **)((char *)settings + option->offset) = value;
		return 0;
	case OPTION_ENV:
		return add_env(settings, value);
	default:
		grown = reallocarray(settings->given, settings->n_given + 1, sizeof(*grown));
		if (!grown) {
			say("out of memory");
			return -1;
		}
		settings->given = grown;
		grown[settings->n_given++] = (struct cli_given){ option, value };
		return 0;
	}
}

/* "--name", "--name value", "--name=value". Returns words taken (1 or 2), 0 for help, or -1. */
static int parse_long(struct cli_settings *settings, const struct cli_option *const *groups, char **argv)
{
	const char *name = argv[0] + 2, *equals = strchr(name, '=');
	size_t len = equals ? (size_t)(equals - name) : strlen(name);
	const struct cli_option *option = find_any(groups, name, len, 0);
	const char *value = equals ? equals + 1 : NULL;

	if (!option) {
		say("unknown option --%.*s; --help lists them", (int)len, name);
		return -1;
	}
	if (!strcmp(option->name, "help"))
		return 0;
	if (!option->argument && value) {
		say("--%s takes no value", option->name);
		return -1;
	}
	if (option->argument && !value) {
		value = argv[1];
		if (!value) {
			say("--%s needs %s", option->name, option->argument);
			return -1;
		}
	}
	if (take_option(settings, option, value) < 0)
		return -1;
	return option->argument && !equals ? 2 : 1;
}

/* "-t", "-it". Returns 1, 0 for help, or -1. */
static int parse_letters(struct cli_settings *settings, const struct cli_option *const *groups, const char *word)
{
	for (const char *letter = word + 1; *letter; letter++) {
		const struct cli_option *option = find_any(groups, NULL, 0, *letter);

		if (!option || option->argument) {
			say("unknown option -%c; --help lists them", isprint((unsigned char)*letter) ? *letter : '?');
			return -1;
		}
		if (option->letter == 'h')
			return 0;
		if (take_option(settings, option, NULL) < 0)
			return -1;
	}
	return 1;
}

int options_parse(struct cli_settings *settings, const struct cli_option *const *groups, bool stops_at_word, int argc,
	char **argv)
{
	int i = 1;

	settings->words = calloc((size_t)argc + 1, sizeof(*settings->words));
	if (!settings->words) {
		say("out of memory");
		return -1;
	}
	while (i < argc) {
		int taken;

		if (!strcmp(argv[i], "--")) {
			i++;
			break;
		}
		if (argv[i][0] != '-' || !argv[i][1]) {
			if (stops_at_word)
				break;
			settings->words[settings->n_words++] = argv[i++];
			continue;
		}
		taken = argv[i][1] == '-' ? parse_long(settings, groups, argv + i)
					  : parse_letters(settings, groups, argv[i]);
		if (taken <= 0)
			return taken < 0 ? -1 : 1;
		i += taken;
	}
	while (i < argc)
		settings->words[settings->n_words++] = argv[i++];
	return 0;
}

static bool all_digits(const char *text)
{
	return text[0] && strspn(text, "0123456789") == strlen(text);
}

/* Digits, and a point with digits behind it. */
static bool is_decimal(const char *text)
{
	const char *point = strchr(text, '.');

	return point ? point > text && strspn(text, "0123456789") == (size_t)(point - text) && all_digits(point + 1)
		     : all_digits(text);
}

/* What is no number goes on as text: refused as that, with what can be written. */
static int apply_number(abox_spec *spec, const char *pointer, const char *value, abox_error **reterr)
{
	return is_decimal(value) ? abox_spec_set_json(spec, pointer, value, reterr)
				 : abox_spec_set_string(spec, pointer, value, reterr);
}

static int apply_quantity(abox_spec *spec, const char *pointer, const char *value, abox_error **reterr)
{
	/* The library's own JSON reader judges the number: it knows the range, and what is too large. */
	if (all_digits(value) || (value[0] == '-' && all_digits(value + 1)))
		return abox_spec_set_json(spec, pointer, value, reterr);
	return abox_spec_set_string(spec, pointer, value, reterr);
}

int options_apply_to_spec(struct cli_settings *settings, abox_error **reterr)
{
	for (size_t i = 0; i < settings->n_given; i++) {
		const struct cli_option *option = settings->given[i].option;
		const char *value = settings->given[i].value;
		int r;

		switch (option->kind) {
		case OPTION_SPEC_QUANTITY:
			r = apply_quantity(settings->spec, option->pointer, value, reterr);
			break;
		case OPTION_SPEC_NUMBER:
			r = apply_number(settings->spec, option->pointer, value, reterr);
			break;
		case OPTION_SPEC_FLAG:
			r = abox_spec_set_boolean(settings->spec, option->pointer, 1, reterr);
			break;
		case OPTION_SPEC_CALL:
			r = option->apply(settings, value, reterr);
			break;
		default:
			r = abox_spec_set_string(settings->spec, option->pointer, value, reterr);
			break;
		}
		if (r < 0)
			return r;
	}
	return 0;
}

static void print_group(const struct cli_option *group, FILE *out)
{
	for (const struct cli_option *option = group; option->name; option++) {
		char left[64];

		snprintf(left, sizeof(left), "%c%c%s--%s%s%s", option->letter ? '-' : ' ',
			 option->letter ? option->letter : ' ', option->letter ? ", " : "  ", option->name,
			 option->argument ? " " : "", option->argument ? option->argument : "");
		fprintf(out, strlen(left) > 28 ? "  %s\n%32s%s\n" : "  %-30s%.0s%s\n", left, "", option->meaning);
	}
}

void options_print(const struct cli_option *const *groups, FILE *out)
{
	fputs("Options:\n", out);
	for (size_t g = 0; groups && groups[g]; g++)
		print_group(groups[g], out);
	print_group(options_common, out);
}

void settings_clear(struct cli_settings *settings)
{
	for (size_t i = 0; i < settings->n_env; i++)
		free((char *)settings->env[i]);
	free(settings->env);
	free(settings->given);
	free(settings->words);
	free(settings->workspace);
	settings->spec = abox_spec_unref(settings->spec);
}

bool parse_u64(const char *text, uint64_t *retvalue)
{
	char *end;
	unsigned long long value;

	if (!all_digits(text))
		return false;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || *end)
		return false;
	*retvalue = value;
	return true;
}

struct unit {
	const char *name;
	uint64_t factor;
};

/* A number with one of the units, the last of which has no name. */
static bool parse_quantity(const char *text, const struct unit *units, uint64_t *ret)
{
	size_t digits = strspn(text, "0123456789");
	char number[21];
	uint64_t value;

	if (digits == 0 || digits >= sizeof(number))
		return false;
	memcpy(number, text, digits);
	number[digits] = 0;
	if (!parse_u64(number, &value) || value == 0)
		return false;
	for (;; units++)
		if (!strcmp(text + digits, units->name))
			return !__builtin_mul_overflow(value, units->factor, ret);
		else if (!units->name[0])
			return false;
}

bool parse_duration(const char *text, uint64_t *retusec)
{
	static const struct unit units[] = {
		{ "ms", 1000 }, { "s", 1000000 }, { "m", 60000000 }, { "h", 3600000000 }, { "d", 86400000000 },
		{ "", 1000000 },
	};

	return parse_quantity(text, units, retusec);
}

bool parse_size(const char *text, uint64_t *retbytes)
{
	static const struct unit units[] = {
		{ "KiB", 1024 }, { "MiB", UINT64_C(1) << 20 }, { "GiB", UINT64_C(1) << 30 }, { "TiB", UINT64_C(1) << 40 },
		{ "", 1 },
	};

	return parse_quantity(text, units, retbytes);
}

int parse_signal(const char *text)
{
	uint64_t number;

	if (parse_u64(text, &number))
		return number > 0 && number < (uint64_t)SIGRTMAX ? (int)number : 0;
	if (!strncmp(text, "SIG", 3))
		text += 3;
	for (int i = 1; i < NSIG; i++) {
		const char *name = sigabbrev_np(i);

		if (name && !strcmp(name, text))
			return i;
	}
	return 0;
}
