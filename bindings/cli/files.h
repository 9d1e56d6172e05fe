/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef CLI_FILES_H
#define CLI_FILES_H

#include <agentbox/file.h>

#include "cli.h"

static inline void abox_files_unrefp(abox_files **files) { abox_files_unref(*files); }

/* ID:PATH, where ID is a box or a workspace. */
struct remote {
	char *id;
	const char *path;	/* below the workspace; points into id's memory */
};
/* True when the word names a file of a box or workspace; `bare` takes an ID without a colon, too. */
bool remote_parse(const char *word, bool bare, struct remote *ret);
void remote_clear(struct remote *remote);
/* A box that runs, else a workspace. 0 or a negative code. */
int remote_open(const struct remote *remote, uint32_t flags, abox_files **ret, abox_error **reterr);

/* Closes and says what went wrong with that: the exit code. `r` and `error` are of what was done before. */
int remote_finish(const struct cli_settings *settings, abox_files *files, int r, abox_error **error);

#endif
