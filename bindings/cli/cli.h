/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <agentbox/command.h>
#include <agentbox/error.h>
#include <agentbox/plan.h>
#include <agentbox/sandbox.h>
#include <agentbox/spec.h>
#include <agentbox/version.h>
#include <stdbool.h>
#include <stdio.h>

#include "exit.h"
#include "options.h"

/*
 * One sub-command. It lives in a file of its own, which ends with this description; main.c only lists them.
 * `run` gets the settings that its option groups have filled, with everything behind the options in words.
 */
struct cli_command {
	const char *name;
	const char *usage;		/* what follows the name */
	const char *summary;		/* one line for the list */
	const char *help;		/* paragraphs for --help, ends with a newline */
	const struct cli_option *const *groups;	/* NULL-ended option tables; NULL for none but the common ones */
	unsigned words_min;
	unsigned words_max;		/* CLI_WORDS_ANY: as many as there are */
	bool stops_at_word;		/* the first word ends the options: what follows belongs to another program */
	int usage_exit;			/* exit code of a wrong call; 0 means CLI_EXIT_USAGE */
	int (*run)(struct cli_settings *settings);
};

#define CLI_WORDS_ANY (~0u)

int cli_dispatch(const struct cli_command *command, int argc, char **argv);	/* argv[0] is the command's name */
/* Of a command whose first word is a verb: `verbs` is NULL-ended, and each named "COMMAND VERB". */
int cli_run_verb(const struct cli_settings *settings, const struct cli_command *const *verbs, const char *command,
	const char *usage);
int cli_print_help(const struct cli_command *command, FILE *out);

/* output.c */
#define _cleanup_(f) __attribute__((cleanup(f)))
static inline void abox_error_freep(abox_error **error) { abox_error_free(*error); }
static inline void abox_spec_unrefp(abox_spec **spec) { abox_spec_unref(*spec); }
static inline void abox_plan_unrefp(abox_plan **plan) { abox_plan_unref(*plan); }
static inline void abox_sandbox_unrefp(abox_sandbox **box) { abox_sandbox_unref(*box); }
static inline void abox_command_unrefp(abox_command **command) { abox_command_unref(*command); }
static inline void abox_result_unrefp(abox_result **result) { abox_result_unref(*result); }
static inline void text_freep(char **text) { abox_free(*text); }

void say(const char *format, ...) __attribute__((format(printf, 1, 2)));	/* one line on stderr */
void say_error(int code, const abox_error *error);
int fail(const struct cli_settings *settings, int code, const abox_error *error);	/* says it; with --json prints it too */
int print_json_text(const char *json);		/* indented, on stdout; 0 or CLI_EXIT_FAILED */
int finish_stdout(void);			/* flushes; CLI_EXIT_FAILED when it could not be written */

/* A file that appears whole or not at all. */
struct whole_file {
	char *path;
	char *temporary;
	int fd;
};
#define WHOLE_FILE_INIT ((struct whole_file){ .fd = -1 })
int whole_file_open(struct whole_file *file, const char *path);	/* 0 or -errno */
int whole_file_commit(struct whole_file *file, const char *text);	/* 0 or -errno */
void whole_file_discard(struct whole_file *file);

/* progress.c: a line on stderr for what takes more than a second, on a terminal of ours only */
void progress_begin(const char *text);
void progress_end(void);
/* The same with counts: an abox_progress_fn, whose userdata is the word before them, such as "copied". */
int progress_count(void *userdata, uint64_t entries, uint64_t bytes);
void progress_wipe(void);		/* after it */
void progress_interruptible(void);	/* from here on an interrupt ends what is counted, so that it cleans up */

/* spec_build.c: the spec of --spec and the options behind it */
int settings_make_spec(struct cli_settings *settings, abox_error **reterr);
int spec_read_file(const char *path, abox_spec **retspec, abox_error **reterr);

#endif
