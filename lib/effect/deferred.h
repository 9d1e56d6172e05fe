/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef EFFECT_DEFERRED_H
#define EFFECT_DEFERRED_H

#include "effect/owner.h"

/* Begins a deferred effect behind the boundary, with its payload. Answers and errors as abox_effect_begin(). */
int deferred_begin(abox_task *task, const char *id, abox_effect **ret, abox_error **reterr);

#endif
