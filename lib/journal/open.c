/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Opening: from a folder to a handle whose every record may be believed.
 *
 * An appender joins the members (a shared lock; who gets it alone may repair), takes LOCK_SYNC, makes or
 * checks the identity, repairs what a failed sync left, reads the newest segment, sets a torn tail aside, and
 * syncs what it read before anything is built on it. A reader only reads, and never repairs.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "journal/handle.h"
#include "journal/inject.h"

struct opening {
	enum open_purpose purpose;
	const char *by;
	bool create;
	bool alone;
	const struct abox_journal_options *options;
};

static int check_options(const struct abox_journal_options *options, abox_error **reterr)
{
	if (options->size < sizeof(*options))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, "/options", "size is not set");
	if (options->mode > ABOX_JOURNAL_APPEND)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, "/mode", "no such mode");
	if (options->flags & ~(uint32_t)(ABOX_JOURNAL_CREATE | ABOX_JOURNAL_EXCLUSIVE))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, "/flags", "no such flag");
	if ((options->flags & ABOX_JOURNAL_CREATE) && options->mode != ABOX_JOURNAL_APPEND)
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, "/flags", "a reader creates nothing");
	if ((options->flags & ABOX_JOURNAL_EXCLUSIVE) && !(options->flags & ABOX_JOURNAL_CREATE))
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, "/flags", "EXCLUSIVE needs CREATE");
	if (options->segment_bytes &&
		(options->segment_bytes < SEGMENT_BYTES_MIN || options->segment_bytes > SEGMENT_BYTES_MAX))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, "/segment_bytes",
			"a segment has 64 KiB to 1 GiB");
	return 0;
}

/* Nothing but a first segment that holds no record: creating it was cut short. */
static int is_unborn(abox_journal *journal, abox_error **reterr)
{
	_cleanup_(segment_unrefp) struct segment *segment = NULL;
	_cleanup_(freep) uint64_t *numbers = NULL;
	struct segment_reader reader = SEGMENT_READER_INIT;
	struct journal_record record;
	struct chain chain;
	size_t n = 0;
	int r;

	r = segment_list(journal->dir_fd, &numbers, &n, reterr);
	if (r < 0 || n == 0)
		return r < 0 ? r : 1;
	if (n > 1 || numbers[0] != 1)
		return 0;
	r = segment_read_head(journal->dir_fd, 1, &reader, &segment, &chain, &record, reterr);
	if (r == 0)
		r = segment_reader_next(&reader, &chain, true, &record, reterr);
	segment_reader_clear(&reader);
	return r < 0 ? r : r == SEGMENT_END;
}

/* The first segment before the identity: an identity without a segment means that segments were lost. */
static int create_journal(abox_journal *journal, abox_error **reterr)
{
	char name[SEGMENT_NAME_BYTES];
	int r;

	r = is_unborn(journal, reterr);
	if (r < 0)
		return r;
	if (r == 0)
		return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, "id",
			"there are records, but the identity of the journal is gone");
	segment_name(1, name);
	r = jio_unlink(journal->dir_fd, name);
	if (r < 0 && r != -ENOENT)
		return error_set_errno(reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, name, -r, "cannot remove");
	r = identity_here(journal->dir_fd, journal->lock.fd, &journal->identity, reterr);
	if (r == 0)
		r = identity_new_id(journal->identity.id, reterr);
	if (r == 0)
		r = rotate_first(journal, reterr);
	if (r == 0)
		r = identity_write(journal->dir_fd, &journal->identity, reterr);
	return r;
}

static int check_identity(abox_journal *journal, const struct opening *opening, abox_error **reterr)
{
	_cleanup_(error_freep) abox_error *error = NULL;
	struct journal_identity here = { .fsid = 0 };
	int r;

	r = identity_read(journal->dir_fd, &journal->identity, &error);
	if (r == ABOX_E_NOT_FOUND && opening->create)
		return create_journal(journal, reterr);
	if (r < 0) {
		if (reterr)
			*reterr = steal_ptr(error);
		return r;
	}
	r = identity_here(journal->dir_fd, journal->lock.fd, &here, reterr);
	if (r < 0)
		return r;
	journal->cloned = here.fsid != journal->identity.fsid || here.inode != journal->identity.inode;
	if (!journal->append)
		return 0;
	if (opening->purpose == OPEN_ADOPT && !journal->cloned)
		return error_set(
			reterr, ABOX_E_ALREADY, ABOX_STAGE_JOURNAL, NULL, "this journal is in its own place");
	if (opening->purpose != OPEN_ADOPT && journal->cloned) {
		r = error_set(reterr, ABOX_E_CLONED, ABOX_STAGE_JOURNAL, NULL,
			"this folder is a copy of journal %s, or was restored; what the original did since "
			"is not known here",
			journal->identity.id);
		return error_remedy(
			reterr, r, "open the original, or adopt this one: `agentbox journal adopt`");
	}
	return 0;
}

