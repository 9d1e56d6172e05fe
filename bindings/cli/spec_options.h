/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef CLI_SPEC_OPTIONS_H
#define CLI_SPEC_OPTIONS_H

#include "options.h"

/* Options whose value has parts of its own. Return 0 or a code of the library, with an error object or a line said. */
int spec_option_mount(struct cli_settings *settings, const char *value, abox_error **reterr);
int spec_option_tmpfs(struct cli_settings *settings, const char *value, abox_error **reterr);
int spec_option_env(struct cli_settings *settings, const char *value, abox_error **reterr);
int spec_option_net(struct cli_settings *settings, const char *value, abox_error **reterr);
int spec_option_publish(struct cli_settings *settings, const char *value, abox_error **reterr);
int spec_option_workspace(struct cli_settings *settings, const char *value, abox_error **reterr);
int spec_option_workspace_id(struct cli_settings *settings, const char *value, abox_error **reterr);
int spec_option_from_snapshot(struct cli_settings *settings, const char *value, abox_error **reterr);

#endif
