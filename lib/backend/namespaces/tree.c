/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The tree of the box, built step by step from the plan in the guest's own mount namespace.
 *
 * Promises: everything is nosuid, and nodev but for the device nodes of the plan; nothing outside the new
 * root is reached by a link of a hostile root folder (targets are resolved below the root, as if chrooted
 * there), and behind a mount of the plan no link is followed at all, so that who can write to what is mounted
 * moves no mount to another place; in a folder of the host nothing is made; a step that fails ends the start unless the plan calls it optional; when it is done, no mount of
 * the host is left in the namespace but by the binds of the plan.
 *
 * One tmpfs, the scratch, holds all writable places that count towards the disk limit; it is attached in the
 * old root, so that it can be bound from, and leaves with it.
 */
#include "backend/namespaces/namespaces.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "base/fd.h"
#include "base/path.h"
#include "kernel/compat.h"
#include "kernel/landlock.h"
#include "kernel/mount.h"
#include "network/keystore.h"

#define ROOT_INODES 16384
#define SCRATCH_BYTES (1U << 20)	/* of a plan that sets no disk limit */
#define SCRATCH_INODES 1024
#define NAME_MASK_DIR "#mask"	/* in the scratch: a plan's names cannot be these two, see scratch_make() */
#define NAME_MASK_FILE "#empty"
#define NAME_ROOT "#root"
#define NAME_OUTER "#outer"
#define OUTER_BYTES (64U << 20)	/* what the program of a wall writes of its own */
#define SYS_STATX_ATTR_MOUNT_ROOT 0x2000

struct tree {
	const struct flat_plan *plan;
	int root_fd;
	int outer_fd;		/* root of what stands around the box's, or -EBADF */
	int scratch_fd;
	/* the parent that was opened last: a folder's files come one after the other */
	int *parent_fd;
	char *parent;
};

/* Folders that were mounted, in order: what lies below one of them is reached from there. */
struct cover {
	int root_fd;	/* of the tree that it is in: the box's, or what stands around it */
	const char *target;
	int fd;
	bool is_host;	/* a folder of the host itself: nothing is made in it */
	bool is_own;	/* the descriptor is this table's */
};

static struct cover covers[SOURCES_MAX + 1];
static size_t n_covers;

static uint32_t step_flags(const struct flat_step *step)
{
	uint32_t flags = MOUNT_NOSUID | MOUNT_NODEV;

	if (step->attr & FLAT_ATTR_RDONLY)
		flags |= MOUNT_READONLY;
	if (step->attr & FLAT_ATTR_NOEXEC)
		flags |= MOUNT_NOEXEC;
	return flags;
}

/* The id that owns what a step makes: the box's user, or root where that is mapped (the guest is it then). */
static int give_to(const struct flat_plan *plan, const struct flat_step *step, int dir_fd, const char *name)
{
	/* what it makes is the guest's: root's, or that of the only id there is */
	if (plan->map == FLAT_MAP_SINGLE || !(step->attr & FLAT_ATTR_OWNER_BOX))
		return 0;
	return fchownat(
		dir_fd, name, plan->inside_uid, plan->inside_gid, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH);
}

/* The mount that covers the target, the one that was made last where several do; NULL: the root of the box. */
static const struct cover *cover_of(const struct tree *tree, const char *target, const char **retrest)
{
	const struct cover *found = NULL;
	size_t best = 0;

	*retrest = target;
	for (size_t i = 0; i < n_covers; i++) {
		const struct cover *cover = &covers[i];
		size_t len = 0;

		while (cover->target[len] && cover->target[len] == target[len])
			len++;
		if (cover->root_fd != tree->root_fd || cover->target[len] || (target[len] && target[len] != '/') || len < best)
			continue;
		best = len;
		found = cover;
		*retrest = target[len] ? target + len : "/";
	}
	return found;
}

static bool is_of_host(const struct tree *tree, const char *target)
{
	const char *rest;
	const struct cover *cover = cover_of(tree, target, &rest);

	return cover && cover->is_host;
}

/* Security: hostile roots have links everywhere; all of them lead to inside the root (openat2, RESOLVE_IN_ROOT).
 * And who may write to a folder that is mounted can put a link there between two steps: what lies below a mount
 * is looked for from that mount, and no link is followed there. */
