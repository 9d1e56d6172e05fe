/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * GUEST_SETUP: what a guest needs to know that is no fork of the keeper. It is the first message, and nothing of the box
 * runs before GUEST_READY has answered it. Helper code.
 */
#ifndef GUEST_SETUP_H
#define GUEST_SETUP_H

#include "base/pack.h"
#include "kernel/seccomp.h"

#define SETUP_VERSION 2
#define SETUP_ENTROPY_BYTES 32

/*
 * A machine with a second port may become a template, or have been made of one: before the setup its guest sends HERE, and
 * so it is stopped, if it is to be kept; GO makes it answer GOING, and the time of the setup is that of then. So nothing of
 * a box is in a template, and a machine that goes on is known to do so before it is told anything.
 */
#define SETUP_HERE 'h'
#define SETUP_GO 'g'
#define SETUP_GOING 'G'
#define SETUP_MOUNTS 64
#define SETUP_PORTS 64	/* CELL_PORTS_MAX */

/* As mount(2) takes it; made in order, the target as a folder where it is missing. Three types are the guest's own, two of
 * which make nothing of a target that is not there: */
#define SETUP_FILES "files"		/* the files that come over the second port (guest/files.h) */
#define SETUP_MASK "mask"		/* an empty read-only file or folder over it */
#define SETUP_READONLY "read-only"	/* it can be read and no more */
struct setup_mount {
	const char *source, *target, *type, *options;
	uint64_t flags;		/* MS_* */
};

struct guest_setup {
	const char *hostname;	/* "": leave it as it is */
	uint64_t wall_usec;	/* the time of day; 0: leave the clock alone */
	const void *entropy;	/* SETUP_ENTROPY_BYTES for the kernel's pool, or none */
	size_t entropy_len;
	const void *filter;	/* array of struct filter_insn, unaligned */
	size_t filter_len;
	uint64_t memory_bytes, pids;	/* what the box may have at most, kept by the guest's own kernel; 0: all there is */
	uint8_t own_kernel;	/* the guest is PID 1 of a kernel of its own: namespaces, mounts and clocks are its to set */
	uint8_t loopback;	/* bring lo up */
	uint8_t link, link_v6;	/* there is a link to the cell of the box, which is at the other side of the wall */
	uint32_t ports[SETUP_PORTS];	/* that are led there */
	size_t n_ports;
	uint32_t uid, gid;	/* to whom the pipes of commands belong, so that they can open /dev/stdin and its like anew */
	struct setup_mount mounts[SETUP_MOUNTS];
	size_t n_mounts;
	const char *root;	/* becomes the root of everything after the mounts (moved, not only chrooted); "": no */
};

void setup_pack(struct pack_writer *writer, const struct guest_setup *setup);	/* with the head of the message */
int setup_unpack(const void *packet, size_t len, struct guest_setup *ret);	/* 0, ABOX_E_PROTOCOL */

#endif
