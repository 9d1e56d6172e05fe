/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <agentbox/spec.h>

#include "base/clock.h"
#include "spec/spec.h"

struct refusal {
	const char *text;
	int code;
	uint32_t line, column;
	const char *place;
};

static void check_refused(const struct refusal *row)
{
	_cleanup_(error_freep) abox_error *error = NULL;
	abox_spec *spec = NULL;

	cr_expect_eq(abox_spec_from_json(row->text, &spec, &error), row->code, "%s", row->text);
	cr_expect_null(spec, "%s", row->text);
	cr_assert_not_null(error, "%s", row->text);
	cr_expect_eq(abox_error_get_stage(error), ABOX_STAGE_SPEC);
	cr_expect_eq(
		abox_error_get_line(error), row->line, "%s: line %u", row->text, abox_error_get_line(error));
	cr_expect_eq(abox_error_get_column(error), row->column, "%s: column %u", row->text,
		abox_error_get_column(error));
	cr_assert_not_null(abox_error_get_place(error), "%s", row->text);
	cr_expect_str_eq(abox_error_get_place(error), row->place, "%s", row->text);
	if (row->code == ABOX_E_INVALID)
		cr_expect_not_null(abox_error_get_remedy(error), "%s", row->text);
}

static void check_taken(const char *text)
{
	_cleanup_(error_freep) abox_error *error = NULL;
	_cleanup_(spec_unrefp) abox_spec *spec = NULL;
	_cleanup_(freep) char *message = NULL;

	if (abox_spec_from_json(text, &spec, &error) < 0)
		abox_error_format(error, &message);
	cr_expect_null(message, "%s: %s", text, message);
}

/* T18-3: unknown key, wrong type, duplicate key, trailing bytes: refused with line, column and pointer. */
Test(spec, t18_3_refuses_with_place)
{
	static const struct refusal rows[] = {
		{"{\"limit\":{}}", ABOX_E_INVALID, 1, 2, "/limit"},
		{"{\n \"limits\": {\n  \"memry\": 1 } }", ABOX_E_INVALID, 3, 3, "/limits/memry"},
		{"{\"strict\":\"yes\"}", ABOX_E_INVALID, 1, 11, "/strict"},
		{"{\"strict\":1}", ABOX_E_INVALID, 1, 11, "/strict"},
		{"{\"mounts\":{}}", ABOX_E_INVALID, 1, 11, "/mounts"},
		{"{\"mounts\":[[]]}", ABOX_E_INVALID, 1, 12, "/mounts/0"},
		{"{\"env\":[]}", ABOX_E_INVALID, 1, 8, "/env"},
		{"{\"env\":{\"A\":1}}", ABOX_E_INVALID, 1, 13, "/env/A"},
		{"{\"name\":\"a\",\n\"name\":\"a\"}", ABOX_E_SYNTAX, 2, 1, "/name"},
		{"{\"limits\":{\"pids\":9,\"pids\":9}}", ABOX_E_SYNTAX, 1, 21, "/limits/pids"},
		{"{}\n{}", ABOX_E_SYNTAX, 2, 1, ""},
		{"{} x", ABOX_E_SYNTAX, 1, 4, ""},
		{"", ABOX_E_SYNTAX, 1, 1, ""},
		{"[]", ABOX_E_INVALID, 1, 1, ""},
		{"null", ABOX_E_INVALID, 1, 1, ""},
		{"{\"workspace\":null}", ABOX_E_INVALID, 1, 14, "/workspace"},
		{"{\"limits\":{\"wall\":null}}", ABOX_E_INVALID, 1, 19, "/limits/wall"},
		{"{\"version\":2}", ABOX_E_INVALID, 1, 12, "/version"},
		{"{\"backend\":\"chroot\"}", ABOX_E_INVALID, 1, 12, "/backend"},
	};

	for (size_t i = 0; i < ELEMENTSOF(rows); i++)
		check_refused(&rows[i]);
	check_taken("{}");
	check_taken("{\"version\":1}");
}

