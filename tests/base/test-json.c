/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"

static const struct json_bounds bounds = { .max_bytes = 4096, .max_depth = 8, .stage = ABOX_STAGE_SPEC };

/* Every kind of bad text is refused with the line and column where it is bad, and the pointer of the value.
 */
Test(json, refuses_with_place)
{
	static const struct {
		const char *text;
		size_t len;
		int code;
		uint32_t line, column;
		const char *place;
	} rows[] = {
		{ "", 0, ABOX_E_SYNTAX, 1, 1, "" },
		{ "{", 0, ABOX_E_SYNTAX, 1, 1, "" },
		{ "{\"a\":1,\n \"a\":2}", 0, ABOX_E_SYNTAX, 2, 2, "/a" },
		{ "{\"x\":{\"a\":1,\"\\u0061\":2}}", 0, ABOX_E_SYNTAX, 1, 13, "/x/a" },
		{ "{} {}", 0, ABOX_E_SYNTAX, 1, 4, "" },
		{ "{}\n\n  x", 0, ABOX_E_SYNTAX, 3, 3, "" },
		{ "[1,2,]", 0, ABOX_E_SYNTAX, 1, 6, "" },
		{ "{\"a\":[1,\n2 3]}", 0, ABOX_E_SYNTAX, 2, 3, "/a/1" },
		{ "{\"a\":tru}", 0, ABOX_E_SYNTAX, 1, 6, "/a" },
		{ "{\"a\":01}", 0, ABOX_E_SYNTAX, 1, 6, "/a" },
		{ "{\"a\":18446744073709551616}", 0, ABOX_E_SYNTAX, 1, 6, "/a" },
		{ "{\"a\":\"x\xff\"}", 0, ABOX_E_SYNTAX, 1, 6, "/a" },
		{ "{\"a\":\"\xc0\xaf\"}", 0, ABOX_E_SYNTAX, 1, 6, "/a" },
		{ "{\"a\":\"b\0c\"}", 11, ABOX_E_SYNTAX, 1, 6, "/a" },
		{ "{\"a\":\"b\\u0000c\"}", 0, ABOX_E_SYNTAX, 1, 6, "/a" },
		{ "{\"a\\u0000b\":1}", 0, ABOX_E_SYNTAX, 1, 2, NULL },
		{ "{\"a\":\"\\ud800\"}", 0, ABOX_E_SYNTAX, 1, 6, "/a" },
		{ "{'a':1}", 0, ABOX_E_SYNTAX, 1, 2, "" },
		{ "{\"a\":1} // note", 0, ABOX_E_SYNTAX, 1, 9, "" },
		{ "[[[[[[[[[1]]]]]]]]]", 0, ABOX_E_LIMIT, 1, 9, NULL },
		{ "{\"a\":NaN}", 0, ABOX_E_SYNTAX, 1, 6, "/a" },
		{ "\xef\xbb\xbf{}", 0, ABOX_E_SYNTAX, 1, 1, "" },
	};

	for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
		_cleanup_(error_freep) abox_error *error = NULL;
		size_t len = rows[i].len ? rows[i].len : strlen(rows[i].text);
		struct json *value = NULL;

		cr_expect_eq(
			json_parse(rows[i].text, len, &bounds, &value, &error), rows[i].code, "row %zu", i);
		cr_assert_null(value);
		cr_assert_not_null(error);
		cr_expect_eq(abox_error_get_line(error), rows[i].line, "row %zu: line %u", i,
			abox_error_get_line(error));
		cr_expect_eq(abox_error_get_column(error), rows[i].column, "row %zu: column %u", i,
			abox_error_get_column(error));
		if (rows[i].place)
			cr_expect_str_eq(abox_error_get_place(error), rows[i].place, "row %zu", i);
	}
}

