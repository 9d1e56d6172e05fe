/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a network cell can be on this host. Asked only where there is to be one: a network namespace costs as
 * much as all others together. */
#ifndef PROBE_CELL_H
#define PROBE_CELL_H

#include "network/cell.h"

/* 0, or -errno when no cell can be made; for a caller that can make the namespaces of a box
 * (host_facts.blocker). */
int host_cell_read(struct cell_shape *ret);

#endif
