/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdlib.h>
#include <string.h>

#include "egress/exchange.h"
#include "network/rule-match.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct http_head head;

/* Found by both ways of feeding; what was read lies within the bytes. */
static void read_head(const char *data, size_t len, bool request)
{
	size_t scanned = 0, pieces = 0;
	unsigned int status;
	const char *why;
	long whole, n = 0;

	whole = http_head_find(data, len, &scanned);
	for (size_t i = 1; i <= len && n == 0; i++)
		n = http_head_find(data, i, &pieces);
	if (n != whole)
		abort();
	if (whole <= 0)
		return;
	why = request ? http_read_request(data, (size_t)whole, &head, &status)
		      : http_read_answer(data, (size_t)whole, "GET", &head);
	if (why)
		return;
	for (size_t i = 0; i < head.n_fields; i++)
		if (head.fields[i].name.data < data ||
			head.fields[i].value.data + head.fields[i].value.len > data + whole)
			abort();
}

/* The same bytes whole and one by one give the same payload and the same end. */
static void read_body(const char *data, size_t len)
{
	struct buffer payload[2] = { { 0 }, { 0 } };
	size_t ends[2];
	int answers[2];

	for (int way = 0; way < 2; way++) {
		struct http_body body;
		enum http_answer answer = HTTP_MORE;
		size_t at = 0, used;
		struct http_text piece;

		http_body_init(&body, HTTP_CHUNKED, 0);
		while (at < len && answer != HTTP_BAD && answer != HTTP_END) {
			answer = http_body_feed(&body, data + at, way ? 1 : len - at, &used, &piece);
			if (answer == HTTP_DATA)
				buffer_add(&payload[way], piece.data, piece.len);
			at += used;
			if (used == 0 && answer == HTTP_MORE)
				abort();
		}
		ends[way] = at;
		answers[way] = answer == HTTP_DATA ? HTTP_MORE : answer;
		http_body_clear(&body);
	}
	if (answers[0] != answers[1] || ends[0] != ends[1] ||
		buffer_len(&payload[0]) != buffer_len(&payload[1]) ||
		memcmp(buffer_at(&payload[0]), buffer_at(&payload[1]), buffer_len(&payload[0])) != 0)
		abort();
	buffer_clear(&payload[0], false);
	buffer_clear(&payload[1], false);
}

static void read_hello(const uint8_t *data, size_t len)
{
	enum hello_answer answers[2];
	struct hello hello;

	for (int way = 0; way < 2; way++) {
		hello_init(&hello);
		if (way == 0)
			hello_feed(&hello, data, len);
		for (size_t i = 0; way == 1 && i < len; i++)
			hello_feed(&hello, data + i, 1);
		answers[way] = hello.answer;
		hello_clear(&hello);
	}
	/* Bytes behind a hello are seen only where they come with it. */
	if (answers[0] != answers[1] && answers[0] != HELLO_BAD)
		abort();
}

static void judge(const uint8_t *data, size_t len)
{
	static const char *const patterns[] = { "/a/**/b*", "/*", NULL };
	struct rules *rules = NULL;
	struct rules_verdict verdict;
	struct rules_target target = { .host = "a.example.test", .port = 443 };
	struct rules_request request = { .method = "GET",
		.path = (const char *)data,
		.path_len = len / 2,
		.query = (const char *)data + len / 2,
		.query_len = len - len / 2 };
	struct fault fault;

	match_path(patterns, (const char *)data, len);
	match_query("key", "v*", (const char *)data, len);
	fault_init(&fault, 0);
	if (rules_unpack(data, len, &rules, &fault) < 0)
		return;
	rules_judge_target(rules, &target, &verdict);
	rules_judge_request(rules, &target, &request, &verdict);
	rules_name_exists(rules, target.host);
	rules_unref(rules);
}

/* The first byte says how long the placeholder is. Swapped in pieces it is as swapped whole; and as often as memmem finds it. */
static void swap_pieces(const char *data, size_t len)
{
	struct buffer out[3] = { { 0 }, { 0 }, { 0 } };
	char placeholder[9] = "";
	size_t n = len ? (size_t)(data[0] & 7) + 1 : 0;
	const char *at, *end = data + len;

	if (len < n + 1 || memchr(data + 1, 0, n))
		return;
	memcpy(placeholder, data + 1, n);
	for (int way = 0; way < 3; way++) {
		struct swap swap = { 0 };
		size_t step = way == 0 ? len : way == 1 ? 1 : n + 1;

		if (!swap_set(&swap, placeholder, (struct http_text){ "application/json", 16 }, "v\"", 2))
			abort();
		for (size_t i = 0; i < len; i += step)
			swap_pass(&swap, data + i, MIN(step, len - i), false, &out[way]);
		swap_pass(&swap, "", 0, true, &out[way]);
		swap_clear(&swap);
	}
	for (at = data, n = strlen(placeholder), len = 0; (at = memmem(at, (size_t)(end - at), placeholder, n)); at += n)
		len++;
	for (int way = 0; way < 3; way++) {
		if (buffer_len(&out[way]) != (size_t)(end - data) - len * n + len * 3 ||
			memcmp(buffer_at(&out[way]), buffer_at(&out[0]), buffer_len(&out[0])) != 0)
			abort();
	}
	for (int way = 0; way < 3; way++)
		buffer_clear(&out[way], false);
}

/* What is told of a push are whole lines of a sound form. */
static void read_refs(const char *data, size_t len)
{
	struct buffer out = { 0 };
	bool none = false;

	if (!refs_read(data, len, &out, &none)) {
		const char *at = buffer_at(&out), *end = at + buffer_len(&out);

		if (none != (buffer_len(&out) == 0) || (none && len != 4))
			abort();
		while (at < end) {
			const char *stop = memchr(at, '\n', (size_t)(end - at));

			if (!stop || (stop - at < 83 && (stop - at < 7 || memcmp(at, "option ", 7) != 0)) || memchr(at, 0, (size_t)(stop - at)))
				abort();
			at = stop + 1;
		}
	}
	buffer_clear(&out, false);
}

/* The first byte chooses a reader of what comes from the box or from a server. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *copy;

	if (size == 0)
		return 0;
	size--;
	copy = malloc(size ? size : 1);
	memcpy(copy, data + 1, size);
	switch (data[0] % 7) {
	case 0:
		read_head(copy, size, true);
		break;
	case 1:
		read_head(copy, size, false);
		break;
	case 2:
		read_body(copy, size);
		break;
	case 3:
		read_hello((uint8_t *)copy, size);
		break;
	case 4:
		judge((uint8_t *)copy, size);
		break;
	case 5:
		swap_pieces(copy, size);
		break;
	case 6:
		read_refs(copy, size);
		break;
	}
	free(copy);
	return 0;
}
