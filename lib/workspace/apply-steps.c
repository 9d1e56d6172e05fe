/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The steps of an apply and their way back. Each step can be told done or not by inode numbers alone, so the
 * way back is the same for a step that failed, a process that was killed between any two system calls, and a
 * second recovery after the first was killed.
 */
#include "workspace/apply.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/pack.h"
#include "base/path.h"
#include "workspace/deep.h"

#define JOURNAL_MAX (1ULL << 30)
#define MAGIC "agentbox-apply-1"
#define NOREPLACE 1u
#define EXCHANGE 2u

void apply_steps_clear(struct apply_steps *steps)
{
	for (size_t i = 0; i < steps->n; i++)
		free(steps->items[i].path);
	free(steps->items);
	*steps = (struct apply_steps){0};
}

static int rename_at(int from_fd, const char *from, int to_fd, const char *to, unsigned int flags)
{
	return syscall(SYS_renameat2, from_fd, from, to_fd, to, flags) < 0 ? -errno : 0;
}

static uint64_t inode_at(int dir_fd, const char *name)
{
	struct stat st;

	return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? 0 : st.st_ino;
}

static void slot_name(size_t i, char ret[24])
{
	snprintf(ret, 24, "%zu", i);
}

int apply_open_parent(const struct apply_target *target, const char *path, const char **retname)
{
	return deep_open_parent(target->fd, path, retname);
}

int apply_stage_name(struct apply_target *target, abox_error **reterr)
{
	uint8_t random[12];
	char hex[25];

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_WORKSPACE, NULL, errno, "cannot get random bytes");
	hex_encode(random, sizeof(random), hex);
	snprintf(target->stage, sizeof(target->stage), ".agentbox-apply-%s", hex);
	return 0;
}

int apply_stage_open(struct apply_target *target, abox_error **reterr)
{
	if (mkdirat(target->fd, target->stage, 0700) < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_WORKSPACE, target->path, errno,
			"cannot make a folder for new content in the target");
	target->stage_fd = openat(target->fd, target->stage, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (target->stage_fd < 0) {
		int saved = errno;

		unlinkat(target->fd, target->stage, AT_REMOVEDIR);
		return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_WORKSPACE, target->path, saved,
			"cannot open the folder for new content");
	}
	return 0;
}

/* 1 when nothing is in the folder. */
static int is_empty(int dir_fd, const char *name)
{
	struct dirent *entry;
	DIR *dir;
	int fd, n = 0;

	fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	dir = fdopendir(fd);
	if (!dir) {
		fd_close(fd);
		return -ENOMEM;
	}
	while (n < 3 && (entry = readdir(dir)))
		n++;
	closedir(dir);
	return n < 3;
}

static int change_mode(int dir_fd, const char *name, uint64_t inode, uint32_t mode)
{
	_cleanup_(fd_closep) int fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	char self[32];
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_ino != inode || S_ISLNK(st.st_mode))
		return -ESTALE;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	return fchmodat(AT_FDCWD, self, mode, 0) < 0 ? -errno : 0;
}

static int remove_folder(const struct apply_target *target, struct apply_step *step, int parent_fd,
	const char *name, const char *slot)
{
	int r;

	r = rename_at(parent_fd, name, target->stage_fd, slot, NOREPLACE);
	if (r < 0)
		return r;
	if (is_empty(target->stage_fd, slot) == 1)
		return 0;
	step->kept = true;
	return rename_at(target->stage_fd, slot, parent_fd, name, NOREPLACE);
}

static int step_do(const struct apply_target *target, struct apply_step *step, size_t i)
{
	_cleanup_(fd_closep) int parent_fd = -EBADF;
	const char *name;
	char slot[24];
	int r;

	slot_name(i, slot);
	parent_fd = apply_open_parent(target, step->path, &name);
	if (parent_fd < 0)
		return parent_fd;
	switch (step->kind) {
	case APPLY_REMOVE:
		if (inode_at(parent_fd, name) != step->old_inode)
			return -ESTALE;
		return rename_at(parent_fd, name, target->stage_fd, slot, NOREPLACE);
	case APPLY_REMOVE_FOLDER:
		if (inode_at(parent_fd, name) != step->old_inode)
			return -ESTALE;
		return remove_folder(target, step, parent_fd, name, slot);
	case APPLY_ADD:
	case APPLY_ADD_FOLDER:
		return rename_at(target->stage_fd, slot, parent_fd, name, NOREPLACE);
	case APPLY_EXCHANGE:
		if (inode_at(parent_fd, name) != step->old_inode)
			return -ESTALE;
		r = rename_at(target->stage_fd, slot, parent_fd, name, EXCHANGE);
		/* Somebody put a file into the folder that was to go: the way back brings it home again. */
		if (r >= 0 && step->was_folder && is_empty(target->stage_fd, slot) != 1)
			return -ENOTEMPTY;
		return r;
	default:
		return change_mode(parent_fd, name, step->inode, step->mode);
	}
}

