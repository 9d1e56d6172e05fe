/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "workspace/quota.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "kernel/image.h"
#include "kernel/mount.h"
#include "workspace/home.h"
#include "workspace/layer.h"
#include "workspace/tree.h"
#include "workspace/workspace.h"

#define STAGE ABOX_STAGE_WORKSPACE
#define IMAGE "image"
#define UPPER "upper"
#define OWN_INODES 8	/* upper, work and what overlayfs keeps there */
#define LEAST_BYTES (UINT64_C(64) << 10)	/* as the keys of limits have it */
#define LEAST_INODES 16
#define ATTRIBUTES (MOUNT_NOSUID | MOUNT_NODEV)

static const char *const words[] = { "guest", "memory", "image" };

const char *quota_kind_word(enum quota_kind kind)
{
	return words[kind];
}

enum quota_kind quota_kind_of_word(const char *word)
{
	for (size_t i = 0; word && i < ELEMENTSOF(words); i++)
		if (strcmp(words[i], word) == 0)
			return (enum quota_kind)i;
	return QUOTA_GUEST;
}

enum quota_kind quota_kind_here(const char **retwhy)
{
	const char *why = NULL;

	if (!layer_process_is_root())
		why = "only root can have a loop device";
	else if (!image_maker())
		why = "mkfs.ext4 is not installed (e2fsprogs)";
	else if (image_try_loop() < 0)
		why = "no loop device can be had (/dev/loop-control)";
	if (retwhy)
		*retwhy = why;
	if (!why)
		return QUOTA_IMAGE;
	return layer_process_is_root() ? QUOTA_MEMORY : QUOTA_GUEST;
}

static int make_mount(abox_workspace *workspace, enum quota_kind kind, uint64_t limit_bytes, uint64_t limit_inodes, int *retmount_fd,
	abox_error **reterr)
{
	struct mount_tmpfs memory = { .size_bytes = limit_bytes, .n_inodes = limit_inodes + OWN_INODES, .mode = 0755 };
	_cleanup_(fd_closep) int layer_fd = layer_open(workspace->home_fd, workspace->record.live, reterr);
	struct mount_image image = { .folder_fd = layer_fd, .name = IMAGE, .size_bytes = limit_bytes,
		.n_inodes = limit_inodes + OWN_INODES };
	struct fault fault;
	int r;

	if (layer_fd < 0)
		return layer_fd;
	fault_init(&fault, STAGE);
	if (kind != QUOTA_IMAGE) {
		r = mount_new_tmpfs(&memory, ATTRIBUTES, "workspace", retmount_fd, &fault);
		return r < 0 ? error_from_fault(reterr, &fault) : 0;
	}
	memcpy(workspace->image_of, workspace->record.live, STORE_ID_BYTES);
	r = mount_new_image(&image, ATTRIBUTES, "workspace", retmount_fd, &fault);
	return r < 0 ? error_from_fault(reterr, &fault) : 0;
}

/* A folder with the rights of st, open and readable. */
static int make_folder(int dir_fd, const char *name, const struct stat *st, int *retfd)
{
	_cleanup_(fd_closep) int fd = -EBADF;

	if (mkdirat(dir_fd, name, 0700) < 0)
		return -errno;
	fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fchown(fd, st->st_uid, st->st_gid) < 0 || fchmod(fd, st->st_mode & 07777) < 0)
		return -errno;
	*retfd = steal_fd(fd);
	return 0;
}

void quota_clear(struct quota *quota)
{
	quota->mount_fd = fd_close(quota->mount_fd);
	quota->upper_fd = fd_close(quota->upper_fd);
}

int quota_open(abox_workspace *workspace, enum quota_kind kind, uint64_t limit_bytes, uint64_t limit_inodes, struct layer_stack *stack,
	struct quota *ret, abox_error **reterr)
{
	_cleanup_(fd_closep) int mount_fd = -EBADF, upper_fd = -EBADF, work_fd = -EBADF, copy_fd = -EBADF;
	struct stat top, own = { .st_mode = 0700 };
	int r;

	if (fstat(stack->top_fd, &top) < 0)
		return error_set_errno(reterr, ABOX_E_IO, STAGE, "live layer", errno, "cannot be looked at");
	r = make_mount(workspace, kind, limit_bytes, limit_inodes, &mount_fd, reterr);
	if (r < 0)
		return r;
	r = make_folder(mount_fd, UPPER, &top, &upper_fd);
	if (r == 0)
		r = make_folder(mount_fd, "work", &own, &work_fd);
	if (r == 0 && (copy_fd = fcntl(upper_fd, F_DUPFD_CLOEXEC, 3)) < 0)
		r = -errno;
	if (r < 0)
		return error_set_errno(reterr, ABOX_E_IO, STAGE, "bounded layer", -r, "cannot be made");
	fd_close(stack->top_fd);
	fd_close(stack->work_fd);
	stack->top_fd = steal_fd(upper_fd);
	stack->work_fd = steal_fd(work_fd);
	*ret = (struct quota){ steal_fd(mount_fd), steal_fd(copy_fd) };
	return 0;
}

