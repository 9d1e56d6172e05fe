/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The one piece of assembly: between the system call and the child's function there may be no C code, since parent and
 * child would share its frame.
 */
#include "kernel/clone.h"

#if defined(__x86_64__)
static long clone_asm(long number, unsigned long first, unsigned long second, int (*fn)(void *argument), void *argument)
{
	register int (*r_fn)(void *) __asm__("r8") = fn;
	register void *r_argument __asm__("r9") = argument;
	long r = number;

	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "and $-16, %%rsp\n\t"
			 "mov %%r9, %%rdi\n\t"
			 "call *%%r8\n\t"
			 "mov %%eax, %%edi\n\t"
			 "mov $231, %%eax\n\t"	/* exit_group */
			 "syscall\n\t"
			 "hlt\n"
			 "1:"
			 : "+a"(r)
			 : "D"(first), "S"(second), "r"(r_fn), "r"(r_argument)
			 : "rcx", "r11", "memory", "cc");
	return r;
}
#elif defined(__aarch64__)
static long clone_asm(long number, unsigned long first, unsigned long second, int (*fn)(void *argument), void *argument)
{
	register long r_first __asm__("x0") = (long)first;
	register long r_second __asm__("x1") = (long)second;
	register long r_number __asm__("x8") = number;
	register int (*r_fn)(void *) __asm__("x10") = fn;
	register void *r_argument __asm__("x11") = argument;

	__asm__ volatile("svc #0\n\t"
			 "cbnz x0, 1f\n\t"
			 "mov x29, xzr\n\t"
			 "mov x0, x11\n\t"
			 "blr x10\n\t"
			 "mov x8, #94\n\t"	/* exit_group */
			 "svc #0\n\t"
			 "brk #0\n"
			 "1:"
			 : "+r"(r_first)
			 : "r"(r_second), "r"(r_number), "r"(r_fn), "r"(r_argument)
			 : "memory", "cc");
	return r_first;
}
#endif

long clone3_run(struct sys_clone_args *args, void *stack, size_t stack_size, int (*fn)(void *argument), void *argument)
{
	args->stack = (uint64_t)(uintptr_t)stack;
	args->stack_size = stack_size & ~(size_t)15;
	return clone_asm(NR_clone3, (unsigned long)(uintptr_t)args, sizeof(*args), fn, argument);
}

long clone_run(unsigned long flags, void *stack, size_t stack_size, int (*fn)(void *argument), void *argument)
{
	return clone_asm(SYS_clone, flags, (unsigned long)(uintptr_t)stack + (stack_size & ~(size_t)15), fn, argument);
}
