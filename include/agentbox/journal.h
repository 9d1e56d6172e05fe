/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Journal: the append-only, hash-chained record of everything that mattered. One folder per journal, several
 * processes at once, JSON Lines inside; lib/journal/README.md describes the format for other programs.
 *
 * A journal works without a sandbox: a harness may link it only to guard its own tool calls.
 */
#ifndef AGENTBOX_JOURNAL_H
#define AGENTBOX_JOURNAL_H

#include <agentbox/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct abox_journal_reader abox_journal_reader;

/** Bytes of a digest in hexadecimal with its NUL. */
#define ABOX_DIGEST_TEXT_BYTES 65
/** Bytes of a journal id in hexadecimal with its NUL. */
#define ABOX_JOURNAL_ID_BYTES 33

/** How a journal is opened. */
enum abox_journal_mode {
	/* look only; a damaged, poisoned or copied journal can still be read */
	ABOX_JOURNAL_READ = 0,
	ABOX_JOURNAL_APPEND = 1		/* read and append; any number of processes at once */
};

/** Flags of struct abox_journal_options. */
enum {
	ABOX_JOURNAL_CREATE = 1 << 0,	/* make it when it is not there (APPEND only) */
	ABOX_JOURNAL_EXCLUSIVE = 1 << 1	/* with CREATE: ABOX_E_EXISTS when it is there */
};

/** What must be true of a record before the call that wrote it returns. */
enum abox_durability {
	ABOX_DURABILITY_DEFAULT = 0,	/* as ABOX_DURABILITY_DATA */
	ABOX_DURABILITY_NONE = 1,	/* in the page cache: survives the process, not the power */
	ABOX_DURABILITY_DATA = 2,	/* on the disk (fdatasync); concurrent callers share one sync */
	ABOX_DURABILITY_FULL = 3	/* and the metadata of file and folder (fsync) */
};

/**
 * abox_journal_witness_fn - remembers, outside of the journal, how far it had come
 * @userdata:  as given
 * @id:        the journal
 * @retseq:    the last position the witness was told (see abox_journal_get_position()); 0 for none
 * @rethash:   the hash of that record
 *
 * A journal that was put back to an earlier state in its place shows only to a witness. Asked once at open,
 * on the thread that opens.
 *
 * Return:   0, or a negative code that refuses the open
 */
typedef int (*abox_journal_witness_fn)(
	void *userdata, const char *id, uint64_t *retseq, char rethash[ABOX_DIGEST_TEXT_BYTES]);

struct abox_journal_options {
	size_t size;			/* sizeof(struct abox_journal_options) */
	uint32_t mode;			/* enum abox_journal_mode */
	uint32_t flags;
	uint64_t segment_bytes;		/* room of a new segment; 0: 4 MiB; 64 KiB to 1 GiB */
	uint64_t lock_timeout_usec;	/* patience with other processes before ABOX_E_BUSY; 0: 10 s */
	abox_journal_witness_fn witness;	/* may be NULL */
	void *witness_userdata;
};
#define ABOX_JOURNAL_OPTIONS_INIT { sizeof(struct abox_journal_options), 0, 0, 0, 0, 0, 0 }

/** abox_journal_options_init() - as ABOX_JOURNAL_OPTIONS_INIT, for bindings. Threads: any. Since: 0.1 */
ABOX_API void abox_journal_options_init(struct abox_journal_options *options);

