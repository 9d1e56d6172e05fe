/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Types of keys: what each accepts, how a value is read, and how to say in words what is wanted. Values come
 * from outside and are judged byte by byte; arithmetic is checked; nothing is trimmed, rounded or guessed.
 */
#include "spec/types.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct unit {
	const char *name;
	uint64_t factor;
};

/* Largest first, so that a bound is shown in the largest unit that divides it. */
static const struct unit size_units[] = {
	{ "TiB", UINT64_C(1) << 40 },
	{ "GiB", UINT64_C(1) << 30 },
	{ "MiB", UINT64_C(1) << 20 },
	{ "KiB", UINT64_C(1) << 10 },
	{ NULL, 0 },
};
static const struct unit duration_units[] = {
	{ "d", 86400 * USEC_PER_SEC },
	{ "h", 3600 * USEC_PER_SEC },
	{ "m", 60 * USEC_PER_SEC },
	{ "s", USEC_PER_SEC },
	{ "ms", USEC_PER_MSEC },
	{ NULL, 0 },
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Digits without sign, blank or leading zeros. The rest of the text stays in *text. */
bool type_parse_digits(const char **text, uint64_t *ret)
{
	const char *s = *text;
	uint64_t value = 0;

	if (!is_digit(*s) || (s[0] == '0' && is_digit(s[1])))
		return false;
	for (; is_digit(*s); s++)
		if (__builtin_mul_overflow(value, 10, &value) ||
			__builtin_add_overflow(value, (uint64_t)(*s - '0'), &value))
			return false;
	*text = s;
	*ret = value;
	return true;
}

static bool parse_with_unit(const char *text, const struct unit *units, uint64_t *ret)
{
	uint64_t value;

	if (!type_parse_digits(&text, &value))
		return false;
	for (; units->name; units++)
		if (strcmp(text, units->name) == 0)
			return !__builtin_mul_overflow(value, units->factor, ret);
	return false;
}

static bool in_bounds(const struct spec_key *key, uint64_t value)
{
	return value >= key->min && value <= key->max;
}

/* Text forms of sizes and durations. Plain numbers are JSON numbers, except for sizes ("4096" is refused
 * too). */
static bool parse_text_number(const struct spec_key *key, const char *text, uint64_t *ret)
{
	if (key->type == SPEC_SIZE)
		return parse_with_unit(text, size_units, ret);
	if (key->type == SPEC_DURATION_OFF && strcmp(text, "off") == 0) {
		*ret = UINT64_MAX;
		return true;
	}
	return parse_with_unit(text, duration_units, ret);
}

static bool is_off(const struct spec_key *key, uint64_t value)
{
	return key->type == SPEC_DURATION_OFF && value == UINT64_MAX;
}

/* One row a type: `wanted` completes "this must be ...". */
static const struct type_row {
	const char *name;
	const char *wanted;
	const char *example;
	bool bounds;
} types[SPEC_N_TYPES] = {
	[SPEC_OBJECT] = { "object", "an object", "{}", false },
	[SPEC_LIST] = { "list", "a list", "[]", true },
	[SPEC_MAP] = { "map", "an object", "{}", true },
	[SPEC_BOOLEAN] = { "boolean", "true or false", NULL, false },
	[SPEC_INTEGER] = { "integer", "a whole number", NULL, true },
	[SPEC_DECIMAL] = { "decimal", "a number with at most three decimal places", "1.5", true },
	[SPEC_SIZE] = { "size", "a size: bytes, or KiB, MiB, GiB, TiB", "\"512MiB\"", true },
	[SPEC_DURATION] = { "duration", "a duration in ms, s, m, h or d, or whole seconds", "\"90s\"", true },
	[SPEC_DURATION_OFF] = { "duration or off",
		"a duration in ms, s, m, h or d, whole seconds, or \"off\"", "\"90s\"", true },
	[SPEC_ENUM] = { "enum", "one of the words", NULL, false },
	[SPEC_TEXT] = { "text", "one line of text", NULL, true },
	[SPEC_VALUE] = { "value", "text", NULL, true },
	[SPEC_NAME] = { "name",
		"a name of letters, digits, `.`, `_`, `-` that begins with neither `.` nor `-`", "\"task-1\"",
		false },
	[SPEC_USER] = { "user", "\"agent\", \"root\", or a uid from 0 to 65535", NULL, false },
	[SPEC_HOST_PATH] = { "host path", "an absolute path on the host", "\"/srv/app\"", false },
	[SPEC_BOX_PATH] = { "box path", "an absolute path in the box", "\"/workspace\"", false },
	[SPEC_TARGET] = { "mount target", "an absolute path in the box", "\"/opt/tools\"", false },
	[SPEC_GLOB] = { "glob", "a path or pattern below the workspace", "\"dist/**\"", true },
	[SPEC_VARIABLE] = { "variable", "the name of a variable, without `=`", "\"LANG\"", false },
	[SPEC_HOSTNAME] = { "host name", "a host name of letters, digits and inner hyphens, at most 64 bytes",
		"\"agentbox\"", false },
	[SPEC_HOST] = { "host", "a host name, or `*.` and a host name", "\"*.example.test\"", false },
	[SPEC_CIDR] = { "cidr", "an address and the length of its prefix", "\"192.0.2.0/24\"", false },
	[SPEC_ADDRESS] = { "address", "a literal address", "\"127.0.0.1\"", false },
	[SPEC_METHOD] = { "method", "an HTTP method in upper case", "\"GET\"", false },
	[SPEC_URL_PATH] = { "url path", "a path that begins with `/`", "\"/api/**\"", false },
	[SPEC_TOKEN] = { "token", "a name of letters, digits and `-`", "\"X-Api-Key\"", false },
	[SPEC_EFFECT_KEY] = { "effect key", "auto, target, git-refs, body, header:NAME or json:/POINTER",
		"\"header:X-Request-Id\"", false },
};

const char *type_name(enum spec_type type)
{
	return types[type].name;
}

bool type_has_bounds(const struct spec_key *key)
{
	return types[key->type].bounds;
}

int type_bound(const struct spec_key *key, uint64_t bound, char **rettext)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	const struct unit *unit = key->type == SPEC_SIZE ? size_units : duration_units;

	switch (key->type) {
	case SPEC_SIZE:
	case SPEC_DURATION:
	case SPEC_DURATION_OFF:
		while (unit->name && (bound == 0 || bound % unit->factor != 0))
			unit++;
		text_printf(&text, "%llu%s", (unsigned long long)(unit->name ? bound / unit->factor : bound),
			unit->name ? unit->name : "");
		break;
	case SPEC_DECIMAL:
		text_printf(&text, "%llu", (unsigned long long)(bound / 1000));
		if (bound % 1000)
			text_printf(&text, ".%03llu", (unsigned long long)(bound % 1000));
		break;
	default:
		text_printf(&text, "%llu", (unsigned long long)bound);
	}
	return text_take(&text, rettext);
}

