/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "network/dns.h"

enum { NS_A = 1, NS_TXT = 16, NS_MX = 15, NS_PTR = 12, NS_AAAA = 28, NS_HTTPS = 65, NS_ANY = 255 };

struct wire {
	uint8_t data[1024];
	size_t len;
};

static struct names *names;
static uint8_t answer[DNS_ANSWER_MAX];
static struct dns_question question;

static void u16(struct wire *wire, unsigned int value)
{
	wire->data[wire->len++] = (uint8_t)(value >> 8);
	wire->data[wire->len++] = (uint8_t)value;
}

static void add_name(struct wire *wire, const char *name)
{
	while (*name) {
		size_t n = strcspn(name, ".");

		wire->data[wire->len++] = (uint8_t)n;
		memcpy(wire->data + wire->len, name, n);
		wire->len += n;
		name += n + (name[n] == '.');
	}
	wire->data[wire->len++] = 0;
}

static struct wire make(const char *name, unsigned int type, unsigned int n_additional)
{
	struct wire wire = { 0 };

	u16(&wire, 0x1234);
	u16(&wire, 0x0100);
	u16(&wire, 1);
	u16(&wire, 0);
	u16(&wire, 0);
	u16(&wire, n_additional);
	add_name(&wire, name);
	u16(&wire, type);
	u16(&wire, 1);
	return wire;
}

static void add_opt(struct wire *wire, unsigned int version, unsigned int flags)
{
	wire->data[wire->len++] = 0;
	u16(wire, 41);
	u16(wire, 4096);
	u16(wire, version);
	u16(wire, flags);
	u16(wire, 0);
}

static size_t ask_wire(const struct wire *wire, bool (*exists)(const char *, void *))
{
	struct dns_policy policy = { .names = names, .exists = exists };
	size_t len;

	memset(&question, 0xff, sizeof(question));
	/* exactly as long as it is, so that the sanitizer sees a read beyond */
	uint8_t *copy = malloc(wire->len ? wire->len : 1);
	memcpy(copy, wire->data, wire->len);
	len = dns_answer(&policy, copy, wire->len, answer, &question);
	free(copy);
	cr_assert_leq(len, sizeof(answer));
	if (len) {
		cr_assert_geq(len, 12);
		cr_assert_eq(answer[0], 0x12);
		cr_assert_eq(answer[1], 0x34);
		cr_assert(answer[2] & 0x80, "an answer");
		cr_assert_not(answer[2] & 0x02, "TC is never set");
	}
	return len;
}

static size_t ask(const char *name, unsigned int type)
{
	struct wire wire = make(name, type, 0);

	return ask_wire(&wire, NULL);
}

static unsigned int rcode(void)
{
	return answer[3] & 0x0f;
}

static unsigned int count(int section)
{
	return (unsigned int)(answer[4 + 2 * section] << 8 | answer[5 + 2 * section]);
}

static void set_up(void)
{
	names = names_new();
}

static void tear_down(void)
{
	names = names_free(names);
}

TestSuite(dns, .init = set_up, .fini = tear_down);

/* One A and one AAAA a name, the same each time, whatever the case; the question comes back as it was asked.
 */
Test(dns, gives_addresses)
{
	uint8_t v4[4], v6[16];
	size_t len = ask("Example.TEST", NS_A), at = 12 + 14 + 4;

	cr_assert_eq(len, at + 16);
	cr_assert_eq(rcode(), 0);
	cr_assert(count(0) == 1 && count(1) == 1 && count(2) == 0 && count(3) == 0);
	cr_assert_eq(memcmp(answer + 13, "Example", 7), 0);
	cr_assert_str_eq(question.name, "example.test");
	cr_assert(question.fresh && question.type == NS_A && question.rcode == 0);
	cr_assert_eq(names_add(names, "example.test", v4, v6), 0);
	cr_assert_eq(memcmp(answer + len - 4, v4, 4), 0);
	len = ask("example.test", NS_AAAA);
	cr_assert_eq(len, at + 28);
	cr_assert_eq(memcmp(answer + len - 16, v6, 16), 0);
	cr_assert_not(question.fresh);
}

