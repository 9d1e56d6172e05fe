/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Texts of keys: names, paths, hosts, patterns. Each comes from outside and is judged byte by byte; what has
 * more than one spelling is brought to one, so that comparing texts is comparing what they mean.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "spec/types.h"

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

static bool length_fits(const struct spec_key *key, const char *text)
{
	size_t len = strlen(text);

	return len >= key->min && len <= key->max;
}

static enum text_answer check_text(
	const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	if (!length_fits(key, text))
		return TEXT_WRONG;
	if (has_controls(text)) {
		*retwhy = "control characters are not allowed";
		return TEXT_WRONG;
	}
	return TEXT_FINE;
}

static enum text_answer check_value(
	const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	return length_fits(key, text) ? TEXT_FINE : TEXT_WRONG;
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

static enum text_answer check_name(
	const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	return is_name(text, key->max ? key->max : 128) ? TEXT_FINE : TEXT_WRONG;
}

static enum text_answer check_user(
	const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	return strcmp(text, "agent") == 0 || strcmp(text, "root") == 0 ? TEXT_FINE : TEXT_WRONG;
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

static enum text_answer check_host_path(
	const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	return is_path(text, retwhy) ? TEXT_FINE : TEXT_WRONG;
}

static enum text_answer check_box_path(
	const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	if (!is_path(text, retwhy))
		return TEXT_WRONG;
	if (path_is_normal(text))
		return TEXT_FINE;
	return path_normalize(text, rettext) < 0 ? TEXT_NO_MEMORY : TEXT_NORMALIZED;
}

/*
 * Security: a mount over `/`, /proc, /dev or /sys, or into them, would replace or undo what the wall puts
 * there.
 */
static enum text_answer check_target(
	const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	static const char *const taken[] = { "/proc", "/dev", "/sys" };
	enum text_answer answer = check_box_path(key, text, rettext, retwhy);
	const char *path = answer == TEXT_NORMALIZED ? *rettext : text;

	if (answer == TEXT_WRONG || answer == TEXT_NO_MEMORY)
		return answer;
	if (strcmp(path, "/") == 0) {
		*retwhy = "the root itself cannot be a target";
		return TEXT_WRONG;
	}
	for (size_t i = 0; i < ELEMENTSOF(taken); i++) {
		if (path_is_under(path, taken[i])) {
			*retwhy = "the wall makes what is there";
			return TEXT_WRONG;
		}
	}
	return answer;
}

static enum text_answer check_glob(
	const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	size_t len = strlen(text);

	if (!length_fits(key, text) || text[0] == '/')
		return TEXT_WRONG;
	if (has_controls(text) || has_dotdot(text)) {
		*retwhy = "control characters and `..` are not allowed";
		return TEXT_WRONG;
	}
	if (text[len - 1] == '/') {
		*retwhy = "a folder is written with `/**` at its end";
		return TEXT_WRONG;
	}
	return strstr(text, "//") || strncmp(text, "./", 2) == 0 || strstr(text, "/./") ? TEXT_WRONG
											: TEXT_FINE;
}

static bool is_variable(const char *text)
{
	size_t len = strlen(text);

	return len > 0 && len <= 255 && !strchr(text, '=') && !has_controls(text);
}

static enum text_answer check_variable(
	const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	return is_variable(text) ? TEXT_FINE : TEXT_WRONG;
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

static enum text_answer check_hostname(
	const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	size_t labels;

	return is_dns_name(text, 64, &labels) ? TEXT_FINE : TEXT_WRONG;
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

static enum text_answer lower_case(const char *text, char **rettext)
{
	bool changed = false;
	char *copy = strdup(text);

	if (!copy)
		return TEXT_NO_MEMORY;
	for (char *s = copy; *s; s++) {
		if (*s >= 'A' && *s <= 'Z') {
			*s = (char)(*s | 32);
			changed = true;
		}
	}
	if (!changed) {
		free(copy);
		return TEXT_FINE;
	}
	*rettext = copy;
	return TEXT_NORMALIZED;
}

/* Security: names and addresses are never matched by the same rule, however the address is spelt. */
static enum text_answer check_host(
	const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	const char *name = strncmp(text, "*.", 2) == 0 ? text + 2 : text;
	size_t labels;

	for (const char *s = text; *s; s++) {
		if ((unsigned char)*s >= 0x80) {
			*retwhy = "names beyond ASCII are written in their xn-- form";
			return TEXT_WRONG;
		}
	}
	if (ends_in_number(text) || strchr(text, ':')) {
		*retwhy = "addresses are written as `cidr`, ports as `ports`";
		return TEXT_WRONG;
	}
	if (!is_dns_name(name, 253, &labels))
		return TEXT_WRONG;
	if (labels < 2) {
		*retwhy = "a name of one label reaches nothing from inside a box";
		return TEXT_WRONG;
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

static enum text_answer check_address(
	const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	unsigned char bytes[16];
	size_t len;

	return parse_address(text, bytes, &len) ? TEXT_FINE : TEXT_WRONG;
}

static bool is_mapped(const unsigned char *bytes, size_t len)
{
	static const unsigned char prefix[12] = { [10] = 0xff, [11] = 0xff };

	return len == 16 && memcmp(bytes, prefix, sizeof(prefix)) == 0;
}

static enum text_answer check_cidr(
	const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	const char *slash = strchr(text, '/'), *rest = slash ? slash + 1 : NULL;
	char address[INET6_ADDRSTRLEN] = "";
	unsigned char bytes[16];
	uint64_t bits;
	size_t len;

	if (!slash || (size_t)(slash - text) >= sizeof(address))
		return TEXT_WRONG;
	memcpy(address, text, (size_t)(slash - text));
	if (!parse_address(address, bytes, &len) || !type_parse_digits(&rest, &bits) || *rest ||
		bits > len * 8)
		return TEXT_WRONG;
	if (is_mapped(bytes, len)) {
		*retwhy = "a mapped address is written as IPv4";
		return TEXT_WRONG;
	}
	for (size_t bit = bits; bit < len * 8; bit++) {
		if (bytes[bit / 8] & (0x80 >> bit % 8)) {
			*retwhy = "bits are set behind the prefix";
			return TEXT_WRONG;
		}
	}
	return TEXT_FINE;
}

static enum text_answer check_method(
	const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	size_t len = strlen(text);

	if (len == 0 || len > 32)
		return TEXT_WRONG;
	for (; *text; text++)
		if ((*text < 'A' || *text > 'Z') && *text != '-')
			return TEXT_WRONG;
	return TEXT_FINE;
}

static bool is_hex(char c)
{
	return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f');
}

static bool is_escape(const char *text)
{
	return is_hex(text[1]) && is_hex(text[2]);
}

static enum text_answer check_url_path(
	const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	if (text[0] != '/' || strlen(text) > 2048)
		return TEXT_WRONG;
	if (has_dotdot(text)) {
		*retwhy = "`..` is not allowed";
		return TEXT_WRONG;
	}
	for (; *text; text++) {
		if (*text <= 0x20 || *text >= 0x7f || *text == '?' || *text == '#') {
			*retwhy = "blanks, `?`, `#` and bytes beyond ASCII are not allowed";
			return TEXT_WRONG;
		}
		/* Security: a pattern that no request can match would deny nothing. */
		if (*text == '%' &&
			(!is_escape(text) || memcmp(text + 1, "00", 2) == 0 ||
				(memcmp(text + 1, "25", 2) == 0 && is_escape(text + 2)))) {
			*retwhy = "`%` begins an escape like %2F, once";
			return TEXT_WRONG;
		}
	}
	return TEXT_FINE;
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

static enum text_answer check_token(
	const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	return is_token(text) ? TEXT_FINE : TEXT_WRONG;
}

static enum text_answer check_effect_key(
	const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	static const char *const words[] = { "auto", "target", "git-refs", "body" };

	for (size_t i = 0; i < ELEMENTSOF(words); i++)
		if (strcmp(text, words[i]) == 0)
			return TEXT_FINE;
	if (strncmp(text, "header:", 7) == 0)
		return is_token(text + 7) ? TEXT_FINE : TEXT_WRONG;
	if (strncmp(text, "json:/", 6) == 0)
		return strlen(text) <= 512 && !has_controls(text) && json_pointer_valid(text + 5)
			       ? TEXT_FINE
			       : TEXT_WRONG;
	return TEXT_WRONG;
}

typedef enum text_answer (*check_fn)(
	const struct spec_key *key, const char *text, char **rettext, const char **retwhy);

static const check_fn checks[SPEC_N_TYPES] = {
	[SPEC_TEXT] = check_text,
	[SPEC_VALUE] = check_value,
	[SPEC_NAME] = check_name,
	[SPEC_USER] = check_user,
	[SPEC_HOST_PATH] = check_host_path,
	[SPEC_BOX_PATH] = check_box_path,
	[SPEC_TARGET] = check_target,
	[SPEC_GLOB] = check_glob,
	[SPEC_VARIABLE] = check_variable,
	[SPEC_HOSTNAME] = check_hostname,
	[SPEC_HOST] = check_host,
	[SPEC_CIDR] = check_cidr,
	[SPEC_ADDRESS] = check_address,
	[SPEC_METHOD] = check_method,
	[SPEC_URL_PATH] = check_url_path,
	[SPEC_TOKEN] = check_token,
	[SPEC_EFFECT_KEY] = check_effect_key,
};

bool text_type(enum spec_type type)
{
	return checks[type] != NULL;
}

enum text_answer text_check(const struct spec_key *key, const char *text, char **rettext, const char **retwhy)
{
	return checks[key->type](key, text, rettext, retwhy);
}
