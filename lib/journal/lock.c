/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The lock file: mutual exclusion between processes, and the few bytes they share.
 *
 * Locks are open-file-description locks: the kernel frees them when the last descriptor of a description is
 * closed, so a killed holder holds nothing, a reused pid means nothing, and a description passed to another
 * process shares the lock. The file is never replaced and a lock is never broken: a stopped holder may go on
 * at any time.
 *
 * Layout: 0 "abox-lock 1\n"; 64 holder of LOCK_APPEND; 128 state; 192 holder of LOCK_SYNC. Each is written
 * under its own lock. Reads and writes go through the page cache and not through a mapping: a mapped file
 * that is cut, or that cannot get room, kills the process that touches it.
 */
#include "journal/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "journal/inject.h"

#define FILE_BYTES 4096
#define HEADER "abox-lock 1\n"
#define APPEND_HOLDER_AT 64
#define STATE_AT 128
#define SYNC_HOLDER_AT 192

struct stored_state {
	uint8_t boot_id[16];
	uint64_t known;
	uint64_t known_check; /* ~known: a read that meets a write is seen and made again */
	uint8_t syncing;
	uint8_t poisoned;
	uint8_t padding[30];
};

static int read_boot_id(uint8_t ret[16], abox_error **reterr)
{
	_cleanup_(freep) char *text = NULL;
	char digits[33];
	size_t n = 0;
	int r;

	r = file_read_text(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 128, &text, NULL);
	if (r < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_JOURNAL,
			"/proc/sys/kernel/random/boot_id", -r, "cannot tell this boot from the last one");
	for (const char *p = text; *p && n < 32; p++)
		if (*p != '-' && *p != '\n')
			digits[n++] = *p;
	digits[n] = 0;
	if (n != 32 || hex_decode(digits, ret, 16) < 0)
		return error_set(reterr, ABOX_E_SYSTEM, ABOX_STAGE_JOURNAL, "/proc/sys/kernel/random/boot_id",
			"not a boot id");
	return 0;
}

/* The 22nd field; the second one is a name in parentheses that may hold anything. */
static uint64_t read_start_time(void)
{
	_cleanup_(freep) char *text = NULL;
	uint64_t value = 0;
	char *at;

	if (file_read_text(AT_FDCWD, "/proc/self/stat", 4096, &text, NULL) < 0)
		return 0;
	at = strrchr(text, ')');
	for (int field = 2; at && field < 22; field++) {
		at = strchr(at + 1, ' ');
		if (!at)
			return 0;
	}
	if (at)
		value = strtoull(at + 1, NULL, 10);
	return value;
}

int lock_self(struct lock_holder *ret, uint8_t retboot_id[16], abox_error **reterr)
{
	struct stat st;

	*ret = (struct lock_holder){ .pid = (uint64_t)getpid(), .start_time = read_start_time() };
	if (stat("/proc/self/ns/pid", &st) == 0)
		ret->pid_namespace = st.st_ino;
	return read_boot_id(retboot_id, reterr);
}

/* Every byte is written once, so that later writes need no room. */
static int prewrite(int fd, abox_error **reterr)
{
	char bytes[FILE_BYTES] = HEADER;
	int r;

	r = jio_pwrite(fd, bytes, sizeof(bytes), 0);
	if (r == 0)
		r = jio_sync(fd);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, "lock", -r, "cannot write the lock file");
	return 0;
}

/* Creating it was cut short: empty, too short, or its first block never reached the disk. */
static bool is_unborn(int fd)
{
	char header[sizeof(HEADER) - 1];
	struct stat st;

	if (fstat(fd, &st) < 0 || st.st_size >= FILE_BYTES) {
		if (fd_pread_all(fd, header, sizeof(header), 0) != (ssize_t)sizeof(header))
			return false;
		return header[0] == 0 && memcmp(header, header + 1, sizeof(header) - 1) == 0;
	}
	return true;
}

static int check_file(int fd, abox_error **reterr)
{
	char header[sizeof(HEADER)] = "";
	struct stat st;

	if (fstat(fd, &st) < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_JOURNAL, "lock", errno, "cannot stat");
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1)
		return error_set(reterr, ABOX_E_PERMISSION, ABOX_STAGE_JOURNAL, "lock",
			"is not a plain file of its own");
	if (is_unborn(fd))
		return error_set(reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_JOURNAL, "lock",
			"the journal is being created, or creating it was cut short");
	if (fd_pread_all(fd, header, sizeof(header) - 1, 0) != (ssize_t)sizeof(header) - 1 ||
		memcmp(header, HEADER, sizeof(HEADER) - 1) != 0 || st.st_size < FILE_BYTES)
		return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, "lock",
			"is not a lock file of this format");
	return 0;
}

