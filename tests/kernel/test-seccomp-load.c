/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "kernel/caps.h"
#include "kernel/compat.h"
#include "kernel/seccomp.h"
#include "support/child.h"

static const int ways[] = { 0, CHILD_PLAIN };

static int load(struct child *child, const char *const *allow)
{
	struct filter_policy policy = { .allow = allow };
	struct fault fault = { 0 };
	struct filter_insn *program;
	size_t n;

	CHECK(filter_compile(&policy, &program, &n, NULL) == 0);
	CHECK_FAULT(caps_no_new_privs(&fault), &fault);
	CHECK_FAULT(filter_load(program, n, &fault), &fault);
	free(program);
	return 0;
}

static bool answers(int expected, long r)
{
	return r == -1 && errno == expected;
}

static int check_denials(struct child *child)
{
	int tty = open("/dev/null", O_RDWR | O_CLOEXEC);

	/* Positive controls: without the filter these are not refused with the errno below. */
	CHECK(!answers(ENOSYS, syscall(NR_clone3, NULL, 0)));
	CHECK(!answers(EPERM, syscall(SYS_prlimit64, getpid(), RLIMIT_CPU, NULL, NULL)));
	CHECK(!answers(EPERM, ioctl(tty, TIOCSTI, "x")));
	CHECK(!answers(EAFNOSUPPORT, syscall(SYS_socketpair, AF_INET, SOCK_STREAM, 0, NULL)));
	if (load(child, NULL) != 0)
		return 1;
	CHECK(answers(EPERM, unshare(CLONE_NEWUSER)));
	for (int bit = 0; bit < 32; bit++)
		if (0x7e020000U & (1U << bit))
			CHECK(answers(EPERM, syscall(SYS_clone, (1UL << bit) | SIGCHLD, 0, 0, 0, 0)));
	CHECK(answers(EPERM, syscall(SYS_setns, 0, 0)));
	CHECK(answers(ENOSYS, syscall(NR_clone3, NULL, 0)));
	CHECK(answers(ENOSYS, syscall(600, 0)));
	CHECK(answers(ENOSYS, syscall(-1, 0)));
	CHECK(answers(ENOSYS, syscall(425, 0, NULL)));	/* io_uring_setup */
	CHECK(answers(EPERM, syscall(SYS_keyctl, 0, -3, 0)));
	CHECK(answers(EPERM, syscall(SYS_add_key, "user", "x", "y", 1, -3)));
	CHECK(answers(EPERM, syscall(SYS_ptrace, 0, 0, 0, 0)));
	CHECK(answers(EPERM, syscall(SYS_process_vm_readv, getpid(), NULL, 0, NULL, 0, 0)));
	CHECK(answers(EPERM, syscall(SYS_prlimit64, getpid(), RLIMIT_CPU, NULL, NULL)));
	CHECK(syscall(SYS_prlimit64, 0, RLIMIT_CPU, NULL, NULL) == 0);
	CHECK(answers(EPERM, setpriority(PRIO_USER, 0, 5)));
	CHECK(setpriority(PRIO_PROCESS, 0, 5) == 0);
	CHECK(answers(EPERM, syscall(SYS_mount, NULL, "/", NULL, 0, NULL)));
	for (int number = NR_open_tree; number <= NR_fspick; number++)
		CHECK(answers(EPERM, syscall(number, -1, NULL, 0, 0, 0)));
	CHECK(answers(EPERM, syscall(NR_mount_setattr, -1, NULL, 0, NULL, 0)));
	CHECK(answers(EPERM, ioctl(tty, TIOCSTI, "x")));
	CHECK(answers(EPERM, (long)syscall(SYS_ioctl, tty, 0x100000000UL | TIOCSTI, "x")));
	for (int family = 0; family < 47; family++) {
		if (family == AF_UNIX || family == AF_INET || family == AF_NETLINK)
			CHECK(socket(family, SOCK_DGRAM, 0) >= 0);
		else if (family != AF_INET6)
			CHECK(answers(EAFNOSUPPORT, socket(family, SOCK_DGRAM, 0)));
	}
	CHECK(answers(EPERM, socket(AF_INET, SOCK_RAW, 1)));
	CHECK(answers(EPROTONOSUPPORT, socket(AF_NETLINK, SOCK_RAW, 9)));
	CHECK(answers(EPERM, syscall(SYS_personality, 0x40000)));
	CHECK(syscall(SYS_personality, 0xffffffff) == 0);
	return 0;
}

