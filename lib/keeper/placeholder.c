/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Protected names that are not there, in a folder of the host that the box writes directly: they are made before the box
 * is, so that the guest can hold them, and removed after it. Each is written down before it is made.
 *
 * A name that another box holds is not taken from under it: everybody who holds names in a folder has a shared lock on
 * it, and who removes needs it alone.
 */
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/placeholder.h"

#define FILE_MODE 0444
#define FOLDER_MODE 0755

static int fail(const struct flat_step *step, int sys_errno, const char *what, struct fault *fault)
{
	return fault_set(fault, ABOX_E_SYSTEM, sys_errno, step->target, "%s", what);
}

/* The folder of the host that is bound at the place of a step. */
static const struct flat_source *folder_of(const struct flat_plan *plan, const struct flat_step *step)
{
	for (uint32_t i = 0; i < plan->n_steps; i++) {
		const struct flat_step *bind = &plan->steps[i];

		if (bind->op == FLAT_OP_BIND && bind->source >= 0 && strlen(bind->target) == step->size_bytes &&
			strncmp(bind->target, step->target, step->size_bytes) == 0)
			return &plan->sources[bind->source];
	}
	return NULL;
}

static int write_down(struct keeper *keeper, const struct flat_source *source)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;

	pack_string(&writer, source->path);
	pack_u32(&writer, keeper->n_placeholders);
	for (uint32_t i = 0; i < keeper->n_placeholders; i++) {
		pack_u8(&writer, keeper->placeholders[i].folder);
		pack_string(&writer, keeper->placeholders[i].path);
		pack_u64(&writer, keeper->placeholders[i].size_bytes);
	}
	if (writer.failed)
		return -ENOMEM;
	return state_write(keeper, STATE_PLACEHOLDERS, writer.data, writer.len);
}

static int note(struct keeper *keeper, const char *path, size_t len, bool folder, uint64_t size_bytes)
{
	struct placeholder *grown = reallocarray(
		keeper->placeholders, keeper->n_placeholders + 1, sizeof(*keeper->placeholders));
	char *copy = strndup(path, len);

	if (grown)
		keeper->placeholders = grown;
	if (!grown || !copy) {
		free(copy);
		return -ENOMEM;
	}
	grown[keeper->n_placeholders++] = (struct placeholder){ copy, folder, size_bytes };
	return 0;
}

static int make(const struct flat_step *step, const struct stat *owner, int dir_fd, const char *name, bool folder)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	int r;

	if (folder) {
		if (mkdirat(dir_fd, name, FOLDER_MODE) < 0)
			return -errno;
		fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		r = fd < 0 ? -errno : 0;
	} else {
		fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);
		r = fd < 0 ? -errno : fd_write_all(fd, step->content, step->content_len);
	}
	if (r == 0 && geteuid() == 0 && fchown(fd, owner->st_uid, owner->st_gid) < 0)
		r = -errno;
	return r;
}

/* One name: whatever of its way is not there is written down and made. */
static int hold_one(struct keeper *keeper, const struct flat_step *step, const struct flat_source *source,
	struct fault *fault)
{
	const char *path = step->target + step->size_bytes + 1, *at = path;
	_cleanup_(fd_closep) int dir_fd = fcntl(keeper->held_fd, F_DUPFD_CLOEXEC, 3);
	struct stat owner;
	char name[NAME_MAX + 1];
	int r = dir_fd < 0 || fstat(dir_fd, &owner) < 0 ? -errno : 0;

	while (r == 0) {
		size_t len = strcspn(at, "/");
		bool last = !at[len], folder = !last || (step->attr & FLAT_ATTR_FOLDER);
		struct stat st;

		if (!len || len > NAME_MAX)
			return fail(step, EINVAL, "is no path", fault);
		memcpy(name, at, len);
		name[len] = 0;
		if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
			r = errno == ENOENT ? note(keeper, path, (size_t)(at + len - path), folder,
						      folder ? 0 : step->content_len)
					    : -errno;
			if (r == 0)
				r = write_down(keeper, source);
			if (r == 0)
				r = make(step, &owner, dir_fd, name, folder);
		}
		if (last || r < 0)
			break;
		at += len + 1;
		r = openat(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (r < 0) {
			r = -errno;
			break;
		}
		fd_close(dir_fd);
		dir_fd = r;
		r = 0;
	}
	return r < 0 ? fail(step, -r, "cannot be held by a placeholder", fault) : 0;
}

static int take_folder(struct keeper *keeper, const struct flat_step *step, const struct flat_source *source,
	struct fault *fault)
{
	bool makes = step->attr & FLAT_ATTR_PLACEHOLDER;

	if (keeper->held_fd >= 0)
		return makes && source != keeper->held_source ? fail(step, EINVAL, "is in a second folder", fault) : 0;
	keeper->held_fd = open(source->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (keeper->held_fd < 0)
		return fail(step, errno, "its folder cannot be opened", fault);
	keeper->held_source = source;
	if (flock(keeper->held_fd, LOCK_SH | LOCK_NB) < 0 && makes)
		return fault_set(fault, ABOX_E_BUSY, errno, step->target, "its folder is locked by another program");
	return 0;
}

int placeholder_run(struct keeper *keeper, struct fault *fault)
{
	const struct flat_plan *plan = &keeper->plan;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < plan->n_steps; i++) {
		const struct flat_step *step = &plan->steps[i];
		const struct flat_source *source;

		if (step->op != FLAT_OP_PROTECT || !(step->attr & FLAT_ATTR_HOLD))
			continue;
		source = folder_of(plan, step);
		if (!source)
			return fail(step, 0, "is in no folder of the host", fault);
		r = take_folder(keeper, step, source, fault);
		if (r == 0 && (step->attr & FLAT_ATTR_PLACEHOLDER))
			r = hold_one(keeper, step, source, fault);
	}
	if (r < 0)
		placeholder_undo(keeper, NULL);
	return r;
}

static int remove_all(struct keeper *keeper, struct fault *fault)
{
	_cleanup_(freep) char *record = NULL;
	size_t len;
	int r;

	if (flock(keeper->held_fd, LOCK_EX | LOCK_NB) < 0)
		return fault_set(fault, ABOX_E_BUSY, 0, "placeholders",
			"stay, since another box holds names in the same folder");
	r = file_read_text(keeper->box_fd, STATE_PLACEHOLDERS, 1 << 24, &record, &len);
	if (r == 0)
		r = placeholder_remove(record, len);
	if (r < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -r, "placeholders", "cannot be removed");
	if (r > 0)
		return fault_set(fault, ABOX_E_SYSTEM, 0, "placeholders", "%d of them are somebody's own by now", r);
	unlinkat(keeper->box_fd, STATE_PLACEHOLDERS, 0);
	return 0;
}

int placeholder_undo(struct keeper *keeper, struct fault *fault)
{
	int r = keeper->n_placeholders ? remove_all(keeper, fault) : 0;

	for (uint32_t i = 0; i < keeper->n_placeholders; i++)
		free(keeper->placeholders[i].path);
	free(keeper->placeholders);
	keeper->placeholders = NULL;
	keeper->n_placeholders = 0;
	keeper->held_fd = fd_close(keeper->held_fd);
	return r;
}
