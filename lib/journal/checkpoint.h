/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef JOURNAL_CHECKPOINT_H
#define JOURNAL_CHECKPOINT_H

#include "journal/format.h"

/* A statement "journal ID had record SEQ with hash HASH", signed or not yet. */
struct checkpoint {
	char journal[ABOX_JOURNAL_ID_BYTES];
	uint64_t seq;
	char hash[DIGEST_TEXT_BYTES];
	uint64_t time_usec;
	char key[65]; /* raw Ed25519 public key, hexadecimal */
	char signature[129];
};

int checkpoint_parse(const char *json, size_t len, struct checkpoint *ret, abox_error **reterr);
int checkpoint_print(const struct checkpoint *checkpoint, char **retjson);
/* Fills key and signature. ABOX_E_INVALID: not an Ed25519 private key in PEM. */
int checkpoint_sign(struct checkpoint *checkpoint, const char *private_key, abox_error **reterr);
/* 1 good, 0 not; ABOX_E_INVALID: not a public key. */
int checkpoint_check(const struct checkpoint *checkpoint, const char *public_key, abox_error **reterr);

#endif
