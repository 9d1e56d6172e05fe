/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The folders that the library keeps on a host, each private to one user:
 *
 *   run    live boxes        /run/agentbox       or $XDG_RUNTIME_DIR/agentbox, else /tmp/agentbox-UID
 *   state  workspaces        /var/lib/agentbox   or $XDG_STATE_HOME/agentbox, else ~/.local/state/agentbox
 *   cache  kernels, verdicts /var/cache/agentbox or $XDG_CACHE_HOME/agentbox, else ~/.cache/agentbox
 *
 * (left for root, right for everybody else). ABOX_HOME overrides all three: ABOX_HOME/run, /state, /cache. A variable
 * is ignored where it names no absolute path, and XDG_RUNTIME_DIR where it names a folder of another user.
 */
#ifndef BASE_PLACE_H
#define BASE_PLACE_H

#include <agentbox/error.h>

#include "base/macro.h"

enum place {
	PLACE_RUN,
	PLACE_STATE,
	PLACE_CACHE,
	PLACE_N,
};

/* Where it would be; nothing is made. 0 or -ENAMETOOLONG, -ENOENT (no variable says where). */
int place_path(enum place place, char *ret, size_t size);

/*
 * The folder, made with its parents when missing. It is a real folder, owned by the caller, closed to all others, and
 * its last component is no link. A readable descriptor, or a negative code.
 */
int place_open(enum place place, int stage, abox_error **reterr);

#endif
