/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What an export of ours is made of, in this order: the marker, the tree, what could not be packed (if there
 * is such), the manifest.
 */
#ifndef WORKSPACE_ARCHIVE_NAMES_H
#define WORKSPACE_ARCHIVE_NAMES_H

#include "workspace/change.h"

#define ARCHIVE_MARKER "agentbox-export"
#define ARCHIVE_MARKER_TEXT "{\"format\":1,\"kind\":\"workspace\"}\n"
#define ARCHIVE_TREE "tree/"
#define ARCHIVE_LOST "lost.json"
#define ARCHIVE_MANIFEST "manifest.jsonl"

void archive_lost_add(struct archive_lost *lost, const char *path, const char *what);

#endif
