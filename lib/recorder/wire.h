/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is said to the recorder of a box, over SOCK_SEQPACKET sockets: by the library once, before the box is
 * made (descriptor 3), and by the keeper as long as the box lives (descriptor 4). One packet is one message
 * with the head {u32 type, u32 serial}; an answer carries the serial of its request.
 */
#ifndef RECORDER_WIRE_H
#define RECORDER_WIRE_H

#define RECORDER_VERSION 1
#define RECORDER_PACKET_MAX 65536
#define RECORDER_BODY_MAX                                                                                    \
	49152 /* longer bodies are cut by the keeper, member by member, before they are sent */

enum recorder_type {
	/* library to recorder */
	RECORDER_OPEN = 1, /* u32 version, str folder of the journal, str task ("" for none), str box id. OK
			      or FAULT */

	/* keeper to recorder */
	RECORDER_APPEND = 2, /* u32 durability (enum abox_durability), str record type, bytes body (a JSON
			      * object). Serial 0: no answer is wanted. Else OK: u64 seq, or FAULT */

	/* recorder to either */
	RECORDER_OK = 10,
	RECORDER_FAULT = 11, /* fields of fault_pack() */

	/* recorder to keeper, unasked, serial 0 */
	RECORDER_CANCELED = 12, /* the task was canceled in the journal: the box shall be stopped */
};

#endif
