/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <agentbox/spec.h>

#include "spec/spec.h"

static char *read_whole(const char *path)
{
	_cleanup_(freep) char *full = NULL;
	const char *root = getenv("SOURCE_ROOT");
	FILE *file;
	char *data;
	size_t len;

	cr_assert_gt(asprintf(&full, "%s/%s", root ? root : ".", path), 0);
	file = fopen(full, "re");
	cr_assert_not_null(file, "%s: %s", full, strerror(errno));
	data = calloc(1, 65536);
	len = fread(data, 1, 65535, file);
	fclose(file);
	cr_assert_gt(len, 0);
	return data;
}

/* An empty spec answers every default that is documented. */
Test(spec, defaults)
{
	_cleanup_(spec_unrefp) abox_spec *spec = NULL;

	cr_assert_eq(abox_spec_new(&spec), 0);
	cr_assert_eq(abox_spec_check(spec, NULL), 0);
	cr_expect_str_eq(spec_string(spec, "/backend"), "auto");
	cr_expect_str_eq(spec_string(spec, "/isolation_floor"), "namespaces");
	cr_expect_str_eq(spec_string(spec, "/rootfs/kind"), "host");
	cr_expect_eq(spec_enum(spec, "/network/mode"), SPEC_NETWORK_NONE);
	cr_expect_str_eq(spec_string(spec, "/cwd"), "/workspace");
	cr_expect_str_eq(spec_string(spec, "/hostname"), "agentbox");
	cr_expect_eq(spec_user(spec), SPEC_UID_AGENT);
	cr_expect_not(spec_boolean(spec, "/strict"));
	cr_expect_eq(spec_u64(spec, "/limits/wall"), 300 * USEC_PER_SEC);
	cr_expect_eq(spec_u64(spec, "/limits/idle"), UINT64_MAX);
	cr_expect_eq(spec_u64(spec, "/limits/memory"), UINT64_C(2) << 30);
	cr_expect_eq(spec_u64(spec, "/limits/pids"), 512);
	cr_expect_eq(spec_u64(spec, "/limits/disk"), UINT64_C(2) << 30);
	cr_expect_eq(spec_u64(spec, "/limits/inodes"), 500000);
	cr_expect_eq(spec_u64(spec, "/limits/open_files"), 1024);
	cr_expect_eq(spec_u64(spec, "/limits/output"), UINT64_C(8) << 20);
	cr_expect_not(spec_has(spec, "/limits/cpus"));
	cr_expect_eq(spec_u64(spec, "/grace"), 5 * USEC_PER_SEC);
	cr_expect_eq(spec_enum(spec, "/on_owner_death"), SPEC_OWNER_DEATH_STOP);
	cr_expect_eq(spec_enum(spec, "/workspace/source/kind"), SPEC_SOURCE_EMPTY);
	cr_expect_eq(spec_enum(spec, "/workspace/on_timeout"), SPEC_SETTLE_DISCARD);
	cr_expect_null(spec_string(spec, "/name"));
	cr_expect_null(spec_string(spec, "/journal"));
	cr_expect_eq(spec_count(spec, "/mounts"), 0);
	cr_expect_not(spec_written(spec, "/limits/memory"));
	cr_expect(spec_has(spec, "/limits/memory"));
}

/* The whole example of the documentation is read, and each value answers as it was written. */
Test(spec, reads_whole_example)
{
	_cleanup_(freep) char *text = read_whole("tests/spec/whole.json");
	_cleanup_(error_freep) abox_error *error = NULL;
	_cleanup_(spec_unrefp) abox_spec *spec = NULL;
	const char *name, *value;

	cr_assert_eq(abox_spec_from_json(text, &spec, &error), 0, "%s", abox_error_get_message(error));
	cr_expect_str_eq(spec_string(spec, "/name"), "task-1842");
	cr_expect_eq(spec_u64(spec, "/limits/cpus"), 2000);
	cr_expect_eq(spec_u64(spec, "/limits/disk"), UINT64_C(4) << 30);
	cr_expect(spec_written(spec, "/limits/disk"));
	cr_expect(spec_written(spec, "/limits"));
	cr_expect_eq(spec_count(spec, "/mounts"), 1);
	cr_expect_eq(spec_enum(spec, "/mounts/%d/mode", 0), SPEC_MOUNT_RO);
	cr_expect_eq(spec_count(spec, "/workspace/never"), 2);
	cr_expect_str_eq(spec_string(spec, "/workspace/never/%zu", (size_t)1), "**/*.pem");
	cr_expect_eq(spec_u64(spec, "/network/allow/0/ports/0"), 443);
	cr_expect_str_eq(spec_string(spec, "/credentials/0/provider/argv/0"), "forge-token");
	cr_expect_eq(spec_enum(spec, "/workspace/on_timeout"), SPEC_SETTLE_DIAGNOSTICS);
	cr_assert(spec_map_string(spec, 0, &name, &value, "/env"));
	cr_expect_str_eq(name, "CI");
	cr_expect_str_eq(value, "1");
	cr_expect_not(spec_map_string(spec, 1, &name, &value, "/env"));
}

