/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Minting: from a slot to a value that holds for a while. Runs in the minter, outside of every wall. */
#ifndef CREDENTIAL_MINT_H
#define CREDENTIAL_MINT_H

#include "credential/slot.h"

#define MINT_VALUE_MAX 8192
#define MINT_SECONDS 25 /* for a program to answer */

struct minted {
	char *value; /* wiped when released */
	size_t len;
	uint64_t until_usec; /* monotonic: asked for anew from then on; 0: at each use */
	bool revocable; /* whoever gave it takes it back */
};

/*
 * Mints. `environment` is the harness's, NULL-ended. 0, or a negative code and the reason, which never holds
 * a value: what a program wrote is not repeated.
 */
int mint(const struct slot *slot, const char *const *environment, struct minted *ret, const char **retwhy);
void minted_clear(struct minted *minted);

/* What a harness gave: the same checks as for every provider. `life_usec` 0: the slot's. */
int mint_given(const struct slot *slot, const void *value, size_t len, uint64_t life_usec, struct minted *ret,
	const char **retwhy);

/* Has a program take a value back. `drop`: the word for why. 0, or a negative code and the reason. */
#define REVOKE_SECONDS 10
int mint_revoke(const struct slot *slot, const char *const *environment, const struct minted *minted,
	const char *drop, const char **retwhy);

#endif
