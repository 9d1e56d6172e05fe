/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The order matters for what a kill leaves behind: the file gets its name when there is a whole filesystem in it, the
 * loop device is told to clear itself before anything uses it, and the mount is attached nowhere.
 */
#include "kernel/image.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "base/fd.h"
#include "kernel/clone.h"
#include "kernel/mount.h"

#define STACK_BYTES 65536
#define INODE_BYTES 256
#define FIXED_BYTES (UINT64_C(128) << 10)
#define FIXED_INODES 16
#define LOOP_TRIES 64
#define IMAGE_FD 3	/* in the program that makes the filesystem */

/* Of linux/loop.h; LOOP_CONFIGURE is of Linux 5.8, and older headers lack it. */
#define SYS_LOOP_GET_STATUS64 0x4C05
#define SYS_LOOP_CONFIGURE 0x4C0A
#define SYS_LOOP_CTL_GET_FREE 0x4C82
#define SYS_LO_FLAGS_AUTOCLEAR 4
struct sys_loop_info {
	uint64_t device, inode, rdevice, offset, size_limit;
	uint32_t number, encrypt_type, encrypt_key_size, flags;
	uint8_t file_name[64], crypt_name[64], encrypt_key[32];
	uint64_t init[2];
};
struct sys_loop_config {
	uint32_t fd, block_size;
	struct sys_loop_info info;
	uint64_t reserved[8];
};

static const char *const makers[] = { "/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4" };

const char *image_maker(void)
{
	for (size_t i = 0; i < ELEMENTSOF(makers); i++)
		if (access(makers[i], X_OK) == 0)
			return makers[i];
	return NULL;
}

struct maker {
	const char *program;
	int image_fd;
	char inodes[24], owner[64];
};