/**
 * abox_journal_open() - open a journal folder
 * @path:      the folder; its last component may not be a symbolic link
 * @options:   NULL: read
 * @ret:       released with abox_journal_unref()
 * @reterr:    error; may be NULL
 *
 * Opening for append syncs what it read before it believes it, sets a torn tail aside, and repairs a poisoned
 * journal when no other process has it open; abox_journal_dump() tells what was found. Time is bounded by the
 * newest segment. The folder must belong to the caller and be writable by nobody else; network file systems
 * are refused, as their locks can be lost silently.
 *
 * Effects:  on the host: the folder, where it is created; else as above
 * Threads:  any; the handle may be used by several threads at once. It is dead in a forked child.
 * Return:   0, ABOX_E_NOT_FOUND, ABOX_E_EXISTS, ABOX_E_PERMISSION, ABOX_E_UNSUPPORTED (network file system,
 *           newer format), ABOX_E_DAMAGED, ABOX_E_POISONED (and others have it open), ABOX_E_CLONED (a copy,
 *           or behind its witness), ABOX_E_BUSY, ABOX_E_NOSPACE, ABOX_E_IO, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_journal_open(
	const char *path, const struct abox_journal_options *options, abox_journal **ret,
	abox_error **reterr);

/** abox_journal_ref() - another reference. Threads: any. Return: journal. Since: 0.1 */
ABOX_API abox_journal *abox_journal_ref(abox_journal *journal);

/**
 * abox_journal_unref() - give a reference back; the last one closes
 * @journal:   may be NULL
 *
 * What was appended with ABOX_DURABILITY_NONE stays unsynced. In a forked child only memory and descriptors
 * go.
 *
 * Threads:  any
 * Return:   NULL
 * Since:    0.1
 */
ABOX_API abox_journal *abox_journal_unref(abox_journal *journal);

/**
 * abox_journal_get_id() - 32 hexadecimal digits, owned by the journal; NULL for NULL. Threads: any. Since:
 * 0.1
 */
ABOX_API const char *abox_journal_get_id(const abox_journal *journal);

/**
 * abox_journal_get_position() - the newest record known to be durable, for a witness
 * @journal:   borrowed
 * @retseq:    its number, 0 when none is
 * @rethash:   its hash
 *
 * Threads:  any
 * Return:   0, ABOX_E_INVALID, ABOX_E_STATE (forked child)
 * Since:    0.1
 */
ABOX_API int abox_journal_get_position(
	abox_journal *journal, uint64_t *retseq, char rethash[ABOX_DIGEST_TEXT_BYTES], abox_error **reterr);

/**
 * abox_journal_dump() - state of the handle as JSON
 * @journal:   borrowed
 * @retjson:   {"id", "format", "mode", "segment", "seq", "known", "reserved", "poisoned", "cloned",
 *             "machine", "found": [...]}; "found" lists what opening had to set aside or repair; abox_free()
 *
 * Threads:  any
 * Return:   0, ABOX_E_INVALID, ABOX_E_STATE, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_journal_dump(abox_journal *journal, char **retjson, abox_error **reterr);

/** One record to be appended. */
struct abox_journal_entry {
	size_t size;			/* sizeof(struct abox_journal_entry) */
	const char *type;		/* 1-64 of [a-z0-9._-]; NULL: "note" */
	const char *task;		/* job id, may be NULL; at most 255 bytes */
	const char *box;		/* sandbox id, may be NULL; at most 255 bytes */
	const char *body;		/* one JSON object, at most 2 MiB; NULL: {} */
	uint64_t epoch;			/* 0: none */
	uint32_t durability;		/* enum abox_durability */
	uint32_t reserved;		/* 0 */
};
#define ABOX_JOURNAL_ENTRY_INIT { sizeof(struct abox_journal_entry), 0, 0, 0, 0, 0, 0, 0 }

/** abox_journal_entry_init() - as ABOX_JOURNAL_ENTRY_INIT, for bindings. Threads: any. Since: 0.1 */
ABOX_API void abox_journal_entry_init(struct abox_journal_entry *entry);

