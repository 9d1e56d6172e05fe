/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Rules: tables of what is asked and what the answer must be. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "network/rule-match.h"
#include "network/rule.h"

static struct rules *rules_of(const char *network)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	abox_error *error = NULL;
	struct rules *rules = NULL;
	struct fault fault;
	abox_spec *spec = NULL;
	char text[8192];

	snprintf(text, sizeof(text),
		"{\"version\":1,\"journal\":\"/j\",\"network\":%s,\"credentials\":[{\"name\":\"forge\",\"provider\":{\"kind\":\"env\",\"variable\":\"X\"}}]}",
		network);
	cr_assert_eq(abox_spec_from_json(text, &spec, &error), 0, "%s: %s", network,
		abox_error_get_message(error));
	cr_assert_eq(rules_pack(spec, &writer, &error), 0, "%s", abox_error_get_message(error));
	fault_init(&fault, ABOX_STAGE_NETWORK);
	cr_assert_eq(rules_unpack(writer.data, writer.len, &rules, &fault), 0, "%s", fault.message);
	abox_spec_unref(spec);
	return rules;
}

static struct rules_verdict judge(const struct rules *rules, const char *host, uint16_t port)
{
	struct rules_target target = { .host = host, .port = port };
	struct rules_verdict verdict;

	if (address_parse(host, strlen(host), &target.literal))
		target.host = NULL;
	rules_judge_target(rules, &target, &verdict);
	return verdict;
}

static struct rules_verdict judge_request(
	const struct rules *rules, const char *host, const char *method, const char *path, const char *header)
{
	struct rules_target target = { .host = host, .port = 443 };
	const char *query = strchr(path, '?');
	struct rules_field fields[2];
	struct rules_request request = {
		.method = method, .path = path, .path_len = strcspn(path, "?"), .fields = fields
	};
	struct rules_verdict verdict;

	if (query) {
		request.query = query + 1;
		request.query_len = strlen(query + 1);
	}
	for (; header && request.n_fields < 2; request.n_fields++) {
		const char *colon = strchr(header, ':'), *end = strchrnul(colon, '\n');

		fields[request.n_fields] = (struct rules_field){ header, colon + 1, (size_t)(colon - header),
			(size_t)(end - colon - 1) };
		header = *end ? end + 1 : NULL;
	}
	rules_judge_request(rules, &target, &request, &verdict);
	return verdict;
}

static bool goes(const struct rules *rules, const char *host, uint16_t port, const char *address)
{
	struct rules_target target = { .host = host, .port = port };
	struct rules_verdict verdict;
	struct net_address resolved;

	if (address_parse(host, strlen(host), &target.literal))
		target.host = NULL;
	rules_judge_target(rules, &target, &verdict);
	cr_assert(address_parse(address, strlen(address), &resolved));
	return rules_judge_address(rules, &target, &resolved, &verdict);
}

/* T11-7: `*.example.test` is everything below the name, and nothing else. */
Test(rule, suffix_matches_what_is_documented)
{
	static const struct {
		const char *host;
		bool allowed;
	} rows[] = { { "example.test", false }, { "a.example.test", true }, { "b.a.example.test", true },
		{ "aexample.test", false }, { "example.test.evil.test", false },
		{ "a.example.test.evil.test", false }, { "xn--example-.test", false },
		{ "a.example%2etest", false }, { ".example.test", false }, { "a.example.tes", false } };
	_cleanup_(rules_unrefp) struct rules *rules =
		rules_of("{\"mode\":\"allow\",\"allow\":[{\"host\":\"*.Example.test\"}]}");

	for (size_t i = 0; i < ELEMENTSOF(rows); i++)
		cr_expect_eq(judge(rules, rows[i].host, 443).action,
			rows[i].allowed ? RULES_PASS : RULES_DENY, "%s", rows[i].host);
}

