/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * PID 1 of the machine of tests/guest-kernel: loads the modules of the first filesystem, makes a root of the host's files
 * (read-only, shared by virtiofs) with a layer in memory above, moves into it and becomes `sh SCRIPT`.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void check(int r, const char *what)
{
	if (r >= 0)
		return;
	perror(what);
	exit(1);	/* the kernel panics, which ends the machine */
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void load_modules(void)
{
	struct dirent **entries;
	int n = scandir("/modules", &entries, NULL, by_name);

	for (int i = 0; i < n; i++) {
		char path[512];
		int fd;

		if (entries[i]->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/modules/%s", entries[i]->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		check((int)syscall(SYS_finit_module, fd, "", 0), path);
		close(fd);
	}
}

static void put(const char *type, const char *target, unsigned long flags, const char *options)
{
	mkdir(target, 0755);
	check(mount(type, target, type, flags, options), target);
}

int main(int argc, char **argv)
{
	const char *script = argc > 1 ? argv[argc - 1] : "";	/* the last word of the kernel's command line */

	check(mkdir("/dev", 0755) < 0 && access("/dev", F_OK) < 0 ? -1 : 0, "/dev");
	check(mount("dev", "/dev", "devtmpfs", 0, NULL), "/dev");
	for (int i = 0; i < 3; i++)
		check(dup2(open("/dev/console", O_RDWR), i), "/dev/console");
	load_modules();
	mkdir("/host", 0755);
	check(mount("root", "/host", "virtiofs", MS_RDONLY, NULL), "virtiofs");
	put("tmpfs", "/layer", 0, "mode=755,size=75%");
	mkdir("/layer/upper", 0755);
	mkdir("/layer/work", 0755);
	put("overlay", "/root", 0, "lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work");
	/* Places of the host that are of this machine, or that must not be written through a layer. */
	put("tmpfs", "/root/tmp", 0, "mode=1777");
	put("tmpfs", "/root/run", 0, "mode=755");
	put("proc", "/root/proc", 0, NULL);
	put("sysfs", "/root/sys", 0, NULL);
	put("cgroup2", "/root/sys/fs/cgroup", 0, NULL);
	put("devtmpfs", "/root/dev", 0, NULL);
	put("devpts", "/root/dev/pts", 0, "ptmxmode=666");
	put("tmpfs", "/root/dev/shm", 0, "mode=1777");
	/* The first root cannot be pivoted away from, and below a mere chroot there are no user namespaces. */
	check(chdir("/root"), "chdir");
	check(mount(".", "/", NULL, MS_MOVE, NULL), "move");
	check(chroot("."), "chroot");
	check(chdir("/"), "chdir");
	setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
	setenv("HOME", "/tmp", 1);
	execl("/bin/sh", "sh", script, (char *)NULL);
	check(-1, script);
}
