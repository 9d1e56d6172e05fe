/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reading a query and writing its answer (RFC 1035, 6891, 2308). Queries come from inside the wall: every
 * length is looked at, a query is read whole before anything is answered, and pointers are followed nowhere
 * (a question has no need of them).
 */
#include "network/dns.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define HEAD_BYTES 12
#define NAME_BYTES 255
#define CLASS_IN 1
#define TTL 60 /* clients cache for longer; it holds for ever */
#define NEGATIVE_TTL 5
#define EDNS_BYTES 1232 /* what we say we can take */

enum {
	FLAG_QR = 0x8000,
	FLAG_OPCODE = 0x7800,
	FLAG_RD = 0x0100,
	FLAG_RA = 0x0080,
	FLAG_CD = 0x0010,
	EDNS_DO = 0x8000,
};

struct query {
	const uint8_t *data;
	size_t len, offset;
	uint16_t id, flags, type, class;
	size_t question_len; /* bytes of name, type and class */
	char name[NAME_BYTES + 1]; /* lower case with dots; "" for the root and for what is no text */
	bool has_opt;
	uint16_t opt_flags;
	uint8_t opt_version;
};

struct answer {
	uint8_t *data;
	size_t len;
};

/* -- reading -- */

static bool take(struct query *query, size_t n, const uint8_t **ret)
{
	if (query->len - query->offset < n)
		return false;
	*ret = query->data + query->offset;
	query->offset += n;
	return true;
}

static bool take_u16(struct query *query, uint16_t *ret)
{
	const uint8_t *data;

	if (!take(query, 2, &data))
		return false;
	*ret = (uint16_t)(data[0] << 8 | data[1]);
	return true;
}

/* A label as text. false when it holds what no name has, a dot above all: then the whole name is no text. */
static bool add_label(char name[NAME_BYTES + 1], size_t *at, const uint8_t *label, size_t len)
{
	if (*at)
		name[(*at)++] = '.';
	for (size_t i = 0; i < len; i++) {
		char c = (char)label[i];

		if (c <= ' ' || c >= 0x7f || c == '.' || c == '\\')
			return false;
		name[(*at)++] = c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
	}
	name[*at] = 0;
	return true;
}

/* The name of the question; false when it is cut, too long, or uses pointers. */
static bool take_question_name(struct query *query)
{
	size_t at = 0, total = 0;
	bool is_text = true;
	const uint8_t *byte, *label;

	for (;;) {
		size_t n;

		if (!take(query, 1, &byte))
			return false;
		n = *byte;
		total += n + 1;
		if (n > NAMES_LABEL_MAX || total > NAME_BYTES)
			return false;
		if (n == 0)
			break;
		if (!take(query, n, &label))
			return false;
		is_text = is_text && add_label(query->name, &at, label, n);
	}
	if (!is_text)
		query->name[0] = 0;
	return true;
}

/* Past the name of a record: labels, and perhaps a pointer, which ends it. */
static bool skip_name(struct query *query)
{
	const uint8_t *byte, *rest;

	for (size_t total = 0; total <= NAME_BYTES; total += *byte + 1U) {
		if (!take(query, 1, &byte))
			return false;
		if (*byte >= 0xc0)
			return take(query, 1, &rest);
		if (*byte > NAMES_LABEL_MAX || !take(query, *byte, &rest))
			return false;
		if (*byte == 0)
			return true;
	}
	return false;
}

static bool take_record(struct query *query)
{
	size_t begin = query->offset;
	uint16_t type, class, high, low, len;
	const uint8_t *data;

	if (!skip_name(query) || !take_u16(query, &type) || !take_u16(query, &class) ||
		!take_u16(query, &high) || !take_u16(query, &low) || !take_u16(query, &len) ||
		!take(query, len, &data))
		return false;
	if (type != DNS_TYPE_OPT)
		return true;
	if (query->has_opt || query->data[begin] != 0)
		return false;
	query->has_opt = true;
	query->opt_version = (uint8_t)high;
	query->opt_flags = low;
	return true;
}

/* Everything of a query: DNS_NOERROR, or what it is answered with. The head is there. */
static enum dns_rcode read_query(struct query *query)
{
	uint16_t n_questions = 0, n_answers = 0, n_authorities = 0, n_additional = 0;
	size_t begin;

