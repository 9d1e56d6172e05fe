/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef CLI_EFFECT_RUN_H
#define CLI_EFFECT_RUN_H

#include "ledger.h"

int effect_run(struct cli_settings *settings, abox_journal *journal);

#endif
