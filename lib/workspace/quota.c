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
#include "base/strings.h"
#include "kernel/image.h"
#include "kernel/mount.h"
#include "workspace/home.h"
#include "workspace/layer.h"
#include "workspace/view.h"
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

/* As it is found in the mount namespace of the caller. */
static char *live_path(const abox_workspace *workspace)
{
	_cleanup_(fd_closep) int layer_fd = layer_open(workspace->home_fd, workspace->record.live, NULL);
	char self[40], path[PATH_MAX];
	ssize_t n;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", layer_fd);
	n = layer_fd < 0 ? -1 : readlink(self, path, sizeof(path) - 1);
	if (n < 0)
		return NULL;
	path[n] = 0;
	return strdup(path);
}

static char *join(const char *path, const char *below)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	char *joined = NULL;

	text_printf(&text, "%s/%s", path, below);
	return text_take(&text, &joined) < 0 ? NULL : joined;
}

int quota_attach(const abox_workspace *workspace, const struct quota *quota, char **retupper, char **retwork,
	struct fault *fault)
{
	_cleanup_(freep) char *layer = live_path(workspace), *place = layer ? join(layer, "work") : NULL;
	_cleanup_(fd_closep) int place_fd =
		place ? open(place, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -EBADF;
	int r;

	if (place_fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "bounded layer", "the live layer cannot be found");
	r = mount_attach(quota->mount_fd, place_fd, "bounded layer", fault);
	if (r < 0)
		return r;
	*retupper = join(place, UPPER);
	*retwork = join(place, "work");
	return *retupper && *retwork ? 0 : fault_set(fault, ABOX_E_MEMORY, 0, "bounded layer", "out of memory");
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

/*
 * Layers between two snapshots: what one of them hides of another is in no snapshot, and goes when they are merged. It
 * counts no longer.
 */
struct run {
	int fds[VIEW_MAX_LAYERS];
	struct view_layer layers[VIEW_MAX_LAYERS];
	size_t n;
	const struct layer_record *only; /* what is known of it, when it is one frozen layer */
};

static void run_clear(struct run *run)
{
	while (run->n > 0)
		fd_close(run->fds[--run->n]);
	run->only = NULL;
}

static int run_add(abox_workspace *workspace, struct run *run, const char *id, const struct layer_record *record,
	abox_error **reterr)
{
	_cleanup_(fd_closep) int layer_fd = layer_open(workspace->home_fd, id, reterr);
	int fd = layer_fd < 0 ? layer_fd : layer_open_data(layer_fd, id, O_PATH, reterr);

	if (fd < 0)
		return fd;
	if (run->n == VIEW_MAX_LAYERS) {
		fd_close(fd);
		return error_set(reterr, ABOX_E_LIMIT, STAGE, workspace->record.id, "it has too many layers");
	}
	run->only = run->n == 0 ? record : NULL;
	run->layers[run->n] = (struct view_layer){ .root_fd = fd,
		.flavour = workspace->record.flavour == LAYER_USER ? VIEW_USER : VIEW_TRUSTED };
	run->fds[run->n++] = fd;
	return 0;
}

static int run_count(const struct run *run, struct used *used, abox_error **reterr)
{
	struct view view = { .layers = run->layers, .n_layers = run->n };
	_cleanup_(view_walk_freep) struct view_walk *walk = NULL;
	struct view_step step;
	int r;

	if (run->only) {
		used->bytes += run->only->n_bytes;
		used->inodes += run->only->n_entries;
		return 0;
	}
	r = view_walk_new(&view, NULL, &walk);
	while (r >= 0 && (r = view_walk_next(walk, &step, reterr)) > 0) {
		used->bytes += S_ISREG(step.now.st.st_mode) ? (uint64_t)step.now.st.st_blocks * 512 : 0;
		used->inodes += step.now.st.st_mode != 0;
	}
	return r;
}

static bool is_named(const struct workspace_record *record, const char *layer)
{
	for (size_t i = 0; i < record->n_snapshots; i++)
		if (strcmp(record->snapshots[i].layer, layer) == 0)
			return true;
	return false;
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

/* What counts, what the disk has of it, and how many layers could be merged. */
struct count {
	struct used used;
	uint64_t held_bytes, held_inodes;
	size_t n_unnamed;
};

static int count_chain(
	abox_workspace *workspace, const struct layer_chain *chain, struct run *run, struct count *count, abox_error **reterr)
{
	const struct workspace_record *record = &workspace->record;
	size_t n_own = count_own(record, chain);
	bool is_newest = true;
	int r;

	r = run_add(workspace, run, record->live, NULL, reterr);
	for (size_t i = 0; r >= 0 && i < n_own; i++) {
		const struct layer_record *layer = &chain->records[i];

		if (is_named(record, layer->id)) {
			r = run_count(run, &count->used, reterr);
			run_clear(run);
			is_newest = false;
		}
		count->n_unnamed += is_newest;
		count->held_bytes += layer->n_bytes;
		count->held_inodes += layer->n_entries;
		if (r >= 0)
			r = run_add(workspace, run, layer->id, layer, reterr);
	}
	return r < 0 ? r : run_count(run, &count->used, reterr);
}

static int count_all(abox_workspace *workspace, struct count *count, abox_error **reterr)
{
	const struct workspace_record *record = &workspace->record;
	_cleanup_(layer_chain_clear) struct layer_chain chain = { 0 };
	_cleanup_(freep) struct run *run = calloc(1, sizeof(*run));
	int r;

	*count = (struct count){ 0 };
	if (!run)
		return ABOX_E_MEMORY;
	r = layer_chain_read(workspace->home_fd, record->parent, record->flavour, &chain, reterr);
	if (r >= 0)
		r = count_chain(workspace, &chain, run, count, reterr);
	run_clear(run);
	return r < 0 ? r : 0;
}

int quota_used(abox_workspace *workspace, uint64_t *retbytes, uint64_t *retinodes, abox_error **reterr)
{
	struct count count;
	int r;

	r = count_all(workspace, &count, reterr);
	if (r < 0)
		return r;
	*retbytes = count.used.bytes;
	*retinodes = count.used.inodes;
	return 0;
}

static uint64_t left(uint64_t limit, uint64_t used, uint64_t wanted)
{
	return limit == 0 ? wanted : MIN(wanted, limit - MIN(limit, used));
}

int quota_left(abox_workspace *workspace, bool looks, uint64_t *bytes, uint64_t *inodes, abox_error **reterr)
{
	const struct workspace_record *record = &workspace->record;
	struct count count;
	int r;

	if (!record->limit_bytes && !record->limit_inodes)
		return 0;
	r = count_all(workspace, &count, reterr);
	if (r >= 0 && !looks && count.n_unnamed > 1 &&
		((record->limit_bytes && count.held_bytes > record->limit_bytes) ||
			(record->limit_inodes && count.held_inodes > record->limit_inodes)))
		r = workspace_merge_newest(workspace, count.n_unnamed, reterr);
	if (r < 0)
		return r;
	*bytes = left(record->limit_bytes, count.used.bytes, *bytes);
	*inodes = left(record->limit_inodes, count.used.inodes, *inodes);
	if (*bytes >= LEAST_BYTES && *inodes >= LEAST_INODES)
		return 0;
	return error_remedy(reterr,
		error_set(reterr, ABOX_E_NOSPACE, STAGE, record->id,
			"the workspace is full: it holds %llu bytes in %llu files",
			(unsigned long long)count.used.bytes, (unsigned long long)count.used.inodes),
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
