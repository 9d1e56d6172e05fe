/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Messages to the kernel about links, addresses, routes and rules (NETLINK_ROUTE). Built in fixed memory,
 * sent one at a time, each waits for its acknowledgement. Structures and numbers are the kernel's; they stand
 * here because the C library of the helpers brings no linux/ headers. Helper code.
 */
#ifndef KERNEL_NETLINK_H
#define KERNEL_NETLINK_H

#include "base/macro.h"

enum {
	NETLINK_NEWLINK = 16,
	NETLINK_NEWADDR = 20,
	NETLINK_NEWROUTE = 24,
	NETLINK_NEWRULE = 32,
	NETLINK_DELRULE = 33,
};
enum {
	NETLINK_EXCL = 0x200,
	NETLINK_CREATE = 0x400,
};

struct netlink_link {
	uint8_t family, pad;
	uint16_t type;
	int32_t index;
	uint32_t flags, change;
};
struct netlink_address {
	uint8_t family, bits, flags, scope;
	uint32_t index;
};
struct netlink_route {
	uint8_t family, dst_bits, src_bits, tos, table, protocol, scope, type;
	uint32_t flags;
};
struct netlink_rule {
	uint8_t family, dst_bits, src_bits, tos, table, reserved1, reserved2, action;
	uint32_t flags;
};

enum {
	NETLINK_LINK_NAME = 3,
	NETLINK_LINK_INFO = 18, /* nested */
	NETLINK_LINK_AF = 26, /* nested: family, nested */
	NETLINK_INFO_KIND = 1,
	NETLINK_INET6_ADDR_GEN_MODE = 8,
	NETLINK_ADDR_ADDRESS = 1,
	NETLINK_ADDR_LOCAL = 2,
	NETLINK_ADDR_FLAGS = 8,
	NETLINK_ROUTE_DST = 1,
	NETLINK_ROUTE_OIF = 4,
	NETLINK_ROUTE_GATEWAY = 5,
	NETLINK_ROUTE_PREFSRC = 7,
	NETLINK_ROUTE_TABLE = 15,
	NETLINK_RULE_PRIORITY = 6,
	NETLINK_RULE_TABLE = 15,
	NETLINK_RULE_IP_PROTO = 22,
	NETLINK_RULE_DPORT_RANGE = 24, /* two uint16_t, host order */
};

struct netlink_message {
	_Alignas(8) uint8_t data[512];
	size_t len;
};

int netlink_open(void); /* close-on-exec; or -errno */
void netlink_begin(
	struct netlink_message *message, uint16_t type, uint16_t flags, const void *head, size_t len);
void netlink_add(struct netlink_message *message, uint16_t type, const void *data, size_t len);
void netlink_add_u32(struct netlink_message *message, uint16_t type, uint32_t value);
size_t netlink_nest(struct netlink_message *message, uint16_t type);
void netlink_end(struct netlink_message *message, size_t nest);
int netlink_call(int fd, struct netlink_message *message); /* 0 or the kernel's -errno */

#endif