int lock_open(struct lock_file *lock, int dir_fd, bool create, abox_error **reterr)
{
	struct stat st;
	int r;

	r = lock_self(&lock->self, lock->boot_id, reterr);
	if (r < 0)
		return r;
	lock->writable = true;
	lock->fd = jio_open(dir_fd, "lock", O_RDWR | (create ? O_CREAT : 0), 0600);
	if (!create && (lock->fd == -EACCES || lock->fd == -EROFS || lock->fd == -EPERM)) {
		lock->writable = false;
		lock->fd = jio_open(dir_fd, "lock", O_RDONLY, 0);
	}
	if (lock->fd < 0)
		return error_set_errno(reterr, lock->fd == -ENOENT ? ABOX_E_NOT_FOUND : ABOX_E_IO,
			ABOX_STAGE_JOURNAL, "lock", -lock->fd, "cannot open the lock file");
	if (!create)
		return check_file(lock->fd, reterr);

	/* Two creators: the second finds the work done, as both hold the lock meanwhile. */
	r = lock_take(lock, LOCK_SYNC, clock_deadline(clock_monotonic_usec(), lock->timeout_usec), reterr);
	if (r < 0)
		return r;
	if (fstat(lock->fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 && is_unborn(lock->fd))
		r = prewrite(lock->fd, reterr);
	lock_release(lock, LOCK_SYNC);
	return r < 0 ? r : check_file(lock->fd, reterr);
}

void lock_close(struct lock_file *lock)
{
	lock->fd = fd_close(lock->fd);
}

static int set_lock(const struct lock_file *lock, uint64_t byte, int type)
{
	struct flock request = {
		.l_type = (short)type, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1
	};

	return fcntl(lock->fd, F_OFD_SETLK, &request) < 0 ? -errno : 0;
}

static uint64_t holder_offset(uint64_t byte)
{
	return byte == LOCK_APPEND ? APPEND_HOLDER_AT : byte == LOCK_SYNC ? SYNC_HOLDER_AT : 0;
}

static int set_busy(const struct lock_file *lock, uint64_t byte, abox_error **reterr)
{
	struct lock_holder holder = { 0 };
	uint64_t offset = holder_offset(byte);
	int r;

	if (offset)
		(void)fd_pread_all(lock->fd, &holder, sizeof(holder), offset);
	if (holder.pid == 0)
		r = error_set(
			reterr, ABOX_E_BUSY, ABOX_STAGE_JOURNAL, "lock", "another process has the journal");
	else
		r = error_set(reterr, ABOX_E_BUSY, ABOX_STAGE_JOURNAL, "lock",
			"process %" PRIu64 " (start time %" PRIu64 ", pid namespace %" PRIu64
			"%s) holds the %s lock",
			holder.pid, holder.start_time, holder.pid_namespace,
			holder.pid_namespace == lock->self.pid_namespace ? "" : ", not this one",
			byte == LOCK_SYNC ? "sync" : "append");
	error_remedy(reterr, r, "wait, or let it go on or end it; the lock is free once it is gone");
	return error_retryable(reterr, r);
}

static int take(struct lock_file *lock, uint64_t byte, int type, uint64_t deadline_usec, abox_error **reterr)
{
	struct timespec pause = { .tv_nsec = 10 * 1000 };
	int r;

	for (unsigned int round = 0;; round++) {
		r = set_lock(lock, byte, type);
		if (r == 0)
			return 0;
		if (r != -EAGAIN && r != -EACCES && r != -EINTR)
			return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_JOURNAL, "lock", -r,
				"cannot lock the journal");
		if (clock_monotonic_usec() >= deadline_usec)
			return set_busy(lock, byte, reterr);
		if (round < 4) {
			sched_yield();
			continue;
		}
		nanosleep(&pause, NULL);
		pause.tv_nsec = MIN(pause.tv_nsec * 2, 2 * 1000 * 1000);
	}
}

/* The holder is named for people who wait; written only when it was somebody else before. */
static void name_holder(struct lock_file *lock, uint64_t byte)
{
	struct lock_holder holder;
	uint64_t offset = holder_offset(byte);

	if (!offset || !lock->writable)
		return;
	if (fd_pread_all(lock->fd, &holder, sizeof(holder), offset) == (ssize_t)sizeof(holder) &&
		memcmp(&holder, &lock->self, sizeof(holder)) == 0)
		return;
	(void)fd_pwrite_all(lock->fd, &lock->self, sizeof(lock->self), offset);
}

