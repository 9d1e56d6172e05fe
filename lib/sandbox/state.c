/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The folders of live boxes: how a reference becomes one, and whether its keeper lives.
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
#include "base/place.h"
#include "keeper/wire.h"

#define UNBORN_SECONDS 60
#define RECORD_MAX 65536

int state_open(int stage, abox_error **reterr)
{
	_cleanup_(fd_closep) int state_fd = place_open(PLACE_RUN, stage, reterr);
	static const char *const folders[] = { STATE_BOXES, STATE_NAMES };

	if (state_fd < 0)
		return state_fd;
	for (size_t i = 0; i < ELEMENTSOF(folders); i++)
		if (mkdirat(state_fd, folders[i], 0700) < 0 && errno != EEXIST)
			return error_set_errno(reterr, ABOX_E_SYSTEM, stage, folders[i], errno,
				"cannot make the state folder");
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
		return error_set(
			reterr, ABOX_E_NOT_FOUND, stage, ref, "no box of this user has this id or name");
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
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, stage, id, errno, "cannot open the folder of the box");
	return fd;
}

/* Between making its folder and holding the lock a keeper looks dead for a moment; it has no word in `state`
 * then. */
static bool may_be_unborn(int box_fd)
{
	struct stat st;

	if (fstatat(box_fd, STATE_STATE, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size > 0)
		return false;
	return fstat(box_fd, &st) == 0 && time(NULL) - st.st_mtime < UNBORN_SECONDS;
}

enum state_life state_life(int box_fd)
{
	_cleanup_(fd_closep) int fd = openat(box_fd, STATE_STATE, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
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
	static const char *const words[] = { "starting", "running", "paused", "stopping", "stopped",
		"failed" };
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

void state_add_workspace(struct text *text, int box_fd)
{
	_cleanup_(freep) char *id = NULL;

	if (file_read_text(box_fd, STATE_WORKSPACE, 64, &id, NULL) < 0 || !state_is_id(id))
		text_add(text, ",\"workspace\":null");
	else
		text_printf(text, ",\"workspace\":\"%s\"", id);
}
