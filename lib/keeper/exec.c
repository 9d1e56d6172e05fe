/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * EXEC: from a client's wish to an order for the guest. Promises that limits are never wider than the box's,
 * that a token starts one command and no second one, and that nothing is left of a command that could not be
 * ordered.
 */
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <agentbox/command.h>
#include <agentbox/error.h>
#include <agentbox/sandbox.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memfd.h"
#include "guest/message.h"
#include "keeper/wish.h"

#define MAX_COMMANDS 4096	/* remembered: running and ended ones */
#define MAX_TOKEN 256
#define DEFAULT_ROWS 24
#define DEFAULT_COLUMNS 80

static int count_bits(uint32_t value)
{
	return __builtin_popcount(value);
}

static int take_wish(struct request *request, struct wish *wish, struct fault *fault)
{
	size_t blob_len, next = 0;
	const void *blob;
	int r;

	wish->io = unpack_u32(&request->body);
	blob = unpack_bytes(&request->body, &blob_len);
	if (!unpack_done(&request->body) || wish->io > 15)
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "exec", "not a command");
	if (blob_len == 0) {
		if (!request->n_fds)
			return fault_set(fault, ABOX_E_PROTOCOL, 0, "exec", "no command came along");
		r = memfd_map_sealed(request->fds[0], GUEST_BLOB_MAX, &wish->mapped, &wish->mapped_len);
		if (r < 0)
			return fault_set(fault, r == -EFBIG ? ABOX_E_LIMIT : ABOX_E_PROTOCOL, -r, "argv",
				"arguments and environment cannot be read");
		blob = wish->mapped;
		blob_len = wish->mapped_len;
		next = 1;
	}
	if (request->n_fds != next + 1 + (size_t)count_bits(wish->io))
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "exec", "not the descriptors it must have");
	wish->event_fd = (int)next;
	wish->first_io_fd = next + 1;
	return wish_read(wish, blob, blob_len, fault);
}

/* -- checks -- */

static int check_user(const struct flat_plan *plan, struct wish *wish, struct fault *fault)
{
	unsigned long id;
	char *end;

	if (!wish->user[0] || strcmp(wish->user, "agent") == 0) {
		wish->uid = plan->inside_uid;
		wish->gid = plan->inside_gid;
		return 0;
	}
	if (strcmp(wish->user, "root") == 0) {
		id = 0;
	} else {
		errno = 0;
		id = strtoul(wish->user, &end, 10);
		if (errno || *end || wish->user[0] < '0' || wish->user[0] > '9')
			return fault_set(fault, ABOX_E_INVALID, 0, "user",
				"there is no user \"%.64s\" in the box", wish->user);
	}
	if (plan->map == FLAT_MAP_SINGLE ? id != plan->inside_uid : id >= plan->map_count) {
		fault_set(fault, ABOX_E_UNSUPPORTED, 0, "user", "id %lu does not exist in the box", id);
		return fault_remedy(
			fault, "run as root, or give this user ranges in /etc/subuid and /etc/subgid");
	}
	wish->uid = (uint32_t)id;
	wish->gid = id == plan->inside_uid ? plan->inside_gid : (uint32_t)id;
	return 0;
}

static int check_wider(uint64_t wanted, uint64_t box, const char *place, struct fault *fault)
{
	if (wanted && box && wanted > box)
		return fault_set(fault, ABOX_E_LIMIT, 0, place, "is wider than the box's own limit");
	return 0;
}

static int check_streams(struct wish *wish, struct fault *fault)
{
	if (wish->pty) {
		if (wish->io & ~(uint32_t)WIRE_IO_PROGRAM)
			return fault_set(
				fault, ABOX_E_INVALID, 0, "pty", "a terminal takes no other streams");
		wish->stdin_mode = ABOX_STDIN_STREAM;
		wish->stdout_mode = ABOX_STREAM_SPOOL;
		wish->stderr_mode = ABOX_STREAM_NULL;
		wish->join_stderr = 1;
	}
	if (wish->stdin_mode > ABOX_STDIN_STREAM || wish->stdout_mode > ABOX_STREAM_FD ||
		wish->stderr_mode > ABOX_STREAM_FD || wish->survivors > ABOX_SURVIVORS_KEEP)
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "exec", "a mode that does not exist");
	if (wish->join_stderr && (wish->io & WIRE_IO_STDERR))
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "stderr", "goes two ways");
	if ((wish->stdin_mode == ABOX_STDIN_STREAM && (wish->io & WIRE_IO_STDIN)) ||
		(wish->stdout_mode == ABOX_STREAM_SPOOL && (wish->io & WIRE_IO_STDOUT)) ||
		(!wish->join_stderr && wish->stderr_mode == ABOX_STREAM_SPOOL && (wish->io & WIRE_IO_STDERR)))
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "exec", "a stream goes two ways");
	return 0;
}

