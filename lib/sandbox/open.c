/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Finding boxes again: by id or name, from any process of the same user; the list of all; forgetting one that
 * has ended.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/socket.h"
#include "keeper/wire.h"
#include "sandbox/sandbox.h"

#define LEAVING_USEC (2 * USEC_PER_SEC)

/* The keeper waits for HELLO on a new connection, and nothing else is answered before it. */
static int say_hello(struct client *client, int mode, uint64_t *retepoch, abox_error **reterr)
{
	struct pack_writer writer;
	struct pack_reader reader;
	int r;

	client_begin(client, &writer, WIRE_HELLO);
	pack_u32(&writer, WIRE_VERSION);
	pack_u32(&writer, (uint32_t)mode);
	r = client_call(client, &writer, NULL, 0, UINT64_MAX, &reader, reterr);
	if (r == 0)
		*retepoch = unpack_u64(&reader);
	client_end(client, &writer);
	return r;
}

int sandbox_connect(
	const abox_sandbox *box, int mode, struct client *ret, uint64_t *retepoch, abox_error **reterr)
{
	int fd, r;

	r = socket_connect_at(box->box_fd, STATE_SOCKET, &fd);
	if (r == -ENOENT && state_life(box->box_fd) == STATE_LIFE_ALIVE)
		return error_retryable(reterr, error_set(reterr, ABOX_E_BUSY, ABOX_STAGE_OPEN, box->id,
						       "the box is still starting, or already stopping"));
	if (r == -ENOENT || r == -ECONNREFUSED)
		return error_set(
			reterr, ABOX_E_GONE, ABOX_STAGE_OPEN, box->id, "the keeper of the box is gone");
	if (r < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_OPEN, box->id, -r,
			"cannot reach the keeper of the box");
	r = client_init(ret, fd, ABOX_STAGE_OPEN);
	if (r < 0)
		return r;
	r = say_hello(ret, mode, retepoch, reterr);
	if (r < 0)
		client_clear(ret);
	return r;
}

static bool record_is_detached(const struct json *record)
{
	const char *policy = json_text(json_member(record, "owner_death"));

	return policy && strcmp(policy, "keep") == 0;
}

static int open_dead(abox_sandbox *box, const struct json *record, int mode, abox_error **reterr)
{
	gc_box(box->state_fd, box->id, false, NULL, ABOX_STAGE_OPEN, NULL);
	if (!record_is_detached(record))
		return error_set(reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_OPEN, box->id,
			"the box has ended; as it was not detached nothing is left of it");
	if (mode != ABOX_OPEN_READ)
		return error_remedy(reterr,
			error_set(reterr, ABOX_E_STATE, ABOX_STAGE_OPEN, box->id, "the box has ended"),
			"open it for reading to see its record and output");
	return sandbox_adopt_record(box, record);
}

static int open_box(abox_sandbox *box, int mode, abox_error **reterr)
{
	_cleanup_(json_unrefp) struct json *record = NULL;
	int r;

	box->box_fd = state_open_box(box->state_fd, box->id, ABOX_STAGE_OPEN, reterr);
	if (box->box_fd < 0)
		return box->box_fd;
	state_read_record(box->box_fd, &record);
	if (state_life(box->box_fd) == STATE_LIFE_DEAD)
		return open_dead(box, record, mode, reterr);
	r = sandbox_connect(box, mode, &box->client, &box->epoch, reterr);
	if (r == ABOX_E_GONE && state_life(box->box_fd) == STATE_LIFE_DEAD) {
		if (reterr)
			*reterr = abox_error_free(*reterr);
		return open_dead(box, record, mode, reterr);
	}
	return r < 0 ? r : sandbox_adopt_record(box, record);
}

int abox_sandbox_open(const char *ref, int mode, abox_sandbox **retbox, abox_error **reterr)
{
	_cleanup_(sandbox_unrefp) abox_sandbox *box = NULL;
	_cleanup_(fd_closep) int state_fd = -EBADF;
	char id[STATE_ID_LEN + 1];
	int r;

	if (!ref || !retbox || mode < ABOX_OPEN_READ || mode > ABOX_OPEN_CONTROL)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_OPEN, NULL,
			"a reference, a mode and retbox are required");
	state_fd = state_open(ABOX_STAGE_OPEN, reterr);
	if (state_fd < 0)
		return state_fd;
	r = state_resolve(state_fd, ref, ABOX_STAGE_OPEN, id, reterr);
	if (r < 0)
		return r;
	r = sandbox_new(steal_fd(state_fd), -EBADF, id, mode, &box);
	if (r < 0)
		return r;
	r = open_box(box, mode, reterr);
	if (r < 0)
		return r;
	*retbox = steal_ptr(box);
	return 0;
}

