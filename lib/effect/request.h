/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Approval requests that an effect makes for itself. */
#ifndef EFFECT_REQUEST_H
#define EFFECT_REQUEST_H

#include "effect/fingerprint.h"
#include "effect/owner.h"

/* Asks for approval of the payload unless a request stands, and notes its id in the handle. */
int request_for_effect(abox_effect *effect, const struct abox_effect_options *options,
	const struct fingerprint *fingerprint, const char *what, abox_error **reterr);

#endif