/* T18-3: 100 MB are refused without being read, as text and as bytes. */
Test(spec, t18_3_refuses_huge_text_early)
{
	size_t len = 100 * 1000 * 1000;
	_cleanup_(error_freep) abox_error *error = NULL;
	_cleanup_(freep) char *text = malloc(len + 1);
	uint64_t start = clock_monotonic_usec();
	abox_spec *spec = NULL;

	cr_assert_not_null(text);
	memset(text, ' ', ABOX_SPEC_MAX_BYTES + 1);
	text[len] = 0;
	cr_assert_eq(abox_spec_from_bytes(text, len, &spec, &error), ABOX_E_LIMIT);
	cr_assert_not_null(abox_error_get_remedy(error));
	memset(text, ' ', len);
	start = clock_monotonic_usec();
	cr_assert_eq(abox_spec_from_json(text, &spec, NULL), ABOX_E_LIMIT);
	cr_assert_lt(clock_monotonic_usec() - start, USEC_PER_SEC);
}

/* The bound itself is taken, one byte more is not. */
Test(spec, bound_on_bytes_is_exact)
{
	_cleanup_(freep) char *text = malloc(ABOX_SPEC_MAX_BYTES + 2);
	_cleanup_(spec_unrefp) abox_spec *spec = NULL;

	memset(text, ' ', ABOX_SPEC_MAX_BYTES + 1);
	memcpy(text, "{}", 2);
	text[ABOX_SPEC_MAX_BYTES + 1] = 0;
	cr_expect_eq(abox_spec_from_json(text, &spec, NULL), ABOX_E_LIMIT);
	text[ABOX_SPEC_MAX_BYTES] = 0;
	cr_expect_eq(abox_spec_from_json(text, &spec, NULL), 0);
}

/* Hundreds of thousands of levels are refused before the parser sees them. */
Test(spec, refuses_deep_nesting)
{
	size_t n = 500000;
	_cleanup_(freep) char *text = malloc(2 * n + 1);
	_cleanup_(error_freep) abox_error *error = NULL;
	abox_spec *spec = NULL;

	memset(text, '[', n);
	memset(text + n, ']', n);
	text[2 * n] = 0;
	cr_assert_eq(abox_spec_from_json(text, &spec, &error), ABOX_E_LIMIT);
	cr_assert_eq(abox_error_get_column(error), ABOX_SPEC_MAX_DEPTH + 1);
}

/* T5-11, B87: limits of 0, negative, 2^63, 2^64-1 and beyond are refused for each resource, in each
 * spelling. */
Test(spec, t5_11_b87_refuses_absurd_limits)
{
	static const char *const keys[] = {
		"wall",
		"idle",
		"cpus",
		"memory",
		"pids",
		"disk",
		"inodes",
		"open_files",
		"output",
	};
	static const char *const values[] = {
		"0",
		"-1",
		"9223372036854775807",
		"9223372036854775808",
		"18446744073709551615",
		"-9223372036854775808",
		"1e400",
		"\"0\"",
		"\"-1\"",
		"\"\"",
		"\"unlimited\"",
		"1e3",
		"null",
		"true",
		"[1]",
		"\"18446744073709551615GiB\"",
		"\"99999999999999999999\"",
	};

	for (size_t k = 0; k < ELEMENTSOF(keys); k++) {
		for (size_t v = 0; v < ELEMENTSOF(values); v++) {
			_cleanup_(error_freep) abox_error *error = NULL;
			char text[128], place[64];
			abox_spec *spec = NULL;
			int r;

			/* A thousand processors, written as 1e3, is a decimal number like any other. */
			if (strcmp(keys[k], "cpus") == 0 && strcmp(values[v], "1e3") == 0)
				continue;
			snprintf(text, sizeof(text), "{\"limits\":{\"%s\":%s}}", keys[k], values[v]);
			snprintf(place, sizeof(place), "/limits/%s", keys[k]);
			r = abox_spec_from_json(text, &spec, &error);
			cr_expect(r == ABOX_E_INVALID || r == ABOX_E_SYNTAX, "%s: %d", text, r);
			cr_expect_null(spec);
			cr_expect_str_eq(abox_error_get_place(error), place, "%s", text);
			cr_expect_eq(abox_error_get_line(error), 1, "%s", text);
			cr_expect_eq(abox_error_get_column(error), strlen(keys[k]) + 15, "%s", text);
		}
	}
}