static int open_inside(const struct tree *tree, const char *target, int flags)
{
	const char *rest;
	const struct cover *cover = cover_of(tree, target, &rest);

	if (!cover)
		return path_open_under(tree->root_fd, target, flags, 0, PATH_IN_ROOT | PATH_FOLLOW);
	return path_open_under(cover->fd, rest, flags, 0, PATH_IN_ROOT);
}

static void forget_covers(void)
{
	while (n_covers > 0) {
		if (covers[--n_covers].is_own)
			fd_close(covers[n_covers].fd);
	}
}

static void forget_parent(const struct tree *tree)
{
	*tree->parent_fd = fd_close(*tree->parent_fd);
	tree->parent[0] = 0;
}

/* Splits target into an open parent, which is the tree's, and a name. The root itself has none: -EINVAL. */
static int open_parent(const struct tree *tree, const char *target, int *retfd, const char **retname)
{
	const char *slash = strrchr(target, '/');
	size_t len = (size_t)(slash - target);

	if (!slash[1] || len >= PATH_MAX)
		return -EINVAL;
	*retname = slash + 1;
	if (len == 0) {
		*retfd = tree->root_fd;
		return 0;
	}
	if (*tree->parent_fd < 0 || strncmp(tree->parent, target, len) != 0 || tree->parent[len]) {
		forget_parent(tree);
		memcpy(tree->parent, target, len);
		tree->parent[len] = 0;
		*tree->parent_fd = open_inside(tree, tree->parent, O_PATH | O_DIRECTORY);
	}
	*retfd = *tree->parent_fd;
	return *retfd < 0 ? *retfd : 0;
}

static int fail(const struct flat_step *step, int sys_errno, const char *what, struct fault *fault)
{
	return fault_set(fault, ABOX_E_SYSTEM, sys_errno, step->target, "%s", what);
}

static int find_directory(const struct tree *tree, const struct flat_step *step, struct fault *fault)
{
	_cleanup_(fd_closep) int fd = open_inside(tree, step->target, O_PATH | O_DIRECTORY);

	return fd < 0 ? fail(step, -fd, "there is no such folder", fault) : 0;
}

static int make_directory(const struct tree *tree, const struct flat_step *step, struct fault *fault)
{
	const char *name;
	int parent_fd, r;

	if (strcmp(step->target, "/") == 0)
		return 0;
	if (is_of_host(tree, step->target))
		return find_directory(tree, step, fault);
	r = open_parent(tree, step->target, &parent_fd, &name);
	if (r < 0)
		return fail(step, -r, "its parent cannot be opened", fault);
	if (mkdirat(parent_fd, name, step->mode) < 0)
		return errno == EEXIST ? find_directory(tree, step, fault)
				       : fail(step, errno, "cannot make the folder", fault);
	if (give_to(tree->plan, step, parent_fd, name) < 0)
		return fail(step, errno, "cannot set the owner", fault);
	return 0;
}

static int make_symlink(const struct tree *tree, const struct flat_step *step, struct fault *fault)
{
	char link[PATH_MAX];
	const char *name;
	int parent_fd, r;

	if (step->content_len == 0 || step->content_len >= sizeof(link))
		return fail(step, EINVAL, "not the text of a link", fault);
	memcpy(link, step->content, step->content_len);
	link[step->content_len] = 0;
	r = open_parent(tree, step->target, &parent_fd, &name);
	if (r < 0)
		return fail(step, -r, "its parent cannot be opened", fault);
	if (symlinkat(link, parent_fd, name) < 0 && errno != EEXIST)
		return fail(step, errno, "cannot make the link", fault);
	return 0;
}

/* The certificate of the box's own CA, which is as old as the box. In JSON it is one line: what stands between the marks
 * of PEM is base64 already. */
static int write_trust(const struct flat_plan *plan, const struct flat_step *step, int fd)
{
	const char *end = plan->trust_pem + plan->trust_pem_len;
	int r = 0;

	if (step->attr & FLAT_ATTR_TRUST_PEM)
		return fd_write_all(fd, plan->trust_pem, plan->trust_pem_len);
	if (step->attr & FLAT_ATTR_TRUST_JAVA)
		return keystore_finish(fd, step->content, step->content_len, plan->trust_pem, plan->trust_pem_len);
	for (const char *line = plan->trust_pem, *next; r == 0 && line < end; line = next) {
		const char *newline = memchr(line, '\n', (size_t)(end - line));

		next = newline ? newline + 1 : end;
		if (line[0] != '-')
			r = fd_write_all(fd, line, (size_t)((newline ? newline : end) - line));
	}
	return r == 0 ? fd_write_all(fd, "\"]}\n", 4) : r;
}