/* The bound on depth is exact, and brackets within strings are no levels. */
Test(json, takes_what_is_within_bounds)
{
	static const char *const texts[] = {
		"[[[[[[[[1]]]]]]]]",
		"\"[[[[[[[[[[[[[[\"",
		"\"\\\"[[[[[[[[[[[[\"",
		"1",
		" null ",
		"{\"\":{\"\":1}}",
	};

	for (size_t i = 0; i < ELEMENTSOF(texts); i++) {
		_cleanup_(json_unrefp) struct json *value = NULL;

		cr_expect_eq(
			json_parse(texts[i], strlen(texts[i]), &bounds, &value, NULL), 0, "%s", texts[i]);
		cr_expect_not_null(value);
	}
}

/* No message quotes the text: it may hold what must not be printed. */
Test(json, message_does_not_quote)
{
	_cleanup_(error_freep) abox_error *error = NULL;
	_cleanup_(freep) char *line = NULL;
	struct json *value;
	const char *text = "{\"env\":{\"A\": hunter2 }}";

	cr_assert_eq(json_parse(text, strlen(text), &bounds, &value, &error), ABOX_E_SYNTAX);
	cr_assert_eq(abox_error_format(error, &line), 0);
	cr_assert_null(strstr(line, "hunter2"));
	cr_assert_not_null(strstr(line, "/env/A"));
}

/* The same tree gives the same bytes whatever order it was written in, and they read back as the same tree.
 */
Test(json, prints_one_form)
{
	const char *text = " { \"b\" : [ 1 , -2, 0.1, 1e300, true, null ] , \"a\\u2028\" : \"\\u009b "
			   "\\\"x\\\" \\u00e9\" } ";
	_cleanup_(json_unrefp) struct json *value = NULL, *again = NULL;
	_cleanup_(freep) char *printed = NULL;

	cr_assert_eq(json_parse(text, strlen(text), &bounds, &value, NULL), 0);
	cr_assert_eq(json_print_new(value, &printed), 0);
	cr_assert_str_eq(
		printed, "{\"a\\u2028\":\"\\u009b \\\"x\\\" \xc3\xa9\",\"b\":[1,-2,0.1,1e+300,true,null]}");
	cr_assert_eq(json_parse(printed, strlen(printed), &bounds, &again, NULL), 0);
	cr_assert(json_same(value, again));
}

/* A decimal stays one when printed, and its point is a point in every locale. */
Test(json, decimals_survive_locale)
{
	_cleanup_(json_unrefp) struct json *value = json_new_decimal(2), *half = json_new_decimal(0.5);
	_cleanup_(freep) char *printed = NULL, *point = NULL;

	setlocale(LC_ALL, "de_DE.UTF-8");
	cr_assert_eq(json_print_new(value, &printed), 0);
	cr_assert_str_eq(printed, "2.0");
	cr_assert_eq(json_print_new(half, &point), 0);
	cr_assert_str_eq(point, "0.5");
}

/* Pointers reach every value, with escapes, and nothing beyond. */
Test(json, follows_pointers)
{
	const char *text = "{\"a/b\":{\"m~n\":[10,{\"x\":20}]},\"\":30}";
	_cleanup_(json_unrefp) struct json *value = NULL;

	cr_assert_eq(json_parse(text, strlen(text), &bounds, &value, NULL), 0);
	cr_expect_eq(json_number(json_at(value, "/a~1b/m~0n/0")), 10);
	cr_expect_eq(json_number(json_at(value, "/a~1b/m~0n/1/x")), 20);
	cr_expect_eq(json_number(json_at(value, "/")), 30);
	cr_expect_eq(json_at(value, ""), value);
	cr_expect_null(json_at(value, "/a~1b/m~0n/2"));
	cr_expect_null(json_at(value, "/a~1b/m~0n/00"));
	cr_expect_null(json_at(value, "/a~1b/m~0n/-"));
	cr_expect_null(json_at(value, "/a~2b"));
	cr_expect_null(json_at(value, "/a~1b/m~0n/0/x"));
	cr_expect_null(json_at(value, "/a~1b/m~0n/18446744073709551616"));
	cr_expect(json_pointer_valid("/a~0~1"));
	cr_expect_not(json_pointer_valid("a"));
	cr_expect_not(json_pointer_valid("/a~"));
}