/* Durations and sizes have exactly one reading, and their bounds are part of what is allowed. */
Test(spec, reads_durations_and_sizes)
{
	static const struct {
		const char *key, *value;
		uint64_t number;
	} rows[] = {
		{"wall", "\"1ms\"", 1000},
		{"wall", "\"250ms\"", 250000},
		{"wall", "\"90s\"", 90 * USEC_PER_SEC},
		{"wall", "\"30m\"", 1800 * USEC_PER_SEC},
		{"wall", "\"2h\"", 7200 * USEC_PER_SEC},
		{"wall", "\"365d\"", 31536000 * USEC_PER_SEC},
		{"wall", "45", 45 * USEC_PER_SEC},
		{"wall", "\"off\"", UINT64_MAX},
		{"wall", "31536000", 31536000 * USEC_PER_SEC},
		{"memory", "4194304", 4194304},
		{"memory", "\"4096KiB\"", 4194304},
		{"memory", "\"512MiB\"", UINT64_C(512) << 20},
		{"memory", "\"2GiB\"", UINT64_C(2) << 30},
		{"memory", "\"1TiB\"", UINT64_C(1) << 40},
		{"memory", "\"1024TiB\"", UINT64_C(1) << 50},
		{"cpus", "2", 2000},
		{"cpus", "0.01", 10},
		{"cpus", "1.5", 1500},
		{"cpus", "0.125", 125},
		{"cpus", "1e0", 1000},
		{"cpus", "0.29", 290},
		{"pids", "512", 512},
	};

	for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
		_cleanup_(spec_unrefp) abox_spec *spec = NULL;
		char text[128];

		snprintf(text, sizeof(text), "{\"limits\":{\"%s\":%s}}", rows[i].key, rows[i].value);
		cr_assert_eq(abox_spec_from_json(text, &spec, NULL), 0, "%s", text);
		cr_expect_eq(spec_u64(spec, "/limits/%s", rows[i].key), rows[i].number, "%s", text);
	}
}

/* Spellings that look like a duration, a size or a number and are none. */
Test(spec, refuses_other_spellings)
{
	static const char *const rows[] = {
		"\"wall\":\"5 m\"",
		"\"wall\":\" 5m\"",
		"\"wall\":\"5m \"",
		"\"wall\":\"5M\"",
		"\"wall\":\"5min\"",
		"\"wall\":\"1.5h\"",
		"\"wall\":\"+5m\"",
		"\"wall\":\"05m\"",
		"\"wall\":\"5\"",
		"\"wall\":\"m\"",
		"\"wall\":\"1h30m\"",
		"\"wall\":\"366d\"",
		"\"wall\":\"0x5s\"",
		"\"wall\":2.0",
		"\"wall\":1e3",
		"\"wall\":\"OFF\"",
		"\"wall\":\"213503982334602d\"",
		"\"memory\":\"2GB\"",
		"\"memory\":\"2G\"",
		"\"memory\":\"2gib\"",
		"\"memory\":\"2 GiB\"",
		"\"memory\":\"1.5GiB\"",
		"\"memory\":2147483648.0",
		"\"memory\":\"2147483648\"",
		"\"memory\":\"17179869184GiB\"",
		"\"memory\":\"off\"",
		"\"pids\":\"512\"",
		"\"pids\":512.0",
		"\"pids\":5.12e2",
		"\"pids\":3",
		"\"cpus\":\"2\"",
		"\"cpus\":0.001",
		"\"cpus\":0.0105",
		"\"cpus\":5000",
		"\"cpus\":-0.5",
		"\"cpus\":1e300",
	};

	for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
		_cleanup_(error_freep) abox_error *error = NULL;
		char text[128];
		abox_spec *spec = NULL;

		snprintf(text, sizeof(text), "{\"limits\":{%s}}", rows[i]);
		cr_expect_eq(abox_spec_from_json(text, &spec, &error), ABOX_E_INVALID, "%s", text);
		cr_expect_null(spec);
		cr_expect_not_null(abox_error_get_remedy(error));
	}
}

