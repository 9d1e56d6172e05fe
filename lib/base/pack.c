/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Packing: see pack.h. Both ends are on one machine, yet the reader is written as if the other end were
 * hostile, since one of the ends stands inside the wall.
 */
#include "base/pack.h"

#include <stdlib.h>
#include <string.h>

static uint8_t *writer_reserve(struct pack_writer *writer, size_t more)
{
	size_t need, size = writer->allocated ? writer->allocated : 256;
	uint8_t *data;

	if (writer->failed || !size_add(writer->len, more, &need))
		goto fail;
	if (need > writer->allocated) {
		if (writer->fixed)
			goto fail;
		while (size < need)
			if (!size_mul(size, 2, &size))
				goto fail;
		data = realloc(writer->data, size);
		if (!data)
			goto fail;
		writer->data = data;
		writer->allocated = size;
	}
	data = writer->data + writer->len;
	writer->len = need;
	return data;
fail:
	writer->failed = true;
	return NULL;
}

static void pack_integer(struct pack_writer *writer, uint64_t value, size_t width)
{
	uint8_t *p = writer_reserve(writer, width);

	for (size_t i = 0; p && i < width; i++)
		p[i] = (uint8_t)(value >> (8 * i));
}

void pack_u8(struct pack_writer *writer, uint8_t value)
{
	pack_integer(writer, value, 1);
}

void pack_u32(struct pack_writer *writer, uint32_t value)
{
	pack_integer(writer, value, 4);
}

void pack_i32(struct pack_writer *writer, int32_t value)
{
	pack_integer(writer, (uint32_t)value, 4);
}

void pack_u64(struct pack_writer *writer, uint64_t value)
{
	pack_integer(writer, value, 8);
}

void pack_bytes(struct pack_writer *writer, const void *data, size_t len)
{
	size_t padded;
	uint8_t *p;

	if (len > UINT32_MAX || !size_add(len, 1, &padded)) {
		writer->failed = true;
		return;
	}
	pack_u32(writer, (uint32_t)len);
	p = writer_reserve(writer, padded);
	if (!p)
		return;
	if (len)
		memcpy(p, data, len);
	p[len] = 0;
}

void pack_string(struct pack_writer *writer, const char *string)
{
	pack_bytes(writer, string ? string : "", string ? strlen(string) : 0);
}

void pack_append(struct pack_writer *writer, const struct pack_writer *other)
{
	uint8_t *p = other->failed ? NULL : writer_reserve(writer, other->len);

	if (p)
		memcpy(p, other->data, other->len);
	else
		writer->failed = true;
}

void pack_strings(struct pack_writer *writer, const char *const *strings)
{
	uint32_t n = 0;

	while (strings && strings[n])
		n++;
	pack_u32(writer, n);
	for (uint32_t i = 0; i < n; i++)
		pack_string(writer, strings[i]);
}

void pack_writer_clear(struct pack_writer *writer)
{
	if (!writer->fixed)
		free(writer->data);
	*writer = PACK_WRITER_INIT;
}

void pack_writer_clearp(struct pack_writer *writer)
{
	pack_writer_clear(writer);
}

static const uint8_t *reader_take(struct pack_reader *reader, size_t len)
{
	const uint8_t *p;

	if (reader->failed || len > reader->len - reader->offset) {
		reader->failed = true;
		return NULL;
	}
	p = reader->data + reader->offset;
	reader->offset += len;
	return p;
}

static uint64_t unpack_integer(struct pack_reader *reader, size_t width)
{
	const uint8_t *p = reader_take(reader, width);
	uint64_t value = 0;

	for (size_t i = 0; p && i < width; i++)
		value |= (uint64_t)p[i] << (8 * i);
	return value;
}

uint8_t unpack_u8(struct pack_reader *reader)
{
	return (uint8_t)unpack_integer(reader, 1);
}

uint32_t unpack_u32(struct pack_reader *reader)
{
	return (uint32_t)unpack_integer(reader, 4);
}

int32_t unpack_i32(struct pack_reader *reader)
{
	return (int32_t)(uint32_t)unpack_integer(reader, 4);
}

uint64_t unpack_u64(struct pack_reader *reader)
{
	return unpack_integer(reader, 8);
}

const void *unpack_bytes(struct pack_reader *reader, size_t *retlen)
{
	size_t len = unpack_u32(reader);
	const uint8_t *p = reader_take(reader, len), *nul = reader_take(reader, 1);

	if (!p || !nul || *nul) {
		reader->failed = true;
		*retlen = 0;
		return "";
	}
	*retlen = len;
	return p;
}

const char *unpack_string(struct pack_reader *reader)
{
	size_t len;
	const char *string = unpack_bytes(reader, &len);

	if (strlen(string) != len) {
		reader->failed = true;
		return "";
	}
	return string;
}

uint32_t unpack_count(struct pack_reader *reader, size_t min_size)
{
	uint32_t n = unpack_u32(reader);

	if (reader->failed || (min_size && n > (reader->len - reader->offset) / min_size)) {
		reader->failed = true;
		return 0;
	}
	return n;
}

bool unpack_done(const struct pack_reader *reader)
{
	return !reader->failed && reader->offset == reader->len;
}