/* T11-9: a rule means its ports, or 80 and 443. */
Test(rule, ports_are_those_of_the_rule)
{
	_cleanup_(rules_unrefp) struct rules *rules = rules_of(
		"{\"mode\":\"allow\",\"allow\":[{\"host\":\"a.test\",\"ports\":[443]},{\"host\":\"b.test\"}]}");

	cr_expect_eq(judge(rules, "a.test", 443).action, RULES_PASS);
	cr_expect_eq(judge(rules, "a.test", 80).action, RULES_DENY);
	cr_expect_eq(judge(rules, "a.test", 22).action, RULES_DENY);
	cr_expect_eq(judge(rules, "a.test", 0).action, RULES_DENY);
	cr_expect_eq(judge(rules, "b.test", 80).action, RULES_PASS);
	cr_expect_eq(judge(rules, "b.test", 8080).action, RULES_DENY);
	cr_expect_str_eq(judge(rules, "b.test", 443).place, "/network/allow/1");
}

/* T11-6: an empty list, and a missing one, deny everything. */
Test(rule, an_empty_list_denies_all)
{
	static const char *const texts[] = { "{\"mode\":\"allow\",\"allow\":[]}", "{\"mode\":\"allow\"}",
		"{\"mode\":\"none\"}", "{}" };
	static const char *const wrong[] = { "{\"mode\":\"allow\",\"allow\":null}",
		"{\"mode\":\"allow\",\"allow\":[\"\"]}", "{\"mode\":\"allow\",\"allow\":[{}]}",
		"{\"mode\":\"allow\",\"allow\":[{\"host\":\"\"}]}",
		"{\"mode\":\"allow\",\"allow\":[{\"host\":\"127.1\"}]}",
		"{\"mode\":\"allow\",\"allow\":[{\"host\":\"a.test:443\"}]}",
		"{\"mode\":\"allow\",\"allow\":[{\"host\":\"a.test\",\"ports\":[0]}]}",
		"{\"mode\":\"allow\",\"allow\":[{\"host\":\"a.test\",\"ports\":[65536]}]}",
		"{\"mode\":\"allow\",\"allow\":[{\"host\":\"a.test\",\"ports\":[]}]}",
		"{\"mode\":\"open\",\"deny\":[{\"host\":\"a.test\",\"paths\":[\"/100%/**\"]}]}",
		"{\"mode\":\"open\",\"deny\":[{\"host\":\"a.test\",\"paths\":[\"/a%2541\"]}]}" };

	for (size_t i = 0; i < ELEMENTSOF(texts); i++) {
		_cleanup_(rules_unrefp) struct rules *rules = rules_of(texts[i]);

		cr_expect_eq(judge(rules, "a.test", 443).action, RULES_DENY, "%s", texts[i]);
		cr_expect_eq(judge(rules, "8.8.8.8", 443).action, RULES_DENY, "%s", texts[i]);
		cr_expect_eq(judge_request(rules, "a.test", "GET", "/", NULL).action, RULES_DENY);
		cr_expect_not(rules_name_exists(rules, "a.test"));
	}
	for (size_t i = 0; i < ELEMENTSOF(wrong); i++) {
		abox_spec *spec = NULL;
		char text[1024];

		snprintf(text, sizeof(text), "{\"version\":1,\"network\":%s}", wrong[i]);
		cr_expect_lt(abox_spec_from_json(text, &spec, NULL), 0, "%s", wrong[i]);
		abox_spec_unref(spec);
	}
}

