/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* When two requests are equal, and when not (effects 1.2). */
#include <criterion/criterion.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "effect/canonical.h"
#include "effect/fingerprint.h"

static void make(const struct abox_effect_request *request, char hex[65])
{
	cr_assert_eq(abox_effect_fingerprint(request, hex, NULL), 0);
}

static bool same(const struct abox_effect_request *a, const struct abox_effect_request *b)
{
	char left[65], right[65];

	make(a, left);
	make(b, right);
	return strcmp(left, right) == 0;
}

static struct abox_effect_request bytes_request(const char *target, const char *body)
{
	struct abox_effect_request request;

	abox_effect_request_init(&request);
	request.target = target;
	request.body = body;
	request.body_len = body ? strlen(body) : 0;
	return request;
}

static struct abox_effect_request http_request(const char *const *headers)
{
	struct abox_effect_request request = bytes_request("forge.test/pulls", "{\"title\":\"x\"}");

	request.kind = ABOX_REQUEST_HTTP;
	request.method = "POST";
	request.host = "forge.test";
	request.port = 443;
	request.path = "/repos/o/r/pulls";
	request.headers = headers;
	return request;
}

/* The form is versioned: this value may change only together with its version. */
Test(fingerprint, is_stable)
{
	struct abox_effect_request request = bytes_request("t", "b");
	char hex[65];

	make(&request, hex);
	cr_assert_str_eq(hex, "243799f35a869e2939a281032df00d435ef20059478c962a4a018421cd991e70");
}

/* Bytes cannot wander from one field into the next. */
Test(fingerprint, keeps_fields_apart)
{
	struct abox_effect_request a = bytes_request("ab", "c"), b = bytes_request("a", "bc");
	struct abox_effect_request none = bytes_request("a", NULL), empty = bytes_request("a", "");
	static const char *const one[] = {"prog", "a b", NULL}, *const two[] = {"prog", "a", "b", NULL};

	cr_assert(!same(&a, &b));
	cr_assert(!same(&none, &empty), "no body and an empty one differ");
	a.kind = b.kind = ABOX_REQUEST_ARGV;
	a.target = b.target = "t";
	a.argv = one;
	b.argv = two;
	cr_assert(!same(&a, &b));
	b.argv = one;
	b.body = "c";
	b.body_len = 1;
	cr_assert(same(&a, &b), "equal fields, equal fingerprint");
	b.cwd = "/x";
	cr_assert(!same(&a, &b));
}

/* Order of variables and credentials says nothing; that of arguments does. */
Test(fingerprint, knows_where_order_counts)
{
	static const char *const ab[] = {"A=1", "B=2", NULL}, *const ba[] = {"B=2", "A=1", NULL};
	struct abox_effect_request a = bytes_request("t", NULL), b = a;

	a.kind = b.kind = ABOX_REQUEST_ARGV;
	a.argv = b.argv = ab;
	a.env = ab;
	b.env = ba;
	a.credentials = ab;
	b.credentials = ba;
	cr_assert(same(&a, &b));
	b.argv = ba;
	cr_assert(!same(&a, &b));
}

/* Header names have no case, blanks around values do not count, equal names keep their order. */
Test(fingerprint, normalises_headers)
{
	static const char *const a[] = {"Accept: x", "X-Two: 1", "x-two: 2", NULL};
	static const char *const b[] = {"x-TWO:1 ", "X-Two:  2", "ACCEPT:x", NULL};
	static const char *const c[] = {"X-Two: 2", "X-Two: 1", "Accept: x", NULL};
	static const char *const bad[] = {"no colon", NULL};
	struct abox_effect_request ra = http_request(a), rb = http_request(b), rc = http_request(c);
	struct abox_effect_request rbad = http_request(bad);
	char hex[65];

	cr_assert(same(&ra, &rb));
	cr_assert(!same(&ra, &rc));
	rb.host = "FORGE.test";
	cr_assert(same(&ra, &rb), "host names have no case");
	rb.path = "/Repos/o/r/pulls";
	cr_assert(!same(&ra, &rb), "paths have");
	cr_assert_eq(abox_effect_fingerprint(&rbad, hex, NULL), ABOX_E_INVALID);
}

