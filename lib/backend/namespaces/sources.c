/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Sources: what of the host shows in the box. Promises that what is mounted is of the kind the plan saw, and
 * that no link was followed on the way: the plan holds real paths, and somebody may have put a link there
 * since.
 */
#include "backend/namespaces/namespaces.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "base/fd.h"
#include "base/pack.h"
#include "base/path.h"
#include "base/socket.h"
#include "guest/guest.h"
#include "kernel/mount.h"
#include "kernel/userns.h"

/* A message with sources: for each its slot and whether it is there; the descriptors of those that are come along. */
#define ENTRY_BYTES 5
#define PACKET_BYTES (64 * ENTRY_BYTES)

/* What the guest has heard of the source of each step. */
enum { UNKNOWN, PRESENT, ABSENT };
static uint8_t known[SOURCES_MAX];

/* The process that the namespace of an idmap was made with: it dies while the guest builds, and is waited for
 * when all sources have been sent. */
static struct userns_holder holder;

static bool kind_matches(const struct flat_source *source, const struct stat *st)
{
	switch (source->kind) {
	case FLAT_DIRECTORY:
		return S_ISDIR(st->st_mode);
	case FLAT_FILE:
		return !S_ISDIR(st->st_mode) && !S_ISLNK(st->st_mode);
	case FLAT_DEVICE:
		return S_ISCHR(st->st_mode) && major(st->st_rdev) == source->device_major &&
			minor(st->st_rdev) == source->device_minor;
	default:
		return !S_ISLNK(st->st_mode);
	}
}

/* *retfd is an O_PATH descriptor, or SOURCE_ABSENT. */
static int open_source(const struct flat_source *source, int root_fd, int *retfd, struct fault *fault)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	struct stat st;

	fd = path_open_under(root_fd, source->path, O_PATH | O_NOFOLLOW, 0, PATH_IN_ROOT);
	if (fd == -ENOENT || fd == -ENOTDIR) {
		if (source->optional) {
			*retfd = SOURCE_ABSENT;
			return 0;
		}
		return fault_set(fault, ABOX_E_NOT_FOUND, -fd, source->path, "is not there any more");
	}
	if (fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -fd, source->path, "cannot be opened");
	if (fstat(fd, &st) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, source->path, "cannot be looked at");
	if (!kind_matches(source, &st))
		return fault_set(fault, ABOX_E_NOT_FOUND, 0, source->path,
			"is not what it was when the plan was made");
	*retfd = steal_fd(fd);
	return 0;
}

static int idmap_source(const struct flat_plan *plan, const struct flat_source *source, int mount_fd,
	uint32_t flags, struct fault *fault)
{
	/* The program of another wall makes files as root of the box and then gives them away: so that has an id there too,
	 * the one that nobody of the host has. */
	const struct id_range uids[] = { { source->owner_uid, plan->base_uid + plan->inside_uid, 1 },
		{ plan->base_uid, plan->base_uid, 1 } };
	const struct id_range gids[] = { { source->owner_gid, plan->base_gid + plan->inside_gid, 1 },
		{ plan->base_gid, plan->base_gid, 1 } };
	size_t n = flat_has_program(plan) && plan->inside_uid && plan->inside_gid ? 2 : 1;
	/* making the namespace costs a process: most boxes have one owner, so the last one is kept */
	static int cached_fd = -EBADF;
	static uint32_t cached_uid, cached_gid;
	int r;

	if (cached_fd < 0 || cached_uid != source->owner_uid || cached_gid != source->owner_gid) {
		cached_fd = fd_close(cached_fd);
		userns_holder_end(&holder);
		r = userns_begin_idmap(uids, n, gids, n, &cached_fd, &holder, fault);
		if (r < 0)
			return r;
		cached_uid = source->owner_uid;
		cached_gid = source->owner_gid;
	}
	return mount_idmap(mount_fd, cached_fd, flags, source->path, fault);
}

