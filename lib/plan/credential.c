/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Credentials in a plan: slots for whoever mints them, and worthless values in the environment of the box
 * where one is swapped on the way out. No value of a credential comes here.
 */
#include <string.h>

#include "credential/slot.h"
#include "network/rule.h"
#include "plan/builder.h"

int plan_build_credentials(struct plan_builder *builder, abox_error **reterr)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	int r;

	if (spec_count(builder->spec, "/credentials") == 0)
		return 0;
	if (spec_enum(builder->spec, "/network/mode") == SPEC_NETWORK_NONE)
		return spec_refuse(builder->spec, reterr, ABOX_E_INVALID, ABOX_STAGE_PLAN, "/credentials",
			"credentials are used on the network, and this box has none");
	r = slots_pack(builder->spec, &writer);
	if (r < 0)
		return r;
	builder->slots = builder_bytes(builder, writer.data, writer.len);
	builder->slots_len = writer.len;
	enforcement_add(builder,
		&(struct enforcement){ .name = "credentials",
			.by = "egress, minter",
			.pointer = "/credentials",
			.status = ENFORCED,
			.required = true,
			.detail =
				"added to allowed requests outside of the box, taken out of their answers" });
	return 0;
}

/* The variable and the worthless value of the i-th credential; false: it has none. */
bool plan_placeholder(const struct plan_builder *builder, size_t i, const char **retname,
	char retvalue[RULES_PLACEHOLDER_BYTES])
{
	*retname = spec_string(builder->spec, "/credentials/%zu/inject/placeholder", i);
	return *retname &&
	       rules_placeholder(spec_string(builder->spec, "/credentials/%zu/name", i), retvalue) == 0;
}
