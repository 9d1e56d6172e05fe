/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <agentbox/spec.h>

#include "spec/spec.h"
#include "spec/types.h"

/* A row can be found by its own pattern, its container has a row above it, and it says what it is for. */
Test(keys, table_is_consistent)
{
	for (size_t i = 0; i < spec_n_keys; i++) {
		const struct spec_key *key = &spec_keys[i];

		cr_expect_eq(spec_key_find(key->pattern), key, "%s", key->pattern);
		cr_expect_not_null(key->doc, "%s", key->pattern);
		cr_expect_eq(key->type == SPEC_ENUM, key->words != NULL, "%s", key->pattern);
		if (key->flags & SPEC_REQUIRED)
			cr_expect_null(key->fallback, "%s", key->pattern);
		if (!type_has_bounds(key) || key->type == SPEC_DECIMAL)
			continue;
		cr_expect_gt(key->max, 0, "%s", key->pattern);
		cr_expect_leq(key->min, key->max, "%s", key->pattern);
		if (key->type >= SPEC_INTEGER && key->type <= SPEC_DURATION_OFF &&
			strncmp(key->pattern, "/limits", 7) == 0)
			cr_expect_gt(key->min, 0, "%s", key->pattern);
	}
	/* Found from above: what is below a row follows it in the table without a gap. */
	for (size_t i = 1; i < spec_n_keys; i++) {
		_cleanup_(freep) char *parent = strdup(spec_keys[i].pattern);

		*strrchr(parent, '/') = 0;
		cr_assert_not_null(spec_key_find(parent), "%s", spec_keys[i].pattern);
		cr_expect_eq(spec_key_child(spec_key_find(parent), spec_key_name(&spec_keys[i])),
			&spec_keys[i], "%s", spec_keys[i].pattern);
	}
}

/* Each default is a value that its own row takes, in its normal form. */
Test(keys, defaults_are_valid)
{
	for (size_t i = 0; i < spec_n_keys; i++) {
		const struct spec_key *key = &spec_keys[i];
		_cleanup_(json_unrefp) struct json *value = NULL, *normal = NULL;
		struct type_fault fault;

		if (!key->fallback)
			continue;
		if (key->fallback[0] == '=') {
			cr_expect_not_null(spec_key_find(key->fallback + 1), "%s", key->pattern);
			continue;
		}
		value = type_fallback(key, key->fallback);
		cr_assert_not_null(value);
		cr_expect_eq(
			type_check(key, value, &normal, &fault), 0, "%s: %s", key->pattern, fault.message);
		cr_expect_null(normal, "%s", key->pattern);
	}
}

/* Every word of every enum is taken by the setter of its key. */
Test(keys, every_word_is_taken)
{
	for (size_t i = 0; i < spec_n_keys; i++) {
		const struct spec_key *key = &spec_keys[i];

		for (size_t w = 0; key->words && key->words[w]; w++) {
			_cleanup_(spec_unrefp) abox_spec *spec = NULL;
			_cleanup_(text_clear) struct text pointer = TEXT_INIT;

			for (const char *p = key->pattern; *p; p++)
				text_add_bytes(&pointer, *p == '*' ? "-" : p, 1);
			cr_assert_eq(abox_spec_new(&spec), 0);
			cr_expect_eq(abox_spec_set_string(spec, pointer.data, key->words[w], NULL), 0,
				"%s %s", pointer.data, key->words[w]);
		}
	}
}