static int start_at_newest(abox_journal *journal, bool go_back, abox_error **reterr)
{
	_cleanup_(freep) uint64_t *numbers = NULL;
	size_t n = 0;
	int r;

	r = segment_list(journal->dir_fd, &numbers, &n, reterr);
	if (r < 0)
		return r;
	if (n == 0)
		return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, NULL, "there is no segment");
	do
		r = tail_start(journal, numbers[--n], reterr);
	while (r == ABOX_E_DAMAGED && go_back && n > 0);
	return r;
}

/* Reads the newest segment; the long part without LOCK_APPEND. */
static int read_newest(abox_journal *journal, abox_error **reterr)
{
	int r;

	r = start_at_newest(journal, false, reterr);
	if (r == 0)
		r = tail_catch_up(journal, false, reterr);
	if (r < 0)
		return r;
	r = lock_take(&journal->lock, LOCK_APPEND, journal_deadline(journal), reterr);
	if (r < 0)
		return r;
	r = tail_catch_up(journal, true, reterr);
	if (r == 0)
		r = recover_room(journal, reterr);
	lock_release(&journal->lock, LOCK_APPEND);
	return r;
}

static int check_known(abox_journal *journal, abox_error **reterr)
{
	struct lock_state state;
	int r;

	r = lock_read_state(&journal->lock, &state, reterr);
	if (r < 0)
		return r;
	if (state.known > journal->chain.seq)
		return tail_damage(journal, journal->chain.offset, "it was durable and is gone", reterr);
	tail_set_covered(journal, state.known, false);
	return 0;
}

/* Poison first, then what is there, then the sync that makes it true. Under LOCK_SYNC. */
static int settle(abox_journal *journal, const struct opening *opening, abox_error **reterr)
{
	_cleanup_(error_freep) abox_error *error = NULL;
	struct lock_state state;
	int r;

	r = sync_check_poison(journal, &state, &error);
	if (r == ABOX_E_POISONED && opening->alone)
		r = recover_poisoned(journal, &state, reterr);
	else if (r < 0 && reterr)
		*reterr = steal_ptr(error);
	if (r == 0)
		r = read_newest(journal, reterr);
	if (r == 0)
		r = check_known(journal, reterr);
	if (r == 0)
		r = sync_tail(journal, false, reterr);
	return r;
}

static int newest_number(abox_journal *journal, uint64_t *ret, abox_error **reterr)
{
	_cleanup_(freep) uint64_t *numbers = NULL;
	size_t n = 0;
	int r;

	r = segment_list(journal->dir_fd, &numbers, &n, reterr);
	if (r == 0 && n > 0)
		*ret = numbers[n - 1];
	return r;
}

static int settle_or_repair(abox_journal *journal, const struct opening *opening, abox_error **reterr)
{
	uint64_t number = 0;
	int r;

	r = settle(journal, opening, reterr);
	for (int tries = 0; tries < 3 && r == ABOX_E_DAMAGED && opening->purpose == OPEN_REPAIR; tries++) {
		if (reterr)
			*reterr = abox_error_free(*reterr);
		journal->covered = 0;
		r = newest_number(journal, &number, reterr);
		if (r == 0)
			r = recover_cut(journal, number, reterr);
		if (r == 0)
			r = settle(journal, opening, reterr);
	}
	return r;
}

/* What the copied lock file says is about the original. */
static int forget_original(abox_journal *journal, abox_error **reterr)
{
	struct lock_state state = { .known = 0 };

	return lock_write_state(&journal->lock, &state, reterr);
}

static int open_under_sync_lock(abox_journal *journal, const struct opening *opening, abox_error **reterr)
{
	int r;

	r = check_identity(journal, opening, reterr);
	if (r == 0 && opening->purpose == OPEN_ADOPT)
		r = forget_original(journal, reterr);
	if (r < 0)
		return r;
	journal->opening = true;
	r = settle_or_repair(journal, opening, reterr);
	journal->opening = false;
	return r;
}

