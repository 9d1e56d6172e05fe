/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Types of keys: what each accepts, how a value is read, and how to say in words what is wanted. Values come from
 * outside and are judged byte by byte; arithmetic is checked; nothing is trimmed, rounded or guessed.
 */
#include "spec/types.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"

struct unit {
	const char *name;
	uint64_t factor;
};

/* Largest first, so that a bound is shown in the largest unit that divides it. */
static const struct unit size_units[] = {
	{ "TiB", UINT64_C(1) << 40 }, { "GiB", UINT64_C(1) << 30 }, { "MiB", UINT64_C(1) << 20 },
	{ "KiB", UINT64_C(1) << 10 }, { NULL, 0 },
};
static const struct unit duration_units[] = {
	{ "d", 86400 * USEC_PER_SEC }, { "h", 3600 * USEC_PER_SEC }, { "m", 60 * USEC_PER_SEC },
	{ "s", USEC_PER_SEC }, { "ms", USEC_PER_MSEC }, { NULL, 0 },
};

enum answer {
	FINE = 0,
	WRONG,		/* the wording of the type says what is wanted */
	NORMALIZED,	/* *rettext holds another form */
	NO_MEMORY,
};

typedef enum answer (*check_fn)(const struct spec_key *key, const char *text, char **rettext, const char **retwhy);

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_alnum(char c)
{
	return is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'z');
}

static bool has_controls(const char *text)
{
	for (const unsigned char *s = (const unsigned char *)text; *s; s++)
		if (*s < 0x20 || *s == 0x7f || (*s == 0xc2 && s[1] < 0xa0))
			return true;
	return false;
}

/* Digits without sign, blank or leading zeros. The rest of the text stays in *text. */
static bool parse_digits(const char **text, uint64_t *ret)
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

	if (!parse_digits(&text, &value))
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

/* Text forms of sizes and durations. Plain numbers are JSON numbers, except for sizes ("4096" is refused too). */
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

static bool length_fits(const struct spec_key *key, const char *text)
{
	size_t len = strlen(text);

	return len >= key->min && len <= key->max;
}

static enum answer check_text(const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	if (!length_fits(key, text))
		return WRONG;
	if (has_controls(text)) {
		*retwhy = "control characters are not allowed";
		return WRONG;
	}
	return FINE;
}

static enum answer check_value(const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	return length_fits(key, text) ? FINE : WRONG;
}

static bool is_name(const char *text, size_t max)
{
	size_t len = strlen(text);

	if (len == 0 || len > max || text[0] == '-' || text[0] == '.')
		return false;
	for (; *text; text++)
		if (!is_alnum(*text) && !strchr("._-", *text))
			return false;
	return true;
}

static enum answer check_name(const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	return is_name(text, key->max ? key->max : 128) ? FINE : WRONG;
}

static enum answer check_user(const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	return strcmp(text, "agent") == 0 || strcmp(text, "root") == 0 ? FINE : WRONG;
}

/* A component that is `..`, in a path of any shape. */
static bool has_dotdot(const char *path)
{
	while (*path) {
		size_t len = strcspn(path, "/");

		if (len == 2 && path[0] == '.' && path[1] == '.')
			return true;
		path += len;
		path += strspn(path, "/");
	}
	return false;
}

static bool is_path(const char *text, const char **retwhy)
{
	if (strlen(text) >= 4096)
		*retwhy = "longer than 4095 bytes";
	else if (has_controls(text))
		*retwhy = "control characters are not allowed";
	else if (has_dotdot(text))
		*retwhy = "`..` is not allowed";
	else
		return text[0] == '/';
	return false;
}

static enum answer check_host_path(
	const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	return is_path(text, retwhy) ? FINE : WRONG;
}

static enum answer check_box_path(const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	if (!is_path(text, retwhy))
		return WRONG;
	if (path_is_normal(text))
		return FINE;
	return path_normalize(text, rettext) < 0 ? NO_MEMORY : NORMALIZED;
}