	take_u16(query, &query->id);
	take_u16(query, &query->flags);
	take_u16(query, &n_questions);
	take_u16(query, &n_answers);
	take_u16(query, &n_authorities);
	take_u16(query, &n_additional);
	if (query->flags & FLAG_OPCODE)
		return DNS_NOTIMP;
	if (n_questions != 1 || n_answers || n_authorities)
		return DNS_FORMERR;
	begin = query->offset;
	if (!take_question_name(query) || !take_u16(query, &query->type) || !take_u16(query, &query->class))
		return DNS_FORMERR;
	query->question_len = query->offset - begin;
	while (n_additional-- > 0)
		if (!take_record(query))
			return DNS_FORMERR;
	return query->offset == query->len ? DNS_NOERROR : DNS_FORMERR;
}

/* -- writing: DNS_ANSWER_MAX is enough for the longest (see the test) -- */

static void add_u16(struct answer *answer, uint16_t value)
{
	answer->data[answer->len++] = (uint8_t)(value >> 8);
	answer->data[answer->len++] = (uint8_t)value;
}

static void add_u32(struct answer *answer, uint32_t value)
{
	add_u16(answer, (uint16_t)(value >> 16));
	add_u16(answer, (uint16_t)value);
}

static void add_bytes(struct answer *answer, const void *data, size_t len)
{
	memcpy(answer->data + answer->len, data, len);
	answer->len += len;
}

/* A record about the name of the question, which stands right behind the head. */
static void add_record(struct answer *answer, uint16_t type, const void *data, size_t len)
{
	add_u16(answer, 0xc000 | HEAD_BYTES);
	add_u16(answer, type);
	add_u16(answer, CLASS_IN);
	add_u32(answer, TTL);
	add_u16(answer, (uint16_t)len);
	add_bytes(answer, data, len);
}

/* Says for how long an absence holds. Of the root, which is above whatever was asked. */
static void add_soa(struct answer *answer)
{
	answer->data[answer->len++] = 0;
	add_u16(answer, DNS_TYPE_SOA);
	add_u16(answer, CLASS_IN);
	add_u32(answer, NEGATIVE_TTL);
	add_u16(answer, 22);
	add_bytes(answer, "\0", 2); /* both names in it: the root */
	add_u32(answer, 1);
	add_u32(answer, 3600);
	add_u32(answer, 600);
	add_u32(answer, 86400);
	add_u32(answer, NEGATIVE_TTL);
}

static void add_opt(struct answer *answer, const struct query *query, bool bad_version)
{
	answer->data[answer->len++] = 0;
	add_u16(answer, DNS_TYPE_OPT);
	add_u16(answer, EDNS_BYTES);
	add_u16(answer, bad_version ? 1U << 8 : 0); /* upper bits of the code: BADVERS is 16 */
	add_u16(answer, query->opt_flags & EDNS_DO);
	add_u16(answer, 0);
}

/* -- what is answered -- */

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The address in 4.3.2.1.in-addr.arpa, written in one way only. */
static bool reverse4(const char *name, uint8_t ret[4])
{
	unsigned int part[4];
	char again[64];
	int n = 0;

	if (sscanf(name, "%3u.%3u.%3u.%3u.in-addr.arpa%n", &part[3], &part[2], &part[1], &part[0], &n) != 4 ||
		!n || name[n])
		return false;
	snprintf(again, sizeof(again), "%u.%u.%u.%u.in-addr.arpa", part[3], part[2], part[1], part[0]);
	for (size_t i = 0; i < 4; i++) {
		if (part[i] > 255)
			return false;
		ret[i] = (uint8_t)part[i];
	}
	return strcmp(again, name) == 0;
}

static bool reverse6(const char *name, uint8_t ret[16])
{
	if (strlen(name) != 64 + 8 || strcmp(name + 64, "ip6.arpa") != 0)
		return false;
	for (size_t i = 0; i < 32; i++) {
		int value = digit(name[i * 2]);
		size_t at = 15 - i / 2;

		if (value < 0 || name[i * 2 + 1] != '.')
			return false;
		ret[at] = (uint8_t)(i % 2 ? ret[at] | value << 4 : value);
	}
	return true;
}

/* A canonical name on the wire: each dot becomes the length of what follows. */
static size_t wire_name(const char *name, uint8_t ret[NAME_BYTES])
{
	size_t at = 0;

	for (;;) {
		size_t n = strcspn(name, ".");

		ret[at++] = (uint8_t)n;
		memcpy(ret + at, name, n);
		at += n;
		if (!name[n])
			break;
		name += n + 1;
	}
	ret[at++] = 0;
	return at;
}

