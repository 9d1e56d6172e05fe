/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is said to the recorder of a box, over SOCK_SEQPACKET sockets: by the library once, before the box is
 * made or after everything of it has died (descriptor 3), and by the keeper as long as the box lives (descriptor 4). One packet is one message
 * with the head {u32 type, u32 serial}; an answer carries the serial of its request.
 */
#ifndef RECORDER_WIRE_H
#define RECORDER_WIRE_H

#define RECORDER_VERSION 4
#define RECORDER_PACKET_MAX 65536
#define RECORDER_BODY_MAX                                                                                    \
	49152 /* longer bodies are cut by the keeper, member by member, before they are sent */

enum recorder_type {
	/* library to recorder */
	RECORDER_OPEN = 1, /* u32 version, str folder of the journal ("" for none), str task ("" for none), str box
			      id, str digest of the plan, strings environment that says where the store is, u8 requests may be effects. fds: [order of
			      the workspace: {str json, strings secrets}, where there is one]. OK or FAULT */
	RECORDER_RECOVER = 3, /* instead of OPEN, for a box whose recorder was killed: u32 version, u32 how the box has ended
			      (enum recorder_end; N_ENDS: unknown, which counts as failure), str box id, str
			      id of the workspace, str digest of the plan, strings environment. fds: [order, as above,
			      without secrets]. What was to be done at its end is done. OK: str what was left undone and
			      why, str result, or FAULT */

	/* keeper to recorder */
	RECORDER_APPEND = 2, /* u32 durability (enum abox_durability), str record type, bytes body (a JSON
			      * object). Serial 0: no answer is wanted. Else OK: u64 seq, or FAULT */

	RECORDER_BEGIN = 4, /* u8 names: the workspace is opened for the box. OK: str id, u8 how (0: the layers
			     * follow, 1: mounted, 2: mounted, with a bounded layer), str path of the folder or
			     * layer that is written, str path of its work folder ("": nothing is laid over it), then of
			     * both and of every lower layer: u32 count, {str path, u64 device, u64 inode}. fds: [lock]
			     * [the mount, where this process could make it: root][with `names` the file of names
			     * that boxes on this workspace have asked for: keeper/names.c]. FAULT */
	RECORDER_WALL = 5, /* fds: pidfd of the guest: nobody writes the workspace any more when it has ended; [the
			    * upper folder of the workspace, where the guest has made a bounded layer]. No answer */
	RECORDER_SETTLE = 6, /* u32 end (enum recorder_end), bytes evidence (a JSON object). The guest is dead. OK: u8
			      * something was left undone, str what and why, bytes result (a JSON object) */
	RECORDER_SNAPSHOT = 7, /* str name ("" for none), u64 ttl, u32 keep last: nobody writes meanwhile. OK: str id, or
				* FAULT */

	/* Effects of the box's requests (egress/wire.h), passed on by the keeper: the bytes behind the heads are the
	 * same, but for the u32 life of egress before them, which an answer brings back. */
	RECORDER_EFFECT = 13,
	RECORDER_EFFECT_DONE = 14,
	RECORDER_EFFECT_LEAVE = 15,
	RECORDER_EFFECTS_LOST = 16, /* that egress is gone: what it has not told will not be known. No answer */
	RECORDER_EFFECT_ANSWER = 17, /* recorder to keeper */

	/* recorder to either */
	RECORDER_OK = 10,
	RECORDER_FAULT = 11, /* fields of fault_pack() */

	/* recorder to keeper, unasked, serial 0 */
	RECORDER_CANCELED = 12, /* the task was canceled in the journal: the box shall be stopped */
};

enum recorder_end {		/* in the order of the plan's keys on_... */
	RECORDER_SUCCESS,
	RECORDER_FAILURE,
	RECORDER_CANCEL,
	RECORDER_TIMEOUT,
	RECORDER_N_ENDS,
	RECORDER_UNBORN = RECORDER_N_ENDS,	/* the start failed: as if it had not been tried */
};

#endif
