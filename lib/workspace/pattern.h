/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Patterns of paths below a workspace, as the spec has them: `?` and `*` within one part, `**` as a part of
 * its own across any number of parts, `[...]` a set of bytes, `\` takes the next byte as it is. A pattern
 * that names a folder means all that is in it too. There is no negation, and a leading dot is nothing
 * special.
 */
#ifndef WORKSPACE_PATTERN_H
#define WORKSPACE_PATTERN_H

#include "base/macro.h"

/* Both relative, without leading slash. Bytes, not characters. */
bool pattern_match(const char *pattern, const char *path);
/* NULL-ended list; a NULL list matches nothing. */
bool pattern_match_any(const char *const *patterns, const char *path);
/* Relative, not empty, without empty, `.` or `..` parts, brackets closed. */
bool pattern_is_valid(const char *pattern);

#endif