/* T11-3: an allowed name leads to public addresses, unless the rule names others by cidr. */
Test(rule, special_addresses_are_refused_unless_named)
{
	static const char *const special[] = { "169.254.169.254", "127.0.0.1", "10.0.0.1", "172.16.0.1",
		"192.168.1.1", "100.64.0.1", "0.0.0.0", "224.0.0.1", "::1", "fe80::1", "fc00::1",
		"::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::" };
	_cleanup_(rules_unrefp) struct rules *plain =
		rules_of("{\"mode\":\"allow\",\"allow\":[{\"host\":\"a.test\"}]}");
	_cleanup_(rules_unrefp) struct rules *wide = rules_of(
		"{\"mode\":\"allow\",\"allow\":[{\"host\":\"a.test\",\"cidr\":\"0.0.0.0/0\"},{\"cidr\":\"0.0.0.0/0\"},{\"cidr\":\"::/0\"}]}");
	_cleanup_(rules_unrefp) struct rules *open = rules_of("{\"mode\":\"open\"}");
	_cleanup_(rules_unrefp) struct rules *named = rules_of(
		"{\"mode\":\"allow\",\"allow\":[{\"host\":\"a.test\",\"cidr\":\"10.0.0.0/8\"},{\"cidr\":\"127.0.0.1/32\"}]}");

	for (size_t i = 0; i < ELEMENTSOF(special); i++) {
		cr_expect_not(goes(plain, "a.test", 443, special[i]), "%s", special[i]);
		cr_expect_not(goes(wide, "a.test", 443, special[i]), "%s", special[i]);
		cr_expect_not(goes(open, "a.test", 443, special[i]), "%s", special[i]);
		cr_expect_eq(judge(plain, special[i], 443).action, RULES_DENY, "%s", special[i]);
		cr_expect_eq(judge(wide, special[i], 443).action, RULES_DENY, "%s", special[i]);
		cr_expect_eq(judge(open, special[i], 443).action, RULES_DENY, "%s", special[i]);
	}
	cr_expect(goes(plain, "a.test", 443, "8.8.8.8"));
	cr_expect(goes(open, "a.test", 443, "2606:4700::1"));
	cr_expect(goes(wide, "a.test", 443, "8.8.8.8"));
	cr_expect(goes(wide, "8.8.8.8", 443, "8.8.8.8"));
	cr_expect(goes(named, "a.test", 443, "10.9.9.9"));
	cr_expect_not(goes(named, "a.test", 443, "8.8.8.8"));
	cr_expect(goes(named, "127.0.0.1", 443, "127.0.0.1"));
	cr_expect_not(goes(named, "127.0.0.2", 443, "127.0.0.2"));
	cr_expect_not(goes(named, "10.9.9.9", 443, "10.9.9.9"), "a literal is not the host of the rule");
}

/* T11-5: a literal address is never matched by a host, whatever the host. */
Test(rule, literals_are_matched_by_cidr_alone)
{
	_cleanup_(rules_unrefp) struct rules *rules = rules_of(
		"{\"mode\":\"allow\",\"allow\":[{\"host\":\"*.a.test\"},{\"cidr\":\"192.0.9.0/24\",\"ports\":[5432]}]}");

	cr_expect_eq(judge(rules, "192.0.9.7", 5432).action, RULES_PASS);
	cr_expect_eq(judge(rules, "192.0.9.7", 443).action, RULES_DENY);
	cr_expect_eq(judge(rules, "192.0.8.7", 5432).action, RULES_DENY);
	cr_expect_eq(judge(rules, "2606:4700::1", 443).action, RULES_DENY);
}

Test(rule, deny_comes_first_then_the_order_of_the_list)
{
	_cleanup_(rules_unrefp) struct rules *rules = rules_of(
		"{\"mode\":\"open\",\"deny\":[{\"host\":\"evil.test\"},{\"cidr\":\"8.8.0.0/16\"},"
		"{\"host\":\"half.test\",\"methods\":[\"DELETE\"]}],"
		"\"allow\":[{\"host\":\"evil.test\"},{\"host\":\"api.test\",\"methods\":[\"GET\"],\"credential\":\"forge\"},{\"host\":\"api.test\"}]}");

	cr_expect_eq(judge(rules, "evil.test", 443).action, RULES_DENY);
	cr_expect_str_eq(judge(rules, "evil.test", 443).place, "/network/deny/0");
	cr_expect_eq(judge(rules, "any.test", 443).action, RULES_PASS);
	cr_expect_not(goes(rules, "any.test", 443, "8.8.8.8"));
	cr_expect_eq(judge(rules, "8.8.4.4", 443).action, RULES_DENY);
	cr_expect_eq(judge(rules, "half.test", 443).action, RULES_INSPECT);
	cr_expect_eq(judge_request(rules, "half.test", "DELETE", "/", NULL).action, RULES_DENY);
	cr_expect_eq(judge_request(rules, "half.test", "GET", "/", NULL).action, RULES_PASS);
	cr_expect_eq(judge(rules, "api.test", 443).action, RULES_INSPECT);
	cr_expect_not_null(judge_request(rules, "api.test", "GET", "/", NULL).credential);
	cr_expect_null(judge_request(rules, "api.test", "PUT", "/", NULL).credential);
	cr_expect_eq(judge_request(rules, "api.test", "PUT", "/", NULL).action, RULES_PASS);
}

