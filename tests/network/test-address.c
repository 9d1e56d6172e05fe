/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Addresses: which spellings are addresses at all, and which addresses are nobody's business from inside a
 * box. */
#include <criterion/criterion.h>
#include <string.h>

#include "network/address.h"

static const char *class_of(const char *text)
{
	struct net_address address;

	cr_assert(address_parse(text, strlen(text), &address), "%s", text);
	return address_special(&address, NULL);
}

Test(address, only_the_usual_spellings_are_addresses)
{
	static const char *const odd[] = { "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "127.0.0.1.",
		"[::1]", "::1%lo", "0x7f000001", "1.2.3.4:443", "[::ffff:7f00:1]", "256.1.1.1x", "" };
	struct net_address address;

	for (size_t i = 0; i < ELEMENTSOF(odd); i++) {
		if (i != 10 && i != 11)
			cr_expect(address_is_odd(odd[i], strlen(odd[i])), "%s", odd[i]);
		cr_expect_not(address_parse(odd[i], strlen(odd[i]), &address), "%s", odd[i]);
	}
	cr_expect_not(address_is_odd("example.test", 12));
	cr_expect_not(address_is_odd("1a.example.t0", 13));
}

Test(address, mapped_ones_are_ipv4)
{
	struct net_address a, b;

	cr_assert(address_parse("::ffff:127.0.0.1", 16, &a));
	cr_assert(address_parse("127.0.0.1", 9, &b));
	cr_expect(address_same(&a, &b));
}

Test(address, special_ranges_are_known_by_name)
{
	static const struct {
		const char *text, *name;
	} rows[] = {
		{ "127.0.0.1", "loopback" },
		{ "127.255.255.255", "loopback" },
		{ "0.0.0.0", "this host" },
		{ "10.1.2.3", "private" },
		{ "172.16.0.1", "private" },
		{ "172.31.255.255", "private" },
		{ "192.168.0.1", "private" },
		{ "100.64.0.1", "shared" },
		{ "169.254.1.1", "link-local" },
		{ "169.254.169.254", "metadata" },
		{ "168.63.129.16", "metadata" },
		{ "224.0.0.1", "multicast" },
		{ "255.255.255.255", "broadcast" },
		{ "240.0.0.1", "reserved" },
		{ "198.18.0.1", "benchmarking" },
		{ "::", "this host" },
		{ "::1", "loopback" },
		{ "fe80::1", "link-local" },
		{ "fc00::1", "private" },
		{ "fd00:ec2::254", "metadata" },
		{ "fd12::1", "private" },
		{ "ff02::1", "multicast" },
		{ "::ffff:127.0.0.1", "loopback" },
		{ "64:ff9b::7f00:1", "loopback" },
		{ "64:ff9b::a9fe:a9fe", "metadata" },
		{ "64:ff9b:1::1", "reserved" },
		{ "2002:7f00:1::", "tunnel" },
		{ "2001::1", "tunnel" },
		{ "::7f00:1", "reserved" },
		{ "2001:db8::1", "documentation" },
		{ "4000::1", "reserved" },
	};
	static const char *const public[] = { "8.8.8.8", "172.32.0.1", "172.15.0.1", "100.128.0.1",
		"192.169.0.1", "11.0.0.1", "2606:4700::1111", "2a00::1", "64:ff9b::808:808",
		"::ffff:8.8.8.8" };

	for (size_t i = 0; i < ELEMENTSOF(rows); i++)
		cr_expect_str_eq(class_of(rows[i].text) ?: "public", rows[i].name, "%s", rows[i].text);
	for (size_t i = 0; i < ELEMENTSOF(public); i++)
		cr_expect_null(class_of(public[i]), "%s", public[i]);
}
