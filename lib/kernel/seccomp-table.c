/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The system calls of commands, by name. What is not here answers ENOSYS: a call of a future kernel, clone3
 * (whose flags lie in memory, where a filter cannot look; C libraries fall back to clone), listmount, and all
 * that no one has missed. Changing a line here changes what every box can do to the kernel.
 */
#include "kernel/seccomp-table.h"

#include <seccomp.h>
#include <string.h>

#define ALLOW(name, number) { #name, ACTION_ALLOW, false, number }
#define DENY(name, number) { #name, ACTION_EPERM, false, number }
#define DENY_UNLESS_ALLOWED(name, number) { #name, ACTION_EPERM, true, number }
#define MISSING_UNLESS_ALLOWED(name, number) { #name, ACTION_ENOSYS, true, number }

const struct filter_entry filter_table[] = {
	/* Ordinary work: files, memory, processes of one's own, sockets that exist, waiting. */
	ALLOW(read, 0), ALLOW(write, 0), ALLOW(open, 0), ALLOW(openat, 0), ALLOW(openat2, 0),
	ALLOW(close, 0), ALLOW(close_range, 0), ALLOW(creat, 0), ALLOW(stat, 0), ALLOW(fstat, 0),
	ALLOW(lstat, 0), ALLOW(newfstatat, 0), ALLOW(statx, 0), ALLOW(poll, 0), ALLOW(ppoll, 0),
	ALLOW(lseek, 0), ALLOW(mmap, 0), ALLOW(mprotect, 0), ALLOW(munmap, 0), ALLOW(brk, 0),
	ALLOW(mremap, 0), ALLOW(msync, 0), ALLOW(mincore, 0), ALLOW(madvise, 0), ALLOW(mlock, 0),
	ALLOW(munlock, 0), ALLOW(mlockall, 0), ALLOW(munlockall, 0), ALLOW(mlock2, 0),
	ALLOW(remap_file_pages, 0), ALLOW(pkey_alloc, 0), ALLOW(pkey_free, 0), ALLOW(pkey_mprotect, 0),
	ALLOW(membarrier, 0), ALLOW(rt_sigaction, 0), ALLOW(rt_sigprocmask, 0), ALLOW(rt_sigreturn, 0),
	ALLOW(rt_sigpending, 0), ALLOW(rt_sigtimedwait, 0), ALLOW(rt_sigqueueinfo, 0),
	ALLOW(rt_tgsigqueueinfo, 0), ALLOW(rt_sigsuspend, 0), ALLOW(sigaltstack, 0), ALLOW(signalfd, 0),
	ALLOW(signalfd4, 0), ALLOW(pread64, 0), ALLOW(pwrite64, 0), ALLOW(readv, 0), ALLOW(writev, 0),
	ALLOW(preadv, 0), ALLOW(pwritev, 0), ALLOW(preadv2, 0), ALLOW(pwritev2, 0), ALLOW(access, 0),
	ALLOW(faccessat, 0), ALLOW(faccessat2, 0), ALLOW(pipe, 0), ALLOW(pipe2, 0), ALLOW(select, 0),
	ALLOW(pselect6, 0), ALLOW(sched_yield, 0), ALLOW(shmget, 0), ALLOW(shmat, 0), ALLOW(shmctl, 0),
	ALLOW(shmdt, 0), ALLOW(semget, 0), ALLOW(semop, 0), ALLOW(semctl, 0), ALLOW(semtimedop, 0),
	ALLOW(msgget, 0), ALLOW(msgsnd, 0), ALLOW(msgrcv, 0), ALLOW(msgctl, 0), ALLOW(mq_open, 0),
	ALLOW(mq_unlink, 0), ALLOW(mq_timedsend, 0), ALLOW(mq_timedreceive, 0), ALLOW(mq_notify, 0),
	ALLOW(mq_getsetattr, 0), ALLOW(dup, 0), ALLOW(dup2, 0), ALLOW(dup3, 0), ALLOW(pause, 0),
	ALLOW(nanosleep, 0), ALLOW(clock_nanosleep, 0), ALLOW(getitimer, 0), ALLOW(setitimer, 0),
	ALLOW(alarm, 0), ALLOW(getpid, 0), ALLOW(gettid, 0), ALLOW(sendfile, 0), ALLOW(connect, 0),
	ALLOW(accept, 0), ALLOW(accept4, 0), ALLOW(sendto, 0), ALLOW(recvfrom, 0), ALLOW(sendmsg, 0),
	ALLOW(recvmsg, 0), ALLOW(sendmmsg, 0), ALLOW(recvmmsg, 0), ALLOW(shutdown, 0), ALLOW(bind, 0),
	ALLOW(listen, 0), ALLOW(getsockname, 0), ALLOW(getpeername, 0), ALLOW(setsockopt, 0),
	ALLOW(getsockopt, 0), ALLOW(fork, 0), ALLOW(vfork, 0), ALLOW(execve, 0), ALLOW(execveat, 0),
	ALLOW(exit, 0), ALLOW(exit_group, 0), ALLOW(wait4, 0), ALLOW(waitid, 0), ALLOW(kill, 0),
	ALLOW(tkill, 0), ALLOW(tgkill, 0), ALLOW(pidfd_open, 0), ALLOW(pidfd_send_signal, 0),
	ALLOW(uname, 0), ALLOW(fcntl, 0), ALLOW(flock, 0), ALLOW(fsync, 0), ALLOW(fdatasync, 0),
	ALLOW(sync, 0), ALLOW(syncfs, 0), ALLOW(sync_file_range, 0), ALLOW(truncate, 0),
	ALLOW(ftruncate, 0), ALLOW(fallocate, 0), ALLOW(getdents, 0), ALLOW(getdents64, 0),
	ALLOW(getcwd, 0), ALLOW(chdir, 0), ALLOW(fchdir, 0), ALLOW(rename, 0), ALLOW(renameat, 0),
	ALLOW(renameat2, 0), ALLOW(mkdir, 0), ALLOW(mkdirat, 0), ALLOW(rmdir, 0), ALLOW(link, 0),
	ALLOW(linkat, 0), ALLOW(unlink, 0), ALLOW(unlinkat, 0), ALLOW(symlink, 0), ALLOW(symlinkat, 0),
	ALLOW(readlink, 0), ALLOW(readlinkat, 0), ALLOW(chmod, 0), ALLOW(fchmod, 0), ALLOW(fchmodat, 0),
	ALLOW(fchmodat2, 452), ALLOW(chown, 0), ALLOW(fchown, 0), ALLOW(lchown, 0), ALLOW(fchownat, 0),
	ALLOW(umask, 0), ALLOW(mknod, 0), ALLOW(mknodat, 0), ALLOW(utime, 0), ALLOW(utimes, 0),
	ALLOW(utimensat, 0), ALLOW(futimesat, 0), ALLOW(statfs, 0), ALLOW(fstatfs, 0), ALLOW(ustat, 0),
	ALLOW(sysfs, 0), ALLOW(setxattr, 0),
	ALLOW(lsetxattr, 0), ALLOW(fsetxattr, 0), ALLOW(getxattr, 0), ALLOW(lgetxattr, 0),
	ALLOW(fgetxattr, 0), ALLOW(listxattr, 0), ALLOW(llistxattr, 0), ALLOW(flistxattr, 0),
	ALLOW(removexattr, 0), ALLOW(lremovexattr, 0), ALLOW(fremovexattr, 0), ALLOW(setxattrat, 463),
	ALLOW(getxattrat, 464), ALLOW(listxattrat, 465), ALLOW(removexattrat, 466), ALLOW(gettimeofday, 0),
	ALLOW(time, 0), ALLOW(times, 0), ALLOW(clock_gettime, 0), ALLOW(clock_getres, 0),
	ALLOW(getrlimit, 0), ALLOW(setrlimit, 0), ALLOW(getrusage, 0), ALLOW(sysinfo, 0), ALLOW(getcpu, 0),
	ALLOW(getuid, 0), ALLOW(geteuid, 0), ALLOW(getgid, 0), ALLOW(getegid, 0), ALLOW(getresuid, 0),
	ALLOW(getresgid, 0), ALLOW(getgroups, 0), ALLOW(setuid, 0), ALLOW(setgid, 0), ALLOW(setreuid, 0),
	ALLOW(setregid, 0), ALLOW(setresuid, 0), ALLOW(setresgid, 0), ALLOW(setfsuid, 0),
	ALLOW(setfsgid, 0), ALLOW(setgroups, 0), ALLOW(setpgid, 0), ALLOW(getpgid, 0), ALLOW(getpgrp, 0),
	ALLOW(getppid, 0), ALLOW(setsid, 0), ALLOW(getsid, 0), ALLOW(capget, 0), ALLOW(capset, 0),
	ALLOW(getpriority, 0), ALLOW(sched_getparam, 0), ALLOW(sched_getscheduler, 0),
	ALLOW(sched_getattr, 0), ALLOW(sched_getaffinity, 0), ALLOW(sched_get_priority_max, 0),
	ALLOW(sched_get_priority_min, 0), ALLOW(sched_rr_get_interval, 0), ALLOW(ioprio_get, 0),
	ALLOW(prctl, 0), ALLOW(arch_prctl, 0), ALLOW(readahead, 0), ALLOW(fadvise64, 0), ALLOW(futex, 0),
	ALLOW(futex_waitv, 0), ALLOW(futex_wake, 454), ALLOW(futex_wait, 455), ALLOW(futex_requeue, 456),
	ALLOW(set_robust_list, 0), ALLOW(get_robust_list, 0), ALLOW(set_tid_address, 0), ALLOW(rseq, 0),
	ALLOW(restart_syscall, 0), ALLOW(epoll_create, 0), ALLOW(epoll_create1, 0), ALLOW(epoll_ctl, 0),
	ALLOW(epoll_wait, 0), ALLOW(epoll_pwait, 0), ALLOW(epoll_pwait2, 0), ALLOW(eventfd, 0),
	ALLOW(eventfd2, 0), ALLOW(timerfd_create, 0), ALLOW(timerfd_settime, 0), ALLOW(timerfd_gettime, 0),
	ALLOW(timer_create, 0), ALLOW(timer_settime, 0), ALLOW(timer_gettime, 0),
	ALLOW(timer_getoverrun, 0), ALLOW(timer_delete, 0), ALLOW(inotify_init, 0),
	ALLOW(inotify_init1, 0), ALLOW(inotify_add_watch, 0), ALLOW(inotify_rm_watch, 0), ALLOW(splice, 0),
	ALLOW(tee, 0), ALLOW(vmsplice, 0), ALLOW(copy_file_range, 0), ALLOW(getrandom, 0),
	ALLOW(memfd_create, 0), ALLOW(seccomp, 0), ALLOW(landlock_create_ruleset, 0),
	ALLOW(landlock_add_rule, 0), ALLOW(landlock_restrict_self, 0), ALLOW(mseal, 462),
	ALLOW(map_shadow_stack, 453), ALLOW(cachestat, 451), ALLOW(io_setup, 0), ALLOW(io_destroy, 0),
	ALLOW(io_getevents, 0), ALLOW(io_submit, 0), ALLOW(io_cancel, 0), ALLOW(io_pgetevents, 0),

	/* Needed, but not with every argument. Pids of other processes are refused: in a plain user's box the
	 * guest has the uid of the commands, and prlimit(1, RLIMIT_CPU, 0) would kill it. */
	{ "clone", ACTION_CLONE, false, 0 },
	{ "ioctl", ACTION_IOCTL, false, 0 },
	{ "prlimit64", ACTION_SELF, true, 0 },
	{ "sched_setparam", ACTION_SELF, true, 0 },
	{ "sched_setscheduler", ACTION_SELF, true, 0 },
	{ "sched_setattr", ACTION_SELF, true, 0 },
	{ "sched_setaffinity", ACTION_SELF, true, 0 },
	{ "setpriority", ACTION_PRIORITY, true, 0 },
	{ "ioprio_set", ACTION_IOPRIO, true, 0 },
	{ "socket", ACTION_SOCKET, false, 0 },
	{ "socketpair", ACTION_SOCKETPAIR, false, 0 },
	{ "personality", ACTION_PERSONALITY, true, 0 },

	/* Mounts and roots. */
	DENY(mount, 0), DENY(umount2, 0), DENY(pivot_root, 0), DENY(chroot, 0), DENY(open_tree, 0),
	DENY(move_mount, 0), DENY(fsopen, 0), DENY(fsconfig, 0), DENY(fsmount, 0), DENY(fspick, 0),
	DENY(mount_setattr, 0),
	/* Namespaces. */
	DENY(unshare, 0), DENY(setns, 0),
	/* Other processes: a debugger may be wanted. */
	DENY_UNLESS_ALLOWED(ptrace, 0), DENY_UNLESS_ALLOWED(process_vm_readv, 0),
	DENY_UNLESS_ALLOWED(process_vm_writev, 0), DENY_UNLESS_ALLOWED(kcmp, 0),
	DENY_UNLESS_ALLOWED(pidfd_getfd, 0), DENY_UNLESS_ALLOWED(process_madvise, 0),
	DENY_UNLESS_ALLOWED(move_pages, 0),
	DENY_UNLESS_ALLOWED(migrate_pages, 0),
	/* Keyrings, which no namespace separates. */
	DENY(add_key, 0), DENY(request_key, 0), DENY(keyctl, 0),
	/* Kernel programs and tracing. */
	DENY(bpf, 0),
	DENY_UNLESS_ALLOWED(perf_event_open, 0), DENY_UNLESS_ALLOWED(userfaultfd, 0),
	/* Handles, which ignore path and root. */
	DENY(open_by_handle_at, 0),
	DENY_UNLESS_ALLOWED(name_to_handle_at, 0),
	DENY(fanotify_init, 0), DENY(fanotify_mark, 0), DENY(lookup_dcookie, 0),
	/* The machine. */
	DENY(kexec_load, 0), DENY(kexec_file_load, 0), DENY(init_module, 0), DENY(finit_module, 0),
	DENY(delete_module, 0), DENY(create_module, 0), DENY(swapon, 0), DENY(swapoff, 0), DENY(reboot, 0),
	DENY(acct, 0), DENY(quotactl, 0), DENY(quotactl_fd, 443), DENY(nfsservctl, 0), DENY(syslog, 0),
	DENY(vhangup, 0), DENY(sethostname, 0), DENY(setdomainname, 0), DENY(uselib, 0),
	/* Clocks. */
	DENY(settimeofday, 0), DENY(clock_settime, 0), DENY(clock_adjtime, 0), DENY(adjtimex, 0),
	/* Hardware. */
	DENY(iopl, 0), DENY(ioperm, 0),
	DENY_UNLESS_ALLOWED(modify_ldt, 0),

	/* Numbers that no kernel implements: the kernel itself answers ENOSYS. Here so that the ranges of the
	 * program are few. */
	ALLOW(set_thread_area, 0), ALLOW(get_thread_area, 0), ALLOW(epoll_ctl_old, 0),
	ALLOW(epoll_wait_old, 0),
	DENY(_sysctl, 0), DENY(get_kernel_syms, 0), DENY(query_module, 0), DENY(getpmsg, 0), DENY(putpmsg, 0),
	DENY(afs_syscall, 0), DENY(tuxcall, 0), DENY(security, 0),

	/* Answered ENOSYS, since programs have a fall-back for that and not for EPERM. */
	MISSING_UNLESS_ALLOWED(io_uring_setup, 0), MISSING_UNLESS_ALLOWED(io_uring_enter, 0),
	MISSING_UNLESS_ALLOWED(io_uring_register, 0), MISSING_UNLESS_ALLOWED(mbind, 0),
	MISSING_UNLESS_ALLOWED(get_mempolicy, 0), MISSING_UNLESS_ALLOWED(set_mempolicy, 0),
	MISSING_UNLESS_ALLOWED(set_mempolicy_home_node, 450), MISSING_UNLESS_ALLOWED(memfd_secret, 447),
};
const size_t n_filter_table = ELEMENTSOF(filter_table);

