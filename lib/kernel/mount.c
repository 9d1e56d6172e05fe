/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Mounts by descriptor. What is promised: a mount gets its attributes before anybody can reach it, and a step
 * that the kernel refuses is an error that names the place and, for the usual hosts, what helps. Which mounts
 * a box has, and in which order, is left to the caller.
 */
#include "kernel/mount.h"

#include <stdio.h>
#include <string.h>

#include <agentbox/error.h>

#include "base/fd.h"
#include "kernel/compat.h"

/* MOUNT_ATTR__ATIME: a field of several bits, cleared as a whole before one is set. */
#define ATIME_FIELD 0x70

static uint64_t attributes_of(uint32_t flags)
{
	static const struct {
		uint32_t flag;
		uint64_t attribute;
	} map[] = {
		{ MOUNT_READONLY, MOUNT_ATTR_RDONLY }, { MOUNT_NOSUID, MOUNT_ATTR_NOSUID },
		{ MOUNT_NODEV, MOUNT_ATTR_NODEV }, { MOUNT_NOEXEC, MOUNT_ATTR_NOEXEC },
		{ MOUNT_NOATIME, MOUNT_ATTR_NOATIME }, { MOUNT_NOSYMFOLLOW, MOUNT_ATTR_NOSYMFOLLOW },
	};
	uint64_t attributes = 0;

	for (size_t i = 0; i < ELEMENTSOF(map); i++)
		if (flags & map[i].flag)
			attributes |= map[i].attribute;
	return attributes;
}

int mount_change(int mount_fd, uint32_t set, uint32_t clear, const char *place, struct fault *fault)
{
	struct sys_mount_attr attr = { .attr_set = attributes_of(set), .attr_clr = attributes_of(clear) };
	unsigned int flags = AT_EMPTY_PATH | (set & MOUNT_RECURSIVE ? AT_RECURSIVE : 0);

	if ((set | clear) & MOUNT_NOATIME)
		attr.attr_clr |= ATIME_FIELD;
	if (sys_mount_setattr(mount_fd, "", flags, &attr) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, place,
			"cannot change the attributes of the mount '%s'", place);
	return 0;
}

int mount_clone(int dir_fd, const char *path, uint32_t flags, const char *place, int *retmount_fd,
	struct fault *fault)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	unsigned int how = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW;
	int r;

	if (path[0] == 0)
		how |= AT_EMPTY_PATH;
	if (flags & MOUNT_RECURSIVE)
		how |= AT_RECURSIVE;
	fd = sys_open_tree(dir_fd, path, how);
	if (fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, place, "cannot copy the mount for '%s'", place);
	if (flags & ~(uint32_t)MOUNT_RECURSIVE) {
		r = mount_change(fd, flags, 0, place, fault);
		if (r < 0)
			return r;
	}
	*retmount_fd = steal_fd(fd);
	return 0;
}

int mount_idmap(int mount_fd, int userns_fd, uint32_t flags, const char *place, struct fault *fault)
{
	struct sys_mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns_fd };
	unsigned int how = AT_EMPTY_PATH | (flags & MOUNT_RECURSIVE ? AT_RECURSIVE : 0);

	if (sys_mount_setattr(mount_fd, "", how, &attr) == 0)
		return 0;
	if (errno == EINVAL)
		return fault_set(fault, ABOX_E_UNSUPPORTED, errno, place,
			"the filesystem of '%s' cannot be idmapped", place);
	return fault_set(fault, ABOX_E_SYSTEM, errno, place, "cannot idmap '%s'", place);
}

static int attach(int mount_fd, int target_fd, unsigned int flags, const char *place, struct fault *fault)
{
	/* Security: both sides by descriptor, so that no name is looked up again between check and use. */
	flags |= MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
	if (sys_move_mount(mount_fd, "", target_fd, "", flags) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, place, "cannot mount '%s'", place);
	return 0;
}

int mount_attach(int mount_fd, int target_fd, const char *place, struct fault *fault)
{
	return attach(mount_fd, target_fd, 0, place, fault);
}

int mount_attach_beneath(int mount_fd, int target_fd, const char *place, struct fault *fault)
{
	return attach(mount_fd, target_fd, MOVE_MOUNT_BENEATH, place, fault);
}

/* One setting of a new filesystem: a text, a descriptor, or a flag when both are missing. */
struct option {
	const char *key;
	const char *text;
	int fd;
};

static int set_option(int fs_fd, const struct option *option)
{
	int r;

	if (option->text)
		r = sys_fsconfig(fs_fd, FSCONFIG_STRING, option->key, option->text, 0);
	else if (option->fd >= 0)
		r = sys_fsconfig(fs_fd, FSCONFIG_FD, option->key, NULL, option->fd);
	else
		r = sys_fsconfig(fs_fd, FSCONFIG_FLAG, option->key, NULL, 0);
	return r < 0 ? -errno : 0;
}

