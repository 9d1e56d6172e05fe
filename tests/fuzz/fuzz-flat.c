/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdlib.h>
#include <string.h>

#include "plan/flat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whatever is accepted as a plan can be packed again and is the same then. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct flat_plan plan;

	if (flat_unpack(data, size, &plan, NULL) < 0)
		return 0;
	for (uint32_t i = 0; i < plan.n_steps; i++) {
		if (plan.steps[i].source >= (int32_t)plan.n_sources || plan.steps[i].target[0] != '/')
			abort();
	}
	if (!flat_pack(&plan, &writer) || writer.len != size || memcmp(writer.data, data, size) != 0)
		abort();
	flat_clear(&plan);
	return 0;
}
