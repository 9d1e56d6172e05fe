/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is said to the minter of a box's credentials, over SOCK_SEQPACKET sockets, one packet a message with
 * the head {u32 type, u32 serial}: by the library once (descriptor 3), by egress as long as the box lives
 * (descriptor 4), and by a harness that answers for providers of kind `callback`, over a socket that its library
 * makes and hands on through keeper and egress. The minter ends with egress.
 *
 * Values go from the minter to egress and between minter and harness, nowhere else: neither keeper, nor journal,
 * nor box is on the way.
 */
#ifndef CREDENTIAL_WIRE_H
#define CREDENTIAL_WIRE_H

#define MINTER_VERSION 2
#define MINTER_PACKET_MAX 65536

enum minter_type {
	/* library to minter: u32 version; fd: sealed memory file {slots (slot.h), strings environment of the
	 * harness}. OK or FAULT */
	MINTER_OPEN = 1,

	/* egress to minter */
	MINTER_ASK = 2, /* serial; str name of the credential. SECRET or REFUSED */
	MINTER_SIGN = 3, /* serial; str name, then the request: str method, bytes value of Host, u32 port, u8 TLS,
			  * bytes path, bytes query, u32 n * {bytes name, bytes value}, u64 length of the body, bytes
			  * SHA-256 of it. SIGNED or REFUSED */
	MINTER_SERVE = 4, /* serial; u8 it can revoke; fd: socket to a harness, instead of the one before. DONE or REFUSED */
	MINTER_REVOKE = 5, /* serial; str name, "" for all, u8 for good, u32 why (enum abox_credential_drop). DONE or
			    * REFUSED */

	/* minter to egress */
	MINTER_SECRET = 10, /* bytes value */
	MINTER_REFUSED = 11, /* str why; names no value */
	MINTER_SIGNED = 12, /* u32 n * {bytes name, bytes value}: fields of the request */
	MINTER_DROPPED = 13, /* serial 0; str name, u32 why, str what went wrong ("": it was revoked) */
	MINTER_DONE = 14, /* strings names that were revoked, strings names that could not be */

	/* minter to harness; u64 microseconds to answer in, then the slot: str name, str subject, str resource, str
	 * audience, strings scopes, u64 ttl_usec */
	PROVIDER_MINT = 20, /* VALUE or REFUSED */
	PROVIDER_SIGN = 21, /* then the request, as in MINTER_SIGN. FIELDS or REFUSED */
	PROVIDER_REVOKE = 22, /* then u32 why, bytes value. REVOKED or REFUSED */

	/* harness to minter */
	PROVIDER_VALUE = 25, /* u64 microseconds that it holds (0: the slot's ttl), bytes value */
	PROVIDER_FIELDS = 26, /* as SIGNED */
	PROVIDER_REVOKED = 27,
	PROVIDER_REFUSED = 28, /* str why */

	/* minter to library */
	MINTER_OK = 30,
	MINTER_FAULT = 31, /* fields of fault_pack() */
};

#endif
