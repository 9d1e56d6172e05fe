/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which modules of the spec this build contains. A written key of another one is refused, never ignored,
 * unless its value asks for just what happens without the module.
 */
#include "plan/modules.h"

#include <string.h>

static const bool available[SPEC_N_MODULES] = {
	[SPEC_MODULE_CORE] = true,
	[SPEC_MODULE_JOURNAL] = true,
	[SPEC_MODULE_MICROVM] = true,
	[SPEC_MODULE_WORKSPACE] = true,
	[SPEC_MODULE_NETWORK] = true,
	[SPEC_MODULE_CREDENTIAL] = true,
	[SPEC_MODULE_EFFECT] = true,
};

/* Values that need no module: nothing may be reached. */
static const struct {
	const char *pattern, *value;
} harmless[] = {
	{ "/network/mode", "none" },
};

static bool needs_nothing(const abox_spec *spec, const struct spec_key *key, const char *pointer)
{
	if (key->type == SPEC_LIST || key->type == SPEC_MAP || key->type == SPEC_OBJECT)
		return true;	/* visited only when empty */
	for (size_t i = 0; i < ELEMENTSOF(harmless); i++)
		if (strcmp(harmless[i].pattern, key->pattern) == 0)
			return strcmp(harmless[i].value, spec_string(spec, "%s", pointer)) == 0;
	return false;
}

struct check {
	const abox_spec *spec;
	abox_error **reterr;
};

static int check_key(const struct spec_key *key, const char *pointer, void *userdata)
{
	struct check *check = userdata;

	if (available[key->module] || needs_nothing(check->spec, key, pointer))
		return 0;
	return error_remedy(check->reterr,
		spec_refuse(check->spec, check->reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_PLAN, pointer,
			"not available in this build: it belongs to the module '%s'", spec_module_name(key->module)),
		"leave the key out");
}

int plan_check_modules(struct plan_builder *builder, abox_error **reterr)
{
	struct check check = { builder->spec, reterr };

	return spec_visit(builder->spec, check_key, &check);
}
