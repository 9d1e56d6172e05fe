/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a dead box has left: control groups, its name, its folder. Dead is a box whose lock is free; whoever
 * clears it takes the lock first, so that two callers never do it at once, and a keeper that lives is never
 * touched.
 */
#include "sandbox/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/placeholder.h"
#include "keeper/wire.h"
#include "recorder/wire.h"
#include "sandbox/record.h"

#define GROUP_TIMEOUT_USEC (2 * USEC_PER_SEC)

void gc_report_clear(struct gc_report *report)
{
	text_clear(&report->removed);
	text_clear(&report->left_behind);
}

static void report_removed(struct gc_report *report, const char *what)
{
	if (!report)
		return;
	if (report->n_removed++)
		text_add(&report->removed, ",");
	text_add_json(&report->removed, what, strlen(what));
}

static void report_left(struct gc_report *report, const char *what, int sys_errno)
{
	const char *why = strerror(sys_errno);

	if (!report)
		return;
	if (report->n_left_behind++)
		text_add(&report->left_behind, ",");
	text_add(&report->left_behind, "{\"what\":");
	text_add_json(&report->left_behind, what, strlen(what));
	text_add(&report->left_behind, ",\"error\":");
	text_add_json(&report->left_behind, why, strlen(why));
	text_add(&report->left_behind, "}");
}

/*
 * What v1 has instead of cgroup.kill. The keeper is dead and so is whatever it had started; what is still a
 * member of a group that bears the box's id was put there by somebody, and goes as with cgroup.kill.
 */
static void kill_members(int group_fd)
{
	_cleanup_(freep) char *members = NULL;
	char *save = NULL;

	if (file_read_text(group_fd, "cgroup.procs", 1 << 20, &members, NULL) < 0)
		return;
	for (char *line = strtok_r(members, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		long pid = strtol(line, NULL, 10);

		/* 0 is a process that our pid namespace does not show, and means our own group to kill(). */
		if (pid > 1 && pid <= INT_MAX)
			kill((pid_t)pid, SIGKILL);
	}
}

/*
 * A group of a box whose guest has just died may hold dying processes for a moment; cgroup.kill hurries those
 * that would not go by themselves. There is no event for "empty" that v1 and v2 share, so it is tried again,
 * for a bounded time.
 */
static int remove_group(const char *path)
{
	uint64_t deadline = clock_deadline(clock_monotonic_usec(), GROUP_TIMEOUT_USEC);
	_cleanup_(fd_closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct timespec pause = { .tv_nsec = 2 * 1000 * 1000 };
	bool killed;
	int r;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	file_write_text(fd, "cgroup.freeze", "0");
	killed = file_write_text(fd, "cgroup.kill", "1") >= 0;
	for (;;) {
		r = rmdir(path) == 0 || errno == ENOENT ? 0 : -errno;
		if (r != -EBUSY || clock_monotonic_usec() >= deadline)
			return r;
		if (!killed)
			kill_members(fd);
		nanosleep(&pause, NULL);
	}
}

/* Groups of commands lie inside: first those, then the group itself. */
static int remove_group_tree(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	char child[1024];

	while (dir && (entry = readdir(dir)))
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.' &&
			(size_t)snprintf(child, sizeof(child), "%s/%s", path, entry->d_name) < sizeof(child))
			remove_group_tree(child);
	if (dir)
		closedir(dir);
	return remove_group(path);
}

static int remove_groups(int box_fd, struct gc_report *report)
{
	_cleanup_(freep) char *list = NULL;
	char *save = NULL;
	size_t len;
	int first = 0;

	if (file_read_text(box_fd, STATE_CGROUPS, 65536, &list, &len) < 0)
		return 0;
	for (char *path = strtok_r(list, "\n", &save); path; path = strtok_r(NULL, "\n", &save)) {
		int r;

		if (access(path, F_OK) < 0)
			continue;	/* its keeper has removed it */
		r = remove_group_tree(path);
		if (r < 0) {
			report_left(report, path, -r);
			first = first ? first : r;
		} else {
			report_removed(report, path);
		}
	}
	return first;
}

/* Names that a killed box has made in a folder of the host; one that somebody has made his own stays, and is told. */
static void remove_placeholders(int box_fd, struct gc_report *report)
{
	_cleanup_(freep) char *record = NULL;
	size_t len;
	int r;

	if (file_read_text(box_fd, STATE_PLACEHOLDERS, 1 << 24, &record, &len) < 0)
		return;
	r = placeholder_remove(record, len);
	if (r != 0)
		report_left(report, STATE_PLACEHOLDERS, r < 0 ? -r : EEXIST);
	else
		report_removed(report, STATE_PLACEHOLDERS);
	unlinkat(box_fd, STATE_PLACEHOLDERS, 0);
}

static void remove_name(int state_fd, const char *id, const struct json *record)
{
	const char *name = json_text(json_member(record, "name"));
	char path[256], target[64];
	ssize_t n;

	if (string_empty(name) ||
		(size_t)snprintf(path, sizeof(path), STATE_NAMES "/%s", name) >= sizeof(path))
		return;
	n = readlinkat(state_fd, path, target, sizeof(target) - 1);
	target[n > 0 ? n : 0] = 0;
	if (strcmp(target, id) == 0)
		unlinkat(state_fd, path, 0);
}

/* The record of a detached box stays for its ttl, counted from the last word about its state. */
static bool record_must_stay(int box_fd, const struct json *record)
{
	const char *policy = json_text(json_member(record, "owner_death"));
	uint64_t ttl_usec = (uint64_t)json_number(json_member(record, "ttl_usec"));
	struct stat st;

	if (!policy || strcmp(policy, "keep") != 0)
		return false;
	if (json_number(json_member(record, "ttl_usec")) <= 0 || fstatat(box_fd, STATE_STATE, &st, 0) < 0)
		return true;	/* "off" travels as a number below 0 in JSON's signed integers */
	return clock_wall_usec() < clock_deadline((uint64_t)st.st_mtime * USEC_PER_SEC, ttl_usec);
}

/* How it has ended, where its keeper lived to tell. */
static uint32_t known_end(int box_fd)
{
	_cleanup_(freep) char *text = NULL;
	size_t len;

	if (file_read_text(box_fd, STATE_END, 2, &text, &len) < 0 || len != 1 || text[0] < '0' ||
		text[0] >= '0' + RECORDER_N_ENDS)
		return RECORDER_N_ENDS;
	return (uint32_t)(text[0] - '0');
}

/*
 * What becomes of the workspace of a box whose keeper and recorder were both killed. As long as it is in use (a dying
 * guest holds it) or cannot be reached, the folder of the box stays, which is what says that there is something to do.
 */
static int settle_workspace(int box_fd, const char *id, struct gc_report *report, abox_error **reterr)
{
	_cleanup_(json_unrefp) struct json *plan = NULL;
	_cleanup_(freep) char *workspace = NULL, *text = NULL, *order = NULL, *left = NULL;
	struct json_bounds bounds = { .max_bytes = 64U << 20, .max_depth = 64, .stage = ABOX_STAGE_STOP };
	const char *digest;
	size_t len;
	int r;

	if (file_read_text(box_fd, STATE_WORKSPACE, 64, &workspace, &len) < 0)
		return 0;
	r = file_read_text(box_fd, STATE_PLAN, bounds.max_bytes, &text, &len);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_LEFT_BEHIND, ABOX_STAGE_STOP, STATE_PLAN, -r, "cannot read the plan of the box");
	r = json_parse(text, len, &bounds, &plan, reterr);
	if (r >= 0)
		r = json_print_new(json_member(plan, "workspace"), &order);
	if (r < 0)
		return r;
	digest = json_text(json_member(plan, "digest"));
	r = record_recover(id, workspace, known_end(box_fd), digest, order, &left, reterr);
	if (r < 0)
		return r;
	unlinkat(box_fd, STATE_WORKSPACE, 0);
	unlinkat(box_fd, STATE_END, 0);
	if (left)
		report_left(report, left, ECANCELED);
	else
		report_removed(report, "workspace of a killed box");
	return 0;
}