/* Names, users, host names, variables and paths: what is taken, and what is not. */
Test(spec, judges_texts)
{
	static const char *const taken[] = {
		"{\"name\":\"a\"}",
		"{\"name\":\"Task_1.x-y\"}",
		"{\"user\":\"root\"}",
		"{\"user\":0}",
		"{\"user\":65535}",
		"{\"hostname\":\"a-1.b\"}",
		"{\"env\":{\"A\":\"\"}}",
		"{\"env\":{\"a.b-c\":\"x\\ny=z\"}}",
		"{\"cwd\":\"/\"}",
		"{\"cwd\":\"/a b\"}",
		"{\"identity\":{\"subject\":\"user:1842 \\u00e9\"}}",
		"{\"workspace\":{\"keep\":[]}}",
		"{\"workspace\":{\"keep\":[\".env\",\"**/*.pem\",\"a..b/c\"]}}",
		"{\"waive\":[\"limits.memory\"]}",
		"{\"seccomp\":{\"allow\":[\"ptrace\"]}}",
		"{\"rootfs\":{\"kind\":\"dir\",\"path\":\"/srv//image/\"}}",
	};
	static const char *const refused[] = {
		"{\"name\":\"\"}",
		"{\"name\":\"-a\"}",
		"{\"name\":\".a\"}",
		"{\"name\":\"a/b\"}",
		"{\"name\":\"a b\"}",
		"{\"name\":\"a\\nb\"}",
		"{\"name\":\"\\u00e9\"}",
		"{\"user\":\"nobody\"}",
		"{\"user\":65536}",
		"{\"user\":-1}",
		"{\"user\":\"0\"}",
		"{\"user\":1.0}",
		"{\"hostname\":\"\"}",
		"{\"hostname\":\"-a\"}",
		"{\"hostname\":\"a-\"}",
		"{\"hostname\":\"a..b\"}",
		"{\"hostname\":\"a_b\"}",
		"{\"hostname\":\"a.\"}",
		"{\"hostname\":\"a\\u0000b\"}",
		"{\"env\":{\"\":\"x\"}}",
		"{\"env\":{\"A=B\":\"x\"}}",
		"{\"env\":{\"A\\nB\":\"x\"}}",
		"{\"env\":{\"A\":null}}",
		"{\"cwd\":\"\"}",
		"{\"cwd\":\"a\"}",
		"{\"cwd\":\"/a/../b\"}",
		"{\"cwd\":\"/..\"}",
		"{\"cwd\":\"/a\\nb\"}",
		"{\"identity\":{\"subject\":\"\"}}",
		"{\"identity\":{\"subject\":\"a\\u0085b\"}}",
		"{\"workspace\":{\"keep\":[\"\"]}}",
		"{\"workspace\":{\"keep\":[\"/a\"]}}",
		"{\"workspace\":{\"keep\":[\"a/../b\"]}}",
		"{\"workspace\":{\"keep\":[\"a/\"]}}",
		"{\"workspace\":{\"keep\":[\"./a\"]}}",
		"{\"workspace\":{\"keep\":[\"a//b\"]}}",
		"{\"workspace\":{\"keep\":\"a\"}}",
		"{\"journal\":\"relative\"}",
		"{\"kernel\":\"\"}",
		"{\"waive\":[\"\"]}",
		"{\"seccomp\":{\"allow\":[\"a b\"]}}",
	};

	for (size_t i = 0; i < ELEMENTSOF(taken); i++)
		check_taken(taken[i]);
	for (size_t i = 0; i < ELEMENTSOF(refused); i++) {
		_cleanup_(error_freep) abox_error *error = NULL;
		abox_spec *spec = NULL;

		cr_expect_lt(abox_spec_from_json(refused[i], &spec, &error), 0, "%s", refused[i]);
		cr_expect_neq(abox_error_get_line(error), 0, "%s", refused[i]);
	}
}