static enum match path(const char *pattern, const char *text)
{
	const char *const patterns[] = { pattern, NULL };

	return match_path(patterns, text, strlen(text));
}

Test(rule, paths_are_matched_in_both_readings)
{
	static const struct {
		const char *pattern, *path;
		enum match match;
	} rows[] = {
		{ "/repos/*/x", "/repos/a/x", MATCH_YES },
		{ "/repos/*/x", "/repos/a/b/x", MATCH_NO },
		{ "/repos/**", "/repos/a/b", MATCH_YES },
		{ "/repos/**", "/repos/", MATCH_YES },
		{ "/repos/**", "/repos", MATCH_NO },
		{ "/a/**/b", "/a/b", MATCH_YES },
		{ "/a/**/b", "/a/x/y/b", MATCH_YES },
		{ "/a/**/b", "/ab", MATCH_NO },
		{ "/admin", "/%61dmin", MATCH_YES },
		{ "/repos/org/**", "/repos/org/../../x", MATCH_UNSURE },
		{ "/repos/org/**", "/repos/org/%2e%2e/x", MATCH_UNSURE },
		{ "/repos/org/**", "/repos/org/..%2fx", MATCH_UNSURE },
		{ "/repos/org/**", "/repos/org/..;/x", MATCH_UNSURE },
		{ "/repos/org/**", "/repos/org//x", MATCH_UNSURE },
		{ "/repos/org/**", "/repos/org/a\\b", MATCH_UNSURE },
		{ "/repos/org/**", "/repos/org/%5c", MATCH_UNSURE },
		{ "/repos/org/**", "/repos/org/%00", MATCH_UNSURE },
		{ "/repos/org/**", "/repos/org/%zz", MATCH_UNSURE },
		{ "/repos/org/**", "/repos/org/%252e%252e/x", MATCH_UNSURE },
		{ "/repos/org/**", "/repos/org%2fx", MATCH_UNSURE },
		{ "/@types%2f*", "/@types%2Fnode", MATCH_YES },
		{ "/**", "/@types%2fnode", MATCH_YES },
		{ "/*", "/@types%2fnode", MATCH_UNSURE },
		{ "/admin/**", "/admin;x/y", MATCH_UNSURE },
		{ "/admin/**", "/admin%3bx/y", MATCH_UNSURE },
		{ "/admin/**", "/;x/admin/y", MATCH_UNSURE },
		{ "/pub", "/pub;v=1", MATCH_UNSURE },
		{ "/pub/**", "/pub/a;v=1/b", MATCH_YES },
		{ "/pub/a;v=*", "/pub/a;v=1", MATCH_YES },
		{ "/x", "*", MATCH_UNSURE },
		{ "/x", "/y", MATCH_NO },
	};

	for (size_t i = 0; i < ELEMENTSOF(rows); i++)
		cr_expect_eq(path(rows[i].pattern, rows[i].path), rows[i].match, "%s against %s",
			rows[i].path, rows[i].pattern);
}

