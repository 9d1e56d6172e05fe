/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the spec has words for and this build does not do: refused by its place, whatever the host has, never ignored.
 */
#include "plan/absent.h"

#include <string.h>

static const struct {
	const char *pointer, *value, *message, *remedy;
} absent[] = {
	{ "/files", "image", "files as images are not available in this build", "leave the key out" },
};

int plan_check_absent(struct plan_builder *builder, abox_error **reterr)
{
	for (size_t i = 0; i < ELEMENTSOF(absent); i++)
		if (strcmp(spec_string(builder->spec, "%s", absent[i].pointer), absent[i].value) == 0)
			return error_remedy(reterr,
				spec_refuse(builder->spec, reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_PLAN, absent[i].pointer, "%s",
					absent[i].message),
				"%s", absent[i].remedy);
	return 0;
}
