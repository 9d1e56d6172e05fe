/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Probes of the kernel's doors to more power: namespaces, mounts, the filter itself, capabilities, setuid programs.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"

extern char **environ;

static const struct {
	const char *name;
	unsigned long flag;
} namespaces[] = {
	{ "user", 0x10000000 }, { "mount", 0x00020000 }, { "pid", 0x20000000 }, { "net", 0x40000000 }, { "ipc", 0x08000000 },
	{ "uts", 0x04000000 }, { "cgroup", 0x02000000 }, { "time", 0x00000080 },
};
enum { N_NAMESPACES = sizeof(namespaces) / sizeof(namespaces[0]) };
static unsigned long chosen_flag;

static long unshare_chosen(const char **args)
{
	return RAW(syscall(SYS_unshare, chosen_flag));
}

/* Raw clone in the manner of fork: the child leaves at once. */
static long clone_with(unsigned long flags)
{
	long child = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);

	if (child == 0)
		_exit(0);
	if (child < 0)
		return -errno;
	while (waitpid((pid_t)child, NULL, 0) < 0 && errno == EINTR)
		;
	return 0;
}

static long clone_chosen(const char **args)
{
	return clone_with(chosen_flag);
}

/* With the user namespace flag too, as a plain user outside would have to. */
static long clone_chosen_with_user(const char **args)
{
	return clone_with(chosen_flag | 0x10000000);
}

static long setns_path(const char **args)
{
	int fd = open(args[0], O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return RAW(syscall(SYS_setns, fd, 0));
}

static int run_namespaces(const char **args)
{
	static const char *const ns_files[] = { "user", "mnt", "pid", "net", "ipc", "uts", "cgroup" };
	char name[64];

	for (size_t i = 0; i < N_NAMESPACES; i++) {
		chosen_flag = namespaces[i].flag;
		snprintf(name, sizeof(name), "unshare:%s", namespaces[i].name);
		report(name, unshare_chosen, NULL);
		/* clone(2) has no time namespace: the bit belongs to the exit signal there. */
		if (chosen_flag == 0x80)
			continue;
		snprintf(name, sizeof(name), "clone:%s", namespaces[i].name);
		report(name, clone_chosen, NULL);
		snprintf(name, sizeof(name), "clone-user+:%s", namespaces[i].name);
		report(name, clone_chosen_with_user, NULL);
	}
	chosen_flag = 0;
	report("clone:none", clone_chosen, NULL);
	for (size_t i = 0; i < sizeof(ns_files) / sizeof(ns_files[0]); i++) {
		char path[64];
		const char *one[] = { path, NULL };

		snprintf(path, sizeof(path), "/proc/self/ns/%s", ns_files[i]);
		snprintf(name, sizeof(name), "setns:%s", ns_files[i]);
		report(name, setns_path, one);
	}
	return 0;
}

/* -- mounts -- */

static const char *chosen_type;

static long mount_chosen(const char **args)
{
	return RAW(mount("probe", "/tmp", chosen_type, 0, NULL));
}

static long mount_chosen_in_namespaces(const char **args)
{
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS | 0x20000000) < 0)
		return -errno;
	return RAW(mount("probe", "/tmp", chosen_type, 0, NULL));
}

static long mount_bind(const char **args)
{
	return RAW(mount("/usr", "/tmp", NULL, MS_BIND, NULL));
}

static long call_umount(const char **args)
{
	return RAW(umount2("/proc", MNT_DETACH));
}

static long call_pivot_root(const char **args)
{
	return RAW(syscall(SYS_pivot_root, "/tmp", "/tmp"));
}

static long call_chroot(const char **args)
{
	return RAW(chroot("/tmp"));
}

static long call_open_tree(const char **args)
{
	return RAW(syscall(428, AT_FDCWD, "/", 1 /* OPEN_TREE_CLONE */));
}

static long call_move_mount(const char **args)
{
	return RAW(syscall(429, AT_FDCWD, "/proc", AT_FDCWD, "/tmp", 0));
}

static long call_fsopen(const char **args)
{
	return RAW(syscall(430, "tmpfs", 0));
}

static long call_fsconfig(const char **args)
{
	return RAW(syscall(431, -1, 6, NULL, NULL, 0));
}

static long call_fsmount(const char **args)
{
	return RAW(syscall(432, -1, 0, 0));
}

static long call_fspick(const char **args)
{
	return RAW(syscall(433, AT_FDCWD, "/", 0));
}

static long call_mount_setattr(const char **args)
{
	struct { uint64_t set, clear, propagation, userns_fd; } attr = { .set = 1 };

	return RAW(syscall(442, AT_FDCWD, "/tmp", 0, &attr, sizeof(attr)));
}

/* Outside as root these would change the host: they are for the inside, or for a mount namespace of one's own. */
static int run_mounts(const char **args)
{
	static const char *const types[] = { "proc", "sysfs", "cgroup", "cgroup2", "overlay", "fuse", "tmpfs", "devpts", "mqueue" };
	char name[64];

	if (args[0] && !strcmp(args[0], "own-namespace") && unshare(CLONE_NEWNS) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0) {
		printf("mounts denied %s\n", errno_name(errno));
		return 1;
	}
	if (args[0] && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return 1;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		chosen_type = types[i];
		snprintf(name, sizeof(name), "mount:%s", types[i]);
		report(name, mount_chosen, NULL);
		snprintf(name, sizeof(name), "mount-in-namespaces:%s", types[i]);
		report(name, mount_chosen_in_namespaces, NULL);
	}
	report("mount:bind", mount_bind, NULL);
	report("mount:pivot_root", call_pivot_root, NULL);
	report("mount:chroot", call_chroot, NULL);
	report("mount:open_tree", call_open_tree, NULL);
	report("mount:move_mount", call_move_mount, NULL);
	report("mount:fsopen", call_fsopen, NULL);
	report("mount:fsconfig", call_fsconfig, NULL);
	report("mount:fsmount", call_fsmount, NULL);
	report("mount:fspick", call_fspick, NULL);
	report("mount:mount_setattr", call_mount_setattr, NULL);
	report("mount:umount2", call_umount, NULL);
	return 0;
}