/* Lengths are bounded exactly. */
Test(spec, bounds_lengths)
{
	static const struct {
		const char *key;
		size_t longest;
		char fill;
	} rows[] = {{"/name", 128, 'a'}, {"/task", 256, 'b'}, {"/env/A", 128 * 1024 - 1, 'c'},
		{"/hostname", 63, 'd'}};

	for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
		_cleanup_(spec_unrefp) abox_spec *spec = NULL;
		_cleanup_(freep) char *value = calloc(1, rows[i].longest + 2);

		cr_assert_eq(abox_spec_new(&spec), 0);
		memset(value, rows[i].fill, rows[i].longest);
		cr_expect_eq(abox_spec_set_string(spec, rows[i].key, value, NULL), 0, "%s", rows[i].key);
		value[rows[i].longest] = rows[i].fill;
		cr_expect_eq(abox_spec_set_string(spec, rows[i].key, value, NULL), ABOX_E_INVALID, "%s",
			rows[i].key);
	}
}

/* B57: targets are compared and kept in one form, given once, and never where the wall itself builds. */
Test(spec, b57_mount_targets)
{
	static const char *const refused[] = {"/", "//", "/.", "/proc", "/proc/self", "/dev", "/dev/./shm",
		"//sys/", "/sys/fs", "", "a", "/a/..", "/a/../../b", "/workspace", "/workspace/", "/a\\nb"};
	static const struct refusal twice = {
		"{\"mounts\":[{\"source\":\"/x\",\"target\":\"/a/b\"},\n{\"source\":\"/y\",\"target\":\"//a/"
		"./b/\"}]}",
		ABOX_E_INVALID,
		2,
		25,
		"/mounts/1/target",
	};
	_cleanup_(spec_unrefp) abox_spec *spec = NULL;

	for (size_t i = 0; i < ELEMENTSOF(refused); i++) {
		char text[128];
		abox_spec *none = NULL;

		snprintf(text, sizeof(text), "{\"mounts\":[{\"source\":\"/x\",\"target\":\"%s\"}]}",
			refused[i]);
		cr_expect_eq(abox_spec_from_json(text, &none, NULL), ABOX_E_INVALID, "%s", text);
	}
	check_refused(&twice);
	cr_assert_eq(abox_spec_from_json("{\"mounts\":[{\"source\":\"/x\",\"target\":\"//a/./b/\"},"
					 "{\"source\":\"/x\",\"target\":\"/procedure\"},"
					 "{\"source\":\"/x\",\"target\":\"/workspace/x\"}]}",
			     &spec, NULL),
		0);
	cr_assert_str_eq(spec_string(spec, "/mounts/0/target"), "/a/b");
}

/* What must hold between keys is refused at the key that is wrong, and the same without the mistake is
 * taken. */
