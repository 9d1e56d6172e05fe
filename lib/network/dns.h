/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The answers of the name server inside a box: bytes of a query in, bytes of an answer out. Names get
 * synthetic addresses (names.h); nothing is ever asked of anybody. A, AAAA and PTR are answered, every other
 * type is empty. Answers are never cut (no TC): each is below 512 bytes, so UDP and TCP get the same.
 */
#ifndef NETWORK_DNS_H
#define NETWORK_DNS_H

#include "network/names.h"

#define DNS_PORT 53
#define DNS_QUERY_MAX 4096 /* longer ones are not answered */
#define DNS_ANSWER_MAX 512

enum dns_rcode {
	DNS_NOERROR = 0,
	DNS_FORMERR = 1,
	DNS_SERVFAIL = 2,
	DNS_NXDOMAIN = 3,
	DNS_NOTIMP = 4,
	DNS_REFUSED = 5,
};

enum dns_type {
	DNS_TYPE_A = 1,
	DNS_TYPE_SOA = 6,
	DNS_TYPE_PTR = 12,
	DNS_TYPE_AAAA = 28,
	DNS_TYPE_OPT = 41,
};

struct dns_policy {
	struct names *names;
	/*
	 * Whether the name exists for the box. NULL: every host name does, and a connection to it is told
	 * what denies it (`denied: explain`). Else those of which it says yes (`nxdomain`).
	 */
	bool (*exists)(const char *name, void *userdata);
	void *userdata;
};

/* What was asked, for events; valid when rcode is neither FORMERR nor NOTIMP. */
struct dns_question {
	char name[NAMES_TEXT_MAX + 1]; /* canonical; "" for a name that is no host name */
	uint16_t type;
	uint8_t rcode;
	bool fresh; /* the name got its addresses by this question */
};

/*
 * Length of the answer to a query, 0 for what gets none: fragments of a head, answers, and what is longer
 * than DNS_QUERY_MAX. Over TCP the two bytes of length before each are the caller's. retquestion may be NULL.
 */
size_t dns_answer(const struct dns_policy *policy, const void *query, size_t len, uint8_t ret[DNS_ANSWER_MAX],
	struct dns_question *retquestion);

#endif