/* A value is found in the text it came from, at its own line and column; names that are escaped there too. */
Test(json, locates_values)
{
	const char *text = "{\n  \"a\": [1, {\"b\\u002fc\": true}],\n\t\"k\": \"x}\\\"]\", \"z\":0}";
	size_t len = strlen(text);
	uint32_t line = 0, column = 0;

	cr_assert(json_locate(text, len, "", &line, &column));
	cr_expect(line == 1 && column == 1);
	cr_assert(json_locate(text, len, "/a/1", &line, &column));
	cr_expect(line == 2 && column == 12);
	cr_assert(json_locate(text, len, "/a/1/b~1c", &line, &column));
	cr_expect(line == 2 && column == 25, "%u %u", line, column);
	cr_assert(json_locate_name(text, len, "/a/1/b~1c", &line, &column));
	cr_expect(line == 2 && column == 13, "%u %u", line, column);
	cr_assert(json_locate(text, len, "/z", &line, &column));
	cr_expect(line == 3 && column == 20, "%u %u", line, column);
	cr_expect_not(json_locate(text, len, "/a/2", &line, &column));
	cr_expect_not(json_locate(text, len, "/a/0/0", &line, &column));
	cr_expect_not(json_locate(text, len, "/y", &line, &column));
}

/* Every value of a parsed text is located by its pointer, and the place leads back to the pointer. */
static void check_round(
	const char *text, const struct json *root, const struct json *value, struct text *pointer)
{
	_cleanup_(freep) const char **names = NULL;
	_cleanup_(freep) char *back = NULL;
	size_t len = pointer->len, offset = 0;
	uint32_t line, column, at_line, at_column;

	cr_assert_eq(json_at(root, pointer->data), value);
	cr_assert(json_locate(text, strlen(text), pointer->data, &line, &column));
	for (json_line_column(text, 0, &at_line, &at_column); at_line != line || at_column != column;)
		json_line_column(text, ++offset, &at_line, &at_column);
	if (json_count(value) == 0 && json_kind(value) < JSON_KIND_ARRAY) {
		cr_assert_eq(json_pointer_at(text, strlen(text), &offset, &back), 0);
		cr_expect_str_eq(back, pointer->data);
	}
	if (json_kind(value) == JSON_KIND_OBJECT)
		cr_assert_eq(json_member_names(value, &names), 0);
	for (size_t i = 0; i < json_count(value); i++) {
		if (names)
			json_pointer_add(pointer, names[i]);
		else
			json_pointer_add_index(pointer, i);
		check_round(
			text, root, names ? json_member(value, names[i]) : json_element(value, i), pointer);
		pointer->len = len;
		pointer->data[len] = 0;
	}
}

Test(json, place_and_pointer_agree)
{
	const char *text = "{\"a\":[[],[1,[2,3]],{\"\":4,\"~\":{\"/\":5}}],\n\"\\u00e9\\ud83d\\ude00\":\"6\" "
			   ",\"n\\n\":-7.5 }";
	_cleanup_(json_unrefp) struct json *value = NULL;
	_cleanup_(text_clear) struct text pointer = TEXT_INIT;

	cr_assert_eq(json_parse(text, strlen(text), &bounds, &value, NULL), 0);
	text_add(&pointer, "");
	check_round(text, value, value, &pointer);
}

/* Whatever the bytes and wherever they are cut, looking for places ends and stays within them. */
Test(json, places_survive_any_text)
{
	static const char bytes[] = "{}[],:\"\\u0a \n1t\xff";
	unsigned int seed = 1;

	for (int round = 0; round < 20000; round++) {
		char text[24];
		size_t len = (size_t)rand_r(&seed) % sizeof(text),
		       offset = (size_t)rand_r(&seed) % sizeof(text);
		_cleanup_(freep) char *copy = malloc(len + 1), *pointer = NULL;
		uint32_t line, column;

		for (size_t i = 0; i < len; i++)
			copy[i] = bytes[(size_t)rand_r(&seed) % sizeof(bytes)];
		json_locate(copy, len, "/0/a", &line, &column);
		json_locate_name(copy, len, "/a/", &line, &column);
		cr_assert(json_pointer_at(copy, len, &offset, &pointer) <= 0);
	}
}