Test(spec, refuses_contradictions)
{
	static const struct refusal rows[] = {
		{"{\"rootfs\":{\"kind\":\"dir\"}}", ABOX_E_INVALID, 1, 11, "/rootfs"},
		{"{\"rootfs\":{\"path\":\"/x\"}}", ABOX_E_INVALID, 1, 19, "/rootfs/path"},
		{"{\"backend\":\"namespaces\",\"isolation_floor\":\"microvm\"}", ABOX_E_INVALID, 1, 12,
			"/backend"},
		{"{\"backend\":\"gvisor\",\"kernel\":\"/boot/x\"}", ABOX_E_INVALID, 1, 30, "/kernel"},
		{"{\"backend\":\"namespaces\",\"files\":\"live\"}", ABOX_E_INVALID, 1, 33, "/files"},
		{"{\"mounts\":[{\"target\":\"/x\"}]}", ABOX_E_INVALID, 1, 12, "/mounts/0"},
		{"{\"mounts\":[{\"source\":\"/x\"}]}", ABOX_E_INVALID, 1, 12, "/mounts/0"},
		{"{\"mounts\":[{\"source\":\"/x\",\"target\":\"/x\",\"mode\":\"tmpfs\"}]}", ABOX_E_INVALID, 1,
			22, "/mounts/0/source"},
		{"{\"mounts\":[{\"source\":\"/x\",\"target\":\"/x\",\"size\":\"1MiB\"}]}", ABOX_E_INVALID, 1,
			48, "/mounts/0/size"},
		{"{\"workspace\":{\"source\":{\"kind\":\"dir\"}}}", ABOX_E_INVALID, 1, 24,
			"/workspace/source"},
		{"{\"workspace\":{\"source\":{\"path\":\"/x\"}}}", ABOX_E_INVALID, 1, 32,
			"/workspace/source/path"},
		{"{\"workspace\":{\"source\":{\"kind\":\"snapshot\",\"path\":\"/x\"}}}", ABOX_E_INVALID, 1,
			50, "/workspace/source/path"},
		{"{\"workspace\":{\"mode\":\"direct\"}}", ABOX_E_INVALID, 1, 22, "/workspace/mode"},
		{"{\"network\":{\"allow\":[{\"host\":\"a.test\"}]}}", ABOX_E_INVALID, 1, 21,
			"/network/allow"},
		{"{\"network\":{\"mode\":\"allow\",\"allow\":[{\"ports\":[1]}]}}", ABOX_E_INVALID, 1, 37,
			"/network/allow/0"},
		{"{\"network\":{\"mode\":\"open\",\"allow\":[{\"host\":\"a.test\",\"credential\":\"c\"}]}}",
			ABOX_E_INVALID, 1, 66, "/network/allow/0/credential"},
		{"{\"network\":{\"mode\":\"open\",\"allow\":[{\"host\":\"a.test\",\"require\":true}]}}",
			ABOX_E_INVALID, 1, 63, "/network/allow/0/require"},
		{"{\"network\":{\"mode\":\"open\",\"allow\":[{\"host\":\"a.test\",\"plain\":true}]}}",
			ABOX_E_INVALID, 1, 61, "/network/allow/0/plain"},
		{"{\"network\":{\"mode\":\"open\",\"allow\":[{\"host\":\"a.test\",\"credential\":\"c\",\"swap_bodies\":true}]},"
		 "\"credentials\":[{\"name\":\"c\",\"provider\":{\"kind\":\"env\",\"variable\":\"T\"}}]}",
			ABOX_E_INVALID, 1, 84, "/network/allow/0/swap_bodies"},
		{"{\"credentials\":[{\"name\":\"c\",\"provider\":{\"kind\":\"env\",\"variable\":\"T\"},\"inject\":{\"sign\":[]}}]}",
			ABOX_E_INVALID, 1, 87, "/credentials/0/inject/sign"},
		{"{\"journal\":\"/j\",\"task\":\"t\",\"network\":{\"mode\":\"open\",\"allow\":[{\"host\":\"a.test\","
		 "\"methods\":[\"POST\"],\"effect\":{\"class\":\"opaque\",\"limit\":2}}]}}",
			ABOX_E_INVALID, 1, 133, "/network/allow/0/effect/limit"},
		{"{\"network\":{\"mode\":\"open\",\"allow\":[{\"host\":\"a.test\",\"effect\":{\"class\":"
		 "\"opaque\"}}]}}",
			ABOX_E_INVALID, 1, 62, "/network/allow/0/effect"},
		{"{\"credentials\":[{\"name\":\"c\",\"provider\":{\"kind\":\"exec\"}}]}", ABOX_E_INVALID, 1,
			40, "/credentials/0/provider"},
		{"{\"credentials\":[{\"name\":\"c\"}]}", ABOX_E_INVALID, 1, 17, "/credentials/0"},
		{"{\"on_owner_death\":\"stop\",\"owner_grace\":\"5m\"}", ABOX_E_INVALID, 1, 40,
			"/owner_grace"},
	};

	for (size_t i = 0; i < ELEMENTSOF(rows); i++)
		check_refused(&rows[i]);
	check_taken("{\"rootfs\":{\"kind\":\"dir\",\"path\":\"/x\"}}");
	check_taken("{\"backend\":\"microvm\",\"isolation_floor\":\"gvisor\",\"kernel\":\"/boot/x\"}");
	check_taken("{\"mounts\":[{\"target\":\"/x\",\"mode\":\"tmpfs\",\"size\":\"1MiB\"},{\"target\":\"/"
		    "y\",\"mode\":\"tmpfs\"}]}");
	check_taken("{\"workspace\":{\"source\":{\"kind\":\"dir\",\"path\":\"/x\"},\"mode\":\"direct\"}}");
	check_taken("{\"network\":{\"mode\":\"allow\",\"allow\":[{\"host\":\"a.test\",\"credential\":\"c\","
		    "\"require\":true,"
		    "\"methods\":[\"POST\"],\"paths\":[\"/p/*\"],"
		    "\"effect\":{\"class\":\"opaque\",\"limit\":5,\"defer\":true}}]},\"journal\":\"/"
		    "j\",\"task\":\"t\","
		    "\"credentials\":[{\"name\":\"c\",\"provider\":{\"kind\":\"env\",\"variable\":\"T\"}}]}");
	check_taken("{\"on_owner_death\":\"keep\",\"owner_grace\":\"5m\"}");
}