/* Every other type: the name is there, and has nothing of the kind. No address is spent on it. */
Test(dns, other_types_are_empty)
{
	static const unsigned int types[] = { NS_TXT, NS_MX, NS_HTTPS, NS_ANY, 2, 6, 33, 64, 252, 0, 65535 };

	for (size_t i = 0; i < ELEMENTSOF(types); i++) {
		cr_assert_gt(ask("example.test", types[i]), 0);
		cr_assert_eq(rcode(), 0, "type %u", types[i]);
		cr_assert(count(1) == 0 && count(2) == 1);
	}
	cr_assert_eq(names_count(names), 0);
}

/* Names that no connection can ever be made to. */
Test(dns, names_that_are_none)
{
	static const char *const none[] = { "", "single", "localhost", "evil.localhost", "127.0.0.1",
		"0x7f.1", "a%2eb.test", "4.3.2.1.in-addr.arpa", "example.arpa" };

	for (size_t i = 0; i < ELEMENTSOF(none); i++) {
		cr_assert_gt(ask(none[i], NS_A), 0);
		cr_assert_eq(rcode(), 3, "%s", none[i]);
		cr_assert(count(1) == 0 && count(2) == 1);
		cr_assert_str_eq(question.name, "");
	}
	cr_assert_eq(names_count(names), 0);
}

static bool only_listed(const char *name, void *userdata)
{
	return strcmp(name, "listed.test") == 0;
}

/* `denied: nxdomain`: what no rule names does not exist. */
Test(dns, silence_for_denied_names)
{
	struct wire listed = make("listed.test", NS_A, 0), other = make("other.test", NS_A, 0),
		    text = make("other.test", NS_TXT, 0);

	ask_wire(&listed, only_listed);
	cr_assert_eq(rcode(), 0);
	ask_wire(&other, only_listed);
	cr_assert_eq(rcode(), 3);
	ask_wire(&text, only_listed);
	cr_assert_eq(rcode(), 3);
	cr_assert_eq(names_count(names), 1);
}

/* Addresses that were given out lead back to their names, in both families; others to nobody. */
Test(dns, pointers)
{
	static const char hex[] = "0123456789abcdef";
	uint8_t v4[4], v6[16];
	char reverse[80] = "";
	size_t len;

	names_add(names, "some.example.test", v4, v6);
	snprintf(reverse, sizeof(reverse), "%u.%u.%u.%u.in-addr.arpa", v4[3], v4[2], v4[1], v4[0]);
	len = ask(reverse, NS_PTR);
	cr_assert_eq(count(1), 1);
	cr_assert_eq(memcmp(answer + len - 19, "\4some\7example\4test", 19), 0);
	for (int i = 0; i < 32; i++) {
		reverse[2 * i] = hex[i % 2 ? v6[15 - i / 2] >> 4 : v6[15 - i / 2] & 15];
		reverse[2 * i + 1] = '.';
	}
	strcpy(reverse + 64, "ip6.arpa");
	len = ask(reverse, NS_PTR);
	cr_assert_eq(count(1), 1);
	cr_assert_eq(memcmp(answer + len - 19, "\4some\7example\4test", 19), 0);
	reverse[0] = 'g';
	ask(reverse, NS_PTR);
	cr_assert_eq(rcode(), 3);
	for (const char *const *name = (const char *const[]){ "1.0.0.127.in-addr.arpa",
		     "01.0.18.198.in-addr.arpa", "300.1.18.198.in-addr.arpa", "1.18.198.in-addr.arpa",
		     "some.example.test", NULL };
		*name; name++) {
		ask(*name, NS_PTR);
		cr_assert_eq(rcode(), 3, "%s", *name);
	}
}

/* OPT is answered where it was asked for and nowhere else; a version that is not ours is told so. */
Test(dns, extension_only_when_asked)
{
	struct wire wire = make("example.test", NS_A, 1);
	size_t len;

	add_opt(&wire, 0, 0x8000);
	len = ask_wire(&wire, NULL);
	cr_assert(count(1) == 1 && count(3) == 1);
	cr_assert_eq(memcmp(answer + len - 11, "\0\0\51\4\320\0\0\200\0\0\0", 11), 0);
	wire = make("example.test", NS_A, 1);
	add_opt(&wire, 1, 0);
	len = ask_wire(&wire, NULL);
	cr_assert(count(1) == 0 && count(3) == 1);
	cr_assert_eq(memcmp(answer + len - 11, "\0\0\51\4\320\1\0\0\0\0\0", 11), 0);
	wire = make("example.test", NS_A, 2);
	add_opt(&wire, 0, 0);
	add_opt(&wire, 0, 0);
	ask_wire(&wire, NULL);
	cr_assert_eq(rcode(), 1);
}

