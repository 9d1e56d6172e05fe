/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef EFFECT_CANONICAL_H
#define EFFECT_CANONICAL_H

#include "base/strings.h"

/*
 * RFC 8785: the one form of a JSON text. 1 when it was added to text; 0 when the RFC does not apply (no JSON, double
 * keys, NUL, numbers beyond an IEEE double's whole range of integers, too large): the bytes count then; ABOX_E_MEMORY.
 */
int canonical_json(const char *data, size_t len, struct text *text);
/*
 * Whether that form keeps every number of a JSON text apart from its neighbours. Security: the RFC reads them as IEEE doubles,
 * and not everybody who gets the text does, so that two amounts could have one form.
 */
bool canonical_keeps_numbers(const char *data, size_t len);

#endif