/* T11-6: an empty allow list denies all; null and an empty host are no rules. */
Test(spec, t11_6_empty_allow_list)
{
	static const struct refusal rows[] = {
		{"{\"network\":{\"mode\":\"allow\",\"allow\":null}}", ABOX_E_INVALID, 1, 36,
			"/network/allow"},
		{"{\"network\":{\"mode\":\"allow\",\"allow\":[\"\"]}}", ABOX_E_INVALID, 1, 37,
			"/network/allow/0"},
		{"{\"network\":{\"mode\":\"allow\",\"allow\":[{\"host\":\"\"}]}}", ABOX_E_INVALID, 1, 45,
			"/network/allow/0/host"},
		{"{\"network\":{\"mode\":\"allow\",\"allow\":[{}]}}", ABOX_E_INVALID, 1, 37,
			"/network/allow/0"},
	};
	_cleanup_(spec_unrefp) abox_spec *empty = NULL, *missing = NULL;

	for (size_t i = 0; i < ELEMENTSOF(rows); i++)
		check_refused(&rows[i]);
	cr_assert_eq(abox_spec_from_json("{\"network\":{\"mode\":\"allow\",\"allow\":[]}}", &empty, NULL), 0);
	cr_assert_eq(abox_spec_from_json("{\"network\":{\"mode\":\"allow\"}}", &missing, NULL), 0);
	cr_assert_eq(spec_count(empty, "/network/allow"), 0);
	cr_assert_eq(spec_count(missing, "/network/allow"), 0);
	cr_assert_eq(spec_enum(empty, "/network/mode"), SPEC_NETWORK_ALLOW);
}

/* Hosts are names and never addresses in disguise (T11-5); addresses are exact. */
Test(spec, judges_network_rules)
{
	static const char *const taken[] = {"\"host\":\"a.test\"", "\"host\":\"*.a.test\"",
		"\"host\":\"A.TEST\"", "\"host\":\"xn--bcher-kva.test\"", "\"host\":\"1.a.test\"",
		"\"cidr\":\"192.0.2.0/24\"", "\"cidr\":\"192.0.2.1/32\"", "\"cidr\":\"2001:db8::/32\"",
		"\"cidr\":\"::/0\"", "\"host\":\"a.test\",\"ports\":[1,65535]",
		"\"host\":\"a.test\",\"methods\":[\"GET\",\"M-SEARCH\"]",
		"\"host\":\"a.test\",\"paths\":[\"/\",\"/a/**\"]",
		"\"host\":\"a.test\",\"query\":{\"q\":\"\"}",
		"\"host\":\"a.test\",\"headers\":{\"X-A\":\"*\"}"};
	static const char *const refused[] = {"\"host\":\"127.0.0.1\"", "\"host\":\"127.1\"",
		"\"host\":\"0x7f.1\"", "\"host\":\"2130706433\"", "\"host\":\"0177.0.0.1\"",
		"\"host\":\"[::1]\"", "\"host\":\"::1\"", "\"host\":\"1.2.0x10\"", "\"host\":\"a.test.\"",
		"\"host\":\"*\"", "\"host\":\"*.test\"", "\"host\":\"a.*.test\"", "\"host\":\"*a.test\"",
		"\"host\":\"**.a.test\"", "\"host\":\".a.test\"", "\"host\":\"localhost\"",
		"\"host\":\"b\\u00fccher.test\"", "\"host\":\"a.test:443\"", "\"host\":\"a%2etest\"",
		"\"host\":\"a..test\"", "\"host\":\"https://a.test\"", "\"cidr\":\"192.0.2.1\"",
		"\"cidr\":\"192.0.2.1/24\"", "\"cidr\":\"192.0.2.0/33\"", "\"cidr\":\"192.0.2/24\"",
		"\"cidr\":\"192.0.2.0/024\"", "\"cidr\":\"192.0.2.0/\"", "\"cidr\":\"::ffff:192.0.2.0/120\"",
		"\"cidr\":\"192.0.2.0/24/1\"", "\"host\":\"a.test\",\"ports\":[0]",
		"\"host\":\"a.test\",\"ports\":[65536]", "\"host\":\"a.test\",\"ports\":[]",
		"\"host\":\"a.test\",\"ports\":[\"443\"]", "\"host\":\"a.test\",\"ports\":443",
		"\"host\":\"a.test\",\"methods\":[\"get\"]", "\"host\":\"a.test\",\"methods\":[]",
		"\"host\":\"a.test\",\"paths\":[\"a\"]", "\"host\":\"a.test\",\"paths\":[\"/a/../b\"]",
		"\"host\":\"a.test\",\"paths\":[\"/a?b\"]", "\"host\":\"a.test\",\"headers\":{\"X A\":\"*\"}",
		"\"host\":\"a.test\",\"headers\":{\"X-A\":\"a\\r\\nb\"}"};

	for (size_t i = 0; i < ELEMENTSOF(taken) + ELEMENTSOF(refused); i++) {
		bool good = i < ELEMENTSOF(taken);
		_cleanup_(spec_unrefp) abox_spec *spec = NULL;
		char text[256];

		snprintf(text, sizeof(text), "{\"network\":{\"mode\":\"allow\",\"allow\":[{%s}]}}",
			good ? taken[i] : refused[i - ELEMENTSOF(taken)]);
		cr_expect_eq(abox_spec_from_json(text, &spec, NULL), good ? 0 : ABOX_E_INVALID, "%s", text);
		if (good && strstr(text, "TEST"))
			cr_expect_str_eq(spec_string(spec, "/network/allow/0/host"), "a.test");
	}
}

