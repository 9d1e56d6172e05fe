/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The guest's way from clone to READY. Promises that it holds nothing of the keeper's but the channel, that
 * nobody of its uid can look into it, and that commands find everything in place; or it tells what failed and
 * ends.
 *
 * Security: the order matters. Ids are taken before the tree is built, so that what is made belongs to the box;
 * the old root is gone, and the network namespace and the groups are entered, before anything of the box can run.
 */
#include "backend/namespaces/namespaces.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <agentbox/error.h>
#include <agentbox/sandbox.h>

#include "base/fd.h"
#include "guest/guest.h"
#include "guest/network.h"
#include "kernel/caps.h"
#include "kernel/compat.h"
#include "kernel/landlock.h"
#include "kernel/userns.h"

#define SECURE_NO_SETUID_FIXUP (1 << 2)

static void log_line(const char *message)
{
	uint8_t buffer[1024];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));

	guest_message_begin(&writer, GUEST_LOG, 0);
	pack_u32(&writer, ABOX_LOG_WARNING);
	pack_string(&writer, message);
	guest_message_send(GUEST_FD_CHANNEL, &writer, NULL, 0);
}

static int set_dumpable(int value, struct fault *fault)
{
	if (prctl(PR_SET_DUMPABLE, value) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "dumpable", "cannot be set");
	return 0;
}

static int ask_for_maps(struct fault *fault)
{
	char byte = ENTER_MAP_ME;
	int r = socket_send(GUEST_FD_CHANNEL, &byte, 1, NULL, 0);

	return r < 0 ? fault_set(fault, ABOX_E_GONE, -r, "maps", "the keeper is gone") : 0;
}

static int wait_for_maps(struct fault *fault)
{
	char byte;

	if (socket_recv(GUEST_FD_CHANNEL, &byte, 1, NULL, NULL) != 1 || byte != ENTER_MAPPED)
		return fault_set(fault, ABOX_E_GONE, 0, "maps", "the keeper is gone");
	return 0;
}

/*
 * A non-dumpable process's /proc files belong to root, so a plain user's maps can only be written while it is
 * dumpable. Nothing of the box runs yet, and what the guest holds by now is the plan. A privileged keeper
 * needs no word from us.
 */
static int take_maps(const struct flat_plan *plan, struct fault *fault)
{
	struct id_range uid = { plan->inside_uid, plan->outside_uid, 1 },
			gid = { plan->inside_gid, plan->outside_gid, 1 };
	int r;

	if (plan->map == FLAT_MAP_RANGE)
		return wait_for_maps(fault);
	r = set_dumpable(1, fault);
	if (r < 0)
		return r;
	if (plan->map == FLAT_MAP_SINGLE)
		r = userns_write_maps(0, &uid, 1, &gid, 1, true, fault);
	else
		r = ask_for_maps(fault);
	if (r == 0 && plan->map == FLAT_MAP_HELPERS)
		r = wait_for_maps(fault);
	return r < 0 ? r : set_dumpable(0, fault);
}

/* With one id the guest is it already. Else it becomes root inside, which is an unprivileged high id outside.
 */
static int take_ids(const struct flat_plan *plan, struct fault *fault)
{
	if (prctl(PR_SET_SECUREBITS, SECURE_NO_SETUID_FIXUP) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "securebits", "cannot be set");
	if (plan->clear_groups) {
		if (syscall(SYS_setgroups, 0, NULL) < 0)
			return fault_set(fault, ABOX_E_SYSTEM, errno, "groups", "cannot be cleared");
		if (getgroups(0, NULL) != 0)
			return fault_set(fault, ABOX_E_SYSTEM, 0, "groups",
				"are still there after having been cleared");
	}
	if (plan->map == FLAT_MAP_SINGLE)
		return 0;
	/* the saved one goes in enter_groups() */
	if (syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, -1) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "ids", "cannot become root of the box");
	return 0;
}

static int move_fd(int fd, int number, const char *place, struct fault *fault)
{
	int r = dup3(fd, number, O_CLOEXEC) < 0 ? -errno : 0;

	fd_close(fd);
	return r < 0 ? fault_set(fault, ABOX_E_SYSTEM, -r, place, "no descriptor left for it") : 0;
}

/* Its own knob, so that commands start as likelier victims. Openable only while dumpable; see take_maps(). */
static int open_oom(struct fault *fault)
{
	int fd, r;

	r = set_dumpable(1, fault);
	if (r < 0)
		return r;
	fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
	r = set_dumpable(0, fault);
	if (r < 0 || fd < 0)
		return r;	/* a box without /proc: victims are chosen by size alone */
	return move_fd(fd, GUEST_FD_OOM, "oom_score_adj", fault);
}

