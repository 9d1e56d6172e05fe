/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The folder of the box, as keeper/wire.h lays it out. Promises that a box is found as long as it lives and
 * that what it has made on the host is written down before it is made; whoever finds the lock free may clear
 * the rest away.
 */
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <agentbox/error.h>
#include <agentbox/sandbox.h>

#include "base/fd.h"
#include "base/path.h"

#ifndef F_OFD_SETLK
#define F_OFD_SETLK 37
#endif

#define NAME_MAX_BYTES 255
#define STATE_LINE_BYTES 12

static const char *const state_names[] = {
	[ABOX_SANDBOX_STARTING] = "starting",
	[ABOX_SANDBOX_RUNNING] = "running",
	[ABOX_SANDBOX_PAUSED] = "paused",
	[ABOX_SANDBOX_STOPPING] = "stopping",
	[ABOX_SANDBOX_STOPPED] = "stopped",
	[ABOX_SANDBOX_FAILED] = "failed",
};

int state_write(struct keeper *keeper, const char *name, const void *data, size_t len)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	char temporary[64];
	int r;

	snprintf(temporary, sizeof(temporary), "%s.new", name);
	fd = openat(keeper->box_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = fd_write_all(fd, data, len);
	if (r < 0)
		return r;
	return renameat(keeper->box_fd, temporary, keeper->box_fd, name) < 0 ? -errno : 0;
}

/* A file that nobody looks for before the box is running needs no rename. */
static int write_first(struct keeper *keeper, const char *name, const void *data, size_t len)
{
	_cleanup_(fd_closep) int fd = -EBADF;

	fd = openat(keeper->box_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd_write_all(fd, data, len);
}

/* In place, by one write of always the same length: making and renaming a file costs ten times as much, and a
 * start does it twice. Readers take the first line. */
int state_set(struct keeper *keeper, uint32_t state)
{
	char line[STATE_LINE_BYTES];

	keeper->state = state;
	memset(line, '\n', sizeof(line));
	memcpy(line, state_names[state], strlen(state_names[state]));
	return fd_pwrite_all(keeper->lock_fd, line, sizeof(line), 0);
}

static int take_lock(struct keeper *keeper, struct fault *fault)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	keeper->lock_fd = openat(keeper->box_fd, STATE_STATE, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (keeper->lock_fd < 0 || fcntl(keeper->lock_fd, F_OFD_SETLK, &lock) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, STATE_STATE, "cannot take the lock of the box");
	return 0;
}

static int take_name(struct keeper *keeper, struct fault *fault)
{
	char link[sizeof(STATE_NAMES) + NAME_MAX_BYTES + 1];

	if (!keeper->plan.name[0])
		return 0;
	if (snprintf(link, sizeof(link), STATE_NAMES "/%s", keeper->plan.name) >= (int)sizeof(link) ||
		strchr(keeper->plan.name, '/'))
		return fault_set(fault, ABOX_E_INVALID, 0, "/name", "not a name");
	if (symlinkat(keeper->id, keeper->state_fd, link) < 0) {
		if (errno == EEXIST)
			return fault_set(fault, ABOX_E_EXISTS, errno, "/name",
				"a box is called \"%s\" already", keeper->plan.name);
		return fault_set(fault, ABOX_E_SYSTEM, errno, "/name", "cannot take the name");
	}
	keeper->named = true;
	return 0;
}

/* Every group that may come to be, so that the library can clear away what a killed keeper has left. */
static int write_groups(struct keeper *keeper)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	const struct cgroup_layout *layout = &keeper->plan.cgroup;

	for (size_t i = 0; layout->limits_version && i < CGROUP_N_CONTROLLERS; i++) {
		if ((layout->controllers & CGROUP_BIT(i)) && layout->limits_dir[i][0])
			text_printf(&text, "%s/agentbox-%s\n", layout->limits_dir[i], keeper->id);
	}
	if (layout->tree_dir[0])
		text_printf(&text, "%s/agentbox-%s\n", layout->tree_dir, keeper->id);
	if (text.failed)
		return -ENOMEM;
	return write_first(keeper, STATE_CGROUPS, text.data, text.len);
}

static int fill_folder(struct keeper *keeper, struct fault *fault)
{
	const char *name = STATE_RECORD;
	int r;

	r = take_lock(keeper, fault);
	if (r < 0)
		return r;
	r = write_first(keeper, STATE_RECORD, keeper->record, keeper->record_len);
	if (r == 0) {
		name = STATE_PLAN;
		r = write_first(keeper, STATE_PLAN, keeper->plan_json, keeper->plan_json_len);
	}
	if (r == 0 && keeper->plan.use_cgroup) {
		name = STATE_CGROUPS;
		r = write_groups(keeper);
	}
	if (r == 0) {
		name = STATE_STATE;
		r = state_set(keeper, ABOX_SANDBOX_STARTING);
	}
	if (r < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -r, name, "cannot be written");
	return take_name(keeper, fault);
}

int state_enter(struct keeper *keeper, struct fault *fault)
{
	int r;

	keeper->boxes_fd =
		openat(keeper->state_fd, STATE_BOXES, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (keeper->boxes_fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, STATE_BOXES, "cannot open the state folder");
	if (mkdirat(keeper->boxes_fd, keeper->id, 0700) < 0)
		return fault_set(fault, errno == EEXIST ? ABOX_E_EXISTS : ABOX_E_SYSTEM, errno, STATE_BOXES,
			"cannot make the folder of the box");
	keeper->box_fd =
		openat(keeper->boxes_fd, keeper->id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (keeper->box_fd < 0) {
		r = fault_set(fault, ABOX_E_SYSTEM, errno, STATE_BOXES, "cannot open the folder of the box");
		unlinkat(keeper->boxes_fd, keeper->id, AT_REMOVEDIR);
		return r;
	}
	r = fill_folder(keeper, fault);
	if (r < 0)
		state_leave(keeper, NULL);
	return r;
}

static void release_name(struct keeper *keeper)
{
	char link[sizeof(STATE_NAMES) + NAME_MAX_BYTES + 1];

	if (!keeper->named)
		return;
	snprintf(link, sizeof(link), STATE_NAMES "/%s", keeper->plan.name);
	unlinkat(keeper->state_fd, link, 0);
	keeper->named = false;
}

/* The lock goes last, with the keeper: while it is held nobody else clears up. */
int state_leave(struct keeper *keeper, struct fault *fault)
{
	int r;

	release_name(keeper);
	r = path_remove_tree(keeper->boxes_fd, keeper->id);
	keeper->box_fd = fd_close(keeper->box_fd);
	keeper->lock_fd = fd_close(keeper->lock_fd);
	keeper->boxes_fd = fd_close(keeper->boxes_fd);
	return r < 0 ? fault_set(fault, ABOX_E_SYSTEM, -r, "state folder", "cannot be removed") : 0;
}

int state_listen(struct keeper *keeper, struct fault *fault)
{
	int fd, r;

	r = socket_listen_at(keeper->box_fd, STATE_SOCKET, 64, &fd);
	if (r < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -r, STATE_SOCKET, "cannot listen for other processes");
	if (fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK) < 0) {
		fd_close(fd);
		return fault_set(
			fault, ABOX_E_SYSTEM, errno, STATE_SOCKET, "cannot listen for other processes");
	}
	keeper->listener = (struct io){ .fd = fd, .ready = client_accept };
	r = keeper_watch(keeper, &keeper->listener, EPOLLIN);
	return r < 0 ? fault_set(fault, ABOX_E_SYSTEM, -r, STATE_SOCKET, "cannot be watched") : 0;
}
