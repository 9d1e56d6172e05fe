/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The one place for what the headers of a C library may lack: system call numbers, constants and structures
 * of Linux 5.2 to 6.18. The helper programs are built against musl, which brings no linux/ headers, so
 * nothing here needs them; structures carry a name of our own (struct sys_...), constants the name of the
 * kernel. A file that includes this one includes no linux/ header beside it.
 *
 * The sys_ functions are the bare calls: -1 and errno, like the functions of libc.
 */
#ifndef KERNEL_COMPAT_H
#define KERNEL_COMPAT_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macro.h"

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "tables for this architecture are missing: lib/kernel/compat.h and lib/kernel/seccomp-table.c"
#endif

/* Numbers from 424 on are the same on every architecture. */
enum {
	NR_pidfd_send_signal = 424,
	NR_open_tree = 428,
	NR_move_mount = 429,
	NR_fsopen = 430,
	NR_fsconfig = 431,
	NR_fsmount = 432,
	NR_fspick = 433,
	NR_pidfd_open = 434,
	NR_clone3 = 435,
	NR_close_range = 436,
	NR_openat2 = 437,
	NR_pidfd_getfd = 438,
	NR_faccessat2 = 439,
	NR_mount_setattr = 442,
	NR_landlock_create_ruleset = 444,
	NR_landlock_add_rule = 445,
	NR_landlock_restrict_self = 446,
};

/* open_tree(2), move_mount(2), mount_setattr(2), fsopen(2) and friends */
#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#endif
#ifndef OPEN_TREE_CLOEXEC
#define OPEN_TREE_CLOEXEC O_CLOEXEC
#endif
#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif
#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif
#ifndef MOVE_MOUNT_F_EMPTY_PATH
#define MOVE_MOUNT_F_EMPTY_PATH 0x00000004
#endif
#ifndef MOVE_MOUNT_T_EMPTY_PATH
#define MOVE_MOUNT_T_EMPTY_PATH 0x00000040
#endif
#ifndef MOVE_MOUNT_BENEATH
#define MOVE_MOUNT_BENEATH 0x00000200	/* 6.5 */
#endif
#ifndef FSOPEN_CLOEXEC
#define FSOPEN_CLOEXEC 0x00000001
#endif
#ifndef FSPICK_CLOEXEC
#define FSPICK_CLOEXEC 0x00000001
#define FSPICK_EMPTY_PATH 0x00000008
#endif
#ifndef FSPICK_EMPTY_PATH
#define FSPICK_EMPTY_PATH 0x00000008
#endif
#ifndef FSMOUNT_CLOEXEC
#define FSMOUNT_CLOEXEC 0x00000001
#endif
#ifndef MOUNT_ATTR_RDONLY
#define MOUNT_ATTR_RDONLY 0x00000001
#define MOUNT_ATTR_NOSUID 0x00000002
#define MOUNT_ATTR_NODEV 0x00000004
#define MOUNT_ATTR_NOEXEC 0x00000008
#define MOUNT_ATTR_NOATIME 0x00000010
#define MOUNT_ATTR_IDMAP 0x00100000
#endif
#ifndef MOUNT_ATTR_IDMAP
#define MOUNT_ATTR_IDMAP 0x00100000
#endif
#ifndef MOUNT_ATTR_NOSYMFOLLOW
#define MOUNT_ATTR_NOSYMFOLLOW 0x00200000
#endif
/* commands of fsconfig(2); an enum in glibc from 2.36 on, so under names of our own */
enum {
	FSCONFIG_FLAG = 0,
	FSCONFIG_STRING = 1,
	FSCONFIG_FD = 5,
	FSCONFIG_CREATE = 6,
	FSCONFIG_RECONFIGURE = 7,
};

struct sys_mount_attr {
	uint64_t attr_set;
	uint64_t attr_clr;
	uint64_t propagation;
	uint64_t userns_fd;
};

/* openat2(2) */
enum {
	SYS_RESOLVE_NO_XDEV = 0x01,
	SYS_RESOLVE_NO_MAGICLINKS = 0x02,
	SYS_RESOLVE_NO_SYMLINKS = 0x04,
	SYS_RESOLVE_BENEATH = 0x08,
	SYS_RESOLVE_IN_ROOT = 0x10,
};
struct sys_open_how {
	uint64_t flags;
	uint64_t mode;
	uint64_t resolve;
};

/* clone(2), clone3(2), pidfd */
#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x00001000
#endif
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif
#ifndef CLONE_NEWCGROUP
#define CLONE_NEWCGROUP 0x02000000
#endif
#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif
#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif
#define SYS_P_PIDFD 3	/* waitid(2); an enum in some libcs, missing in others */
#ifndef __WALL
#define __WALL 0x40000000
#endif
#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1U << 1)
#endif
#define CLOSE_RANGE_REST 0x7fffffffU	/* no number is higher; gVisor takes no larger one */
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

