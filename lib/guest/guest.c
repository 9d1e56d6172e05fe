/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The loop of PID 1. It hands orders to shepherds, keeps one of them ready so that a command waits for no
 * fork, and reaps orphans. Promises that no process of the box outlives it or the keeper: the kernel kills a
 * pid namespace with its PID 1, and the guest ends with its channel.
 */
#include "guest/guest.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "base/fd.h"
#include "file/serve.h"
#include "guest/network.h"
#include "kernel/compat.h"

#define MAX_SHEPHERDS 1024
#define COMMANDS_OOM_SCORE "300"	/* the guest stays at 0: the kernel takes a command first */

struct flock_entry {
	pid_t pid;
	int fd;
	uint32_t command;	/* 0: ready for one */
};

struct guest {
	const struct guest_box *box;
	struct flock_entry entries[MAX_SHEPHERDS];
	size_t n_entries;
};

static uint8_t packet[GUEST_PACKET_MAX];
static struct guest guest;
static struct pollfd polls[MAX_SHEPHERDS + 2];

/* Fail closed: a guest that lost control of its commands takes the box with it. */
_noreturn_ static void guest_die(const char *message)
{
	struct fault fault;

	fault_init(&fault, ABOX_STAGE_COMMAND);
	fault_set(&fault, ABOX_E_SYSTEM, errno, "guest", "%s", message);
	guest_message_send_fault(GUEST_FD_CHANNEL, GUEST_FAULT, 0, &fault);
	_exit(1);
}

int guest_open_null(struct fault *fault)
{
	_cleanup_(fd_closep) int fd = open("/dev/null", O_RDWR | O_CLOEXEC | O_NOCTTY);

	fd = fd < 0 ? -errno : fd_move_above(fd, GUEST_FD_FREE);
	if (fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -fd, "/dev/null", "the box has none");
	for (int i = 0; i < GUEST_FD_FREE; i++) {
		if (i != GUEST_FD_CHANNEL && dup3(fd, i, i < 3 ? 0 : O_CLOEXEC) < 0)
			return fault_set(fault, ABOX_E_SYSTEM, errno, "/dev/null", "cannot be taken");
	}
	return 0;
}

int guest_block_signals(struct fault *fault)
{
	sigset_t set;
	int fd;

	sigfillset(&set);
	if (sigprocmask(SIG_SETMASK, &set, NULL) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "signals", "cannot block signals");
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "signals", "cannot take signals");
	if (dup3(fd, GUEST_FD_SIGNALS, O_CLOEXEC) < 0) {
		fd_close(fd);
		return fault_set(fault, ABOX_E_SYSTEM, errno, "signals", "cannot take signals");
	}
	fd_close(fd);
	return 0;
}

static void oom_score(const char *text)
{
	/* a hint to the kernel: where it is refused, victims are chosen by size alone */
	if (pwrite(GUEST_FD_OOM, text, strlen(text), 0) < 0)
		return;
}

static pid_t clone_shepherd(void)
{
	struct sys_clone_args args = { .exit_signal = SIGCHLD };
	long pid;

	if (guest.box->new_pidns)
		args.flags |= CLONE_NEWPID | (guest.box->renew_proc ? CLONE_NEWNS : 0);
	if (guest.box->has_group) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = GUEST_FD_GROUP;
	}
	pid = sys_clone3(&args);
	if (pid < 0 && errno == ENOSYS)	/* gVisor */
		pid = syscall(SYS_clone, args.flags | SIGCHLD, NULL, NULL, NULL, NULL);
	return (pid_t)pid;
}

static struct flock_entry *make_shepherd(void)
{
	struct flock_entry *entry;
	int pair[2];
	pid_t pid;

	if (guest.n_entries == MAX_SHEPHERDS || socket_pair(pair) < 0)
		return NULL;
	oom_score(COMMANDS_OOM_SCORE);
	pid = clone_shepherd();
	if (pid == 0) {
		if (dup3(pair[1], GUEST_FD_DOWN, O_CLOEXEC) < 0)
			_exit(1);
		shepherd_run(guest.box);
	}
	oom_score("0");
	fd_close(pair[1]);
	if (pid < 0) {
		fd_close(pair[0]);
		return NULL;
	}
	entry = &guest.entries[guest.n_entries++];
	*entry = (struct flock_entry){ .pid = pid, .fd = pair[0] };
	return entry;
}

static void remove_entry(size_t i)
{
	fd_close(guest.entries[i].fd);
	guest.entries[i] = guest.entries[--guest.n_entries];
}

static struct flock_entry *find_ready(void)
{
	for (size_t i = 0; i < guest.n_entries; i++) {
		if (guest.entries[i].command == 0)
			return &guest.entries[i];
	}
	return NULL;
}

static void refuse_spawn(uint32_t command, int code, const char *message)
{
	struct fault fault;

	fault_init(&fault, ABOX_STAGE_COMMAND);
	fault_set(&fault, code, errno, "shepherd", "%s", message);
	if (guest_message_send_fault(GUEST_FD_CHANNEL, GUEST_SPAWN_FAULT, command, &fault) < 0)
		_exit(1);
}

static void forward(struct flock_entry *entry, const struct guest_message *message)
{
	/* the packet goes on as it came; it is looked at by who carries it out */
	if (socket_send(entry->fd, message->body.data, message->body.len, message->fds, message->n_fds) < 0)
		guest_die("cannot reach a shepherd");
}

static void handle_spawn(const struct guest_message *message)
{
	struct flock_entry *entry = find_ready();

	if (!entry)
		entry = make_shepherd();
	if (!entry) {
		refuse_spawn(message->command, ABOX_E_LIMIT, "cannot make a shepherd for the command");
		return;
	}
	entry->command = message->command;
	forward(entry, message);
}