/*
 * Security: a mount over `/`, /proc, /dev or /sys, or into them, would replace or undo what the wall puts there.
 */
static enum answer check_target(const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	static const char *const taken[] = { "/proc", "/dev", "/sys" };
	enum answer answer = check_box_path(key, text, rettext, retwhy);
	const char *path = answer == NORMALIZED ? *rettext : text;

	if (answer == WRONG || answer == NO_MEMORY)
		return answer;
	if (strcmp(path, "/") == 0) {
		*retwhy = "the root itself cannot be a target";
		return WRONG;
	}
	for (size_t i = 0; i < ELEMENTSOF(taken); i++) {
		if (path_is_under(path, taken[i])) {
			*retwhy = "the wall makes what is there";
			return WRONG;
		}
	}
	return answer;
}

static enum answer check_glob(const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	size_t len = strlen(text);

	if (!length_fits(key, text) || text[0] == '/')
		return WRONG;
	if (has_controls(text) || has_dotdot(text)) {
		*retwhy = "control characters and `..` are not allowed";
		return WRONG;
	}
	if (text[len - 1] == '/') {
		*retwhy = "a folder is written with `/**` at its end";
		return WRONG;
	}
	return strstr(text, "//") || strncmp(text, "./", 2) == 0 || strstr(text, "/./") ? WRONG : FINE;
}

static bool is_variable(const char *text)
{
	size_t len = strlen(text);

	return len > 0 && len <= 255 && !strchr(text, '=') && !has_controls(text);
}

static enum answer check_variable(const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	return is_variable(text) ? FINE : WRONG;
}

/* Labels of RFC 1123: letters, digits, inner hyphens, 1 to 63 bytes each. */
static bool is_dns_name(const char *text, size_t max, size_t *retlabels)
{
	size_t labels = 0;

	if (strlen(text) > max)
		return false;
	for (;;) {
		size_t len = strcspn(text, ".");

		if (len == 0 || len > 63 || text[0] == '-' || text[len - 1] == '-')
			return false;
		for (size_t i = 0; i < len; i++)
			if (!is_alnum(text[i]) && text[i] != '-')
				return false;
		labels++;
		text += len;
		if (!*text)
			break;
		text++;
	}
	*retlabels = labels;
	return true;
}

static enum answer check_hostname(const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	size_t labels;

	return is_dns_name(text, 64, &labels) ? FINE : WRONG;
}

/* The last label says that resolvers read the whole as a number: 127.1, 0x7f.1, 2130706433. */
static bool ends_in_number(const char *text)
{
	const char *dot = strrchr(text, '.');
	const char *last = dot ? dot + 1 : text;

	if (last[0] == '0' && (last[1] | 32) == 'x')
		return strspn(last + 2, "0123456789abcdefABCDEF") == strlen(last + 2);
	return strspn(last, "0123456789") == strlen(last);
}

static enum answer lower_case(const char *text, char **rettext)
{
	bool changed = false;
	char *copy = strdup(text);

	if (!copy)
		return NO_MEMORY;
	for (char *s = copy; *s; s++) {
		if (*s >= 'A' && *s <= 'Z') {
			*s = (char)(*s | 32);
			changed = true;
		}
	}
	if (!changed) {
		free(copy);
		return FINE;
	}
	*rettext = copy;
	return NORMALIZED;
}

/* Security: names and addresses are never matched by the same rule, however the address is spelt. */
static enum answer check_host(const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	const char *name = strncmp(text, "*.", 2) == 0 ? text + 2 : text;
	size_t labels;

	for (const char *s = text; *s; s++) {
		if ((unsigned char)*s >= 0x80) {
			*retwhy = "names beyond ASCII are written in their xn-- form";
			return WRONG;
		}
	}
	if (ends_in_number(text) || strchr(text, ':')) {
		*retwhy = "addresses are written as `cidr`, ports as `ports`";
		return WRONG;
	}
	if (!is_dns_name(name, 253, &labels))
		return WRONG;
	if (labels < 2) {
		*retwhy = "a name of one label reaches nothing from inside a box";
		return WRONG;
	}
	return lower_case(text, rettext);
}

