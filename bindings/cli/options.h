/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <agentbox/spec.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct cli_option;

/* An option as it was given; those that concern the spec are carried out when the spec is made. */
struct cli_given {
	const struct cli_option *option;
	const char *value;
};

/* Everything that options can say. One struct for all sub-commands: an option means the same everywhere. */
struct cli_settings {
	bool json;
	bool tty;
	bool interactive;
	bool detach;
	bool keep;
	bool follow;
	bool raw;
	bool no_input;
	const char *spec_file;
	const char *result_file;
	const char *signal_name;
	const char *stop_as;
	const char *cursor;
	const char *cwd;
	const char *user;
	const char *token;
	const char *timeout;
	const char *stream;
	const char **env;		/* NULL-ended NAME=VALUE, of --env where there is no spec */
	size_t n_env;

	/* for further sub-commands: values of their own, by the offset that their option table names */
	const char *text[16];
	bool flag[8];

	struct cli_given *given;
	size_t n_given;
	char **words;			/* what follows the options; NULL-ended */
	unsigned n_words;
	abox_spec *spec;
	char *workspace;		/* id of the one that is kept for the box of `run`; NULL: none */
};

enum cli_option_kind {
	OPTION_FLAG = 0,	/* sets the bool at offset */
	OPTION_TEXT,		/* sets the const char * at offset */
	OPTION_ENV,		/* adds to env */
	OPTION_SPEC_TEXT,	/* a text at the pointer of the spec */
	OPTION_SPEC_QUANTITY,	/* digits are an integer, all else a text */
	OPTION_SPEC_NUMBER,	/* a JSON number */
	OPTION_SPEC_FLAG,	/* true */
	OPTION_SPEC_CALL,	/* apply */
};

struct cli_option {
	const char *name;		/* without the dashes; NULL ends a table */
	char letter;			/* 0: has none */
	const char *argument;		/* name of its argument; NULL: takes none */
	const char *meaning;
	enum cli_option_kind kind;
	size_t offset;			/* in struct cli_settings */
	const char *pointer;		/* of the spec */
	int (*apply)(struct cli_settings *settings, const char *value, abox_error **reterr);
};

extern const struct cli_option options_common[];	/* --help and --json: every sub-command has them */
extern const struct cli_option options_box[];		/* what a box is: run, start, plan */
extern const struct cli_option options_start[];		/* what happens around it: run, start */
extern const struct cli_option options_command[];	/* streams of a command: run, exec */
extern const struct cli_option options_exec[];		/* what a command in a running box may have of its own */

/* Returns 0, 1 when help was asked for, or -1 after it has said what is wrong. */
int options_parse(struct cli_settings *settings, const struct cli_option *const *groups, bool stops_at_word, int argc,
	char **argv);
int options_apply_to_spec(struct cli_settings *settings, abox_error **reterr);
void options_print(const struct cli_option *const *groups, FILE *out);
void settings_clear(struct cli_settings *settings);

/* "1500ms", "30s", "5m", "2h", "7d" or seconds; false when it is none of them or 0. */
bool parse_duration(const char *text, uint64_t *retusec);
/* Bytes, or with KiB, MiB, GiB, TiB. */
bool parse_size(const char *text, uint64_t *retbytes);
bool parse_u64(const char *text, uint64_t *retvalue);
int parse_signal(const char *text);	/* "TERM", "SIGTERM" or "15"; 0 when it is none */

#endif
