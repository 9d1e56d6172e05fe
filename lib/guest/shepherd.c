/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The shepherd: a process below the guest that starts one command at a time and is the subreaper of all that
 * comes of it. So a command's processes are known wherever they fork to, and their end is seen.
 *
 * With a Landlock signal scope (or as PID 1 of a pid namespace) it reaches exactly the tree of its command:
 * one kill(-1) takes that and nothing else, and a single pass is complete, because it runs under the kernel's
 * task list lock and the fork of a dying process fails. Without one the keeper kills by control group, and
 * the shepherd only reaps.
 *
 * When the tree is gone it is ready for the next command.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <agentbox/command.h>
#include <agentbox/error.h>

#include "base/fd.h"
#include "base/memfd.h"
#include "guest/count.h"
#include "guest/guest.h"
#include "guest/group.h"
#include "guest/launch.h"
#include "guest/message.h"
#include "kernel/compat.h"
#include "kernel/landlock.h"

struct shepherd {
	const struct guest_box *box;
	bool owns_tree;		/* kill(-1) reaches the command's tree and no more */
	bool busy;		/* has a command whose tree is not gone */
	uint32_t command;
	uint32_t survivors;	/* enum abox_survivors */
	pid_t main_pid;		/* 0 once it has been reaped */
	uint32_t n_killed;
	uint64_t cpu_usec;
	uint64_t max_rss_bytes;
	struct group_counts before;	/* of the box, when the command was started */
};

static uint8_t
	packet[GUEST_PACKET_MAX]; /* one at a time: bss, so that an idle shepherd costs no page for it */

static void channel_send(struct pack_writer *writer, const int *fds, size_t n_fds)
{
	/* a keeper that is gone takes the whole box with it */
	if (guest_message_send(GUEST_FD_CHANNEL, writer, fds, n_fds) < 0)
		_exit(1);
}

static void send_spawned(struct shepherd *shepherd, int master_fd)
{
	uint8_t buffer[64];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));

	guest_message_begin(&writer, GUEST_SPAWNED, shepherd->command);
	pack_u32(&writer, (uint32_t)shepherd->main_pid);
	channel_send(&writer, &master_fd, master_fd >= 0 ? 1 : 0);
}

static void send_struck(const struct shepherd *shepherd)
{
	uint8_t buffer[64];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));
	struct group_counts now;

	if (!shepherd->box->has_group)
		return;
	group_read(GUEST_FD_GROUP, &now);
	guest_message_begin(&writer, GUEST_STRUCK, shepherd->command);
	pack_u64(&writer, now.n_oom_kills - shepherd->before.n_oom_kills);
	pack_u64(&writer, now.n_forks_denied - shepherd->before.n_forks_denied);
	channel_send(&writer, NULL, 0);
}

static void send_exited(struct shepherd *shepherd, int status, uint32_t survivors)
{
	uint8_t buffer[64];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));

	guest_message_begin(&writer, GUEST_EXITED, shepherd->command);
	pack_i32(&writer, status);
	pack_u64(&writer, shepherd->cpu_usec);
	pack_u64(&writer, shepherd->max_rss_bytes);
	pack_u32(&writer, survivors);
	channel_send(&writer, NULL, 0);
}

static void send_gone(struct shepherd *shepherd)
{
	uint8_t buffer[64];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));

	guest_message_begin(&writer, GUEST_TREE_GONE, shepherd->command);
	pack_u32(&writer, shepherd->n_killed);
	pack_u64(&writer, shepherd->cpu_usec);
	pack_u64(&writer, shepherd->max_rss_bytes);
	channel_send(&writer, NULL, 0);
}

/* Tells the guest that the next command may come. */
static void send_idle(void)
{
	if (socket_send(GUEST_FD_DOWN, "", 1, NULL, 0) < 0)
		_exit(1);
}

/* -- start -- */

static int take_fds(struct guest_message *message, uint32_t io, struct launch *launch, size_t first)
{
	int *slots[] = { &launch->fds[0], &launch->fds[1], &launch->fds[2], &launch->program_fd,
		&launch->group_fd, &launch->task_fds[0], &launch->task_fds[1] };
	size_t next = first;

	for (size_t i = 0; i < ELEMENTSOF(slots); i++) {
		*slots[i] = -EBADF;
		if (!(io & (1U << i)))
			continue;
		if (next >= message->n_fds)
			return ABOX_E_PROTOCOL;
		*slots[i] = message->fds[next++];
	}
	return (io & ~(uint32_t)GUEST_IO_ALL) || next != message->n_fds ? ABOX_E_PROTOCOL : 0;
}

