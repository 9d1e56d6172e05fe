/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Slots: from the spec into bytes, and back. */
#include "credential/slot.h"

#include <stdlib.h>
#include <string.h>

#include "spec/spec.h"

static void pack_list(struct pack_writer *writer, const abox_spec *spec, size_t i, const char *key)
{
	size_t n = spec_count(spec, "/credentials/%zu/%s", i, key);

	pack_u32(writer, (uint32_t)n);
	for (size_t k = 0; k < n; k++)
		pack_string(writer, spec_string(spec, "/credentials/%zu/%s/%zu", i, key, k));
}

int slots_pack(const abox_spec *spec, struct pack_writer *writer)
{
	static const uint32_t kinds[] = { [SPEC_PROVIDER_EXEC] = SLOT_EXEC,
		[SPEC_PROVIDER_FILE] = SLOT_FILE,
		[SPEC_PROVIDER_ENV] = SLOT_VARIABLE,
		[SPEC_PROVIDER_CALLBACK] = SLOT_CALLBACK };
	size_t n = spec_count(spec, "/credentials");

	pack_u32(writer, (uint32_t)n);
	for (size_t i = 0; i < n; i++) {
		int kind = spec_enum(spec, "/credentials/%zu/provider/kind", i);

		pack_string(writer, spec_string(spec, "/credentials/%zu/name", i));
		pack_u32(writer, kinds[kind]);
		pack_string(writer, kind == SPEC_PROVIDER_FILE
					    ? spec_string(spec, "/credentials/%zu/provider/path", i)
				    : kind == SPEC_PROVIDER_ENV
					    ? spec_string(spec, "/credentials/%zu/provider/variable", i)
					    : "");
		pack_list(writer, spec, i, "provider/argv");
		pack_list(writer, spec, i, "provider/revoke");
		pack_string(writer, spec_string(spec, "/credentials/%zu/subject", i));
		pack_string(writer, spec_string(spec, "/credentials/%zu/resource", i));
		pack_string(writer, spec_string(spec, "/credentials/%zu/audience", i));
		pack_list(writer, spec, i, "scopes");
		pack_u64(writer, spec_u64(spec, "/credentials/%zu/ttl", i));
	}
	return writer->failed ? ABOX_E_MEMORY : 0;
}

void slot_pack_questions(const struct slot *slot, struct pack_writer *writer)
{
	pack_string(writer, slot->name);
	pack_string(writer, slot->subject);
	pack_string(writer, slot->resource);
	pack_string(writer, slot->audience);
	pack_strings(writer, slot->scopes);
	pack_u64(writer, slot->ttl_usec);
}

static const char *const *unpack_list(struct pack_reader *reader)
{
	uint32_t n = unpack_count(reader, 5);
	const char **list = calloc((size_t)n + 1, sizeof(*list));

	for (uint32_t i = 0; list && i < n; i++)
		list[i] = unpack_string(reader);
	if (!list)
		reader->failed = true;
	return list;
}

struct slot *slots_unpack(struct pack_reader *reader, size_t *retn)
{
	uint32_t n = unpack_count(reader, 44);
	struct slot *slots = n <= SLOTS_MAX ? calloc((size_t)n + 1, sizeof(*slots)) : NULL;

	if (!slots)
		return NULL;
	for (uint32_t i = 0; i < n; i++) {
		struct slot *slot = &slots[i];

		slot->name = unpack_string(reader);
		slot->kind = unpack_u32(reader);
		slot->source = unpack_string(reader);
		slot->argv = unpack_list(reader);
		slot->revoke = unpack_list(reader);
		slot->subject = unpack_string(reader);
		slot->resource = unpack_string(reader);
		slot->audience = unpack_string(reader);
		slot->scopes = unpack_list(reader);
		slot->ttl_usec = unpack_u64(reader);
		if (slot->kind > SLOT_CALLBACK || (slot->kind == SLOT_EXEC && slot->argv && !slot->argv[0]))
			reader->failed = true;
	}
	if (reader->failed)
		return slots_free(slots, n);
	*retn = n;
	return slots;
}

struct slot *slots_free(struct slot *slots, size_t n)
{
	for (size_t i = 0; slots && i < n; i++) {
		free((void *)(uintptr_t)slots[i].argv);
		free((void *)(uintptr_t)slots[i].revoke);
		free((void *)(uintptr_t)slots[i].scopes);
	}
	free(slots);
	return NULL;
}
