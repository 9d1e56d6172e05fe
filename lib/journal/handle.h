/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The handle of a journal, shared by the files of this folder.
 *
 * Locks, in the order in which they are taken: the handle's turn at syncing (sync_busy), LOCK_SYNC,
 * mutex, LOCK_APPEND. Everything not marked otherwise is guarded by mutex.
 */
#ifndef JOURNAL_HANDLE_H
#define JOURNAL_HANDLE_H

#include <pthread.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/strings.h"
#include "journal/lock.h"
#include "journal/segment.h"

#define JOURNAL_LOCK_TIMEOUT_USEC (10 * USEC_PER_SEC)
#define JOURNAL_VIEWS_MAX 8
#define JOURNAL_ROOM_MAX (INT64_C(512) * 1024 * 1024) /* reserved at once, all together */

struct view_slot {
	const struct journal_view_ops *ops;
	void *view;
};

struct journal_identity {
	char id[ABOX_JOURNAL_ID_BYTES];
	uint64_t fsid;
	uint64_t inode;   /* of the lock file, which is never replaced */
	char machine[33]; /* informs only */
};

struct tail_index;

struct abox_journal {
	unsigned int n_refs; /* atomic */
	uint32_t *alive;     /* a page that a fork wipes: reads 0 in a child */
	int dir_fd;
	bool append;
	bool cloned; /* read-only handle on a copy: the lock file says nothing about it */
	bool read_only_fs;
	bool opening; /* what is undone is set aside and told */
	uint64_t segment_bytes;
	struct lock_file lock;
	struct journal_identity identity;

	pthread_mutex_t mutex;
	bool sync_busy;      /* atomic: somebody has the turn at syncing */
	uint32_t sync_turns; /* atomic: turns that are over; a futex */
	bool poisoned;
	int broken;            /* a view missed a record: nothing can be decided by this handle any more */
	uint64_t covered;      /* atomic; written under mutex */
	uint64_t covered_full; /* the same, metadata too */

	struct segment *tail; /* the newest segment that this handle knows */
	uint64_t tail_bytes;  /* its size */
	struct chain chain;
	struct segment_reader reader; /* of the tail */
	struct text line;             /* the record being built, its newline included */
	char line_hash[DIGEST_TEXT_BYTES];
	struct text body;      /* of the record being shown to views */
	uint64_t position_seq; /* newest durable record whose hash is known */
	char position_hash[DIGEST_TEXT_BYTES];
	struct text found; /* JSON list members: what opening found */
	struct view_slot views[JOURNAL_VIEWS_MAX];
	size_t n_views;

	pthread_mutex_t index_mutex;   /* innermost; never held across a lock of the file */
	struct tail_index *tail_index; /* made under mutex, used under index_mutex */
	pthread_mutex_t blob_mutex;    /* with LOCK_BLOBS, which does not keep threads of one handle apart */
	pthread_mutex_t prune_mutex;   /* with LOCK_PRUNE; taken before everything else */
};

/* handle.c */
int journal_new(abox_journal **ret);
int journal_check(const abox_journal *journal, bool append, abox_error **reterr); /* arguments and fork */
int journal_mutex_lock(abox_journal *journal, uint64_t deadline_usec, abox_error **reterr);
void journal_mutex_unlock(abox_journal *journal);
uint64_t journal_deadline(const abox_journal *journal);
bool journal_beyond_limit(uint64_t bytes); /* of RLIMIT_FSIZE */
void journal_add_found(abox_journal *journal, const char *format, ...) _printf_(2, 3);

void journal_tail_index_free(struct tail_index *tail); /* find.c */

/* tail.c: under mutex; locked says whether LOCK_APPEND is held too */
int tail_catch_up(abox_journal *journal, bool locked, abox_error **reterr);
/* Starts at the head of a segment; views are not shown anything. */
int tail_start(abox_journal *journal, uint64_t number, abox_error **reterr);
/* Builds journal->line for the end of the chain; then writes it there, without judging room, and shows the
 * views. */
int tail_build(abox_journal *journal, const struct journal_entry *entry, abox_error **reterr);
int tail_write(abox_journal *journal, const struct journal_entry *entry, abox_error **reterr);
int tail_show(abox_journal *journal, const struct journal_record *record, abox_error **reterr);
void tail_set_covered(abox_journal *journal, uint64_t seq, bool full);
int tail_damage(abox_journal *journal, uint64_t offset, const char *why, abox_error **reterr);
/* Zeroes from the end of the chain to `end`. */
int tail_zero(abox_journal *journal, uint64_t end, abox_error **reterr);

/* sync.c */
/* The handle's turn, then LOCK_SYNC: 1. 0 without them when seq was covered meanwhile (UINT64_MAX never is).
 */
