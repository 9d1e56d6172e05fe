/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The parts of the microVM wall: the machine (microvm.c), its files over a port (files.c), and machines that go on from a
 * template (template.c).
 */
#ifndef BACKEND_MICROVM_H
#define BACKEND_MICROVM_H

#include "backend/bridge.h"

#define MICROVM_WORDS 160

/* Sockets and files in the outer root; so they stand on the command lines of the plan. */
#define MICROVM_FILES "/files"		/* the machine comes for its files */
#define MICROVM_SERVER "/server"	/* the server of files, where they come over a port */
#define MICROVM_CONTROL "/control"	/* QEMU's monitor, until the machine runs */
#define MICROVM_STATE "/state"		/* the state of a machine that becomes a template */
#define MICROVM_MEMORY_FD 3		/* the machine's memory, in QEMU */

/* Listening sockets have no rights to be asked for: nobody else is in the outer root. A descriptor, or a code with *fault. */
int microvm_listen(const char *path, struct fault *fault);
int microvm_accept(int listen_fd, uint64_t deadline_usec, const char *name, struct fault *fault);

/* files.c: a child that carries requests between the machine, which comes to listen_fd (taken), and the server at
 * MICROVM_SERVER. It has no rights and the filter of commands. 0, or a code with *fault. */
int microvm_files_start(const struct flat_plan *plan, int listen_fd_taken, int log_fd, struct fault *fault);

/* template.c */
struct microvm_template {
	const char *const *machine;	/* QEMU's words */
	const char *const *control;	/* and those for a monitor at MICROVM_CONTROL */
	const char *const *go_on;	/* and those that make it wait for a state */
	uint64_t memory_bytes;
	struct bridge *bridge;
};

/*
 * Starts the machine, and returns when its guest waits for the setup: from the template where a sound one is there, else
 * from its kernel; then, where the keeper wants one, a template of it is sent. Fills bridge->pid. A machine that could not
 * go on is told in the log and started from its kernel. What keeps that from coming up is left for the bridge to tell.
 */
int microvm_template_start(const struct flat_plan *plan, struct microvm_template *template, struct bridge_pipes *pipes_taken,
	struct fault *fault);

#endif
