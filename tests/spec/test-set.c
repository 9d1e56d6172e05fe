/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <agentbox/spec.h>

#include "spec/spec.h"

static abox_spec *new_spec(void)
{
	abox_spec *spec = NULL;

	cr_assert_eq(abox_spec_new(&spec), 0);
	return spec;
}

static void check_dump(const abox_spec *spec, const char *expected)
{
	_cleanup_(freep) char *dump = NULL;

	cr_assert_eq(abox_spec_dump(spec, &dump), 0);
	cr_expect_str_eq(dump, expected);
}

/* Setters build the same spec that a text gives; objects and lists above a value come by themselves. */
Test(spec, setters_mirror_json)
{
	_cleanup_(spec_unrefp) abox_spec *spec = new_spec();

	cr_assert_eq(abox_spec_set_string(spec, "/name", "x", NULL), 0);
	cr_assert_eq(abox_spec_set_string(spec, "/limits/memory", "1GiB", NULL), 0);
	cr_assert_eq(abox_spec_set_integer(spec, "/limits/pids", 64, NULL), 0);
	cr_assert_eq(abox_spec_set_integer(spec, "/limits/wall", 60, NULL), 0);
	cr_assert_eq(abox_spec_set_json(spec, "/limits/cpus", "1.5", NULL), 0);
	cr_assert_eq(abox_spec_set_boolean(spec, "/strict", 1, NULL), 0);
	cr_assert_eq(abox_spec_set_integer(spec, "/user", 0, NULL), 0);
	cr_assert_eq(abox_spec_set_string(spec, "/workspace/source/kind", "empty", NULL), 0);
	cr_assert_eq(abox_spec_set_string(spec, "/mounts/-/target", "/x//y", NULL), 0);
	cr_assert_eq(abox_spec_set_string(spec, "/mounts/0/mode", "tmpfs", NULL), 0);
	cr_assert_eq(abox_spec_set_string(spec, "/network/allow/-/host", "A.test", NULL), 0);
	cr_assert_eq(abox_spec_set_json(spec, "/network/allow/0/ports", "[1,2]", NULL), 0);
	cr_assert_eq(abox_spec_set_integer(spec, "/network/allow/0/ports/-", 3, NULL), 0);
	cr_assert_eq(abox_spec_set_string(spec, "/network/mode", "allow", NULL), 0);
	cr_assert_eq(abox_spec_set_string(spec, "/env/a~1b", "c", NULL), 0);
	cr_assert_eq(abox_spec_check(spec, NULL), 0);
	check_dump(spec,
		"{\"env\":{\"a/"
		"b\":\"c\"},\"limits\":{\"cpus\":1.5,\"memory\":\"1GiB\",\"pids\":64,\"wall\":60},"
		"\"mounts\":[{\"mode\":\"tmpfs\",\"target\":\"/x/y\"}],\"name\":\"x\","
		"\"network\":{\"allow\":[{\"host\":\"a.test\",\"ports\":[1,2,3]}],\"mode\":\"allow\"},"
		"\"strict\":true,\"user\":0,\"version\":1,\"workspace\":{\"source\":{\"kind\":\"empty\"}}}");
}