/* The kernel tells in words what it did not like: the last line that is an error ("e ..."), "" when there is
 * none. Keeps errno. */
static void read_reason(int fs_fd, char *ret, size_t size)
{
	int saved = errno;
	char line[256];
	ssize_t n;

	ret[0] = 0;
	while ((n = read(fs_fd, line, sizeof(line) - 1)) > 0) {
		line[n] = 0;
		line[strcspn(line, "\n")] = 0;
		if (line[0] == 'e' && line[1] == ' ')
			snprintf(ret, size, " (%.150s)", line + 2);
	}
	errno = saved;
}

static int make(int fs_fd, const char *type, uint32_t attributes, const char *place, int *retmount_fd,
	struct fault *fault)
{
	char reason[200];
	int fd;

	if (sys_fsconfig(fs_fd, FSCONFIG_CREATE, NULL, NULL, 0) < 0) {
		read_reason(fs_fd, reason, sizeof(reason));
		return fault_set(fault, ABOX_E_SYSTEM, errno, place, "cannot make a %s for '%s'%s", type,
			place, reason);
	}
	fd = sys_fsmount(fs_fd, FSMOUNT_CLOEXEC, (unsigned int)attributes_of(attributes));
	if (fd < 0) {
		read_reason(fs_fd, reason, sizeof(reason));
		return fault_set(fault, ABOX_E_SYSTEM, errno, place, "cannot mount a %s for '%s'%s", type,
			place, reason);
	}
	*retmount_fd = fd;
	return 0;
}

static int new_mount(const char *type, const struct option *options, size_t n_options, uint32_t attributes,
	const char *place, int *retmount_fd, struct fault *fault)
{
	_cleanup_(fd_closep) int fs_fd = -EBADF;

	fs_fd = sys_fsopen(type, FSOPEN_CLOEXEC);
	if (fs_fd < 0)
		return fault_set(fault, errno == ENODEV ? ABOX_E_UNSUPPORTED : ABOX_E_SYSTEM, errno, place,
			"the kernel gives no %s for '%s'", type, place);
	for (size_t i = 0; i < n_options; i++) {
		int r = set_option(fs_fd, &options[i]);

		if (r < 0)
			return fault_set(fault, ABOX_E_SYSTEM, -r, place,
				"%s for '%s': option %s%s%s refused", type, place, options[i].key,
				options[i].text ? "=" : "", options[i].text ? options[i].text : "");
	}
	return make(fs_fd, type, attributes, place, retmount_fd, fault);
}

int mount_new_tmpfs(const struct mount_tmpfs *options, uint32_t attributes, const char *place,
	int *retmount_fd, struct fault *fault)
{
	char size[24], inodes[24], mode[8];
	const struct option list[] = {
		{ "size", size, -EBADF }, { "nr_inodes", inodes, -EBADF }, { "mode", mode, -EBADF },
	};

	if (options->size_bytes == 0 || options->n_inodes == 0)
		return fault_set(fault, ABOX_E_INVALID, 0, place, "a tmpfs without a bound for '%s'", place);
	snprintf(size, sizeof(size), "%llu", (unsigned long long)options->size_bytes);
	snprintf(inodes, sizeof(inodes), "%llu", (unsigned long long)options->n_inodes);
	snprintf(mode, sizeof(mode), "%o", (unsigned int)(options->mode & 07777));
	return new_mount("tmpfs", list, ELEMENTSOF(list), attributes, place, retmount_fd, fault);
}

int mount_new_ext4(
	const char *device, uint32_t attributes, const char *place, int *retmount_fd, struct fault *fault)
{
	const struct option list[] = {
		{ "source", device, -EBADF }, { "discard", NULL, -EBADF }, { "noinit_itable", NULL, -EBADF },
		{ "nobarrier", NULL, -EBADF },
	};

	return new_mount("ext4", list, ELEMENTSOF(list), attributes, place, retmount_fd, fault);
}

int mount_new_proc(
	uint32_t proc_flags, uint32_t attributes, const char *place, int *retmount_fd, struct fault *fault)
{
	struct option list[2];
	size_t n = 0;
	int r;

	if (proc_flags & MOUNT_PROC_SUBSET_PID)
		list[n++] = (struct option){ "subset", "pid", -EBADF };
	if (proc_flags & MOUNT_PROC_HIDEPID)
		list[n++] = (struct option){ "hidepid", "invisible", -EBADF };
	r = new_mount("proc", list, n, attributes, place, retmount_fd, fault);
	/* The kernel lets a user namespace mount proc only where the proc that it can see already is not
	 * covered in part: a container runtime's masks over /proc/kcore and others are such covers. */
	if (r == ABOX_E_PERMISSION)
		fault_remedy(fault,
			"the host masks parts of its own /proc, as container runtimes do; unmask it (docker: "
			"--security-opt systempaths=unconfined) or use another wall");
	return r;
}

