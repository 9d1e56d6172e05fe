/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Appending: one locked step that reads what others appended, asks whether this record may be written, and
 * writes it.
 *
 * The lock is held for nothing else: no sync, no wait, no callback of a user. Room is judged here: an
 * ordinary record leaves alone what was reserved for outcomes and what every segment keeps for cancels and
 * epochs, so that a full disk refuses new effects and nothing else.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "journal/handle.h"

#define ANSWER_ROTATE 2

/* Bytes of the tail that this record may not touch. */
static uint64_t kept_room(const abox_journal *journal, const struct journal_entry *entry)
{
	int64_t reserved = journal->chain.room + entry->room_bytes;
	uint64_t kept = SEGMENT_ROOM_CLOSE + (uint64_t)MAX(reserved, 0);

	if (entry->priority == JOURNAL_NORMAL)
		kept += segment_vital_room(journal->tail_bytes);
	return kept;
}

static bool room_is_there(const abox_journal *journal, const struct journal_entry *entry)
{
	uint64_t used = journal->chain.offset + journal->line.len + kept_room(journal, entry);

	return used <= journal->tail_bytes;
}

static int check_entry(const abox_journal *journal, const struct journal_entry *entry, abox_error **reterr)
{
	size_t len = entry->body_len ? entry->body_len : entry->body ? strlen(entry->body) : 0;

	if (len > RECORD_BODY_MAX)
		return error_set(reterr, ABOX_E_LIMIT, ABOX_STAGE_JOURNAL, NULL,
			"a record body has at most %u bytes, this one %zu; put large data into a blob",
			RECORD_BODY_MAX, len);
	if (journal->chain.room + entry->room_bytes < 0)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, NULL,
			"the record gives back more room than is reserved");
	if (entry->room_bytes > 0 && journal->chain.room + entry->room_bytes > JOURNAL_ROOM_MAX)
		return error_set(reterr, ABOX_E_NOSPACE, ABOX_STAGE_JOURNAL, NULL,
			"too much room is reserved at once");
	return 0;
}

/* Under LOCK_APPEND: everything that others wrote or said is known afterwards. */
static int catch_up_all(abox_journal *journal, const struct lock_state *state, abox_error **reterr)
{
	int r;

	if (state->poisoned || journal->poisoned)
		return sync_poison(journal, 0, NULL, reterr);
	tail_set_covered(journal, state->known, false);
	r = tail_catch_up(journal, true, reterr);
	if (r < 0)
		return r;
	if (journal->covered > journal->chain.seq)
		return tail_damage(journal, journal->chain.offset, "it was durable and is gone", reterr);
	return 0;
}

static int transact_locked(abox_journal *journal, const struct lock_state *state, journal_check_fn check,
	void *userdata, uint64_t *retwant, abox_error **reterr)
{
	struct journal_entry entry = { 0 };
	int r;

	r = catch_up_all(journal, state, reterr);
	if (r < 0)
		return r;
	if (journal->chain.closed)
		return ANSWER_ROTATE;
	r = check(userdata, journal->chain.seq + 1, &entry, reterr);
	if (r <= 0)
		return r;
	r = check_entry(journal, &entry, reterr);
	if (r < 0)
		return r;
	r = tail_build(journal, &entry, reterr);
	if (r < 0)
		return r;
	*retwant = journal->line.len + (uint64_t)MAX(entry.room_bytes, 0);
	if (!room_is_there(journal, &entry))
		return ANSWER_ROTATE;
	r = tail_write(journal, &entry, reterr);
	return r < 0 ? r : 1;
}

int journal_transact(
	abox_journal *journal, journal_check_fn check, void *userdata, uint64_t *retseq, abox_error **reterr)
{
	uint64_t deadline, number, want = 0, seq;
	struct lock_state state;
	int r;

	r = journal_check(journal, true, reterr);
	if (r < 0)
		return r;
	deadline = journal_deadline(journal);
	for (;;) {
		r = journal_mutex_lock(journal, deadline, reterr);
		if (r < 0)
			return r;
		r = lock_take_append(&journal->lock, deadline, &state, reterr);
		if (r < 0) {
			journal_mutex_unlock(journal);
			return r;
		}
		r = transact_locked(journal, &state, check, userdata, &want, reterr);
		lock_release(&journal->lock, LOCK_APPEND);
		number = journal->tail->number;
		seq = journal->chain.seq;
		journal_mutex_unlock(journal);
		if (r != ANSWER_ROTATE)
			break;
		r = rotate_away(journal, number, want, reterr);
		if (r < 0)
			return r;
	}
	if (r >= 0 && retseq)
		*retseq = seq;
	return r;
}

