/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is said to the minter of a box's credentials, over SOCK_SEQPACKET sockets, one packet a message with
 * the head {u32 type, u32 serial}: by the library once (descriptor 3), by egress as long as the box lives
 * (descriptor 4), and by the minter to the harness where a credential comes from a callback (descriptor 5, or
 * none).
 *
 * Values go from the minter to egress and nowhere else: neither keeper, nor journal, nor box is on the way.
 */
#ifndef CREDENTIAL_WIRE_H
#define CREDENTIAL_WIRE_H

#define MINTER_VERSION 1
#define MINTER_PACKET_MAX 65536
#define MINTER_SECRET_MAX 8192

enum minter_type {
	/* library to minter */
	MINTER_OPEN = 1, /* u32 version, str box, bytes slots (slot.h). OK or FAULT */

	/* egress to minter */
	MINTER_ASK = 2, /* serial; str name of the credential. SECRET or REFUSED */

	/* minter to egress */
	MINTER_SECRET = 10, /* bytes value */
	MINTER_REFUSED = 11, /* str why; names no value */

	/* minter to harness */
	MINTER_CALL = 20, /* serial; bytes request: JSON, the four questions. ANSWER */
	MINTER_REVOKE =
		21, /* str name, bytes value that is not to be used any more. No answer is waited for */
	/* harness to minter */
	MINTER_ANSWER =
		22, /* serial; i32 code, bytes value, u64 valid for so many microseconds (0: not told) */

	/* minter to library */
	MINTER_OK = 30,
	MINTER_FAULT = 31, /* fields of fault_pack() */
};

#endif