/* What a text would be refused for, a setter is refused for, and the spec is as it was. */
Test(spec, refused_setters_change_nothing)
{
	_cleanup_(spec_unrefp) abox_spec *spec = new_spec();
	static const char *const strings[][2] = {
		{"/nothing", "x"},
		{"/limits/walll", "5m"},
		{"/limits/memory", "0"},
		{"/limits/pids", "9"},
		{"/name", "-x"},
		{"/name", "a\xff"},
		{"/mounts/1/target", "/x"},
		{"/mounts/x/target", "/x"},
		{"/mounts/-/nothing", "x"},
		{"/mounts/-/target", "/proc"},
		{"/env/A=B", "x"},
		{"/env/", "x"},
		{"/env", "x"},
		{"/name/x", "x"},
		{"name", "x"},
		{"", "x"},
		{"/", "x"},
		{"/env/a~2", "x"},
		{"/workspace/source/kind/x", "x"},
		{"/strict", "true"},
		{"/mounts/01/target", "/x"},
		{"/mounts/18446744073709551615/target", "/x"},
		{"/network/allow/-/host", "127.0.0.1"},
		{"/env/a\xff", "x"},
	};

	cr_assert_eq(abox_spec_add_env(spec, "KEEP", "1", NULL), 0);
	for (size_t i = 0; i < ELEMENTSOF(strings); i++) {
		_cleanup_(error_freep) abox_error *error = NULL;

		cr_expect_eq(abox_spec_set_string(spec, strings[i][0], strings[i][1], &error), ABOX_E_INVALID,
			"%s", strings[i][0]);
		cr_expect_not_null(abox_error_get_place(error), "%s", strings[i][0]);
	}
	cr_expect_eq(abox_spec_add_mount(spec, "/a\xff", "/x", ABOX_MOUNT_RO, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_add_mount(spec, "/x", "/a\xff", ABOX_MOUNT_RO, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_set_workspace(spec, "/a\xff", ABOX_WORKSPACE_COPY, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_set_integer(spec, "/limits/pids", -1, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_set_integer(spec, "/limits/memory", 0, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_set_integer(spec, "/limits/wall", INT64_MAX, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_set_boolean(spec, "/strict", 2, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_set_json(spec, "/mounts", "[{\"target\":1}]", NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_set_json(spec, "/mounts", "[", NULL), ABOX_E_SYNTAX);
	check_dump(spec, "{\"env\":{\"KEEP\":\"1\"},\"version\":1}");
}

/* An error in a value given as JSON has its place in that JSON, and the pointer in the spec. */
Test(spec, set_json_tells_place)
{
	_cleanup_(spec_unrefp) abox_spec *spec = new_spec();
	_cleanup_(error_freep) abox_error *error = NULL;

	cr_assert_eq(
		abox_spec_set_json(spec, "/limits", "{\"pids\":9,\n \"memory\":1}", &error), ABOX_E_INVALID);
	cr_expect_str_eq(abox_error_get_place(error), "/limits/memory");
	cr_expect_eq(abox_error_get_line(error), 2);
	cr_expect_eq(abox_error_get_column(error), 11);
}

/* Clearing brings a default back, moves a list up, and takes what is not there. */
Test(spec, clears)
{
	_cleanup_(spec_unrefp) abox_spec *spec = NULL;

	cr_assert_eq(abox_spec_from_json("{\"limits\":{\"pids\":9},\"env\":{\"A\":\"1\",\"1\":\"2\"},"
					 "\"waive\":[\"a\",\"b\",\"c\"]}",
			     &spec, NULL),
		0);
	cr_assert_eq(abox_spec_clear(spec, "/limits/pids", NULL), 0);
	cr_assert_eq(abox_spec_clear(spec, "/limits/pids", NULL), 0);
	cr_assert_eq(abox_spec_clear(spec, "/hostname", NULL), 0);
	cr_expect_eq(spec_u64(spec, "/limits/pids"), 512);
	cr_assert_eq(abox_spec_clear(spec, "/waive/1", NULL), 0);
	cr_expect_str_eq(spec_string(spec, "/waive/1"), "c");
	cr_assert_eq(abox_spec_clear(spec, "/env/1", NULL), 0);
	cr_expect_eq(abox_spec_clear(spec, "/nothing", NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_clear(spec, "", NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_clear(spec, "/waive/9", NULL), ABOX_E_INVALID);
	check_dump(spec, "{\"env\":{\"A\":\"1\"},\"limits\":{},\"version\":1,\"waive\":[\"a\",\"c\"]}");
	cr_assert_eq(abox_spec_clear(spec, "/waive", NULL), 0);
	cr_assert_eq(abox_spec_clear(spec, "/version", NULL), 0);
	check_dump(spec, "{\"env\":{\"A\":\"1\"},\"limits\":{},\"version\":1}");
}

/* The short forms go through the same door. */
Test(spec, short_forms)
{
	_cleanup_(spec_unrefp) abox_spec *spec = new_spec();

	cr_assert_eq(abox_spec_add_mount(spec, "/opt", "/opt", ABOX_MOUNT_RO, NULL), 0);
	cr_assert_eq(abox_spec_add_mount(spec, "/srv", "/srv/", ABOX_MOUNT_RW, NULL), 0);
	cr_assert_eq(abox_spec_add_mount(spec, NULL, "/scratch", ABOX_MOUNT_TMPFS, NULL), 0);
	cr_expect_eq(abox_spec_add_mount(spec, NULL, "/x", ABOX_MOUNT_RO, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_add_mount(spec, "/x", "/x", ABOX_MOUNT_TMPFS, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_add_mount(spec, "/x", "/x", 3, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_add_mount(spec, "x", "/x", ABOX_MOUNT_RO, NULL), ABOX_E_INVALID);
	cr_assert_eq(abox_spec_add_env(spec, "A/B", "1", NULL), 0);
	cr_assert_eq(abox_spec_add_env(spec, "A/B", "2", NULL), 0);
	cr_expect_eq(abox_spec_add_env(spec, "A=B", "2", NULL), ABOX_E_INVALID);
	cr_assert_eq(abox_spec_set_string(spec, "/workspace/on_failure", "keep", NULL), 0);
	cr_assert_eq(abox_spec_set_workspace(spec, "/src", ABOX_WORKSPACE_DIRECT, NULL), 0);
	cr_expect_eq(abox_spec_set_workspace(spec, "src", ABOX_WORKSPACE_OVERLAY, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_set_workspace(spec, "/src", -1, NULL), ABOX_E_INVALID);
	cr_assert_eq(abox_spec_check(spec, NULL), 0);
	check_dump(spec, "{\"env\":{\"A/B\":\"2\"},\"mounts\":[{\"mode\":\"ro\",\"source\":\"/"
			 "opt\",\"target\":\"/opt\"},"
			 "{\"mode\":\"rw\",\"source\":\"/srv\",\"target\":\"/"
			 "srv\"},{\"mode\":\"tmpfs\",\"target\":\"/scratch\"}],"
			 "\"version\":1,\"workspace\":{\"mode\":\"direct\",\"on_failure\":\"keep\","
			 "\"source\":{\"kind\":\"dir\",\"path\":\"/src\"}}}");
}

/* Lists and maps are bounded whichever way they grow. */
Test(spec, bounds_on_entries)
{
	_cleanup_(spec_unrefp) abox_spec *spec = new_spec();
	char target[32];

	for (int i = 0; i < 256; i++) {
		snprintf(target, sizeof(target), "/m/%d", i);
		cr_assert_eq(abox_spec_add_mount(spec, "/x", target, ABOX_MOUNT_RO, NULL), 0);
	}
	cr_expect_eq(abox_spec_add_mount(spec, "/x", "/y", ABOX_MOUNT_RO, NULL), ABOX_E_LIMIT);
	cr_expect_eq(spec_count(spec, "/mounts"), 256);
	cr_expect_eq(abox_spec_set_string(spec, "/mounts/255/target", "/m/last", NULL), 0);
	for (int i = 0; i < 1024; i++) {
		snprintf(target, sizeof(target), "V%d", i);
		cr_assert_eq(abox_spec_add_env(spec, target, "", NULL), 0);
	}
	cr_expect_eq(abox_spec_add_env(spec, "W", "", NULL), ABOX_E_LIMIT);
	cr_expect_eq(abox_spec_add_env(spec, "V0", "again", NULL), 0);
	cr_expect_eq(abox_spec_check(spec, NULL), 0);
}

/* What setters leave half done is found by the check, with its place. */
Test(spec, check_finds_half_done)
{
	_cleanup_(spec_unrefp) abox_spec *spec = new_spec();
	_cleanup_(error_freep) abox_error *error = NULL;

	cr_assert_eq(abox_spec_set_string(spec, "/mounts/-/source", "/x", NULL), 0);
	cr_assert_eq(abox_spec_check(spec, &error), ABOX_E_INVALID);
	cr_expect_str_eq(abox_error_get_place(error), "/mounts/0");
	cr_assert_eq(abox_spec_set_string(spec, "/mounts/0/target", "/x", NULL), 0);
	cr_assert_eq(abox_spec_check(spec, NULL), 0);
	cr_assert_eq(abox_spec_set_json(spec, "/network",
			     "{\"mode\":\"allow\",\"allow\":[{\"host\":\"a.test\",\"ports\":[1]}]}", NULL),
		0);
	cr_assert_eq(abox_spec_clear(spec, "/network/allow/0/ports/0", NULL), 0);
	cr_assert_eq(abox_spec_check(spec, &error), ABOX_E_INVALID);
	cr_expect_str_eq(abox_error_get_place(error), "/network/allow/0/ports");
}