static bool parse_address(const char *text, unsigned char *bytes, size_t *retlen)
{
	if (inet_pton(AF_INET, text, bytes) == 1)
		*retlen = 4;
	else if (inet_pton(AF_INET6, text, bytes) == 1)
		*retlen = 16;
	else
		return false;
	return true;
}

static enum answer check_address(const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	unsigned char bytes[16];
	size_t len;

	return parse_address(text, bytes, &len) ? FINE : WRONG;
}

static bool is_mapped(const unsigned char *bytes, size_t len)
{
	static const unsigned char prefix[12] = { [10] = 0xff, [11] = 0xff };

	return len == 16 && memcmp(bytes, prefix, sizeof(prefix)) == 0;
}

static enum answer check_cidr(const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	const char *slash = strchr(text, '/'), *rest = slash ? slash + 1 : NULL;
	char address[INET6_ADDRSTRLEN] = "";
	unsigned char bytes[16];
	uint64_t bits;
	size_t len;

	if (!slash || (size_t)(slash - text) >= sizeof(address))
		return WRONG;
	memcpy(address, text, (size_t)(slash - text));
	if (!parse_address(address, bytes, &len) || !parse_digits(&rest, &bits) || *rest || bits > len * 8)
		return WRONG;
	if (is_mapped(bytes, len)) {
		*retwhy = "a mapped address is written as IPv4";
		return WRONG;
	}
	for (size_t bit = bits; bit < len * 8; bit++) {
		if (bytes[bit / 8] & (0x80 >> bit % 8)) {
			*retwhy = "bits are set behind the prefix";
			return WRONG;
		}
	}
	return FINE;
}

static enum answer check_method(const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	size_t len = strlen(text);

	if (len == 0 || len > 32)
		return WRONG;
	for (; *text; text++)
		if ((*text < 'A' || *text > 'Z') && *text != '-')
			return WRONG;
	return FINE;
}

static enum answer check_url_path(const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	if (text[0] != '/' || strlen(text) > 2048)
		return WRONG;
	if (has_dotdot(text)) {
		*retwhy = "`..` is not allowed";
		return WRONG;
	}
	for (; *text; text++) {
		if (*text <= 0x20 || *text >= 0x7f || *text == '?' || *text == '#') {
			*retwhy = "blanks, `?`, `#` and bytes beyond ASCII are not allowed";
			return WRONG;
		}
	}
	return FINE;
}

static bool is_token(const char *text)
{
	size_t len = strlen(text);

	if (len == 0 || len > 128)
		return false;
	for (; *text; text++)
		if (!is_alnum(*text) && !strchr("!#$%&'*+-.^_`|~", *text))
			return false;
	return true;
}

static enum answer check_token(const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	return is_token(text) ? FINE : WRONG;
}

static enum answer check_effect_key(
	const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	static const char *const words[] = { "auto", "target", "git-refs", "body" };

	for (size_t i = 0; i < ELEMENTSOF(words); i++)
		if (strcmp(text, words[i]) == 0)
			return FINE;
	if (strncmp(text, "header:", 7) == 0)
		return is_token(text + 7) ? FINE : WRONG;
	if (strncmp(text, "json:/", 6) == 0)
		return strlen(text) <= 512 && !has_controls(text) && json_pointer_valid(text + 5) ? FINE : WRONG;
	return WRONG;
}