/* Says in the log what was found. A full disk does not make the journal unusable: the handle still tells. */
static int record_found(abox_journal *journal, const struct opening *opening, abox_error **reterr)
{
	_cleanup_(text_clear) struct text body = TEXT_INIT;
	struct journal_entry entry = { .priority = JOURNAL_VITAL,
		.type = opening->by ? "journal.repaired" : "journal.recovered" };
	int r;

	if (journal->found.len == 0 && opening->purpose != OPEN_REPAIR)
		return 0;
	text_add(&body, "{");
	if (opening->by) {
		text_add(&body, "\"by\":");
		text_add_json(&body, opening->by, strlen(opening->by));
		text_add(&body, ",");
	}
	text_add(&body, "\"found\":[");
	text_add_bytes(&body, journal->found.data, journal->found.len);
	text_add(&body, "],");
	lock_describe_self(&journal->lock, &body);
	text_add(&body, "}");
	if (body.failed)
		return ABOX_E_MEMORY;
	entry.body = body.data;
	r = journal_append_durable(journal, &entry, NULL, reterr);
	if (r == ABOX_E_NOSPACE) {
		if (reterr)
			*reterr = abox_error_free(*reterr);
		return 0;
	}
	return r;
}

static int adopt(abox_journal *journal, const struct opening *opening, abox_error **reterr)
{
	_cleanup_(text_clear) struct text body = TEXT_INIT;
	struct journal_entry entry = { .type = "journal.adopted", .priority = JOURNAL_VITAL };
	struct journal_identity mine = { .fsid = 0 };
	int r;

	r = identity_here(journal->dir_fd, journal->lock.fd, &mine, reterr);
	if (r == 0)
		r = identity_new_id(mine.id, reterr);
	if (r < 0)
		return r;
	text_add(&body, "{\"by\":");
	text_add_json(&body, opening->by, strlen(opening->by));
	text_printf(&body, ",\"from\":\"%s\",\"journal\":\"%s\",\"machine\":\"%s\"}", journal->identity.id,
		mine.id, journal->identity.machine);
	if (body.failed)
		return ABOX_E_MEMORY;
	entry.body = body.data;
	journal->cloned = false;
	r = journal_append_durable(journal, &entry, NULL, reterr);
	if (r == 0)
		r = identity_write(journal->dir_fd, &mine, reterr);
	if (r == 0)
		journal->identity = mine;
	return r;
}

static int open_append(abox_journal *journal, struct opening *opening, abox_error **reterr)
{
	uint64_t deadline = journal_deadline(journal);
	int r;

	opening->alone = lock_try(&journal->lock, LOCK_MEMBER);
	if (!opening->alone && opening->purpose != OPEN_ORDINARY)
		return error_set(reterr, ABOX_E_BUSY, ABOX_STAGE_JOURNAL, NULL,
			"other processes have this journal open; only who is alone may do this");
	if (!opening->alone) {
		r = lock_take_shared(&journal->lock, LOCK_MEMBER, deadline, reterr);
		if (r < 0)
			return r;
	}
	r = lock_take(&journal->lock, LOCK_SYNC, deadline, reterr);
	if (r < 0)
		return r;
	r = open_under_sync_lock(journal, opening, reterr);
	lock_release(&journal->lock, LOCK_SYNC);
	if (r < 0)
		return r;
	if (opening->purpose == OPEN_ADOPT)
		r = adopt(journal, opening, reterr);
	else
		r = record_found(journal, opening, reterr);
	if (r < 0)
		return r;
	/* others may join from here on */
	return lock_take_shared(&journal->lock, LOCK_MEMBER, deadline, reterr);
}

static int open_read(abox_journal *journal, const struct opening *opening, abox_error **reterr)
{
	struct lock_state state;
	int r;

	r = check_identity(journal, opening, reterr);
	if (r == 0)
		r = start_at_newest(journal, true, reterr);
	if (r == 0)
		r = tail_catch_up(journal, false, reterr);
	if (r == ABOX_E_DAMAGED) { /* told to whoever reads that far */
		if (reterr)
			*reterr = abox_error_free(*reterr);
		r = 0;
	}
	if (r < 0 || journal->cloned)
		return r;
	r = lock_read_state(&journal->lock, &state, reterr);
	if (r < 0)
		return r;
	journal->poisoned = state.poisoned;
	tail_set_covered(journal, state.known, false);
	return 0;
}