static int make_rules(const struct flat_plan *plan, struct fault *fault)
{
	uint32_t scopes = plan->landlock_scope ? LANDLOCK_SCOPE_SIGNALS | LANDLOCK_SCOPE_ABSTRACT_SOCKETS : 0;
	_cleanup_(freep) struct landlock_rule *rules = NULL;
	_cleanup_(fd_closep) int fd = -EBADF;
	size_t n_rules = 0;
	int r;

	if (!plan->landlock_abi)
		return 0;
	rules = calloc(plan->n_landlock + 1, sizeof(*rules));
	if (!rules)
		return fault_set(fault, ABOX_E_MEMORY, 0, "landlock", "no memory for the rules");
	/* what is not there (an optional source, a step that was left out) needs no grant */
	for (uint32_t i = 0; i < plan->n_landlock; i++) {
		if (access(plan->landlock[i].path, F_OK) < 0 && errno == ENOENT)
			continue;
		rules[n_rules++] =
			(struct landlock_rule){ -EBADF, plan->landlock[i].path, plan->landlock[i].access };
	}
	r = landlock_new(rules, n_rules, scopes, &fd, fault);
	return r < 0 ? r : move_fd(steal_fd(fd), GUEST_FD_RULES, "landlock", fault);
}

static int make_scope(const struct flat_plan *plan, struct fault *fault)
{
	_cleanup_(fd_closep) int root_fd = -EBADF, fd = -EBADF;
	int r;

	if (!plan->landlock_scope)
		return 0;
	root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root_fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "/", "cannot be opened");
	r = landlock_new_scope(root_fd, LANDLOCK_SCOPE_SIGNALS, &fd, fault);
	return r < 0 ? r : move_fd(steal_fd(fd), GUEST_FD_SCOPE, "landlock", fault);
}

static int copy_filter(const struct flat_plan *plan, struct guest_box *box, struct fault *fault)
{
	struct filter_insn *filter = malloc(plan->filter_len + 1);

	if (!filter)
		return fault_set(fault, ABOX_E_MEMORY, 0, "filter", "no memory for it");
	memcpy(filter, plan->filter, plan->filter_len);	/* in the plan it lies unaligned */
	box->filter = filter;
	box->n_filter = plan->filter_len / sizeof(*filter);
	return 0;
}

static int renew_proc(const void *userdata, struct fault *fault)
{
	return tree_renew_proc(userdata, fault);
}

static int fill_box(const struct flat_plan *plan, struct guest_box *box, struct fault *fault)
{
	box->has_rules = plan->landlock_abi > 0;
	box->has_scope = plan->landlock_scope;
	box->new_pidns = plan->kill == FLAT_KILL_PIDNS;
	box->filtered_shepherds = plan->kill != FLAT_KILL_CGROUP2;
	box->renew_proc = renew_proc;
	box->userdata = plan;
	box->network = plan->network.mode != FLAT_NETWORK_NONE ? &plan->network : NULL;
	if (!plan->filter_len)
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "filter", "the plan has none");
	if (plan->kill == FLAT_KILL_SCOPE && !plan->landlock_scope)
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "kill", "by scope, but the plan has no scope");
	return copy_filter(plan, box, fault);
}

/*
 * The channel, and nothing else but the lock of the workspace: that is held until the last process of the box is gone,
 * even when the keeper is killed. The table of descriptors gets its size here, before netns.c shares it: the kernel makes
 * who enlarges a shared one wait for a grace period.
 */
static int close_rest(const struct flat_plan *plan, struct fault *fault)
{
	unsigned int last = SOURCES_FD + plan->n_steps;	/* the last that a source may take */
	bool has_lock = plan->workspace && plan->workspace->lock_fd >= 0;

	if (dup3(has_lock ? plan->workspace->lock_fd : GUEST_FD_CHANNEL, (int)last + 1, O_CLOEXEC) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "descriptors", "there is no room for them");
	if (sys_close_range(GUEST_FD_CHANNEL + 1, last, 0) < 0 || sys_close_range(last + (has_lock ? 2 : 1), ~0U, 0) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "descriptors", "cannot be closed");
	return 0;
}

/*
 * What was built until here is not counted in the box's groups, and is no more than the plan says. The saved id is still
 * that of who made them, because the kernel asks for it; it has no way back in a user namespace that does not map it, and
 * goes now.
 */