/* Maps are in order of name however they were written, and names with `/` and `~` are names like others. */
Test(spec, maps_are_sorted)
{
	static const char *const expected[] = {"A", "Z", "a", "a/b~c"};
	_cleanup_(spec_unrefp) abox_spec *spec = NULL;
	const char *name, *value;

	cr_assert_eq(abox_spec_from_json(
			     "{\"env\":{\"a/b~c\":\"4\",\"a\":\"3\",\"Z\":\"2\",\"A\":\"1\"}}", &spec, NULL),
		0);
	for (size_t i = 0; i < ELEMENTSOF(expected); i++) {
		cr_assert(spec_map_string(spec, i, &name, &value, "/env"));
		cr_expect_str_eq(name, expected[i]);
		cr_expect_eq(value[0], '1' + (char)i);
	}
	cr_expect_str_eq(spec_string(spec, "/env/a~1b~0c"), "4");
}

/* A dump reads back as the same spec, and one spec has one dump. */
Test(spec, dumps_read_back)
{
	_cleanup_(freep) char *text = read_whole("tests/spec/whole.json"), *dump = NULL, *again = NULL;
	_cleanup_(spec_unrefp) abox_spec *spec = NULL, *back = NULL;

	cr_assert_eq(abox_spec_from_json(text, &spec, NULL), 0);
	cr_assert_eq(abox_spec_dump(spec, &dump), 0);
	cr_assert_eq(abox_spec_from_json(dump, &back, NULL), 0);
	cr_assert_eq(abox_spec_dump(back, &again), 0);
	cr_expect_str_eq(dump, again);
	cr_expect(json_same(spec_tree(spec), spec_tree(back)));
}

/* The version is in every dump, also where nobody wrote it. */
Test(spec, dump_of_empty_spec)
{
	_cleanup_(spec_unrefp) abox_spec *spec = NULL;
	_cleanup_(freep) char *dump = NULL;

	cr_assert_eq(abox_spec_new(&spec), 0);
	cr_assert_eq(abox_spec_dump(spec, &dump), 0);
	cr_expect_str_eq(dump, "{\"version\":1}");
}

/* A resolved dump is a spec of the same meaning: resolving it again changes nothing. */
Test(spec, resolved_dump_is_a_fixed_point)
{
	static const char *const texts[] = {"{}", "{\"mounts\":[{\"source\":\"/x\",\"target\":\"/x\"}]}",
		"{\"network\":{\"mode\":\"open\",\"publish\":[{\"port\":80}],\"allow\":[{\"host\":\"a.test\"}"
		"]},"
		"\"credentials\":[{\"name\":\"c\",\"provider\":{\"kind\":\"callback\"},\"inject\":{\"query\":"
		"\"k\"}}]}"};

	for (size_t i = 0; i < ELEMENTSOF(texts); i++) {
		_cleanup_(spec_unrefp) abox_spec *spec = NULL, *back = NULL;
		_cleanup_(freep) char *resolved = NULL, *again = NULL;
		_cleanup_(error_freep) abox_error *error = NULL;

		cr_assert_eq(abox_spec_from_json(texts[i], &spec, NULL), 0);
		cr_assert_eq(abox_spec_dump_resolved(spec, &resolved), 0);
		cr_assert_eq(abox_spec_from_json(resolved, &back, &error), 0, "%s: %s", resolved,
			abox_error_get_message(error));
		cr_assert_eq(abox_spec_dump_resolved(back, &again), 0);
		cr_expect_str_eq(resolved, again);
		cr_expect_not_null(strstr(resolved, "\"memory\":\"2GiB\""));
		cr_expect_null(strstr(resolved, "\"effect\""));
	}
}

/* One value at a time: written, default, neither, unknown. */
Test(spec, gets_one_value)
{
	_cleanup_(spec_unrefp) abox_spec *spec = NULL;
	_cleanup_(freep) char *written = NULL, *fallback = NULL, *object = NULL, *none = NULL;

	cr_assert_eq(abox_spec_from_json("{\"limits\":{\"pids\":9},\"rootfs\":{}}", &spec, NULL), 0);
	cr_assert_eq(abox_spec_get(spec, "/limits/pids", &written, NULL), 0);
	cr_expect_str_eq(written, "9");
	cr_assert_eq(abox_spec_get(spec, "/limits/open_files", &fallback, NULL), 0);
	cr_expect_str_eq(fallback, "1024");
	cr_assert_eq(abox_spec_get(spec, "/rootfs", &object, NULL), 0);
	cr_expect_str_eq(object, "{\"kind\":\"host\"}");
	cr_expect_eq(abox_spec_get(spec, "/name", &none, NULL), ABOX_E_NOT_FOUND);
	cr_expect_eq(abox_spec_get(spec, "/mounts/0", &none, NULL), ABOX_E_NOT_FOUND);
	cr_expect_eq(abox_spec_get(spec, "/nothing", &none, NULL), ABOX_E_INVALID);
	cr_expect_null(none);
}

struct visits {
	char text[512];
	int stop_at;
	int n;
};