/* Is the journal where the witness last saw it, or was it put back? */
static int check_witness(
	abox_journal *journal, const struct abox_journal_options *options, abox_error **reterr)
{
	char hash[ABOX_DIGEST_TEXT_BYTES] = "", found[ABOX_DIGEST_TEXT_BYTES] = "";
	uint64_t seq = 0;
	int r;

	if (!options->witness)
		return 0;
	r = options->witness(options->witness_userdata, journal->identity.id, &seq, hash);
	if (r < 0)
		return error_set(reterr, r, ABOX_STAGE_JOURNAL, NULL, "the witness refuses the journal");
	if (seq == 0)
		return 0;
	if (seq > journal->chain.seq)
		return error_set(reterr, ABOX_E_CLONED, ABOX_STAGE_JOURNAL, NULL,
			"the witness saw record %" PRIu64 ", but the journal ends with %" PRIu64
			": it was put back to an earlier state",
			seq, journal->chain.seq);
	r = journal_hash_of(journal, seq, found, reterr);
	if (r <= 0)
		return r;
	hash[sizeof(hash) - 1] = 0;
	if (strcmp(hash, found) != 0)
		return error_set(reterr, ABOX_E_CLONED, ABOX_STAGE_JOURNAL, NULL,
			"record %" PRIu64
			" is not the one the witness saw: the journal was put back and went on differently",
			seq);
	return 0;
}

int journal_open(const char *path, const struct abox_journal_options *options, enum open_purpose purpose,
	const char *by, abox_journal **ret, abox_error **reterr)
{
	_cleanup_(journal_unrefp) abox_journal *journal = NULL;
	struct opening opening = { .purpose = purpose,
		.by = by,
		.options = options,
		.create = options->flags & ABOX_JOURNAL_CREATE };
	int r;

	r = check_options(options, reterr);
	if (r < 0)
		return r;
	r = journal_new(&journal);
	if (r < 0)
		return r;
	journal->append = options->mode == ABOX_JOURNAL_APPEND;
	if (options->segment_bytes)
		journal->segment_bytes = options->segment_bytes;
	if (options->lock_timeout_usec)
		journal->lock.timeout_usec = options->lock_timeout_usec;
	r = identity_open_folder(path, options, &journal->dir_fd, &journal->read_only_fs, reterr);
	if (r == 0)
		r = lock_open(&journal->lock, journal->dir_fd, opening.create, reterr);
	if (r < 0)
		return r;
	if (journal->append && !journal->lock.writable)
		return error_set(reterr, ABOX_E_PERMISSION, ABOX_STAGE_JOURNAL, "lock", "may not be written");
	r = journal->append ? open_append(journal, &opening, reterr) : open_read(journal, &opening, reterr);
	if (r == 0)
		r = check_witness(journal, options, reterr);
	if (r < 0)
		return r;
	*ret = steal_ptr(journal);
	return 0;
}

int abox_journal_open(
	const char *path, const struct abox_journal_options *options, abox_journal **ret, abox_error **reterr)
{
	const struct abox_journal_options defaults = ABOX_JOURNAL_OPTIONS_INIT;

	if (!path || !path[0] || !ret)
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, NULL, "path and ret are required");
	return journal_open(path, options ? options : &defaults, OPEN_ORDINARY, NULL, ret, reterr);
}

static int check_by(const char *path, const char *by, abox_error **reterr)
{
	if (!path || !path[0] || !by || !by[0] || strlen(by) > 255)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, NULL,
			"path and by (1 to 255 bytes) are required");
	return 0;
}

int abox_journal_repair(const char *path, const char *by, char **retjson, abox_error **reterr)
{
	_cleanup_(journal_unrefp) abox_journal *journal = NULL;
	struct abox_journal_options options = ABOX_JOURNAL_OPTIONS_INIT;
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	int r;

	r = check_by(path, by, reterr);
	if (r < 0)
		return r;
	options.mode = ABOX_JOURNAL_APPEND;
	r = journal_open(path, &options, OPEN_REPAIR, by, &journal, reterr);
	if (r < 0 || !retjson)
		return r;
	text_add(&text, "{\"found\":[");
	text_add_bytes(&text, journal->found.data, journal->found.len);
	text_add(&text, "]}");
	return text_take(&text, retjson);
}

int abox_journal_adopt(const char *path, const char *by, abox_error **reterr)
{
	_cleanup_(journal_unrefp) abox_journal *journal = NULL;
	struct abox_journal_options options = ABOX_JOURNAL_OPTIONS_INIT;
	int r;

	r = check_by(path, by, reterr);
	if (r < 0)
		return r;
	options.mode = ABOX_JOURNAL_APPEND;
	return journal_open(path, &options, OPEN_ADOPT, by, &journal, reterr);
}
