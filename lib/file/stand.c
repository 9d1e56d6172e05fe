/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The file server of a workspace at rest. Promises that it works with the ids that a box would have, in a tree that
 * holds the workspace and nothing else: where a name leads, there is no host to be reached.
 *
 * Security: the layers were written by boxes. They are mounted, nosuid, nodev and noexec, before the first name of theirs
 * is looked at, and the old root is gone by then.
 */
#include "file/stand.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "base/fd.h"
#include "file/packet.h"
#include "file/serve.h"
#include "kernel/compat.h"
#include "kernel/mount.h"
#include "kernel/userns.h"

#define MAX_LAYERS 512
#define SECURE_NO_SETUID_FIXUP (1 << 2)
#define ATTRIBUTES (MOUNT_NOSUID | MOUNT_NODEV | MOUNT_NOEXEC)

struct order {
	uint8_t writes, is_root, userxattr;
	uint32_t base, count, uid, gid, owner_uid, owner_gid;
	uint32_t host;
	const char *work;
	uint32_t n_layers;
	int work_fd;
	int layers[MAX_LAYERS];
};

static struct file_stream stream;
static struct order order = { .work_fd = -EBADF };

static int read_order(int socket_fd, struct pack_reader *reader, struct fault *fault)
{
	const uint8_t *message = NULL;
	uint32_t version;
	ssize_t n;

	stream.fd = socket_fd;
	n = file_stream_recv(&stream, UINT64_MAX, &message);
	if (n <= 0)
		return fault_set(fault, ABOX_E_GONE, 0, "order", "the library is gone");
	*reader = PACK_READER(message, (size_t)n);
	version = unpack_u32(reader);
	order.writes = unpack_u8(reader);
	order.is_root = unpack_u8(reader);
	order.base = unpack_u32(reader);
	order.count = unpack_u32(reader);
	order.uid = unpack_u32(reader);
	order.gid = unpack_u32(reader);
	order.owner_uid = unpack_u32(reader);
	order.owner_gid = unpack_u32(reader);
	order.userxattr = unpack_u8(reader);
	order.host = unpack_u32(reader);
	order.work = unpack_string(reader);
	order.n_layers = unpack_count(reader, 21);
	if (reader->failed || version != FILE_STAND_VERSION || order.n_layers == 0 || order.n_layers > MAX_LAYERS)
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "order", "its fields are not what they must be");
	return 0;
}

/* A plain user: namespaces first, since they give the right to mount; the one id there is becomes that of the box. */
static int enter_plain(struct fault *fault)
{
	struct id_range uid = { order.uid, geteuid(), 1 }, gid = { order.gid, getegid(), 1 };
	int r;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return fault_set(fault, errno == EPERM ? ABOX_E_UNAVAILABLE : ABOX_E_SYSTEM, errno, "user namespace",
			"cannot be made, and without it no layers can be mounted");
	/* a process that cannot be looked into has no say over its maps; nothing of the workspace is here yet */
	if (prctl(PR_SET_DUMPABLE, 1) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "dumpable", "cannot be set");
	r = userns_write_maps(0, &uid, 1, &gid, 1, true, fault);
	if (r == 0 && prctl(PR_SET_DUMPABLE, 0) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "dumpable", "cannot be set");
	return r;
}

static int open_folder(const char *path, int *retfd, struct stat *retst, struct fault *fault)
{
	int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || fstat(fd, retst) < 0)
		return fault_set(fault, ABOX_E_IO, errno, path, "the layer cannot be opened");
	*retfd = fd;
	return 0;
}

/* The kernel wants layers that were opened in the mount namespace of the mounter. */
static int open_layers(struct pack_reader *reader, struct fault *fault)
{
	struct stat st;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < order.n_layers; i++) {
		const char *path = unpack_string(reader);
		uint64_t device = unpack_u64(reader), inode = unpack_u64(reader);

		if (reader->failed || path[0] != '/')
			return fault_set(fault, ABOX_E_PROTOCOL, 0, "order", "its layers are not what they must be");
		r = open_folder(path, &order.layers[i], &st, fault);
		if (r == 0 && (st.st_dev != device || st.st_ino != inode))
			return fault_set(fault, ABOX_E_STATE, 0, path, "is not the folder it was a moment ago");
	}
	if (r == 0 && !unpack_done(reader))
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "order", "it is too long");
	if (r == 0 && order.work[0])
		r = open_folder(order.work, &order.work_fd, &st, fault);
	return r;
}

