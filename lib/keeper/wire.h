/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What library and keeper say to each other, over SOCK_SEQPACKET sockets. One packet is one message: a packed
 * head {u32 type, u32 serial} and the fields listed at each type, in order (base/pack.h). The answer to a request
 * carries its serial. A payload ("blob") above WIRE_INLINE_MAX travels as a sealed memfd in the first descriptor, the
 * field is empty then.
 *
 * Connections: (a) the socketpair the keeper is born with, in descriptor 3: START comes over it, and it stays the
 * owner's connection; (b) connections to `sock` in the box's state folder (the peer's uid must equal the keeper's), which
 * begin with HELLO; (c) one socketpair a command, whose far end comes with EXEC or OPEN_COMMAND: its events.
 */
#ifndef KEEPER_WIRE_H
#define KEEPER_WIRE_H

#define WIRE_VERSION 3
#define WIRE_PACKET_MAX 65536	/* head included */
#define WIRE_INLINE_MAX 32768
#define WIRE_READ_MAX 61440	/* bytes of output in one READ answer */

enum wire_type {
	/* answers */
	WIRE_OK = 1,		/* fields by request, see there */
	WIRE_FAULT = 2,		/* i32 code, i32 stage, i32 errno, u8 retryable, str place, str message, str remedy */
	WIRE_LOG = 3,		/* unsolicited, serial 0: u32 level, str message */

	/* (a) only. fds: [memfd when the blob is empty][socket of the recorder][socket and pidfd of egress]
	 * [state folder, always last] */
	WIRE_START = 10,	/* u32 version, str id, bytes record_json, u8 helpers (enum wire_helper), u64 ready_usec (how
				 * long the guest may take; 0: what the wall thinks right), bytes blob = {bytes plan_json, bytes flat
				 * plan}. OK: u64 epoch. Sent when the box is ready for commands. */

	/* (b) first message */
	WIRE_HELLO = 11,	/* u32 version, u32 open mode. OK: u64 epoch (raised for control), u32 state */

	/* any connection. C: u64 epoch is that of the handle; lower than the box's: ABOX_E_FENCED */
	WIRE_INFO = 20,		/* -. OK: u32 state, u64 epoch, u64 started_usec (wall clock), u32 owners connected,
				 * str commands_json (array of {"id","token","argv0","state","cause","exit_code","signal"}) */
	WIRE_STATS = 21,	/* -. OK: u64 x 10 in the order of struct abox_stats */
	WIRE_WAIT = 22,		/* -. OK when the box has ended (then the connection is closed): u32 state */
	WIRE_PAUSE = 23,	/* C u64 epoch. OK */
	WIRE_RESUME = 24,	/* C u64 epoch. OK */
	WIRE_SET_LIMIT = 25,	/* C u64 epoch, str name, u64 value. OK */
	WIRE_VERIFIED = 27,	/* C u64 epoch, bytes receipt_json: recorded where there is a journal. OK */
	WIRE_SNAPSHOT = 28,	/* attach: str name ("" for none), u64 ttl_usec, u32 keep_last: of the workspace, while the box
				 * stands still. OK: str id */
	WIRE_STOP = 26,		/* C u64 epoch, u32 mode, u64 grace_usec (UINT64_MAX: the plan's). OK: str report_json,
				 * u32 number of things left behind. The keeper exits after the answer. */

	/* network; answered when egress has done it */
	WIRE_NET_INFO = 44,	/* -. OK: str json {"mode","egress","published":[...]} */
	WIRE_NET_RULES = 45,	/* C u64 epoch, u8 cut, u32 n, n * u32 port; fds: sealed memory files [rules][the same as JSON]. OK: u32
				 * generation. FAULT: the old rules are in force */
	WIRE_NET_PUBLISH = 46,	/* C u64 epoch, u32 port, u32 host_port, str address, u8 token. OK: u32 id, u32 host_port, str
				 * token ("" for none) */
	WIRE_NET_UNPUBLISH = 47,	/* C u64 epoch, u32 id. OK */

	/* credentials; answered when the minter has done it */
	WIRE_CREDENTIAL_SERVE = 42,	/* C u64 epoch, u8 it can revoke; fds: [socket over which the minter asks]. OK */
	WIRE_CREDENTIAL_REVOKE = 43,	/* C u64 epoch, str name ("" for all), u8 for good. OK: str names that were
				 * revoked, str names that could not be, as JSON arrays */

