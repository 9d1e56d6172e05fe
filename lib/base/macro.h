/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Small tools that every file uses: cleanup attributes, hand-over, array length, checked arithmetic.
 * Nothing here allocates or calls the system.
 */
#ifndef BASE_MACRO_H
#define BASE_MACRO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define _cleanup_(fn) __attribute__((cleanup(fn)))
#define _printf_(fmt, args) __attribute__((format(printf, fmt, args)))
#define _unused_ __attribute__((unused))
#define _noreturn_ __attribute__((noreturn))

#define ELEMENTSOF(array) (sizeof(array) / sizeof((array)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

#define USEC_PER_SEC 1000000ULL
#define USEC_PER_MSEC 1000ULL
#define NSEC_PER_USEC 1000ULL

/* Hands a pointer or descriptor over: the local owner lets go of it. */
#define steal_ptr(ptr)                                                                                       \
	({                                                                                                   \
		__typeof__(ptr) _stolen = (ptr);                                                             \
		(ptr) = NULL;                                                                                \
		_stolen;                                                                                     \
	})
#define steal_fd(fd)                                                                                         \
	({                                                                                                   \
		int _stolen = (fd);                                                                          \
		(fd) = -EBADF;                                                                               \
		_stolen;                                                                                     \
	})

/* Sizes from outside: false on overflow, *ret untouched then. */
static inline bool size_add(size_t a, size_t b, size_t *ret)
{
	size_t sum;

	if (__builtin_add_overflow(a, b, &sum))
		return false;
	*ret = sum;
	return true;
}

static inline bool size_mul(size_t a, size_t b, size_t *ret)
{
	size_t product;

	if (__builtin_mul_overflow(a, b, &product))
		return false;
	*ret = product;
	return true;
}

void freep(void *pointer);	/* for _cleanup_ on what malloc gave */

#endif