/* The way back of one step, done or not. */
static int step_undo(const struct apply_target *target, const struct apply_step *step, size_t i)
{
	_cleanup_(fd_closep) int parent_fd = -EBADF;
	const char *name;
	char slot[24];

	slot_name(i, slot);
	parent_fd = apply_open_parent(target, step->path, &name);
	if (parent_fd == -ENOENT &&
		(step->kind == APPLY_ADD || step->kind == APPLY_ADD_FOLDER || step->kind == APPLY_MODE))
		return 0; /* the folder it would be in had not come yet */
	if ((parent_fd == -ENOTDIR || parent_fd == -ELOOP) && step->kind != APPLY_REMOVE &&
		step->kind != APPLY_REMOVE_FOLDER)
		return 0; /* the same, and a file or link is still in its place */
	if (parent_fd < 0)
		return parent_fd;
	switch (step->kind) {
	case APPLY_REMOVE:
	case APPLY_REMOVE_FOLDER:
		if (inode_at(target->stage_fd, slot) != step->old_inode)
			return 0;
		return rename_at(target->stage_fd, slot, parent_fd, name, NOREPLACE);
	case APPLY_ADD:
		if (inode_at(parent_fd, name) != step->inode)
			return 0;
		return rename_at(parent_fd, name, target->stage_fd, slot, NOREPLACE);
	case APPLY_ADD_FOLDER:
		if (inode_at(parent_fd, name) != step->inode)
			return 0;
		/* Not by rename: what somebody else has put into it meanwhile must not go with the stage. */
		return unlinkat(parent_fd, name, AT_REMOVEDIR) < 0 && errno != ENOTEMPTY ? -errno : 0;
	case APPLY_EXCHANGE:
		if (inode_at(parent_fd, name) != step->inode ||
			inode_at(target->stage_fd, slot) != step->old_inode)
			return 0;
		return rename_at(target->stage_fd, slot, parent_fd, name, EXCHANGE);
	default:
		if (inode_at(parent_fd, name) != step->inode)
			return 0;
		return change_mode(parent_fd, name, step->inode, step->old_mode);
	}
}

static int undo_all(
	const struct apply_target *target, const struct apply_steps *steps, size_t n, abox_error **reterr)
{
	int first = 0;

	while (n-- > 0) {
		int r = step_undo(target, &steps->items[n], n);

		if (r < 0 && first == 0)
			first = error_set_errno(reterr, ABOX_E_IO, ABOX_STAGE_WORKSPACE, steps->items[n].path,
				-r, "cannot put back what was here");
	}
	return first;
}

int apply_run(const struct apply_target *target, struct apply_steps *steps, abox_error **reterr)
{
	for (size_t i = 0; i < steps->n; i++) {
		abox_error *undo_error = NULL;
		int r = step_do(target, &steps->items[i], i), undo;

		if (r >= 0)
			continue;
		undo = undo_all(target, steps, i + 1, &undo_error);
		if (undo < 0) {
			undo = error_prefix(&undo_error, undo, "after %s failed with %s",
				steps->items[i].path, strerror(-r));
			if (reterr)
				*reterr = undo_error;
			else
				abox_error_free(undo_error);
			return undo;
		}
		if (r == -ESTALE || r == -EEXIST || r == -ENOTEMPTY || r == -ENOENT || r == -ENOTDIR)
			return error_set(reterr, ABOX_E_CONFLICT, ABOX_STAGE_WORKSPACE, steps->items[i].path,
				"was changed by somebody else meanwhile; nothing was applied");
		return error_set_errno(reterr, ABOX_E_IO, ABOX_STAGE_WORKSPACE, steps->items[i].path, -r,
			"cannot change this; nothing was applied");
	}
	return 0;
}

static int write_file(int dir_fd, const char *name, const void *data, size_t len)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	int r;

	fd = openat(dir_fd, "new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = fd_write_all(fd, data, len);
	if (r < 0)
		return r;
	if (fsync(fd) < 0 || renameat(dir_fd, "new", dir_fd, name) < 0 || fsync(dir_fd) < 0)
		return -errno;
	return 0;
}

