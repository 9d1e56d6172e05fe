/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where boxes leave their traces: STATE/boxes/ID and STATE/names/NAME; the files in it are listed in
 * keeper/wire.h.
 */
#ifndef SANDBOX_STATE_H
#define SANDBOX_STATE_H

#include "base/error.h"
#include "base/json.h"

#define STATE_ID_LEN 32

/* STATE, made when missing: 0700, owned by the caller, reached through no link. Return: a descriptor or a
 * code. */
int state_open(int stage, abox_error **reterr);

/* id or name -> id. ABOX_E_NOT_FOUND. */
int state_resolve(
	int state_fd, const char *ref, int stage, char retid[STATE_ID_LEN + 1], abox_error **reterr);
bool state_is_id(const char *text);

/* The folder of a box. Descriptor, ABOX_E_NOT_FOUND, ABOX_E_SYSTEM. */
int state_open_box(int state_fd, const char *id, int stage, abox_error **reterr);

enum state_life {
	STATE_LIFE_ALIVE,	/* its keeper holds the lock */
	STATE_LIFE_DEAD,
	STATE_LIFE_UNBORN,	/* no lock yet, and not old enough to be given up */
};
enum state_life state_life(int box_fd);

/* What the library wrote with START, and the word in `state`. *ret may be NULL when the record is unreadable.
 */
int state_read_record(int box_fd, struct json **ret);
int state_read_word(int box_fd);	/* enum abox_sandbox_state; FAILED when it cannot be read */

/* Adds the member "workspace": id of the one that is kept for the box, null for none. */
void state_add_workspace(struct text *text, int box_fd);

#endif
