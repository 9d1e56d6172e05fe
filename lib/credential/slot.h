/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a plan knows of credentials: slots, never values. Each answers for whom, for what resource, which
 * actions, and until when at most; and names who mints.
 */
#ifndef CREDENTIAL_SLOT_H
#define CREDENTIAL_SLOT_H

#include <agentbox/error.h>
#include <agentbox/spec.h>

#include "base/pack.h"

#define SLOTS_MAX 64

enum slot_kind {
	SLOT_EXEC = 0, /* a program of the host */
	SLOT_FILE = 1, /* a file, read at each use */
	SLOT_VARIABLE = 2, /* a variable of the harness, as it was when the box was started */
	SLOT_CALLBACK = 3, /* whoever serves the box (agentbox/credential.h) */
};

struct slot {
	const char *name;
	uint32_t kind; /* enum slot_kind */
	const char *source; /* path or variable; "" for a program */
	const char *const *argv; /* NULL-ended; of a program */
	const char *const *revoke; /* the program that takes a value back; empty: none does */
	const char *subject, *resource, *audience; /* "" for none */
	const char *const *scopes; /* NULL-ended */
	uint64_t ttl_usec;
};

/* Library: the slots of a spec that has been checked. */
int slots_pack(const abox_spec *spec, struct pack_writer *writer);

/* Minter: the questions of a slot, for a harness (wire.h). */
void slot_pack_questions(const struct slot *slot, struct pack_writer *writer);

/* Minter: an array of *retn, whose texts belong to the reader's bytes; NULL: not such bytes, or no memory. */
struct slot *slots_unpack(struct pack_reader *reader, size_t *retn);
struct slot *slots_free(struct slot *slots, size_t n);

#endif
