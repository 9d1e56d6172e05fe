/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What differs between two texts, line by line.
 */
#ifndef WORKSPACE_LINES_H
#define WORKSPACE_LINES_H

#include "base/macro.h"
#include "base/strings.h"

/* Adds the hunks of a unified diff with three lines of context. 0 or ABOX_E_MEMORY. */
int lines_diff(const char *was, size_t was_len, const char *now, size_t now_len, struct text *hunks);

#endif