struct sys_clone_args {
	uint64_t flags;
	uint64_t pidfd;
	uint64_t child_tid;
	uint64_t parent_tid;
	uint64_t exit_signal;
	uint64_t stack;
	uint64_t stack_size;
	uint64_t tls;
	uint64_t set_tid;
	uint64_t set_tid_size;
	uint64_t cgroup;
};

/* ioctl(2) on a pidfd, 6.13: PIDFD_GET_INFO */
enum {
	SYS_PIDFD_INFO_PID = 1 << 0,
	SYS_PIDFD_INFO_EXIT = 1 << 3,	/* 6.15 */
};
struct sys_pidfd_info {
	uint64_t mask;
	uint64_t cgroupid;
	uint32_t pid;
	uint32_t tgid;
	uint32_t ppid;
	uint32_t ruid, rgid, euid, egid, suid, sgid, fsuid, fsgid;
	int32_t exit_code;
};
#define SYS_PIDFD_GET_INFO                                                                                   \
	0xc040ff0bUL /* _IOWR(0xff, 11, 64 bytes), the size of the structure in its first release */

/* prctl(2) */
#ifndef PR_SET_NO_NEW_PRIVS
#define PR_SET_NO_NEW_PRIVS 38
#endif
#ifndef PR_CAP_AMBIENT
#define PR_CAP_AMBIENT 47
#define PR_CAP_AMBIENT_IS_SET 1
#define PR_CAP_AMBIENT_RAISE 2
#define PR_CAP_AMBIENT_LOWER 3
#define PR_CAP_AMBIENT_CLEAR_ALL 4
#endif
#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif

/* Landlock, up to ABI 7 */
enum {
	SYS_LANDLOCK_CREATE_RULESET_VERSION = 1 << 0,
	SYS_LANDLOCK_RULE_PATH_BENEATH = 1,
	SYS_LANDLOCK_RULE_NET_PORT = 2,

	SYS_LANDLOCK_FS_EXECUTE = 1 << 0,
	SYS_LANDLOCK_FS_WRITE_FILE = 1 << 1,
	SYS_LANDLOCK_FS_READ_FILE = 1 << 2,
	SYS_LANDLOCK_FS_READ_DIR = 1 << 3,
	SYS_LANDLOCK_FS_REMOVE_DIR = 1 << 4,
	SYS_LANDLOCK_FS_REMOVE_FILE = 1 << 5,
	SYS_LANDLOCK_FS_MAKE_CHAR = 1 << 6,
	SYS_LANDLOCK_FS_MAKE_DIR = 1 << 7,
	SYS_LANDLOCK_FS_MAKE_REG = 1 << 8,
	SYS_LANDLOCK_FS_MAKE_SOCK = 1 << 9,
	SYS_LANDLOCK_FS_MAKE_FIFO = 1 << 10,
	SYS_LANDLOCK_FS_MAKE_BLOCK = 1 << 11,
	SYS_LANDLOCK_FS_MAKE_SYM = 1 << 12,
	SYS_LANDLOCK_FS_REFER = 1 << 13,	/* ABI 2 */
	SYS_LANDLOCK_FS_TRUNCATE = 1 << 14,	/* ABI 3 */
	SYS_LANDLOCK_FS_IOCTL_DEV = 1 << 15,	/* ABI 5 */

	SYS_LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET = 1 << 0,	/* ABI 6 */
	SYS_LANDLOCK_SCOPE_SIGNAL = 1 << 1,
};
struct sys_landlock_ruleset {
	uint64_t handled_access_fs;
	uint64_t handled_access_net;	/* ABI 4 */
	uint64_t scoped;		/* ABI 6 */
};
struct sys_landlock_path_beneath {
	uint64_t allowed_access;
	int32_t parent_fd;
} __attribute__((packed));

/* Capabilities, raw: version 3 of capset(2) */
struct sys_cap_header {
	uint32_t version;
	int32_t pid;
};
struct sys_cap_data {
	uint32_t effective;
	uint32_t permitted;
	uint32_t inheritable;
};
#define SYS_CAP_VERSION 0x20080522U

/* statfs(2) */
enum {
	SYS_MAGIC_CGROUP1 = 0x27e0eb,
	SYS_MAGIC_CGROUP2 = 0x63677270,
	SYS_MAGIC_PROC = 0x9fa0,
	SYS_MAGIC_OVERLAY = 0x794c7630,
	SYS_MAGIC_TMPFS = 0x01021994,
	SYS_MAGIC_SECURITYFS = 0x73636673,
};

/* Sealed memory files */
#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 0x0001U
#endif
#ifndef MFD_ALLOW_SEALING
#define MFD_ALLOW_SEALING 0x0002U
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U	/* 6.3 */
#endif
#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U	/* 6.3 */
#endif
#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020	/* 6.3: the executable bits stay as they are */
#endif