Test(rule, what_is_unsure_never_allows_and_always_denies)
{
	_cleanup_(rules_unrefp) struct rules *allow =
		rules_of("{\"mode\":\"allow\",\"allow\":[{\"host\":\"a.test\",\"paths\":[\"/pub/**\"],"
			 "\"query\":{\"v\":\"1\"},\"headers\":{\"X-Kind\":\"a*\"}}]}");
	_cleanup_(rules_unrefp) struct rules *deny =
		rules_of("{\"mode\":\"open\",\"deny\":[{\"host\":\"a.test\",\"paths\":[\"/admin/**\"]}]}");

	cr_expect_eq(judge_request(allow, "a.test", "GET", "/pub/x?v=1", "X-Kind:abc").action, RULES_PASS);
	cr_expect_eq(
		judge_request(allow, "a.test", "GET", "/pub/x?v=%31&w=2", "x-kind:a").action, RULES_PASS);
	cr_expect_eq(
		judge_request(allow, "a.test", "GET", "/pub/x?v=1&v=2", "X-Kind:abc").action, RULES_DENY);
	cr_expect_eq(
		judge_request(allow, "a.test", "GET", "/pub/x?v=1;v=2", "X-Kind:abc").action, RULES_DENY);
	cr_expect_eq(judge_request(allow, "a.test", "GET", "/pub/x?v=2", "X-Kind:abc").action, RULES_DENY);
	cr_expect_eq(judge_request(allow, "a.test", "GET", "/pub/x?v=1", "X-Kind:b").action, RULES_DENY);
	cr_expect_eq(judge_request(allow, "a.test", "GET", "/pub/x?v=1", "X-Kind:abc\nx-KIND:abd").action,
		RULES_DENY);
	cr_expect_eq(judge_request(allow, "a.test", "GET", "/pub/../x?v=1", "X-Kind:abc").action, RULES_DENY);
	cr_expect_eq(judge_request(allow, "a.test", "GET", "/pub/x", "X-Kind:abc").action, RULES_DENY);
	cr_expect_eq(judge_request(deny, "a.test", "GET", "/x", NULL).action, RULES_PASS);
	cr_expect_eq(judge_request(deny, "a.test", "GET", "/admin/x", NULL).action, RULES_DENY);
	cr_expect_eq(judge_request(deny, "a.test", "GET", "/x/../admin/x", NULL).action, RULES_DENY);
	cr_expect_eq(judge_request(deny, "a.test", "GET", "/admin%2fx", NULL).action, RULES_DENY);
	cr_expect_eq(judge_request(deny, "a.test", "GET", "/admin;a=b/x", NULL).action, RULES_DENY);
}

/* What a server may take for the method or field of a rule denies, and does not allow. */
Test(rule, other_spellings_of_methods_and_fields)
{
	_cleanup_(rules_unrefp) struct rules *deny = rules_of(
		"{\"mode\":\"open\",\"deny\":[{\"host\":\"a.test\",\"methods\":[\"DELETE\"]},"
		"{\"host\":\"b.test\",\"headers\":{\"X-Kind\":\"bad\"}}]}");
	_cleanup_(rules_unrefp) struct rules *allow =
		rules_of("{\"mode\":\"allow\",\"allow\":[{\"host\":\"a.test\",\"methods\":[\"GET\"],"
			 "\"headers\":{\"X-Kind\":\"good\"}}]}");

	cr_expect_eq(judge_request(deny, "a.test", "DELETE", "/", NULL).action, RULES_DENY);
	cr_expect_eq(judge_request(deny, "a.test", "delete", "/", NULL).action, RULES_DENY);
	cr_expect_eq(judge_request(deny, "a.test", "GET", "/", NULL).action, RULES_PASS);
	cr_expect_eq(judge_request(deny, "a.test", "POST", "/", "X-HTTP-Method-Override:DELETE").action,
		RULES_DENY);
	cr_expect_eq(judge_request(allow, "a.test", "GET", "/", "X-Kind:good\nX_Http_Method:PUT").action,
		RULES_DENY);
	cr_expect_eq(judge_request(deny, "b.test", "GET", "/", "X_Kind:bad").action, RULES_DENY);
	cr_expect_eq(judge_request(deny, "b.test", "GET", "/", "X_Kind:good").action, RULES_PASS);
	cr_expect_eq(judge_request(allow, "a.test", "GET", "/", "X-Kind:good").action, RULES_PASS);
	cr_expect_eq(judge_request(allow, "a.test", "get", "/", "X-Kind:good").action, RULES_DENY);
	cr_expect_eq(
		judge_request(allow, "a.test", "GET", "/", "X-Kind:good\nX_Kind:other").action, RULES_DENY);
	cr_expect_eq(judge_request(allow, "a.test", "GET", "/", "X_Kind:good").action, RULES_DENY);
}

