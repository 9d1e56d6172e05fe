/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads a ClientHello. Records are stripped as they come, the message is read once it is whole. What is not
 * exactly of the form is bad: a hello that another reader would take differently must not pass.
 */
#include "egress/hello.h"

#include <stdlib.h>
#include <string.h>

enum {
	RECORD_HANDSHAKE = 22,
	RECORD_MAX = 16384,
	MESSAGE_CLIENT_HELLO = 1,
	EXTENSION_NAME = 0,
	EXTENSION_ALPN = 16,
	EXTENSION_ECH = 0xfe0d,
	EXTENSIONS_MAX = 128,
};

void hello_init(struct hello *hello)
{
	memset(hello, 0, sizeof(*hello));
}

void hello_clear(struct hello *hello)
{
	free(hello->message);
	hello_init(hello);
}

/* A cursor that never leaves its bytes: reads beyond give zeros and `bad`. */
struct cursor {
	const uint8_t *data;
	size_t len;
	bool bad;
};

static unsigned int take(struct cursor *cursor, size_t width)
{
	unsigned int value = 0;

	if (cursor->len < width) {
		cursor->bad = true;
		cursor->len = 0;
		return 0;
	}
	for (size_t i = 0; i < width; i++)
		value = value << 8 | cursor->data[i];
	cursor->data += width;
	cursor->len -= width;
	return value;
}

/* A piece with its length before it. */
static struct cursor take_piece(struct cursor *cursor, size_t width)
{
	size_t len = take(cursor, width);
	struct cursor piece = { cursor->data, len, false };

	if (cursor->bad || len > cursor->len) {
		cursor->bad = true;
		return (struct cursor){ (const uint8_t *)"", 0, true };
	}
	cursor->data += len;
	cursor->len -= len;
	return piece;
}

static bool read_name(struct hello *hello, struct cursor extension)
{
	struct cursor list = take_piece(&extension, 2), name;
	unsigned int type = take(&list, 1);

	name = take_piece(&list, 2);
	/* Security: one name of the one type there is; with two, each reader would take its own. */
	if (extension.bad || extension.len || list.bad || list.len || type != 0 || name.len == 0 ||
		name.len > HELLO_NAME_MAX || memchr(name.data, 0, name.len))
		return false;
	memcpy(hello->name, name.data, name.len);
	hello->name[name.len] = 0;
	return true;
}

static bool read_alpn(struct hello *hello, struct cursor extension)
{
	struct cursor list = take_piece(&extension, 2);

	hello->has_alpn = true;
	while (!list.bad && list.len > 0) {
		struct cursor name = take_piece(&list, 1);

		if (name.len == 0)
			return false;
		if (name.len == 8 && memcmp(name.data, "http/1.1", 8) == 0)
			hello->alpn_http1 = true;
	}
	return !list.bad && !extension.bad && extension.len == 0;
}

static bool read_extensions(struct hello *hello, struct cursor list)
{
	uint16_t seen[EXTENSIONS_MAX];
	size_t n_seen = 0;

	while (list.len > 0) {
		unsigned int type = take(&list, 2);
		struct cursor extension = take_piece(&list, 2);

		if (list.bad || n_seen == EXTENSIONS_MAX)
			return false;
		for (size_t i = 0; i < n_seen; i++)
			if (seen[i] == type)
				return false;
		seen[n_seen++] = (uint16_t)type;
		if (type == EXTENSION_NAME && !read_name(hello, extension))
			return false;
		if (type == EXTENSION_ALPN && !read_alpn(hello, extension))
			return false;
		if (type == EXTENSION_ECH)
			hello->ech = true;
	}
	return true;
}

static bool read_message(struct hello *hello)
{
	struct cursor cursor = { hello->message + 4, hello->len - 4, false };
	struct cursor session, ciphers, compressions, extensions;

	take(&cursor, 2);
	for (int i = 0; i < 8; i++)
		take(&cursor, 4); /* random */
	session = take_piece(&cursor, 1);
	ciphers = take_piece(&cursor, 2);
	compressions = take_piece(&cursor, 1);
	if (cursor.bad || session.len > 32 || ciphers.len < 2 || ciphers.len % 2 || compressions.len == 0)
		return false;
	if (cursor.len == 0)
		return true; /* no extensions: an old client */
	extensions = take_piece(&cursor, 2);
	return !cursor.bad && cursor.len == 0 && read_extensions(hello, extensions);
}

static bool append(struct hello *hello, const uint8_t *data, size_t len)
{
	if (hello->len + len > hello->allocated) {
		size_t size = hello->allocated ? hello->allocated : 1024;
		uint8_t *grown;

		while (size < hello->len + len)
			size *= 2;
		grown = realloc(hello->message, size);
		if (!grown)
			return false;
		hello->message = grown;
		hello->allocated = size;
	}
	memcpy(hello->message + hello->len, data, len);
	hello->len += len;
	return true;
}

/* Length of the message with its head, 0 as long as that is not known. */
static size_t message_size(const struct hello *hello)
{
	const uint8_t *p = hello->message;

	return hello->len < 4 ? 0 : 4 + ((size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3]);
}

static enum hello_answer feed_record(struct hello *hello, const uint8_t *data, size_t len)
{
	size_t size;

	if (!append(hello, data, len))
		return HELLO_BAD;
	if (hello->message[0] != MESSAGE_CLIENT_HELLO)
		return HELLO_BAD;
	size = message_size(hello);
	if (size > HELLO_MAX)
		return HELLO_BAD;
	if (size == 0 || hello->len < size)
		return HELLO_MORE;
	/* Security: nothing but the hello may be in its last record. */
	if (hello->len > size || hello->record_left > len)
		return HELLO_BAD;
	return read_message(hello) ? HELLO_DONE : HELLO_BAD;
}

static enum hello_answer head_byte(struct hello *hello, uint8_t byte)
{
	size_t i = hello->record_len;

	hello->record[hello->record_len++] = byte;
	if (i == 0 && byte != RECORD_HANDSHAKE)
		return hello->total == 0 ? HELLO_OTHER : HELLO_BAD;
	if (i == 1 && byte != 3)
		return hello->total == 0 ? HELLO_OTHER : HELLO_BAD;
	if (i == 2 && byte > 4)
		return HELLO_BAD;
	if (i < 4)
		return HELLO_MORE;
	hello->record_left = (size_t)hello->record[3] << 8 | hello->record[4];
	hello->record_len = 0;
	return hello->record_left == 0 || hello->record_left > RECORD_MAX ? HELLO_BAD : HELLO_MORE;
}

enum hello_answer hello_feed(struct hello *hello, const void *data, size_t len)
{
	const uint8_t *p = data, *end = p + len;

	while (hello->answer == HELLO_MORE && p < end) {
		size_t n = MIN((size_t)(end - p), hello->record_left);

		if (n == 0) {
			hello->answer = head_byte(hello, *p++);
			continue;
		}
		hello->answer = feed_record(hello, p, n);
		hello->record_left -= n;
		hello->total += n;
		p += n;
		if (hello->answer == HELLO_MORE && hello->total > HELLO_MAX)
			hello->answer = HELLO_BAD;
	}
	/* Clients wait for an answer before they go on; what follows a hello at once is early data, which is
	 * the relay's. */
	return hello->answer;
}
