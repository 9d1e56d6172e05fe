/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Probes of files: what can be reached, what can be changed, what the kernel shows in /proc, /sys and /dev.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "probe.h"

static long close_result(int fd)
{
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

/* -- path: the seven ways to touch a path (args[0]); args[1] is a folder of our own for the others half -- */

static long path_read(const char **args)
{
	char byte;
	int fd = open(args[0], O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	long r;

	if (fd < 0)
		return -errno;
	r = read(fd, &byte, 1);
	r = r < 0 && errno != EISDIR ? -errno : 0;
	close(fd);
	return r;
}

static long path_write(const char **args)
{
	return close_result(open(args[0], O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
}

static long path_create(const char **args)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/probe-created", args[0]);
	return close_result(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
}

static long path_stat(const char **args)
{
	struct stat st;

	return RAW(lstat(args[0], &st));
}

static long path_rename(const char **args)
{
	char to[4096];

	snprintf(to, sizeof(to), "%s.renamed", args[0]);
	return RAW(rename(args[0], to));
}

static long path_link(const char **args)
{
	char to[4096];

	snprintf(to, sizeof(to), "%s/probe-link", args[1] ? args[1] : "/tmp");
	return RAW(link(args[0], to));
}

static long path_readdir(const char **args)
{
	DIR *dir = opendir(args[0]);

	if (!dir)
		return -errno;
	closedir(dir);
	return 0;
}

static long path_chdir(const char **args)
{
	return RAW(chdir(args[0]));
}

static int run_path(const char **args)
{
	if (!args[0])
		return 2;
	report("path.read", path_read, args);
	report("path.write", path_write, args);
	report("path.stat", path_stat, args);
	report("path.link", path_link, args);
	report("path.readdir", path_readdir, args);
	report("path.chdir", path_chdir, args);
	report("path.create", path_create, args);
	report("path.rename", path_rename, args);
	return 0;
}

/* -- readonly: every way to change a file in a folder that was given read-only -- */

static long readonly_truncate(const char **args)
{
	return RAW(truncate(args[0], 0));
}

static long readonly_chmod(const char **args)
{
	return RAW(chmod(args[0], 0777));
}

static long readonly_setxattr(const char **args)
{
	return RAW(setxattr(args[0], "user.probe", "x", 1, 0));
}

static long readonly_rename_over(const char **args)
{
	char from[4096];
	int fd;

	snprintf(from, sizeof(from), "%s.probe", args[0]);
	fd = open(from, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	close(fd);
	return RAW(rename(from, args[0]));
}

static long readonly_unlink(const char **args)
{
	return RAW(unlink(args[0]));
}

static long readonly_remount(const char **args)
{
	return RAW(mount(NULL, args[1], NULL, MS_REMOUNT | MS_BIND, NULL));
}

static long readonly_remount_in_namespaces(const char **args)
{
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return -errno;
	return RAW(mount(NULL, args[1], NULL, MS_REMOUNT | MS_BIND, NULL));
}

static long readonly_mount_setattr(const char **args)
{
	struct { uint64_t set, clear, propagation, userns_fd; } attr = { .clear = 1 /* MOUNT_ATTR_RDONLY */ };

	return RAW(syscall(442, AT_FDCWD, args[1], 0, &attr, sizeof(attr)));
}

static int run_readonly(const char **args)
{
	if (!args[0] || !args[1])
		return 2;
	report("readonly.write", path_write, args);
	report("readonly.truncate", readonly_truncate, args);
	report("readonly.chmod", readonly_chmod, args);
	report("readonly.setxattr", readonly_setxattr, args);
	report("readonly.rename-over", readonly_rename_over, args);
	report("readonly.unlink", readonly_unlink, args);
	report("readonly.remount", readonly_remount, args);
	report("readonly.mount-setattr", readonly_mount_setattr, args);
	report("readonly.remount-in-namespaces", readonly_remount_in_namespaces, args);
	report("readonly.read", path_read, args);
	return 0;
}

/* -- kernel-files: what must be unreadable or empty, and unwritable -- */

static const char *const kernel_files[] = {
	"/proc/kcore", "/proc/kmsg", "/proc/kallsyms", "/proc/sched_debug", "/proc/timer_list", "/proc/keys",
	"/proc/key-users", "/proc/latency_stats", "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern",
	"/proc/sys/kernel/modprobe", "/proc/sys/vm/drop_caches", "/proc/sys/kernel/hostname", "/proc/acpi", "/proc/bus",
	"/proc/fs", "/proc/irq", "/proc/scsi", "/proc/asound", "/proc/driver", "/proc/sysvipc/shm", "/proc/slabinfo",
	"/proc/vmallocinfo", "/proc/kpagecount", "/proc/mtrr", "/proc/config.gz", "/sys/firmware", "/sys/kernel/debug",
	"/sys/kernel/security", "/sys/kernel/tracing", "/sys/fs/bpf", "/sys/power", "/sys/module", "/sys/block",
	"/sys/fs/cgroup/memory/release_agent", "/sys/fs/cgroup/unified/cgroup.procs", "/sys/fs/cgroup/cgroup.procs",
	"/sys/fs/cgroup/cpu/release_agent", "/sys/fs/cgroup/memory/cgroup.procs", "/dev/mem", "/dev/kmsg",
};

/* Opened and had something in it: a folder with an entry, a file with a byte. An empty mask answers -ENODATA. */
static long content_read(const char **args)
{
	struct stat st;
	struct dirent *entry;
	char byte;
	long r;
	int fd;
	DIR *dir;

	if (stat(args[0], &st) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode)) {
		dir = opendir(args[0]);
		if (!dir)
			return -errno;
		r = -ENODATA;
		while ((entry = readdir(dir)))
			if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
				r = 0;
		closedir(dir);
		return r;
	}
	fd = open(args[0], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	r = read(fd, &byte, 1);
	r = r < 0 ? -errno : r == 0 ? -ENODATA : 0;
	close(fd);
	return r;
}

/* Opened for writing; nothing is written. The mask (the box's null device) is no answer: it takes bytes to nowhere. */
static long content_open_for_writing(const char **args)
{
	struct stat st;

	if (stat(args[0], &st) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return path_create(args);
	if (S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3))
		return -ENODATA;
	return close_result(open(args[0], O_WRONLY | O_CLOEXEC | O_NONBLOCK));
}

static int run_kernel_files(const char **args)
{
	for (size_t i = 0; i < sizeof(kernel_files) / sizeof(kernel_files[0]); i++) {
		char name[128];
		const char *one[] = { kernel_files[i], NULL };

		snprintf(name, sizeof(name), "read:%s", kernel_files[i]);
		report(name, content_read, one);
		snprintf(name, sizeof(name), "write:%s", kernel_files[i]);
		report(name, content_open_for_writing, one);
	}
	return 0;
}

/* -- dev: the list, devices that must not open, nodes that must not be made, devices that must work -- */

static const char *const closed_devices[] = {
	"/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/dev/sda", "/dev/vda", "/dev/kvm", "/dev/fuse", "/dev/net/tun",
	"/dev/userfaultfd", "/dev/vsock", "/dev/vhost-net", "/dev/vhost-vsock", "/dev/snd", "/dev/dri", "/dev/loop-control",
	"/dev/loop0", "/dev/mapper/control", "/dev/uinput", "/dev/input", "/dev/console", "/dev/tty0", "/dev/tty1",
	"/dev/ttyS0", "/dev/hvc0", "/dev/watchdog", "/dev/rtc0", "/dev/cpu_dma_latency", "/dev/hwrng", "/dev/tpm0",
};

static const char *const open_devices[] = {
	"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/ptmx",
};

static long device_open(const char **args)
{
	return close_result(open(args[0], O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
}

static long device_node(const char **args)
{
	unlink("/tmp/probe-node");
	if (mknod("/tmp/probe-node", S_IFCHR | 0666, makedev(1, 1)) < 0)
		return -errno;
	unlink("/tmp/probe-node");
	return 0;
}

static long block_node(const char **args)
{
	unlink("/tmp/probe-node");
	if (mknod("/tmp/probe-node", S_IFBLK | 0666, makedev(8, 0)) < 0)
		return -errno;
	unlink("/tmp/probe-node");
	return 0;
}

static long shm_file(const char **args)
{
	int fd = open("/dev/shm/probe", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	close(fd);
	return RAW(unlink("/dev/shm/probe"));
}

static int run_dev(const char **args)
{
	struct dirent *entry;
	DIR *dir = opendir("/dev");

	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			printf("dev.entry:%s present 0\n", entry->d_name);
	if (dir)
		closedir(dir);
	for (size_t i = 0; i < sizeof(closed_devices) / sizeof(closed_devices[0]); i++) {
		char name[64];
		const char *one[] = { closed_devices[i], NULL };

		snprintf(name, sizeof(name), "open:%s", closed_devices[i]);
		report(name, device_open, one);
	}
	for (size_t i = 0; i < sizeof(open_devices) / sizeof(open_devices[0]); i++) {
		char name[64];
		const char *one[] = { open_devices[i], NULL };

		snprintf(name, sizeof(name), "works:%s", open_devices[i]);
		report(name, device_open, one);
	}
	report("mknod:char", device_node, args);
	report("mknod:block", block_node, args);
	report("works:/dev/shm", shm_file, args);
	return 0;
}

/* -- helper: nothing that runs for the library can be overwritten -- */

static long open_for_update(const char **args)
{
	return close_result(open(args[0], O_RDWR | O_CLOEXEC));
}

static int run_helper(const char **args)
{
	static const char *const paths[] = { "/proc/self/exe", "/proc/1/exe", "/proc/1/mem", "/proc/1/environ", "/proc/1/maps" };
	DIR *dir = opendir("/proc/self/map_files");
	struct dirent *entry;

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		char name[64];
		const char *one[] = { paths[i], NULL };

		snprintf(name, sizeof(name), "update:%s", paths[i]);
		report(name, open_for_update, one);
	}
	while (dir && (entry = readdir(dir))) {
		char path[4096];
		const char *one[] = { path, NULL };

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/self/map_files/%.200s", entry->d_name);
		report("update:map_files", open_for_update, one);
	}
	if (dir)
		closedir(dir);
	return 0;
}

/* -- rename FROM TO, link FROM TO -- */

static long two_paths_rename(const char **args)
{
	return RAW(rename(args[0], args[1]));
}

static long two_paths_link(const char **args)
{
	return RAW(link(args[0], args[1]));
}

static int run_rename(const char **args)
{
	if (!args[0] || !args[1])
		return 2;
	report("rename", two_paths_rename, args);
	return 0;
}

static int run_link(const char **args)
{
	if (!args[0] || !args[1])
		return 2;
	report("link", two_paths_link, args);
	return 0;
}

static int run_execute(const char **args)
{
	if (!args[0])
		return 2;
	execv(args[0], (char *const *)args);
	printf("execute denied %s\n", errno_name(errno));
	return 1;
}

const struct probe_group probe_files_groups[] = {
	{ "path", "PATH [OWN-DIR]", run_path },
	{ "readonly", "FILE MOUNT", run_readonly },
	{ "kernel-files", "", run_kernel_files },
	{ "dev", "", run_dev },
	{ "helper", "", run_helper },
	{ "rename", "FROM TO", run_rename },
	{ "link", "FROM TO", run_link },
	{ "execute", "PROGRAM [ARGUMENT...]", run_execute },
	{ 0 }
};