int mount_new_devpts(uint32_t attributes, const char *place, int *retmount_fd, struct fault *fault)
{
	static const struct option list[] = {
		{ "newinstance", NULL, -EBADF }, { "ptmxmode", "0666", -EBADF }, { "mode", "0620", -EBADF },
	};

	return new_mount("devpts", list, ELEMENTSOF(list), attributes, place, retmount_fd, fault);
}

int mount_new_mqueue(uint32_t attributes, const char *place, int *retmount_fd, struct fault *fault)
{
	return new_mount("mqueue", NULL, 0, attributes, place, retmount_fd, fault);
}

#define FD_PATH_SIZE 32
#define TEXT_SIZE 256	/* what fsconfig(2) takes as one text, with its end */

/*
 * Three ways to name the layers, newest kernel first: by descriptor; lower ones one by one as text; all in
 * one text. The last has no room for paths, so there the working directory is /proc/self/fd and a layer is
 * its bare number.
 */
enum layer_way { LAYER_FD, LAYER_TEXT, LAYER_ONE_TEXT };

static void name_layer(struct option *option, char *buffer, int fd, enum layer_way way)
{
	option->fd = fd;
	if (way == LAYER_FD)
		return;
	snprintf(buffer, FD_PATH_SIZE, way == LAYER_TEXT ? "/proc/self/fd/%d" : "%d", fd);
	option->text = buffer;
}

static int set_lower(int fs_fd, const struct mount_overlay *overlay, enum layer_way way)
{
	char text[TEXT_SIZE], path[FD_PATH_SIZE];
	size_t used = 0;
	int r;

	for (size_t i = 0; i < overlay->n_lower; i++) {
		struct option option = { "lowerdir+", NULL, -EBADF };

		name_layer(&option, path, overlay->lower_fds[i], way);
		if (way == LAYER_ONE_TEXT) {
			used += (size_t)snprintf(
				text + used, sizeof(text) - used, "%s%s", i ? ":" : "", path);
			if (used >= sizeof(text))
				return -E2BIG;
			continue;
		}
		r = set_option(fs_fd, &option);
		if (r < 0)
			return r;
	}
	return way == LAYER_ONE_TEXT ? set_option(fs_fd, &(struct option){ "lowerdir", text, -EBADF }) : 0;
}

static int set_upper(int fs_fd, const struct mount_overlay *overlay, enum layer_way way)
{
	struct option upper = { "upperdir", NULL, -EBADF }, work = { "workdir", NULL, -EBADF };
	char path[FD_PATH_SIZE];
	int r;

	if (overlay->upper_fd < 0)
		return 0;
	name_layer(&upper, path, overlay->upper_fd, way);
	r = set_option(fs_fd, &upper);
	if (r < 0)
		return r;
	name_layer(&work, path, overlay->work_fd, way);
	return set_option(fs_fd, &work);
}

/* A configured overlay. -EINVAL and -EOPNOTSUPP (before 6.5, where the kernel translates to mount(2)) mean
 * that it does not know this way of naming layers. */
static int open_overlay(const struct mount_overlay *overlay, enum layer_way way, int *retfs_fd)
{
	static const struct option userxattr = { "userxattr", NULL, -EBADF },
				   relaxed = { "volatile", NULL, -EBADF },
				   redirect = { "redirect_dir", "on", -EBADF };
	_cleanup_(fd_closep) int fs_fd = sys_fsopen("overlay", FSOPEN_CLOEXEC);
	int r;

	if (fs_fd < 0)
		return -errno;
	r = set_lower(fs_fd, overlay, way);
	if (r == 0)
		r = set_upper(fs_fd, overlay, way);
	if (r == 0 && (overlay->flags & MOUNT_OVERLAY_USERXATTR))
		r = set_option(fs_fd, &userxattr);
	if (r == 0 && (overlay->flags & MOUNT_OVERLAY_VOLATILE))
		r = set_option(fs_fd, &relaxed);
	if (r == 0 && (overlay->flags & MOUNT_OVERLAY_REDIRECT))
		r = set_option(fs_fd, &redirect);
	if (r < 0)
		return r;
	*retfs_fd = steal_fd(fs_fd);
	return 0;
}

