/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The one function behind macro.h.
 */
#include "base/macro.h"

#include <stdlib.h>

void freep(void *pointer)
{
	void **p = pointer;

	free(*p);
	*p = NULL;
}
