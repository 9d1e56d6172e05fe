/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Executor locks: who may still be sending. One byte of the lock file for each executor, at a random place;
 * held through an open file description of its own, so that whoever gets a copy of the descriptor shares it,
 * and the kernel frees it when the last copy is closed, however its holders ended.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/random.h>
#include <unistd.h>

#include "journal/handle.h"
#include "journal/inject.h"

#define NUMBER_BITS 52 /* exact in every JSON reader */

static struct flock request(uint64_t number)
{
	return (struct flock){ .l_type = F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = (off_t)(LOCK_EXECUTOR + number),
		.l_len = 1 };
}

int journal_executor_open(abox_journal *journal, uint64_t *retnumber, int *retfd, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	struct flock lock;
	uint64_t number;
	int r;

	r = journal_check(journal, true, reterr);
	if (r < 0)
		return r;
	fd = jio_open(journal->dir_fd, "lock", O_RDWR, 0);
	if (fd < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, "lock", -fd, "cannot open the lock file");
	for (int tries = 0; tries < 8; tries++) {
		if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
			break;
		number &= (UINT64_C(1) << NUMBER_BITS) - 1;
		lock = request(number);
		if (number > 0 && fcntl(fd, F_OFD_SETLK, &lock) == 0) {
			*retnumber = number;
			*retfd = steal_fd(fd);
			return 0;
		}
	}
	return error_set_errno(
		reterr, ABOX_E_SYSTEM, ABOX_STAGE_JOURNAL, "lock", errno, "cannot take an executor lock");
}

int journal_executor_alive(abox_journal *journal, uint64_t number, abox_error **reterr)
{
	struct flock lock;
	int r;

	r = journal_check(journal, false, reterr);
	if (r < 0)
		return r;
	if (number == 0 || number >> NUMBER_BITS)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, NULL, "no such executor number");
	lock = request(number);
	if (fcntl(journal->lock.fd, F_OFD_GETLK, &lock) < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_JOURNAL, "lock", errno, "cannot test a lock");
	return lock.l_type != F_UNLCK;
}