static int make_overlay(const struct mount_overlay *overlay, enum layer_way way, uint32_t attributes,
	const char *place, int *retmount_fd, struct fault *fault)
{
	_cleanup_(fd_closep) int fs_fd = -EBADF;
	int r;

	r = open_overlay(overlay, way, &fs_fd);
	if (r == -E2BIG)
		return fault_set(fault, ABOX_E_LIMIT, 0, place,
			"this kernel cannot overlay the %zu layers of '%s'", overlay->n_lower, place);
	if (r < 0)
		return fault_set(fault, r == -ENODEV ? ABOX_E_UNSUPPORTED : ABOX_E_SYSTEM, -r, place,
			"cannot set up the overlay for '%s'", place);
	return make(fs_fd, "overlay", attributes, place, retmount_fd, fault);
}

/* The kernel looks the numbers up when the mount is made, so the working directory stays until then. */
static int make_overlay_by_numbers(const struct mount_overlay *overlay, uint32_t attributes,
	const char *place, int *retmount_fd, struct fault *fault)
{
	_cleanup_(fd_closep) int cwd_fd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (overlay->n_lower > MOUNT_OVERLAY_STRING_LAYERS)
		return fault_set(fault, ABOX_E_LIMIT, 0, place,
			"this kernel overlays %d layers at most, '%s' has %zu", MOUNT_OVERLAY_STRING_LAYERS,
			place, overlay->n_lower);
	if (cwd_fd < 0 || chdir("/proc/self/fd") < 0)
		return fault_set(
			fault, ABOX_E_SYSTEM, errno, place, "cannot enter /proc/self/fd for '%s'", place);
	r = make_overlay(overlay, LAYER_ONE_TEXT, attributes, place, retmount_fd, fault);
	if (fchdir(cwd_fd) < 0 && r == 0) {
		*retmount_fd = fd_close(*retmount_fd);
		r = fault_set(fault, ABOX_E_SYSTEM, errno, place, "cannot go back from /proc/self/fd");
	}
	return r;
}

int mount_new_overlay(const struct mount_overlay *overlay, uint32_t attributes, const char *place,
	int *retmount_fd, struct fault *fault)
{
	_cleanup_(fd_closep) int fs_fd = -EBADF;
	int r;

	if (overlay->n_lower == 0 || (overlay->upper_fd < 0) != (overlay->work_fd < 0))
		return fault_set(
			fault, ABOX_E_INVALID, 0, place, "an overlay for '%s' without layers", place);
	if (overlay->flags & MOUNT_OVERLAY_FORCE_STRING)
		return make_overlay_by_numbers(overlay, attributes, place, retmount_fd, fault);
	r = open_overlay(overlay, LAYER_FD, &fs_fd);
	/* EBADF, ENOENT: 6.8 to 6.12 take `lowerdir+` as a text only and read the descriptor as an empty one.
	 */
	if (r == -EINVAL || r == -EBADF || r == -ENOENT)
		r = open_overlay(overlay, LAYER_TEXT, &fs_fd);
	if (r == -EINVAL || r == -EOPNOTSUPP)
		return make_overlay_by_numbers(overlay, attributes, place, retmount_fd, fault);
	if (r < 0)
		return fault_set(fault, r == -ENODEV ? ABOX_E_UNSUPPORTED : ABOX_E_SYSTEM, -r, place,
			"cannot set up the overlay for '%s'", place);
	return make(fs_fd, "overlay", attributes, place, retmount_fd, fault);
}

int mount_make_private(struct fault *fault)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "/", "cannot make the mounts private");
	return 0;
}

int mount_pivot(int root_fd, struct fault *fault)
{
	if (fchdir(root_fd) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "/", "cannot enter the new root");
	/* With both names the same the old root lies on top of the new one, which is where the umount finds
	 * it. */
	if (sys_pivot_root(".", ".") < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "/", "cannot pivot to the new root");
	if (umount2(".", MNT_DETACH) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "/", "cannot detach the old root");
	if (chdir("/") < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "/", "cannot enter the new root");
	return 0;
}

int mount_detach(const char *path, struct fault *fault)
{
	if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 && errno != EINVAL && errno != ENOENT)
		return fault_set(fault, ABOX_E_SYSTEM, errno, path, "cannot unmount '%s'", path);
	return 0;
}

int mount_freeze_superblock(int mount_fd, const char *place, struct fault *fault)
{
	_cleanup_(fd_closep) int fs_fd = sys_fspick(mount_fd, "", FSPICK_CLOEXEC | FSPICK_EMPTY_PATH);

	if (fs_fd < 0 || sys_fsconfig(fs_fd, FSCONFIG_FLAG, "ro", NULL, 0) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, place, "cannot reconfigure '%s'", place);
	if (sys_fsconfig(fs_fd, FSCONFIG_RECONFIGURE, NULL, NULL, 0) < 0)
		return fault_set(fault, errno == EBUSY ? ABOX_E_BUSY : ABOX_E_SYSTEM, errno, place,
			"cannot make '%s' read-only", place);
	return 0;
}
