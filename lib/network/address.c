/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Addresses: one spelling in, classes out. The table of special ranges follows the registries of
 * special-purpose addresses; what is not global unicast IPv6 is special whether or not it has a row. Names
 * are not looked at here.
 */
#include "network/address.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static bool is_mapped(const uint8_t bytes[16])
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(bytes, prefix, sizeof(prefix)) == 0;
}

static void take16(const uint8_t bytes[16], struct net_address *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (is_mapped(bytes)) {
		ret->len = 4;
		memcpy(ret->bytes, bytes + 12, 4);
	} else {
		ret->len = 16;
		memcpy(ret->bytes, bytes, 16);
	}
}

bool address_parse(const char *text, size_t len, struct net_address *ret)
{
	char copy[INET6_ADDRSTRLEN];
	uint8_t bytes[16];

	if (len == 0 || len >= sizeof(copy) || memchr(text, 0, len))
		return false;
	memcpy(copy, text, len);
	copy[len] = 0;
	if (inet_pton(AF_INET, copy, bytes) == 1) {
		memset(ret, 0, sizeof(*ret));
		ret->len = 4;
		memcpy(ret->bytes, bytes, 4);
		return true;
	}
	if (inet_pton(AF_INET6, copy, bytes) != 1)
		return false;
	take16(bytes, ret);
	return true;
}

bool address_is_odd(const char *text, size_t len)
{
	const char *last = text;

	for (size_t i = 0; i < len; i++) {
		if (strchr("[]:%", text[i])) /* finds NUL too */
			return true;
		if (text[i] == '.' && i + 1 < len)
			last = text + i + 1;
	}
	len -= (size_t)(last - text);
	if (len > 0 && last[len - 1] == '.')
		len--;
	if (len >= 2 && last[0] == '0' && (last[1] | 32) == 'x')
		return true;
	for (size_t i = 0; i < len; i++)
		if (last[i] < '0' || last[i] > '9')
			return false;
	return true;
}

bool address_from_sockaddr(const struct sockaddr *sockaddr, struct net_address *ret, uint16_t *retport)
{
	if (sockaddr->sa_family == AF_INET) {
		const struct sockaddr_in *v4 = (const void *)sockaddr;

		memset(ret, 0, sizeof(*ret));
		ret->len = 4;
		memcpy(ret->bytes, &v4->sin_addr, 4);
		*retport = ntohs(v4->sin_port);
		return true;
	}
	if (sockaddr->sa_family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (const void *)sockaddr;

		take16(v6->sin6_addr.s6_addr, ret);
		*retport = ntohs(v6->sin6_port);
		return true;
	}
	return false;
}

socklen_t address_to_sockaddr(const struct net_address *address, uint16_t port, struct sockaddr_storage *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (address->len == 4) {
		struct sockaddr_in *v4 = (void *)ret;

		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		memcpy(&v4->sin_addr, address->bytes, 4);
		return sizeof(*v4);
	}
	struct sockaddr_in6 *v6 = (void *)ret;

	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons(port);
	memcpy(&v6->sin6_addr, address->bytes, 16);
	return sizeof(*v6);
}

void address_format(const struct net_address *address, char ret[ADDRESS_TEXT_MAX])
{
	if (!inet_ntop(address->len == 4 ? AF_INET : AF_INET6, address->bytes, ret, ADDRESS_TEXT_MAX))
		ret[0] = 0;
}

bool address_same(const struct net_address *a, const struct net_address *b)
{
	return a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

static bool bits_same(const uint8_t *a, const uint8_t *b, unsigned int bits)
{
	unsigned int rest = bits % 8;

	return memcmp(a, b, bits / 8) == 0 &&
	       (rest == 0 || ((a[bits / 8] ^ b[bits / 8]) & (uint8_t)(0xff00 >> rest)) == 0);
}

bool address_in(const struct net_address *address, const struct net_range *range)
{
	return address->len == range->base.len && range->bits <= range->base.len * 8 &&
	       bits_same(address->bytes, range->base.bytes, range->bits);
}

struct special {
	uint8_t bytes[16];
	uint8_t bits;
	const char *name;
};

/* The narrowest first where one lies in another. */
static const struct special special4[] = {
	{ { 169, 254, 169, 254 }, 32, "metadata" },
	{ { 169, 254, 170, 2 }, 32, "metadata" },
	{ { 168, 63, 129, 16 }, 32, "metadata" },
	{ { 100, 100, 100, 200 }, 32, "metadata" },
	{ { 192, 0, 0, 192 }, 32, "metadata" },
	{ { 0 }, 8, "this host" },
	{ { 10 }, 8, "private" },
	{ { 100, 64 }, 10, "shared" },
	{ { 127 }, 8, "loopback" },
	{ { 169, 254 }, 16, "link-local" },
	{ { 172, 16 }, 12, "private" },
	{ { 192, 0, 0 }, 24, "reserved" },
	{ { 192, 0, 2 }, 24, "documentation" },
	{ { 192, 88, 99 }, 24, "reserved" },
	{ { 192, 168 }, 16, "private" },
	{ { 198, 18 }, 15, "benchmarking" },
	{ { 198, 51, 100 }, 24, "documentation" },
	{ { 203, 0, 113 }, 24, "documentation" },
	{ { 224 }, 4, "multicast" },
	{ { 255, 255, 255, 255 }, 32, "broadcast" },
	{ { 240 }, 4, "reserved" },
};
static const struct special special6[] = {
	{ { [15] = 0 }, 128, "this host" },
	{ { [15] = 1 }, 128, "loopback" },
	{ { 0xfd, 0, 0x0e, 0xc2, [14] = 2, [15] = 0x54 }, 128, "metadata" },
	{ { 0xfe, 0x80 }, 10, "link-local" },
	{ { 0xfe, 0xc0 }, 10, "private" },
	{ { 0xfc }, 7, "private" },
	{ { 0xff }, 8, "multicast" },
	{ { 0x20, 0x01, 0x0d, 0xb8 }, 32, "documentation" },
	{ { 0x3f, 0xff }, 20, "documentation" },
	{ { 0x20, 0x01 }, 23, "tunnel" },
	{ { 0x20, 0x02 }, 16, "tunnel" },
};
static const uint8_t nat64[12] = { 0x00, 0x64, 0xff, 0x9b };

static const char *special_of(
	const struct special *table, size_t n, const struct net_address *address, struct net_range *retrange)
{
	for (size_t i = 0; i < n; i++) {
		if (!bits_same(address->bytes, table[i].bytes, table[i].bits))
			continue;
		if (retrange) {
			retrange->base.len = address->len;
			memcpy(retrange->base.bytes, table[i].bytes, 16);
			retrange->bits = table[i].bits;
		}
		return table[i].name;
	}
	return NULL;
}

const char *address_special(const struct net_address *address, struct net_range *retrange)
{
	const char *name;

	if (address->len == 4)
		return special_of(special4, ELEMENTSOF(special4), address, retrange);
	if (memcmp(address->bytes, nat64, sizeof(nat64)) == 0) {
		struct net_address inner = { .len = 4 };

		memcpy(inner.bytes, address->bytes + 12, 4);
		name = address_special(&inner, NULL);
		if (name && retrange)
			*retrange = (struct net_range){ *address, 128 };
		return name;
	}
	name = special_of(special6, ELEMENTSOF(special6), address, retrange);
	if (name)
		return name;
	if ((address->bytes[0] & 0xe0) == 0x20)
		return NULL;
	if (retrange)
		*retrange = (struct net_range){ *address, 128 };
	return "reserved";
}
