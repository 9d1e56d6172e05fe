/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Addresses as rules see them. A mapped IPv4 address (::ffff:a.b.c.d) is the IPv4 address everywhere here.
 */
#ifndef NETWORK_ADDRESS_H
#define NETWORK_ADDRESS_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/macro.h"

#define ADDRESS_TEXT_MAX 64

struct net_address {
	uint8_t len; /* 4 or 16; 0: none */
	uint8_t bytes[16];
};

/* The usual spellings only (inet_pton): 127.1, 0x7f.1, 2130706433 and 0177.0.0.1 are no addresses. */
bool address_parse(const char *text, size_t len, struct net_address *ret);
/* Whether resolvers of some programs would read the text as an address: an odd spelling, brackets, a zone. */
bool address_is_odd(const char *text, size_t len);
bool address_from_sockaddr(const struct sockaddr *sockaddr, struct net_address *ret, uint16_t *retport);
socklen_t address_to_sockaddr(const struct net_address *address, uint16_t port, struct sockaddr_storage *ret);
void address_format(const struct net_address *address, char ret[ADDRESS_TEXT_MAX]);
bool address_same(const struct net_address *a, const struct net_address *b);

struct net_range {
	struct net_address base;
	uint8_t bits;
};
bool address_in(const struct net_address *address, const struct net_range *range);

/*
 * Why an address is not public: "loopback", "private", "link-local", "metadata", "shared", "multicast",
 * "mapped" ...; NULL when it is. retrange (may be NULL): the special range that says so. An address that
 * carries an IPv4 address (NAT64) is what that one is; other tunnels are never public.
 */
const char *address_special(const struct net_address *address, struct net_range *retrange);

#endif
