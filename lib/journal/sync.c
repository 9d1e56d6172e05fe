/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Syncing: what has reached the disk, and what may therefore be told.
 *
 * Threads of one handle take turns: the first one syncs for all that were appended when it began, the others
 * wait and mostly find their record covered. Between processes LOCK_SYNC does the same. A flag in the lock
 * file stands while a sync is under way: found with the lock free, its process died in it, which counts as a
 * failed sync. After a failed sync the kernel may have thrown the dirty pages away and marked them clean, so
 * a second sync proves nothing: the journal is poisoned for every process until recover.c has rewritten it.
 */
#include <errno.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "journal/handle.h"
#include "journal/inject.h"

int sync_poison(abox_journal *journal, int sys_errno, const char *what, abox_error **reterr)
{
	int r;

	__atomic_store_n(&journal->poisoned, true, __ATOMIC_RELEASE);
	if (sys_errno)
		r = error_set_errno(reterr, ABOX_E_POISONED, ABOX_STAGE_JOURNAL, NULL, sys_errno, "%s", what);
	else
		r = error_set(reterr, ABOX_E_POISONED, ABOX_STAGE_JOURNAL, NULL,
			"a sync of this journal failed or was cut short; what is on the disk is not known");
	return error_remedy(reterr, r, "close the journal everywhere; whoever opens it alone repairs it");
}

int sync_check_poison(abox_journal *journal, struct lock_state *retstate, abox_error **reterr)
{
	int r;

	r = lock_read_state(&journal->lock, retstate, reterr);
	if (r < 0)
		return r;
	if (retstate->syncing && !retstate->poisoned) {
		/* LOCK_SYNC is ours, so the syncer is gone */
		retstate->poisoned = 1;
		r = lock_write_state(&journal->lock, retstate, reterr);
		if (r < 0)
			return r;
	}
	return retstate->poisoned || journal->poisoned ? sync_poison(journal, 0, NULL, reterr) : 0;
}

/* Somebody may have put other files in the place of ours: a sync of what is no longer in the folder promises
 * nothing, and two lock files would mean two groups of writers. */
static int check_same(int dir_fd, const char *name, int fd, abox_error **reterr)
{
	struct stat open_st, named_st;

	if (fstat(fd, &open_st) < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_JOURNAL, name, errno, "cannot stat");
	if (fstatat(dir_fd, name, &named_st, AT_SYMLINK_NOFOLLOW) < 0 || named_st.st_ino != open_st.st_ino ||
		named_st.st_dev != open_st.st_dev)
		return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, name,
			"was removed or replaced while the journal was open");
	return 0;
}

int sync_check_place(abox_journal *journal, abox_error **reterr)
{
	char name[SEGMENT_NAME_BYTES];
	int r;

	r = check_same(journal->dir_fd, "lock", journal->lock.fd, reterr);
	if (r < 0)
		return r;
	segment_name(journal->tail->number, name);
	return check_same(journal->dir_fd, name, journal->tail->fd, reterr);
}

static bool is_covered(const abox_journal *journal, uint64_t seq, bool full)
{
	return __atomic_load_n(full ? &journal->covered_full : &journal->covered, __ATOMIC_ACQUIRE) >= seq;
}

static void futex(uint32_t *word, int op, uint32_t value)
{
	(void)syscall(SYS_futex, word, op, value, NULL, NULL, 0);
}

static void end_turn(abox_journal *journal)
{
	__atomic_store_n(&journal->sync_busy, false, __ATOMIC_RELEASE);
	__atomic_add_fetch(&journal->sync_turns, 1, __ATOMIC_ACQ_REL);
	futex(&journal->sync_turns, FUTEX_WAKE_PRIVATE, INT32_MAX);
}

/* Not by a condition variable: everybody who is woken would have to get the mutex just to leave. */
static bool begin_turn(abox_journal *journal, uint64_t seq, bool full)
{
	for (;;) {
		uint32_t turns = __atomic_load_n(&journal->sync_turns, __ATOMIC_ACQUIRE);

		/* somebody else's turn may have covered ours; if it began too early, the next one will */
		if (is_covered(journal, seq, full))
			return false;
		if (!__atomic_exchange_n(&journal->sync_busy, true, __ATOMIC_ACQ_REL))
			return true;
		futex(&journal->sync_turns, FUTEX_WAIT_PRIVATE, turns);
	}
}

int sync_turn_take(abox_journal *journal, uint64_t seq, bool full, abox_error **reterr)
{
	int r;

	if (!begin_turn(journal, seq, full))
		return 0;
	r = lock_take(&journal->lock, LOCK_SYNC, journal_deadline(journal), reterr);
	if (r < 0)
		end_turn(journal);
	return r < 0 ? r : 1;
}

void sync_turn_release(abox_journal *journal)
{
	lock_release(&journal->lock, LOCK_SYNC);
	end_turn(journal);
}

static int sync_file(abox_journal *journal, int fd, bool full)
{
	int r;

	if (!full)
		return jio_datasync(fd);
	r = jio_sync(fd);
	return r < 0 ? r : jio_sync(journal->dir_fd);
}

int sync_flag_begin(abox_journal *journal, struct lock_state *state, abox_error **reterr)
{
	state->syncing = 1;
	return lock_write_state(&journal->lock, state, reterr);
}

