/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef CLI_BOX_H
#define CLI_BOX_H

#include "cli.h"

/* From settings to a running box. outlive: the box stays when we end (start, --keep, --detach). */
int box_compile(struct cli_settings *settings, bool outlive, abox_plan **retplan, abox_error **reterr);
int box_start(abox_plan *plan, abox_sandbox **retbox, abox_error **reterr);
/* Opens the box that the first word names. */
int box_open(const struct cli_settings *settings, int mode, abox_sandbox **retbox, abox_error **reterr);
/* Number of the command that the second word names, or else of the newest one (running ones first); 0 or a code. */
int box_open_command(const struct cli_settings *settings, abox_sandbox *box, abox_command **retcommand,
	abox_error **reterr);

#endif
