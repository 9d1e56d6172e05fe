/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef PROBE_PROGRAM_PROBE_H
#define PROBE_PROGRAM_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A probe tries something and answers what came of it: 0 or more when it was allowed, or a negative errno. It runs
 * in a child of its own, so that a filter that kills is an answer too.
 */
typedef long (*probe_function)(const char **args);

/* One named group of probes: prints its lines, returns an exit code. */
struct probe_group {
	const char *name;
	const char *usage;
	int (*run)(const char **args);
};

/* One file each. */
extern const struct probe_group probe_files_groups[];
extern const struct probe_group probe_kernel_groups[];
extern const struct probe_group probe_calls_groups[];
extern const struct probe_group probe_process_groups[];
extern const struct probe_group probe_socket_groups[];
extern const struct probe_group probe_load_groups[];
extern const struct probe_group probe_protect_groups[];

/*
 * report(): runs the function in a child for at most five seconds and prints "NAME OUTCOME ERRNO": OUTCOME is allowed
 * (errno 0), denied (with the name of the errno), killed (with the name of the signal) or hung. Returns what the
 * function returned, -EINTR for killed and hung.
 */
long report(const char *name, probe_function function, const char **args);
/* The same without the line: *retsignal is the signal that killed it, 0 when none did. */
long attempt(probe_function function, const char **args, int *retsignal);
void print_line(const char *name, long result, int signal_number);
const char *errno_name(int number);	/* "EPERM"; "E123" for one that has no name here */

long raw_result(long r);		/* a libc-style -1 and errno as a negative errno */
#define RAW(call) raw_result((long)(call))

/* probe-verify.c */
int run_verify(const char **args);

#endif