/* Shares the parent's memory until exec: system calls only. */
static int maker_main(void *argument)
{
	static const char *const env[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL };
	struct maker *maker = argument;
	const char *const argv[] = { "mkfs.ext4", "-q", "-F", "-b", "4096", "-I", "256", "-m", "0", "-O",
		"^has_journal,^resize_inode", "-E", maker->owner, "-N", maker->inodes, "/proc/self/fd/3", NULL };
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	sigset_t none;

	if (null_fd < 0)
		return 126;
	for (int i = 0; i < 3; i++)
		if (dup2(null_fd, i) < 0)
			return 126;
	if (maker->image_fd == IMAGE_FD ? fcntl(IMAGE_FD, F_SETFD, 0) < 0 : dup2(maker->image_fd, IMAGE_FD) < 0)
		return 126;
	if (sys_close_range(IMAGE_FD + 1, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
		return 126;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	syscall(SYS_execve, maker->program, argv, env);
	return 127;
}

/* No more than would leave tables that a small filesystem has no groups for. */
static uint64_t image_inodes(const struct mount_image *options)
{
	return MIN(options->n_inodes, options->size_bytes / 1024) + FIXED_INODES;
}

static int make_filesystem(const struct mount_image *options, int image_fd, const char *place, struct fault *fault)
{
	static uint8_t stack[STACK_BYTES] __attribute__((aligned(16)));
	struct maker maker = { .program = image_maker(), .image_fd = image_fd };
	int status = 0;
	long pid;

	if (!maker.program)
		return fault_set(fault, ABOX_E_UNAVAILABLE, 0, place, "mkfs.ext4 is not installed");
	snprintf(maker.inodes, sizeof(maker.inodes), "%llu", (unsigned long long)image_inodes(options));
	snprintf(maker.owner, sizeof(maker.owner), "lazy_itable_init=1,nodiscard,root_owner=%u:%u",
		options->owner_uid, options->owner_gid);
	pid = clone_run(CLONE_VM | CLONE_VFORK | SIGCHLD, stack, sizeof(stack), maker_main, &maker);
	if (pid < 0)
		return fault_set(fault, ABOX_E_SYSTEM, (int)-pid, place, "cannot start %s", maker.program);
	while (waitpid((pid_t)pid, &status, __WALL) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return fault_set(fault, ABOX_E_SYSTEM, 0, place, "%s could not make a filesystem of %llu bytes",
			maker.program, (unsigned long long)options->size_bytes);
	return 0;
}

/* Room for what ext4 keeps beside the files, which is written only as it is used. */
static int image_size(const struct mount_image *options, off_t *ret)
{
	uint64_t bytes = options->size_bytes + FIXED_BYTES;

	if (options->size_bytes > (UINT64_C(1) << 50) || options->n_inodes > UINT32_MAX - 1024)
		return -EFBIG;
	bytes += image_inodes(options) * INODE_BYTES + options->size_bytes / 4096;
	*ret = (off_t)(bytes + 4095) & ~(off_t)4095;
	return 0;
}

static int make_file(const struct mount_image *options, int *retfd)
{
	_cleanup_(fd_closep) int fd = openat(options->folder_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	off_t size;
	int r;

	if (fd < 0)
		return -errno;
	r = image_size(options, &size);
	if (r < 0)
		return r;
	if (ftruncate(fd, size) < 0)
		return -errno;
	*retfd = steal_fd(fd);
	return 0;
}

static int free_loop(char path[32])
{
	_cleanup_(fd_closep) int control_fd = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	int number = control_fd < 0 ? -1 : ioctl(control_fd, SYS_LOOP_CTL_GET_FREE);

	if (number < 0)
		return -errno;
	snprintf(path, 32, "/dev/loop%d", number);
	number = open(path, O_RDWR | O_CLOEXEC);
	return number < 0 ? -errno : number;
}

/* Somebody else may take the number between the two calls: then the next one. */
static int attach_loop(int image_fd, char path[32], int *retfd)
{
	struct sys_loop_config config = {
		.fd = (uint32_t)image_fd,
		.block_size = 4096,
		.info.flags = SYS_LO_FLAGS_AUTOCLEAR,
	};

	for (int i = 0; i < LOOP_TRIES; i++) {
		_cleanup_(fd_closep) int fd = free_loop(path);

		if (fd < 0)
			return fd;
		if (ioctl(fd, SYS_LOOP_CONFIGURE, &config) == 0) {
			*retfd = steal_fd(fd);
			return 0;
		}
		if (errno != EBUSY)
			return -errno;
	}
	return -EBUSY;
}

int image_try_loop(void)
{
	char path[32];
	int fd = free_loop(path);

	fd_close(fd);
	return MIN(fd, 0);
}

/* The device that the file is behind already, open, so that it stays; -ENOENT when there is none. */
static int find_loop(int image_fd, char path[32])
{
	DIR *dir = opendir("/dev");
	struct sys_loop_info info;
	struct dirent *entry;
	struct stat st;
	int fd = -ENOENT;

	if (!dir || fstat(image_fd, &st) < 0) {
		fd = -errno;
		if (dir)
			closedir(dir);
		return fd;
	}
	while (fd < 0 && (entry = readdir(dir))) {
		char *end;
		unsigned long number;

		if (strncmp(entry->d_name, "loop", 4) != 0 || entry->d_name[4] < '0' || entry->d_name[4] > '9')
			continue;
		number = strtoul(entry->d_name + 4, &end, 10);
		if (*end || number > INT32_MAX)
			continue;
		snprintf(path, 32, "/dev/loop%lu", number);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd >= 0 && (ioctl(fd, SYS_LOOP_GET_STATUS64, &info) < 0 || info.device != st.st_dev ||
				info.inode != st.st_ino))
			fd = fd_close(fd);
	}
	closedir(dir);
	return fd < 0 ? -ENOENT : fd;
}

static int mount_file(int image_fd, uint32_t attributes, const char *place, int *retmount_fd, struct fault *fault)
{
	_cleanup_(fd_closep) int loop_fd = -EBADF;
	char device[32];
	int r = 0;

	loop_fd = find_loop(image_fd, device);
	if (loop_fd == -ENOENT)
		r = attach_loop(image_fd, device, &loop_fd);
	else if (loop_fd < 0)
		r = loop_fd;
	if (r < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -r, place, "cannot have a loop device");
	return mount_new_ext4(device, attributes, place, retmount_fd, fault);
}

int mount_new_image(const struct mount_image *options, uint32_t attributes, const char *place, int *retmount_fd,
	struct fault *fault)
{
	_cleanup_(fd_closep) int image_fd = -EBADF;
	char self[40];
	int r;

	r = make_file(options, &image_fd);
	if (r < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -r, place, "cannot make a file for it on the disk");
	r = make_filesystem(options, image_fd, place, fault);
	if (r < 0)
		return r;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", image_fd);
	if (linkat(AT_FDCWD, self, options->folder_fd, options->name, AT_SYMLINK_FOLLOW) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, place, "cannot give its file a name");
	r = mount_file(image_fd, attributes, place, retmount_fd, fault);
	if (r < 0)
		(void)unlinkat(options->folder_fd, options->name, 0);
	return r;
}

int mount_image_again(int folder_fd, const char *name, uint32_t attributes, const char *place, int *retmount_fd,
	struct fault *fault)
{
	_cleanup_(fd_closep) int image_fd = openat(folder_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);

	if (image_fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, place, "cannot open its file");
	return mount_file(image_fd, attributes, place, retmount_fd, fault);
}
