/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is said to the minter of a box's credentials, over SOCK_SEQPACKET sockets, one packet a message with
 * the head {u32 type, u32 serial}: by the library once (descriptor 3), and by egress as long as the box lives
 * (descriptor 4). The minter ends with egress.
 *
 * Values go from the minter to egress and nowhere else: neither keeper, nor journal, nor box is on the way.
 */
#ifndef CREDENTIAL_WIRE_H
#define CREDENTIAL_WIRE_H

#define MINTER_VERSION 1
#define MINTER_PACKET_MAX 65536

enum minter_type {
	/* library to minter: u32 version; fd: sealed memory file {slots (slot.h), strings environment of the
	 * harness}. OK or FAULT */
	MINTER_OPEN = 1,

	/* egress to minter */
	MINTER_ASK = 2, /* serial; str name of the credential. SECRET or REFUSED */

	/* minter to egress */
	MINTER_SECRET = 10, /* bytes value */
	MINTER_REFUSED = 11, /* str why; names no value */

	/* minter to library */
	MINTER_OK = 30,
	MINTER_FAULT = 31, /* fields of fault_pack() */
};

#endif
