/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * clone(2) and clone3(2) with a stack of its own for the child. Whoever shares its memory with the child needs that: a C
 * function that returned twice on one stack would not survive it. Helper code.
 */
#ifndef KERNEL_CLONE_H
#define KERNEL_CLONE_H

#include "kernel/compat.h"

/*
 * Starts fn(argument) in a child made after *args, with the given stack (args->stack and stack_size are set here). What fn
 * returns is its exit code. With CLONE_VM | CLONE_VFORK the parent sleeps until the child has executed or ended, so that the
 * child may write into the parent's memory.
 * Return: pid, or -errno.
 */
long clone3_run(struct sys_clone_args *args, void *stack, size_t stack_size, int (*fn)(void *argument), void *argument);

/* The same by the older call, which a process under the filter of commands still has: clone3 is refused there, since a
 * filter cannot look at its arguments. `flags` with the exit signal in the low byte. */
long clone_run(unsigned long flags, void *stack, size_t stack_size, int (*fn)(void *argument), void *argument);

#endif
