/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * LZ4 in the framing that kernels use ("legacy"): a magic number, then blocks, each with its packed length before it.
 * Only unpacking. Promises that no input makes it read or write outside of what it was given.
 */
#include "machine/machine.h"

#include <string.h>

#define MAGIC 0x184C2102U
#define MIN_MATCH 4

struct reader {
	const uint8_t *data;
	size_t len, at;
};

static bool take_u32(struct reader *reader, uint32_t *ret)
{
	const uint8_t *p = reader->data + reader->at;

	if (reader->len - reader->at < 4)
		return false;
	*ret = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
	reader->at += 4;
	return true;
}

/* A length of 15 goes on in the bytes that follow, each 255 but the last. */
static bool take_length(struct reader *reader, size_t *length)
{
	uint8_t byte;

	if (*length != 15)
		return true;
	do {
		if (reader->at == reader->len)
			return false;
		byte = reader->data[reader->at++];
		if (!size_add(*length, byte, length))
			return false;
	} while (byte == 255);
	return true;
}

/* `from` may lie so near that the copy feeds on itself: bytes repeat then. */
static void copy_match(uint8_t *to, size_t distance, size_t length)
{
	const uint8_t *from = to - distance;

	if (distance >= length) {
		memcpy(to, from, length);
		return;
	}
	while (length-- > 0)
		*to++ = *from++;
}

/* One block. Bytes written, or -1. What was written before it may be referred to, up to 64 KiB back. */
static ptrdiff_t unpack_block(const uint8_t *data, size_t len, uint8_t *begin, size_t done, size_t size)
{
	struct reader reader = { data, len, 0 };
	size_t at = done;

	while (reader.at < reader.len) {
		uint8_t token = reader.data[reader.at++];
		size_t length = token >> 4, distance;

		if (!take_length(&reader, &length) || length > reader.len - reader.at || length > size - at)
			return -1;
		memcpy(begin + at, reader.data + reader.at, length);
		reader.at += length;
		at += length;
		if (reader.at == reader.len)
			break;	/* the last sequence has literals only */
		if (reader.len - reader.at < 2)
			return -1;
		distance = (size_t)reader.data[reader.at] | (size_t)reader.data[reader.at + 1] << 8;
		reader.at += 2;
		length = token & 15;
		if (!take_length(&reader, &length) || !size_add(length, MIN_MATCH, &length) ||
			length > size - at || distance == 0 || distance > at)
			return -1;
		copy_match(begin + at, distance, length);
		at += length;
	}
	return (ptrdiff_t)(at - done);
}

ptrdiff_t machine_lz4(const uint8_t *data, size_t len, uint8_t *ret, size_t size)
{
	struct reader reader = { data, len, 0 };
	size_t done = 0;
	uint32_t word;

	if (!take_u32(&reader, &word) || word != MAGIC)
		return -1;
	while (reader.at < reader.len) {
		ptrdiff_t n;

		if (!take_u32(&reader, &word))
			return -1;
		if (word == MAGIC)
			continue;	/* one frame behind another */
		if (word > reader.len - reader.at)
			return -1;
		n = unpack_block(reader.data + reader.at, word, ret, done, size);
		if (n < 0)
			return -1;
		reader.at += word;
		done += (size_t)n;
	}
	return (ptrdiff_t)done;
}