/* A layer by its path, as the recorder has seen it: no link is followed, and another folder there is refused. */
static int open_layer(const struct flat_layer *layer, int root_fd, int *retfd, struct fault *fault)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	struct stat st;

	fd = path_open_under(root_fd, layer->path, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0, PATH_IN_ROOT);
	if (fd < 0 || fstat(fd, &st) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, fd < 0 ? -fd : errno, layer->path, "cannot open the layer");
	if (st.st_dev != layer->device || st.st_ino != layer->inode)
		return fault_set(fault, ABOX_E_NOT_FOUND, 0, layer->path, "another folder has taken its place");
	*retfd = steal_fd(fd);
	return 0;
}

/*
 * With subordinate ids the guest is another user than the owner of the layers. What the overlay makes for itself (in the
 * work folder) belongs to whoever mounts it, and the owner must be able to remove it.
 */
static int mount_layers(const struct flat_plan *plan, const struct mount_overlay *overlay, int *retmount_fd,
	struct fault *fault)
{
	bool other = plan->map == FLAT_MAP_HELPERS && plan->inside_uid != 0;
	int r;

	if (other) {
		setfsgid(plan->inside_gid);
		setfsuid(plan->inside_uid);
	}
	r = mount_new_overlay(overlay, MOUNT_NOSUID | MOUNT_NODEV, "workspace", retmount_fd, fault);
	if (other) {
		setfsuid(0);
		setfsgid(0);
	}
	return r;
}

static int stack_layers(const struct flat_plan *plan, int root_fd, int *fds, int *retmount_fd, struct fault *fault)
{
	const struct flat_workspace *workspace = plan->workspace;
	_cleanup_(fd_closep) int top_fd = -EBADF, work_fd = -EBADF;
	struct mount_overlay overlay = { .lower_fds = fds, .n_lower = workspace->n_lowers,
		.flags = MOUNT_OVERLAY_USERXATTR | MOUNT_OVERLAY_VOLATILE };
	int r;

	r = open_layer(&workspace->top, root_fd, &top_fd, fault);
	if (r == 0 && !workspace->work.path)
		return mount_clone(top_fd, "", MOUNT_NOSUID | MOUNT_NODEV, "workspace", retmount_fd, fault);
	if (r == 0)
		r = open_layer(&workspace->work, root_fd, &work_fd, fault);
	for (uint32_t i = 0; r == 0 && i < workspace->n_lowers; i++)
		r = open_layer(&workspace->lowers[i], root_fd, &fds[i], fault);
	overlay.upper_fd = top_fd;
	overlay.work_fd = work_fd;
	return r < 0 ? r : mount_layers(plan, &overlay, retmount_fd, fault);
}

static int open_workspace(const struct flat_plan *plan, int root_fd, int *retmount_fd, struct fault *fault)
{
	const struct flat_workspace *workspace = plan->workspace;
	int *fds, r;

	if (!workspace)
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "workspace", "nobody has opened it");
	if (workspace->mount_fd >= 0) {
		*retmount_fd = fcntl(workspace->mount_fd, F_DUPFD_CLOEXEC, 3);
		return *retmount_fd < 0 ? fault_set(fault, ABOX_E_SYSTEM, errno, "workspace", "no descriptor left")
					: 0;
	}
	fds = malloc((workspace->n_lowers + 1) * sizeof(*fds));
	if (!fds)
		return fault_set(fault, ABOX_E_MEMORY, 0, "workspace", "no memory for its layers");
	fd_init_array(fds, workspace->n_lowers);
	r = stack_layers(plan, root_fd, fds, retmount_fd, fault);
	for (uint32_t i = 0; i < workspace->n_lowers; i++)
		fd_close(fds[i]);
	free(fds);
	return r;
}

static uint32_t mount_flags(const struct flat_source *source, uint32_t attr)
{
	uint32_t flags = MOUNT_NOSUID;

	if (source->kind != FLAT_DEVICE)
		flags |= MOUNT_NODEV;
	if (attr & FLAT_ATTR_RDONLY)
		flags |= MOUNT_READONLY;
	if (attr & FLAT_ATTR_NOEXEC)
		flags |= MOUNT_NOEXEC;
	if (attr & FLAT_ATTR_RECURSIVE)
		flags |= MOUNT_RECURSIVE;
	return flags;
}