/**
 * abox_journal_append() - append one record
 * @journal:   opened with ABOX_JOURNAL_APPEND
 * @entry:     borrowed. Types beginning with journal. task. stage. effect. approval. belong to the library.
 * @retseq:    number of the record; may be NULL
 * @reterr:    error; may be NULL
 *
 * On failure the record is not acknowledged; it may still turn out to be there when its sync failed
 * (ABOX_E_POISONED). Secrets do not belong into a journal: nothing is redacted here.
 *
 * Threads:  any, at once
 * Return:   0, ABOX_E_INVALID, ABOX_E_SYNTAX (body is not one JSON object), ABOX_E_LIMIT (too large),
 *           ABOX_E_BUSY, ABOX_E_NOSPACE, ABOX_E_POISONED, ABOX_E_DAMAGED, ABOX_E_STATE, ABOX_E_IO,
 *           ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_journal_append(
	abox_journal *journal, const struct abox_journal_entry *entry, uint64_t *retseq, abox_error **reterr);

/**
 * abox_journal_sync() - make records durable
 * @journal:     borrowed
 * @seq:         up to this record; 0: all that this handle has appended or read
 * @durability:  enum abox_durability
 * @reterr:      error; may be NULL
 *
 * Threads:  any, at once; callers share one sync
 * Return:   0, ABOX_E_INVALID, ABOX_E_POISONED (the sync failed, now or before), ABOX_E_BUSY, ABOX_E_STATE,
 *           ABOX_E_IO
 * Since:    0.1
 */
ABOX_API int abox_journal_sync(abox_journal *journal, uint64_t seq, int durability, abox_error **reterr);

/** A record that was read. All pointers belong to the reader and hold until its next call. */
struct abox_journal_record {
	size_t size;
	uint64_t seq;
	uint64_t known;			/* what the writer knew to be durable */
	uint64_t epoch;
	uint64_t time_usec;		/* wall clock of the writer; order is by seq only */
	const char *type;
	const char *task;		/* NULL: none */
	const char *box;		/* NULL: none */
	const char *body;		/* JSON text */
	const char *hash;		/* 64 hexadecimal digits */
	const char *line;		/* the exact bytes, without the newline */
	size_t line_bytes;
	uint64_t segment;		/* where it stands */
	uint64_t offset_bytes;
	uint32_t durable;		/* 1: on the disk; 0 only with ABOX_JOURNAL_READ_UNSYNCED */
	uint32_t reserved;
};

/** Flags of abox_journal_reader_new(). */
enum {
	/* also what is not known to be durable; such a record may vanish */
	ABOX_JOURNAL_READ_UNSYNCED = 1 << 0
};

/**
 * abox_journal_reader_new() - read records in order
 * @journal:   kept referenced by the reader
 * @from_seq:  first record wanted; 0: the first there is; one past the end: only what comes
 * @flags:     ABOX_JOURNAL_READ_UNSYNCED or 0
 * @ret:       released with abox_journal_reader_unref()
 *
 * Constant memory, whatever the length of the journal. Without the flag, records are made durable before they
 * are told.
 *
 * Threads:  any; the reader is used by one thread at a time
 * Return:   0, ABOX_E_INVALID, ABOX_E_NOT_FOUND (pruned, or beyond the end), ABOX_E_DAMAGED, ABOX_E_IO,
 *           ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_journal_reader_new(
	abox_journal *journal, uint64_t from_seq, uint32_t flags, abox_journal_reader **ret,
	abox_error **reterr);

/**
 * abox_journal_reader_next() - the next record
 * @reader:    borrowed
 * @ret:       filled; its `size` is set by the caller (ABOX_JOURNAL_RECORD_INIT)
 *
 * Threads:  one
 * Return:   1 with a record, 0 when there is none yet, ABOX_E_DAMAGED (place names segment and offset),
 *           ABOX_E_POISONED (nothing beyond here can be promised), ABOX_E_IO, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_journal_reader_next(
	abox_journal_reader *reader, struct abox_journal_record *ret, abox_error **reterr);
#define ABOX_JOURNAL_RECORD_INIT \
	{ sizeof(struct abox_journal_record), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * abox_journal_reader_wait() - wait until there may be a next record
 * @timeout_usec:  0 only looks, ABOX_FOREVER waits for ever
 *
 * Threads:  one
 * Return:   1 when there may be one, 0 on timeout, ABOX_E_IO, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_journal_reader_wait(abox_journal_reader *reader, uint64_t timeout_usec,
	abox_error **reterr);

/**
 * abox_journal_reader_get_fd() - a descriptor for the caller's own loop
 *
 * Readable when there may be a next record; then call abox_journal_reader_next() until it answers 0, which
 * also quiets the descriptor. It belongs to the reader.
 *
 * Threads:  one
 * Return:   a descriptor, ABOX_E_SYSTEM, ABOX_E_INVALID
 * Since:    0.1
 */
