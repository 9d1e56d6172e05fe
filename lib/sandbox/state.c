/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The state folder. It is private to one user; nothing in it is believed that another user could have put there.
 */
#include "sandbox/state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <agentbox/sandbox.h>

#include "base/fd.h"
#include "keeper/wire.h"

#define UNBORN_SECONDS 60
#define RECORD_MAX 65536

/* The folder that holds ours, and our name in it. `made` says that the holder is ours to make as well (ABOX_HOME). */
static int choose_place(char *retparent, size_t size, const char **retname)
{
	const char *home = secure_getenv("ABOX_HOME"), *runtime = secure_getenv("XDG_RUNTIME_DIR");
	struct stat st;
	int n;

	if (!string_empty(home)) {
		*retname = "run";
		n = snprintf(retparent, size, "%s", home);
	} else if (geteuid() == 0) {
		*retname = "agentbox";
		n = snprintf(retparent, size, "/run");
	} else if (!string_empty(runtime) && stat(runtime, &st) == 0 && st.st_uid == geteuid()) {
		*retname = "agentbox";
		n = snprintf(retparent, size, "%s", runtime);
	} else {
		*retname = NULL;	/* /tmp/agentbox-UID: the name is made by the caller */
		n = snprintf(retparent, size, "/tmp");
	}
	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

/*
 * Security: a folder in /tmp may have been planted. It is ours only when it is a real folder, owned by us, closed to all
 * others; a link is never followed.
 */
static int open_private(int parent_fd, const char *name, int stage, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	struct stat st;

	if (mkdirat(parent_fd, name, 0700) < 0 && errno != EEXIST)
		return error_set_errno(reterr, ABOX_E_SYSTEM, stage, name, errno, "cannot make the state folder");
	fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, stage, name, errno, "cannot open the state folder");
	if (st.st_uid != geteuid())
		return error_remedy(reterr,
			error_set(reterr, ABOX_E_PERMISSION, stage, name, "the state folder belongs to uid %u", st.st_uid),
			"set ABOX_HOME to a folder of your own");
	if ((st.st_mode & 077) && fchmod(fd, 0700) < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, stage, name, errno, "cannot close the state folder to others");
	return steal_fd(fd);
}

int state_open(int stage, abox_error **reterr)
{
	_cleanup_(fd_closep) int parent_fd = -EBADF, state_fd = -EBADF;
	char parent[PATH_MAX], own[32];
	static const char *const folders[] = { STATE_BOXES, STATE_NAMES };
	const char *name;
	int r;

	r = choose_place(parent, sizeof(parent), &name);
	if (r < 0)
		return error_set_errno(reterr, ABOX_E_INVALID, stage, "ABOX_HOME", -r, "cannot use it");
	if (!name) {
		snprintf(own, sizeof(own), "agentbox-%u", geteuid());
		name = own;
	}
	if (secure_getenv("ABOX_HOME") && mkdir(parent, 0700) < 0 && errno != EEXIST)
		return error_set_errno(reterr, ABOX_E_SYSTEM, stage, parent, errno, "cannot make ABOX_HOME");
	parent_fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (parent_fd < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, stage, parent, errno, "cannot open it");
	state_fd = open_private(parent_fd, name, stage, reterr);
	if (state_fd < 0)
		return error_prefix(reterr, state_fd, "%s", parent);
	for (size_t i = 0; i < ELEMENTSOF(folders); i++)
		if (mkdirat(state_fd, folders[i], 0700) < 0 && errno != EEXIST)
			return error_set_errno(reterr, ABOX_E_SYSTEM, stage, parent, errno, "cannot make %s", folders[i]);
	return steal_fd(state_fd);
}

bool state_is_id(const char *text)
{
	return strlen(text) == STATE_ID_LEN && strspn(text, "0123456789abcdef") == STATE_ID_LEN;
}

int state_resolve(int state_fd, const char *ref, int stage, char retid[STATE_ID_LEN + 1], abox_error **reterr)
{
	char path[512], target[64];
	struct stat st;
	ssize_t n;

	if (string_empty(ref) || strchr(ref, '/') || ref[0] == '.')
		return error_set(reterr, ABOX_E_INVALID, stage, ref, "neither an id nor a name");
	snprintf(path, sizeof(path), STATE_BOXES "/%s", ref);
	if (state_is_id(ref) && fstatat(state_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		memcpy(retid, ref, STATE_ID_LEN + 1);
		return 0;
	}
	if ((size_t)snprintf(path, sizeof(path), STATE_NAMES "/%s", ref) >= sizeof(path))
		return error_set(reterr, ABOX_E_INVALID, stage, ref, "the name is too long");
	n = readlinkat(state_fd, path, target, sizeof(target) - 1);
	target[n > 0 ? n : 0] = 0;
	if (n <= 0 || !state_is_id(target))
		return error_set(reterr, ABOX_E_NOT_FOUND, stage, ref, "no box of this user has this id or name");
	memcpy(retid, target, STATE_ID_LEN + 1);
	return 0;
}

int state_open_box(int state_fd, const char *id, int stage, abox_error **reterr)
{
	char path[sizeof(STATE_BOXES) + STATE_ID_LEN + 2];
	int fd;

	snprintf(path, sizeof(path), STATE_BOXES "/%.32s", id);
	fd = openat(state_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return error_set(reterr, ABOX_E_NOT_FOUND, stage, id, "the box is gone");
	if (fd < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, stage, id, errno, "cannot open the folder of the box");
	return fd;
}

/* Between making its folder and holding the lock a keeper looks dead for a moment; it has no word in `state` then. */
static bool may_be_unborn(int box_fd)
{
	struct stat st;

	if (fstatat(box_fd, STATE_STATE, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return false;
	return fstat(box_fd, &st) == 0 && time(NULL) - st.st_mtime < UNBORN_SECONDS;
}

enum state_life state_life(int box_fd)
{
	_cleanup_(fd_closep) int fd = openat(box_fd, STATE_LOCK, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	if (fd >= 0 && fcntl(fd, F_OFD_GETLK, &lock) < 0)
		return STATE_LIFE_ALIVE;	/* not known: then nothing is taken away */
	if (fd >= 0 && lock.l_type != F_UNLCK)
		return STATE_LIFE_ALIVE;
	return may_be_unborn(box_fd) ? STATE_LIFE_UNBORN : STATE_LIFE_DEAD;
}

int state_read_record(int box_fd, struct json **ret)
{
	_cleanup_(freep) char *text = NULL;
	struct json_bounds bounds = { .max_bytes = RECORD_MAX, .max_depth = 16, .stage = ABOX_STAGE_OPEN };
	size_t len;

	*ret = NULL;
	if (file_read_text(box_fd, STATE_RECORD, RECORD_MAX, &text, &len) < 0)
		return ABOX_E_NOT_FOUND;
	return json_parse(text, len, &bounds, ret, NULL);
}

int state_read_word(int box_fd)
{
	static const char *const words[] = { "starting", "running", "paused", "stopping", "stopped", "failed" };
	_cleanup_(freep) char *text = NULL;
	size_t len;

	if (file_read_text(box_fd, STATE_STATE, 64, &text, &len) < 0)
		return ABOX_SANDBOX_FAILED;
	text[strcspn(text, "\n")] = 0;
	for (size_t i = 0; i < ELEMENTSOF(words); i++)
		if (strcmp(words[i], text) == 0)
			return (int)i;
	return ABOX_SANDBOX_FAILED;
}
