/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Heads. What is refused, and why: lines that end in a bare line feed, folded lines, blanks before a colon,
 * more than one Host or Content-Length, a length with anything but digits, any transfer coding but `chunked`,
 * both kinds of length at once, names that some servers take for those with `-` in place of `_`, and a
 * Connection field that names what is not for one connection. Each of these has been read differently by two
 * programs, which is how a request is smuggled into another.
 */
#include "egress/http.h"

#include <string.h>
#include <strings.h>

static bool is_token(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_value(char c)
{
	return c == '\t' || ((unsigned char)c >= 0x20 && c != 0x7f);
}

bool http_is(struct http_text text, const char *word)
{
	return strlen(word) == text.len && strncasecmp(text.data, word, text.len) == 0;
}

const struct http_field *http_find(const struct http_head *head, const char *name)
{
	for (size_t i = 0; i < head->n_fields; i++)
		if (http_is(head->fields[i].name, name))
			return &head->fields[i];
	return NULL;
}

long http_head_find(const char *data, size_t len, size_t *scanned)
{
	for (size_t i = *scanned; i < len; i++) {
		char c = data[i];

		if (c == '\n') {
			if (i == 0 || data[i - 1] != '\r')
				return -1;
			if (i == 1 || (i >= 3 && data[i - 2] == '\n'))
				return (long)i + 1;
		} else if (i > 0 && data[i - 1] == '\r') {
			return -1;
		} else if (c != '\r' && !is_value(c)) {
			return -1;
		}
		*scanned = i + 1;
	}
	return 0;
}

/* The next line, without its end. */
static bool next_line(struct http_text *rest, struct http_text *ret)
{
	const char *end = memchr(rest->data, '\r', rest->len);

	if (!end || (size_t)(end - rest->data) + 1 >= rest->len)
		return false;
	*ret = (struct http_text){ rest->data, (size_t)(end - rest->data) };
	rest->data += ret->len + 2;
	rest->len -= ret->len + 2;
	return true;
}

static struct http_text trim(struct http_text text)
{
	while (text.len > 0 && (text.data[0] == ' ' || text.data[0] == '\t')) {
		text.data++;
		text.len--;
	}
	while (text.len > 0 && (text.data[text.len - 1] == ' ' || text.data[text.len - 1] == '\t'))
		text.len--;
	return text;
}

/* Names that decide where a message ends or whom it is for. */
static bool is_framing(struct http_text name)
{
	return http_is(name, "content-length") || http_is(name, "transfer-encoding") || http_is(name, "host");
}

static bool is_disguised(struct http_text name)
{
	char plain[32];

	if (name.len >= sizeof(plain) || !memchr(name.data, '_', name.len))
		return false;
	for (size_t i = 0; i < name.len; i++)
		plain[i] = name.data[i] == '_' ? '-' : name.data[i];
	return is_framing((struct http_text){ plain, name.len });
}

static const char *read_fields(struct http_text rest, struct http_head *head)
{
	struct http_text line;

	while (next_line(&rest, &line)) {
		struct http_field *field = &head->fields[head->n_fields];
		const char *colon = memchr(line.data, ':', line.len);

		if (line.len == 0)
			return rest.len == 0 ? NULL : "bytes behind the head";
		if (head->n_fields == HTTP_FIELDS_MAX)
			return "too many fields";
		if (!colon || colon == line.data)
			return line.data[0] == ' ' || line.data[0] == '\t' ? "a folded line"
									   : "a line without a name";
		field->name = (struct http_text){ line.data, (size_t)(colon - line.data) };
		for (size_t i = 0; i < field->name.len; i++)
			if (!is_token(field->name.data[i]))
				return "a name that is none";
		if (is_disguised(field->name))
			return "a name that could be taken for another";
		field->value = trim((struct http_text){ colon + 1, line.len - field->name.len - 1 });
		field->hop = false;
		head->n_fields++;
	}
	return "no end of the head";
}

static const char *read_length(struct http_head *head, struct http_text value)
{
	head->length = 0;
	if (value.len == 0 || value.len > 18)
		return "a length that is none";
	for (size_t i = 0; i < value.len; i++) {
		if (value.data[i] < '0' || value.data[i] > '9')
			return "a length that is none";
		head->length = head->length * 10 + (uint64_t)(value.data[i] - '0');
	}
	return NULL;
}

static const char *read_framing(struct http_head *head)
{
	const struct http_field *length = NULL, *coding = NULL;

	for (size_t i = 0; i < head->n_fields; i++) {
		struct http_field *field = &head->fields[i];
		const struct http_field **seen = http_is(field->name, "content-length")      ? &length
						 : http_is(field->name, "transfer-encoding") ? &coding
											     : NULL;

		if (!seen)
			continue;
		if (*seen)
			return "a length given twice";
		*seen = field;
		field->hop = true; /* written anew */
	}
	if (length && coding)
		return "two kinds of length";
	if (coding) {
		if (!http_is(coding->value, "chunked"))
			return "a transfer coding other than chunked";
		if (head->minor == 0)
			return "a transfer coding in HTTP/1.0";
		head->framing = HTTP_CHUNKED;
	}
	if (length) {
		head->framing = HTTP_LENGTH;
		return read_length(head, length->value);
	}
	return NULL;
}

/* The next element of a comma-separated list. */
static bool next_element(struct http_text *list, struct http_text *ret)
{
	const char *comma;

	if (list->len == 0)
		return false;
	comma = memchr(list->data, ',', list->len);
	*ret = (struct http_text){ list->data, comma ? (size_t)(comma - list->data) : list->len };
	list->data += ret->len + (comma ? 1 : 0);
	list->len -= ret->len + (comma ? 1 : 0);
	*ret = trim(*ret);
	return true;
}

static bool is_hop(struct http_text name)
{
	static const char *const names[] = { "connection", "keep-alive", "proxy-connection",
		"proxy-authorization", "proxy-authenticate", "proxy-authentication-info", "te", "upgrade",
		"http2-settings" };

	for (size_t i = 0; i < ELEMENTSOF(names); i++)
		if (http_is(name, names[i]))
			return true;
	return false;
}

static const char *read_connection(struct http_head *head)
{
	bool close = false, keep = false, upgrade = false;
	struct http_text list, name;

	for (size_t i = 0; i < head->n_fields; i++) {
		struct http_field *field = &head->fields[i];

		field->hop = field->hop || is_hop(field->name);
		if (!http_is(field->name, "connection"))
			continue;
		list = field->value;
		while (next_element(&list, &name)) {
			close = close || http_is(name, "close");
			keep = keep || http_is(name, "keep-alive");
			upgrade = upgrade || http_is(name, "upgrade");
			/* Security: what is named here would be dropped on the way; not what decides about
			 * it. */
			if (is_framing(name) || http_is(name, "authorization") || http_is(name, "cookie"))
				return "a Connection field that names what is not for one connection";
			for (size_t k = 0; k < head->n_fields; k++)
				if (name.len == head->fields[k].name.len &&
					strncasecmp(name.data, head->fields[k].name.data, name.len) == 0)
					head->fields[k].hop = true;
		}
	}
	head->keep_alive = !close && (head->minor == 1 || keep);
	head->upgrade = (struct http_text){ "", 0 };
	if (upgrade) {
		const struct http_field *field = http_find(head, "upgrade");

		if (field)
			head->upgrade = field->value;
	}
	return NULL;
}

static bool read_version(struct http_text text, struct http_head *head)
{
	if (text.len != 8 || memcmp(text.data, "HTTP/1.", 7) != 0 ||
		(text.data[7] != '0' && text.data[7] != '1'))
		return false;
	head->minor = (unsigned int)(text.data[7] - '0');
	return true;
}

static void split_path(struct http_head *head, struct http_text text)
{
	const char *mark = text.len ? memchr(text.data, '?', text.len) : NULL;

	head->path = (struct http_text){ text.data, mark ? (size_t)(mark - text.data) : text.len };
	head->query = (struct http_text){ NULL, 0 };
	if (mark)
		head->query = (struct http_text){ mark + 1, text.len - head->path.len - 1 };
}

/* Absolute targets are for proxies; clients behind one send them to us too. */
static const char *read_absolute(struct http_head *head)
{
	static const char *const schemes[] = { "http://", "https://" };
	struct http_text rest = head->target;

	for (size_t i = 0; i < ELEMENTSOF(schemes); i++) {
		size_t len = strlen(schemes[i]), n = 0;

		if (rest.len <= len || strncasecmp(rest.data, schemes[i], len) != 0)
			continue;
		rest.data += len;
		rest.len -= len;
		while (n < rest.len && rest.data[n] != '/' && rest.data[n] != '?')
			n++;
		head->authority = (struct http_text){ rest.data, n };
		rest.data += n;
		rest.len -= n;
		if (n == 0 || memchr(head->authority.data, '@', n))
			return "a target without a host, or with a user";
		split_path(head, rest);
		if (head->path.len == 0)
			head->path = (struct http_text){ "/", 1 };
		return NULL;
	}
	return "a target that is none";
}

static const char *read_target(struct http_head *head)
{
	if (http_is(head->method, "connect"))
		return NULL; /* an authority; nothing here passes it on */
	if (head->target.data[0] == '/') {
		split_path(head, head->target);
		return NULL;
	}
	if (head->target.len == 1 && head->target.data[0] == '*' && http_is(head->method, "options")) {
		split_path(head, head->target);
		return NULL;
	}
	return read_absolute(head);
}

static const char *read_host(struct http_head *head)
{
	const struct http_field *host = NULL;

	for (size_t i = 0; i < head->n_fields; i++) {
		struct http_field *field = &head->fields[i];

		if (!http_is(field->name, "host"))
			continue;
		if (host)
			return "two Host fields";
		host = field;
		for (size_t k = 0; k < host->value.len; k++)
			if (host->value.data[k] <= 0x20 || strchr("/?#@\\,", host->value.data[k]))
				return "a Host that is none";
	}
	if (!host && head->minor == 1)
		return "no Host field";
	if (!host)
		return NULL;
	if (host->value.len == 0)
		return "an empty Host";
	if (head->authority.len == 0)
		head->authority = host->value;
	else if (head->authority.len != host->value.len ||
		 strncasecmp(head->authority.data, host->value.data, host->value.len) != 0)
		return "target and Host disagree";
	return NULL;
}

static const char *read_request_line(struct http_text line, struct http_head *head)
{
	const char *first = memchr(line.data, ' ', line.len), *second;
	size_t rest;

	if (!first || first == line.data)
		return "a request line that is none";
	head->method = (struct http_text){ line.data, (size_t)(first - line.data) };
	rest = line.len - head->method.len - 1;
	second = memchr(first + 1, ' ', rest);
	if (!second || second == first + 1)
		return "a request line that is none";
	head->target = (struct http_text){ first + 1, (size_t)(second - first - 1) };
	if (head->method.len > 32 || head->target.len > HTTP_HEAD_MAX / 2)
		return "a request line that is too long";
	for (size_t i = 0; i < head->method.len; i++)
		if (!is_token(head->method.data[i]))
			return "a method that is none";
	for (size_t i = 0; i < head->target.len; i++)
		if ((unsigned char)head->target.data[i] <= 0x20 || strchr("#\x7f\"<>", head->target.data[i]))
			return "a target that is none";
	if (!read_version((struct http_text){ second + 1, rest - head->target.len - 1 }, head))
		return "a version other than HTTP/1.1 and HTTP/1.0";
	return read_target(head);
}

/* All but the space for fields becomes empty; the first line is taken from what is there. */
static bool begin(struct http_text *rest, struct http_text *retline, struct http_head *head)
{
	memset(head, 0, offsetof(struct http_head, fields));
	head->n_fields = 0;
	head->framing = HTTP_NONE;
	head->length = 0;
	return next_line(rest, retline);
}

const char *http_read_request(const char *data, size_t len, struct http_head *ret, unsigned int *retstatus)
{
	struct http_text rest = { data, len }, line;
	const struct http_field *expect;
	const char *why;

	*retstatus = 400;
	if (!begin(&rest, &line, ret))
		return "no line";
	why = read_request_line(line, ret);
	if (!why)
		why = read_fields(rest, ret);
	if (!why)
		why = read_host(ret);
	if (!why)
		why = read_framing(ret);
	if (!why)
		why = read_connection(ret);
	if (why) {
		if (ret->n_fields == HTTP_FIELDS_MAX)
			*retstatus = 431;
		return why;
	}
	expect = http_find(ret, "expect");
	ret->expects_continue = expect != NULL;
	if (expect && !http_is(expect->value, "100-continue")) {
		*retstatus = 417;
		return "an expectation that is not known";
	}
	return NULL;
}

static const char *read_status_line(struct http_text line, struct http_head *head)
{
	if (line.len < 12 || !read_version((struct http_text){ line.data, 8 }, head) || line.data[8] != ' ')
		return "a status line that is none";
	head->status = 0;
	for (size_t i = 9; i < 12; i++) {
		if (line.data[i] < '0' || line.data[i] > '9')
			return "a status that is none";
		head->status = head->status * 10 + (unsigned int)(line.data[i] - '0');
	}
	if (head->status < 100 || head->status > 599 || (line.len > 12 && line.data[12] != ' '))
		return "a status that is none";
	head->reason = (struct http_text){ line.data + 12, 0 };
	if (line.len > 13)
		head->reason = (struct http_text){ line.data + 13, line.len - 13 };
	return NULL;
}

const char *http_read_answer(const char *data, size_t len, const char *method, struct http_head *ret)
{
	struct http_text rest = { data, len }, line;
	const char *why;

	if (!begin(&rest, &line, ret))
		return "no line";
	why = read_status_line(line, ret);
	if (!why)
		why = read_fields(rest, ret);
	if (!why)
		why = read_framing(ret);
	if (!why)
		why = read_connection(ret);
	if (why)
		return why;
	if (ret->status < 200 || ret->status == 204) {
		if (ret->framing == HTTP_CHUNKED || (ret->framing == HTTP_LENGTH && ret->length > 0))
			return "a body where there is none";
		ret->framing = HTTP_NONE;
	} else if (ret->status == 304 || strcmp(method, "HEAD") == 0) {
		ret->framing =
			HTTP_NONE; /* the length is that of another answer; it is passed on as a field */
	} else if (ret->framing == HTTP_NONE) {
		ret->framing = HTTP_CLOSE;
	}
	if (ret->framing == HTTP_CLOSE)
		ret->keep_alive = false;
	return NULL;
}