ABOX_API int abox_journal_reader_get_fd(abox_journal_reader *reader, abox_error **reterr);

/** abox_journal_reader_unref() - release a reader; takes NULL. Threads: one. Return: NULL. Since: 0.1 */
ABOX_API abox_journal_reader *abox_journal_reader_unref(abox_journal_reader *reader);

/** What abox_journal_verify() looks at besides the chain. */
struct abox_journal_verify_options {
	size_t size;			/* sizeof(struct abox_journal_verify_options) */
	/* PEM; signed checkpoints in the journal must verify with it; may be NULL */
	const char *public_key;
	/* JSON from abox_journal_checkpoint(), kept elsewhere: must be in the chain */
	const char *checkpoint;
	uint32_t blobs;			/* 1: the blob folder too */
	uint32_t reserved;
};
#define ABOX_JOURNAL_VERIFY_OPTIONS_INIT { sizeof(struct abox_journal_verify_options), 0, 0, 0, 0 }

/**
 * abox_journal_verify() - check every record, seal and gap, from the folder alone
 * @path:      the journal folder
 * @options:   NULL: the chain only
 * @retjson:   {"ok", "id", "records", "first_seq", "last_seq", "last_hash", "first_segment", "pruned_before",
 *             "torn", "checkpoints", "blobs", "damages", "damage": [{"segment", "offset", "seq",
 *             "reason"}...]}, also when damage was found (then the answer is 0 and "ok" false); abox_free()
 * @reterr:    error; may be NULL
 *
 * Reads without a lock and in constant memory; others may append meanwhile. A flip in the newest record alone
 * reads as a torn tail unless a later record, another process or a checkpoint claims it.
 *
 * Effects:  on the host: none
 * Threads:  any
 * Return:   1 when all is well, 0 when damage was found, ABOX_E_NOT_FOUND, ABOX_E_PERMISSION, ABOX_E_IO,
 *           ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_journal_verify(const char *path, const struct abox_journal_verify_options *options,
	char **retjson, abox_error **reterr);

/**
 * abox_journal_rotate() - close the newest segment and begin another
 * @journal:   opened with ABOX_JOURNAL_APPEND
 *
 * Happens by itself when a segment is full.
 *
 * Threads:  any
 * Return:   0, ABOX_E_NOSPACE (nothing was closed), ABOX_E_BUSY, ABOX_E_POISONED, ABOX_E_STATE, ABOX_E_IO,
 *           ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_journal_rotate(abox_journal *journal, abox_error **reterr);

/**
 * abox_journal_export() - write records as JSON Lines to a descriptor
 * @journal:   borrowed
 * @from_seq:  0: from the first
 * @to_seq:    UINT64_MAX: to the end
 * @fd:        written to with write(2); the caller's
 * @retcount:  records written; may be NULL
 *
 * Threads:  any
 * Return:   0, ABOX_E_NOT_FOUND, ABOX_E_DAMAGED, ABOX_E_IO, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_journal_export(abox_journal *journal, uint64_t from_seq, uint64_t to_seq, int fd,
	uint64_t *retcount, abox_error **reterr);

/**
 * abox_journal_blob_put() - store bytes under their SHA-256
 * @journal:    opened with ABOX_JOURNAL_APPEND
 * @retdigest:  64 hexadecimal digits; a record refers to it as "sha256:DIGEST", which also protects it from
 *              prune
 *
 * On the disk before the call returns. The same bytes are stored once.
 *
 * Threads:  any, at once
 * Return:   0, ABOX_E_INVALID, ABOX_E_NOSPACE, ABOX_E_STATE, ABOX_E_IO, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_journal_blob_put(abox_journal *journal, const void *data, size_t data_bytes,
	char retdigest[ABOX_DIGEST_TEXT_BYTES], abox_error **reterr);

/**
 * abox_journal_blob_get() - read bytes back, checked against their digest
 * @digest:     64 hexadecimal digits, "sha256:" in front or not
 * @max_bytes:  larger ones are refused; 0: 64 MiB
 * @retdata:    with a NUL behind, which is not counted; abox_free()
 *
 * Threads:  any, at once
 * Return:   0, ABOX_E_INVALID, ABOX_E_NOT_FOUND, ABOX_E_LIMIT, ABOX_E_DAMAGED, ABOX_E_IO, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_journal_blob_get(abox_journal *journal, const char *digest, uint64_t max_bytes,
	char **retdata,
	size_t *retbytes, abox_error **reterr);

/**
 * abox_journal_checkpoint() - a signed statement of how far the journal has come
 * @journal:        opened with ABOX_JOURNAL_APPEND
 * @private_key:    Ed25519, PEM, not encrypted
 * @retcheckpoint:  JSON {"journal","seq","hash","time","key","signature"}; kept elsewhere it shows that a
 *                  tail was cut off; abox_free()
 *
 * Syncs, signs the newest durable record and appends the statement as journal.checkpoint.
 *
 * Threads:  any
 * Return:   0, ABOX_E_INVALID (key), and what abox_journal_append() returns
 * Since:    0.1
 */