/* -- threads: clone3 says ENOSYS, and what falls back from it works -- */

static void *thread_main(void *argument)
{
	*(int *)argument = 1;
	return NULL;
}

static long start_thread(const char **args)
{
	pthread_t thread;
	int ran = 0, r = pthread_create(&thread, NULL, thread_main, &ran);

	if (r)
		return -r;
	pthread_join(thread, NULL);
	return ran ? 0 : -EIO;
}

static long spawn_program(const char **args)
{
	const char *argv[] = { "/proc/self/exe", "exit", "0", NULL };
	int status, r;
	pid_t child;

	r = posix_spawn(&child, argv[0], NULL, NULL, (char *const *)argv, environ);
	if (r)
		return -r;
	if (waitpid(child, &status, 0) != child)
		return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

static uint64_t clone3_flags;

static long call_clone3(const char **args)
{
	struct { uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls; } clone_args = {
		.flags = clone3_flags, .exit_signal = SIGCHLD };
	long child;

	child = syscall(435, &clone_args, sizeof(clone_args));
	if (child == 0)
		_exit(0);
	if (child < 0)
		return -errno;
	waitpid((pid_t)child, NULL, 0);
	return 0;
}

static int run_threads(const char **args)
{
	clone3_flags = 0;
	report("clone3:plain", call_clone3, NULL);
	clone3_flags = 0x10000000;
	report("clone3:user", call_clone3, NULL);
	clone3_flags = 0x40000000;
	report("clone3:net", call_clone3, NULL);
	report("threads:pthread_create", start_thread, NULL);
	report("threads:posix_spawn", spawn_program, NULL);
	return 0;
}

/* -- filter: it stays -- */

struct instruction {
	uint16_t code;
	uint8_t jt, jf;
	uint32_t k;
};

static long load_allow_all(const char **args)
{
	struct instruction allow = { 0x06, 0, 0, 0x7fff0000 };
	struct { unsigned short len; struct instruction *filter; } program = { 1, &allow };

	if (prctl(PR_SET_SECCOMP, 2, &program, 0, 0) < 0)
		return -errno;
	/* Loading is no harm; that a forbidden call works afterwards would be. */
	return RAW(syscall(SYS_unshare, 0x10000000));
}

static long clear_no_new_privs(const char **args)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0) >= 0)
		return 0;
	return -errno;
}

static long has_no_new_privs(const char **args)
{
	return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : -EPERM;
}

/* prctl(PR_GET_SECCOMP) == 2 can be asked only under a filter that lets prctl through. */
static long has_filter(const char **args)
{
	return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 2 ? 0 : -ENOSYS;
}

static long raise_capabilities(const char **args)
{
	struct { uint32_t version; int pid; } head = { 0x20080522, 0 };
	struct { uint32_t effective, permitted, inheritable; } data[2] = { { ~0u, ~0u, 0 }, { ~0u, ~0u, 0 } };

	if (syscall(SYS_capset, &head, data) >= 0)
		return 0;
	/* All at once has bits the kernel does not know; one alone has not. */
	data[0].effective = data[0].permitted = 1u << 21;
	data[1].effective = data[1].permitted = 0;
	return RAW(syscall(SYS_capset, &head, data));
}

static long become_root(const char **args)
{
	if (getuid() == 0)
		return -EALREADY;
	return RAW(setuid(0));
}

static void print_status_lines(void)
{
	static const char *const wanted[] = { "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp:", "Groups",
					      "Uid", "Gid", "TracerPid" };
	FILE *status = fopen("/proc/self/status", "re");
	char line[512];

	while (status && fgets(line, sizeof(line), status)) {
		for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
			if (!strncmp(line, wanted[i], strlen(wanted[i]))) {
				for (char *c = line; *c; c++)
					if (*c == '\t')
						*c = ' ';
				fputs(line, stdout);
			}
	}
	if (status)
		fclose(status);
	fflush(stdout);
}

static int run_privileges(const char **args)
{
	print_status_lines();
	report("filter:present", has_filter, NULL);
	report("filter:loosen", load_allow_all, NULL);
	report("no_new_privs:set", has_no_new_privs, NULL);
	report("no_new_privs:clear", clear_no_new_privs, NULL);
	report("capset", raise_capabilities, NULL);
	report("setuid:0", become_root, NULL);
	return 0;
}

/* -- setuid PROGRAM: executes it with "uid"; that program is this one, with another owner and mode 4755 -- */

static int run_uid(const char **args)
{
	printf("uid %u euid %u\n", getuid(), geteuid());
	print_status_lines();
	return 0;
}

static int run_exit(const char **args)
{
	return args[0] ? atoi(args[0]) : 0;
}

const struct probe_group probe_kernel_groups[] = {
	{ "namespaces", "", run_namespaces },
	{ "mounts", "[own-namespace]", run_mounts },
	{ "threads", "", run_threads },
	{ "privileges", "", run_privileges },
	{ "uid", "", run_uid },
	{ "exit", "CODE", run_exit },
	{ 0 }
};