static void handle_signal_all(const struct guest_message *message)
{
	struct pack_reader body = message->body;
	int signal = unpack_i32(&body);

	if (!guest.box->has_scope && !guest.box->new_pidns) {
		/* shepherds have everything but STOP and KILL blocked; those two the keeper does by control
		 * group */
		if (signal != SIGSTOP && signal != SIGKILL)
			kill(-1, signal);
		return;
	}
	for (size_t i = 0; i < guest.n_entries; i++) {
		if (guest.entries[i].command)
			forward(&guest.entries[i], message);
	}
}

_noreturn_ static void serve_files(int fd, bool writes, uid_t uid, gid_t gid)
{
	_cleanup_(fd_closep) int root_fd = -EBADF;
	struct fault fault;
	int r = 0;

	fault_init(&fault, ABOX_STAGE_FILE);
	prctl(PR_SET_NAME, "agentbox-files");
	/* Security: nothing of the guest's stays open in a process that works on files of the box */
	if (dup3(fd, GUEST_FD_CHANNEL, O_CLOEXEC) < 0 || sys_close_range(GUEST_FD_CHANNEL + 1, CLOSE_RANGE_REST, 0) < 0)
		_exit(1);
	root_fd = open(GUEST_WORKSPACE, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (root_fd < 0)
		r = fault_set(&fault, ABOX_E_NOT_FOUND, errno, GUEST_WORKSPACE, "the box has no workspace");
	if (r == 0)
		r = file_serve_confine(uid, gid, &fault);
	if (r < 0)
		file_serve_fault(GUEST_FD_CHANNEL, &fault);
	else
		file_serve(GUEST_FD_CHANNEL, root_fd, writes);
	_exit(0);
}

/* A process of its own: a guest that waits for a disk would hold up every command. It ends with its socket, is reaped
 * as an orphan would be, and is a likelier victim than the guest where memory runs out. */
static void handle_files(const struct guest_message *message)
{
	struct pack_reader body = message->body;
	uint8_t writes = unpack_u8(&body);
	uint32_t uid = unpack_u32(&body), gid = unpack_u32(&body);
	struct fault fault;
	long pid;

	if (!unpack_done(&body) || message->n_fds != 1)
		return;
	oom_score(COMMANDS_OOM_SCORE);
	pid = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid == 0)
		serve_files(message->fds[0], writes, uid, gid);
	oom_score("0");
	if (pid > 0)
		return;
	fault_init(&fault, ABOX_STAGE_FILE);
	fault_set(&fault, ABOX_E_LIMIT, errno, "files", "the box has no room for one more process");
	file_serve_fault(message->fds[0], &fault);
}

static void handle_packet(void)
{
	struct guest_message message;
	int r = guest_message_recv(GUEST_FD_CHANNEL, packet, &message);

	if (r <= 0)
		_exit(0);	/* the keeper is gone, and the box with it */
	if (message.type == GUEST_SPAWN) {
		handle_spawn(&message);
	} else if (message.type == GUEST_LISTEN || message.type == GUEST_SOCKET) {
		if (guest.box->network && guest_network_handle(guest.box->network, GUEST_FD_CHANNEL, &message) < 0)
			guest_die("cannot answer the keeper");
		if (guest.box->has_link && message.type == GUEST_LISTEN && guest_link_handle(guest.box->link_v6, &message) < 0)
			guest_die("cannot lead a port to the network of the box");
	} else if (message.type == GUEST_SIGNAL_ALL) {
		handle_signal_all(&message);
	} else if (message.type == GUEST_FILES) {
		handle_files(&message);
	} else if (message.type == GUEST_END) {
		_exit(0);
	} else {
		for (size_t i = 0; i < guest.n_entries; i++) {
			if (guest.entries[i].command && guest.entries[i].command == message.command)
				forward(&guest.entries[i], &message);
		}
	}
	guest_message_close_fds(&message);
}

/* A shepherd that says it is ready again, or is gone. One is kept; a burst of commands does not leave a crowd
 * behind. */
static void handle_shepherd(size_t i)
{
	uint8_t byte;
	ssize_t n = socket_recv(guest.entries[i].fd, &byte, sizeof(byte), NULL, NULL);

	if (n > 0) {
		bool spare = find_ready() != NULL;

		guest.entries[i].command = 0;
		if (!spare)
			return;
		remove_entry(i);	/* it ends with its socket */
		return;
	}
	/* Security: without its shepherd a command's tree cannot be told from the others' any more */
	guest_die("a shepherd has ended");
}

static void reap_all(void)
{
	struct signalfd_siginfo info;

	while (read(GUEST_FD_SIGNALS, &info, sizeof(info)) > 0)
		;
	while (waitpid(-1, NULL, WNOHANG | __WALL) > 0)
		;
}

_noreturn_ void guest_run(const struct guest_box *box)
{
	guest.box = box;
	if (!make_shepherd())
		guest_die("cannot make a shepherd");
	polls[0] = (struct pollfd){ .fd = GUEST_FD_CHANNEL, .events = POLLIN };
	polls[1] = (struct pollfd){ .fd = GUEST_FD_SIGNALS, .events = POLLIN };
	for (;;) {
		size_t n = guest.n_entries;

		for (size_t i = 0; i < n; i++)
			polls[i + 2] = (struct pollfd){ .fd = guest.entries[i].fd, .events = POLLIN };
		if (poll(polls, n + 2, -1) < 0 && errno != EINTR)
			guest_die("cannot wait");
		/* from the end: removing an entry moves only those behind it, which have been looked at */
		for (size_t i = n; i-- > 0;) {
			if (polls[i + 2].revents)
				handle_shepherd(i);
		}
		if (polls[1].revents)
			reap_all();
		if (polls[0].revents)
			handle_packet();
	}
}
