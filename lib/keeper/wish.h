/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A command as a client wishes it: the blob of WIRE_EXEC, read.
 */
#ifndef KEEPER_WISH_H
#define KEEPER_WISH_H

#include "base/fault.h"
#include "base/macro.h"

/* 128 bits and a length: of two orders of one client that differ by accident they differ as well. */
struct fingerprint {
	uint64_t low, high, len;
};

/* Lists are allocated, texts point into the blob. What is below `uid` is filled by exec.c. */
struct wish {
	const char *token;
	const char **argv, **env;
	struct fingerprint fingerprint;
	const char *cwd, *user;
	uint32_t stdin_mode, stdout_mode, stderr_mode;
	uint8_t join_stderr, pty;
	uint32_t rows, columns;
	uint32_t survivors;
	uint8_t output_kill;
	uint64_t timeout_usec, grace_usec, output_bytes, memory_bytes, pids, cpu_usec, file_bytes;
	uint32_t open_files;

	uint32_t uid, gid;
	const void *mapped;	/* the blob's memory file */
	size_t mapped_len;
	uint32_t io;		/* WIRE_IO_* */
	int event_fd;		/* of the request: index into its descriptors, or -1 */
	size_t first_io_fd;
};

/* 0; ABOX_E_PROTOCOL for bytes that are no wish, ABOX_E_MEMORY. Nothing is judged here. */
int wish_read(struct wish *wish, const void *blob, size_t len, struct fault *fault);
void wish_clear(struct wish *wish);

#endif