/* The running kernel answers as the table says. */
Test(seccomp_load, denies_in_the_kernel)
{
	for (size_t i = 0; i < ELEMENTSOF(ways); i++)
		cr_assert_child(check_denials, ways[i], NULL);
}

static int check_inherited(struct child *child)
{
	struct filter_insn everything = { .code = 0x06, .k = 0x7fff0000 };
	struct fault fault = { 0 };
	int status;
	pid_t pid;

	if (load(child, NULL) != 0)
		return 1;
	CHECK_FAULT(filter_load(&everything, 1, &fault), &fault);	/* another filter can be added ... */
	CHECK(answers(EPERM, unshare(CLONE_NEWUSER)));			/* ... and loosens nothing */
	CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
	pid = fork();
	if (pid == 0) {
		execl("/bin/sh", "sh", "-c",
			"unshare -U true 2>/dev/null && exit 3; grep -q '^Seccomp:.2' /proc/self/status",
			NULL);
		_exit(4);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}

/* It stays over exec and fork and cannot be loosened. */
Test(seccomp_load, is_inherited_and_cannot_be_loosened)
{
	for (size_t i = 0; i < ELEMENTSOF(ways); i++)
		cr_assert_child(check_inherited, ways[i], NULL);
}

static void *thread_main(void *argument)
{
	return argument;
}

static int check_ordinary(struct child *child)
{
	char *argv[] = { (char *)"true", NULL };
	int ends[2], status, on = 1;
	pthread_t thread;
	void *result;
	pid_t pid;

	if (load(child, NULL) != 0)
		return 1;
	CHECK(pthread_create(&thread, NULL, thread_main, &on) == 0);	/* falls back from clone3 */
	CHECK(pthread_join(thread, &result) == 0 && result == &on);
	CHECK(posix_spawnp(&pid, "true", NULL, NULL, argv, NULL) == 0);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
	CHECK(setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0);
	CHECK(send(ends[0], "x", 1, 0) == 1);
	CHECK(system("bind() { :; }; sleep 0 & wait; echo x | cat >/dev/null") == 0);
	return 0;
}

/* Threads, posix_spawn, socket pairs and job control work under it. */
Test(seccomp_load, ordinary_work_goes_on)
{
	for (size_t i = 0; i < ELEMENTSOF(ways); i++)
		cr_assert_child(check_ordinary, ways[i], NULL);
}

#if defined(__x86_64__)
/* int 0x80 with the number in eax; -4095..-1 are errnos */
static long call_i386(long number)
{
	long r;

	__asm__ volatile("int $0x80"
			 : "=a"(r)
			 : "a"(number), "b"(0L), "c"(0L), "d"(0L)
			 : "memory", "r8", "r9", "r10", "r11");
	return (int)r;
}

static int check_foreign(struct child *child)
{
	CHECK(call_i386(20) > 0 ||
		call_i386(20) == -ENOSYS); /* getpid of i386: works without the filter where it is built in */
	if (load(child, NULL) != 0)
		return 1;
	for (long number = 0; number < 470; number++)
		CHECK(call_i386(number) == -ENOSYS);
	for (long number = 0; number < 560; number++)
		CHECK(answers(ENOSYS, syscall(0x40000000 + number, 0, 0, 0, 0, 0, 0)));
	return 0;
}

/* No way around by another ABI: every i386 and x32 number answers ENOSYS. */
Test(seccomp_load, foreign_abis_have_no_calls)
{
	for (size_t i = 0; i < ELEMENTSOF(ways); i++)
		cr_assert_child(check_foreign, ways[i], NULL);
}
#endif

static int check_allowed_names(struct child *child)
{
	if (load(child, (const char *const[]){ "ptrace", "personality", NULL }) != 0)
		return 1;
	CHECK(!answers(EPERM, syscall(SYS_ptrace, 0 /* TRACEME */, 0, 0, 0)));
	CHECK(syscall(SYS_personality, 0x40000) >= 0);
	CHECK(answers(EPERM, syscall(SYS_process_vm_readv, getpid(), NULL, 0, NULL, 0, 0)));
	return 0;
}

/* What the spec allows by name is allowed, and nothing beside it. */
Test(seccomp_load, allows_by_name)
{
	cr_assert_child(check_allowed_names, CHILD_PLAIN, NULL);
}
