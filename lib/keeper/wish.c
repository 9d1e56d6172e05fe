/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reading a wish. Promises that every text and list of it lies within the blob; whether it can be granted is
 * exec.c's.
 */
#include "keeper/wish.h"

#include <stdlib.h>

#include <agentbox/error.h>

#include "base/memfd.h"
#include "base/pack.h"

#define MAX_STRINGS 131072

static int take_list(struct pack_reader *reader, const char ***ret, struct fault *fault)
{
	uint32_t n = unpack_count(reader, sizeof(uint32_t) + 1);
	const char **list;

	if (reader->failed || n > MAX_STRINGS)
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "exec", "not a list of texts");
	list = calloc((size_t)n + 1, sizeof(*list));
	if (!list)
		return fault_set(fault, ABOX_E_MEMORY, 0, "exec", "no memory for it");
	for (uint32_t i = 0; i < n; i++)
		list[i] = unpack_string(reader);
	*ret = list;
	return 0;
}

/* FNV-1a twice, from two beginnings. */
static struct fingerprint fingerprint_of(const uint8_t *data, size_t len)
{
	struct fingerprint print = { 0xcbf29ce484222325ULL, 0x9ae16a3b2f90404fULL, len };

	for (size_t i = 0; i < len; i++) {
		print.low = (print.low ^ data[i]) * 0x100000001b3ULL;
		print.high = (print.high ^ (uint8_t)~data[i]) * 0x100000001b3ULL;
	}
	return print;
}

int wish_read(struct wish *wish, const void *blob, size_t len, struct fault *fault)
{
	struct pack_reader reader = PACK_READER(blob, len);
	size_t argv_at;
	int r;

	wish->token = unpack_string(&reader);
	argv_at = reader.offset;
	r = take_list(&reader, &wish->argv, fault);
	if (r < 0)
		return r;
	if (wish->token[0])
		wish->fingerprint = fingerprint_of((const uint8_t *)blob + argv_at, reader.offset - argv_at);
	r = take_list(&reader, &wish->env, fault);
	if (r < 0)
		return r;
	wish->cwd = unpack_string(&reader);
	wish->user = unpack_string(&reader);
	wish->stdin_mode = unpack_u32(&reader);
	wish->stdout_mode = unpack_u32(&reader);
	wish->stderr_mode = unpack_u32(&reader);
	wish->join_stderr = unpack_u8(&reader);
	wish->pty = unpack_u8(&reader);
	wish->rows = unpack_u32(&reader);
	wish->columns = unpack_u32(&reader);
	wish->survivors = unpack_u32(&reader);
	wish->output_kill = unpack_u8(&reader);
	wish->timeout_usec = unpack_u64(&reader);
	wish->grace_usec = unpack_u64(&reader);
	wish->output_bytes = unpack_u64(&reader);
	wish->memory_bytes = unpack_u64(&reader);
	wish->pids = unpack_u64(&reader);
	wish->cpu_usec = unpack_u64(&reader);
	wish->file_bytes = unpack_u64(&reader);
	wish->open_files = unpack_u32(&reader);
	if (!unpack_done(&reader))
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "exec", "not a command");
	return 0;
}

void wish_clear(struct wish *wish)
{
	free(wish->argv);
	free(wish->env);
	if (wish->mapped)
		memfd_unmap(wish->mapped, wish->mapped_len);
}