static int check_wish(struct keeper *keeper, struct wish *wish, struct fault *fault)
{
	const struct flat_plan *plan = &keeper->plan;
	const struct flat_limits *limits = &plan->limits;
	int r;

	if (!wish->argv[0])
		return fault_set(fault, ABOX_E_INVALID, 0, "argv", "is empty");
	if (strlen(wish->token) > MAX_TOKEN)
		return fault_set(fault, ABOX_E_INVALID, 0, "token", "is longer than %d bytes", MAX_TOKEN);
	if (wish->cwd[0] && wish->cwd[0] != '/')
		return fault_set(fault, ABOX_E_INVALID, 0, "cwd", "must be absolute");
	r = check_streams(wish, fault);
	if (r == 0)
		r = check_user(plan, wish, fault);
	if (r == 0)
		r = check_wider(wish->memory_bytes, plan->cgroup_limits.memory_bytes, "memory_bytes", fault);
	if (r == 0)
		r = check_wider(wish->pids, limits->pids, "pids", fault);
	if (r == 0)
		r = check_wider(wish->output_bytes, limits->output_bytes, "output_bytes", fault);
	if (r == 0)
		r = check_wider(wish->open_files, limits->open_files, "open_files", fault);
	return r;
}

/* -- groups -- */

/* Groups of its own below the box's: one in the v2 tree to kill by, and where it asked for limits one that
 * has them. */
static int make_tree(struct keeper *keeper, struct command *command, struct fault *fault)
{
	uint32_t uid = keeper->plan.base_uid, gid = keeper->plan.base_gid;
	char name[32];
	int r;

	if (keeper->plan.kill != FLAT_KILL_CGROUP2)
		return 0;
	if (!keeper->has_group || keeper->group.tree_fd < 0)
		return fault_set(fault, ABOX_E_UNSUPPORTED, 0, "group",
			"the plan kills by control group, and there is none");
	snprintf(name, sizeof(name), "command-%u", command->id);
	r = cgroup_create_child(&keeper->group, name, &command->tree, fault);
	if (r < 0)
		return r;
	command->has_tree = true;
	/* To be born into it the command must be put there by the guest; the box itself has no cgroupfs. */
	return keeper->plan.map == FLAT_MAP_RANGE ? cgroup_allow_clone(&command->tree, uid, gid, fault) : 0;
}

static int limits_layout(struct keeper *keeper, struct cgroup_layout *ret)
{
	*ret = keeper->plan.cgroup;
	ret->tree_dir[0] = 0;
	ret->controllers &= CGROUP_BIT(CGROUP_MEMORY) | CGROUP_BIT(CGROUP_PIDS);
	for (size_t i = 0; i < CGROUP_N_CONTROLLERS; i++) {
		size_t len = strlen(ret->limits_dir[i]);

		if (!len)
			continue;
		if (len + 1 + strlen(keeper->group.name) >= sizeof(ret->limits_dir[i]))
			return -ENAMETOOLONG;
		snprintf(ret->limits_dir[i] + len, sizeof(ret->limits_dir[i]) - len, "/%s",
			keeper->group.name);
	}
	return 0;
}

static int make_limits(struct keeper *keeper, struct command *command, struct fault *fault)
{
	struct cgroup_limits limits = { .memory_bytes = command->memory_bytes, .pids = command->pids };
	struct cgroup_layout layout;
	uint32_t needed = 0;
	char name[32];
	int r;

	if (command->memory_bytes)
		needed |= CGROUP_BIT(CGROUP_MEMORY);
	if (command->pids)
		needed |= CGROUP_BIT(CGROUP_PIDS);
	if (!needed || keeper->plan.limits.own_by_rlimit)
		return 0;
	/* v2 has no limits below a group that holds processes, and the guest is in the box's */
	if (!keeper->has_group || keeper->plan.cgroup.limits_version != 1 ||
		(keeper->plan.cgroup.controllers & needed) != needed)
		return fault_set(fault, ABOX_E_UNSUPPORTED, 0,
			command->memory_bytes ? "memory_bytes" : "pids",
			"this host has no control group for a limit of one command");
	r = limits_layout(keeper, &layout);
	if (r < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -r, "group", "its name is too long");
	snprintf(name, sizeof(name), "command-%u", command->id);
	r = cgroup_create(&layout, name, &command->limits, fault);
	if (r < 0)
		return r;
	command->has_limits = true;
	return cgroup_set_limits(&command->limits, &limits, fault);
}