/* statx(2), for the id of the mount, which tells bind mounts of one filesystem apart */
enum {
	SYS_STATX_TYPE = 0x1,
	SYS_STATX_MODE = 0x2,
	SYS_STATX_MNT_ID = 0x1000,	/* 5.8 */
	SYS_STATX_MNT_ID_UNIQUE = 0x4000,	/* 6.8: a number that no other mount ever gets */
};
struct sys_statx {
	uint32_t mask, blksize;
	uint64_t attributes;
	uint32_t nlink, uid, gid;
	uint16_t mode, pad;
	uint64_t ino, size, blocks, attributes_mask;
	struct {
		int64_t sec;
		uint32_t nsec;
		int32_t pad;
	} atime, btime, ctime, mtime;
	uint32_t rdev_major, rdev_minor, dev_major, dev_minor;
	uint64_t mnt_id;
	uint64_t spare[13];
};

static inline int sys_statx(int dir_fd, const char *path, int flags, unsigned int mask, struct sys_statx *ret)
{
	return (int)syscall(SYS_statx, dir_fd, path, flags, mask, ret);
}
static inline int sys_open_tree(int dir_fd, const char *path, unsigned int flags)
{
	return (int)syscall(NR_open_tree, dir_fd, path, flags);
}
static inline int sys_move_mount(int from_fd, const char *from, int to_fd, const char *to, unsigned int flags)
{
	return (int)syscall(NR_move_mount, from_fd, from, to_fd, to, flags);
}
static inline int sys_mount_setattr(int fd, const char *path, unsigned int flags, struct sys_mount_attr *attr)
{
	return (int)syscall(NR_mount_setattr, fd, path, flags, attr, sizeof(*attr));
}
static inline int sys_fsopen(const char *type, unsigned int flags)
{
	return (int)syscall(NR_fsopen, type, flags);
}
static inline int sys_fsconfig(int fs_fd, unsigned int command, const char *key, const void *value, int aux)
{
	return (int)syscall(NR_fsconfig, fs_fd, command, key, value, aux);
}
static inline int sys_fsmount(int fs_fd, unsigned int flags, unsigned int attributes)
{
	return (int)syscall(NR_fsmount, fs_fd, flags, attributes);
}
static inline int sys_fspick(int dir_fd, const char *path, unsigned int flags)
{
	return (int)syscall(NR_fspick, dir_fd, path, flags);
}
static inline int sys_pivot_root(const char *new_root, const char *put_old)
{
	return (int)syscall(SYS_pivot_root, new_root, put_old);
}
static inline int sys_openat2(int dir_fd, const char *path, const struct sys_open_how *how)
{
	return (int)syscall(NR_openat2, dir_fd, path, how, sizeof(*how));
}
static inline int sys_close_range(unsigned int first, unsigned int last, unsigned int flags)
{
	return (int)syscall(NR_close_range, first, last, flags);
}
static inline int sys_pidfd_open(pid_t pid, unsigned int flags)
{
	return (int)syscall(NR_pidfd_open, pid, flags);
}
static inline int sys_pidfd_send_signal(int pidfd, int signal, void *info, unsigned int flags)
{
	return (int)syscall(NR_pidfd_send_signal, pidfd, signal, info, flags);
}
/* Only without CLONE_VM: the child goes on with the parent's stack, as after fork. */
static inline long sys_clone3(struct sys_clone_args *args)
{
	return syscall(NR_clone3, args, sizeof(*args));
}
static inline int sys_waitid_pidfd(int pidfd, siginfo_t *info, int options)
{
	return (int)syscall(SYS_waitid, SYS_P_PIDFD, pidfd, info, options, NULL);
}
static inline int sys_landlock_create_ruleset(
	const struct sys_landlock_ruleset *ruleset, size_t size, uint32_t flags)
{
	return (int)syscall(NR_landlock_create_ruleset, ruleset, size, flags);
}
static inline int sys_landlock_add_rule(int fd, int type, const void *rule, uint32_t flags)
{
	return (int)syscall(NR_landlock_add_rule, fd, type, rule, flags);
}
static inline int sys_landlock_restrict_self(int fd, uint32_t flags)
{
	return (int)syscall(NR_landlock_restrict_self, fd, flags);
}
static inline int sys_capset(struct sys_cap_header *header, const struct sys_cap_data *data)
{
	return (int)syscall(SYS_capset, header, data);
}
static inline int sys_capget(struct sys_cap_header *header, struct sys_cap_data *data)
{
	return (int)syscall(SYS_capget, header, data);
}
static inline int sys_memfd_create(const char *name, unsigned int flags)
{
	return (int)syscall(SYS_memfd_create, name, flags);
}

#endif
