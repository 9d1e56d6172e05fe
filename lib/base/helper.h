/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef BASE_HELPER_H
#define BASE_HELPER_H

#include <agentbox/error.h>

/*
 * The helper programs: "keeper" (which is the guest as well), "probe". They are carried inside the library, or
 * installed under libexec (-Dhelpers=libexec).
 *
 * *retfd: a close-on-exec descriptor to execute, of mode 0111: for embedded helpers a sealed memory file, so that
 * nothing that is running can be overwritten through /proc/PID/exe.
 * Return: 0, ABOX_E_NOT_FOUND (libexec only), ABOX_E_MEMORY, ABOX_E_SYSTEM
 */
int helper_open(const char *name, int *retfd, abox_error **reterr);

/* The bytes of one that is put into a box; released with free(). */
int helper_read(const char *name, void **retdata, size_t *retlen, abox_error **reterr);

#endif