/* -- order -- */

/* Of two entries for one name the command's own counts. */
static const char **merge_env(const char *const *box, const char *const *own)
{
	size_t n_box = 0, n_own = 0, n = 0;
	const char **list;

	while (box && box[n_box])
		n_box++;
	while (own[n_own])
		n_own++;
	list = calloc(n_box + n_own + 1, sizeof(*list));
	if (!list)
		return NULL;
	for (size_t i = 0; i < n_box; i++) {
		size_t name_len = strcspn(box[i], "=") + 1;
		bool replaced = false;

		for (size_t k = 0; k < n_own && !replaced; k++)
			replaced = strncmp(box[i], own[k], name_len) == 0;
		if (!replaced)
			list[n++] = box[i];
	}
	for (size_t i = 0; i < n_own; i++)
		list[n++] = own[i];
	return list;
}

static int pack_order(struct keeper *keeper, struct command *command, const struct wish *wish,
	struct pack_writer *writer)
{
	const struct flat_plan *plan = &keeper->plan;
	struct guest_order order = {
		.argv = wish->argv,
		.cwd = wish->cwd[0] ? wish->cwd : plan->cwd,
		.uid = wish->uid,
		.gid = wish->gid,
		.pty = wish->pty,
		.rows = wish->rows ? wish->rows : DEFAULT_ROWS,
		.columns = wish->columns ? wish->columns : DEFAULT_COLUMNS,
		.cpu_usec = wish->cpu_usec,
		.file_bytes = wish->file_bytes,
		.open_files = wish->open_files ? wish->open_files : plan->limits.open_files,
		.pids = plan->limits.pids_by_rlimit ? plan->limits.pids : 0,
		.address_bytes = plan->limits.own_by_rlimit ? command->memory_bytes : 0,
		.survivors = command->survivors,
	};

	if (plan->limits.own_by_rlimit && command->pids)
		order.pids = command->pids;
	order.env = merge_env(plan->env, wish->env);
	if (!order.env)
		return -ENOMEM;
	guest_order_pack(writer, &order);
	free(order.env);
	return writer->failed ? -ENOMEM : 0;
}

/* Descriptors in the order of their bits; those that were made here are closed by the caller. */
struct order_fds {
	int fds[SOCKET_MAX_FDS];
	size_t n;
	int own[8];
	size_t n_own;
	uint32_t io;		/* GUEST_IO_* */
};

static void add_fd(struct order_fds *list, uint32_t bit, int fd, bool own)
{
	list->io |= bit;
	list->fds[list->n++] = fd;
	if (own)
		list->own[list->n_own++] = fd;
}

static int add_streams(struct command *command, struct request *request, const struct wish *wish,
	struct order_fds *list, struct fault *fault)
{
	size_t next = wish->first_io_fd;
	int fd, stdout_fd = -EBADF, r;

	if (wish->pty)
		return wish->io & WIRE_IO_PROGRAM
			       ? (add_fd(list, GUEST_IO_PROGRAM, request->fds[next], false), 0)
			       : 0;
	if (wish->io & WIRE_IO_STDIN) {
		add_fd(list, GUEST_IO_STDIN, request->fds[next++], false);
	} else if (wish->stdin_mode == ABOX_STDIN_STREAM) {
		r = pump_open_input(command, &fd, fault);
		if (r < 0)
			return r;
		add_fd(list, GUEST_IO_STDIN, fd, true);
	}
	if (wish->io & WIRE_IO_STDOUT) {
		stdout_fd = request->fds[next++];
		add_fd(list, GUEST_IO_STDOUT, stdout_fd, false);
	} else if (wish->stdout_mode == ABOX_STREAM_SPOOL) {
		r = pump_open_spool(command, 0, &stdout_fd, fault);
		if (r < 0)
			return r;
		add_fd(list, GUEST_IO_STDOUT, stdout_fd, true);
	}
	if (wish->join_stderr) {
		if (stdout_fd >= 0)
			add_fd(list, GUEST_IO_STDERR, stdout_fd, false);
	} else if (wish->io & WIRE_IO_STDERR) {
		add_fd(list, GUEST_IO_STDERR, request->fds[next++], false);
	} else if (wish->stderr_mode == ABOX_STREAM_SPOOL) {
		r = pump_open_spool(command, 1, &fd, fault);
		if (r < 0)
			return r;
		add_fd(list, GUEST_IO_STDERR, fd, true);
	}
	if (wish->io & WIRE_IO_PROGRAM)
		add_fd(list, GUEST_IO_PROGRAM, request->fds[next], false);
	return 0;
}

