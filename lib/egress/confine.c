/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What egress may still do after its set-up: talk over sockets that it has or makes, and use memory. No file
 * can be opened, no program run, no process looked at.
 */
#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "egress/egress.h"
#include "egress/wire.h"
#include "kernel/caps.h"
#include "kernel/seccomp.h"

#if defined(__x86_64__)
#define OWN_ARCH AUDIT_ARCH_X86_64
#else
#define OWN_ARCH AUDIT_ARCH_AARCH64
#endif

#define OPEN_FILES 4096

/* In the order of their frequency. */
static const int allowed[] = {
	SYS_recvfrom,
	SYS_sendto,
	SYS_epoll_pwait,
#ifdef SYS_epoll_wait
	SYS_epoll_wait,
#endif
	SYS_epoll_ctl,
	SYS_accept4,
	SYS_getsockname,
	SYS_setsockopt,
	SYS_getsockopt,
	SYS_connect,
	SYS_shutdown,
	SYS_close,
	SYS_recvmsg,
	SYS_sendmsg,
	SYS_read,
	SYS_write,
	SYS_pread64,
	SYS_memfd_create, /* bodies and answers of effects, for who writes them down */
	SYS_pwrite64,
	SYS_fchmod,
	SYS_lseek,
	SYS_clock_gettime,
	SYS_getrandom,
	SYS_futex,
	SYS_brk,
	SYS_mmap,
	SYS_munmap,
	SYS_mremap,
	SYS_madvise,
	SYS_fcntl,
	SYS_ppoll,
#ifdef SYS_poll
	SYS_poll,
#endif
	SYS_getpid,
	SYS_gettid,
	SYS_rt_sigreturn,
	SYS_rt_sigprocmask,
	SYS_restart_syscall,
	SYS_exit,
	SYS_exit_group,
};

#define STATEMENT(code_, k_) ((struct filter_insn){ .code = (code_), .k = (k_) })
#define JUMP(code_, k_, jt_, jf_)                                                                            \
	((struct filter_insn){ .code = (code_), .jt = (jt_), .jf = (jf_), .k = (k_) })

static int load(struct fault *fault)
{
	struct filter_insn program[ELEMENTSOF(allowed) * 2 + 32];
	size_t n = 0;

	program[n++] = STATEMENT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
	program[n++] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN_ARCH, 1, 0);
	program[n++] = STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	program[n++] = STATEMENT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < ELEMENTSOF(allowed); i++) {
		program[n++] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)allowed[i], 0, 1);
		program[n++] = STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	}
	/* Sockets: streams of the internet, and nothing else. */
	program[n++] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 6);
	program[n++] = STATEMENT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0]));
	program[n++] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 1, 0);
	program[n++] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 3);
	program[n++] = STATEMENT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1]));
	program[n++] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 1);
	program[n++] = STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	/* Refused and not killed: what a C library tries must not end the box's network; nothing is gained by
	 * trying. */
	program[n++] = STATEMENT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	return filter_load(program, n, fault);
}

int egress_become(uint32_t uid, uint32_t gid, struct fault *fault)
{
	int r;

	prctl(PR_SET_DUMPABLE, 0);
	if (geteuid() == 0 && uid != UINT32_MAX) {
		if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0)
			return fault_set(
				fault, ABOX_E_SYSTEM, errno, "setgid", "cannot become the user of the box");
		r = caps_drop_bounding(fault);
		if (r < 0)
			return r;
		if (setresuid(uid, uid, uid) < 0)
			return fault_set(
				fault, ABOX_E_SYSTEM, errno, "setuid", "cannot become the user of the box");
	}
	/* A plain user's egress has no capability; there is no bounding set that it could empty, and
	 * no_new_privs keeps it so. */
	if (geteuid() == 0) {
		r = caps_drop_all(fault);
		if (r < 0)
			return r;
	}
	prctl(PR_SET_DUMPABLE, 0); /* a change of user has set it again */
	return caps_no_new_privs(fault);
}

int egress_confine(struct fault *fault)
{
	struct rlimit none = { 0, 0 }, files;
	/* No file can be opened; this is for memory files. */
	struct rlimit size = { EFFECT_SPOOL_BYTES, EFFECT_SPOOL_BYTES };

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "rlimit", "cannot read a limit");
	files.rlim_cur = MIN(files.rlim_max, (rlim_t)OPEN_FILES);
	files.rlim_max = files.rlim_cur;
	if (setrlimit(RLIMIT_NOFILE, &files) < 0 || setrlimit(RLIMIT_CORE, &none) < 0 ||
		setrlimit(RLIMIT_FSIZE, &size) < 0 || setrlimit(RLIMIT_NPROC, &none) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "rlimit", "cannot set a limit");
	return load(fault);
}