static int enter_groups(const struct flat_plan *plan, struct fault *fault)
{
	int fds[SOCKET_MAX_FDS], r = 0;
	size_t n_fds = 0;
	char byte;

	if (plan->use_cgroup && cgroup_has_rest(&plan->cgroup)) {
		if (socket_recv(GUEST_FD_CHANNEL, &byte, 1, fds, &n_fds) != 1 || byte != ENTER_GROUPS)
			r = fault_set(fault, ABOX_E_GONE, 0, "cgroup", "the keeper is gone");
		if (r == 0)
			r = cgroup_join_by(fds, n_fds, fault);
		for (size_t i = 0; i < n_fds; i++)
			fd_close(fds[i]);
	}
	if (r == 0 && plan->map != FLAT_MAP_SINGLE && syscall(SYS_setresuid, 0, 0, 0) < 0)
		r = fault_set(fault, ABOX_E_SYSTEM, errno, "ids", "cannot become root of the box");
	/* after joining, so that the box's own group is its root */
	if (r == 0 && unshare(CLONE_NEWCGROUP) < 0)
		r = fault_set(fault, ABOX_E_SYSTEM, errno, "cgroup namespace", "cannot be made");
	return r;
}

static int build(const struct flat_plan *plan, int *retscratch_fd, struct fault *fault)
{
	int scratch_fd = -EBADF, r;

	if (plan->map != FLAT_MAP_RANGE) {
		r = sources_open(plan, fault);
		if (r < 0)
			return r;
	}
	r = tree_enter(plan, log_line, &scratch_fd, fault);
	if (r == 0)
		r = sources_end(plan, fault);
	if (r < 0)
		return r;
	if (sethostname(plan->hostname, strlen(plan->hostname)) < 0)
		r = fault_set(fault, ABOX_E_SYSTEM, errno, "hostname", "cannot be set");
	if (r == 0)
		r = netns_enter(fault);
	if (r == 0 && plan->network.mode != FLAT_NETWORK_NONE)
		r = guest_network_enter(&plan->network, GUEST_FD_CHANNEL, fault);
	if (r == 0)
		r = enter_groups(plan, fault);
	*retscratch_fd = scratch_fd;
	return r;
}

static int make_ready(
	const struct flat_plan *plan, struct guest_box *box, int scratch_fd, struct fault *fault)
{
	uint8_t buffer[16];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));
	int r;

	/* the channel and the scratch, which is closed after READY, are all that is open here */
	r = guest_open_null(fault);
	if (r == 0)
		r = guest_block_signals(fault);
	if (r == 0)
		r = open_oom(fault);
	if (r == 0)
		r = make_rules(plan, fault);
	if (r == 0)
		r = make_scope(plan, fault);
	if (r == 0)
		r = fill_box(plan, box, fault);
	if (r < 0)
		return r;
	guest_message_begin(&writer, GUEST_READY, 0);
	r = guest_message_send(GUEST_FD_CHANNEL, &writer, &scratch_fd, 1);
	if (r < 0)
		return fault_set(fault, ABOX_E_GONE, -r, "channel", "the keeper is gone");
	fd_close(scratch_fd);
	return 0;
}

int guest_main(const struct flat_plan *plan, int scratch_fd, struct fault *fault)
{
	static struct guest_box box;
	int r = make_ready(plan, &box, scratch_fd, fault);

	if (r == 0)
		guest_run(&box);
	return r;
}

_noreturn_ void guest_enter(const struct flat_plan *plan, outer_main run)
{
	struct fault fault;
	int scratch_fd = -EBADF, r;

	fault_init(&fault, ABOX_STAGE_START);
	prctl(PR_SET_NAME, "agentbox-guest");
	r = close_rest(plan, &fault);
	if (r == 0)
		r = netns_begin(plan->lo_up && plan->network.mode == FLAT_NETWORK_NONE, &fault);
	if (r == 0)
		r = take_maps(plan, &fault);
	if (r == 0)
		r = take_ids(plan, &fault);
	/* the program of another wall is executed with them, in a user namespace of this box alone */
	if (r == 0 && !flat_has_program(plan))
		r = caps_drop_bounding(&fault);
	if (r == 0)
		r = set_dumpable(0, &fault);
	/* after the ids, because changing them takes it away */
	if (r == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		r = fault_set(&fault, ABOX_E_SYSTEM, errno, "pdeathsig", "cannot be set");
	if (r == 0)
		r = build(plan, &scratch_fd, &fault);
	/* high, so that it is in nobody's way */
	if (r == 0) {
		scratch_fd = fd_move_above(scratch_fd, SOURCES_FD);
		if (scratch_fd < 0)
			r = fault_set(
				&fault, ABOX_E_SYSTEM, -scratch_fd, "scratch", "no descriptor left for it");
	}
	if (r == 0)
		r = run(plan, scratch_fd, &fault);
	guest_message_send_fault(GUEST_FD_CHANNEL, GUEST_FAULT, 0, &fault);
	_exit(1);
}