/* The constants of enums are the positions of their words. */
Test(keys, constants_match_words)
{
	static const struct {
		const char *key, *word;
		int value;
	} rows[] = {
		{"/backend", "microvm", SPEC_BACKEND_MICROVM},
		{"/isolation_floor", "microvm", SPEC_FLOOR_MICROVM},
		{"/rootfs/kind", "dir", SPEC_ROOTFS_DIR},
		{"/mounts/0/mode", "rw", SPEC_MOUNT_RW},
		{"/mounts/0/mode", "tmpfs", SPEC_MOUNT_TMPFS},
		{"/on_owner_death", "keep", SPEC_OWNER_DEATH_KEEP},
		{"/files", "image", SPEC_FILES_IMAGE},
		{"/workspace/source/kind", "snapshot", SPEC_SOURCE_SNAPSHOT},
		{"/workspace/mode", "direct", SPEC_WORKSPACE_DIRECT},
		{"/workspace/protect_absent", "placeholder", SPEC_ABSENT_PLACEHOLDER},
		{"/workspace/on_cancel", "keep", SPEC_SETTLE_KEEP},
		{"/network/mode", "open", SPEC_NETWORK_OPEN},
		{"/network/denied", "nxdomain", SPEC_DENIED_NXDOMAIN},
		{"/network/deny/0/ech", "outer", SPEC_ECH_OUTER},
		{"/network/allow/0/effect/class", "idempotent", SPEC_EFFECT_IDEMPOTENT},
		{"/network/allow/0/effect/approval", "none", SPEC_APPROVAL_NONE},
		{"/credentials/0/provider/kind", "callback", SPEC_PROVIDER_CALLBACK},
		{"/credentials/0/inject/scheme", "raw", SPEC_SCHEME_RAW},
	};

	for (size_t i = 0; i < ELEMENTSOF(rows); i++)
		cr_expect_eq(type_word(spec_key_find(rows[i].key), rows[i].word), rows[i].value, "%s",
			rows[i].key);
}

/* Pointers that are no keys find no row. */
Test(keys, unknown_pointers)
{
	static const char *const pointers[] = {"name", "/", "/name/", "/name/x", "/limits/", "/mounts/0/x",
		"/env/a/b", "/mounts//target/x", "/env/~", "//", "/NAME"};

	for (size_t i = 0; i < ELEMENTSOF(pointers); i++)
		cr_expect_null(spec_key_find(pointers[i]), "%s", pointers[i]);
}

/* KEYS.md is what the table says. ABOX_TEST_UPDATE=1 writes it anew. */
Test(keys, documentation_is_up_to_date)
{
	const char *root = getenv("SOURCE_ROOT");
	_cleanup_(freep) char *path = NULL, *text = NULL, *found = NULL;
	FILE *file;

	cr_assert_gt(asprintf(&path, "%s/lib/spec/KEYS.md", root ? root : "."), 0);
	cr_assert_eq(abox_spec_describe_keys(ABOX_KEYS_MARKDOWN, &text), 0);
	if (getenv("ABOX_TEST_UPDATE")) {
		file = fopen(path, "we");
		cr_assert_not_null(file);
		cr_assert_geq(fputs(text, file), 0);
		cr_assert_eq(fclose(file), 0);
	}
	found = calloc(1, strlen(text) + 2);
	file = fopen(path, "re");
	cr_assert_not_null(file, "%s: %s", path, strerror(errno));
	cr_expect_eq(fread(found, 1, strlen(text) + 1, file), strlen(text));
	fclose(file);
	cr_expect(strcmp(found, text) == 0, "lib/spec/KEYS.md is old: run this test with ABOX_TEST_UPDATE=1");
}

/* The JSON form is JSON, with one object for each key but the spec itself. */
Test(keys, describes_as_json)
{
	static const struct json_bounds bounds = {.max_bytes = 1 << 20, .max_depth = 4};
	_cleanup_(json_unrefp) struct json *list = NULL;
	_cleanup_(freep) char *text = NULL;

	cr_assert_eq(abox_spec_describe_keys(ABOX_KEYS_JSON, &text), 0);
	cr_assert_eq(json_parse(text, strlen(text), &bounds, &list, NULL), 0);
	cr_expect_eq(json_count(list), spec_n_keys - 1);
	for (size_t i = 0; i < json_count(list); i++)
		cr_expect_str_eq(
			json_text(json_member(json_element(list, i), "key")), spec_keys[i + 1].pattern);
}

/* Whatever is wrong with a value of any key, there is a message and a remedy that is not cut. */
Test(keys, every_refusal_has_a_remedy)
{
	for (size_t i = 0; i < spec_n_keys; i++) {
		_cleanup_(text_clear) struct text text = TEXT_INIT;
		struct type_fault fault;

		type_describe(&text, &spec_keys[i]);
		cr_expect_not(text.failed);
		cr_expect_lt(text.len + strlen("write "), sizeof(fault.remedy), "%s", spec_keys[i].pattern);
	}
}