bool quota_is_there(const abox_workspace *workspace)
{
	const struct workspace_record *record = &workspace->record;
	char path[sizeof(HOME_LAYERS) + STORE_ID_BYTES + sizeof(IMAGE) + 1];

	if (!record->boot[0] || !record->live[0])
		return false;
	snprintf(path, sizeof(path), HOME_LAYERS "/%s/" IMAGE, record->live);
	return faccessat(workspace->home_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool quota_is_left(const abox_workspace *workspace)
{
	return quota_is_there(workspace) && strcmp(workspace->image_of, workspace->record.live) != 0;
}

int quota_drop(abox_workspace *workspace, abox_error **reterr)
{
	_cleanup_(fd_closep) int layer_fd = layer_open(workspace->home_fd, workspace->record.live, reterr);

	if (layer_fd < 0)
		return layer_fd;
	if (unlinkat(layer_fd, IMAGE, 0) < 0 && errno != ENOENT)
		return error_set_errno(reterr, ABOX_E_IO, STAGE, "bounded layer", errno, "cannot be removed");
	return 0;
}

int quota_attach(const abox_workspace *workspace, const struct quota *quota, char **retupper, char **retwork,
	struct fault *fault)
{
	_cleanup_(fd_closep) int layer_fd = layer_open(workspace->home_fd, workspace->record.live, NULL), place_fd = -EBADF;
	char self[40], path[PATH_MAX], *upper = NULL, *work = NULL;
	ssize_t n;
	int r;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", layer_fd);
	n = layer_fd < 0 ? -1 : readlink(self, path, sizeof(path) - 1);
	if (n < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "bounded layer", "the live layer cannot be found");
	path[n] = 0;
	if (asprintf(&upper, "%s/work/" UPPER, path) < 0 || asprintf(&work, "%s/work/work", path) < 0) {
		free(upper);
		return fault_set(fault, ABOX_E_MEMORY, 0, "bounded layer", "out of memory");
	}
	/* by path, so that it is that of this namespace */
	work[strlen(work) - strlen("/work")] = 0;
	place_fd = open(work, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = place_fd < 0 ? fault_set(fault, ABOX_E_SYSTEM, errno, work, "cannot be opened")
			 : mount_attach(quota->mount_fd, place_fd, work, fault);
	work[strlen(work)] = '/';
	if (r < 0) {
		free(upper);
		free(work);
		return r;
	}
	*retupper = upper;
	*retwork = work;
	return 0;
}

int quota_take_left(abox_workspace *workspace, abox_error **reterr)
{
	_cleanup_(fd_closep) int layer_fd = layer_open(workspace->home_fd, workspace->record.live, reterr);
	_cleanup_(fd_closep) int mount_fd = -EBADF, upper_fd = -EBADF;
	struct fault fault;
	int r;

	if (layer_fd < 0)
		return layer_fd;
	r = workspace_check_boot(workspace, reterr);
	if (r < 0)
		return r;
	fault_init(&fault, STAGE);
	r = mount_image_again(layer_fd, IMAGE, ATTRIBUTES, "workspace", &mount_fd, &fault);
	if (r < 0)
		return error_from_fault(reterr, &fault);
	upper_fd = openat(mount_fd, UPPER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (upper_fd >= 0)
		return workspace_replace_live(workspace, upper_fd, true, reterr);
	/* The box has never begun. */
	if (errno != ENOENT || unlinkat(layer_fd, IMAGE, 0) < 0)
		return error_set_errno(reterr, ABOX_E_IO, STAGE, "bounded layer", errno, "cannot be taken in");
	return 0;
}

/* -- the limit of a workspace -- */

struct used {
	uint64_t bytes, inodes;
};

static int count_entry(void *userdata, const struct tree_entry *entry)
{
	struct used *used = userdata;

	if (entry->dir_fd < 0) /* the layer itself */
		return 0;
	used->bytes += (uint64_t)entry->st.st_blocks * 512;
	used->inodes++;
	return 0;
}

static int count_folder(void *userdata, const struct tree_entry *entry, int fd)
{
	(void)fd;
	return count_entry(userdata, entry);
}

static int count_live(abox_workspace *workspace, struct used *used, abox_error **reterr)
{
	struct tree_visitor visitor = { .enter = count_folder, .other = count_entry, .userdata = used };
	_cleanup_(fd_closep) int layer_fd = layer_open(workspace->home_fd, workspace->record.live, reterr);
	_cleanup_(fd_closep) int data_fd = -EBADF;

	if (layer_fd < 0)
		return layer_fd;
	data_fd = layer_open_data(layer_fd, workspace->record.live, O_RDONLY, reterr);
	return data_fd < 0 ? data_fd : tree_walk(data_fd, "live layer", &visitor, reterr);
}

/* Layers of the workspace's own, from the newest. A merge may have taken inherited ones in: then they count. */
static size_t count_own(const struct workspace_record *record, const struct layer_chain *chain)
{
	size_t n = 0;

	while (n < chain->n && !chain->records[n].is_base && !chain->records[n].is_full &&
		strcmp(chain->records[n].id, record->inherited) != 0)
		n++;
	return n;
}

static int count_all(abox_workspace *workspace, struct used *used, size_t *retn_own, abox_error **reterr)
{
	const struct workspace_record *record = &workspace->record;
	_cleanup_(layer_chain_clear) struct layer_chain chain = { 0 };
	int r;

	*used = (struct used){ 0 };
	r = layer_chain_read(workspace->home_fd, record->parent, record->flavour, &chain, reterr);
	if (r < 0)
		return r;
	*retn_own = count_own(record, &chain);
	for (size_t i = 0; i < *retn_own; i++) {
		used->bytes += chain.records[i].n_bytes;
		used->inodes += chain.records[i].n_entries;
	}
	return count_live(workspace, used, reterr);
}

int quota_used(abox_workspace *workspace, uint64_t *retbytes, uint64_t *retinodes, abox_error **reterr)
{
	struct used used;
	size_t n_own;
	int r;

	r = count_all(workspace, &used, &n_own, reterr);
	if (r < 0)
		return r;
	*retbytes = used.bytes;
	*retinodes = used.inodes;
	return 0;
}

static uint64_t left(uint64_t limit, uint64_t used, uint64_t wanted)
{
	return limit == 0 ? wanted : MIN(wanted, limit - MIN(limit, used));
}

int quota_left(abox_workspace *workspace, bool looks, uint64_t *bytes, uint64_t *inodes, abox_error **reterr)
{
	const struct workspace_record *record = &workspace->record;
	struct used used;
	size_t n_own;
	int r;

	if (!record->limit_bytes && !record->limit_inodes)
		return 0;
	r = count_all(workspace, &used, &n_own, reterr);
	if (r < 0)
		return r;
	if (!looks && n_own > 1 && ((record->limit_bytes && used.bytes > record->limit_bytes / 2) ||
					   (record->limit_inodes && used.inodes > record->limit_inodes / 2))) {
		r = workspace_merge_newest(workspace, n_own, reterr);
		if (r >= 0)
			r = count_all(workspace, &used, &n_own, reterr);
		if (r < 0)
			return r;
	}
	*bytes = left(record->limit_bytes, used.bytes, *bytes);
	*inodes = left(record->limit_inodes, used.inodes, *inodes);
	if (*bytes >= LEAST_BYTES && *inodes >= LEAST_INODES)
		return 0;
	return error_remedy(reterr,
		error_set(reterr, ABOX_E_NOSPACE, STAGE, record->id,
			"the workspace is full: it holds %llu bytes in %llu files",
			(unsigned long long)used.bytes, (unsigned long long)used.inodes),
		"give it more (agentbox workspace limit), or restore a snapshot");
}

int quota_set(abox_workspace *workspace, uint64_t limit_bytes, uint64_t limit_inodes, abox_error **reterr)
{
	_cleanup_(workspace_record_clear) struct workspace_record next = { 0 };
	uint64_t bytes = 0, inodes = 0;
	int r;

	if (workspace->record.mode == WORKSPACE_DIRECT || workspace->record.is_full)
		return error_set(reterr, ABOX_E_UNSUPPORTED, STAGE, workspace->record.id,
			"without overlay there is no layer that could be bounded");
	r = workspace_check_trusted(workspace, reterr);
	if (r >= 0)
		r = quota_used(workspace, &bytes, &inodes, reterr);
	if (r < 0)
		return r;
	if ((limit_bytes && bytes > limit_bytes) || (limit_inodes && inodes > limit_inodes))
		return error_set(reterr, ABOX_E_LIMIT, STAGE, workspace->record.id,
			"the workspace holds %llu bytes in %llu files already", (unsigned long long)bytes,
			(unsigned long long)inodes);
	r = workspace_record_copy(&workspace->record, &next);
	if (r < 0)
		return r;
	next.limit_bytes = limit_bytes;
	next.limit_inodes = limit_inodes;
	return workspace_commit(workspace, &next, reterr);
}