	/* commands; need attach or control */
	WIRE_EXEC = 30,		/* fds: [blob memfd][event socket][by io flags, in this order: stdin, stdout, stderr, program].
				 * u64 epoch (0 from attach handles: not checked), u32 io flags, bytes blob:
				 *   str token, strings argv, strings env (added to the plan's), str cwd, str user,
				 *   u32 stdin_mode, u32 stdout_mode, u32 stderr_mode, u8 stderr_to_stdout, u8 pty, u32 rows, u32 columns,
				 *   u32 survivors, u8 output_kill, u64 timeout_usec, u64 grace_usec (0: the plan's), u64 output_bytes (0: the
				 *   plan's), u64 memory_bytes, u64 pids, u64 cpu_usec, u64 file_bytes, u32 open_files (0: none of its own)
				 * OK: u32 command, u8 existing. Sent after execve has succeeded; else FAULT. */
	WIRE_OPEN_COMMAND = 31,	/* fds: [event socket]. str number or token. OK: u32 command, u32 stdin_mode, u32 stdout_mode,
				 * u32 stderr_mode, u8 pty */
	WIRE_SIGNAL = 32,	/* u32 command, i32 signal. OK (also when it has ended) */
	WIRE_KILL = 33,		/* u32 command, u64 grace_usec (UINT64_MAX: the plan's). OK */
	WIRE_INPUT = 34,	/* u32 command, u8 eof, bytes. OK: u32 taken. Answered when at least one byte was taken (eof without
				 * bytes: at once); ABOX_E_GONE when the command has closed its input or ended. The library sends it
				 * over a connection of its own, as WIRE_READ, since the answer may take its time. */
	WIRE_RESIZE = 35,	/* u32 command, u32 rows, u32 columns. OK */
	WIRE_READ = 36,		/* u32 command, u32 stream, u64 cursor, u32 max, u64 timeout_usec. OK: u64 cursor, u64 next, u64 total,
				 * u8 gap, u8 end, bytes (none on timeout). Answered as soon as there is a byte or the end. */

	/* files of the workspace */
	WIRE_LOOK_AT_FILES = 40,	/* fds: [socket]. A file server speaks over it (file/wire.h), for reading. OK */
	WIRE_CHANGE_FILES = 41,	/* fds: [socket]. u64 epoch (0 from attach handles: not checked). The same, for writing too. OK */

	/* (c) events of one command, serial 0; keeper to library unless said otherwise */
	WIRE_ENDED = 50,	/* u32 cause, i32 exit_code (-1), i32 signal, u64 wall_usec, u64 cpu_usec, u64 memory_peak_bytes,
				 * u32 survivors, u32 limits_struck, u64 stdout_total, u64 stderr_total (spooled streams, else 0),
				 * u8 truncated (bit 0 stdout, bit 1 stderr), str evidence. The last message. */
	WIRE_OUTPUT_LIMIT = 52,	/* library to keeper: u32 stream. A captured or copied stream reached its limit and output_kill was
				 * asked: the keeper kills the tree with cause OUTPUT */
};

/* Helpers that come with START, and what for. */
enum wire_helper {
	WIRE_RECORDER_JOURNAL = 1 << 0,
	WIRE_RECORDER_WORKSPACE = 1 << 1,
	WIRE_EGRESS = 1 << 2,
};

/* Descriptors that come with EXEC. */
enum {
	WIRE_IO_STDIN = 1 << 0,
	WIRE_IO_STDOUT = 1 << 1,
	WIRE_IO_STDERR = 1 << 2,
	WIRE_IO_PROGRAM = 1 << 3,	/* a sealed memfd that is executed instead of argv[0] (verify probes) */
};

/*
 * State of a box: STATE/boxes/ID (mode 0700), made by the keeper below the folder descriptor it is given (that of STATE).
 * STATE itself (boxes/ and names/ in it) is made by the library. A name is taken by a link names/NAME -> ID.
 *
 *   sock          listening socket (SOCK_SEQPACKET); bound and reached as /proc/self/fd/N/sock, so no length limit
 *   record.json   as given with START; written before anything else is changed on the host
 *   plan.json     as given with START
 *   cgroups       one absolute folder a line, deepest last, written before it is made: what gc removes when the keeper was killed
 *   state         held by the keeper with an OFD write lock on the whole file as long as it lives: the one proof of life; in
 *                 it one word and newlines: starting, running, paused, stopping, stopped, failed; written in place
 *   workspace     id of a workspace that has to be settled, as long as it has
 *   report.json   teardown report, once stopped (detached boxes)
 *   network.log   events of the network, a JSON object a line
 *   network.json  the rules in force, once they were changed; before that they are those of the plan
 *   N.json        result of command N (detached boxes); N.out, N.err: spooled output
 *
 * An attached box removes its folder and name at the end; a detached one leaves both, with the lock free.
 */
#define STATE_BOXES "boxes"
#define STATE_NAMES "names"
#define STATE_SOCKET "sock"
#define STATE_RECORD "record.json"
#define STATE_PLAN "plan.json"
#define STATE_CGROUPS "cgroups"
#define STATE_PLACEHOLDERS "placeholders"	/* names made in a folder of the host: base/placeholder.h */
#define STATE_STATE "state"
#define STATE_WORKSPACE "workspace"
#define STATE_END "end"	/* enum recorder_end as a digit, where the recorder was not there any more to hear it */
#define STATE_REPORT "report.json"
#define STATE_NETWORK_LOG "network.log"
#define STATE_NETWORK "network.json"

#endif