static int note_visit(const struct spec_key *key, const char *pointer, void *userdata)
{
	struct visits *visits = userdata;
	size_t len = strlen(visits->text);

	snprintf(visits->text + len, sizeof(visits->text) - len, "%s:%s ", pointer,
		spec_module_name(key->module));
	return ++visits->n == visits->stop_at ? 7 : 0;
}

/* A visit shows what asks for something, with the module that must answer for it; defaults ask for
 * nothing. */
Test(spec, visits_what_asks_for_something)
{
	_cleanup_(spec_unrefp) abox_spec *spec = NULL;
	struct visits all = {.text = ""}, some = {.text = "", .stop_at = 2};

	cr_assert_eq(abox_spec_from_json("{\"version\":1,\"limits\":{\"memory\":\"2048MiB\",\"pids\":9,"
					 "\"wall\":300},\"user\":1000,"
					 "\"network\":{\"mode\":\"allow\",\"allow\":[{\"host\":\"a.test\","
					 "\"ech\":\"outer\"}],\"deny\":[]},"
					 "\"strict\":false,\"journal\":\"/j\",\"env\":{\"A\":\"\"}}",
			     &spec, NULL),
		0);
	cr_assert_eq(spec_visit(spec, note_visit, &all), 0);
	cr_expect_str_eq(all.text,
		"/env/A:core /journal:journal /limits/pids:core /network/allow/0/host:network "
		"/network/mode:network ");
	cr_assert_eq(spec_visit(spec, note_visit, &some), 7);
	cr_expect_str_eq(some.text, "/env/A:core /journal:journal ");
}

/* Errors of later stages about a key show its place in the text, as long as the text still says it. */
Test(spec, later_errors_have_places)
{
	_cleanup_(error_freep) abox_error *error = NULL, *after = NULL, *fallback = NULL;
	_cleanup_(spec_unrefp) abox_spec *spec = NULL, *copy = NULL;

	cr_assert_eq(abox_spec_from_json(
			     "{\n\"mounts\":[{\"source\":\"/x\",\n  \"target\":\"/x\"}] }", &spec, NULL),
		0);
	cr_expect_eq(spec_refuse(spec, &error, ABOX_E_NOT_FOUND, ABOX_STAGE_PLAN, "/mounts/0/target",
			     "gone: %d", 5),
		ABOX_E_NOT_FOUND);
	cr_expect_str_eq(abox_error_get_message(error), "gone: 5");
	cr_expect_eq(abox_error_get_stage(error), ABOX_STAGE_PLAN);
	cr_expect_eq(abox_error_get_line(error), 3);
	cr_expect_eq(abox_error_get_column(error), 12);
	spec_refuse(spec, &fallback, ABOX_E_UNSUPPORTED, ABOX_STAGE_PLAN, "/limits/memory", "no");
	cr_expect_eq(abox_error_get_line(fallback), 0);
	cr_expect_str_eq(abox_error_get_place(fallback), "/limits/memory");
	cr_assert_eq(abox_spec_set_string(spec, "/mounts/0/target", "/y", NULL), 0);
	cr_assert_eq(abox_spec_copy(spec, &copy), 0);
	spec_refuse(copy, &after, ABOX_E_NOT_FOUND, ABOX_STAGE_PLAN, "/mounts/0/target", "gone");
	cr_expect_eq(abox_error_get_line(after), 0);
	spec_refuse(copy, &after, ABOX_E_NOT_FOUND, ABOX_STAGE_PLAN, "/mounts/0/source", "gone");
	cr_expect_eq(abox_error_get_line(after), 2);
}

/* A copy shares nothing that changes. */
Test(spec, copies_are_independent)
{
	_cleanup_(spec_unrefp) abox_spec *spec = NULL, *copy = NULL;

	cr_assert_eq(abox_spec_from_json("{\"env\":{\"A\":\"1\"}}", &spec, NULL), 0);
	cr_assert_eq(abox_spec_copy(spec, &copy), 0);
	cr_assert_eq(abox_spec_add_env(spec, "A", "2", NULL), 0);
	cr_expect_str_eq(spec_string(copy, "/env/A"), "1");
	cr_expect_str_eq(spec_string(spec, "/env/A"), "2");
}

/* Missing arguments are answered, not crashed on; NULL is released without harm. */
Test(spec, missing_arguments)
{
	abox_spec *spec = NULL;
	char *text = NULL;

	cr_expect_eq(abox_spec_new(NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_from_json(NULL, &spec, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_from_json("{}", NULL, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_from_bytes(NULL, 5, &spec, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_from_bytes(NULL, 0, &spec, NULL), ABOX_E_SYNTAX);
	cr_expect_eq(abox_spec_copy(NULL, &spec), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_check(NULL, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_dump(NULL, &text), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_dump_resolved(NULL, &text), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_get(NULL, "/name", &text, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_set_string(NULL, "/name", "a", NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_spec_describe_keys(7, &text), ABOX_E_INVALID);
	cr_expect_null(abox_spec_unref(NULL));
	cr_expect_null(abox_spec_ref(NULL));
	cr_expect_null(spec);
	cr_expect_null(text);
}