static int make_file(const struct tree *tree, const struct flat_step *step, struct fault *fault)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	_cleanup_(fd_closep) int fd = -EBADF;
	const char *name;
	int parent_fd, r;

	r = open_parent(tree, step->target, &parent_fd, &name);
	if (r < 0)
		return fail(step, -r, "its parent cannot be opened", fault);
	fd = openat(parent_fd, name, flags, step->mode);
	if (fd < 0 && errno == EEXIST) {
		/* Security: what is there is removed, never written through: a hostile root could have put a
		 * link */
		if (unlinkat(parent_fd, name, 0) < 0)
			return fail(step, errno, "cannot replace what is there", fault);
		fd = openat(parent_fd, name, flags, step->mode);
	}
	if (fd < 0)
		return fail(step, errno, "cannot make the file", fault);
	r = fd_write_all(fd, step->content, step->content_len);
	if (r == 0 && (step->attr & (FLAT_ATTR_TRUST_PEM | FLAT_ATTR_TRUST_JSON | FLAT_ATTR_TRUST_JAVA)))
		r = write_trust(tree->plan, step, fd);
	if (r < 0)
		return fail(step, -r, "cannot write the file", fault);
	if (give_to(tree->plan, step, fd, "") < 0)
		return fail(step, errno, "cannot set the owner", fault);
	return 0;
}

/* Makes the place that a mount shall cover, and opens it: a fresh one needs no looking for. -EEXIST and others: it is there
 * already, or cannot be made. */