/* Time is bounded whatever the pattern: no star makes it grow beyond length times length. */
/* A request that could be read as an effect, and as none, must not get past it by a rule behind. */
Test(rule, an_effect_is_not_got_around)
{
	_cleanup_(rules_unrefp) struct rules *rules =
		rules_of("{\"mode\":\"allow\",\"allow\":[{\"host\":\"a.test\",\"methods\":[\"POST\"],\"paths\":[\"/x/*\",\"/y\"],"
			 "\"effect\":{\"class\":\"idempotent\",\"key\":\"header:K\",\"approval\":\"required\"}},"
			 "{\"host\":\"a.test\"}]}");
	struct rules_verdict verdict = judge_request(rules, "a.test", "POST", "/x/1", NULL);
	struct rules_request request = { .path = "/x/1", .path_len = 4 };

	cr_assert_eq(judge(rules, "a.test", 443).action, RULES_INSPECT);
	cr_assert(verdict.action == RULES_PASS && verdict.effect);
	cr_expect_eq(verdict.effect->effect_class, 2);
	cr_expect_str_eq(verdict.effect->key, "header:K");
	cr_expect(verdict.effect->approval && !verdict.effect->defer && verdict.effect->limit == 0);
	cr_expect_str_eq(rules_pattern(rules, &verdict, &request), "/x/*");
	verdict = judge_request(rules, "a.test", "POST", "/z", NULL);
	cr_expect(verdict.action == RULES_PASS && !verdict.effect);
	cr_expect_eq(judge_request(rules, "a.test", "POST", "/z/../y", NULL).action, RULES_DENY);
	cr_expect_eq(judge_request(rules, "a.test", "post", "/y", NULL).action, RULES_DENY);
	cr_expect_eq(judge_request(rules, "a.test", "GET", "/y", "X-HTTP-Method-Override: POST").action, RULES_DENY);
}

Test(rule, many_stars_do_not_hang, .timeout = 10)
{
	char pattern[MATCH_PATTERN_MAX], text[MATCH_PATH_MAX];

	memset(pattern, '*', sizeof(pattern));
	for (size_t i = 0; i < sizeof(pattern); i += 2)
		pattern[i] = 'a';
	pattern[0] = '/';
	pattern[sizeof(pattern) - 1] = 0;
	memset(text, 'a', sizeof(text));
	text[0] = '/';
	text[sizeof(text) - 1] = 0;
	path(pattern, text);
}

Test(rule, broken_bytes_are_refused_whole)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct rules *rules = NULL;
	struct fault fault;
	abox_spec *spec = NULL;

	cr_assert_eq(
		abox_spec_from_json(
			"{\"version\":1,\"network\":{\"mode\":\"allow\",\"allow\":[{\"host\":\"a.test\",\"methods\":[\"GET\"]}]}}",
			&spec, NULL),
		0);
	cr_assert_eq(rules_pack(spec, &writer, NULL), 0);
	abox_spec_unref(spec);
	fault_init(&fault, ABOX_STAGE_NETWORK);
	for (size_t len = 0; len < writer.len; len++)
		cr_expect_eq(rules_unpack(writer.data, len, &rules, &fault), ABOX_E_PROTOCOL, "%zu", len);
	cr_assert_eq(rules_unpack(writer.data, writer.len, &rules, &fault), 0);
	rules_unref(rules);
}

/* A denied name is not reached at its address by saying no name; addresses that a rule names still are. */
Test(rule, a_denied_name_is_no_address)
{
	_cleanup_(rules_unrefp) struct rules *open = rules_of("{\"mode\":\"open\",\"deny\":[{\"cidr\":\"9.9.0.0/16\"}]}");
	_cleanup_(rules_unrefp) struct rules *denies = rules_of(
		"{\"mode\":\"open\",\"allow\":[{\"cidr\":\"8.8.4.0/24\"}],\"deny\":[{\"cidr\":\"9.9.0.0/16\"},"
		"{\"host\":\"*.evil.test\",\"ports\":[443]},{\"host\":\"post.test\",\"ports\":[80],\"methods\":[\"POST\"]}]}");

	cr_expect_eq(judge(open, "8.8.8.8", 443).action, RULES_PASS);
	cr_expect_eq(judge(open, "9.9.9.9", 443).action, RULES_DENY);
	cr_expect_eq(judge(denies, "8.8.8.8", 443).action, RULES_DENY);
	cr_expect_str_eq(judge(denies, "8.8.8.8", 443).place, "/network/deny/1");
	cr_expect_str_eq(judge(denies, "2606:4700::1", 80).place, "/network/deny/2");
	cr_expect_eq(judge(denies, "8.8.4.4", 443).action, RULES_PASS);
	cr_expect_eq(judge(denies, "good.test", 443).action, RULES_PASS);
	cr_expect_eq(judge(denies, "a.evil.test", 443).action, RULES_DENY);
}
