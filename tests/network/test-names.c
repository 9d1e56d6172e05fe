/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/strings.h"
#include "network/names.h"

/* Only names of two labels and more that no resolver would read as an address. */
Test(names, takes_host_names_only)
{
	static const char *const good[] = { "a.b", "example.test", "x--y.example.co.uk",
		"_dmarc.example.test", "1.2.3.example", "xn--bcher-kva.example" };
	static const char *const bad[] = { "", "localhost", "single", ".", "a.", ".a.b", "a..b", "a.b.",
		"127.0.0.1", "127.1", "1.0x7f", "10.0x", "evil.localhost", "a b.test", "a%2eb.test", "A.test",
		"-a.test", "a-.test", "a.b/c", "[::1].test", "::1", "a\\.test" };
	_cleanup_(names_freep) struct names *names = names_new();
	char longest[NAMES_TEXT_MAX + 2];

	for (size_t i = 0; i < ELEMENTSOF(good); i++)
		cr_expect_eq(names_add(names, good[i], NULL, NULL), 1, "%s", good[i]);
	for (size_t i = 0; i < ELEMENTSOF(bad); i++)
		cr_expect_eq(names_add(names, bad[i], NULL, NULL), -EINVAL, "%s", bad[i]);
	for (size_t i = 0; i < sizeof(longest) - 1; i++)
		longest[i] = i % 2 ? '.' : 'a';
	longest[NAMES_TEXT_MAX] = 0;
	cr_assert_eq(names_add(names, longest, NULL, NULL), 1);
	longest[NAMES_TEXT_MAX] = '.';
	longest[NAMES_TEXT_MAX + 1] = 0;
	cr_assert_eq(names_add(names, longest, NULL, NULL), -EINVAL);
	memset(longest, 'a', 64);
	strcpy(longest + 64, ".test");
	cr_assert_eq(names_add(names, longest, NULL, NULL), -EINVAL);
}

/* A name keeps its addresses, no two names share one, and each address leads back; up to the cap. */
Test(names, one_address_for_life)
{
	_cleanup_(names_freep) struct names *names = names_new(), *again = names_new();
	_cleanup_(text_clear) struct text saved = TEXT_INIT;
	static uint8_t v4[NAMES_MAX][4], v6[NAMES_MAX][16];
	char name[64];

	for (int i = 0; i < NAMES_MAX; i++) {
		snprintf(name, sizeof(name), "n%d.example.test", i);
		cr_assert_eq(names_add(names, name, v4[i], v6[i]), 1);
		text_printf(&saved, "%s\n", name);
	}
	cr_assert_eq(names_add(names, "one.more.test", NULL, NULL), -ENOSPC);
	cr_assert_eq(names_restore(again, saved.data, saved.len), 0);
	cr_assert_eq(names_count(again), NAMES_MAX);
	for (int i = 0; i < NAMES_MAX; i++) {
		uint8_t a4[4], a6[16], mapped[16] = { [10] = 0xff, [11] = 0xff };

		snprintf(name, sizeof(name), "n%d.example.test", i);
		cr_assert_eq(names_add(again, name, a4, a6), 0);
		cr_assert(memcmp(a4, v4[i], 4) == 0 && memcmp(a6, v6[i], 16) == 0);
		cr_assert_str_eq(names_find(names, AF_INET, v4[i]), name);
		cr_assert_str_eq(names_find(names, AF_INET6, v6[i]), name);
		memcpy(mapped + 12, a4, 4);
		cr_assert_str_eq(names_find(names, AF_INET6, mapped), name);
		cr_assert(names_in_pool(AF_INET, v4[i]) && names_in_pool(AF_INET6, v6[i]));
		cr_assert_str_eq(names_get(again, (size_t)i), name);
	}
}

/* Addresses that were never given out are nobody's; those outside of the pools are not in them. */
Test(names, foreign_addresses)
{
	static const uint8_t outside[][4] = { { 127, 0, 0, 1 }, { 198, 18, 0, 1 }, { 198, 20, 0, 0 }, { 0 },
		{ 198, 17, 255, 255 }, { 192, 0, 2, 1 } };
	_cleanup_(names_freep) struct names *names = names_new();
	uint8_t v6[16] = NAMES_V6_PREFIX, free4[4] = { 198, 18, 200, 7 };

	for (size_t i = 0; i < ELEMENTSOF(outside); i++) {
		cr_expect_not(names_in_pool(AF_INET, outside[i]));
		cr_expect_null(names_find(names, AF_INET, outside[i]));
	}
	cr_assert(names_in_pool(AF_INET, free4));
	cr_assert_null(names_find(names, AF_INET, free4));
	v6[15] = 1;
	cr_assert_not(names_in_pool(AF_INET6, v6));
	v6[11] = 1;
	cr_assert_not(names_in_pool(AF_INET6, v6));
	v6[14] = 1;
	cr_assert(names_in_pool(AF_INET6, v6));
	cr_assert_null(names_find(names, AF_INET6, v6));
}

/* What is no saved table is refused and leaves none. */
Test(names, refuses_other_bytes)
{
	static const char *const bad[] = { "a.test\na.test\n", "a.test\nno\n", "a.test", "\n", "a.test\n\n", "A.test\n",
		"a.test\nb.test", "127.0.0.1\n", "a.test \n" };
	_cleanup_(names_freep) struct names *names = names_new();

	for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
		cr_assert_eq(names_restore(names, bad[i], strlen(bad[i])), -EPROTO, "%s", bad[i]);
		cr_assert_eq(names_count(names), 0);
	}
	cr_assert_eq(names_restore(names, "a.test\0\n", 8), -EPROTO);
	cr_assert_eq(names_restore(names, "a.test\nb.test\n", 14), 0);
	cr_assert_eq(names_count(names), 2);
}