/* The longest of everything fits below 512 bytes, which every client takes over UDP. */
Test(dns, longest_answers)
{
	char name[NAMES_TEXT_MAX + 1], reverse[80];
	struct wire wire;
	uint8_t v4[4];

	for (size_t i = 0; i < NAMES_TEXT_MAX; i++)
		name[i] = i % 2 ? '.' : 'a';
	name[NAMES_TEXT_MAX] = 0;
	for (const unsigned int *type = (const unsigned int[]){ NS_A, NS_AAAA, NS_TXT, 0 }; *type; type++) {
		wire = make(name, *type, 1);
		add_opt(&wire, 0, 0);
		cr_assert_gt(ask_wire(&wire, NULL), 0);
		cr_assert_eq(rcode(), 0);
	}
	names_add(names, name, v4, NULL);
	snprintf(reverse, sizeof(reverse), "%u.%u.%u.%u.in-addr.arpa", v4[3], v4[2], v4[1], v4[0]);
	wire = make(reverse, NS_PTR, 1);
	add_opt(&wire, 0, 0);
	cr_assert_gt(ask_wire(&wire, NULL), 12U + NAMES_TEXT_MAX);
	cr_assert_eq(count(1), 1);
}

/* Packets that are none: cut anywhere, answers, two questions, pointers, more than there is. */
Test(dns, odd_packets)
{
	struct wire whole = make("example.test", NS_A, 1), wire;

	add_opt(&whole, 0, 0);
	for (size_t len = 0; len < whole.len; len++) {
		wire = whole;
		wire.len = len;
		cr_assert_eq(ask_wire(&wire, NULL), len < 12 ? 0 : 12);
		cr_assert(len < 12 || rcode() == 1);
	}
	wire = whole;
	wire.data[2] |= 0x80;
	cr_assert_eq(ask_wire(&wire, NULL), 0, "an answer gets none");
	wire = whole;
	wire.data[2] |= 0x28;
	ask_wire(&wire, NULL);
	cr_assert_eq(rcode(), 4);
	for (size_t field = 5; field <= 11; field += 2) {
		wire = whole;
		wire.data[field]++;
		ask_wire(&wire, NULL);
		cr_assert_eq(rcode(), 1, "count at %zu", field);
	}
	wire = whole;
	wire.data[12] = 0xc0;
	wire.data[13] = 12;
	ask_wire(&wire, NULL);
	cr_assert_eq(rcode(), 1, "a name that points to itself");
	wire = whole;
	wire.data[12] = 64;
	ask_wire(&wire, NULL);
	cr_assert_eq(rcode(), 1);
	wire = whole;
	wire.data[14] = 0;
	ask_wire(&wire, NULL);
	cr_assert_eq(rcode(), 3, "a NUL in a name");
	wire = make("example.test", NS_A, 0);
	wire.data[wire.len - 1] = 3;
	ask_wire(&wire, NULL);
	cr_assert_eq(rcode(), 5, "another class");
	wire = make("example.test", NS_A, 0);
	wire.data[wire.len++] = 0;
	ask_wire(&wire, NULL);
	cr_assert_eq(rcode(), 1, "a byte too many");
	cr_assert_eq(names_count(names), 0);
}

/* Whole queries with bytes turned over: never a crash, never a long answer. */
Test(dns, random_packets)
{
	srandom(1);
	for (int i = 0; i < 100000; i++) {
		struct wire wire = make("some.example.test", i % 2 ? NS_A : NS_PTR, 1);

		add_opt(&wire, 0, 0);
		for (int k = 0; k < 4; k++)
			wire.data[2 + (size_t)random() % (wire.len - 2)] = (uint8_t)random();
		wire.len -= (size_t)random() % 8;
		ask_wire(&wire, NULL);
	}
}

/* The cap of the table is told as a name that does not exist. */
Test(dns, a_full_table)
{
	char name[32];

	for (int i = 0; i < NAMES_MAX; i++) {
		snprintf(name, sizeof(name), "n%d.test", i);
		names_add(names, name, NULL, NULL);
	}
	ask("another.test", NS_A);
	cr_assert_eq(rcode(), 3);
	ask("n7.test", NS_A);
	cr_assert_eq(rcode(), 0);
}
