/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef JOURNAL_LOCK_H
#define JOURNAL_LOCK_H

#include "base/error.h"
#include "base/macro.h"
#include "base/strings.h"

/* Bytes of the lock file that are locked; none of them is stored. */
#define LOCK_APPEND (UINT64_C(1) << 40) /* one append */
#define LOCK_SYNC (LOCK_APPEND + 1)     /* one sync, one rotation; taken before LOCK_APPEND where both are */
#define LOCK_MEMBER (LOCK_APPEND + 2)   /* shared by every appending handle */
#define LOCK_PRUNE (LOCK_APPEND + 3)
#define LOCK_BLOBS (LOCK_APPEND + 4)      /* storing what is there already, removing what nobody names */
#define LOCK_EXECUTOR (UINT64_C(1) << 42) /* and above: executors */

/* Who holds a lock, for people. Stored in the lock file, 32 bytes, little-endian. */
struct lock_holder {
	uint64_t pid;
	uint64_t start_time;    /* field 22 of /proc/PID/stat, ticks since boot */
	uint64_t pid_namespace; /* inode */
	uint64_t reserved;
};

/* What live processes tell each other. Gone with the power: it counts only when boot_id is this boot's. */
struct lock_state {
	uint8_t boot_id[16];
	uint64_t known;  /* last durable seq; a lower bound */
	uint8_t syncing; /* a sync is under way, or its process died in it */
	uint8_t poisoned;
};

struct lock_file {
	int fd;
	bool writable;
	uint64_t timeout_usec;
	uint8_t boot_id[16];
	struct lock_holder self;
};
#define LOCK_FILE_INIT ((struct lock_file){ .fd = -EBADF })

/* Opens `lock` in the folder; create makes and prewrites it. Read-only where the file may not be written. */
int lock_open(struct lock_file *lock, int dir_fd, bool create, abox_error **reterr);
void lock_close(struct lock_file *lock);

/* Waits with bounded patience; ABOX_E_BUSY names the holder. Waits by trying again: a blocking lock could not
 * end. */
int lock_take(struct lock_file *lock, uint64_t byte, uint64_t deadline_usec, abox_error **reterr);
int lock_take_append(
	struct lock_file *lock, uint64_t deadline_usec, struct lock_state *retstate, abox_error **reterr);
int lock_take_shared(struct lock_file *lock, uint64_t byte, uint64_t deadline_usec, abox_error **reterr);
bool lock_try(struct lock_file *lock, uint64_t byte);
void lock_release(struct lock_file *lock, uint64_t byte);

/* Written under LOCK_SYNC only, read by anyone. Of another boot: zeros but for boot_id. */
int lock_read_state(struct lock_file *lock, struct lock_state *ret, abox_error **reterr);
int lock_write_state(struct lock_file *lock, const struct lock_state *state, abox_error **reterr);

/* {"pid":..,"start":..,"boot":"..","pidns":..} without the braces. */
void lock_describe_self(const struct lock_file *lock, struct text *text);
int lock_self(struct lock_holder *ret, uint8_t retboot_id[16], abox_error **reterr);

#endif
