/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef CLI_WORKSPACE_H
#define CLI_WORKSPACE_H

#include <agentbox/workspace.h>

#include "cli.h"

/* workspace.list has one line for each verb, in the order of the overview: VERB(name) means cli_workspace_name. */
#define VERB(name) extern const struct cli_command cli_workspace_##name;
#include "workspace.list"
#undef VERB

static inline void abox_workspace_unrefp(abox_workspace **workspace) { abox_workspace_unref(*workspace); }

#endif
