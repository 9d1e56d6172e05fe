/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The trial: a child in namespaces of its own does what a box's keeper would do and writes down how that
 * went. What is promised: when trial_run() returns, the child is gone and with it everything it made; the
 * host saw no SIGCHLD.
 *
 * The child runs on the memory of the host while the calling thread stands still (as in kernel/spawn.c, where
 * the reasons are): system calls and texts on its own stack, no faults with messages, no allocation.
 */
#include "probe/trial.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/fd.h"
#include "kernel/compat.h"
#include "kernel/mount.h"
#include "kernel/userns.h"

#define STACK_SIZE (64 * 1024)
/* Without CLONE_NEWNET, which costs as much as all others together; host_facts_read() looks for it otherwise.
 */
#define NAMESPACES                                                                                           \
	(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)

struct job {
	struct trial *trial;
	uint32_t uid, gid;
};

#define _in_child_ __attribute__((no_sanitize("address", "thread")))

/* A small tmpfs over the root directory of the child's own mount namespace: some place that is there on every
 * host. */
_in_child_ static int try_mounts(int *rettmpfs_fd)
{
	const struct mount_tmpfs options = { .size_bytes = 1 << 20, .n_inodes = 64, .mode = 0700 };
	int root_fd, fd = -EBADF;

	if (mount_make_private(NULL) < 0)
		return errno;
	if (mount_new_tmpfs(&options, MOUNT_NOSUID | MOUNT_NODEV, "trial", &fd, NULL) < 0)
		return errno;
	root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root_fd < 0 || mount_attach(fd, root_fd, "trial", NULL) < 0)
		return errno;
	*rettmpfs_fd = fd;
	return 0;
}

_in_child_ static int try_overlay(int tmpfs_fd, int *retby_fd)
{
	struct mount_overlay overlay = { .n_lower = 1, .flags = MOUNT_OVERLAY_USERXATTR };
	int lower_fd, fs_fd, fd = -EBADF;

	if (mkdirat(tmpfs_fd, "l", 0700) < 0 || mkdirat(tmpfs_fd, "u", 0700) < 0 ||
		mkdirat(tmpfs_fd, "w", 0700) < 0)
		return errno;
	lower_fd = openat(tmpfs_fd, "l", O_PATH | O_DIRECTORY | O_CLOEXEC);
	overlay.lower_fds = &lower_fd;
	overlay.upper_fd = openat(tmpfs_fd, "u", O_PATH | O_DIRECTORY | O_CLOEXEC);
	overlay.work_fd = openat(tmpfs_fd, "w", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (lower_fd < 0 || overlay.upper_fd < 0 || overlay.work_fd < 0)
		return errno;
	fs_fd = sys_fsopen("overlay", FSOPEN_CLOEXEC);
	if (fs_fd < 0)
		return errno;
	*retby_fd = sys_fsconfig(fs_fd, FSCONFIG_FD, "lowerdir+", NULL, lower_fd) < 0 ? errno : 0;
	if (mount_new_overlay(&overlay, 0, "trial", &fd, NULL) < 0)
		return errno ? errno : EINVAL;
	return 0;
}

_in_child_ static int trial_main(void *argument)
{
	const struct job *job = argument;
	const struct id_range uid = { 0, job->uid, 1 }, gid = { 0, job->gid, 1 };
	struct trial *trial = job->trial;
	struct sys_mount_attr attr = { 0 };
	int tmpfs_fd = -EBADF, proc_fd = -EBADF, directory_fd;

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	errno = 0;
	trial->map = userns_write_maps(0, &uid, 1, &gid, 1, true, NULL) < 0 ? errno : 0;
	if (trial->map)
		_exit(0);
	trial->mount = try_mounts(&tmpfs_fd);
	if (trial->mount)
		_exit(0);
	errno = 0;
	trial->proc = mount_new_proc(0, 0, "trial", &proc_fd, NULL) < 0 ? errno : 0;
	trial->overlay = try_overlay(tmpfs_fd, &trial->overlay_fd);
	/* Unknown flags are EINVAL before the descriptors are looked at. */
	sys_move_mount(
		-1, "", -1, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH | MOVE_MOUNT_BENEATH);
	trial->mount_beneath = errno == EBADF ? 0 : errno;
	directory_fd = openat(tmpfs_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	trial->tmpfs_xattr =
		directory_fd < 0 || fsetxattr(directory_fd, "user.trial", "x", 1, 0) < 0 ? errno : 0;
	sys_mount_setattr(-1, "", AT_EMPTY_PATH, &attr);
	trial->setattr = errno == ENOSYS || errno == EPERM ? errno : 0;
	_exit(0);
}

bool trial_is_good(const struct trial *trial)
{
	return trial->clone == 0 && trial->map == 0 && trial->mount == 0 && trial->proc == 0 && trial->setattr == 0;
}

int trial_run(struct trial *ret)
{
	struct trial trial = { -1, -1, -1, -1, -1, -1, -1, -1, -1 };
	struct job job = { .trial = &trial, .uid = geteuid(), .gid = getegid() };
	const uint64_t all = UINT64_MAX;
	int pidfd = -EBADF;
	siginfo_t info;
	uint64_t old;
	char *stack;
	pid_t pid;

	stack = mmap(
		NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (stack == MAP_FAILED)
		return -errno;
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, sizeof(all));
	pid = clone(trial_main, stack + STACK_SIZE, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | NAMESPACES, &job,
		&pidfd);
	trial.clone = pid < 0 ? errno : 0;
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old, NULL, sizeof(old));
	if (pid >= 0) {
		while (sys_waitid_pidfd(pidfd, &info, WEXITED | __WALL) < 0 && errno == EINTR)
			;
		fd_close(pidfd);
	}
	munmap(stack, STACK_SIZE);
	*ret = trial;
	return 0;
}