static void list_one(struct text *text, int state_fd, const char *id)
{
	static const char *const states[] = { "starting", "running", "paused", "stopping", "stopped",
		"failed" };
	static const char *const members[] = { "id", "name", "backend", "created_usec", "pid", "plan_digest",
		"owner_death" };
	_cleanup_(json_unrefp) struct json *record = NULL;
	_cleanup_(fd_closep) int box_fd = state_open_box(state_fd, id, ABOX_STAGE_OPEN, NULL);
	int state;

	if (box_fd < 0 || state_read_record(box_fd, &record) < 0)
		return;
	state = state_read_word(box_fd);
	if (state_life(box_fd) == STATE_LIFE_DEAD && state < ABOX_SANDBOX_STOPPED)
		state = ABOX_SANDBOX_FAILED;
	text_printf(text, "%s{\"state\":\"%s\"", text->len > 1 ? "," : "", states[state]);
	for (size_t i = 0; i < ELEMENTSOF(members); i++) {
		text_printf(text, ",\"%s\":", members[i]);
		if (json_member(record, members[i]))
			json_print(text, json_member(record, members[i]));
		else
			text_add(text, "null");
	}
	state_add_workspace(text, box_fd);
	text_add(text, "}");
}

int abox_sandbox_list(char **retjson, abox_error **reterr)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	_cleanup_(fd_closep) int state_fd = -EBADF;
	struct dirent *entry;
	DIR *dir;
	int fd;

	if (!retjson)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_OPEN, NULL, "retjson is required");
	state_fd = state_open(ABOX_STAGE_OPEN, reterr);
	if (state_fd < 0)
		return state_fd;
	gc_sweep(state_fd, NULL);
	fd = openat(state_fd, STATE_BOXES, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		fd_close(fd);
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_OPEN, STATE_BOXES, errno, "cannot read it");
	}
	text_add(&text, "[");
	while ((entry = readdir(dir)))
		if (state_is_id(entry->d_name))
			list_one(&text, state_fd, entry->d_name);
	closedir(dir);
	text_add(&text, "]");
	return text_take(&text, retjson);
}

/*
 * A keeper writes its last word, answers, and only then ends and frees the lock: who was told that the box
 * has stopped may come here sooner.
 */
static enum state_life life_after_end(int box_fd)
{
	uint64_t deadline_usec = clock_deadline(clock_monotonic_usec(), LEAVING_USEC);
	enum state_life life = state_life(box_fd);

	while (life == STATE_LIFE_ALIVE && state_read_word(box_fd) >= ABOX_SANDBOX_STOPPED &&
	       clock_monotonic_usec() < deadline_usec) {
		usleep(USEC_PER_MSEC);
		life = state_life(box_fd);
	}
	return life;
}

int abox_sandbox_remove(const char *ref, abox_error **reterr)
{
	_cleanup_(fd_closep) int state_fd = -EBADF, box_fd = -EBADF;
	char id[STATE_ID_LEN + 1];
	int r;

	if (!ref)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_STOP, NULL, "a reference is required");
	state_fd = state_open(ABOX_STAGE_STOP, reterr);
	if (state_fd < 0)
		return state_fd;
	r = state_resolve(state_fd, ref, ABOX_STAGE_STOP, id, reterr);
	if (r < 0)
		return r;
	box_fd = state_open_box(state_fd, id, ABOX_STAGE_STOP, reterr);
	if (box_fd < 0)
		return box_fd;
	if (life_after_end(box_fd) != STATE_LIFE_DEAD)
		return error_remedy(reterr,
			error_set(reterr, ABOX_E_STATE, ABOX_STAGE_STOP, id, "the box still runs"),
			"stop it first");
	return gc_box(state_fd, id, true, NULL, ABOX_STAGE_STOP, reterr);
}