static int add_groups(struct command *command, struct order_fds *list, struct fault *fault)
{
	static const enum cgroup_controller limiting[] = { CGROUP_MEMORY, CGROUP_PIDS };
	uint32_t bit = GUEST_IO_TASKS1;

	if (command->has_tree)
		add_fd(list, GUEST_IO_CGROUP, command->tree.tree_fd, false);
	for (size_t i = 0; command->has_limits && i < ELEMENTSOF(limiting); i++) {
		int dir_fd = command->limits.dir_fds[limiting[i]], fd;

		if (dir_fd < 0)
			continue;
		/* opened with the keeper's rights: the command joins through it, without any way to another
		 * group */
		fd = openat(dir_fd, "tasks", O_WRONLY | O_CLOEXEC);
		if (fd < 0)
			return fault_set(fault, ABOX_E_SYSTEM, errno, "group", "cannot be opened");
		add_fd(list, bit, fd, true);
		bit <<= 1;
	}
	return 0;
}

static int send_order(struct keeper *keeper, struct command *command, const struct wish *wish,
	struct order_fds *list, struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer order = PACK_WRITER_INIT, message = PACK_WRITER_INIT;
	_cleanup_(fd_closep) int blob_fd = -EBADF;
	int fds[SOCKET_MAX_FDS + 1];
	size_t n = 0;
	int r;

	r = pack_order(keeper, command, wish, &order);
	if (r == 0 && order.len > GUEST_INLINE_MAX) {
		r = memfd_new_sealed("order", order.data, order.len, 0400, &blob_fd);
		fds[n++] = blob_fd;
	}
	if (r < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -r, "exec", "cannot write the order");
	memcpy(fds + n, list->fds, list->n * sizeof(*fds));
	n += list->n;
	guest_message_begin(&message, GUEST_SPAWN, command->id);
	pack_u32(&message, list->io);
	pack_bytes(&message, blob_fd >= 0 ? "" : (const void *)order.data, blob_fd >= 0 ? 0 : order.len);
	if (n > SOCKET_MAX_FDS)
		return fault_set(fault, ABOX_E_LIMIT, 0, "exec", "too many descriptors go with it");
	r = guest_message_send(keeper->guest.fd, &message, fds, n);
	if (r < 0)
		return fault_set(fault, r == -EAGAIN ? ABOX_E_BUSY : ABOX_E_GONE, -r, "guest",
			"it does not take the order");
	return 0;
}

static int order_command(struct keeper *keeper, struct command *command, struct request *request,
	const struct wish *wish, struct fault *fault)
{
	struct order_fds list = { .n = 0 };
	int r;

	r = make_tree(keeper, command, fault);
	if (r == 0)
		r = make_limits(keeper, command, fault);
	if (r == 0)
		r = add_streams(command, request, wish, &list, fault);
	if (r == 0)
		r = add_groups(command, &list, fault);
	if (r == 0) {
		cgroup_read_evidence(
			command->has_limits ? &command->limits : &keeper->group, &command->before);
		command->started_usec = clock_monotonic_usec();
		r = send_order(keeper, command, wish, &list, fault);
	}
	for (size_t i = 0; i < list.n_own; i++)
		fd_close(list.own[i]);
	return r;
}

/* -- the command object -- */

static void forget_oldest(struct keeper *keeper)
{
	struct command **p = &keeper->commands, **oldest = NULL;

	if (keeper->n_commands < MAX_COMMANDS)
		return;
	for (; *p; p = &(*p)->next) {
		if ((*p)->state == COMMAND_ENDED && (*p)->tree_gone)
			oldest = p;
	}
	if (oldest) {
		struct command *command = *oldest;

		*oldest = command->next;
		keeper->n_commands--;
		command_free(command);
	}
}

static struct command *new_command(struct keeper *keeper, const struct wish *wish)
{
	struct command *command = calloc(1, sizeof(*command));