/* What one source shows, as a detached mount; SOURCE_ABSENT: it is optional, and not there. */
static int open_mount(const struct flat_plan *plan, uint32_t source_index, uint32_t attr, int root_fd, int *retmount_fd,
	struct fault *fault)
{
	const struct flat_source *source = &plan->sources[source_index];
	_cleanup_(fd_closep) int fd = -EBADF, mount_fd = -EBADF;
	uint32_t flags = mount_flags(source, attr);
	int r;

	if (source->kind == FLAT_WORKSPACE)
		return open_workspace(plan, root_fd, retmount_fd, fault);
	r = open_source(source, root_fd, &fd, fault);
	if (r < 0)
		return r;
	if (fd == SOURCE_ABSENT) {
		*retmount_fd = SOURCE_ABSENT;
		return 0;
	}
	r = mount_clone(fd, "", flags, source->path, &mount_fd, fault);
	if (r == 0 && source->idmap)
		r = idmap_source(plan, source, mount_fd, flags, fault);
	if (r < 0)
		return r;
	*retmount_fd = steal_fd(mount_fd);
	return 0;
}

/* Takes the descriptor, which may be SOURCE_ABSENT. */
typedef int (*take_source)(uint32_t slot, int fd, void *userdata, struct fault *fault);

/* All sources, in the order in which the tree asks for them: the root's comes first. */
static int for_each_source(const struct flat_plan *plan, take_source take, void *userdata, struct fault *fault)
{
	_cleanup_(fd_closep) int root_fd = -EBADF;
	int fd, r = 0;

	if (plan->n_steps >= SOURCES_MAX)
		return fault_set(fault, ABOX_E_LIMIT, 0, "sources", "the plan has too many steps");
	root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root_fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "/", "cannot be opened");
	if (plan->root_source >= 0) {
		r = open_mount(plan, (uint32_t)plan->root_source, FLAT_ATTR_RDONLY, root_fd, &fd, fault);
		if (r == 0)
			r = take(plan->n_steps, fd, userdata, fault);
	}
	for (uint32_t i = 0; r == 0 && i < plan->n_steps; i++) {
		const struct flat_step *step = &plan->steps[i];
		/* of the layer below, not of the overlay */
		uint32_t attr = step->attr | (step->op == FLAT_OP_OVERLAY ? FLAT_ATTR_RDONLY : 0);

		if (step->source < 0)
			continue;
		r = open_mount(plan, (uint32_t)step->source, attr, root_fd, &fd, fault);
		if (r == 0)
			r = take(i, fd, userdata, fault);
	}
	return r;
}

/* -- the guest's side -- */

static int keep(uint32_t slot, int fd, void *userdata, struct fault *fault)
{
	if (fd == SOURCE_ABSENT) {
		known[slot] = ABSENT;
		return 0;
	}
	if (dup3(fd, SOURCES_FD + (int)slot, O_CLOEXEC) < 0)
		fault_set(fault, ABOX_E_SYSTEM, errno, "sources", "no descriptor left for one");
	else
		known[slot] = PRESENT;
	fd_close(fd);
	return known[slot] == PRESENT ? 0 : fault->code;
}

int sources_open(const struct flat_plan *plan, struct fault *fault)
{
	return for_each_source(plan, keep, NULL, fault);
}

/* The next few, from the keeper. */
static int receive(const struct flat_plan *plan, struct fault *fault)
{
	uint8_t packet[PACKET_BYTES];
	int fds[SOCKET_MAX_FDS];
	struct pack_reader reader;
	size_t n_fds = 0, next = 0;
	ssize_t n = socket_recv(GUEST_FD_CHANNEL, packet, sizeof(packet), fds, &n_fds);
	int r = 0;

	reader = PACK_READER(packet, n > 0 ? (size_t)n : 0);
	while (r == 0 && reader.offset < reader.len && !reader.failed) {
		uint32_t slot = unpack_u32(&reader);
		bool there = unpack_u8(&reader) != 0;

		if (reader.failed || slot > plan->n_steps || slot >= SOURCES_MAX || (there && next == n_fds))
			break;
		r = keep(slot, there ? fds[next++] : SOURCE_ABSENT, NULL, fault);
	}
	if (r == 0 && (n <= 0 || !unpack_done(&reader) || next != n_fds))
		r = fault_set(fault, ABOX_E_GONE, 0, "sources", "the keeper is gone");
	while (next < n_fds)
		fd_close(fds[next++]);
	return r;
}