/* The layer of the host shows its owner's files as those of the box's user, as it does in a box of root's. */
static int map_host(int *layer_fd, bool writable, struct fault *fault)
{
	struct id_range uids = { order.owner_uid, order.base + order.uid, 1 };
	struct id_range gids = { order.owner_gid, order.base + order.gid, 1 };
	uint32_t flags = ATTRIBUTES | (writable ? 0 : MOUNT_READONLY);
	_cleanup_(fd_closep) int userns_fd = -EBADF, mount_fd = -EBADF;
	int r;

	r = userns_new_idmap(&uids, 1, &gids, 1, &userns_fd, fault);
	if (r == 0)
		r = mount_clone(*layer_fd, "", flags, "folder of the host", &mount_fd, fault);
	if (r == 0)
		r = mount_idmap(mount_fd, userns_fd, flags, "folder of the host", fault);
	/* over itself, since older kernels lay nothing over what is mounted nowhere */
	if (r == 0)
		r = mount_attach(mount_fd, *layer_fd, "folder of the host", fault);
	if (r < 0)
		return r;
	fd_close(*layer_fd);
	*layer_fd = steal_fd(mount_fd);
	return 0;
}

static int mount_layers(int *retmount_fd, struct fault *fault)
{
	bool laid_over = order.n_layers > 1;
	uint32_t attributes = ATTRIBUTES | (order.writes ? 0 : MOUNT_READONLY);
	struct mount_overlay overlay = {
		.lower_fds = order.work_fd >= 0 ? order.layers + 1 : order.layers,
		.n_lower = order.work_fd >= 0 ? order.n_layers - 1 : order.n_layers,
		.upper_fd = order.work_fd >= 0 ? order.layers[0] : -EBADF,
		.work_fd = order.work_fd,
		.flags = (order.userxattr ? MOUNT_OVERLAY_USERXATTR : 0) |
			(order.work_fd >= 0 ? MOUNT_OVERLAY_VOLATILE : 0),
	};
	int r = 0;

	if (order.is_root && order.host < order.n_layers)
		r = map_host(&order.layers[order.host], !laid_over && order.writes, fault);
	if (r < 0)
		return r;
	if (laid_over)
		return mount_new_overlay(&overlay, attributes, "workspace", retmount_fd, fault);
	/* what others have mounted below a folder cannot be left out by who may not unmount it */
	return mount_clone(order.layers[0], "", attributes | (order.is_root ? 0 : MOUNT_RECURSIVE), "workspace",
		retmount_fd, fault);
}

/* Root: from here on without any right but those over the ids of a box. */
static int become_box(int userns_fd, struct fault *fault)
{
	if (setns(userns_fd, CLONE_NEWUSER) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "user namespace", "cannot be entered");
	if (prctl(PR_SET_SECUREBITS, SECURE_NO_SETUID_FIXUP) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "securebits", "cannot be set");
	if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "ids", "cannot become root of a box");
	if (prctl(PR_SET_DUMPABLE, 0) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "dumpable", "cannot be set");
	return 0;
}

static int enter(struct pack_reader *reader, struct fault *fault)
{
	struct id_range range = { 0, order.base, order.count };
	_cleanup_(fd_closep) int mount_fd = -EBADF, userns_fd = -EBADF, place_fd = -EBADF;
	int r = 0;

	if (!order.is_root)
		r = enter_plain(fault);
	else if (unshare(CLONE_NEWNS) < 0)
		r = fault_set(fault, ABOX_E_SYSTEM, errno, "mount namespace", "cannot be made");
	if (r == 0)
		r = mount_make_private(fault);
	if (r == 0)
		r = open_layers(reader, fault);
	if (r == 0) {
		place_fd = fcntl(order.layers[0], F_DUPFD_CLOEXEC, 0);
		r = mount_layers(&mount_fd, fault);
	}
	if (r == 0 && order.is_root)
		r = userns_new_idmap(&range, 1, &range, 1, &userns_fd, fault);
	if (r == 0)
		r = mount_attach(mount_fd, place_fd, "workspace", fault);
	if (r == 0)
		r = mount_pivot(mount_fd, fault);
	if (r == 0 && order.is_root)
		r = become_box(userns_fd, fault);
	return r;
}

int file_stand(int socket_fd)
{
	_cleanup_(fd_closep) int root_fd = -EBADF;
	struct pack_reader reader;
	struct fault fault;
	int r;

	fault_init(&fault, ABOX_STAGE_FILE);
	prctl(PR_SET_DUMPABLE, 0);
	prctl(PR_SET_NAME, FILE_STAND_NAME);
	r = read_order(socket_fd, &reader, &fault);
	if (r == 0)
		r = enter(&reader, &fault);
	/* Security: the descriptors of the layers lead out */
	if (r == 0 && sys_close_range((unsigned int)socket_fd + 1, ~0U, 0) < 0)
		r = fault_set(&fault, ABOX_E_SYSTEM, errno, "descriptors", "cannot be closed");
	if (r == 0) {
		root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
		r = root_fd < 0 ? fault_set(&fault, ABOX_E_SYSTEM, errno, "/", "cannot be opened")
				: file_serve_confine(order.uid, order.gid, &fault);
	}
	if (r < 0)
		file_serve_fault(socket_fd, &fault);
	else
		file_serve(socket_fd, root_fd, order.writes);
	return r < 0;
}
