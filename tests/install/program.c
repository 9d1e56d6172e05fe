/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a user of the installed library writes: built with pkg-config by tests/install/run. */
#include <agentbox/agentbox.h>
#include <stdio.h>
#include <string.h>

/* A name that the library uses inside as well: it must not meet ours. */
int text_printf(void);
int text_printf(void)
{
	return 42;
}

int main(void)
{
	abox_error *error = NULL;
	abox_spec *spec = NULL;

	if (strcmp(abox_version(), ABOX_VERSION) != 0 || text_printf() != 42)
		return 1;
	if (abox_spec_from_json("{\"version\": 2}", &spec, &error) >= 0 || abox_error_get_code(error) != ABOX_E_INVALID)
		return 2;
	abox_error_free(error);
	if (abox_spec_from_json("{\"version\": 1}", &spec, NULL) < 0)
		return 3;
	abox_spec_unref(spec);
	printf("good %s\n", abox_version());
	return 0;
}