static bool is_used(const struct flat_plan *plan, uint32_t step)
{
	return step < plan->n_steps ? plan->steps[step].source >= 0 : plan->root_source >= 0;
}

int sources_get(const struct flat_plan *plan, uint32_t step, int *retfd, struct fault *fault)
{
	int r;

	if (!is_used(plan, step) || step >= SOURCES_MAX)
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "sources", "a step asks for one that it has not");
	while (known[step] == UNKNOWN) {
		r = receive(plan, fault);
		if (r < 0)
			return r;
	}
	*retfd = known[step] == ABSENT ? SOURCE_ABSENT : SOURCES_FD + (int)step;
	return 0;
}

int sources_end(const struct flat_plan *plan, struct fault *fault)
{
	for (uint32_t i = 0; i <= plan->n_steps; i++) {
		int fd, r;

		if (!is_used(plan, i))
			continue;
		r = sources_get(plan, i, &fd, fault);	/* of a step that was left out too: else it stays in the channel */
		if (r < 0)
			return r;
		if (fd != SOURCE_ABSENT)
			close(fd);
	}
	return 0;
}

/* -- the keeper's side -- */

/* Many at a time: the guest, which is ahead, is woken once and not for every few. On a host whose processors are all taken
 * each wait is a turn lost. */
struct batch {
	int channel_fd;
	uint64_t deadline_usec;
	struct {
		uint32_t slot;
		int fd;
	} entries[64];
	size_t n;
};

/* As many as one message may have; *retcount is their number. */
static int send_some(const struct batch *batch, size_t first, size_t *retcount)
{
	uint8_t packet[PACKET_BYTES];
	struct pack_writer writer = PACK_WRITER_FIXED(packet, sizeof(packet));
	int fds[SOCKET_MAX_FDS];
	size_t n_fds = 0, i;

	for (i = first; i < batch->n && n_fds < SOCKET_MAX_FDS; i++) {
		bool there = batch->entries[i].fd != SOURCE_ABSENT;

		pack_u32(&writer, batch->entries[i].slot);
		pack_u8(&writer, there);
		if (there)
			fds[n_fds++] = batch->entries[i].fd;
	}
	*retcount = i - first;
	return socket_send_until(batch->channel_fd, packet, writer.len, fds, n_fds, batch->deadline_usec);
}

static void forget(struct batch *batch)
{
	while (batch->n > 0)
		fd_close(batch->entries[--batch->n].fd);
}

static int flush(struct batch *batch, struct fault *fault)
{
	size_t count;
	int r = 0;

	for (size_t i = 0; r == 0 && i < batch->n; i += count)
		r = send_some(batch, i, &count);
	forget(batch);
	return r < 0 ? fault_set(fault, ABOX_E_GONE, -r, "guest", "it ended before it was set up") : 0;
}

static int add(uint32_t slot, int fd, void *userdata, struct fault *fault)
{
	struct batch *batch = userdata;

	batch->entries[batch->n].slot = slot;
	batch->entries[batch->n++].fd = fd;
	return batch->n == ELEMENTSOF(batch->entries) ? flush(batch, fault) : 0;
}

int sources_send(const struct flat_plan *plan, int channel_fd, uint64_t deadline_usec, struct fault *fault)
{
	struct batch batch = { .channel_fd = channel_fd, .deadline_usec = deadline_usec };
	int r = for_each_source(plan, add, &batch, fault);

	if (r == 0)
		r = flush(&batch, fault);
	forget(&batch);
	userns_holder_end(&holder);
	return r;
}