int lock_take(struct lock_file *lock, uint64_t byte, uint64_t deadline_usec, abox_error **reterr)
{
	int r;

	r = take(lock, byte, F_WRLCK, deadline_usec, reterr);
	if (r == 0)
		name_holder(lock, byte);
	return r;
}

int lock_take_shared(struct lock_file *lock, uint64_t byte, uint64_t deadline_usec, abox_error **reterr)
{
	return take(lock, byte, F_RDLCK, deadline_usec, reterr);
}

bool lock_try(struct lock_file *lock, uint64_t byte)
{
	return set_lock(lock, byte, F_WRLCK) == 0;
}

void lock_release(struct lock_file *lock, uint64_t byte)
{
	(void)set_lock(lock, byte, F_UNLCK);
}

static bool is_whole(const struct stored_state *stored)
{
	return stored->known_check == ~stored->known || (stored->known == 0 && stored->known_check == 0);
}

static void take_state(
	const struct lock_file *lock, const struct stored_state *stored, struct lock_state *ret)
{
	*ret = (struct lock_state){ 0 };
	memcpy(ret->boot_id, lock->boot_id, sizeof(ret->boot_id));
	if (memcmp(stored->boot_id, lock->boot_id, sizeof(stored->boot_id)) != 0)
		return;
	ret->known = stored->known;
	ret->syncing = stored->syncing;
	ret->poisoned = stored->poisoned;
}

int lock_read_state(struct lock_file *lock, struct lock_state *ret, abox_error **reterr)
{
	struct stored_state stored;
	ssize_t n;

	for (int round = 0; round < 1000; round++) {
		n = fd_pread_all(lock->fd, &stored, sizeof(stored), STATE_AT);
		if (n != (ssize_t)sizeof(stored))
			return error_set_errno(reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, "lock",
				n < 0 ? (int)-n : EIO, "cannot read the shared state");
		if (is_whole(&stored))
			break;
		stored.known = 0; /* a lower bound, should this go on for ever */
		sched_yield();
	}
	take_state(lock, &stored, ret);
	return 0;
}

/* Holder and state stand side by side, so that the most frequent step reads both at once. */
int lock_take_append(
	struct lock_file *lock, uint64_t deadline_usec, struct lock_state *retstate, abox_error **reterr)
{
	struct {
		struct lock_holder holder;
		uint8_t padding[STATE_AT - APPEND_HOLDER_AT - sizeof(struct lock_holder)];
		struct stored_state state;
	} block;
	int r;

	r = take(lock, LOCK_APPEND, F_WRLCK, deadline_usec, reterr);
	if (r < 0)
		return r;
	if (fd_pread_all(lock->fd, &block, sizeof(block), APPEND_HOLDER_AT) == (ssize_t)sizeof(block) &&
		is_whole(&block.state)) {
		if (memcmp(&block.holder, &lock->self, sizeof(block.holder)) != 0)
			(void)fd_pwrite_all(lock->fd, &lock->self, sizeof(lock->self), APPEND_HOLDER_AT);
		take_state(lock, &block.state, retstate);
		return 0;
	}
	r = lock_read_state(lock, retstate, reterr);
	if (r < 0)
		lock_release(lock, LOCK_APPEND);
	return r;
}

int lock_write_state(struct lock_file *lock, const struct lock_state *state, abox_error **reterr)
{
	struct stored_state stored = { .known = state->known,
		.known_check = ~state->known,
		.syncing = state->syncing,
		.poisoned = state->poisoned };
	int r;

	memcpy(stored.boot_id, lock->boot_id, sizeof(stored.boot_id));
	r = jio_pwrite(lock->fd, &stored, sizeof(stored), STATE_AT);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, "lock", -r, "cannot write the shared state");
	return 0;
}

void lock_describe_self(const struct lock_file *lock, struct text *text)
{
	char boot[33];

	hex_encode(lock->boot_id, sizeof(lock->boot_id), boot);
	text_printf(text, "\"pid\":%" PRIu64 ",\"start\":%" PRIu64 ",\"boot\":\"%s\",\"pidns\":%" PRIu64,
		lock->self.pid, lock->self.start_time, boot, lock->self.pid_namespace);
}