int apply_journal_write(int journal_fd, const struct apply_target *target, const struct apply_steps *steps,
	abox_error **reterr)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	int r;

	pack_string(&writer, MAGIC);
	pack_string(&writer, target->path);
	pack_u64(&writer, target->device);
	pack_u64(&writer, target->inode);
	pack_string(&writer, target->stage);
	pack_u32(&writer, (uint32_t)steps->n);
	for (size_t i = 0; i < steps->n; i++) {
		const struct apply_step *step = &steps->items[i];

		pack_u8(&writer, (uint8_t)step->kind);
		pack_string(&writer, step->path);
		pack_u64(&writer, step->inode);
		pack_u64(&writer, step->old_inode);
		pack_u32(&writer, step->mode);
		pack_u32(&writer, step->old_mode);
	}
	if (writer.failed)
		return ABOX_E_MEMORY;
	r = write_file(journal_fd, "steps", writer.data, writer.len);
	return r < 0 ? error_set_errno(reterr, ABOX_E_IO, ABOX_STAGE_WORKSPACE, NULL, -r,
			       "cannot write the undo journal")
		     : 0;
}

int apply_journal_commit(int journal_fd, abox_error **reterr)
{
	int r = write_file(journal_fd, "commit", "1", 1);

	return r < 0 ? error_set_errno(reterr, ABOX_E_IO, ABOX_STAGE_WORKSPACE, NULL, -r, "cannot commit")
		     : 0;
}

static void apply_journal_remove(int journal_fd)
{
	/* In this order: a journal without its commit would be walked backwards. */
	unlinkat(journal_fd, "steps", 0);
	fsync(journal_fd);
	unlinkat(journal_fd, "commit", 0);
	unlinkat(journal_fd, "new", 0);
}

static int compare_stamps(const void *a, const void *b)
{
	const struct apply_stamp *x = a, *y = b;

	return x->inode != y->inode            ? (x->inode < y->inode ? -1 : 1)
	       : x->ctime_nsec < y->ctime_nsec ? -1
					       : x->ctime_nsec > y->ctime_nsec;
}

static struct apply_stamp stamp_of(const struct stat *st)
{
	return (struct apply_stamp){
		st->st_ino, (uint64_t)st->st_ctim.tv_sec * 1000000000ULL + (uint64_t)st->st_ctim.tv_nsec};
}

bool apply_record_has(const struct apply_record *record, const struct stat *st)
{
	struct apply_stamp stamp = stamp_of(st);

	return record->n > 0 && bsearch(&stamp, record->items, record->n, sizeof(stamp), compare_stamps);
}

void apply_record_clear(struct apply_record *record)
{
	free(record->items);
	*record = (struct apply_record){0};
}

int apply_record_load(int journal_fd, struct apply_record *ret, abox_error **reterr)
{
	_cleanup_(freep) char *data = NULL;
	size_t len = 0;
	int r;

	r = file_read_text(journal_fd, "applied", JOURNAL_MAX, &data, &len);
	if (r == -ENOENT)
		return 0;
	if (r < 0 || len % sizeof(*ret->items) != 0)
		return error_set_errno(reterr, ABOX_E_DAMAGED, ABOX_STAGE_WORKSPACE, "applied",
			r < 0 ? -r : 0, "cannot read what was applied before");
	ret->items = (struct apply_stamp *)steal_ptr(data);
	ret->n = len / sizeof(*ret->items);
	return 0;
}

/* After a commit: what the steps have brought is ours. Those of before stay, unless the file has changed
 * since. */
