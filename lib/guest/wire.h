/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What keeper and guest (PID 1 of the box) say to each other. Behind namespaces it is a SOCK_SEQPACKET pair with
 * descriptors; where only bytes go through the wall, a relay at each end (guest/relay.h) makes it look so.
 *
 * Security: the guest stands inside the wall. The keeper checks every field of what comes from it.
 */
#ifndef GUEST_WIRE_H
#define GUEST_WIRE_H

/* Every message begins with the head {u32 type, u32 command}; command is 0 where none is meant. */
enum guest_type {
	/* keeper to guest */
	GUEST_SPAWN = 1,	/* fds: [blob memfd when the blob is empty], then by io flags. u32 io flags, bytes blob: strings argv,
				 * strings env (complete), str cwd, u32 uid, u32 gid, u8 pty, u32 rows, u32 columns, u64 cpu_usec,
				 * u64 file_bytes, u32 open_files, u64 pids, u64 address_bytes, u32 survivors */
	GUEST_SIGNAL = 2,	/* i32 signal, u32 scope (enum guest_scope) */
	GUEST_SIGNAL_ALL = 3,	/* i32 signal: every process but the guest and its shepherds */
	GUEST_DROP = 4,		/* forget the command: kill what is left of its tree */
	GUEST_END = 5,		/* kill everything and exit */
	GUEST_SETUP = 6,	/* the first one where the guest is no fork of the keeper: fields in guest/setup.h */
	GUEST_TTY_SIZE = 7,	/* u32 rows, u32 columns: of a terminal whose master is behind the wall too */
	GUEST_TTY_SIGNAL = 8,	/* i32 signal: to the foreground group of such a terminal */
	GUEST_LISTEN = 9,	/* boxes with a network; head: a serial. u32 n, n * u32 port: let the cell answer at these too.
				 * LISTENERS and LISTENING, or LISTEN_FAULT */
	GUEST_SOCKET = 10,	/* head: a serial. u32 port: a TCP socket of the box is wanted, to connect to this port of its own
				 * loopback. SOCKET_MADE */
	GUEST_FILES = 11,	/* fds: [stream socket]. u8 writes, u32 uid, u32 gid (of files that are made): a file server for the
				 * workspace speaks over it (file/wire.h) until the other end closes, or says there why not */

	/* guest to keeper */
	GUEST_READY = 20,	/* the tree stands and commands may come; fds: [root of the scratch, where it is the host's] */
	GUEST_FAULT = 21,	/* set-up failed: fields as in WIRE_FAULT; the guest exits */
	GUEST_SPAWNED = 22,	/* u32 pid inside; fds: [pty master]. execve has succeeded */
	GUEST_SPAWN_FAULT = 23,	/* fields as in WIRE_FAULT: code ABOX_E_EXEC_*, NOT_FOUND (cwd), SYSTEM */
	GUEST_EXITED = 24,	/* i32 wait status, u64 cpu_usec, u64 max_rss_bytes, u32 survivors (UINT32_MAX: not known) */
	GUEST_TREE_GONE = 25,	/* u32 killed, u64 cpu_usec, u64 max_rss_bytes (of the whole tree): no process of the command
				 * is left. With SURVIVORS_KILL it follows EXITED as soon as they are dead */
	GUEST_LOG = 26,		/* u32 level, str message */
	GUEST_LISTENERS = 27,	/* head: serial of LISTEN, 0 before READY. u32 n, n * {u32 kind (enum egress_listener), u32 port};
				 * n fds. May come several times */
	GUEST_LISTENING = 28,	/* head: the same serial. They were all */
	GUEST_LISTEN_FAULT = 29,	/* head: the same serial; fields as in WIRE_FAULT */
	GUEST_SOCKET_MADE = 30,	/* head: serial of SOCKET. fds: [TCP socket, unconnected or there already], none when there was
				 * none to be had */
	GUEST_STRUCK = 31,	/* u64 processes killed for memory, u64 forks refused, in the box since the command was started:
				 * before EXITED, where the guest's own kernel keeps those limits */
	GUEST_TEMPLATE = 40,	/* before READY, from outside of the guest; fds: [sealed memory file]: a template of the machine, to
				 * be kept where the keeper wants one */
};

enum guest_scope {
	GUEST_SCOPE_MAIN = 0,	/* the main process */
	GUEST_SCOPE_GROUP = 1,	/* its process group; with a pty the foreground group */
	GUEST_SCOPE_TREE = 2,	/* everything the command has started */
};

enum {
	GUEST_IO_STDIN = 1 << 0,
	GUEST_IO_STDOUT = 1 << 1,
	GUEST_IO_STDERR = 1 << 2,
	GUEST_IO_PROGRAM = 1 << 3,
	GUEST_IO_CGROUP = 1 << 4,	/* folder of the command's own group (v2), into which it is born */
	GUEST_IO_TASKS1 = 1 << 5,	/* `tasks` or `cgroup.procs` of groups that limit the command, open for writing */
	GUEST_IO_TASKS2 = 1 << 6,
	GUEST_IO_ALL = (1 << 7) - 1,
};

#endif
