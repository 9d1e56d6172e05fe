/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Packing of GUEST_SETUP, for both ends.
 */
#include "guest/setup.h"

#include <string.h>

#include <agentbox/error.h>

#include "guest/message.h"

void setup_pack(struct pack_writer *writer, const struct guest_setup *setup)
{
	guest_message_begin(writer, GUEST_SETUP, 0);
	pack_u32(writer, SETUP_VERSION);
	pack_string(writer, setup->hostname);
	pack_u64(writer, setup->wall_usec);
	pack_bytes(writer, setup->entropy, setup->entropy_len);
	pack_bytes(writer, setup->filter, setup->filter_len);
	pack_u64(writer, setup->memory_bytes);
	pack_u64(writer, setup->pids);
	pack_u8(writer, setup->own_kernel);
	pack_u8(writer, setup->loopback);
	pack_u8(writer, setup->link);
	pack_u8(writer, setup->link_v6);
	pack_u32(writer, (uint32_t)setup->n_ports);
	for (size_t i = 0; i < setup->n_ports; i++)
		pack_u32(writer, setup->ports[i]);
	pack_u32(writer, setup->uid);
	pack_u32(writer, setup->gid);
	pack_u32(writer, (uint32_t)setup->n_mounts);
	for (size_t i = 0; i < setup->n_mounts; i++) {
		const struct setup_mount *mount = &setup->mounts[i];

		pack_string(writer, mount->source);
		pack_string(writer, mount->target);
		pack_string(writer, mount->type);
		pack_string(writer, mount->options);
		pack_u64(writer, mount->flags);
	}
	pack_string(writer, setup->root);
}

int setup_unpack(const void *packet, size_t len, struct guest_setup *ret)
{
	struct pack_reader reader = PACK_READER(packet, len);
	uint32_t type = unpack_u32(&reader), command = unpack_u32(&reader), version = unpack_u32(&reader);
	uint32_t n;

	memset(ret, 0, sizeof(*ret));
	if (type != GUEST_SETUP || command || version != SETUP_VERSION)
		return ABOX_E_PROTOCOL;
	ret->hostname = unpack_string(&reader);
	ret->wall_usec = unpack_u64(&reader);
	ret->entropy = unpack_bytes(&reader, &ret->entropy_len);
	ret->filter = unpack_bytes(&reader, &ret->filter_len);
	ret->memory_bytes = unpack_u64(&reader);
	ret->pids = unpack_u64(&reader);
	ret->own_kernel = unpack_u8(&reader);
	ret->loopback = unpack_u8(&reader);
	ret->link = unpack_u8(&reader);
	ret->link_v6 = unpack_u8(&reader);
	ret->n_ports = unpack_count(&reader, sizeof(uint32_t));
	if (ret->n_ports > SETUP_PORTS)
		return ABOX_E_PROTOCOL;
	for (size_t i = 0; i < ret->n_ports; i++)
		ret->ports[i] = unpack_u32(&reader);
	ret->uid = unpack_u32(&reader);
	ret->gid = unpack_u32(&reader);
	n = unpack_count(&reader, 4 * (sizeof(uint32_t) + 1) + sizeof(uint64_t));
	if (n > SETUP_MOUNTS)
		return ABOX_E_PROTOCOL;
	for (ret->n_mounts = 0; ret->n_mounts < n; ret->n_mounts++) {
		struct setup_mount *mount = &ret->mounts[ret->n_mounts];

		mount->source = unpack_string(&reader);
		mount->target = unpack_string(&reader);
		mount->type = unpack_string(&reader);
		mount->options = unpack_string(&reader);
		mount->flags = unpack_u64(&reader);
	}
	ret->root = unpack_string(&reader);
	if (!unpack_done(&reader) || !ret->filter_len || ret->filter_len % sizeof(struct filter_insn) ||
		(ret->entropy_len && ret->entropy_len != SETUP_ENTROPY_BYTES))
		return ABOX_E_PROTOCOL;
	return 0;
}
