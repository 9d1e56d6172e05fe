/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Inside the minter: one thread, which waits for egress and for the harness. */
#ifndef CREDENTIAL_MINTER_H
#define CREDENTIAL_MINTER_H

#include "credential/mint.h"
#include "credential/wire.h"

/* Somebody at egress who waits for an answer. */
struct asker {
	struct asker *next;
	uint32_t serial; /* egress's */
	uint64_t deadline_usec;
};

/* A question that the harness has not answered. */
struct question {
	struct question *next;
	uint32_t serial; /* ours */
	uint32_t type; /* PROVIDER_* */
	size_t slot;
	struct asker *askers; /* of a value all who want it; none: it is late */
	int outcome; /* of a revoke: 0 as long as it is not known, 1, or negative */
	const char *why; /* then */
};

struct minter {
	struct slot *slots;
	size_t n_slots;
	struct minted minted[SLOTS_MAX];
	bool barred[SLOTS_MAX]; /* nothing more is minted */
	const char **environment;

	int harness_fd; /* -EBADF: nobody serves the box */
	bool harness_revokes;
	bool harness_was; /* somebody has */
	struct question *questions;
	uint32_t serial;
};

/* main.c: to egress */
void minter_answer(uint32_t type, uint32_t serial, const void *data, size_t len); /* SECRET, REFUSED */
void minter_answer_packed(uint32_t type, uint32_t serial, const void *packed, size_t len); /* SIGNED */
void minter_refuse(uint32_t serial, const char *why);

/* harness.c */
void harness_serve(struct minter *minter, int fd_taken, bool revokes);
void harness_mint(struct minter *minter, size_t slot, uint32_t asker);
void harness_sign(struct minter *minter, size_t slot, uint32_t asker, const void *request, size_t len);
int harness_revoke(struct minter *minter, size_t slot, const struct minted *minted, uint32_t drop, const char **retwhy);
void harness_ready(struct minter *minter);
void harness_late(struct minter *minter);
uint64_t harness_next(const struct minter *minter); /* the earliest deadline */

#endif