static int take_lock(int box_fd, int *retfd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	_cleanup_(fd_closep) int fd =
		openat(box_fd, STATE_STATE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0 || fcntl(fd, F_OFD_SETLK, &lock) < 0)
		return -errno;
	*retfd = steal_fd(fd);
	return 0;
}

int gc_box(int state_fd, const char *id, bool all, struct gc_report *report, int stage, abox_error **reterr)
{
	_cleanup_(json_unrefp) struct json *record = NULL;
	_cleanup_(fd_closep) int box_fd = -EBADF, lock_fd = -EBADF, boxes_fd = -EBADF;
	int r;

	box_fd = state_open_box(state_fd, id, stage, reterr);
	if (box_fd < 0)
		return box_fd;
	if (state_life(box_fd) != STATE_LIFE_DEAD || take_lock(box_fd, &lock_fd) < 0)
		return error_set(reterr, ABOX_E_BUSY, stage, id,
			"the box lives, or somebody else is clearing it away");
	state_read_record(box_fd, &record);
	r = remove_groups(box_fd, report);
	if (r < 0)	/* the folder stays, since it knows of the groups */
		return error_set_errno(
			reterr, ABOX_E_LEFT_BEHIND, stage, id, -r, "control groups of the box remain");
	remove_placeholders(box_fd, report);
	r = settle_workspace(box_fd, id, report, reterr);
	if (r < 0)
		return r;
	if (!all && record_must_stay(box_fd, record))
		return 0;
	remove_name(state_fd, id, record);
	boxes_fd = openat(state_fd, STATE_BOXES, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = boxes_fd < 0 ? -errno : path_remove_tree(boxes_fd, id);
	if (r < 0) {
		report_left(report, id, -r);
		return error_set_errno(
			reterr, ABOX_E_LEFT_BEHIND, stage, id, -r, "cannot remove the folder of the box");
	}
	report_removed(report, id);
	return 0;
}

void gc_sweep(int state_fd, struct gc_report *report)
{
	int fd = openat(state_fd, STATE_BOXES, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!dir) {
		fd_close(fd);
		return;
	}
	while ((entry = readdir(dir)))
		if (state_is_id(entry->d_name))
			gc_box(state_fd, entry->d_name, false, report, ABOX_STAGE_STOP, NULL);
	closedir(dir);
}

int abox_sandbox_gc(char **retjson, abox_error **reterr)
{
	_cleanup_(gc_report_clear) struct gc_report report = { 0 };
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	_cleanup_(fd_closep) int state_fd = state_open(ABOX_STAGE_STOP, reterr);
	int r;

	if (state_fd < 0)
		return state_fd;
	gc_sweep(state_fd, &report);
	if (retjson) {
		text_printf(&text, "{\"removed\":[%s],\"left_behind\":[%s]}",
			report.removed.len ? report.removed.data : "",
			report.left_behind.len ? report.left_behind.data : "");
		if (report.removed.failed || report.left_behind.failed)
			return ABOX_E_MEMORY;
		r = text_take(&text, retjson);
		if (r < 0)
			return r;
	}
	if (report.n_left_behind)
		return error_set(reterr, ABOX_E_LEFT_BEHIND, ABOX_STAGE_STOP, NULL,
			"%zu things could not be removed", report.n_left_behind);
	return 0;
}