static int make_target(const struct tree *tree, const struct flat_step *step, bool directory)
{
	const char *name;
	int parent_fd, fd, r;

	if (is_of_host(tree, step->target))
		return -EROFS;
	r = open_parent(tree, step->target, &parent_fd, &name);
	if (r < 0)
		return r;
	r = directory ? mkdirat(parent_fd, name, 0755) : mknodat(parent_fd, name, S_IFREG | 0644, 0);
	fd = r < 0 ? -1 : openat(parent_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* The place that a mount covers; made, as a file or a folder, where it is missing. */
static int open_target(const struct tree *tree, const struct flat_step *step, bool directory, int *retfd, bool *retmade,
	struct fault *fault)
{
	int made = make_target(tree, step, directory);

	*retmade = made >= 0;
	*retfd = made >= 0 ? made : open_inside(tree, step->target, O_PATH);
	if (*retfd == -ENOENT && !is_of_host(tree, step->target))
		return fail(step, -made, "cannot make the mount point", fault);
	return *retfd < 0 ? fail(step, -*retfd, "cannot be opened", fault) : 0;
}

static int attach(const struct tree *tree, const struct flat_step *step, int mount_fd, struct fault *fault)
{
	_cleanup_(fd_closep) int target_fd = -EBADF;
	struct stat st;
	bool made;
	int r;

	if (fstat(mount_fd, &st) < 0)
		return fail(step, errno, "cannot look at the mount", fault);
	r = open_target(tree, step, S_ISDIR(st.st_mode), &target_fd, &made, fault);
	if (r < 0)
		return r;
	r = mount_attach(mount_fd, target_fd, step->target, fault);
	if (r < 0 || !S_ISDIR(st.st_mode))
		return r;
	if (!made)
		forget_parent(tree);	/* it may be what is covered now */
	if (step->op == FLAT_OP_BIND || step->op == FLAT_OP_OVERLAY || step->op == FLAT_OP_PROC)
		covers[n_covers++] = (struct cover){ .root_fd = tree->root_fd, .target = step->target, .fd = mount_fd,
			.is_host = step->op == FLAT_OP_BIND, .is_own = step->op == FLAT_OP_PROC };
	return 0;
}

static int bind_source(
	const struct tree *tree, const struct flat_step *step, uint32_t number, struct fault *fault)
{
	int mount_fd, r;

	r = sources_get(tree->plan, number, &mount_fd, fault);
	if (r < 0 || mount_fd == SOURCE_ABSENT)
		return r;
	return attach(tree, step, mount_fd, fault);
}

/* A folder in the scratch, with mode and owner of the step. */
static int scratch_folder(const struct tree *tree, const struct flat_step *step, int parent_fd,
	const char *name, int *retfd, struct fault *fault)
{
	if (mkdirat(parent_fd, name, step->mode) < 0 && errno != EEXIST)
		return fail(step, errno, "cannot make a folder in the scratch", fault);
	*retfd = openat(parent_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (*retfd < 0)
		return fail(step, errno, "cannot open its folder in the scratch", fault);
	if (give_to(tree->plan, step, parent_fd, name) < 0)
		return fail(step, errno, "cannot set the owner", fault);
	return 0;
}

static int mount_scratch(const struct tree *tree, const struct flat_step *step, struct fault *fault)
{
	_cleanup_(fd_closep) int fd = -EBADF, mount_fd = -EBADF;
	int r;

	r = scratch_folder(tree, step, tree->scratch_fd, step->name, &fd, fault);
	if (r == 0)
		r = mount_clone(fd, "", step_flags(step), step->target, &mount_fd, fault);
	if (r == 0)
		r = attach(tree, step, mount_fd, fault);
	return r;
}

static int mount_tmpfs(const struct tree *tree, const struct flat_step *step, struct fault *fault)
{
	struct mount_tmpfs options = { step->size_bytes, step->inodes, step->mode };
	_cleanup_(fd_closep) int mount_fd = -EBADF;
	int r;

	/* read-only only after the owner was set */
	r = mount_new_tmpfs(
		&options, step_flags(step) & ~(uint32_t)MOUNT_READONLY, step->target, &mount_fd, fault);
	if (r < 0)
		return r;
	if (give_to(tree->plan, step, mount_fd, "") < 0)
		return fail(step, errno, "cannot set the owner", fault);
	if (step->attr & FLAT_ATTR_RDONLY) {
		r = mount_change(mount_fd, MOUNT_READONLY, 0, step->target, fault);
		if (r < 0)
			return r;
	}
	return attach(tree, step, mount_fd, fault);
}

/* The guest is in a user namespace, where overlay keeps its marks in user.* attributes or has none at all
 * (and then a folder that was removed and made again would show its old content). */
static int new_overlay(const struct tree *tree, const struct flat_step *step, int lower_fd, int *retmount_fd,
	struct fault *fault)
{
	_cleanup_(fd_closep) int base_fd = -EBADF, place_fd = -EBADF, upper_fd = -EBADF, work_fd = -EBADF;
	_cleanup_(fd_closep) int mask_fd = -EBADF;
	int lower_fds[2] = { lower_fd, -EBADF };
	struct mount_overlay overlay = {
		.lower_fds = lower_fds, .n_lower = 1, .flags = MOUNT_OVERLAY_USERXATTR
	};
	struct flat_step inner = *step;
	int r;

	inner.attr &= ~(uint32_t)FLAT_ATTR_OWNER_BOX;
	inner.mode = 0711; /* the keeper, who may be another user there, reads the upper */
	r = scratch_folder(tree, &inner, tree->scratch_fd, step->name, &base_fd, fault);
	inner.mode = 0700;
	if (r == 0)
		r = scratch_folder(tree, step, base_fd, "upper", &upper_fd, fault);
	if (r == 0)
		r = scratch_folder(tree, &inner, base_fd, "work", &work_fd, fault);
	/* A layer must belong to a mount namespace over which the mounter has power: what a privileged keeper
	 * cloned belongs to the host's until it is attached here. In the scratch it is as hidden as the
	 * upper. */
	if (r == 0)
		r = scratch_folder(tree, &inner, base_fd, "lower", &place_fd, fault);
	if (r == 0)
		r = mount_attach(lower_fd, place_fd, step->target, fault);
	/* Names that are protected and not there come from below everything else. */
	if (r == 0 && protect_mask(tree->plan, step->target, -EBADF, NULL) > 0) {
		r = scratch_folder(tree, &inner, base_fd, "mask", &mask_fd, fault);
		if (r == 0)
			r = protect_mask(tree->plan, step->target, mask_fd, fault);
		lower_fds[overlay.n_lower++] = mask_fd;
	}
	if (r < 0)
		return r;
	overlay.upper_fd = upper_fd;
	overlay.work_fd = work_fd;
	return mount_new_overlay(&overlay, step_flags(step), step->target, retmount_fd, fault);
}

static int mount_overlay(
	const struct tree *tree, const struct flat_step *step, uint32_t number, struct fault *fault)
{
	_cleanup_(fd_closep) int mount_fd = -EBADF;
	int lower_fd, r;

	r = sources_get(tree->plan, number, &lower_fd, fault);
	if (r < 0 || lower_fd == SOURCE_ABSENT)
		return r;
	r = new_overlay(tree, step, lower_fd, &mount_fd, fault);
	/* it takes the number of the layer below, which is attached by now */
	if (r == 0 && dup3(mount_fd, lower_fd, O_CLOEXEC) < 0)
		r = fail(step, errno, "no descriptor left for it", fault);
	return r < 0 ? r : attach(tree, step, lower_fd, fault);
}

static int mount_special(const struct tree *tree, const struct flat_step *step, struct fault *fault)
{
	uint32_t flags = step_flags(step) | MOUNT_NOEXEC;
	_cleanup_(fd_closep) int mount_fd = -EBADF;
	int r;

	if (step->op == FLAT_OP_PROC)
		r = mount_new_proc(0, flags, step->target, &mount_fd, fault);
	else if (step->op == FLAT_OP_DEVPTS)
		r = mount_new_devpts(flags & ~(uint32_t)MOUNT_NODEV, step->target, &mount_fd, fault);
	else
		r = mount_new_mqueue(flags, step->target, &mount_fd, fault);
	if (r == 0)
		r = attach(tree, step, mount_fd, fault);
	if (r == 0 && step->op == FLAT_OP_PROC)
		steal_fd(mount_fd);	/* it is in the table */
	return r;
}

/* An empty folder or file over the target. */
static int mask(const struct tree *tree, const struct flat_step *step, struct fault *fault)
{
	_cleanup_(fd_closep) int target_fd = -EBADF, mount_fd = -EBADF;
	struct stat st;
	int r;

	target_fd = open_inside(tree, step->target, O_PATH);
	if (target_fd == -ENOENT || target_fd == -ENOTDIR)
		return 0;
	if (target_fd < 0)
		return fail(step, -target_fd, "cannot be opened", fault);
	if (fstat(target_fd, &st) < 0)
		return fail(step, errno, "cannot be looked at", fault);
	forget_parent(tree);
	r = mount_clone(tree->scratch_fd, S_ISDIR(st.st_mode) ? NAME_MASK_DIR : NAME_MASK_FILE,
		MOUNT_READONLY | MOUNT_NOSUID | MOUNT_NODEV | MOUNT_NOEXEC, step->target, &mount_fd, fault);
	return r < 0 ? r : mount_attach(mount_fd, target_fd, step->target, fault);
}

/* A file that an earlier step has made, over one of the host's that is shown here. */
static int bind_over(const struct tree *tree, const struct flat_step *step, struct fault *fault)
{
	_cleanup_(fd_closep) int target_fd = -EBADF, file_fd = -EBADF, mount_fd = -EBADF;
	int r;

	target_fd = open_inside(tree, step->target, O_PATH);
	if (target_fd == -ENOENT || target_fd == -ENOTDIR)
		return 0;
	if (target_fd < 0)
		return fail(step, -target_fd, "cannot be opened", fault);
	file_fd = open_inside(tree, step->name, O_PATH);
	if (file_fd < 0)
		return fail(step, -file_fd, "the file for it cannot be opened", fault);
	forget_parent(tree);
	r = mount_clone(file_fd, "", MOUNT_READONLY | MOUNT_NOSUID | MOUNT_NODEV | MOUNT_NOEXEC, step->target, &mount_fd,
		fault);
	return r < 0 ? r : mount_attach(mount_fd, target_fd, step->target, fault);
}

static bool is_mount_root(int fd)
{
	struct sys_statx answer;

	if (sys_statx(fd, "", AT_EMPTY_PATH, 0, &answer) < 0)
		return false;
	return answer.attributes & SYS_STATX_ATTR_MOUNT_ROOT;
}

/* Security: the proof that the old root is gone. Were anything left on top of the new root or above it, `..`
 * would lead there. */
static int check_root(struct fault *fault)
{
	struct sys_statx root, above;

	if (sys_statx(AT_FDCWD, "/", 0, SYS_STATX_MNT_ID, &root) < 0 ||
		sys_statx(AT_FDCWD, "/..", 0, SYS_STATX_MNT_ID, &above) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "/", "cannot look at the new root");
	if (!(root.mask & above.mask & SYS_STATX_MNT_ID) || root.mnt_id != above.mnt_id)
		return fault_set(fault, ABOX_E_SYSTEM, 0, "/", "the old root is still there");
	return 0;
}

static int make_readonly(const struct tree *tree, const struct flat_step *step, struct fault *fault)
{
	_cleanup_(fd_closep) int target_fd = -EBADF, mount_fd = -EBADF;
	uint32_t flags = step_flags(step) | MOUNT_READONLY;
	int r;

	target_fd = open_inside(tree, step->target, O_PATH);
	if (target_fd == -ENOENT || target_fd == -ENOTDIR)
		return 0;
	if (target_fd < 0)
		return fail(step, -target_fd, "cannot be opened", fault);
	forget_parent(tree);
	if (step->attr & FLAT_ATTR_RECURSIVE)
		flags |= MOUNT_RECURSIVE;
	if (is_mount_root(target_fd))
		return mount_change(
			target_fd, MOUNT_READONLY | (flags & MOUNT_RECURSIVE), 0, step->target, fault);
	r = mount_clone(target_fd, "", flags | MOUNT_RECURSIVE, step->target, &mount_fd, fault);
	return r < 0 ? r : mount_attach(mount_fd, target_fd, step->target, fault);
}

static int run_step(const struct tree *tree, uint32_t number, struct fault *fault)
{
	const struct flat_step *step = &tree->plan->steps[number];

	switch (step->op) {
	case FLAT_OP_DIRECTORY:
		return make_directory(tree, step, fault);
	case FLAT_OP_SYMLINK:
		return make_symlink(tree, step, fault);
	case FLAT_OP_FILE:
		return make_file(tree, step, fault);
	case FLAT_OP_BIND:
		return bind_source(tree, step, number, fault);
	case FLAT_OP_SCRATCH:
		return mount_scratch(tree, step, fault);
	case FLAT_OP_TMPFS:
		return mount_tmpfs(tree, step, fault);
	case FLAT_OP_PROC:
	case FLAT_OP_DEVPTS:
	case FLAT_OP_MQUEUE:
		return mount_special(tree, step, fault);
	case FLAT_OP_OVERLAY:
		return mount_overlay(tree, step, number, fault);
	case FLAT_OP_MASK:
		return mask(tree, step, fault);
	case FLAT_OP_READONLY:
		return make_readonly(tree, step, fault);
	case FLAT_OP_OVER:
		return bind_over(tree, step, fault);
	case FLAT_OP_PROTECT:
		forget_parent(tree);
		return protect_hold(tree->plan, step, tree->root_fd, fault);
	default:
		return fault_set(fault, ABOX_E_PROTOCOL, 0, step->target, "a step of an unknown kind");
	}
}

/* A folder of the old root for the scratch to lie on: any will do, since all sources are open by now. Not
 * "/", where pivot_root would leave it between the old root and the umount. */
static int open_old_folder(int *retfd, struct fault *fault)
{
	static const char *const names[] = { "/usr", "/tmp", "/etc", "/var", "/dev" };

	for (size_t i = 0; i < ELEMENTSOF(names); i++) {
		*retfd = open(names[i], O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (*retfd >= 0)
			return 0;
	}
	return fault_set(fault, ABOX_E_SYSTEM, errno, "scratch", "the host's root has no usual folder");
}

/* Its own names begin with '#', which steps may not use. */
static int make_scratch(struct tree *tree, struct fault *fault)
{
	const struct flat_limits *limits = &tree->plan->limits;
	struct mount_tmpfs options = {
		.size_bytes = limits->disk_bytes ? limits->disk_bytes : SCRATCH_BYTES,
		.n_inodes = limits->inodes ? limits->inodes : SCRATCH_INODES,
		.mode = 0755,
	};
	_cleanup_(fd_closep) int old_fd = -EBADF, mount_fd = -EBADF;
	int r;

	/* folders that the box itself needs are not taken from what the user may have */
	if (!size_add(options.n_inodes, 8 + (uint64_t)tree->plan->n_steps * 4, &options.n_inodes))
		return fault_set(fault, ABOX_E_INVALID, 0, "scratch", "no such number of inodes");
	r = mount_new_tmpfs(&options, MOUNT_NOSUID | MOUNT_NODEV, "scratch", &mount_fd, fault);
	if (r < 0)
		return r;
	r = open_old_folder(&old_fd, fault);
	if (r < 0)
		return r;
	r = mount_attach(mount_fd, old_fd, "scratch", fault);
	if (r < 0)
		return r;
	if (mkdirat(mount_fd, NAME_MASK_DIR, 0) < 0 || mkdirat(mount_fd, NAME_ROOT, 0700) < 0 ||
		mknodat(mount_fd, NAME_MASK_FILE, S_IFREG, 0) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "scratch", "cannot make its folders");
	tree->scratch_fd = steal_fd(mount_fd);
	return 0;
}

static int make_root(struct tree *tree, struct fault *fault)
{
	const struct flat_plan *plan = tree->plan;
	struct mount_tmpfs options = { plan->root_size_bytes, ROOT_INODES, 0755 };
	struct flat_step step = { .op = FLAT_OP_OVERLAY, .mode = 0755, .target = "/", .name = "root" };
	_cleanup_(fd_closep) int mount_fd = -EBADF, place_fd = -EBADF;
	int lower_fd, r;

	if (plan->root_source < 0) {
		r = mount_new_tmpfs(&options, MOUNT_NOSUID | MOUNT_NODEV, "/", &mount_fd, fault);
	} else {
		r = sources_get(plan, plan->n_steps, &lower_fd, fault);
		if (r == 0)
			r = new_overlay(tree, &step, lower_fd, &mount_fd, fault);
	}
	if (r < 0)
		return r;
	place_fd = openat(tree->scratch_fd, NAME_ROOT, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (place_fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "/", "cannot open the place of the root");
	r = mount_attach(mount_fd, place_fd, "/", fault);
	if (r < 0)
		return r;
	tree->root_fd = steal_fd(mount_fd);
	return 0;
}

/* Where the program of a wall runs: an empty place with what the plan puts there, and the box's root as FLAT_BOX. */
static int make_outer(struct tree *tree, struct fault *fault)
{
	struct mount_tmpfs options = { OUTER_BYTES, ROOT_INODES, 0755 };
	_cleanup_(fd_closep) int mount_fd = -EBADF, place_fd = -EBADF, box_fd = -EBADF;
	int r;

	if (!flat_has_program(tree->plan))
		return 0;
	r = mount_new_tmpfs(&options, MOUNT_NOSUID | MOUNT_NODEV, "/", &mount_fd, fault);
	if (r < 0)
		return r;
	if (mkdirat(tree->scratch_fd, NAME_OUTER, 0700) < 0 || mkdirat(mount_fd, &FLAT_BOX[1], 0755) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, FLAT_BOX, "cannot make the folder");
	place_fd = openat(tree->scratch_fd, NAME_OUTER, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (place_fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "/", "cannot open the place of the outer root");
	r = mount_attach(mount_fd, place_fd, "/", fault);
	if (r < 0)
		return r;
	box_fd = openat(mount_fd, &FLAT_BOX[1], O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (box_fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, FLAT_BOX, "cannot open the folder");
	r = mount_attach(tree->root_fd, box_fd, FLAT_BOX, fault);
	if (r < 0)
		return r;
	tree->outer_fd = steal_fd(mount_fd);
	return 0;
}

/* Steps of the outer root see that one as theirs. */
static int run_outer_step(const struct tree *tree, uint32_t number, struct fault *fault)
{
	struct tree outer = *tree;
	int r;

	if (tree->outer_fd < 0)
		return fault_set(fault, ABOX_E_PROTOCOL, 0, tree->plan->steps[number].target, "there is no outer root");
	outer.root_fd = tree->outer_fd;
	forget_parent(tree);
	r = run_step(&outer, number, fault);
	forget_parent(tree);
	return r;
}

int tree_enter(const struct flat_plan *plan, tree_log log, int *retscratch_fd, struct fault *fault)
{
	int parent_fd = -EBADF;
	char parent[PATH_MAX] = "";
	struct tree tree = {
		.plan = plan,
		.root_fd = -EBADF,
		.outer_fd = -EBADF,
		.scratch_fd = -EBADF,
		.parent_fd = &parent_fd,
		.parent = parent,
	};
	int r;

	umask(0);	/* modes are the plan's; commands get theirs later */
	r = mount_make_private(fault);
	if (r == 0)
		r = make_scratch(&tree, fault);
	if (r == 0)
		r = make_root(&tree, fault);
	if (r == 0)
		r = make_outer(&tree, fault);
	for (uint32_t i = 0; r == 0 && i < plan->n_steps; i++) {
		if ((plan->steps[i].attr & FLAT_ATTR_INNER) && plan->steps[i].op != FLAT_OP_DIRECTORY)
			continue;
		if (plan->steps[i].attr & FLAT_ATTR_OUTER)
			r = run_outer_step(&tree, i, fault);
		else
			r = run_step(&tree, i, fault);
		if (r < 0 && (plan->steps[i].attr & FLAT_ATTR_OPTIONAL)) {
			char text[sizeof(fault->place) + sizeof(fault->message) + 8];

			snprintf(text, sizeof(text), "%s: %s", fault->place, fault->message);
			log(text);
			fault_init(fault, fault->stage);
			r = 0;
		}
	}
	forget_parent(&tree);
	forget_covers();
	if (r == 0)
		r = mount_pivot(tree.outer_fd >= 0 ? tree.outer_fd : tree.root_fd, fault);
	if (r == 0)
		r = check_root(fault);
	fd_close(tree.root_fd);
	fd_close(tree.outer_fd);
	if (r < 0) {
		fd_close(tree.scratch_fd);
		return r;
	}
	*retscratch_fd = tree.scratch_fd;
	return 0;
}

/* Masks of the plan again, by means that the new mount namespace has: the scratch is out of reach there. */
static int renew_mask(const struct tree *tree, const struct flat_step *step, struct fault *fault)
{
	struct mount_tmpfs options = { .size_bytes = 4096, .n_inodes = 2, .mode = 0 };
	_cleanup_(fd_closep) int target_fd = -EBADF, mount_fd = -EBADF;
	uint32_t flags = MOUNT_READONLY | MOUNT_NOSUID | MOUNT_NODEV | MOUNT_NOEXEC;
	struct stat st;
	int r;

	target_fd = open_inside(tree, step->target, O_PATH);
	if (target_fd == -ENOENT || target_fd == -ENOTDIR)
		return 0;
	if (target_fd < 0)
		return fail(step, -target_fd, "cannot be opened", fault);
	if (fstat(target_fd, &st) < 0)
		return fail(step, errno, "cannot be looked at", fault);
	if (S_ISDIR(st.st_mode))
		r = mount_new_tmpfs(&options, flags, step->target, &mount_fd, fault);
	else
		r = mount_clone(AT_FDCWD, "/dev/null", flags, step->target, &mount_fd, fault);
	return r < 0 ? r : mount_attach(mount_fd, target_fd, step->target, fault);
}

int tree_renew_proc(const struct flat_plan *plan, struct fault *fault)
{
	int parent_fd = -EBADF;
	char parent[PATH_MAX] = "";
	struct tree tree = { .plan = plan, .scratch_fd = -EBADF, .parent_fd = &parent_fd, .parent = parent };
	_cleanup_(fd_closep) int root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int r = 0;

	if (root_fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "/", "cannot be opened");
	tree.root_fd = root_fd;
	for (uint32_t i = 0; r == 0 && i < plan->n_steps; i++) {
		const struct flat_step *step = &plan->steps[i];

		if (step->op == FLAT_OP_PROC)
			r = mount_special(&tree, step, fault);
		else if (strncmp(step->target, "/proc/", 6) != 0)
			continue;
		else if (step->op == FLAT_OP_MASK)
			r = renew_mask(&tree, step, fault);
		else if (step->op == FLAT_OP_READONLY)
			r = make_readonly(&tree, step, fault);
	}
	forget_parent(&tree);
	forget_covers();
	return r;
}