/* TIOCSTI types into the terminal of whoever shares it, TIOCLINUX pastes on a console, TIOCCONS takes the
 * console's output, TIOCSETD loads line disciplines. */
const uint32_t filter_ioctls_denied[] = { 0x5412, 0x541c, 0x541d, 0x5423 };
const size_t n_filter_ioctls_denied = ELEMENTSOF(filter_ioctls_denied);

/* Default, TCP, UDP, ICMP (unprivileged echo sockets), ICMPv6, multipath TCP. Others would load modules. */
const uint32_t filter_inet_protocols[] = { 0, 6, 17, 1, 58, 262 };
const size_t n_filter_inet_protocols = ELEMENTSOF(filter_inet_protocols);

/* PER_LINUX, PER_LINUX32 (what uname says), and the question for the present one. Not ADDR_NO_RANDOMIZE, not
 * READ_IMPLIES_EXEC. */
const uint32_t filter_personalities[] = { 0, 8, 0xffffffff };
const size_t n_filter_personalities = ELEMENTSOF(filter_personalities);

int filter_number_of(const struct filter_entry *entry)
{
	if (entry->number > 0)
		return entry->number;
	return seccomp_syscall_resolve_name_arch(SCMP_ARCH_NATIVE, entry->name);
}

const struct filter_entry *filter_find(const char *name)
{
	for (size_t i = 0; i < n_filter_table; i++)
		if (strcmp(filter_table[i].name, name) == 0)
			return &filter_table[i];
	return NULL;
}