static void add_bounds(struct text *text, const struct spec_key *key)
{
	_cleanup_(freep) char *min = NULL, *max = NULL;
	const char *what = "";

	if (type_bound(key, key->min, &min) < 0 || type_bound(key, key->max, &max) < 0) {
		text->failed = true;
		return;
	}
	if (key->type == SPEC_LIST || key->type == SPEC_MAP)
		what = " entries";
	else if (key->type == SPEC_TEXT || key->type == SPEC_VALUE || key->type == SPEC_GLOB)
		what = " bytes";
	text_printf(text, ", from %s to %s%s", min, max, what);
}

static void add_words(struct text *text, const struct spec_key *key)
{
	text_add(text, "one of");
	for (size_t i = 0; key->words[i]; i++)
		text_printf(text, "%s \"%s\"", i > 0 ? "," : "", key->words[i]);
}

void type_describe(struct text *text, const struct spec_key *key)
{
	const struct type_row *row = &types[key->type];

	if (key->type == SPEC_ENUM) {
		add_words(text, key);
		return;
	}
	text_add(text, row->wanted);
	if (row->bounds)
		add_bounds(text, key);
	if (row->example)
		text_printf(text, ", such as %s", row->example);
}

static void fault_put(struct type_fault *fault, const struct spec_key *key, const char *message)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;

	snprintf(fault->message, sizeof(fault->message), "%s", message);
	text_add(&text, "write ");
	type_describe(&text, key);
	snprintf(fault->remedy, sizeof(fault->remedy), "%s", text.failed ? "" : text.data);
}

int type_mismatch(const struct spec_key *key, const struct json *value, struct type_fault *fault)
{
	char message[sizeof(fault->message)];

	if (json_kind(value) == JSON_KIND_NULL) {
		fault_put(fault, key, "null is no value");
		snprintf(fault->remedy, sizeof(fault->remedy), "leave the key out to get its default");
		return ABOX_E_INVALID;
	}
	snprintf(message, sizeof(message), "%s cannot stand here", json_kind_name(json_kind(value)));
	fault_put(fault, key, message);
	return ABOX_E_INVALID;
}

int type_word(const struct spec_key *key, const char *word)
{
	for (int i = 0; key->words[i]; i++)
		if (strcmp(key->words[i], word) == 0)
			return i;
	return -1;
}

static int check_range(const struct spec_key *key, uint64_t value, struct type_fault *fault)
{
	if (in_bounds(key, value))
		return 0;
	fault_put(fault, key, value < key->min ? "too small" : "too large");
	return ABOX_E_INVALID;
}

static int check_integer(const struct spec_key *key, int64_t value, struct type_fault *fault)
{
	uint64_t scaled = (uint64_t)value;

	if (value < 0) {
		fault_put(fault, key, "negative");
		return ABOX_E_INVALID;
	}
	if ((key->type == SPEC_DURATION || key->type == SPEC_DURATION_OFF) &&
		__builtin_mul_overflow(scaled, USEC_PER_SEC, &scaled))
		scaled = UINT64_MAX;
	if (key->type == SPEC_USER)
		return scaled <= 65535 ? 0 : (fault_put(fault, key, "too large"), ABOX_E_INVALID);
	return check_range(key, scaled, fault);
}