static int take_as_it_is(
	void *userdata, uint64_t next_seq, struct journal_entry *retentry, abox_error **reterr)
{
	*retentry = *(const struct journal_entry *)userdata;
	return 1;
}

int journal_append(
	abox_journal *journal, const struct journal_entry *entry, uint64_t *retseq, abox_error **reterr)
{
	int r;

	r = journal_transact(journal, take_as_it_is, (void *)entry, retseq, reterr);
	return r < 0 ? r : 0;
}

int journal_append_durable(
	abox_journal *journal, const struct journal_entry *entry, uint64_t *retseq, abox_error **reterr)
{
	uint64_t seq = 0;
	int r;

	r = journal_append(journal, entry, &seq, reterr);
	if (r < 0)
		return r;
	r = journal_sync(journal, seq, ABOX_DURABILITY_DATA, reterr);
	if (r < 0)
		return r;
	if (retseq)
		*retseq = seq;
	return 0;
}

int journal_look(abox_journal *journal, int (*look)(void *userdata, abox_error **reterr), void *userdata,
	uint64_t *retseq, abox_error **reterr)
{
	int r;

	r = journal_check(journal, false, reterr);
	if (r < 0)
		return r;
	r = journal_mutex_lock(journal, journal_deadline(journal), reterr);
	if (r < 0)
		return r;
	r = tail_catch_up(journal, false, reterr);
	if (r >= 0 && look)
		r = look(userdata, reterr);
	if (r >= 0 && retseq)
		*retseq = journal->chain.seq;
	journal_mutex_unlock(journal);
	return r;
}

static const char *const library_types[] = { "journal.", "task.", "stage.", "effect.", "approval." };

static int check_public(const struct abox_journal_entry *entry, abox_error **reterr)
{
	if (!entry || entry->size < sizeof(*entry))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, "/entry",
			"entry with its size is required");
	if (entry->durability > ABOX_DURABILITY_FULL || entry->reserved)
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, "/durability", "no such durability");
	for (size_t i = 0; entry->type && i < ELEMENTSOF(library_types); i++)
		if (string_starts_with(entry->type, library_types[i]))
			return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, "/type",
				"types that begin with %s are written by the library only", library_types[i]);
	return 0;
}

int abox_journal_append(
	abox_journal *journal, const struct abox_journal_entry *entry, uint64_t *retseq, abox_error **reterr)
{
	struct journal_entry inner;
	uint64_t seq = 0;
	int r, durability;

	r = journal_check(journal, true, reterr);
	if (r < 0)
		return r;
	r = check_public(entry, reterr);
	if (r < 0)
		return r;
	inner = (struct journal_entry){ .type = entry->type ? entry->type : "note",
		.task = entry->task,
		.box = entry->box,
		.body = entry->body,
		.epoch = entry->epoch };
	durability = entry->durability ? (int)entry->durability : ABOX_DURABILITY_DATA;
	r = journal_append(journal, &inner, &seq, reterr);
	if (r < 0)
		return r;
	if (durability != ABOX_DURABILITY_NONE) {
		r = journal_sync(journal, seq, durability, reterr);
		if (r < 0)
			return r;
	}
	if (retseq)
		*retseq = seq;
	return 0;
}

int abox_journal_sync(abox_journal *journal, uint64_t seq, int durability, abox_error **reterr)
{
	int r;

	r = journal_check(journal, false, reterr);
	if (r < 0)
		return r;
	if (durability < ABOX_DURABILITY_DEFAULT || durability > ABOX_DURABILITY_FULL)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, NULL, "no such durability");
	if (durability == ABOX_DURABILITY_NONE)
		return 0;
	return journal_sync(journal, seq, durability, reterr);
}
