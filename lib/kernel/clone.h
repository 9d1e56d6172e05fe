/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * clone3(2) with a stack of its own for the child, which sys_clone3() cannot do: a C function that returned twice on
 * one stack would not survive it. Helper code.
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

#endif