	if (!command)
		return NULL;
	command->keeper = keeper;
	command->id = keeper->next_command++;
	command->stdin_mode = wish->stdin_mode;
	command->stdout_mode = wish->stdout_mode;
	command->stderr_mode = wish->stderr_mode;
	command->join_stderr = wish->join_stderr;
	command->pty = wish->pty;
	command->output_kill = wish->output_kill;
	command->survivors = wish->survivors;
	command->timeout_usec = wish->timeout_usec;
	command->grace_usec = wish->grace_usec ? wish->grace_usec : keeper->plan.limits.grace_usec;
	command->memory_bytes = wish->memory_bytes;
	command->pids = wish->pids;
	command->cpu_limit_usec = wish->cpu_usec;
	command->file_bytes = wish->file_bytes;
	command->tree = command->limits = CGROUP_GROUP_INIT;
	command->timeout_at = command->kill_at = command->drain_at = command->gone_at = UINT64_MAX;
	command->in.fd = -EBADF;
	for (size_t i = 0; i < 2; i++) {
		command->out[i].fd = command->spools[i].fd = -EBADF;
		command->spools[i].cap =
			wish->output_bytes ? wish->output_bytes : keeper->plan.limits.output_bytes;
	}
	command->argv0 = strndup(wish->argv[0], 256);
	if (wish->token[0]) {
		command->token = strdup(wish->token);
		command->fingerprint = wish->fingerprint;
	}
	if (!command->argv0 || (wish->token[0] && !command->token)) {
		command_free(command);
		return NULL;
	}
	return command;
}

/* 1 and *ret when the token has started a command before. */
static int find_token(
	struct keeper *keeper, const struct wish *wish, struct command **ret, struct fault *fault)
{
	if (!wish->token[0])
		return 0;
	for (struct command *command = keeper->commands; command; command = command->next) {
		if (!command->token || strcmp(command->token, wish->token) != 0)
			continue;
		if (memcmp(&command->fingerprint, &wish->fingerprint, sizeof(wish->fingerprint)) != 0)
			return fault_set(
				fault, ABOX_E_CONFLICT, 0, "token", "this token has started another command");
		*ret = command;
		return 1;
	}
	return 0;
}

static int answer_existing(struct keeper *keeper, struct request *request, struct waiter *waiter,
	struct command *command, int event_fd)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;

	waiter->command = command->id;
	waiter->existing = true;
	if (command->state != COMMAND_STARTING) {
		client_waiter_free(request->client, waiter);
		client_begin(&writer, WIRE_OK, request->serial);
		pack_u32(&writer, command->id);
		pack_u8(&writer, 1);
		client_send(keeper, request->client, &writer);
	}
	command_watch(keeper, command, event_fd);
	return 0;
}

static int start_new(struct keeper *keeper, struct request *request, const struct wish *wish,
	struct waiter *waiter, struct fault *fault)
{
	struct command *command;
	int r;

	forget_oldest(keeper);
	command = new_command(keeper, wish);
	if (!command)
		return fault_set(fault, ABOX_E_MEMORY, 0, "exec", "no memory for it");
	record_prepare_command(command, wish->argv, wish->cwd[0] ? wish->cwd : keeper->plan.cwd, wish->uid);
	r = order_command(keeper, command, request, wish, fault);
	if (r < 0) {
		command_free(command);
		return r;
	}
	command->next = keeper->commands;
	keeper->commands = command;
	keeper->n_commands++;
	keeper->n_running++;
	keeper->n_started++;
	clocks_touch_idle(keeper);
	waiter->command = command->id;
	r = command_watch(keeper, command, request->fds[wish->event_fd]);
	request->fds[wish->event_fd] = -EBADF;
	if (r < 0)
		keeper_log(keeper, ABOX_LOG_WARNING, "command %u cannot be watched", command->id);
	return 0;
}

int command_start(struct keeper *keeper, struct request *request, struct fault *fault)
{
	_cleanup_(wish_clear) struct wish wish = { 0 };
	struct command *existing = NULL;
	struct waiter *waiter;
	int r;

	r = take_wish(request, &wish, fault);
	if (r == 0)
		r = check_wish(keeper, &wish, fault);
	if (r == 0)
		r = find_token(keeper, &wish, &existing, fault);
	if (r < 0)
		return r;
	waiter = client_wait(request->client, WIRE_EXEC, request->serial);
	if (!waiter)
		return fault_set(fault, ABOX_E_LIMIT, 0, "exec", "too many requests of this connection wait");
	if (existing) {
		int event_fd = request->fds[wish.event_fd];

		request->fds[wish.event_fd] = -EBADF;
		return answer_existing(keeper, request, waiter, existing, event_fd);
	}
	r = start_new(keeper, request, &wish, waiter, fault);
	if (r < 0)
		client_waiter_free(request->client, waiter);
	return r;
}
