/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The folder of the store. What is promised: it is private to one user, nothing in it is believed that
 * another user could have put there, and a file that is replaced is old or new at any moment, a power cut
 * included. What the files mean is left to record.c and layer.c.
 */
#include "workspace/home.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/place.h"
#include "base/strings.h"

#define STAGE ABOX_STAGE_WORKSPACE

int home_make_folder(int dir_fd, const char *name, bool exist_ok, abox_error **reterr)
{
	int fd;

	if (mkdirat(dir_fd, name, 0700) < 0 && (errno != EEXIST || !exist_ok))
		return error_set_errno(reterr, ABOX_E_SYSTEM, STAGE, name, errno, "cannot make the folder");
	fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, STAGE, name, errno, "cannot open the folder");
	return fd;
}

int home_open(abox_error **reterr)
{
	static const char *const folders[] = { HOME_WORKSPACES, HOME_LAYERS, HOME_NAMES, HOME_TRASH };
	_cleanup_(fd_closep) int fd = place_open(PLACE_STATE, STAGE, reterr);

	if (fd < 0)
		return fd;
	for (size_t i = 0; i < ELEMENTSOF(folders); i++)
		if (mkdirat(fd, folders[i], 0700) < 0 && errno != EEXIST)
			return error_set_errno(reterr, ABOX_E_SYSTEM, STAGE, folders[i], errno,
				"cannot make the folder of workspaces");
	return steal_fd(fd);
}

int home_new_id(char ret[STORE_ID_BYTES], abox_error **reterr)
{
	uint8_t bytes[(STORE_ID_BYTES - 1) / 2];

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return error_set_errno(reterr, ABOX_E_SYSTEM, STAGE, "getrandom", errno, "cannot make an id");
	hex_encode(bytes, sizeof(bytes), ret);
	return 0;
}

bool home_is_id(const char *text)
{
	return strlen(text) == STORE_ID_BYTES - 1 && strspn(text, "0123456789abcdef") == STORE_ID_BYTES - 1;
}

bool home_is_name(const char *text)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	size_t len = strlen(text);

	return len > 0 && len <= STORE_NAME_MAX && strspn(text, allowed) == len && text[0] != '.' &&
	       text[0] != '-' &&
	       !home_is_id(text); /* a name that looks like an id could stand for another workspace */
}

/* Who holds it, as the holder wrote; only for the message. */
static int say_busy(int fd, const char *name, abox_error **reterr)
{
	char who[128];
	ssize_t n = pread(fd, who, sizeof(who) - 1, 0);
	int r;

	who[n > 0 ? n : 0] = 0;
	who[strcspn(who, "\n")] = 0;
	r = error_set(reterr, ABOX_E_BUSY, STAGE, name, "in use%s%s", who[0] ? " by " : "", who);
	return error_retryable(reterr, r);
}

static void note_holder(int fd)
{
	char who[128];
	int n = snprintf(who, sizeof(who), "process %d\n", (int)getpid());

	/* Only for messages: a failure changes nothing. */
	if (n > 0 && ftruncate(fd, 0) == 0)
		(void)!pwrite(fd, who, (size_t)n, 0);
}

int home_lock(
	int dir_fd, const char *name, bool exclusive, uint64_t timeout_usec, int *retfd, abox_error **reterr)
{
	struct flock lock = {.l_type = exclusive ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET};
	uint64_t deadline = clock_deadline(clock_monotonic_usec(), timeout_usec);
	_cleanup_(fd_closep) int fd = -EBADF;
	struct timespec pause = {.tv_nsec = 200000};

	fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, STAGE, name, errno, "cannot open the lock");
	while (fcntl(fd, F_OFD_SETLK, &lock) < 0) {
		if (errno != EAGAIN && errno != EACCES && errno != EINTR)
			return error_set_errno(reterr, ABOX_E_SYSTEM, STAGE, name, errno, "cannot lock");
		if (clock_monotonic_usec() >= deadline)
			return say_busy(fd, name, reterr);
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < 20000000)
			pause.tv_nsec *= 2;
	}
	if (exclusive)
		note_holder(fd);
	*retfd = steal_fd(fd);
	return 0;
}

int home_lock_store(int home_fd, int *retfd, abox_error **reterr)
{
	return home_lock(home_fd, "lock", true, HOME_LOCK_TIMEOUT_USEC, retfd, reterr);
}

int home_sync_folder(int dir_fd, const char *place, abox_error **reterr)
{
	if (fsync(dir_fd) < 0)
		return error_set_errno(reterr, ABOX_E_IO, STAGE, place, errno, "cannot sync the folder");
	return 0;
}

int home_replace_file(int dir_fd, const char *name, const char *text, size_t len, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	char temporary[64];
	int r;

	snprintf(temporary, sizeof(temporary), ".%s.new", name);
	fd = openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return error_set_errno(reterr, ABOX_E_IO, STAGE, name, errno, "cannot write");
	r = fd_write_all(fd, text, len);
	if (r >= 0 && fsync(fd) < 0)
		r = -errno;
	if (r >= 0 && renameat(dir_fd, temporary, dir_fd, name) < 0)
		r = -errno;
	if (r < 0) {
		(void)!unlinkat(dir_fd, temporary, 0);
		return error_set_errno(reterr, ABOX_E_IO, STAGE, name, -r, "cannot write");
	}
	return home_sync_folder(dir_fd, name, reterr);
}

int home_discard(int home_fd, int dir_fd, const char *name, abox_error **reterr)
{
	_cleanup_(fd_closep) int trash_fd = -EBADF;
	char id[STORE_ID_BYTES];
	int r;

	trash_fd = home_make_folder(home_fd, HOME_TRASH, true, reterr);
	if (trash_fd < 0)
		return trash_fd;
	r = home_new_id(id, reterr);
	if (r < 0)
		return r;
	if (renameat(dir_fd, name, trash_fd, id) < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, STAGE, name, errno, "cannot move it to the trash");
	return 0;
}

void home_empty_trash(int home_fd, uint64_t *retn_removed, uint64_t *retn_left)
{
	uint64_t n_removed = 0, n_left = 0;
	int fd = openat(home_fd, HOME_TRASH, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!dir) {
		fd_close(fd);
		return;
	}
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		/* Somebody else may be at it too: what is gone is gone. */
		if (path_remove_tree(dirfd(dir), entry->d_name) >= 0)
			n_removed++;
		else if (faccessat(dirfd(dir), entry->d_name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			n_left++;
	}
	closedir(dir);
	if (retn_removed)
		*retn_removed = n_removed;
	if (retn_left)
		*retn_left = n_left;
}

int home_boot_id(char ret[64], abox_error **reterr)
{
	_cleanup_(freep) char *text = NULL;
	size_t len;
	int r;

	r = file_read_text(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 63, &text, &len);
	if (r < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, STAGE, "boot_id", -r, "cannot read it");
	text[strcspn(text, "\n")] = 0;
	snprintf(ret, 64, "%s", text);
	return 0;
}