/* 1 when a record was added, 0 for none. */
static int add_pointer(const struct dns_policy *policy, const struct query *query, struct answer *answer,
	enum dns_rcode *rcode)
{
	uint8_t address[16], wire[NAME_BYTES];
	const char *name = NULL;

	if (reverse4(query->name, address))
		name = names_find(policy->names, AF_INET, address);
	else if (reverse6(query->name, address))
		name = names_find(policy->names, AF_INET6, address);
	if (!name) {
		*rcode = DNS_NXDOMAIN;
		return 0;
	}
	add_record(answer, DNS_TYPE_PTR, wire, wire_name(name, wire));
	return 1;
}

static bool is_reverse(const char *name)
{
	size_t len = strlen(name);

	return len > 5 && strcmp(name + len - 5, ".arpa") == 0;
}

/* An address is given out only where one is asked for: other questions need none. */
static int add_addresses(const struct dns_policy *policy, const struct query *query, struct answer *answer,
	struct dns_question *question)
{
	bool wanted = query->type == DNS_TYPE_A || query->type == DNS_TYPE_AAAA;
	uint8_t v4[4], v6[16];
	int r;

	if (!names_is_host(query->name) || is_reverse(query->name) ||
		(policy->exists && !policy->exists(query->name, policy->userdata))) {
		question->rcode = DNS_NXDOMAIN;
		return 0;
	}
	strcpy(question->name, query->name);
	if (!wanted)
		return 0;
	r = names_add(policy->names, query->name, v4, v6);
	if (r < 0) {
		question->rcode = r == -ENOMEM ? DNS_SERVFAIL : DNS_NXDOMAIN;
		return 0;
	}
	question->fresh = r == 1;
	if (query->type == DNS_TYPE_A)
		add_record(answer, DNS_TYPE_A, v4, sizeof(v4));
	else
		add_record(answer, DNS_TYPE_AAAA, v6, sizeof(v6));
	return 1;
}

static void write_counts(struct answer *answer, uint16_t questions, uint16_t answers, uint16_t authorities,
	uint16_t additional)
{
	add_u16(answer, questions);
	add_u16(answer, answers);
	add_u16(answer, authorities);
	add_u16(answer, additional);
}

static void write_head(struct answer *answer, const struct query *query, enum dns_rcode rcode)
{
	add_u16(answer, query->id);
	add_u16(answer,
		(uint16_t)(FLAG_QR | FLAG_RA | (query->flags & (FLAG_OPCODE | FLAG_RD | FLAG_CD)) | rcode));
}

static void answer_question(const struct dns_policy *policy, const struct query *query, struct answer *answer,
	struct dns_question *question)
{
	bool bad_version = query->has_opt && query->opt_version != 0;
	struct answer head = { .data = answer->data };
	enum dns_rcode rcode = DNS_NOERROR;
	int n = 0;

	answer->len = HEAD_BYTES; /* the head is written last */
	add_bytes(answer, query->data + HEAD_BYTES, query->question_len);
	if (bad_version) {
		/* said by the OPT record */
	} else if (query->class != CLASS_IN) {
		rcode = DNS_REFUSED;
	} else if (query->type == DNS_TYPE_PTR) {
		n = add_pointer(policy, query, answer, &rcode);
	} else {
		n = add_addresses(policy, query, answer, question);
		rcode = question->rcode;
	}
	question->rcode = (uint8_t)rcode;
	if (!n && !bad_version)
		add_soa(answer);
	if (query->has_opt)
		add_opt(answer, query, bad_version);
	write_head(&head, query, rcode);
	write_counts(&head, 1, (uint16_t)n, !n && !bad_version, query->has_opt);
}

size_t dns_answer(const struct dns_policy *policy, const void *data, size_t len, uint8_t ret[DNS_ANSWER_MAX],
	struct dns_question *retquestion)
{
	struct query query = { .data = data, .len = len };
	struct answer answer = { .data = ret };
	struct dns_question question = { 0 };
	enum dns_rcode rcode;

	if (len < HEAD_BYTES || len > DNS_QUERY_MAX || (query.data[2] & (FLAG_QR >> 8)))
		return 0;
	rcode = read_query(&query);
	question.type = query.type;
	question.rcode = (uint8_t)rcode;
	if (rcode != DNS_NOERROR) {
		write_head(&answer, &query, rcode);
		write_counts(&answer, 0, 0, 0, 0);
	} else {
		answer_question(policy, &query, &answer, &question);
	}
	if (retquestion)
		*retquestion = question;
	return answer.len;
}