/* A deny rule has conditions and nothing else. */
Test(spec, deny_rules_have_no_actions)
{
	static const struct refusal row = {
		"{\"network\":{\"mode\":\"open\",\"deny\":[{\"host\":\"a.test\",\"credential\":\"c\"}]}}",
		ABOX_E_INVALID,
		1,
		52,
		"/network/deny/0/credential",
	};

	check_refused(&row);
	check_taken("{\"network\":{\"mode\":\"open\",\"deny\":[{\"host\":\"a.test\"}]}}");
}

/* No error about a spec quotes a value of the environment, whatever is wrong with it. */
Test(spec, errors_hold_no_values)
{
	static const char *const texts[] = {"{\"env\":{\"A\":\"hunter2\",\"B\":}}",
		"{\"env\":{\"A\":\"hunter2\"},\"x\":1}", "{\"env\":{\"A\":[\"hunter2\"]}}",
		"{\"name\":\"hunter2 hunter2\"}", "{\"env\":{\"A\":\"hunter2\\u0000\"}}",
		"{\"env\":{\"A\":\"hunter2}}"};

	for (size_t i = 0; i < ELEMENTSOF(texts); i++) {
		_cleanup_(error_freep) abox_error *error = NULL;
		_cleanup_(freep) char *dump = NULL;
		abox_spec *spec = NULL;

		cr_assert_lt(abox_spec_from_json(texts[i], &spec, &error), 0);
		cr_assert_eq(abox_error_dump(error, &dump), 0);
		cr_expect_null(strstr(dump, "hunter2"), "%s", dump);
	}
}

/* A misspelt key is answered with the one that was meant. */
Test(spec, suggests_keys)
{
	static const struct {
		const char *text, *hint;
	} rows[] = {{"{\"limits\":{\"memroy\":1}}", "\"memory\""}, {"{\"work_space\":{}}", "\"workspace\""},
		{"{\"mount\":[]}", "\"mounts\""}, {"{\"rootfs\":{\"location\":1}}", "kind, path"}};

	for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
		_cleanup_(error_freep) abox_error *error = NULL;
		abox_spec *spec = NULL;

		cr_assert_eq(abox_spec_from_json(rows[i].text, &spec, &error), ABOX_E_INVALID);
		cr_expect_not_null(strstr(abox_error_get_remedy(error), rows[i].hint), "%s",
			abox_error_get_remedy(error));
	}
}