static int record_steps(int journal_fd, const struct apply_target *target, const struct apply_steps *steps,
	abox_error **reterr)
{
	struct apply_record record = {0};
	struct apply_stamp *items;
	int r;

	r = apply_record_load(journal_fd, &record, reterr);
	if (r < 0)
		return r;
	items = realloc(record.items, (record.n + steps->n + 1) * sizeof(*items));
	if (!items) {
		apply_record_clear(&record);
		return ABOX_E_MEMORY;
	}
	record.items = items;
	for (size_t i = 0; i < steps->n; i++) {
		const struct apply_step *step = &steps->items[i];
		_cleanup_(fd_closep) int parent_fd = -EBADF;
		const char *name;
		struct stat st;

		if (step->inode == 0)
			continue;
		parent_fd = apply_open_parent(target, step->path, &name);
		if (parent_fd >= 0 && fstatat(parent_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			st.st_ino == step->inode)
			record.items[record.n++] = stamp_of(&st);
	}
	if (record.n > 0)
		qsort(record.items, record.n, sizeof(*record.items), compare_stamps);
	r = write_file(journal_fd, "applied", record.items, record.n * sizeof(*record.items));
	apply_record_clear(&record);
	return r < 0 ? error_set_errno(reterr, ABOX_E_IO, ABOX_STAGE_WORKSPACE, NULL, -r,
			       "cannot record what was applied")
		     : 0;
}

static int read_steps(struct pack_reader *reader, struct apply_steps *steps)
{
	uint32_t n = unpack_count(reader, 1 + 5 + 8 + 8 + 4 + 4);

	steps->items = calloc((size_t)n + 1, sizeof(*steps->items));
	if (!steps->items)
		return ABOX_E_MEMORY;
	for (; steps->n < n && !reader->failed; steps->n++) {
		struct apply_step *step = &steps->items[steps->n];

		step->kind = unpack_u8(reader);
		step->path = strdup(unpack_string(reader));
		step->inode = unpack_u64(reader);
		step->old_inode = unpack_u64(reader);
		step->mode = unpack_u32(reader);
		step->old_mode = unpack_u32(reader);
		if (!step->path) {
			steps->n++;
			return ABOX_E_MEMORY;
		}
	}
	return 0;
}

static int open_target(struct pack_reader *reader, struct apply_target *target, abox_error **reterr)
{
	const char *stage;
	struct stat st;

	if (strcmp(unpack_string(reader), MAGIC) != 0)
		return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_WORKSPACE, NULL,
			"the undo journal of an apply cannot be read");
	target->path = unpack_string(reader);
	target->device = unpack_u64(reader);
	target->inode = unpack_u64(reader);
	stage = unpack_string(reader);
	if (reader->failed || strlen(stage) >= sizeof(target->stage) ||
		!string_starts_with(stage, ".agentbox-apply-"))
		return error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_WORKSPACE, NULL,
			"the undo journal of an apply cannot be read");
	strcpy(target->stage, stage);
	target->fd = open(target->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (target->fd < 0 || fstat(target->fd, &st) < 0)
		return error_set_errno(reterr, ABOX_E_STATE, ABOX_STAGE_WORKSPACE, target->path, errno,
			"an apply to this folder was cut off and cannot be undone now");
	if (st.st_dev != target->device || st.st_ino != target->inode)
		return error_set(reterr, ABOX_E_STATE, ABOX_STAGE_WORKSPACE, target->path,
			"an apply to the folder that was here before was cut off, and that folder is gone");
	target->stage_fd = openat(target->fd, target->stage, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return 0;
}

static int recover(
	int journal_fd, const char *data, size_t len, struct apply_target *target, abox_error **reterr)
{
	struct pack_reader reader = PACK_READER((const uint8_t *)data, len);
	struct apply_steps steps = {0};
	bool committed = faccessat(journal_fd, "commit", F_OK, 0) == 0;
	int r;

	r = open_target(&reader, target, reterr);
	if (r >= 0) {
		r = read_steps(&reader, &steps);
		if (r >= 0 && !unpack_done(&reader))
			r = error_set(reterr, ABOX_E_DAMAGED, ABOX_STAGE_WORKSPACE, target->path,
				"the undo journal of an apply cannot be read");
	}
	if (r >= 0 && committed)
		r = record_steps(journal_fd, target, &steps, reterr);
	else if (r >= 0 && target->stage_fd >= 0) {
		r = undo_all(target, &steps, steps.n, reterr);
		if (r >= 0)
			syncfs(target->fd);
	}
	apply_steps_clear(&steps);
	if (r < 0)
		return r;
	r = path_remove_tree(target->fd, target->stage);
	if (r < 0 && r != -ENOENT)
		return error_set_errno(reterr, ABOX_E_LEFT_BEHIND, ABOX_STAGE_WORKSPACE, target->stage, -r,
			"cannot remove the stage of an apply from the target");
	apply_journal_remove(journal_fd);
	return committed ? 2 : 1;
}

int apply_recover(int journal_fd, abox_error **reterr)
{
	struct apply_target target = {.fd = -EBADF, .stage_fd = -EBADF};
	_cleanup_(freep) char *data = NULL;
	size_t len;
	int r;

	r = file_read_text(journal_fd, "steps", JOURNAL_MAX, &data, &len);
	if (r == -ENOENT) {
		apply_journal_remove(journal_fd); /* a commit that outlived its journal */
		return 0;
	}
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_WORKSPACE, NULL, -r, "cannot read the undo journal");
	r = recover(journal_fd, data, len, &target, reterr);
	fd_close(target.stage_fd);
	fd_close(target.fd);
	return r;
}