/* JSON bodies are equal by meaning where RFC 8785 applies, by bytes elsewhere. */
Test(fingerprint, compares_json_by_meaning)
{
	struct abox_effect_request a = bytes_request("t", "{\"b\":1.0,\"a\":[true, null]}");
	struct abox_effect_request b = bytes_request("t", " { \"a\" : [ true,null ], \"b\" : 1 } ");
	struct abox_effect_request c = bytes_request("t", "{\"a\":1,\"a\":2}"),
				   d = bytes_request("t", "{\"a\":1, \"a\":2}");

	cr_assert(!same(&a, &b), "raw unless said otherwise");
	a.body_format = b.body_format = c.body_format = d.body_format = ABOX_BODY_JSON;
	cr_assert(same(&a, &b));
	cr_assert(!same(&c, &d), "double keys: bytes count");
}

/* Security: what one reader takes for the same number is another one to the next, and was not approved. */
Test(fingerprint, keeps_numbers_apart)
{
	static const char *const pairs[][2] = {
		{"{\"n\":9007199254740993.0}", "{\"n\":9007199254740992.0}"},
		{"{\"n\":[1.00000000000000001]}", "{\"n\":[1.0]}"},
		{"{\"n\":9007199254740993e0}", "{\"n\":9007199254740992e0}"},
		{"{\"n\":9007199254740993}", "{\"n\":9007199254740992}"},
		{"{\"n\":-1e-400}", "{\"n\":0}"},
		{"{\"a\\\"b\":0.1234567890123456789}", "{\"a\\\"b\":0.1234567890123456788}"},
	};
	struct abox_effect_request a = bytes_request("t", "[1.50, \"12345678901234567.5\", 100000000000000000000e1, 1E2]");
	struct abox_effect_request b = bytes_request("t", "[1.5,\"12345678901234567.5\",1e21,100.0]");

	a.body_format = b.body_format = ABOX_BODY_JSON;
	cr_assert(same(&a, &b), "what is kept is compared by meaning");
	for (size_t i = 0; i < ELEMENTSOF(pairs); i++) {
		a = bytes_request("t", pairs[i][0]);
		b = bytes_request("t", pairs[i][1]);
		a.body_format = b.body_format = ABOX_BODY_JSON;
		cr_assert(!same(&a, &b), "pair %zu", i);
	}
}

/* A body from a file is the same as the one in memory, wherever its offset stands. */
Test(fingerprint, reads_a_file)
{
	struct abox_effect_request a = bytes_request("t", "hello"), b = bytes_request("t", NULL);
	int fd = memfd_create("body", MFD_CLOEXEC);

	cr_assert_eq(write(fd, "hello", 5), 5);
	b.body_fd = fd;
	cr_assert(same(&a, &b));
	cr_assert_eq(lseek(fd, 0, SEEK_CUR), 5, "the offset is the caller's");
	close(fd);
}

/* A body beyond the spool limit is left out, and that is said. */
Test(fingerprint, leaves_out_what_is_too_long)
{
	struct abox_effect_request request = bytes_request("t", NULL);
	int fd = memfd_create("body", MFD_CLOEXEC);
	char hex[65];

	cr_assert_eq(ftruncate(fd, FINGERPRINT_SPOOL_BYTES + 1), 0);
	request.body_fd = fd;
	cr_assert_eq(abox_effect_fingerprint(&request, hex, NULL), 1);
	close(fd);
}