static int start_order(struct shepherd *shepherd, struct guest_message *message, uint32_t io,
	const void *blob, size_t blob_len, size_t first_fd, struct fault *fault)
{
	_cleanup_(guest_order_clear) struct guest_order order = { 0 };
	_cleanup_(fd_closep) int master_fd = -EBADF;
	struct launch launch = { .box = shepherd->box, .order = &order };
	int r;

	r = guest_order_unpack(blob, blob_len, &order);
	if (r == 0)
		r = take_fds(message, io, &launch, first_fd);
	if (r < 0)
		return fault_set(fault, r, 0, "order", "not an order that can be carried out");
	shepherd->n_killed = 0;
	shepherd->cpu_usec = 0;
	shepherd->max_rss_bytes = 0;
	shepherd->survivors = order.survivors;
	if (shepherd->box->has_group)
		group_read(GUEST_FD_GROUP, &shepherd->before);
	r = launch_start(&launch, &shepherd->main_pid, &master_fd, fault);
	if (r < 0)
		return r;
	shepherd->busy = true;
	send_spawned(shepherd, master_fd);
	return 0;
}

static void handle_spawn(struct shepherd *shepherd, struct guest_message *message)
{
	uint32_t io = unpack_u32(&message->body);
	const void *mapped = NULL;
	size_t blob_len, mapped_len = 0;
	const void *blob = unpack_bytes(&message->body, &blob_len);
	struct fault fault;
	int r = 0;

	fault_init(&fault, ABOX_STAGE_COMMAND);
	shepherd->command = message->command;
	if (!unpack_done(&message->body) || shepherd->busy)
		r = fault_set(&fault, ABOX_E_PROTOCOL, 0, "order", "not an order");
	if (r == 0 && blob_len == 0) {
		r = message->n_fds ? memfd_map_sealed(message->fds[0], GUEST_BLOB_MAX, &mapped, &mapped_len)
				   : -EINVAL;
		if (r < 0)
			r = fault_set(&fault, ABOX_E_PROTOCOL, -r, "order", "the order cannot be read");
	}
	if (r == 0)
		r = start_order(shepherd, message, io, mapped ? mapped : blob, mapped ? mapped_len : blob_len,
			mapped ? 1 : 0, &fault);
	if (mapped)
		memfd_unmap(mapped, mapped_len);
	if (r == 0)
		return;
	if (guest_message_send_fault(GUEST_FD_CHANNEL, GUEST_SPAWN_FAULT, message->command, &fault) < 0)
		_exit(1);
	if (!shepherd->busy)
		send_idle();
}

/* -- signals -- */

static void signal_tree(struct shepherd *shepherd, int signal)
{
	if (shepherd->owns_tree)
		kill(-1, signal);
	else if (shepherd->main_pid)
		kill(-shepherd->main_pid,
			signal); /* the best without a scope; the keeper has the control group */
}

static void handle_signal(struct shepherd *shepherd, struct guest_message *message)
{
	int signal = unpack_i32(&message->body);
	uint32_t scope = unpack_u32(&message->body);

	if (!unpack_done(&message->body) || !shepherd->busy || message->command != shepherd->command)
		return;	/* it has ended meanwhile */
	if (scope == GUEST_SCOPE_TREE)
		signal_tree(shepherd, signal);
	else if (shepherd->main_pid)	/* not reaped, so the number is still its own */
		kill(scope == GUEST_SCOPE_GROUP ? -shepherd->main_pid : shepherd->main_pid, signal);
}

static void handle_packet(struct shepherd *shepherd)
{
	struct guest_message message;
	int r = guest_message_recv(GUEST_FD_DOWN, packet, &message);

	if (r <= 0)
		_exit(r < 0);
	if (message.type == GUEST_SPAWN)
		handle_spawn(shepherd, &message);
	else if (message.type == GUEST_SIGNAL)
		handle_signal(shepherd, &message);
	else if (message.type == GUEST_SIGNAL_ALL && shepherd->busy)
		signal_tree(shepherd, unpack_i32(&message.body));
	else if (message.type == GUEST_DROP && shepherd->busy)
		signal_tree(shepherd, SIGKILL);
	guest_message_close_fds(&message);
}