/* Thousandths, exactly: 0.0015 is no value that could be kept. False also for what is no number at all. */
static bool decimal_scale(double number, uint64_t *ret)
{
	double scaled = number * 1000, nearest;

	if (!(scaled >= 0 && scaled < 9e15))
		return false;
	nearest = (double)(uint64_t)(scaled + 0.5);
	if (scaled - nearest > 1e-6 || nearest - scaled > 1e-6)
		return false;
	*ret = (uint64_t)nearest;
	return true;
}

static int check_decimal(const struct spec_key *key, const struct json *value, struct type_fault *fault)
{
	uint64_t thousandths;

	if (json_decimal(value) < 0) {
		fault_put(fault, key, "negative");
		return ABOX_E_INVALID;
	}
	if (!decimal_scale(json_decimal(value), &thousandths)) {
		fault_put(fault, key, json_decimal(value) >= 1 ? "too large or too precise" : "too precise");
		return ABOX_E_INVALID;
	}
	return check_range(key, thousandths, fault);
}

static int check_text_number(const struct spec_key *key, const char *text, struct type_fault *fault)
{
	uint64_t value;

	if (!parse_text_number(key, text, &value)) {
		fault_put(fault, key, key->type == SPEC_SIZE ? "not a size" : "not a duration");
		return ABOX_E_INVALID;
	}
	return is_off(key, value) ? 0 : check_range(key, value, fault);
}

static int check_string(
	const struct spec_key *key, const char *text, struct json **retnormal, struct type_fault *fault)
{
	_cleanup_(freep) char *normal = NULL;
	const char *why = text[0] ? "not what this key takes" : "empty";

	switch (text_check(key, text, &normal, &why)) {
	case TEXT_FINE:
		return 0;
	case TEXT_NORMALIZED:
		*retnormal = json_new_string(normal);
		return *retnormal ? 0 : ABOX_E_MEMORY;
	case TEXT_NO_MEMORY:
		return ABOX_E_MEMORY;
	case TEXT_WRONG:
		break;
	}
	fault_put(fault, key, why);
	return ABOX_E_INVALID;
}

static bool takes_integer(enum spec_type type)
{
	return type == SPEC_INTEGER || type == SPEC_SIZE || type == SPEC_DURATION ||
	       type == SPEC_DURATION_OFF || type == SPEC_USER;
}

static bool is_scaled(enum spec_type type)
{
	return type == SPEC_SIZE || type == SPEC_DURATION || type == SPEC_DURATION_OFF;
}

int type_check(const struct spec_key *key, const struct json *value, struct json **retnormal,
	struct type_fault *fault)
{
	enum json_kind kind = json_kind(value);

	*retnormal = NULL;
	if (key->type == SPEC_BOOLEAN)
		return kind == JSON_KIND_BOOLEAN ? 0 : type_mismatch(key, value, fault);
	if (key->type == SPEC_DECIMAL && (kind == JSON_KIND_INTEGER || kind == JSON_KIND_DECIMAL))
		return check_decimal(key, value, fault);
	if (takes_integer(key->type) && kind == JSON_KIND_INTEGER)
		return check_integer(key, json_number(value), fault);
	if (kind != JSON_KIND_STRING)
		return type_mismatch(key, value, fault);
	if (is_scaled(key->type))
		return check_text_number(key, json_text(value), fault);
	if (key->type == SPEC_ENUM) {
		if (type_word(key, json_text(value)) >= 0)
			return 0;
		fault_put(fault, key, "not a word that this key knows");
		return ABOX_E_INVALID;
	}
	if (!text_type(key->type))
		return type_mismatch(key, value, fault);
	return check_string(key, json_text(value), retnormal, fault);
}

int type_check_name(const struct spec_key *map, const char *name, struct type_fault *fault)
{
	const struct spec_key names = { .pattern = map->pattern, .type = map->names, .min = 1, .max = 128 };
	_cleanup_(json_unrefp) struct json *normal = NULL;

	return check_string(&names, name, &normal, fault);
}

uint64_t type_number_of_text(const struct spec_key *key, const char *text)
{
	uint64_t value = 0;

	if (is_scaled(key->type))
		return parse_text_number(key, text, &value) ? value : 0;
	return type_parse_digits(&text, &value) && !*text ? value : 0;
}

uint64_t type_number(const struct spec_key *key, const struct json *value)
{
	uint64_t number;

	if (json_kind(value) == JSON_KIND_STRING)
		return type_number_of_text(key, json_text(value));
	if (key->type == SPEC_DECIMAL)
		return decimal_scale(json_decimal(value), &number) ? number : 0;
	number = (uint64_t)json_number(value);
	return key->type == SPEC_DURATION || key->type == SPEC_DURATION_OFF ? number * USEC_PER_SEC : number;
}

struct json *type_fallback(const struct spec_key *key, const char *text)
{
	if (key->type == SPEC_BOOLEAN)
		return json_new_boolean(strcmp(text, "true") == 0);
	if (key->type == SPEC_INTEGER)
		return json_new_integer((int64_t)type_number_of_text(key, text));
	return json_new_string(text);
}
