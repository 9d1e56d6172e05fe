/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdlib.h>
#include <string.h>

#include "network/dns.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool odd_names(const char *name, void *userdata)
{
	return strlen(name) % 2;
}

/* The first byte chooses: a table of names read back, or a query with either policy. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(names_freep) struct names *names = names_new();
	struct dns_policy policy = { .names = names };
	struct dns_question question;
	uint8_t answer[DNS_ANSWER_MAX];
	size_t len;

	if (size == 0 || !names)
		return 0;
	if (data[0] % 4 == 0) {
		names_restore(names, data + 1, size - 1);
		return 0;
	}
	if (data[0] % 4 == 1)
		policy.exists = odd_names;
	names_add(names, "known.example", NULL, NULL);
	len = dns_answer(&policy, data + 1, size - 1, answer, &question);
	if (len && (len < 12 || len > DNS_ANSWER_MAX || answer[0] != data[1] || answer[1] != data[2] ||
			   (answer[2] & 0x02)))
		abort();
	return 0;
}
