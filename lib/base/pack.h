/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The flat form in which plans and messages travel between processes of one machine: fields one after the other,
 * without padding, integers little-endian, texts and bytes with a 32-bit length before and a NUL behind (not
 * counted). The reader trusts nothing: every length is checked, an error sticks, and reads after it give zeros.
 * No allocation in the reader; what it returns points into the buffer.
 */
#ifndef BASE_PACK_H
#define BASE_PACK_H

#include "base/macro.h"

struct pack_writer {
	uint8_t *data;
	size_t len;
	size_t allocated;
	bool fixed;	/* data is the caller's and does not grow */
	bool failed;
};
#define PACK_WRITER_INIT ((struct pack_writer){ 0 })
#define PACK_WRITER_FIXED(buffer, size) ((struct pack_writer){ .data = (buffer), .allocated = (size), .fixed = true })

void pack_u8(struct pack_writer *writer, uint8_t value);
void pack_u32(struct pack_writer *writer, uint32_t value);
void pack_i32(struct pack_writer *writer, int32_t value);
void pack_u64(struct pack_writer *writer, uint64_t value);
void pack_bytes(struct pack_writer *writer, const void *data, size_t len);
void pack_string(struct pack_writer *writer, const char *string);	/* NULL is written as "" */
void pack_append(struct pack_writer *writer, const struct pack_writer *other);	/* what the other has, as it is */
void pack_strings(struct pack_writer *writer, const char *const *strings);	/* count, then each; NULL-ended input */
void pack_writer_clear(struct pack_writer *writer);
void pack_writer_clearp(struct pack_writer *writer);

struct pack_reader {
	const uint8_t *data;
	size_t len;
	size_t offset;
	bool failed;
};
#define PACK_READER(buffer, size) ((struct pack_reader){ .data = (buffer), .len = (size) })

uint8_t unpack_u8(struct pack_reader *reader);
uint32_t unpack_u32(struct pack_reader *reader);
int32_t unpack_i32(struct pack_reader *reader);
uint64_t unpack_u64(struct pack_reader *reader);
const void *unpack_bytes(struct pack_reader *reader, size_t *retlen);
const char *unpack_string(struct pack_reader *reader);	/* never NULL; a NUL inside is an error */
/* Count of a list whose elements take at least min_size bytes each: a count that cannot fit is an error. */
uint32_t unpack_count(struct pack_reader *reader, size_t min_size);
/* True when nothing failed and everything was read. */
bool unpack_done(const struct pack_reader *reader);

#endif