int sync_turn_take(abox_journal *journal, uint64_t seq, bool full, abox_error **reterr);
void sync_turn_release(abox_journal *journal);
/* With the turn held: syncs the tail up to what it holds now and publishes it. */
int sync_tail(abox_journal *journal, bool full, abox_error **reterr);
/* A change of files that must not be cut short: begin raises the flag of a sync, end lowers it, saying what
 * is durable now, or poisons when failed is a negative errno. */
int sync_flag_begin(abox_journal *journal, struct lock_state *state, abox_error **reterr);
int sync_flag_end(
	abox_journal *journal, struct lock_state *state, uint64_t reach, int failed, abox_error **reterr);
int sync_poison(abox_journal *journal, int sys_errno, const char *what, abox_error **reterr);
int sync_check_poison(abox_journal *journal, struct lock_state *retstate, abox_error **reterr);
int sync_check_place(abox_journal *journal, abox_error **reterr);

/* rotate.c */
/* Closes segment `number` if it is still the newest, or finishes what another began, and makes the next with
 * room for want_bytes more. Without mutex and locks. */
int rotate_away(abox_journal *journal, uint64_t number, uint64_t want_bytes, abox_error **reterr);
int rotate_first(abox_journal *journal, abox_error **reterr); /* the first segment of a new journal */
int rotate_write_zeros(int fd, uint64_t from, uint64_t to);   /* 0 or -errno */
int rotate_write_spare(abox_journal *journal, const char *name, const char *data, size_t len, uint64_t bytes,
	int *retfd, abox_error **reterr);

/* identity.c */
int identity_read(int dir_fd, struct journal_identity *ret, abox_error **reterr);
int identity_write(int dir_fd, const struct journal_identity *identity, abox_error **reterr);
int identity_here(
	int dir_fd, int lock_fd, struct journal_identity *ret, abox_error **reterr); /* all but the id */
int identity_new_id(char ret[ABOX_JOURNAL_ID_BYTES], abox_error **reterr);
int identity_open_folder(const char *path, const struct abox_journal_options *options, int *retfd,
	bool *retread_only, abox_error **reterr);

/* views.c: attach_all without mutex, summarize under it */
int views_attach_all(abox_journal *journal, abox_error **reterr);
int views_reload(abox_journal *journal, abox_error **reterr); /* under mutex, after tail_start() */
int views_summarize(abox_journal *journal, struct text *text, abox_error **reterr);

/* recover.c: the lock file's sync lock is held, and the handle is not shared yet */
int recover_set_aside(abox_journal *journal, uint64_t end, abox_error **reterr);
int recover_room(abox_journal *journal, abox_error **reterr); /* under LOCK_APPEND */
/* Alone: writes the newest segment anew, so that all of it is on the disk. */
int recover_poisoned(abox_journal *journal, struct lock_state *state, abox_error **reterr);
/* Alone: cuts off what does not belong to the chain of the newest segment. */
int recover_cut(abox_journal *journal, uint64_t number, abox_error **reterr);

/* log.c: reading across segments */
struct log {
	int dir_fd;
	struct segment *segment;
	struct segment_reader reader;
	struct chain chain;
	bool sync_each;         /* sync a segment before it is read: a copy has nobody else to do it */
	uint64_t looked_behind; /* segment whose zeros were looked behind once */
	bool head_pending;      /* the head was read already and is to be given out first */
	struct journal_record head;
};
#define LOG_INIT ((struct log){ .dir_fd = -EBADF, .reader = SEGMENT_READER_INIT })
/* So that the next record is from_seq (0: the first there is). ABOX_E_NOT_FOUND: pruned, or beyond the end by
 * more than one. dir_fd is borrowed. */
int log_start(struct log *log, int dir_fd, uint64_t from_seq, bool sync_each, abox_error **reterr);
void log_clear(struct log *log);
void log_clearp(struct log *log);
/* 1 with a record whose texts hold until the next call; 0 at the end; ABOX_E_DAMAGED. known: what others say
 * is durable, so that its absence is damage. */
int log_next(struct log *log, uint64_t known, struct journal_record *ret, abox_error **reterr);
/* The hash of one record: 1; 0 when it was pruned. */
int journal_hash_of(
	abox_journal *journal, uint64_t seq, char rethash[DIGEST_TEXT_BYTES], abox_error **reterr);

/* blob-prune.c: under LOCK_PRUNE */
int blobs_prune(abox_journal *journal, uint64_t age_usec, bool dry_run, uint64_t *retn, abox_error **reterr);

/* open.c */
enum open_purpose { OPEN_ORDINARY, OPEN_REPAIR, OPEN_ADOPT };
int journal_open(const char *path, const struct abox_journal_options *options, enum open_purpose purpose,
	const char *by, abox_journal **ret, abox_error **reterr);

#endif
