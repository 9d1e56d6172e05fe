/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The cell of a box from inside: who stands in its network namespace makes it, binds what egress listens at,
 * and hands the sockets out over the channel. Nobody outside needs a way in. Helper code.
 */
#ifndef GUEST_NETWORK_H
#define GUEST_NETWORK_H

#include "guest/message.h"
#include "plan/flat.h"

/* Before a program of the box runs: the cell, its listeners (GUEST_LISTENERS) and GUEST_LISTENING. */
int guest_network_enter(const struct flat_network *network, int channel_fd, struct fault *fault);

/* GUEST_LISTEN and GUEST_SOCKET; answered over the channel. -EPIPE when that is gone. */
int guest_network_handle(
	const struct flat_network *network, int channel_fd, const struct guest_message *message);

/* Behind a wall that has the cell at its other side: a link to it. Later orders to listen are carried out there; the guest
 * is told as well, and leads the new ports that way. It answers nothing. */
int guest_link_up(bool v6, const uint32_t *ports, size_t n_ports, struct fault *fault);
int guest_link_handle(bool v6, const struct guest_message *message);

/* Of a box without a cell: the loopback interface alone. */
int guest_loopback_up(struct fault *fault);

#endif