/* What cannot be a request is refused. */
Test(fingerprint, refuses_nonsense)
{
	struct abox_effect_request request = bytes_request("", NULL);
	char hex[65];

	cr_assert_eq(abox_effect_fingerprint(&request, hex, NULL), ABOX_E_INVALID);
	request = bytes_request("t", NULL);
	request.kind = ABOX_REQUEST_ARGV;
	cr_assert_eq(abox_effect_fingerprint(&request, hex, NULL), ABOX_E_INVALID);
	request = bytes_request("t", NULL);
	request.size = 0;
	cr_assert_eq(abox_effect_fingerprint(&request, hex, NULL), ABOX_E_INVALID);
}

struct canonical_row {
	const char *in, *out; /* out NULL: does not apply */
};

/* Rows of RFC 8785, appendix B and section 3.2. */
Test(canonical, follows_rfc_8785)
{
	static const struct canonical_row rows[] = {
		{"{\"numbers\":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"
		 "\"string\":\"\\u20ac$\\u000F\\u000aA'\\u0042\\u0022\\u005c\\\\\\\"\\/"
		 "\",\"literals\":[null,true,false]}",
			"{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-"
			"27],"
			"\"string\":\"\xe2\x82\xac$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}"},
		{"{\"\\u20ac\":1,\"\\r\":2,\"\\ufb33\":3,\"1\":4,\"\\ud83d\\ude00\":5,\"\\u0080\":6,"
		 "\"\\u00f6\":7}",
			"{\"\\r\":2,\"1\":4,\"\xc2\x80\":6,\"\xc3\xb6\":7,\"\xe2\x82\xac\":1,"
			"\"\xf0\x9f\x98\x80\":5,"
			"\"\xef\xac\xb3\":3}"},
		{"[0.0,-0.0,5e-324,-1.7976931348623157e308,9007199254740992.0,295147905179352830000.0,1e21,"
		 "123456.5]",
			"[0,0,5e-324,-1.7976931348623157e+308,9007199254740992,295147905179352830000,1e+21,"
			"123456.5]"},
		{"9007199254740993", NULL},
		{"{\"a\":1,\"a\":1}", NULL},
		{"\"\\ud800\"", NULL},
		{"[1] x", NULL},
	};

	for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
		struct text text = TEXT_INIT;
		int r = canonical_json(rows[i].in, strlen(rows[i].in), &text);

		cr_assert_eq(r, rows[i].out ? 1 : 0, "row %zu: %d", i, r);
		if (rows[i].out)
			cr_assert_str_eq(text.data, rows[i].out);
		text_clear(&text);
	}
}

/* A second wish that is equal in every byte has its own key; so has another target. */
Test(fingerprint, derives_keys)
{
	struct abox_effect_request request = bytes_request("t", "b");
	struct fingerprint fingerprint;
	char a[65], b[65], c[65];

	cr_assert_eq(fingerprint_make(&request, &fingerprint, NULL), 0);
	fingerprint_derive_key("t", &fingerprint, 0, a);
	fingerprint_derive_key("t", &fingerprint, 1, b);
	fingerprint_derive_key("u", &fingerprint, 0, c);
	cr_assert_str_neq(a, b);
	cr_assert_str_neq(a, c);
}

/* What an HTTP status says (effects 1.3). */
Test(fingerprint, judges_http_answers)
{
	cr_assert_eq(abox_effect_judge_http(201), ABOX_DONE_COMMITTED);
	cr_assert_eq(abox_effect_judge_http(303), ABOX_DONE_COMMITTED);
	cr_assert_eq(abox_effect_judge_http(422), ABOX_DONE_FAILED);
	cr_assert_eq(abox_effect_judge_http(429), ABOX_DONE_FAILED_RETRY);
	cr_assert_eq(abox_effect_judge_http(425), ABOX_DONE_FAILED_RETRY);
	cr_assert_eq(abox_effect_judge_http(408), ABOX_DONE_UNCLEAR);
	cr_assert_eq(abox_effect_judge_http(503), ABOX_DONE_UNCLEAR);
	cr_assert_eq(abox_effect_judge_http(0), ABOX_DONE_UNCLEAR);
}
