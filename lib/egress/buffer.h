/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Bytes on their way. Empty buffers hold no memory: a connection that is idle costs next to nothing. */
#ifndef EGRESS_BUFFER_H
#define EGRESS_BUFFER_H

#include "base/macro.h"

struct buffer {
	char *data;
	size_t start, end, size;
	bool secret; /* overwritten whenever its memory is given back; until it is cleared */
};

static inline size_t buffer_len(const struct buffer *buffer)
{
	return buffer->end - buffer->start;
}
static inline char *buffer_at(const struct buffer *buffer)
{
	return buffer->data ? buffer->data + buffer->start : (char *)"";
}
/* Room for so many bytes behind what is there; NULL: no memory. buffer_grow() then says how many were
 * written. */
char *buffer_room(struct buffer *buffer, size_t len);
void buffer_grow(struct buffer *buffer, size_t len);
void buffer_take(struct buffer *buffer, size_t len); /* from the front */
bool buffer_add(struct buffer *buffer, const void *data, size_t len);
/* With `wipe` what was in it is overwritten: it may have held a credential. */
void buffer_clear(struct buffer *buffer, bool wipe);

#endif