/* One row a type: `wanted` completes "this must be ...". */
static const struct type_row {
	const char *name;
	const char *wanted;
	const char *example;
	check_fn check;		/* of types that are strings */
	bool bounds;
} types[SPEC_N_TYPES] = {
	[SPEC_OBJECT] = { "object", "an object", "{}", NULL, false },
	[SPEC_LIST] = { "list", "a list", "[]", NULL, true },
	[SPEC_MAP] = { "map", "an object", "{}", NULL, true },
	[SPEC_BOOLEAN] = { "boolean", "true or false", NULL, NULL, false },
	[SPEC_INTEGER] = { "integer", "a whole number", NULL, NULL, true },
	[SPEC_DECIMAL] = { "decimal", "a number with at most three decimal places", "1.5", NULL, true },
	[SPEC_SIZE] = { "size", "a size: bytes, or KiB, MiB, GiB, TiB", "\"512MiB\"", NULL, true },
	[SPEC_DURATION] = { "duration", "a duration in ms, s, m, h or d, or whole seconds", "\"90s\"", NULL, true },
	[SPEC_DURATION_OFF] = { "duration or off", "a duration in ms, s, m, h or d, whole seconds, or \"off\"",
		"\"90s\"", NULL, true },
	[SPEC_ENUM] = { "enum", "one of the words", NULL, NULL, false },
	[SPEC_TEXT] = { "text", "one line of text", NULL, check_text, true },
	[SPEC_VALUE] = { "value", "text", NULL, check_value, true },
	[SPEC_NAME] = { "name", "a name of letters, digits, `.`, `_`, `-` that begins with neither `.` nor `-`",
		"\"task-1\"", check_name, false },
	[SPEC_USER] = { "user", "\"agent\", \"root\", or a uid from 0 to 65535", NULL, check_user, false },
	[SPEC_HOST_PATH] = { "host path", "an absolute path on the host", "\"/srv/app\"", check_host_path, false },
	[SPEC_BOX_PATH] = { "box path", "an absolute path in the box", "\"/workspace\"", check_box_path, false },
	[SPEC_TARGET] = { "mount target", "an absolute path in the box", "\"/opt/tools\"", check_target, false },
	[SPEC_GLOB] = { "glob", "a path or pattern below the workspace", "\"dist/**\"", check_glob, true },
	[SPEC_VARIABLE] = { "variable", "the name of a variable, without `=`", "\"LANG\"", check_variable, false },
	[SPEC_HOSTNAME] = { "host name", "a host name of letters, digits and inner hyphens, at most 64 bytes",
		"\"agentbox\"", check_hostname, false },
	[SPEC_HOST] = { "host", "a host name, or `*.` and a host name", "\"*.example.test\"", check_host, false },
	[SPEC_CIDR] = { "cidr", "an address and the length of its prefix", "\"192.0.2.0/24\"", check_cidr, false },
	[SPEC_ADDRESS] = { "address", "a literal address", "\"127.0.0.1\"", check_address, false },
	[SPEC_METHOD] = { "method", "an HTTP method in upper case", "\"GET\"", check_method, false },
	[SPEC_URL_PATH] = { "url path", "a path that begins with `/`", "\"/api/**\"", check_url_path, false },
	[SPEC_TOKEN] = { "token", "a name of letters, digits and `-`", "\"X-Api-Key\"", check_token, false },
	[SPEC_EFFECT_KEY] = { "effect key",
		"auto, target, git-refs, body, header:NAME or json:/POINTER", "\"header:X-Request-Id\"",
		check_effect_key, false },
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

static int check_string(const struct spec_key *key, const char *text, struct json **retnormal,
	struct type_fault *fault)
{
	_cleanup_(freep) char *normal = NULL;
	const char *why = text[0] ? "not what this key takes" : "empty";

	switch (types[key->type].check(key, text, &normal, &why)) {
	case FINE:
		return 0;
	case NORMALIZED:
		*retnormal = json_new_string(normal);
		return *retnormal ? 0 : ABOX_E_MEMORY;
	case NO_MEMORY:
		return ABOX_E_MEMORY;
	case WRONG:
		break;
	}
	fault_put(fault, key, why);
	return ABOX_E_INVALID;
}

static bool takes_integer(enum spec_type type)
{
	return type == SPEC_INTEGER || type == SPEC_SIZE || type == SPEC_DURATION || type == SPEC_DURATION_OFF ||
		type == SPEC_USER;
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
	if (!types[key->type].check)
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
	return parse_digits(&text, &value) && !*text ? value : 0;
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
