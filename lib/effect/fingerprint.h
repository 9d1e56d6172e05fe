/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef EFFECT_FINGERPRINT_H
#define EFFECT_FINGERPRINT_H

#include <agentbox/effect.h>

#include "base/digest.h"
#include "base/strings.h"

#define FINGERPRINT_SPOOL_BYTES (64u << 20) /* bodies up to here are hashed before INTENDED (effects 1.2) */

/* What begin and approvals know of a request. */
struct fingerprint {
	char hex[DIGEST_TEXT_BYTES];
	bool without_body; /* the body is beyond the spool limit */
};
int fingerprint_make(const struct abox_effect_request *request, struct fingerprint *ret, abox_error **reterr);
/* The derived key: hex SHA-256 over target, fingerprint and wish; the task is the scope it lives in. */
int fingerprint_derive_key(const char *target, const struct fingerprint *fingerprint, uint64_t wish,
	char rethex[DIGEST_TEXT_BYTES]);
/* One line for people: "POST forge.test/repos/o/r/pulls, 124 bytes". Not part of any digest; bounded. */
void fingerprint_describe(const struct abox_effect_request *request, struct text *text);

#endif
