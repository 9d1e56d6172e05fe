/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The flat form of a group layout, for its way from the library to the keeper. Helper code.
 */
#include <string.h>

#include "kernel/cgroup.h"

void cgroup_layout_pack(struct pack_writer *writer, const struct cgroup_layout *layout)
{
	pack_u32(writer, layout->limits_version);
	pack_u32(writer, layout->controllers);
	for (size_t i = 0; i < CGROUP_N_CONTROLLERS; i++)
		pack_string(writer, layout->limits_dir[i]);
	pack_string(writer, layout->tree_dir);
	pack_u32(writer, layout->has_kill);
	pack_string(writer, layout->reason);
	pack_string(writer, layout->remedy);
}

/* A text that does not fit is an error: a path cut short would name another folder. */
static void layout_text(struct pack_reader *reader, char *ret, size_t size)
{
	const char *text = unpack_string(reader);

	if (strlen(text) >= size) {
		reader->failed = true;
		return;
	}
	memcpy(ret, text, strlen(text) + 1);
}

void cgroup_layout_unpack(struct pack_reader *reader, struct cgroup_layout *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->limits_version = unpack_u32(reader);
	ret->controllers = unpack_u32(reader);
	for (size_t i = 0; i < CGROUP_N_CONTROLLERS; i++)
		layout_text(reader, ret->limits_dir[i], sizeof(ret->limits_dir[i]));
	layout_text(reader, ret->tree_dir, sizeof(ret->tree_dir));
	ret->has_kill = unpack_u32(reader);
	layout_text(reader, ret->reason, sizeof(ret->reason));
	layout_text(reader, ret->remedy, sizeof(ret->remedy));
	if (ret->limits_version > 2 || ret->controllers >= CGROUP_BIT(CGROUP_N_CONTROLLERS))
		reader->failed = true;
}