int sync_flag_end(
	abox_journal *journal, struct lock_state *state, uint64_t reach, int failed, abox_error **reterr)
{
	int r;

	state->syncing = 0;
	if (failed < 0)
		state->poisoned = 1;
	else
		state->known = MAX(state->known, reach);
	r = lock_write_state(&journal->lock, state, reterr);
	if (failed < 0)
		return sync_poison(
			journal, -failed, "a sync failed; what is on the disk is not known", reterr);
	if (r < 0) /* the flag stays up: whoever comes next takes this for a sync that was cut short */
		__atomic_store_n(&journal->poisoned, true, __ATOMIC_RELEASE);
	return r;
}

static int sync_flagged(abox_journal *journal, struct segment *segment, uint64_t reach, bool full,
	struct lock_state *state, abox_error **reterr)
{
	int r;

	r = sync_flag_begin(journal, state, reterr);
	if (r < 0)
		return r;
	r = sync_file(journal, segment->fd, full);
	return sync_flag_end(journal, state, reach, r, reterr);
}

int sync_tail(abox_journal *journal, bool full, abox_error **reterr)
{
	_cleanup_(segment_unrefp) struct segment *segment = NULL;
	char hash[DIGEST_TEXT_BYTES];
	struct lock_state state;
	uint64_t reach;
	bool done;
	int r;

	r = sync_check_poison(journal, &state, reterr);
	if (r < 0)
		return r;
	r = journal_mutex_lock(journal, journal_deadline(journal), reterr);
	if (r < 0)
		return r;
	reach = journal->chain.seq; /* fixed here: what comes in from now on may miss the sync */
	memcpy(hash, journal->chain.hash, sizeof(hash));
	segment = segment_ref(journal->tail);
	done = state.known >= reach && !full;
	if (done)
		tail_set_covered(journal, state.known, false);
	else
		r = sync_check_place(journal, reterr);
	journal_mutex_unlock(journal);
	if (r < 0 || done)
		return r;
	r = sync_flagged(journal, segment, reach, full, &state, reterr);
	if (r < 0)
		return r;
	pthread_mutex_lock(&journal->mutex);
	if (journal->position_seq < reach) {
		journal->position_seq = reach;
		memcpy(journal->position_hash, hash, sizeof(hash));
	}
	tail_set_covered(journal, reach, full);
	pthread_mutex_unlock(&journal->mutex);
	return 0;
}

/* A handle that cannot write the lock file: what others made durable is all that it can say. */
static int sync_as_reader(abox_journal *journal, uint64_t seq, abox_error **reterr)
{
	struct lock_state state;
	uint64_t known = 0;
	int r;

	if (journal->read_only_fs || journal->cloned) {
		/* nothing is dirty on a file system without writers; a copy is synced here, for itself alone
		 */
		r = journal_mutex_lock(journal, journal_deadline(journal), reterr);
		if (r < 0)
			return r;
		r = journal->read_only_fs ? 0 : jio_datasync(journal->tail->fd);
		if (r == 0)
			tail_set_covered(journal, journal->chain.seq, true);
		journal_mutex_unlock(journal);
		if (r < 0)
			return error_set_errno(
				reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, NULL, -r, "cannot sync the copy");
		return 0;
	}
	r = lock_read_state(&journal->lock, &state, reterr);
	if (r < 0)
		return r;
	known = state.known;
	pthread_mutex_lock(&journal->mutex);
	tail_set_covered(journal, known, false);
	pthread_mutex_unlock(&journal->mutex);
	if (known >= seq)
		return 0;
	return error_set(reterr, ABOX_E_PERMISSION, ABOX_STAGE_JOURNAL, NULL,
		"record %" PRIu64 " is not known to be on the disk, and this user may not sync the journal",
		seq);
}

int journal_sync(abox_journal *journal, uint64_t seq, int durability, abox_error **reterr)
{
	bool full = durability == ABOX_DURABILITY_FULL;
	uint64_t last;
	int r;

	r = journal_check(journal, false, reterr);
	if (r < 0)
		return r;
	if (seq > 0 && !full && journal_is_covered(journal, seq))
		return 0;
	r = journal_mutex_lock(journal, journal_deadline(journal), reterr);
	if (r < 0)
		return r;
	last = journal->chain.seq;
	if (seq == 0)
		seq = last;
	journal_mutex_unlock(journal);
	if (is_covered(journal, seq, full))
		return 0;
	if (seq > last)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, NULL,
			"record %" PRIu64 " was neither appended nor read by this handle", seq);
	if (!journal->lock.writable || journal->cloned || journal->read_only_fs)
		return sync_as_reader(journal, seq, reterr);
	r = sync_turn_take(journal, seq, full, reterr);
	if (r <= 0)
		return r;
	r = sync_tail(journal, full, reterr);
	sync_turn_release(journal);
	return r;
}

int abox_journal_get_position(
	abox_journal *journal, uint64_t *retseq, char rethash[ABOX_DIGEST_TEXT_BYTES], abox_error **reterr)
{
	int r;

	r = journal_check(journal, false, reterr);
	if (r < 0)
		return r;
	if (!retseq || !rethash)
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, NULL, "retseq and rethash are required");
	r = journal_mutex_lock(journal, journal_deadline(journal), reterr);
	if (r < 0)
		return r;
	*retseq = journal->position_seq;
	memcpy(rethash, journal->position_hash, DIGEST_TEXT_BYTES);
	journal_mutex_unlock(journal);
	return 0;
}
