/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * For releases of gVisor that answer EINVAL to AT_NO_AUTOMOUNT: the calls of the C library that pass the flag on, without
 * it. There is nothing that could be mounted automatically behind that wall, so nothing is lost. Preloaded into programs
 * of the box; links no library, since any C library's programs may meet it.
 */
#include <asm/unistd.h>

#define NO_AUTOMOUNT 0x800

#define EXPORT __attribute__((visibility("default")))

extern int *__errno_location(void);

static long call5(long number, long a, long b, long c, long d, long e)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	long r;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return r;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;

	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
	return x0;
#endif
}

static int answer(long r)
{
	if (r >= 0)
		return (int)r;
	*__errno_location() = (int)-r;
	return -1;
}

EXPORT int statx(int dir_fd, const char *path, int flags, unsigned int mask, void *ret);
EXPORT int fstatat(int dir_fd, const char *path, void *ret, int flags);
EXPORT int fstatat64(int dir_fd, const char *path, void *ret, int flags);

int statx(int dir_fd, const char *path, int flags, unsigned int mask, void *ret)
{
	return answer(call5(__NR_statx, dir_fd, (long)path, flags & ~NO_AUTOMOUNT, mask, (long)ret));
}

/* struct stat of 64-bit machines is the kernel's */
int fstatat(int dir_fd, const char *path, void *ret, int flags)
{
#ifdef __NR_newfstatat
	return answer(call5(__NR_newfstatat, dir_fd, (long)path, (long)ret, flags & ~NO_AUTOMOUNT, 0));
#else
	return answer(call5(__NR_fstatat, dir_fd, (long)path, (long)ret, flags & ~NO_AUTOMOUNT, 0));
#endif
}

int fstatat64(int dir_fd, const char *path, void *ret, int flags)
{
	return fstatat(dir_fd, path, ret, flags);
}
