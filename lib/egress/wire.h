/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is said to the egress of a box, over SOCK_SEQPACKET sockets: by the library once, before the box is
 * made (descriptor 3), and by the keeper as long as the box lives (descriptor 4). One packet is one message
 * with the head {u32 type, u32 serial}; an answer carries the serial of its request. Serial 0: unasked, or no
 * answer is wanted.
 *
 * Order: the library sends EGRESS_OPEN and gets OK. Egress makes its CA, forks its resolver, confines itself,
 * and tells the keeper EGRESS_READY, whose certificate belongs into the box's trust bundle. When the cell
 * stands, the keeper hands the listeners over with EGRESS_LISTEN and closes its own copies (a copy that is
 * kept would make connects hang when egress is dead). Egress ends when the keeper's socket ends; when egress
 * ends, every listener is closed with it.
 */
#ifndef EGRESS_WIRE_H
#define EGRESS_WIRE_H

#define EGRESS_VERSION 1
#define EGRESS_PACKET_MAX 65536
#define EGRESS_NAMES_MAX (2U << 20)
#define EGRESS_RULES_MAX (16U << 20) /* rules travel in a sealed memory file, see below */

enum egress_type {
	/*
	 * library to egress, once: u32 version, str box id,
	 *   str proxy ("" or "http://[user:password@]host:port" of the host), str no_proxy (comma-separated
	 * names), u32 max_connections, u32 max_half_open, u32 max_rate (new connections per second); 0: the
	 * default of each u32 uid, u32 gid: whom to become where egress is started by root; UINT32_MAX: stay
	 *   fds: [0] sealed memory file of the rules (network/rule.h), [1] sealed memory file of the
	 * certificates (PEM) that upstream servers are verified with, [2] socket to the minter of credentials
	 * (optional). OK: nothing; or FAULT.
	 */
	EGRESS_OPEN = 1,

	/* keeper to egress */
	EGRESS_NAMES = 2, /* fd: sealed memory file: names of an earlier life of the box in their order, one a
			   * line. Before LISTEN. OK or FAULT */
	EGRESS_LISTEN = 3, /* u32 n, n * {u32 kind (enum egress_listener), u32 port}; n fds, at most
			    * SOCKET_MAX_FDS; may be sent several times. OK when they are served */
	EGRESS_RULES = 4, /* u8 cut (connections that the new rules do not allow are ended); fd: sealed memory
			   * file of rules. OK: u32 generation. FAULT: the old ones stay in force */
	EGRESS_STATS = 5, /* OK: u32 open connections, u64 accepted, u64 denied, u64 refused by caps,
			   * u64 bytes sent, u64 bytes received (as the box sees it), u32 generation */
	EGRESS_PUBLISH = 6, /* u32 id (chosen by the keeper), u32 port in the box, str token ("" for none);
			     * fd: a listening socket of the host. OK: served from here on */
	EGRESS_UNPUBLISH = 7, /* u32 id. OK: closed, with its connections */
	EGRESS_SOCKET =
		8, /* serial of an EGRESS_WANT; fd: a TCP socket of the box, unconnected or there already, or
		    * none: refused */

	EGRESS_EFFECT_ANSWER = 9, /* serial of an EGRESS_EFFECT or EGRESS_EFFECT_DONE; u32 what (enum effect_answer), str id of
				   * the effect ("" for none), str id of the approval ("" for none), u32 number, str reason;
				   * fds: see there */

	EGRESS_SERVE = 12, /* u8 it can revoke; fd: socket to a harness, for the minter. OK when that has it */
	EGRESS_REVOKE = 13, /* str name of a credential ("" for all), u8 for good, u32 why (enum abox_credential_drop). OK:
			     * str names that were revoked, str names that could not be, as JSON arrays */

	/* egress to keeper, or (OK, FAULT) to whom has asked */
	EGRESS_OK = 20,
	EGRESS_FAULT = 21, /* fields of fault_pack() */
	EGRESS_READY = 22, /* unasked, first: bytes CA certificate as PEM, bytes the same as DER, u8 it has a
			    * minter */
	EGRESS_EVENT =
		23, /* unasked: u32 durability (enum abox_durability), str type of record ("net.allow", ...),
		     * bytes body (a JSON object). To be recorded, and kept for who follows the box */
	EGRESS_NAME = 24, /* unasked: str name, which got its addresses just now. The list of them, in order,
			   * is what a resumed box needs */
	EGRESS_WANT = 25, /* serial; u32 id: a connection came for a published port, a socket of the box's is
			     wanted */
	EGRESS_EFFECT = 26, /* serial; may this request leave? u32 class (enum abox_effect_class), u8 needs approval, u8
			     * defer, u32 limit (0: none), str place of the rule, str key (as the rule has it), bytes what
			     * the key is made of (a header's value, ref updates; else empty), str target, str method,
			     * str host, u32 port, str path, u8 has a query, str query, strings headers that the rule names
			     * ("Name: value"), str credential ("" for none), u64 length of the body, bytes head of the
			     * request (of a deferred one). fds: [the body, a memory file]. Answer: EGRESS_EFFECT_ANSWER,
			     * when it is known */
	EGRESS_EFFECT_DONE = 27, /* serial of one that was let go: u32 end (enum effect_end), u32 status (0: none), str reason.
				  * fds: [the answer; none: it is too long to be kept]. EGRESS_EFFECT_ANSWER when it is on disk */
	EGRESS_EFFECT_LEAVE = 28, /* serial: whoever asked is gone, u8 0: as long as it waited, 1: it was let go and nothing has
				   * left, 2: what became of it is not known. No answer */
};

/* How an effect is answered. What is written is written by the recorder, and is on disk before this is said. */
enum effect_answer {
	EFFECT_GO = 1, /* it may leave now; fds: [the executor lock, held as long as anything may be under way] */
	EFFECT_REPLAY, /* it was done before; number: its status; fds: [the stored answer], none: there is none */
	EFFECT_DEFERRED, /* held back until the task commits */
	EFFECT_REFUSED, /* number: the status to say so with */
	EFFECT_RECORDED, /* to DONE; number: the state that holds now (enum abox_effect_state) */
	EFFECT_UNRECORDED, /* to DONE: nobody may be told */
};
enum effect_end {
	EFFECT_CUT = 0, /* some of it may have left, and no whole answer came */
	EFFECT_ANSWERED,
	EFFECT_KEPT, /* nothing has left */
};
#define EFFECT_SPOOL_BYTES (64U << 20) /* of a body; as the fingerprint's */
#define EFFECT_ANSWER_BYTES (4U << 20) /* of an answer that is kept */

enum egress_listener {
	EGRESS_LISTENER_TCP =
		1, /* transparent: getsockname() of what is accepted is the address that was asked for */
	EGRESS_LISTENER_DNS_UDP = 2, /* bound, with PKTINFO; answers leave from the address that was asked */
	EGRESS_LISTENER_DNS_TCP = 3,
	EGRESS_LISTENER_PROXY =
		4, /* for programs that insist on a proxy: CONNECT and absolute-form requests */
};

#endif