ABOX_API int abox_journal_checkpoint(
	abox_journal *journal, const char *private_key, char **retcheckpoint, abox_error **reterr);

/**
 * abox_journal_repair() - make a poisoned or damaged journal usable again
 * @path:      the journal folder; nobody else may have it open
 * @by:        who says so, recorded; 1-255 bytes
 * @retjson:   {"found":[...]} what was done; may be NULL; abox_free()
 *
 * A poisoned journal is rewritten. Damage in the newest segment is cut out: the valid part stays, the rest is
 * set aside in the folder and named in a journal.repaired record. Damage in older segments stays where it is,
 * as what follows it is still good.
 *
 * Threads:  any
 * Return:   0, ABOX_E_BUSY (others have it open), ABOX_E_CLONED, and what abox_journal_open() returns
 * Since:    0.1
 */
ABOX_API int abox_journal_repair(const char *path, const char *by, char **retjson, abox_error **reterr);

/**
 * abox_journal_adopt() - take a copied or restored folder as a journal of its own
 * @path:      the journal folder
 * @by:        who says so, recorded; 1-255 bytes
 *
 * It gets a new id. What was under way in the original is unknown here: effects that are not final become
 * UNKNOWN.
 *
 * Threads:  any
 * Return:   0, ABOX_E_ALREADY (it is no copy), ABOX_E_BUSY, and what abox_journal_open() returns
 * Since:    0.1
 */
ABOX_API int abox_journal_adopt(const char *path, const char *by, abox_error **reterr);

/** What abox_journal_prune() may drop. */
struct abox_journal_prune_options {
	size_t size;			/* sizeof(struct abox_journal_prune_options) */
	uint64_t before_seq;		/* only segments wholly below; 0: no bound */
	/* only segments whose last record is older (wall clock); 0: no bound */
	uint64_t before_time_usec;
	uint64_t keep_segments;		/* at least so many sealed ones stay */
	uint64_t blob_age_usec;		/* unreferenced blobs older than this go; 0: a day */
	uint32_t dry_run;		/* 1: only tell */
	uint32_t reserved;
};
#define ABOX_JOURNAL_PRUNE_OPTIONS_INIT { sizeof(struct abox_journal_prune_options), 0, 0, 0, 0, 0, 0 }

/**
 * abox_journal_prune() - drop old segments and unreferenced blobs
 * @journal:   opened with ABOX_JOURNAL_APPEND
 * @options:   NULL: all that may go
 * @retjson:   {"segments","records","bytes","carried","blobs","kept_for"}; may be NULL; abox_free()
 *
 * Whole segments only, oldest first. Effects of open tasks and unknown ones stay; the end of a task is
 * carried over and synced before its segment goes, and stays for ever.
 *
 * Threads:  any
 * Return:   0, and what abox_journal_append() returns
 * Since:    0.1
 */
ABOX_API int abox_journal_prune(abox_journal *journal, const struct abox_journal_prune_options *options,
	char **retjson, abox_error **reterr);

#ifdef __cplusplus
}
#endif
#endif
