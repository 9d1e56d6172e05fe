/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Buffers: one piece of memory each, moved to its front when room is wanted, given back when empty. */
#include "egress/buffer.h"

#include <stdlib.h>
#include <string.h>

char *buffer_room(struct buffer *buffer, size_t len)
{
	size_t used = buffer_len(buffer), need, size = buffer->size ? buffer->size : 1024;
	char *data;

	if (buffer->size - buffer->end >= len && buffer->data)
		return buffer->data + buffer->end;
	if (buffer->start > 0) {
		memmove(buffer->data, buffer->data + buffer->start, used);
		buffer->start = 0;
		buffer->end = used;
		if (buffer->size - buffer->end >= len)
			return buffer->data + buffer->end;
	}
	if (!size_add(used, len, &need))
		return NULL;
	while (size < need)
		if (!size_mul(size, 2, &size))
			return NULL;
	data = buffer->secret ? malloc(size) : realloc(buffer->data, size);
	if (!data)
		return NULL;
	if (buffer->secret && buffer->data) {
		memcpy(data, buffer->data, buffer->end);
		explicit_bzero(buffer->data, buffer->size);
		free(buffer->data);
	}
	buffer->data = data;
	buffer->size = size;
	return data + buffer->end;
}

void buffer_grow(struct buffer *buffer, size_t len)
{
	buffer->end += len;
}

void buffer_take(struct buffer *buffer, size_t len)
{
	buffer->start += len;
	if (buffer->start == buffer->end)
		buffer->start = buffer->end = 0;
}

bool buffer_add(struct buffer *buffer, const void *data, size_t len)
{
	char *room = buffer_room(buffer, len);

	if (!room)
		return false;
	if (len)
		memcpy(room, data, len);
	buffer_grow(buffer, len);
	return true;
}

void buffer_clear(struct buffer *buffer, bool wipe)
{
	if ((wipe || buffer->secret) && buffer->data)
		explicit_bzero(buffer->data, buffer->size);
	free(buffer->data);
	*buffer = (struct buffer){ 0 };
}