/* -- end -- */

static void account(struct shepherd *shepherd, const struct rusage *usage)
{
	uint64_t rss = (uint64_t)usage->ru_maxrss * 1024;

	shepherd->cpu_usec +=
		(uint64_t)usage->ru_utime.tv_sec * USEC_PER_SEC + (uint64_t)usage->ru_utime.tv_usec;
	shepherd->cpu_usec +=
		(uint64_t)usage->ru_stime.tv_sec * USEC_PER_SEC + (uint64_t)usage->ru_stime.tv_usec;
	if (rss > shepherd->max_rss_bytes)
		shepherd->max_rss_bytes = rss;
}

/* Takes everything that has ended. Returns true when the main process was among it. *retempty: no child is
 * left. */
static bool reap(struct shepherd *shepherd, int *retstatus, bool *retempty)
{
	bool main_ended = false;
	struct rusage usage;
	int status;
	pid_t pid;

	while ((pid = wait4(-1, &status, WNOHANG | __WALL, &usage)) > 0) {
		account(shepherd, &usage);
		if (pid == shepherd->main_pid) {
			shepherd->main_pid = 0;
			*retstatus = status;
			main_ended = true;
		} else if (!shepherd->main_pid && !main_ended) {
			shepherd->n_killed++;
		}
	}
	*retempty = pid < 0 && errno == ECHILD;
	return main_ended;
}

static void handle_children(struct shepherd *shepherd)
{
	int status = 0;
	bool empty;

	if (reap(shepherd, &status, &empty)) {
		bool kills = shepherd->survivors == ABOX_SURVIVORS_KILL;

		send_struck(shepherd);
		send_exited(shepherd, status, empty ? 0 : kills ? UINT32_MAX : count_descendants());
		if (!empty && kills && shepherd->owns_tree)
			kill(-1, SIGKILL);
	}
	if (empty && shepherd->busy && !shepherd->main_pid) {
		shepherd->busy = false;
		send_gone(shepherd);
		send_idle();
	}
}

static void handle_signals(struct shepherd *shepherd)
{
	struct signalfd_siginfo info;

	if (read(GUEST_FD_SIGNALS, &info, sizeof(info)) == sizeof(info) && info.ssi_signo == SIGCHLD)
		handle_children(shepherd);
}

static int shepherd_prepare(struct shepherd *shepherd, struct fault *fault)
{
	const struct guest_box *box = shepherd->box;
	int r;

	prctl(PR_SET_NAME, "agentbox-shep");
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "shepherd", "cannot become a subreaper");
	if (sys_close_range(GUEST_FD_FREE, CLOSE_RANGE_REST, 0) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "shepherd", "cannot close descriptors");
	if (box->tied_signals) {
		r = guest_block_signals(fault);
		if (r < 0)
			return r;
	}
	if (box->renew_proc && box->new_pidns) {
		r = box->renew_proc(box->userdata, fault);
		if (r < 0)
			return r;
	}
	if (box->has_scope) {
		r = landlock_restrict(GUEST_FD_SCOPE, fault);
		if (r < 0)
			return r;
	}
	return box->filtered_shepherds ? filter_load(box->filter, box->n_filter, fault) : 0;
}

_noreturn_ void shepherd_run(const struct guest_box *box)
{
	struct shepherd shepherd = { .box = box, .owns_tree = box->has_scope || box->new_pidns };
	struct pollfd polls[] = {
		{ .fd = GUEST_FD_DOWN, .events = POLLIN },
		{ .fd = GUEST_FD_SIGNALS, .events = POLLIN },
	};
	struct fault fault;

	fault_init(&fault, ABOX_STAGE_COMMAND);
	if (shepherd_prepare(&shepherd, &fault) < 0) {
		guest_message_send_fault(GUEST_FD_CHANNEL, GUEST_FAULT, 0, &fault);
		_exit(1);
	}
	for (;;) {
		if (poll(polls, ELEMENTSOF(polls), -1) < 0 && errno != EINTR)
			_exit(1);
		if (polls[1].revents)
			handle_signals(&shepherd);
		if (polls[0].revents)
			handle_packet(&shepherd);
	}
}
