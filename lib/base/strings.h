/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef BASE_STRINGS_H
#define BASE_STRINGS_H

#include "base/macro.h"

/*
 * A growing text. A failed allocation is remembered and told once, by text_take() or text.failed; until then
 * every call is safe. `data` is NUL-terminated whenever it is not NULL.
 */
struct text {
	char *data;
	size_t len;
	size_t allocated;
	bool failed;
};
#define TEXT_INIT ((struct text){ 0 })

void text_add(struct text *text, const char *string);
void text_add_bytes(struct text *text, const void *data, size_t len);
/* Room for so many bytes behind the text, to be filled there and then added by text_grow(). NULL: no memory, as for the
 * others. */
char *text_room(struct text *text, size_t len);
void text_grow(struct text *text, size_t len);	/* at most what there is room for */
void text_printf(struct text *text, const char *format, ...) _printf_(2, 3);
/* For one line on a terminal: C0, DEL, C1 and bytes that are not UTF-8 become \xHH. */
void text_add_escaped(struct text *text, const char *data, size_t len);
/* A JSON string with quotes, pure ASCII outside of valid UTF-8. A byte that is not UTF-8 becomes U+DC80+byte-0x80
 * (\udcXX), the convention of PEP 383, so that any byte string survives; U+2028 and U+2029 are escaped. */
void text_add_json(struct text *text, const char *data, size_t len);
int text_take(struct text *text, char **rettext);	/* 0 or ABOX_E_MEMORY; the text is empty afterwards */
void text_clear(struct text *text);

/* Length of the valid UTF-8 character at data (1-4), or 0 when the bytes are not one. Shortest form only. */
size_t utf8_char_len(const char *data, size_t len);

void hex_encode(const void *data, size_t len, char *ret);	/* ret has 2 * len + 1 bytes */
int hex_decode(const char *hex, void *ret, size_t len);		/* hex has exactly 2 * len digits; 0 or ABOX_E_SYNTAX */

bool string_starts_with(const char *string, const char *prefix);
static inline bool string_empty(const char *string)
{
	return !string || !string[0];
}

#endif
