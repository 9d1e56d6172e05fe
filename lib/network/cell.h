/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The network cell of a box: what its private network namespace looks like, the same for every wall. Whatever
 * address a program connects to on one of the policy's ports, it arrives at a listener of the cell, and
 * getsockname() there is the address that was asked for; DNS likewise. Every other port of every other
 * address is unreachable at once. The box's own servers are reached at its own addresses only.
 *
 * Everything here is done inside the namespace, with CAP_NET_ADMIN and CAP_NET_BIND_SERVICE in the user
 * namespace that owns it, before a program of the box runs (cell_listen() also later, when a policy gets
 * wider). Helper code: no allocation.
 */
#ifndef NETWORK_CELL_H
#define NETWORK_CELL_H

#include "base/fault.h"
#include "base/macro.h"

#define CELL_PORTS_MAX 64 /* policy ports of one box */
#define CELL_NAMESERVER "198.18.0.1"
#define CELL_ADDRESS4 "192.0.2.1"

/* The wire between a machine of its own and the cell around it: networks of which nothing but these addresses is there.
 * They must not meet the pools of names, which whoever carries the packets would take for neighbours. */
#define CELL_LINK_NET4 "192.0.2.0/24"	/* CELL_ADDRESS4 is the machine's */
#define CELL_LINK_GATEWAY4 "192.0.2.2"
#define CELL_LINK_UNUSED4 "192.0.2.3"
#define CELL_LINK_NET6 "fd5a:b0c5:1d7e:1::/64"
#define CELL_LINK_ADDRESS6 "fd5a:b0c5:1d7e:1::1"
#define CELL_LINK_GATEWAY6 "fd5a:b0c5:1d7e:1::2"
#define CELL_LINK_UNUSED6 "fd5a:b0c5:1d7e:1::3"

/* What makes programs believe that they are online: a link besides loopback. */
enum cell_link {
	CELL_LINK_NONE = 0,
	CELL_LINK_DUMMY = 1,
	CELL_LINK_IFB = 2,
	CELL_LINK_BRIDGE = 3,
};

/* What a host can do, and what a plan wants. */
struct cell_shape {
	uint32_t link; /* enum cell_link */
	uint8_t port_rules; /* 0: no rules by port (a kernel without policy routing): then every port of every
			     * address is the box itself */
	uint8_t v6; /* 0: this kernel has no IPv6 */
};

struct cell_listener {
	uint32_t kind; /* enum egress_listener */
	uint32_t port;
	int fd;
};
#define CELL_LISTENERS_MAX(n_ports) (2 * (n_ports) + 4)

/* Makes the cell; lo included. What the shape asks for and the kernel refuses is an error. */
int cell_make(const struct cell_shape *shape, struct fault *fault);

/* Finds the best shape, in a namespace that is thrown away. 0 or -errno, when not even plain routes can be
 * made. */
int cell_try(struct cell_shape *ret);

/*
 * Makes the cell answer at these TCP ports, and with dns at port 53; binds the listeners.
 *
 * The name server's UDP sockets come with PKTINFO. An answer must name the address that was asked as its
 * source, and 0 as its link, or some leave by a link that leads nowhere.
 *
 * Security: never SO_REUSEPORT, never SO_REUSEADDR on UDP: with them a process of the box could bind beside
 * and take connections. Ports that a program of the box has bound already are refused, ABOX_E_EXISTS. On
 * failure every socket of this call is closed; rules of its ports stay, which lead nowhere.
 */
int cell_listen(const struct cell_shape *shape, const uint16_t *ports, size_t n_ports, bool dns,
	struct cell_listener *ret, size_t *retn, struct fault *fault);

/*
 * The same seen from a kernel behind the wall, which has a link to the cell: what goes to these ports, at any address, goes
 * there, and all else is unreachable at once. The cell itself is what holds; this is so that programs meet the same
 * answers as behind other walls. A kernel without rules by port gets a route for everything, and learns from the cell.
 */
int cell_link_make(bool v6, struct fault *fault);	/* lo and the link; no port is led there yet */
int cell_link_ports(bool v6, const uint16_t *ports, size_t n_ports, bool dns, struct fault *fault);

const char *cell_link_name(uint32_t link); /* "dummy" ...; "none" */

#endif
